//! Two processes, one ring: the client asks, the server answers.
//!
//! `cargo run -p mainspring-ring --features linux --example ring_echo -- client 100000` starts the server itself, as a child
//! that inherits the ring's file as its standard input.

use mainspring_abi::ring::{CapCqe, CapSqeV2, RingAbi};
use mainspring_ring::linux::{Client, Served, Server, SharedRing, Waited};
use mainspring_ring::{Completer, CqPlace, Geometry, Push, Reap};
use std::error::Error;
use std::os::fd::AsFd;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// After this long without the other side, it is taken to be gone.
const PATIENCE: Duration = Duration::from_secs(5);
const SPIN: Duration = Duration::from_micros(50);
const REQUESTS_MAX: u64 = 100_000_000;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let count = args.get(1).map_or(Ok(100_000), |count| count.parse());
    let done = match (args.first().map(String::as_str), count) {
        (Some("client") | None, Ok(count @ 1..=REQUESTS_MAX)) => client(count),
        (Some("server"), Ok(count @ 1..=REQUESTS_MAX)) => server(count),
        _ => {
            eprintln!("usage: echo [client|server] [REQUESTS], from 1 to {REQUESTS_MAX}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("echo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn client(count: u64) -> Result<(), Box<dyn Error>> {
    let geometry = Geometry::new(RingAbi::V2, 64, 128)?;
    let (mut client, file) = Client::create(geometry)?;
    let mut server =
        Command::new(std::env::current_exe()?).args(["server", &count.to_string()]).stdin(file).spawn()?;
    let began = Instant::now();
    let (mut sent, mut answered) = (0, 0);
    while answered < count {
        while sent < count && client.push(&CapSqeV2::nop(sent)) == Push::Queued {
            sent += 1;
        }
        client.publish();
        let Some(first) = client.wait(PATIENCE)? else { return Err("the server does not answer".into()) };
        answered = check(first, answered)?;
        while let Reap::Completion(next) = client.reap() {
            answered = check(next, answered)?;
        }
        client.give_back();
    }
    let elapsed = began.elapsed();
    if !server.wait()?.success() {
        return Err("the server failed".into());
    }
    let rate = count as f64 / elapsed.as_secs_f64();
    println!(
        "client: {count} echoes in {elapsed:.2?}, {rate:.0} a second; woke the server {} times",
        client.wakes()
    );
    Ok(())
}

fn check(cqe: CapCqe, expected: u64) -> Result<u64, Box<dyn Error>> {
    if cqe.user_data != expected || cqe.result != !(expected as u32) {
        return Err(format!("answer {cqe:?} to request {expected}").into());
    }
    Ok(expected + 1)
}

fn server(count: u64) -> Result<(), Box<dyn Error>> {
    let stdin = std::io::stdin();
    let mut server = Server::open(stdin.as_fd(), SPIN)?;
    let mut answer = |request: CapSqeV2, place: CqPlace, cq: &mut Completer<SharedRing>| {
        let id = request.v1.user_data;
        cq.complete(place, &CapCqe::completed(id, !(id as u32)));
    };
    let mut handled = 0;
    while handled < count {
        match server.serve(64, &mut answer) {
            Served::Requests(requests) => handled += u64::from(requests),
            Served::Fault(fault) => return Err(fault.into()),
            Served::Nothing | Served::HeldBack => {
                if server.idle(PATIENCE) == Waited::TimedOut {
                    return Err("the client is gone".into());
                }
            }
        }
    }
    println!("server: {handled} requests, slept {} times", server.sleeps());
    Ok(())
}
