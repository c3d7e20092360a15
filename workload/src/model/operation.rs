//! What an operator or the policy service does at a time.

use super::{ContextTarget, ThreadTarget};
use mainspring_abi::{LatencyClass, Nanos, Weight};
use std::fmt;

/// `[[at]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct TimedOperation {
    /// When.
    pub time: Nanos,
    /// What.
    pub operation: Operation,
    /// As the file has it, for reports.
    pub text: String,
}

impl fmt::Display for TimedOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.text, self.time)
    }
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `revoke CONTEXT`.
    Revoke(ContextTarget),
    /// `adjust CONTEXT budget 2ms period 10ms`: admission is asked again.
    Adjust {
        /// Which.
        context: ContextTarget,
        /// The new budget, at most `period`.
        budget: Nanos,
        /// The new period.
        period: Nanos,
    },
    /// `logout SESSION`: revokes the contexts bound to its threads. Index into `Workload::sessions`.
    Logout(usize),
    /// `exit THREAD`: ends it from outside.
    Exit(ThreadTarget),
    /// `revoke-lease LEASE`. Index into `Workload::leases`.
    RevokeLease(usize),
    /// `leave ISLAND`. Index into `Workload::islands`.
    LeaveIsland(usize),
    /// `close ENDPOINT`: calls in flight and to come are refused. Index into `Workload::endpoints`.
    CloseEndpoint(usize),
    /// `policy dies`: the policy service ends.
    PolicyDies,
    /// `policy stalls`: the policy service is not heard of any more.
    PolicyStalls,
    /// `policy weight THREAD 128 epoch 2`: the policy service sets a weight.
    PolicyWeight {
        /// The threads that get it.
        thread: ThreadTarget,
        /// The new weight.
        weight: Weight,
        /// The epoch that the service says it speaks for.
        epoch: u64,
    },
    /// `policy profile THREAD batch epoch 2`: the policy service sets a latency class.
    PolicyProfile {
        /// The threads that get it.
        thread: ThreadTarget,
        /// The new class.
        latency: LatencyClass,
        /// The epoch that the service says it speaks for.
        epoch: u64,
    },
}
