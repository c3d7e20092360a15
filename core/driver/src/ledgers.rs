//! What a process or a session may hold, and what it holds.
//!
//! A [`Profile`] is a template of limits. It cannot be spent. A [`Ledgers`] table has one account for each process and session
//! that was opened with a profile. An account may have a parent: what is charged to it is charged to all its ancestors too.
//!
//! Conserved:
//! * an account holds of each [`Resource`] the sum of what was charged to it and its descendants and not refunded;
//! * no account ever holds more than its limit; a charge that would exceed one limit on the way up changes nothing at all;
//! * an account that was closed is never charged again, and its name is never used again.

use crate::debts::{Debts, Owed};
use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use core::fmt;
use mainspring_abi::Nanos;
use mainspring_sched::identity::{Allocator, Identity};

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resource {
    /// Scheduling contexts.
    Contexts,
    /// CPU time that contexts guarantee, in billionths of one CPU.
    CpuShare,
    /// Bytes of memory.
    Memory,
    /// Threads.
    Threads,
    /// CPU isolation leases.
    Leases,
}

impl Resource {
    /// Every resource, in the order of their limits.
    pub const ALL: [Self; 5] = [Self::Contexts, Self::CpuShare, Self::Memory, Self::Threads, Self::Leases];

    /// As it stands in messages.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Contexts => "contexts",
            Self::CpuShare => "CPU time",
            Self::Memory => "memory",
            Self::Threads => "threads",
            Self::Leases => "leases",
        }
    }
}

/// Amounts of each resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Amounts([u64; Resource::ALL.len()]);

impl Amounts {
    /// Nothing of anything.
    pub const NONE: Self = Self([0; Resource::ALL.len()]);
    /// No limit on anything.
    pub const UNLIMITED: Self = Self([u64::MAX; Resource::ALL.len()]);

    /// The same with `amount` of `resource`.
    #[must_use]
    pub const fn with(mut self, resource: Resource, amount: u64) -> Self {
        self.0[resource as usize] = amount;
        self
    }

    /// How much of `resource`.
    #[must_use]
    pub const fn get(&self, resource: Resource) -> u64 {
        self.0[resource as usize]
    }
}

/// A template of limits, chosen by identity, session or service. Opening a ledger copies it; nothing can be charged to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Profile {
    /// The most that one ledger opened with this profile may hold.
    pub limits: Amounts,
}

/// What a [`LedgerRef`] names.
#[derive(Debug)]
pub enum ResourceLedger {}

/// The name of a ledger. It proves nothing: each use asks [`Ledgers`].
pub type LedgerRef = Identity<ResourceLedger>;

/// Why something was not charged, opened or closed; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LedgerError {
    /// No such ledger, or it is closed.
    Stale(LedgerRef),
    /// A ledger would hold more than its limit.
    Limit {
        /// Which ledger: the one that was charged, or an ancestor of it.
        ledger: LedgerRef,
        /// Of what.
        resource: Resource,
        /// What it holds.
        held: u64,
        /// What was asked for.
        asked: u64,
        /// The most that it may hold.
        limit: u64,
    },
    /// The ledger still holds something, or is the parent of an open one.
    InUse(LedgerRef),
    /// As many ledgers are open as the table has places.
    Full {
        /// How many.
        capacity: usize,
    },
}

impl fmt::Display for LedgerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale(ledger) => write!(f, "ledger {ledger} is closed; ask for another"),
            Self::Limit { ledger, resource, held, asked, limit } => write!(
                f,
                "ledger {ledger} holds {held} of {limit} in {}; {asked} more do not fit: release some first",
                resource.label()
            ),
            Self::InUse(ledger) => write!(f, "ledger {ledger} is in use; release what it holds first"),
            Self::Full { capacity } => write!(f, "{capacity} ledgers are open, the most; close one first"),
        }
    }
}

impl core::error::Error for LedgerError {}

#[derive(Debug)]
struct Account {
    name: LedgerRef,
    parent: Option<LedgerRef>,
    limits: Amounts,
    held: Amounts,
    /// CPU time that was used and has not come back, of contexts that are refunded.
    debts: Debts,
}

/// All ledgers of a machine.
#[derive(Debug, Default)]
pub struct Ledgers {
    accounts: Vec<Account>,
    names: Allocator<ResourceLedger>,
}

impl Ledgers {
    /// No ledgers, and room for `capacity` at a time. Nothing allocates after this.
    pub fn new(capacity: usize) -> Result<Self, TryReserveError> {
        let mut accounts = Vec::new();
        accounts.try_reserve_exact(capacity)?;
        Ok(Self { accounts, names: Allocator::new() })
    }

    /// Opens a ledger with the limits of `profile`, below `parent` if there is one.
    pub fn open(&mut self, profile: &Profile, parent: Option<LedgerRef>) -> Result<LedgerRef, LedgerError> {
        if let Some(parent) = parent {
            self.account(parent)?;
        }
        let full = LedgerError::Full { capacity: self.accounts.capacity() };
        if self.accounts.len() == self.accounts.capacity() {
            return Err(full);
        }
        let name = self.names.fresh().map_err(|_| full)?;
        self.accounts.push(Account {
            name,
            parent,
            limits: profile.limits,
            held: Amounts::NONE,
            debts: Debts::NONE,
        });
        Ok(name)
    }

    /// Closes a ledger that holds nothing and has no descendants.
    pub fn close(&mut self, ledger: LedgerRef) -> Result<(), LedgerError> {
        let account = self.account(ledger)?;
        let is_parent = self.accounts.iter().any(|one| one.parent == Some(ledger));
        if account.held != Amounts::NONE || is_parent {
            return Err(LedgerError::InUse(ledger));
        }
        self.accounts.retain(|one| one.name != ledger);
        Ok(())
    }

    /// Charges `amounts` to `ledger` and to all its ancestors, or to none of them.
    pub fn charge(&mut self, ledger: LedgerRef, amounts: &Amounts) -> Result<(), LedgerError> {
        self.may_charge(ledger, amounts)?;
        self.each_upwards(ledger, |account| {
            for (held, amount) in account.held.0.iter_mut().zip(amounts.0) {
                *held += amount;
            }
        });
        Ok(())
    }

    /// Whether [`Ledgers::charge`] would succeed.
    pub fn may_charge(&self, ledger: LedgerRef, amounts: &Amounts) -> Result<(), LedgerError> {
        let mut next = Some(ledger);
        while let Some(name) = next {
            let account = self.account(name)?;
            for resource in Resource::ALL {
                let (held, asked) = (account.held.get(resource), amounts.get(resource));
                let limit = account.limits.get(resource);
                if held.checked_add(asked).is_none_or(|sum| sum > limit) && asked != 0 {
                    return Err(LedgerError::Limit { ledger: name, resource, held, asked, limit });
                }
            }
            next = account.parent;
        }
        Ok(())
    }

    /// Gives back what was charged to `ledger` before.
    pub fn refund(&mut self, ledger: LedgerRef, amounts: &Amounts) {
        self.each_upwards(ledger, |account| {
            for (held, amount) in account.held.0.iter_mut().zip(amounts.0) {
                debug_assert!(*held >= amount, "more is refunded than was charged");
                *held = held.saturating_sub(amount);
            }
        });
    }

    /// CPU time that was refunded was used, and has not come back: `ledger` and all its ancestors owe it.
    pub(crate) fn owe(&mut self, ledger: LedgerRef, owed: Owed) {
        self.each_upwards(ledger, |account| account.debts.add(owed));
    }

    /// From when on `ledger` and all its ancestors can have the CPU time that they hold beside what they owe.
    pub(crate) fn room_from(&mut self, ledger: LedgerRef, now: Nanos) -> Nanos {
        let mut from = now;
        self.each_upwards(ledger, |account| {
            let [limit, held] = [&account.limits, &account.held].map(|of| of.get(Resource::CpuShare));
            from = from.max(account.debts.room_from(limit.saturating_sub(held), now));
        });
        from
    }

    /// What `ledger` holds, and the most that it may hold.
    pub fn info(&self, ledger: LedgerRef) -> Result<(Amounts, Amounts), LedgerError> {
        self.account(ledger).map(|account| (account.held, account.limits))
    }

    fn account(&self, ledger: LedgerRef) -> Result<&Account, LedgerError> {
        self.accounts.iter().find(|account| account.name == ledger).ok_or(LedgerError::Stale(ledger))
    }

    fn each_upwards(&mut self, ledger: LedgerRef, mut act: impl FnMut(&mut Account)) {
        let mut next = Some(ledger);
        while let Some(name) = next {
            let Some(account) = self.accounts.iter_mut().find(|account| account.name == name) else { return };
            act(account);
            next = account.parent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(contexts: u64, threads: u64) -> Profile {
        let limits = Amounts::NONE.with(Resource::Contexts, contexts).with(Resource::Threads, threads);
        Profile { limits }
    }

    fn contexts(amount: u64) -> Amounts {
        Amounts::NONE.with(Resource::Contexts, amount)
    }

    #[test]
    fn a_charge_counts_for_all_ancestors_or_for_none() {
        let mut ledgers = Ledgers::new(3).expect("three fit");
        let session = ledgers.open(&limits(3, 9), None).expect("room");
        let one = ledgers.open(&limits(2, 9), Some(session)).expect("room");
        let two = ledgers.open(&limits(2, 9), Some(session)).expect("room");
        assert_eq!(ledgers.open(&limits(1, 1), None), Err(LedgerError::Full { capacity: 3 }));
        ledgers.charge(one, &contexts(2)).expect("within both limits");
        ledgers.charge(two, &contexts(1)).expect("within both limits");
        let refused = ledgers.charge(two, &contexts(1));
        let limit =
            LedgerError::Limit { ledger: session, resource: Resource::Contexts, held: 3, asked: 1, limit: 3 };
        assert_eq!(refused, Err(limit), "the ancestor is full, and it is named");
        assert_eq!(ledgers.info(two).map(|(held, _)| held), Ok(contexts(1)), "nothing has changed");
        ledgers.refund(one, &contexts(1));
        ledgers.charge(two, &contexts(1)).expect("there is room again");
        assert_eq!(ledgers.info(session).map(|(held, _)| held), Ok(contexts(3)));
    }

    #[test]
    fn a_ledger_closes_empty_and_its_name_stays_stale() {
        let mut ledgers = Ledgers::new(2).expect("two fit");
        let parent = ledgers.open(&limits(1, 1), None).expect("room");
        let child = ledgers.open(&limits(1, 1), Some(parent)).expect("room");
        assert_eq!(ledgers.close(parent), Err(LedgerError::InUse(parent)), "it has a descendant");
        ledgers.charge(child, &contexts(1)).expect("room");
        assert_eq!(ledgers.close(child), Err(LedgerError::InUse(child)), "it holds something");
        ledgers.refund(child, &contexts(1));
        ledgers.close(child).expect("it is empty");
        assert_eq!(ledgers.charge(child, &contexts(1)), Err(LedgerError::Stale(child)));
        let next = ledgers.open(&limits(1, 1), None).expect("the place is free again");
        assert_ne!(next, child);
        ledgers.close(parent).expect("nothing is below it");
    }

    #[test]
    fn no_amount_wraps() {
        let mut ledgers = Ledgers::new(1).expect("one fits");
        let ledger = ledgers.open(&Profile { limits: Amounts::UNLIMITED }, None).expect("room");
        ledgers.charge(ledger, &contexts(u64::MAX)).expect("within the limit");
        assert!(matches!(ledgers.charge(ledger, &contexts(1)), Err(LedgerError::Limit { .. })));
    }
}
