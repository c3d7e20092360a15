//! The frequent case in a few bytes. What the most frequent records say is nearly always small enough for a word of four:
//! one for a seat or a process, three for a distance in time. What does not fit is written as numbers, under another code.

use crate::cpu::Seat;
use crate::waiter::{Timeout, WaitPermit};
use mainspring_abi::{Nanos, ProcessId};

const FIRST: u32 = 8;
const DISTANCE: u32 = 24;
const _: () = assert!(FIRST + DISTANCE == u32::BITS);

pub(super) const WORD_BYTES: usize = size_of::<u32>();

/// From `from` to `to`. It is small if `to` is not long after; any other distance wraps, and is not lost.
#[inline(always)]
pub(super) fn distance(from: Nanos, to: Nanos) -> u64 {
    to.get().wrapping_sub(from.get())
}

/// The word of both, if they fit.
#[inline(always)]
fn word(first: u32, distance: u64) -> Option<u32> {
    let fits = first >> FIRST == 0 && distance >> DISTANCE == 0;
    fits.then_some(first | (distance as u32) << FIRST)
}

/// A seat that fits a byte. Its thread is known since the record that accepted it.
#[inline(always)]
pub(super) fn small_seat(seat: Seat) -> Option<u8> {
    (seat.slot >> FIRST == 0).then_some(seat.slot as u8)
}

/// A decision that a word or less can tell.
#[derive(Clone, Copy)]
pub(super) struct SmallRun {
    /// The seat that runs, and whether its slice is as long as the slice before.
    pub(super) seat: u8,
    /// How long the slice is, in three bytes, which are left out if it is as long as the slice before.
    pub(super) slice: u32,
}

/// Set in a seat's byte if its slice is as long as the slice before.
const AS_LONG: u8 = 0x80;

impl SmallRun {
    #[inline(always)]
    pub(super) fn bytes(self) -> usize {
        if self.seat & AS_LONG == 0 { WORD_BYTES } else { 1 }
    }
}

/// The seat that runs, and for how long from now; `before` is the length of the slice before.
#[inline(always)]
pub(super) fn small_run(seat: Seat, slice: u64, before: u32) -> Option<SmallRun> {
    let fits = seat.slot < u32::from(AS_LONG) && slice >> DISTANCE == 0;
    let as_long = if slice == u64::from(before) { AS_LONG } else { 0 };
    fits.then_some(SmallRun { seat: seat.slot as u8 | as_long, slice: slice as u32 })
}

/// The seat of the first byte of such a decision, and whether that is all of it.
pub(super) fn unpack_seat(byte: u8) -> (u8, bool) {
    (byte & !AS_LONG, byte & AS_LONG != 0)
}

/// For how long a CPU may sleep that suppresses its tick: the whole word.
#[inline(always)]
pub(super) fn small_sleep(distance: u64) -> Option<u32> {
    u32::try_from(distance).ok()
}

/// The end of a timed wait that begins at `now` and carries no data.
#[inline(always)]
pub(super) fn small_wait(timeout: &Timeout, now: Nanos) -> Option<u32> {
    let word = word(timeout.permit.process().get(), distance(now, timeout.deadline))?;
    (timeout.user_data == 0).then_some(word)
}

/// When a wait that begins at `now` ends.
pub(super) fn unpack_wait(word: u32, now: Nanos) -> Timeout {
    let (process, delay) = (word as u8, u64::from(word >> FIRST));
    let permit = WaitPermit::from_record(ProcessId::new(process.into()));
    Timeout { deadline: Nanos::new(now.get().wrapping_add(delay)), user_data: 0, permit }
}
