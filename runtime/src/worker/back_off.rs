//! How long a worker that finds nothing dozes before it looks again: twice as long each time, and then until it is woken.

use std::time::Duration;

const FIRST: Duration = Duration::from_micros(1);
const LAST: Duration = Duration::from_millis(1);
/// Later than the host's next tick, for which a timer is armed anyhow.
const OUTSIDE: Duration = Duration::from_millis(10);

/// The dozes of a worker since it last had reason to expect work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BackOff {
    next: Option<Duration>,
}

impl BackOff {
    pub(crate) fn new() -> Self {
        Self { next: Some(FIRST) }
    }

    /// How long to doze now; `None` to sleep until woken.
    pub(crate) fn doze(self) -> Option<Duration> {
        self.next
    }

    /// Whether there was no doze yet.
    pub(crate) fn is_fresh(self) -> bool {
        self.next == Some(FIRST)
    }

    /// The doze of a worker that waits outside. It is woken for sockets and for what is published; only what is published while it falls
    /// asleep may have to wait. A shorter one would end for nothing, and cost a timer of its own each time.
    pub(crate) fn doze_outside(self) -> Option<Duration> {
        self.next.map(|_| OUTSIDE)
    }

    /// A doze outside was in vain: the worker parks.
    pub(crate) fn outside_in_vain(&mut self) {
        self.next = None;
    }

    /// The doze was in vain.
    pub(crate) fn in_vain(&mut self) {
        self.next = self.next.filter(|doze| *doze < LAST).map(|doze| (doze * 2).min(LAST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= SCHED:7.4.2
    #[test]
    fn dozes_double_from_a_microsecond_to_a_millisecond_and_then_the_worker_parks() {
        let mut back_off = BackOff::new();
        let mut dozes = Vec::new();
        while let Some(doze) = back_off.doze() {
            dozes.push(doze.as_micros());
            back_off.in_vain();
        }
        assert_eq!(dozes, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000]);
        back_off.in_vain();
        assert_eq!(back_off.doze(), None, "it stays parked");
        assert_eq!(BackOff::new().doze(), Some(FIRST), "and begins anew after it found work");
    }
}
