//! Workers that one task has to itself.
//!
//! A [`CpuIsolationLease`] is placement and exclusivity, and no CPU time: the task is charged as everywhere. Its workers run that
//! task, and tasks that may run nowhere else; the other workers do the rest, timers and sockets included. If the host has a CPU
//! to spare, the worker's thread is pinned to it and the process's other threads leave it; [`CpuIsolationLease::host_cpus`] says
//! which. Other processes are kept away by the host alone (`isolcpus`, `nohz_full`, a cpuset).
//!
//! # What is conserved
//!
//! * A worker is in at most one live lease, and at least one worker is in none.
//! * A lease ends once: taken back, given up (also when its value is dropped), with its task, its process, its session, its
//!   lifetime, or replaced. Its task goes on where it may.
//! * A refusal changes nothing.

use crate::callback;
use crate::calls;
use crate::context::SchedulingContext;
use crate::cx::Cx;
use crate::protocol::fair_tasks::{Aftermath, FairTasks, LeaseEnd, LeaseWish, SessionName};
use crate::runtime::{Inner, Runtime};
use mainspring_abi::{CpuSet, Nanos};
pub use mainspring_driver::leases::GrantRefusal;
use mainspring_sched::lease::LeaseRef;
pub use mainspring_sched::lease::{EndReason, Mode};
use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// What is called when a lease has ended.
type OnEnd = Arc<dyn Fn(EndReason) + Send + Sync>;

/// A lease that is asked for.
#[derive(Clone)]
pub struct LeaseRequest {
    wish: LeaseWish,
    on_end: Option<OnEnd>,
}

impl fmt::Debug for LeaseRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseRequest").field("wish", &self.wish).finish_non_exhaustive()
    }
}

impl LeaseRequest {
    /// These workers for the task that is thread `lessee` (`Schedule::thread`, [`Cx::thread_number`]), now or when it starts.
    pub fn new(lessee: usize, workers: CpuSet) -> Self {
        let wish = LeaseWish {
            lessee,
            workers,
            mode: Mode::Compute,
            process: 0,
            session: None,
            pays: None,
            max_revocation: Nanos::from_millis(1),
            lifetime: Nanos::ZERO,
            replaces: None,
        };
        Self { wish, on_end: None }
    }

    /// What the workers are for; computing, unless set.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.wish.mode = mode;
        self
    }

    /// Whose it is: it ends with [`Runtime::end_process`] of this process. 0 unless set.
    #[must_use]
    pub fn process(mut self, process: u32) -> Self {
        self.wish.process = process;
        self
    }

    /// It ends when this session is logged out.
    #[must_use]
    pub fn session(mut self, session: SessionName) -> Self {
        self.wish.session = Some(session.name());
        self
    }

    /// The context that pays; the task's own time as best effort, unless set.
    #[must_use]
    pub fn pays(mut self, context: &SchedulingContext) -> Self {
        self.wish.pays = Some(context.who());
        self
    }

    /// How long it may take until a revocation is felt: 1 ms unless set.
    #[must_use]
    pub fn max_revocation(mut self, latency: Duration) -> Self {
        self.wish.max_revocation = nanos(latency);
        self
    }

    /// It ends by itself after so long.
    #[must_use]
    pub fn lifetime(mut self, lifetime: Duration) -> Self {
        self.wish.lifetime = nanos(lifetime);
        self
    }

    /// Called once when it has ended, by whichever thread ended it. It must not wait. If it panics, only the panic hook hears of
    /// it.
    #[must_use]
    pub fn on_end(mut self, told: impl Fn(EndReason) + Send + Sync + 'static) -> Self {
        self.on_end = Some(Arc::new(told));
        self
    }
}

/// A lease was not granted; nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseError {
    /// This runtime has no leases: set `Config::fair_by_task` with `FairTaskSettings::leases`.
    NoLeases,
    /// There is no such thread: threads are numbered below `FairTaskSettings::threads`.
    NoThread(usize),
    /// It was refused.
    Refused(GrantRefusal),
    /// The lease that was to be replaced, taken back or given up has ended.
    Ended,
}

impl fmt::Display for LeaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLeases => f.write_str(
                "this runtime has no leases; set Config::fair_by_task and FairTaskSettings::leases",
            ),
            Self::NoThread(thread) => {
                write!(f, "there is no thread {thread}; name one below FairTaskSettings::threads")
            }
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Ended => f.write_str("the lease has ended; ask for another"),
        }
    }
}

impl Error for LeaseError {}

#[derive(Debug, Default)]
struct State {
    ended: OnceLock<(EndReason, Duration)>,
}

struct Watched {
    lease: LeaseRef,
    state: Arc<State>,
    on_end: Option<OnEnd>,
}

/// The leases that somebody holds.
#[derive(Default)]
pub(crate) struct Watch(Mutex<Vec<Watched>>);

impl Watch {
    fn with<R>(&self, act: impl FnOnce(&mut Vec<Watched>) -> R) -> R {
        act(&mut self.0.lock().expect("no panic while it is held"))
    }

    /// Takes it out of the list: its callback is used, or dropped, outside of the lock.
    fn take(&self, lease: LeaseRef) -> Option<Watched> {
        self.with(|all| {
            let place = all.iter().position(|watched| watched.lease == lease)?;
            Some(all.swap_remove(place))
        })
    }

    fn ended(&self, end: &LeaseEnd) {
        if let Some(Watched { state, on_end, .. }) = self.take(end.lease) {
            let first = state.ended.set((end.reason, Duration::from_nanos(end.at.get()))).is_ok();
            let reason = end.reason;
            callback::call(move || {
                if let Some(on_end) = on_end.filter(|_| first) {
                    on_end(reason);
                }
            });
        }
    }
}

/// Workers that a task has to itself. It is given up when it is dropped.
///
/// ```
/// use mainspring::{Config, CpuId, FairTaskSettings, LeaseRequest, Profile, Schedule};
/// let settings = FairTaskSettings { leases: 1, ..FairTaskSettings::default() };
/// let runtime = Config::new(Profile::Service).workers(2).fair_by_task(settings).build()?;
/// let second = [CpuId::new(1)?].into_iter().collect();
/// let lease = runtime.lease(LeaseRequest::new(7, second))?;
/// runtime.run(|cx| {
///     cx.nursery(|n| {
///         let schedule = Schedule { thread: Some(7), ..Schedule::default() };
///         let poller = n.builder().schedule(schedule).spawn(|cx| cx.worker()).unwrap();
///         assert_eq!(poller.join(cx).unwrap(), 1, "it runs where its lease is");
///     })
///     .unwrap();
/// })?;
/// # drop(lease);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a lease that is dropped is given up"]
pub struct CpuIsolationLease {
    rt: Arc<Inner>,
    lease: LeaseRef,
    workers: CpuSet,
    state: Arc<State>,
}

impl fmt::Debug for CpuIsolationLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CpuIsolationLease").field("lease", &self.lease).finish_non_exhaustive()
    }
}

impl Inner {
    /// Does what the end of leases leaves to do. No lock is held.
    pub(crate) fn finish_leases(&self, aftermath: &Aftermath) {
        if aftermath.leased_changed
            && let Some(cores) = &self.fair_tasks
        {
            self.os_threads.pin(&cores.leased_workers());
        }
        for end in &aftermath.lease_ends {
            self.leases.ended(end);
        }
    }

    fn lease_cores(&self) -> Result<&FairTasks, LeaseError> {
        self.fair_tasks.as_ref().ok_or(LeaseError::NoLeases)
    }

    fn lease_now(&self) -> Nanos {
        Nanos::new(self.timers.now_ns())
    }

    fn grant_lease(&self, request: LeaseRequest) -> Result<CpuIsolationLease, LeaseError> {
        let LeaseRequest { wish, on_end } = request;
        let settings = self.config.fair_tasks.as_ref().ok_or(LeaseError::NoLeases)?;
        if wish.lessee >= settings.threads {
            return Err(LeaseError::NoThread(wish.lessee));
        }
        let cores = self.lease_cores()?;
        let state = Arc::<State>::default();
        // It may end at once: whoever ends it waits until it is known here. The callback of one that is refused goes after the lock:
        // its destructor is the host's.
        let mut on_end = Some(on_end);
        let granted = self.leases.with(|all| {
            let granted = cores.grant_lease(&wish, self.lease_now());
            if let Some((Ok(lease), _)) = granted {
                all.push(Watched { lease, state: state.clone(), on_end: on_end.take().flatten() });
            }
            granted
        });
        let (granted, aftermath) = granted.ok_or(LeaseError::NoLeases)?;
        self.notify_contexts(&aftermath);
        let lease = granted.map_err(LeaseError::Refused)?;
        Ok(CpuIsolationLease { rt: self.memory(), lease, workers: wish.workers, state })
    }
}

impl Runtime {
    /// Gives workers to a task, by the authority of the host: threads that may run elsewhere leave them. A started task that must
    /// not move (see `Config::migrate_started_tasks`) is refused any worker but its own.
    pub fn lease(&self, request: LeaseRequest) -> Result<CpuIsolationLease, LeaseError> {
        calls::count_costly_action();
        self.inner().grant_lease(request)
    }

    /// A process of the host's own counting (`Schedule::process`) has ended: its leases end.
    pub fn end_process(&self, process: u32) {
        calls::count_costly_action();
        let inner = self.inner();
        if let Some(cores) = &inner.fair_tasks {
            inner.notify_contexts(&cores.end_leases_of_process(process, inner.lease_now()));
        }
    }
}

impl CpuIsolationLease {
    /// Its workers.
    pub fn workers(&self) -> CpuSet {
        self.workers
    }

    /// The CPUs of the host that its workers are pinned to, and that the process's other threads have left. Empty if the host has
    /// none to spare: then only tasks of this runtime keep away.
    pub fn host_cpus(&self) -> Vec<usize> {
        calls::count_poll();
        self.workers.iter().filter_map(|worker| self.rt.os_threads.cpu_of(worker.index())).collect()
    }

    /// Why and when it ended, on the runtime's clock ([`Cx::now`]); `None` while it is live.
    pub fn ended(&self) -> Option<(EndReason, Duration)> {
        calls::count_poll();
        self.state.ended.get().copied()
    }

    /// Another lease of the same owner takes its place at once, and this value is that from then on. If that is refused, nothing
    /// changes.
    pub fn replace(&mut self, mut request: LeaseRequest) -> Result<(), LeaseError> {
        calls::count_costly_action();
        if self.ended().is_some() {
            return Err(LeaseError::Ended);
        }
        request.wish.replaces = Some(self.lease);
        *self = self.rt.grant_lease(request)?;
        Ok(())
    }

    /// Takes it back.
    pub fn revoke(&self) -> Result<(), LeaseError> {
        calls::count_costly_action();
        let done = self.rt.lease_cores()?.revoke_lease(self.lease, self.rt.lease_now());
        let (revoked, aftermath) = done.ok_or(LeaseError::NoLeases)?;
        self.rt.notify_contexts(&aftermath);
        revoked.map_err(|_| LeaseError::Ended)
    }

    /// Gives it up.
    pub fn release(self) {
        drop(self);
    }
}

impl Drop for CpuIsolationLease {
    fn drop(&mut self) {
        let cores = self.rt.fair_tasks.as_ref();
        if let Some((_done, aftermath)) =
            cores.and_then(|cores| cores.release_lease(self.lease, self.rt.lease_now()))
        {
            self.rt.notify_contexts(&aftermath);
        }
        drop(self.rt.leases.take(self.lease));
    }
}

impl Cx {
    /// The number that the task has as a thread of the fair discipline by task: what a lease names it by.
    pub fn thread_number(&self) -> Option<usize> {
        calls::count(self);
        self.rt().fair_tasks.as_ref().map(|_| self.thread())
    }
}

fn nanos(length: Duration) -> Nanos {
    Nanos::new(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX))
}
