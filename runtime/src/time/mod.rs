//! Time: sleeping, deadlines, intervals.

pub(crate) mod timers;

use crate::cx::Cx;
use crate::task::WaitReason;
use std::time::Duration;
use timers::Fire;

impl Cx {
    /// Sleeps. Only this task waits.
    pub fn sleep(&self, duration: Duration) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.sleep_until_ns(self.rt().timers.now_ns().saturating_add(ns));
    }

    pub(crate) fn sleep_until_ns(&self, due_ns: u64) {
        self.check();
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
