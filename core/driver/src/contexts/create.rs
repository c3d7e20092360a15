//! Contexts are created: which caller may create one, what it may grant, and whether its deadlines hold.
//!
//! Conserved: what is created never grants more than what its creator holds, is charged to the creator's ledger, and keeps every
//! deadline that was promised before on the CPU where it has its home. A refusal says which of these would not hold.

use super::record::{Phase, Position, Record};
use super::{ContextError, Contexts};
use crate::ledgers::{Amounts, LedgerError, LedgerRef, Resource};
use crate::sessions::{SessionError, SessionRef};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use mainspring_abi::{ContextRef, CpuId, CpuSet, Nanos, ProcessId};
use mainspring_authority::admission::{Banded, CpuDenial, Load, Part, Task, judge_cpu};
use mainspring_sched::context::{Context, ContextSpec, SpecError, Usage};
use mainspring_sched::{Affinity, Floor};

/// What admission counts on, on every CPU alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionRules {
    /// The CPUs on which contexts may have their home.
    pub cpus: CpuSet,
    /// What best effort keeps.
    pub floor: Floor,
    /// Bounded work that precedes everything: interrupts.
    pub interrupts: Vec<Task>,
    /// What each release costs on top of its own work.
    pub overhead: Nanos,
}

impl Default for AdmissionRules {
    fn default() -> Self {
        Self { cpus: CpuSet::EMPTY, floor: Floor::NONE, interrupts: Vec::new(), overhead: Nanos::ZERO }
    }
}

/// Where a context has its home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HomeCpu {
    /// On the first CPU of its mask on which all deadlines hold by the exact test.
    Admitted,
    /// Here: the machine has decided about it, for instance for an island as a whole.
    Decided(CpuId),
}

/// What a context is granted with, by the machine itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// The session that it ends with.
    pub session: Option<SessionRef>,
    /// The process that it ends with.
    pub process: Option<ProcessId>,
    /// The ledger that it is charged to.
    pub ledger: Option<LedgerRef>,
    /// Where its time is set aside.
    pub home: HomeCpu,
}

/// More than the creator holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Excess {
    /// Of CPU time, in billionths of a CPU.
    Share {
        /// What was asked for.
        asked: u64,
        /// What the creator's context grants.
        held: u64,
    },
    /// A higher criticality band.
    Criticality {
        /// What was asked for.
        asked: u8,
        /// The creator's.
        held: u8,
    },
    /// A higher priority in the same band.
    Priority {
        /// What was asked for.
        asked: u16,
        /// The creator's.
        held: u16,
    },
    /// A CPU that the creator may not use.
    Cpu(CpuId),
    /// Deeper donation.
    Depth {
        /// What was asked for.
        asked: u8,
        /// The creator's.
        held: u8,
    },
}

/// Why no context was created; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreateError {
    /// The creator's name for its own context could not be used.
    Creator(ContextError),
    /// The grant makes no sense.
    Spec(SpecError),
    /// It would grant more than the creator holds.
    Exceeds(Excess),
    /// The session has ended.
    Session(SessionError),
    /// The ledger does not allow it.
    Ledger(LedgerError),
    /// Some deadline would not hold.
    NotAdmitted {
        /// On this CPU, the last that was tried.
        cpu: CpuId,
        /// What does not fit.
        denial: CpuDenial,
    },
    /// No CPU of the mask can be the home of a context.
    NoCpu,
    /// As many contexts live as there are places.
    Full {
        /// How many.
        capacity: usize,
    },
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Creator(error) => error.fmt(f),
            Self::Spec(error) => error.fmt(f),
            Self::Exceeds(excess) => excess.fmt(f),
            Self::Session(error) => error.fmt(f),
            Self::Ledger(error) => error.fmt(f),
            Self::NotAdmitted { cpu, denial: CpuDenial { part, denial } } => {
                let part = match part {
                    Part::Interrupts => "the interrupts",
                    Part::Band(_) => "its criticality band",
                    Part::Floor => "the floor of best effort",
                };
                write!(f, "{part} would not hold on {cpu:?}: {denial}; lower the budget or raise the period")
            }
            Self::NoCpu => f.write_str("none of its CPUs takes contexts; name another CPU"),
            Self::Full { capacity } => write!(f, "{capacity} contexts live, the most; revoke one first"),
        }
    }
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, asked, held) = match *self {
            Self::Share { asked, held } => ("billionths of a CPU", asked, held),
            Self::Criticality { asked, held } => ("as criticality", asked.into(), held.into()),
            Self::Priority { asked, held } => ("as priority", asked.into(), held.into()),
            Self::Depth { asked, held } => ("as depth of donation", asked.into(), held.into()),
            Self::Cpu(cpu) => return write!(f, "the creator may not use {cpu:?}; leave it out"),
        };
        write!(f, "{asked} {what} is more than the creator holds, which is {held}; ask for less")
    }
}

impl core::error::Error for CreateError {}

/// The CPU time that a grant guarantees, in billionths of a CPU, rounded up.
#[must_use]
pub fn share(spec: &ContextSpec) -> u64 {
    let parts = u128::from(spec.budget.get()) * 1_000_000_000;
    u64::try_from(parts.div_ceil(u128::from(spec.period.get().max(1)))).unwrap_or(u64::MAX)
}

/// What `wish` grants more than `held`.
fn excess(wish: &ContextSpec, held: &ContextSpec, cpus: &CpuSet) -> Option<Excess> {
    let (asked, limit) = (share(wish), share(held));
    if asked > limit {
        return Some(Excess::Share { asked, held: limit });
    }
    if wish.criticality > held.criticality {
        return Some(Excess::Criticality { asked: wish.criticality, held: held.criticality });
    }
    if wish.criticality == held.criticality && wish.priority > held.priority {
        return Some(Excess::Priority { asked: wish.priority, held: held.priority });
    }
    if wish.depth > held.depth {
        return Some(Excess::Depth { asked: wish.depth, held: held.depth });
    }
    let beyond = |cpu: &CpuId| wish.cpus.allows(*cpu) && !held.cpus.allows(*cpu);
    cpus.iter().find(beyond).map(Excess::Cpu)
}

/// What admission counts for a grant.
fn task(spec: &ContextSpec) -> Banded {
    let task = Task { cost: spec.budget, deadline: spec.deadline, period: spec.period };
    Banded { task, criticality: spec.criticality }
}

impl Contexts {
    /// The holder of the context `creator` creates another one, which belongs to the same session, process and ledger. It
    /// grants no more than `creator` does, fits the ledger, and takes no deadline away from another context.
    pub fn create(
        &mut self,
        now: Nanos,
        creator: ContextRef,
        spec: ContextSpec,
    ) -> Result<ContextRef, CreateError> {
        let index = self.live(creator).map_err(CreateError::Creator)?;
        spec.check().map_err(CreateError::Spec)?;
        let held = &self.records[index];
        if let Some(excess) = excess(&spec, &held.spec, &self.rules.cpus) {
            return Err(CreateError::Exceeds(excess));
        }
        let ledger = held.charge.map(|(ledger, _)| ledger);
        let grant = Grant { session: held.session, process: held.process, ledger, home: HomeCpu::Admitted };
        self.grant(now, spec, grant)
    }

    /// The machine itself grants a context, which is at rest. This is where its memory comes from: nothing that happens to it
    /// later needs more.
    pub fn grant(
        &mut self,
        now: Nanos,
        mut spec: ContextSpec,
        grant: Grant,
    ) -> Result<ContextRef, CreateError> {
        spec.check().map_err(CreateError::Spec)?;
        if let Some(session) = grant.session {
            self.sessions.check(session).map_err(CreateError::Session)?;
        }
        let amounts = Amounts::NONE.with(Resource::Contexts, 1).with(Resource::CpuShare, share(&spec));
        if let Some(ledger) = grant.ledger {
            self.ledgers.may_charge(ledger, &amounts).map_err(CreateError::Ledger)?;
        }
        let full = CreateError::Full { capacity: self.records.capacity() };
        let forgettable = self.records.iter().any(|record| matches!(record.position, Position::Gone));
        let id = self.last_id.checked_add(1).ok_or(full)?;
        if self.records.len() == self.records.capacity() && !forgettable {
            return Err(full);
        }
        let home = match grant.home {
            HomeCpu::Decided(home) => home,
            HomeCpu::Admitted => {
                let home = self.admit(&spec)?;
                // Its time is set aside there and nowhere else.
                spec.cpus = Affinity::Only(Arc::new([home].into_iter().collect()));
                home
            }
        };
        // Nothing is refused from here on.
        if let Some(ledger) = grant.ledger {
            let charged = self.ledgers.charge(ledger, &amounts);
            debug_assert_eq!(charged, Ok(()), "it was found to fit");
        }
        if self.records.len() == self.records.capacity()
            && let Some(oldest) =
                self.records.iter().position(|record| matches!(record.position, Position::Gone))
        {
            self.records.remove(oldest);
        }
        self.last_id = id;
        let who = ContextRef::new(id, 0);
        self.records.push(Record {
            id,
            generation: 0,
            issued: 0,
            phase: Phase::Live,
            position: Position::Rest(Box::new(Context::new(who, spec.clone(), now))),
            spec,
            home,
            owner: None,
            session: grant.session,
            process: grant.process,
            charge: grant.ledger.map(|ledger| (ledger, amounts)),
            withheld: false,
            usage: Usage::default(),
        });
        Ok(who)
    }

    /// The first CPU that `spec` allows on which all deadlines hold with it.
    fn admit(&self, spec: &ContextSpec) -> Result<CpuId, CreateError> {
        let mut refused = CreateError::NoCpu;
        for cpu in self.rules.cpus.iter().filter(|cpu| spec.cpus.allows(*cpu)) {
            match self.judge(cpu, spec) {
                None => return Ok(cpu),
                Some(denial) => refused = CreateError::NotAdmitted { cpu, denial },
            }
        }
        Err(refused)
    }

    /// Why `cpu` cannot keep all that was promised there if `spec` is added.
    fn judge(&self, cpu: CpuId, spec: &ContextSpec) -> Option<CpuDenial> {
        let promised = self.records.iter().filter(|record| {
            record.home == cpu && !record.withheld && !matches!(record.position, Position::Gone)
        });
        let tasks: Vec<Banded> = promised.map(|record| task(&record.spec)).chain([task(spec)]).collect();
        let AdmissionRules { floor, interrupts, overhead, .. } = &self.rules;
        let load = Load { tasks: &tasks, floor: Task::of_floor(*floor), interrupts, overhead: *overhead };
        judge_cpu(&load).denial
    }
}
