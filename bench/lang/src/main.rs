//! `make bench-lang`: what checks cost compiled programs, in two meters, and how far compiled code is from Rust.
//!
//! Six loops, each compiled three times: without checks, with the checks that count ops, and under the meter of time, which polls with a
//! load where checks stand. They run turn by turn, and the least processor time of each counts: the run that the host disturbed least.
//!
//! The same code takes another time at another address, by more than a check does. So each is compiled once per layout: its functions begin at
//! other places of a line, and at other distances from each other. A layout has its own least times, and what counts is their median over the
//! layouts, the same for all variants and for Rust, whose code stays where it is. Nothing is
//! asserted but that all variants, Rust and the programs beside it compute the same. `BENCH_GO` and `BENCH_WASM` name programs that run the
//! loops in Go, and in WebAssembly by Wasmtime. Where there is a valgrind, it counts instructions, which no load of the host changes.
//!
//! The code without checks has the copied loops of the others and no strips. Under the meter of time the page is protected once per tick, as
//! in a task.

mod outside;
mod peers;

use mainspring_native::{Metering, Options};
use mainspring_qtjir::{Limits, Program, Quiet};
use std::process::ExitCode;
use std::time::Duration;

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
const MOST_OF_OPS: f64 = 8.0;
const MEAN_OF_POLL: f64 = 2.0;
const MOST_OF_POLL: f64 = 5.0;
const FACTOR_OF_RUST: f64 = 2.5;

/// What one loop showed.
struct Figures {
    ops: f64,
    poll: f64,
    rust: f64,
    rust_seconds: f64,
    result: i64,
    looks: u64,
    charged: u64,
}

/// How many bytes after the beginning of a line the functions of each layout begin.
const LAYOUTS: [usize; 8] = [0, 16, 32, 48, 64, 80, 96, 112];

fn compiled(source: &str, metering: Metering, layout: usize) -> Program {
    let module = mainspring_janus::compile(source)
        .unwrap_or_else(|mistakes| panic!("{}", mistakes.render("loop.jan", source)));
    let program = match metering {
        Metering::Ops | Metering::OpsGauged | Metering::Time => Program::compile(module),
        Metering::None => Program::compile_unmetered(module),
    };
    let options = Options { metering, ..Options::default() };
    mainspring_native::compile_shifted(program.expect("it verifies"), options, layout).expect("it compiles")
}

/// The processor time of this thread, in seconds: what other programs of the host take is not in it.
fn processor_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn timed(f: impl FnOnce() -> i64) -> (i64, f64) {
    let began = processor_time();
    let value = f();
    (value, processor_time() - began)
}

fn measure(each: &Loop, rounds: usize) -> Figures {
    let layouts = LAYOUTS.map(|layout| {
        [Metering::None, Metering::Ops, Metering::Time].map(|how| compiled(each.source, how, layout))
    });
    let run = |program: &Program| {
        let args = [each.times as u64];
        program.run_alone("main", &args, Limits::MAX, &Quiet).expect("it ends well")
    };
    let value = |program: &Program| run(program).value.expect("a value") as i64;
    let rust = || (each.peer)(std::hint::black_box(each.times));
    let wanted = rust();
    for program in layouts.iter().flatten() {
        assert_eq!(value(program), wanted, "{}: another result than Rust's", each.name);
    }
    let mut least = [[f64::MAX; LAYOUTS.len()]; 4];
    for round in 0..rounds {
        for (layout, programs) in layouts.iter().enumerate() {
            // Each comes first in its turn.
            for step in 0..4 {
                let which = (round + step) % 4;
                let (_, time) = match programs.get(which) {
                    Some(program) => timed(|| value(program)),
                    None => timed(rust),
                };
                least[which][layout] = least[which][layout].min(time);
            }
        }
    }
    let ended = run(&layouts[0][1]);
    let [of_plain, of_ops, of_poll, of_rust] = least.map(median);
    let percent = |time: f64| (time / of_plain - 1.0) * 100.0;
    Figures {
        ops: percent(of_ops),
        poll: percent(of_poll),
        rust: of_ops / of_rust,
        rust_seconds: of_rust,
        result: wanted,
        looks: ended.looks,
        charged: ended.ops,
    }
}

/// The median of an even number of times: the middle between the two in the middle.
fn median(mut times: [f64; LAYOUTS.len()]) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    f64::midpoint(times[times.len() / 2 - 1], times[times.len() / 2])
}

/// The longest time between two checks that paid, in the run that was disturbed least.
fn longest_gap(each: &Loop) -> Duration {
    let program = compiled(each.source, Metering::OpsGauged, 0);
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

/// Runs one variant of one loop and nothing else, for tools that count instructions: `only LOOP none|ops|time|rust TIMES`.
fn only(name: &str, variant: &str, times: i64) -> Option<i64> {
    let each = LOOPS.iter().find(|each| each.name == name)?;
    let metering = match variant {
        "none" => Metering::None,
        "ops" => Metering::Ops,
        "time" => Metering::Time,
        "rust" => return Some((each.peer)(std::hint::black_box(times))),
        _ => return None,
    };
    let program = compiled(each.source, metering, 0);
    let ended = program.run_alone("main", &[times as u64], Limits::MAX, &Quiet).expect("it ends well");
    ended.value.map(|value| value as i64)
}

/// The time of the same loops elsewhere, as a multiple of Rust's, and what Wasmtime's meters add to its own code.
fn beside(all: &[Figures], rounds: usize) {
    for (each, figures) in LOOPS.iter().zip(all) {
        let mut lines = outside::peers("BENCH_GO", each.name, each.times, rounds, figures.result);
        lines.extend(outside::peers("BENCH_WASM", each.name, each.times, rounds, figures.result));
        let plain = lines.iter().find(|line| line.name == "wasm").map(|line| line.seconds);
        for line in lines {
            let of_rust = line.seconds / figures.rust_seconds;
            let adds = plain.filter(|_| line.name == "fuel" || line.name == "epochs");
            let adds = adds.map(|plain| format!(", {:+.1}%", (line.seconds / plain - 1.0) * 100.0));
            println!("{:8} {:8} {of_rust:.2}x of Rust{}", each.name, line.name, adds.unwrap_or_default());
        }
    }
}

/// The instructions of a turn, without checks, and what checks add.
fn counted() {
    for each in &LOOPS {
        let of = |variant| outside::instructions(each.name, variant).map(|count| count as f64);
        let (Some(plain), Some(ops), Some(poll), Some(rust)) =
            (of("none"), of("ops"), of("time"), of("rust"))
        else {
            return println!("no instructions are counted: there is no valgrind");
        };
        let percent = |count: f64| (count / plain - 1.0) * 100.0;
        println!(
            "{:8} {plain:>10} instructions, ops {:+.1}%, poll {:+.1}%, {:.2}x of Rust",
            each.name,
            percent(ops),
            percent(poll),
            ops / rust
        );
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [only_one, name, variant, times] = args.as_slice()
        && only_one == "only"
    {
        println!("{:?}", only(name, variant, times.parse().unwrap_or(1)));
        return ExitCode::SUCCESS;
    }
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
    let dearest = |of: fn(&Figures) -> f64| all.iter().map(of).fold(f64::MIN, f64::max);
    println!("{:8} {ops:>+7.1}% {poll:>+7.1}%", "mean");
    let limits = [
        ("the dearest ops", dearest(|one| one.ops), MOST_OF_OPS, "%"),
        ("the mean of polls", poll, MEAN_OF_POLL, "%"),
        ("the dearest poll", dearest(|one| one.poll), MOST_OF_POLL, "%"),
        ("the slowest beside Rust", dearest(|one| one.rust), FACTOR_OF_RUST, "x"),
    ];
    let mut missed = false;
    for (what, is, limit, unit) in limits {
        let verdict = if is <= limit { "ok" } else { "MISSED" };
        missed |= is > limit;
        println!("{what}: {is:.1}{unit}, at most {limit}{unit}: {verdict}");
    }
    beside(&all, rounds);
    counted();
    if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
