//! Measures what the runtime must reach on any host, and fails if a limit is missed. `make bench-limits` runs it.
//!
//! With `small` it does a little of everything and judges nothing: for memcheck, under which no time means anything.

mod figures;

use figures::{Figure, Work, measure};
use std::process::ExitCode;

const WORK: Work = Work {
    yields: 1_000_000,
    spawns: 2_000_000,
    parked: 50_000,
    forks: 20_000,
    parallel: 400,
    steps: 500_000,
};

const SMALL: Work = Work { yields: 2000, spawns: 4000, parked: 200, forks: 50, parallel: 8, steps: 500 };

fn main() -> ExitCode {
    let is_small = std::env::args().nth(1).is_some_and(|argument| argument == "small");
    let figures = measure(if is_small { &SMALL } else { &WORK });
    if is_small {
        println!("did a little of {} things", figures.len());
        return ExitCode::SUCCESS;
    }
    figures.iter().for_each(|figure| println!("{figure}"));
    if figures.iter().all(Figure::holds) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
