//! The poller: start, service, sleep, wake, stop, and every way back.

mod rig;

use mainspring_abi::Nanos;
use mainspring_abi::ring::{CapError, NEED_WAKEUP, RingAbi, word};
use mainspring_ring::sync::Ordering;
use mainspring_ring::{
    AccountingTarget, CapEnter, Charge, Geometry, Idle, Passes, Polled, PollerState, Region, RingMode,
    RingScope, SQES_PER_PASS, SqLease, SqOwner, SqRefusal, SqpollGrant, StartFinish, StartRequest,
    StopFinish, StopReason, StopRequest, TrySleep, Wake, Wakeup,
};
use rig::{Rig, echo};

const GRANT: SqpollGrant =
    SqpollGrant { accounting: AccountingTarget::SchedulingContext(7), spin: Nanos::from_micros(10) };

fn requested(rig: &mut Rig) -> SqLease {
    let (sq, _, sqpoll) = rig.endpoint.parts();
    let lease = sq.acquire(SqOwner::Syscall).expect("free");
    assert_eq!(sqpoll.request_start(sq, &lease, GRANT), StartRequest::Requested);
    lease
}

fn polled(rig: &mut Rig) -> SqLease {
    let caller = requested(rig);
    let (sq, _, sqpoll) = rig.endpoint.parts();
    sq.release(caller).expect("live");
    match sqpoll.finish_start(sq) {
        StartFinish::Running(lease) => lease,
        other => panic!("{other:?}"),
    }
}

fn states(rig: &Rig) -> (RingMode, PollerState) {
    (rig.endpoint.sqpoll().mode(), rig.endpoint.sqpoll().poller())
}

fn fall_asleep(rig: &mut Rig, lease: &SqLease) {
    let (sq, cq, sqpoll) = rig.endpoint.parts();
    assert_eq!(sqpoll.found_nothing(Nanos::ZERO), Idle::Spin { until: GRANT.spin });
    assert_eq!(sqpoll.found_nothing(GRANT.spin), Idle::SleepNow);
    assert!(matches!(sqpoll.try_sleep(sq, lease, cq), TrySleep::Asleep(_)));
}

fn need_wakeup(rig: &Rig) -> bool {
    rig.region.word(word::FLAGS).load(Ordering::Relaxed) & NEED_WAKEUP != 0
}

//= TICK:L2.modes ARCH:sqpoll.start ARCH:sqpoll.cycle
#[test]
fn a_poller_goes_through_its_states_in_order() {
    let mut rig = Rig::new(4, 4);
    assert_eq!(states(&rig), (RingMode::Syscall, PollerState::Disabled));
    let caller = requested(&mut rig);
    assert_eq!(states(&rig), (RingMode::SqpollStarting, PollerState::Starting));
    let (sq, _, sqpoll) = rig.endpoint.parts();
    assert_eq!(sqpoll.finish_start(sq), StartFinish::OwnerNotGone(SqRefusal::Busy), "the owner still owns");
    sq.release(caller).expect("live");
    assert_eq!(sq.acquire(SqOwner::Timer).err(), Some(SqRefusal::Busy), "and nobody slips in between");
    let StartFinish::Running(lease) = sqpoll.finish_start(sq) else { panic!("the owner is gone") };
    assert_eq!(states(&rig), (RingMode::Sqpoll, PollerState::Running));
    let (sq, cq, sqpoll) = rig.endpoint.parts();
    assert!(matches!(sqpoll.try_sleep(sq, &lease, cq), TrySleep::Refused(PollerState::Running)));
    assert_eq!(sqpoll.found_nothing(Nanos::ZERO), Idle::Spin { until: GRANT.spin });
    assert_eq!(states(&rig), (RingMode::Sqpoll, PollerState::IdleSpinning));
    let (sq, cq, sqpoll) = rig.endpoint.parts();
    assert_eq!(sqpoll.found_nothing(GRANT.spin), Idle::SleepNow);
    assert!(matches!(sqpoll.try_sleep(sq, &lease, cq), TrySleep::Asleep(_)));
    assert_eq!(states(&rig), (RingMode::Sqpoll, PollerState::Sleeping));
    assert!(need_wakeup(&rig));
    let (sq, _, sqpoll) = rig.endpoint.parts();
    assert_eq!(sqpoll.wake(sq), Wake::Running);
    assert_eq!(sqpoll.wake(sq), Wake::WasAwake);
    assert_eq!(states(&rig), (RingMode::Sqpoll, PollerState::Running));
    assert!(!need_wakeup(&rig));
    let (sq, _, sqpoll) = rig.endpoint.parts();
    assert_eq!(sqpoll.request_stop(sq, StopReason::CapReleased), StopRequest::Stopped);
    assert_eq!(states(&rig), (RingMode::SqpollStopping, PollerState::Stopping));
    let (sq, _, sqpoll) = rig.endpoint.parts();
    assert_eq!(sqpoll.wake(sq), Wake::Refused(PollerState::Stopping));
    assert_eq!(sqpoll.finish_stop(sq), StopFinish::Syscall);
    assert_eq!(states(&rig), (RingMode::Syscall, PollerState::Disabled));
    assert_eq!(rig.endpoint.sqpoll().counters().sleeps, 1);
}

//= TICK:L2.ownership TICK:nongoal.second-consumer
#[test]
fn while_it_polls_nobody_else_takes_the_queue() {
    let mut rig = Rig::new(4, 4);
    let lease = polled(&mut rig);
    rig.submit(&[1]);
    for owner in [SqOwner::Syscall, SqOwner::Timer, SqOwner::Sqpoll] {
        assert_eq!(rig.endpoint.sq().acquire(owner).err(), Some(SqRefusal::Busy));
    }
    assert_eq!(rig.endpoint.timer_service(1, &mut echo), Err(CapError::Busy), "the timer fails closed");
    assert_eq!(rig.endpoint.sq().head(), 0);
    let mut passes = Passes::default();
    let pass = passes.begin();
    assert_eq!(rig.endpoint.poll(pass, &lease, SQES_PER_PASS, &mut echo), Polled::Served { requests: 1 });
    assert_eq!(rig.reap_all(), [1]);
}

//= ARCH:sqpoll.batch
#[test]
fn two_requests_a_pass_and_one_turn_a_pass() {
    let mut rig = Rig::new(8, 8);
    let lease = polled(&mut rig);
    rig.submit(&[1, 2, 3, 4, 5]);
    let mut passes = Passes::default();
    let pass = passes.begin();
    assert_eq!(rig.endpoint.poll(pass, &lease, SQES_PER_PASS, &mut echo), Polled::Served { requests: 2 });
    assert_eq!(rig.endpoint.poll(pass, &lease, SQES_PER_PASS, &mut echo), Polled::NotSelected);
    let pass = passes.begin();
    assert_eq!(rig.endpoint.poll(pass, &lease, SQES_PER_PASS, &mut echo), Polled::Served { requests: 2 });
    let pass = passes.begin();
    assert_eq!(rig.endpoint.poll(pass, &lease, SQES_PER_PASS, &mut echo), Polled::Served { requests: 1 });
    let pass = passes.begin();
    assert_eq!(rig.endpoint.poll(pass, &lease, SQES_PER_PASS, &mut echo), Polled::Idle);
    assert_eq!(rig.reap_all(), [1, 2, 3, 4, 5]);
}

//= ARCH:sqpoll.capenter-wake TICK:L2.ownership
#[test]
fn entering_a_polled_ring_runs_one_batch_on_the_pollers_lease() {
    let mut rig = Rig::new(8, 8);
    let lease = polled(&mut rig);
    fall_asleep(&mut rig, &lease);
    rig.submit(&[1, 2, 3]);
    assert_eq!(rig.endpoint.cap_enter(2, &mut echo), CapEnter::Available { completions: 2 });
    assert_eq!(states(&rig), (RingMode::Sqpoll, PollerState::Running), "and wakes the poller");
    assert_eq!(rig.endpoint.sq().head(), 2, "one batch, not a drain");
    assert!(rig.endpoint.sq().holds(&lease), "the lease stays the poller's");
    assert_eq!(rig.endpoint.cap_enter(4, &mut echo), CapEnter::Block { completions: 3 });
}

//= ARCH:sqpoll.capenter-wake
#[test]
fn entering_while_the_poller_serves_is_busy_unless_enough_is_there() {
    let mut rig = Rig::new(8, 8);
    let lease = polled(&mut rig);
    rig.submit(&[1, 2, 3]);
    let mut passes = Passes::default();
    let _ = rig.endpoint.poll(passes.begin(), &lease, 1, &mut echo);
    // The poller is in the middle of a service on another CPU: forgotten, so that it never ends here.
    std::mem::forget(rig.endpoint.sq().begin(&lease, 2).expect("live"));
    assert_eq!(rig.endpoint.cap_enter(1, &mut echo), CapEnter::Available { completions: 1 });
    assert_eq!(rig.endpoint.cap_enter(2, &mut echo), CapEnter::Refused(CapError::Busy));
    assert_eq!(rig.endpoint.sq().head(), 1, "it consumed nothing");
}

//= TICK:L2.wake-producer ARCH:sqpoll.cycle
#[test]
fn a_producer_wakes_a_sleeping_poller_and_no_other() {
    let mut rig = Rig::new(4, 4);
    let lease = polled(&mut rig);
    let push = |rig: &mut Rig, id| {
        assert_eq!(
            rig.submitter.push(&mainspring_abi::ring::CapSqeV2::nop(id)),
            mainspring_ring::Push::Queued
        );
        rig.submitter.publish()
    };
    assert_eq!(push(&mut rig, 1), Wakeup::NotNeeded);
    let mut passes = Passes::default();
    assert_eq!(rig.endpoint.poll(passes.begin(), &lease, 2, &mut echo), Polled::Served { requests: 1 });
    fall_asleep(&mut rig, &lease);
    assert_eq!(rig.endpoint.poll(passes.begin(), &lease, 2, &mut echo), Polled::NotSelected, "it sleeps");
    assert_eq!(push(&mut rig, 2), Wakeup::Needed);
    let (sq, _, sqpoll) = rig.endpoint.parts();
    assert_eq!(sqpoll.wake(sq), Wake::Running);
    assert_eq!(rig.endpoint.poll(passes.begin(), &lease, 2, &mut echo), Polled::Served { requests: 1 });
    assert_eq!(push(&mut rig, 3), Wakeup::NotNeeded);
}

//= TICK:L2.wake-protocol
#[test]
fn what_comes_before_the_last_look_keeps_it_awake() {
    let mut rig = Rig::new(4, 4);
    let lease = polled(&mut rig);
    rig.submit(&[1]);
    let (sq, cq, sqpoll) = rig.endpoint.parts();
    let _ = sqpoll.found_nothing(Nanos::ZERO);
    assert_eq!(sqpoll.try_sleep(sq, &lease, cq), TrySleep::Running);
    assert!(!need_wakeup(&rig), "the announcement is withdrawn");
    assert_eq!(states(&rig), (RingMode::Sqpoll, PollerState::Running));
}

//= ARCH:sqpoll.start
#[test]
fn a_start_that_fails_leaves_the_ring_as_it_was() {
    let mut rig = Rig::new(4, 4);
    let caller = requested(&mut rig);
    let (sq, _, sqpoll) = rig.endpoint.parts();
    assert!(sqpoll.fail_start(sq));
    assert!(!sqpoll.fail_start(sq), "once");
    sq.release(caller).expect("live");
    rig.submit(&[1]);
    assert_eq!(states(&rig), (RingMode::Syscall, PollerState::Disabled));
    assert_eq!(rig.endpoint.cap_enter(1, &mut echo), CapEnter::Available { completions: 1 });

    let caller = requested(&mut rig);
    let (sq, _, sqpoll) = rig.endpoint.parts();
    assert_eq!(sqpoll.request_stop(sq, StopReason::LeaseRevoked), StopRequest::RolledBack);
    sq.release(caller).expect("live");
    assert_eq!(states(&rig), (RingMode::Syscall, PollerState::Disabled));
}

//= ARCH:sqpoll.start ARCH:sqpoll.stop-accepted
#[test]
fn every_reason_to_stop_returns_the_ring_to_its_thread() {
    for reason in [StopReason::LeaseRevoked, StopReason::CapReleased, StopReason::Teardown] {
        let mut rig = Rig::new(4, 4);
        let lease = polled(&mut rig);
        fall_asleep(&mut rig, &lease);
        rig.submit(&[1]);
        let (sq, _, sqpoll) = rig.endpoint.parts();
        assert_eq!(sqpoll.request_stop(sq, reason), StopRequest::Stopped);
        assert_eq!(sqpoll.finish_stop(sq), StopFinish::Syscall);
        assert_eq!(sqpoll.last_stop(), Some(reason));
        assert!(!need_wakeup(&rig), "no producer is asked to wake a poller that is gone");
        let mut passes = Passes::default();
        assert_eq!(rig.endpoint.poll(passes.begin(), &lease, 2, &mut echo), Polled::NotSelected);
        assert_eq!(rig.endpoint.sq().begin(&lease, 2).err(), Some(SqRefusal::Stale));
        assert_eq!(rig.endpoint.cap_enter(1, &mut echo), CapEnter::Available { completions: 1 });
    }
}

//= ARCH:sqpoll.stop-accepted
#[test]
fn a_stop_during_service_waits_for_the_service() {
    let mut rig = Rig::new(4, 4);
    let lease = polled(&mut rig);
    rig.submit(&[1, 2]);
    let (sq, cq, sqpoll) = rig.endpoint.parts();
    let mut service = sq.begin(&lease, 2).expect("live");
    let mainspring_ring::Next::Accepted(request, place) = service.next(cq) else { panic!("pending") };
    assert_eq!(sqpoll.request_stop(sq, StopReason::Teardown), StopRequest::AfterService);
    assert_eq!(sqpoll.finish_stop(sq), StopFinish::StillServing);
    echo(request, place, cq);
    drop(service);
    assert_eq!(sqpoll.finish_stop(sq), StopFinish::Syscall);
    assert_eq!(rig.endpoint.cap_enter(2, &mut echo), CapEnter::Available { completions: 2 });
    assert_eq!(rig.reap_all(), [1, 2], "neither lost nor replayed");
}

#[test]
fn only_the_live_syscall_owner_can_ask_for_a_poller() {
    let mut rig = Rig::new(4, 4);
    let (sq, _, sqpoll) = rig.endpoint.parts();
    let timer = sq.acquire(SqOwner::Timer).expect("free");
    assert_eq!(sqpoll.request_start(sq, &timer, GRANT), StartRequest::NotOwner(SqRefusal::Busy));
    sq.release(timer).expect("live");
    let stale = sq.acquire(SqOwner::Syscall).expect("free");
    let _ = sq.revoke();
    assert_eq!(sqpoll.request_start(sq, &stale, GRANT), StartRequest::NotOwner(SqRefusal::Stale));
    assert_eq!(states(&rig), (RingMode::Syscall, PollerState::Disabled));
}

#[test]
fn the_pollers_time_is_charged_to_whom_the_grant_says() {
    let mut rig = Rig::new(4, 4);
    let _lease = polled(&mut rig);
    let (_, _, sqpoll) = rig.endpoint.parts();
    let charge = sqpoll.charge(Nanos::new(100), Nanos::new(350));
    assert_eq!(charge, Charge { target: GRANT.accounting, elapsed: Nanos::new(250) });
    let _ = sqpoll.charge(Nanos::new(400), Nanos::new(450));
    assert_eq!(sqpoll.counters().busy_ns, 300);
}

//= TICK:nongoal.process-ring ARCH:ring.per-thread
#[test]
fn a_ring_that_a_process_shares_is_never_polled() {
    let geometry = Geometry::new(RingAbi::V2, 4, 4).expect("powers of two");
    let mut rig = Rig::scoped(geometry, RingScope::Process);
    rig.submit(&[1, 2]);
    let (sq, _, sqpoll) = rig.endpoint.parts();
    let lease = sq.acquire(SqOwner::Syscall).expect("free");
    assert_eq!(sqpoll.request_start(sq, &lease, GRANT), StartRequest::SharedRing);
    sq.release(lease).expect("live");
    assert!(
        matches!(sqpoll.finish_start(sq), StartFinish::Refused(RingMode::Syscall)),
        "nothing was started"
    );
    assert_eq!(states(&rig), (RingMode::Syscall, PollerState::Disabled));
    assert!(matches!(rig.endpoint.cap_enter(2, &mut echo), CapEnter::Available { completions: 2 }));
}
