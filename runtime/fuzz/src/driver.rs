//! Starts processes that run seeds, and attributes what happens to them.

use crate::acts::Act;
use crate::options::Options;
use crate::verdict::{HANG, VIOLATION};
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Seeds that one process runs.
const BATCH: u64 = 64;
/// Lines of a failed process that are shown.
const SHOWN: usize = 60;

struct Outcome {
    /// Seeds that were run to their end.
    done: u64,
    acts: u64,
    /// How it ended, if not well: in words, and what it said.
    failure: Option<(String, String)>,
}

fn run(options: &Options, first: u64, seeds: u64, seconds_left: Option<u64>) -> std::io::Result<Outcome> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--child").args(options.for_child());
    command.args(["--seed", &first.to_string(), "--seeds", &seeds.to_string()]);
    if let Some(seconds) = seconds_left {
        command.args(["--seconds", &seconds.max(1).to_string()]);
    }
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null()).spawn()?;
    let stderr = child.stderr.take();
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(mut stderr) = stderr {
            let _ = stderr.read_to_end(&mut text);
        }
        String::from_utf8_lossy(&text).into_owned()
    });
    let (mut last, mut acts) = (first, 0);
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let mut words = line.split(' ');
            if words.next() == Some("seed") {
                last = words.next().and_then(|word| word.parse().ok()).unwrap_or(last);
                acts = words.next().and_then(|word| word.parse().ok()).unwrap_or(acts);
            }
        }
    }
    let status = child.wait()?;
    let said = reader.join().unwrap_or_default();
    let how = match status.code() {
        Some(0) => None,
        Some(VIOLATION) => Some("violation".to_owned()),
        Some(HANG) => Some("hang".to_owned()),
        _ => Some(format!("crash, {status}")),
    };
    Ok(Outcome { done: last - first, acts, failure: how.map(|how| (how, said)) })
}

/// What all drivers of processes share.
struct Tally {
    next: AtomicU64,
    seeds: AtomicU64,
    acts: AtomicU64,
    failures: Mutex<Vec<(u64, String)>>,
    stop: AtomicBool,
}

pub fn drive(options: &Options) -> ExitCode {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64);
    let first = options.seed.unwrap_or(clock / 1000 * 1_000_000);
    let seeds = options
        .seeds
        .or((options.seed.is_some() && options.time.is_none() && options.total.is_none()).then_some(1));
    let tally = Tally {
        next: AtomicU64::new(first),
        seeds: AtomicU64::new(0),
        acts: AtomicU64::new(0),
        failures: Mutex::default(),
        stop: AtomicBool::new(false),
    };
    println!("fuzz-runtime: seeds from {first}, {} acts each, {} processes", options.acts, options.jobs);
    let began = Instant::now();
    std::thread::scope(|threads| {
        for _ in 0..options.jobs {
            threads.spawn(|| batches(options, &tally, first, seeds, began));
        }
    });
    let seconds = began.elapsed().as_secs_f64();
    let (seeds, acts) = (tally.seeds.into_inner(), tally.acts.into_inner());
    let failures = tally.failures.into_inner().unwrap_or_default();
    println!(
        "fuzz-runtime: {seeds} seeds, {acts} acts in {seconds:.1} s, {:.0} acts/s",
        acts as f64 / seconds
    );
    summarise(&failures);
    if failures.is_empty() {
        println!("fuzz-runtime: passed");
        ExitCode::SUCCESS
    } else {
        println!("fuzz-runtime: FAILED, {} seeds", failures.len());
        ExitCode::FAILURE
    }
}

/// Failures of one kind in one line, with the first seeds.
fn summarise(failures: &[(u64, String)]) {
    let mut kinds: Vec<(String, &str, Vec<u64>)> = Vec::new();
    for (seed, what) in failures {
        let name: String = what
            .rsplit("]: ")
            .next()
            .unwrap_or("")
            .chars()
            .filter(|c| !c.is_ascii_digit())
            .take(40)
            .collect();
        match kinds.iter_mut().find(|(known, _, _)| *known == name) {
            Some((_, _, seeds)) => seeds.push(*seed),
            None => kinds.push((name, what, vec![*seed])),
        }
    }
    kinds.sort_by_key(|(_, _, seeds)| std::cmp::Reverse(seeds.len()));
    for (_, what, seeds) in &kinds {
        println!("  {} times, seeds {:?}: {what}", seeds.len(), &seeds[..seeds.len().min(6)]);
    }
}

fn batches(options: &Options, tally: &Tally, start: u64, seeds: Option<u64>, began: Instant) {
    let end = seeds.map_or(u64::MAX, |seeds| start + seeds);
    loop {
        let left = options.time.map(|time| time.saturating_sub(began.elapsed()));
        let enough = options.total.is_some_and(|total| tally.acts.load(Ordering::Relaxed) >= total);
        if left.is_some_and(|left| left.is_zero()) || enough || tally.stop.load(Ordering::Relaxed) {
            return;
        }
        let mut first = tally.next.fetch_add(BATCH, Ordering::Relaxed);
        let last = first.saturating_add(BATCH).min(end);
        if first >= last {
            return;
        }
        while first < last {
            let outcome = match run(options, first, last - first, left.map(|left| left.as_secs())) {
                Ok(outcome) => outcome,
                Err(error) => {
                    tally.note(first, format!("no process: {error}"));
                    tally.stop.store(true, Ordering::Relaxed);
                    return;
                }
            };
            tally.seeds.fetch_add(outcome.done, Ordering::Relaxed);
            tally.acts.fetch_add(outcome.acts, Ordering::Relaxed);
            first += outcome.done;
            let Some((how, said)) = outcome.failure else { break };
            report(options, first, &how, &said);
            let what = said.lines().find(|line| line.starts_with("VIOLATION") || line.starts_with("HANG"));
            tally.note(first, format!("{how}: {}", what.or(said.lines().last()).unwrap_or("")));
            if options.first {
                tally.stop.store(true, Ordering::Relaxed);
                return;
            }
            first += 1;
        }
    }
}

impl Tally {
    fn note(&self, seed: u64, what: String) {
        self.failures.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((seed, what));
    }
}

fn report(options: &Options, seed: u64, how: &str, said: &str) {
    let mut text = format!("\n--- seed {seed}: {how}\n");
    said.lines().take(SHOWN).for_each(|line| text.push_str(&format!("    {line}\n")));
    let mut small = options.clone();
    if options.shrink && how != "hang" {
        small = shrink(options, seed, &name_of(how, said));
        let names: Vec<_> = Act::names()
            .into_iter()
            .filter(|name| Act::named(name).is_some_and(|act| !small.without.contains(&act)))
            .collect();
        text.push_str(&format!(
            "    still fails with {} acts of these kinds: {}\n",
            small.acts,
            names.join(" ")
        ));
    }
    text.push_str(&format!("--- again: make fuzz-runtime SEED={seed}"));
    if small.acts != 3000 {
        text.push_str(&format!(" ACTS={}", small.acts));
    }
    if !small.without.is_empty() {
        let names: Vec<_> = small.without.iter().map(|act| act.name()).collect();
        text.push_str(&format!(" ARGS=\"--without {}\"", names.join(",")));
    }
    println!("{text}");
}

/// Tries of one program: what depends on the order of threads does not fail every time.
const TRIES: u32 = 4;

/// What a failure is called, whatever its numbers.
fn name_of(how: &str, said: &str) -> String {
    let line =
        said.lines().find_map(|line| line.strip_prefix("VIOLATION").and_then(|rest| rest.split_once("]: ")));
    let text = line.map_or(how, |(_, what)| what);
    text.chars().filter(|c| !c.is_ascii_digit()).take(24).collect()
}

fn fails(options: &Options, seed: u64, name: &str) -> bool {
    (0..TRIES).any(|_| {
        let failure = run(options, seed, 1, None).ok().and_then(|outcome| outcome.failure);
        failure.is_some_and(|(how, said)| name_of(&how, &said) == name)
    })
}

/// Fewer acts, and then fewer kinds of them, as long as it fails.
fn shrink(options: &Options, seed: u64, name: &str) -> Options {
    let mut small = options.clone();
    if !fails(&small, seed, name) {
        return small;
    }
    while small.acts > 10 {
        let less = Options { acts: small.acts / 2, ..small.clone() };
        if !fails(&less, seed, name) {
            break;
        }
        small = less;
    }
    for act in Act::names().into_iter().filter_map(Act::named) {
        if small.without.contains(&act) {
            continue;
        }
        let mut less = small.clone();
        less.without.push(act);
        if fails(&less, seed, name) {
            small = less;
        }
    }
    small
}
