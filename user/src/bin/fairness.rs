//! Shares by weight. `weights`: three hogs of different weight. `change`: one sets its own weight and sleeps before it
//! competes with another of the default weight.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use mainspring_user::caps::{self, Account, ThreadOptions};
use mainspring_user::sync::ParkMutex;
use mainspring_user::{arch, say};

mainspring_user::program!(main);

const RUN_NS: u64 = 1_200_000_000;

fn main() -> i64 {
    match caps::arguments() {
        "change" => weight_change(),
        _ => weights(),
    }
    0
}

fn compete(workers: &[(u32, Option<u64>)]) -> Vec<Account> {
    let (stop, go) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let accounts = Arc::new(ParkMutex::new(alloc::vec![Account::default(); workers.len()]));
    let threads: Vec<_> = workers
        .iter()
        .enumerate()
        .map(|(number, &(weight, change))| {
            let (stop, go, accounts) = (stop.clone(), go.clone(), accounts.clone());
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
                    arch::spin(2000);
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
    stop.store(true, Ordering::Relaxed);
    for thread in &threads {
        assert_eq!(thread.join(), Ok(0));
    }
    accounts.lock().clone()
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

//= ARCH:proof.fairness EVO:S3.weights EVO:gate.fairness ARCH:policycap.snapshot ARCH:inv.accounting
fn weights() {
    let accounts = compete(&[(64, None), (128, None), (256, None)]);
    for (name, account) in ["light", "middle", "heavy"].iter().zip(&accounts) {
        show(name, account);
    }
    let [light, middle, heavy] = accounts[..] else { return };
    assert!(is_ratio(middle.runtime_ns, light.runtime_ns, 200), "middle over light");
    assert!(is_ratio(heavy.runtime_ns, light.runtime_ns, 400), "heavy over light");
    assert!(heavy.voluntary_blocks <= 1, "a hog does not block");
    assert!(light.preemptions > 0 && light.runnable_ns > 0, "who waits is seen to wait");
    say!("fairness: shares=ok");
}

//= ARCH:proof.weight-change ARCH:acct.core-fields ARCH:weight.enqueued ARCH:policycap.methods
fn weight_change() {
    let accounts = compete(&[(64, Some(128)), (64, None)]);
    show("changed", &accounts[0]);
    show("default", &accounts[1]);
    let (changed, default) = (accounts[0], accounts[1]);
    assert_eq!((changed.weight, default.weight), (128, 64));
    assert!(is_ratio(changed.runtime_ns, default.runtime_ns, 200), "runtime follows weight");
    assert!(is_ratio(changed.virtual_runtime_ns, changed.runtime_ns, 50), "virtual time at half speed");
    assert!(is_ratio(default.virtual_runtime_ns, default.runtime_ns, 100), "virtual time at full speed");
    say!("fairness: weight_change=ok");
}
