//! Time for futures.
//!
//! Conserved: a sleep has at most one entry in the timers of its runtime, and takes it back when it is dropped.

use super::timers::{Fire, TimerKey};
use crate::calls;
use crate::cx::Cx;
use crate::runtime::Inner;
use crate::waiter;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The clock of a runtime, for futures: made by [`Cx::timer`]. It keeps the memory of the runtime, not its threads.
#[derive(Clone)]
pub struct Timer(Arc<Inner>);

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Timer")
    }
}

impl Cx {
    /// The clock of the runtime, for futures.
    ///
    /// ```
    /// # use mainspring::{Config, Profile};
    /// # use std::time::Duration;
    /// # let runtime = Config::new(Profile::Service).build().unwrap();
    /// runtime.run(|cx| {
    ///     let timer = cx.timer();
    ///     cx.await_future(async move { timer.sleep(Duration::from_millis(1)).await }).unwrap();
    /// }).unwrap();
    /// ```
    pub fn timer(&self) -> Timer {
        calls::count(self);
        Timer(self.rt().memory())
    }
}

impl Timer {
    /// A future that is ready in so much time.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        calls::count_action();
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Sleep { due_ns: self.0.timers.now_ns().saturating_add(ns), memory: self.0.clone(), set: None }
    }

    /// Time since the runtime started, by its clock.
    pub fn now(&self) -> Duration {
        calls::count_poll();
        Duration::from_nanos(self.0.timers.now_ns())
    }
}

/// Ready when its time has come: [`Timer::sleep`].
#[must_use = "a future does nothing until it is polled"]
pub struct Sleep {
    memory: Arc<Inner>,
    due_ns: u64,
    /// The entry in the timers, the word that it wakes, and whose that is.
    set: Option<(TimerKey, usize, Waker)>,
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sleep")
    }
}

impl Sleep {
    fn take_back(&mut self) {
        if let Some((key, word, _)) = self.set.take()
            && self.memory.timers.remove(key)
        {
            waiter::take_back(word);
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.memory.timers.now_ns() >= self.due_ns {
            self.take_back();
            return Poll::Ready(());
        }
        if self.set.as_ref().is_none_or(|(_, _, waker)| !waker.will_wake(cx.waker())) {
            self.take_back();
            let word = waiter::future_word(cx.waker());
            let key = self.memory.add_timer(self.due_ns, Fire::Future(word));
            self.set = Some((key, word, cx.waker().clone()));
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.take_back();
    }
}

#[cfg(feature = "hyper")]
mod for_hyper {
    use super::{Sleep, Timer};
    use std::pin::Pin;
    use std::time::{Duration, Instant};

    impl hyper::rt::Sleep for Sleep {}

    impl hyper::rt::Timer for Timer {
        fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
            Box::pin(Timer::sleep(self, duration))
        }

        fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
            Box::pin(Timer::sleep(self, deadline.saturating_duration_since(Instant::now())))
        }
    }
}
