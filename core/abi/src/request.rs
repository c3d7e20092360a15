//! What a request's deadline does: it may stop the request, mark it, travel with a call, or order it. It never gives CPU
//! time. One rule for requests in rings and for calls to endpoints; all of it is decided from values, and nothing here
//! reads a clock.

use crate::Nanos;
use crate::ring::{CapError, CompletionStatus, QosFlags};

/// What a request says about its own timing. A deadline of 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// When its result stops being of use: an absolute time, or 0.
    pub deadline_ns: u64,
    /// How to treat that.
    pub qos: QosFlags,
    /// Whether it relies on the request before it.
    pub after_previous: bool,
}

/// What the target's interface declares about a method.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MethodTraits {
    /// It never blocks, allocates or faults.
    pub realtime_safe: bool,
    /// Its calls may change places with their neighbours.
    pub reorder_safe: bool,
}

/// Whether the scheduling context that pays has anything left. What a request claims does not enter into it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Budget {
    /// It can run.
    Available,
    /// It is throttled until its replenishment.
    Depleted,
}

/// How the request before this one ended, for a request that relies on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Previous {
    /// It completed, or there was none.
    Completed,
    /// It did not.
    Failed,
}

/// What dispatch has to know besides the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtDispatch {
    /// The monotonic clock.
    pub now: Nanos,
    /// The target's declaration.
    pub method: MethodTraits,
    /// Whether the paying context can run.
    pub budget: Budget,
    /// How the request before ended.
    pub previous: Previous,
}

/// What to do with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a refused request must not run, and owes a completion"]
pub enum Verdict {
    /// Run it.
    Run {
        /// Its deadline has passed already.
        late: bool,
    },
    /// Do not run it; complete it with this.
    Refuse(CompletionStatus, CapError),
}

/// Whether `deadline_ns` (0 for none) has passed at `now`. At the deadline itself it has not.
#[must_use]
pub fn is_late(now: Nanos, deadline_ns: u64) -> bool {
    deadline_ns != 0 && now.get() > deadline_ns
}

/// Decides about a request before anything of it runs.
///
/// Without DROP_IF_LATE a late request runs and is marked, as with ALLOW_LATE: dropping a request without that
/// flag would lose work. A depleted budget stops a request whatever its deadline.
pub fn at_dispatch(request: &Request, at: &AtDispatch) -> Verdict {
    use CompletionStatus::{DependencyCancelled, Dropped, NotStartedLate, Throttled};
    if request.after_previous && at.previous == Previous::Failed {
        return Verdict::Refuse(DependencyCancelled, CapError::DependencyFailed);
    }
    if request.qos.has(QosFlags::NO_BLOCKING_PATH) && !at.method.realtime_safe {
        return Verdict::Refuse(Dropped, CapError::RealtimeUnsafePath);
    }
    let late = is_late(at.now, request.deadline_ns);
    if late && request.qos.has(QosFlags::DROP_IF_LATE) {
        return Verdict::Refuse(NotStartedLate, CapError::DeadlineExpired);
    }
    if at.budget == Budget::Depleted {
        return Verdict::Refuse(Throttled, CapError::BudgetExhausted);
    }
    Verdict::Run { late }
}

impl Request {
    /// When it is dropped if no server has begun it: at its deadline, if it asks for that.
    #[must_use]
    pub fn dropped_at(&self) -> Option<Nanos> {
        let drops = self.deadline_ns != 0 && self.qos.has(QosFlags::DROP_IF_LATE);
        drops.then(|| Nanos::new(self.deadline_ns))
    }
}

/// How a request ended that ran until `now`.
#[must_use]
pub fn at_completion(request: &Request, now: Nanos, failed: bool) -> CompletionStatus {
    if failed {
        CompletionStatus::Failed
    } else if is_late(now, request.deadline_ns) {
        CompletionStatus::CompletedLate
    } else {
        CompletionStatus::Completed
    }
}

/// What the server's side of a call sees of the caller's deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Propagated {
    /// The caller's deadline, or 0.
    pub deadline_ns: u64,
    /// The caller's wishes that still mean something there.
    pub qos: QosFlags,
}

/// What of `caller`'s deadline travels with its call. The context does not: that is donation's business. Nor do the
/// flags of order, which speak of the caller's own queue.
#[must_use]
pub fn propagate(caller: &Request) -> Propagated {
    if !caller.qos.has(QosFlags::PROPAGATE_DEADLINE) || caller.deadline_ns == 0 {
        return Propagated::default();
    }
    let order = QosFlags::DEADLINE_ORDERED.with(QosFlags::REORDERABLE).bits();
    let qos = QosFlags::from_bits(caller.qos.bits() & !order).unwrap_or_default();
    Propagated { deadline_ns: caller.deadline_ns, qos }
}

/// The most requests that may change places with each other.
pub const WINDOW_MAX: usize = 16;

/// Whether a consumer orders by deadline at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrderPolicy {
    /// As submitted.
    Submission,
    /// By deadline among at most this many neighbours, and never more than [`WINDOW_MAX`].
    ByDeadline {
        /// How many.
        window: usize,
    },
}

impl OrderPolicy {
    /// Among how many neighbours a request may move: 1 is not at all.
    #[must_use]
    pub fn window(self) -> usize {
        match self {
            Self::Submission => 1,
            Self::ByDeadline { window } => window.clamp(1, WINDOW_MAX),
        }
    }
}

/// Whether this request may move in a queue that permits it. All conditions hold, or it stays where it is and nothing
/// passes it.
#[must_use]
pub fn may_move(request: &Request, method: MethodTraits) -> bool {
    let wanted = QosFlags::DEADLINE_ORDERED.with(QosFlags::REORDERABLE);
    request.qos.has(wanted) && !request.after_previous && method.reorder_safe
}

/// The place of a deadline in an order: the lower goes first, and no deadline goes last.
#[must_use]
pub fn urgency(deadline_ns: u64) -> u64 {
    if deadline_ns == 0 { u64::MAX } else { deadline_ns }
}

/// A permutation of at most [`WINDOW_MAX`] requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    places: [u8; WINDOW_MAX],
    len: usize,
}

impl Order {
    /// Indices into the batch, in the order of service.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.places[..self.len].iter().map(|place| usize::from(*place))
    }
}

/// The order in which to serve the first `len`, at most [`WINDOW_MAX`], requests of a batch that stands in submission
/// order. `movable` says of each its [`urgency`], or that it may not move.
///
/// A request that may not move is a wall: those before it stay before it, those after it stay after. Between walls,
/// and within the window, the earlier deadline goes first; no deadline goes last; equals keep their order.
#[must_use]
pub fn service_order(policy: OrderPolicy, len: usize, movable: impl Fn(usize) -> Option<u64>) -> Order {
    let len = len.min(WINDOW_MAX);
    let mut order = Order { places: core::array::from_fn(|index| index as u8), len };
    let urgency = |place: &u8| movable(usize::from(*place));
    for block in order.places[..len].chunks_mut(policy.window()) {
        for run in block.chunk_by_mut(|a, b| urgency(a).is_some() && urgency(b).is_some()) {
            // At most sixteen of them, and stable; a request that may not move is a run of its own.
            for end in 1..run.len() {
                let mut at = end;
                while at > 0 && urgency(&run[at]) < urgency(&run[at - 1]) {
                    run.swap(at, at - 1);
                    at -= 1;
                }
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: MethodTraits = MethodTraits { realtime_safe: true, reorder_safe: true };
    const NOW: AtDispatch = AtDispatch {
        now: Nanos::new(1_000),
        method: ANY,
        budget: Budget::Available,
        previous: Previous::Completed,
    };

    //= TICK:L4.drop-if-late
    //= TICK:L7.status
    //= EVO:S4.deadline-not-budget
    #[test]
    fn each_ending_of_a_call_has_its_own_status() {
        let late = |qos| Request { deadline_ns: 999, qos, after_previous: false };
        let dependent = Request { after_previous: true, ..Request::default() };
        let depleted = AtDispatch { budget: Budget::Depleted, ..NOW };
        let failed = AtDispatch { previous: Previous::Failed, ..NOW };
        let bounded = AtDispatch { method: MethodTraits::default(), ..NOW };
        let refusals = [
            (late(QosFlags::DROP_IF_LATE), NOW, CompletionStatus::NotStartedLate, CapError::DeadlineExpired),
            (late(QosFlags::ALLOW_LATE), depleted, CompletionStatus::Throttled, CapError::BudgetExhausted),
            (
                late(QosFlags::NO_BLOCKING_PATH),
                bounded,
                CompletionStatus::Dropped,
                CapError::RealtimeUnsafePath,
            ),
            (dependent, failed, CompletionStatus::DependencyCancelled, CapError::DependencyFailed),
        ];
        for (request, at, status, error) in refusals {
            assert_eq!(at_dispatch(&request, &at), Verdict::Refuse(status, error));
        }
        assert_eq!(at_dispatch(&late(QosFlags::ALLOW_LATE), &NOW), Verdict::Run { late: true });
        let ran = late(QosFlags::NONE);
        assert_eq!(at_completion(&ran, Nanos::new(999), false), CompletionStatus::Completed);
        assert_eq!(at_completion(&ran, NOW.now, false), CompletionStatus::CompletedLate);
        assert_eq!(at_completion(&ran, NOW.now, true), CompletionStatus::Failed);
    }

    //= TICK:L4.propagate
    #[test]
    fn a_deadline_travels_only_when_asked_to_and_without_the_flags_of_order() {
        let qos = QosFlags::PROPAGATE_DEADLINE.with(QosFlags::DROP_IF_LATE).with(QosFlags::REORDERABLE);
        let carried = propagate(&Request { deadline_ns: 7, qos, after_previous: true });
        assert_eq!(carried.deadline_ns, 7);
        assert_eq!(carried.qos, QosFlags::PROPAGATE_DEADLINE.with(QosFlags::DROP_IF_LATE));
        let silent = Request { deadline_ns: 7, qos: QosFlags::DROP_IF_LATE, after_previous: false };
        assert_eq!(propagate(&silent), Propagated::default());
    }
}
