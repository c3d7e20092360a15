//! The frequent case in a few bytes. What the most frequent records say is nearly always small enough for a word of at most
//! seven of them. Its parts are whole bytes, so that each can be stored where it belongs without having to be moved there
//! first. What does not fit is written as numbers, under another code.

use crate::cpu::Seat;
use crate::waiter::{Timeout, WaitPermit};
use mainspring_abi::{Nanos, ProcessId, ThreadRef};

/// Bits of an outcome's code, which is the first byte, and of what follows.
const CODE: u32 = 8;
const SLOT: u32 = 8;
const THREAD: u32 = 16;
const DISTANCE: u32 = 24;

const PROCESS: u32 = 8;
const USER_DATA: u32 = 24;
const DELAY: u32 = 24;

/// Bytes of an outcome with a seat, of one with a seat and a distance, and of a timed wait.
pub(super) const SEAT_BYTES: usize = 4;
pub(super) const RUN_BYTES: usize = 7;
pub(super) const WAIT_BYTES: usize = 7;

const _: () = assert!((CODE + SLOT + THREAD) as usize == 8 * SEAT_BYTES);
const _: () = assert!((CODE + SLOT + THREAD + DISTANCE) as usize == 8 * RUN_BYTES);
const _: () = assert!((PROCESS + USER_DATA + DELAY) as usize == 8 * WAIT_BYTES);

/// From `from` to `to`. It is small if `to` is not long after; any other distance wraps, and is not lost.
#[inline(always)]
pub(super) fn distance(from: Nanos, to: Nanos) -> u64 {
    to.get().wrapping_sub(from.get())
}

/// The lowest `bits` bits of `word`, which is left with the others.
fn take(word: &mut u64, bits: u32) -> u64 {
    let taken = *word & ((1 << bits) - 1);
    *word = word.checked_shr(bits).unwrap_or(0);
    taken
}

/// A distance in time that fits a word with a seat.
#[inline(always)]
pub(super) fn small_distance(distance: u64) -> Option<u32> {
    (distance >> DISTANCE == 0).then_some(distance as u32)
}

/// A seat that fits a word with an outcome's code.
#[derive(Clone, Copy)]
pub(super) struct SmallSeat {
    pub(super) slot: u8,
    pub(super) thread: u16,
}

impl SmallSeat {
    #[inline(always)]
    pub(super) fn new(seat: Seat) -> Option<Self> {
        let (slot, thread) = (seat.slot, seat.thread.index());
        let fits = slot >> SLOT == 0 && thread >> THREAD == 0 && seat.thread.generation() == 0;
        fits.then_some(Self { slot: slot as u8, thread: thread as u16 })
    }

    pub(super) fn word(self, code: u8, distance: u32) -> u64 {
        let (slot, thread, distance) = (u64::from(self.slot), u64::from(self.thread), u64::from(distance));
        u64::from(code) | slot << CODE | thread << (CODE + SLOT) | distance << (CODE + SLOT + THREAD)
    }
}

/// The seat and the distance of a word; its code has been seen to.
pub(super) fn unpack_seat(mut word: u64) -> (Seat, u64) {
    take(&mut word, CODE);
    let slot = take(&mut word, SLOT) as u32;
    let thread = ThreadRef::new(take(&mut word, THREAD) as u32, 0);
    (Seat { slot, thread }, word)
}

/// The end of a timed wait that fits a word.
#[derive(Clone, Copy)]
pub(super) struct SmallWait {
    pub(super) process: u8,
    pub(super) user_data: u32,
    pub(super) delay: u32,
}

impl SmallWait {
    /// Of a wait that begins at `now`.
    #[inline(always)]
    pub(super) fn new(timeout: &Timeout, now: Nanos) -> Option<Self> {
        let (process, user_data) = (timeout.permit.process().get(), timeout.user_data);
        let delay = distance(now, timeout.deadline);
        let fits = process >> PROCESS == 0 && user_data >> USER_DATA == 0 && delay >> DELAY == 0;
        fits.then_some(Self { process: process as u8, user_data: user_data as u32, delay: delay as u32 })
    }

    pub(super) fn word(self) -> u64 {
        let (process, user_data, delay) =
            (u64::from(self.process), u64::from(self.user_data), u64::from(self.delay));
        process | user_data << PROCESS | delay << (PROCESS + USER_DATA)
    }
}

/// When a wait that begins at `now` ends.
pub(super) fn unpack_wait(mut word: u64, now: Nanos) -> Timeout {
    let permit = WaitPermit::from_record(ProcessId::new(take(&mut word, PROCESS) as u32));
    let user_data = take(&mut word, USER_DATA);
    let deadline = Nanos::new(now.get().wrapping_add(word));
    Timeout { deadline, user_data, permit }
}
