//! `mainspring report`: what `run` would have printed and written, from a record.

use crate::args::ReportArgs;
use crate::deliver::{Files, Form, Wanted, deliver};
use crate::failure::Failure;
use crate::input;
use crate::output::Output;
use mainspring_record::Log;
use mainspring_record::file::{Header, RecordReader};
use mainspring_record::report::RecordReport;
use mainspring_report::Report;
use std::path::Path;

/// Reads a whole record, makes its decisions again, and reports.
pub fn report(args: &ReportArgs, output: Output) -> Result<(), Failure> {
    let wanted = Wanted { trace: args.trace.as_ref(), html: args.html.as_ref(), ..Wanted::default() };
    let files = Files::open(&args.record, "the record", wanted)?;
    let (header, log) = read(&args.record, output)?;
    let report = report_of(&args.record, &header, log)?;
    let form = Form { report: args.report, schedule: args.schedule, expand: args.expand };
    deliver(report, files, form, output)
}

/// A record, read to its end.
pub fn read(path: &Path, output: Output) -> Result<(Header, Log), Failure> {
    let bad = |error| Failure::Replay { name: input::name(path), error };
    let record = input::record(path, "reading", output)?;
    let reader = RecordReader::new(record).map_err(|error| bad(error.into()))?;
    let header = reader.header().clone();
    let log = Log::read(reader).map_err(|error| bad(error.into()))?;
    Ok((header, log))
}

/// The report of a record.
pub fn report_of(path: &Path, header: &Header, log: Log) -> Result<Report, Failure> {
    RecordReport::of_file(header, log).map_err(|error| Failure::Replay { name: input::name(path), error })
}
