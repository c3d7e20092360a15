//! What a reader knows from the records so far: what the writer of the next record knows, and which thread sits
//! where.
//!
//! Conserved: a seat is its thread's from the record that accepts it there until one accepts another.

use super::{DecodeError, EncodeState, Event, Outcome, Stamp};
use crate::cpu::Seat;
use alloc::vec::Vec;
use mainspring_abi::{CpuId, ThreadRef};

/// The state of a reader of records.
#[derive(Clone, Debug)]
pub struct DecodeState {
    pub(super) writer: EncodeState,
    /// By CPU and seat, as far as a byte can tell the seat.
    seats: Vec<Vec<Option<ThreadRef>>>,
}

impl DecodeState {
    /// Before the first record.
    #[must_use]
    pub const fn new() -> Self {
        Self { writer: EncodeState::new(), seats: Vec::new() }
    }

    /// The state of a writer that continues the records.
    #[must_use]
    pub fn writer(&self) -> EncodeState {
        self.writer
    }

    /// The seat with the thread that sits there.
    pub(super) fn seat(&self, cpu: CpuId, slot: u8) -> Result<Seat, DecodeError> {
        let thread = self.seats.get(cpu.index()).and_then(|seats| *seats.get(usize::from(slot))?);
        thread.map(|thread| Seat { slot: slot.into(), thread }).ok_or(DecodeError::Nobody { slot })
    }

    /// Another record has been read.
    pub(super) fn note(&mut self, stamp: Stamp, event: &Event, outcome: Outcome) {
        self.writer.last = stamp;
        if let (Event::Accept(entity, _), Outcome::Seated(slot, _)) = (event, outcome)
            && let Ok(slot) = u8::try_from(slot)
        {
            let seats = at(&mut self.seats, stamp.cpu.index());
            *at(seats, slot.into()) = Some(entity.thread);
        }
    }
}

impl Default for DecodeState {
    fn default() -> Self {
        Self::new()
    }
}

/// The element there, made if there is none yet.
fn at<T: Clone + Default>(all: &mut Vec<T>, index: usize) -> &mut T {
    if all.len() <= index {
        all.resize(index + 1, T::default());
    }
    &mut all[index]
}
