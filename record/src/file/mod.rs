//! The flight record file (`.msr`).
//!
//! ```text
//! magic    8 bytes   "MSRECORD"
//! version  u16       the reader refuses every other than its own
//! header   block     the machine: workload name, seed, CPUs, seats, policy, quantum, tick, floor, thread names
//! records  blocks    whole records of `mainspring_sched::flight`, never split over two blocks
//! end      block     the word "end", number of bytes in the blocks of records, last time, digest of the decisions,
//!                    and what the machine tells besides, as the JSON of a report
//!
//! block = length u32, CRC-32 of the payload u32, payload
//! ```
//!
//! Integers are little-endian. A file without its end block is truncated, one whose checksum fails is damaged, and
//! both are refused: a replay never works on half a story.

mod block;
mod read;
mod write;

pub use read::{Item, Malformed, RecordError, RecordReader};
pub use write::Recorder;

use mainspring_abi::{Nanos, Policy};

const MAGIC: [u8; 8] = *b"MSRECORD";
const VERSION: u16 = mainspring_sched::flight::FORMAT;
const END: &[u8; 3] = b"end";

/// No block is longer; what claims to be is damaged.
const MAX_BLOCK: usize = 64 << 20;

/// The machine that a record is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The workload file.
    pub workload: String,
    /// The seed of the run.
    pub seed: u64,
    /// How many CPUs.
    pub cpus: usize,
    /// How many seats each CPU reserved.
    pub seats: usize,
    /// Best-effort policy.
    pub policy: Policy,
    /// Best-effort quantum.
    pub quantum: Nanos,
    /// Tick period.
    pub tick: Nanos,
    /// What best effort keeps, in parts per million.
    pub floor_ppm: u32,
    /// Names of the threads, by index.
    pub threads: Vec<String>,
}

/// What the end block says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// How many bytes the blocks of records hold.
    pub bytes: u64,
    /// When the run ended.
    pub end: Nanos,
    /// Digest of the decisions.
    pub digest: String,
    /// What the CPUs do not know of the run, as JSON of a report. Empty if the machine has nothing to add.
    pub summary: String,
}
