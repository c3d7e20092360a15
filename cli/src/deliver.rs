//! A report on its way out: to standard output, and into the files that were asked for.
//!
//! Whatever can be refused is refused before the run: every output file is opened. What comes after a run of minutes can
//! then hardly fail.

use crate::args::ReportForm;
use crate::failure::Failure;
use crate::input;
use crate::junit::junit;
use crate::outfile::{OutFile, Target};
use crate::output::Output;
use mainspring_report::{Report, html, json_to, perfetto, perfetto_trace, text};
use std::fs;
use std::path::{Path, PathBuf};

/// How a report is printed.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    pub report: ReportForm,
    pub schedule: bool,
    pub expand: bool,
}

/// The files that were asked for, by option.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
    pub record: Option<&'a PathBuf>,
    pub trace: Option<&'a PathBuf>,
    pub html: Option<&'a PathBuf>,
    pub junit: Option<&'a PathBuf>,
}

/// The files to write, each open.
pub struct Files {
    trace: Option<OutFile>,
    html: Option<OutFile>,
    pub record: Option<OutFile>,
    junit: Option<OutFile>,
}

impl Files {
    /// Opens those that were asked for, unless two of them, or one and the input, are the same file.
    pub fn open(file: &Path, what: &'static str, wanted: Wanted<'_>) -> Result<Self, Failure> {
        let mut taken = Vec::new();
        taken.extend(regular(input::on_disk(file)).map(|path| (path, what)));
        taken.extend(regular(Path::new("/dev/stdout")).map(|path| (path, "where the report goes")));
        let mut resolve = |option, given: Option<&PathBuf>| -> Result<Option<Target>, Failure> {
            let Some(given) = given else { return Ok(None) };
            let target = Target::resolve(given)?;
            if let Some(file) = target.file() {
                if let Some((_, by)) = taken.iter().find(|(path, _)| path == file) {
                    return Err(Failure::Taken { option, path: given.clone(), by });
                }
                taken.push((file.to_path_buf(), "already the file of another option"));
            }
            Ok(Some(target))
        };
        let record = resolve("--record", wanted.record)?;
        let trace = resolve("--trace", wanted.trace)?;
        let html = resolve("--html", wanted.html)?;
        let junit = resolve("--junit", wanted.junit)?;
        let open = |target: Option<Target>| target.map(Target::open).transpose();
        Ok(Self { trace: open(trace)?, html: open(html)?, record: open(record)?, junit: open(junit)? })
    }

    /// Writes them all, and returns their paths. The record was written during the run.
    fn write(self, report: &Report) -> Result<Vec<PathBuf>, Failure> {
        let record = self.record.map(OutFile::finish);
        let trace = self.trace.map(|file| {
            let as_json = file.path().extension().is_some_and(|ending| ending == "json");
            file.write(|out| if as_json { perfetto(report, out) } else { perfetto_trace(report, out) })
        });
        let html = self.html.map(|file| file.write(|out| html(report, out)));
        let junit = self.junit.map(|file| file.write(|out| junit(report, &report.expectations, out)));
        [record, trace, html, junit].into_iter().flatten().collect()
    }
}

/// Writes the files and prints the report.
pub fn deliver(mut report: Report, files: Files, form: Form, output: Output) -> Result<(), Failure> {
    let written = files.write(&report)?;
    if !form.schedule {
        (report.schedule, report.states, report.events, report.jobs) = (None, None, None, None);
    }
    // The report may fail (standard output is a full disk), and the files are there all the same.
    let printed = print(form, &report, output);
    for path in written {
        output.note(format_args!("wrote {}", path.display()));
    }
    printed
}

fn print(form: Form, report: &Report, output: Output) -> Result<(), Failure> {
    match form.report {
        ReportForm::Json => output.write(|stdout| json_to(report, stdout)),
        ReportForm::Text => {
            if form.schedule {
                output.note(
                    "note: the text report has no room for the schedule; add `--report json` to see it",
                );
            }
            let style = output.text_style(form.expand);
            output.write(|stdout| stdout.write_all(text(report, style).as_bytes()))
        }
    }
}

/// The resolved path, if there is a regular file.
fn regular(path: &Path) -> Option<PathBuf> {
    fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    fs::canonicalize(path).ok()
}
