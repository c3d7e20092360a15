//! `mainspring replay`.

use crate::args::ReplayArgs;
use crate::failure::Failure;
use crate::input;
use crate::output::Output;
use mainspring_sim::books::Log;
use mainspring_sim::record::{RecordError, RecordReader};
use mainspring_sim::verify::verify;
use std::io::Read;

/// Makes the decisions of a flight record again, and says that they were the same.
pub fn replay(args: &ReplayArgs, output: Output) -> Result<(), Failure> {
    let name = input::name(&args.record);
    let record = input::record(&args.record, "replaying", output)?;
    // The record itself shows how far it has been read.
    let (replayed, verified) = if args.verify {
        let bytes =
            read_all(record).map_err(|error| Failure::Replay { name: name.clone(), error: error.into() })?;
        (mainspring_sim::replay::replay(bytes.as_slice(), &mut |_| ()), Some(bytes))
    } else {
        (mainspring_sim::replay::replay(record, &mut |_| ()), None)
    };
    let same = replayed.map_err(|error| Failure::Replay { name: name.clone(), error })?;
    let verified = match verified {
        Some(bytes) => {
            check(&bytes, &name)?;
            ", verified"
        }
        None => "",
    };
    output.line(format_args!(
        "{name}: ok, {} events, {} decisions, digest {}, recorded from {}{verified}",
        same.events, same.decisions, same.digest, same.workload
    ))
}

fn read_all(mut record: impl Read) -> Result<Vec<u8>, RecordError> {
    let mut bytes = Vec::new();
    record.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Lets the checkers look at a record that replays.
fn check(bytes: &[u8], name: &str) -> Result<(), Failure> {
    let bad = |error: RecordError| Failure::Replay { name: name.to_owned(), error: error.into() };
    let reader = RecordReader::new(bytes).map_err(bad)?;
    let header = reader.header().clone();
    let log = Log::read(reader).map_err(bad)?;
    verify(&header, log).map_err(|error| Failure::Verify { name: name.to_owned(), error })?;
    Ok(())
}
