//! A scripted thread and the endpoints it talks through.

use super::calls::Borrowed;
use crate::random::Random;
use mainspring_abi::request::Request as Timing;
use mainspring_abi::{Nanos, ProcessId, ThreadRef};
use mainspring_authority::call_order::CallQueue;
use mainspring_driver::Home;
use mainspring_record::jobs::{Jobs, Responses};
use mainspring_sched::{Affinity, Lag, WaitKind};
use std::collections::VecDeque;

/// Work that never ends.
pub(super) const FOREVER: Nanos = Nanos::MAX;

/// A wait in progress, named so that code that wants to end it can tell whether it still goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitId {
    pub thread: u32,
    pub number: u64,
}

/// The instances of all thread tables, one after the other.
#[derive(Debug)]
pub(super) struct ThreadTable(pub Vec<Thread>);

impl std::ops::Deref for ThreadTable {
    type Target = [Thread];

    #[inline(always)]
    fn deref(&self) -> &[Thread] {
        &self.0
    }
}

impl std::ops::DerefMut for ThreadTable {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [Thread] {
        &mut self.0
    }
}

/// In this order: what nearly every event needs comes first, in neighbouring cache lines. There may be a hundred
/// thousand of these, and then fetching them is what an event costs.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Thread {
    /// Its table of the workload.
    pub spec: u32,
    /// Where it is in the [script](super::script).
    pub pc: u32,
    /// CPU time that its present step still needs.
    pub remaining: Nanos,
    /// Knows what `remaining` is before the time to begin: see [`super::foresight`].
    pub ahead: bool,
    /// Moved since it last ran.
    pub moved: bool,
    pub wait: Option<WaitKind>,
    /// Its job has been released and has not had a CPU yet.
    pub job_waits: bool,
    pub process: ProcessId,
    pub wait_number: u64,
    pub start: Nanos,
    /// When its last wait ended, until it runs; then [`Nanos::MAX`].
    pub woken_at: Nanos,
    pub wakeups: u64,
    /// The furthest from its share that it has been, without a sign.
    pub lag_max: Lag,
    pub random: Random,
    /// Where it sits, while it lives.
    pub home: Option<Home>,
    pub unpark_pending: bool,
    /// It has begun the step that it comes to next, and has drawn what that draws.
    pub retakes: bool,
    /// The present or, if it is not alive, the next occupant of this instance.
    pub identity: ThreadRef,
    /// How often it has been through its program, if that is limited.
    pub rounds: u64,
    /// What became of its periods, if its program has any.
    pub jobs: Option<Box<Jobs>>,
    pub affinity: Affinity,
    /// Calls taken and not answered yet.
    pub serving: Vec<Serving>,
    pub joiners: Vec<WaitId>,
    /// When its `join` in progress gives up, kept while it waits for one instance after the other.
    pub join_deadline: Option<Nanos>,
    /// The instance it spawned last, of each table it spawns.
    pub spawned: Vec<(usize, ThreadRef)>,
    pub stats: Box<Stats>,
}

const _: () = assert!(std::mem::offset_of!(Thread, random) == 64);

/// What is reported of an instance, over all its lives, and seldom changes.
#[derive(Debug, Default)]
pub(super) struct Stats {
    pub weight: u16,
    pub alive_ns: u64,
    pub ready_ns: u64,
    pub entitled_ns: u64,
    pub runtime_ns: u64,
    pub preemptions: u64,
    pub voluntary_blocks: u64,
    pub migrations: u64,
    pub switches: u64,
    pub timeouts: u64,
    pub refusals: u64,
    /// When a step was first refused, and why.
    pub first_refusal: Option<(Nanos, &'static str)>,
    /// Calls that ended without an answer, or with an exception.
    pub failures: u64,
    /// Calls that were answered after their deadline.
    pub late: u64,
    /// Calls that were not served because they were late.
    pub dropped: u64,
}

impl Thread {
    pub(super) fn wait_id(&self) -> WaitId {
        WaitId { thread: self.identity.index(), number: self.wait_number }
    }

    /// Whether the wait named `id` still goes on, as one of `kind`.
    pub(super) fn is_waiting(&self, id: WaitId, kind: WaitKind) -> bool {
        self.wait == Some(kind) && self.wait_number == id.number
    }
}

/// A call on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// The wait of its caller.
    pub call: WaitId,
    pub endpoint: usize,
    /// When it was made.
    pub made: Nanos,
    /// Until when it is fresh, and what happens to it when it is not.
    pub timing: Timing,
}

/// A call that was taken and not answered yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Serving {
    pub request: Request,
    /// The context that it is served on, if not the server's own.
    pub borrowed: Option<Borrowed>,
}

/// Calls that no receiver has taken, and receivers that no caller has called; one of the two is empty.
#[derive(Debug)]
pub(super) struct Endpoint {
    /// It is torn down.
    pub closed: bool,
    pub calls: CallQueue<Request>,
    pub receivers: VecDeque<WaitId>,
    /// Calls that were accepted, and how they ended.
    pub accepted: u64,
    pub failed: u64,
    pub replies: Responses,
}
