//! The kernel's objects, in tables of fixed size. A reference is a slot and the generation of its occupant, and is compared
//! with the lock held that proves whose the slot is; a stale one finds nothing. Code that works with an object beyond that
//! lock has a [`hold::Hold`] of it.
//!
//! Lock order, outermost first: an object's own lock (endpoint, park list, process state, life of a thread), a thread's
//! inbox, a process's address space, a CPU's core. No lock is waited for with one of its own kind held, and no thread is
//! woken with an object's lock held.

pub mod caps;
pub mod device;
pub mod endpoint;
pub mod hold;
pub mod inbox;
pub mod memory;
pub mod park;
pub mod process;
pub mod thread;

use core::fmt;

/// A process by slot and generation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ProcessRef {
    /// The table slot.
    pub index: u32,
    /// Which occupant.
    pub generation: u32,
}

impl fmt::Debug for ProcessRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}.{}", self.index, self.generation)
    }
}
