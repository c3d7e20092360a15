//! A share of one CPU, for one guest or for several together.
//!
//! Conserved: in each period its guests use at most the budget, and what they used beyond it, up to one tick each, is taken from the
//! periods that follow. So over any time the share is kept.

use mainspring::Cx;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// So much CPU time in every period. Clones are the same rate: who has one shares it.
#[derive(Clone)]
pub struct Rate {
    shared: Arc<Mutex<Bucket>>,
    budget: Duration,
    period: Duration,
}

#[derive(Debug, Default)]
struct Bucket {
    /// When the current period ends, by the clock of the runtime. Zero before the first use.
    ends: Duration,
    /// Nanoseconds used of the budget. More than the budget is a debt.
    used_ns: u128,
    total: Duration,
    waits: u64,
}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in {:?}", self.budget, self.period)
    }
}

impl Rate {
    /// `budget` of CPU time in every `period`, both at least a microsecond.
    pub fn new(budget: Duration, period: Duration) -> Self {
        let least = Duration::from_micros(1);
        Self { shared: Arc::default(), budget: budget.max(least), period: period.max(least) }
    }

    fn bucket(&self) -> std::sync::MutexGuard<'_, Bucket> {
        self.shared.lock().expect("no panic while it is held")
    }

    /// CPU time that its guests have used in all.
    pub fn used(&self) -> Duration {
        self.bucket().total
    }

    /// How often a guest had to wait.
    pub fn waits(&self) -> u64 {
        self.bucket().waits
    }

    /// Charges what was used.
    pub(crate) fn charge(&self, used: Duration) {
        let mut bucket = self.bucket();
        bucket.used_ns += used.as_nanos();
        bucket.total += used;
    }

    /// How long to wait from `now` until there is something left. `None` if there is.
    fn wait_from(&self, now: Duration) -> Option<Duration> {
        let mut bucket = self.bucket();
        let (budget, period) = (self.budget.as_nanos(), self.period.as_nanos());
        if bucket.ends == Duration::ZERO {
            bucket.ends = now.saturating_add(self.period);
        }
        if now >= bucket.ends {
            // Each period that has begun since brings a budget, and what is not used is gone.
            let begun = (now - bucket.ends).as_nanos() / period + 1;
            bucket.used_ns = bucket.used_ns.saturating_sub(begun.saturating_mul(budget));
            let ahead = u64::try_from(begun.saturating_mul(period)).unwrap_or(u64::MAX);
            bucket.ends = bucket.ends.saturating_add(Duration::from_nanos(ahead));
        }
        let debt = (bucket.used_ns + 1).checked_sub(budget)?;
        if debt == 0 {
            return None;
        }
        bucket.waits += 1;
        // The end of the period, and as many more as the debt takes.
        let more = u64::try_from((debt - 1) / budget * period).unwrap_or(u64::MAX);
        Some((bucket.ends - now).saturating_add(Duration::from_nanos(more)))
    }

    /// Waits until something is left. Only the task waits.
    pub(crate) fn wait(&self, cx: &Cx) {
        while let Some(wait) = self.wait_from(cx.now()) {
            cx.sleep(wait);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn the_share_is_kept_over_any_time() {
        let rate = Rate::new(MS(2), MS(10));
        let (mut now, mut used) = (MS(3), Duration::ZERO);
        // A guest that always wants to run, a tick of 700 us at a time.
        while now < MS(1000) {
            match rate.wait_from(now) {
                Some(wait) => now += wait,
                None => {
                    rate.charge(Duration::from_micros(700));
                    (now, used) = (now + Duration::from_micros(700), used + Duration::from_micros(700));
                }
            }
        }
        // 100 periods of 2 ms, and at most a period and a tick more or less.
        assert!(used <= MS(200) + MS(2) + MS(1) && used >= MS(196) - MS(2), "{used:?}");
        assert_eq!(rate.used(), used);
        assert!(rate.waits() > 50);
    }

    #[test]
    fn what_is_not_used_is_not_saved_up() {
        let rate = Rate::new(MS(2), MS(10));
        assert_eq!(rate.wait_from(MS(5)), None);
        // Nothing for a second; then no more than one budget.
        assert_eq!(rate.wait_from(MS(1005)), None);
        rate.charge(MS(2));
        assert!(rate.wait_from(MS(1006)).is_some());
    }

    #[test]
    fn two_that_share_a_rate_have_it_together() {
        let one = Rate::new(MS(2), MS(10));
        let other = one.clone();
        assert_eq!(one.wait_from(MS(1)), None);
        one.charge(MS(1));
        other.charge(MS(1));
        assert!(one.wait_from(MS(3)).is_some() && other.wait_from(MS(3)).is_some());
    }

    #[test]
    fn a_period_without_end_has_one_budget() {
        let rate = Rate::new(MS(1), Duration::MAX);
        assert_eq!(rate.wait_from(MS(1)), None);
        rate.charge(MS(2));
        assert!(rate.wait_from(MS(3)).is_some_and(|wait| wait > Duration::from_secs(1 << 40)));
    }

    #[test]
    fn a_debt_is_paid_by_the_periods_that_follow() {
        let rate = Rate::new(MS(2), MS(10));
        assert_eq!(rate.wait_from(MS(0) + Duration::from_nanos(1)), None);
        rate.charge(MS(7));
        let wait = rate.wait_from(MS(1)).unwrap();
        // 7 ms are three budgets and a half: the fourth period after the first has something left.
        assert!(wait > MS(20) && wait <= MS(40), "{wait:?}");
        assert_eq!(rate.wait_from(MS(1) + wait), None);
    }
}
