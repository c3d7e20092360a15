//! What the records so far say, so that the next record need not repeat it.

use super::Stamp;

/// The state of a writer of records. A reader has the same: see [`DecodeState`](super::DecodeState).
#[derive(Clone, Copy, Debug)]
pub struct EncodeState {
    /// Where and when the last record was.
    pub(super) last: Stamp,
    /// How long the slice of the last small decision was.
    pub(super) slice: u32,
}

impl EncodeState {
    /// Before the first record.
    #[must_use]
    pub const fn new() -> Self {
        Self { last: Stamp::START, slice: 0 }
    }

    /// Where and when the last record was.
    #[must_use]
    pub fn last(&self) -> Stamp {
        self.last
    }
}

impl Default for EncodeState {
    fn default() -> Self {
        Self::new()
    }
}
