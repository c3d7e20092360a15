//! How far apart checks are in time. `#[budgeted]` knows its context by the name of its type, so a context of our own
//! gets the same checks at the same places, and looks at the clock where the runtime would look up.

use mainspring::meter::{Meter, Purse};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Stands in for the runtime's context.
#[derive(Debug)]
pub struct Cx {
    interval: u32,
    /// What is left of the slice.
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

    /// The longest time between two looks, or between one and the end.
    pub fn longest(&self) -> Duration {
        self.look_up();
        self.longest.get()
    }

    fn look_up(&self) {
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
    fn pays(self, ops: u32) -> bool {
        let left = self.left.get().checked_sub(ops);
        self.left.set(left.unwrap_or(self.left.get()));
        left.is_some()
    }

    fn check(self, _: u32) {
        self.left.set(self.interval);
        self.look_up();
    }
}
