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
