//! What a policy service says of the threads, and other words from outside about how they are treated.
//!
//! Conserved: what [`mainspring_driver::policy`] conserves. A thread that has not started is treated so from its start on, by the
//! one who starts it.

use super::FairTasks;
use super::contexts::Aftermath;
use super::machine::{NOWHERE, Seen};
use crate::protocol::prim::Ordering;
use mainspring_abi::{CpuId, Nanos, ProcessId, ThreadRef, Weight};
use mainspring_authority::boundary::{HintMap, NotServing, PlacedContext, Quota, Update};
use mainspring_driver::contexts::ContextMachine as _;
use mainspring_driver::leases::LeaseMachine as _;
use mainspring_driver::placement;
use mainspring_driver::policy::{PolicyMachine, PolicyService, Submitted};
use mainspring_sched::lease::{Owner, SessionId};

impl FairTasks {
    /// The name of a thread, or the one that it will have when it is admitted next.
    pub fn thread_name(&self, thread: usize) -> Option<ThreadRef> {
        (thread < self.threads.len()).then(|| self.name(thread))
    }

    /// An instance of the service starts. `None` if this runtime has no leases.
    pub fn start_service(
        &self,
        service: &mut PolicyService,
        now: Nanos,
    ) -> Option<(Result<(), NotServing>, Aftermath)> {
        self.with_leases(None, now, |leases, machine| service.start(machine, leases).map(drop))
    }

    /// The service asks for changes.
    pub fn submit_policy(
        &self,
        service: &mut PolicyService,
        update: Update,
        now: Nanos,
    ) -> Option<(Submitted, Aftermath)> {
        self.with_leases(None, now, |leases, machine| service.submit(machine, leases, update))
    }

    /// Time has passed for the service.
    pub fn poll_service(&self, service: &mut PolicyService, now: Nanos) -> Option<Aftermath> {
        self.with_leases(None, now, |leases, machine| service.poll(machine, leases)).map(|((), after)| after)
    }

    /// The service has ended.
    pub fn end_service(&self, service: &mut PolicyService, now: Nanos) -> Option<Aftermath> {
        self.with_leases(None, now, |leases, machine| service.exited(machine, leases))
            .map(|((), after)| after)
    }

    /// Sets the weight of a thread from outside; `None` if it is not there. One that is queued is queued anew with it, at once.
    pub fn set_weight_of(&self, thread: usize, weight: Weight, now: Nanos) -> Option<Aftermath> {
        let mut machine = self.seen_from(None, now);
        placement::set_weight(&mut machine, self.name(thread), weight).then(|| machine.aftermath())
    }
}

/// A service of this runtime sets weights and classes; leases, contexts and quotas are values that their holders have.
impl PolicyMachine for Seen<'_> {
    fn lessee_for(&mut self, holder: ProcessId, cpu: CpuId) -> Option<(ThreadRef, Owner)> {
        let threads = self.threads().iter().enumerate();
        let mut of_holder = threads.filter(|(_, thread)| {
            thread.process.load(Ordering::Relaxed) as usize == holder.index()
                && thread.slot.load(Ordering::Relaxed) != NOWHERE
        });
        let (number, _) = of_holder.find(|(number, _)| self.own_affinity(self.name(*number)).allows(cpu))?;
        let thread = self.name(number);
        let session = self.session_of(thread).map(|session| SessionId(session.id()));
        Some((thread, Owner { process: holder, session, service: None }))
    }

    fn set_quota(&mut self, _: ProcessId, _: Option<Quota>) {}

    fn set_context(&mut self, _: u32, _: Option<&PlacedContext>) {}

    fn hints_changed(&mut self, _: &HintMap) {}
}
