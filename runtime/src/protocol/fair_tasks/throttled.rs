//! Threads that wait for the refill of their context and are to end: they go on as best effort.
//!
//! Conserved: a context that is taken from such a thread is at rest, or back with the caller that lent it. Only a thread that its
//! machine says is to end loses its context here.
//!
//! A thread that is throttled is ready and not queued, so no waker can tell it anything. The canceller says that the thread is to
//! end and then looks here for it ([`FairTasks::release_throttled`]). The worker that made the thread ready looks afterwards
//! whether it is throttled and is to end ([`FairTasks::look_after`]). Both looks are under the lock of the thread's core, so one
//! of them sees what the other did.

use super::FairTasks;
use super::contexts::{Aftermath, Table};
use crate::protocol::mutant::{Mutant, broken};
use crate::protocol::prim::Ordering;
use mainspring_abi::{Nanos, ThreadRef};
use mainspring_sched::{Seat, State};

impl FairTasks {
    /// `thread` has been made ready by the caller. If it is throttled, it may have been told to end before, when its canceller
    /// could not find it here: then it goes on as best effort.
    pub fn look_after(&self, thread: usize, is_to_end: impl Fn(usize) -> bool, now: Nanos) -> Aftermath {
        let throttled = self.contexts.is_some() && self.when_throttled(self.name(thread), |_| ()).is_some();
        if throttled && !broken(Mutant::ReadiedWithoutLook) {
            self.release_throttled(is_to_end, now)
        } else {
            Aftermath::default()
        }
    }

    /// Calls `look` with the word of `thread` if that is throttled: under the lock of its core, so that it stays so meanwhile.
    fn when_throttled<R>(&self, thread: ThreadRef, look: impl FnOnce(usize) -> R) -> Option<R> {
        let entry = self.threads.get(thread.index() as usize)?;
        let home = &self.cores[entry.core.load(Ordering::Relaxed)];
        // Relaxed: a core without contexts has no throttled thread, and who asks comes after the event that threw it back.
        if !home.has_contexts() {
            return None;
        }
        let core = home.lock();
        // A thread that has moved on meanwhile runs, or has been made ready elsewhere, and is asked for again there.
        let seat = Seat::from_parts(entry.slot.load(Ordering::Relaxed), thread);
        let throttled = core.cpu.state(seat) == Ok(State::Throttled);
        throttled.then(|| look(entry.word.load(Ordering::Relaxed)))
    }

    /// Lets every throttled thread go on as best effort of which `is_to_end` says so, by its word.
    pub fn release_throttled(&self, is_to_end: impl Fn(usize) -> bool, now: Nanos) -> Aftermath {
        let released = self.with_table(None, now, |table, machine| {
            let holders: Vec<ThreadRef> = table.holders().collect();
            for thread in holders {
                if self.when_throttled(thread, &is_to_end) == Some(true) {
                    // A call that it serves goes on without the loan, until it ends.
                    table.contexts.let_go(machine, thread);
                }
            }
        });
        released.map_or_else(Aftermath::default, |((), aftermath)| aftermath)
    }
}

impl Table {
    /// The threads that hold a context, bound to them or lent to them.
    fn holders(&self) -> impl Iterator<Item = ThreadRef> + '_ {
        self.contexts.names().filter_map(|name| self.contexts.holder(name.id()))
    }
}
