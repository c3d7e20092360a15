//! The Linux runtime beside its peers, in one run.
//!
//! Each measurement is a process of its own, so that runtimes do not disturb each other, and has a time limit. The peers
//! alternate round by round, so that a noisy moment hits all of them; a comparison is the median of the ratios
//! within the rounds. `one BENCH PEER` is what the benchmark starts as its child.

mod bench;
mod check;
mod drive;
mod gauge;
mod go;
mod http;
mod loops;
mod peers;
mod report;
mod target;
mod victim;

use bench::{Bench, Peer, Work};
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Mainspring's Linux runtime beside Tokio, may, smol, Rayon, raw corosensei and Go.
#[derive(Debug, Parser)]
#[command(name = "mainspring-bench-runtime")]
struct Options {
    /// Far less work and two rounds: shows that everything runs, its figures mean nothing
    #[arg(long)]
    quick: bool,
    /// How often each peer is measured in each benchmark [default: 5]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Only the benchmarks whose names begin so (repeatable), for example `yield` or `hostile`
    #[arg(long = "bench", value_name = "NAME")]
    only: Vec<String>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measures one peer once, in this process, and prints its figures as JSON
    One {
        /// Which benchmark
        bench: Bench,
        /// Which peer
        peer: Peer,
    },
}

fn main() -> ExitCode {
    let options = Options::parse();
    let work = if options.quick { Work::QUICK } else { Work::FULL };
    if let Some(Command::One { bench, peer }) = options.command {
        return one(bench, peer, &work);
    }
    let benches: Vec<Bench> = Bench::ALL
        .into_iter()
        .filter(|bench| {
            options.only.is_empty() || options.only.iter().any(|name| bench.name().starts_with(name))
        })
        .collect();
    if benches.is_empty() {
        let names: Vec<_> = Bench::ALL.iter().map(Bench::name).collect();
        eprintln!("no such benchmark; there are: {}", names.join(", "));
        return ExitCode::from(2);
    }
    let rounds = options.rounds.unwrap_or(if options.quick { 2 } else { 5 });
    match drive::run(&benches, rounds, options.quick).and_then(|results| report::write(&results, rounds)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-runtime: {error}");
            ExitCode::FAILURE
        }
    }
}

fn one(bench: Bench, peer: Peer, work: &Work) -> ExitCode {
    // A panic in a task may leave the others waiting for it: it ends the measurement.
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        std::process::exit(1);
    }));
    let Some(figures) = peers::measure(bench, peer, work) else {
        eprintln!("{} takes no part in {}", peer.name(), bench.name());
        return ExitCode::from(2);
    };
    print_and_exit(figures)
}

/// Prints the figures of a measurement and ends the process: what still runs or waits must not keep it.
fn print_and_exit(figures: bench::Figures) -> ! {
    let figures: serde_json::Map<_, _> =
        figures.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    println!("{}", serde_json::Value::Object(figures));
    std::process::exit(0)
}
