//! A scheduling context: a grant of CPU time, as a value that moves.
//!
//! Conserved:
//! * it is neither `Clone` nor `Copy`, so it has one holder;
//! * what was used is never given back: `used` grows by exactly the intervals that its holders ran on it, and the refills
//!   go down by the same;
//! * an interval that ran past the budget is charged in full: the overshoot is paid by waiting longer.

use super::donors::{Donors, LoanError};
use super::notice::{Notice, NoticeKind, Notices};
use super::refill::Refills;
use super::spec::{ContextSpec, SpecError};
use crate::small_sorted::Rank;
use mainspring_abi::{ContextRef, Nanos, ThreadRef};

/// A grant of CPU time, owned by the holder of the value.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "dropping a context revokes it"]
pub struct Context {
    pub(crate) who: ContextRef,
    pub(crate) spec: ContextSpec,
    pub(crate) refills: Refills,
    pub(crate) donors: Donors,
    pub(crate) usage: Usage,
    pub(crate) notices: Notices,
    /// Whether its holder is ready or running, so that time counts.
    pub(crate) active: bool,
    /// When it last stopped being so, and the release that its holder was at.
    pub(crate) paused: (Nanos, Nanos),
}

/// What a context's holders have done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Usage {
    /// CPU time used.
    pub used: Nanos,
    /// The part of it that was used on loan.
    pub donated: Nanos,
    /// How often it was used up.
    pub depletions: u64,
    /// How many releases were not done with by their deadline.
    pub misses: u64,
    /// The furthest that holders ran past the budget before it was usable again.
    pub overshoot_max: Nanos,
    /// How far holders have run past the budget since it was last used up.
    pub(crate) overrun: Nanos,
    /// The last release that was counted as missed.
    pub(crate) missed_release: Option<Nanos>,
}

/// What decides the order among contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Urgency {
    /// Its band.
    pub criticality: u8,
    /// Higher goes first among equal deadlines.
    pub priority: u16,
    /// When its budget is due.
    pub deadline: Nanos,
    /// When its budget was released.
    pub release: Nanos,
    /// The last resort.
    pub thread_index: u32,
}

impl Rank for Urgency {
    const NONE: Self =
        Self { criticality: 0, priority: 0, deadline: Nanos::MAX, release: Nanos::MAX, thread_index: 0 };

    /// The higher band; then the earlier deadline, the higher priority, the earlier release, the lower thread.
    #[inline]
    fn is_before(&self, other: &Self) -> bool {
        if self.criticality != other.criticality {
            return self.criticality > other.criticality;
        }
        if self.deadline != other.deadline {
            return self.deadline < other.deadline;
        }
        let last = |one: &Self| (core::cmp::Reverse(one.priority), one.release, one.thread_index);
        last(self) < last(other)
    }
}

/// What bounds a call that is made on a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallBound {
    /// Nothing.
    None,
    /// The caller's own timeout.
    Timeout(Nanos),
    /// The deadline of the request.
    Request(Nanos),
    /// The deadline of the context.
    Context(Nanos),
}

impl CallBound {
    /// The earliest of what may bound a call.
    #[must_use]
    pub fn earliest(timeout: Option<Nanos>, request: Option<Nanos>, context: Option<Nanos>) -> Self {
        let bounds = [
            timeout.map(|at| (at, Self::Timeout(at))),
            request.map(|at| (at, Self::Request(at))),
            context.map(|at| (at, Self::Context(at))),
        ];
        bounds.into_iter().flatten().min_by_key(|(at, _)| *at).map_or(Self::None, |(_, bound)| bound)
    }

    /// When.
    #[must_use]
    pub fn at(self) -> Option<Nanos> {
        match self {
            Self::None => None,
            Self::Timeout(at) | Self::Request(at) | Self::Context(at) => Some(at),
        }
    }
}

/// What an interval did to a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Charged {
    pub depleted: bool,
    pub missed: bool,
    pub waiter: Option<ThreadRef>,
}

impl Context {
    /// A context whose whole budget may be used from `now` on. The caller has checked that this context may be made.
    pub fn new(who: ContextRef, spec: ContextSpec, now: Nanos) -> Self {
        Self {
            refills: Refills::new(spec.budget, spec.period, usize::from(spec.refills), now),
            donors: Donors::new(spec.depth),
            usage: Usage::default(),
            notices: Notices::new(),
            active: false,
            paused: (Nanos::MAX, Nanos::ZERO),
            who,
            spec,
        }
    }

    /// The name of the context, with its generation.
    #[must_use]
    pub fn who(&self) -> ContextRef {
        self.who
    }

    /// What it grants.
    #[must_use]
    pub fn spec(&self) -> &ContextSpec {
        &self.spec
    }

    /// When how much may be used.
    #[must_use]
    pub fn refills(&self) -> &Refills {
        &self.refills
    }

    /// The threads that wait for it to come back.
    #[must_use]
    pub fn donors(&self) -> &Donors {
        &self.donors
    }

    /// What has been used.
    #[must_use]
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// What it has to tell.
    #[must_use]
    pub fn notices(&self) -> &Notices {
        &self.notices
    }

    /// When what is used now is due.
    #[must_use]
    #[inline]
    pub fn deadline(&self) -> Nanos {
        self.refills.head().at + self.spec.deadline
    }

    /// Whether there is something to use at `now`.
    #[must_use]
    #[inline]
    pub fn is_usable(&self, now: Nanos) -> bool {
        self.refills.head().at <= now
    }

    pub(crate) fn urgency(&self, thread_index: u32) -> Urgency {
        Urgency {
            criticality: self.spec.criticality,
            priority: self.spec.priority,
            deadline: self.deadline(),
            release: self.refills.head().at,
            thread_index,
        }
    }

    /// Its holder is ready. A holder that goes on at the instant of the pause, as a server does with a context that it
    /// was handed, goes on with the same release.
    #[inline]
    pub(crate) fn resume(&mut self, now: Nanos) {
        if self.active {
            return;
        }
        self.active = true;
        let (at, release) = self.paused;
        if at == now { self.refills.go_on(release) } else { self.refills.resume(now) }
    }

    /// Its holder waits for something else than CPU time.
    #[inline]
    pub(crate) fn pause(&mut self, now: Nanos) {
        if self.active {
            self.active = false;
            self.paused = (now, self.refills.head().at);
            self.refills.pause(now);
        }
    }

    /// `holder` ran on it for `ran`, until `now`.
    #[inline(always)]
    pub(crate) fn charge(&mut self, now: Nanos, ran: Nanos, holder: ThreadRef) -> Charged {
        let head = self.refills.head();
        self.usage.used += ran;
        if self.donors.depth() != 0 {
            self.usage.donated += ran;
        }
        let due = head.at + self.spec.deadline;
        let missed = now > due && !ran.is_zero() && self.usage.missed_release != Some(head.at);
        let started = now - ran;
        let overran = ran > head.amount || head.at > started;
        if overran {
            self.note_overrun(started, ran);
        }
        self.refills.charge(ran);
        let depleted = self.refills.head().at > now && !ran.is_zero();
        let mut waiter = None;
        if missed {
            self.usage.missed_release = Some(head.at);
            self.usage.misses += 1;
            waiter = self.record_notice(NoticeKind::DeadlineOrTimeout, due, holder);
        }
        if depleted {
            if !overran {
                self.usage.overrun = Nanos::ZERO;
            }
            self.usage.depletions += 1;
            let next = self.refills.head().at;
            waiter = self.record_notice(NoticeKind::BudgetDepleted, next, holder).or(waiter);
        }
        Charged { depleted, missed, waiter }
    }

    /// Its holder ran on it for `ran`, in time and with something of the first refill left.
    #[inline(always)]
    pub(crate) fn charge_part(&mut self, ran: Nanos) {
        self.usage.used += ran;
        if self.donors.depth() != 0 {
            self.usage.donated += ran;
        }
        self.refills.charge_part(ran);
    }

    /// Its holder pauses at `now`, and another goes on with it at once.
    #[inline(always)]
    pub(crate) fn change_hands(&mut self, now: Nanos) {
        if self.refills.stay_over_pause(now) {
            self.paused = (now, self.refills.head().at);
        } else {
            self.pause_for_no_time(now);
        }
    }

    #[inline(never)]
    fn pause_for_no_time(&mut self, now: Nanos) {
        self.pause(now);
        self.resume(now);
    }

    /// An interval that begins when nothing is usable continues the overrun before it: a holder that is charged several
    /// times before it stops has run past the budget by all of them.
    #[cold]
    fn note_overrun(&mut self, started: Nanos, ran: Nanos) {
        let usable = self.refills.usable(started);
        self.usage.overrun = if usable.is_zero() { self.usage.overrun + ran } else { ran - usable };
        self.usage.overshoot_max = self.usage.overshoot_max.max(self.usage.overrun);
    }

    fn record_notice(&mut self, kind: NoticeKind, next: Nanos, holder: ThreadRef) -> Option<ThreadRef> {
        let remaining =
            if kind == NoticeKind::BudgetDepleted { Nanos::ZERO } else { self.refills.head().amount };
        let donated = self.donors.depth() != 0;
        let event = Notice { context: self.who, sequence: 0, coalesced: 0, holder, remaining, next, donated };
        self.notices.record(kind, event)
    }

    /// A call that was made on it took too long.
    pub fn note_timeout(&mut self, holder: ThreadRef, at: Nanos) -> Option<ThreadRef> {
        self.record_notice(NoticeKind::DeadlineOrTimeout, at, holder)
    }

    /// Whether `from`, which holds it, may hand it to `to`.
    #[inline]
    pub fn may_lend(&self, from: ThreadRef, to: ThreadRef) -> Result<(), LoanError> {
        self.donors.may_lend(from, to)
    }

    /// The call that it was lent for is over: the thread that it goes back to, if it was lent.
    #[inline]
    pub fn return_to(&mut self) -> Option<ThreadRef> {
        self.donors.pop()
    }

    /// What it has to tell, to be drained or waited for.
    pub fn notices_mut(&mut self) -> &mut Notices {
        &mut self.notices
    }

    /// No thread holds it: time does not count.
    pub fn suspend(&mut self) {
        self.active = false;
    }

    /// `donor` is no longer to get it back, nor the donors after it; whether it was.
    pub fn cut(&mut self, donor: ThreadRef) -> bool {
        self.donors.cut(donor)
    }

    /// Grants another budget, period and deadline from `now` on.
    pub fn adjust(
        &mut self,
        budget: Nanos,
        period: Nanos,
        deadline: Nanos,
        now: Nanos,
    ) -> Result<(), SpecError> {
        let spec = ContextSpec { budget, period, deadline, ..self.spec.clone() };
        spec.check()?;
        let release = self.refills.head().at;
        self.refills.adjust(budget, period, now);
        self.changed_release(release);
        self.spec = spec;
        Ok(())
    }

    /// No part of it can be used before `from`.
    pub fn postpone(&mut self, from: Nanos) {
        let release = self.refills.head().at;
        self.refills.postpone(from);
        self.changed_release(release);
    }

    /// A holder that goes on at the instant of its pause has the release that it was at only if that is still the first.
    fn changed_release(&mut self, before: Nanos) {
        if self.refills.head().at != before {
            self.paused = (Nanos::MAX, Nanos::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(n: u64) -> Nanos {
        Nanos::new(n)
    }

    fn holder() -> ThreadRef {
        ThreadRef::new(4, 2)
    }

    fn a_context() -> Context {
        let mut context = Context::new(ContextRef::new(1, 0), ContextSpec::new(ns(10), ns(100)), ns(0));
        context.resume(ns(0));
        context
    }

    #[test]
    fn overshoot_is_measured_and_paid() {
        let mut context = a_context();
        let charged = context.charge(ns(13), ns(13), holder());
        assert!(charged.depleted && !charged.missed);
        assert_eq!(context.usage().overshoot_max, ns(3));
        assert_eq!(context.usage().used, ns(13));
        assert_eq!(context.refills().head().at, ns(100));
        assert_eq!(context.refills().head().amount, ns(7), "three of the next ten are spent");
    }

    #[test]
    fn an_overrun_that_is_charged_in_pieces_is_one_overshoot() {
        let mut context = a_context();
        let _ = context.charge(ns(11), ns(11), holder());
        let _ = context.charge(ns(13), ns(2), holder());
        let _ = context.charge(ns(17), ns(4), holder());
        assert_eq!(context.usage().overshoot_max, ns(7));
        assert!(context.charge(ns(103), ns(3), holder()).depleted, "seven of the next ten are spent");
        let _ = context.charge(ns(108), ns(5), holder());
        assert_eq!(context.usage().overshoot_max, ns(7), "the second overrun is 5");
    }

    //= ARCH:notify.coalesce
    #[test]
    fn depletion_is_recorded_when_nothing_is_left() {
        let mut context = a_context();
        assert!(!context.charge(ns(9), ns(9), holder()).depleted);
        assert_eq!(context.notices().peek(NoticeKind::BudgetDepleted), None);
        assert!(context.charge(ns(10), ns(1), holder()).depleted);
        let notice = context.notices().peek(NoticeKind::BudgetDepleted).expect("it is used up");
        assert_eq!((notice.holder, notice.remaining, notice.next), (holder(), ns(0), ns(100)));
    }

    #[test]
    fn a_release_is_missed_once() {
        let mut context = a_context();
        assert!(context.charge(ns(120), ns(2), holder()).missed);
        assert!(!context.charge(ns(125), ns(5), holder()).missed);
        assert_eq!(context.usage().misses, 1);
    }

    //= TICK:L6.timeout
    #[test]
    fn the_earliest_bound_counts() {
        let bound = CallBound::earliest(Some(ns(5)), Some(ns(4)), Some(ns(9)));
        assert_eq!(bound, CallBound::Request(ns(4)));
        assert_eq!(CallBound::earliest(None, None, Some(ns(9))), CallBound::Context(ns(9)));
        assert_eq!(CallBound::earliest(None, None, None).at(), None);
    }

    #[test]
    fn bands_come_before_deadlines_and_ties_go_by_priority_then_release() {
        let base = Urgency { criticality: 0, priority: 0, deadline: ns(10), release: ns(5), thread_index: 3 };
        assert!(Urgency { criticality: 1, deadline: ns(99), ..base }.is_before(&base));
        assert!(Urgency { deadline: ns(9), ..base }.is_before(&base));
        assert!(Urgency { priority: 1, release: ns(9), ..base }.is_before(&base));
        // Zircon: equal finish goes to the earlier start.
        assert!(Urgency { release: ns(0), ..base }.is_before(&base));
        assert!(!base.is_before(&base));
    }
}
