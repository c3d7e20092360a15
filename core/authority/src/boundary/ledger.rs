//! The ledger of what threads without a context use.
//!
//! Coarse on purpose: time is cut into windows, and a quota is so much run time per window. Time that is used beyond the
//! quota, because no check came in between, is a debt that later windows pay first. Conserved: the total is the sum of all
//! that was charged, and no time is counted in two windows.
//!
//! Two windows side by side let twice the quota run in one piece. A thread that needs a closer
//! bound has a context.

use core::fmt;
use mainspring_abi::Nanos;

/// At most so much run time in each window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    runtime: Nanos,
    window: Nanos,
}

/// A quota of nothing, or of more than its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaSpecError {
    /// The run time that was asked for.
    pub runtime: Nanos,
    /// The window.
    pub window: Nanos,
}

impl fmt::Display for QuotaSpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a quota of {} per {} must give something in a window that is not empty",
            self.runtime, self.window
        )
    }
}

impl core::error::Error for QuotaSpecError {}

impl Quota {
    /// `runtime` in each `window`. Several CPUs may use more than a window's time in it.
    pub const fn new(runtime: Nanos, window: Nanos) -> Result<Self, QuotaSpecError> {
        if runtime.is_zero() || window.is_zero() {
            Err(QuotaSpecError { runtime, window })
        } else {
            Ok(Self { runtime, window })
        }
    }

    /// The run time per window.
    #[must_use]
    pub const fn runtime(self) -> Nanos {
        self.runtime
    }

    /// The window.
    #[must_use]
    pub const fn window(self) -> Nanos {
        self.window
    }
}

/// Whether a ledger's threads may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// There is no quota.
    Unlimited,
    /// They may run for so long in this window, all together.
    Left(Nanos),
    /// They may not run before this time.
    Throttled {
        /// When the first window begins that has something left.
        until: Nanos,
    },
}

/// How much CPU time one process, session or account uses without a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ResourceLedger {
    quota: Option<Quota>,
    total: Nanos,
    /// The number of the window that `used` speaks of.
    window: u64,
    /// Used in that window, with the debt of those before it.
    used: Nanos,
}

impl ResourceLedger {
    /// A ledger with or without a quota.
    #[must_use]
    pub const fn new(quota: Option<Quota>) -> Self {
        Self { quota, total: Nanos::ZERO, window: 0, used: Nanos::ZERO }
    }

    /// All that was ever charged.
    #[must_use]
    pub const fn total(&self) -> Nanos {
        self.total
    }

    /// The quota.
    #[must_use]
    pub const fn quota(&self) -> Option<Quota> {
        self.quota
    }

    /// Changes the quota. Windows begin anew; a debt stays.
    pub fn set_quota(&mut self, now: Nanos, quota: Option<Quota>) {
        self.roll(now);
        self.quota = quota;
        self.window = quota.map_or(0, |quota| now.get() / quota.window.get());
    }

    /// A thread of this ledger, which has no context, ran for `ran` until `now`. All of it counts in the window of `now`.
    /// Time that a context paid for is never charged here.
    pub fn charge(&mut self, now: Nanos, ran: Nanos) -> Standing {
        self.roll(now);
        self.total += ran;
        if self.quota.is_some() {
            self.used += ran;
        }
        self.standing(now)
    }

    /// Whether its threads may run at `now`.
    #[must_use]
    pub fn standing(&self, now: Nanos) -> Standing {
        let Some(quota) = self.quota else { return Standing::Unlimited };
        let mut rolled = *self;
        rolled.roll(now);
        let left = quota.runtime - rolled.used;
        if !left.is_zero() {
            return Standing::Left(left);
        }
        // Each window pays one quota of the debt; the first after that has something left.
        let windows = rolled.used.get() / quota.runtime.get();
        let first = rolled.window.saturating_add(windows);
        Standing::Throttled { until: Nanos::new(first.saturating_mul(quota.window.get())) }
    }

    /// Pays the debt of the windows that have passed. A clock that goes back changes nothing.
    fn roll(&mut self, now: Nanos) {
        let Some(quota) = self.quota else { return };
        let current = now.get() / quota.window.get();
        let passed = current.saturating_sub(self.window);
        self.used = self.used - Nanos::new(passed.saturating_mul(quota.runtime.get()));
        self.window = self.window.max(current);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    fn ledger(runtime: u64, window: u64) -> ResourceLedger {
        ResourceLedger::new(Some(Quota::new(MS(runtime), MS(window)).expect("it makes sense")))
    }

    #[test]
    fn a_ledger_throttles_at_its_quota_until_a_window_has_something_left() {
        let mut ledger = ledger(20, 100);
        assert_eq!(ledger.charge(MS(10), MS(10)), Standing::Left(MS(10)));
        assert_eq!(ledger.charge(MS(30), MS(10)), Standing::Throttled { until: MS(100) });
        assert_eq!(ledger.standing(MS(99)), Standing::Throttled { until: MS(100) });
        assert_eq!(ledger.standing(MS(100)), Standing::Left(MS(20)));
        assert_eq!(ledger.charge(MS(150), MS(50)), Standing::Throttled { until: MS(300) }, "30 ms of debt");
        assert_eq!(ledger.standing(MS(300)), Standing::Left(MS(10)));
        assert_eq!(ledger.total(), MS(70));
    }

    #[test]
    fn without_a_quota_a_ledger_only_counts() {
        let mut ledger = ResourceLedger::new(None);
        assert_eq!(ledger.charge(MS(5), MS(5)), Standing::Unlimited);
        assert_eq!(ledger.total(), MS(5));
        ledger.set_quota(MS(150), Some(Quota::new(MS(1), MS(100)).expect("it makes sense")));
        assert_eq!(ledger.standing(MS(150)), Standing::Left(MS(1)), "what was free stays free");
        assert!(Quota::new(Nanos::ZERO, MS(1)).is_err() && Quota::new(MS(1), Nanos::ZERO).is_err());
    }

    proptest! {
        #[test]
        fn threads_that_keep_to_the_ledger_never_get_more_than_its_windows(
            runtime in 1u64..50,
            wishes in prop::collection::vec((0u64..80, 1u64..80), 1..100),
        ) {
            let mut ledger = ledger(runtime, 100);
            let mut now = Nanos::ZERO;
            let mut sum = Nanos::ZERO;
            for (pause, wish) in wishes {
                now += MS(pause);
                let run = match ledger.standing(now) {
                    Standing::Unlimited => unreachable!("it has a quota"),
                    Standing::Left(left) => left.min(MS(wish)),
                    Standing::Throttled { until } => {
                        prop_assert!(until > now);
                        now = until;
                        prop_assert!(matches!(ledger.standing(now), Standing::Left(_)));
                        continue;
                    }
                };
                now += run;
                let _ = ledger.charge(now, run);
                sum += run;
                prop_assert_eq!(ledger.total(), sum);
                let windows = now.get() / MS(100).get() + 1;
                prop_assert!(sum <= Nanos::new(windows * MS(runtime).get()), "{} in {} windows", sum, windows);
            }
        }
    }
}
