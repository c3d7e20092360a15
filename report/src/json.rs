//! The JSON report: [`Report`] through serde, nothing added and nothing renamed.

use crate::{AdmissionReport, Report};
use serde::Serialize;
use std::io::{self, BufWriter, Write};

/// The report as pretty-printed JSON that ends in a newline. The fields are described in this crate's README.
#[must_use]
pub fn json(report: &Report) -> String {
    // Only a map with keys that are not strings, or a failing writer, can make this fail: we have neither.
    let mut text = serde_json::to_string_pretty(report).expect("a report holds only JSON types");
    text.push('\n');
    text
}

/// As [`json`], but written to `out` as it is made: a schedule of millions of entries is never held as text.
///
/// # Errors
/// When `out` fails.
pub fn json_to(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    write(report, out)
}

/// The verdict of admission as pretty-printed JSON that ends in a newline.
///
/// # Errors
/// When `out` fails.
pub fn admission_json_to(report: &AdmissionReport, out: &mut dyn Write) -> io::Result<()> {
    write(report, out)
}

/// How long the text of a report may be that goes into a record: a run of 100,000 threads has one that is shorter.
const SUMMARY_LIMIT: usize = 48 << 20;

/// The summary of a run that its record ends with, in one line of JSON: all of the report but what ran when, which the record knows,
/// and how long the run took. Empty if it would be too long.
#[must_use]
pub fn summary(report: &Report) -> String {
    let summary =
        Report { wall_ns: 0, schedule: None, states: None, events: None, jobs: None, ..report.clone() };
    let text = serde_json::to_string(&summary).unwrap_or_default();
    if text.len() <= SUMMARY_LIMIT { text } else { String::new() }
}

/// Reads what [`summary`] wrote.
#[must_use]
pub fn read_summary(text: &str) -> Option<Report> {
    serde_json::from_str(text).ok()
}

fn write(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    serde_json::to_writer_pretty(&mut out, value)?;
    out.write_all(b"\n")?;
    out.flush()
}
