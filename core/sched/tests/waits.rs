//! Timed waits and timer interrupts.

mod rig;

use mainspring_abi::{LatencyClass, Nanos, Policy, ProcessId};
use mainspring_sched::{State, Stop, Timeout, WaitKind, WaitQuota, clamp_oneshot};
use rig::{Rig, ms, us};

//= TICK:L1.deadline-waiter ARCH:inv.capenter-wake ARCH:inv.park
#[test]
fn every_kind_of_wait_ends_at_its_deadline_or_by_a_wake_and_gives_its_permit_back() {
    for kind in WaitKind::ALL {
        for woken_early in [false, true] {
            let mut rig = Rig::new(Policy::Eevdf);
            let seat = rig.thread(64);
            rig.start();
            let permit = rig.quota.take(ProcessId::new(0)).expect("ample");
            let timeout = Timeout { deadline: ms(7), user_data: 41, permit };
            assert_eq!(rig.resched(Stop::Blocked(kind, Some(timeout))), None);
            assert_eq!(rig.cpu.state(seat), Ok(State::Asleep(kind)));
            assert_eq!(rig.cpu.next_deadline(), Some(ms(7)));
            rig.now = ms(6);
            assert_eq!(rig.cpu.expire(rig.now), None, "not before its time");
            let permit = if woken_early {
                rig.cpu.wake(rig.now, seat).expect("asleep").permit
            } else {
                rig.now = ms(7);
                let expired = rig.cpu.expire(rig.now).expect("due");
                assert_eq!((expired.thread, expired.kind, expired.deadline), (seat.thread(), kind, ms(7)));
                assert_eq!(expired.user_data, 41, "what came with the wait comes back");
                expired.woken.permit
            };
            rig.quota.give_back(permit.expect("a timed wait has a permit"));
            assert_eq!(rig.quota.pending(), 0);
            assert_eq!(rig.cpu.next_deadline(), None);
            assert_eq!(rig.cpu.expire(ms(100)), None, "it ends once");
            assert_eq!(rig.start(), Some(seat));
        }
    }
}

//= TICK:L1.deadline-waiter
#[test]
fn waits_end_in_the_order_of_their_deadlines() {
    let mut rig = Rig::new(Policy::Eevdf);
    let mut due = Vec::new();
    for n in [5u64, 1, 9, 3, 3, 7] {
        let seat = rig.thread(64);
        rig.start();
        rig.sleep(ms(n));
        due.push((ms(n), seat.thread().index()));
    }
    due.sort_unstable();
    assert_eq!(rig.cpu.next_deadline(), Some(ms(1)));
    let mut ended = Vec::new();
    while let Some(expired) = rig.cpu.expire(ms(10)) {
        ended.push((expired.deadline, expired.thread.index()));
    }
    assert_eq!(ended, due, "equal deadlines go to the lower thread");
}

//= ARCH:inv.sleep-bounded TICK:L1.waiter-bound
#[test]
fn a_thread_that_ends_gives_up_its_timed_wait() {
    let mut rig = Rig::new(Policy::Eevdf);
    rig.quota = WaitQuota::new(1, 1, 1);
    let seat = rig.thread(64);
    rig.start();
    rig.sleep(ms(5));
    assert!(rig.quota.take(ProcessId::new(0)).is_err(), "the only permit is out");
    let removed = rig.cpu.remove(rig.now, seat).expect("asleep");
    rig.quota.give_back(removed.permit.expect("it was waiting"));
    assert_eq!(rig.quota.pending(), 0);
    assert_eq!(rig.cpu.expire(ms(50)), None);
}

//= TICK:L1.contention
#[test]
fn a_request_ends_at_its_quantum_only_if_somebody_waits() {
    let mut rig = Rig::new(Policy::Eevdf);
    let a = rig.thread(64);
    rig.start();
    assert_eq!(rig.cpu.next_timer(), ms(10), "alone: the next tick, no slice end");
    rig.now = ms(7);
    let b = rig.thread(64);
    assert_eq!(rig.cpu.next_timer(), ms(9), "contended: the third quantum of the running thread ends");
    rig.now = ms(9);
    assert!(rig.cpu.timer(rig.now).reschedule);
    assert_eq!(rig.preempt(), Some(b));
    assert_eq!(rig.runtime(a), ms(9));
}

//= ARCH:wake.policy
#[test]
fn a_wake_preempts_only_if_it_is_due_sooner() {
    let mut rig = Rig::new(Policy::Eevdf);
    let editor = rig.admit(|spec| spec.class = LatencyClass::Interactive);
    let batch = rig.admit(|spec| spec.class = LatencyClass::Batch);
    rig.start();
    rig.block();
    rig.block();
    rig.now = ms(100);
    let hog = rig.thread(64);
    assert_eq!(rig.start(), Some(hog));
    rig.pass(us(100));
    assert!(!rig.cpu.wake(rig.now, batch).expect("asleep").reschedule, "batch work never preempts");
    assert!(rig.cpu.wake(rig.now, editor).expect("asleep").reschedule, "a quarter quantum is due sooner");
    assert_eq!(rig.preempt(), Some(editor));
}

//= TICK:L1.clockevent
#[test]
fn one_shots_are_clamped_to_what_the_timer_can_do() {
    assert_eq!(clamp_oneshot(Nanos::ZERO, us(1), ms(50)), us(1));
    assert_eq!(clamp_oneshot(ms(70), us(1), ms(50)), ms(50));
    assert_eq!(clamp_oneshot(ms(7), us(1), ms(50)), ms(7));
}
