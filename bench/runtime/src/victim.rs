//! The victim of an attack: a timer of a millisecond, and how late its ticks are.
//!
//! Ticks are due on a fixed schedule. A victim that is kept from running answers for every tick that it missed, so
//! that one long stall counts as what it is.

use std::time::{Duration, Instant};

/// Time between two ticks.
pub const TICK: Duration = Duration::from_millis(1);

/// The schedule of the victim's ticks.
#[derive(Debug)]
pub struct Victim {
    began: Instant,
    window: Duration,
    answered: u32,
    late_us: Vec<f64>,
}

impl Victim {
    /// The first tick is due in a millisecond. Made before the attack begins: a victim that never gets to start is late.
    pub fn new(window: Duration) -> Self {
        Self { began: Instant::now(), window, answered: 0, late_us: Vec::with_capacity(10_000) }
    }

    /// When the next tick is due; none when the window is over.
    pub fn next_due(&self) -> Option<Instant> {
        let after = TICK * (self.answered + 1);
        (after <= self.window).then(|| self.began + after)
    }

    /// The victim runs: it answers all ticks that are due.
    pub fn answer(&mut self) {
        let now = Instant::now();
        while let Some(due) = self.next_due()
            && due <= now
        {
            self.late_us.push((now - due).as_secs_f64() * 1e6);
            self.answered += 1;
        }
    }

    /// The lateness that one tick in a hundred exceeds, in microseconds.
    pub fn p99_us(mut self) -> f64 {
        self.late_us.sort_unstable_by(f64::total_cmp);
        let rank = (self.late_us.len() * 99).div_ceil(100);
        self.late_us[rank.max(1) - 1]
    }
}
