//! What a supervisor does when a child ends: a function of what it knows, without tasks or clocks.
//!
//! Conserved: at most `most` restarts are decided within any time of length `within`. A child that has done its work is not
//! restarted, whatever becomes of others.

use std::collections::VecDeque;
use std::ops::Range;

/// Which children are restarted when one fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// The one that failed.
    #[default]
    OneForOne,
    /// All of them: they depend on each other.
    OneForAll,
    /// The one that failed, and those that were added after it: they depend on it.
    RestForOne,
}

/// Whether a child that has ended is started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Restart {
    /// Always: it is a service.
    #[default]
    Permanent,
    /// If it failed: otherwise it has done its work.
    Transient,
    /// Never.
    Temporary,
}

/// How a child ended, if not by the supervisor's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with its work done.
    Returned,
    /// By an error, a panic, the end of its budget, or with the machine that it was on.
    Failed,
}

/// What is to be done.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing.
    Leave,
    /// Stop those of these that run, last first, and start those that [`Plan::is_wanted`] says, first first.
    Restart(Range<usize>),
    /// Stop all: there were too many restarts.
    GiveUp,
}

/// What a supervisor knows of its children and their last restarts.
#[derive(Clone, Debug)]
pub struct Plan {
    strategy: Strategy,
    most: u32,
    within_ns: u64,
    children: Vec<Known>,
    /// When the last restarts were, oldest first: as many as are allowed.
    restarts: VecDeque<u64>,
}

#[derive(Clone, Debug)]
struct Known {
    restart: Restart,
    /// It will not be started any more.
    is_done: bool,
}

impl Plan {
    /// Of children that have not been started yet.
    pub fn new(
        strategy: Strategy,
        most: u32,
        within_ns: u64,
        children: impl IntoIterator<Item = Restart>,
    ) -> Self {
        let children = children.into_iter().map(|restart| Known { restart, is_done: false }).collect();
        Self { strategy, most, within_ns, children, restarts: VecDeque::new() }
    }

    /// Goes on from what another process knew: which children are done, and when the last restarts were, oldest first.
    #[must_use]
    pub fn resume(
        mut self,
        done: impl IntoIterator<Item = bool>,
        restarts: impl IntoIterator<Item = u64>,
    ) -> Self {
        self.children.iter_mut().zip(done).for_each(|(child, is_done)| child.is_done = is_done);
        self.restarts = restarts.into_iter().collect();
        self
    }

    /// When the last restarts were, oldest first: those that count for the intensity.
    pub fn recent_restarts(&self) -> impl Iterator<Item = u64> + '_ {
        self.restarts.iter().copied()
    }

    /// Whether the child is to run.
    pub fn is_wanted(&self, child: usize) -> bool {
        !self.children[child].is_done
    }

    /// Whether any child is to run.
    pub fn wants_any(&self) -> bool {
        self.children.iter().any(|child| !child.is_done)
    }

    /// A child was stopped by the supervisor's order.
    pub fn stopped(&mut self, child: usize) {
        let known = &mut self.children[child];
        known.is_done |= known.restart == Restart::Temporary;
    }

    /// A child has ended by itself.
    pub fn ended(&mut self, child: usize, exit: Exit, now_ns: u64) -> Decision {
        let restarts = match self.children[child].restart {
            Restart::Permanent => true,
            Restart::Transient => exit == Exit::Failed,
            Restart::Temporary => false,
        };
        if !restarts {
            self.children[child].is_done = true;
            return Decision::Leave;
        }
        while self.restarts.front().is_some_and(|&then| now_ns.saturating_sub(then) >= self.within_ns) {
            self.restarts.pop_front();
        }
        if self.restarts.len() >= self.most as usize {
            return Decision::GiveUp;
        }
        self.restarts.push_back(now_ns);
        Decision::Restart(match self.strategy {
            Strategy::OneForOne => child..child + 1,
            Strategy::OneForAll => 0..self.children.len(),
            Strategy::RestForOne => child..self.children.len(),
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Decision, Exit, Plan, Restart, Strategy};
    use proptest::prelude::{Just, any, prop, prop_assert_eq, prop_oneof, proptest};

    fn restart() -> impl proptest::strategy::Strategy<Value = Restart> {
        prop_oneof![Just(Restart::Permanent), Just(Restart::Transient), Just(Restart::Temporary)]
    }

    proptest! {
        /// Against a list of all restarts ever, which is counted anew each time.
        #[test]
        fn no_time_of_the_given_length_has_more_restarts_than_allowed(
            most in 0..4u32,
            within in 1..50u64,
            children in prop::collection::vec(restart(), 1..5),
            strategy in prop_oneof![
                Just(Strategy::OneForOne), Just(Strategy::OneForAll), Just(Strategy::RestForOne)
            ],
            ends in prop::collection::vec((0..5usize, any::<bool>(), 0..30u64), 0..60),
        ) {
            let mut plan = Plan::new(strategy, most, within, children.iter().copied());
            let (mut now, mut all, mut done) = (0, Vec::new(), vec![false; children.len()]);
            for (child, fails, later) in ends {
                let child = child % children.len();
                if done[child] {
                    continue;
                }
                now += later;
                let exit = if fails { Exit::Failed } else { Exit::Returned };
                let wanted =
                    matches!((children[child], fails), (Restart::Permanent, _) | (Restart::Transient, true));
                let recent = all.iter().filter(|&&then: &&u64| now - then < within).count();
                let expected = match (wanted, recent < most as usize, strategy) {
                    (false, _, _) => Decision::Leave,
                    (true, false, _) => Decision::GiveUp,
                    (true, true, Strategy::OneForOne) => Decision::Restart(child..child + 1),
                    (true, true, Strategy::OneForAll) => Decision::Restart(0..children.len()),
                    (true, true, Strategy::RestForOne) => Decision::Restart(child..children.len()),
                };
                prop_assert_eq!(plan.ended(child, exit, now), expected.clone());
                done[child] = !wanted;
                if let Decision::Restart(range) = expected {
                    all.push(now);
                    for other in range.filter(|&other| other != child && children[other] == Restart::Temporary) {
                        plan.stopped(other);
                        done[other] = true;
                    }
                } else if wanted {
                    break;
                }
                for (other, is_done) in done.iter().enumerate() {
                    prop_assert_eq!(plan.is_wanted(other), !is_done);
                }
                prop_assert_eq!(plan.wants_any(), done.iter().any(|done| !done));
            }
        }
    }
}
