//! Where replies meet the senders that wait for them: the slots of one mailbox, under one lock.
//!
//! Each slot has a letter. The message goes out in it, and the reply comes back in it: what goes through the mailbox is its address, and
//! nothing is copied on the way. A mailbox keeps the slots that it has needed. If the sender and the actor are of one worker, that takes the
//! lock without an atomic read-modify-write, and goes from the one straight over to the other.
//!
//! Conserved: a letter is with its slot, with its sender, or on its way. A reply, and what is left of its grant, is taken once: by the
//! sender, or by the one that fills the slot after the sender has gone. A slot is free again when both have let go of it.

use super::{Letter, ReplyTo};
use crate::budget::Pool;
use crate::cx::{Cx, TaskId};
use crate::protocol::bias::{BiasedGuard, BiasedLock};
use crate::task::state::Event;
use crate::task::{TaskPtr, WaitReason};
use crate::time::timers::{Fire, TimerKey};
use crate::wait::{Waited, Who};
use crate::worker::{self, Worker};
use std::time::Duration;

/// Names a slot, to the sender and to the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotId(usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nobody's.
    Free,
    /// There is no reply yet.
    Asked,
    /// The reply is in the letter.
    Full,
    /// The sender has gone.
    Abandoned,
}

/// Not an enum with the letter in it: that would be copied as a whole at each step.
struct Slot<M, R: Send> {
    state: State,
    /// The task that waits.
    sender: Option<TaskPtr>,
    /// While it is free, and when the reply has come.
    letter: Option<Box<Letter<M, R>>>,
}

/// How long a sender waits.
#[derive(Clone, Copy)]
enum Until {
    /// Until there is a reply, or the timer that is set goes off at this time.
    Alarm(Option<u64>),
    Timeout(Duration),
}

struct Inside<M, R: Send> {
    slots: Vec<Slot<M, R>>,
    free: Vec<SlotId>,
    alarm: Option<Alarm>,
}

/// A timer that stays after the call that it was for, so that the next call of the task need not set another. If it goes off early, the task
/// looks at its own deadline.
struct Alarm {
    task: TaskPtr,
    id: TaskId,
    due_ns: u64,
    key: TimerKey,
    /// The task relies on it.
    in_use: bool,
}

impl Alarm {
    fn is_of(&self, cx: &Cx) -> bool {
        self.task == cx.task_ptr() && self.id == cx.id()
    }
}

// A task is named to be woken, from any thread. A letter moves between threads only if what is in it is `Send`.
#[allow(unsafe_code)]
// SAFETY: as said; a record is memory of its runtime's slab, not of a thread.
unsafe impl<M: Send, R: Send> Send for Inside<M, R> {}

impl<M, R: Send> Slot<M, R> {
    /// The task that waits for the reply.
    #[inline]
    fn asker(&self) -> Option<TaskPtr> {
        self.sender.filter(|_| self.state == State::Asked)
    }

    #[inline]
    fn fill(&mut self, letter: Box<Letter<M, R>>) {
        self.state = State::Full;
        self.letter = Some(letter);
    }
}

impl<M, R: Send> Inside<M, R> {
    /// Nobody relies on the slot any more, and its letter is back.
    #[inline]
    fn set_free(&mut self, id: SlotId, letter: Box<Letter<M, R>>) {
        let slot = &mut self.slots[id.0];
        slot.state = State::Free;
        slot.letter = Some(letter);
        self.free.push(id);
    }

    /// The letter with the reply, if that has come.
    #[inline]
    fn take(&mut self, id: SlotId) -> Option<Box<Letter<M, R>>> {
        let slot = &mut self.slots[id.0];
        if slot.state == State::Full { slot.letter.take() } else { None }
    }
}

pub(super) struct Replies<M, R: Send>(BiasedLock<Inside<M, R>>);

impl<M, R: Send> Replies<M, R> {
    pub(super) fn new() -> Self {
        Self(BiasedLock::new(Inside { slots: Vec::new(), free: Vec::new(), alarm: None }))
    }

    fn lock<'a>(&'a self, here: Option<&'a Worker>) -> BiasedGuard<'a, Inside<M, R>> {
        self.0.lock(here.map(Worker::section_flag))
    }

    /// A slot for one reply, and its letter.
    #[inline]
    pub(super) fn open(&self, cx: &Cx) -> (SlotId, Box<Letter<M, R>>) {
        let mut inside = self.lock(Some(cx.task().worker()));
        let Some(id) = inside.free.pop() else {
            let id = SlotId(inside.slots.len());
            inside.slots.push(Slot { state: State::Asked, sender: None, letter: None });
            return (id, Box::new(Letter { to: ReplyTo::Task(id), ..Letter::default() }));
        };
        let slot = &mut inside.slots[id.0];
        (slot.state, slot.sender) = (State::Asked, None);
        (id, slot.letter.take().expect("a free slot has its letter"))
    }

    /// Leaves the letter there, with the reply in it. What is left of the grant if its sender has gone.
    #[inline]
    pub(super) fn fill(&self, id: SlotId, letter: Box<Letter<M, R>>) -> Option<Pool> {
        let here = here();
        // A sender that waits on this worker is handed the reply and made ready in one section.
        if let Some(worker) = here
            && let Some(mut inside) = self.0.lock_at_home(worker.section_flag())
            && let Some(sender) = inside.slots[id.0].asker()
            && sender.state.wake_inside(&sender.home, inside.section())
        {
            inside.slots[id.0].fill(letter);
            drop(inside);
            worker.push_woken_at_home(sender);
            return None;
        }
        self.fill_slowly(here, id, letter)
    }

    #[inline(never)]
    fn fill_slowly(&self, here: Option<&Worker>, id: SlotId, mut letter: Box<Letter<M, R>>) -> Option<Pool> {
        let mut inside = self.lock(here);
        // Once the reply is there, the sender may go, and its runtime with it. A runtime does not go while one of its own tasks runs.
        let stays = |sender: &TaskPtr| here.is_some_and(|here| here.is_of_runtime_of(sender));
        let goes = |slot: &Slot<M, R>| slot.asker().is_some_and(|sender| !stays(&sender));
        if inside.is_at_home() && goes(&inside.slots[id.0]) {
            // It is woken under the lock, which must not be a section of this worker then.
            drop(inside);
            inside = self.0.lock(None);
        }
        let slot = &mut inside.slots[id.0];
        if slot.state != State::Asked {
            let (reply, left) = (letter.reply.take(), letter.grant);
            inside.set_free(id, letter);
            drop(inside);
            // Outside of the lock: its destructor is the program's.
            drop(reply);
            return Some(left);
        }
        let sender = slot.asker();
        slot.fill(letter);
        match sender {
            Some(sender) if stays(&sender) => {
                drop(inside);
                sender.wake(Event::Wake);
            }
            Some(sender) => sender.wake(Event::Wake),
            None => {}
        }
        None
    }

    /// Waits for the reply until `due_ns`, and takes the letter that it is in, which is to come back. `None` if time was over, or the task
    /// must not wait. `is_home`: the task is of the mailbox's runtime.
    #[inline]
    pub(super) fn wait(
        &self,
        cx: &Cx,
        id: SlotId,
        due_ns: Option<u64>,
        is_home: bool,
    ) -> Option<Box<Letter<M, R>>> {
        let task = cx.task();
        let alarm_ns = due_ns.filter(|_| is_home).and_then(|due_ns| self.set_alarm(cx, due_ns));
        if due_ns.is_none() || alarm_ns.is_some() {
            if let Some(mut inside) = self.0.lock_at_home(task.worker().section_flag())
                && inside.slots[id.0].state == State::Asked
                && cx.purse().is_none()
                && !std::thread::panicking()
            {
                inside.slots[id.0].sender = Some(cx.task_ptr());
                if task.worker().hand_over(task, inside.section(), WaitReason::Call) {
                    inside.was_ended();
                }
            }
            let mut filled = self.take(cx, id);
            if filled.is_none() {
                filled = self.wait_slowly(cx, id, Until::Alarm(alarm_ns));
            }
            if alarm_ns.is_some() {
                self.let_alarm_go(cx);
            }
            if filled.is_some() || due_ns.is_none() {
                return filled;
            }
        }
        let left_ns = due_ns.unwrap_or(u64::MAX).saturating_sub(cx.rt().timers.now_ns());
        self.wait_slowly(cx, id, Until::Timeout(Duration::from_nanos(left_ns)))
    }

    /// When a timer will wake the task, by `due_ns` at the latest. Sets one if there is none, unless another task relies on its own. Virtual
    /// time goes on to the next timer that is there, so none may stay.
    #[inline]
    fn set_alarm(&self, cx: &Cx, due_ns: u64) -> Option<u64> {
        let rt = cx.rt();
        if rt.is_virtual() {
            return None;
        }
        let before = {
            let mut inside = self.lock(Some(cx.task().worker()));
            match &mut inside.alarm {
                Some(alarm)
                    if alarm.is_of(cx) && alarm.due_ns <= due_ns && alarm.due_ns > rt.timers.now_ns() =>
                {
                    alarm.in_use = true;
                    return Some(alarm.due_ns);
                }
                Some(alarm) if alarm.in_use => return None,
                _ => inside.alarm.take(),
            }
        };
        if let Some(alarm) = before {
            rt.timers.remove(alarm.key);
        }
        let key = rt.add_timer(due_ns, Fire::Wake(cx.task_ptr()));
        let mut inside = self.lock(Some(cx.task().worker()));
        if inside.alarm.is_none() {
            inside.alarm = Some(Alarm { task: cx.task_ptr(), id: cx.id(), due_ns, key, in_use: true });
            return Some(due_ns);
        }
        // Another task has set its own meanwhile.
        drop(inside);
        rt.timers.remove(key);
        None
    }

    /// The task does not rely on its timer any more, which stays.
    #[inline]
    fn let_alarm_go(&self, cx: &Cx) {
        let mut inside = self.lock(Some(cx.task().worker()));
        if let Some(alarm) = inside.alarm.as_mut().filter(|alarm| alarm.is_of(cx)) {
            alarm.in_use = false;
        }
    }

    #[inline(never)]
    fn wait_slowly(&self, cx: &Cx, id: SlotId, until: Until) -> Option<Box<Letter<M, R>>> {
        let who = Who::Task(cx);
        let at_home = {
            let mut inside = self.lock(who.worker());
            inside.slots[id.0].sender = Some(cx.task_ptr());
            inside.is_at_home() && matches!(until, Until::Alarm(_)) && who.move_in()
        };
        let is_full = || self.lock(who.worker()).slots[id.0].state == State::Full;
        let waited = match until {
            Until::Timeout(timeout) => who.wait_until(is_full, WaitReason::Call, Some(timeout)),
            Until::Alarm(alarm_ns) => {
                let rings = || alarm_ns.is_some_and(|alarm_ns| cx.rt().timers.now_ns() >= alarm_ns);
                let is_over = || is_full() || rings();
                if at_home {
                    who.wait_until_at_home(is_over, WaitReason::Call)
                } else {
                    who.wait_until(is_over, WaitReason::Call, None)
                }
            }
        };
        if waited == Waited::Stop {
            who.acknowledge();
        }
        self.take(cx, id)
    }

    /// The letter with the reply, if that has come.
    #[inline]
    fn take(&self, cx: &Cx, id: SlotId) -> Option<Box<Letter<M, R>>> {
        self.lock(Some(cx.task().worker())).take(id)
    }

    /// Nobody asks any more: the timer that has stayed.
    pub(super) fn last_alarm(&self) -> Option<TimerKey> {
        self.lock(here()).alarm.take().map(|alarm| alarm.key)
    }

    /// The sender goes: with the letter and the reply, if that has come.
    pub(super) fn abandon(&self, cx: &Cx, id: SlotId) -> Option<Box<Letter<M, R>>> {
        self.let_alarm_go(cx);
        let mut inside = self.lock(Some(cx.task().worker()));
        let filled = inside.take(id);
        if filled.is_none() {
            inside.slots[id.0].state = State::Abandoned;
        }
        filled
    }

    /// The sender is done with the letter, which is empty.
    #[inline]
    pub(super) fn put_back(&self, cx: &Cx, id: SlotId, letter: Box<Letter<M, R>>) {
        self.lock(Some(cx.task().worker())).set_free(id, letter);
    }

    /// Whether the sender has gone.
    pub(super) fn is_abandoned(&self, id: SlotId) -> bool {
        self.lock(here()).slots[id.0].state == State::Abandoned
    }
}

/// The worker of this thread.
#[allow(unsafe_code)]
fn here<'a>() -> Option<&'a Worker> {
    // SAFETY: the pointer is null or the worker of this thread, which does not go away under it.
    unsafe { worker::current().as_ref() }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::{Config, Pool, Profile};
    use std::time::Duration;

    #[test]
    fn a_mailbox_that_is_gone_leaves_no_timer() {
        let runtime = Config::new(Profile::Cluster).workers(1).build().unwrap();
        let grant = Pool { ops: 1, spawn_count: 1, ..Pool::ZERO };
        let asked = runtime.run(|cx| {
            let (address, mailbox) = cx.mailbox::<(), ()>(4, Pool::ZERO).unwrap();
            cx.nursery(|n| {
                n.start(move |cx| mailbox.serve(cx, &mut (), |(), _, ()| ()).unwrap()).unwrap();
                address.ask_timeout(cx, (), grant, Duration::from_secs(3600)).unwrap();
                drop(address);
            })
        });
        asked.unwrap().unwrap();
        assert!(!runtime.inner().timers.has_entries());
    }
}
