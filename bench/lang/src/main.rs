//! `make bench-lang`: what checks cost compiled programs, in two meters, and how far compiled code is from Rust.
//!
//! Six loops, each compiled three times: without checks, with the checks that count ops, and with a poll of one load on every way
//! back of a loop. They run turn by turn, and the least time of each counts: the run that the host disturbed least. Nothing is asserted
//! but that all variants and Rust compute the same.
//!
//! The poll is measured and not used: its page is never protected, and no runtime acts on a fault there.

mod peers;

use mainspring_native::{Metering, Options};
use mainspring_qtjir::{Limits, Program, Quiet};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// A loop, its peer, and how often one measurement repeats it.
struct Loop {
    name: &'static str,
    source: &'static str,
    peer: fn(i64) -> i64,
    times: i64,
}

const LOOPS: [Loop; 6] = [
    Loop { name: "matrix", source: include_str!("../loops/matrix.jan"), peer: peers::matrix, times: 4 },
    Loop { name: "hash", source: include_str!("../loops/hash.jan"), peer: peers::hash, times: 8 },
    Loop { name: "sort", source: include_str!("../loops/sort.jan"), peer: peers::sort, times: 4 },
    Loop { name: "json", source: include_str!("../loops/json.jan"), peer: peers::json, times: 20 },
    Loop { name: "sieve", source: include_str!("../loops/sieve.jan"), peer: peers::sieve, times: 4 },
    Loop { name: "nbody", source: include_str!("../loops/nbody.jan"), peer: peers::nbody, times: 15 },
];

/// The limits of the issue, in percent, and the factor beside Rust.
const MEAN_OF_OPS: f64 = 8.0;
const MEAN_OF_POLL: f64 = 2.0;
const MOST_OF_POLL: f64 = 5.0;
const FACTOR_OF_RUST: f64 = 2.5;

/// What one loop showed.
struct Figures {
    ops: f64,
    poll: f64,
    rust: f64,
    looks: u64,
    charged: u64,
}

fn compiled(source: &str, metering: Metering) -> Program {
    let module = mainspring_janus::compile(source)
        .unwrap_or_else(|mistakes| panic!("{}", mistakes.render("loop.jan", source)));
    let program = match metering {
        Metering::Ops | Metering::OpsGauged => Program::compile(module),
        Metering::None | Metering::Poll => Program::compile_unmetered(module),
    };
    let options = Options { metering, ..Options::default() };
    mainspring_native::compile(program.expect("it verifies"), options).expect("it compiles")
}

fn timed(f: impl FnOnce() -> i64) -> (i64, f64) {
    let began = Instant::now();
    let value = f();
    (value, began.elapsed().as_secs_f64())
}

fn measure(each: &Loop, rounds: usize) -> Figures {
    let [plain, ops, poll] =
        [Metering::None, Metering::Ops, Metering::Poll].map(|how| compiled(each.source, how));
    let run = |program: &Program| {
        let args = [each.times as u64];
        program.run_alone("main", &args, Limits::MAX, &Quiet).expect("it ends well")
    };
    let value = |program: &Program| run(program).value.expect("a value") as i64;
    let rust = || (each.peer)(std::hint::black_box(each.times));
    let wanted = rust();
    for program in [&plain, &ops, &poll] {
        assert_eq!(value(program), wanted, "{}: another result than Rust's", each.name);
    }
    let mut least = [f64::MAX; 4];
    for round in 0..rounds {
        // Each comes first in its turn.
        for step in 0..4 {
            let which = (round + step) % 4;
            let (_, time) = match which {
                0 => timed(|| value(&plain)),
                1 => timed(|| value(&ops)),
                2 => timed(|| value(&poll)),
                _ => timed(rust),
            };
            least[which] = least[which].min(time);
        }
    }
    let ended = run(&ops);
    let [of_plain, of_ops, of_poll, of_rust] = least;
    let percent = |time: f64| (time / of_plain - 1.0) * 100.0;
    Figures {
        ops: percent(of_ops),
        poll: percent(of_poll),
        rust: of_ops / of_rust,
        looks: ended.looks,
        charged: ended.ops,
    }
}

/// The longest time between two checks that paid, in the run that was disturbed least.
fn longest_gap(each: &Loop) -> Duration {
    let program = compiled(each.source, Metering::OpsGauged);
    let gaps = (0..50).map(|_| {
        let _ = mainspring_native::take_longest_gap();
        program.run_alone("main", &[1], Limits::MAX, &Quiet).expect("it ends well");
        mainspring_native::take_longest_gap()
    });
    gaps.min().unwrap_or_default()
}

/// The geometric mean of overheads in percent. A loop that is faster with checks counts as one that is as fast.
fn mean(percents: impl Iterator<Item = f64>) -> f64 {
    let logs: Vec<f64> = percents.map(|percent| (1.0 + percent.max(0.0) / 100.0).ln()).collect();
    ((logs.iter().sum::<f64>() / logs.len() as f64).exp() - 1.0) * 100.0
}

fn main() -> ExitCode {
    let rounds = std::env::args().nth(1).and_then(|arg| arg.parse().ok()).unwrap_or(61);
    println!(
        "{:8} {:>8} {:>8} {:>10} {:>12} {:>9} {:>12}",
        "loop", "ops", "poll", "of Rust", "charged", "looks", "longest gap"
    );
    let mut all = Vec::new();
    for each in &LOOPS {
        let figures = measure(each, rounds);
        let gap = longest_gap(each);
        println!(
            "{:8} {:>+7.1}% {:>+7.1}% {:>9.2}x {:>12} {:>9} {:>10.1}us",
            each.name,
            figures.ops,
            figures.poll,
            figures.rust,
            figures.charged,
            figures.looks,
            gap.as_secs_f64() * 1e6,
        );
        all.push(figures);
    }
    let (ops, poll) = (mean(all.iter().map(|one| one.ops)), mean(all.iter().map(|one| one.poll)));
    let most = all.iter().map(|one| one.poll).fold(f64::MIN, f64::max);
    let rust = all.iter().map(|one| one.rust).fold(f64::MIN, f64::max);
    println!("{:8} {ops:>+7.1}% {poll:>+7.1}%", "mean");
    let limits = [
        ("the mean of ops", ops, MEAN_OF_OPS, "%"),
        ("the mean of polls", poll, MEAN_OF_POLL, "%"),
        ("the dearest poll", most, MOST_OF_POLL, "%"),
        ("the slowest beside Rust", rust, FACTOR_OF_RUST, "x"),
    ];
    let mut missed = false;
    for (what, is, limit, unit) in limits {
        let verdict = if is <= limit { "ok" } else { "MISSED" };
        missed |= is > limit;
        println!("{what}: {is:.1}{unit}, at most {limit}{unit}: {verdict}");
    }
    if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
