//! What each process makes the kernel hold.
//!
//! Everything that a program can make the kernel keep for it is charged to the program's [`Ledger`] before the kernel takes
//! it. A [`Charge`] is the receipt: it belongs to whatever was made, grows and shrinks with it, and refunds the rest when it
//! is dropped. A ledger is never inherited: whoever holds a thing pays for it, and a second holder pays again.
//!
//! Conserved:
//!
//! - A ledger's amount of each kind is the sum of the charges that exist for it, and never above the kind's limit.
//! - Frames: every ledger may always have [`Pool::guaranteed`] frames. What a ledger has beyond that comes from the shared
//!   part of the pool, which is never overdrawn. So the frames charged in all are never more than [`Pool::open`] was given,
//!   and no process can take the guaranteed frames of another, one that does not exist yet included.
//! - A refusal changes nothing.

use core::sync::atomic::{AtomicU64, Ordering};
use spin::Mutex;

/// What is counted. Frames come from the pool; the others are places in tables of fixed size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Pages of physical memory: the process's own, its page tables, its rings, and objects that it holds.
    Frames,
    /// Pages of the address space that are mapped or claimed, whoever holds the memory.
    Mapped,
    /// Threads that live.
    Threads,
    /// Entries of the table of capabilities.
    Capabilities,
    /// Calls that wait at endpoints or are being served.
    EndpointPlaces,
    /// Sleeps pending.
    Sleeps,
    /// Memory objects made.
    Objects,
}

/// How many kinds there are.
pub const KINDS: usize = 7;

/// The most that one ledger may have of each kind, in the order of [`Kind`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits(pub [u64; KINDS]);

/// Why a charge was refused. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The ledger would have more than its limit: give something back first.
    Limit,
    /// The machine has no more to give beyond what is guaranteed to others: try again later, or with less.
    Exhausted,
}

/// The frames of the machine.
#[derive(Debug)]
pub struct Pool {
    guaranteed: AtomicU64,
    shared: AtomicU64,
}

impl Pool {
    /// A pool with nothing in it, until it is opened.
    #[must_use]
    pub const fn new() -> Self {
        Self { guaranteed: AtomicU64::new(0), shared: AtomicU64::new(0) }
    }

    /// Divides `frames` among `ledgers` ledgers: each is guaranteed `guaranteed`, or less where half of the frames would
    /// not do for that, and the rest is shared. Called once, before anything is charged.
    pub fn open(&self, frames: u64, ledgers: u64, guaranteed: u64) {
        let each = guaranteed.min(frames / 2 / ledgers.max(1));
        self.guaranteed.store(each, Ordering::Relaxed);
        self.shared.store(frames - each * ledgers, Ordering::Relaxed);
    }

    /// Frames that every ledger may have whatever others do.
    #[must_use]
    pub fn guaranteed(&self) -> u64 {
        self.guaranteed.load(Ordering::Relaxed)
    }

    /// Frames that nobody has and nobody is guaranteed.
    #[must_use]
    pub fn shared(&self) -> u64 {
        self.shared.load(Ordering::Relaxed)
    }

    /// What an amount takes from the shared part.
    fn beyond(&self, frames: u64) -> u64 {
        frames.saturating_sub(self.guaranteed())
    }

    fn take(&self, frames: u64) -> Result<(), Refused> {
        let take = |left: u64| left.checked_sub(frames);
        // Relaxed: the amount is all that is shared; the frames themselves change hands under their own lock.
        match self.shared.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Ok(()),
            Err(_) => Err(Refused::Exhausted),
        }
    }

    fn give_back(&self, frames: u64) {
        self.shared.fetch_add(frames, Ordering::Relaxed);
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

/// The account of one process.
#[derive(Debug)]
pub struct Ledger<'p> {
    pool: &'p Pool,
    limits: Limits,
    /// A lock and not atomics: what a change takes from the pool depends on the amount before it.
    amounts: Mutex<[u64; KINDS]>,
}

impl<'p> Ledger<'p> {
    /// An empty account.
    #[must_use]
    pub const fn new(pool: &'p Pool, limits: Limits) -> Self {
        Self { pool, limits, amounts: Mutex::new([0; KINDS]) }
    }

    /// What is charged of `kind`.
    #[must_use]
    pub fn amount(&self, kind: Kind) -> u64 {
        self.amounts.lock()[kind as usize]
    }

    /// The most that can be charged of `kind`.
    #[must_use]
    pub fn limit(&self, kind: Kind) -> u64 {
        self.limits.0[kind as usize]
    }

    /// Whether nothing is charged.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.amounts.lock().iter().all(|amount| *amount == 0)
    }

    /// Charges `amount` of `kind`, or nothing.
    pub fn charge(&self, kind: Kind, amount: u64) -> Result<Charge<'_>, Refused> {
        let mut charge = Charge { ledger: self, kind, amount: 0 };
        charge.grow(amount)?;
        Ok(charge)
    }

    fn add(&self, kind: Kind, more: u64) -> Result<(), Refused> {
        let mut amounts = self.amounts.lock();
        let before = amounts[kind as usize];
        let after = before.checked_add(more).filter(|after| *after <= self.limit(kind));
        let after = after.ok_or(Refused::Limit)?;
        if kind == Kind::Frames {
            self.pool.take(self.pool.beyond(after) - self.pool.beyond(before))?;
        }
        amounts[kind as usize] = after;
        Ok(())
    }

    fn subtract(&self, kind: Kind, less: u64) {
        let mut amounts = self.amounts.lock();
        let before = amounts[kind as usize];
        debug_assert!(less <= before, "more is refunded than was charged");
        let after = before.saturating_sub(less);
        amounts[kind as usize] = after;
        if kind == Kind::Frames {
            self.pool.give_back(self.pool.beyond(before) - self.pool.beyond(after));
        }
    }
}

/// What has been charged for one thing. Dropping it refunds it.
#[derive(Debug)]
#[must_use = "a charge that is dropped is refunded"]
pub struct Charge<'l> {
    ledger: &'l Ledger<'l>,
    kind: Kind,
    amount: u64,
}

impl<'l> Charge<'l> {
    /// How much.
    #[must_use]
    pub fn amount(&self) -> u64 {
        self.amount
    }

    /// Charges `more`, or nothing.
    pub fn grow(&mut self, more: u64) -> Result<(), Refused> {
        self.ledger.add(self.kind, more)?;
        self.amount += more;
        Ok(())
    }

    /// Refunds `less`, which is at most the amount.
    pub fn shrink(&mut self, less: u64) {
        debug_assert!(less <= self.amount, "more is refunded than was charged");
        let less = less.min(self.amount);
        self.amount -= less;
        self.ledger.subtract(self.kind, less);
    }

    /// Moves `part` of it into a charge of its own; the ledger's amount stays the same.
    pub fn split(&mut self, part: u64) -> Charge<'l> {
        debug_assert!(part <= self.amount, "more is split off than was charged");
        let part = part.min(self.amount);
        self.amount -= part;
        Charge { ledger: self.ledger, kind: self.kind, amount: part }
    }
}

impl<'l> Charge<'l> {
    /// Adds what `other` has been charged to it; the ledger's amount stays the same. Charges of another ledger or kind are
    /// given back as they are.
    pub fn merge(&mut self, mut other: Charge<'l>) -> Option<Charge<'l>> {
        if !core::ptr::eq(self.ledger, other.ledger) || self.kind != other.kind {
            return Some(other);
        }
        self.amount += core::mem::take(&mut other.amount);
        None
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        if self.amount > 0 {
            self.ledger.subtract(self.kind, self.amount);
        }
    }
}
