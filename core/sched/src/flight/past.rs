//! What a reader knows from the records so far: what they have told, and who sits where.
//!
//! Conserved: a seat is its thread's from the record that accepts it there until one accepts another.

use super::{DecodeError, Event, Outcome, Place, Told};
use crate::cpu::Seat;
use alloc::vec::Vec;
use mainspring_abi::{CpuId, ThreadRef};

/// For a reader of records; before the first of them.
#[derive(Clone, Debug)]
pub struct Past {
    pub(super) told: Told,
    /// By CPU and seat, as far as a byte can tell the seat.
    seats: Vec<Vec<Option<ThreadRef>>>,
}

impl Past {
    /// Before the first record.
    #[must_use]
    pub const fn new() -> Self {
        Self { told: Told::new(), seats: Vec::new() }
    }

    /// What the records have told.
    #[must_use]
    pub fn told(&self) -> Told {
        self.told
    }

    /// The seat with whoever sits there.
    pub(super) fn seat(&self, cpu: CpuId, slot: u8) -> Result<Seat, DecodeError> {
        let thread = self.seats.get(cpu.index()).and_then(|seats| *seats.get(usize::from(slot))?);
        thread.map(|thread| Seat { slot: slot.into(), thread }).ok_or(DecodeError::Nobody { slot })
    }

    /// Another record has been read.
    pub(super) fn note(&mut self, place: Place, event: &Event, outcome: Outcome) {
        self.told.last = place;
        if let (Event::Accept(entity, _), Outcome::Seated(slot, _)) = (event, outcome)
            && let Ok(slot) = u8::try_from(slot)
        {
            let seats = at(&mut self.seats, place.cpu.index());
            *at(seats, slot.into()) = Some(entity.thread);
        }
    }
}

impl Default for Past {
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
