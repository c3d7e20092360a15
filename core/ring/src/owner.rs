//! Which thread may consume the submission queue.
//!
//! The record stands in the consumer's own memory, outside the shared ring. It is one word, so that every transition
//! is one compare-and-swap:
//!
//! ```text
//!  63                                  8 7     4  3        2       1        0
//! +-------------------------------------+-------+--------+-------+------+---------+
//! | generation of the last lease        | owner | polled | closed| stop | serving |
//! +-------------------------------------+-------+--------+-------+------+---------+
//! ```
//!
//! | bit | set by | cleared by | while it is set |
//! | --- | --- | --- | --- |
//! | serving | the owner, or a borrower of the poller's lease, in `begin` | the same, in `finish` | head and entries are read by it alone; the generation does not move |
//! | stop | `revoke` during service | `finish`, which then ends the lease | no further entry is accepted |
//! | polled | the syscall owner, in `offer_to_poller` | `end_polling` | only a poller can acquire |
//! | closed | `close` | never | no consumer can acquire |
//!
//! Conserved: the head moves only under *serving*, and *serving* is held by one at a time, so an entry is accepted
//! once. A lease ends either while no consumer serves or in the server's own `finish`, after the head was published
//! past everything accepted: an ended lease can move nothing, and nothing accepted is left for the next owner to
//! replay.

use crate::sync::{AtomicU64, Ordering};
use core::fmt;
use mainspring_abi::ring::CapError;

const SERVING: u64 = 1 << 0;
const STOP: u64 = 1 << 1;
const CLOSED: u64 = 1 << 2;
const POLLED: u64 = 1 << 3;
const OWNER_SHIFT: u32 = 4;
const OWNER_MASK: u64 = 0xf << OWNER_SHIFT;
const GENERATION_SHIFT: u32 = 8;
const GENERATION_MAX: u64 = u64::MAX >> GENERATION_SHIFT;

/// Which consumer owns the queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum SqOwner {
    /// The ring's own thread, inside `cap_enter`.
    Syscall = 1,
    /// The bounded service of the current thread's ring at a timer interrupt.
    Timer = 2,
    /// The poller.
    Sqpoll = 3,
}

impl SqOwner {
    const fn bits(self) -> u64 {
        (self as u64) << OWNER_SHIFT
    }

    const fn of(word: u64) -> Option<Self> {
        match (word & OWNER_MASK) >> OWNER_SHIFT {
            1 => Some(Self::Syscall),
            2 => Some(Self::Timer),
            3 => Some(Self::Sqpoll),
            _ => None,
        }
    }
}

/// The right to consume, until it is released or revoked.
///
/// It cannot be copied, and its generation is never used again: a lease that has ended matches no later one.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a lease that is dropped keeps everybody else out; release it"]
pub struct SqLease {
    generation: u64,
    owner: SqOwner,
}

impl SqLease {
    /// Never zero.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whose it is.
    #[must_use]
    pub fn owner(&self) -> SqOwner {
        self.owner
    }

    const fn matches(&self, word: u64) -> bool {
        word >> GENERATION_SHIFT == self.generation && word & OWNER_MASK == self.owner.bits()
    }
}

/// Why the caller may not consume. Nothing was consumed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SqRefusal {
    /// The lease has ended.
    Stale,
    /// Another consumer holds the queue now, or it is the poller's; try again later.
    Busy,
    /// The ring is being torn down.
    Closed,
}

impl SqRefusal {
    /// The code that a caller across the ring's boundary gets.
    #[must_use]
    pub const fn code(self) -> CapError {
        match self {
            Self::Stale => CapError::StaleSqConsumer,
            Self::Busy => CapError::Busy,
            Self::Closed => CapError::RingClosed,
        }
    }
}

impl fmt::Display for SqRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.code().fmt(f)
    }
}

impl core::error::Error for SqRefusal {}

/// What a revocation did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "after AfterService the memory is still in use"]
pub enum Revoked {
    /// The lease has ended.
    Now,
    /// Its holder is serving: the lease ends when it finishes, past what it has accepted.
    AfterService,
    /// There was no lease.
    NotOwned,
}

/// What the end of a service did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the lease may have ended"]
pub enum Finished {
    /// The lease goes on.
    LeaseKept,
    /// A stop was asked for meanwhile: the lease has ended.
    LeaseEnded,
}

/// The ownership word.
pub(crate) struct Ownership(AtomicU64);

impl Ownership {
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// One transition. `step` says what the word becomes, or why it does not.
    fn step<T, E>(&self, mut step: impl FnMut(u64) -> Result<(u64, T), E>) -> Result<T, E> {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let (next, outcome) = step(word)?;
            // Acquire: pairs with the release of the consumer that served or owned before; its head is ours to
            // go on from. Release: pairs with the acquire of the next consumer.
            match self.0.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Ok(outcome),
                Err(now) => word = now,
            }
        }
    }

    pub fn acquire(&self, owner: SqOwner) -> Result<SqLease, SqRefusal> {
        self.step(|word| Self::acquired(word, owner))
    }

    #[inline]
    fn acquired(word: u64, owner: SqOwner) -> Result<(u64, SqLease), SqRefusal> {
        if word & CLOSED != 0 {
            return Err(SqRefusal::Closed);
        }
        let for_poller = word & POLLED != 0;
        if word & OWNER_MASK != 0 || for_poller != (owner == SqOwner::Sqpoll) {
            return Err(SqRefusal::Busy);
        }
        let generation = word >> GENERATION_SHIFT;
        if generation == GENERATION_MAX {
            // Wrapping would revive the oldest stale lease.
            return Err(SqRefusal::Closed);
        }
        let generation = generation + 1;
        let next = generation << GENERATION_SHIFT | owner.bits() | word & POLLED;
        Ok((next, SqLease { generation, owner }))
    }

    pub fn begin(&self, lease: &SqLease) -> Result<(), SqRefusal> {
        self.step(|word| {
            if !lease.matches(word) {
                return Err(SqRefusal::Stale);
            }
            if word & SERVING != 0 { Err(SqRefusal::Busy) } else { Ok((word | SERVING, ())) }
        })
    }

    /// [`Ownership::acquire`] and [`Ownership::begin`] in one transition.
    #[inline]
    pub fn acquire_serving(&self, owner: SqOwner) -> Result<SqLease, SqRefusal> {
        self.step(|word| {
            let (next, lease) = Self::acquired(word, owner)?;
            Ok((next | SERVING, lease))
        })
    }

    /// [`Ownership::finish`] and [`Ownership::release`] in one transition, by the consumer that
    /// [`Ownership::acquire_serving`] let in: the lease has ended afterwards, whether or not that was asked for
    /// meanwhile.
    #[inline]
    pub fn finish_and_release(&self) {
        let ended: Result<(), core::convert::Infallible> = self.step(|word| {
            debug_assert!(word & SERVING != 0, "only who serves can finish");
            Ok((word & !(SERVING | STOP | OWNER_MASK), ()))
        });
        match ended {
            Ok(()) => {}
        }
    }

    /// Serving on the poller's lease, by a caller that does not hold it.
    pub fn begin_borrowed(&self) -> Result<(), SqRefusal> {
        self.step(|word| {
            if word & CLOSED != 0 {
                return Err(SqRefusal::Closed);
            }
            let free_for_us = SqOwner::of(word) == Some(SqOwner::Sqpoll) && word & SERVING == 0;
            if free_for_us { Ok((word | SERVING, ())) } else { Err(SqRefusal::Busy) }
        })
    }

    pub fn finish(&self) -> Finished {
        let ended: Result<_, core::convert::Infallible> = self.step(|word| {
            debug_assert!(word & SERVING != 0, "only who serves can finish");
            let kept = word & !SERVING;
            if word & STOP == 0 {
                Ok((kept, Finished::LeaseKept))
            } else {
                Ok((kept & !(STOP | OWNER_MASK), Finished::LeaseEnded))
            }
        });
        match ended {
            Ok(finished) => finished,
        }
    }

    pub fn release(&self, lease: &SqLease) -> Result<(), SqRefusal> {
        self.step(|word| {
            if !lease.matches(word) {
                return Err(SqRefusal::Stale);
            }
            if word & SERVING != 0 {
                // A borrower is at work; it ends the lease for us.
                Ok((word | STOP, ()))
            } else {
                Ok((word & !OWNER_MASK, ()))
            }
        })
    }

    pub fn revoke(&self) -> Revoked {
        self.revoke_and_set(0)
    }

    pub fn close(&self) -> Revoked {
        self.revoke_and_set(CLOSED)
    }

    fn revoke_and_set(&self, also: u64) -> Revoked {
        let revoked: Result<_, core::convert::Infallible> = self.step(|word| {
            Ok(match SqOwner::of(word) {
                None => (word | also, Revoked::NotOwned),
                Some(_) if word & SERVING != 0 => (word | STOP | also, Revoked::AfterService),
                Some(_) => (word & !OWNER_MASK | also, Revoked::Now),
            })
        });
        match revoked {
            Ok(revoked) => revoked,
        }
    }

    /// From the next release on, only a poller can acquire. Only the live syscall owner can offer it.
    pub fn offer_to_poller(&self, lease: &SqLease) -> Result<(), SqRefusal> {
        self.step(|word| {
            if !lease.matches(word) {
                return Err(SqRefusal::Stale);
            }
            if lease.owner != SqOwner::Syscall || word & POLLED != 0 {
                return Err(SqRefusal::Busy);
            }
            Ok((word | POLLED, ()))
        })
    }

    /// Back to syscall mode: callers can acquire again as soon as no lease is left.
    pub fn end_polling(&self) {
        let ended: Result<(), core::convert::Infallible> = self.step(|word| Ok((word & !POLLED, ())));
        match ended {
            Ok(()) => {}
        }
    }

    pub fn holds(&self, lease: &SqLease) -> bool {
        // Acquire: pairs with the release of a revocation; a thread that sees its doorbell sees that the lease has
        // ended.
        lease.matches(self.0.load(Ordering::Acquire))
    }

    #[inline]
    pub fn stop_requested(&self) -> bool {
        // Relaxed: only a hint to stop sooner; `finish` decides.
        self.0.load(Ordering::Relaxed) & STOP != 0
    }

    pub fn owner(&self) -> Option<SqOwner> {
        // Acquire: a thread that sees no owner sees also the head that the last owner left.
        SqOwner::of(self.0.load(Ordering::Acquire))
    }
}
