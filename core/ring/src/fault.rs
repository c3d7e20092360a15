use core::fmt;
use mainspring_abi::ring::CapError;

/// A shared index has a value that no honest peer writes. Nothing was consumed or posted because of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RingFault {
    /// The submitter claims more entries than the queue has slots.
    SqTail {
        /// Consumed so far.
        head: u32,
        /// What the peer wrote.
        tail: u32,
    },
    /// The consumer claims to have consumed what was never published, or to have given entries back.
    SqHead {
        /// What the peer wrote.
        head: u32,
        /// Published so far.
        tail: u32,
    },
    /// The reader claims to have read completions that were never posted, or to have unread some.
    CqHead {
        /// What the peer wrote.
        head: u32,
        /// Posted so far.
        tail: u32,
    },
    /// The consumer claims more completions than the queue has slots.
    CqTail {
        /// Read so far.
        head: u32,
        /// What the peer wrote.
        tail: u32,
    },
}

impl RingFault {
    /// The code that a caller across the ring's boundary gets.
    #[must_use]
    pub const fn code(self) -> CapError {
        CapError::RingCorrupt
    }
}

impl fmt::Display for RingFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, head, tail) = match *self {
            Self::SqTail { head, tail } => ("submission tail", head, tail),
            Self::SqHead { head, tail } => ("submission head", head, tail),
            Self::CqHead { head, tail } => ("completion head", head, tail),
            Self::CqTail { head, tail } => ("completion tail", head, tail),
        };
        write!(f, "the peer wrote an impossible {word}: head {head}, tail {tail}")
    }
}

impl core::error::Error for RingFault {}
