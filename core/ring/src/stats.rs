//! What became of the entries of a ring.

/// Counts of a ring over all its lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RingStats {
    /// Entries that were submitted.
    pub submitted: u64,
    /// Entries whose completion was posted.
    pub completed: u64,
    /// Of those, entries that were dropped because they were late.
    pub dropped: u64,
    /// Of those, entries that were served though they were late.
    pub late: u64,
    /// Completions that had to wait for a place.
    pub overflow: u64,
    /// How often a submission had to wake the poller.
    pub wakeups: u64,
    /// How often the poller slept.
    pub sleeps: u64,
    /// Time that the poller spun with nothing to do.
    pub spins_ns: u64,
    /// Time spent serving entries.
    pub busy_ns: u64,
}
