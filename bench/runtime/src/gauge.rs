//! How far apart checks are in time. `#[budgeted]` knows its context by the name of its type, so a context of our own
//! gets the same checks at the same places, and looks at the clock at each of them.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Stands in for the runtime's context.
#[derive(Debug)]
pub struct Cx {
    interval: u32,
    last: Cell<Instant>,
    longest: Cell<Duration>,
}

impl Cx {
    /// With the interval of the runtime's own meter.
    pub fn new(interval: u32) -> Self {
        Self { interval, last: Cell::new(Instant::now()), longest: Cell::new(Duration::ZERO) }
    }

    /// The longest time between two checks, or between a check and the end.
    pub fn longest(&self) -> Duration {
        self.check();
        self.longest.get()
    }

    fn check(&self) {
        let now = Instant::now();
        self.longest.set(self.longest.get().max(now - self.last.get()));
        self.last.set(Instant::now());
    }

    /// What `#[budgeted]` asks for.
    pub fn meter(&self) -> Meter<'_> {
        Meter { cx: self, left: self.interval }
    }
}

/// Stands in for the runtime's meter, and checks when that one does.
#[derive(Debug)]
pub struct Meter<'a> {
    cx: &'a Cx,
    left: u32,
}

impl Meter<'_> {
    /// A loop goes round.
    #[inline(always)]
    pub fn iteration(&mut self) {
        self.left -= 1;
        if self.left == 0 {
            self.left = self.cx.interval;
            self.cx.check();
        }
    }

    /// A function is about to be called.
    pub fn call(&self) {
        self.cx.check();
    }
}
