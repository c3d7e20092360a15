//! What the deadline of a request in a ring does: [`mainspring_abi::request`], read from and written to ring entries.

use mainspring_abi::Nanos;
use mainspring_abi::request::{self, Request};
use mainspring_abi::ring::{CapCqe, CapError, CapSqeV2, CompletionStatus, SQE_AFTER_PREVIOUS, UnknownFlags};

pub use mainspring_abi::request::{AtDispatch, Budget, MethodTraits, Previous, Propagated, Verdict, is_late};

/// What an entry says about its timing, if its QoS flags are ones that this version knows.
pub(crate) fn timing(entry: &CapSqeV2) -> Result<Request, UnknownFlags> {
    let after_previous = entry.v1.flags & SQE_AFTER_PREVIOUS != 0;
    Ok(Request { deadline_ns: entry.deadline_ns, qos: entry.qos()?, after_previous })
}

/// Decides about a request before anything of it runs. Flags that this version does not know refuse it. So does a scheduling
/// context that is not the caller's, `own_context`, with 0 for none: an entry may repeat the payer, and never choose it.
pub fn at_dispatch(entry: &CapSqeV2, own_context: u32, at: &AtDispatch) -> Verdict {
    if entry.sched_ctx_id != 0 && entry.sched_ctx_id != own_context {
        return Verdict::Refuse(CompletionStatus::Dropped, CapError::InvalidCapability);
    }
    match timing(entry) {
        Ok(request) if entry.v1.flags & !SQE_AFTER_PREVIOUS == 0 => request::at_dispatch(&request, at),
        _ => Verdict::Refuse(CompletionStatus::Dropped, CapError::InvalidRequest),
    }
}

/// The completion of a request that ran until `now`.
#[must_use]
pub fn at_completion(entry: &CapSqeV2, now: Nanos, outcome: Result<u32, CapError>) -> CapCqe {
    let user_data = entry.v1.user_data;
    match outcome {
        // It waited for its turn, and never had it.
        Err(error @ CapError::DeadlineExpired) => {
            CapCqe::failed(user_data, CompletionStatus::NotStartedLate, error)
        }
        Err(error) => CapCqe::failed(user_data, CompletionStatus::Failed, error),
        Ok(result) => {
            let request = Request { deadline_ns: entry.deadline_ns, ..Request::default() };
            let status = request::at_completion(&request, now, false).number();
            CapCqe { status, ..CapCqe::completed(user_data, result) }
        }
    }
}

/// The completion of a request that was refused.
#[must_use]
pub fn refused(entry: &CapSqeV2, status: CompletionStatus, error: CapError) -> CapCqe {
    CapCqe::failed(entry.v1.user_data, status, error)
}

/// What of `caller`'s deadline travels with its call.
#[must_use]
pub fn propagate(caller: &CapSqeV2) -> Propagated {
    timing(caller).map(|request| request::propagate(&request)).unwrap_or_default()
}
