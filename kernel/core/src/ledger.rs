//! What each process makes the kernel hold.
//!
//! Everything that a program can make the kernel keep for it is charged to the program's [`Ledger`] before the kernel takes
//! it. A [`Charge`] is the receipt: it belongs to whatever was made, grows and shrinks with it, and refunds the rest when it
//! is dropped. A ledger is never inherited: the holder of a thing pays for it, and a second holder pays again.
//!
//! Conserved:
//!
//! - A ledger's amount of each kind is the sum of the charges that exist for it, and never above the kind's limit.
//! - Frames, threads and processes come from a [`Pool`]: every ledger may always have [`Pool::guaranteed`] of them. What a ledger has
//!   beyond that comes from the shared part of the pool, which is never overdrawn. So the frames charged in all are never more
//!   than [`Pool::open`] was given, and no process can take what is guaranteed to another, one that does not exist yet
//!   included.
//! - A refusal changes nothing.

use core::sync::atomic::{AtomicU64, Ordering};
use spin::Mutex;

/// What is counted. Frames, threads and processes come from pools; the others are places in tables that have room for every
/// process's limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Pages of physical memory: the process's own, its page tables, its rings, and objects that it holds.
    Frames,
    /// Pages of the address space that are mapped or claimed, whichever process holds the memory.
    Mapped,
    /// Places of the table of threads: threads that live, and those whose end can still be asked for.
    Threads,
    /// Entries of the table of capabilities.
    Capabilities,
    /// Calls that wait at endpoints or are being served.
    EndpointPlaces,
    /// Sleeps pending.
    Sleeps,
    /// Memory objects held.
    Objects,
    /// Places of the table of processes: charged to the ledger of a family, and to no process's.
    Processes,
}

/// How many kinds there are.
pub const KINDS: usize = 8;

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

/// What the machine has of one kind.
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

    /// Divides `all` among `ledgers` ledgers: each is guaranteed `guaranteed`, or less where half of all would not do for
    /// that, and the rest is shared. Called once, before anything is charged.
    pub fn open(&self, all: u64, ledgers: u64, guaranteed: u64) {
        let each = guaranteed.min(all / 2 / ledgers.max(1));
        self.guaranteed.store(each, Ordering::Relaxed);
        self.shared.store(all - each * ledgers, Ordering::Relaxed);
    }

    /// What every ledger may have whatever others do.
    #[must_use]
    pub fn guaranteed(&self) -> u64 {
        self.guaranteed.load(Ordering::Relaxed)
    }

    /// The amount that no ledger has and that is guaranteed to none.
    #[must_use]
    pub fn shared(&self) -> u64 {
        self.shared.load(Ordering::Relaxed)
    }

    /// What an amount takes from the shared part.
    fn beyond(&self, amount: u64) -> u64 {
        amount.saturating_sub(self.guaranteed())
    }

    fn take(&self, amount: u64) -> Result<(), Refused> {
        let take = |left: u64| left.checked_sub(amount);
        // Relaxed: the amount is all that is shared; the things themselves change hands under their own lock.
        match self.shared.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Ok(()),
            Err(_) => Err(Refused::Exhausted),
        }
    }

    fn give_back(&self, amount: u64) {
        self.shared.fetch_add(amount, Ordering::Relaxed);
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

/// What the machine has of the kinds that processes share.
#[derive(Debug, Default)]
pub struct Pools {
    /// Pages of physical memory.
    pub frames: Pool,
    /// Places of the table of threads.
    pub threads: Pool,
    /// Places of the table of processes.
    pub processes: Pool,
}

impl Pools {
    /// With nothing in them, until they are opened.
    #[must_use]
    pub const fn new() -> Self {
        Self { frames: Pool::new(), threads: Pool::new(), processes: Pool::new() }
    }

    fn of(&self, kind: Kind) -> Option<&Pool> {
        match kind {
            Kind::Frames => Some(&self.frames),
            Kind::Threads => Some(&self.threads),
            Kind::Processes => Some(&self.processes),
            _ => None,
        }
    }
}

/// The account of one process.
#[derive(Debug)]
pub struct Ledger<'p> {
    pools: &'p Pools,
    limits: Limits,
    amounts: [AtomicU64; KINDS],
    /// Held while an amount of a pool's kind changes: what the change takes from the pool depends on the amount before it.
    pooled: Mutex<()>,
}

impl<'p> Ledger<'p> {
    /// An empty account.
    #[must_use]
    pub const fn new(pools: &'p Pools, limits: Limits) -> Self {
        Self { pools, limits, amounts: [const { AtomicU64::new(0) }; KINDS], pooled: Mutex::new(()) }
    }

    /// What is charged of `kind`.
    #[must_use]
    pub fn amount(&self, kind: Kind) -> u64 {
        self.amounts[kind as usize].load(Ordering::Relaxed)
    }

    /// The most that can be charged of `kind`.
    #[must_use]
    pub fn limit(&self, kind: Kind) -> u64 {
        self.limits.0[kind as usize]
    }

    /// Whether nothing is charged.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.amounts.iter().all(|amount| amount.load(Ordering::Relaxed) == 0)
    }

    /// Charges `amount` of `kind`, or nothing.
    pub fn charge(&self, kind: Kind, amount: u64) -> Result<Charge<'_>, Refused> {
        let mut charge = Charge { ledger: self, kind, amount: 0 };
        charge.grow(amount)?;
        Ok(charge)
    }

    /// Charges `more` of `kind`, or nothing, for a thing that has no room for a [`Charge`] of its own. The code that ends
    /// that thing calls [`Ledger::refund`].
    #[inline]
    pub fn add(&self, kind: Kind, more: u64) -> Result<(), Refused> {
        let grown = |before: u64| before.checked_add(more).filter(|after| *after <= self.limit(kind));
        let amount = &self.amounts[kind as usize];
        let Some(pool) = self.pools.of(kind) else {
            // Relaxed: the amount is all that is shared.
            let added = amount.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown);
            return added.map(|_| ()).map_err(|_| Refused::Limit);
        };
        let _alone = self.pooled.lock();
        let before = amount.load(Ordering::Relaxed);
        let after = grown(before).ok_or(Refused::Limit)?;
        pool.take(pool.beyond(after) - pool.beyond(before))?;
        amount.store(after, Ordering::Relaxed);
        Ok(())
    }

    /// Gives back `less` of `kind`, which was charged.
    #[inline]
    pub fn refund(&self, kind: Kind, less: u64) {
        let amount = &self.amounts[kind as usize];
        let Some(pool) = self.pools.of(kind) else {
            let before = amount.fetch_sub(less, Ordering::Relaxed);
            debug_assert!(less <= before, "more is refunded than was charged");
            return;
        };
        let _alone = self.pooled.lock();
        let before = amount.load(Ordering::Relaxed);
        debug_assert!(less <= before, "more is refunded than was charged");
        let after = before.saturating_sub(less);
        amount.store(after, Ordering::Relaxed);
        pool.give_back(pool.beyond(before) - pool.beyond(after));
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
        self.ledger.refund(self.kind, less);
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
            self.ledger.refund(self.kind, self.amount);
        }
    }
}
