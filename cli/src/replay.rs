//! `mainspring replay`.

use crate::args::ReplayArgs;
use crate::failure::Failure;
use crate::input;
use crate::output::Output;
use mainspring_record::Log;
use mainspring_record::file::{RecordError, RecordReader};
use mainspring_record::replay::{self, ReplayError};
use mainspring_record::verify::verify_with_summary;
use mainspring_report::read_summary;
use std::io::Read;

/// Makes the decisions of a flight record again, and says that they were the same.
pub fn replay(args: &ReplayArgs, output: Output) -> Result<(), Failure> {
    let name = input::name(&args.record);
    let mut record = input::record(&args.record, "replaying", output)?;
    let bad = |error: ReplayError| Failure::Replay { name: name.clone(), error };
    // The record itself shows how far it has been read.
    let (same, verified) = if args.verify {
        let mut bytes = Vec::new();
        record.read_to_end(&mut bytes).map_err(|cause| bad(RecordError::Io(cause).into()))?;
        let same = replay::replay(bytes.as_slice(), &mut |_| ()).map_err(bad)?;
        let reader = RecordReader::new(bytes.as_slice()).map_err(|error| bad(error.into()))?;
        let header = reader.header().clone();
        let log = Log::read(reader).map_err(|error| bad(error.into()))?;
        let summary = read_summary(log.summary());
        verify_with_summary(&header, log, summary.as_ref())
            .map_err(|error| Failure::Verify { name: name.clone(), error })?;
        (same, ", verified")
    } else {
        (replay::replay(record, &mut |_| ()).map_err(bad)?, "")
    };
    output.line(format_args!(
        "{name}: ok, {} events, {} decisions, digest {}, recorded from {}{verified}",
        same.events, same.decisions, same.digest, same.workload
    ))
}
