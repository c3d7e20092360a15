//! A policy service: a task of the host's choice that says how others are treated, within bounds that it cannot leave.
//!
//! What it says goes through a [`Boundary`], and what the boundary takes is carried out on the cores: weights and latency classes.
//! No worker waits for the service. What it has set stands when it is slow, lost or hostile, and the recovery thread of the
//! [`Manifest`] is nobody's to set.

use crate::calls;
use crate::protocol::fair_tasks::FairTasks;
use crate::runtime::{Inner, Runtime};
use mainspring_abi::{LatencyClass, Nanos, ThreadRef, Weight};
pub use mainspring_authority::boundary::{
    Boundary, Decision, Epoch, Lost, Manifest, NotServing, Refusal, Treatment,
};
use mainspring_authority::boundary::{Change, Update};
use mainspring_driver::policy as driver;
pub use mainspring_driver::policy::Submitted;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A service could not be set up or heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyError {
    /// This runtime cannot have one: set `Config::fair_by_task` with `FairTaskSettings::leases`.
    NoLeases,
    /// Its last instance was lost, and none has started since; or one is in charge already.
    NotServing,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoLeases => {
                "this runtime has no policy service; set Config::fair_by_task and FairTaskSettings::leases"
            }
            Self::NotServing => "no instance of the service is in charge; start one first",
        })
    }
}

impl Error for PolicyError {}

impl From<NotServing> for PolicyError {
    fn from(_: NotServing) -> Self {
        Self::NotServing
    }
}

/// The service as the host sees it: the host says when it starts, is heard and ends, and hands its words on.
///
/// ```
/// use mainspring::policy::{Epoch, Manifest, Submitted};
/// use mainspring::{Config, CpuSet, FairTaskSettings, LatencyClass, Profile, Schedule};
/// use mainspring_abi::ThreadRef;
///
/// let settings = FairTaskSettings { leases: 1, ..FairTaskSettings::default() };
/// let runtime = Config::new(Profile::Service).workers(1).fair_by_task(settings).build()?;
/// // No thread recovers this runtime.
/// let manifest = Manifest::new(CpuSet::first(1), ThreadRef::new(u32::MAX, 0));
/// let mut service = runtime.policy_service(manifest)?;
/// service.start()?;
/// runtime.nursery(Default::default(), |n| {
///     let schedule = Schedule { thread: Some(5), ..Schedule::default() };
///     let task = n.builder().schedule(schedule).spawn(|cx| cx.sleep(std::time::Duration::from_millis(5))).unwrap();
///     let taken = service.treat(Epoch(1), &[(5, 32, LatencyClass::Batch)]);
///     assert!(matches!(taken, Submitted::Taken { .. }));
///     // The same once more is stale.
///     assert!(matches!(service.treat(Epoch(1), &[(5, 64, LatencyClass::Batch)]), Submitted::Refused(_)));
///     drop(task);
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PolicyService {
    rt: Arc<Inner>,
    service: driver::PolicyService,
}

/// More decisions than one call can lead to.
const LOG: usize = 64;

impl Runtime {
    /// A policy service for this runtime, which has not started yet. Threads are named by [`Schedule::thread`](crate::Schedule::thread).
    pub fn policy_service(&self, manifest: Manifest) -> Result<PolicyService, PolicyError> {
        calls::count_action();
        let rt = self.inner().memory();
        let leases = rt.fair_tasks.as_ref().is_some_and(FairTasks::has_leases);
        let service = driver::PolicyService::new(manifest, LOG);
        if leases { Ok(PolicyService { rt, service }) } else { Err(PolicyError::NoLeases) }
    }

    /// The time on the runtime's clock, which [`Cx::now`](crate::Cx::now) and the flight record have.
    pub fn now(&self) -> Duration {
        calls::count_poll();
        Duration::from_nanos(now(self.inner()).get())
    }

    /// Sets the weight of a task that was spawned with this [`Schedule::thread`](crate::Schedule::thread), by the authority of the
    /// host. False if there is none.
    pub fn set_weight_of(&self, thread: usize, weight: Weight) -> bool {
        calls::count_action();
        let rt = self.inner();
        let cores = rt.fair_tasks.as_ref().filter(|cores| cores.thread_name(thread).is_some());
        let set = cores.and_then(|cores| cores.set_weight_of(thread, weight, now(rt)));
        set.map(|aftermath| rt.notify_contexts(&aftermath)).is_some()
    }
}

impl PolicyService {
    fn cores(&self) -> Option<&FairTasks> {
        self.rt.fair_tasks.as_ref()
    }

    fn name(&self, thread: usize) -> Option<ThreadRef> {
        self.cores()?.thread_name(thread)
    }

    /// An instance of it starts, and is in charge. What the last one has set stands.
    pub fn start(&mut self) -> Result<(), PolicyError> {
        calls::count_action();
        let (cores, now) = (self.rt.fair_tasks.as_ref().ok_or(PolicyError::NoLeases)?, now(&self.rt));
        let (started, aftermath) =
            cores.start_service(&mut self.service, now).ok_or(PolicyError::NoLeases)?;
        self.rt.notify_contexts(&aftermath);
        Ok(started?)
    }

    /// It says that it lives.
    pub fn heard(&mut self) -> Result<(), PolicyError> {
        calls::count_action();
        Ok(self.service.heard(now(&self.rt))?)
    }

    /// It asks for other weights and latency classes of threads: all are set, or none. The epoch is above that of all before.
    pub fn treat(&mut self, epoch: Epoch, wishes: &[(usize, u64, LatencyClass)]) -> Submitted {
        calls::count_action();
        // A thread that there cannot be is refused by the boundary, as one that has ended would be.
        let name = |thread| self.name(thread).unwrap_or(ThreadRef::new(u32::MAX, u32::MAX));
        let change = |(thread, weight, class): &(usize, u64, LatencyClass)| Change::Treat {
            thread: name(*thread),
            weight: *weight,
            class: *class,
        };
        let update = Update { epoch, changes: wishes.iter().map(change).collect() };
        let (rt, service) = (&self.rt, &mut self.service);
        let submitted =
            rt.fair_tasks.as_ref().and_then(|cores| cores.submit_policy(service, update, now(rt)));
        let Some((submitted, aftermath)) = submitted else { return Submitted::Refused(Refusal::NotInCharge) };
        rt.notify_contexts(&aftermath);
        submitted
    }

    /// How it wants a thread to be treated, also one that has not started.
    pub fn treatment(&self, thread: usize) -> Option<Treatment> {
        calls::count_poll();
        self.service.treatment(self.name(thread)?)
    }

    /// Looks whether it has been silent for too long.
    pub fn poll(&mut self) {
        calls::count_action();
        let (rt, service) = (&self.rt, &mut self.service);
        let polled = rt.fair_tasks.as_ref().and_then(|cores| cores.poll_service(service, now(rt)));
        polled.iter().for_each(|aftermath| rt.notify_contexts(aftermath));
    }

    /// How long [`PolicyService::poll`] can wait; `None` for ever.
    pub fn poll_in(&self) -> Option<Duration> {
        calls::count_poll();
        let at = self.service.poll_at();
        (at != Nanos::MAX).then(|| Duration::from_nanos((at - now(&self.rt)).get()))
    }

    /// Its task has ended.
    pub fn exited(&mut self) {
        calls::count_action();
        let (rt, service) = (&self.rt, &mut self.service);
        let ended = rt.fair_tasks.as_ref().and_then(|cores| cores.end_service(service, now(rt)));
        ended.iter().for_each(|aftermath| rt.notify_contexts(aftermath));
    }

    /// A thread has ended, or is about to: what was said of it is forgotten.
    pub fn thread_ended(&mut self, thread: usize) {
        calls::count_action();
        if let Some(name) = self.name(thread) {
            self.service.thread_ended(name);
        }
    }

    /// What it has set, how it is, and every decision about it.
    pub fn boundary(&self) -> &Boundary {
        self.service.boundary()
    }
}

impl fmt::Debug for PolicyService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyService").field("boundary", self.service.boundary()).finish_non_exhaustive()
    }
}

fn now(rt: &Inner) -> Nanos {
    Nanos::new(rt.timers.now_ns())
}
