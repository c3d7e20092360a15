//! What a context grants, and which grants make sense.

use super::donors::MAX_DEPTH;
use super::refill::{MAX_REFILLS, MIN_REFILLS};
use crate::entity::Affinity;
use core::fmt;
use mainspring_abi::Nanos;

/// The longest period: beyond it, a budget is no useful promise.
pub const MAX_PERIOD: Nanos = Nanos::from_secs(3600);

/// What happens to a thread whose context is used up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Overrun {
    /// It waits for the next refill.
    #[default]
    Throttle,
    /// It stops until its fault handler lets it go on.
    Fault,
    /// It goes on as best effort until the next refill.
    Notify,
    /// The island that it belongs to is shut down.
    Shutdown,
}

impl Overrun {
    /// Every policy, in the order of their codes.
    pub const ALL: [Self; 4] = [Self::Throttle, Self::Fault, Self::Notify, Self::Shutdown];
}

/// What a context grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextSpec {
    /// CPU time per period.
    pub budget: Nanos,
    /// How long what was used stays away.
    pub period: Nanos,
    /// How soon after its release the budget is to be had.
    pub deadline: Nanos,
    /// Goes first among equal deadlines of a band if higher.
    pub priority: u16,
    /// The band: every higher one goes first.
    pub criticality: u8,
    /// Where it may be spent.
    pub cpus: Affinity,
    /// How many refills are kept.
    pub refills: u8,
    /// What happens when it is used up.
    pub overrun: Overrun,
    /// The endpoint that is told of faults.
    pub timeout_endpoint: Option<u32>,
    /// How deep it may be donated.
    pub depth: u8,
}

impl ContextSpec {
    /// `budget` every `period`, on every CPU, with everything else as usual.
    #[must_use]
    pub fn new(budget: Nanos, period: Nanos) -> Self {
        Self {
            budget,
            period,
            deadline: period,
            priority: 0,
            criticality: 0,
            cpus: Affinity::Any,
            refills: 8,
            overrun: Overrun::Throttle,
            timeout_endpoint: None,
            depth: MAX_DEPTH as u8,
        }
    }

    /// Whether the grant makes sense.
    pub fn check(&self) -> Result<(), SpecError> {
        let Self { budget, period, deadline, .. } = *self;
        if budget.is_zero() {
            return Err(SpecError::ZeroBudget);
        }
        if period.is_zero() || period > MAX_PERIOD {
            return Err(SpecError::BadPeriod(period));
        }
        if budget > period {
            return Err(SpecError::OversizedBudget { budget, period });
        }
        if deadline < budget || deadline > period {
            return Err(SpecError::BadDeadline { budget, deadline, period });
        }
        if matches!(&self.cpus, Affinity::Only(cpus) if cpus.is_empty()) {
            return Err(SpecError::NoCpu);
        }
        if !(MIN_REFILLS..=MAX_REFILLS).contains(&usize::from(self.refills)) {
            return Err(SpecError::BadRefills(self.refills));
        }
        if !(1..=MAX_DEPTH).contains(&usize::from(self.depth)) {
            return Err(SpecError::BadDepth(self.depth));
        }
        Ok(())
    }
}

/// A grant that makes no sense; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpecError {
    /// A budget of nothing grants nothing.
    ZeroBudget,
    /// More than the whole CPU.
    OversizedBudget {
        /// What was asked for.
        budget: Nanos,
        /// Every so often.
        period: Nanos,
    },
    /// No period, or one beyond [`MAX_PERIOD`].
    BadPeriod(Nanos),
    /// The deadline is not between budget and period.
    BadDeadline {
        /// The least it can be.
        budget: Nanos,
        /// What was asked for.
        deadline: Nanos,
        /// The most it can be.
        period: Nanos,
    },
    /// The mask names no CPU.
    NoCpu,
    /// Too few or too many refills.
    BadRefills(u8),
    /// Too shallow or too deep.
    BadDepth(u8),
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroBudget => f.write_str("a budget of zero grants nothing; state at least 1ns"),
            Self::OversizedBudget { budget, period } => {
                write!(f, "a budget of {budget} in {period} is more than a CPU has; lower it")
            }
            Self::BadPeriod(period) => {
                write!(f, "a period of {period} is out of range; choose 1ns to {MAX_PERIOD}")
            }
            Self::BadDeadline { budget, deadline, period } => {
                write!(
                    f,
                    "a deadline of {deadline} is out of range; choose {budget} (the budget) to {period} (the period)"
                )
            }
            Self::NoCpu => f.write_str("the CPU mask is empty; name a CPU"),
            Self::BadRefills(n) => {
                write!(f, "{n} refills are out of range; choose {MIN_REFILLS} to {MAX_REFILLS}")
            }
            Self::BadDepth(n) => {
                write!(f, "a donation depth of {n} is out of range; choose 1 to {MAX_DEPTH}")
            }
        }
    }
}

impl core::error::Error for SpecError {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::sync::Arc;
    use mainspring_abi::CpuSet;

    //= TICK:L5.fields
    #[test]
    fn grants_that_make_no_sense_are_refused_by_name() {
        let ms = Nanos::from_millis;
        let good = || ContextSpec::new(ms(2), ms(10));
        assert_eq!(good().check(), Ok(()));
        assert_eq!(ContextSpec { budget: Nanos::ZERO, ..good() }.check(), Err(SpecError::ZeroBudget));
        let oversized = SpecError::OversizedBudget { budget: ms(11), period: ms(10) };
        assert_eq!(ContextSpec { budget: ms(11), ..good() }.check(), Err(oversized));
        assert_eq!(
            ContextSpec { period: Nanos::ZERO, ..good() }.check(),
            Err(SpecError::BadPeriod(Nanos::ZERO))
        );
        for deadline in [ms(1), ms(11)] {
            let error = SpecError::BadDeadline { budget: ms(2), deadline, period: ms(10) };
            assert_eq!(ContextSpec { deadline, ..good() }.check(), Err(error));
        }
        let nowhere = Affinity::Only(Arc::new(CpuSet::EMPTY));
        assert_eq!(ContextSpec { cpus: nowhere, ..good() }.check(), Err(SpecError::NoCpu));
        assert_eq!(ContextSpec { refills: 1, ..good() }.check(), Err(SpecError::BadRefills(1)));
        assert_eq!(ContextSpec { depth: 9, ..good() }.check(), Err(SpecError::BadDepth(9)));
    }
}
