//! `mainspring exec`.
//!
//! Standard output is the program's. What this command has to say goes to standard error, or to the file of `--output`.

use super::live::Live;
use crate::args::ReportForm;
use crate::args::host::ExecArgs;
use crate::failure::Failure;
use crate::output::Output;
use mainspring_abi::{CpuId, Nanos, Policy};
use mainspring_host::run::{self, Watch};
use mainspring_host::{ExecReport, Request};
use mainspring_record::Log;
use mainspring_record::file::{Header, Recorder};
use mainspring_record::report::RecordReport;
use mainspring_report::{Report, html, summary};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Runs a program under a grant, and exits as it did.
pub fn exec(args: &ExecArgs, output: Output) -> Result<ExitCode, Failure> {
    let request = request(args);
    // Opened before the program runs: an hour of work must not end in a file that cannot be written.
    let file = args.output.as_deref().map(create).transpose()?;
    let record = args.record.as_deref().map(create).transpose()?;
    let page = args.html.as_deref().map(create).transpose()?;
    let mut live = Live::new();
    let wanted = live.is_wanted(args.stats, output);
    let (every, mut show) = (Live::EVERY, |sample: &run::Sample| live.show(sample));
    let watch = wanted.then_some(Watch { every, show: &mut show });
    let ran = run::run(&request, &args.command, watch);
    live.clear();
    let outcome = ran.map_err(|error| Failure::Host { name: request.name.clone(), error })?;
    let report = ExecReport::from(&outcome);
    if record.is_some() || page.is_some() {
        let full = keep(&report, record, args.record.as_deref().unwrap_or(Path::new("")))?;
        if let (Some(mut page), Some(path)) = (page, args.html.as_deref()) {
            html(&full, &mut page).map_err(|cause| Failure::Write { path: path.to_owned(), cause })?;
        }
    }
    match (file, args.output.as_deref()) {
        (Some(file), Some(path)) => write(file, path, &report, args.report)?,
        _ => print(&report, args.report, output),
    }
    Ok(ExitCode::from(outcome.ended.status()))
}

fn request(args: &ExecArgs) -> Request {
    let program = args.command.first().map(Path::new).and_then(Path::file_name);
    let name = args.name.clone().or_else(|| program.map(|name| name.to_string_lossy().into_owned()));
    Request {
        name: name.unwrap_or_else(|| "program".to_owned()),
        budget: args.budget.budget,
        period: args.budget.period,
        deadline: args.deadline,
        cpus: args.cpus.as_ref().map(|cpus| *cpus.0),
        exclusive: args.exclusive,
        memory_bytes: args.memory,
        best_effort: args.best_effort,
    }
}

/// The report in full, and a record of it if there is a file for one. No CPU of ours decided anything, so the record has no
/// events: it has what the kernel counted, in the place of what machines tell besides.
fn keep(report: &ExecReport, record: Option<File>, path: &Path) -> Result<Report, Failure> {
    let bad =
        |error: mainspring_record::ReplayError| Failure::Replay { name: report.context.name.clone(), error };
    let header = Header {
        workload: report.command.join(" "),
        seed: 0,
        cpus: 1,
        seats: 1,
        policy: Policy::default(),
        quantum: Nanos::from_millis(3),
        tick: Nanos::from_millis(10),
        floor_ppm: 50_000,
        threads: vec![report.context.name.clone()],
    };
    let wall = Nanos::new(report.wall_ns);
    let silent = || {
        let mut log = Log::default();
        log.add(CpuId::BOOT, &[], 0, wall).map(|()| log).map_err(|error| bad(error.into()))
    };
    let replayed = RecordReport::of(&header, silent()?).map_err(bad)?;
    let digest = replayed.digest();
    let full = report.in_full(replayed.report("host", &header, Duration::from_nanos(report.wall_ns)));
    if let Some(mut file) = record {
        Recorder::new(Box::new(&mut file), &header)
            .and_then(|recorder| recorder.close(wall, &digest, &summary(&full)))
            .map_err(|cause| Failure::Write { path: path.to_owned(), cause })?;
    }
    Ok(full)
}

fn create(path: &Path) -> Result<File, Failure> {
    File::create(path).map_err(|cause| Failure::Write { path: path.to_owned(), cause })
}

fn text_of(report: &ExecReport, form: ReportForm) -> String {
    match form {
        ReportForm::Text => report.text(),
        // Only a map with keys that are no text could fail, and there is none.
        ReportForm::Json => serde_json::to_string_pretty(report).unwrap_or_default(),
    }
}

fn write(mut file: File, path: &Path, report: &ExecReport, form: ReportForm) -> Result<(), Failure> {
    writeln!(file, "{}", text_of(report, form))
        .map_err(|cause| Failure::Write { path: path.to_owned(), cause })
}

/// JSON was asked for by name, so that it is printed even with `--quiet`.
fn print(report: &ExecReport, form: ReportForm, output: Output) {
    match form {
        ReportForm::Json => output.insist(text_of(report, form)),
        ReportForm::Text => output.note(text_of(report, form)),
    }
}
