//! What a deadline does to a request, and what it cannot do.

use mainspring_abi::Nanos;
use mainspring_abi::ring::{CapError, CapSqeV2, CompletionStatus, QosFlags as Qos, SQE_AFTER_PREVIOUS};
use mainspring_ring::RingMode;
use mainspring_ring::deadline::{
    AtDispatch, Budget, MethodTraits, Previous, Propagated, Verdict, at_completion, at_dispatch, is_late,
    propagate, refused,
};
use mainspring_ring::order::{OrderPolicy, WINDOW_MAX, service_order};

const ANY: MethodTraits = MethodTraits { realtime_safe: true, reorder_safe: true };
const NOW: AtDispatch = AtDispatch {
    now: Nanos::new(1_000),
    method: ANY,
    budget: Budget::Available,
    previous: Previous::Completed,
};

fn request(deadline_ns: u64, qos: Qos) -> CapSqeV2 {
    CapSqeV2 { deadline_ns, qos_flags: qos.bits(), ..CapSqeV2::nop(1) }
}

//= TICK:L4.drop-if-late
#[test]
fn drop_if_late_does_not_run_what_is_late() {
    let late = request(999, Qos::DROP_IF_LATE);
    let verdict = at_dispatch(&late, 0, &NOW);
    assert_eq!(verdict, Verdict::Refuse(CompletionStatus::NotStartedLate, CapError::DeadlineExpired));
    let Verdict::Refuse(status, error) = verdict else { unreachable!() };
    let cqe = refused(&late, status, error);
    assert_eq!((cqe.status(), cqe.error()), (Ok(status), Ok(Some(error))));
    for in_time in [1_000, 1_001, 0] {
        assert_eq!(at_dispatch(&request(in_time, Qos::DROP_IF_LATE), 0, &NOW), Verdict::Run { late: false });
    }
}

//= TICK:L4.allow-late
#[test]
fn allow_late_runs_and_marks() {
    let late = request(999, Qos::ALLOW_LATE);
    assert_eq!(at_dispatch(&late, 0, &NOW), Verdict::Run { late: true });
    let cqe = at_completion(&late, NOW.now, Ok(5));
    assert_eq!((cqe.status(), cqe.error(), cqe.result), (Ok(CompletionStatus::CompletedLate), Ok(None), 5));
    assert_eq!(
        at_dispatch(&request(999, Qos::NONE), 0, &NOW),
        Verdict::Run { late: true },
        "as without a flag"
    );
}

//= TICK:L4.units
#[test]
fn a_deadline_is_an_absolute_time_that_is_compared_and_nothing_more() {
    assert!(!is_late(Nanos::new(10), 10), "at the deadline it is fresh");
    assert!(is_late(Nanos::new(11), 10));
    assert!(!is_late(Nanos::MAX, 0), "zero is no deadline");
    let began_in_time = request(1_500, Qos::DROP_IF_LATE);
    assert_eq!(at_dispatch(&began_in_time, 0, &NOW), Verdict::Run { late: false });
    let cqe = at_completion(&began_in_time, Nanos::new(2_000), Ok(0));
    assert_eq!(cqe.status(), Ok(CompletionStatus::CompletedLate), "a miss is reported, wherever it is seen");
}

//= TICK:L4.propagate
#[test]
fn a_call_carries_its_deadline_only_when_asked_to() {
    let carried =
        propagate(&request(77, Qos::PROPAGATE_DEADLINE.with(Qos::DROP_IF_LATE).with(Qos::REORDERABLE)));
    assert_eq!(carried.deadline_ns, 77);
    assert!(carried.qos.has(Qos::DROP_IF_LATE));
    assert!(!carried.qos.has(Qos::REORDERABLE), "order is the caller's own ring's business");
    assert_eq!(propagate(&request(77, Qos::DROP_IF_LATE)), Propagated::default());
    // The server sees it as its own request's deadline, and is bound by it.
    let server =
        CapSqeV2 { deadline_ns: carried.deadline_ns, qos_flags: carried.qos.bits(), ..CapSqeV2::nop(2) };
    assert!(matches!(at_dispatch(&server, 0, &NOW), Verdict::Refuse(CompletionStatus::NotStartedLate, _)));
}

//= TICK:L4.no-blocking-path
#[test]
fn no_blocking_path_refuses_what_is_not_declared_safe() {
    let unsafe_path = AtDispatch { method: MethodTraits { realtime_safe: false, ..ANY }, ..NOW };
    let verdict = at_dispatch(&request(0, Qos::NO_BLOCKING_PATH), 0, &unsafe_path);
    assert_eq!(verdict, Verdict::Refuse(CompletionStatus::Dropped, CapError::RealtimeUnsafePath));
    assert_eq!(at_dispatch(&request(0, Qos::NO_BLOCKING_PATH), 0, &NOW), Verdict::Run { late: false });
    assert_eq!(at_dispatch(&request(0, Qos::NONE), 0, &unsafe_path), Verdict::Run { late: false });
}

//= EVO:S4.deadline-not-budget
#[test]
fn no_deadline_lifts_throttling() {
    let depleted = AtDispatch { budget: Budget::Depleted, ..NOW };
    for deadline_ns in [0, 999, 1_000, 1_001, u64::MAX] {
        for qos in [Qos::NONE, Qos::ALLOW_LATE, Qos::PROPAGATE_DEADLINE, Qos::DEADLINE_ORDERED] {
            let verdict = at_dispatch(&request(deadline_ns, qos), 0, &depleted);
            assert_eq!(verdict, Verdict::Refuse(CompletionStatus::Throttled, CapError::BudgetExhausted));
        }
    }
}

//= TICK:L7.status
#[test]
fn each_ending_has_its_own_status() {
    let after = CapSqeV2 {
        v1: mainspring_abi::ring::CapSqe { flags: SQE_AFTER_PREVIOUS, ..Default::default() },
        ..request(0, Qos::NONE)
    };
    let failed = AtDispatch { previous: Previous::Failed, ..NOW };
    let depleted = AtDispatch { budget: Budget::Depleted, ..NOW };
    let ending = |verdict| match verdict {
        Verdict::Refuse(status, _) => status,
        Verdict::Run { .. } => {
            at_completion(&request(999, Qos::NONE), NOW.now, Ok(0)).status().expect("known")
        }
    };
    let endings = [
        ending(at_dispatch(&request(999, Qos::DROP_IF_LATE), 0, &NOW)),
        ending(at_dispatch(&request(999, Qos::ALLOW_LATE), 0, &NOW)),
        ending(at_dispatch(&CapSqeV2 { qos_flags: 1 << 31, ..request(0, Qos::NONE) }, 0, &NOW)),
        ending(at_dispatch(&request(0, Qos::NONE), 0, &depleted)),
        ending(at_dispatch(&after, 0, &failed)),
    ];
    use CompletionStatus::{CompletedLate, DependencyCancelled, Dropped, NotStartedLate, Throttled};
    assert_eq!(endings, [NotStartedLate, CompletedLate, Dropped, Throttled, DependencyCancelled]);
    assert_eq!(at_dispatch(&after, 0, &NOW), Verdict::Run { late: false });
}

const MOVABLE: Qos = Qos::DEADLINE_ORDERED.with(Qos::REORDERABLE);
const WIDE: OrderPolicy = OrderPolicy::ByDeadline { window: WINDOW_MAX };

fn order(policy: OrderPolicy, mode: RingMode, batch: &[(CapSqeV2, MethodTraits)]) -> Vec<usize> {
    service_order(policy, mode, batch).iter().collect()
}

//= TICK:L4.deadline-ordered
#[test]
fn requests_that_may_move_are_served_by_deadline() {
    let batch = [30, 0, 10, 20, 10].map(|deadline| (request(deadline, MOVABLE), ANY));
    assert_eq!(order(WIDE, RingMode::Sqpoll, &batch), [2, 4, 3, 0, 1]);
}

//= TICK:L4.deadline-ordered
#[test]
fn each_missing_condition_alone_keeps_the_order() {
    let batch = [(request(30, MOVABLE), ANY), (request(10, MOVABLE), ANY)];
    let second = |qos: Qos, method: MethodTraits| [batch[0], (request(10, qos), method)];
    let dependent = {
        let mut dependent = batch;
        dependent[1].0.v1.flags = SQE_AFTER_PREVIOUS;
        dependent
    };
    assert_eq!(order(WIDE, RingMode::Sqpoll, &batch), [1, 0], "with all of them it moves");
    assert_eq!(
        order(OrderPolicy::Submission, RingMode::Sqpoll, &batch),
        [0, 1],
        "the ring does not permit it"
    );
    assert_eq!(order(WIDE, RingMode::Syscall, &batch), [0, 1], "the mode does not permit it");
    assert_eq!(
        order(WIDE, RingMode::Sqpoll, &second(Qos::DEADLINE_ORDERED, ANY)),
        [0, 1],
        "not marked reorderable"
    );
    assert_eq!(order(WIDE, RingMode::Sqpoll, &second(Qos::REORDERABLE, ANY)), [0, 1], "not asked for");
    let bound = MethodTraits { reorder_safe: false, ..ANY };
    assert_eq!(
        order(WIDE, RingMode::Sqpoll, &second(MOVABLE, bound)),
        [0, 1],
        "the method does not declare it"
    );
    assert_eq!(order(WIDE, RingMode::Sqpoll, &dependent), [0, 1], "it relies on the one before");
    let narrow = OrderPolicy::ByDeadline { window: 1 };
    assert_eq!(order(narrow, RingMode::Sqpoll, &batch), [0, 1], "the window bounds it");
}

//= TICK:L4.deadline-ordered
#[test]
fn nothing_passes_a_request_that_may_not_move() {
    // write, write, flush: the flush is not reorder-safe, and what follows must not overtake it.
    let flush = (request(5, MOVABLE), MethodTraits { reorder_safe: false, ..ANY });
    let write = |deadline| (request(deadline, MOVABLE), ANY);
    let batch = [write(30), write(20), flush, write(10), write(1)];
    assert_eq!(order(WIDE, RingMode::Sqpoll, &batch), [1, 0, 2, 4, 3]);
    let lock_mutate_unlock = [30, 20, 10].map(|deadline| (request(deadline, Qos::DEADLINE_ORDERED), ANY));
    assert_eq!(order(WIDE, RingMode::Sqpoll, &lock_mutate_unlock), [0, 1, 2]);
    let windowed = [40, 30, 20, 10].map(write);
    let two = OrderPolicy::ByDeadline { window: 2 };
    assert_eq!(order(two, RingMode::Sqpoll, &windowed), [1, 0, 3, 2], "never further than the window");
}

//= TICK:L5.no-mint TICK:nongoal.sqe-policy
#[test]
fn no_bytes_of_an_entry_choose_who_pays_or_make_budget() {
    let own = 7;
    let names = |sched_ctx_id| CapSqeV2 { sched_ctx_id, ..CapSqeV2::nop(1) };
    let forged = Verdict::Refuse(CompletionStatus::Dropped, CapError::InvalidCapability);
    assert_eq!(at_dispatch(&names(0), own, &NOW), Verdict::Run { late: false }, "the caller's own");
    assert_eq!(at_dispatch(&names(own), own, &NOW), Verdict::Run { late: false });
    assert_eq!(at_dispatch(&names(own + 1), own, &NOW), forged);
    assert_eq!(at_dispatch(&names(own), 0, &NOW), forged, "a caller without a context");
    // Whatever an entry says, a depleted budget stays so, and a context that is not the caller's pays for nothing.
    let depleted = AtDispatch { budget: Budget::Depleted, ..NOW };
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for _ in 0..100_000 {
        let words: [u64; 8] = std::array::from_fn(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Mostly zero bytes, so that some entries are well formed.
            if state >> 61 == 0 { state } else { (state >> 40) & 0x7 }
        });
        let entry = CapSqeV2::from_words(&words);
        assert!(matches!(at_dispatch(&entry, own, &depleted), Verdict::Refuse(..)), "{entry:?}");
        if ![0, own].contains(&entry.sched_ctx_id) {
            assert_eq!(at_dispatch(&entry, own, &NOW), forged, "{entry:?}");
        }
    }
}
