//! Waiting on words of memory: the waiters, by address.
//!
//! Conserved: a waiter is in the list from before its word was compared until it is woken or withdrawn; a thread that
//! changes the word and then wakes finds it.

use super::inbox::Waiter;
use heapless::Vec;

const WAITERS: usize = 256;

/// The waiters of one process.
#[derive(Debug, Default)]
pub struct ParkList {
    waiters: Vec<(u64, Waiter), WAITERS>,
}

impl ParkList {
    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Whether one more can wait.
    #[must_use]
    pub fn has_room(&self) -> bool {
        !self.waiters.is_full()
    }

    /// `waiter` waits at `address`; there is room.
    pub fn insert(&mut self, address: u64, waiter: Waiter) {
        let inserted = self.waiters.push((address, waiter));
        debug_assert!(inserted.is_ok(), "there was room");
    }

    /// The one that has waited longest at `address`.
    pub fn pop(&mut self, address: u64) -> Option<Waiter> {
        let at = self.waiters.iter().position(|(waits_at, _)| *waits_at == address)?;
        Some(self.waiters.remove(at).1)
    }

    /// `waiter` waits no longer.
    pub fn withdraw(&mut self, waiter: Waiter) {
        self.waiters.retain(|(_, one)| *one != waiter);
    }
}
