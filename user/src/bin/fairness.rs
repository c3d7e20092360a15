//! Shares by weight. `weights`: three hogs of different weight. `change`: one sets its own weight and sleeps before it
//! competes with another of the default weight.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use mainspring_user::caps::{self, Account, ThreadOptions};
use mainspring_user::sync::ParkMutex;
use mainspring_user::{arch, say};

mainspring_user::program!(main);

const MS: u64 = 1_000_000;
/// The least that a run takes.
const RUN_NS: u64 = 1_200 * MS;

fn main() -> i64 {
    match caps::arguments() {
        "change" => weight_change(),
        _ => weights(),
    }
    0
}

/// Lets hogs compete until their shares of the CPU are as `fair` wants them, and then stops them: their runtimes at that
/// moment, and their accounts.
fn compete(workers: &[(u32, Option<u64>)], fair: impl Fn(&[u64]) -> bool) -> (Vec<u64>, Vec<Account>) {
    let (stop, go) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let accounts = Arc::new(ParkMutex::new(alloc::vec![Account::default(); workers.len()]));
    let runtimes: Arc<Vec<AtomicU64>> = Arc::new(workers.iter().map(|_| AtomicU64::new(0)).collect());
    let threads: Vec<_> = workers
        .iter()
        .enumerate()
        .map(|(number, &(weight, change))| {
            let (stop, go) = (stop.clone(), go.clone());
            let (accounts, runtimes) = (accounts.clone(), runtimes.clone());
            let options = ThreadOptions { weight, cpus: 1, ..ThreadOptions::default() };
            caps::spawn(options, move || {
                if let Some(weight) = change {
                    caps::set_weight(weight).expect("a thread may set its own weight");
                }
                // It counts from the next time the thread is queued: sleep, then compete.
                caps::sleep(5_000_000).expect("within the quota");
                while !go.load(Ordering::Relaxed) {
                    caps::sleep(1_000_000).expect("within the quota");
                }
                let before = caps::account().expect("a thread can read its account");
                while !stop.load(Ordering::Relaxed) {
                    arch::spin(100_000);
                    let ran = caps::account().map_or(0, |now| now.runtime_ns - before.runtime_ns);
                    runtimes[number].store(ran, Ordering::Relaxed);
                }
                let after = caps::account().expect("a thread can read its account");
                accounts.lock()[number] = Account {
                    weight: after.weight,
                    runtime_ns: after.runtime_ns - before.runtime_ns,
                    virtual_runtime_ns: after.virtual_runtime_ns - before.virtual_runtime_ns,
                    voluntary_blocks: after.voluntary_blocks - before.voluntary_blocks,
                    preemptions: after.preemptions - before.preemptions,
                    runnable_ns: after.runnable_ns - before.runnable_ns,
                    last_started_ns: after.last_started_ns,
                };
                0
            })
            .expect("within the quota")
        })
        .collect();
    caps::sleep(20_000_000).expect("within the quota");
    go.store(true, Ordering::Relaxed);
    caps::sleep(RUN_NS).expect("within the quota");
    // A virtual CPU that stands still makes its thread overrun; the longer the run, the less that matters.
    let read = || -> Vec<u64> { runtimes.iter().map(|ran| ran.load(Ordering::Relaxed)).collect() };
    let mut shares = read();
    let came_true = caps::comes_true(200 * MS, || {
        shares = read();
        fair(&shares)
    });
    stop.store(true, Ordering::Relaxed);
    for thread in &threads {
        assert_eq!(thread.join(), Ok(0));
    }
    let accounts = accounts.lock().clone();
    assert!(came_true, "the shares never came to their weights: {shares:?}");
    (shares, accounts)
}

fn show(name: &str, account: &Account) {
    say!(
        "fairness: {name} weight={} runtime_ns={} virtual_ns={} blocks={} preemptions={} runnable_ns={}",
        account.weight,
        account.runtime_ns,
        account.virtual_runtime_ns,
        account.voluntary_blocks,
        account.preemptions,
        account.runnable_ns
    );
}

/// Whether `a / b` is `wanted_percent` within a tenth.
fn is_ratio(a: u64, b: u64, wanted_percent: u64) -> bool {
    let percent = a * 100 / b.max(1);
    percent.abs_diff(wanted_percent) * 10 <= wanted_percent
}

//= ARCH:proof.fairness EVO:S3.weights ARCH:policycap.snapshot
fn weights() {
    let fair = |ran: &[u64]| is_ratio(ran[1], ran[0], 200) && is_ratio(ran[2], ran[0], 400);
    let (shares, accounts) = compete(&[(64, None), (128, None), (256, None)], fair);
    for (name, account) in ["light", "middle", "heavy"].iter().zip(&accounts) {
        show(name, account);
    }
    say!("fairness: runtimes_ns={shares:?}");
    let [light, _, heavy] = accounts[..] else { return };
    assert!(heavy.voluntary_blocks <= 1, "a hog does not block");
    assert!(light.preemptions > 0 && light.runnable_ns > 0, "who waits is seen to wait");
    say!("fairness: shares=ok");
}

//= ARCH:proof.weight-change ARCH:acct.core-fields ARCH:weight.enqueued
fn weight_change() {
    let fair = |ran: &[u64]| is_ratio(ran[0], ran[1], 200);
    let (shares, accounts) = compete(&[(64, Some(128)), (64, None)], fair);
    show("changed", &accounts[0]);
    show("default", &accounts[1]);
    say!("fairness: runtimes_ns={shares:?}");
    let (changed, default) = (accounts[0], accounts[1]);
    assert_eq!((changed.weight, default.weight), (128, 64));
    assert!(is_ratio(changed.virtual_runtime_ns, changed.runtime_ns, 50), "virtual time at half speed");
    assert!(is_ratio(default.virtual_runtime_ns, default.runtime_ns, 100), "virtual time at full speed");
    say!("fairness: weight_change=ok");
}
