//! What a node can carry, and what is reserved of it.
//!
//! Conserved: what is reserved of a node passes the exact test of admission: every deadline holds on some partition of its CPUs, and the
//! sum of memory is at most what there is. Whatever cannot be decided is refused.

use mainspring_abi::{CpuSet, Nanos};
use mainspring_authority::admission::{Candidate, Task, survey};
use mainspring_sched::Floor;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// At most so many reservations on one node.
pub const MOST_RESERVED: usize = 512;

/// What an actor asks of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    /// CPU time for each of its periods, in microseconds.
    pub cost_us: u64,
    /// Until when it needs that, from the period's begin.
    pub deadline_us: u64,
    /// The period.
    pub period_us: u64,
    /// Bytes.
    pub memory: u64,
}

impl Demand {
    /// So many parts of a hundred of one CPU, over periods of 100 ms, and no memory.
    pub fn percent(percent: u64) -> Self {
        Self { cost_us: percent * 1_000, deadline_us: 100_000, period_us: 100_000, memory: 0 }
    }

    fn task(&self) -> Option<Task> {
        let nanos = |us: u64| us.checked_mul(1_000).map(Nanos::new);
        Some(Task {
            cost: nanos(self.cost_us)?,
            deadline: nanos(self.deadline_us)?,
            period: nanos(self.period_us)?,
        })
    }

    /// Millionths of one CPU, rounded up.
    pub fn ppm(&self) -> u128 {
        (u128::from(self.cost_us) * 1_000_000).div_ceil(u128::from(self.period_us.max(1)))
    }
}

/// What a node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// CPUs.
    pub cpus: u32,
    /// What each CPU keeps for everything else, in millionths.
    pub floor_ppm: u32,
    /// Bytes.
    pub memory: u64,
}

/// What is reserved for one generation of one actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserved {
    /// The generation.
    pub generation: u64,
    /// How much.
    pub demand: Demand,
}

/// The record of a node's capacity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Of this incarnation of the node.
    pub incarnation: u64,
    /// What it has.
    pub capacity: Capacity,
    /// The kinds of actors that it can start.
    pub kinds: Vec<String>,
    /// What is reserved, by the actor's name.
    pub reserved: BTreeMap<String, Reserved>,
}

impl Load {
    /// Whether the node can carry `demand` for this actor, beside all others that it has reserved.
    pub fn admits(&self, actor: &str, demand: &Demand) -> bool {
        let others = self.reserved.iter().filter(|(name, _)| *name != actor);
        let all: Vec<&Demand> = others.map(|(_, reserved)| &reserved.demand).chain([demand]).collect();
        self.carries(&all)
    }

    /// Whether the node carries all that is reserved.
    pub fn is_admitted(&self) -> bool {
        let all: Vec<&Demand> = self.reserved.values().map(|reserved| &reserved.demand).collect();
        self.carries(&all)
    }

    fn carries(&self, demands: &[&Demand]) -> bool {
        let memory: u128 = demands.iter().map(|demand| u128::from(demand.memory)).sum();
        if demands.len() > MOST_RESERVED || memory > u128::from(self.capacity.memory) {
            return false;
        }
        let Ok(floor) = Floor::from_ppm(self.capacity.floor_ppm) else { return false };
        let cpus = CpuSet::first(self.capacity.cpus as usize);
        let candidates: Option<Vec<Candidate>> = demands
            .iter()
            .map(|demand| Some(Candidate { name: String::new(), task: demand.task()?, criticality: 0, cpus }))
            .collect();
        candidates.is_some_and(|candidates| survey(&candidates, &cpus, floor, Nanos::new(0)).is_admitted())
    }

    /// What is reserved of all its CPUs together, in millionths of one.
    pub fn reserved_ppm(&self) -> u128 {
        self.reserved.values().map(|reserved| reserved.demand.ppm()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(cpus: u32, demands: &[Demand]) -> Load {
        let reserved = demands.iter().enumerate();
        Load {
            incarnation: 1,
            capacity: Capacity { cpus, floor_ppm: 50_000, memory: 100 },
            kinds: Vec::new(),
            reserved: reserved
                .map(|(n, demand)| (format!("a/{n}"), Reserved { generation: 1, demand: *demand }))
                .collect(),
        }
    }

    #[test]
    fn what_fits_exactly_is_admitted_and_one_more_is_not() {
        assert!(load(1, &[Demand::percent(60)]).admits("a/b", &Demand::percent(35)));
        assert!(!load(1, &[Demand::percent(60)]).admits("a/b", &Demand::percent(36)));
        // Two CPUs do not carry three times sixty, though the sum would fit: an actor is on one CPU at a time.
        assert!(!load(2, &[Demand::percent(60), Demand::percent(60)]).admits("a/b", &Demand::percent(60)));
        assert!(load(2, &[Demand::percent(60), Demand::percent(60)]).admits("a/b", &Demand::percent(35)));
        // Its own reservation is replaced, not added.
        assert!(load(1, &[Demand::percent(60)]).admits("a/0", &Demand::percent(95)));
    }

    #[test]
    fn deadlines_count_and_not_only_sums() {
        let tight = Demand { cost_us: 30_000, deadline_us: 30_000, period_us: 100_000, memory: 0 };
        assert!(load(1, &[]).admits("a/b", &tight));
        assert!(!load(1, &[tight]).admits("a/b", &tight), "both are due at once");
    }

    #[test]
    fn memory_is_a_sum_without_overflow() {
        let with = |memory| Demand { memory, ..Demand::percent(1) };
        assert!(load(1, &[with(60)]).admits("a/b", &with(40)));
        assert!(!load(1, &[with(60)]).admits("a/b", &with(41)));
        assert!(!load(1, &[with(60)]).admits("a/b", &with(u64::MAX)));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let zero = Demand { cost_us: 0, ..Demand::percent(1) };
        let huge = Demand { cost_us: u64::MAX, deadline_us: u64::MAX, period_us: u64::MAX, memory: 0 };
        for demand in [zero, huge, Demand { deadline_us: 1, ..Demand::percent(10) }] {
            assert!(!load(1, &[]).admits("a/b", &demand), "{demand:?}");
        }
        let mut bad = load(1, &[]);
        bad.capacity.floor_ppm = u32::MAX;
        assert!(!bad.admits("a/b", &Demand::percent(1)));
    }
}
