//! Where replies meet the senders that wait for them: the slots of one mailbox, under one lock.
//!
//! A slot is not memory of its own: a mailbox keeps those that it has needed. If the sender and the actor are of one worker, that takes the
//! lock without an atomic read-modify-write, and goes from the one straight over to the other.
//!
//! Conserved: a reply, and what is left of its grant, is taken once: by the sender, or by the one that fills the slot after the
//! sender has gone. A slot is free again when both have let go of it.

use super::AskError;
use crate::budget::Pool;
use crate::cx::Cx;
use crate::protocol::bias::{BiasedGuard, BiasedLock};
use crate::task::state::Event;
use crate::task::{TaskPtr, WaitReason};
use crate::wait::{Waited, Who};
use crate::worker::{self, Worker};
use std::time::Duration;

/// Names a slot, to the sender and to the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotId(usize);

/// A reply, and what is left of its grant.
pub(super) type Filled<R> = (Result<R, AskError>, Pool);

enum Slot<R> {
    /// Nobody's. The next that is free.
    Free(Option<SlotId>),
    /// There is no reply yet, and this task waits.
    Asked(Option<TaskPtr>),
    Full(Result<R, AskError>, Pool),
    /// The sender has gone.
    Abandoned,
}

struct Inside<R> {
    slots: Vec<Slot<R>>,
    free: Option<SlotId>,
}

// A task is named to be woken, from any thread. A reply moves between threads only if it is `Send`.
#[allow(unsafe_code)]
// SAFETY: as said; a record is memory of its runtime's slab, not of a thread.
unsafe impl<R: Send> Send for Inside<R> {}

impl<R> Inside<R> {
    fn set_free(&mut self, id: SlotId) -> Slot<R> {
        let slot = std::mem::replace(&mut self.slots[id.0], Slot::Free(self.free));
        self.free = Some(id);
        slot
    }

    /// The reply, if it has come. The slot is free then.
    #[inline]
    fn take(&mut self, id: SlotId) -> Option<Filled<R>> {
        if !matches!(self.slots[id.0], Slot::Full(..)) {
            return None;
        }
        match self.set_free(id) {
            Slot::Full(reply, left) => Some((reply, left)),
            _ => unreachable!("just looked"),
        }
    }
}

pub(super) struct Replies<R>(BiasedLock<Inside<R>>);

impl<R: Send> Replies<R> {
    pub(super) fn new() -> Self {
        Self(BiasedLock::new(Inside { slots: Vec::new(), free: None }))
    }

    fn lock<'a>(&'a self, here: Option<&'a Worker>) -> BiasedGuard<'a, Inside<R>> {
        self.0.lock(here.map(Worker::section_flag))
    }

    /// A slot for one reply.
    pub(super) fn open(&self, cx: &Cx) -> SlotId {
        let mut inside = self.lock(Some(cx.task().worker()));
        let asked = Slot::Asked(None);
        match inside.free {
            Some(id) => {
                let Slot::Free(next) = std::mem::replace(&mut inside.slots[id.0], asked) else {
                    unreachable!("the list is of free slots")
                };
                inside.free = next;
                id
            }
            None => {
                inside.slots.push(asked);
                SlotId(inside.slots.len() - 1)
            }
        }
    }

    /// Leaves the reply there. What is left of the grant if its sender has gone.
    #[inline]
    pub(super) fn fill(&self, id: SlotId, reply: Result<R, AskError>, left: Pool) -> Pool {
        let here = here();
        // A sender that waits on this worker is handed the reply and made ready in one section.
        if let Some(worker) = here
            && let Some(mut inside) = self.0.lock_at_home(worker.section_flag())
            && let Slot::Asked(Some(sender)) = inside.slots[id.0]
            && sender.state.wake_inside(&sender.home, inside.section())
        {
            inside.slots[id.0] = Slot::Full(reply, left);
            drop(inside);
            worker.push_woken_at_home(sender);
            return Pool::ZERO;
        }
        self.fill_slowly(here, id, reply, left)
    }

    #[inline(never)]
    fn fill_slowly(&self, here: Option<&Worker>, id: SlotId, reply: Result<R, AskError>, left: Pool) -> Pool {
        let mut inside = self.lock(here);
        // Once the reply is there, the sender may go, and its runtime with it. A runtime does not go while one of its own tasks runs.
        let stays = |sender: &TaskPtr| here.is_some_and(|here| here.is_of_runtime_of(sender));
        let goes = |slot: &Slot<R>| matches!(slot, Slot::Asked(Some(sender)) if !stays(sender));
        if inside.is_at_home() && goes(&inside.slots[id.0]) {
            // It is woken under the lock, which must not be a section of this worker then.
            drop(inside);
            inside = self.0.lock(None);
        }
        match inside.slots[id.0] {
            Slot::Asked(sender) => {
                inside.slots[id.0] = Slot::Full(reply, left);
                match sender {
                    Some(sender) if stays(&sender) => {
                        drop(inside);
                        sender.wake(Event::Wake);
                    }
                    Some(sender) => sender.wake(Event::Wake),
                    None => {}
                }
                Pool::ZERO
            }
            _ => {
                inside.set_free(id);
                drop(inside);
                // Outside of the lock: its destructor is the program's.
                drop(reply);
                left
            }
        }
    }

    /// Waits for the reply, and takes it with what is left of its grant: the slot is free then. `None` if time was over, or the task must
    /// not wait.
    #[inline]
    pub(super) fn wait(&self, cx: &Cx, id: SlotId, timeout: Option<Duration>) -> Option<Filled<R>> {
        let task = cx.task();
        if timeout.is_none()
            && let Some(mut inside) = self.0.lock_at_home(task.worker().section_flag())
            && matches!(inside.slots[id.0], Slot::Asked(_))
            && cx.purse().is_none()
            && !std::thread::panicking()
        {
            inside.slots[id.0] = Slot::Asked(Some(cx.task_ptr()));
            if task.worker().hand_over(task, inside.section(), WaitReason::Call) {
                inside.was_ended();
                if let Some(filled) = self.take(cx, id) {
                    return Some(filled);
                }
            }
        }
        self.wait_slowly(cx, id, timeout)
    }

    #[inline(never)]
    fn wait_slowly(&self, cx: &Cx, id: SlotId, timeout: Option<Duration>) -> Option<Filled<R>> {
        let who = Who::Task(cx);
        let at_home = {
            let mut inside = self.lock(who.worker());
            if let Slot::Asked(sender) = &mut inside.slots[id.0] {
                *sender = Some(cx.task_ptr());
            }
            inside.is_at_home() && timeout.is_none() && who.move_in()
        };
        let is_over = || matches!(self.lock(who.worker()).slots[id.0], Slot::Full(..));
        let waited = if at_home {
            who.wait_until_at_home(is_over, WaitReason::Call)
        } else {
            who.wait_until(is_over, WaitReason::Call, timeout)
        };
        if waited == Waited::Stop {
            who.acknowledge();
        }
        self.take(cx, id)
    }

    /// The reply, if it has come.
    #[inline]
    fn take(&self, cx: &Cx, id: SlotId) -> Option<Filled<R>> {
        self.lock(Some(cx.task().worker())).take(id)
    }

    /// The sender goes: with the reply, if it has come.
    pub(super) fn abandon(&self, cx: &Cx, id: SlotId) -> Option<Filled<R>> {
        let mut inside = self.lock(Some(cx.task().worker()));
        let filled = inside.take(id);
        if filled.is_none() {
            inside.slots[id.0] = Slot::Abandoned;
        }
        filled
    }

    /// The message was not sent.
    pub(super) fn take_back(&self, cx: &Cx, id: SlotId) {
        self.lock(Some(cx.task().worker())).set_free(id);
    }

    /// Whether the sender has gone.
    pub(super) fn is_abandoned(&self, id: SlotId) -> bool {
        matches!(self.lock(here()).slots[id.0], Slot::Abandoned)
    }
}

/// The worker of this thread.
#[allow(unsafe_code)]
fn here<'a>() -> Option<&'a Worker> {
    // SAFETY: the pointer is null or the worker of this thread, which does not go away under it.
    unsafe { worker::current().as_ref() }
}
