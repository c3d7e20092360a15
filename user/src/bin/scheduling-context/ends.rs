//! What becomes of contexts when their threads and processes are killed while they wait for a refill, and of those that a process
//! made from another's.

use super::{MS, SMALL, context, ended, info, on_its_cpu};
use mainspring_user::caps::{self, Context, Grant, ThreadOptions};
use mainspring_user::{CapError, arch, say};

/// It is used up at once, and comes back after a minute.
const RARE: Grant = Grant { budget_ns: MS / 10, period_ns: 60_000 * MS, ..SMALL };
const GRANTS: &[&str] = &["console", "timer", "threads", "control", "park", "info"];

pub fn cases(first: Context) {
    killed_while_throttled(first);
    left_while_throttled(first);
    makers_end(first);
    long_decisions(first);
}

/// Uses `of` up, and waits for its refill from then on.
fn exhaust(of: Context) -> i64 {
    of.bind().expect("it is free");
    loop {
        arch::spin(1000);
    }
}

/// The child: a thread that waits for a refill.
pub fn wait_for_refill() -> i64 {
    let of = context("context:held");
    let thread = on_its_cpu(of, move || exhaust(of));
    let _ = thread.join();
    0
}

/// The child: leaves while another thread of it waits for a refill.
pub fn leave_others_throttled() -> i64 {
    let of = context("context:held");
    let _thread = on_its_cpu(of, move || exhaust(of));
    assert!(caps::comes_true(MS, || info(of).depletions > 0), "it is never used up");
    0
}

/// A thread that waits for a refill and is killed ends at once, not at its refill.
//= OWN:donation.exits
fn killed_while_throttled(from: Context) {
    for _ in 0..3 {
        let rare = from.create(RARE).expect("less than its creator has");
        let began = caps::now();
        let child =
            caps::start_with("scheduling-context", "wait-for-refill", GRANTS, &[("context:held", rare.0)]);
        let child = child.expect("the program is in the image");
        assert!(caps::comes_true(MS, || info(rare).depletions > 0), "it is never used up");
        child.kill().expect("a handle can kill");
        assert_eq!(child.wait(), Ok(-3000));
        child.detach().expect("a handle can be dropped");
        assert!(caps::now() < began + RARE.period_ns, "who was killed ended at its refill");
        assert!(!info(rare).bound, "its thread has ended");
        rare.revoke().expect("it is there");
    }
    say!("scheduling-context: killed_while_throttled=ok");
}

/// The same for the end of a process by itself.
fn left_while_throttled(from: Context) {
    let rare = from.create(RARE).expect("less than its creator has");
    let began = caps::now();
    let granted = [("context:held", rare.0)];
    let child = caps::start_with("scheduling-context", "leave-others-throttled", GRANTS, &granted);
    let child = child.expect("the program is in the image");
    assert_eq!(child.wait(), Ok(0));
    child.detach().expect("a handle can be dropped");
    assert!(caps::now() < began + RARE.period_ns, "a process ended at the refill of one of its threads");
    rare.revoke().expect("it is there");
    say!("scheduling-context: left_while_throttled=ok");
}

/// The child: makes as many contexts as it can from one that it was granted, and ends without having revoked any.
pub fn make_contexts() -> i64 {
    let of = context("context:held");
    let tiny = Grant { budget_ns: MS / 100, ..SMALL };
    let mut made = 0;
    while of.create(tiny).is_ok() {
        made += 1;
    }
    i64::from(made == 0)
}

/// What a process makes from another's context ends with the maker. The owner, whose ledger it was charged to, has its room back.
//= OWN:create.authority
fn makers_end(from: Context) {
    let made = from.create(SMALL).expect("less than its creator has");
    for _ in 0..3 {
        let child =
            caps::start_with("scheduling-context", "make-contexts", GRANTS, &[("context:held", made.0)]);
        let child = child.expect("the program is in the image");
        assert_eq!(child.wait(), Ok(0), "the child could make none");
        child.detach().expect("a handle can be dropped");
        let own = from.create(Grant { budget_ns: MS / 100, ..SMALL });
        own.expect("what the child made is gone with it").revoke().expect("it is there");
    }
    made.revoke().expect("it is there");
    say!("scheduling-context: makers_end=ok");
}

/// Grants that would be hard to decide about are refused: deadlines as short as budgets, and releases so often that they alone would
/// take the CPU.
//= ARCH:ctx.create-bind
fn long_decisions(from: Context) {
    let often = Grant { budget_ns: 1, period_ns: 20_000, ..SMALL };
    assert_eq!(from.create(often), Err(CapError::InvalidParameter), "releases that nobody pays for");
    // Its creator has a tenth of a CPU: half of its budget, but in less than half of the time, is more.
    let urgent = Grant { deadline_ns: 10 * SMALL.budget_ns - 1, ..SMALL };
    assert_eq!(from.create(urgent), Err(CapError::Denied), "more urgent than its creator");
    let one = from.create(Grant { deadline_ns: 10 * SMALL.budget_ns, ..SMALL }).expect("no more urgent");
    one.revoke().expect("it is there");
    let mut made = heapless::Vec::<Context, 8>::new();
    for number in 0..8 {
        let budget_ns = MS / 10 - number;
        let hard =
            Grant { budget_ns, period_ns: 9 * MS + 7 * number + 1, deadline_ns: 10 * budget_ns, ..SMALL };
        match from.create(hard) {
            Ok(one) => made.push(one).expect("there is room"),
            Err(CapError::RealtimeAdmissionDenied | CapError::QuotaExceeded) => {}
            Err(code) => panic!("{code}"),
        }
    }
    for one in made {
        one.revoke().expect("it is there");
    }
    let thread = caps::spawn(ThreadOptions::default(), || 0).expect("within the quota");
    assert_eq!(ended(thread), 0);
    say!("scheduling-context: hard_grants=ok");
}
