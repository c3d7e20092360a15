//! The frequent records in their compact form: a timer interrupt, the end of a timed wait, a decision, a CPU that idles.
//!
//! Nearly all records are one of these, and nearly all of these are small. They have the form that
//! [`write_event`](super::write_event) and [`write_outcome`](super::write_outcome) give them, byte for byte. But here event
//! and outcome are at hand together, so that a record is a few stores at known offsets. A record that
//! has no compact form is not written: the caller gets `None` and uses the two functions above.

use super::packed::{WORD_BYTES, distance, small_run, small_seat, small_sleep, small_wait};
use super::{EncodeState, FAR_CPU, LONG_AGO, Stamp};
use crate::cpu::{Decision, Expired, IdleTick, Stop, TimerOutcome};
use crate::hint::unlikely;
use crate::tick::{IdleConditions, NetworkNeed};
use crate::waiter::WaitKind;

// The codes of these events.
pub(super) const NOTHING_RAN: u8 = 2;
pub(super) const PREEMPTED: u8 = 3;
pub(super) const YIELDED: u8 = 4;
pub(super) const BLOCKED: u8 = 5;
pub(super) const LONG_WAIT: u8 = 6;
pub(super) const TIMER: u8 = 14;
pub(super) const EXPIRE: u8 = 15;
/// The same, where and when the record before was, so that this is the whole start.
pub(super) const EXPIRE_HERE: u8 = 27;
pub(super) const ENTER_IDLE: u8 = 17;
/// The same, where and when the record before was, with a network that needs nothing.
pub(super) const ENTER_IDLE_HERE: u8 = 28;
/// A timed wait that fits a word, of the first kind. The other kinds follow.
pub(super) const SHORT_WAIT: u8 = 32;
pub(super) const LAST_SHORT_WAIT: u8 = SHORT_WAIT + WaitKind::ALL.len() as u8 - 1;

/// Set in a record's first byte if its outcome is small: then that has no code of its own.
pub(super) const SMALL: u8 = 0x80;
/// The one thing that a small outcome says with a bit.
pub(super) const FLAG: u8 = 0x40;
const _: () = assert!(LAST_SHORT_WAIT < FLAG);

/// The code of an outcome.
pub(super) const IDLE: u8 = 5;

/// Whether a decision comes of the event.
#[inline(always)]
pub(super) fn decides(kind: u8) -> bool {
    matches!(kind, NOTHING_RAN..=LONG_WAIT | SHORT_WAIT..=LAST_SHORT_WAIT)
}

/// Whether the end of a wait comes of the event.
pub(super) fn ends_wait(kind: u8) -> bool {
    matches!(kind, EXPIRE | EXPIRE_HERE)
}

/// Whether it is decided what becomes of the tick of a CPU that idles.
pub(super) fn idles(kind: u8) -> bool {
    matches!(kind, ENTER_IDLE | ENTER_IDLE_HERE)
}

/// The first byte, once it is known that the outcome is small.
#[inline(always)]
pub(super) fn small(kind: u8, flag: bool) -> u8 {
    kind | SMALL | if flag { FLAG } else { 0 }
}

#[inline(always)]
pub(super) fn short_wait(kind: WaitKind) -> u8 {
    SHORT_WAIT + kind as u8
}

/// Bytes of a start: the kind, the CPU, the time since the record before.
const START: usize = 4;
/// The same for a far CPU, whose number follows.
const FAR_START: usize = START + 2;

/// Room for a compact record.
pub type CompactBuffer = [u8; FAR_START + WORD_BYTES + 1 + WORD_BYTES];

/// The first half of a decision's record has been written into a room: that many bytes.
#[derive(Clone, Copy, Debug)]
pub struct FirstHalf(u8);

impl FirstHalf {
    /// How many bytes.
    #[must_use]
    pub fn length(self) -> usize {
        self.0.into()
    }
}

/// Whether the CPU's number does not fit a byte. What is written for such a one is the same but for its start; it is written
/// on its own, so that for all others every offset is known beforehand.
#[inline(always)]
fn is_far(stamp: Stamp) -> bool {
    unlikely(stamp.cpu.index() >= FAR_CPU)
}

/// A start of `LENGTH` bytes with the time since the record before, unless that is long; how many bytes.
#[inline(always)]
fn put_start<const LENGTH: usize>(
    room: &mut CompactBuffer,
    kind: u8,
    state: &EncodeState,
    stamp: Stamp,
) -> Option<usize> {
    let (elapsed, cpu) = (distance(state.last.now, stamp.now), stamp.cpu.index());
    if elapsed >= LONG_AGO {
        return None;
    }
    room[0] = kind;
    room[1] = if LENGTH == FAR_START { FAR_CPU as u8 } else { cpu as u8 };
    room[2..START].copy_from_slice(&(elapsed as u16).to_le_bytes());
    if LENGTH == FAR_START {
        room[START..FAR_START].copy_from_slice(&(cpu as u16).to_le_bytes());
    }
    Some(LENGTH)
}

/// Writes the record of a timer interrupt; its length, or `None` if it has no compact form.
#[inline(always)]
pub fn write_timer(
    room: &mut CompactBuffer,
    state: &mut EncodeState,
    stamp: Stamp,
    outcome: TimerOutcome,
) -> Option<usize> {
    if outcome.ticked {
        return None;
    }
    let kind = small(TIMER, outcome.reschedule);
    if is_far(stamp) {
        return put_far_timer(room, kind, state, stamp);
    }
    let length = put_start::<START>(room, kind, state, stamp)?;
    state.last = stamp;
    Some(length)
}

#[inline(never)]
fn put_far_timer(room: &mut CompactBuffer, kind: u8, state: &mut EncodeState, stamp: Stamp) -> Option<usize> {
    let length = put_start::<FAR_START>(room, kind, state, stamp)?;
    state.last = stamp;
    Some(length)
}

/// Writes the record of a timed wait that ended in time, where and when the record before was; its length, or
/// `None` if it has no compact form.
#[inline(always)]
pub fn write_expired(
    room: &mut CompactBuffer,
    state: &EncodeState,
    stamp: Stamp,
    expired: &Expired,
) -> Option<usize> {
    if stamp != state.last || expired.deadline != stamp.now {
        return None;
    }
    room[0] = small(EXPIRE_HERE, expired.woken.reschedule);
    room[1] = small_seat(expired.seat)?;
    Some(2)
}

/// Writes the first half of the record of a decision, how the running thread stopped; `None` if it has no compact form.
#[inline(always)]
pub fn write_stop(
    room: &mut CompactBuffer,
    state: &EncodeState,
    stamp: Stamp,
    stop: &Stop,
) -> Option<FirstHalf> {
    if let Stop::Blocked(kind, Some(timeout)) = stop {
        let wait = small_wait(timeout, stamp.now)?;
        if is_far(stamp) {
            return put_far_wait(room, short_wait(*kind), state, stamp, wait);
        }
        return put_wait::<START>(room, short_wait(*kind), state, stamp, wait);
    }
    let (code, wait) = match stop {
        Stop::Nothing => (NOTHING_RAN, None),
        Stop::Preempted => (PREEMPTED, None),
        Stop::Yielded => (YIELDED, None),
        Stop::Blocked(kind, _) => (BLOCKED, Some(*kind)),
    };
    write_plain_stop(room, state, stamp, code, wait)
}

#[inline(always)]
fn put_wait<const LENGTH: usize>(
    room: &mut CompactBuffer,
    kind: u8,
    state: &EncodeState,
    stamp: Stamp,
    wait: u32,
) -> Option<FirstHalf> {
    let at = put_start::<LENGTH>(room, kind, state, stamp)?;
    room[at..at + WORD_BYTES].copy_from_slice(&wait.to_le_bytes());
    Some(FirstHalf((at + WORD_BYTES) as u8))
}

#[inline(never)]
fn put_far_wait(
    room: &mut CompactBuffer,
    kind: u8,
    state: &EncodeState,
    stamp: Stamp,
    wait: u32,
) -> Option<FirstHalf> {
    put_wait::<FAR_START>(room, kind, state, stamp, wait)
}

/// On its own, so that one comparison separates a timed wait from all others; and without the stop itself, which is spread
/// over registers as long as no code takes its address.
#[inline(never)]
fn write_plain_stop(
    room: &mut CompactBuffer,
    state: &EncodeState,
    stamp: Stamp,
    code: u8,
    wait: Option<WaitKind>,
) -> Option<FirstHalf> {
    let at = if is_far(stamp) {
        put_start::<FAR_START>(room, code, state, stamp)?
    } else {
        put_start::<START>(room, code, state, stamp)?
    };
    let Some(wait) = wait else { return Some(FirstHalf(at as u8)) };
    room[at] = wait as u8;
    Some(FirstHalf(at as u8 + 1))
}

/// Writes the second half, what was decided at `stamp`, into the same room; the record's length, or `None` if it has no
/// compact form. The record is at `stamp` in any case.
#[inline(always)]
pub fn write_decision(
    room: &mut CompactBuffer,
    state: &mut EncodeState,
    first: FirstHalf,
    stamp: Stamp,
    decision: &Decision,
) -> Option<usize> {
    state.last = stamp;
    let at = first.length();
    match decision {
        Decision::Idle => {
            *room.get_mut(at)? = IDLE;
            Some(at + 1)
        }
        Decision::Run(run) => {
            let slice = distance(stamp.now, run.slice_end);
            let next = small_run(run.seat, slice, state.slice)?;
            let [seat, rest @ ..]: &mut [u8; 1 + WORD_BYTES] = room.get_mut(at..)?.first_chunk_mut()?;
            // As long as before or not, it is written, and perhaps written over.
            (*seat, *rest, state.slice) = (next.seat, next.slice.to_le_bytes(), next.slice);
            room[0] = small(room[0], run.switched);
            Some(at + next.bytes())
        }
    }
}

/// Writes the record of a CPU that idles, where and when the record before was; its length, or `None` if it has no compact form.
#[inline(always)]
pub fn write_idle(
    room: &mut CompactBuffer,
    state: &EncodeState,
    stamp: Stamp,
    conditions: &IdleConditions,
    tick: IdleTick,
) -> Option<usize> {
    let IdleTick::Suppressed { wake_at } = tick else { return None };
    if stamp != state.last || conditions.network != NetworkNeed::Inactive {
        return None;
    }
    room[0] = small(ENTER_IDLE_HERE, false);
    room[1] = idle_flags(conditions);
    room[2..2 + WORD_BYTES].copy_from_slice(&small_sleep(distance(stamp.now, wake_at))?.to_le_bytes());
    Some(2 + WORD_BYTES)
}

/// A bit for each condition but the network's.
#[inline(always)]
pub(super) fn idle_flags(conditions: &IdleConditions) -> u8 {
    let flags = [
        conditions.deferred_completions,
        conditions.ring_service,
        conditions.oneshot,
        conditions.idle_context,
        conditions.nohz_lease,
        conditions.stable_clock,
        conditions.polled_waiter,
    ];
    flags.iter().rev().fold(0, |bits, flag| bits << 1 | u8::from(*flag))
}
