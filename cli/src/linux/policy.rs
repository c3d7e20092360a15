//! The policy service of a run: one of its players, which is heard at each of its steps unless it stalls.
//!
//! What the timed operations of a workload make it say goes through [`PolicyService`] and nowhere else. It is lost when it ends, or
//! is not heard of for too long.

use super::LinuxError;
use super::stage::Stage;
use mainspring::policy::{Epoch, PolicyService, Submitted, Treatment};
use mainspring::{LatencyClass, Runtime, Weight};
use mainspring_sim::policy::{Parties, Story};
use mainspring_workload::{Numbering, ThreadTarget, Workload};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

#[derive(Debug)]
struct State {
    service: PolicyService,
    story: Story,
    /// It is not heard of any more.
    stalled: bool,
    started: bool,
}

/// The service, and what became of it.
#[derive(Debug)]
pub struct Policy {
    parties: Parties,
    epoch: Epoch,
    state: Mutex<State>,
}

impl Policy {
    /// The service of a workload, if it has one.
    pub fn new(
        workload: &Workload,
        runtime: &Runtime,
        numbers: &Numbering,
    ) -> Result<Option<Self>, LinuxError> {
        let Some((manifest, parties)) = mainspring_sim::policy::manifest(workload, numbers) else {
            return Ok(None);
        };
        let service = runtime.policy_service(manifest).map_err(LinuxError::Policy)?;
        let epoch = Epoch(workload.policy.as_ref().map_or(1, |spec| spec.epoch));
        let state = State { service, story: Story::default(), stalled: false, started: false };
        Ok(Some(Self { parties, epoch, state: Mutex::new(state) }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while it is held")
    }

    fn with<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock();
        let result = act(&mut state);
        let State { service, story, .. } = &mut *state;
        // The events are for schedules, which this machine has none of.
        let _events = story.look(service.boundary());
        result
    }

    /// An instance has begun a life: the service is in charge then.
    pub fn started(&self, instance: usize) {
        if self.parties.service == instance {
            self.with(|state| {
                state.stalled = false;
                state.started = state.service.start().is_ok();
                if state.started && state.service.boundary().epoch() < self.epoch {
                    // What the file itself sets is the first word, and nothing older counts.
                    let first = state.service.treat(self.epoch, &[]);
                    debug_assert!(matches!(first, Submitted::Taken { .. }), "an empty update is taken");
                }
            });
        }
    }

    /// An instance gets on with its program: the service lives.
    pub fn heard(&self, instance: usize) {
        if self.parties.service == instance {
            self.with(|state| {
                if !state.stalled {
                    // A lost service is not listened to.
                    let _heard = state.service.heard();
                }
            });
        }
    }

    /// The life of an instance is over.
    pub fn ended(&self, instance: usize) {
        self.with(|state| {
            state.service.thread_ended(instance);
            if self.parties.service == instance {
                state.service.exited();
            }
        });
    }

    /// The instance that is the service.
    pub fn service(&self) -> usize {
        self.parties.service
    }

    pub fn stall(&self) {
        self.lock().stalled = true;
    }

    /// Looks whether the service is still there; how long the next look can wait.
    pub fn poll(&self) -> Option<Duration> {
        self.with(|state| {
            if state.service.poll_in().is_some_and(|left| left.is_zero()) {
                state.service.poll();
            }
            state.service.poll_in()
        })
    }

    /// How the service wants an instance that is about to start to be treated.
    pub fn treatment(&self, instance: usize) -> Option<Treatment> {
        self.lock().service.treatment(instance)
    }

    /// What a reader of the report should know.
    pub fn notices(&self, names: &[String]) -> Vec<String> {
        let state = self.lock();
        let recovery = self.parties.recovery.map(|thread| names[thread].as_str());
        state.story.notices(&names[self.parties.service], recovery, state.service.boundary().epoch())
    }
}

impl Stage<'_> {
    /// The service asks for another weight or class of `target`, or of all its instances.
    pub fn policy_asks(
        &self,
        target: ThreadTarget,
        weight: Option<Weight>,
        class: Option<LatencyClass>,
        epoch: u64,
    ) {
        let Some(policy) = &self.policy else { return };
        let wish = |instance: usize| {
            let spec = self.spec(instance);
            let own = Treatment { weight: spec.weight, class: spec.latency };
            let present = policy.treatment(instance).unwrap_or(own);
            let weight = weight.unwrap_or(present.weight).get().into();
            (instance, weight, class.unwrap_or(present.class))
        };
        let wishes: Vec<_> = self.targets(target).map(wish).collect();
        let taken = policy.with(|state| {
            if !state.started {
                state.story.refused_before_start(super::player::nanos(self.runtime.now()));
                return false;
            }
            // The log has what became of it.
            matches!(state.service.treat(Epoch(epoch), &wishes), Submitted::Taken { .. })
        });
        for (instance, weight, _) in wishes.into_iter().filter(|_| taken) {
            if let Ok(weight) = Weight::new(weight) {
                self.note_weight(instance, weight);
            }
        }
    }
}
