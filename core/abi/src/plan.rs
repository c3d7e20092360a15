//! A workload as 64-bit words, for the user program that plays it on the kernel.
//!
//! ```text
//! MAGIC, duration in ns, seed, how many tables
//! each table: process, instances, weight, latency class, request in ns (0: by class), CPU bits (0: all),
//!             earliest and latest start (NONE: spawned), times (NONE: for ever), how many steps, then the steps
//! each step:  one of `step`, and three words
//! ```
//!
//! Every process reads the whole plan and plays the tables that are its own, by the number that it is started with.

use crate::frame::MAX_NOTE;

/// The first word.
pub const MAGIC: u64 = u64::from_le_bytes(*b"MSPLAN02");

/// Absent.
pub const NONE: u64 = u64::MAX;

/// Steps. A span is its least and greatest length in ns; a timeout is a span, or NONE; a target is a table and an
/// instance of it, or NONE for all.
pub mod step {
    /// Span.
    pub const RUN: u64 = 0;
    /// Nothing.
    pub const RUN_FOREVER: u64 = 1;
    /// Span.
    pub const SLEEP: u64 = 2;
    /// Period.
    pub const EVERY: u64 = 3;
    /// Nothing.
    pub const YIELD: u64 = 4;
    /// Timeout.
    pub const PARK: u64 = 5;
    /// Target.
    pub const UNPARK: u64 = 6;
    /// Endpoint, timeout.
    pub const CALL: u64 = 7;
    /// Endpoint, timeout.
    pub const RECV: u64 = 8;
    /// Nothing.
    pub const REPLY: u64 = 9;
    /// Table.
    pub const SPAWN: u64 = 10;
    /// Target, longest wait.
    pub const JOIN: u64 = 11;
    /// Weight.
    pub const WEIGHT: u64 = 12;
    /// Nothing.
    pub const EXIT: u64 = 13;
}

/// Words before the first table.
pub const HEADER_WORDS: usize = 4;
/// Words of a table before its steps.
pub const TABLE_WORDS: usize = 10;
/// Words of a step.
pub const STEP_WORDS: usize = 4;

/// What a workload program says of itself: the contents of a note frame ([`crate::frame::Frame::Note`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Note {
    /// An instance began a life as the kernel's thread in this slot.
    Started {
        /// Its number, counted over all tables.
        instance: u32,
        /// The slot.
        slot: u32,
    },
    /// What an instance counted in all its lives.
    Counted {
        /// Its number, counted over all tables.
        instance: u32,
        /// Multiples of its period that it was late for.
        misses: u64,
        /// Waits that ended by their timeout.
        timeouts: u64,
        /// Steps that the kernel refused.
        refusals: u64,
    },
}

/// Bytes of a [`Note`].
pub const NOTE_BYTES: usize = 5 * 8;

const _: () = assert!(NOTE_BYTES <= MAX_NOTE);

const STARTED: u64 = 1;
const COUNTED: u64 = 2;

impl Note {
    /// As bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; NOTE_BYTES] {
        let words = match self {
            Self::Started { instance, slot } => [STARTED, instance.into(), slot.into(), 0, 0],
            Self::Counted { instance, misses, timeouts, refusals } => {
                [COUNTED, instance.into(), misses, timeouts, refusals]
            }
        };
        let mut bytes = [0; NOTE_BYTES];
        for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        bytes
    }

    /// From bytes; `None` if they are no note of a workload program.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; NOTE_BYTES] = bytes.try_into().ok()?;
        let mut words = [0; NOTE_BYTES / 8];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let [kind, instance, a, b, c] = words;
        let instance = u32::try_from(instance).ok()?;
        match kind {
            STARTED if (b, c) == (0, 0) => Some(Self::Started { instance, slot: u32::try_from(a).ok()? }),
            COUNTED => Some(Self::Counted { instance, misses: a, timeouts: b, refusals: c }),
            _ => None,
        }
    }
}
