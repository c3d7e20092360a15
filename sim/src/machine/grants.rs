//! The contexts of a workload: what each was granted, and by which table.

use crate::admission::{Admission, floor};
use mainspring_abi::{ContextRef, CpuId, CpuSet, Nanos};
use mainspring_driver::contexts::{self as driver, AdmissionRules, Contexts, Effort, HomeCpu};
use mainspring_driver::ledgers::Ledgers;
use mainspring_driver::sessions::{SessionRef, Sessions};
use mainspring_record::terms::Terms;
use mainspring_sched::Affinity;
use mainspring_sched::context::{ContextSpec, Overrun, Refill, Usage};
use mainspring_workload::{self as workload, Numbering, Workload};
use std::collections::{BTreeMap, TryReserveError};
use std::sync::Arc;

/// One context of the workload.
#[derive(Debug)]
pub(super) struct Grant {
    /// The name that it was granted with. None while its island is not admitted, or if it has no home.
    pub who: Option<ContextRef>,
    /// Index of its table.
    pub table: usize,
    /// Where it is spent, if it was granted.
    pub home: Option<usize>,
    /// The refills that were logged last.
    pub shown: Vec<Refill>,
    /// Known here too, for callers that ask while the table is out for an operation.
    pub revoked: bool,
    /// The time used of it, if a thread had it when the run ended.
    pub usage: Option<Usage>,
    pub terms: Terms,
    /// The deadline that it missed last, as far as the core has told.
    pub missed_due: Option<Nanos>,
    /// Deadlines that it missed and that the core did not see, because no thread ran on it afterwards.
    pub unseen_misses: u64,
}

impl Grant {
    /// Its number, if it was granted.
    pub(super) fn id(&self) -> Option<u32> {
        self.who.map(ContextRef::id)
    }
}

/// All contexts of the workload, in the order of their tables and instances.
#[derive(Debug)]
pub(super) struct Grants {
    pub list: Vec<Grant>,
    /// By number, which context of the list was granted.
    numbered: BTreeMap<u32, usize>,
    /// The numbers of the contexts in the list.
    pub numbers: Numbering,
    /// The sessions of the workload.
    pub sessions: Vec<SessionRef>,
    /// Contexts that have come to rest during the operation in progress.
    pub at_rest: Vec<usize>,
    /// The reason of the revocation in progress.
    pub why_revoked: &'static str,
}

impl Grants {
    /// The contexts of the workload, with the table that they are in. A node of an island is granted when its island is
    /// admitted. `admission` has decided where each of the others has its home.
    pub(super) fn new(
        workload: &Workload,
        admission: &Admission,
    ) -> Result<(Self, Contexts), TryReserveError> {
        let total = workload.contexts.iter().map(workload::ContextSpec::instances).sum();
        let rules = AdmissionRules {
            cpus: CpuSet::first(workload.machine.cpus),
            floor: floor(workload),
            effort: Effort::FULL,
            ..AdmissionRules::default()
        };
        let sessions = Sessions::new(workload.sessions.len())?;
        let mut contexts = Contexts::new(total, rules, sessions, Ledgers::new(0)?)?;
        let names = workload.sessions.iter().filter_map(|_| contexts.sessions.open().ok()).collect();
        let mut grants = Self {
            list: Vec::new(),
            numbered: BTreeMap::new(),
            numbers: workload.context_numbers(),
            sessions: names,
            at_rest: Vec::new(),
            why_revoked: "",
        };
        for (table, spec) in workload.contexts.iter().enumerate() {
            for _ in 0..spec.instances() {
                let index = grants.list.len();
                grants.list.push(Grant {
                    who: None,
                    table,
                    home: None,
                    shown: Vec::new(),
                    revoked: false,
                    usage: None,
                    terms: Terms::default(),
                    missed_due: None,
                    unseen_misses: 0,
                });
                let Some(home) = admission.home(index) else { continue };
                let deadline = admission.contexts()[index].task.deadline.max(spec.budget);
                let granted = ContextSpec { deadline, ..granted(spec, home) };
                let granted_to = driver::Grant {
                    session: None,
                    process: None,
                    ledger: None,
                    home: HomeCpu::Decided(home),
                };
                if let Ok(who) = contexts.grant(Nanos::ZERO, granted, granted_to) {
                    grants.granted(index, who, home, Nanos::ZERO, (spec.budget, spec.period));
                }
            }
        }
        Ok((grants, contexts))
    }

    /// The context at `index` is granted from `now` on, as `who`.
    pub(super) fn granted(
        &mut self,
        index: usize,
        who: ContextRef,
        home: CpuId,
        now: Nanos,
        (budget, period): (Nanos, Nanos),
    ) {
        self.numbered.insert(who.id(), index);
        let grant = &mut self.list[index];
        (grant.who, grant.home) = (Some(who), Some(home.index()));
        grant.terms.begin(now, budget, period);
    }

    pub(super) fn index(&self, who: ContextRef) -> Option<usize> {
        let index = self.numbered(who.id())?;
        Some(index).filter(|index| self.list[*index].who == Some(who))
    }

    /// The context that was granted with the number `id`.
    pub(super) fn numbered(&self, id: u32) -> Option<usize> {
        self.numbered.get(&id).copied()
    }
}

/// What the table grants, to be spent on `home` only.
fn granted(spec: &workload::ContextSpec, home: CpuId) -> ContextSpec {
    ContextSpec {
        priority: spec.priority,
        criticality: spec.criticality,
        cpus: Affinity::Only(Arc::new([home].into_iter().collect())),
        refills: spec.refills.max(2),
        overrun: match spec.overrun {
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
