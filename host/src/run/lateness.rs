//! How often a `SCHED_DEADLINE` thread used its budget up, and how often the kernel gave it late: from samples of its counters,
//! since the kernel counts neither.
//!
//! A window between two samples tells something only if the thread never waited in it, by its count of voluntary switches, and
//! was runnable at both ends: then it wanted all that it could have. Within `n` periods it was promised at least `n - 1` whole
//! budgets, wherever its periods begin. What is missing of that was given late. So both counts are at least what happened, and
//! neither counts what a waiting thread did not ask for.

use mainspring_abi::Nanos;
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{fs, str};

/// A window has at least so many periods, so that the one which may be cut in two weighs little.
const PERIODS: u64 = 10;
/// And is at least so long: samples cost time of their own.
const SHORTEST: Duration = Duration::from_millis(20);

/// What samples say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lateness {
    /// Periods in windows in which the thread never waited.
    pub periods: u64,
    /// Those of the periods whose budget was used up with work left.
    pub used_up: u64,
    /// Those of the periods whose budget came late.
    pub late: u64,
}

/// The counters of a thread at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counters {
    ran_ns: u64,
    waits: u64,
    runnable: bool,
}

/// Looks at one thread.
#[derive(Debug)]
pub(super) struct Sampler {
    process: PathBuf,
    budget: Nanos,
    period: Nanos,
    last: Option<(Instant, Counters)>,
    found: Lateness,
}

impl Sampler {
    /// A sampler of the first thread of process `pid`, which has `budget` in each `period`.
    pub(super) fn new(pid: i32, budget: Nanos, period: Nanos) -> Self {
        let process = PathBuf::from(format!("/proc/{pid}"));
        Self { process, budget, period, last: None, found: Lateness::default() }
    }

    /// How often to look.
    pub(super) fn every(&self) -> Duration {
        Duration::from_nanos(self.period.get().saturating_mul(PERIODS)).max(SHORTEST)
    }

    /// Looks, at `now`.
    pub(super) fn look(&mut self, now: Instant) {
        let Some(counters) = self.read() else {
            self.last = None;
            return;
        };
        if let Some((since, before)) = self.last.replace((now, counters)) {
            let found = judge(now - since, before, counters, self.budget, self.period);
            self.found.periods += found.periods;
            self.found.used_up += found.used_up;
            self.found.late += found.late;
        }
    }

    pub(super) fn found(&self) -> Lateness {
        self.found
    }

    fn read(&self) -> Option<Counters> {
        let schedstat = fs::read_to_string(self.process.join("schedstat")).ok()?;
        let status = fs::read_to_string(self.process.join("status")).ok()?;
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        Some(Counters {
            ran_ns: schedstat.split_whitespace().next()?.parse().ok()?,
            waits: line("voluntary_ctxt_switches:")?.parse().ok()?,
            runnable: line("State:")?.starts_with('R'),
        })
    }
}

fn judge(window: Duration, before: Counters, after: Counters, budget: Nanos, period: Nanos) -> Lateness {
    let wanted_all = before.waits == after.waits && before.runnable && after.runnable;
    let window = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
    let (budget, period) = (budget.get().max(1), period.get().max(1));
    let periods = window / period;
    if !wanted_all || periods < 2 {
        return Lateness::default();
    }
    let ran = after.ran_ns.saturating_sub(before.ran_ns);
    let promised = (periods - 1).saturating_mul(budget);
    let late = promised.saturating_sub(ran).div_ceil(budget).min(periods);
    Lateness { periods, used_up: periods - late, late }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(ran_ms: u64, waits: u64, runnable: bool) -> Counters {
        Counters { ran_ns: ran_ms * 1_000_000, waits, runnable }
    }

    const TERMS: (Nanos, Nanos) = (Nanos::from_millis(2), Nanos::from_millis(10));

    fn seen(window_ms: u64, before: Counters, after: Counters) -> Lateness {
        judge(Duration::from_millis(window_ms), before, after, TERMS.0, TERMS.1)
    }

    #[test]
    fn a_thread_that_always_wants_more_uses_up_every_period_that_it_gets() {
        let told = seen(100, counters(0, 5, true), counters(20, 5, true));
        assert_eq!(told, Lateness { periods: 10, used_up: 10, late: 0 });
        // One period may be cut in two by the window, and says nothing.
        let told = seen(100, counters(0, 5, true), counters(18, 5, true));
        assert_eq!(told.late, 0);
        let told = seen(100, counters(0, 5, true), counters(13, 5, true));
        assert_eq!(told, Lateness { periods: 10, used_up: 7, late: 3 });
        let told = seen(100, counters(0, 5, true), counters(0, 5, true));
        assert_eq!(told.late, 9, "it got nothing at all");
    }

    #[test]
    fn a_thread_that_waited_says_nothing() {
        for (before, after) in [
            (counters(0, 5, true), counters(1, 6, true)),
            (counters(0, 5, false), counters(1, 5, true)),
            (counters(0, 5, true), counters(1, 5, false)),
        ] {
            assert_eq!(seen(100, before, after), Lateness::default());
        }
        assert_eq!(seen(15, counters(0, 5, true), counters(0, 5, true)), Lateness::default(), "too short");
    }
}
