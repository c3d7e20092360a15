//! The five states of a nursery.

use std::fmt;

/// What a nursery does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum NurseryState {
    /// It takes children.
    Open = 0,
    /// It takes no more and waits for those it has.
    Closing = 1,
    /// Over, and no child failed.
    Closed = 2,
    /// Its children are told to stop.
    Cancelling = 3,
    /// Over, after a cancellation.
    Cancelled = 4,
}

/// What can happen to a nursery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NurseryEvent {
    /// A child is spawned.
    Spawn,
    /// Its block ends and it has no child left.
    CloseEmpty,
    /// Its block ends while children run.
    CloseActive,
    /// The last child has ended.
    AllDone,
    /// It is cancelled, or a child failed.
    Cancel,
}

/// An event that makes no sense in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IllegalNurseryStep {
    /// The state.
    pub state: NurseryState,
    /// The event.
    pub event: NurseryEvent,
}

impl fmt::Display for IllegalNurseryStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a nursery that is {:?} has no step {:?}", self.state, self.event)
    }
}

impl std::error::Error for IllegalNurseryStep {}

impl NurseryState {
    /// All five.
    pub const ALL: [Self; 5] = [Self::Open, Self::Closing, Self::Closed, Self::Cancelling, Self::Cancelled];

    /// The state after `event`.
    pub const fn step(self, event: NurseryEvent) -> Result<Self, IllegalNurseryStep> {
        Ok(match (self, event) {
            (Self::Open, NurseryEvent::Spawn) => Self::Open,
            (Self::Open, NurseryEvent::CloseEmpty) | (Self::Closing, NurseryEvent::AllDone) => Self::Closed,
            (Self::Open, NurseryEvent::CloseActive) => Self::Closing,
            (Self::Open | Self::Closing | Self::Cancelling, NurseryEvent::Cancel) => Self::Cancelling,
            (Self::Cancelling, NurseryEvent::AllDone) => Self::Cancelled,
            (state, event) => return Err(IllegalNurseryStep { state, event }),
        })
    }

    #[inline]
    pub(crate) const fn from_u8(bits: u8) -> Self {
        match bits {
            0 => Self::Open,
            1 => Self::Closing,
            2 => Self::Closed,
            3 => Self::Cancelling,
            _ => Self::Cancelled,
        }
    }

    /// Whether children are told to stop, or were.
    #[inline]
    pub const fn is_cancelled(self) -> bool {
        matches!(self, Self::Cancelling | Self::Cancelled)
    }
}
