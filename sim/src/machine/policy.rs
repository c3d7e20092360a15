//! The policy service of a run, and the boundary that it speaks through.
//!
//! The service is a thread like any other. It is heard each time that it gets a CPU, unless it stalls, and whenever an
//! update of it arrives; it is lost when it ends, or is not heard of for ten times as long as it takes to count as slow.
//! What the timed operations of a workload make it say goes through the core's [`Boundary`] and nowhere else.
//!
//! Conserved: only a directive of the boundary changes a thread's treatment on the service's behalf.

use super::Machine;
use crate::admission;
use mainspring_abi::{CpuSet, LatencyClass, Nanos, ThreadRef, Weight};
use mainspring_authority::boundary::{
    Answer, Boundary, Change, Decision, Directive, Epoch, Instance, Lost, Manifest, Refusal, Treatment,
    Update,
};
use mainspring_workload::{ThreadTarget, Workload};

/// How much longer than until it is slow a service is waited for.
const DEAD_AFTER: u64 = 10;

/// More decisions than one event can lead to: none is gone before it has been told.
const LOG: usize = 64;

#[derive(Debug)]
pub(super) struct Policy {
    boundary: Boundary,
    /// The thread instance that is the service.
    service: usize,
    recovery: Option<usize>,
    instance: Option<Instance>,
    /// It is not heard of any more.
    stalled: bool,
    /// When the boundary must be looked at next.
    at: Nanos,
    /// Decisions below this number have been told.
    told: u64,
    taken: u64,
    slow: Vec<Nanos>,
    lost: Option<(Nanos, Lost)>,
    refused: Vec<(Nanos, Refusal)>,
}

impl Policy {
    pub(super) fn new(workload: &Workload, bases: &[usize]) -> Option<Self> {
        let spec = workload.policy.as_ref()?;
        let instance_of =
            |target: &ThreadTarget| bases[target.thread] + target.instance.unwrap_or(0) as usize;
        let recovery = spec.recovery.as_ref().map(instance_of);
        // Without a recovery thread this names nobody.
        let untouchable = ThreadRef::new(recovery.map_or(u32::MAX, |index| index as u32), 0);
        let treatment = spec.recovery.as_ref().map(|target| {
            let table = &workload.threads[target.thread];
            Treatment { weight: table.weight, class: table.latency }
        });
        let manifest = Manifest {
            floor: admission::floor(workload),
            recovery_treatment: treatment.unwrap_or_default(),
            slow_after: spec.timeout,
            dead_after: Nanos::new(spec.timeout.get().saturating_mul(DEAD_AFTER)),
            ..Manifest::new(CpuSet::first(workload.machine.cpus), untouchable)
        };
        Some(Self {
            boundary: Boundary::new(manifest, LOG),
            service: instance_of(&spec.service),
            recovery,
            instance: None,
            stalled: false,
            at: Nanos::MAX,
            told: 0,
            taken: 0,
            slow: Vec::new(),
            lost: None,
            refused: Vec::new(),
        })
    }

    /// The thread that is to be listened for.
    pub(super) fn listens_for(&self, thread: usize) -> bool {
        self.service == thread
    }

    /// When the boundary must be looked at next.
    pub(super) fn next(&self) -> Nanos {
        self.at
    }

    /// How the service wants `thread` to be treated.
    pub(super) fn treatment(&self, thread: ThreadRef) -> Option<Treatment> {
        self.boundary.settings().treatment(thread)
    }
}

impl Machine<'_> {
    /// The service has started, again perhaps.
    pub(super) fn policy_started(&mut self, thread: usize) {
        let (now, epoch) = (self.now, self.workload.policy.as_ref().map_or(1, |spec| spec.epoch));
        let Some(policy) = self.policy.as_mut().filter(|policy| policy.listens_for(thread)) else { return };
        let Ok(instance) = policy.boundary.start(now) else { return };
        policy.instance = Some(instance);
        policy.stalled = false;
        let behind = policy.boundary.epoch() < Epoch(epoch);
        if behind {
            // What the file itself sets is the first word, and nothing older counts.
            let first = Update { epoch: Epoch(epoch), changes: Vec::new() };
            let answer = policy.boundary.submit(now, instance, first);
            debug_assert!(matches!(answer, Answer::Taken(_)), "an empty update of a higher epoch is taken");
        }
        self.tell_of_policy();
    }

    /// The service has a CPU: it lives.
    pub(super) fn policy_heard(&mut self) {
        let now = self.now;
        let Some(policy) = &mut self.policy else { return };
        let Some(instance) = policy.instance.filter(|_| !policy.stalled) else { return };
        if policy.boundary.heartbeat(now, instance).is_ok() {
            self.tell_of_policy();
        }
    }

    /// It is time to see whether the service is still there.
    pub(super) fn poll_policy(&mut self) {
        let now = self.now;
        let Some(policy) = &mut self.policy else { return };
        let directives = policy.boundary.poll(now);
        self.carry_out_policy(directives);
    }

    pub(super) fn stall_policy(&mut self) {
        if let Some(policy) = &mut self.policy {
            policy.stalled = true;
        }
    }

    /// The service ends.
    pub(super) fn kill_policy(&mut self) {
        if let Some(service) = self.policy.as_ref().map(|policy| policy.service) {
            self.kill(service);
        }
    }

    /// The life of `thread` in instance `index` is over.
    pub(super) fn policy_outlives(&mut self, index: usize, thread: ThreadRef) {
        let now = self.now;
        let Some(policy) = &mut self.policy else { return };
        policy.boundary.thread_ended(thread);
        if let Some(instance) = policy.instance.filter(|_| policy.service == index) {
            let directives = policy.boundary.exited(now, instance);
            self.carry_out_policy(directives);
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
        let now = self.now;
        let changes = self.targets(target).map(|index| {
            let present = self.present_treatment(index);
            let weight = weight.unwrap_or(present.weight).get().into();
            Change::Treat {
                thread: self.threads[index].identity,
                weight,
                class: class.unwrap_or(present.class),
            }
        });
        let changes = changes.collect();
        let Some(policy) = &mut self.policy else { return };
        let Some(instance) = policy.instance else {
            // Nobody has started who could ask.
            policy.refused.push((now, Refusal::NotInCharge));
            return;
        };
        match policy.boundary.submit(now, instance, Update { epoch: Epoch(epoch), changes }) {
            Answer::Taken(directives) | Answer::CutOff(_, directives) => self.carry_out_policy(directives),
            Answer::Refused(_) => self.tell_of_policy(),
        }
    }

    fn present_treatment(&self, index: usize) -> Treatment {
        let (thread, table) = (&self.threads[index], &self.workload.threads[self.table_of(index)]);
        let said = self.policy.as_ref().and_then(|policy| policy.treatment(thread.identity));
        said.unwrap_or(Treatment { weight: table.weight, class: table.latency })
    }

    fn carry_out_policy(&mut self, directives: Vec<Directive>) {
        for directive in directives {
            match directive {
                Directive::Treat(thread, treatment) => self.treat(thread, treatment),
                // No operation of a workload asks for these.
                Directive::Quota(..)
                | Directive::Context(..)
                | Directive::Lease(..)
                | Directive::Revoke(_)
                | Directive::HintsChanged => {}
            }
        }
        self.tell_of_policy();
    }

    /// A thread that does not live yet is treated so from its start.
    fn treat(&mut self, thread: ThreadRef, treatment: Treatment) {
        let index = thread.index() as usize;
        let Some((cpu, seat)) = self.threads.get(index).and_then(|_| self.place_of(index)) else { return };
        if self.core(cpu).set_weight(seat, treatment.weight).is_ok() {
            self.threads[index].stats.weight = treatment.weight.get();
        }
        let set = self.core(cpu).set_class(seat, treatment.class);
        debug_assert!(set.is_ok(), "whoever has a home has a seat");
    }

    /// Lists what the boundary has decided since the last time.
    fn tell_of_policy(&mut self) {
        let Some(policy) = &mut self.policy else { return };
        policy.at = policy.boundary.poll_at();
        let told = std::mem::replace(&mut policy.told, policy.boundary.log().written());
        let new: Vec<_> =
            policy.boundary.log().iter().filter(|record| record.sequence >= told).cloned().collect();
        for record in new {
            let (kind, reason) = match &record.decision {
                Decision::Started => ("policy-start", String::new()),
                Decision::Took(epoch, changes) => {
                    policy.taken += u64::from(!changes.is_empty());
                    ("policy-take", format!("epoch {}, {} changes", epoch.0, changes.len()))
                }
                Decision::Refused(epoch, why) => {
                    policy.refused.push((record.at, why.clone()));
                    ("policy-refuse", format!("epoch {}: {why}", epoch.0))
                }
                Decision::Slow => {
                    policy.slow.push(record.at);
                    ("policy-slow", "silent".to_owned())
                }
                Decision::HeardAgain => ("policy-heard", String::new()),
                Decision::Lost(why) => {
                    policy.lost = Some((record.at, *why));
                    ("policy-lost", in_words(*why).to_owned())
                }
                Decision::LeaseExpired(_) | Decision::LeaseRevoked(_) => continue,
            };
            if self.schedule.is_some() {
                let mut event = mainspring_report::Event::new(record.at.get(), kind);
                event.reason = Some(reason).filter(|reason| !reason.is_empty());
                self.events.push(event);
            }
        }
    }

    /// What whoever reads the report should know of the policy service.
    pub(super) fn policy_notices(&self) -> Vec<String> {
        let Some(policy) = &self.policy else { return Vec::new() };
        let name = self.thread_name(policy.service);
        let epoch = policy.boundary.epoch().0;
        let mut notices = Vec::new();
        if policy.taken + policy.refused.len() as u64 > 0 {
            let (taken, refused) = (policy.taken, policy.refused.len());
            notices.push(format!(
                "policy service {name}: {taken} updates taken, the last epoch is {epoch}; {refused} refused"
            ));
        }
        let shown = policy.refused.iter().take(8);
        notices.extend(shown.map(|(at, why)| format!("at {at} an update of {name} was refused: {why}")));
        if let Some(first) = policy.slow.first() {
            let times = policy.slow.len();
            notices.push(format!(
                "policy service {name} was slow {times} times, first at {first}; what it had set stood"
            ));
        }
        if let Some((at, why)) = policy.lost {
            let recovery = policy.recovery.map_or("nobody".to_owned(), |thread| self.thread_name(thread));
            notices.push(format!(
                "policy service {name} was lost at {at}: {}; what it had set stands, and {recovery} is there to recover",
                in_words(why)
            ));
        }
        notices
    }
}

fn in_words(why: Lost) -> &'static str {
    match why {
        Lost::Silent => "it was silent for too long",
        Lost::Exited => "it ended",
        Lost::CutOff => "too many of its updates in a row were refused",
    }
}
