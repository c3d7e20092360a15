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

/// The claims as they are beside `leases`, which are the CPUs that one grant each has to itself: everybody else is counted on the
/// others. With `exclusive`, `asked` is such a lease itself.
///
/// # Errors
/// If `asked` wants a CPU that is leased, or wants those alone that another grant cannot do without.
pub fn beside_leases(
    granted: &[Claim],
    asked: &Claim,
    leases: &[(String, CpuSet)],
    exclusive: bool,
) -> Result<(Vec<Claim>, Claim), Refusal> {
    let refused = |reason: String| Refusal {
        asked: asked.describe(),
        reasons: vec![reason],
        granted: granted.iter().map(Claim::describe).collect(),
    };
    let without =
        |cpus: &CpuSet, taken: &CpuSet| cpus.iter().filter(|cpu| !taken.contains(*cpu)).collect::<CpuSet>();
    let mut asked_cpus = asked.cpus;
    for (name, cpus) in leases {
        // A program that may run anywhere runs elsewhere.
        let left = without(&asked_cpus, cpus);
        if left.is_empty() || exclusive && !asked.cpus.and(cpus).is_empty() {
            return Err(refused(format!("CPUs {}: {name} has them to itself", cpu_list(cpus))));
        }
        asked_cpus = left;
    }
    let mut others = Vec::new();
    for claim in granted {
        let own = leases.iter().find(|(name, _)| *name == claim.name);
        let mut cpus = claim.cpus;
        for (_, taken) in leases.iter().filter(|lease| own.is_none_or(|own| own.0 != lease.0)) {
            cpus = without(&cpus, taken);
        }
        if exclusive {
            cpus = without(&cpus, &asked.cpus);
        }
        if cpus.is_empty() {
            return Err(refused(format!("{} may run on no other CPUs", claim.name)));
        }
        others.push(Claim { cpus, ..claim.clone() });
    }
    Ok((others, Claim { cpus: asked_cpus, ..asked.clone() }))
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
    fn a_leased_cpu_is_nobody_elses() {
        let cpu = |number: usize| -> CpuSet { [CpuId::new(number).expect("small")].into_iter().collect() };
        let all = CpuSet::first(2);
        let leases = [("lessee".to_owned(), cpu(1))];
        let lessee = claim("lessee", 10, 100, cpu(1));
        let (others, asked) =
            beside_leases(std::slice::from_ref(&lessee), &claim("new", 90, 100, all), &leases, false)
                .expect("CPU 0 is free");
        assert_eq!((others[0].cpus, asked.cpus), (cpu(1), cpu(0)));
        assert_eq!(admit(&others, &asked, &all).expect("it fits").len(), 1);
        let confined = claim("confined", 1, 100, cpu(1));
        let refusal = beside_leases(std::slice::from_ref(&lessee), &confined, &leases, false)
            .expect_err("it is leased");
        assert!(refusal.reasons[0].contains("lessee"), "{refusal:?}");
        // A lease is refused where it would leave another grant nowhere, or where there is one.
        let asked = claim("second", 1, 100, cpu(1));
        assert!(beside_leases(&[confined], &asked, &[], true).is_err());
        assert!(beside_leases(&[lessee], &asked, &leases, true).is_err());
        let roaming = claim("roaming", 50, 100, all);
        let (others, _) = beside_leases(&[roaming], &asked, &[], true).expect("it can go to CPU 0");
        assert_eq!(others[0].cpus, cpu(0));
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
