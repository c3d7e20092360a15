//! Sleeping and waking without a lost wakeup. `README.md` beside this file has the states, the race and the
//! argument; each function here is one side of one of its pairs.

use crate::region::Region;
use crate::sync::{Ordering, fence};
use mainspring_abi::ring::{CQ_HELD_BACK, CQ_WAITING, NEED_WAKEUP, word};

/// Whether publishing obliges the publisher to wake the other side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a sleeping peer sees nothing until it is woken"]
pub enum Wakeup {
    /// The other side is awake, and will look.
    NotNeeded,
    /// The other side sleeps or is about to: ring its doorbell and wake it.
    Needed,
}

/// Proof that the sleeper announced itself, and of the doorbell's state when it did. A machine sleeps only as long
/// as the doorbell still shows this count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "it is what the sleep has to be compared with"]
pub struct Ticket(u32);

impl Ticket {
    /// The count to compare the doorbell word with.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.0
    }
}

/// Whether to sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "sleeping without asking loses wakeups"]
pub enum Sleep {
    /// There is work after all, and the announcement is withdrawn.
    WorkPending,
    /// Sleep, unless the doorbell has moved on from this ticket.
    Park(Ticket),
}

/// Producer: publishes the tail, then looks whether the poller sleeps.
#[inline]
pub(crate) fn publish_tail(region: &impl Region, tail: u32) -> Wakeup {
    // Release: pairs with the poller's acquire of the tail; the entry is complete when the tail shows it.
    region.word(word::SQ_TAIL).store(tail, Ordering::Release);
    // Pairs with the fence in `prepare_poller_sleep`: of our tail and its flag, at least one is seen.
    fence(Ordering::SeqCst);
    // Acquire: pairs with the poller's announcement.
    wanted(region.word(word::FLAGS).load(Ordering::Acquire), NEED_WAKEUP)
}

/// Reader: gives slots back, then looks whether a poller sleeps for want of them.
#[inline]
pub(crate) fn publish_room(region: &impl Region, head: u32) -> Wakeup {
    // Release: pairs with the completer's acquire of the head; the slots are read before they are given back.
    region.word(word::CQ_HEAD).store(head, Ordering::Release);
    // Pairs with the fence in `prepare_poller_sleep`: of our head and its flags, at least one is seen.
    fence(Ordering::SeqCst);
    wanted(region.word(word::FLAGS).load(Ordering::Acquire), NEED_WAKEUP | CQ_HELD_BACK)
}

/// Completer: publishes the completion tail, then looks whether the reader sleeps.
#[inline]
pub(crate) fn publish_completions(region: &impl Region, tail: u32) -> Wakeup {
    // Release: pairs with the reader's acquire of the tail; the entry is complete when the tail shows it.
    region.word(word::CQ_TAIL).store(tail, Ordering::Release);
    // Pairs with the fence in `prepare_reader_sleep`: of our tail and its flag, at least one is seen.
    fence(Ordering::SeqCst);
    wanted(region.word(word::WAITER_FLAGS).load(Ordering::Acquire), CQ_WAITING)
}

#[inline]
fn wanted(flags: u32, all_of: u32) -> Wakeup {
    if flags & all_of == all_of { Wakeup::Needed } else { Wakeup::NotNeeded }
}

/// Poller: announces the sleep, and only then looks once more. `has_work` gets the flags from before the
/// announcement and must itself read what producers publish, the tail and the room, with acquire loads.
pub(crate) fn prepare_poller_sleep(region: &impl Region, has_work: impl FnOnce(u32) -> bool) -> Sleep {
    // First of all: a wake that we were too late to see moves the doorbell away from this ticket. Acquire pairs
    // with `count_wake`: a publisher whose wake we see has published before, so the check below finds its work.
    let ticket = Ticket(region.word(word::SQ_WAKES).load(Ordering::Acquire));
    let before = region.word(word::FLAGS).fetch_or(NEED_WAKEUP, Ordering::SeqCst);
    // The store-to-load barrier. A SeqCst read-modify-write alone orders itself, not the acquire load after it,
    // in the language's memory model (see README.md); the fence pairs with the publishers' fences.
    fence(Ordering::SeqCst);
    if has_work(before) {
        poller_awake(region);
        return Sleep::WorkPending;
    }
    Sleep::Park(ticket)
}

/// Poller: withdraws the announcement.
pub(crate) fn poller_awake(region: &impl Region) {
    // Release, as the protocol says: what the poller did before is visible to a thread that sees the flag gone.
    region.word(word::FLAGS).fetch_and(!NEED_WAKEUP, Ordering::Release);
}

/// Reader: the same protocol on the completion queue. `has_work` gets the tail.
pub(crate) fn prepare_reader_sleep(region: &impl Region, has_work: impl FnOnce(u32) -> bool) -> Sleep {
    // Acquire: pairs with `count_wake`, as above.
    let ticket = Ticket(region.word(word::CQ_WAKES).load(Ordering::Acquire));
    region.word(word::WAITER_FLAGS).fetch_or(CQ_WAITING, Ordering::SeqCst);
    // Pairs with the fence in `publish_completions`.
    fence(Ordering::SeqCst);
    // Acquire: pairs with the completer's release of the tail.
    if has_work(region.word(word::CQ_TAIL).load(Ordering::Acquire)) {
        reader_awake(region);
        return Sleep::WorkPending;
    }
    Sleep::Park(ticket)
}

/// Reader: withdraws the announcement.
pub(crate) fn reader_awake(region: &impl Region) {
    region.word(word::WAITER_FLAGS).fetch_and(!CQ_WAITING, Ordering::Release);
}

/// Rings a doorbell, so that a sleep whose ticket is older does not begin.
pub(crate) fn count_wake(region: &impl Region, doorbell: usize) {
    // Release: pairs with the acquire of the ticket.
    region.word(doorbell).fetch_add(1, Ordering::Release);
}
