//! Waiting on words of memory: who waits, by address.
//!
//! Conserved: a waiter is in the list from before its word was compared until it is woken or withdrawn; whoever changes
//! the word and then wakes finds it.

use super::inbox::Waiter;
use heapless::Vec;
use mainspring_abi::ring::CapError;

const WAITERS: usize = 256;

/// The waiters of one process.
#[derive(Debug, Default)]
pub struct ParkList {
    waiters: Vec<(u64, Waiter), WAITERS>,
}

impl ParkList {
    /// `waiter` waits at `address`.
    pub fn insert(&mut self, address: u64, waiter: Waiter) -> Result<(), CapError> {
        self.waiters.push((address, waiter)).map_err(|_| CapError::Overloaded)
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
