//! No-op requests through our rings and through io_uring, like with like, in one run.
//!
//! Each row alternates between the peers round by round, so that a noisy moment hits all of them. `serve SPIN_US` is
//! what the benchmark starts as its second process.
//!
//! The rate is the one that one window of a millisecond in ten exceeds, since a window in which another program took one
//! of the two CPUs measures that program; the quantiles are over all trips of all rounds.

mod measure;
mod ours;
mod uring;

use measure::{Collected, Numbers, Peer, Trip};
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use uring::{Poller, Uring};

const BATCHES: [u32; 2] = [1, 32];
const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(20);
const ASLEEP_TRIPS: u32 = 60;
/// Longer than any measurement.
const NEVER_SLEEP: Duration = Duration::from_secs(3600);
const SLEEP_SOON: Duration = Duration::from_micros(20);

/// How the ring is driven.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Caller,
    Polled,
    Woken,
}

impl Mode {
    const ALL: [Self; 3] = [Self::Caller, Self::Polled, Self::Woken];

    fn key(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Polled => "poller",
            Self::Woken => "woken",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Caller => "caller drains its own ring",
            Self::Polled => "poller awake",
            Self::Woken => "poller asleep, woken",
        }
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => table(),
        ["serve", spin_us] => match spin_us.parse() {
            Ok(spin_us) => ours::serve(Duration::from_micros(spin_us)).map(|()| true),
            Err(_) => return usage(),
        },
        _ => return usage(),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: mainspring-bench-ring [serve SPIN_US]");
    ExitCode::from(2)
}

/// Measures and prints everything; whether we are ahead of io_uring in each row.
fn table() -> Result<bool, Box<dyn Error>> {
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        println!("note: pollers need a second CPU; on this machine they share the caller's");
    }
    measure::pin(measure::CALLER_CPU);
    let uring = match Uring::new(Poller::None) {
        Ok(_) => true,
        Err(error) => {
            println!("io_uring is not permitted or not present here ({error}); our numbers only");
            false
        }
    };
    println!(
        "{:<28} {:>5} {:<26} {:>13} {:>9} {:>9}",
        "no-op requests", "batch", "", "ops/s", "p50 ns", "p99 ns"
    );
    let mut records = Vec::new();
    let (mut rows, mut ahead) = (0, 0);
    for mode in Mode::ALL {
        for batch in BATCHES {
            let numbers = measure_row(mode, batch, uring)?;
            print_row(mode, batch, &numbers);
            records.extend(numbers.iter().flat_map(|numbers| json(mode, batch, numbers)));
            if let [ours, .., theirs] = numbers.as_slice()
                && uring
            {
                rows += 1;
                ahead += usize::from(ours.ops_per_s > theirs.ops_per_s && ours.p50_ns < theirs.p50_ns);
            }
        }
    }
    let file = output();
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(&file, serde_json::to_string_pretty(&records)?)?;
    println!("\n{}", file.display());
    if uring {
        println!("ahead of io_uring, in rate and in median, in {ahead} of {rows} rows");
    }
    Ok(ahead == rows)
}

/// The peers that a row compares, ours first, io_uring last. Made anew for each round, one at a time: two pollers
/// that never sleep would fight for their CPU.
fn make(peer: Peer, mode: Mode) -> Result<Box<dyn Trip>, Box<dyn Error>> {
    let (spin, poller) = match mode {
        Mode::Caller => (NEVER_SLEEP, Poller::None),
        Mode::Polled => (NEVER_SLEEP, Poller::Awake),
        Mode::Woken => (SLEEP_SOON, Poller::Sleepy),
    };
    Ok(match (peer, mode) {
        (Peer::IoUring, _) => Box::new(Uring::new(poller)?),
        (Peer::TwoProcesses, _) => Box::new(ours::PollerProcess::new(spin)?),
        (Peer::Mainspring, Mode::Caller) => Box::new(ours::Caller::new()),
        (Peer::Mainspring, _) => Box::new(ours::PollerThread::new(spin)),
    })
}

fn measure_row(mode: Mode, batch: u32, uring: bool) -> Result<Vec<Numbers>, Box<dyn Error>> {
    let two_processes = (mode != Mode::Caller).then_some(Peer::TwoProcesses);
    let peers = [Some(Peer::Mainspring), two_processes, uring.then_some(Peer::IoUring)];
    let mut collected: Vec<Collected> = peers.into_iter().flatten().map(Collected::new).collect();
    for _ in 0..ROUNDS {
        for collected in &mut collected {
            let mut trip = make(collected.peer(), mode)?;
            match mode {
                Mode::Caller | Mode::Polled => collected.busy_round(trip.as_mut(), batch, ROUND),
                Mode::Woken => collected.asleep_round(trip.as_mut(), batch, ASLEEP_TRIPS),
            }
        }
    }
    Ok(collected.into_iter().map(Collected::numbers).collect())
}

fn print_row(mode: Mode, batch: u32, numbers: &[Numbers]) {
    for (line, numbers) in numbers.iter().enumerate() {
        let (name, batch) = if line == 0 { (mode.text(), batch.to_string()) } else { ("", String::new()) };
        let Numbers { peer, ops_per_s, p50_ns, p99_ns } = numbers;
        println!("{name:<28} {batch:>5} {:<26} {ops_per_s:>13.0} {p50_ns:>9} {p99_ns:>9}", peer.name());
    }
}

fn json(mode: Mode, batch: u32, numbers: &Numbers) -> [serde_json::Value; 3] {
    let record = |what: &str, value: f64, unit: &str, lower_is_better: bool| {
        serde_json::json!({
            "bench": format!("ring/{}/batch-{batch}/{what}", mode.key()),
            "peer": numbers.peer.name(),
            "value": value,
            "unit": unit,
            "lower_is_better": lower_is_better,
        })
    };
    [
        record("rate", numbers.ops_per_s, "ops/s", false),
        record("p50", numbers.p50_ns as f64, "ns", true),
        record("p99", numbers.p99_ns as f64, "ns", true),
    ]
}

fn output() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    target.join("bench").join("ring.json")
}
