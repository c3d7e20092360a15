//! Whom a lease keeps away from its CPU, and who may stay.

use crate::{Busy, MS, info, tickless};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};
use mainspring_user::caps::{self, LeaseGrant, ThreadOptions};
use mainspring_user::schema::{NohzExit, Obligation, ThreadState};
use mainspring_user::{CapError, arch, say};

/// Threads that compute, wake each other and start threads crowd all other CPUs, and none of them comes to the leased one.
//= TICK:L3.housekeeping
//= ARCH:nohz.single-runnable
pub fn others_stay_away(cpus: u32, cpu: u32) {
    // The crowd is there first, on every CPU.
    let crowd: Vec<_> = (0..3 * cpus).map(|_| Busy::start(0)).collect();
    assert!(crowd.iter().all(Busy::gets_on));
    let lessee = Busy::start(0);
    let lease = tickless(cpu, &lessee, LeaseGrant::default());
    assert_eq!(lessee.cpu(), cpu);
    let turn = Arc::new(AtomicU32::new(0));
    let wakers: Vec<_> = (0..4)
        .map(|number| {
            let turn = turn.clone();
            caps::spawn(ThreadOptions::default(), move || wake_in_turns(&turn, number))
                .expect("within the quota")
        })
        .collect();
    let before = info(lease);
    for _ in 0..50 {
        caps::sleep(2 * MS).expect("within the quota");
        assert!(crowd.iter().all(|one| one.cpu() != cpu), "one of the crowd is on the leased CPU");
        let where_is = |slot| caps::thread_info(slot, |info| info.get_cpu());
        assert!(wakers.iter().all(|one| where_is(one.slot()) != Ok(cpu)), "one woke on the leased CPU");
        // One that starts.
        Busy::start(0).end();
    }
    let after = info(lease);
    for why in [NohzExit::Dispatch, NohzExit::SecondRunnable, NohzExit::DirectTarget, NohzExit::Reschedule] {
        let (before, after) = (before.exits[why as usize], after.exits[why as usize]);
        assert_eq!(after, before, "another thread has come, or was announced");
    }
    turn.store(u32::MAX, Ordering::Release);
    let _ = caps::unpark(turn.as_ptr() as u64, 8);
    for waker in wakers {
        assert_eq!(waker.join(), Ok(0));
        waker.detach().expect("a handle can be dropped");
    }
    lease.release().expect("it is this process's");
    lessee.end();
    let comes_back = || crowd.iter().any(|one| one.cpu() == cpu);
    assert!(caps::comes_true(5 * MS, comes_back), "the CPU is free again, and nobody comes");
    crowd.into_iter().for_each(Busy::end);
    say!("cpu-isolation-lease: others_stay_away=ok");
}

fn wake_in_turns(turn: &AtomicU32, number: u32) -> i64 {
    let at = turn.as_ptr() as u64;
    loop {
        let now = turn.load(Ordering::Acquire);
        if now == u32::MAX {
            return 0;
        }
        if now % 4 == number {
            let _ = turn.compare_exchange(now, now + 1, Ordering::AcqRel, Ordering::Relaxed);
            let _ = caps::unpark(at, 8);
        } else {
            let _ = caps::park(at, now, 0);
        }
    }
}

/// Threads that sleep on a CPU leave it when it is leased, and sleep on: each wakes when it wanted to.
pub fn sleepers_leave(cpu: u32) {
    const SLEEPERS: usize = 24;
    let woken = Arc::new(AtomicU32::new(0));
    let deadline = caps::now() + 600 * MS;
    let sleepers: Vec<_> = (0..SLEEPERS)
        .map(|_| {
            let woken = woken.clone();
            // On this CPU or its neighbour.
            let options = ThreadOptions { cpus: 3 << (cpu - 1), ..ThreadOptions::default() };
            let sleeper = caps::spawn(options, move || {
                caps::sleep_until(deadline).expect("within the quota");
                let late = caps::now() - deadline;
                woken.fetch_add(1, Ordering::Relaxed);
                i64::from(late > u64::from(u32::MAX))
            });
            sleeper.expect("within the quota")
        })
        .collect();
    let look = |slot| {
        caps::thread_info(slot, |info| (info.get_cpu(), info.get_state().ok()))
            .expect("it sleeps or is about to")
    };
    let asleep = || sleepers.iter().all(|one| look(one.slot()).1 == Some(ThreadState::Asleep));
    assert!(caps::comes_true(MS, asleep), "not all of them sleep");
    let here = sleepers.iter().filter(|one| look(one.slot()).0 == cpu).count();
    let lessee = Busy::start(0);
    let lease = tickless(cpu, &lessee, LeaseGrant::default());
    let gone = || sleepers.iter().all(|one| look(one.slot()).0 != cpu);
    if caps::now() < deadline - 100 * MS {
        assert!(caps::comes_true(MS, gone), "a sleeper is still on the leased CPU");
        assert!(caps::now() >= deadline || woken.load(Ordering::Relaxed) == 0, "one was woken by the move");
    }
    for sleeper in sleepers {
        assert_eq!(sleeper.join(), Ok(0));
        sleeper.detach().expect("a handle can be dropped");
    }
    assert!(caps::now() >= deadline, "they have slept");
    lease.release().expect("it is this process's");
    lessee.end();
    say!("cpu-isolation-lease: sleepers_leave=ok moved={here}");
}

/// A thread that may run nowhere else stays: the CPU ticks while both can run, and shares its time. None can be made while the
/// CPU is leased.
pub fn those_that_may_run_nowhere_else(cpu: u32) {
    let word = Arc::new(AtomicU32::new(0));
    let (theirs, counted) = (word.clone(), Arc::new(AtomicU32::new(0)));
    let counts = counted.clone();
    let options = ThreadOptions { cpus: 1 << cpu, ..ThreadOptions::default() };
    let bound = caps::spawn(options, move || {
        loop {
            match theirs.load(Ordering::Acquire) {
                0 => {
                    let _ = caps::park(theirs.as_ptr() as u64, 0, 0);
                }
                1 => {
                    arch::spin(1000);
                    counts.fetch_add(1, Ordering::Relaxed);
                }
                _ => return 0,
            }
        }
    });
    let bound = bound.expect("within the quota");
    let state = || caps::thread_info(bound.slot(), |info| info.get_state().ok()).expect("it lives");
    assert!(caps::comes_true(MS, || state() == Some(ThreadState::Asleep)));
    let lessee = Busy::start(0);
    let lease = tickless(cpu, &lessee, LeaseGrant::default());
    assert_eq!(caps::spawn(options, || 0).map(|_| ()), Err(CapError::Busy), "it would be in the way");
    let before = info(lease).exits[NohzExit::SecondRunnable as usize];
    let set = |value| {
        word.store(value, Ordering::Release);
        let _ = caps::unpark(word.as_ptr() as u64, 1);
    };
    set(1);
    assert!(caps::comes_true(MS, || counted.load(Ordering::Relaxed) > 0), "it never runs");
    let found = lease.preflight().expect("it is live");
    assert_eq!(found.label(Obligation::SoleRunnable), "second-runnable", "{found:?}");
    assert!(info(lease).tickless_since_ns == 0, "two can run, and the CPU has no tick");
    assert!(info(lease).exits[NohzExit::SecondRunnable as usize] > before, "{:?}", info(lease).exits);
    assert!(lessee.gets_on(), "it shares the CPU");
    set(0);
    assert!(caps::comes_true(MS, || info(lease).tickless_since_ns != 0), "it is alone again");
    set(2);
    assert_eq!(bound.join(), Ok(0));
    bound.detach().expect("a handle can be dropped");
    lease.release().expect("it is this process's");
    lessee.end();
    let again = caps::spawn(options, || 0).expect("the CPU is free");
    assert_eq!(again.join(), Ok(0));
    again.detach().expect("a handle can be dropped");
    say!("cpu-isolation-lease: bound_here=ok");
}
