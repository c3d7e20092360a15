//! Whether one more grant fits beside those that were made before.
//!
//! Each grant is a sporadic task of `core/authority`'s exact test: its budget in each period, due by its deadline. A
//! budget of more than one CPU is split evenly into as few tasks as it takes. Each CPU keeps the default floor for
//! all programs that were granted nothing.

use crate::cpu_list;
use crate::error::Refusal;
use mainspring_abi::{CpuId, CpuSet, Nanos};
use mainspring_authority::admission::{self, Candidate, Denial, Task, survey};
use mainspring_sched::Floor;

/// What admission counts of a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What to call it.
    pub name: String,
    /// CPU time in each period.
    pub budget: Nanos,
    /// The period.
    pub period: Nanos,
    /// From the start of a period to the time by which the budget is due.
    pub deadline: Nanos,
    /// Where it may run.
    pub cpus: CpuSet,
}

impl Claim {
    /// The tasks: each has at most one CPU's worth.
    fn tasks(&self) -> Vec<Candidate> {
        let parts = self.budget.get().div_ceil(self.deadline.get().max(1)).max(1);
        let cost = Nanos::new(self.budget.get().div_ceil(parts));
        let task = Task { cost, deadline: self.deadline, period: self.period };
        let candidate = Candidate { name: self.name.clone(), task, criticality: 0, cpus: self.cpus };
        vec![candidate; parts as usize]
    }

    fn describe(&self) -> String {
        let due =
            if self.deadline == self.period { String::new() } else { format!(", due by {}", self.deadline) };
        format!(
            "{}: {} in each {}{due}, on CPUs {}",
            self.name,
            self.budget,
            self.period,
            cpu_list(&self.cpus)
        )
    }
}

/// Whether `asked` fits on `cpus` beside `granted`, and on which CPUs it is counted.
///
/// # Errors
/// What does not fit, and what is there already.
pub fn admit(granted: &[Claim], asked: &Claim, cpus: &CpuSet) -> Result<Vec<CpuId>, Refusal> {
    let mut candidates: Vec<Candidate> = granted.iter().flat_map(Claim::tasks).collect();
    let own = candidates.len();
    candidates.extend(asked.tasks());
    let found = survey(&candidates, cpus, Floor::DEFAULT, Nanos::ZERO);
    if found.is_admitted() {
        return Ok(found.tasks[own..].iter().filter_map(|task| task.cpu).collect());
    }
    Err(Refusal {
        asked: asked.describe(),
        reasons: found.refusals.iter().map(|refusal| reason(refusal, &candidates)).collect(),
        granted: granted.iter().map(Claim::describe).collect(),
    })
}

fn reason(refusal: &admission::Refusal, candidates: &[Candidate]) -> String {
    match refusal {
        admission::Refusal::Nowhere { task } => {
            format!("{}: none of its CPUs is usable here", candidates[*task].name)
        }
        admission::Refusal::Malformed { task } => {
            format!(
                "{}: its deadline is shorter than its budget or longer than its period",
                candidates[*task].name
            )
        }
        admission::Refusal::Cpu { cpu, denial, exact, .. } => {
            let floor = Floor::DEFAULT.ppm() / 10_000;
            let sure = if *exact { "" } else { "; no placement on other CPUs was found" };
            match denial {
                Denial::Overload => format!(
                    "CPU {cpu}: more CPU time is asked for than there is beside the {floor} % that everybody else \
                     keeps{sure}"
                ),
                other => format!("CPU {cpu}: {other}, with {floor} % kept for everybody else{sure}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(name: &str, budget_ms: u64, period_ms: u64, cpus: CpuSet) -> Claim {
        let period = Nanos::from_millis(period_ms);
        Claim { name: name.into(), budget: Nanos::from_millis(budget_ms), period, deadline: period, cpus }
    }

    #[test]
    fn a_grant_fits_until_a_cpu_is_full_to_the_floor() {
        let one = CpuSet::first(1);
        let first = claim("first", 60, 100, one);
        assert_eq!(admit(&[], &first, &one), Ok(vec![CpuId::BOOT]));
        assert!(admit(std::slice::from_ref(&first), &claim("second", 35, 100, one), &one).is_ok(), "95 %");
        let refusal = admit(&[first], &claim("second", 36, 100, one), &one).expect_err("96 %");
        assert_eq!(refusal.asked, "second: 36ms in each 100ms, on CPUs 0");
        assert_eq!(refusal.granted, ["first: 60ms in each 100ms, on CPUs 0"]);
        assert!(refusal.reasons[0].starts_with("CPU 0: "), "{refusal:?}");
    }

    #[test]
    fn a_budget_of_several_cpus_is_split_evenly() {
        let two = CpuSet::first(2);
        let wide = claim("wide", 150, 100, two);
        assert_eq!(wide.tasks().len(), 2);
        assert_eq!(admit(&[], &wide, &two).expect("fits").len(), 2);
        assert!(
            admit(std::slice::from_ref(&wide), &claim("rest", 20, 100, two), &two).is_ok(),
            "75 + 20 + 5"
        );
        assert!(admit(&[wide], &claim("rest", 21, 100, two), &two).is_err());
    }

    #[test]
    fn a_constrained_deadline_is_tested_exactly_and_not_by_its_share() {
        let one = CpuSet::first(1);
        let due = |name: &str, deadline| Claim {
            deadline: Nanos::from_millis(deadline),
            ..claim(name, 3, 10, one)
        };
        // 65 % of the CPU with the floor, and yet 6 ms are due within 5 ms.
        let refusal = admit(&[due("pose", 4)], &due("grip", 5), &one).expect_err("refused");
        assert!(refusal.reasons[0].contains("6ms is due within 5ms"), "{refusal:?}");
        assert!(admit(&[due("pose", 4)], &due("grip", 10), &one).is_ok());
    }
}
