//! Servers that run for long: they must neither stop nor grow.
//!
//! `make soak-server COUNT=1000000` and `make soak-hostile SOAK_SECONDS=600`, or
//! `cargo run --release -p mainspring-runtime --example soak -- server 1000000`. Loopback only, with both drivers, or with epoll
//! alone (`server 1000000 epoll`). Prints what grew, and a verdict; fails if there is something to fail for. `tests/soak.rs` runs
//! short versions.

mod growth;
mod hostile;
mod server;

use mainspring::io::IoDriver;
use std::process::ExitCode;
use std::time::Duration;

const DRIVERS: &[IoDriver] = &[IoDriver::Epoll, IoDriver::Uring];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = arguments.get(1).and_then(|text| text.parse().ok());
    let drivers = if arguments.get(2).is_some_and(|name| name == "epoll") { &DRIVERS[..1] } else { DRIVERS };
    let verdict = match (arguments.first().map(String::as_str), number) {
        (Some("server"), Some(count)) => server::soak(count, drivers),
        (Some("hostile"), Some(seconds)) => hostile::soak(Duration::from_secs(seconds), drivers),
        _ => {
            eprintln!("usage: soak server CONNECTIONS [epoll] | soak hostile SECONDS [epoll]");
            return ExitCode::from(2);
        }
    };
    match verdict {
        Ok(()) => {
            println!("verdict: it neither stopped nor grew");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            println!("verdict: FAILED: {problem}");
            ExitCode::FAILURE
        }
    }
}
