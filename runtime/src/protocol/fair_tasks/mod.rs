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
mod machine;
mod record;
mod worker_core;

pub use calls::{CallRef, Service};
pub use contexts::{Aftermath, TimeLimits};
pub use record::WorkerRecord;

use crate::protocol::mutant::{Mutant, broken};
use crate::protocol::prim::{AtomicBool, AtomicU32, AtomicUsize, Mutex, Ordering};
use contexts::Table;
use machine::{NOWHERE, Seen, ThreadTable};
use mainspring_abi::{CpuId, CpuSet, LatencyClass, Nanos, Policy, ProcessId, ThreadRef, Weight};
use mainspring_driver::placement;
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
        }
    }
}

/// How a task is scheduled by its core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The number that the flight record knows it by, below `FairTaskSettings::threads`; of one task at a time. `None`
    /// takes any that is free.
    pub thread: Option<usize>,
    /// Whose siblings it is among; for the record only.
    pub process: u32,
    /// Its share against the others'.
    pub weight: Weight,
    /// How soon it wants to run after it wakes.
    pub class: LatencyClass,
    /// The service it asks for at a time, if not its class's.
    pub request: Option<Nanos>,
    /// The workers that may run it, by number; `None` for all.
    pub workers: Option<CpuSet>,
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            thread: None,
            process: 0,
            weight: Weight::DEFAULT,
            class: LatencyClass::Normal,
            request: None,
            workers: None,
        }
    }
}

/// A thread could not be had. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadError {
    /// There is no such thread number.
    OutOfRange(usize),
    /// Another task is that thread.
    Taken(usize),
    /// All are taken.
    NoneFree,
    /// No worker of this runtime is among those that may run it.
    NoWorker,
    /// It asks for nothing at a time, or for too much.
    BadRequest(Nanos),
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
    /// It stays on the core that runs it first, and has not run yet.
    stays_when_run: AtomicBool,
    /// It waits for a call on its context, or is to serve one: its waker asks the table of contexts.
    by_table: AtomicBool,
}

/// The cores of a runtime, and the threads on them.
pub struct FairTasks {
    cores: Box<[WorkerCore]>,
    threads: ThreadTable,
    /// If there can be contexts.
    contexts: Option<Box<Mutex<Table>>>,
}

impl std::fmt::Debug for FairTasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FairTasks").field("cores", &self.cores.len()).finish_non_exhaustive()
    }
}

impl FairTasks {
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
            stays_when_run: AtomicBool::new(false),
            by_table: AtomicBool::new(false),
        };
        let contexts = match settings.contexts {
            0 => None,
            _ => Some(Table::new(workers, settings, time)?),
        };
        Some(Self {
            cores: cores.into(),
            threads: ThreadTable((0..settings.threads).map(thread).collect()),
            contexts,
        })
    }

    /// Takes a thread for a task. It is given back by [`FairTasks::end`] or, if it is never admitted, [`FairTasks::release`].
    pub fn claim(&self, schedule: &Schedule) -> Result<usize, ThreadError> {
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
        // With one core there is nowhere to go.
        entry.stays_when_run.store(stays && self.cores.len() > 1, Ordering::Relaxed);
        let entity = Entity::new(Spec {
            thread: ThreadRef::new(thread as u32, entry.generation.load(Ordering::Relaxed)),
            process: ProcessId::new(schedule.process),
            weight: schedule.weight,
            class: schedule.class,
            request: schedule.request,
            affinity: affinity.clone(),
        });
        let (name, weight) = (entity.thread(), schedule.weight.get().into());
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
        // Nobody gives a thread that runs a context but the thread itself.
        let (thread, aftermath) = if self.current_has_authority(worker) {
            self.end_with_authority(worker, now)
        } else {
            let entity = self.cores[worker].with(|core| core.access(now, &mut &self.threads).exit_current());
            (entity.expect("a task that ends runs").thread(), Aftermath::default())
        };
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
            None if may_steal => self.steal(worker, now)?,
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
        self.contexts
            .as_ref()
            .map(|_| self.cores[worker].plan_sleep(now))
            .filter(|until| *until != Nanos::MAX)
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
        core.with(|core| {
            if told {
                core.at(now).reschedule_received();
            }
            core.turn_is_over(now)
        })
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
