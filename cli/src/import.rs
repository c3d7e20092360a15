//! `mainspring import`.
//!
//! The whole recording is read and made into a workload before anything is written. What is made is read again as a workload, so
//! that nothing is written that `mainspring run` would refuse.

use crate::args::ImportArgs;
use crate::failure::Failure;
use crate::input;
use crate::outfile::Target;
use crate::output::Output;
use mainspring_import::{Form, ImportError, Ours, Timelines, compare, form, read, rt_app, to_workload};
use mainspring_report::Report;
use mainspring_sim::Options;
use mainspring_workload::{LoadError, Workload, parse};
use std::io::{self, Read};
use std::path::Path;

/// How large a recording may be.
const MOST_BYTES: u64 = 2 << 30;

/// Makes a workload of a recording, or compares the two.
pub fn import(args: &ImportArgs, output: Output) -> Result<(), Failure> {
    let name = input::name(&args.file);
    let bytes =
        bytes(&args.file).map_err(|cause| Failure::OpenRecording { path: args.file.clone(), cause })?;
    let wrong = |error: ImportError| Failure::Import { name: name.clone(), error };
    if form(&bytes).map_err(wrong)? == Form::RtApp {
        let text = rt_app::to_workload(&bytes, &name).map_err(wrong)?;
        let workload = checked(&name, &text)?;
        if args.compare {
            let why = "a description has no schedule of Linux's to compare with".to_owned();
            return Err(wrong(ImportError::RtApp { key: "--compare".to_owned(), why }));
        }
        drop(workload);
        return deliver(args, &text, output);
    }
    let mut recording = read(&bytes).map_err(wrong)?;
    drop(bytes);
    if let Some([from, to]) = args.between.as_deref() {
        recording = recording.between(from.get(), to.get()).map_err(wrong)?;
    }
    let timelines = Timelines::of(&recording);
    let text = to_workload(&timelines, &name).map_err(wrong)?;
    let workload = checked(&name, &text)?;
    if !args.compare {
        return deliver(args, &text, output);
    }
    let options = Options { seed: args.seed, ..Options::default() };
    let report = mainspring_sim::run(&name, &workload, options).map_err(|error| Failure::Run {
        name: name.clone(),
        seed: args.seed,
        error,
    })?;
    let table = compare(&recording, &timelines, &ours(&report), args.threads);
    if args.output.is_some() {
        deliver(args, &text, output)?;
    }
    output.write(|stdout| stdout.write_all(table.as_bytes()))
}

fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut read_all = |from: &mut dyn Read| from.take(MOST_BYTES + 1).read_to_end(&mut bytes);
    if path.as_os_str() == "-" {
        read_all(&mut io::stdin().lock())?;
    } else {
        read_all(&mut std::fs::File::open(path)?)?;
    }
    if bytes.len() as u64 > MOST_BYTES {
        return Err(io::Error::other("the recording is larger than 2 GiB"));
    }
    Ok(bytes)
}

/// The workload that was made. It cannot be wrong but by a name that an rt-app description uses and does not define.
fn checked(name: &str, text: &str) -> Result<Workload, Failure> {
    parse(&format!("{name} as a workload"), text)
        .map_err(|errors| Failure::Load(vec![LoadError::Invalid(errors)]))
}

/// Where the workload goes, if not to standard output. The output never replaces the recording.
fn target(args: &ImportArgs) -> Result<Option<Target>, Failure> {
    let Some(path) = &args.output else { return Ok(None) };
    let target = Target::resolve(path)?;
    let recording = input::on_disk(&args.file).canonicalize().ok();
    if recording.is_some() && target.file() == recording.as_deref() {
        return Err(Failure::Taken { option: "--output", path: path.clone(), by: "the recording" });
    }
    Ok(Some(target))
}

fn deliver(args: &ImportArgs, text: &str, output: Output) -> Result<(), Failure> {
    let Some(target) = target(args)? else { return output.write(|stdout| stdout.write_all(text.as_bytes())) };
    let path = target.open()?.write(|file| file.write_all(text.as_bytes()))?;
    output.note(format_args!("wrote {}", path.display()));
    Ok(())
}

fn ours(report: &Report) -> Vec<Ours> {
    let row = |thread: &mainspring_report::ThreadReport| Ours {
        name: thread.name.clone(),
        cpu_ns: thread.runtime_ns,
        wakeups: thread.wakeups,
        latency_ns: [thread.wake_latency_ns.p50, thread.wake_latency_ns.p99, thread.wake_latency_ns.max],
        migrations: thread.migrations,
        preemptions: thread.preemptions,
    };
    report.threads.iter().map(row).collect()
}
