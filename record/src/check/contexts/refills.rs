//! A budget, by the rules: what is used of a refill that was released at `r` comes back a period after `r`.
//!
//! Two accounts of the same thing. The refills say, by the stated rules, when how much may be used, and the core must say
//! the same. The history of releases does not care for the rules: it checks what they are for, that no window of a
//! period sees more than the budget released.

use super::super::ensure;
use std::collections::VecDeque;

/// A budget that comes back.
#[derive(Clone, Debug)]
pub struct RefillModel {
    budget: u64,
    period: u64,
    /// How many refills there may be.
    limit: usize,
    /// Release and amount, first usable first.
    list: Vec<(u64, u64)>,
    /// What was used: when it had been released, and how much.
    released: VecDeque<(u64, u64)>,
}

impl RefillModel {
    /// The whole budget, from `now` on.
    #[must_use]
    pub fn whole(budget: u64, period: u64, limit: usize, now: u64) -> Self {
        Self { budget, period, limit, list: vec![(now, budget)], released: VecDeque::new() }
    }

    /// A budget as it comes along.
    pub fn found(budget: u64, period: u64, limit: usize, list: &[(u64, u64)]) -> Result<Self, String> {
        let refills = Self { budget, period, limit, list: list.to_vec(), released: VecDeque::new() };
        refills.sound()?;
        Ok(refills)
    }

    /// Budget and period.
    #[must_use]
    pub fn terms(&self) -> (u64, u64) {
        (self.budget, self.period)
    }

    /// The refills.
    #[must_use]
    pub fn list(&self) -> &[(u64, u64)] {
        &self.list
    }

    /// The first refill: release and amount.
    #[must_use]
    pub fn first(&self) -> (u64, u64) {
        self.list[0]
    }

    /// How much can be used from `now` on without a gap.
    #[must_use]
    pub fn usable(&self, now: u64) -> u64 {
        let mut until = now;
        for (release, amount) in &self.list {
            if *release > until {
                break;
            }
            until += amount;
        }
        until - now
    }

    /// The amounts make up the budget, in order and without overlap.
    pub fn sound(&self) -> Result<(), String> {
        let sum: u64 = self.list.iter().map(|(_, amount)| amount).sum();
        ensure(sum == self.budget, || format!("{:?} do not make up {}ns", self.list, self.budget))?;
        ensure((1..=self.limit).contains(&self.list.len()), || {
            format!("{} refills, at most {}", self.list.len(), self.limit)
        })?;
        let apart = self.list.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0);
        ensure(apart, || format!("{:?} overlap", self.list))
    }

    /// `used` was used.
    pub fn spend(&mut self, used: u64) -> Result<(), String> {
        let mut left = used;
        while left > 0 {
            let (release, amount) = self.list[0];
            let part = left.min(amount);
            left -= part;
            if part == amount {
                self.list.remove(0);
            } else {
                self.list[0].1 -= part;
            }
            self.come_back(release + self.period, part);
            self.remember(release, part)?;
        }
        self.sound()
    }

    fn come_back(&mut self, release: u64, amount: u64) {
        let full = self.list.len() == self.limit;
        match self.list.last_mut() {
            None => self.list.push((release, amount)),
            Some((last, there)) if *last == release => *there += amount,
            Some((last, there)) if full => {
                // The earlier waits for the later.
                *last = release.max(*last);
                *there += amount;
            }
            Some((last, there)) => {
                let free = *last + *there;
                self.list.push((release.max(free), amount));
            }
        }
    }

    /// No window of a period has seen more than the budget released.
    fn remember(&mut self, release: u64, amount: u64) -> Result<(), String> {
        self.released.push_back((release, amount));
        let within = |at: u64| at + self.period > release;
        while self.released.front().is_some_and(|(at, _)| !within(*at)) {
            self.released.pop_front();
        }
        let sum: u64 = self.released.iter().map(|(_, amount)| amount).sum();
        ensure(sum <= self.budget, || {
            format!("{sum}ns released within {}ns, granted are {}ns", self.period, self.budget)
        })
    }

    /// Its user is ready after a pause: what could have been used earlier is released at `now`.
    pub fn resume(&mut self, now: u64) {
        if self.list[0].0 >= now {
            return;
        }
        let past = self.list.iter().take_while(|(release, _)| *release <= now).count();
        let amount = self.list.drain(..past).map(|(_, amount)| amount).sum();
        self.list.insert(0, (now, amount));
        self.push_apart();
    }

    /// Its user pauses: nothing is released before `now` any more.
    pub fn pause(&mut self, now: u64) {
        self.list[0].0 = self.list[0].0.max(now);
        self.push_apart();
    }

    /// The pause that has just begun is none: the first refill is released when it was.
    pub fn go_on(&mut self, release: u64) {
        self.list[0].0 = release;
    }

    fn push_apart(&mut self) {
        let mut free = 0;
        for (release, amount) in &mut self.list {
            *release = free.max(*release);
            free = *release + *amount;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_comes_back_a_period_after_its_release() {
        let mut refills = RefillModel::whole(10, 100, 4, 0);
        refills.spend(4).expect("within the budget");
        assert_eq!(refills.list(), [(0, 6), (100, 4)]);
        refills.pause(4);
        refills.resume(50);
        refills.spend(6).expect("within the budget");
        assert_eq!(refills.list(), [(100, 4), (150, 6)]);
    }

    #[test]
    fn a_budget_that_is_released_twice_in_a_period_is_noticed() {
        let mut refills = RefillModel::whole(10, 100, 4, 0);
        refills.spend(10).expect("within the budget");
        refills.list[0].0 = 99;
        let what = refills.spend(1).expect_err("a nanosecond too soon");
        assert!(what.contains("released within"), "{what}");
    }

    #[test]
    fn lots_that_do_not_add_up_or_overlap_are_noticed() {
        assert!(RefillModel::found(10, 100, 4, &[(0, 9)]).is_err());
        assert!(RefillModel::found(10, 100, 4, &[(0, 5), (4, 5)]).is_err());
        assert!(RefillModel::found(10, 100, 2, &[(0, 5), (5, 4), (100, 1)]).is_err());
        assert!(RefillModel::found(10, 100, 2, &[(0, 5), (5, 5)]).is_ok());
    }
}
