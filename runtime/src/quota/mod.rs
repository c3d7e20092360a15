//! Periodic quotas: so many ops, bytes, spawns, channel operations and system calls in every period, and so many at once.
//!
//! A budget is a total. A [`Quota`] is a rate: what is used comes back with time. It is made at a root, by the host, and is bound to a
//! task ([`SpawnBuilder::quota`](crate::SpawnBuilder::quota)), to the children of a nursery
//! ([`Nursery::bind_quota`](crate::Nursery::bind_quota)) or to a tenant ([`Config::tenant_rate`](crate::Config::tenant_rate)); the tasks
//! below share it. Both hold: a task pays from its budget, and waits for its quota.
//!
//! # What is conserved
//!
//! * In any window of one period, the tasks of a quota use no more of a component than its amount and its burst together.
//! * [`Quota::share`] carves a part out: while the part lives its amounts and bursts are missing in the whole. So below a root
//!   there is never more than the root has.
//! * A task that has a quota, and every task below it, keeps it or a part of it: there is no way to another.
//! * Ops are taken out in slices, before they are used. A task that waits for anything gives the rest of its slice back.
//! * What a task uses while it unwinds or cleans up is not waited for. It is charged all the same, and later uses wait for it.

mod bucket;
mod charge;

use crate::budget::{Component, Pool};
use crate::calls;
use crate::runtime::{Inner, Runtime};
use crate::time::timers::Clock;
use bucket::{Bucket, Ticket};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

pub(crate) use charge::{TaskQuota, pause, quota_of};

/// The longest period of a quota.
pub const MAX_PERIOD: Duration = Duration::from_secs(3600);

/// So much in every period: what a [`Quota`] is asked to grant. Components that are not named are not limited.
///
/// ```
/// use mainspring::{Component, Rate};
/// use std::time::Duration;
/// let tenant = Rate::per(Duration::from_secs(1))
///     .limit(Component::Syscalls, 1000)
///     .burst(Component::Syscalls, 50)
///     .limit(Component::Ops, 10_000_000);
/// # let _ = tenant;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    period: Duration,
    limits: [Option<Limit>; 5],
    when_empty: WhenEmpty,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit {
    amount: u64,
    burst: Option<u64>,
}

/// What becomes of a task that needs what its quota does not have now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenEmpty {
    /// It waits until there is enough: behind those that asked before.
    #[default]
    Throttle,
    /// The operation is refused with [`BudgetError::OverRate`](crate::BudgetError::OverRate). A task that has no ops fails with
    /// [`TaskError::BudgetExhausted`](crate::TaskError::BudgetExhausted).
    Fail,
}

impl Rate {
    /// Nothing is limited, in periods of this length.
    pub fn per(period: Duration) -> Self {
        Self { period, limits: [None; 5], when_empty: WhenEmpty::Throttle }
    }

    /// So much of a component in every period. All of it may come at once, unless [`Rate::burst`] says otherwise.
    #[must_use]
    pub fn limit(mut self, component: Component, amount: u64) -> Self {
        let burst = self.limits[component as usize].and_then(|limit| limit.burst);
        self.limits[component as usize] = Some(Limit { amount, burst });
        self
    }

    /// So much of a component at once, if it was not used before: at least 1. An operation that needs more is refused.
    #[must_use]
    pub fn burst(mut self, component: Component, burst: u64) -> Self {
        let amount = self.limits[component as usize].map_or(0, |limit| limit.amount);
        self.limits[component as usize] = Some(Limit { amount, burst: Some(burst) });
        self
    }

    /// What becomes of a task that needs what there is not now.
    #[must_use]
    pub fn when_empty(mut self, when_empty: WhenEmpty) -> Self {
        self.when_empty = when_empty;
        self
    }
}

/// A quota could not be had. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuotaError {
    /// A period of 0, or longer than [`MAX_PERIOD`].
    Period(Duration),
    /// A burst of 0: no operation would ever be allowed. Leave the component out to limit it to nothing by its budget.
    NoBurst(Component),
    /// More than the whole has left, or a component that the whole does not limit.
    Exceeds {
        /// Of what.
        component: Component,
        /// The amount per period that was asked for, or the burst.
        asked: u64,
        /// What is left of the same.
        left: u64,
    },
    /// The task that binds it has a quota, and this one is no part of that.
    NotBelow,
    /// The nursery has children already, which would not have it.
    HasChildren,
    /// The quota is of another runtime.
    OtherRuntime,
}

impl fmt::Display for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Period(period) => write!(f, "a period of {period:?}; choose 1ns to {MAX_PERIOD:?}"),
            Self::NoBurst(component) => write!(f, "a burst of 0 {component}; choose 1 or more"),
            Self::Exceeds { component, asked, left } => {
                write!(f, "{asked} {component}, and the quota has {left} left to share; ask for less")
            }
            Self::NotBelow => f.write_str("the task has another quota; share a part of that (Quota::share)"),
            Self::OtherRuntime => f.write_str("the quota is of another runtime; make one in this runtime"),
            Self::HasChildren => {
                f.write_str("the nursery has children; bind the quota before the first spawn")
            }
        }
    }
}

impl std::error::Error for QuotaError {}

/// A rate that tasks share. Clones are the same quota. See the [module](self).
///
/// ```
/// use mainspring::{Component, Config, Profile, Rate};
/// use std::time::Duration;
///
/// let runtime = Config::new(Profile::Service).build().unwrap();
/// let tenant = runtime.quota(Rate::per(Duration::from_millis(10)).limit(Component::Ops, 1000)).unwrap();
/// let took = runtime.run(|cx| {
///     let began = cx.now();
///     cx.nursery(|n| {
///         n.bind_quota(&tenant).unwrap();
///         // 1,000 at once, and then 1,000 in each 10 ms.
///         n.spawn(|cx| (0..3000).for_each(|_| cx.check())).unwrap().join(cx).unwrap();
///     })
///     .unwrap();
///     cx.now() - began
/// });
/// assert!(took.unwrap() >= Duration::from_millis(19));
/// ```
#[derive(Clone)]
pub struct Quota(Arc<Shared>);

struct Shared {
    period_ns: u64,
    when_empty: WhenEmpty,
    /// What it was carved out of.
    above: Option<Quota>,
    clock: Clock,
    state: Mutex<State>,
}

struct State {
    refilled_ns: u64,
    buckets: [Option<Bucket>; 5],
    throttled: u64,
}

impl State {
    fn refill(&mut self, now_ns: u64, period_ns: u64) {
        let elapsed = now_ns.saturating_sub(self.refilled_ns);
        self.refilled_ns = self.refilled_ns.max(now_ns);
        self.buckets.iter_mut().flatten().for_each(|bucket| bucket.refill(elapsed, period_ns));
    }
}

impl fmt::Debug for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quota").field("left", &self.left()).finish_non_exhaustive()
    }
}

impl Runtime {
    /// A quota by the authority of the host: full at its start.
    pub fn quota(&self, rate: Rate) -> Result<Quota, QuotaError> {
        calls::count_costly_action();
        Quota::at_root(rate, self.inner().timers.clock.clone())
    }
}

impl Quota {
    pub(crate) fn at_root(rate: Rate, clock: Clock) -> Result<Self, QuotaError> {
        let limits = checked(&rate)?;
        let buckets = limits.map(|limit| limit.map(|(amount, burst)| Bucket::full(amount, burst)));
        Ok(Self::new(&rate, None, clock, buckets))
    }

    fn new(rate: &Rate, above: Option<Self>, clock: Clock, buckets: [Option<Bucket>; 5]) -> Self {
        let refilled_ns = clock.now_ns();
        let state = Mutex::new(State { refilled_ns, buckets, throttled: 0 });
        let period_ns = rate.period.as_nanos() as u64;
        Self(Arc::new(Shared { period_ns, when_empty: rate.when_empty, above, clock, state }))
    }

    /// A quota of its own out of this one, which has so much less until the last task and the last handle of the new one are gone.
    /// It has the period of the whole, whatever `rate` says, and limits what the whole limits: a component that `rate` leaves
    /// out is limited to nothing.
    pub fn share(&self, rate: Rate) -> Result<Self, QuotaError> {
        calls::count_costly_action();
        let rate = Rate { period: Duration::from_nanos(self.0.period_ns), ..rate };
        let limits = checked(&rate)?;
        // What the task that shares holds of it can be shared too.
        if let Some(task) = calls::current_task().filter(|task| task.has_quota()) {
            pause(&task);
        }
        let mut state = self.state();
        for component in Component::ALL {
            let Some((amount, burst)) = limits[component as usize] else { continue };
            let whole = state.buckets[component as usize].as_ref();
            if let Some((asked, left)) = whole.map_or(Some((amount, 0)), |whole| whole.lacks(amount, burst)) {
                return Err(QuotaError::Exceeds { component, asked, left });
            }
        }
        let mut parts = [const { None }; 5];
        for (part, (limit, whole)) in parts.iter_mut().zip(limits.into_iter().zip(&mut state.buckets)) {
            let (amount, burst) = limit.unwrap_or((0, 0));
            *part = whole.as_mut().map(|whole| whole.carve(amount, burst));
        }
        drop(state);
        Ok(Self::new(&rate, Some(self.clone()), self.0.clock.clone(), parts))
    }

    /// What could be used now, of each component that is limited; the most that a pool holds of the others.
    pub fn left(&self) -> Pool {
        calls::count_poll();
        let state = self.state();
        let left = |component: Component| {
            let bucket = state.buckets[component as usize].as_ref();
            bucket.map_or(Pool::AMPLE.get(component), Bucket::level)
        };
        Component::ALL.into_iter().fold(Pool::ZERO, |mut all, component| {
            all.put(&Pool::only(component, left(component)));
            all
        })
    }

    /// How often a task had to wait for it.
    pub fn throttled(&self) -> u64 {
        calls::count_poll();
        self.state().throttled
    }

    /// Whether a task with the quota `own`, if it has one, may bind this to a task below it.
    pub(crate) fn may_be_bound(&self, rt: &Inner, own: Option<&Self>) -> Result<(), QuotaError> {
        if !self.0.clock.is_of(&rt.timers.clock) {
            return Err(QuotaError::OtherRuntime);
        }
        let below = own.is_none_or(|own| self.is_within(own));
        if below { Ok(()) } else { Err(QuotaError::NotBelow) }
    }

    /// Whether it is this one or a part of it.
    pub(crate) fn is_within(&self, whole: &Self) -> bool {
        std::iter::successors(Some(self), |quota| quota.0.above.as_ref())
            .any(|quota| Arc::ptr_eq(&quota.0, &whole.0))
    }

    /// Its state now.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.0.state.lock().expect("no panic while it is held");
        state.refill(self.0.clock.now_ns(), self.0.period_ns);
        state
    }
}

impl Shared {
    /// Nothing of it is held any more: the whole, if it was carved out of one, has it back.
    fn give_back(&mut self) -> Option<Quota> {
        let above = self.above.take()?;
        let mine = self.state.get_mut().expect("no panic while it is held");
        mine.refill(self.clock.now_ns(), self.period_ns);
        let mut whole = above.state();
        for (whole, part) in whole.buckets.iter_mut().zip(&mine.buckets) {
            if let (Some(whole), Some(part)) = (whole, part) {
                whole.absorb(part);
            }
        }
        // Under the lock: a task in line leaves it under the same. This may be any thread, and the task's runtime may go when that task
        // has ended.
        whole.buckets.iter().flatten().filter_map(Bucket::first).for_each(crate::waiter::wake);
        drop(whole);
        Some(above)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let mut above = self.give_back();
        // One after the other: a long chain of parts would need a deep stack.
        while let Some(mut last) = above.and_then(|quota| Arc::into_inner(quota.0)) {
            above = last.give_back();
        }
    }
}

/// Amount and burst of each component that is limited.
fn checked(rate: &Rate) -> Result<[Option<(u64, u64)>; 5], QuotaError> {
    if rate.period.is_zero() || rate.period > MAX_PERIOD {
        return Err(QuotaError::Period(rate.period));
    }
    let mut limits = [None; 5];
    for component in Component::ALL {
        limits[component as usize] = match rate.limits[component as usize] {
            None => None,
            Some(Limit { amount, burst }) => match burst.unwrap_or(amount) {
                0 => return Err(QuotaError::NoBurst(component)),
                burst => Some((amount, burst)),
            },
        };
    }
    Ok(limits)
}
