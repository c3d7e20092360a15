//! The protocols under the model checker: every interleaving of small programs, on the code that ships.
//! Run by `make loom`, which sets `--cfg loom`.
//!
//! Each model is also run with deliberate faults in the protocol ([`finds`]): one that does not find them checks nothing.
#![cfg(loom)]
#![allow(unsafe_code)]

mod bias;
mod channel;
mod claim;
mod deque;
mod earliest;
mod end;
mod fair_tasks;
mod granted;
mod hunger;
mod inbox;
mod ready_side;
mod roster;
mod sleep;
mod slot_refs;
mod state;
mod sync;
mod watch;

use mainspring::protocol::mutant::Mutant;

/// Every interleaving with at most three preemptions, in which all known bugs of such protocols show.
fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(f);
}

/// Runs a test of this program again with each of these faults in the protocol: the model must fail every time. In a process
/// of its own, since a model that fails may abort.
fn finds(faults: &[Mutant], test: &str) {
    for fault in faults {
        let ran = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test])
            .env("MAINSPRING_FAULT", format!("{fault:?}"))
            .env("RUST_BACKTRACE", "0")
            .output()
            .unwrap();
        assert!(String::from_utf8_lossy(&ran.stdout).contains("running 1 test"), "there is no test {test}");
        assert!(!ran.status.success(), "{test} does not find {fault:?}");
    }
}
