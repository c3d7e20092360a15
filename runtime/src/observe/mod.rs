//! What each task has done, for a console: how often it ran and was woken, and how long it ran and waited.
//!
//! Behind the feature `console`; without it `unobserved.rs` stands here. A runtime observes its tasks if [`Config::observe_tasks`] asks for
//! it. Its workers then read the clock at each switch and at each wake. An [`Observer`] stops no worker: each value that it tells was true
//! at some moment while it looked, not all at the same one.
//!
//! Conserved: the mark of a task points to its record from its birth to its end, and keeps it. No more tasks are observed at a time
//! than the runtime was told, and of those that have ended the last [`ENDED_KEPT`] are kept: what is held has a bound, whatever the
//! program does and whether or not anybody looks.
#![expect(unsafe_code, reason = "records that the threads of a runtime share")]

mod buckets;
mod record;

use crate::calls;
use crate::config::Config;
use crate::cx::TaskId;
use crate::runtime::{Inner, Runtime};
use crate::task::{Task, TaskPtr};
use crate::worker::Worker;
use record::{Origin, Record};
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::panic::Location;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

/// Tasks that a console usually observes at a time: [`Config::observe_tasks`].
pub const USUAL_TASKS: usize = 4096;
/// Tasks that have ended and are still told.
pub const ENDED_KEPT: usize = 1024;

const SHARDS: usize = 16;

impl Config {
    /// Keeps a record of what each task does, for an [`Observer`]: of at most `tasks` tasks at a time, and of none if that is 0, which is
    /// so unless set. A task that is spawned when so many are observed has none; [`Observation::missed`] counts it. A record has about
    /// one and a half KiB.
    #[must_use]
    pub fn observe_tasks(mut self, tasks: usize) -> Self {
        self.observed_tasks = tasks;
        self
    }
}

/// What a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TaskKind {
    /// A closure on a stack.
    Stack,
    /// A future that was spawned.
    Future,
    /// The second half of a [`Cx::join`](crate::Cx::join) that another worker took.
    Half,
}

/// What a task has done. Times are since [`Observer::began`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ObservedTask {
    /// Its id.
    pub id: TaskId,
    /// The name that its spawner gave it.
    pub name: Option<&'static str>,
    /// The nursery that owns it.
    pub nursery: u64,
    /// Its tenant, under the fair discipline by tenant.
    pub tenant: Option<usize>,
    /// What it is.
    pub kind: TaskKind,
    /// Where the program spawned it. `None` if that is not known: of the root task of a run, of the child of a supervisor, and of what
    /// a [`ThreadSpawner`](crate::ThreadSpawner) spawned.
    pub location: Option<&'static Location<'static>>,
    /// When it was spawned.
    pub spawned: Duration,
    /// When it ended.
    pub ended: Option<Duration>,
    /// How often a worker went on with it.
    pub polls: u64,
    /// When a worker first did.
    pub first_poll: Option<Duration>,
    /// When a worker last did.
    pub poll_began: Option<Duration>,
    /// When it last waited, gave way or ended. It runs if that is before `poll_began`.
    pub poll_ended: Option<Duration>,
    /// How long it ran, without the time since `poll_began` if it runs.
    pub busy: Duration,
    /// How long it was ready and did not run, without the time since `ready` if it is.
    pub scheduled: Duration,
    /// How often it was made ready again: by others, and by itself.
    pub wakes: u64,
    /// How often by itself: it gave way to others, or woke itself before it waited.
    pub self_wakes: u64,
    /// When it was last made ready; at first, when it was spawned. It is ready if that is after `poll_began`.
    pub ready: Duration,
    /// How many wakers there were when it last waited. A task on a stack has one: it is known to what it waits for.
    pub wakers: u64,
}

/// What an observer sees at about one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Observation {
    /// When: since [`Observer::began`].
    pub now: Duration,
    /// The tasks that have not ended and are observed, and the last that have ended.
    pub tasks: Vec<ObservedTask>,
    /// Tasks so far that were spawned while as many were observed as may be.
    pub missed: u64,
}

/// How long a task ran and waited each time, within an eighth: how many durations there were of about each size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskTimes {
    /// From each resume to the next wait, yield or end.
    pub polls: Vec<(Duration, u64)>,
    /// From each time that it was made ready to its resume.
    pub scheduled: Vec<(Duration, u64)>,
}

/// Sees what the tasks of a runtime do. It keeps neither the runtime nor its tasks.
#[derive(Clone, Debug)]
pub struct Observer(Arc<Observed>);

impl Observer {
    /// An observer of this runtime. `None` if it does not observe its tasks: [`Config::observe_tasks`].
    ///
    /// ```
    /// use mainspring::observe::{Observer, USUAL_TASKS};
    /// use mainspring::{Config, Profile};
    /// let runtime = Config::new(Profile::Service).observe_tasks(USUAL_TASKS).build().unwrap();
    /// let observer = Observer::of(&runtime).unwrap();
    /// runtime.run(|_| ()).unwrap();
    /// assert_eq!(observer.tasks().tasks[0].polls, 1);
    /// ```
    pub fn of(runtime: &Runtime) -> Option<Self> {
        calls::count_poll();
        runtime.inner().observed.clone().map(Self)
    }

    /// When the runtime was built.
    pub fn began(&self) -> SystemTime {
        calls::count_poll();
        self.0.began_at
    }

    /// How long ago that was.
    pub fn now(&self) -> Duration {
        calls::count_poll();
        Duration::from_nanos(self.0.now_ns())
    }

    /// What the tasks have done.
    pub fn tasks(&self) -> Observation {
        calls::count_costly_action();
        let live = self.0.shards.iter().flat_map(|shard| lock(shard).values().cloned().collect::<Vec<_>>());
        let mut records: Vec<Arc<Record>> = live.collect();
        // A task that ends meanwhile may be in both lists, never in neither.
        records.extend(lock(&self.0.ended).iter().cloned());
        records.sort_unstable_by_key(|record| record.id());
        records.dedup_by(|a, b| Arc::ptr_eq(a, b));
        Observation {
            now: Duration::from_nanos(self.0.now_ns()),
            tasks: records.iter().filter_map(|record| record.view()).collect(),
            missed: self.0.missed.load(Ordering::Relaxed),
        }
    }

    /// How long a task ran and waited each time. `None` if it is not observed, or ended long ago.
    pub fn times(&self, task: TaskId) -> Option<TaskTimes> {
        calls::count_costly_action();
        let live = lock(self.0.shard(task.0)).get(&task.0).cloned();
        let ended = || lock(&self.0.ended).iter().rev().find(|record| record.id() == Some(task.0)).cloned();
        let record = live.or_else(ended)?;
        Some(TaskTimes { polls: record.poll_times(), scheduled: record.scheduled_times() })
    }
}

type Shard = Mutex<HashMap<u64, Arc<Record>>>;

/// The records of a runtime's tasks.
#[derive(Debug)]
pub(crate) struct Observed {
    began: Instant,
    began_at: SystemTime,
    most: usize,
    live: AtomicUsize,
    missed: AtomicU64,
    /// Of tasks that have not ended, by their ids.
    shards: [Shard; SHARDS],
    /// Of the last that have, the latest last.
    ended: Mutex<VecDeque<Arc<Record>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic while it is held")
}

impl Observed {
    /// The records, if they are asked for.
    pub(crate) fn if_wanted(config: &Config) -> Option<Arc<Self>> {
        (config.observed_tasks > 0).then(|| {
            Arc::new(Self {
                began: Instant::now(),
                began_at: SystemTime::now(),
                most: config.observed_tasks,
                live: AtomicUsize::new(0),
                missed: AtomicU64::new(0),
                shards: std::array::from_fn(|_| Shard::default()),
                ended: Mutex::default(),
            })
        })
    }

    fn now_ns(&self) -> u64 {
        // Never 0, which is for what has not happened.
        1 + self.began.elapsed().as_nanos() as u64
    }

    fn shard(&self, id: u64) -> &Shard {
        &self.shards[id as usize % SHARDS]
    }

    /// A record for a new task, if there is room.
    fn make_room(&self, location: Option<&'static Location<'static>>) -> Option<Arc<Record>> {
        if self.live.fetch_add(1, Ordering::Relaxed) < self.most {
            return Some(Arc::new(Record::new(location)));
        }
        self.live.fetch_sub(1, Ordering::Relaxed);
        self.missed.fetch_add(1, Ordering::Relaxed);
        None
    }

    fn end(&self, record: Arc<Record>) {
        record.ended(self.now_ns());
        self.live.fetch_sub(1, Ordering::Relaxed);
        let id = record.id();
        let gone = {
            let mut ended = lock(&self.ended);
            ended.push_back(record);
            if ended.len() > ENDED_KEPT { ended.pop_front() } else { None }
        };
        // Freed outside of the lock.
        drop(gone);
        if let Some(id) = id {
            lock(self.shard(id)).remove(&id);
        }
    }
}

/// Whether the place is in the sources of the runtime itself.
fn is_of_runtime(location: &Location<'_>) -> bool {
    file!().strip_suffix("observe/mod.rs").is_some_and(|sources| location.file().starts_with(sources))
}

/// In a task's record: where what it does is noted. Null if it is not observed.
#[derive(Debug)]
pub(crate) struct Mark(AtomicPtr<Record>);

impl Mark {
    pub(crate) const fn none() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// The record. Only for who holds the task: from its birth to its end it is there.
    #[inline(always)]
    fn record(&self) -> Option<&Record> {
        // SAFETY: null, or a record that the mark keeps until the holder ends it. Relaxed: the caller holds the task, which it
        // has from the thread that wrote this.
        unsafe { self.0.load(Ordering::Relaxed).as_ref() }
    }

    /// A task is made by the caller's caller.
    #[track_caller]
    #[inline(always)]
    pub(crate) fn born(&self, rt: &Inner) {
        if let Some(observed) = &rt.observed {
            self.begin(observed, Some(Location::caller()).filter(|location| !is_of_runtime(location)));
        }
    }

    /// The task of a stolen half of a join is made.
    pub(crate) fn adopted(&self, task: &Task) {
        if let Some(observed) = &task.nursery().rt().observed {
            self.begin(observed, None);
            self.publish(task, observed, TaskKind::Half);
        }
    }

    #[cold]
    #[inline(never)]
    fn begin(&self, observed: &Observed, location: Option<&'static Location<'static>>) {
        let record =
            observed.make_room(location).map_or(null_mut(), |record| Arc::into_raw(record).cast_mut());
        self.0.store(record, Ordering::Relaxed);
    }

    /// What the task runs is a future. It is not published yet.
    #[inline(always)]
    pub(crate) fn holds_future(&self) {
        if let Some(record) = self.record() {
            record.holds_future();
        }
    }

    /// The task, which has a body and a name by now, is about to be published.
    #[inline(always)]
    pub(crate) fn spawned(&self, task: &Task) {
        if let Some(observed) = &task.nursery().rt().observed {
            let is_future = self.record().is_some_and(Record::is_future);
            self.publish(task, observed, if is_future { TaskKind::Future } else { TaskKind::Stack });
        }
    }

    #[cold]
    #[inline(never)]
    fn publish(&self, task: &Task, observed: &Observed, kind: TaskKind) {
        let record = self.0.load(Ordering::Relaxed);
        if record.is_null() {
            return;
        }
        // SAFETY: `begin` left an `Arc` there, which stays.
        let record = unsafe {
            Arc::increment_strong_count(record);
            Arc::from_raw(record)
        };
        let (rt, id) = (task.nursery().rt(), task.id.load(Ordering::Relaxed));
        let tenant = rt.config.tenants.is_some().then(|| task.entity.load(Ordering::Relaxed).into());
        let name = rt.labels.of(id).name;
        record.spawned(Origin { id, name, nursery: task.nursery().id, tenant, kind }, observed.now_ns());
        lock(observed.shard(id)).insert(id, record);
    }

    /// A wake has made the task ready, and the caller holds it.
    #[inline(always)]
    pub(crate) fn woken(&self, task: TaskPtr) {
        #[cold]
        #[inline(never)]
        fn note(record: &Record, task: TaskPtr) {
            if let Some(observed) = &task.nursery().rt().observed {
                record.woken(observed.now_ns());
            }
        }
        if let Some(record) = self.record() {
            note(record, task);
        }
    }

    /// The task gives way, and stays ready.
    #[inline(always)]
    pub(crate) fn yielded(&self, rt: &Inner) {
        if let (Some(record), Some(observed)) = (self.record(), &rt.observed) {
            record.yielded(observed.now_ns());
        }
    }

    /// The task is over, and no worker runs it.
    pub(crate) fn end(&self, rt: &Inner) {
        let record = self.0.swap(null_mut(), Ordering::Relaxed);
        if let (false, Some(observed)) = (record.is_null(), &rt.observed) {
            // SAFETY: what `begin` left there; the swap hands it out once.
            observed.end(unsafe { Arc::from_raw(record.cast_const()) });
        }
    }
}

/// A wake of `task` came to nothing yet. If the worker of this thread runs that task, it has woken itself.
#[inline(always)]
pub(crate) fn note_early_wake(task: &Task, worker: Option<&Worker>) {
    let (record, current) = worker.map_or((null(), null()), |worker| worker.running.0.get());
    if !record.is_null() && std::ptr::eq(current, task) {
        // SAFETY: the record of the task that the worker has not left.
        unsafe { &*record }.woke_itself();
    }
}

/// The record of the task that a worker runs.
///
/// A worker leaves it before the wait of its task is committed, before the task is queued and before it ends: until then no other thread
/// can end the task, so that the record stays.
#[derive(Debug)]
pub(crate) struct Running(Cell<(*const Record, *const Task)>);

impl Running {
    pub(crate) const fn none() -> Self {
        Self(Cell::new((null(), null())))
    }

    /// The worker leaves what it ran, and goes on with `task`.
    pub(crate) fn go_on(&self, task: &Task, rt: &Inner) {
        if let Some(observed) = &rt.observed {
            let now_ns = observed.now_ns();
            self.leave_at(now_ns);
            if let Some(record) = task.mark.record() {
                record.resumed(now_ns);
                self.0.set((record, task));
            }
        }
    }

    /// The worker leaves what it ran.
    #[inline(always)]
    pub(crate) fn leave(&self, rt: &Inner) {
        if let (false, Some(observed)) = (self.0.get().0.is_null(), &rt.observed) {
            self.leave_at(observed.now_ns());
        }
    }

    fn leave_at(&self, now_ns: u64) {
        let (record, task) = self.0.replace((null(), null()));
        // SAFETY: null, or the record of the task that the worker has not left until now, and that task.
        if let Some((record, task)) = unsafe { record.as_ref().zip(task.as_ref()) } {
            record.left(now_ns, record.is_future().then(|| task.wakers.count().into()));
        }
    }
}
