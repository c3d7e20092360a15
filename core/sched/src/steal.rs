//! What a CPU has to give to others.
//!
//! Every CPU publishes an [`Offer`] after each of its events: the tag of the first thread in its queue that may run
//! anywhere, relative to its own clock, since every queue's clock has its own origin. Threads bound to some CPUs are
//! rare and not in the word; of them an offer tells only where they may go, and a thief asks those queues.

use mainspring_abi::CpuId;

/// What a CPU has to give.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// Deadline of its first unbound thread minus its clock: the lower, the more overdue. [`Offer::NOTHING`] if none.
    pub due_in: i64,
    /// CPUs (folded onto 64 bits) that its bound threads may use.
    pub bound_reach: u64,
}

impl Offer {
    /// The value of `due_in` for a queue without unbound threads.
    pub const NOTHING: i64 = i64::MAX;

    /// Nothing to give to any CPU.
    pub const NONE: Self = Self { due_in: Self::NOTHING, bound_reach: 0 };

    /// Whether `thief` might find a bound thread here.
    #[must_use]
    pub fn may_reach(&self, thief: CpuId) -> bool {
        self.bound_reach >> (thief.index() % 64) & 1 == 1
    }
}
