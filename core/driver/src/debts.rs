//! Time that was used, and whose context is gone or grants less by now.
//!
//! What was used of a context comes back a period later, and only then is it there for others. A context that ends before, or that
//! gives a part of its grant up, leaves what has not come back as a *debt* of each account that it was charged to. What takes its
//! place is released when the debts of each of its accounts leave room for it.
//!
//! Conserved: at no time does an account owe less than the debts that were added to it and have not come back by then; and none is
//! ever moved from one account to another.

use core::cmp::Reverse;
use mainspring_abi::Nanos;

/// Debts of one account that are told apart. One more is added to another one.
const APART: usize = 4;

/// What has not come back of a context: how much, in billionths of a CPU, and until when.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Owed {
    /// How much.
    pub share: u64,
    /// Until when.
    pub until: Nanos,
}

/// The debts of one account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Debts {
    /// The one that lasts longest first; a place that is free has no share.
    list: [Owed; APART],
}

impl Default for Debts {
    fn default() -> Self {
        Self::NONE
    }
}

impl Debts {
    /// Nothing is owed.
    pub const NONE: Self = Self { list: [Owed { share: 0, until: Nanos::ZERO }; APART] };

    /// Adds a debt. Where there is no place for it, the one of all that lasts longer for the least time and share lasts longer.
    pub fn add(&mut self, owed: Owed) {
        if owed.share == 0 {
            return;
        }
        let mut all = [owed; APART + 1];
        all[..APART].copy_from_slice(&self.list);
        all.sort_unstable_by_key(|one| (one.share == 0, Reverse(one.until)));
        if all[APART].share != 0 {
            let added = |longer: &usize| {
                let (longer, other) = (all[*longer], all[*longer + 1]);
                u128::from((longer.until - other.until).get()) * u128::from(other.share)
            };
            let longer = (0..APART).min_by_key(added).unwrap_or(0);
            all[longer].share = all[longer].share.saturating_add(all[longer + 1].share);
            all[longer + 1..].rotate_left(1);
        }
        self.list.copy_from_slice(&all[..APART]);
    }

    /// From when on the account, which has so much `room` beside what it grants now, owes no more than that.
    pub fn room_from(&mut self, room: u64, now: Nanos) -> Nanos {
        let mut sum = 0u64;
        let mut from = now;
        for owed in &mut self.list {
            if owed.until <= now {
                *owed = Owed::default();
            }
            sum = sum.saturating_add(owed.share);
            if sum > room && from == now {
                from = owed.until.max(now);
            }
        }
        from
    }
}
