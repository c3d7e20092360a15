//! Waiting for the first of several channels.

use super::{Receiver, Refusal};
use crate::budget::Component;
use crate::cx::Cx;
use crate::error::BudgetError;
use crate::task::WaitReason;
use crate::time::timers::Fire;
use crate::wait::Who;
use crate::waiter::task_word;
use std::time::Duration;

/// Receives from whichever of several channels has something first.
///
/// Arms are looked at in the order in which they were added. A closed channel counts as ready.
///
/// ```
/// # use mainspring::{Capacity, Config, Profile, Select};
/// # use std::time::Duration;
/// # let runtime = Config::new(Profile::Service).build().unwrap();
/// let answer = runtime.run(|cx| {
///     let (_tx, numbers) = cx.channel::<u32>(Capacity::Rendezvous).unwrap();
///     Select::new()
///         .recv(&numbers, |number| number.map_or(0, |n| n + 1))
///         .run_timeout(cx, Duration::from_millis(1), || 99)
///         .unwrap()
/// });
/// assert_eq!(answer.unwrap(), 99);
/// ```
#[must_use = "a select does nothing until it runs"]
pub struct Select<'a, R> {
    arms: Vec<Box<dyn Arm<R> + 'a>>,
}

trait Arm<R> {
    fn watch(&self, word: usize);
    fn unwatch(&self, word: usize);
    /// The result, if the channel is ready.
    fn try_take(&mut self, cx: &Cx) -> Option<R>;
}

struct RecvArm<'a, T, F> {
    receiver: &'a Receiver<T>,
    then: Option<F>,
}

impl<T, R, F: FnOnce(Result<T, Refusal>) -> R> Arm<R> for RecvArm<'_, T, F> {
    fn watch(&self, word: usize) {
        self.receiver.chan().watch(word);
    }

    fn unwatch(&self, word: usize) {
        self.receiver.chan().unwatch(word);
    }

    fn try_take(&mut self, cx: &Cx) -> Option<R> {
        match self.receiver.chan().try_recv(&Who::Task(cx)) {
            Err(Refusal::WouldBlock) => None,
            result => self.then.take().map(|then| then(result)),
        }
    }
}

impl<R> Default for Select<'_, R> {
    fn default() -> Self {
        Self { arms: Vec::new() }
    }
}

impl<R> std::fmt::Debug for Select<'_, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Select({} arms)", self.arms.len())
    }
}

impl<'a, R> Select<'a, R> {
    /// No arms yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Another channel, and what to do with what comes from it.
    pub fn recv<T>(
        mut self,
        receiver: &'a Receiver<T>,
        then: impl FnOnce(Result<T, Refusal>) -> R + 'a,
    ) -> Self {
        self.arms.push(Box::new(RecvArm { receiver, then: Some(then) }));
        self
    }

    /// Waits for the first channel. Costs one op and one channel operation.
    pub fn run(mut self, cx: &Cx) -> Result<R, BudgetError> {
        cx.charge(Component::ChannelOps)?;
        Ok(self.wait(cx, None).expect("without a deadline it waits for an arm"))
    }

    /// As [`Select::run`]; if nothing comes in time, `late` says what then.
    pub fn run_timeout(
        mut self,
        cx: &Cx,
        timeout: Duration,
        late: impl FnOnce() -> R,
    ) -> Result<R, BudgetError> {
        cx.charge(Component::ChannelOps)?;
        let ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let due = cx.rt().timers.now_ns().saturating_add(ns);
        Ok(self.wait(cx, Some(due)).unwrap_or_else(late))
    }

    fn wait(&mut self, cx: &Cx, due_ns: Option<u64>) -> Option<R> {
        if let Some(result) = self.arms.iter_mut().find_map(|arm| arm.try_take(cx)) {
            return Some(result);
        }
        let word = task_word(cx.task_ptr());
        let timer = due_ns.map(|due| cx.rt().add_timer(due, Fire::Wake(cx.task_ptr())));
        for arm in &self.arms {
            arm.watch(word);
        }
        // Watched from here on, so a look that finds nothing is followed by a wake when there is something.
        let result = loop {
            if let Some(result) = self.arms.iter_mut().find_map(|arm| arm.try_take(cx)) {
                break Some(result);
            }
            if due_ns.is_some_and(|due| cx.rt().timers.now_ns() >= due)
                || cx.must_stop()
                || std::thread::panicking()
            {
                break None;
            }
            cx.block(WaitReason::Channel);
        };
        for arm in &self.arms {
            arm.unwatch(word);
        }
        if let Some(key) = timer {
            cx.rt().timers.remove(key);
        }
        if result.is_none() {
            cx.acknowledge();
        }
        result
    }
}
