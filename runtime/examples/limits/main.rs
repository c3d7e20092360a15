//! Measures what the runtime must reach on any host, and fails if a limit is missed. `make bench-limits` runs it.

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

fn main() -> ExitCode {
    let figures = measure(&WORK);
    figures.iter().for_each(|figure| println!("{figure}"));
    if figures.iter().all(Figure::holds) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
