//! The contexts of a run: made before its threads start, bound as their tables say, revoked by `[[at]]` tables.
//!
//! Conserved: instance `n` of a thread table is bound to instance `n` of its context table, from its start, if that is at rest.

use super::LinuxError;
use mainspring::context::{Depleted, Reservation};
use mainspring::{ContextError, Runtime, SchedulingContext};
use mainspring_abi::{CpuId, Nanos};
use mainspring_workload::{ContextSpec, ContextTarget, Overrun, Workload};
use std::ops::Range;
use std::time::Duration;

/// All contexts of a run.
#[derive(Debug, Default)]
pub struct Contexts {
    all: Vec<SchedulingContext>,
    bases: Vec<usize>,
}

impl Contexts {
    /// Makes them, each on the first of its CPUs where every deadline holds.
    pub fn new(workload: &Workload, runtime: &Runtime) -> Result<Self, LinuxError> {
        let mut contexts = Self::default();
        for spec in &workload.contexts {
            contexts.bases.push(contexts.all.len());
            for instance in 0..spec.instances() {
                let made = create(spec, workload.machine.cpus, runtime);
                let name = || spec.instance_name(instance);
                contexts.all.push(made.map_err(|error| LinuxError::Context(name(), error))?);
            }
        }
        Ok(contexts)
    }

    /// The context of instance `instance` of a thread whose table names the context table `table`.
    pub fn of(&self, table: usize, instance: usize) -> Option<&SchedulingContext> {
        self.all.get(self.bases[table] + instance)
    }

    /// Takes those away for good that an operation names.
    pub fn revoke(&self, workload: &Workload, target: ContextTarget) {
        for context in &self.all[self.named(workload, target)] {
            // One that was revoked before is gone already.
            let _revoked = context.revoke();
        }
    }

    fn named(&self, workload: &Workload, target: ContextTarget) -> Range<usize> {
        let base = self.bases[target.context];
        match target.instance {
            Some(instance) => base + instance as usize..base + instance as usize + 1,
            None => base..base + workload.contexts[target.context].instances(),
        }
    }
}

fn create(spec: &ContextSpec, cpus: usize, runtime: &Runtime) -> Result<SchedulingContext, ContextError> {
    let length = |nanos: Nanos| Duration::from_nanos(nanos.get());
    let depleted = match spec.overrun {
        Overrun::Notify => Depleted::BestEffort,
        // The others are refused before the run.
        Overrun::Throttle | Overrun::Fault | Overrun::Shutdown => Depleted::Throttle,
    };
    let wish = Reservation::new(length(spec.budget), length(spec.period))
        .deadline(length(spec.deadline))
        .criticality(spec.criticality)
        .priority(spec.priority)
        .refills(spec.refills)
        .donation_depth(spec.depth)
        .when_depleted(depleted);
    let mut refused = ContextError::NoWorker(cpus);
    for worker in 0..cpus {
        if !spec.cpus.is_none_or(|mask| CpuId::new(worker).is_ok_and(|cpu| mask.contains(cpu))) {
            continue;
        }
        match runtime.create_context(wish.on_worker(worker)) {
            Err(error @ ContextError::NotAdmitted(_)) => refused = error,
            made => return made,
        }
    }
    Err(refused)
}
