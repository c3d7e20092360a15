//! The consumer's half of the submission queue.

use crate::complete::{Completer, CqPlace, NoPlace};
use crate::fault::RingFault;
use crate::geometry::Geometry;
use crate::owner::{Finished, Ownership, Revoked, SqLease, SqOwner, SqRefusal};
use crate::region::Region;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::wake::{self, Sleep};
use mainspring_abi::ring::{CQ_HELD_BACK, CapSqeV2, word};

/// One ring's submission queue as its consumers see it. Shared between its possible consumers; each needs a lease,
/// and one serves at a time.
pub struct SubmissionQueue<R> {
    region: R,
    geometry: Geometry,
    ownership: Ownership,
    /// How many entries were accepted. Relaxed everywhere: it moves only under the ownership word's serving bit,
    /// and that word's acquire and release order it.
    head: AtomicU32,
    /// Entries that waited for room, and one more than the head index of the one that waits now.
    held: AtomicU64,
    held_total: AtomicU64,
}

/// What serving found.
#[derive(Debug)]
#[must_use = "an accepted request owes a completion"]
pub enum Next {
    /// A request, and the place that its completion will take.
    Accepted(CapSqeV2, CqPlace),
    /// The queue is empty.
    Empty,
    /// There is a request, but no room for its completion. It stays where it is.
    HeldBack,
    /// The batch is full.
    QuotaSpent,
    /// The lease is being revoked; finish.
    Stopping,
    /// A shared index makes no sense. Nothing was consumed.
    Fault(RingFault),
}

/// Why an accept did not happen; the place comes back.
#[derive(Debug)]
#[must_use = "the place must be used or given back"]
pub struct NotAccepted {
    /// The place that was brought.
    pub place: CqPlace,
    /// Why: one of [`Next::Empty`], [`Next::QuotaSpent`], [`Next::Stopping`], [`Next::Fault`].
    pub why: Next,
}

impl<R: Region> SubmissionQueue<R> {
    /// The consumer's record of a fresh ring.
    pub fn new(region: R, geometry: Geometry) -> Self {
        Self {
            region,
            geometry,
            ownership: Ownership::new(),
            head: AtomicU32::new(0),
            held: AtomicU64::new(0),
            held_total: AtomicU64::new(0),
        }
    }

    /// The right to consume, if no other owner has it.
    pub fn acquire(&self, owner: SqOwner) -> Result<SqLease, SqRefusal> {
        self.ownership.acquire(owner)
    }

    /// Gives the right back.
    #[expect(clippy::needless_pass_by_value, reason = "the lease must end here")]
    pub fn release(&self, lease: SqLease) -> Result<(), SqRefusal> {
        self.ownership.release(&lease)
    }

    /// Ends whatever lease there is. A poller that sleeps on it must be woken: this rings its doorbell, the machine
    /// adds its own wake.
    pub fn revoke(&self) -> Revoked {
        let revoked = self.ownership.revoke();
        self.ring_doorbell();
        revoked
    }

    /// Ends whatever lease there is, and forbids consuming from then on. After [`Revoked::AfterService`] the memory
    /// is in use until [`SubmissionQueue::owner`] is `None`.
    pub fn close(&self) -> Revoked {
        let revoked = self.ownership.close();
        self.ring_doorbell();
        revoked
    }

    /// Starts to consume at most `limit` entries.
    pub fn begin(&self, lease: &SqLease, limit: u32) -> Result<Service<'_, R>, SqRefusal> {
        self.ownership.begin(lease)?;
        Ok(self.service(limit))
    }

    /// Starts to consume at most `limit` entries on the poller's lease.
    pub fn begin_borrowed(&self, limit: u32) -> Result<Service<'_, R>, SqRefusal> {
        self.ownership.begin_borrowed()?;
        Ok(self.service(limit))
    }

    /// Acquires the right to consume and starts to consume at most `limit` entries, in one step. Finishing gives the
    /// right back in one step too: for owners that serve once per lease.
    #[inline]
    pub fn serve(&self, owner: SqOwner, limit: u32) -> Result<Service<'_, R>, SqRefusal> {
        let SqLease { .. } = self.ownership.acquire_serving(owner)?;
        let mut service = self.service(limit);
        service.ends_lease = true;
        Ok(service)
    }

    #[inline]
    fn service(&self, limit: u32) -> Service<'_, R> {
        let head = self.head.load(Ordering::Relaxed);
        Service {
            queue: self,
            head,
            began_at: head,
            tail_seen: head,
            left: limit,
            finished: false,
            ends_lease: false,
        }
    }

    /// Lets only a poller acquire from the next release on. Only the live syscall owner can offer its ring.
    pub fn offer_to_poller(&self, lease: &SqLease) -> Result<(), SqRefusal> {
        self.ownership.offer_to_poller(lease)
    }

    /// Lets callers acquire again once the poller's lease is gone, and lowers the poller's flag.
    pub fn end_polling(&self) {
        self.ownership.end_polling();
        wake::poller_awake(&self.region);
    }

    /// Announces that the poller is about to sleep, and looks once more for something that it could consume. An
    /// ended lease is reported rather than slept on.
    pub fn prepare_sleep(&self, lease: &SqLease, cq: &mut Completer<R>) -> Result<Sleep, SqRefusal> {
        let mut stale = false;
        let sleep = wake::prepare_poller_sleep(&self.region, |flags_before| {
            stale = !self.ownership.holds(lease);
            stale || self.is_consumable(flags_before, cq)
        });
        if stale { Err(SqRefusal::Stale) } else { Ok(sleep) }
    }

    /// Withdraws the announcement; the first thing to do after sleeping.
    pub fn awake(&self) {
        wake::poller_awake(&self.region);
    }

    /// A claim of more entries than there are slots is no work: nothing can be consumed until the peer mends it, and
    /// mending it is a publish, which wakes us.
    fn is_consumable(&self, flags_before: u32, cq: &mut Completer<R>) -> bool {
        // Acquire: pairs with the producer's release of the tail.
        let tail = self.region.word(word::SQ_TAIL).load(Ordering::Acquire);
        let pending = tail.wrapping_sub(self.head.load(Ordering::Relaxed));
        if !(1..=self.geometry.sq_entries()).contains(&pending) {
            return false;
        }
        // Sleeping for want of room is safe only when the flag that asks for a wake is up since before the barrier.
        flags_before & CQ_HELD_BACK == 0 || cq.room().is_ok_and(|room| room > 0)
    }

    /// A glance that takes nothing: whether the submitter shows nothing new. It may be wrong by the time it returns,
    /// and is no more than a reason to begin.
    #[inline]
    #[must_use]
    pub fn shows_nothing(&self) -> bool {
        // Relaxed: a service that follows loads the tail again, with acquire.
        self.region.word(word::SQ_TAIL).load(Ordering::Relaxed) == self.head.load(Ordering::Relaxed)
    }

    /// Whether `lease` is live.
    #[must_use]
    pub fn holds(&self, lease: &SqLease) -> bool {
        self.ownership.holds(lease)
    }

    /// The owner of the right to consume now.
    #[must_use]
    pub fn owner(&self) -> Option<SqOwner> {
        self.ownership.owner()
    }

    /// How many entries were accepted since the ring began, counting around. Exact while no consumer
    /// serves.
    #[must_use]
    pub fn head(&self) -> u32 {
        self.head.load(Ordering::Relaxed)
    }

    /// How many entries have had to wait for room in the completion queue.
    #[must_use]
    pub fn held_back(&self) -> u64 {
        self.held_total.load(Ordering::Relaxed)
    }

    /// The ring's shape.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Ends a sleep of the poller, besides the machine's own wake.
    pub fn ring_doorbell(&self) {
        wake::count_wake(&self.region, word::SQ_WAKES);
    }

    /// The shared memory, for a machine that parks and wakes on one of its words.
    pub fn region(&self) -> &R {
        &self.region
    }
}

/// The queue while one consumer serves it. Dropping it finishes.
#[must_use = "nothing is consumed by beginning alone"]
pub struct Service<'q, R: Region> {
    queue: &'q SubmissionQueue<R>,
    head: u32,
    began_at: u32,
    tail_seen: u32,
    left: u32,
    finished: bool,
    /// The lease was taken for this service alone.
    ends_lease: bool,
}

impl<R: Region> Service<'_, R> {
    /// Accepts the next request, with a place for its completion from `cq`.
    #[inline]
    pub fn next(&mut self, cq: &mut Completer<R>) -> Next {
        self.next_here(cq)
    }

    /// As [`Service::next`], for a loop that takes many: the request is not moved on its way out.
    #[inline(always)]
    pub(crate) fn next_here(&mut self, cq: &mut Completer<R>) -> Next {
        if let Some(why) = self.obstacle() {
            return why;
        }
        match cq.reserve() {
            Ok(place) => Next::Accepted(self.take(), place),
            Err(NoPlace::Full) => {
                self.hold_back();
                Next::HeldBack
            }
            Err(NoPlace::Fault(fault)) => Next::Fault(fault),
        }
    }

    /// Accepts the next request with a place that the caller has reserved before.
    pub fn accept(&mut self, place: CqPlace) -> Result<(CapSqeV2, CqPlace), NotAccepted> {
        match self.obstacle() {
            Some(why) => Err(NotAccepted { place, why }),
            None => Ok((self.take(), place)),
        }
    }

    /// How many requests are pending, if nothing is in the way of accepting one.
    #[inline(always)]
    pub fn pending(&mut self) -> u32 {
        if self.obstacle().is_some() { 0 } else { self.tail_seen.wrapping_sub(self.head) }
    }

    /// The pending request at `place`, counted from 0: read once, and left where it is. Nothing is accepted by reading;
    /// drop the service, or say [`Service::accept_read`].
    #[inline(always)]
    pub fn read(&self, place: u32) -> CapSqeV2 {
        self.queue.geometry.read_sqe(&self.queue.region, self.head.wrapping_add(place))
    }

    /// Accepts the first `count` pending requests as they were read. The caller has carried them out, or put them in
    /// flight, and has had a [`CqPlace`] for each.
    ///
    /// # Panics
    ///
    /// If there are not so many.
    #[inline(always)]
    pub fn accept_read(&mut self, count: u32) {
        assert!(count <= self.tail_seen.wrapping_sub(self.head) && count <= self.left, "more than was read");
        self.none_held_back();
        self.head = self.head.wrapping_add(count);
        self.left -= count;
    }

    /// Why there is nothing to accept, or `None` when there is.
    #[inline]
    fn obstacle(&mut self) -> Option<Next> {
        if self.left == 0 {
            return Some(Next::QuotaSpent);
        }
        if self.queue.ownership.stop_requested() {
            return Some(Next::Stopping);
        }
        if self.head == self.tail_seen {
            // Read once. Acquire: pairs with the producer's release; the entry is complete when the tail shows it.
            let tail = self.queue.region.word(word::SQ_TAIL).load(Ordering::Acquire);
            if tail.wrapping_sub(self.head) > self.queue.geometry.sq_entries() {
                return Some(Next::Fault(RingFault::SqTail { head: self.head, tail }));
            }
            self.tail_seen = tail;
        }
        (self.head == self.tail_seen).then_some(Next::Empty)
    }

    #[inline]
    fn take(&mut self) -> CapSqeV2 {
        debug_assert!(self.head != self.tail_seen && self.left > 0);
        let sqe = self.queue.geometry.read_sqe(&self.queue.region, self.head);
        self.none_held_back();
        self.head = self.head.wrapping_add(1);
        self.left -= 1;
        sqe
    }

    #[inline]
    fn none_held_back(&self) {
        if self.queue.held.load(Ordering::Relaxed) != 0 {
            self.queue.held.store(0, Ordering::Relaxed);
            self.queue.region.word(word::FLAGS).fetch_and(!CQ_HELD_BACK, Ordering::Release);
        }
    }

    /// Counts each entry once, however often it is tried.
    #[cold]
    fn hold_back(&self) {
        let mark = u64::from(self.head) + 1;
        if self.queue.held.load(Ordering::Relaxed) == mark {
            return;
        }
        self.queue.held.store(mark, Ordering::Relaxed);
        let total = self.queue.held_total.load(Ordering::Relaxed) + 1;
        self.queue.held_total.store(total, Ordering::Relaxed);
        self.queue.region.word(word::HELD_BACK).store(total as u32, Ordering::Relaxed);
        // SeqCst as NEED_WAKEUP; the barrier that counts is the one in `prepare_poller_sleep`.
        self.queue.region.word(word::FLAGS).fetch_or(CQ_HELD_BACK, Ordering::SeqCst);
    }

    /// How many were accepted.
    #[must_use]
    pub fn accepted(&self) -> u32 {
        self.head.wrapping_sub(self.began_at)
    }

    /// Publishes the head past everything accepted, then lets others serve.
    pub fn finish(mut self) -> Finished {
        self.finished = true;
        self.publish_and_finish()
    }

    fn publish_and_finish(&self) -> Finished {
        if self.head != self.began_at {
            self.queue.head.store(self.head, Ordering::Relaxed);
            // Release: pairs with the submitter's acquire; a slot is read before it is used again.
            self.queue.region.word(word::SQ_HEAD).store(self.head, Ordering::Release);
        }
        if self.ends_lease {
            self.queue.ownership.finish_and_release();
            return Finished::LeaseEnded;
        }
        self.queue.ownership.finish()
    }
}

impl<R: Region> Drop for Service<'_, R> {
    fn drop(&mut self) {
        if !self.finished {
            let _ = self.publish_and_finish();
        }
    }
}
