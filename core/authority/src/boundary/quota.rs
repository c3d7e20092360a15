//! Quotas of CPU time for threads without a context.
//!
//! Coarse on purpose: time is cut into windows, and a quota is so much run time per window. A thread that needs a closer bound has
//! a context.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_gives_something_in_a_window_that_is_not_empty() {
        assert!(Quota::new(Nanos::new(1), Nanos::new(1)).is_ok());
        assert!(Quota::new(Nanos::ZERO, Nanos::new(1)).is_err());
        assert!(Quota::new(Nanos::new(1), Nanos::ZERO).is_err());
    }
}
