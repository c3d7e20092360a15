//! Instruction counts of the scheduler core's hot path, through valgrind, so that a noisy machine does not matter.
//!
//! Without arguments it runs itself under `valgrind --tool=callgrind` for each size, policy and mixture of weights,
//! prints a table, and fails if a limit is missed. With `measure ...` it is the program being counted.

mod admission;
mod authority;
mod load;
mod valgrind;

use authority::Path;
use load::{Case, Weights};
use std::process::ExitCode;

/// What speed is judged by: instructions per decision at 1,000 threads, and growth to 1,000,000.
const LIMIT_AT_1_000: f64 = 400.0;
const LIMIT_OF_GROWTH: f64 = 2.5;

/// What the paths of contexts are judged by, in dispatches of best effort.
const LIMIT_OF_PATHS: f64 = 2.0;

const SIZES: [u32; 4] = [10, 1_000, 100_000, 1_000_000];

/// Rows of [`SIZES`] that the limits speak of.
const AT_1_000: usize = 1;
const AT_1_000_000: usize = 3;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        [] => match table() {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::from(2)
            }
        },
        ["measure", policy, weights, threads] => match (Case::named(policy, weights), threads.parse()) {
            (Some(case), Ok(threads)) => {
                load::measure(case, threads);
                ExitCode::SUCCESS
            }
            _ => usage(),
        },
        ["measure", "admission", contexts] => match contexts.parse() {
            Ok(contexts) => {
                admission::measure(contexts);
                ExitCode::SUCCESS
            }
            Err(_) => usage(),
        },
        ["measure", path] => match Path::ALL.into_iter().find(|one| one.name() == *path) {
            Some(path) => {
                authority::measure(path);
                ExitCode::SUCCESS
            }
            None => usage(),
        },
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: mainspring-bench-core [measure eevdf|wfq mixed|equal|distinct THREADS | measure deplete|call|steps | \
         measure admission CONTEXTS]"
    );
    ExitCode::from(2)
}

/// Counts and prints everything; whether all limits hold.
fn table() -> Result<bool, valgrind::Error> {
    println!("instructions for charge + requeue + pick, mean of {} decisions", load::DECISIONS);
    print!("{:>10}", "threads");
    for case in Case::ALL {
        print!(" {:>15}", case.to_string());
    }
    println!();
    let mut counts = [[0.0; Case::ALL.len()]; SIZES.len()];
    for (threads, row) in SIZES.into_iter().zip(&mut counts) {
        print!("{threads:>10}");
        for (case, count) in Case::ALL.into_iter().zip(row) {
            let [policy, weights] = case.names();
            let total = valgrind::instructions("counted", &[policy, weights, &threads.to_string()])?;
            *count = total as f64 / f64::from(load::DECISIONS);
            print!(" {count:>15.0}");
        }
        println!();
    }
    let mut held = true;
    for (column, case) in Case::ALL.into_iter().enumerate() {
        held &= judge(case, counts[AT_1_000][column], counts[AT_1_000_000][column]);
    }
    held &= paths(counts[AT_1_000][0])?;
    held &= admissions()?;
    Ok(held)
}

/// Counts and prints the admission of many contexts on one CPU.
fn admissions() -> Result<bool, valgrind::Error> {
    let mut held = true;
    for (contexts, limit) in admission::LIMITS {
        let count = valgrind::instructions("counted_admission", &["admission", &contexts.to_string()])?;
        let within = count <= limit;
        let verdict = if within { "holds" } else { "MISSED" };
        println!(
            "admission of {contexts} contexts on one CPU: {count} instructions (limit {limit}): {verdict}"
        );
        held &= within;
    }
    Ok(held)
}

/// Counts and prints the paths of contexts, each against `plain`, a dispatch of best effort at 1,000 threads.
fn paths(plain: f64) -> Result<bool, valgrind::Error> {
    let mut held = true;
    for path in Path::ALL {
        let total = valgrind::instructions(&format!("counted_{}", path.name()), &[path.name()])?;
        let count = total as f64 / f64::from(authority::ROUNDS);
        let (times, within) = (count / plain, count <= LIMIT_OF_PATHS * plain);
        let title = path.title();
        if !path.is_judged() {
            println!("{title}: {count:.0}, {times:.2} plain dispatches; no limit");
            continue;
        }
        let verdict = if within { "holds" } else { "MISSED" };
        println!("{title}: {count:.0}, {times:.2} plain dispatches (limit {LIMIT_OF_PATHS}): {verdict}");
        held &= within;
    }
    Ok(held)
}

/// Prints how `case` stands; whether it is within the limits, if it is judged by them.
fn judge(case: Case, at_1_000: f64, at_1_000_000: f64) -> bool {
    let growth = at_1_000_000 / at_1_000;
    let within = at_1_000 <= LIMIT_AT_1_000 && growth <= LIMIT_OF_GROWTH;
    if case.weights == Weights::Distinct {
        println!("{case}: {at_1_000:.0} at 1,000, times {growth:.2} at 1,000,000; no limit");
        return true;
    }
    let verdict = if within { "holds" } else { "MISSED" };
    println!(
        "{case}: {at_1_000:.0} at 1,000 (limit {LIMIT_AT_1_000}), times {growth:.2} at 1,000,000 (limit \
         {LIMIT_OF_GROWTH}): {verdict}"
    );
    within
}
