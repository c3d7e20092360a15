//! `mainspring replay`.

use crate::args::ReplayArgs;
use crate::failure::Failure;
use crate::input::{self, Record};
use crate::output::Output;
use crate::progress::Progress;
use indicatif::HumanBytes;

/// Makes the decisions of a flight record again, and says that they were the same.
pub fn replay(args: &ReplayArgs, output: Output) -> Result<(), Failure> {
    let name = input::name(&args.record);
    let Record { bytes, length } = input::record(&args.record)?;
    let mut progress = length.map(|length| Progress::new("replaying", length, output));
    let replayed = mainspring_sim::replay::replay(bytes, &mut |read| {
        if let Some(progress) = &mut progress {
            progress.at(read, || HumanBytes(read).to_string());
        }
    });
    drop(progress);
    match replayed {
        Ok(same) => output.line(format_args!(
            "{name}: ok, {} events, {} decisions, digest {}, recorded from {}",
            same.events, same.decisions, same.digest, same.workload
        )),
        Err(error) => Err(Failure::Replay { name, error }),
    }
}
