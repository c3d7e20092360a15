//! `mainspring run`.
//!
//! Whatever can be refused is refused before the run: the workload is read, and every output file is opened. What
//! comes after a run of minutes can then hardly fail.

use crate::args::{FailOn, Machine, ReportForm, RunArgs};
use crate::expect;
use crate::failure::Failure;
use crate::input;
use crate::junit::junit;
use crate::linux;
use crate::machine_run::{self, MachineError, Reported};
use crate::outfile::{OutFile, Target};
use crate::output::Output;
use crate::progress::Progress;
use crate::qemu;
use crate::refuse;
use mainspring_abi::Nanos;
use mainspring_record::check;
use mainspring_record::watch::Watch;
use mainspring_report::{Expected, Report, html, json_to, perfetto, text};
use mainspring_sim::{Options, RunError};
use mainspring_workload::Workload;
use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Runs a workload, writes the files that were asked for, and prints the report.
pub fn run(args: &RunArgs, output: Output) -> Result<(), Failure> {
    let text = input::text(&args.file).map_err(|error| Failure::Load(vec![error]))?;
    let mut settings = args.overrides.settings();
    settings.extend(args.set.iter().cloned());
    let (_, workload) = input::workload_of(&args.file, &text, &settings)?;
    refuse::on(args.on, &workload)
        .map_err(|cannot| Failure::Cannot { name: input::name(&args.file), cannot })?;
    let mut files = Files::open(args)?;
    let Reported { mut report, fault } = match args.on {
        Machine::Sim => {
            Reported { report: simulate(args, &workload, files.record.as_mut(), output)?, fault: None }
        }
        machine => {
            let started = Instant::now();
            let run = match machine {
                Machine::Qemu => qemu::run(&workload, args.seed, output).map_err(MachineError::Qemu),
                _ => linux::run(&workload, args.seed, args.schedule, output).map_err(MachineError::Linux),
            };
            let run = run.map_err(|error| Failure::Machine { name: input::name(&args.file), error })?;
            let mut record = files.record.as_mut().map(|file| BufWriter::new(file.writer()));
            let record = record.as_mut().map(|writer| writer as &mut dyn Write);
            machine_run::report(args, &workload, run, started, record)?
        }
    };
    report.expectations = expect::check(&workload, &report);
    if args.fail_on == Some(FailOn::Misses) {
        let no_misses = expect::no_misses(&report);
        report.expectations.push(no_misses);
    }
    let written = files.write(&report)?;
    if !args.schedule {
        (report.schedule, report.events, report.jobs) = (None, None, None);
    }
    // The report may fail (standard output is a full disk), and the files are there all the same.
    let printed = print(args, &report, output);
    for path in written {
        output.note(format_args!("wrote {}", path.display()));
    }
    printed?;
    let name = input::name(&args.file);
    if let Some(error) = fault {
        return Err(Failure::Verify { name, error });
    }
    let expected: Vec<Expected> = report.expectations.into_iter().filter(|one| !one.held).collect();
    if expected.is_empty() { Ok(()) } else { Err(Failure::Unmet { name, expected }) }
}

fn simulate(
    args: &RunArgs,
    workload: &Workload,
    record: Option<&mut OutFile>,
    output: Output,
) -> Result<Report, Failure> {
    let name = input::name(&args.file);
    let end = workload.machine.duration;
    let mut progress = Progress::new("simulating", end.get(), output);
    // A thousandth of the run is fine enough to look at.
    let rounded = |now: Nanos| Nanos::new(now.get() - now.get() % (end.get() / 1_000).max(1));
    let mut record = record.map(|file| BufWriter::new(file.writer()));
    let verify = args.verify || cfg!(debug_assertions);
    let report = mainspring_sim::run(
        &name,
        workload,
        Options {
            seed: args.seed,
            schedule: args.schedule || args.trace.is_some() || args.html.is_some(),
            record: record.as_mut().map(|writer| Box::new(writer) as Box<dyn Write + '_>),
            progress: Some(Box::new(|now: Nanos| {
                progress.at(now.get(), || format!("{} of {end}", rounded(now)));
            })),
            watch: verify.then(|| Box::new(check::all(workload)) as Box<dyn Watch>),
        },
    );
    drop(progress);
    let report = report.and_then(|report| {
        record.map_or(Ok(()), |mut writer| writer.flush()).map_err(RunError::Record)?;
        Ok(report)
    });
    report.map_err(|error| match (error, &args.record) {
        (RunError::Record(cause), Some(path)) => Failure::Write { path: path.clone(), cause },
        (error, _) => Failure::Run { name, seed: args.seed, error },
    })
}

fn print(args: &RunArgs, report: &Report, output: Output) -> Result<(), Failure> {
    match args.report {
        ReportForm::Json => output.write(|stdout| json_to(report, stdout)),
        ReportForm::Text => {
            if args.schedule {
                output.note(
                    "note: the text report has no room for the schedule; add `--report json` to see it",
                );
            }
            let style = output.text_style(args.expand);
            output.write(|stdout| stdout.write_all(text(report, style).as_bytes()))
        }
    }
}

/// The files to write, each open.
struct Files {
    trace: Option<OutFile>,
    html: Option<OutFile>,
    record: Option<OutFile>,
    junit: Option<OutFile>,
}

impl Files {
    /// Opens those that were asked for, unless two of them, or one and the input, are the same file.
    fn open(args: &RunArgs) -> Result<Self, Failure> {
        let mut taken = Vec::new();
        taken.extend(regular(input::on_disk(&args.file)).map(|path| (path, "the workload")));
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
        let record = resolve("--record", args.record.as_ref())?;
        let trace = resolve("--trace", args.trace.as_ref())?;
        let html = resolve("--html", args.html.as_ref())?;
        let junit = resolve("--junit", args.junit.as_ref())?;
        let open = |target: Option<Target>| target.map(Target::open).transpose();
        Ok(Self { trace: open(trace)?, html: open(html)?, record: open(record)?, junit: open(junit)? })
    }

    /// Writes them all, and returns their paths. The record was written during the run.
    fn write(self, report: &Report) -> Result<Vec<PathBuf>, Failure> {
        let record = self.record.map(OutFile::finish);
        let trace = self.trace.map(|file| file.write(|out| perfetto(report, out)));
        let html = self.html.map(|file| file.write(|out| html(report, out)));
        let junit = self.junit.map(|file| file.write(|out| junit(report, &report.expectations, out)));
        [record, trace, html, junit].into_iter().flatten().collect()
    }
}

/// The resolved path, if there is a regular file.
fn regular(path: &Path) -> Option<PathBuf> {
    fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    fs::canonicalize(path).ok()
}
