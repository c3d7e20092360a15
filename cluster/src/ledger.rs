//! What a node has sent with messages, and where all of it is.
//!
//! Conserved, in each component: sent = returned + used + lost + in flight. Each amount leaves `in flight` once. These are sums over the
//! life of the node: they wrap around at 2^64, as counters do, and are conserved so.

use crate::grant::Amount;
use mainspring::Pool;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Why an amount is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// The node that took it never settled: it crashed, or keeps it.
    NeverSettled,
    /// The receipt was worth nothing: it was forged, or for more than was granted.
    BadReceipt,
}

/// Where all that was sent is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Balance {
    /// All that left with messages.
    pub sent: Amount,
    /// What came back.
    pub returned: Amount,
    /// What was used up by those who handled messages.
    pub used: Amount,
    /// What is lost, by reason.
    pub lost: BTreeMap<Reason, Amount>,
    /// What is under way, or waits for its record.
    pub in_flight: Amount,
    /// How many grants that is.
    pub grants_in_flight: usize,
}

impl Balance {
    /// Whether it is all somewhere.
    pub fn is_conserved(&self) -> bool {
        let lost = self.lost.values().map(|amount| Pool::from(*amount));
        let parts = [self.returned, self.used, self.in_flight].map(Pool::from);
        let mut all = Pool::ZERO;
        for part in parts.into_iter().chain(lost) {
            count(&mut all, &part);
        }
        all == Pool::from(self.sent)
    }
}

/// Adds to a sum. What goes out and comes back again and again is soon more than there ever was at once.
fn count(sum: &mut Pool, more: &Pool) {
    let Pool { ops, memory, spawn_count, channel_ops, syscalls } = more;
    sum.ops = sum.ops.wrapping_add(*ops);
    sum.memory = sum.memory.wrapping_add(*memory);
    sum.spawn_count = sum.spawn_count.wrapping_add(*spawn_count);
    sum.channel_ops = sum.channel_ops.wrapping_add(*channel_ops);
    sum.syscalls = sum.syscalls.wrapping_add(*syscalls);
}

/// A node's own book.
#[derive(Debug, Default)]
pub struct Ledger(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    sent: Pool,
    returned: Pool,
    used: Pool,
    lost: BTreeMap<Reason, Pool>,
    in_flight: HashMap<String, Pool>,
}

impl Ledger {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A grant leaves.
    pub fn send(&self, id: &str, amount: Pool) {
        let mut inner = self.inner();
        if inner.in_flight.insert(id.to_owned(), amount).is_none() {
            count(&mut inner.sent, &amount);
        }
    }

    /// A grant is over, and this much of it is back. False, and nothing changed, if it was over before, or never was so much.
    #[must_use]
    pub fn settle(&self, id: &str, rest: Pool) -> bool {
        let mut inner = self.inner();
        let Some(mut used) = inner.in_flight.get(id).copied() else { return false };
        if used.take(&rest).is_err() {
            return false;
        }
        inner.in_flight.remove(id);
        count(&mut inner.returned, &rest);
        count(&mut inner.used, &used);
        true
    }

    /// A grant is lost. False if it was over before.
    #[must_use]
    pub fn lose(&self, id: &str, reason: Reason) -> bool {
        let mut inner = self.inner();
        let Some(amount) = inner.in_flight.remove(id) else { return false };
        count(inner.lost.entry(reason).or_default(), &amount);
        true
    }

    /// Where all of it is.
    pub fn balance(&self) -> Balance {
        let inner = self.inner();
        let mut in_flight = Pool::ZERO;
        inner.in_flight.values().for_each(|amount| count(&mut in_flight, amount));
        Balance {
            sent: inner.sent.into(),
            returned: inner.returned.into(),
            used: inner.used.into(),
            lost: inner.lost.iter().map(|(reason, amount)| (*reason, (*amount).into())).collect(),
            in_flight: in_flight.into(),
            grants_in_flight: inner.in_flight.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ops(ops: u64) -> Pool {
        Pool { ops, ..Pool::ZERO }
    }

    #[test]
    fn each_amount_is_in_one_place_and_leaves_it_once() {
        let ledger = Ledger::default();
        for id in ["a", "b", "c", "d"] {
            ledger.send(id, ops(10));
        }
        assert!(ledger.settle("a", ops(4)));
        assert!(!ledger.settle("a", ops(4)), "it is over");
        assert!(!ledger.lose("a", Reason::NeverSettled), "it is over");
        assert!(ledger.lose("b", Reason::NeverSettled));
        assert!(!ledger.settle("c", ops(11)), "more than was sent");
        assert!(ledger.settle("c", ops(10)));
        let balance = ledger.balance();
        assert!(balance.is_conserved(), "{balance:?}");
        assert_eq!((balance.returned.ops, balance.used.ops, balance.in_flight.ops), (14, 6, 10));
        assert_eq!(balance.lost[&Reason::NeverSettled].ops, 10);
    }

    #[test]
    fn what_comes_back_again_and_again_may_be_more_in_all_than_a_sum_can_hold() {
        let ledger = Ledger::default();
        for _ in 0..3 {
            ledger.send("a", ops(1 << 63));
            assert!(ledger.settle("a", ops((1 << 63) - 1)));
        }
        let balance = ledger.balance();
        assert!(balance.is_conserved(), "{balance:?}");
        assert_eq!((balance.used.ops, balance.sent.ops), (3, 3_u64.wrapping_mul(1 << 63)));
    }
}
