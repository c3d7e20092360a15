//! One component of a quota: so much in every period, and so much at once.
//!
//! Conserved: `level + held` is what was refilled and not used yet. It is never more than `burst`, and time adds `amount` in a
//! period. So in any window of one period no more than `amount + burst` is used: what there was at its start, and what came in it.
//!
//! `held` has left the bucket and is not used yet: the slice of a task that runs. Tasks for which there is not enough stand in line.
//! Each has what it asked for as soon as there is enough for it and for those before it. So none is overtaken, and none waits for
//! another one to wake up. What is given back is told to the first in line.

use std::collections::VecDeque;

/// What is left of one component, and how fast it comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bucket {
    amount: u64,
    burst: u64,
    /// Below zero if more was used than there was.
    level: i128,
    held: u64,
    /// What has come since the last whole one, in parts of one: below the period.
    part: u64,
    /// Who waits, the first first.
    line: VecDeque<Waiting>,
    next_number: u64,
}

/// A task in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiting {
    number: u64,
    wants: u64,
    /// How it is woken.
    word: usize,
}

/// A place in line.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "it is left again"]
pub(super) struct Ticket(u64);

/// What came of a wish.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Reserved {
    /// It is the task's.
    Now,
    /// The task stands in line for it: [`Bucket::claim`].
    Later(Ticket),
    /// There will never be so much at once.
    Never,
}

impl Bucket {
    /// As full as it can be.
    pub(super) fn full(amount: u64, burst: u64) -> Self {
        Self::new(amount, burst, burst.into())
    }

    fn new(amount: u64, burst: u64, level: i128) -> Self {
        Self { amount, burst, level, held: 0, part: 0, line: VecDeque::new(), next_number: 0 }
    }

    pub(super) fn burst(&self) -> u64 {
        self.burst
    }

    /// What could be used now, if nobody stood in line.
    pub(super) fn level(&self) -> u64 {
        u64::try_from(self.level.max(0)).unwrap_or(u64::MAX)
    }

    /// So much time has passed.
    pub(super) fn refill(&mut self, elapsed_ns: u64, period_ns: u64) {
        let parts = u128::from(elapsed_ns) * u128::from(self.amount) + u128::from(self.part);
        let whole = i128::try_from(parts / u128::from(period_ns)).unwrap_or(i128::MAX / 2);
        let most = i128::from(self.burst) - i128::from(self.held);
        if self.level.saturating_add(whole) >= most {
            // What does not fit is lost, and what had come of the next one with it.
            (self.level, self.part) = (most.max(self.level), 0);
        } else {
            self.level += whole;
            self.part = (parts % u128::from(period_ns)) as u64;
        }
    }

    /// A task wants `n`, to use it. `word` is how it is woken if it has to wait.
    pub(super) fn reserve(&mut self, n: u64, word: usize) -> Reserved {
        if n > self.burst {
            return Reserved::Never;
        }
        if self.line.is_empty() && self.level >= i128::from(n) {
            self.take(n);
            return Reserved::Now;
        }
        if self.amount == 0 && self.held == 0 && self.line.is_empty() {
            // Nothing comes, and nobody can give any back.
            return Reserved::Never;
        }
        self.next_number += 1;
        self.line.push_back(Waiting { number: self.next_number, wants: n, word });
        Reserved::Later(Ticket(self.next_number))
    }

    fn take(&mut self, n: u64) {
        self.level -= i128::from(n);
        self.held += n;
    }

    /// A task that stands in line looks whether it has what it wants. `None` if so; else in how many nanoseconds it is there at
    /// the soonest.
    pub(super) fn claim(&mut self, ticket: &Ticket, period_ns: u64) -> Option<u64> {
        let place = self.line.iter().position(|waiting| waiting.number == ticket.0)?;
        let wanted: u128 = self.line.iter().take(place + 1).map(|waiting| u128::from(waiting.wants)).sum();
        let missing = i128::try_from(wanted).unwrap_or(i128::MAX / 2) - self.level;
        if missing <= 0 {
            if let Some(waiting) = self.line.remove(place) {
                self.take(waiting.wants);
            }
            return None;
        }
        let parts = missing.unsigned_abs().saturating_mul(period_ns.into()) - u128::from(self.part);
        let in_ns = parts.div_ceil(u128::from(self.amount.max(1)));
        Some(u64::try_from(in_ns).unwrap_or(u64::MAX))
    }

    /// A task stands in line no longer. What it has claimed stays its own.
    pub(super) fn leave(&mut self, ticket: &Ticket) {
        self.line.retain(|waiting| waiting.number != ticket.0);
    }

    /// The first in line. It is woken when something was given back, claimed or left: what it waits for comes sooner then.
    pub(super) fn first(&self) -> Option<usize> {
        self.line.front().map(|waiting| waiting.word)
    }

    /// Of `held` that a task had, it has used so much, which may be more: what ran where nothing could be asked for.
    pub(super) fn settle(&mut self, held: u64, used: u64) {
        self.held -= held;
        self.level += i128::from(held) - i128::from(used);
    }

    /// What [`Bucket::carve`] would lack: what was asked for, and what is left of the same.
    pub(super) fn lacks(&self, amount: u64, burst: u64) -> Option<(u64, u64)> {
        // What is held stays here.
        let free = self.burst.saturating_sub(if burst > 0 { self.held } else { 0 });
        [(amount, self.amount), (burst, free)].into_iter().find(|(asked, left)| asked > left)
    }

    /// Takes a part of the rate and of the burst out, and as much of the level as goes with that. There is so much.
    pub(super) fn carve(&mut self, amount: u64, burst: u64) -> Self {
        debug_assert_eq!(self.lacks(amount, burst), None);
        self.amount -= amount;
        self.burst -= burst;
        let most = i128::from(self.burst) - i128::from(self.held);
        let moved = (self.level - most).clamp(0, burst.into());
        self.level -= moved;
        Self::new(amount, burst, moved)
    }

    /// A part that was carved out is over, and nobody holds any of it.
    pub(super) fn absorb(&mut self, part: &Self) {
        self.amount += part.amount;
        self.burst += part.burst;
        self.level += part.level + i128::from(part.held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PERIOD: u64 = 1000;

    /// What happens to a bucket.
    #[derive(Clone, Copy, Debug)]
    enum Act {
        Pass(u64),
        Ask(u64),
        /// A task that asked looks. If it has what it wants, it uses a part of it, and gives the rest back.
        Use(usize, u64),
        /// A task that asked gives up.
        Leave(usize),
        Carve(u64, u64),
        Absorb,
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let act = prop_oneof![
            4 => (0u64..700).prop_map(Act::Pass),
            6 => (0u64..40).prop_map(Act::Ask),
            6 => (0usize..8, 0u64..40).prop_map(|(who, used)| Act::Use(who, used)),
            1 => (0usize..8).prop_map(Act::Leave),
            1 => (0u64..10, 0u64..10).prop_map(|(amount, burst)| Act::Carve(amount, burst)),
            1 => Just(Act::Absorb),
        ];
        prop::collection::vec(act, 1..200)
    }

    /// A task that asked for `n`, of the part or of the root.
    struct Asked {
        of_part: bool,
        n: u64,
        waits: Option<Ticket>,
    }

    /// Everything that was ever used, one by one: slow, and obvious.
    #[derive(Default)]
    struct Uses(Vec<(u64, u64)>);

    impl Uses {
        fn most_in_a_window(&self) -> u64 {
            let in_window = |from: u64| {
                self.0.iter().filter(|(at, _)| (from..from + PERIOD).contains(at)).map(|(_, n)| n).sum()
            };
            self.0.iter().map(|(from, _)| in_window(*from)).max().unwrap_or(0)
        }
    }

    proptest! {
        /// Over any window of one period no more is used than the rate and the burst, whatever tasks hold, give back, or carve out.
        #[test]
        fn no_window_has_more_than_the_rate_and_the_burst(
            (amount, burst) in (1u64..60, 1u64..60),
            acts in acts(),
        ) {
            let mut root = Bucket::full(amount, burst);
            let mut part: Option<Bucket> = None;
            let mut uses = Uses::default();
            let mut tasks: Vec<Asked> = Vec::new();
            let mut now = 0;
            for act in acts {
                match act {
                    Act::Pass(time) => {
                        now += time;
                        root.refill(time, PERIOD);
                        part.iter_mut().for_each(|part| part.refill(time, PERIOD));
                    }
                    Act::Ask(n) => {
                        let of_part = part.is_some() && n % 2 == 0;
                        let bucket = part.as_mut().filter(|_| of_part).unwrap_or(&mut root);
                        match bucket.reserve(n, 0) {
                            Reserved::Now => tasks.push(Asked { of_part, n, waits: None }),
                            Reserved::Later(ticket) => tasks.push(Asked { of_part, n, waits: Some(ticket) }),
                            Reserved::Never => prop_assert!(n > bucket.burst() || bucket.amount == 0),
                        }
                    }
                    Act::Use(who, wanted) if !tasks.is_empty() => {
                        let task = tasks.remove(who % tasks.len());
                        let bucket = part.as_mut().filter(|_| task.of_part).unwrap_or(&mut root);
                        if task.waits.as_ref().is_none_or(|ticket| bucket.claim(ticket, PERIOD).is_none()) {
                            let used = wanted.min(task.n);
                            bucket.settle(task.n, used);
                            uses.0.push((now, used));
                        } else {
                            tasks.push(task);
                        }
                    }
                    Act::Leave(who) if !tasks.is_empty() => {
                        let task = tasks.remove(who % tasks.len());
                        let bucket = part.as_mut().filter(|_| task.of_part).unwrap_or(&mut root);
                        match &task.waits {
                            Some(ticket) => bucket.leave(ticket),
                            None => bucket.settle(task.n, 0),
                        }
                    }
                    Act::Carve(amount, burst) if part.is_none() && root.lacks(amount, burst).is_none() => {
                        part = Some(root.carve(amount, burst));
                    }
                    Act::Absorb if !tasks.iter().any(|task| task.of_part) => {
                        if let Some(part) = part.take() {
                            root.absorb(&part);
                        }
                    }
                    Act::Use(..) | Act::Leave(_) | Act::Carve(..) | Act::Absorb => {}
                }
                let parts = part.as_ref().map_or((0, 0), |part| (part.amount, part.burst));
                prop_assert_eq!((root.amount + parts.0, root.burst + parts.1), (amount, burst));
                for bucket in [Some(&root), part.as_ref()].into_iter().flatten() {
                    prop_assert!(bucket.level + i128::from(bucket.held) <= bucket.burst.into());
                }
            }
            let most = uses.most_in_a_window();
            prop_assert!(most <= amount + burst, "{most} of {}", amount + burst);
        }

        /// A task that has waited for as long as it was told finds what it asked for, and not sooner.
        #[test]
        fn a_wait_is_as_long_as_it_has_to_be(
            (amount, burst) in (1u64..60, 1u64..60),
            asks in prop::collection::vec(1u64..60, 1..20),
        ) {
            let mut bucket = Bucket::full(amount, burst);
            for n in asks {
                match bucket.reserve(n, 0) {
                    Reserved::Never => continue,
                    Reserved::Now => {}
                    Reserved::Later(ticket) => {
                        let in_ns = bucket.claim(&ticket, PERIOD).expect("it was told to wait");
                        bucket.refill(in_ns - 1, PERIOD);
                        prop_assert_eq!(bucket.claim(&ticket, PERIOD), Some(1), "and not sooner");
                        bucket.refill(1, PERIOD);
                        prop_assert_eq!(bucket.claim(&ticket, PERIOD), None);
                    }
                }
                bucket.settle(n, n);
            }
        }

        /// Tasks that stand in line all get what they want, in order, however late they look.
        #[test]
        fn nobody_in_line_is_overtaken(
            (amount, burst) in (1u64..60, 5u64..60),
            asks in prop::collection::vec(1u64..5, 2..20),
            late in 0u64..3000,
        ) {
            let mut bucket = Bucket::full(amount, burst);
            let Reserved::Now = bucket.reserve(burst, 0) else { panic!("it is full") };
            bucket.settle(burst, burst);
            let mut line: VecDeque<_> = asks
                .iter()
                .map(|n| match bucket.reserve(*n, 0) {
                    Reserved::Later(ticket) => (*n, ticket),
                    other => panic!("it is empty: {other:?}"),
                })
                .collect();
            for _ in 0..10_000 {
                let Some((n, first)) = line.front() else { break };
                let n = *n;
                match bucket.claim(first, PERIOD) {
                    Some(in_ns) => {
                        for (_, other) in line.iter().skip(1) {
                            prop_assert!(bucket.claim(other, PERIOD).is_some(), "one overtakes the first");
                        }
                        bucket.refill(in_ns + late, PERIOD);
                    }
                    None => {
                        line.pop_front();
                        bucket.settle(n, n);
                    }
                }
            }
            prop_assert!(line.is_empty(), "somebody never gets it");
        }
    }
}
