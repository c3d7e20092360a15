//! How far apart checks are in time. `#[budgeted]` knows its context by the name of its type, so a context of our own
//! gets the same checks at the same places, and looks at the clock at each of them.

use mainspring::meter::{Meter, Purse};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Stands in for the runtime's context.
#[derive(Debug)]
pub struct Cx {
    interval: u32,
    left: Cell<u32>,
    last: Cell<Instant>,
    longest: Cell<Duration>,
}

impl Cx {
    /// With the interval of the runtime's own meter.
    pub fn new(interval: u32) -> Self {
        let left = Cell::new(interval);
        Self { interval, left, last: Cell::new(Instant::now()), longest: Cell::new(Duration::ZERO) }
    }

    /// The longest time between two checks, or between a check and the end.
    pub fn longest(&self) -> Duration {
        self.check();
        self.longest.get()
    }

    /// Uses ops as the runtime does: a slice at a time.
    fn take(&self, ops: u32) -> u32 {
        self.left.set(self.left.get().checked_sub(ops).filter(|&left| left > 0).unwrap_or(self.interval));
        self.left.get()
    }

    fn check(&self) {
        let now = Instant::now();
        self.longest.set(self.longest.get().max(now - self.last.get()));
        self.last.set(Instant::now());
    }

    /// What `#[budgeted]` asks for.
    #[inline(always)]
    pub fn meter(&self) -> Meter<&Self> {
        Meter::new(self)
    }
}

impl Purse for &Cx {
    fn allowance(self) -> u32 {
        self.left.get()
    }

    fn pay(self, ops: u32) -> u32 {
        self.check();
        self.take(ops)
    }

    fn pay_at_pause(self, ops: u32) -> u32 {
        self.pay(ops)
    }

    fn pay_silently(self, ops: u32) {
        self.take(ops);
    }
}
