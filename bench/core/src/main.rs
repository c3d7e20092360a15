//! Instruction counts of the scheduler core's hot path, through valgrind, so that a noisy machine does not matter.
//!
//! Without arguments it runs itself under `valgrind --tool=callgrind` for each size and policy and prints a table.
//! With `measure POLICY THREADS` it is the program being counted.

mod load;
mod valgrind;

use mainspring_abi::Policy;
use std::process::ExitCode;

/// What the issue of speed is judged by: instructions per decision at 1,000 threads, and growth to 1,000,000.
const LIMIT_AT_1_000: f64 = 400.0;
const LIMIT_OF_GROWTH: f64 = 2.5;

const SIZES: [u32; 4] = [10, 1_000, 100_000, 1_000_000];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        [] => table(),
        ["measure", policy, threads] => match (load::policy(policy), threads.parse()) {
            (Some(policy), Ok(threads)) => {
                load::measure(policy, threads);
                ExitCode::SUCCESS
            }
            _ => usage(),
        },
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: mainspring-bench-core [measure eevdf|wfq THREADS]");
    ExitCode::from(2)
}

fn table() -> ExitCode {
    println!("instructions for charge + requeue + pick, mean of {} decisions", load::DECISIONS);
    println!("{:>10} {:>10} {:>10}", "threads", "eevdf", "wfq");
    let mut rows = Vec::new();
    for threads in SIZES {
        let mut row = [0.0; 2];
        for (count, policy) in row.iter_mut().zip([Policy::Eevdf, Policy::Wfq]) {
            match valgrind::instructions(policy, threads) {
                Ok(total) => *count = total as f64 / f64::from(load::DECISIONS),
                Err(error) => {
                    eprintln!("{error}");
                    return ExitCode::from(2);
                }
            }
        }
        println!("{threads:>10} {:>10.0} {:>10.0}", row[0], row[1]);
        rows.push(row);
    }
    let mut held = true;
    for (column, name) in ["eevdf", "wfq"].iter().enumerate() {
        let (at_1_000, growth) = (rows[1][column], rows[3][column] / rows[1][column]);
        let ok = at_1_000 <= LIMIT_AT_1_000 && growth <= LIMIT_OF_GROWTH;
        held &= ok;
        println!(
            "{name}: {at_1_000:.0} at 1,000 (limit {LIMIT_AT_1_000}), times {growth:.2} at 1,000,000 \
             (limit {LIMIT_OF_GROWTH}): {}",
            if ok { "holds" } else { "MISSED" }
        );
    }
    if held { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
