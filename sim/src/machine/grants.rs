//! The contexts of a workload: what each was granted, and who owns and has it now.

use crate::admission::Admission;
use mainspring_abi::{ContextRef, CpuId, CpuSet, Nanos};
use mainspring_sched::Affinity;
use mainspring_sched::context::{ContextSpec, Overrun, Refill, Registry, Usage};
use mainspring_workload::{self as workload, ContextTarget, Workload};
use std::sync::Arc;

/// One context of the workload.
#[derive(Debug)]
pub(super) struct Grant {
    /// Its present name.
    pub who: ContextRef,
    /// Index of its table.
    pub table: usize,
    /// Where it is spent.
    pub home: usize,
    /// The thread that it is bound to.
    pub owner: Option<u32>,
    /// The thread that has it now.
    pub holder: Option<u32>,
    /// What was used of it, as far as its value is not at hand.
    pub usage: Usage,
    /// The refills that were logged last.
    pub shown: Vec<Refill>,
    pub revoked: bool,
    /// Its island was refused or has left: nobody may bind it.
    pub withheld: bool,
}

/// All contexts of the workload, in the order of their tables and instances, which is also that of their numbers.
#[derive(Debug)]
pub(super) struct Grants {
    pub registry: Registry,
    pub list: Vec<Grant>,
    /// First context of each table.
    pub bases: Vec<usize>,
    /// Loans that a session's end found in flight.
    pub inflight_skipped: u64,
}

impl Grant {
    /// As the report calls it.
    pub(super) fn state(&self) -> &'static str {
        match (self.revoked, self.owner, self.holder) {
            (true, ..) => "revoked",
            (false, Some(owner), Some(holder)) if owner != holder => "donated",
            (false, Some(_), _) => "bound",
            (false, None, _) => "shelved",
        }
    }
}

impl Grants {
    /// The contexts of islands are withheld until their islands are admitted.
    pub(super) fn new(workload: &Workload, admission: &Admission) -> Self {
        let mut grants =
            Self { registry: Registry::new(), list: Vec::new(), bases: Vec::new(), inflight_skipped: 0 };
        let total = workload.contexts.iter().map(workload::ContextSpec::instances).sum();
        // A registry without room refuses what it is asked to create.
        let _ = grants.registry.reserve(total);
        for (table, spec) in workload.contexts.iter().enumerate() {
            grants.bases.push(grants.list.len());
            for _ in 0..spec.instances() {
                let index = grants.list.len();
                let home = admission.home(index);
                // A node of an island is told later which of them is its home.
                let cpus = home.map_or(admission.contexts()[index].cpus, |home| [home].into_iter().collect());
                let cpus = if cpus.is_empty() { [CpuId::BOOT].into_iter().collect() } else { cpus };
                // A node that says nothing about overruns does what its island says.
                let overrun = match (spec.overrun, admission.island_of(index)) {
                    (workload::Overrun::Throttle, Some(island)) => workload.islands[island].overrun,
                    (own, _) => own,
                };
                let deadline = admission.contexts()[index].task.deadline.max(spec.budget);
                let granted = ContextSpec { deadline, ..granted(spec, overrun, cpus) };
                if let Ok(who) = grants.registry.create(Nanos::ZERO, granted) {
                    grants.list.push(Grant {
                        who,
                        table,
                        home: home.map_or(0, CpuId::index),
                        owner: None,
                        holder: None,
                        usage: Usage::default(),
                        shown: Vec::new(),
                        revoked: false,
                        withheld: admission.island_of(index).is_some(),
                    });
                }
            }
        }
        grants
    }

    /// The contexts that `target` names.
    pub(super) fn named(&self, workload: &Workload, target: ContextTarget) -> std::ops::Range<usize> {
        let base = self.bases[target.context];
        match target.instance {
            Some(instance) => base + instance as usize..base + instance as usize + 1,
            None => base..base + workload.contexts[target.context].instances(),
        }
    }

    pub(super) fn index(&self, who: ContextRef) -> Option<usize> {
        let index = (who.id() as usize).checked_sub(1)?;
        self.list.get(index).filter(|grant| grant.who == who).map(|_| index)
    }
}

/// What the table grants, to be spent on `cpus` only.
fn granted(spec: &workload::ContextSpec, overrun: workload::Overrun, cpus: CpuSet) -> ContextSpec {
    ContextSpec {
        priority: spec.priority,
        criticality: spec.criticality,
        cpus: Affinity::Only(Arc::new(cpus)),
        refills: spec.refills.max(2),
        overrun: match overrun {
            workload::Overrun::Throttle => Overrun::Throttle,
            workload::Overrun::Fault => Overrun::Fault,
            workload::Overrun::Notify => Overrun::Notify,
            workload::Overrun::Shutdown => Overrun::Shutdown,
        },
        timeout_endpoint: spec.timeout_endpoint.map(|endpoint| endpoint as u32),
        depth: spec.depth,
        ..ContextSpec::new(spec.budget, spec.period)
    }
}
