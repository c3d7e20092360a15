//! The policy service of a run, and the boundary that it speaks through.
//!
//! The service is a thread like any other. It is heard each time that it gets a CPU, unless it stalls, and whenever an
//! update of it arrives; it is lost when it ends, or is not heard of for ten times as long as it takes to count as slow.
//! What the timed operations of a workload make it say goes through [`PolicyService`] and nowhere else.

use super::Machine;
use crate::policy::{Parties, Story};
use mainspring_abi::{CpuId, LatencyClass, Nanos, ProcessId, ThreadRef, Weight};
use mainspring_authority::boundary::{Change, Epoch, HintMap, PlacedContext, Quota, Treatment, Update};
use mainspring_driver::leases::Leases;
use mainspring_driver::policy::{PolicyMachine, PolicyService, Submitted};
use mainspring_sched::lease::{Owner, ServiceId};
use mainspring_workload::{Numbering, ThreadTarget, Workload};

/// More decisions than one event can lead to: none is gone before it has been listed.
const LOG: usize = 64;

#[derive(Debug)]
pub(super) struct Policy {
    service: PolicyService,
    parties: Parties,
    /// It is not heard of any more.
    stalled: bool,
    /// When the boundary must be looked at next.
    at: Nanos,
    story: Story,
}

impl Policy {
    pub(super) fn new(workload: &Workload, numbers: &Numbering) -> Option<Self> {
        let (manifest, parties) = crate::policy::manifest(workload, numbers)?;
        let service = PolicyService::new(manifest, LOG);
        Some(Self { service, parties, stalled: false, at: Nanos::MAX, story: Story::default() })
    }

    /// The thread that is to be listened for.
    pub(super) fn listens_for(&self, thread: usize) -> bool {
        self.parties.service == thread
    }

    /// The thread instance that is the service.
    pub(super) fn thread(&self) -> usize {
        self.parties.service
    }

    /// The instance of the service that is in charge, as the owner of leases.
    pub(super) fn service_id(&self) -> Option<ServiceId> {
        self.service.service()
    }

    /// When the boundary must be looked at next.
    pub(super) fn next(&self) -> Nanos {
        self.at
    }

    /// How the service wants `thread` to be treated.
    pub(super) fn treatment(&self, thread: ThreadRef) -> Option<Treatment> {
        self.service.treatment(thread)
    }
}

impl Machine<'_> {
    /// Lets the driver act on the policy service. What it calls back into the machine for needs neither it nor the leases.
    fn with_policy<R>(
        &mut self,
        act: impl FnOnce(&mut PolicyService, &mut Leases, &mut Self) -> R,
    ) -> Option<R> {
        let mut policy = self.policy.take()?;
        let result = self.with_leases(|leases, machine| act(&mut policy.service, leases, machine));
        self.policy = Some(policy);
        self.log_policy_decisions();
        result
    }

    /// The service has started, again perhaps.
    pub(super) fn policy_started(&mut self, thread: usize) {
        let epoch = Epoch(self.workload.policy.as_ref().map_or(1, |spec| spec.epoch));
        let Some(policy) = self.policy.as_mut().filter(|policy| policy.listens_for(thread)) else { return };
        policy.stalled = false;
        self.with_policy(|service, leases, machine| {
            let started = service.start(machine, leases).is_ok();
            if started && service.boundary().epoch() < epoch {
                // What the file itself sets is the first word, and nothing older counts.
                let first = service.submit(machine, leases, Update { epoch, changes: Vec::new() });
                debug_assert!(matches!(first, Submitted::Taken { .. }), "an empty update is taken");
            }
        });
    }

    /// The service has a CPU: it lives.
    pub(super) fn policy_heard(&mut self) {
        let now = self.now;
        let Some(policy) = self.policy.as_mut().filter(|policy| !policy.stalled) else { return };
        if policy.service.heard(now).is_ok() {
            self.log_policy_decisions();
        }
    }

    /// It is time to see whether the service is still there.
    pub(super) fn poll_policy(&mut self) {
        self.with_policy(|service, leases, machine| service.poll(machine, leases));
    }

    pub(super) fn stall_policy(&mut self) {
        if let Some(policy) = &mut self.policy {
            policy.stalled = true;
        }
    }

    /// The service ends.
    pub(super) fn kill_policy(&mut self) {
        if let Some(service) = self.policy.as_ref().map(Policy::thread) {
            self.kill(service);
        }
    }

    /// The life of `thread` in instance `index` is over.
    pub(super) fn policy_outlives(&mut self, index: usize, thread: ThreadRef) {
        let Some(policy) = &mut self.policy else { return };
        policy.service.thread_ended(thread);
        if policy.listens_for(index) {
            self.with_policy(|service, leases, machine| service.exited(machine, leases));
        }
    }

    /// The service asks for another weight or class of `target`, or of all its instances.
    pub(super) fn policy_asks(
        &mut self,
        target: ThreadTarget,
        weight: Option<Weight>,
        class: Option<LatencyClass>,
        epoch: u64,
    ) {
        let changes = self.targets(target).map(|index| {
            let present = self.present_treatment(index);
            let weight = weight.unwrap_or(present.weight).get().into();
            Change::Treat {
                thread: self.threads[index].identity,
                weight,
                class: class.unwrap_or(present.class),
            }
        });
        let update = Update { epoch: Epoch(epoch), changes: changes.collect() };
        let now = self.now;
        let Some(policy) = &mut self.policy else { return };
        if policy.service_id().is_none() {
            // No policy service has started that could ask.
            policy.story.refused_before_start(now);
            return;
        }
        // The log has what became of it.
        let _submitted = self.with_policy(|service, leases, machine| service.submit(machine, leases, update));
    }

    fn present_treatment(&self, index: usize) -> Treatment {
        let (thread, table) = (&self.threads[index], &self.workload.threads[self.table_of(index)]);
        let said = self.policy.as_ref().and_then(|policy| policy.treatment(thread.identity));
        said.unwrap_or(Treatment { weight: table.weight, class: table.latency })
    }

    /// Lists what the boundary has decided since the last time.
    fn log_policy_decisions(&mut self) {
        let Some(policy) = &mut self.policy else { return };
        policy.at = policy.service.poll_at();
        let decided = policy.story.look(policy.service.boundary());
        if self.schedule.is_some() {
            self.events.extend(decided.into_iter().map(|(at, kind, reason)| {
                let mut event = mainspring_report::Event::new(at.get(), kind);
                event.reason = Some(reason).filter(|reason| !reason.is_empty());
                event
            }));
        }
    }

    /// What a reader of the report should know of the policy service.
    pub(super) fn policy_notices(&self) -> Vec<String> {
        let Some(policy) = &self.policy else { return Vec::new() };
        let recovery = policy.parties.recovery.map(|thread| self.thread_name(thread));
        let name = self.thread_name(policy.parties.service);
        policy.story.notices(&name, recovery.as_deref(), policy.service.boundary().epoch())
    }
}

impl PolicyMachine for Machine<'_> {
    /// The first thread of the holder that lives and may use the CPU.
    fn lessee_for(&mut self, holder: ProcessId, cpu: CpuId) -> Option<(ThreadRef, Owner)> {
        let usable = |index: &usize| {
            let thread = &self.threads[*index];
            thread.process == holder && thread.home.is_some() && self.own_affinity_of(*index).allows(cpu)
        };
        let index = (0..self.threads.len()).find(usable)?;
        Some((self.threads[index].identity, self.owner_of(index)))
    }

    /// No operation of a workload makes a service set a quota, a context or a hint.
    fn set_quota(&mut self, _: ProcessId, _: Option<Quota>) {}

    fn set_context(&mut self, _: u32, _: Option<&PlacedContext>) {}

    fn hints_changed(&mut self, _: &HintMap) {}

    fn treated(&mut self, thread: ThreadRef, treatment: Treatment) {
        self.threads[thread.index() as usize].stats.weight = treatment.weight.get();
    }
}
