//! What admission found of a workload, before anything of it runs.

use super::{IslandReport, ScheduleEntry};
use serde::{Deserialize, Serialize};

/// The answer of `mainspring admit`. The field names are the JSON's and do not change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdmissionReport {
    /// The workload file.
    pub workload: String,
    /// Whether every deadline holds and every island was admitted.
    pub admitted: bool,
    /// Why, in words.
    pub reason: String,
    /// One row per CPU.
    pub cpus: Vec<AdmissionCpu>,
    /// One row per context.
    pub tasks: Vec<AdmissionTask>,
    /// Whether the worst responses were not asked for, so that no row has one.
    #[serde(default)]
    pub responses_left_out: bool,
    /// The threads whose programs ask for more than their contexts grant.
    #[serde(default)]
    pub programs: Vec<AdmissionProgram>,
    /// One row per island.
    pub islands: Vec<IslandReport>,
    /// For each thing that was refused for want of time: what happens if it runs all the same.
    pub traces: Vec<MissTrace>,
}

/// What was found of a CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdmissionCpu {
    /// CPU number.
    pub id: u32,
    /// Whether what has its home there holds.
    pub admitted: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Long-run use, the floor of best effort included, in millionths.
    pub utilization_ppm: u64,
    /// Each budget over its deadline, the floor included, together, in millionths. At most a million is enough.
    pub density_ppm: u64,
    /// The interval that decides: the first that does not fit, else the tightest that was looked at. Absent if the
    /// density was enough, or the load was refused for another reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deciding: Option<DecidingInterval>,
    /// Whether a refusal is proof of a miss. If not, another test or another placement might have said yes.
    pub exact: bool,
}

/// An interval from a common release.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecidingInterval {
    /// The part that demands it: `band 0`, `floor` or `interrupts`.
    pub part: String,
    /// Its length.
    pub interval_ns: u64,
    /// What is due in it.
    pub demand_ns: u64,
    /// The time in it that is there for that.
    pub supply_ns: u64,
}

/// What was found of a context.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdmissionTask {
    /// Instance name.
    pub name: String,
    /// Its home; absent if it has none.
    pub cpu: Option<u32>,
    /// CPU time in each period, what others do on it included.
    pub budget_ns: u64,
    /// The period.
    pub period_ns: u64,
    /// The longest from a release until the budget has been had; absent if that has no bound.
    pub response_ns: Option<u64>,
    /// What that must not exceed.
    pub deadline_ns: u64,
    /// Its band, higher first.
    pub criticality: u8,
    /// The island that it is a node of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub island: Option<String>,
}

/// A program whose least demand is beyond its budget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdmissionProgram {
    /// The thread table.
    pub thread: String,
    /// The line of its longest `run` step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// The least that it runs...
    pub needs_ns: u64,
    /// ... in each of these.
    pub every_ns: u64,
    /// What its context grants...
    pub budget_ns: u64,
    /// ... in each of these.
    pub period_ns: u64,
}

/// A run in which everything on a CPU is released together and uses its whole budget in each period.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissTrace {
    /// What was refused: `CPU 0`, or `island studio on CPU 0`.
    pub refused: String,
    /// How far the run was looked at.
    pub until_ns: u64,
    /// Which task is late first; absent if none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub miss: Option<FirstMiss>,
    /// What ran up to then; empty if no task was late.
    pub schedule: Vec<ScheduleEntry>,
}

/// The task that was late first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstMiss {
    /// The context; `best effort` for the floor.
    pub who: String,
    /// When it was due.
    pub due_ns: u64,
    /// What it still wanted then.
    pub short_ns: u64,
}
