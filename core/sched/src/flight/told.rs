//! What the records so far have told, so that the next need not repeat it.

use super::Place;

/// For a writer of records; before the first of them. A reader knows the same: see [`Past`](super::Past).
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// Where and when the last record was.
    pub(super) last: Place,
    /// How long the slice was that a small decision told last.
    pub(super) slice: u32,
}

impl Told {
    /// Before the first record.
    #[must_use]
    pub const fn new() -> Self {
        Self { last: Place::START, slice: 0 }
    }

    /// Where and when the last record was.
    #[must_use]
    pub fn last(&self) -> Place {
        self.last
    }
}

impl Default for Told {
    fn default() -> Self {
        Self::new()
    }
}
