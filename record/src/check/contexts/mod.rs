//! Which thread may use which context's CPU time, and how much of it: a model of every context, kept from events
//! alone.
//!
//! * A context is in one place: with one thread, on its way, or on a shelf. A thread that has lent one is not made ready.
//! * Its [`refills`] say when how much of it may be used; what was used is the sum of the intervals that its holders ran.
//! * The [`overshoot`] that the core reports is the one that was observed.
//! * At each decision the most urgent of the threads that are ready on contexts runs, unless best effort insists on
//!   its [`floor`]; see `choice`.
//!
//! It is brought up to date before the [`MachineModel`], which takes from it which threads wait for a refill.

mod choice;
mod events;
pub mod floor;
pub mod overshoot;
pub mod refills;

use super::machine_model::MachineModel;
use super::observation::{AuthorityCopy, ContextCopy};
use super::{Setting, ensure};
use floor::Floor;
use mainspring_abi::{ContextRef, Nanos, ThreadRef};
use mainspring_sched::context::{ContextSpec, Overrun};
use mainspring_sched::{Authority, Cpu, Seat};
use overshoot::Overshoot;
use refills::RefillModel;
use std::collections::{BTreeMap, BTreeSet};

/// On what a thread that is ready or running competes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// Its share of what is left.
    Fair,
    /// Its context.
    Context,
    /// Nothing: it waits for the next refill.
    Throttled,
}

/// What a thread has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// No context.
    None,
    /// It holds this context.
    Holds(ContextRef),
    /// It has lent this context.
    Lent(ContextRef),
}

/// A thread, as far as contexts go.
#[derive(Clone, Debug)]
struct Holder {
    thread: ThreadRef,
    right: Right,
    queue: QueueKind,
    /// When the refill comes that it waits for, throttled or going on without.
    refill: Option<u64>,
}

/// A context, wherever it is.
#[derive(Clone, Debug)]
pub struct Grant {
    spec: ContextSpec,
    refills: RefillModel,
    overshoot: Overshoot,
    used: u64,
    donated: u64,
    donors: Vec<ThreadRef>,
    /// Whether time counts.
    active: bool,
    /// When it was last paused, and the release that it was at.
    paused: Option<(u64, u64)>,
    /// The thread that it is with, if that sits on a CPU.
    seated: Option<ThreadRef>,
}

/// What the contexts of one CPU need to be known of.
#[derive(Clone, Debug)]
pub struct CpuContexts {
    /// How many threads here hold a context.
    pub holders: usize,
    /// When the last of them went.
    none_since: Option<u64>,
    /// Whether the running thread runs on one.
    pub on_context: bool,
    /// When the running interval began.
    since: u64,
    /// Ready on contexts.
    ready: BTreeSet<u32>,
    /// Refills that a thread waits for, and which thread.
    refills: BTreeSet<(u64, u32)>,
    /// The contexts here.
    here: BTreeMap<ContextRef, floor::Claim>,
    floor: Floor,
    /// The most that best effort may run until the next decision, by right of its floor.
    pub cap: Option<u64>,
}

/// How often each thing happened: a test that trusts the checkers asserts that they had something to check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Decisions for a context.
    pub on_contexts: u64,
    /// Decisions for best effort by right of its floor, while a context was ready.
    pub by_floor: u64,
    /// Threads that had to wait for a refill.
    pub throttled: u64,
    /// Threads that went on without their context until the refill.
    pub went_on: u64,
    /// Refills that a thread waited for.
    pub refilled: u64,
    /// Loans.
    pub lent: u64,
    /// Timed waits that ended while the context was away.
    pub expired_away: u64,
}

/// All contexts.
#[derive(Debug)]
pub struct Grants {
    punctual: bool,
    holders: Vec<Option<Holder>>,
    grants: BTreeMap<ContextRef, Grant>,
    cpus: Vec<CpuContexts>,
    tally: Tally,
    /// The threads whose refill came at the last event, but for the running one, and on what they competed before.
    pub(super) refilled: Vec<(ThreadRef, QueueKind)>,
}

impl Grants {
    /// No contexts yet.
    #[must_use]
    pub fn new(setting: &Setting) -> Self {
        let cpu_contexts = CpuContexts {
            holders: 0,
            none_since: None,
            on_context: false,
            since: 0,
            ready: BTreeSet::new(),
            refills: BTreeSet::new(),
            here: BTreeMap::new(),
            floor: Floor::new(setting.floor_ppm),
            cap: None,
        };
        Self {
            punctual: setting.punctual,
            holders: Vec::new(),
            grants: BTreeMap::new(),
            cpus: vec![cpu_contexts; setting.cpus],
            tally: Tally::default(),
            refilled: Vec::new(),
        }
    }

    /// How often what happened.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// CPU number `cpu`.
    #[must_use]
    pub fn cpu_contexts(&self, cpu: usize) -> &CpuContexts {
        &self.cpus[cpu]
    }

    /// The furthest that each context was run past its budget, by its number.
    pub fn overshoots(&self) -> impl Iterator<Item = (u32, Nanos)> + '_ {
        self.grants.iter().map(|(who, grant)| (who.id(), Nanos::new(grant.overshoot.most())))
    }

    /// What `thread` has.
    #[must_use]
    pub fn right(&self, thread: ThreadRef) -> Right {
        self.holder(thread).map_or(Right::None, |holder| holder.right)
    }

    /// On what `thread`, which is ready or running, competes.
    #[must_use]
    pub fn queue(&self, thread: ThreadRef) -> QueueKind {
        self.holder(thread).map_or(QueueKind::Fair, |holder| holder.queue)
    }

    /// Whether `thread` holds a context.
    #[must_use]
    pub fn holds(&self, thread: ThreadRef) -> bool {
        matches!(self.right(thread), Right::Holds(_))
    }

    /// Whether `thread` has lent its context.
    #[must_use]
    pub fn is_lent(&self, thread: ThreadRef) -> bool {
        matches!(self.right(thread), Right::Lent(_))
    }

    /// When the next refill comes that a thread on CPU number `cpu` waits for.
    #[must_use]
    pub fn next_refill(&self, cpu: usize) -> Option<Nanos> {
        self.cpus[cpu].refills.first().map(|(at, _)| Nanos::new(*at))
    }

    /// Whether `given` could be bound to `thread` on `cpu`.
    #[must_use]
    pub fn may_bind(&self, cpu: &Cpu, thread: ThreadRef, given: &ContextCopy) -> bool {
        let free = match self.right(thread) {
            Right::None => true,
            Right::Holds(_) => false,
            Right::Lent(who) => who == given.who,
        };
        free && given.spec.cpus.allows(cpu.id())
    }

    /// Whether `from` could lend what it holds to `to`.
    #[must_use]
    pub fn may_lend(&self, from: ThreadRef, to: ThreadRef) -> bool {
        let Right::Holds(who) = self.right(from) else { return false };
        let Some(grant) = self.grants.get(&who) else { return false };
        from != to && !grant.donors.contains(&to) && grant.donors.len() < usize::from(grant.spec.depth)
    }

    /// When the budget of the context that runs on CPU number `cpu` ends.
    #[must_use]
    pub fn budget_end(&self, model: &MachineModel, cpu: usize) -> Option<Nanos> {
        let cpu_contexts = &self.cpus[cpu];
        let grant = self.running_grant(model, cpu)?;
        let (release, amount) = grant.refills.first();
        Some(Nanos::new(if release <= cpu_contexts.since {
            cpu_contexts.since + amount
        } else {
            cpu_contexts.since
        }))
    }

    /// When best effort, which waits, may insist on its floor before the context that runs on CPU number `cpu`.
    #[must_use]
    pub fn floor_due(&self, model: &MachineModel, cpu: usize) -> Option<Nanos> {
        let grant = self.running_grant(model, cpu)?;
        let (release, due, _) = self.cpus[cpu].floor.next()?;
        (due < grant.due()).then_some(Nanos::new(release))
    }

    fn running_grant(&self, model: &MachineModel, cpu: usize) -> Option<&Grant> {
        if !self.cpus[cpu].on_context {
            return None;
        }
        self.held(model.cpu_model(cpu).running?)
    }

    /// Compares what `cpu` says of the thread at `seat` with what is known.
    pub fn compare(&self, cpu: &Cpu, seat: Seat) -> Result<(), String> {
        let entity = cpu.entity(seat).map_err(|error| error.to_string())?;
        let (thread, right) = (seat.thread(), self.right(seat.thread()));
        let context = match (entity.authority(), right) {
            (Authority::BestEffort, Right::None) => return Ok(()),
            (Authority::Lent(told), Right::Lent(known)) if *told == known => return Ok(()),
            (Authority::Context(context), Right::Holds(known)) if context.who() == known => context,
            (other, _) => return Err(format!("{thread:?} has {other:?}, by the model {right:?}")),
        };
        let grant = self.held(thread).ok_or("a context that nobody has seen")?;
        let told: Vec<(u64, u64)> =
            context.refills().list().iter().map(|refill| (refill.at.get(), refill.amount.get())).collect();
        ensure(told == grant.refills.list(), || {
            format!("{:?} has refills {told:?}, by the rules {:?}", context.who(), grant.refills.list())
        })?;
        let usage = context.usage();
        let (told, seen) = ((usage.used.get(), usage.donated.get()), (grant.used, grant.donated));
        ensure(told == seen, || format!("{:?}: used, donated are {told:?}, seen {seen:?}", context.who()))?;
        let (overshoot, seen) = (usage.overshoot_max, grant.overshoot.most());
        ensure(overshoot.get() == seen, || {
            format!("{:?} reports an overshoot of {overshoot}, and was overrun by {seen}ns", context.who())
        })?;
        ensure(!self.punctual || overshoot.is_zero(), || {
            format!("{:?} was overrun by {overshoot} on a punctual machine", context.who())
        })?;
        ensure(context.donors().iter().eq(grant.donors.iter().copied()), || {
            format!("{:?} goes back to {:?}, seen {:?}", context.who(), context.donors(), grant.donors)
        })
    }

    fn holder(&self, thread: ThreadRef) -> Option<&Holder> {
        self.holders.get(thread.index() as usize)?.as_ref().filter(|holder| holder.thread == thread)
    }

    fn holder_mut(&mut self, thread: ThreadRef) -> &mut Holder {
        let index = thread.index() as usize;
        if self.holders.len() <= index {
            self.holders.resize(index + 1, None);
        }
        let slot = &mut self.holders[index];
        if slot.as_ref().is_none_or(|holder| holder.thread != thread) {
            *slot = Some(Holder { thread, right: Right::None, queue: QueueKind::Fair, refill: None });
        }
        slot.as_mut().expect("just put there")
    }

    fn held(&self, thread: ThreadRef) -> Option<&Grant> {
        match self.right(thread) {
            Right::Holds(who) => self.grants.get(&who),
            Right::None | Right::Lent(_) => None,
        }
    }

    fn held_mut(&mut self, thread: ThreadRef) -> Option<&mut Grant> {
        match self.right(thread) {
            Right::Holds(who) => self.grants.get_mut(&who),
            Right::None | Right::Lent(_) => None,
        }
    }

    /// A context comes to `thread`, which sits on CPU number `cpu`, as `given`.
    fn take_in(
        &mut self,
        cpu: usize,
        now: u64,
        thread: ThreadRef,
        given: &ContextCopy,
    ) -> Result<(), String> {
        let (who, spec) = (given.who, &given.spec);
        let (budget, period) = (spec.budget.get(), spec.period.get());
        let found = || RefillModel::found(budget, period, usize::from(spec.refills), &given.refills);
        match self.grants.get_mut(&who) {
            Some(grant) => {
                ensure(grant.seated.is_none(), || {
                    format!("{who:?} came to {thread:?} and sits elsewhere: {grant:?}")
                })?;
                let chain = grant.donors.starts_with(&given.donors) && !given.donors.contains(&thread);
                ensure(chain, || {
                    format!(
                        "{who:?} came with {:?} waiting for it, left with {:?}",
                        given.donors, grant.donors
                    )
                })?;
                let told = (given.used, given.donated);
                ensure(told == (grant.used, grant.donated), || {
                    format!("{who:?}: used, donated became {told:?} on the way: {grant:?}")
                })?;
                // Another grant, or one that was put off until what others have used is back, is as it is found.
                let release = grant.refills.first().0;
                let put_off = given.refills.first().is_some_and(|(at, _)| *at > release);
                if put_off || grant.refills.terms() != (budget, period) {
                    grant.refills = found()?;
                }
                if grant.refills.first().0 != release {
                    grant.paused = None;
                }
                ensure(grant.refills.list() == given.refills, || {
                    format!("{who:?} came with {:?}, left with {:?}", given.refills, grant.refills.list())
                })?;
                grant.spec = spec.clone();
                grant.donors.clone_from(&given.donors);
                grant.seated = Some(thread);
            }
            None => {
                ensure(given.used == 0 && given.donors.is_empty(), || format!("{given:?} is new and used"))?;
                let grant = Grant {
                    spec: spec.clone(),
                    refills: found()?,
                    overshoot: Overshoot::default(),
                    used: 0,
                    donated: 0,
                    donors: Vec::new(),
                    active: false,
                    paused: None,
                    seated: Some(thread),
                };
                self.grants.insert(who, grant);
            }
        }
        // A thread that had it on its way here has it no more.
        for holder in self.holders.iter_mut().flatten() {
            if holder.right == Right::Holds(who) {
                holder.right = Right::None;
            }
        }
        self.holder_mut(thread).right = Right::Holds(who);
        let cpu_contexts = &mut self.cpus[cpu];
        if cpu_contexts.holders == 0 && cpu_contexts.none_since != Some(now) {
            // What best effort had while there were no contexts is not owed to it again.
            cpu_contexts.floor.wanted(now, false);
        }
        cpu_contexts.holders += 1;
        let deadline = spec.deadline.min(spec.period);
        cpu_contexts.here.insert(who, (budget, deadline.get(), spec.criticality));
        Ok(())
    }

    /// The context of `thread` leaves CPU number `cpu`.
    fn take_out(&mut self, cpu: usize, thread: ThreadRef, now: u64) {
        if let Right::Holds(who) = self.right(thread)
            && let Some(grant) = self.grants.get_mut(&who)
        {
            grant.seated = None;
            grant.pause(now);
            let cpu_contexts = &mut self.cpus[cpu];
            cpu_contexts.here.remove(&who);
            cpu_contexts.holders -= 1;
            if cpu_contexts.holders == 0 {
                cpu_contexts.none_since = Some(now);
            }
        }
    }

    /// Takes `thread` out of the queues of CPU number `cpu`.
    fn forget(&mut self, cpu: usize, thread: ThreadRef) {
        let Some(holder) = self.holders.get_mut(thread.index() as usize).and_then(Option::as_mut) else {
            return;
        };
        let refill = holder.refill.take();
        self.cpus[cpu].ready.remove(&thread.index());
        if let Some(at) = refill {
            self.cpus[cpu].refills.remove(&(at, thread.index()));
        }
    }

    /// `thread` stands on `queue` from now on, ready unless it runs.
    fn stand(&mut self, cpu: usize, thread: ThreadRef, queue: QueueKind, refill: Option<u64>) {
        self.forget(cpu, thread);
        let holder = self.holder_mut(thread);
        (holder.queue, holder.refill) = (queue, refill);
        let cpu_contexts = &mut self.cpus[cpu];
        if queue == QueueKind::Context {
            cpu_contexts.ready.insert(thread.index());
        }
        if let Some(at) = refill {
            cpu_contexts.refills.insert((at, thread.index()));
        }
    }

    /// Where `thread`, which has just become ready at `now`, stands.
    fn enqueue(&mut self, cpu: usize, thread: ThreadRef, now: u64) {
        let Some(grant) = self.held(thread) else {
            self.stand(cpu, thread, QueueKind::Fair, None);
            return;
        };
        let (release, _) = grant.refills.first();
        if release <= now {
            self.stand(cpu, thread, QueueKind::Context, None);
        } else if grant.spec.overrun == Overrun::Notify {
            self.tally.went_on += 1;
            self.stand(cpu, thread, QueueKind::Fair, Some(release));
        } else {
            self.tally.throttled += 1;
            self.stand(cpu, thread, QueueKind::Throttled, Some(release));
        }
    }

    /// What is said of a context that arrives with `authority`; `Err` if its thread cannot be ready.
    fn arrive(
        &mut self,
        cpu: usize,
        now: u64,
        thread: ThreadRef,
        authority: &AuthorityCopy,
    ) -> Result<(), String> {
        self.holder_mut(thread).right = Right::None;
        match authority {
            AuthorityCopy::BestEffort => Ok(()),
            AuthorityCopy::Context(given) => self.take_in(cpu, now, thread, given),
            AuthorityCopy::Lent(who) => Err(format!("{thread:?} arrived though it has lent {who:?}")),
        }
    }
}

impl Grant {
    /// When what is used now is due.
    fn due(&self) -> u64 {
        self.refills.first().0 + self.spec.deadline.get()
    }

    /// Its holder is ready. A holder that goes on at the instant of the pause goes on with the same release.
    fn resume(&mut self, now: u64) {
        if !self.active {
            match self.paused {
                Some((at, release)) if at == now => self.refills.go_on(release),
                _ => {
                    self.refills.resume(now);
                }
            }
        }
        self.active = true;
    }

    /// Its holder waits for something else than CPU time, or it has none.
    fn pause(&mut self, now: u64) {
        if self.active {
            self.paused = Some((now, self.refills.first().0));
            self.refills.pause(now);
            self.active = false;
        }
    }

    /// A holder ran on it from `start` to `now`.
    fn spend(&mut self, start: u64, now: u64, punctual: bool) -> Result<(), String> {
        let ran = now - start;
        if ran == 0 {
            return Ok(());
        }
        let usable = self.refills.usable(start);
        ensure(!punctual || ran <= usable, || {
            format!("ran for {ran}ns on a context that had {usable}ns: {:?}", self.refills.list())
        })?;
        self.overshoot.spend(ran, usable);
        self.used += ran;
        if !self.donors.is_empty() {
            self.donated += ran;
        }
        self.refills.spend(ran)
    }
}
