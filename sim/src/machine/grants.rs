//! The contexts of a workload: what each was granted, and by which table.

use crate::admission::Admission;
use mainspring_abi::{ContextRef, CpuId, CpuSet, Nanos};
use mainspring_driver::contexts::{self as driver, AdmissionRules, Contexts, HomeCpu};
use mainspring_driver::ledgers::Ledgers;
use mainspring_driver::sessions::{SessionRef, Sessions};
use mainspring_sched::Affinity;
use mainspring_sched::context::{ContextSpec, Overrun, Refill, Usage};
use mainspring_workload::{self as workload, ContextTarget, Workload};
use std::collections::TryReserveError;
use std::sync::Arc;

/// One context of the workload.
#[derive(Debug)]
pub(super) struct Grant {
    /// The name that it was granted with.
    pub who: ContextRef,
    /// Index of its table.
    pub table: usize,
    /// Where it is spent.
    pub home: usize,
    /// The refills that were logged last.
    pub shown: Vec<Refill>,
    /// Known here too, for callers that ask while the table is out for an operation.
    pub revoked: bool,
    /// What was used of it, if a thread had it when the run ended.
    pub usage: Option<Usage>,
    /// What it grants since when, in the order of time; nothing before the first, and nothing from `ended` on.
    pub terms: Vec<Terms>,
    pub ended: Option<Nanos>,
    /// The deadline that it missed last, as far as the core has told.
    pub missed_due: Option<Nanos>,
    /// Deadlines that it missed and that the core did not see, because nobody ran on it afterwards.
    pub unseen_misses: u64,
}

/// What a context grants from some time on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub since: Nanos,
    pub budget: Nanos,
    pub period: Nanos,
}

impl Grant {
    /// The most that could have been used until `now`: in each period that began the budget, or the time there was.
    pub(super) fn available(&self, now: Nanos) -> Nanos {
        let end = self.ended.unwrap_or(now).min(now);
        let ends = self.terms.iter().skip(1).map(|next| next.since).chain([end]);
        let during = |(terms, until): (&Terms, Nanos)| {
            let (time, period) = ((until - terms.since).get(), terms.period.get().max(1));
            let whole = terms.budget.get().saturating_mul(time / period);
            Nanos::new(whole.saturating_add(terms.budget.get().min(time % period)))
        };
        self.terms.iter().zip(ends).map(during).fold(Nanos::ZERO, |sum, part| sum + part)
    }
}

/// All contexts of the workload, in the order of their tables and instances, which is also the order of their
/// numbers.
#[derive(Debug)]
pub(super) struct Grants {
    pub list: Vec<Grant>,
    /// First context of each table.
    pub bases: Vec<usize>,
    /// The sessions of the workload.
    pub sessions: Vec<SessionRef>,
    /// Contexts that have come to rest during the operation in progress.
    pub at_rest: Vec<usize>,
    /// The reason of the revocation in progress.
    pub why_revoked: &'static str,
}

impl Grants {
    /// The contexts of the workload, with the table that they are in. Contexts of islands are withheld until their islands
    /// are admitted. `admission` has decided where each has its home.
    pub(super) fn new(
        workload: &Workload,
        admission: &Admission,
    ) -> Result<(Self, Contexts), TryReserveError> {
        let total = workload.contexts.iter().map(workload::ContextSpec::instances).sum();
        let sessions = Sessions::new(workload.sessions.len())?;
        let mut contexts = Contexts::new(total, AdmissionRules::default(), sessions, Ledgers::new(0)?)?;
        let names = workload.sessions.iter().filter_map(|_| contexts.sessions.open().ok()).collect();
        let mut grants = Self {
            list: Vec::new(),
            bases: Vec::new(),
            sessions: names,
            at_rest: Vec::new(),
            why_revoked: "",
        };
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
                let home = home.unwrap_or(CpuId::BOOT);
                let granted_to = driver::Grant {
                    session: None,
                    process: None,
                    ledger: None,
                    home: HomeCpu::Decided(home),
                };
                if let Ok(who) = contexts.grant(Nanos::ZERO, granted, granted_to) {
                    let withheld = admission.island_of(index).is_some();
                    let at_first = Terms { since: Nanos::ZERO, budget: spec.budget, period: spec.period };
                    let known = contexts.withhold(who, withheld, None);
                    debug_assert!(known.is_ok(), "it was granted just now");
                    grants.list.push(Grant {
                        who,
                        table,
                        home: home.index(),
                        shown: Vec::new(),
                        revoked: false,
                        usage: None,
                        terms: if withheld { Vec::new() } else { vec![at_first] },
                        ended: None,
                        missed_due: None,
                        unseen_misses: 0,
                    });
                }
            }
        }
        Ok((grants, contexts))
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
