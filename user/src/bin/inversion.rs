//! Priority inversion, with donation and without: a control loop with a context asks a server that has none, while another context
//! and four threads without keep the CPU busy. Time counts instructions, so the outcome is the same on any host.
#![no_std]
#![no_main]

extern crate alloc;

use core::sync::atomic::{AtomicBool, Ordering};
use mainspring_user::caps::{self, Context, Thread, ThreadOptions};
use mainspring_user::{CapError, say};

mainspring_user::program!(main);

const US: u64 = 1_000;
const PERIOD: u64 = 10_000 * US;
const PERIODS: u64 = 40;

static STOP: AtomicBool = AtomicBool::new(false);

fn spawn(job: impl FnOnce() -> i64 + Send + 'static) -> Thread {
    caps::spawn(ThreadOptions::default(), job).expect("within the quota")
}

//= TICK:L6.inversion
fn main() -> i64 {
    let (control, player) = (Context(caps::need("context:control")), Context(caps::need("context:player")));
    let servers = ["serve:on", "serve:off"].map(|endpoint| spawn(move || serve(caps::need(endpoint))));
    let hogs = [(); 4].map(|()| {
        spawn(|| {
            while !STOP.load(Ordering::Relaxed) {
                mainspring_user::arch::spin(1_000);
            }
            0
        })
    });
    let plays = spawn(move || {
        player.bind().expect("it is free");
        while !STOP.load(Ordering::Relaxed) {
            let next = (caps::now() / PERIOD + 1) * PERIOD;
            caps::compute(3_800 * US).expect("the account can be read");
            caps::sleep_until(next).expect("within the quota");
        }
        player.unbind().map_or(1, |()| 0)
    });
    let missed = ["call:on", "call:off"].map(|endpoint| {
        let thread = spawn(move || periods(control, caps::need(endpoint)) as i64);
        thread.join().expect("it ends")
    });
    STOP.store(true, Ordering::Relaxed);
    for thread in hogs.into_iter().chain([plays]) {
        assert_eq!(thread.join(), Ok(0));
    }
    for server in servers {
        server.detach().expect("a handle can be dropped");
    }
    let [with, without] = missed;
    say!("inversion: donation_misses={with} no_donation_misses={without} of={PERIODS}");
    assert_eq!(with, 0, "a deadline was missed although the call lends");
    assert!(without > 10, "{without} misses: there was no inversion");
    say!("inversion: avoided=ok");
    0
}

/// The server: 1 ms for each call.
fn serve(endpoint: u32) -> i64 {
    let mut buffer = [0; 64];
    let mut received = caps::receive(endpoint, &mut buffer);
    while let Ok(call) = received {
        caps::compute(1_000 * US).expect("the account can be read");
        received = caps::answer_and_receive(endpoint, call.call_id, &[], &mut buffer);
    }
    i64::from(received != Err(CapError::Cancelled))
}

/// The control loop: how many of its periods were over before its work was.
fn periods(control: Context, endpoint: u32) -> u64 {
    control.bind().expect("it is free");
    let (began, mut missed, mut number) = (caps::now(), 0, 0);
    while number < PERIODS {
        caps::compute(500 * US).expect("the account can be read");
        caps::call_endpoint(endpoint, &[], &mut []).expect("the server answers");
        caps::compute(200 * US).expect("the account can be read");
        let passed = (caps::now() - began) / PERIOD;
        missed += passed - number;
        number = passed + 1;
        caps::sleep_until(began + number * PERIOD).expect("within the quota");
    }
    control.unbind().expect("it is bound");
    missed
}
