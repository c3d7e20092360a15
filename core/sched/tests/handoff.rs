//! Direct handoff: a preference that bypasses no check.

mod rig;

use mainspring_abi::{Nanos, Policy};
use mainspring_sched::{Decision, Handoff, SeatError, State, Stop, WaitKind};
use rig::{Rig, ms, us};

/// A hog, a caller that runs, and a server that waits.
fn rig(policy: Policy) -> (Rig, mainspring_sched::Seat, mainspring_sched::Seat, mainspring_sched::Seat) {
    let mut rig = Rig::new(policy);
    let server = rig.thread(64);
    rig.start();
    rig.block();
    let caller = rig.thread(64);
    rig.start();
    let hog = rig.thread(64);
    (rig, hog, caller, server)
}

//= ARCH:direct-ipc
#[test]
fn the_target_runs_before_queued_work_when_the_caller_blocks() {
    for policy in [Policy::Eevdf, Policy::Wfq] {
        let (mut rig, hog, caller, server) = rig(policy);
        rig.pass(us(10));
        assert_eq!(rig.cpu.hand_off(rig.now, server), Ok(Handoff::Direct(None)));
        assert_eq!(rig.cpu.state(server), Ok(State::Direct));
        assert_eq!(rig.resched(Stop::Blocked(WaitKind::Call, None)), Some(server));
        assert_eq!(rig.cpu.telemetry().handoffs, 1);
        assert_eq!(rig.cpu.state(hog), Ok(State::Queued));
        assert_eq!(rig.cpu.state(caller), Ok(State::Asleep(WaitKind::Call)));
    }
}

//= ARCH:direct-ipc
#[test]
fn the_target_gets_the_rest_of_the_callers_slice_and_no_more() {
    let (mut rig, _, _, server) = rig(Policy::Eevdf);
    rig.pass(ms(2));
    let _ = rig.cpu.hand_off(rig.now, server).expect("asleep");
    let Decision::Run(run) = rig.cpu.resched(rig.now, Stop::Blocked(WaitKind::Call, None)) else {
        panic!("the server is ready")
    };
    assert_eq!(
        (run.seat, run.slice_end),
        (server, ms(3)),
        "the caller's quantum began at 0 and ends at 3 ms"
    );
}

//= ARCH:direct-ipc ARCH:inv.direct-ipc
#[test]
fn a_second_target_is_queued() {
    let mut rig = Rig::new(Policy::Eevdf);
    let (first, second) = (rig.thread(64), rig.thread(64));
    rig.start();
    rig.block();
    assert_eq!(rig.block(), None, "both wait");
    rig.pass(ms(10));
    let caller = rig.thread(64);
    assert_eq!(rig.start(), Some(caller));
    assert_eq!(rig.cpu.hand_off(rig.now, first), Ok(Handoff::Direct(None)));
    assert_eq!(rig.cpu.hand_off(rig.now, first).err(), Some(SeatError::WrongState(State::Direct)));
    assert!(matches!(rig.cpu.hand_off(rig.now, second), Ok(Handoff::Queued(_))));
    assert_eq!((rig.cpu.state(first), rig.cpu.state(second)), (Ok(State::Direct), Ok(State::Queued)));
    rig.pass(us(10));
    assert_eq!(rig.resched(Stop::Blocked(WaitKind::Call, None)), Some(first), "the first goes first");
}

//= ARCH:inv.direct-ipc ARCH:direct-ipc
#[test]
fn a_target_ahead_of_its_share_gets_what_is_left_of_its_own_request() {
    let mut rig = Rig::new(Policy::Eevdf);
    let server = rig.thread(8);
    assert_eq!(rig.start(), Some(server));
    let (hog, caller) = (rig.thread(64), rig.thread(64));
    rig.pass(ms(3)).block();
    assert_eq!(rig.cpu.current(), Some(hog));
    rig.pass(ms(3)).preempt();
    assert_eq!(rig.cpu.current(), Some(caller));
    let lag = rig.cpu.lag_now(rig.now, server).expect("live").magnitude();
    assert!(lag > ms(2), "the server owes nearly its whole request");
    let _ = rig.cpu.hand_off(rig.now, server).expect("asleep");
    let Decision::Run(run) = rig.cpu.resched(rig.now, Stop::Blocked(WaitKind::Call, None)) else {
        panic!("the server is ready")
    };
    assert_eq!((run.seat, run.slice_end), (server, rig.now + (ms(3) - lag)));
    assert_eq!(rig.cpu.state(hog), Ok(State::Queued));
}

//= ARCH:direct-ipc
#[test]
fn a_target_without_a_slice_to_run_on_is_queued() {
    let (mut rig, hog, caller, server) = rig(Policy::Eevdf);
    rig.pass(ms(3));
    let _ = rig.cpu.hand_off(rig.now, server).expect("asleep");
    let next = rig.resched(Stop::Blocked(WaitKind::Call, None));
    assert_ne!(next, Some(caller));
    assert_eq!(rig.cpu.telemetry().handoffs_queued, 1, "the caller's slice was over when it called");
    assert!([Some(hog), Some(server)].contains(&next), "the queue has decided");
}

//= ARCH:inv.direct-ipc ARCH:inv.exit-clean
#[test]
fn a_target_that_dies_leaves_no_stale_preference() {
    let (mut rig, hog, _, server) = rig(Policy::Eevdf);
    let _ = rig.cpu.hand_off(rig.now, server).expect("asleep");
    let _ = rig.cpu.remove(rig.now, server).expect("a direct target can be removed");
    assert_eq!(rig.block(), Some(hog));
    assert_eq!(rig.cpu.hand_off(rig.now, server).err(), Some(SeatError::Stale));
}

//= EVO:gate.fairness
#[test]
fn a_pair_that_hands_the_cpu_to_and_fro_starves_nobody() {
    for policy in [Policy::Eevdf, Policy::Wfq] {
        let (mut rig, hog, caller, server) = rig(policy);
        let (mut a, mut b) = (caller, server);
        while rig.now < Nanos::from_secs(1) {
            rig.pass(us(50));
            let _ = rig.cpu.timer(rig.now);
            if rig.cpu.reschedule_wanted() {
                rig.preempt();
            }
            while rig.cpu.current() == Some(hog) {
                rig.now = rig.cpu.next_timer();
                let _ = rig.cpu.timer(rig.now);
                if rig.cpu.reschedule_wanted() {
                    rig.preempt();
                }
            }
            if rig.cpu.current() == Some(a) {
                let _ = rig.cpu.hand_off(rig.now, b).expect("the partner waits");
                rig.resched(Stop::Blocked(WaitKind::Call, None));
                std::mem::swap(&mut a, &mut b);
            }
        }
        let share = rig.runtime(hog).get() as f64 / rig.now.get() as f64;
        assert!(share > 0.30, "{policy:?}: a third is the hog's due against two, it got {share:.3}");
    }
}
