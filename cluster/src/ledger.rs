//! What a node has sent with messages, and where all of it is.
//!
//! Conserved, in each component: sent = returned + used + lost + in flight. Each amount leaves `in flight` once.

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
            all.put(&part);
        }
        all == Pool::from(self.sent)
    }
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
            inner.sent.put(&amount);
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
        inner.returned.put(&rest);
        inner.used.put(&used);
        true
    }

    /// A grant is lost. False if it was over before.
    #[must_use]
    pub fn lose(&self, id: &str, reason: Reason) -> bool {
        let mut inner = self.inner();
        let Some(amount) = inner.in_flight.remove(id) else { return false };
        inner.lost.entry(reason).or_default().put(&amount);
        true
    }

    /// Where all of it is.
    pub fn balance(&self) -> Balance {
        let inner = self.inner();
        let mut in_flight = Pool::ZERO;
        inner.in_flight.values().for_each(|amount| in_flight.put(amount));
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
}
