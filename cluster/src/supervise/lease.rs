//! The lease of a node: until when it may act, and when others may take its actors.
//!
//! ```text
//! renewal sent ──────────── 3/4 ──── 1 ──── 5/4 ──>  lengths of the lease
//!   holder acts             │stops   │aborts
//! others see the renewal, later ─────────────│may end it
//! ```
//!
//! Conserved: the holder counts from when it sent the renewal, an observer from when it saw it, which is later. Each uses its own clock
//! that only goes forward. So the holder has stopped before any observer ends the lease, as long as no clock runs a fifth faster than
//! another. The end is a compare-and-set on the renewal that the observer saw: a renewal that the server has kept meanwhile wins.

use crate::grant::Amount;
use crate::ledger::Balance;
use serde::{Deserialize, Serialize};

/// The shortest and the longest lease, in milliseconds.
pub const LENGTHS_MS: std::ops::RangeInclusive<u64> = 200..=600_000;

/// More often nothing is renewed, placed or started, and a counter in a record that says so would soon overflow.
pub(super) const MOST_TIMES: u64 = 1 << 53;

/// What a node says of itself with each renewal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Grows with each life of the node, and whenever its lease was lost.
    pub incarnation: u64,
    /// Which process.
    pub life: String,
    /// How long a renewal is good for, in milliseconds.
    pub length_ms: u64,
    /// How often it was renewed.
    pub renewals: u64,
    /// The incarnation acts no more.
    pub ended: bool,
    /// Where all is that the node has sent.
    pub balance: Balance,
    /// What its root pool has.
    pub root: Amount,
}

impl Lease {
    /// A record as it came: `None` if it makes no sense.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let lease: Self = serde_json::from_slice(bytes).ok()?;
        (lease.incarnation <= MOST_TIMES && lease.renewals <= MOST_TIMES).then_some(lease)
    }

    /// How long an observer waits from the last renewal that it saw, in milliseconds.
    pub fn patience_ms(&self) -> u64 {
        let length = self.length_ms.clamp(*LENGTHS_MS.start(), *LENGTHS_MS.end());
        length + length / 4
    }
}

/// What the holder of a lease knows of it. Times are its own, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    length_ms: u64,
    sent_ms: u64,
}

impl Held {
    /// A lease whose record was sent at `sent_ms`, and kept.
    pub fn new(length_ms: u64, sent_ms: u64) -> Self {
        Self { length_ms, sent_ms }
    }

    /// A renewal that was sent at `sent_ms` was kept.
    pub fn renewed(&mut self, sent_ms: u64) {
        self.sent_ms = self.sent_ms.max(sent_ms);
    }

    /// When the next renewal is to be sent.
    pub fn renews_ms(&self) -> u64 {
        self.sent_ms + self.length_ms / 4
    }

    /// When the holder stops its actors.
    pub fn stops_ms(&self) -> u64 {
        self.sent_ms + self.length_ms / 4 * 3
    }

    /// When the process ends if an actor has not stopped.
    pub fn aborts_ms(&self) -> u64 {
        self.sent_ms + self.length_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_has_stopped_before_an_observer_may_end_its_lease() {
        for length_ms in [200, 999, 3_000, 600_000] {
            let lease = Lease { length_ms, ..Lease::default() };
            for (sent_ms, delay_ms) in [(0, 0), (50, 1), (7, 100_000)] {
                let held = Held::new(length_ms, sent_ms);
                let ended_ms = sent_ms + delay_ms + lease.patience_ms();
                assert!(held.renews_ms() < held.stops_ms() && held.stops_ms() < held.aborts_ms());
                // The observer's clock runs a fifth faster.
                assert!((held.aborts_ms() - sent_ms) * 6 / 5 < ended_ms - sent_ms, "{length_ms} {delay_ms}");
            }
        }
    }

    #[test]
    fn a_record_whose_next_incarnation_would_be_none_makes_no_sense() {
        let read = |incarnation| {
            let lease = Lease { incarnation, ..Lease::default() };
            Lease::read(&serde_json::to_vec(&lease).expect("text"))
        };
        assert_eq!(read(7).map(|lease| lease.incarnation), Some(7));
        assert_eq!(read(u64::MAX), None);
    }

    #[test]
    fn a_late_answer_does_not_shorten_a_lease() {
        let mut held = Held::new(1_000, 500);
        held.renewed(400);
        assert_eq!(held, Held::new(1_000, 500));
    }
}
