//! Jobs, misses and calls: what people wait for, and what they expect.

use super::Event;
use serde::{Deserialize, Serialize};

/// Quantiles of a time, and when the worst of them began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worst {
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Greatest, exact.
    pub max: u64,
    /// When that one began: the release of a job, or the time of a call.
    pub max_at_ns: u64,
}

/// What a thread did with its periods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobsReport {
    /// Jobs that ended, in time or late.
    pub finished: u64,
    /// From the release of a job to its end; `None` if none ended.
    pub response_ns: Option<Worst>,
    /// The least time that was left at the end of a job; negative if it was late.
    pub slack_min_ns: Option<i64>,
    /// The first deadline that was missed.
    pub first_miss_ns: Option<u64>,
}

/// One period of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Instance name.
    pub thread: String,
    /// When it was released.
    pub release_ns: u64,
    /// When it was due.
    pub deadline_ns: u64,
    /// When it first had a CPU; `None` if it never had.
    pub start_ns: Option<u64>,
    /// When it ended; `None` if it did not before the run did.
    pub finish_ns: Option<u64>,
    /// From its release to its end.
    pub response_ns: Option<u64>,
    /// The time that was left at its end; negative if it was late.
    pub slack_ns: Option<i64>,
}

impl Job {
    /// A job without a thread, which has not started.
    #[must_use]
    pub fn new(release_ns: u64, deadline_ns: u64) -> Self {
        Self { release_ns, deadline_ns, ..Self::default() }
    }

    /// The same, begun and ended.
    #[must_use]
    pub fn ran(self, start_ns: Option<u64>, finish_ns: Option<u64>) -> Self {
        let slack = |finish: u64| self.deadline_ns.cast_signed().saturating_sub(finish.cast_signed());
        Self {
            start_ns,
            finish_ns,
            response_ns: finish_ns.map(|finish| finish.saturating_sub(self.release_ns)),
            slack_ns: finish_ns.map(slack),
            ..self
        }
    }
}

/// How a deadline was missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MissKind {
    /// The job ended after it.
    #[default]
    Late,
    /// The job never began: an earlier one took its time.
    Skipped,
    /// The job had not ended when the run did, or its thread was ended by others.
    Unfinished,
    /// A release of a context was not done with.
    Context,
}

impl MissKind {
    /// As the JSON says it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Late => "late",
            Self::Skipped => "skipped",
            Self::Unfinished => "unfinished",
            Self::Context => "context",
        }
    }
}

/// A deadline that passed with work left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Miss {
    /// Its number in the order of time, from 1.
    pub number: u64,
    /// When: the deadline.
    pub time_ns: u64,
    /// How.
    pub kind: MissKind,
    /// The thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// The context, if it is a context's deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// When the job or the budget was released.
    pub release_ns: u64,
    /// When the job first had a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_ns: Option<u64>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_ns: Option<u64>,
}

impl Miss {
    /// The miss of a job.
    #[must_use]
    pub fn of_job(job: &Job, kind: MissKind) -> Self {
        Self {
            time_ns: job.deadline_ns,
            kind,
            release_ns: job.release_ns,
            start_ns: job.start_ns,
            finish_ns: job.finish_ns,
            ..Self::default()
        }
    }

    /// The same, as an event at the deadline. Its count is the number of the miss.
    #[must_use]
    pub fn event(&self) -> Event {
        Event {
            thread: self.thread.clone(),
            context: self.context.clone(),
            count: Some(self.number),
            reason: Some(self.kind.name().to_owned()),
            ..Event::new(self.time_ns, "miss")
        }
    }
}

/// One endpoint's row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointReport {
    /// Name.
    pub name: String,
    /// Calls that were accepted.
    pub calls: u64,
    /// Calls that were answered.
    pub replies: u64,
    /// Calls that ended without an answer: by an exception, a timeout, or the end of their server or endpoint.
    pub failures: u64,
    /// Calls without an answer when the run ended.
    pub pending: u64,
    /// From call to reply; `None` if there was none.
    pub latency_ns: Option<Worst>,
    /// The thread tables whose programs call it.
    #[serde(default)]
    pub callers: Vec<String>,
    /// The thread tables whose programs receive on it.
    #[serde(default)]
    pub servers: Vec<String>,
}

/// Something that was expected of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected {
    /// What, in words.
    pub what: String,
    /// What there was, in words.
    pub found: String,
    /// Whether it is as expected.
    pub held: bool,
    /// The line of the workload that expects it; `None` if the command line does.
    pub line: Option<u64>,
}
