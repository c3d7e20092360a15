//! The submitter's half of the submission queue.

use crate::fault::RingFault;
use crate::geometry::Geometry;
use crate::region::Region;
use crate::sync::Ordering;
use crate::wake::{self, Wakeup};
use mainspring_abi::ring::{CapSqeV2, word};

/// Writes requests. One per ring: it owns the tail.
///
/// Conserved: `head <= published <= tail <= head + entries`, counting without wrapping, where `head` is the
/// greatest value that the peer has honestly claimed.
pub struct Submitter<R> {
    region: R,
    geometry: Geometry,
    tail: u32,
    published: u32,
    head_seen: u32,
}

/// Whether a request was taken in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a request that was not taken in must be tried again"]
pub enum Push {
    /// It stands in the queue and is seen after the next publish.
    Queued,
    /// The queue is full; publish, let the consumer work, and try again.
    Full,
    /// The consumer's index makes no sense; nothing was written.
    Fault(RingFault),
}

impl<R: Region> Submitter<R> {
    /// The submitter of a fresh ring.
    pub fn new(region: R, geometry: Geometry) -> Self {
        Self { region, geometry, tail: 0, published: 0, head_seen: 0 }
    }

    /// Writes one request; the consumer does not see it before [`Submitter::publish`].
    #[inline]
    pub fn push(&mut self, sqe: &CapSqeV2) -> Push {
        if self.tail.wrapping_sub(self.head_seen) == self.geometry.sq_entries() {
            if let Err(fault) = self.refresh_head() {
                return Push::Fault(fault);
            }
            if self.tail.wrapping_sub(self.head_seen) == self.geometry.sq_entries() {
                return Push::Full;
            }
        }
        self.geometry.write_sqe(&self.region, self.tail, sqe);
        self.tail = self.tail.wrapping_add(1);
        Push::Queued
    }

    /// Makes all pushed requests visible, and says whether the poller has to be woken.
    #[inline]
    #[must_use = "a sleeping poller sees nothing until it is woken"]
    pub fn publish(&mut self) -> Wakeup {
        if self.published == self.tail {
            return Wakeup::NotNeeded;
        }
        self.published = self.tail;
        wake::publish_tail(&self.region, self.tail)
    }

    /// Makes all pushed requests visible on a ring that has no poller: its caller drains it, so there is no
    /// poller to wake and no barrier to pay for.
    #[inline]
    pub fn publish_for_caller(&mut self) {
        self.published = self.tail;
        // Release: pairs with the consumer's acquire of the tail, and orders the entry before it.
        self.region.word(word::SQ_TAIL).store(self.tail, Ordering::Release);
    }

    /// How many requests have been written since the ring began, counting around.
    #[must_use]
    pub fn tail(&self) -> u32 {
        self.tail
    }

    /// How many published requests the consumer has not claimed yet.
    pub fn in_queue(&mut self) -> Result<u32, RingFault> {
        self.refresh_head()?;
        Ok(self.published.wrapping_sub(self.head_seen))
    }

    /// Ends a sleep of the poller; what to do when [`Submitter::publish`] says so, besides the machine's own wake.
    pub fn ring_doorbell(&self) {
        wake::count_wake(&self.region, word::SQ_WAKES);
    }

    /// The shared memory, for a machine that parks and wakes on one of its words.
    pub fn region(&self) -> &R {
        &self.region
    }

    fn refresh_head(&mut self) -> Result<(), RingFault> {
        // Acquire: pairs with the consumer's release of the head; the slot is not overwritten before it was read.
        let head = self.region.word(word::SQ_HEAD).load(Ordering::Acquire);
        if head.wrapping_sub(self.head_seen) > self.published.wrapping_sub(self.head_seen) {
            return Err(RingFault::SqHead { head, tail: self.published });
        }
        self.head_seen = head;
        Ok(())
    }
}
