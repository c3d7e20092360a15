//! The six states of a task.
//!
//! Conserved: a task is in exactly one state, and only the steps of [`TaskState::step`] exist. A task that is Ready is in
//! exactly one queue or in the hands of one worker; of all wakers that want to make it Ready, exactly one is told to
//! queue it.
//!
//! Beside the state, the same word says whether the task has frames on a stack, and whether a task with frames may go on
//! on another thread. Nothing else says that it has started: its saved context is written only when it is left.

use crate::protocol::asymmetric;
use crate::protocol::bias::{Home, Section, SectionFlag};
use crate::protocol::mutant::{Mutant, broken};
use crate::protocol::prim::{AtomicBool, AtomicU8, Ordering, fence};
use std::fmt;

/// What a task is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TaskState {
    /// In a queue.
    Ready = 0,
    /// On a worker.
    Running = 1,
    /// Waiting for a channel, a timer, I/O or children.
    Blocked = 2,
    /// Out of budget, until a recharge.
    BudgetExhausted = 3,
    /// Returned, or failed. Final.
    Completed = 4,
    /// Cancelled. Final.
    Cancelled = 5,
}

/// What can happen to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A worker took it from a queue.
    Dispatch,
    /// It yielded.
    Yield,
    /// It waits.
    Block,
    /// A component of its budget ran out.
    Exhaust,
    /// What it waited for has happened.
    Wake,
    /// It was given budget.
    Recharge,
    /// It is cancelled while it waits, and must come to acknowledge that.
    Interrupt,
    /// It returned.
    Complete,
    /// It has acknowledged its cancellation, or never started.
    Cancel,
}

/// An event that makes no sense in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IllegalStep {
    /// The state.
    pub state: TaskState,
    /// The event.
    pub event: Event,
}

impl fmt::Display for IllegalStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a task that is {:?} has no step {:?}", self.state, self.event)
    }
}

impl std::error::Error for IllegalStep {}

impl TaskState {
    /// All six.
    pub const ALL: [Self; 6] =
        [Self::Ready, Self::Running, Self::Blocked, Self::BudgetExhausted, Self::Completed, Self::Cancelled];

    /// The state after `event`.
    #[inline]
    pub const fn step(self, event: Event) -> Result<Self, IllegalStep> {
        Ok(match (self, event) {
            (Self::Ready, Event::Dispatch) => Self::Running,
            (Self::Running, Event::Yield)
            | (Self::Blocked, Event::Wake | Event::Interrupt)
            | (Self::BudgetExhausted, Event::Recharge | Event::Interrupt) => Self::Ready,
            (Self::Running, Event::Block) => Self::Blocked,
            (Self::Running, Event::Exhaust) => Self::BudgetExhausted,
            (Self::Running, Event::Complete) => Self::Completed,
            (Self::Ready | Self::Running, Event::Cancel) => Self::Cancelled,
            (state, event) => return Err(IllegalStep { state, event }),
        })
    }

    /// Whether nothing can happen to it any more.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Cancelled)
    }

    const fn from_bits(bits: u8) -> Self {
        match bits & STATE {
            0 => Self::Ready,
            1 => Self::Running,
            2 => Self::Blocked,
            3 => Self::BudgetExhausted,
            4 => Self::Completed,
            _ => Self::Cancelled,
        }
    }
}

/// Set beside Blocked: the worker of the task's home wakes it without a read-modify-write, and no other thread wakes it
/// before the home has been taken away.
const AT_HOME: u8 = 0x40;
const BLOCKED_AT_HOME: u8 = TaskState::Blocked as u8 | AT_HOME;
/// The task has frames on a stack: it was dispatched, and has not ended. A future that waits has none.
const FRAMES: u8 = 0x20;
/// Even with frames, the task may go on on another thread. Set at its birth.
const MOVABLE: u8 = 0x10;
/// What every step but a dispatch leaves as it is.
const KEPT: u8 = FRAMES | MOVABLE;
const STATE: u8 = 0x07;

/// The state of a task that threads share.
#[derive(Debug)]
pub struct StateCell {
    bits: AtomicU8,
    /// A waker wanted to wake the task while it did not wait for that: perhaps it was about to fall asleep. The
    /// committer of the next wait takes the task back for it.
    noted: AtomicBool,
}

/// Whether a task that wanted to wait does.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// It waits.
    Waits,
    /// A wake came first: it is Ready, and the caller must queue it.
    Queue,
}

/// What a wake came to.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// It is Ready, and the caller must queue it.
    Queue,
    /// It needs nothing: it runs and will notice, or it did not wait.
    Nothing,
}

impl Default for StateCell {
    fn default() -> Self {
        Self { bits: AtomicU8::new(TaskState::Ready as u8), noted: AtomicBool::new(false) }
    }
}

impl StateCell {
    /// The state now.
    pub fn get(&self) -> TaskState {
        TaskState::from_bits(self.bits.load(Ordering::Acquire))
    }

    /// As new. Only the task's sole owner may call this.
    pub(crate) fn reset(&self, movable: bool) {
        let movable = if movable { MOVABLE } else { 0 };
        self.bits.store(TaskState::Ready as u8 | movable, Ordering::Relaxed);
        self.noted.store(false, Ordering::Relaxed);
    }

    /// Whether the task has frames on a stack. Only the task's holder asks.
    #[inline(always)]
    pub(crate) fn has_frames(&self) -> bool {
        self.bits.load(Ordering::Relaxed) & FRAMES != 0
    }

    /// Whether the task must go on on the thread that started it. Only the task's holder asks.
    #[inline(always)]
    pub(crate) fn is_pinned(&self) -> bool {
        self.bits.load(Ordering::Relaxed) & KEPT == FRAMES
    }

    /// The running task is a future that returned: it has no frames until it is dispatched again. The holder only.
    pub(crate) fn lose_frames(&self) {
        let bits = self.bits.load(Ordering::Relaxed);
        debug_assert_eq!(bits & !KEPT, TaskState::Running as u8);
        self.bits.store(bits & !FRAMES, Ordering::Relaxed);
    }

    /// What a worker does with a task from a queue, for model checking.
    #[cfg(loom)]
    pub fn dispatch_for_model(&self) {
        self.step(Event::Dispatch);
    }

    /// A step that only the holder of the task takes: Dispatch, Yield, Complete, Cancel.
    #[inline(always)]
    pub(crate) fn step(&self, event: Event) {
        // The holder is alone with these states, so a load and a store are one step. The queue that the task goes
        // through, or the join cell, orders them for the next holder.
        // What was noted stays: a waker that saw the task Ready or Running relies on the next commit to find it.
        let bits = self.bits.load(Ordering::Relaxed);
        let kept = bits & KEPT | if event == Event::Dispatch { FRAMES } else { 0 };
        match TaskState::from_bits(bits).step(event) {
            Ok(next) => self.bits.store(next as u8 | kept, Ordering::Relaxed),
            Err(illegal) => unreachable_step(illegal),
        }
        if event == Event::Dispatch && broken(Mutant::DispatchForgets) {
            self.noted.store(false, Ordering::Relaxed);
        }
    }

    /// The Yield of the running task and the Dispatch of `next`, which is Ready and has frames, in one. False, and nothing has
    /// changed, if one of them may move to another thread and the other must not, or if `next` is something else. Only the
    /// holder of both calls this.
    #[inline(always)]
    pub fn give_turn(&self, next: &Self) -> bool {
        let (running, ready) = (self.bits.load(Ordering::Relaxed), next.bits.load(Ordering::Relaxed));
        debug_assert_eq!(running & !MOVABLE, TaskState::Running as u8 | FRAMES);
        // The words differ in the state and in nothing else, so that each is what the other is to become.
        if running ^ ready != TaskState::Running as u8 ^ TaskState::Ready as u8 {
            return false;
        }
        // As in `step`: the holder is alone with these states, and what was noted stays.
        self.bits.store(ready, Ordering::Relaxed);
        next.bits.store(running, Ordering::Relaxed);
        if broken(Mutant::TurnForgets) {
            self.noted.store(false, Ordering::Relaxed);
            next.noted.store(false, Ordering::Relaxed);
        }
        true
    }

    /// The task has left its stack, to wait (Block) or for want of budget (Exhaust). `here` is the section flag of the calling thread.
    #[inline]
    pub fn commit_wait(&self, event: Event, home: &Home, here: &SectionFlag) -> Committed {
        // Only the holder changes the word of a task that runs.
        let kept = self.bits.load(Ordering::Relaxed) & KEPT;
        let next = match TaskState::Running.step(event) {
            Ok(next) => next as u8 | kept,
            Err(illegal) => unreachable_step(illegal),
        };
        if let Some(section) = home.enter(here) {
            // Release: a waker of the task sees its saved context.
            self.bits.store(next | AT_HOME, Ordering::Release);
            drop(section);
            // Pairs with the heavy fence of a thread that takes the home away, and of the canceller, between its flag and
            // its look at the state. The committer's last look at the flag comes after this.
            asymmetric::light();
            if !self.noted.load(Ordering::Relaxed) {
                return Committed::Waits;
            }
            // Taken out again as another thread would take it; at home this worker is alone.
            return match home.enter(here) {
                Some(_section) => self.take_back(next | AT_HOME),
                None => self.take_back_shared(next),
            };
        }
        // Release: as above.
        self.bits.store(next, Ordering::Release);
        // Pairs with the fence of a waker that notes a wake, between the note and its second look at the state, and
        // with the canceller's fence, as above.
        if !broken(Mutant::CommitWithoutFence) {
            fence(Ordering::SeqCst);
        }
        let noted = self.noted.load(Ordering::Relaxed) && !broken(Mutant::NoteIgnored);
        if noted { self.take_back_shared(next) } else { Committed::Waits }
    }

    /// The task, which runs here, waits for something of this worker's own: the worker stays inside until it has left the task's
    /// stack. False if a wake or `is_wanted` came first: then the task runs on.
    #[inline(always)]
    pub fn wait_inside(&self, home: &Home, section: &Section<'_>, is_wanted: impl FnOnce() -> bool) -> bool {
        debug_assert_eq!(self.get(), TaskState::Running);
        if !home.is_here(section) {
            return false;
        }
        let kept = self.bits.load(Ordering::Relaxed) & KEPT;
        // Release: a waker of the task sees its saved context, since it comes after the section.
        self.bits.store(BLOCKED_AT_HOME | kept, Ordering::Release);
        // Pairs with the heavy fences of a thread that takes the home away and of a canceller, as in `commit_wait`.
        asymmetric::light();
        if self.noted.load(Ordering::Relaxed) || is_wanted() {
            self.forget_note();
            // A thread that saw it waiting cannot take the home before the section ends, and then looks again.
            self.bits.store(TaskState::Running as u8 | kept, Ordering::Release);
            return false;
        }
        true
    }

    /// Leaves a note for the committer of the next wait.
    fn note(&self) {
        // Release pairs with the acquire in `forget_note`. An exchange, not a store: a committer that takes several
        // notes at once reads the last, and an exchange passes on what the earlier ones released.
        if broken(Mutant::NoteStored) {
            return self.noted.store(true, Ordering::Release);
        }
        self.noted.swap(true, Ordering::AcqRel);
    }

    /// The task goes on, and looks at everything that may have been noted.
    fn forget_note(&self) {
        // Acquire pairs with the release of the waker that left the note: what the task is to find is seen. A plain
        // store could forget a note that came in between without seeing what it was for.
        self.noted.swap(false, Ordering::Acquire);
    }

    /// A wake by a worker that is inside, of a task that waits at home there. False if it does not: then nothing has changed.
    #[inline(always)]
    pub fn wake_inside(&self, home: &Home, section: &Section<'_>) -> bool {
        let bits = self.bits.load(Ordering::Relaxed);
        if !home.is_here(section) || bits & !KEPT != BLOCKED_AT_HOME {
            return false;
        }
        self.bits.store(TaskState::Ready as u8 | bits & KEPT, Ordering::Release);
        true
    }

    /// A wake came before the wait: the task is Ready again, unless a waker has made it so.
    fn take_back(&self, waiting: u8) -> Committed {
        if self.bits.load(Ordering::Relaxed) != waiting {
            return Committed::Waits;
        }
        self.bits.store(TaskState::Ready as u8 | waiting & KEPT, Ordering::Release);
        self.forget_note();
        Committed::Queue
    }

    /// As [`StateCell::take_back`], where others may do the same. By now that may be the slot of another task, which this
    /// wakes for nothing, as any late wake does.
    #[cold]
    fn take_back_shared(&self, waiting: u8) -> Committed {
        let ready = TaskState::Ready as u8 | waiting & KEPT;
        match self.bits.compare_exchange(waiting, ready, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => {
                // Only now is the task in the caller's hands: before, the note could be another task's.
                self.forget_note();
                Committed::Queue
            }
            Err(_) => Committed::Waits,
        }
    }

    /// Something that the task may wait for has happened: Wake, Recharge or Interrupt. `here` is the section flag of the calling
    /// thread, if it has one.
    ///
    /// # Safety
    ///
    /// The seats that have `home` for a home live as long as it.
    #[allow(unsafe_code)]
    #[inline]
    pub unsafe fn wake(&self, event: Event, home: &Home, here: Option<&SectionFlag>) -> Woken {
        let mut noted = false;
        loop {
            // The state before the home: a thread that sees a state that was written at home sees the home.
            let bits = self.bits.load(Ordering::SeqCst);
            // SAFETY: as the caller promises.
            if unsafe { home.claim(here, || self.leave_home()) } {
                match here.and_then(|section_flag| home.enter(section_flag)) {
                    Some(_section) => return self.wake_at_home(event),
                    None => continue,
                }
            }
            if bits & AT_HOME != 0 {
                // Written at a home that has been taken away since: it is something else now.
                continue;
            }
            let state = TaskState::from_bits(bits);
            match state.step(event) {
                Ok(next) => {
                    let next = next as u8 | bits & KEPT;
                    if self.bits.compare_exchange(bits, next, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                        return Woken::Queue;
                    }
                }
                Err(_) if state == TaskState::Ready && broken(Mutant::ReadyNotNoted) => {
                    return Woken::Nothing;
                }
                Err(_) if !state.is_final() && !noted => {
                    // Also of a task that is Ready, or waits for budget: what the waker wrote before may still be on its
                    // way when such a task runs, looks at it in vain, and falls asleep.
                    self.note();
                    // Pairs with the fence in `commit_wait`: the note is seen there, or the wait here.
                    if !broken(Mutant::WakeWithoutFence) {
                        fence(Ordering::SeqCst);
                    }
                    noted = true;
                }
                Err(_) => return Woken::Nothing,
            }
        }
    }

    /// A wake by the worker of the task's home, inside a section.
    #[inline(always)]
    fn wake_at_home(&self, event: Event) -> Woken {
        let bits = self.bits.load(Ordering::Relaxed);
        let state = TaskState::from_bits(bits);
        match state.step(event) {
            Ok(next) => {
                self.bits.store(next as u8 | bits & KEPT, Ordering::Release);
                return Woken::Queue;
            }
            // One that is not Running sees what this thread wrote before: it goes through a queue of this worker.
            Err(_) if state == TaskState::Running => self.note(),
            Err(_) => {}
        }
        Woken::Nothing
    }

    /// The home is being taken away: from now on every thread changes the state in the same way.
    fn leave_home(&self) {
        let bits = self.bits.load(Ordering::Acquire);
        if bits & AT_HOME != 0 {
            // No other thread changes such a state, and its home's worker does not any more.
            self.bits.store(bits & !AT_HOME, Ordering::Release);
        }
    }
}

#[cold]
#[inline(never)]
fn unreachable_step(illegal: IllegalStep) -> ! {
    // A scheduler that lost track of who holds a task would corrupt stacks: there is no safe way to go on.
    eprintln!("mainspring: internal error: {illegal}");
    std::process::abort()
}
