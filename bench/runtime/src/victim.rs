//! The victim of an attack: a timer of a millisecond and how late its ticks are, or jobs and how many of them miss their deadlines.
//!
//! Ticks and jobs are due on a fixed schedule. A victim that is kept from running answers for every one that it missed, so
//! that one long stall counts as what it is.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Time between two ticks.
const TICK: Duration = Duration::from_millis(1);
/// Time between two jobs, and the deadline of each after its release.
pub const PERIOD: Duration = Duration::from_millis(10);
/// What a victim with jobs is granted in each period, where time can be granted.
pub const GRANT: Duration = Duration::from_millis(1);
/// How long a job computes on a CPU of its own: half of what is granted.
const JOB: Duration = Duration::from_micros(500);

/// What the victim does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Duty {
    /// It notes how late it is.
    Ticks,
    /// It does so many steps.
    Jobs(u64),
}

/// The schedule of the victim.
#[derive(Debug)]
pub struct Victim {
    began: Instant,
    window: Duration,
    duty: Duty,
    answered: u32,
    missed: u32,
    late_us: Vec<f64>,
}

fn steps(count: u64) {
    for step in 0..count {
        black_box(step);
    }
}

/// How many steps a job has: measured a few times, of which the fastest was disturbed the least.
fn steps_of_a_job() -> u64 {
    const SAMPLE: u64 = 100_000;
    let sample = || {
        let began = Instant::now();
        steps(SAMPLE);
        began.elapsed()
    };
    let fastest = (0..20).map(|_| sample()).min().expect("there are some").max(Duration::from_nanos(1));
    (SAMPLE as f64 * JOB.as_secs_f64() / fastest.as_secs_f64()) as u64
}

impl Victim {
    /// The first tick is due in a millisecond. Made before the attack begins: a victim that never gets to start is late.
    pub fn with_ticks(window: Duration) -> Self {
        Self::new(window, Duty::Ticks)
    }

    /// The first job is released in ten milliseconds.
    pub fn with_jobs(window: Duration) -> Self {
        Self::new(window, Duty::Jobs(steps_of_a_job()))
    }

    fn new(window: Duration, duty: Duty) -> Self {
        let late_us = Vec::with_capacity(10_000);
        Self { began: Instant::now(), window, duty, answered: 0, missed: 0, late_us }
    }

    fn period(&self) -> Duration {
        if self.duty == Duty::Ticks { TICK } else { PERIOD }
    }

    /// When the next tick is due, or the next job released; none when the window is over.
    pub fn next_due(&self) -> Option<Instant> {
        let after = self.period() * (self.answered + 1);
        (after <= self.window).then(|| self.began + after)
    }

    /// The victim runs: it answers all ticks that are due, or does one job.
    pub fn answer(&mut self) {
        if let Duty::Jobs(count) = self.duty {
            let Some(released) = self.next_due() else { return };
            steps(count);
            self.missed += u32::from(Instant::now() > released + PERIOD);
            self.answered += 1;
            return;
        }
        let now = Instant::now();
        while let Some(due) = self.next_due()
            && due <= now
        {
            self.late_us.push((now - due).as_secs_f64() * 1e6);
            self.answered += 1;
        }
    }

    /// The lateness that one tick in a hundred exceeds, in microseconds; of jobs, how many in a hundred missed their deadlines.
    pub fn figure(mut self) -> f64 {
        if self.duty != Duty::Ticks {
            return f64::from(self.missed) * 100.0 / f64::from(self.answered.max(1));
        }
        self.late_us.sort_unstable_by(f64::total_cmp);
        let rank = (self.late_us.len() * 99).div_ceil(100);
        self.late_us[rank.max(1) - 1]
    }
}
