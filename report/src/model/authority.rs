//! What became of CPU time that was granted: contexts, leases, islands and rings, and what happened to them when.

use mainspring_program::{SyncKind, SyncStats};
use mainspring_ring::{PollerState, RingMode, RingStats};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One scheduling context's row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextReport {
    /// Instance name.
    pub name: String,
    /// Its home; `None` if it has none.
    pub cpu: Option<u32>,
    /// CPU time in each period, at the end.
    pub budget_ns: u64,
    /// The period, at the end.
    pub period_ns: u64,
    /// From the release of a refill to the time by which it must have run.
    pub deadline_ns: u64,
    /// Its band, higher first.
    pub criticality: u8,
    /// The order among equal deadlines, higher first.
    pub priority: u16,
    /// All that its refills made available. What is used is never more.
    pub granted_ns: u64,
    /// What all its holders used.
    pub used_ns: u64,
    /// The part of it that others used while they served calls.
    pub donated_ns: u64,
    /// How often it ran out.
    pub depletions: u64,
    /// How often its deadline passed with work left.
    pub misses: u64,
    /// The most that was ever used beyond what was available.
    pub overshoot_max_ns: u64,
    /// Its generation: one more for each time that its identity was made anew.
    pub generation: u64,
    /// Where it is at the end: `bound`, `donated`, `shelved`, `throttled` or `revoked`.
    pub state: String,
}

/// One isolation lease's row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseReport {
    /// Name.
    pub name: String,
    /// The CPUs it isolates.
    pub cpus: Vec<u32>,
    /// The thread that has them to itself.
    pub thread: String,
    /// Where it is at the end, or why it was refused.
    pub state: String,
    /// How often the tick was suppressed.
    pub activations: u64,
    /// How long it was.
    pub tickless_ns: u64,
    /// Ticks that were not taken in that time.
    pub ticks_suppressed: u64,
    /// How often it came back, by reason.
    pub exits: BTreeMap<String, u64>,
}

/// One realtime island's row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IslandReport {
    /// Name.
    pub name: String,
    /// Whether it was admitted, as a whole.
    pub admitted: bool,
    /// Why, in words.
    pub reason: String,
}

/// One ring's row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingReport {
    /// Name.
    pub name: String,
    /// Entries that were submitted.
    pub submitted: u64,
    /// Entries whose completion was posted.
    pub completed: u64,
    /// Completed entries that were dropped because they were late.
    pub dropped: u64,
    /// Completed entries that were served though they were late.
    pub late: u64,
    /// Completions that had to wait for a place.
    pub overflow: u64,
    /// How often a submission had to wake the poller.
    pub wakeups: u64,
    /// How often the poller slept.
    pub sleeps: u64,
    /// Time that the poller spun with nothing to do.
    pub spins_ns: u64,
    /// Time spent serving entries.
    pub busy_ns: u64,
    /// What serves it at the end: `syscall`, `sqpoll-starting`, `sqpoll-running`, `sqpoll-sleeping` or
    /// `sqpoll-stopping`.
    pub mode: String,
}

impl RingReport {
    /// What became of the entries of the ring with this name, and what serves it.
    #[must_use]
    pub fn new(name: &str, stats: RingStats, mode: RingMode, poller: PollerState) -> Self {
        let RingStats { submitted, completed, dropped, late, overflow, wakeups, sleeps, spins_ns, busy_ns } =
            stats;
        let mode = match (mode, poller) {
            (RingMode::Syscall, _) => "syscall",
            (RingMode::SqpollStarting, _) => "sqpoll-starting",
            (RingMode::Sqpoll, PollerState::Sleeping) => "sqpoll-sleeping",
            (RingMode::Sqpoll, _) => "sqpoll-running",
            (RingMode::SqpollStopping, _) => "sqpoll-stopping",
        };
        let (name, mode) = (name.to_owned(), mode.to_owned());
        Self { name, submitted, completed, dropped, late, overflow, wakeups, sleeps, spins_ns, busy_ns, mode }
    }
}

/// Something that happened at an instant. What does not apply is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When.
    pub time_ns: u64,
    /// What: `refill`, `deplete`, `donate`, `return`, `bind`, `unbind`, `revoke`, `adjust`, `miss`, `refuse`, `island`,
    /// `lease`, `nohz-enter`, `nohz-exit`, or one that begins with `ring-` or `policy-`.
    pub kind: String,
    /// Where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// The context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// The thread it happened to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// The thread it went to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// The island.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub island: Option<String>,
    /// The ring.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring: Option<String>,
    /// How many entries, or the like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// How much time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount_ns: Option<u64>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The context's refills after it, each as its time and its amount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refills: Option<Vec<(u64, u64)>>,
}

impl Event {
    /// An event about which nothing else is known yet.
    #[must_use]
    pub fn new(time_ns: u64, kind: impl Into<String>) -> Self {
        Self { time_ns, kind: kind.into(), ..Self::default() }
    }
}

/// What threads did at a mutex, a semaphore, a barrier or a condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncReport {
    /// Its name.
    pub name: String,
    /// `mutex`, `semaphore`, `barrier` or `condition`.
    pub kind: String,
    /// How often it was taken; of a barrier, how often all had come, and each that went on.
    pub taken: u64,
    /// How often a thread had to wait there.
    pub waits: u64,
    /// How long those waits were together, without those that go on or were given up.
    pub waited_ns: u64,
    /// The longest of them.
    pub wait_max_ns: u64,
    /// How many were given up.
    pub timeouts: u64,
}

impl SyncReport {
    /// What threads did at the object with this name.
    #[must_use]
    pub fn new(name: &str, kind: SyncKind, stats: SyncStats) -> Self {
        let SyncStats { taken, waits, timeouts, waited_ns, wait_max_ns } = stats;
        let (name, kind) = (name.to_owned(), kind.word().to_owned());
        Self { name, kind, taken, waits, waited_ns, wait_max_ns, timeouts }
    }
}
