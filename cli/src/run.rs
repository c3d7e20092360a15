//! `mainspring run`.
//!
//! Whatever can be refused is refused before the run: the workload is read, and every output file is opened.

use crate::args::{FailOn, Machine, RunArgs};
use crate::deliver::{Files, Form, Wanted, deliver};
use crate::expect;
use crate::failure::Failure;
use crate::input;
use crate::linux;
use crate::live::Live;
use crate::machine_run::{self, MachineError, Reported};
use crate::outfile::OutFile;
use crate::output::Output;
use crate::progress::Progress;
use crate::qemu;
use crate::refuse;
use mainspring_abi::Nanos;
use mainspring_record::check;
use mainspring_record::watch::Watch;
use mainspring_report::{Expected, Report};
use mainspring_sim::{Options, RunError};
use mainspring_workload::Workload;
use std::io::{BufWriter, Write};
use std::time::Instant;

/// Runs a workload, writes the files that were asked for, and prints the report.
pub fn run(args: &RunArgs, output: Output) -> Result<(), Failure> {
    let text = input::text(&args.file).map_err(|error| Failure::Load(vec![error]))?;
    let mut settings = args.overrides.settings();
    settings.extend(args.set.iter().cloned());
    let (_, workload) = input::workload_of(&args.file, &text, &settings)?;
    let counted = if args.counted { refuse::counted(args.on, &workload) } else { Ok(()) };
    refuse::on(args.on, &workload)
        .and(counted)
        .map_err(|cannot| Failure::Cannot { name: input::name(&args.file), cannot })?;
    let wanted = Wanted {
        record: args.record.as_ref(),
        trace: args.trace.as_ref(),
        html: args.html.as_ref(),
        junit: args.junit.as_ref(),
    };
    if args.live.is_some() && args.on != Machine::Linux {
        return Err(Failure::NotLive { machine: args.on });
    }
    let mut files = Files::open(&args.file, "the workload", wanted)?;
    let Reported { mut report, fault } = match args.on {
        Machine::Sim => {
            Reported { report: simulate(args, &workload, files.record.as_mut(), output)?, fault: None }
        }
        machine => {
            let live = args.live.map(Live::start).transpose()?;
            if let Some(live) = &live {
                // It was asked for, so its address is shown also with --quiet.
                output.insist(format_args!(
                    "live: {}\nlive: mainspring top {}",
                    live.url(),
                    live.socket().display()
                ));
            }
            let started = Instant::now();
            let run = match machine {
                Machine::Qemu => {
                    let how = qemu::How { list: args.schedule, counted: args.counted };
                    qemu::run(&workload, args.seed, how, output).map_err(MachineError::Qemu)
                }
                _ => {
                    let how = linux::How {
                        name: input::name(&args.file),
                        list: args.schedule,
                        live: live.as_ref(),
                    };
                    linux::run(&workload, args.seed, &how, output).map_err(MachineError::Linux)
                }
            };
            let run = run.map_err(|error| Failure::Machine { name: input::name(&args.file), error })?;
            let mut record = files.record.as_mut().map(|file| BufWriter::new(file.writer()));
            let record = record.as_mut().map(|writer| writer as &mut dyn Write);
            machine_run::report(args, &workload, run, started, record)?
        }
    };
    let warnings = workload.warnings();
    report.notices.extend(warnings.iter().map(ToString::to_string));
    report.expectations = expect::check(&workload, &report);
    if args.fail_on == Some(FailOn::Misses) {
        let no_misses = expect::no_misses(&report);
        report.expectations.push(no_misses);
    }
    let expected: Vec<Expected> = report.expectations.iter().filter(|one| !one.held).cloned().collect();
    let form = Form { report: args.report, schedule: args.schedule, expand: args.expand };
    deliver(report, files, form, output)?;
    let name = input::name(&args.file);
    if let Some(error) = fault {
        return Err(Failure::Verify { name, error });
    }
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
