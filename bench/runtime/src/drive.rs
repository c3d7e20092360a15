//! Rounds of child processes, each bounded in time.

use crate::bench::{Bench, Peer, Work};
use crate::go::Go;
use std::collections::BTreeMap;
use std::error::Error;
use std::io::{IsTerminal, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A measurement that takes longer is given up, and its peer is not asked again in that benchmark.
const LIMIT: Duration = Duration::from_secs(60);

/// What a peer's rounds gave.
#[derive(Debug)]
pub struct Row {
    /// Whose they are.
    pub peer: Peer,
    /// By name: one figure for each round that went well, in their order.
    pub figures: BTreeMap<String, Vec<f64>>,
    /// Why there are no more.
    pub failure: Option<String>,
}

impl Row {
    /// The middle of what was measured under this name.
    pub fn median(&self, name: &str) -> Option<f64> {
        self.figures.get(name).and_then(|figures| median(figures.iter().copied()))
    }
}

/// What a benchmark gave.
#[derive(Debug)]
pub struct Results {
    /// Which one.
    pub bench: Bench,
    /// One for each peer, ours first.
    pub rows: Vec<Row>,
}

impl Results {
    /// The row of a peer.
    pub fn row(&self, peer: Peer) -> Option<&Row> {
        self.rows.iter().find(|row| row.peer == peer)
    }
}

/// The middle value; the mean of the middle two if their number is even.
pub fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[half]),
        _ => Some(f64::midpoint(values[half - 1], values[half])),
    }
}

/// Runs all rounds of all benchmarks.
pub fn run(benches: &[Bench], rounds: u32, quick: bool) -> Result<Vec<Results>, Box<dyn Error>> {
    let go = Go::build()?;
    if go.is_none() {
        println!("go: left out, there is no `go` on the PATH");
    }
    let mut all = Vec::new();
    for &bench in benches {
        let peers = bench.peers().iter().filter(|&&peer| peer != Peer::Go || go.is_some());
        let mut rows: Vec<Row> =
            peers.map(|&peer| Row { peer, figures: BTreeMap::new(), failure: None }).collect();
        for round in 0..rounds {
            if std::io::stderr().is_terminal() {
                eprint!("\r\x1b[K{} {}/{rounds}\r", bench.name(), round + 1);
            }
            for row in rows.iter_mut().filter(|row| row.failure.is_none()) {
                let command = match (row.peer, &go) {
                    (Peer::Go, Some(go)) => go.command(bench, if quick { &Work::QUICK } else { &Work::FULL }),
                    _ => ours(bench, row.peer, quick)?,
                };
                match one(command) {
                    Ok(figures) => {
                        for (name, value) in figures {
                            row.figures.entry(name).or_default().push(value);
                        }
                    }
                    Err(failure) => row.failure = Some(failure),
                }
            }
        }
        all.push(Results { bench, rows });
    }
    Ok(all)
}

/// This program again, as the child that measures one peer.
fn ours(bench: Bench, peer: Peer, quick: bool) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(quick.then_some("--quick")).args(["one", bench.name(), peer.name()]);
    Ok(command)
}

/// The figure beside each benchmark's own: what the process used of the processors, in all.
pub const PROCESSOR: &str = "processor";

/// What all children that have ended used of the processors, in ticks of 10 ms.
fn ticks_of_children() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name, in brackets, may have anything in it. `cutime` and `cstime` are the 16th and 17th field.
    let mut fields = stat.rsplit(')').next()?.split_whitespace().skip(13);
    let mut next = || fields.next()?.parse::<f64>().ok();
    Some(next()? + next()?)
}

/// One measurement: its figures, or what went wrong.
fn one(command: Command) -> Result<BTreeMap<String, f64>, String> {
    let before = ticks_of_children();
    let mut figures = measure(command)?;
    if let (Some(before), Some(after)) = (before, ticks_of_children()) {
        figures.insert(PROCESSOR.to_owned(), (after - before) * 10.0);
    }
    Ok(figures)
}

fn measure(mut command: Command) -> Result<BTreeMap<String, f64>, String> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("does not start: {error}"))?;
    // Drained on the side: a child that says much must not wait for us.
    let stdout = child.stdout.take().map(|pipe| std::thread::spawn(move || read(pipe)));
    let stderr = child.stderr.take().map(|pipe| std::thread::spawn(move || read(pipe)));
    let status = wait(&mut child)?;
    let text = |reader: Option<std::thread::JoinHandle<String>>| {
        reader.and_then(|reader| reader.join().ok()).unwrap_or_default()
    };
    let (stdout, stderr) = (text(stdout), text(stderr));
    if !status.success() {
        // A panic's place and message are two lines; what follows is advice.
        let said: Vec<&str> = stderr.lines().filter(|line| !line.trim().is_empty()).take(2).collect();
        return Err(format!("{status}: {}", said.join(" ")));
    }
    serde_json::from_str(&stdout).map_err(|error| format!("prints no figures: {error}"))
}

fn read(mut pipe: impl Read) -> String {
    let mut text = Vec::new();
    // What was read until the pipe broke is what there is to show.
    let _ = pipe.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

fn wait(child: &mut Child) -> Result<std::process::ExitStatus, String> {
    let began = Instant::now();
    loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) => return Ok(status),
            None if began.elapsed() > LIMIT => {
                child.kill().and_then(|()| child.wait()).map_err(|error| error.to_string())?;
                return Err(format!("takes more than {} s", LIMIT.as_secs()));
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}
