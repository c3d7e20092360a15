//! The fair discipline by task. Each worker has a core of `core/sched` behind a lock, and each task is a
//! thread of one of these cores.
//!
//! Conserved: a thread that has been admitted and has not ended sits on exactly one core, or is in the hands of the one
//! worker that moves it. A thread is queued only after its stack has been left: its worker says that it has stopped from its
//! own stack, so the worker that is given the thread may go on with it at once. A thread that is ready is seen by the last
//! look of a worker that may run it and is about to sleep, or a worker is told.
//!
//! No core's lock is held while another's is taken, but by `close_record`, which takes them all in their order. The lock of
//! the table of contexts comes before that of any core.

mod calls;
mod contexts;
mod groups;
mod leases;
mod machine;
mod policy;
mod record;
mod throttled;
mod worker_core;

pub use calls::{CallRef, Service};
pub use contexts::{Aftermath, Known, TimeLimits};
pub use groups::{Group, GroupError};
pub use leases::{LeaseEnd, LeaseWish};
pub use record::{RecordPart, WorkerRecord};
pub use worker_core::Untold;

use crate::protocol::mutant::{Mutant, broken};
use crate::protocol::prim::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Mutex, Ordering};
use contexts::Table;
use leases::Isolated;
use machine::{NOWHERE, Seen, ThreadTable};
use mainspring_abi::{CpuId, CpuSet, LatencyClass, Nanos, Policy, ProcessId, ThreadRef, Weight};
use mainspring_driver::placement;
use mainspring_driver::sessions::SessionRef;
use mainspring_sched::flight::Log;
use mainspring_sched::{Affinity, Config, Cpu, Dispatch, Entity, Floor, Offer, Spec, Stop, Via, WaitKind};
use std::sync::Arc;
use worker_core::WorkerCore;

/// How cores schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FairTaskSettings {
    /// Best-effort policy.
    pub policy: Policy,
    /// The unit of best-effort service.
    pub quantum: Nanos,
    /// The tick of a core with contexts: no decision depends on it, but a replay needs to know it.
    pub tick: Nanos,
    /// How many threads there can be at a time.
    pub threads: usize,
    /// The most bytes of flight record that each core keeps; 0 for no record.
    pub record_bytes: usize,
    /// How many scheduling contexts there can be at a time; 0 for none. Their time is granted by `CapContext`.
    pub contexts: usize,
    /// What tasks without a context keep of each worker. The rest is what contexts may be granted there.
    pub floor: Floor,
    /// How many workers can be leased at a time; 0 for none.
    pub leases: usize,
    /// How many sessions can be open at a time; 0 for none.
    pub sessions: usize,
}

impl Default for FairTaskSettings {
    fn default() -> Self {
        Self {
            policy: Policy::Eevdf,
            quantum: Nanos::from_millis(3),
            tick: Nanos::from_millis(10),
            threads: 1024,
            record_bytes: 0,
            contexts: 0,
            floor: Floor::DEFAULT,
            leases: 0,
            sessions: 0,
        }
    }
}

/// How a task is scheduled by its core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The number that the flight record knows it by, below `FairTaskSettings::threads`; of one task at a time. `None`
    /// takes any that is free. Leases and policies name tasks by it, so only the host and the root task of a run choose it.
    pub thread: Option<usize>,
    /// Its tenant: whose siblings it is among in the record, and whose context it may have
    /// ([`SchedulingContext::bind_to_tenant`](crate::SchedulingContext::bind_to_tenant)). Only the host and the root task of a run
    /// choose it; the children of other tasks are of their spawner's tenant.
    pub process: u32,
    /// Its share against the others'. A task gives its children no more than it may have itself; the host and the root task
    /// of a run give any.
    pub weight: Weight,
    /// The most that it may set its own weight to, and give to its children: `weight`, unless set.
    pub most_weight: Option<Weight>,
    /// How soon it wants to run after it wakes. A task gives its children none that is sooner than its own.
    pub class: LatencyClass,
    /// The service it asks for at a time, if not its class's.
    pub request: Option<Nanos>,
    /// The workers that may run it, by number; `None` for all.
    pub workers: Option<CpuSet>,
    /// The session that it is in: its context ends with that.
    pub session: Option<SessionName>,
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            thread: None,
            process: 0,
            weight: Weight::DEFAULT,
            most_weight: None,
            class: LatencyClass::Normal,
            request: None,
            workers: None,
            session: None,
        }
    }
}

/// How much of the others' time a task may claim for itself and its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The largest weight.
    pub most_weight: Weight,
    /// The class that is served soonest.
    pub class: LatencyClass,
    /// Its tenant, which is its children's too.
    pub process: u32,
}

impl Standing {
    /// Whether a task of this standing may spawn one that is scheduled like that.
    fn allows(self, schedule: &Schedule) -> Result<(), ThreadError> {
        if let Some(number) = schedule.thread {
            return Err(ThreadError::NotToChoose(number));
        }
        let asked = schedule.most_weight.map_or(schedule.weight, |most| most.max(schedule.weight));
        if asked > self.most_weight {
            return Err(ThreadError::Weight { asked, most: self.most_weight });
        }
        let sooner = eagerness(schedule.class) > eagerness(self.class);
        if sooner { Err(ThreadError::Class(self.class)) } else { Ok(()) }
    }

    /// The schedule of a child whose spawner asks for none.
    #[must_use]
    pub fn usual(self) -> Schedule {
        let class = if eagerness(self.class) < eagerness(LatencyClass::Normal) {
            self.class
        } else {
            LatencyClass::Normal
        };
        let weight = Weight::DEFAULT.min(self.most_weight);
        Schedule { weight, class, process: self.process, ..Schedule::default() }
    }
}

/// Classes in the order of how soon they are served, as a number for an atomic.
const fn eagerness(class: LatencyClass) -> u32 {
    match class {
        LatencyClass::Batch => 0,
        LatencyClass::Normal => 1,
        LatencyClass::Interactive => 2,
    }
}

/// The name of a session. It proves nothing: each use asks the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionName(SessionRef);

impl SessionName {
    pub(crate) fn new(session: SessionRef) -> Self {
        Self(session)
    }

    pub(crate) fn name(self) -> SessionRef {
        self.0
    }
}

/// A thread could not be had. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadError {
    /// There is no such thread number.
    OutOfRange(usize),
    /// Another task is that thread.
    Taken(usize),
    /// Only the host and the root task of a run say which thread a task is.
    NotToChoose(usize),
    /// All are taken.
    NoneFree,
    /// No worker of this runtime is among those that may run it.
    NoWorker,
    /// It asks for nothing at a time, or for too much.
    BadRequest(Nanos),
    /// Its spawner gives more weight than it may have itself.
    Weight {
        /// What was asked for.
        asked: Weight,
        /// The most that the spawner may give.
        most: Weight,
    },
    /// Its spawner gives a latency class that is served sooner than this one, its own.
    Class(LatencyClass),
}

/// The worker that has to look, if it sleeps.
#[must_use = "a worker that is not woken may sleep over its work"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WakeWorker(pub Option<usize>);

/// What a worker is to run.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// The word that the thread was admitted with.
    pub word: usize,
    /// A worker that could take what is left.
    pub wake: WakeWorker,
    /// The worker that it was stolen from.
    pub stolen_from: Option<usize>,
}

/// A thread that may be admitted. Who writes what: `taken` by `claim` and `end`; the rest by the thread's holder.
struct Thread {
    taken: AtomicBool,
    generation: AtomicU32,
    word: AtomicUsize,
    core: AtomicUsize,
    slot: AtomicU32,
    /// Its [`Standing`]: the weight, and the class by its [`eagerness`].
    most_weight: AtomicU32,
    eagerness: AtomicU32,
    /// It stays on the core that runs it first, and has not run yet.
    stays_when_run: AtomicBool,
    /// It waits for a call on its context, or is to serve one: its waker asks the table of contexts.
    by_table: AtomicBool,
    /// The groups that it is of, see [`Group`].
    nursery: AtomicU64,
    process: AtomicU32,
    /// When it was admitted.
    admitted_at: AtomicU64,
    /// It has been bound to a context.
    had_context: AtomicBool,
    /// Whoever makes it ready looks whether the context of its group is at rest.
    heir: AtomicBool,
}

/// The cores of a runtime, and the threads on them.
pub struct FairTasks {
    cores: Box<[WorkerCore]>,
    threads: ThreadTable,
    /// If there can be contexts, leases or sessions.
    contexts: Option<Box<Mutex<Table>>>,
    /// If there can be leases or sessions.
    isolated: Option<Box<Isolated>>,
    has_contexts: bool,
    /// How many contexts are a group's.
    grouped: AtomicUsize,
}

impl std::fmt::Debug for FairTasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FairTasks").field("cores", &self.cores.len()).finish_non_exhaustive()
    }
}

impl FairTasks {
    /// Whether there can be leases.
    pub fn has_leases(&self) -> bool {
        self.table().is_some_and(|table| table.leases.is_some())
    }

    /// Cores for `workers`, with a seat for every thread on each of them. `time` is what contexts may be granted in all. `None`
    /// if there is no memory for that.
    pub fn new(workers: usize, settings: &FairTaskSettings, time: TimeLimits) -> Option<Self> {
        let mut cores = Vec::with_capacity(workers);
        for worker in 0..workers {
            cores.push(core_of(worker, settings)?);
        }
        let thread = |_| Thread {
            taken: AtomicBool::new(false),
            generation: AtomicU32::new(0),
            word: AtomicUsize::new(0),
            core: AtomicUsize::new(0),
            slot: AtomicU32::new(NOWHERE),
            most_weight: AtomicU32::new(0),
            eagerness: AtomicU32::new(0),
            stays_when_run: AtomicBool::new(false),
            by_table: AtomicBool::new(false),
            nursery: AtomicU64::new(0),
            process: AtomicU32::new(0),
            admitted_at: AtomicU64::new(0),
            had_context: AtomicBool::new(false),
            heir: AtomicBool::new(false),
        };
        let has_owners = settings.leases > 0 || settings.sessions > 0;
        let contexts = match settings.contexts {
            0 if !has_owners => None,
            _ => Some(Table::new(workers, settings, time)?),
        };
        let isolated = match has_owners {
            false => None,
            true => Some(Isolated::new(workers, settings.threads, settings.leases)?),
        };
        Some(Self {
            cores: cores.into(),
            threads: ThreadTable((0..settings.threads).map(thread).collect()),
            contexts,
            isolated,
            has_contexts: settings.contexts > 0,
            grouped: AtomicUsize::new(0),
        })
    }

    /// What a thread that runs may claim for itself and its children.
    pub fn standing(&self, thread: usize) -> Standing {
        let entry = &self.threads[thread];
        // Relaxed: written before the thread was admitted, and it runs.
        let class = match entry.eagerness.load(Ordering::Relaxed) {
            0 => LatencyClass::Batch,
            1 => LatencyClass::Normal,
            _ => LatencyClass::Interactive,
        };
        let most = Weight::new(entry.most_weight.load(Ordering::Relaxed).into());
        let process = entry.process.load(Ordering::Relaxed);
        Standing { most_weight: most.unwrap_or(Weight::DEFAULT), class, process }
    }

    /// Takes a thread for a task, for a spawner of this standing, or one that may give anything. It is given back by
    /// [`FairTasks::end`] or, if it is never admitted, [`FairTasks::release`].
    pub fn claim(&self, schedule: &Schedule, spawner: Option<Standing>) -> Result<usize, ThreadError> {
        if let Some(spawner) = spawner {
            spawner.allows(schedule)?;
        }
        if let Some(workers) = &schedule.workers
            && !self.cores.iter().any(|core| workers.contains(core.id))
        {
            return Err(ThreadError::NoWorker);
        }
        if let Some(request) = schedule.request
            && (request.is_zero() || request > mainspring_sched::MAX_REQUEST)
        {
            return Err(ThreadError::BadRequest(request));
        }
        let take = |thread: &Thread| {
            // Acquire pairs with the release of the worker that gave it back: its generation has been raised.
            thread.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        match schedule.thread {
            Some(number) => match self.threads.get(number) {
                None => Err(ThreadError::OutOfRange(number)),
                Some(thread) if take(thread) => Ok(number),
                Some(_) => Err(ThreadError::Taken(number)),
            },
            // From the end: low numbers are for those who ask by number.
            None => self.threads.iter().rposition(take).ok_or(ThreadError::NoneFree),
        }
    }

    /// Gives a thread back that was claimed and not admitted.
    pub fn release(&self, thread: usize) {
        // Release pairs with the acquire in `claim`.
        self.threads[thread].taken.store(false, Ordering::Release);
    }

    /// A claimed thread is ready for the first time. `stays`: the core that runs it first keeps it. `here` is the worker that
    /// says so, if it is one.
    pub fn admit(
        &self,
        thread: usize,
        word: usize,
        schedule: &Schedule,
        stays: bool,
        here: Option<usize>,
        now: Nanos,
    ) -> WakeWorker {
        let affinity = schedule.workers.as_ref().map_or(Affinity::Any, |w| Affinity::Only(Arc::new(*w)));
        let entry = &self.threads[thread];
        entry.word.store(word, Ordering::Relaxed);
        let most_weight = schedule.most_weight.map_or(schedule.weight, |most| most.max(schedule.weight));
        entry.most_weight.store(most_weight.get() as u32, Ordering::Relaxed);
        entry.eagerness.store(eagerness(schedule.class), Ordering::Relaxed);
        entry.process.store(schedule.process, Ordering::Relaxed);
        entry.admitted_at.store(now.get(), Ordering::Relaxed);
        entry.had_context.store(false, Ordering::Relaxed);
        entry.heir.store(false, Ordering::Relaxed);
        // With one core there is nowhere to go.
        entry.stays_when_run.store(stays && self.cores.len() > 1, Ordering::Relaxed);
        let name = self.name(thread);
        let affinity = self.note_thread(name, affinity, schedule.session.map(SessionName::name));
        let entity = Entity::new(Spec {
            thread: name,
            process: ProcessId::new(schedule.process),
            weight: schedule.weight,
            class: schedule.class,
            request: schedule.request,
            affinity: affinity.clone(),
        });
        let weight = schedule.weight.get().into();
        let mut machine = self.seen_from(here, now);
        let creator = here.map(|here| self.cores[here].id);
        let home = placement::place(&mut machine, name, &affinity, weight, creator);
        let home = home.expect("a thread that was claimed may run on a worker");
        if let Err(refused) = placement::start(&mut machine, home, entity) {
            unreachable!("every core has a seat for every thread that may sit there: {refused}");
        }
        machine.told()
    }

    /// The cores as worker `here`, or a thread that is no worker, sees them at `now`.
    fn seen_from(&self, here: Option<usize>, now: Nanos) -> Seen<'_> {
        Seen::new(self, here, now)
    }

    fn name(&self, thread: usize) -> ThreadRef {
        ThreadRef::new(thread as u32, self.threads[thread].generation.load(Ordering::Relaxed))
    }

    /// A thread that had stopped to wait is ready again; or one that was running has lost its stack and goes on with
    /// another. Called once for each such stop, after it.
    pub fn wake(&self, thread: usize, here: Option<usize>, now: Nanos) -> WakeWorker {
        let mut machine = self.seen_from(here, now);
        let woken = placement::wake(&mut machine, self.name(thread));
        self.requeue_unless(woken, thread, now);
        machine.told()
    }

    /// A thread that was not asleep when it was woken runs, and has lost its stack.
    fn requeue_unless(&self, woken: placement::Wake, thread: usize, now: Nanos) {
        if woken == placement::Wake::NotAsleep {
            let home = self.threads[thread].core.load(Ordering::Relaxed);
            self.cores[home].with(|core| core.resched(now, Stop::Preempted));
        }
    }

    /// As [`FairTasks::wake`], by the thread that runs on `here` and is about to stop: the other one goes first there, if it may.
    pub fn hand_off(&self, thread: usize, here: usize, now: Nanos) -> WakeWorker {
        let mut machine = self.seen_from(Some(here), now);
        let woken = placement::hand_over(&mut machine, self.name(thread));
        debug_assert_eq!(woken, placement::Wake::Woken, "a thread that waits is asleep on its core");
        machine.told()
    }

    /// The thread that ran on `worker` has left its stack, as `stop` says.
    pub fn stop(&self, worker: usize, stop: Stopped, now: Nanos) {
        let stop = match stop {
            Stopped::Preempted => Stop::Preempted,
            Stopped::Yielded => Stop::Yielded,
            Stopped::Waits(kind) => Stop::Blocked(kind, None),
        };
        self.cores[worker].with(|core| core.resched(now, stop));
    }

    /// The thread that ran on `worker` has ended. It can be claimed again.
    pub fn end(&self, worker: usize, now: Nanos) -> Aftermath {
        // The look and the end under one lock: its group may give it a context until it has left its core.
        let entity = self.cores[worker].with(|core| {
            let plain = !core.current_has_authority() || broken(Mutant::EndedPastGift);
            plain.then(|| core.access(now, &mut &self.threads).exit_current())
        });
        let (thread, aftermath) = match entity {
            None => self.end_with_authority(worker, now),
            Some(entity) => (entity.expect("a task that ends runs").thread(), Aftermath::default()),
        };
        let aftermath = aftermath.and(self.end_lease_of(thread, now));
        let entry = &self.threads[thread.index() as usize];
        entry.generation.store(thread.generation().wrapping_add(1), Ordering::Relaxed);
        // Release pairs with the acquire in `claim`.
        entry.taken.store(false, Ordering::Release);
        aftermath
    }

    /// What `worker`, which runs nothing, is to run: of its own core, or, if it may steal, the most overdue that another can
    /// give.
    pub fn next(&self, worker: usize, may_steal: bool, now: Nanos) -> Option<Next> {
        let core = &self.cores[worker];
        let told = self.listen(core);
        let own = core.with(|core| {
            if told {
                core.at(now).reschedule_received();
            }
            self.decide(core, now)
        });
        let (run, stolen_from) = match own {
            Some(run) => (run, None),
            None if self.takes_others(worker, may_steal) => self.steal(worker, now)?,
            None => return None,
        };
        let word = self.threads[run.thread.index() as usize].word.load(Ordering::Relaxed);
        let mut machine = self.seen_from(Some(worker), now);
        placement::share_leftovers(&mut machine, core.id);
        Some(Next { word, wake: machine.told(), stolen_from })
    }

    /// Takes what the core was told.
    fn listen(&self, core: &WorkerCore) -> bool {
        // AcqRel: pairs with `wake`; what the teller did before is seen by the look that follows.
        core.message.load(Ordering::Relaxed) && core.message.swap(false, Ordering::AcqRel)
    }

    fn steal(&self, worker: usize, now: Nanos) -> Option<(Dispatch, Option<usize>)> {
        let here = self.cores[worker].id;
        let from = placement::steal(&mut self.seen_from(Some(worker), now), here, |_, stolen| stolen.from)?;
        let run = self.cores[worker].with(|core| self.decide(core, now))?;
        Some((run, Some(from.index())))
    }

    /// What the core is to run. A thread that stays where it runs first is bound to this core before it does: from then on
    /// its affinity names no other, so no other core is given it.
    fn decide(&self, core: &mut worker_core::Core, now: Nanos) -> Option<Dispatch> {
        loop {
            let run = core.take_decided(now)?;
            let thread = run.thread.index() as usize;
            let stays = &self.threads[thread].stays_when_run;
            // Relaxed: a thread's entry is changed by its holder, under its core's lock.
            if !stays.load(Ordering::Relaxed) || broken(Mutant::StaysNowhere) {
                return Some(run);
            }
            stays.store(false, Ordering::Relaxed);
            let only_here = Affinity::Only(Arc::new(std::iter::once(core.cpu.id()).collect()));
            self.note_stays(thread, &only_here);
            let mut threads = &self.threads;
            let mut held = core.access(now, &mut threads);
            let mut entity = held.exit_current().expect("it was decided to run it");
            entity.set_affinity(only_here);
            // It comes back as the direct target, so that it is still the next here.
            let back = held.accept(entity, Via::HandOff, None);
            debug_assert!(back.is_ok(), "it has just left its seat");
            core.resched(now, Stop::Nothing);
        }
    }

    /// Whether there is anything that `worker` could run: its last look before it sleeps.
    pub fn has_work_for(&self, worker: usize, may_steal: bool) -> bool {
        let me = &self.cores[worker];
        let may_steal = self.takes_others(worker, may_steal);
        // SeqCst: the worker has said that it is idle before it looks here.
        if me.message.load(Ordering::SeqCst) {
            return true;
        }
        self.cores.iter().any(|core| {
            // The offer first: reading it orders the rest of what the core said with it.
            let offer = core.offer();
            if std::ptr::eq(core, me) {
                return core.busy() > 0;
            }
            if !may_steal {
                return false;
            }
            // Beyond 64 workers the reach is a hint only, so the core is asked.
            let bound = || core.with(|core| core.cpu.bound_due_in(me.id)).is_some();
            offer.due_in != Offer::NOTHING || offer.may_reach(me.id) && bound()
        })
    }

    /// `worker` is about to sleep, or awake again. `takes_others`: it may be told of threads of other cores.
    pub fn set_idle(&self, worker: usize, takes_others: bool) {
        // SeqCst: see `WorkerCore::with`.
        self.cores[worker].idle.store(takes_others, Ordering::SeqCst);
    }

    /// `worker` is about to sleep: until when at the latest, for the contexts of its core.
    pub fn plan_sleep(&self, worker: usize, now: Nanos) -> Option<Nanos> {
        let refill = self.contexts.as_ref().map_or(Nanos::MAX, |_| self.cores[worker].plan_sleep(now));
        Some(refill.min(self.next_lease_end())).filter(|until| *until != Nanos::MAX)
    }

    /// `worker` has slept.
    pub fn wakes(&self, worker: usize) {
        if self.contexts.is_some() {
            self.cores[worker].wakes();
        }
    }

    /// Whether the thread that runs on `worker` should stop and let others run.
    pub fn turn_is_over(&self, worker: usize, now: Nanos) -> bool {
        let core = &self.cores[worker];
        let told = self.listen(core);
        let over = core.with(|core| {
            if told {
                core.at(now).reschedule_received();
            }
            core.turn_is_over(now)
        });
        over || self.stops_for_lease(told, now)
    }

    /// Sets the weight of the thread that runs on `worker`.
    pub fn set_weight(&self, worker: usize, weight: Weight, now: Nanos) {
        self.cores[worker].with(|core| {
            if let Some(seat) = core.cpu.current() {
                let set = core.at(now).set_weight(seat, weight);
                debug_assert!(set.is_ok(), "a running thread has a seat");
            }
        });
    }

    /// CPU time of the thread that runs on `worker`.
    pub fn cpu_time(&self, worker: usize, now: Nanos) -> Nanos {
        self.cores[worker].with(|core| core.time_of_current(now)).unwrap_or(Nanos::ZERO)
    }

    /// A part of a core's record, from a byte on. `None` if there is no such core, or it records nothing any more.
    pub fn record_part(&self, worker: usize, from: usize) -> Option<RecordPart> {
        let core = self.cores.get(worker)?.lock();
        core.log.as_ref().map(|log| RecordPart::of(log, from))
    }

    /// Closes the records of all cores and hands them out. Empty if there are none.
    pub fn close_record(&self, now: Nanos) -> Vec<WorkerRecord> {
        // All at once: a thread that moves on between two cores' ends would be on both, or its arrival would have no
        // departure.
        let mut cores: Vec<_> = self.cores.iter().map(WorkerCore::lock).collect();
        cores.iter_mut().filter_map(|core| core.log.take()).map(|log| WorkerRecord::of(log, now)).collect()
    }
}

/// The core of a worker. `None` if there is no memory for it.
fn core_of(worker: usize, settings: &FairTaskSettings) -> Option<WorkerCore> {
    let id = CpuId::new(worker).ok()?;
    let base = Config::new(id, settings.policy);
    let mut cpu =
        Cpu::new(Config { quantum: settings.quantum, tick: settings.tick, floor: settings.floor, ..base });
    cpu.reserve(settings.threads).ok()?;
    let log = (settings.record_bytes > 0).then(|| Log::new(settings.record_bytes));
    Some(WorkerCore::new(id, cpu, log))
}

/// How a thread stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// It could go on.
    Preempted,
    /// It lets the others go first.
    Yielded,
    /// It waits.
    Waits(WaitKind),
}
