//! `mainspring replay`.

use crate::args::ReplayArgs;
use crate::failure::Failure;
use crate::input;
use crate::output::Output;

/// Makes the decisions of a flight record again, and says that they were the same.
pub fn replay(args: &ReplayArgs, output: Output) -> Result<(), Failure> {
    let name = input::name(&args.record);
    let record = input::record(&args.record, "replaying", output)?;
    // The record itself shows how far it has been read.
    match mainspring_sim::replay::replay(record, &mut |_| ()) {
        Ok(same) => output.line(format_args!(
            "{name}: ok, {} events, {} decisions, digest {}, recorded from {}",
            same.events, same.decisions, same.digest, same.workload
        )),
        Err(error) => Err(Failure::Replay { name, error }),
    }
}
