//! Instructions of a request that does nothing, carried out by an entry of the kernel and by a poller. Time counts instructions
//! (`-icount shift=0`) of all CPUs together, so that one CPU is idle while the other is measured.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::vec::Vec;
use mainspring_abi::kernel::FOREVER;
use mainspring_abi::ring::CapSqeV2;
use mainspring_user::arch::stamp;
use mainspring_user::caps::{self, LeaseGrant, ThreadOptions};
use mainspring_user::client::{self, Ticket};
use mainspring_user::say;
use mainspring_user::schema::{LeaseMode, NamedRing};

mainspring_user::program!(main);

const ROUNDS: usize = 50;
/// Requests of a short and of a long burst: what one more request costs the poller is the difference. Starting and falling asleep
/// are in both.
const SHORT: usize = 8;
const LONG: usize = 16;

fn main() -> i64 {
    let cpu = caps::usage().expect("usage can be read").cpus - 1;
    let entered = least(ROUNDS, || {
        let ticket = client::submit(CapSqeV2::nop(0)).expect("the ring has room");
        client::wait(ticket).expect("a nop completes");
    });
    let options = ThreadOptions { cpus: 1, ..ThreadOptions::default() };
    let thread = caps::spawn(options, move || polled(cpu, entered)).expect("within the quota");
    thread.join().map_or(1, i64::from)
}

/// The least of `rounds` times of `act`, without the time of measuring itself. More than the least is what another CPU did.
fn least(rounds: usize, mut act: impl FnMut()) -> u64 {
    let time = |act: &mut dyn FnMut()| {
        let took = (0..rounds).map(|_| {
            let began = stamp();
            act();
            stamp() - began
        });
        took.min().unwrap_or(0)
    };
    let empty = time(&mut || {});
    time(&mut act) - empty
}

/// What the poller of this thread's ring, on `cpu`, costs this thread and itself, beside what an entry costs.
fn polled(cpu: u32, entered: u64) -> i64 {
    let asked = LeaseGrant {
        cpus: &[1 << cpu],
        mode: LeaseMode::KernelSqpoll,
        ring: NamedRing::CallerThread,
        ..LeaseGrant::default()
    };
    let _lease = caps::lease(&asked).expect("the CPU is free");
    let telemetry = || caps::telemetry(cpu).expect("the CPU is there");
    assert!(caps::comes_true(1_000_000, || telemetry().sqpoll_sleep_count > 0), "the poller never sleeps");
    let (mut submit, mut reap) = (u64::MAX, u64::MAX);
    let mut poller = |count: usize| {
        let busy = || caps::telemetry(cpu).expect("the CPU is there").sqpoll_busy_ns;
        let mut served = u64::MAX;
        for _ in 0..ROUNDS {
            let before = busy();
            // The poller sleeps: it has nothing to do, and may not spin.
            let mut tickets: Vec<Ticket> = Vec::with_capacity(count);
            let mut first = None;
            submit = submit.min(least(1, || {
                first = Some(client::submit_to_poller(CapSqeV2::nop(0)).expect("there is room").0);
            }));
            tickets.extend(first);
            while tickets.len() < count {
                tickets.push(client::submit_to_poller(CapSqeV2::nop(0)).expect("there is room").0);
            }
            client::enter(count as u32, FOREVER).expect("it wakes the poller, and waits");
            for ticket in tickets {
                reap = reap.min(least(1, || {
                    client::poll(ticket).expect("a ring of one's own");
                }));
            }
            served = served.min(busy() - before);
        }
        served
    };
    let (short, long) = (poller(SHORT), poller(LONG));
    let (thread, poller) = (submit + reap, (long - short) / (LONG - SHORT) as u64);
    say!("bench: nop_entered={entered}");
    say!("bench: nop_polled_thread={thread}");
    say!("bench: nop_polled_poller={poller}");
    say!("bench: nop_polled={}", thread + poller);
    say!("bench: nop_polled_percent={}", (thread + poller) * 100 / entered.max(1));
    say!("bench: sqpoll=ok");
    0
}
