//! Time: sleeping, deadlines, intervals.

mod future;
pub(crate) mod timers;

pub use future::{Sleep, Timer};

use crate::calls;
use crate::cx::Cx;
use crate::task::WaitReason;
use std::time::Duration;
use timers::{Fire, TimerKey};

impl Cx {
    /// Sleeps. Only this task waits. Free of charge, as all waiting is.
    pub fn sleep(&self, duration: Duration) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.sleep_until_ns(self.rt().timers.now_ns().saturating_add(ns));
    }

    pub(crate) fn sleep_until_ns(&self, due_ns: u64) {
        calls::count(self);
        self.acknowledge();
        if std::thread::panicking() {
            return;
        }
        let key = self.rt().add_timer(due_ns, Fire::Wake(self.task_ptr()));
        while self.rt().timers.now_ns() < due_ns {
            if self.must_stop() {
                self.rt().timers.remove(key);
                self.acknowledge();
            }
            self.block(WaitReason::Timer);
        }
        self.rt().timers.remove(key);
    }
}

/// A moment at which a task that waits for something else is woken, until it is dropped.
pub(crate) struct Alarm<'a> {
    cx: &'a Cx,
    set: Option<(u64, TimerKey)>,
}

impl<'a> Alarm<'a> {
    /// In so much time; never for `None`.
    pub(crate) fn set(cx: &'a Cx, timeout: Option<Duration>) -> Self {
        let set = timeout.map(|timeout| {
            let ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
            let due_ns = cx.rt().timers.now_ns().saturating_add(ns);
            (due_ns, cx.rt().add_timer(due_ns, Fire::Wake(cx.task_ptr())))
        });
        Self { cx, set }
    }

    /// None.
    pub(crate) fn never(cx: &'a Cx) -> Self {
        Self { cx, set: None }
    }

    /// Whether the moment has come.
    pub(crate) fn is_over(&self) -> bool {
        self.set.is_some_and(|(due_ns, _)| self.cx.rt().timers.now_ns() >= due_ns)
    }
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if let Some((_, key)) = self.set {
            self.cx.rt().timers.remove(key);
        }
    }
}

/// Evenly spaced moments.
#[derive(Debug)]
pub struct Interval {
    next_ns: u64,
    period_ns: u64,
}

impl Cx {
    /// Moments `period` apart, the first one `period` from now.
    pub fn interval(&self, period: Duration) -> Interval {
        calls::count(self);
        let period_ns = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX).max(1);
        Interval { next_ns: self.rt().timers.now_ns().saturating_add(period_ns), period_ns }
    }
}

impl Interval {
    /// Waits for the next moment. Moments that passed meanwhile are skipped: returns how many.
    pub fn tick(&mut self, cx: &Cx) -> u64 {
        cx.sleep_until_ns(self.next_ns);
        let late_ns = cx.rt().timers.now_ns().saturating_sub(self.next_ns);
        let skipped = late_ns / self.period_ns;
        self.next_ns = self.next_ns.saturating_add(self.period_ns.saturating_mul(skipped + 1));
        skipped
    }
}
