//! How an actor handles its messages.
//!
//! One task handles many, one after the other. Between two it has no budget at all. A message's grant is its whole budget while it handles
//! that one, and what is left is taken from it again: each message is handled as by a task of its own, and pays for one.
//!
//! Conserved: the actor pays for what its handling task receives. It gives that task the right to so many receives, which leaves the
//! actor's budget beforehand. What is not used of it comes back when the task ends.

use super::{AskError, Envelope, Mailbox, ReplyTo};
use crate::budget::{Budget, Pool};
use crate::calls::CALL_OPS;
use crate::channel::Refusal;
use crate::cx::Cx;
use crate::error::{SpawnError, TaskError};
use crate::nursery::{Exhaustion, NurseryOptions, prepaid};
use crate::task::body::StopUnwind;
use crate::task::{Task, TaskPtr};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;

/// Why an actor ended, if not because all its addresses are gone.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServeError {
    /// The handler panicked or ran out of stack. The state may be half changed: a supervisor starts a new one.
    Handler(TaskError),
    /// The actor's budget does not allow it to receive.
    Receive(Refusal),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handler(error) => write!(f, "the handler failed: {error}"),
            Self::Receive(why) => write!(f, "the actor cannot receive: {why}"),
        }
    }
}

impl std::error::Error for ServeError {}

/// The most messages that one task receives before the actor pays for more.
const MOST_RECEIVES: u32 = 1 << 10;

/// The task that each message pays for.
const ONE_SPAWN: Pool = Pool { spawn_count: 1, ..Pool::ZERO };

/// Receives that the actor has paid for. What is left of them goes back to its budget.
struct Receives<'a> {
    cx: &'a Cx,
    left: u32,
}

impl<'a> Receives<'a> {
    /// Takes what the actor can spare: one of each stays, so that nothing counts as used up.
    fn take(cx: &'a Cx) -> Self {
        let task = cx.task();
        let mut budget = task.budget();
        // A fork tree and a rate count what each task uses. So does a fair discipline, which then chooses between tasks, too.
        let counts_tasks = cx.purse().is_some() || task.has_quota() || task.worker().is_fair();
        let spare = budget.ops.saturating_sub(1).min(budget.channel_ops.saturating_sub(1).into());
        let left = if counts_tasks { 0 } else { spare.min(MOST_RECEIVES) };
        budget.ops -= left;
        budget.channel_ops -= left as u16;
        task.write_budget(budget);
        Self { cx, left }
    }
}

impl Drop for Receives<'_> {
    fn drop(&mut self) {
        let task = self.cx.task();
        let mut budget = task.budget();
        let over = budget.add(Budget { ops: self.left, channel_ops: self.left as u16, ..Budget::ZERO });
        task.write_budget(budget);
        if !over.is_zero() {
            task.nursery().put_back(&over.into());
        }
    }
}

/// Why a task that handles messages has ended.
enum Ended {
    /// It has no receives left.
    Unpaid,
    /// All addresses are gone.
    Closed,
    /// The mailbox did not give any more.
    Refused(Refusal),
}

/// The task that handles messages, and what of its slice goes over from one to the next.
struct Handling<'a> {
    cx: &'a Cx,
    /// The actor.
    actor: TaskPtr,
    /// The most that the actor may give a child.
    most: Budget,
    slice: u32,
    /// What of the slice was at hand when the message began.
    fuel: u32,
}

impl<M: Send, R: Send> Mailbox<M, R> {
    /// Handles messages, one after the other, until all addresses are gone. Each is handled as by a task of its own, with the message's
    /// grant as its whole budget and pool, and with at most the actor's capabilities.
    ///
    /// A message that uses up its grant is unwound there, and the actor goes on with the state as that has left it. A handler that
    /// panics ends the actor.
    pub fn serve<S: Send>(
        &self,
        cx: &Cx,
        state: &mut S,
        handler: impl Fn(&mut S, &Cx, M) -> R + Sync,
    ) -> Result<(), ServeError> {
        loop {
            match self.receiver.recv(cx) {
                Ok(envelope) => match self.serve_from(cx, envelope, state, &handler)? {
                    Ended::Unpaid => {}
                    Ended::Closed => return Ok(()),
                    Ended::Refused(why) => return Err(ServeError::Receive(why)),
                },
                Err(Refusal::Closed) => return Ok(()),
                Err(why) => return Err(ServeError::Receive(why)),
            }
        }
    }

    /// Messages that wait.
    pub fn len(&self) -> usize {
        self.receiver.len()
    }

    /// Whether no message waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Starts a task that handles this message, which pays for it, and those that come after.
    fn serve_from<S: Send>(
        &self,
        cx: &Cx,
        mut first: Envelope<M, R>,
        state: &mut S,
        handler: &(impl Fn(&mut S, &Cx, M) -> R + Sync),
    ) -> Result<Ended, ServeError> {
        if first.is_abandoned() {
            // Its sender has gone, and the envelope's end gives its grant back.
            return Ok(Ended::Unpaid);
        }
        let actor = cx.task_ptr();
        let Some(most) = cx.caps().spawn().map(|cap| cap.child_budget()) else {
            first.refuse(cx.task(), AskError::NotSpawned(SpawnError::NotPermitted));
            return Ok(Ended::Unpaid);
        };
        if first.letter().grant.take(&ONE_SPAWN).is_err() {
            first.refuse(cx.task(), AskError::NotSpawned(SpawnError::SpawnBudgetExhausted));
            return Ok(Ended::Unpaid);
        }
        let mut first = Some(first);
        let mut receives = Receives::take(cx);
        let left = &mut receives.left;
        let mut spawn = ONE_SPAWN;
        let options = NurseryOptions::new().on_exhausted(Exhaustion::Fail).isolate();
        let ended = prepaid(cx, &mut spawn, options, |n| {
            let child = n.builder().budget(Budget::ZERO);
            let child = child.spawn(|cx| {
                let mut handling = Handling { cx, actor, most, slice: cx.task().slice_ops(), fuel: 0 };
                if let Some(mut first) = first.take() {
                    handling.handle(&mut first, state, handler);
                }
                loop {
                    let Some(less) = left.checked_sub(1) else { return Ended::Unpaid };
                    *left = less;
                    match self.receiver.recv_prepaid(cx) {
                        Ok(mut next) => handling.handle_next(&mut next, state, handler),
                        Err(Refusal::Closed) => return Ended::Closed,
                        Err(why) => return Ended::Refused(why),
                    }
                }
            });
            Ok(child?.join(cx))
        });
        drop(receives);
        match ended {
            Ok(Ok(Ok(ended))) => Ok(ended),
            Ok(Ok(Err(error))) => Err(ServeError::Handler(error)),
            Ok(Err(error)) => {
                if let Some(mut first) = first {
                    first.letter().grant.put(&spawn);
                    first.refuse(cx.task(), AskError::NotSpawned(error));
                }
                Ok(Ended::Unpaid)
            }
            Err(error) => Err(ServeError::Handler(error.error)),
        }
    }
}

impl<M, R: Send> Envelope<M, R> {
    /// It was handled. What is left of a message that asks for no reply stays with the actor's nursery.
    #[inline]
    fn end(&mut self, actor: &Task) {
        self.leave_rest(actor);
        self.finish();
    }

    /// It is over without a reply. What is left stays as in [`Envelope::end`].
    #[cold]
    fn refuse(&mut self, actor: &Task, why: AskError) {
        self.leave_rest(actor);
        self.fail(why);
    }

    #[inline]
    fn leave_rest(&mut self, actor: &Task) {
        let letter = self.letter();
        // What another runtime has granted is none of this one's.
        if matches!(letter.to, ReplyTo::Nobody) && letter.foreign.is_none() {
            actor.nursery().put_back(&std::mem::take(&mut letter.grant));
        }
    }
}

impl Handling<'_> {
    /// Handles a message that another has not paid the task for.
    #[inline]
    fn handle_next<M: Send, R: Send, S: Send>(
        &mut self,
        envelope: &mut Envelope<M, R>,
        state: &mut S,
        handler: &(impl Fn(&mut S, &Cx, M) -> R + Sync),
    ) {
        if envelope.is_abandoned() {
            return;
        }
        if envelope.letter().grant.take(&ONE_SPAWN).is_err() {
            let refused = AskError::NotSpawned(SpawnError::SpawnBudgetExhausted);
            return envelope.refuse(&self.actor, refused);
        }
        self.handle(envelope, state, handler);
    }

    /// Handles a message on its grant. Unwinds if the task has to end.
    #[inline]
    fn handle<M: Send, R: Send, S: Send>(
        &mut self,
        envelope: &mut Envelope<M, R>,
        state: &mut S,
        handler: &(impl Fn(&mut S, &Cx, M) -> R + Sync),
    ) {
        let letter = envelope.letter();
        let message = letter.message.take().expect("it is handled once");
        self.begin(&mut letter.grant);
        let cx = self.cx;
        let reply = &mut letter.reply;
        let handled = catch_unwind(AssertUnwindSafe(|| *reply = Some(Ok(handler(state, cx, message)))));
        self.end(&mut letter.grant);
        match handled {
            Ok(()) => envelope.end(&self.actor),
            Err(payload) => self.failed(envelope, payload),
        }
    }

    /// The grant is the task's budget, and its own pool what does not fit: so the handler can send a part of it on with a message of
    /// its own.
    #[inline]
    fn begin(&mut self, grant: &mut Pool) {
        let task = self.cx.task();
        // Messages that need no op give way, too.
        self.slice = match self.slice.checked_sub(CALL_OPS) {
            Some(less) => less,
            None => {
                self.cx.look_up();
                task.slice_ops()
            }
        };
        let budget = grant.narrow().min(self.most);
        grant.take(&budget.into()).expect("no more than there is");
        self.fuel = task.begin_budget(budget, self.slice);
        if *grant != Pool::ZERO {
            let own = std::mem::take(grant);
            task.nursery().change_ext(task, |ext| ext.own_pool = Some(own));
        }
    }

    /// Takes what is left, and forgets what only the message before counts for.
    #[inline]
    fn end(&mut self, left: &mut Pool) {
        let task = self.cx.task();
        let fuel = task.fuel.load(Ordering::Relaxed);
        *left = Pool::from(task.take_budget());
        // It used some of the slice, or began another.
        self.slice = match self.fuel.checked_sub(fuel) {
            Some(used) => self.slice - used,
            None => fuel,
        };
        if task.has_ext() {
            task.nursery().change_ext(task, |ext| {
                left.put(&ext.own_pool.take().unwrap_or_default());
                left.put(&std::mem::take(&mut ext.mail).into());
                (ext.cleanup_ops, ext.channels) = (None, 0);
            });
        }
    }

    #[cold]
    fn failed<M, R: Send>(&self, envelope: &mut Envelope<M, R>, payload: Box<dyn std::any::Any + Send>) {
        let error = payload.downcast_ref::<StopUnwind>().and_then(StopUnwind::error);
        if let Some(TaskError::BudgetExhausted(component)) = error {
            let component = *component;
            StopUnwind::is_over(payload);
            return envelope.refuse(&self.actor, AskError::Exhausted(component));
        }
        envelope.refuse(&self.actor, AskError::Failed);
        resume_unwind(payload)
    }
}
