//! A meeting of so many tasks.
//!
//! Conserved: a round is over when so many have come and none of them has left again. A task that is cancelled, or out of
//! time, before that does not count.

use super::semaphore::AcquireError;
use crate::cx::Cx;
use crate::queue::{Queue, Rule, enter};
use crate::task::WaitReason;
use crate::wait::Who;
use std::time::Duration;

#[derive(Default)]
struct Round {
    arrived: usize,
    /// How many rounds are over.
    number: u64,
}

impl Rule for Round {
    /// The round that the waiter is of.
    type Wish = u64;

    const IN_TURN: bool = false;

    fn take(&mut self, of: u64) -> bool {
        self.number != of
    }

    fn put_back(&mut self, _: u64, _: bool) {}

    fn leave(&mut self, of: u64) {
        if self.number == of {
            self.arrived -= 1;
        }
    }
}

/// Where so many tasks wait for each other, again and again.
#[derive(Debug)]
pub struct Barrier {
    queue: Queue<Round>,
    size: usize,
}

impl Barrier {
    /// For `size` tasks; 0 is as 1.
    pub fn new(size: usize) -> Self {
        Self { queue: Queue::new(Round::default()), size: size.max(1) }
    }

    /// Waits until so many are there. True for the last to come.
    pub fn wait(&self, cx: &Cx) -> Result<bool, AcquireError> {
        self.wait_as(&Who::Task(cx), None)
    }

    /// As [`Barrier::wait`], for at most this long. A task that gives up does not count.
    pub fn wait_timeout(&self, cx: &Cx, timeout: Duration) -> Result<bool, AcquireError> {
        self.wait_as(&Who::Task(cx), Some(timeout))
    }

    /// As [`Barrier::wait`], from an ordinary thread, which blocks. Must not be called from inside a task.
    pub fn wait_blocking(&self) -> bool {
        self.wait_as(&Who::thread(), None).expect("a thread waits for as long as it takes")
    }

    fn wait_as(&self, who: &Who<'_>, timeout: Option<Duration>) -> Result<bool, AcquireError> {
        enter(who);
        let (of, is_last) = self.queue.change(|round, _| {
            let of = round.number;
            round.arrived += 1;
            let is_last = round.arrived == self.size;
            if is_last {
                *round = Round { arrived: 0, number: of.wrapping_add(1) };
            }
            (of, is_last)
        });
        // Nothing between here and the line may end the task: it has been counted.
        if !is_last {
            self.queue.wait_after(who, of, WaitReason::Sync, timeout, || ())?;
        }
        Ok(is_last)
    }
}
