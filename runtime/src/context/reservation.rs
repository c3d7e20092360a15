//! What a context is asked to grant.

use mainspring_abi::{CpuId, Nanos};
use mainspring_sched::Affinity;
use mainspring_sched::context::{ContextSpec, MAX_DEPTH, Overrun};
use std::sync::Arc;
use std::time::Duration;

/// So much CPU time, every so often: what [`Cx::create_context`](crate::Cx::create_context) asks for.
///
/// ```
/// use mainspring::Reservation;
/// use std::time::Duration;
/// let ms = Duration::from_millis;
/// let tenant = Reservation::new(ms(20), ms(100)).deadline(ms(50));
/// # let _ = tenant;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    budget: Duration,
    period: Duration,
    deadline: Option<Duration>,
    criticality: u8,
    priority: u16,
    depleted: Depleted,
    worker: Option<usize>,
    refills: u8,
    depth: u8,
}

/// What becomes of a task whose context is used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Depleted {
    /// It waits for the next refill.
    #[default]
    Throttle,
    /// It goes on as a task without a context until the next refill.
    BestEffort,
    /// It waits for the next refill, and the one that
    /// [`SchedulingContext::on_fault`](crate::SchedulingContext::on_fault) names is told.
    Fault,
}

impl Reservation {
    /// `budget` in every `period`, to be had by the end of the period.
    pub fn new(budget: Duration, period: Duration) -> Self {
        Self {
            budget,
            period,
            deadline: None,
            criticality: 0,
            priority: 0,
            depleted: Depleted::Throttle,
            worker: None,
            refills: 8,
            depth: MAX_DEPTH as u8,
        }
    }

    /// The budget is to be had so soon after its release: from the budget to the period.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// The band: every higher one goes first, whatever the deadlines. 0 unless set.
    #[must_use]
    pub fn criticality(mut self, criticality: u8) -> Self {
        self.criticality = criticality;
        self
    }

    /// Among equal deadlines of a band, the higher goes first. 0 unless set.
    #[must_use]
    pub fn priority(mut self, priority: u16) -> Self {
        self.priority = priority;
        self
    }

    /// What becomes of a task that has used the budget up.
    #[must_use]
    pub fn when_depleted(mut self, depleted: Depleted) -> Self {
        self.depleted = depleted;
        self
    }

    /// The worker where the time is set aside. Unless set: the creator's own if every deadline holds there, or else another.
    #[must_use]
    pub fn on_worker(mut self, worker: usize) -> Self {
        self.worker = Some(worker);
        self
    }

    /// How many refills it keeps: 2 to 16, 8 unless set. A task that uses its budget in more pieces gets the last ones together.
    #[must_use]
    pub fn refills(mut self, refills: u8) -> Self {
        self.refills = refills;
        self
    }

    /// How many calls it may be lent along: 1 to 8, 8 unless set.
    #[must_use]
    pub fn donation_depth(mut self, depth: u8) -> Self {
        self.depth = depth;
        self
    }

    pub(super) fn worker(&self) -> Option<usize> {
        self.worker
    }

    /// As the core takes it, for `worker` or any.
    pub(super) fn spec(&self, worker: Option<CpuId>) -> ContextSpec {
        let cpus = worker.map_or(Affinity::Any, |cpu| Affinity::Only(Arc::new([cpu].into_iter().collect())));
        let (budget, period) = (nanos(self.budget), nanos(self.period));
        ContextSpec {
            deadline: self.deadline.map_or(period, nanos),
            criticality: self.criticality,
            priority: self.priority,
            cpus,
            refills: self.refills,
            depth: self.depth,
            overrun: match self.depleted {
                Depleted::Throttle => Overrun::Throttle,
                Depleted::BestEffort => Overrun::Notify,
                Depleted::Fault => Overrun::Fault,
            },
            ..ContextSpec::new(budget, period)
        }
    }
}

/// A length beyond what the clock can tell is the longest that it can, which no reservation allows.
pub(super) fn nanos(length: Duration) -> Nanos {
    Nanos::new(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX))
}
