//! What is told of grants: of one that has ended, and of those that are live.

use crate::cgroup::Usage;
use crate::registry::Entry;
use crate::run::{Ended, Lateness, Outcome};
use mainspring_abi::Nanos;
use mainspring_report::{ContextReport, Report, ThreadReport};
use serde::Serialize;

/// What became of a program under a grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExecReport {
    /// Which machine ran it: `host`.
    pub machine: &'static str,
    /// The grant's id.
    pub id: String,
    /// The command line.
    pub command: Vec<String>,
    /// The exit code that a shell sees: the program's own, or 128 and its signal.
    pub status: u8,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// From its start to its end.
    pub wall_ns: u64,
    /// What was granted and used, as other machines report it. A depletion is a period that ended with the quota used
    /// up and work left; that is a miss as well.
    pub context: ContextReport,
    /// The CPUs it could use, as a list.
    pub cpus: String,
    /// What held it to its grant: `quota`, `deadline`, `cpuset`, `affinity`, `memory`.
    pub enforced: Vec<String>,
    /// The kernel's counters.
    pub usage: Usage,
    /// How the first thread fared under its deadline, from samples, if it had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lateness: Option<Lateness>,
    /// The memory it could use, if bounded.
    pub memory_bytes: Option<u64>,
    /// How many of its processes outlived it and were ended.
    pub outlived: usize,
    /// What should be known before the numbers are read.
    pub notices: Vec<String>,
}

impl From<&Outcome> for ExecReport {
    fn from(outcome: &Outcome) -> Self {
        let Outcome { entry, usage, .. } = outcome;
        let wall_ns = u64::try_from(outcome.wall.as_nanos()).unwrap_or(u64::MAX);
        let mut notices: Vec<String> = outcome
            .missing
            .iter()
            .map(|right| format!("{} is not enforced: {}", right.what, right.why))
            .collect();
        if outcome.lateness.is_some() {
            notices.push(
                "the kernel does not count how a SCHED_DEADLINE thread fares: its counts are from samples, and at least what \
                 happened; periods and held-back time are of the other threads and processes"
                    .to_owned(),
            );
        }
        let v1 = |group: &crate::cgroup::GroupDir| {
            group.version == crate::cgroup::Version::V1
                && group.controllers.iter().any(|name| name == "cpuset")
        };
        if entry.exclusive && entry.groups.iter().any(v1) {
            notices.push(
                "cgroup v1 keeps other groups off these CPUs; processes that are in no group below the root may still use them"
                    .to_owned(),
            );
        }
        Self {
            machine: "host",
            id: entry.id.clone(),
            command: entry.command.clone(),
            status: outcome.ended.status(),
            signal: match outcome.ended {
                Ended::Code(_) => None,
                Ended::Signal(signal) => Some(signal),
            },
            wall_ns,
            context: ContextReport {
                depletions: outcome
                    .lateness
                    .map_or(usage.throttled_periods.unwrap_or_default(), |told| told.used_up),
                misses: outcome
                    .lateness
                    .map_or(usage.throttled_periods.unwrap_or_default(), |told| told.late),
                ..context(entry, usage, wall_ns)
            },
            lateness: outcome.lateness,
            cpus: entry.cpus.clone(),
            enforced: entry.enforced.clone(),
            usage: *usage,
            memory_bytes: entry.memory_bytes,
            outlived: outcome.outlived,
            notices,
        }
    }
}

/// The row that other machines have for a context.
fn context(entry: &Entry, usage: &Usage, wall_ns: u64) -> ContextReport {
    // The kernel counts periods that have ended, and the last one has not. A program that sleeps begins none.
    let periods = (wall_ns / entry.period_ns.max(1)).max(usage.periods.unwrap_or_default()) + 1;
    let granted_ns = periods.saturating_mul(entry.budget_ns);
    let used_ns = usage.used_ns.unwrap_or_default();
    ContextReport {
        name: entry.name.clone(),
        cpu: match entry.homes[..] {
            [only] => Some(only),
            _ => None,
        },
        budget_ns: entry.budget_ns,
        period_ns: entry.period_ns,
        deadline_ns: entry.deadline_ns,
        granted_ns,
        used_ns,
        overshoot_max_ns: used_ns.saturating_sub(granted_ns),
        state: "ended".to_owned(),
        ..ContextReport::default()
    }
}

impl ExecReport {
    /// The report that other machines have, as far as there is anything to say: what `mainspring report` shows and makes pages of.
    /// `blank` is the report of a machine that decided nothing.
    #[must_use]
    pub fn in_full(&self, blank: Report) -> Report {
        let row = ThreadReport {
            name: self.context.name.clone(),
            runtime_ns: self.context.used_ns,
            misses: self.context.misses,
            ..ThreadReport::default()
        };
        let mut notices = vec![format!(
            "the kernel of this host decided; this is what it counted of `{}`",
            self.command.join(" ")
        )];
        notices.extend(self.text().lines().map(|line| line.trim_start_matches("! ").to_owned()));
        Report {
            machine: self.machine.to_owned(),
            wall_ns: self.wall_ns,
            duration_ns: self.wall_ns,
            threads: vec![row],
            contexts: vec![self.context.clone()],
            misses_total: self.context.misses,
            notices,
            ..blank
        }
    }

    /// For people, a few lines.
    #[must_use]
    pub fn text(&self) -> String {
        let time = |ns: u64| Nanos::new(ns).to_string();
        let context = &self.context;
        let mut lines = Vec::new();
        let ended = match self.signal {
            Some(signal) => format!("was ended by signal {signal}"),
            None => format!("ended with {}", self.status),
        };
        lines.push(format!("{}: {ended} after {}", context.name, time(self.wall_ns)));
        let due = match context.deadline_ns {
            deadline if deadline == context.period_ns => String::new(),
            deadline => format!(", due by {}", time(deadline)),
        };
        let held = if self.enforced.is_empty() { "nothing".to_owned() } else { self.enforced.join(", ") };
        lines.push(format!(
            "granted {} in each {}{due}, on CPUs {}; held by {held}",
            time(context.budget_ns),
            time(context.period_ns),
            self.cpus
        ));
        if let Some(used) = self.usage.used_ns {
            let per_mille = used.saturating_mul(1_000) / self.wall_ns.max(1);
            let share = format!("{}.{} % of one CPU", per_mille / 10, per_mille % 10);
            lines.push(format!("used {}, {share}", time(used)));
        }
        if let Some(Lateness { periods, used_up, late }) = self.lateness {
            lines.push(format!(
                "its first thread always wanted more in {periods} periods: used its budget up in {used_up}, had it late in \
                 {late}"
            ));
        }
        lines.extend(held_back(&self.usage));
        if let Some(stalled) = self.usage.stalled_ns.filter(|stalled| *stalled > 0) {
            lines.push(format!("ready but not running for {}, held back or behind others", time(stalled)));
        }
        if let (Some(most), Some(peak)) = (self.memory_bytes, self.usage.memory_peak_bytes) {
            let killed = match self.usage.oom_kills {
                None | Some(0) => String::new(),
                Some(killed) => format!("; {killed} ended for want of it"),
            };
            lines.push(format!("memory: at most {} of {}{killed}", bytes(peak), bytes(most)));
        }
        if self.outlived > 0 {
            lines.push(format!("{} of its processes outlived it and were ended", self.outlived));
        }
        lines.extend(self.notices.iter().map(|notice| format!("! {notice}")));
        lines.join("\n")
    }
}

fn held_back(usage: &Usage) -> Option<String> {
    let (periods, throttled) = (usage.periods.filter(|periods| *periods > 0)?, usage.throttled_periods?);
    let total = Nanos::new(usage.throttled_ns.unwrap_or_default());
    Some(format!("held back in {throttled} of {periods} periods, for {total} summed over CPUs"))
}

/// A size in the unit that a person would choose.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    let (unit, name) = match bytes {
        0..1_024 => return format!("{bytes} B"),
        1_024..1_048_576 => (1 << 10, "KiB"),
        1_048_576..1_073_741_824 => (1 << 20, "MiB"),
        _ => (1u64 << 30, "GiB"),
    };
    let tenths = bytes % unit * 10 / unit;
    if tenths == 0 { format!("{} {name}", bytes / unit) } else { format!("{}.{tenths} {name}", bytes / unit) }
}

/// A live grant, as `ps` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GrantReport {
    /// What was granted, and to which program.
    #[serde(flatten)]
    pub entry: Entry,
    /// The processes under it.
    pub processes: Vec<i32>,
    /// The kernel's counters.
    pub usage: Usage,
}

impl From<Entry> for GrantReport {
    fn from(entry: Entry) -> Self {
        Self { processes: entry.tree().processes(), usage: entry.tree().usage(), entry }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_print_in_the_unit_a_person_would_choose() {
        assert_eq!(bytes(100), "100 B");
        assert_eq!(bytes(64 << 20), "64 MiB");
        assert_eq!(bytes((1 << 30) + (1 << 29)), "1.5 GiB");
    }
}
