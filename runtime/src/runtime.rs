//! The runtime: its workers, what they share, and how ordinary threads use it.
//!
//! Conserved: no task outlives the call that opened its nursery, so a runtime that is dropped has none.
#![allow(unsafe_code)]

use crate::blocking::BlockingPool;
use crate::budget::{Budget, Component, Pool};
use crate::calls;
use crate::caps::CapContext;
use crate::config::{Config, USUAL_STACKS};
use crate::context::{Bells, Faults};
use crate::cx::Cx;
use crate::error::{ConfigError, SpawnError, TaskError};
use crate::event_loop::{self, AttachError, EventLoop};
use crate::histogram::Histogram;
use crate::io::driver::Driver;
use crate::io::readiness::Sides;
use crate::lease::Watch;
use crate::nursery::core::NurseryCore;
use crate::nursery::{Exhaustion, Handle, Nursery, NurseryError, NurseryOptions, host_nursery};
use crate::observe::Observed;
use crate::os_threads::OsThreads;
use crate::protocol::bias::SectionFlag;
use crate::protocol::deque::{Stealer, deques};
use crate::protocol::earliest::WhoKeeps;
use crate::protocol::fair_tasks::{FairTasks, RecordPart, TimeLimits, WorkerRecord};
use crate::protocol::inbox::Inbox;
use crate::protocol::sleep::IdleWorkers;
use crate::quota::{Quota, Rate};
use crate::reserve::Reserved;
use crate::snapshot::{Labels, Registry};
use crate::spans::{self, Spans};
use crate::stack::arena::{Arena, GuardKind};
use crate::stack::overflow;
use crate::task::slab::Slab;
use crate::task::{Runnable, Task};
use crate::time::timers::{Fire, TimerKey, Timers};
use crate::virtual_workers;
use crate::watchdog::{self, Monitored};
use crate::worker::Worker;
use crate::worker::fair_tenants::FairTenants;
use crate::worker::victim::Victims;
use mainspring_abi::Nanos;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::JoinHandle;

/// Tasks that any worker may take, oldest first.
#[derive(Debug, Default)]
pub(crate) struct GlobalQueue {
    tasks: Mutex<VecDeque<Runnable>>,
    len: AtomicUsize,
}

impl GlobalQueue {
    fn push(&self, task: Runnable) {
        debug_assert!(!task.is_pinned(), "a task that must stay on its thread");
        let mut tasks = self.tasks.lock().expect("no panic while it is held");
        tasks.push_back(task);
        self.len.store(tasks.len(), Ordering::SeqCst);
    }

    pub(crate) fn pop(&self) -> Option<Runnable> {
        if self.is_empty() {
            return None;
        }
        let mut tasks = self.tasks.lock().expect("no panic while it is held");
        let task = tasks.pop_front();
        self.len.store(tasks.len(), Ordering::SeqCst);
        task
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len.load(Ordering::SeqCst) == 0
    }
}

/// What the others see of a worker.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Share {
    pub(crate) stealer: Stealer,
    /// Pinned tasks of the worker that other threads have made ready.
    pub(crate) inbox: Inbox<Task>,
    /// Of the thread that runs the worker.
    pub(crate) section_flag: Arc<SectionFlag>,
    steal_enabled: AtomicBool,
    tasks_stolen: AtomicU64,
    steals_failed: AtomicU64,
    tasks_cancelled: AtomicU64,
    tasks_spawned: AtomicU64,
    parks: AtomicU64,
    deaths: AtomicU64,
    /// Tasks that overstayed there. Written by the monitor.
    pub(crate) overstays: AtomicU64,
    /// The id of a task that is to be cancelled at its next slow check there; 0 for none.
    pub(crate) to_cancel: AtomicU64,
    /// The thread that runs the worker, by its number in the kernel.
    pub(crate) thread: AtomicU64,
    /// The address of the task that ran there last, and a number that changes with each turn in its low bits.
    pub(crate) running: AtomicUsize,
    looked_up_ns: AtomicU64,
    pub(crate) yield_gap: Histogram,
    pub(crate) steal_latency: Histogram,
    pub(crate) wake_latency: Histogram,
}

/// What a worker has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerStats {
    /// Tasks taken from others.
    pub tasks_stolen: u64,
    /// Attempts to steal that came to nothing.
    pub steals_failed: u64,
    /// Tasks that ended as Cancelled here.
    pub tasks_cancelled: u64,
    /// Tasks that tasks have spawned there, as of its last look at the clock.
    pub tasks_spawned: u64,
    /// How often it had nothing to do and slept.
    pub parks: u64,
    /// How often it died, and was started again on the same thread.
    pub deaths: u64,
    /// How often a task kept it without a check for longer than [`Watchdog::overstay`](crate::Watchdog::overstay).
    pub overstays: u64,
}

impl Share {
    fn new(stealer: Stealer, section_flag: Arc<SectionFlag>) -> Self {
        Self {
            stealer,
            inbox: Inbox::default(),
            section_flag,
            steal_enabled: AtomicBool::new(true),
            tasks_stolen: AtomicU64::new(0),
            steals_failed: AtomicU64::new(0),
            tasks_cancelled: AtomicU64::new(0),
            tasks_spawned: AtomicU64::new(0),
            parks: AtomicU64::new(0),
            deaths: AtomicU64::new(0),
            overstays: AtomicU64::new(0),
            to_cancel: AtomicU64::new(0),
            thread: AtomicU64::new(0),
            running: AtomicUsize::new(0),
            looked_up_ns: AtomicU64::new(0),
            yield_gap: Histogram::default(),
            steal_latency: Histogram::default(),
            wake_latency: Histogram::default(),
        }
    }

    pub(crate) fn may_steal(&self) -> bool {
        self.steal_enabled.load(Ordering::Relaxed)
    }

    pub(crate) fn set_steal_enabled(&self, enabled: bool) {
        self.steal_enabled.store(enabled, Ordering::Relaxed);
    }

    fn add(counter: &AtomicU64, n: u64) {
        // One writer each: a load and a store are enough.
        counter.store(counter.load(Ordering::Relaxed) + n, Ordering::Relaxed);
    }

    /// When the worker last looked at the clock.
    pub(crate) fn looked_up_ns(&self) -> u64 {
        self.looked_up_ns.load(Ordering::Relaxed)
    }

    pub(crate) fn looks_up(&self, now_ns: u64) {
        self.looked_up_ns.store(now_ns, Ordering::Relaxed);
    }

    pub(crate) fn stolen(&self, n: u64) {
        Self::add(&self.tasks_stolen, n);
    }

    pub(crate) fn missed(&self) {
        Self::add(&self.steals_failed, 1);
    }

    /// The worker is about to sleep.
    pub(crate) fn parks(&self) {
        Self::add(&self.parks, 1);
    }

    /// How many tasks were spawned there so far.
    pub(crate) fn has_spawned(&self, tasks: u64) {
        self.tasks_spawned.store(tasks, Ordering::Relaxed);
    }

    pub(crate) fn cancelled(&self) {
        Self::add(&self.tasks_cancelled, 1);
    }

    pub(crate) fn stats(&self) -> WorkerStats {
        WorkerStats {
            tasks_stolen: self.tasks_stolen.load(Ordering::Relaxed),
            steals_failed: self.steals_failed.load(Ordering::Relaxed),
            tasks_cancelled: self.tasks_cancelled.load(Ordering::Relaxed),
            tasks_spawned: self.tasks_spawned.load(Ordering::Relaxed),
            parks: self.parks.load(Ordering::Relaxed),
            deaths: self.deaths.load(Ordering::Relaxed),
            overstays: self.overstays.load(Ordering::Relaxed),
        }
    }
}

/// What all parts of a runtime share.
pub(crate) struct Inner {
    pub(crate) config: Config,
    pub(crate) global: GlobalQueue,
    pub(crate) shares: Box<[Share]>,
    pub(crate) idle_workers: IdleWorkers,
    pub(crate) arena: Arena,
    pub(crate) slab: Slab,
    pub(crate) timers: Timers,
    next_nursery: AtomicU64,
    next_id: AtomicU64,
    pub(crate) pool: Mutex<Pool>,
    /// The nurseries that ordinary threads have open, by address.
    host_nurseries: Mutex<Vec<usize>>,
    pub(crate) blocking: Arc<BlockingPool>,
    pub(crate) io: Driver,
    pub(crate) registry: Registry,
    pub(crate) labels: Labels,
    /// Another event loop that the first worker drives. Once it is set, no worker waits for sockets.
    pub(crate) event_loop: OnceLock<Arc<dyn EventLoop>>,
    me: Weak<Inner>,
    pub(crate) virtual_run: Option<virtual_workers::Shared>,
    /// Under the fair discipline by task.
    pub(crate) fair_tasks: Option<FairTasks>,
    /// Who waits for notices of contexts.
    pub(crate) bells: Bells,
    /// The quotas of tenants, by their numbers.
    pub(crate) tenant_quotas: Vec<Option<Quota>>,
    /// The tenants' tasks of each worker, under the fair discipline by tenant.
    pub(crate) tenant_queues: Vec<Arc<Mutex<FairTenants>>>,
    /// What the monitor and the workers share.
    pub(crate) monitored: Monitored,
    /// Who is told of contexts that count as at fault.
    pub(crate) faults: Faults,
    /// Who holds leases.
    pub(crate) leases: Watch,
    pub(crate) os_threads: OsThreads,
    /// If a subscriber wants them.
    pub(crate) spans: Option<Spans>,
    /// If the configuration asks for it.
    pub(crate) observed: Option<Arc<Observed>>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Inner")
    }
}

impl Inner {
    #[inline]
    pub(crate) fn is_virtual(&self) -> bool {
        self.virtual_run.is_some()
    }

    /// Keeps the memory of the runtime.
    pub(crate) fn memory(&self) -> Arc<Inner> {
        self.me.upgrade().expect("a task of it runs")
    }

    pub(crate) fn next_nursery_id(&self) -> u64 {
        self.next_nursery.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn host_task_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Queues a task that does not belong to the worker of this thread: a pinned one for its own worker, any other for all.
    /// `from_outside`: this thread is no worker of this runtime.
    pub(crate) fn inject(&self, task: Runnable, from_outside: bool) {
        if self.fair_tasks.is_some() {
            return self.wake_thread(task, None);
        }
        let home = task.is_pinned().then(|| Worker::index_of(&task));
        match home {
            // SAFETY: no other thread holds the task, and records stay where they are.
            Some(home) => unsafe { self.shares[home].inbox.push(&*task.take()) },
            None => self.global.push(task),
        }
        match (&self.virtual_run, home) {
            (Some(shared), _) => {
                // The virtual workers look at each other's queues by themselves.
                if from_outside {
                    shared.ring();
                }
            }
            (None, Some(home)) => self.idle_workers.notify(home),
            (None, None) => self.idle_workers.published(),
        }
    }

    /// Fires what is due.
    pub(crate) fn tend_timers(&self) {
        if self.timers.has_entries() {
            self.timers.fire_due();
        }
    }

    /// Makes epoll tell of a socket, until it is forgotten.
    pub(crate) fn know_socket(&self, socket: &impl AsFd) -> std::io::Result<Arc<Sides>> {
        let (sides, is_first) = self.io.readiness.add(socket)?;
        if is_first {
            // A worker that sleeps by now waits for its own bell alone.
            self.idle_workers.published();
        }
        Ok(sides)
    }

    /// A deadline, and the sleeper that has to know of it.
    pub(crate) fn add_timer(&self, due_ns: u64, fire: Fire) -> TimerKey {
        let (key, first) = self.timers.insert(due_ns, fire);
        if first && !self.is_virtual() {
            match self.timers.earliest.who_keeps() {
                WhoKeeps::Nobody => self.idle_workers.published(),
                WhoKeeps::Worker(keeper) => self.idle_workers.wake(keeper),
            }
        }
        key
    }

    /// Takes what `have` lacks of `need` from the root pool, as far as that goes, and a reserve, so that the next time is not
    /// soon.
    pub(crate) fn draw_root_pool(&self, have: &Pool, need: &Pool) -> Pool {
        const RESERVE: u64 = 1 << 20;
        let mut drawn = Pool::ZERO;
        let lacks = |component: &Component| need.get(*component) > have.get(*component);
        if !Component::ALL.iter().any(lacks) {
            return drawn;
        }
        let mut root = self.pool.lock().expect("no panic while it is held");
        for component in Component::ALL.into_iter().filter(lacks) {
            let (lacking, left) = (need.get(component) - have.get(component), root.get(component));
            let amount = Pool::only(component, lacking.max(RESERVE.min(left / 64)).min(left));
            root.take(&amount).expect("no more than there is");
            drawn.put(&amount);
        }
        drawn
    }

    /// A nursery of an ordinary thread opens (true) or is over.
    pub(crate) fn note_host_nursery(&self, core: &NurseryCore, open: bool) {
        let address = std::ptr::from_ref(core) as usize;
        let mut all = self.host_nurseries.lock().expect("no panic while it is held");
        if open {
            all.push(address);
        } else {
            all.retain(|&other| other != address);
        }
    }

    /// Does both, counting a child of an ordinary thread in and handing it over, at once for the search for a deadlock: in
    /// between a task is alive that no worker can run.
    pub(crate) fn hand_over(&self, both: impl FnOnce()) {
        let _nobody_looks =
            self.is_virtual().then(|| self.host_nurseries.lock().expect("no panic while it is held"));
        both();
    }

    /// Every task waits for another: fails the root nurseries. False if there is none with children that still take
    /// orders, or if a task has been handed over meanwhile.
    pub(crate) fn fail_deadlock(&self) -> bool {
        let all = self.host_nurseries.lock().expect("no panic while it is held");
        let mut told = false;
        if self.virtual_run.as_ref().is_some_and(virtual_workers::Shared::is_rung) {
            return false;
        }
        for &address in all.iter() {
            // SAFETY: a nursery leaves the list, under its lock, before it goes.
            let core = unsafe { &*(address as *const NurseryCore) };
            if core.live() > 0 && !core.is_cancelled() {
                told |= core.cancel(Some(TaskError::Deadlock));
            }
        }
        told
    }

    pub(crate) fn on_steal(&self, thief: usize, victim: usize, word: usize) {
        spans::stolen(self, thief, victim, word);
        if let Some(shared) = &self.virtual_run {
            shared.note_steal(thief, victim);
        }
    }
}

/// A set of workers that run budgeted tasks.
///
/// Tasks live in nurseries, and a nursery is a scope: [`Runtime::run`] and [`Runtime::nursery`] return when all tasks
/// below them have ended. Dropping the runtime stops its workers.
pub struct Runtime {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
    reserved: Reserved,
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("workers", &self.workers()).finish_non_exhaustive()
    }
}

impl Runtime {
    pub(crate) fn start(config: Config) -> Result<Self, ConfigError> {
        crate::protocol::asymmetric::prepare();
        overflow::install();
        let workers = config.worker_count() + config.spare_workers();
        let stack_size = config.stack_size.next_multiple_of(crate::stack::arena::PAGE);
        let arena = match config.max_stacks {
            Some(stacks) => Arena::new(stack_size, stacks),
            None => Arena::up_to(stack_size, USUAL_STACKS),
        };
        let arena = arena.map_err(ConfigError::Stacks)?;
        // Virtual workers are one thread.
        let only = config.deterministic.then(Arc::<SectionFlag>::default);
        let (owners, shares): (Vec<_>, Vec<_>) = deques(workers)
            .into_iter()
            .map(|(owner, stealer)| (owner, Share::new(stealer, only.clone().unwrap_or_default())))
            .unzip();
        // A worker that waits in another loop does not wait for sockets.
        let by_workers = config.watchdog.is_some() && config.event_loop.is_none();
        let io = Driver::new(config.io, by_workers).map_err(ConfigError::IoUring)?;
        let fair_tasks = config.fair_tasks.as_ref().map(|settings| {
            let time = config.root_caps.context().map_or(TimeLimits::NONE, CapContext::limits);
            FairTasks::new(workers, settings, time).ok_or(ConfigError::Threads(settings.threads))
        });
        let fair_tasks = fair_tasks.transpose()?;
        let virtual_run = config.deterministic.then(|| virtual_workers::Shared::new(config.seed));
        let timers = Timers::new(config.deterministic);
        let quota =
            |rate: &Option<Rate>| rate.map(|rate| Quota::at_root(rate, timers.clock.clone())).transpose();
        let tenant_quotas: Result<_, _> = config.tenant_rates.iter().map(quota).collect();
        let tenant_quotas = tenant_quotas.map_err(ConfigError::Rate)?;
        let queue = |worker| Some(Arc::new(Mutex::new(FairTenants::new(worker, config.tenants.as_ref()?))));
        let tenant_queues = (0..workers).filter_map(queue).collect();
        let inner = Arc::new_cyclic(|me| Inner {
            me: me.clone(),
            event_loop: config
                .event_loop
                .clone()
                .filter(|_| !config.deterministic)
                .map_or_else(OnceLock::new, OnceLock::from),
            blocking: Arc::default(),
            io,
            registry: Registry::default(),
            labels: Labels::default(),
            global: GlobalQueue::default(),
            shares: shares.into(),
            idle_workers: IdleWorkers::new(workers),
            arena,
            slab: Slab::default(),
            timers,
            tenant_quotas,
            tenant_queues,
            next_nursery: AtomicU64::new(1),
            next_id: AtomicU64::new(1),
            pool: Mutex::new(config.root_pool),
            host_nurseries: Mutex::default(),
            virtual_run,
            fair_tasks,
            bells: Bells::default(),
            monitored: Monitored::new(workers),
            faults: Faults::default(),
            leases: Watch::default(),
            os_threads: OsThreads::new(workers),
            spans: Spans::if_wanted(),
            observed: Observed::if_wanted(&config),
            config,
        });
        let me = inner.me.clone();
        inner.idle_workers.set_outer_bell(Box::new(move || {
            if let Some(inner) = me.upgrade() {
                match inner.event_loop.get() {
                    Some(event_loop) => event_loop::wake(&**event_loop),
                    None => inner.io.readiness.ring(),
                }
            }
        }));
        let workers: Vec<Worker> = owners
            .into_iter()
            .enumerate()
            .map(|(index, owner)| {
                let victims = Victims::new(inner.config.seed, index, workers, inner.config.victims);
                Worker::new(&inner, index, owner, victims)
            })
            .collect();
        let wish = inner.config.reserve;
        let mut runtime = Self { inner, threads: Vec::new(), reserved: Reserved::ask(None, None) };
        runtime.spawn_threads(workers)?;
        if wish.is_some() {
            let threads = (!runtime.inner.is_virtual()).then_some(&runtime.inner.os_threads);
            threads.inspect(|threads| threads.wait_for_all());
            runtime.reserved = Reserved::ask(wish, threads);
        }
        Ok(runtime)
    }

    fn spawn_threads(&mut self, workers: Vec<Worker>) -> Result<(), ConfigError> {
        if self.inner.is_virtual() {
            let inner = self.inner.clone();
            let thread = std::thread::Builder::new()
                .name("mainspring-virtual".to_owned())
                .spawn(move || {
                    // In this order, as below.
                    let inner = inner;
                    let workers = workers;
                    as_worker(|| virtual_workers::run(&inner, &workers));
                })
                .map_err(ConfigError::Thread)?;
            self.threads.push(thread);
            return Ok(());
        }
        for worker in workers {
            let inner = self.inner.clone();
            let thread = std::thread::Builder::new()
                .name(format!("mainspring-{}", worker.index))
                .spawn(move || {
                    // In this order: a worker goes before what it is part of, also where this thread has the last of that.
                    let inner = inner;
                    let worker = worker;
                    let share = &inner.shares[worker.index];
                    share.thread.store(watchdog::this_thread(), Ordering::Relaxed);
                    inner.os_threads.note(worker.index);
                    as_worker(|| keep_alive(&inner, &worker));
                })
                .map_err(ConfigError::Thread)?;
            self.threads.push(thread);
        }
        if let Some(settings) = self.inner.config.watchdog {
            let inner = self.inner.clone();
            let thread = std::thread::Builder::new()
                .name("mainspring-watchdog".to_owned())
                .spawn(move || watchdog::run(&inner, settings))
                .map_err(ConfigError::Thread)?;
            self.threads.push(thread);
        }
        Ok(())
    }

    /// Has the first worker drive another event loop from now on, as [`Config::event_loop`] does from the beginning. There is one at most,
    /// for as long as the runtime.
    pub fn attach_event_loop(&self, event_loop: Arc<dyn EventLoop>) -> Result<(), AttachError> {
        calls::count_poll();
        if self.inner.is_virtual() {
            return Err(AttachError::Deterministic);
        }
        // First: the bell outside is that of one place, so nobody may be in the other.
        self.inner.io.readiness.leave_to_thread().map_err(AttachError::Thread)?;
        self.inner.event_loop.set(event_loop).map_err(|_| AttachError::Taken)?;
        // It may sleep at its own bell, or be about to: its last look sees the loop.
        self.inner.idle_workers.notify(0);
        Ok(())
    }

    /// The event loop that the first worker drives, if there is one.
    pub fn event_loop(&self) -> Option<&Arc<dyn EventLoop>> {
        calls::count_poll();
        self.inner.event_loop.get()
    }

    /// How many workers there are, without spare ones ([`Watchdog::spare_workers`](crate::Watchdog::spare_workers)).
    pub fn workers(&self) -> usize {
        calls::count_poll();
        self.inner.config.worker_count()
    }

    /// Runs `f` as a task and waits for it. `f` may borrow from the caller. The task gets the root capabilities.
    ///
    /// All that runs at a time shares the root pool (`Config::root_pool`), whether one thread calls this or many. A run begins
    /// with a 64th of what is left. What the task itself or a nursery that it opens without a pool of its own lacks later is taken from
    /// what is left, so that a service does not stop by itself. When the root pool is empty, and the task's own nurseries have
    /// nothing left, the run ends with [`TaskError::BudgetExhausted`]. Amounts move, none are made; what a run has not used goes
    /// back at its end.
    pub fn run<F, T>(&self, f: F) -> Result<T, TaskError>
    where
        F: FnOnce(&Cx) -> T + Send,
        T: Send,
    {
        let result = host_nursery(&self.inner, Self::run_options(), true, |nursery| {
            let root = self.spawn_root(nursery, |cx| Ok::<_, Infallible>(f(cx)));
            root.map_err(|error| TaskError::Failed(error.into()))?.wait()
        });
        match result {
            Ok(result) => result,
            Err(error) => Err(error.error),
        }
    }

    /// How the nursery of a run is opened.
    pub(crate) fn run_options() -> NurseryOptions {
        let refill = Budget {
            ops: 1 << 30,
            memory: 1 << 30,
            channel_ops: 1 << 14,
            syscalls: 1 << 14,
            spawn_count: 1 << 14,
        };
        NurseryOptions::new().on_exhausted(Exhaustion::Refill(refill))
    }

    /// Spawns the root task of a run into the run's nursery.
    pub fn spawn_root<'scope, F, T, E>(
        &self,
        nursery: &Nursery<'scope, '_>,
        f: F,
    ) -> Result<Handle<'scope, T>, SpawnError>
    where
        F: FnOnce(&Cx) -> Result<T, E> + Send + 'scope,
        T: Send + 'scope,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let pool = nursery.pool();
        let half = pool.part(2);
        nursery
            .builder()
            .caps(self.inner.config.root_caps)
            .budget(Budget { spawn_count: 0, ..half.narrow() })
            .pool(Pool { spawn_count: pool.spawn_count.saturating_sub(1), ..half })
            .spawn_try(f)
    }

    /// Opens a nursery from an ordinary thread, which blocks on a futex until the children have ended. The nursery
    /// has the root capabilities. Unless `options` say otherwise, it takes half of what is left of the root pool for its time;
    /// [`Nursery::top_up`] moves more into it.
    ///
    /// Must not be called from inside a task: it would block the worker.
    pub fn nursery<'env, F, R>(&self, options: NurseryOptions, f: F) -> Result<R, NurseryError>
    where
        F: for<'scope> FnOnce(&'scope Nursery<'scope, 'env>) -> R,
    {
        host_nursery(&self.inner, options, false, f)
    }

    /// What each worker has done; the spare ones come last.
    pub fn worker_stats(&self) -> Vec<WorkerStats> {
        calls::count_poll();
        self.inner.shares.iter().map(Share::stats).collect()
    }

    /// Allows or forbids a worker to steal. False if there is no such worker.
    pub fn set_steal_enabled(&self, worker: usize, enabled: bool) -> bool {
        calls::count_poll();
        let share = self.inner.shares.get(worker);
        if let Some(share) = share {
            share.steal_enabled.store(enabled, Ordering::Relaxed);
        }
        share.is_some()
    }

    /// A part of a worker's flight record while it is being made, from byte `from` on: for those who follow a run. `None` if
    /// there is no such worker, it records nothing, or the record was closed.
    pub fn record_part(&self, worker: usize, from: usize) -> Option<RecordPart> {
        calls::count_poll();
        self.inner.fair_tasks.as_ref()?.record_part(worker, from)
    }

    /// The time of the flight records: how long ago this runtime started.
    pub fn record_time(&self) -> Nanos {
        calls::count_poll();
        Nanos::new(self.inner.timers.now_ns())
    }

    /// Closes the flight record of each worker and hands it out: what its core was asked and what it answered, from the
    /// start until now. Empty unless the fair discipline by task was asked to record, and the second time.
    pub fn close_record(&self) -> Vec<WorkerRecord> {
        calls::count_poll();
        let now = Nanos::new(self.inner.timers.now_ns());
        self.inner.fair_tasks.as_ref().map_or_else(Vec::new, |fair_tasks| fair_tasks.close_record(now))
    }

    /// The driver of sockets and files: never [`IoDriver::Auto`](crate::io::IoDriver::Auto).
    pub fn io_driver(&self) -> crate::io::IoDriver {
        calls::count_poll();
        self.inner.io.kind()
    }

    /// How stacks are guarded here.
    pub fn guards(&self) -> GuardKind {
        calls::count_poll();
        self.inner.arena.guards()
    }

    /// What is left of the root pool. Runs and nurseries that are open have taken a part of it.
    pub fn root_pool(&self) -> Pool {
        calls::count_poll();
        *self.inner.pool.lock().expect("no panic while it is held")
    }

    /// In the deterministic mode, a hash of the order of every dispatch and steal so far, and how many there were.
    pub fn trace(&self) -> Option<(u64, u64)> {
        calls::count_poll();
        self.inner.virtual_run.as_ref().map(virtual_workers::Shared::trace)
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    pub(crate) fn reserved(&self) -> &Reserved {
        &self.reserved
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.inner.idle_workers.close();
        self.inner.monitored.close();
        if let Some(shared) = &self.inner.virtual_run {
            shared.close();
        }
        self.inner.blocking.close();
        self.inner.io.close();
        let here = std::thread::current().id();
        for thread in self.threads.drain(..) {
            // What an event loop runs may drop the runtime: the worker that drives it ends when the loop is back.
            if thread.thread().id() == here {
                continue;
            }
            // A worker's thread catches its own panics.
            let _ = thread.join();
        }
        self.reserved.end();
    }
}

/// What a thread has that runs tasks.
fn as_worker(run: impl FnOnce()) {
    let _alternate = overflow::AlternateStack::install();
    run();
    crate::stack::roomy::discard();
}

/// Runs a worker, and goes on with it, queue and all, if it dies.
fn keep_alive(inner: &Inner, worker: &Worker) {
    loop {
        match catch_unwind(AssertUnwindSafe(|| worker.run())) {
            Ok(()) => return,
            Err(_) => {
                Share::add(&inner.shares[worker.index].deaths, 1);
            }
        }
    }
}
