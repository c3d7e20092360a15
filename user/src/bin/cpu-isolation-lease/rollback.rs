//! What brings the tick back, and asking for a CPU from another one.

use crate::{Busy, MS, info, mask, tickless};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};
use mainspring_user::caps::{self, Lease, LeaseGrant, ThreadOptions};
use mainspring_user::schema::{Access, LeaseEnd, NohzExit, Obligation, ThreadState};
use mainspring_user::{CapError, arch, say};

/// How often a time is doubled that a busy host was too slow for.
const DOUBLED: u32 = 6;

fn exits(of: Lease, why: NohzExit) -> u32 {
    info(of).exits[why as usize]
}

/// Counters of `cpu`, read through a lease that asks for nothing else.
fn exits_of(cpu: u32, why: &[NohzExit]) -> u32 {
    let cpus = mask(cpu);
    let look = caps::lease(&LeaseGrant { cpus: &cpus, tickless: false, ..LeaseGrant::default() });
    let look = look.expect("the CPU is free");
    let sum = why.iter().map(|why| exits(look, *why)).sum();
    look.release().expect("it is this process's");
    sum
}

/// The tick is back before anything else runs, and the reason is counted: a lease that is taken back, one whose time is over,
/// another thread that can run, a thread that stops, a timer that is due, a page that is taken away.
//= ARCH:nohz.rollback
//= ARCH:nohz.recheck
//= TICK:L2.proof
//= TICK:L2.dynamic
//= ARCH:lease.revoke
//= ARCH:lease.lifetime
pub fn each_cause(cpu: u32) {
    let ended = [NohzExit::StaleLease, NohzExit::RecordCleared];
    let before = exits_of(cpu, &ended);
    let lessee = Busy::start(1 << cpu);
    let lease = tickless(cpu, &lessee, LeaseGrant::default());
    lease.revoke().expect("it is live");
    assert!(ticks_again(cpu), "its lease is gone, and it has no tick");
    lease.release().expect("it is this process's");
    lessee.end();
    assert!(exits_of(cpu, &ended) > before, "by the end of its lease");

    time_is_over(cpu);
    stops_by_itself(cpu);
    timer_is_due(cpu);
    page_is_taken_away(cpu);
    say!("cpu-isolation-lease: rollback=ok");
}

/// Whether `cpu` ticks, sooner or later. A thread computes there that cannot leave: a CPU that idles needs no tick.
fn ticks_again(cpu: u32) -> bool {
    let ticks = || caps::cpu_counters(cpu).expect("the CPU exists").ticks;
    let before = ticks();
    caps::comes_true(5 * MS, || ticks() > before + 1)
}

/// A lease whose time is over ends the window. On a busy host the time may be over before the window begins: then it takes longer
/// the next time.
fn time_is_over(cpu: u32) {
    let before = exits_of(cpu, &[NohzExit::LeaseExpired]);
    for doubled in 0..DOUBLED {
        let lessee = Busy::start(1 << cpu);
        let cpus = mask(cpu);
        let lifetime_ns = (300 * MS) << doubled;
        let asked =
            LeaseGrant { cpus: &cpus, thread: lessee.thread.cap(), lifetime_ns, ..LeaseGrant::default() };
        let lease = caps::lease(&asked).expect("the CPU is free");
        assert!(info(lease).expires_at_ns > 0);
        let (mut began, mut over) = (false, false);
        assert!(caps::comes_true(MS, || {
            let found = info(lease);
            began |= found.tickless_since_ns != 0;
            over = found.end == LeaseEnd::Expired;
            began || over
        }));
        if began {
            assert!(ticks_again(cpu), "its time is over, and it has no tick");
            assert_eq!(info(lease).end, LeaseEnd::Expired);
        }
        lease.release().expect("what has ended can be forgotten");
        lessee.end();
        // Another CPU may have noticed the end first, and cleared the record.
        if exits_of(cpu, &[NohzExit::LeaseExpired]) > before {
            return;
        }
    }
    panic!("no window ended by the end of its lease");
}

/// A lessee that waits leaves its window, and has it again when it runs.
fn stops_by_itself(cpu: u32) {
    let word = Arc::new(AtomicU32::new(0));
    let theirs = word.clone();
    let options = ThreadOptions { cpus: 1 << cpu, ..ThreadOptions::default() };
    let lessee = caps::spawn(options, move || {
        while theirs.load(Ordering::Acquire) == 0 {
            arch::spin(1000);
        }
        while theirs.load(Ordering::Acquire) == 1 {
            let _ = caps::park(theirs.as_ptr() as u64, 1, 0);
        }
        while theirs.load(Ordering::Acquire) == 2 {
            arch::spin(1000);
        }
        0
    });
    let lessee = lessee.expect("within the quota");
    let cpus = mask(cpu);
    let asked = LeaseGrant { cpus: &cpus, thread: lessee.cap(), ..LeaseGrant::default() };
    let lease = caps::lease(&asked).expect("the CPU is free");
    let is_tickless = || info(lease).tickless_since_ns != 0;
    assert!(caps::comes_true(MS, is_tickless), "{:?}", lease.preflight());
    let before = exits(lease, NohzExit::WentIdle);
    word.store(1, Ordering::Release);
    assert!(caps::comes_true(MS, || exits(lease, NohzExit::WentIdle) > before && !is_tickless()));
    let found = lease.preflight().expect("it is live");
    assert_eq!(found.label(Obligation::SoleRunnable), "nothing-runs");
    word.store(2, Ordering::Release);
    let _ = caps::unpark(word.as_ptr() as u64, 1);
    assert!(caps::comes_true(MS, is_tickless), "it runs alone again");
    word.store(3, Ordering::Release);
    assert_eq!(lessee.join(), Ok(0));
    lessee.detach().expect("a handle can be dropped");
    lease.release().expect("it is this process's");
}

/// A timed wait of a thread that may run nowhere else is in time. On a busy host it may be over before the window begins: then it
/// takes longer the next time.
fn timer_is_due(cpu: u32) {
    let ended = (0..DOUBLED).any(|doubled| timed_wait_ends_window(cpu, (300 * MS) << doubled));
    assert!(ended, "no window began before the timer was due");
}

/// Whether a window had begun when the timer was due.
fn timed_wait_ends_window(cpu: u32, after_ns: u64) -> bool {
    let options = ThreadOptions { cpus: 1 << cpu, ..ThreadOptions::default() };
    let due = caps::now() + after_ns;
    let sleeper =
        caps::spawn(options, move || i64::from(caps::sleep_until(due).is_err())).expect("within the quota");
    let lessee = Busy::start(0);
    let lease =
        tickless(cpu, &lessee, LeaseGrant { max_revocation_latency_ns: 1000 * MS, ..LeaseGrant::default() });
    let causes = [NohzExit::TimerDue, NohzExit::SecondRunnable];
    let count = || causes.iter().map(|why| exits(lease, *why)).sum::<u32>();
    let before = count();
    let in_time = caps::now() < due;
    assert_eq!(sleeper.join(), Ok(0));
    sleeper.detach().expect("a handle can be dropped");
    assert!(!in_time || count() > before, "it ran there, and the window did not end");
    assert!(caps::comes_true(MS, || info(lease).tickless_since_ns != 0), "it is alone again");
    lease.release().expect("it is this process's");
    lessee.end();
    in_time
}

/// A page of the lessee's process is taken away on another CPU: the leased one forgets it, and goes on without a tick.
fn page_is_taken_away(cpu: u32) {
    let lessee = Busy::start(0);
    let lease = tickless(cpu, &lessee, LeaseGrant::default());
    let before = caps::cpu_counters(cpu).expect("the CPU exists").shootdowns;
    for _ in 0..8 {
        let page = caps::map(1, Access::Write).expect("within the quota");
        caps::unmap(page, 1).expect("it is mapped");
    }
    let after = caps::cpu_counters(cpu).expect("the CPU exists").shootdowns;
    assert!(after > before, "it was not told");
    assert!(caps::comes_true(MS, || info(lease).tickless_since_ns != 0), "{:?}", lease.preflight());
    assert!(lessee.gets_on());
    lease.release().expect("it is this process's");
    lessee.end();
}

/// Another thread asks for the CPU: the request waits in the CPU's slot, which has one place, and the CPU decides.
//= ARCH:nohz.remote
//= ARCH:nohz.remote-slot
//= ARCH:nohz.remote-compute
pub fn from_another_cpu(cpu: u32) {
    let word = Arc::new(AtomicU32::new(0));
    let theirs = word.clone();
    let options = ThreadOptions { cpus: 1 << cpu, ..ThreadOptions::default() };
    let lessee = caps::spawn(options, move || {
        while theirs.load(Ordering::Acquire) == 0 {
            let _ = caps::park(theirs.as_ptr() as u64, 0, 0);
        }
        while theirs.load(Ordering::Acquire) == 1 {
            arch::spin(1000);
        }
        0
    });
    let lessee = lessee.expect("within the quota");
    let cpus = mask(cpu);
    let asked = LeaseGrant { cpus: &cpus, thread: lessee.cap(), tickless: false, ..LeaseGrant::default() };
    let lease = caps::lease(&asked).expect("the CPU is free");
    let state = || caps::thread_info(lessee.slot(), |info| info.get_state().ok());
    assert!(caps::comes_true(MS, || state() == Ok(Some(ThreadState::Asleep))), "it does not wait");
    // It sleeps, so the request stays where it is.
    lease.activate().expect("the slot is empty");
    assert_eq!(lease.activate(), Err(CapError::Busy), "the slot has a request already");
    assert_eq!(info(lease).tickless_since_ns, 0);
    word.store(1, Ordering::Release);
    let _ = caps::unpark(word.as_ptr() as u64, 1);
    assert!(caps::comes_true(MS, || info(lease).tickless_since_ns != 0), "{:?}", lease.preflight());
    lease.revoke().expect("it is live");
    assert!(ticks_again(cpu));
    lease.release().expect("it is this process's");
    word.store(2, Ordering::Release);
    assert_eq!(lessee.join(), Ok(0));
    lessee.detach().expect("a handle can be dropped");
    say!("cpu-isolation-lease: remote=ok");
}
