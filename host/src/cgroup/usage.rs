//! What a grant's groups have used, from the kernel's own counters.

use super::{GroupSet, Version};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// What the processes of a grant have used. What the host does not count is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time.
    pub used_ns: Option<u64>,
    /// Periods of the quota in which a process could run.
    pub periods: Option<u64>,
    /// Periods that ended with the quota used up and work left.
    pub throttled_periods: Option<u64>,
    /// How long runnable processes were held back by the quota, summed over CPUs.
    pub throttled_ns: Option<u64>,
    /// How long a process was runnable and did not run: behind others, or held back by the quota.
    pub stalled_ns: Option<u64>,
    /// Memory in use.
    pub memory_bytes: Option<u64>,
    /// The most memory that was in use at once.
    pub memory_peak_bytes: Option<u64>,
    /// Processes that the kernel ended for want of memory.
    pub oom_kills: Option<u64>,
    /// Processes at the moment.
    pub processes: Option<u64>,
}

impl GroupSet {
    /// What the groups' counters say now.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for group in self.iter() {
            match group.version {
                Version::V1 => read_v1(&group.directory, &mut usage),
                Version::V2 => read_v2(&group.directory, &mut usage),
            }
        }
        usage.processes = self.tracks().then(|| self.processes().len() as u64);
        usage
    }
}

fn read_v1(directory: &Path, usage: &mut Usage) {
    if let Some(used) = number(directory, "cpuacct.usage") {
        usage.used_ns = Some(used);
    }
    if let Some(stat) = text(directory, "cpu.stat") {
        usage.periods = field(&stat, "nr_periods");
        usage.throttled_periods = field(&stat, "nr_throttled");
        usage.throttled_ns = field(&stat, "throttled_time");
    }
    if let Some(memory) = number(directory, "memory.usage_in_bytes") {
        usage.memory_bytes = Some(memory);
        usage.memory_peak_bytes = number(directory, "memory.max_usage_in_bytes");
        usage.oom_kills =
            text(directory, "memory.oom_control").and_then(|control| field(&control, "oom_kill"));
    }
}

fn read_v2(directory: &Path, usage: &mut Usage) {
    let micros = |stat: &str, name: &str| field(stat, name).map(|us| us.saturating_mul(1_000));
    if let Some(stat) = text(directory, "cpu.stat") {
        // The v1 counter, where there is one, is finer.
        usage.used_ns = usage.used_ns.or_else(|| micros(&stat, "usage_usec"));
        if let Some(periods) = field(&stat, "nr_periods") {
            usage.periods = Some(periods);
            usage.throttled_periods = field(&stat, "nr_throttled");
            usage.throttled_ns = micros(&stat, "throttled_usec");
        }
    }
    if let Some(pressure) = text(directory, "cpu.pressure") {
        let some = pressure.lines().find(|line| line.starts_with("some"));
        let total = some.and_then(|line| line.split_once("total=")).map(|(_, total)| total.trim());
        usage.stalled_ns = total.and_then(|total| total.parse().ok()).map(|us: u64| us.saturating_mul(1_000));
    }
    if let Some(memory) = number(directory, "memory.current") {
        usage.memory_bytes = Some(memory);
        usage.memory_peak_bytes = number(directory, "memory.peak");
        usage.oom_kills = text(directory, "memory.events").and_then(|events| field(&events, "oom_kill"));
    }
}

fn text(directory: &Path, file: &str) -> Option<String> {
    fs::read_to_string(directory.join(file)).ok()
}

fn number(directory: &Path, file: &str) -> Option<u64> {
    text(directory, file)?.trim().parse().ok()
}

/// The value of a line `name value`.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_by_its_whole_name() {
        let stat = "nr_periods 12\nnr_throttled 5\nthrottled_time 1234\n";
        assert_eq!(field(stat, "nr_periods"), Some(12));
        assert_eq!(field(stat, "throttled_time"), Some(1234));
        assert_eq!(field(stat, "throttled"), None);
        assert_eq!(field(stat, "nr"), None);
    }
}
