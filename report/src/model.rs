//! The report's data: what a machine fills in, and what the JSON report holds, field for field.
//!
//! The field names are the JSON's and stable: `tests/json.rs` freezes them. New fields may be added; a reader
//! ignores what it does not know.

mod admission;
mod authority;
mod jobs;
mod states;

pub use admission::{
    AdmissionCpu, AdmissionProgram, AdmissionReport, AdmissionTask, DecidingInterval, FirstMiss, MissTrace,
};
pub use authority::{ContextReport, Event, IslandReport, LeaseReport, RingReport, SyncReport};
pub use jobs::{EndpointReport, Expected, Job, JobsReport, Miss, MissKind, Worst};
pub use states::{StateEntry, States, ThreadState};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One run. The field names are the JSON report's and do not change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Which machine ran it: `sim`, `linux` or `qemu`.
    pub machine: String,
    /// What was asked of the machine.
    pub config: Config,
    /// The seed of every random choice.
    pub seed: u64,
    /// Length of the run in machine time.
    pub duration_ns: u64,
    /// How often a CPU chose what to run next.
    pub decisions: u64,
    /// How long the run took in real time; the only field that differs between two equal runs.
    pub wall_ns: u64,
    /// Digest of the decision sequence, as 16 hexadecimal digits.
    pub digest: String,
    /// One row per CPU.
    pub cpus: Vec<CpuReport>,
    /// One row per thread instance.
    pub threads: Vec<ThreadReport>,
    /// One row per scheduling context.
    #[serde(default)]
    pub contexts: Vec<ContextReport>,
    /// One row per isolation lease.
    #[serde(default)]
    pub leases: Vec<LeaseReport>,
    /// One row per realtime island.
    #[serde(default)]
    pub islands: Vec<IslandReport>,
    /// One row per ring.
    #[serde(default)]
    pub rings: Vec<RingReport>,
    /// One row per mutex, semaphore, barrier and condition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sync: Vec<SyncReport>,
    /// One row per endpoint that was called.
    #[serde(default)]
    pub endpoints: Vec<EndpointReport>,
    /// The deadlines that were missed, by time: the first 10,000.
    #[serde(default)]
    pub misses: Vec<Miss>,
    /// How many deadlines were missed in all.
    #[serde(default)]
    pub misses_total: u64,
    /// What the workload expects of its runs, and whether it held.
    #[serde(default)]
    pub expectations: Vec<Expected>,
    /// What should be known before the numbers are read, in words.
    #[serde(default)]
    pub notices: Vec<String>,
    /// The permanent counters.
    pub telemetry: Telemetry,
    /// What ran when, if asked for, ordered by start and CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Vec<ScheduleEntry>>,
    /// What threads did while they did not run, if the schedule was asked for, by thread and then by time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub states: Option<States>,
    /// What happened at single instants, if the schedule was asked for, ordered by time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<Vec<Event>>,
    /// Every job of every thread, if the schedule was asked for, ordered by release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<Vec<Job>>,
}

/// The machine's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// The workload file.
    pub workload: String,
    /// `eevdf` or `wfq`.
    pub policy: String,
    /// The best-effort quantum.
    pub quantum_ns: u64,
    /// The scheduler tick's period.
    pub tick_ns: u64,
}

/// One CPU's row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuReport {
    /// CPU number.
    pub id: u32,
    /// Time charged to threads. Busy and idle time add up to the duration.
    pub busy_ns: u64,
    /// Time with nothing to run.
    pub idle_ns: u64,
    /// The parts of the busy time in which no thread got on, by what took them: `switch`, `migration`, `interrupt`,
    /// `tick`, `network` and `stall`. What is left is work.
    #[serde(default)]
    pub overhead_ns: BTreeMap<String, u64>,
    /// Scheduler ticks taken.
    pub ticks: u64,
    /// Ticks that tickless idle made unnecessary.
    pub ticks_suppressed: u64,
    /// Reschedules received from other CPUs.
    pub reschedules: u64,
    /// Timer interrupts of every kind.
    pub timer_interrupts: u64,
    /// Threads this CPU stole from others.
    pub steals: u64,
    /// Greatest number of threads queued here at once.
    pub queue_depth_max: u64,
}

impl CpuReport {
    /// Time in which threads got on: what is left of the busy time. With the overheads and the idle time it is the run.
    #[must_use]
    pub fn work_ns(&self) -> u64 {
        self.busy_ns.saturating_sub(self.overhead_ns.values().sum())
    }
}

/// One thread's row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadReport {
    /// Instance name.
    pub name: String,
    /// Weight at the end.
    pub weight: u16,
    /// CPU time received.
    pub runtime_ns: u64,
    /// CPU time that the fluid schedule of its queues owed it.
    pub entitled_ns: u64,
    /// Time spent runnable but not running.
    pub ready_ns: u64,
    /// Time spent blocked, from its start to its end.
    pub blocked_ns: u64,
    /// How often it was woken.
    pub wakeups: u64,
    /// From wakeup to running.
    pub wake_latency_ns: WakeLatency,
    /// Greatest distance, either way, between the service it had and the service it was owed.
    pub lag_max_ns: u64,
    /// How often it was stopped while it could have gone on.
    pub preemptions: u64,
    /// How often it blocked by itself.
    pub voluntary_blocks: u64,
    /// How often it was queued on another CPU than the one it last ran on.
    pub migrations: u64,
    /// How often it became the running thread of a CPU in place of another thread or of idle.
    pub switches: u64,
    /// Periods of its `every` steps that it did not meet.
    pub misses: u64,
    /// Its jobs, if it has periods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<JobsReport>,
    /// Steps that ended by timeout.
    pub timeouts: u64,
    /// Steps that were refused, for example a timed wait beyond the quota.
    pub refusals: u64,
    /// The first of those, if the machine tells why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_refusal: Option<RefusedStep>,
    /// Calls that were answered after their deadline.
    #[serde(default)]
    pub late: u64,
    /// Calls that were not begun because they were late.
    #[serde(default)]
    pub dropped: u64,
    /// Calls that ended with an exception or without an answer; those that were dropped are among them.
    #[serde(default)]
    pub failures: u64,
}

/// A step that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedStep {
    /// When.
    pub time_ns: u64,
    /// Why.
    pub reason: String,
}

/// Quantiles of the wake latency, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeLatency {
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Greatest, exact.
    pub max: u64,
}

/// The permanent counters, by name. Maps are keyed by CPU number, or by CPU number and label (`"0,idle"`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Telemetry {
    /// Scheduler ticks per CPU.
    pub scheduler_tick_count: BTreeMap<String, u64>,
    /// Ticks suppressed, per CPU and mode.
    pub ticks_suppressed: BTreeMap<String, u64>,
    /// Entries into a tickless state, per CPU and kind.
    pub nohz_enter_count: BTreeMap<String, u64>,
    /// Exits from it, per CPU and reason.
    pub nohz_exit_count: BTreeMap<String, u64>,
    /// One-shots that fired after the deadline they were armed for.
    pub oneshot_deadline_miss_count: u64,
    /// Time that ring pollers were busy.
    pub sqpoll_busy_ns: u64,
    /// How often a ring poller slept.
    pub sqpoll_sleep_count: u64,
    /// Requests whose deadline had passed.
    pub deadline_expired_count: u64,
    /// Scheduling contexts that ran out.
    pub budget_exhausted_count: u64,
    /// Realtime work beyond its grant.
    pub realtime_overrun_count: u64,
    /// Deepest donation stack.
    pub donation_depth_max: u64,
    /// Loans that a logout found in flight and left alone until they came back.
    pub donation_inflight_skipped: u64,
    /// Housekeeping work moved off isolated CPUs.
    pub housekeeping_offload_count: u64,
    /// Greatest queue depth on any CPU.
    pub queue_depth_max: u64,
    /// Threads stolen.
    pub steals: u64,
    /// Direct handoffs taken.
    pub handoffs: u64,
    /// Direct handoffs whose target had to queue instead.
    pub handoffs_queued: u64,
    /// Reschedules sent.
    pub reschedules_sent: u64,
    /// Reschedules not sent because one was already pending.
    pub reschedules_pending: u64,
    /// Reschedules lost by fault injection.
    pub reschedules_lost: u64,
}

/// One interval in which a thread held a CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleEntry {
    /// CPU number.
    pub cpu: u32,
    /// Instance name.
    pub thread: String,
    /// Start.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
    /// Why it ended: `preempted`, `yielded`, `blocked`, `exited` or `end` (the run ended).
    pub reason: String,
}
