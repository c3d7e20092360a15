//! What a request's deadline does: it may stop the request, mark it, travel with a call, or order it. It never gives
//! CPU time. All of it is decided from values; nothing here reads a clock.

use mainspring_abi::Nanos;
use mainspring_abi::ring::{CapCqe, CapError, CapSqeV2, CompletionStatus, QosFlags, SQE_AFTER_PREVIOUS};

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
/// Without DROP_IF_LATE a late request runs and is marked, as with ALLOW_LATE: dropping what nobody asked to drop
/// would lose work. A depleted budget stops a request whatever its deadline.
pub fn at_dispatch(request: &CapSqeV2, at: &AtDispatch) -> Verdict {
    use CompletionStatus::{DependencyCancelled, Dropped, NotStartedLate, Throttled};
    let Ok(qos) = request.qos() else {
        return Verdict::Refuse(Dropped, CapError::InvalidRequest);
    };
    if request.v1.flags & !SQE_AFTER_PREVIOUS != 0 {
        return Verdict::Refuse(Dropped, CapError::InvalidRequest);
    }
    if request.v1.flags & SQE_AFTER_PREVIOUS != 0 && at.previous == Previous::Failed {
        return Verdict::Refuse(DependencyCancelled, CapError::DependencyFailed);
    }
    if qos.has(QosFlags::NO_BLOCKING_PATH) && !at.method.realtime_safe {
        return Verdict::Refuse(Dropped, CapError::RealtimeUnsafePath);
    }
    let late = is_late(at.now, request.deadline_ns);
    if late && qos.has(QosFlags::DROP_IF_LATE) {
        return Verdict::Refuse(NotStartedLate, CapError::DeadlineExpired);
    }
    if at.budget == Budget::Depleted {
        return Verdict::Refuse(Throttled, CapError::BudgetExhausted);
    }
    Verdict::Run { late }
}

/// The completion of a request that ran until `now`.
#[must_use]
pub fn at_completion(request: &CapSqeV2, now: Nanos, outcome: Result<u32, CapError>) -> CapCqe {
    let user_data = request.v1.user_data;
    match outcome {
        Err(error) => CapCqe::failed(user_data, CompletionStatus::Failed, error),
        Ok(result) if is_late(now, request.deadline_ns) => {
            let status = CompletionStatus::CompletedLate.number();
            CapCqe { status, ..CapCqe::completed(user_data, result) }
        }
        Ok(result) => CapCqe::completed(user_data, result),
    }
}

/// The completion of a request that was refused.
#[must_use]
pub fn refused(request: &CapSqeV2, status: CompletionStatus, error: CapError) -> CapCqe {
    CapCqe::failed(request.v1.user_data, status, error)
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
/// flags of order, which speak of the caller's own ring.
#[must_use]
pub fn propagate(caller: &CapSqeV2) -> Propagated {
    match caller.qos() {
        Ok(qos) if qos.has(QosFlags::PROPAGATE_DEADLINE) && caller.deadline_ns != 0 => {
            let ring_only = QosFlags::DEADLINE_ORDERED.with(QosFlags::REORDERABLE).bits();
            let qos = QosFlags::from_bits(qos.bits() & !ring_only).unwrap_or_default();
            Propagated { deadline_ns: caller.deadline_ns, qos }
        }
        _ => Propagated::default(),
    }
}
