//! The frequent case in one word. What the most frequent records say is nearly always small enough to share 64 bits,
//! which is one store to write. What does not fit is written as numbers, under another code.

use crate::cpu::Seat;
use crate::waiter::{Timeout, WaitKind, WaitPermit};
use mainspring_abi::{Nanos, ProcessId, ThreadRef};

/// Bits of an outcome's code, which is the word's first byte.
const CODE: u32 = 8;
const SLOT: u32 = 10;
const THREAD: u32 = 18;
const DISTANCE: u32 = 28;

const WAIT: u32 = 3;
const PROCESS: u32 = 8;
const USER_DATA: u32 = 21;
const DELAY: u32 = 32;

const _: () = assert!(CODE + SLOT + THREAD + DISTANCE == u64::BITS);
const _: () = assert!(WAIT + PROCESS + USER_DATA + DELAY == u64::BITS);
const _: () = assert!(WaitKind::ALL.len() <= 1 << WAIT);

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

/// A seat and a distance in time, with an outcome's code.
#[inline(always)]
pub(super) fn pack_seat(code: u8, seat: Seat, distance: u64) -> Option<u64> {
    let Seat { slot, thread } = seat;
    // Told one by one: a comparison that never fails costs less than to gather what does not fit.
    if slot >= 1 << SLOT
        || thread.index() >= 1 << THREAD
        || thread.generation() != 0
        || distance >= 1 << DISTANCE
    {
        return None;
    }
    let (slot, thread) = (u64::from(slot), u64::from(thread.index()));
    Some(u64::from(code) | slot << CODE | thread << (CODE + SLOT) | distance << (CODE + SLOT + THREAD))
}

/// The seat and the distance of a word; its code has been seen to.
pub(super) fn unpack_seat(mut word: u64) -> (Seat, u64) {
    take(&mut word, CODE);
    let slot = take(&mut word, SLOT) as u32;
    let thread = ThreadRef::new(take(&mut word, THREAD) as u32, 0);
    (Seat { slot, thread }, word)
}

/// A timed wait that begins at `now`.
#[inline(always)]
pub(super) fn pack_wait(kind: WaitKind, timeout: &Timeout, now: Nanos) -> Option<u64> {
    let (process, delay) = (u64::from(timeout.permit.process().get()), distance(now, timeout.deadline));
    let user_data = timeout.user_data;
    if process >= 1 << PROCESS || user_data >= 1 << USER_DATA || delay >= 1 << DELAY {
        return None;
    }
    let (process, user_data) = (process << WAIT, user_data << (WAIT + PROCESS));
    Some(kind as u64 | process | user_data | delay << (WAIT + PROCESS + USER_DATA))
}

/// The code of the wait's kind, and when it ends.
pub(super) fn unpack_wait(mut word: u64, now: Nanos) -> (u64, Timeout) {
    let kind = take(&mut word, WAIT);
    let permit = WaitPermit::from_record(ProcessId::new(take(&mut word, PROCESS) as u32));
    let user_data = take(&mut word, USER_DATA);
    let deadline = Nanos::new(now.get().wrapping_add(word));
    (kind, Timeout { deadline, user_data, permit })
}
