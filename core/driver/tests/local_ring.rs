//! A ring whose two sides are on one machine: no entry is lost or served twice, whichever of its threads serves.

use mainspring_abi::request::OrderPolicy;
use mainspring_abi::ring::{CapSqeV2, CompletionStatus, QosFlags};
use mainspring_abi::{Nanos, ThreadRef};
use mainspring_driver::local_ring::{LocalRing, Posted, Reaped, Server, Service};
use mainspring_driver::sqpoll::PollerStep;
use mainspring_ring::{AccountingTarget, HeapRegion, RingMode, SqpollGrant, StopReason, Wakeup};
use proptest::prelude::*;
use std::sync::Arc;

type Ring = LocalRing<Arc<HeapRegion>>;

const COST: Nanos = Nanos::new(100);

fn ring(entries: u32, order: OrderPolicy) -> Ring {
    LocalRing::new(entries, order, |geometry| Arc::new(HeapRegion::new(geometry)))
}

fn polled(entries: u32, order: OrderPolicy) -> Ring {
    let mut ring = ring(entries, order);
    ring.set_poller(ThreadRef::new(1, 0));
    assert!(start(&mut ring));
    ring
}

fn start(ring: &mut Ring) -> bool {
    ring.start_polling(SqpollGrant { accounting: AccountingTarget::SchedulerLedger, spin: Nanos::ZERO })
}

/// Serves all that the server has accepted, in order.
fn serve(ring: &mut Ring, server: Server, now: Nanos) -> Vec<Posted> {
    let mut posted = Vec::new();
    loop {
        match ring.begin(server, now) {
            Service::Begun => posted.extend(ring.finish(server, now, COST)),
            Service::Refused(refused) => posted.push(refused),
            Service::Nothing => return posted,
        }
    }
}

/// An entry with this deadline, which may change places with its neighbours.
fn movable(number: u64, deadline_ns: u64, late: QosFlags) -> CapSqeV2 {
    let order = QosFlags::DEADLINE_ORDERED.with(QosFlags::REORDERABLE);
    CapSqeV2 { deadline_ns, qos_flags: order.with(late).bits(), ..CapSqeV2::nop(number) }
}

#[test]
fn a_poller_serves_by_deadline_within_its_window_and_an_owner_as_submitted() {
    let deadlines = [90, 70, 80, 10];
    let entry = |number: u64| movable(number, deadlines[number as usize], QosFlags::ALLOW_LATE);
    let window = OrderPolicy::ByDeadline { window: 3 };
    for (order, expected) in [(window, [1, 2, 0, 3]), (OrderPolicy::Submission, [0, 1, 2, 3])] {
        let mut ring = polled(8, order);
        assert_eq!(ring.write(4, entry), 4);
        let _wakeup = ring.publish();
        let mut served = Vec::new();
        while matches!(ring.poll(COST).next, PollerStep::Serve { .. }) {
            served.extend(serve(&mut ring, Server::Poller, COST).iter().map(|posted| posted.entry));
        }
        assert_eq!(served, expected);
        assert_eq!(ring.charged(), Nanos::new(4 * COST.get()), "the poller pays for what it serves");
    }
    let mut ring = ring(8, window);
    assert_eq!((ring.write(4, entry), ring.take_own()), (4, 4));
    let served = serve(&mut ring, Server::Owner, Nanos::ZERO);
    assert_eq!(served.iter().map(|posted| posted.entry).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(ring.charged(), Nanos::ZERO);
}

#[test]
fn an_entry_that_is_late_is_dropped_or_served_as_it_asks() {
    let mut ring = ring(4, OrderPolicy::Submission);
    let late = [QosFlags::DROP_IF_LATE, QosFlags::ALLOW_LATE];
    assert_eq!(ring.write(2, |number| movable(number, 5, late[number as usize])), 2);
    assert_eq!(ring.take_own(), 2);
    let served = serve(&mut ring, Server::Owner, Nanos::new(6));
    let statuses: Vec<_> = served.iter().map(|posted| posted.status).collect();
    assert_eq!(statuses, [Some(CompletionStatus::NotStartedLate), Some(CompletionStatus::CompletedLate)]);
    let stats = ring.stats();
    assert_eq!((stats.submitted, stats.completed, stats.dropped, stats.late), (2, 2, 1, 1));
    assert_eq!(stats.busy_ns, COST.get(), "what is dropped takes no time");
}

#[test]
fn a_poller_that_sleeps_is_woken_by_what_is_published() {
    let mut ring = polled(4, OrderPolicy::Submission);
    assert_eq!(ring.poll(Nanos::ZERO).next, PollerStep::Sleep, "it does not spin");
    assert_eq!(ring.write(1, CapSqeV2::nop), 1);
    assert_eq!(ring.publish(), Wakeup::Needed);
    assert_eq!(ring.wake_poller(), Some(ThreadRef::new(1, 0)));
    assert_eq!(ring.wake_poller(), None, "it is awake");
    assert_eq!((ring.stats().wakeups, ring.stats().sleeps), (1, 1));
}

#[test]
fn what_a_server_accepted_is_answered_when_the_ring_is_torn_down() {
    let mut ring = polled(4, OrderPolicy::Submission);
    assert_eq!(ring.write(3, CapSqeV2::nop), 3);
    let _wakeup = ring.publish();
    assert_eq!(ring.poll(Nanos::ZERO).next, PollerStep::Serve { requests: 2 });
    assert_eq!(ring.begin(Server::Poller, Nanos::ZERO), Service::Begun);
    assert!(ring.stop_polling(StopReason::Teardown));
    ring.tear_down();
    assert!(ring.is_closed() && ring.held_by(Server::Poller) == 0);
    assert_eq!(ring.unread(), 2, "both have an answer");
    assert_eq!(ring.finish(Server::Poller, Nanos::ZERO, COST), None, "and none has two");
    assert!(!start(&mut ring), "nobody polls it any more");
    let before = ring.stats();
    ring.open_again();
    assert_eq!((ring.check_conserved(), ring.unread(), ring.stats()), (Ok(()), 0, before));
}

/// What one of the ring's threads does.
#[derive(Clone, Copy, Debug)]
enum Action {
    Submit(u32),
    Reap(u32),
    TakeOwn,
    Begin(bool),
    Finish(bool),
    Start,
    Poll,
    Stop,
    PollerEnds,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        (1..5u32).prop_map(Action::Submit),
        (1..5u32).prop_map(Action::Reap),
        Just(Action::TakeOwn),
        any::<bool>().prop_map(Action::Begin),
        any::<bool>().prop_map(Action::Finish),
        Just(Action::Start),
        Just(Action::Poll),
        Just(Action::Stop),
        Just(Action::PollerEnds),
    ];
    prop::collection::vec(action, 1..200)
}

fn server(owner: bool) -> Server {
    if owner { Server::Owner } else { Server::Poller }
}

proptest! {
    #[test]
    fn an_entry_is_in_one_place_until_it_is_reaped(actions in actions(), window in 1..5usize) {
        let mut ring = ring(4, OrderPolicy::ByDeadline { window });
        ring.set_poller(ThreadRef::new(1, 0));
        let (mut reaped, mut serving, mut now) = (0, [false; 2], Nanos::ZERO);
        for action in actions {
            now += Nanos::new(1);
            match action {
                Action::Submit(entries) => {
                    ring.write(entries, |number| movable(number, 1000 - number % 7, QosFlags::DROP_IF_LATE));
                    if ring.publish() == Wakeup::Needed {
                        let _poller = ring.wake_poller();
                    }
                }
                Action::Reap(at_most) => {
                    let Reaped { count, twice, wakeup } = ring.reap(at_most);
                    prop_assert_eq!(twice, None);
                    reaped += u64::from(count);
                    if wakeup == Wakeup::Needed {
                        let _poller = ring.wake_poller();
                    }
                }
                Action::TakeOwn if ring.mode() == RingMode::Syscall => _ = ring.take_own(),
                Action::Begin(owner) if !serving[usize::from(owner)] => {
                    serving[usize::from(owner)] = ring.begin(server(owner), now) == Service::Begun;
                }
                Action::Finish(owner) => {
                    let posted = ring.finish(server(owner), now, Nanos::new(1));
                    prop_assert_eq!(posted.is_some(), std::mem::take(&mut serving[usize::from(owner)]));
                }
                Action::Start => _ = start(&mut ring),
                // It looks for more when it has served what it accepted.
                Action::Poll if ring.held_by(Server::Poller) == 0 => _ = ring.poll(now),
                Action::Stop => _ = ring.stop_polling(StopReason::CapReleased),
                Action::PollerEnds => {
                    ring.poller_ended();
                    serving[0] = false;
                    ring.stop_polling(StopReason::Teardown);
                }
                Action::TakeOwn | Action::Begin(_) | Action::Poll => {}
            }
            prop_assert_eq!(ring.check_conserved(), Ok(()));
        }
        // Its owner serves and reaps what is left.
        ring.poller_ended();
        ring.stop_polling(StopReason::Teardown);
        let _posted = ring.finish(Server::Owner, now, COST);
        loop {
            serve(&mut ring, Server::Owner, now);
            let count = ring.reap(u32::MAX).count;
            reaped += u64::from(count);
            if ring.take_own() == 0 && count == 0 {
                break;
            }
        }
        prop_assert_eq!((reaped, ring.queued()), (ring.stats().submitted, 0));
    }
}
