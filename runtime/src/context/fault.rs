//! Who is told when a context is used up that must not be: [`Depleted::Fault`](super::Depleted::Fault).

use crate::callback;
use std::sync::{Arc, Mutex};

type OnFault = Arc<dyn Fn(usize) + Send + Sync>;

/// By the number of the context.
#[derive(Default)]
pub(crate) struct Faults(Mutex<Vec<(u32, OnFault)>>);

impl Faults {
    fn with<R>(&self, act: impl FnOnce(&mut Vec<(u32, OnFault)>) -> R) -> R {
        act(&mut self.0.lock().expect("no panic while it is held"))
    }

    pub(super) fn set(&self, context: u32, told: OnFault) {
        drop(self.with(|all| {
            let before = take(all, context);
            all.push((context, told));
            before
        }));
    }

    pub(super) fn forget(&self, context: u32) {
        drop(self.with(|all| take(all, context)));
    }

    /// These are used up, by these threads. No lock is held.
    pub(super) fn call(&self, contexts: &[(u32, u32)]) {
        for (context, thread) in contexts {
            let told =
                self.with(|all| all.iter().find(|(id, _)| id == context).map(|(_, told)| told.clone()));
            if let Some(told) = told {
                let thread = *thread as usize;
                callback::call(move || told(thread));
            }
        }
    }
}

/// Takes it out of the list, to be dropped outside of the lock: its destructor is the host's.
fn take(all: &mut Vec<(u32, OnFault)>, context: u32) -> Option<OnFault> {
    let place = all.iter().position(|(id, _)| *id == context)?;
    Some(all.swap_remove(place).1)
}
