//! The submitter's half of the completion queue.

use crate::fault::RingFault;
use crate::geometry::Geometry;
use crate::region::Region;
use crate::sync::Ordering;
use crate::wake::{self, Sleep, Wakeup};
use mainspring_abi::ring::{CapCqe, word};

/// Reads completions. One per ring: it owns the completion head.
pub struct Reaper<R> {
    region: R,
    geometry: Geometry,
    head: u32,
    published: u32,
    tail_seen: u32,
}

/// What was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a completion is handed out once"]
pub enum Reap {
    /// The oldest completion.
    Completion(CapCqe),
    /// There is none.
    Empty,
    /// The consumer's index makes no sense; nothing was read.
    Fault(RingFault),
}

impl<R: Region> Reaper<R> {
    /// The reader of a fresh ring.
    pub fn new(region: R, geometry: Geometry) -> Self {
        Self { region, geometry, head: 0, published: 0, tail_seen: 0 }
    }

    /// The oldest completion that was not handed out yet. Its slot is used again only after
    /// [`Reaper::publish`].
    #[inline]
    pub fn reap(&mut self) -> Reap {
        if self.head == self.tail_seen {
            if let Err(fault) = self.refresh_tail() {
                return Reap::Fault(fault);
            }
            if self.head == self.tail_seen {
                return Reap::Empty;
            }
        }
        let cqe = self.geometry.read_cqe(&self.region, self.head);
        self.head = self.head.wrapping_add(1);
        Reap::Completion(cqe)
    }

    /// Gives the slots of what was read back, and says whether a poller that waits for room has to be woken.
    #[inline]
    #[must_use = "a poller that waits for room sees none until it is woken"]
    pub fn publish(&mut self) -> Wakeup {
        if self.published == self.head {
            return Wakeup::NotNeeded;
        }
        self.published = self.head;
        wake::publish_room(&self.region, self.head)
    }

    /// Gives the slots back on a ring that has no poller.
    #[inline]
    pub fn publish_for_caller(&mut self) {
        self.published = self.head;
        // Release: pairs with the completer's acquire of the head; a slot is read before it is given back.
        self.region.word(word::CQ_HEAD).store(self.head, Ordering::Release);
    }

    /// How many completions can be read now.
    pub fn available(&mut self) -> Result<u32, RingFault> {
        self.refresh_tail()?;
        Ok(self.tail_seen.wrapping_sub(self.head))
    }

    /// Announces that the reader is about to sleep until a completion comes.
    pub fn prepare_wait(&mut self) -> Sleep {
        let head = self.head;
        let entries = self.geometry.cq_entries();
        wake::prepare_reader_sleep(&self.region, |tail| (1..=entries).contains(&tail.wrapping_sub(head)))
    }

    /// Withdraws the announcement; the first thing to do after sleeping.
    pub fn awake(&self) {
        wake::reader_awake(&self.region);
    }

    /// Ends a sleep of the poller; what to do when [`Reaper::publish`] says so, besides the machine's own wake.
    pub fn ring_doorbell(&self) {
        wake::count_wake(&self.region, word::SQ_WAKES);
    }

    /// The shared memory, for a machine that parks and wakes on one of its words.
    pub fn region(&self) -> &R {
        &self.region
    }

    fn refresh_tail(&mut self) -> Result<(), RingFault> {
        // Acquire: pairs with the completer's release of the tail; the entry is complete when the tail shows it.
        let tail = self.region.word(word::CQ_TAIL).load(Ordering::Acquire);
        let claimed = tail.wrapping_sub(self.head);
        if claimed > self.geometry.cq_entries() {
            return Err(RingFault::CqTail { head: self.head, tail });
        }
        // A tail that moves backwards only hides completions that the peer itself posted; take the newer of both.
        if claimed > self.tail_seen.wrapping_sub(self.head) {
            self.tail_seen = tail;
        }
        Ok(())
    }
}
