//! What the host's side of the network proof asks of the machine: starts the network process, and answers one question for each
//! connection to port 9. `idle`: how many ticks came in a second in which nothing happened. `used`: what the network process has
//! used of its context. `calls`: how long calls to the network process take. `restart`: the network process is killed and started again. `end`: the machine ends.
//!
//! A client that goes away before it is answered is its own loss.
#![no_std]
#![no_main]

use core::fmt::Write;
use heapless::String;
use mainspring_user::caps::{self, Context, Device, Process};
use mainspring_user::net::{NetError, Network, TcpStream};
use mainspring_user::{CapError, say};

mainspring_user::program!(main);

const SECOND_NS: u64 = 1_000_000_000;
/// What the network process is given.
const GRANTS: &[&str] = &[
    "console",
    "timer",
    "threads",
    "control",
    "memory",
    "device:1af4.1041",
    "context:net",
    "serve:net0",
    "serve:net1",
    "serve:net2",
];

fn main() -> i64 {
    let network = Network::new(caps::need("call:net2"));
    if let Some(what) = refused_without_effect() {
        say!("net-proof: {what}");
        return 1;
    }
    // Calls are timed on time of their own: who else runs when does not matter to them.
    if let Some(context) = caps::find("context:victim")
        && let Err(code) = Context(context).bind()
    {
        say!("net-proof: cannot be bound to its context: {code}");
        return 1;
    }
    for _ in 0..8 {
        let process = match caps::start("net", caps::arguments(), GRANTS) {
            Ok(process) => process,
            Err(code) => {
                say!("net-proof: no network process: {code}");
                return 1;
            }
        };
        match serve(network, &process) {
            Ok(Next::End) => {
                say!("net-proof: ok");
                return 0;
            }
            Ok(Next::Restart) => {
                if let Some(what) = stopped_in_place() {
                    say!("net-proof: {what}");
                    return 1;
                }
                say!("net-proof: restarting");
            }
            Err(why) => {
                say!("net-proof: the network process fails: {why:?}");
                return 1;
            }
        }
    }
    1
}

/// The card, as this process has it: it never drives the card.
fn card() -> Device {
    Device(caps::need("device:1af4.1041"))
}

/// Requests that make no sense, or ask for what the kernel keeps. What was not refused, if anything.
///
/// The network process that starts next shows that they had no effect: it could not drive the card otherwise.
fn refused_without_effect() -> Option<&'static str> {
    // The table of messages, and base addresses that there are not.
    if !(1..8).step_by(6).chain([u32::MAX]).all(|bar| card().map_registers(bar) == Err(CapError::NotFound)) {
        return Some("registers that no program may have were given");
    }
    let outside = Err(CapError::InvalidParameter);
    let sizes = [0, 257, u32::MAX].into_iter().all(|pages| card().create_dma(pages).map(|_| ()) == outside);
    let messages = [4, 0xffff, 0x1_0000, u32::MAX]
        .into_iter()
        .all(|message| card().interrupt(message).map(|_| ()) == outside);
    if !sizes || !messages {
        return Some("memory or messages that there are not were given");
    }
    say!("net-proof: refusals=ok");
    None
}

/// While another process drives the card, nothing of it can be had. What was not refused, if anything.
fn busy_while_driven() -> Option<&'static str> {
    let busy = card().create_dma(1).map(|_| ()) == Err(CapError::Busy)
        && card().interrupt(0).map(|_| ()) == Err(CapError::Busy)
        && card().map_registers(4).map(|_| ()) == Err(CapError::Busy);
    if !busy {
        return Some("two processes drive one card");
    }
    say!("net-proof: one_driver=ok");
    None
}

/// Of the card's configuration space: whether its registers answer, and whether it may write memory.
const COMMAND: u8 = 4;
const MEMORY_SPACE: u32 = 1 << 1;
const BUS_MASTER: u32 = 1 << 2;

/// The driver has ended: its card writes no memory, and its registers are where they were. What is not so, if anything.
fn stopped_in_place() -> Option<&'static str> {
    match card().config(COMMAND) {
        Ok(command) if command & BUS_MASTER != 0 => Some("a card without a driver may write memory"),
        Ok(command) if command & MEMORY_SPACE == 0 => Some("a card's registers went away with its driver"),
        Ok(_) => None,
        Err(_) => Some("the card's configuration cannot be read"),
    }
}

enum Next {
    Restart,
    End,
}

fn serve(network: Network, process: &Process) -> Result<Next, NetError> {
    let listener = network.listen_when_up(9, 4)?;
    if let Some(what) = busy_while_driven() {
        say!("net-proof: {what}");
        return Err(NetError::Call(CapError::Busy));
    }
    say!("net-proof: ready");
    loop {
        let next = match answer(network, listener.accept()?) {
            Ok(next) => next,
            Err(NetError::Refused(_)) => None,
            Err(why) => return Err(why),
        };
        // The answer is sent before anything ends.
        if next.is_some() {
            caps::sleep(SECOND_NS / 10)?;
        }
        match next {
            None => {}
            Some(Next::End) => return Ok(Next::End),
            Some(Next::Restart) => {
                process.kill()?;
                let _killed = process.wait()?;
                return Ok(Next::Restart);
            }
        }
    }
}

/// Answers the one question of a connection; what to do then, if anything.
fn answer(network: Network, stream: TcpStream) -> Result<Option<Next>, NetError> {
    let mut question = [0; 16];
    let len = stream.read(&mut question)?;
    let mut answer: String<128> = String::new();
    let mut next = None;
    // An answer of numbers fits.
    let _fits = match &question[..len] {
        b"idle" => idle(&mut answer),
        b"used" => used(network, &mut answer)?,
        b"calls" => calls(network, &mut answer)?,
        b"restart" => {
            next = Some(Next::Restart);
            answer.write_str("restarting")
        }
        b"end" => {
            next = Some(Next::End);
            answer.write_str("bye")
        }
        _ => answer.write_str("what?"),
    };
    stream.write_all(answer.as_bytes())?;
    stream.close()?;
    Ok(next)
}

fn ticks() -> u64 {
    let cpus = caps::usage().map_or(0, |usage| usage.cpus);
    (0..cpus).filter_map(|cpu| caps::cpu_counters(cpu).ok()).map(|counters| counters.ticks).sum()
}

//= TICK:L1.netpoll
fn idle(answer: &mut String<128>) -> core::fmt::Result {
    let before = ticks();
    // A refusal would show in the ticks.
    let _slept = caps::sleep(SECOND_NS);
    write!(answer, "ticks={}", ticks() - before)
}

fn used(network: Network, answer: &mut String<128>) -> Result<core::fmt::Result, NetError> {
    let usage = network.usage()?;
    Ok(write!(
        answer,
        "now_ns={} packets={} used_ns={} budget_ns={} period_ns={} overshoot_ns={}",
        caps::now(),
        usage.packets,
        usage.used_ns,
        usage.budget_ns,
        usage.period_ns,
        usage.overshoot_max_ns
    ))
}

/// Calls that are timed, and the time between two of them.
const CALLS: usize = 400;
const BETWEEN_NS: u64 = 700_000;

/// What a client waits for the answer to a call that needs no packet: the longest of all but one in a hundred.
fn calls(network: Network, answer: &mut String<128>) -> Result<core::fmt::Result, NetError> {
    let packets_before = network.usage()?.packets;
    let mut took = [0; CALLS];
    for took in &mut took {
        caps::sleep(BETWEEN_NS)?;
        let began = caps::now();
        network.usage()?;
        *took = caps::now() - began;
    }
    took.sort_unstable();
    let packets = network.usage()?.packets - packets_before;
    let (p50, p99) = (took[CALLS / 2], took[CALLS * 99 / 100]);
    Ok(write!(answer, "packets={packets} p50_ns={p50} p99_ns={p99} max_ns={}", took[CALLS - 1]))
}
