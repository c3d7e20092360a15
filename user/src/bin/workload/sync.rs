//! Mutexes, semaphores, barriers and conditions of the processes: all that is at one of them is in one process.
//!
//! Conserved: a thread that others may end has the objects only while it holds [`QUIET`], so that it is never ended with them.

use crate::QUIET;
use crate::leases::persist;
use crate::plan::{Plan, plan};
use core::sync::atomic::Ordering;
use mainspring_abi::plan::Note;
use mainspring_abi::{Nanos, Weight};
use mainspring_program::{Came, GivenUp, Step, SyncMachine, SyncObjects};
use mainspring_user::{CapError, caps};

/// What an operation on the objects does to instances.
struct OnInstances;

impl SyncMachine for OnInstances {
    fn now(&self) -> Nanos {
        Nanos::new(caps::now())
    }

    fn wake(&mut self, instance: usize) {
        let let_go = &plan().instances[instance].let_go;
        let_go.store(1, Ordering::Release);
        // One that does not wait yet finds the word changed.
        let _woken = caps::unpark(let_go.as_ptr() as u64, 1);
    }

    fn weight_of(&self, instance: usize) -> Option<Weight> {
        let instance = &plan().instances[instance];
        let lives = !instance.lives.load(Ordering::Acquire).is_multiple_of(2);
        Weight::new(instance.weight.load(Ordering::Relaxed).into()).ok().filter(|_| lives)
    }

    fn set_weight(&mut self, instance: usize, weight: Weight) {
        let instance = &plan().instances[instance];
        instance.weight.store(weight.get().into(), Ordering::Relaxed);
        let handle = caps::Thread::from_cap(instance.handle.load(Ordering::Acquire));
        // One that has ended meanwhile weighs nothing.
        let _set = caps::set_weight_of(&handle, weight.get().into());
    }
}

/// Instance `number`, whose thread calls, sets its own weight. While it is lent others', both count.
pub fn weigh(number: usize, weight: Weight) -> Result<(), CapError> {
    if with_objects(|objects| objects.set_own_weight(number, weight, &mut OnInstances)) {
        return Ok(());
    }
    plan().instances[number].weight.store(weight.get().into(), Ordering::Relaxed);
    caps::set_weight(weight.get().into()).map(|_| ())
}

fn with_objects<R>(operate: impl FnOnce(&mut SyncObjects) -> R) -> R {
    let _quiet = QUIET.lock();
    operate(&mut plan().sync.lock())
}

/// Instance `number` takes a step at one of the objects. If it waits, then until `until` at the latest.
pub fn take(number: usize, step: &Step, until: Option<u64>) -> Result<(), CapError> {
    match wait_at(number, step, until)? {
        None => Ok(()),
        Some(given_up) => {
            if given_up == GivenUp::TakesStepAgain {
                // It goes on with the mutex that it gave back, whenever it gets that.
                wait_at(number, step, None)?;
            }
            Err(CapError::TimedOut)
        }
    }
}

/// Takes the step, and waits for what it has to wait for. What is left to do if that did not come in time.
fn wait_at(number: usize, step: &Step, until: Option<u64>) -> Result<Option<GivenUp>, CapError> {
    let let_go = &plan().instances[number].let_go;
    let came = with_objects(|objects| {
        let_go.store(0, Ordering::Relaxed);
        let came = objects.step(number, step, &mut OnInstances);
        if came == Came::Waits {
            objects.begin_wait(number, &mut OnInstances);
        }
        came
    });
    match came {
        Came::Through => return Ok(None),
        Came::Refused => return Err(CapError::Denied),
        Came::Waits => {}
    }
    while let_go.load(Ordering::Acquire) == 0 {
        match persist(|| caps::park(let_go.as_ptr() as u64, 0, until.unwrap_or(0))) {
            Ok(_) => {}
            Err(CapError::TimedOut) => {
                return Ok(with_objects(|objects| objects.give_up(number, &mut OnInstances)));
            }
            Err(code) => {
                // It may not wait, and goes on without.
                with_objects(|objects| objects.give_up(number, &mut OnInstances));
                return Err(code);
            }
        }
    }
    Ok(None)
}

/// Instance `number` has ended: it waits no more, and what it held goes on. The caller holds [`QUIET`].
pub fn end(number: usize) {
    plan().sync.lock().end(number, &mut OnInstances);
}

/// Tells what happened at the objects that threads of this process use.
pub fn tell(plan: &Plan, mine: u64) {
    let uses = |object: usize| {
        let own = plan.tables.iter().filter(|table| table.process == mine);
        own.flat_map(|table| &table.steps).any(|step| step.sync_objects().contains(&Some(object)))
    };
    let objects = with_objects(|objects| objects.stats().enumerate().collect::<alloc::vec::Vec<_>>());
    for (number, stats) in objects.into_iter().filter(|(number, _)| uses(*number)) {
        crate::tell(Note::Sync {
            object: number as u32,
            taken: stats.taken,
            waits: stats.waits,
            timeouts: stats.timeouts,
            waited: stats.waited_ns,
            wait_max: stats.wait_max_ns,
        });
    }
}
