//! The consumer's half of the completion queue.
//!
//! Conserved: `posted - read + places out <= entries`. A completion is posted only through a [`CqPlace`], and a
//! place is handed out only while there is room for it, so posting cannot fail and nothing is ever overwritten.
//! None of this depends on which consumer has the submission queue: what was accepted can be completed after its
//! consumer's lease has ended, and stays visible.

use crate::fault::RingFault;
use crate::geometry::Geometry;
use crate::region::Region;
use crate::sync::Ordering;
use crate::wake::{self, Wakeup};
use mainspring_abi::ring::{CapCqe, CompletionStatus, word};

/// Room for one completion. Its holder can complete, whatever the peer does.
#[derive(Debug)]
#[must_use = "a place that is dropped is lost to the ring; complete it or give it back"]
pub struct CqPlace(());

/// Why no place was handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoPlace {
    /// All slots hold unread completions or are promised to requests in flight.
    Full,
    /// The reader's index makes no sense.
    Fault(RingFault),
}

/// What has been posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CompletionCounters {
    /// All completions.
    pub posted: u64,
    /// Requests that ended after their deadline.
    pub completed_late: u64,
    /// Requests that never ran because their deadline had passed.
    pub deadline_expired: u64,
    /// Requests that never ran for want of budget.
    pub throttled: u64,
}

/// Posts completions. One per ring; machines with several completing CPUs put it behind the ring's lock.
pub struct Completer<R: Region> {
    region: R,
    geometry: Geometry,
    tail: u32,
    published: u32,
    head_seen: u32,
    places_out: u32,
    counters: CompletionCounters,
}

impl<R: Region> Completer<R> {
    /// The completer of a fresh ring.
    pub fn new(region: R, geometry: Geometry) -> Self {
        Self {
            region,
            geometry,
            tail: 0,
            published: 0,
            head_seen: 0,
            places_out: 0,
            counters: CompletionCounters::default(),
        }
    }

    /// A place for one completion, if there is room.
    #[inline(always)]
    pub fn reserve(&mut self) -> Result<CqPlace, NoPlace> {
        if self.known_room() == 0 && self.room().map_err(NoPlace::Fault)? == 0 {
            return Err(NoPlace::Full);
        }
        self.places_out += 1;
        Ok(CqPlace(()))
    }

    /// Takes back a place that is not needed.
    #[expect(clippy::needless_pass_by_value, reason = "the place must end here")]
    pub fn give_back(&mut self, place: CqPlace) {
        let CqPlace(()) = place;
        assert!(self.places_out > 0, "the place belongs to another ring");
        self.places_out -= 1;
    }

    /// Writes a completion in its place; the reader does not see it before [`Completer::publish`].
    #[inline(always)]
    pub fn complete(&mut self, place: CqPlace, cqe: &CapCqe) {
        self.give_back(place);
        self.geometry.write_cqe(&self.region, self.tail, cqe);
        self.tail = self.tail.wrapping_add(1);
        self.count(cqe.status);
        debug_assert!(self.tail.wrapping_sub(self.head_seen) + self.places_out <= self.geometry.cq_entries());
    }

    /// Makes all completions visible, and says whether their reader has to be woken.
    #[inline]
    #[must_use = "a sleeping reader sees nothing until it is woken"]
    pub fn publish(&mut self) -> Wakeup {
        if self.published == self.tail {
            return Wakeup::NotNeeded;
        }
        self.published = self.tail;
        wake::publish_completions(&self.region, self.tail)
    }

    /// Makes all completions visible to a reader that is not asleep, because it is the caller itself or because
    /// the machine knows its waiters.
    #[inline]
    pub fn publish_for_caller(&mut self) {
        self.published = self.tail;
        // Release: pairs with the reader's acquire of the tail, and orders the entry before it.
        self.region.word(word::CQ_TAIL).store(self.tail, Ordering::Release);
    }

    /// How many posted completions the reader has not claimed to have read.
    #[inline(always)]
    pub fn unread(&mut self) -> Result<u32, RingFault> {
        self.refresh_head()?;
        Ok(self.tail.wrapping_sub(self.head_seen))
    }

    /// How many more places can be handed out.
    pub fn room(&mut self) -> Result<u32, RingFault> {
        self.refresh_head()?;
        Ok(self.known_room())
    }

    /// How many places are out.
    #[must_use]
    pub fn places_out(&self) -> u32 {
        self.places_out
    }

    /// What has been posted.
    #[must_use]
    pub fn counters(&self) -> CompletionCounters {
        self.counters
    }

    /// Ends a sleep of the reader; what to do when [`Completer::publish`] says so, besides the machine's own wake.
    pub fn ring_doorbell(&self) {
        wake::count_wake(&self.region, word::CQ_WAKES);
    }

    #[inline]
    fn known_room(&self) -> u32 {
        self.geometry.cq_entries() - self.tail.wrapping_sub(self.head_seen) - self.places_out
    }

    #[inline(always)]
    fn refresh_head(&mut self) -> Result<(), RingFault> {
        // Acquire: pairs with the reader's release of the head; a slot is written only after it was read.
        let head = self.region.word(word::CQ_HEAD).load(Ordering::Acquire);
        // Forwards only, and only over what is visible: otherwise places that are out could lose their room.
        if head.wrapping_sub(self.head_seen) > self.published.wrapping_sub(self.head_seen) {
            return Err(RingFault::CqHead { head, tail: self.published });
        }
        self.head_seen = head;
        Ok(())
    }

    #[inline]
    fn count(&mut self, status: u8) {
        const LATE: u8 = CompletionStatus::CompletedLate as u8;
        const EXPIRED: u8 = CompletionStatus::NotStartedLate as u8;
        const THROTTLED: u8 = CompletionStatus::Throttled as u8;
        self.counters.posted += 1;
        match status {
            LATE => self.counters.completed_late += 1,
            EXPIRED => self.counters.deadline_expired += 1,
            THROTTLED => self.counters.throttled += 1,
            _ => {}
        }
    }
}

/// Teardown shows what was completed before it lets go of the memory.
impl<R: Region> Drop for Completer<R> {
    fn drop(&mut self) {
        if self.published != self.tail {
            self.publish_for_caller();
        }
    }
}
