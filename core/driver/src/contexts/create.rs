//! Contexts are created: which caller may create one, what it may grant, and whether its deadlines hold.
//!
//! Conserved: what is created never grants more than what its creator holds, is charged to the creator's ledger, and keeps every
//! deadline that was promised before on the CPU where it has its home. A refusal says which of these would not hold.

use super::record::{Phase, Position, Record};
use super::{ContextError, ContextMachine, Contexts};
use crate::ledgers::{Amounts, LedgerError, LedgerRef, Resource};
use crate::sessions::{SessionError, SessionRef};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use mainspring_abi::{ContextRef, CpuId, CpuSet, Nanos, ProcessId};
use mainspring_authority::admission::{Banded, CpuDenial, Effort, Load, Part, Task, judge_cpu_within};
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
    /// The work that one decision may take, all CPUs that are tried together: a set that needs more is refused as undecided. A
    /// machine that decides with interrupts off sets a bound of its own.
    pub effort: Effort,
}

impl Default for AdmissionRules {
    fn default() -> Self {
        Self {
            cpus: CpuSet::EMPTY,
            floor: Floor::NONE,
            interrupts: Vec::new(),
            overhead: Nanos::ZERO,
            effort: Effort::ONLINE,
        }
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

/// The CPU time that a grant guarantees, in billionths of a CPU, rounded up: so much of each of its windows from a release to the
/// deadline, with the `overhead` of a release. Grants whose shares fit into a CPU can all be met there, whatever their periods: what
/// one ledger is charged with takes nothing away from what another may still grant.
#[must_use]
pub fn share(spec: &ContextSpec, overhead: Nanos) -> u64 {
    let parts = u128::from(spec.budget.get().saturating_add(overhead.get())) * 1_000_000_000;
    let window = spec.deadline.min(spec.period);
    u64::try_from(parts.div_ceil(u128::from(window.get().max(1)))).unwrap_or(u64::MAX)
}

/// What `wish` grants more than `held`.
fn excess(wish: &ContextSpec, held: &ContextSpec, cpus: &CpuSet) -> Option<Excess> {
    let (asked, limit) = (share(wish, Nanos::ZERO), share(held, Nanos::ZERO));
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
        self.create_for(now, creator, spec, self.records[index].process)
    }

    /// The same for `process`, which was given the context `creator` by its owner: what is created ends with that process. It is
    /// charged to the ledger of the owner, and ends with that too.
    pub fn create_for(
        &mut self,
        now: Nanos,
        creator: ContextRef,
        spec: ContextSpec,
        process: Option<ProcessId>,
    ) -> Result<ContextRef, CreateError> {
        let index = self.live(creator).map_err(CreateError::Creator)?;
        spec.check().map_err(CreateError::Spec)?;
        let held = &self.records[index];
        if let Some(excess) = excess(&spec, &held.spec, &self.rules.cpus) {
            return Err(CreateError::Exceeds(excess));
        }
        let ledger = held.charge.map(|(ledger, _)| ledger);
        let most = held.most.min(share(&held.spec, Nanos::ZERO));
        let grant = Grant { session: held.session, process, ledger, home: HomeCpu::Admitted };
        let made = self.grant(now, spec, grant)?;
        if let Some(record) = self.records.last_mut() {
            record.most = most;
        }
        Ok(made)
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
        let granted = share(&spec, self.rules.overhead);
        let amounts = Amounts::NONE.with(Resource::Contexts, 1).with(Resource::CpuShare, granted);
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
            share: granted,
            most: u64::MAX,
            owed: Default::default(),
            usage: Usage::default(),
        });
        let index = self.records.len() - 1;
        let from = self.room_from(index, now);
        self.postpone(index, from);
        Ok(who)
    }

    /// As [`Contexts::adjust`], if it grants no more than its creator held, the ledger of the context allows it, and every deadline
    /// that was promised on its CPU still holds. Where not all of them held before, because the machine itself decided who has its
    /// home there, terms that take no more than the present ones are taken.
    pub fn adjust_if_admitted<M: ContextMachine>(
        &mut self,
        machine: &mut M,
        now: Nanos,
        who: ContextRef,
        (budget, period, deadline): (Nanos, Nanos, Nanos),
    ) -> Result<(), CreateError> {
        let index = self.live(who).map_err(CreateError::Creator)?;
        let record = &self.records[index];
        let spec = ContextSpec { budget, period, deadline, ..record.spec.clone() };
        spec.check().map_err(CreateError::Spec)?;
        let wanted = share(&spec, Nanos::ZERO);
        if wanted > record.most {
            return Err(CreateError::Exceeds(Excess::Share { asked: wanted, held: record.most }));
        }
        let (home, charge) = (record.home, record.charge);
        let share_of = |amount| Amounts::NONE.with(Resource::CpuShare, amount);
        let (held, asked) = (
            charge.map_or(0, |(_, amounts)| amounts.get(Resource::CpuShare)),
            share(&spec, self.rules.overhead),
        );
        if let Some((ledger, _)) = charge.filter(|_| asked > held) {
            self.ledgers.may_charge(ledger, &share_of(asked - held)).map_err(CreateError::Ledger)?;
        }
        let judge = |spec| self.judge(home, spec, Some(index), &mut self.rules.effort.clone());
        let present = &record.spec;
        let takes_no_more =
            budget <= present.budget && period >= present.period && deadline >= present.deadline;
        if let Some(denial) = judge(&spec)
            && !(takes_no_more && judge(present).is_some())
        {
            return Err(CreateError::NotAdmitted { cpu: home, denial });
        }
        // Nothing is refused from here on.
        if let Some((ledger, amounts)) = charge {
            if asked > held {
                let charged = self.ledgers.charge(ledger, &share_of(asked - held));
                debug_assert_eq!(charged, Ok(()), "it was found to fit");
            } else {
                self.ledgers.refund(ledger, &share_of(held - asked));
            }
            self.records[index].charge = Some((ledger, amounts.with(Resource::CpuShare, asked)));
        }
        let adjusted = self.adjust(machine, now, who, (budget, period, deadline));
        debug_assert_eq!(adjusted, Ok(()), "the context is live, and the grant makes sense");
        Ok(())
    }

    /// The first CPU that `spec` allows on which all deadlines hold with it.
    fn admit(&self, spec: &ContextSpec) -> Result<CpuId, CreateError> {
        let (mut refused, mut effort) = (CreateError::NoCpu, self.rules.effort);
        for cpu in self.rules.cpus.iter().filter(|cpu| spec.cpus.allows(*cpu)) {
            match self.judge(cpu, spec, None, &mut effort) {
                None => return Ok(cpu),
                Some(denial) => refused = CreateError::NotAdmitted { cpu, denial },
            }
        }
        Err(refused)
    }

    /// Why `cpu` cannot keep all that was promised there if `spec` is added, in place of the record at `instead` if that is given.
    fn judge(
        &self,
        cpu: CpuId,
        spec: &ContextSpec,
        instead: Option<usize>,
        effort: &mut Effort,
    ) -> Option<CpuDenial> {
        let promised = self.records.iter().enumerate().filter(|(index, record)| {
            let counts = record.home == cpu && Some(*index) != instead;
            counts && !matches!(record.position, Position::Gone)
        });
        let promised = promised.map(|(_, record)| task(&record.spec));
        let tasks: Vec<Banded> = promised.chain([task(spec)]).collect();
        let AdmissionRules { floor, interrupts, overhead, .. } = &self.rules;
        let load = Load { tasks: &tasks, floor: Task::of_floor(*floor), interrupts, overhead: *overhead };
        judge_cpu_within(&load, effort).denial
    }
}
