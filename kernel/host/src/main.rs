//! `kernel-proof NAME...`: runs proofs of the kernel under QEMU.

use mainspring_machine::baseline::{self, Judged};
use mainspring_machine::fuzz::Fuzz;
use mainspring_machine::image::Build;
use mainspring_machine::proof::{self, MEASURED, PROOFS, Proof};
use mainspring_machine::qemu::Run;
use mainspring_machine::trace;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, io, thread};

const HELP: &str = "\
usage: kernel-proof [--checked | --measured] [--scales] [--verbose] [--cpus N] [--times N] [--jobs N] [--logs DIR]
                    NAME...
       kernel-proof --fuzz [--checked] [--seed N] [--calls N] [--cpus N] [--times N] [--replay] [--card]
       kernel-proof --list
       kernel-proof --trace

Each proof boots the kernel under QEMU, waits for its markers, and fails if one is missing,
if the machine ends badly, or if its time is over. `all` stands for all of them.
With --trace it says what one endpoint round trip spends its instructions on.
With --checked the kernel looks at its invariants at every turn (`make kernel-checked`).
With --measured it counts everything that may take time (`make kernel-measured`).
With --fuzz programs call everything with anything beside an honest neighbour; --replay counts
instructions on one CPU, so that the whole run repeats; with --card there is a network card whose
drivers are fuzzed, and the CPUs take turns. Without a seed there is a new one each time.
With --jobs so many run side by side; a proof that compares times or shares still runs by itself.
With --scales it fails if every run of thread-scale that could be judged missed its limit.
With --logs the raw serial output of each is kept, also of one that fails; that of
thread-scale beside the same work on the host's own threads.";

/// What the command line asks for.
enum Task {
    List,
    Trace,
    Fuzz(Fuzz, Options),
    Prove(Options),
}

struct Options {
    scales: bool,
    build: Build,
    verbose: bool,
    cpus: Option<u32>,
    times: u32,
    jobs: u32,
    logs: Option<PathBuf>,
    proofs: Vec<&'static Proof>,
}

fn parse(arguments: impl Iterator<Item = String>) -> Result<Task, String> {
    let mut options = Options {
        scales: false,
        build: Build::Plain,
        verbose: false,
        cpus: None,
        times: 1,
        jobs: 1,
        logs: None,
        proofs: Vec::new(),
    };
    let mut fuzzes = false;
    let mut fuzz = Fuzz {
        seed: Fuzz::any_seed(),
        calls: 20_000,
        cpus: 4,
        replay: false,
        card: false,
        build: Build::Plain,
    };
    let mut arguments = arguments.peekable();
    while let Some(word) = arguments.next() {
        if let "--seed" | "--calls" = word.as_str() {
            let text = arguments.next().ok_or(format!("{word} needs a number"))?;
            let value = text.parse().map_err(|_| format!("{text} is not a number"))?;
            *(if word == "--seed" { &mut fuzz.seed } else { &mut fuzz.calls }) = value;
            continue;
        }
        let mut number = || {
            let text = arguments.next().ok_or(format!("{word} needs a number"))?;
            text.parse::<u32>()
                .ok()
                .filter(|n| (1..=16).contains(n))
                .ok_or(format!("{text} is not a number from 1 to 16"))
        };
        match word.as_str() {
            "--help" | "-h" | "--list" => return Ok(Task::List),
            "--trace" => return Ok(Task::Trace),
            "--scales" => options.scales = true,
            "--fuzz" => fuzzes = true,
            "--replay" => fuzz.replay = true,
            "--card" => fuzz.card = true,
            "--checked" => options.build = Build::Checked,
            "--measured" => options.build = Build::Measured,
            "--verbose" | "-v" => options.verbose = true,
            "--cpus" => options.cpus = Some(number()?),
            "--times" => options.times = number()?,
            "--jobs" => options.jobs = number()?,
            "--logs" => options.logs = Some(arguments.next().ok_or("--logs needs a folder")?.into()),
            "all" => options.proofs.extend(PROOFS),
            name => options
                .proofs
                .push(proof::find(name).ok_or(format!("no proof is called {name}; see --list"))?),
        }
    }
    if fuzzes {
        fuzz.build = options.build;
        fuzz.cpus = options.cpus.unwrap_or(fuzz.cpus);
        Ok(Task::Fuzz(fuzz, options))
    } else if options.proofs.is_empty() {
        Err("which proof? see --list".to_owned())
    } else {
        Ok(Task::Prove(options))
    }
}

/// Keeps the raw output of a proof, each time that it is run again in a file of its own, and what belongs beside it.
fn keep(folder: &Path, proof: &Proof, cpus: u32, time: u32, run: &Run) -> io::Result<Option<Judged>> {
    let serial = &run.serial;
    let again = if time == 0 { String::new() } else { format!(".{}", time + 1) };
    fs::create_dir_all(folder)?;
    fs::write(folder.join(format!("{}-{cpus}{again}.log", proof.name)), serial.join("\n") + "\n")?;
    if proof.name != "thread-scale" {
        return Ok(None);
    }
    let linux = baseline::run();
    for line in serial.iter().filter(|line| line.starts_with("scale: threads")).chain(&linux) {
        println!("    {line}");
    }
    let (judged, verdict) = baseline::verdict(run, &linux);
    println!("    {verdict}");
    fs::write(folder.join(format!("thread-scale-linux{again}.log")), linux.join("\n") + "\n")?;
    Ok(Some(judged))
}

/// What repeated runs of thread-scale come to, and whether that may stand.
fn scales(judged: &[Judged]) -> (String, bool) {
    let count = |what| judged.iter().filter(|one| **one == what).count();
    let (met, missed) = (count(Judged::Met), count(Judged::Missed));
    let text = format!("thread-scale: {met} of {} runs met the limit, {missed} missed it", judged.len());
    // One that met it shows that it can be met: what the host took away it did not give to the others.
    (text, missed == 0 || met > 0)
}

/// Keeps the raw output of a proof that failed, where the next one that does not will not overwrite it.
fn keep_failed(folder: &Path, proof: &Proof, cpus: u32, serial: &[String]) {
    let file = folder.join(format!("{}-{cpus}.failed.log", proof.name));
    let kept = fs::create_dir_all(folder).and_then(|()| fs::write(&file, serial.join("\n") + "\n"));
    match kept {
        Ok(()) => println!("--- all of it: {}", file.display()),
        Err(error) => eprintln!("kernel-proof: {}: {error}", file.display()),
    }
}

/// Runs the fuzzer, each time with the next seed.
fn run_fuzz(fuzz: Fuzz, options: &Options) -> ExitCode {
    for time in 0..options.times {
        let fuzz = Fuzz { seed: fuzz.seed.wrapping_add(u64::from(time)), ..fuzz };
        let shown = |line: &str| {
            if options.verbose {
                println!("    {line}");
            }
        };
        match fuzz.run(shown) {
            Ok(run) => {
                let said = run.serial.iter().find(|line| line.contains("fuzz: seed="));
                let said = said.map_or("", |line| line.as_str());
                println!("ok    {said} cpus={} {:>6} ms", fuzz.cpus, run.took.as_millis());
            }
            Err((what, serial)) => {
                println!("FAIL  {what}");
                if let Some(folder) = &options.logs {
                    let file = folder.join(format!("fuzz-{}-{}.failed.log", fuzz.seed, fuzz.cpus));
                    let kept =
                        fs::create_dir_all(folder).and_then(|()| fs::write(&file, serial.join("\n") + "\n"));
                    if kept.is_ok() {
                        println!("--- all of it: {}", file.display());
                    }
                }
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn show_trace() -> ExitCode {
    for (way, bench, argument) in trace::WAYS {
        let parts = match trace::run(&bench, argument) {
            Ok(parts) => parts,
            Err(error) => {
                eprintln!("kernel-proof: {error}");
                return ExitCode::FAILURE;
            }
        };
        println!("an endpoint round trip, {way}:");
        for (part, count) in &parts {
            println!("{count:>6}  {part}");
        }
        println!("{:>6}  all", parts.iter().map(|(_, count)| count).sum::<u64>());
    }
    ExitCode::SUCCESS
}

/// A boot of a proof.
#[derive(Clone, Copy)]
struct Boot {
    proof: &'static Proof,
    cpus: u32,
    /// How often it was run before.
    time: u32,
}

/// What came of all boots.
#[derive(Default)]
struct Proved {
    passes: u32,
    failures: u32,
    judged: Vec<Judged>,
}

/// Every boot that is asked for.
fn boots(options: &Options) -> Vec<Boot> {
    let mut boots = Vec::new();
    for proof in &options.proofs {
        for cpus in options.cpus.map_or(proof.cpus.to_vec(), |cpus| vec![cpus]) {
            boots.extend((0..options.times).map(|time| Boot { proof, cpus, time }));
        }
    }
    boots
}

/// Runs all boots: those that may have a neighbour first, as many side by side as there are jobs, then each of the others.
fn prove(options: &Options) -> io::Result<Proved> {
    let (together, alone): (Vec<_>, Vec<_>) =
        boots(options).into_iter().partition(|boot| options.jobs > 1 && !boot.proof.compares_times());
    let proved = Mutex::new(Proved::default());
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let work = || {
            while let Some(boot) = together.get(next.fetch_add(1, Ordering::Relaxed)) {
                run_boot(*boot, options, &proved)?;
            }
            io::Result::Ok(())
        };
        let workers: Vec<_> = (0..options.jobs).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a boot that fails says so"))
    })?;
    alone.into_iter().try_for_each(|boot| run_boot(boot, options, &proved))?;
    Ok(proved.into_inner().expect("nobody panicked"))
}

/// Runs a proof once, keeps its output, and says what came of it.
fn run_boot(Boot { proof, cpus, time }: Boot, options: &Options, proved: &Mutex<Proved>) -> io::Result<()> {
    let shown = |line: &str| {
        if options.verbose {
            println!("    {line}");
        }
    };
    let run = proof.run(cpus, options.build, shown);
    // Held until all lines of this boot are out.
    let mut proved = proved.lock().expect("nobody panicked");
    match run {
        Ok(run) => {
            if let Some(folder) = &options.logs {
                proved.judged.extend(keep(folder, proof, cpus, time, &run)?);
            }
            proved.passes += 1;
            println!("ok    {:<28} {cpus} CPUs {:>6} ms", proof.name, run.took.as_millis());
        }
        Err(failed) => {
            proved.failures += 1;
            println!("FAIL  {}", failed.what);
            if let Some(folder) = &options.logs {
                keep_failed(folder, proof, cpus, &failed.serial);
            }
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(Task::Prove(options)) => options,
        Ok(Task::Trace) => return show_trace(),
        Ok(Task::Fuzz(fuzz, options)) => return run_fuzz(fuzz, &options),
        Ok(Task::List) => {
            println!("{HELP}\n");
            for proof in PROOFS.iter().chain(MEASURED) {
                println!("  {:<28} {}", proof.name, proof.about);
            }
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("kernel-proof: {error}\n{HELP}");
            return ExitCode::from(2);
        }
    };
    let Proved { passes, mut failures, judged } = match prove(&options) {
        Ok(proved) => proved,
        Err(error) => {
            eprintln!("kernel-proof: {error}");
            return ExitCode::from(2);
        }
    };
    println!("{passes} passed, {failures} failed");
    if options.scales {
        let (text, may_stand) = scales(&judged);
        println!("{text}");
        failures += u32::from(!may_stand);
    }
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
