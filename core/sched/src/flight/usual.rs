//! The usual records in one piece: a timer interrupt, the end of a timed wait, a decision.
//!
//! Nearly all records are one of these, and nearly all of these are small. They have the form that
//! [`write_event`](super::write_event) and [`write_outcome`](super::write_outcome) give them, byte for byte. But here event
//! and outcome are at hand together, so that a record is a few stores at places known beforehand. What is not
//! usual is not written at all; the caller is told, and takes the long way.

use super::word::{RUN_BYTES, SEAT_BYTES, SmallSeat, SmallWait, WAIT_BYTES, distance, small_distance};
use super::{LONG_AGO, Place};
use crate::cpu::{Decision, Expired, Stop, TimerOutcome};
use crate::waiter::WaitKind;
use mainspring_abi::Nanos;

// The codes of these events.
pub(super) const NOTHING_RAN: u8 = 2;
pub(super) const PREEMPTED: u8 = 3;
pub(super) const YIELDED: u8 = 4;
pub(super) const BLOCKED: u8 = 5;
pub(super) const TIMER: u8 = 14;
pub(super) const EXPIRE: u8 = 15;
/// The same, where and when the record before was, so that this is the whole start.
pub(super) const EXPIRE_HERE: u8 = 27;
/// A timed wait that fits a word, of the first kind. The other kinds follow.
pub(super) const SHORT_WAIT: u8 = 32;
pub(super) const LAST_SHORT_WAIT: u8 = SHORT_WAIT + WaitKind::ALL.len() as u8 - 1;

// The codes of their outcomes.
pub(super) const IDLE: u8 = 5;

#[inline(always)]
pub(super) fn short_wait(kind: WaitKind) -> u8 {
    SHORT_WAIT + kind as u8
}

#[inline(always)]
pub(super) fn run_code(switched: bool) -> u8 {
    27 + u8::from(switched)
}

#[inline(always)]
pub(super) fn timer_code(outcome: TimerOutcome) -> u8 {
    17 + u8::from(outcome.ticked) + 2 * u8::from(outcome.reschedule)
}

#[inline(always)]
pub(super) fn expired_code(reschedule: bool) -> u8 {
    29 + u8::from(reschedule)
}

/// Bytes of a start: the kind, the CPU, the time since the record before.
const START: usize = 5;

/// Room for a usual record, or for half of one, and for what is stored beyond its end.
pub type UsualRoom = [u8; START + WAIT_BYTES + 1];

/// A start with the time since the record before; unless that is long.
#[inline(always)]
fn put_start(room: &mut UsualRoom, kind: u8, before: Place, place: Place) -> Option<()> {
    let elapsed = distance(before.now, place.now);
    if elapsed >= LONG_AGO {
        return None;
    }
    room[0] = kind;
    room[1..3].copy_from_slice(&(place.cpu.index() as u16).to_le_bytes());
    room[3..START].copy_from_slice(&(elapsed as u16).to_le_bytes());
    Some(())
}

/// The parts of a word.
#[inline(always)]
fn put_seat(room: &mut UsualRoom, at: usize, code: u8, seat: SmallSeat) {
    room[at] = code;
    room[at + 1] = seat.slot;
    room[at + 2..at + SEAT_BYTES].copy_from_slice(&seat.thread.to_le_bytes());
}

/// The parts of a word. The highest byte of each of the two last is zero, and what comes next is written over it.
#[inline(always)]
fn put_wait(room: &mut UsualRoom, at: usize, wait: SmallWait) {
    room[at] = wait.process;
    room[at + 1..at + 5].copy_from_slice(&wait.user_data.to_le_bytes());
    room[at + 4..at + 8].copy_from_slice(&wait.delay.to_le_bytes());
}

/// Writes the record of a timer interrupt; its length, unless it is not usual.
#[inline(always)]
pub fn write_timer(
    room: &mut UsualRoom,
    before: Place,
    place: Place,
    outcome: TimerOutcome,
) -> Option<usize> {
    put_start(room, TIMER, before, place)?;
    room[START] = timer_code(outcome);
    Some(START + 1)
}

/// Writes the record of a timed wait that ended in time, where and when the record before was; its length, unless it is not
/// usual.
#[inline(always)]
pub fn write_expired(room: &mut UsualRoom, before: Place, place: Place, expired: &Expired) -> Option<usize> {
    if place != before || expired.deadline != place.now {
        return None;
    }
    let seat = SmallSeat::new(expired.seat)?;
    room[0] = EXPIRE_HERE;
    put_seat(room, 1, expired_code(expired.woken.reschedule), seat);
    Some(1 + SEAT_BYTES)
}

/// Writes the first half of the record of a decision, how the running thread stopped; its length, unless it is not usual.
#[inline(always)]
pub fn write_stop(room: &mut UsualRoom, before: Place, place: Place, stop: &Stop) -> Option<usize> {
    if let Stop::Blocked(kind, Some(timeout)) = stop {
        let wait = SmallWait::new(timeout, place.now)?;
        put_start(room, short_wait(*kind), before, place)?;
        put_wait(room, START, wait);
        return Some(START + WAIT_BYTES);
    }
    write_plain_stop(room, before, place, stop)
}

/// On its own, so that a timed wait is told from all others at one glance.
#[inline(never)]
fn write_plain_stop(room: &mut UsualRoom, before: Place, place: Place, stop: &Stop) -> Option<usize> {
    let kind = match stop {
        Stop::Nothing => NOTHING_RAN,
        Stop::Preempted => PREEMPTED,
        Stop::Yielded => YIELDED,
        Stop::Blocked(kind, _) => {
            put_start(room, BLOCKED, before, place)?;
            room[START] = *kind as u8;
            return Some(START + 1);
        }
    };
    put_start(room, kind, before, place)?;
    Some(START)
}

/// Writes the second half, what was decided at `now`; its length, unless it is not usual.
#[inline(always)]
pub fn write_decision(room: &mut UsualRoom, now: Nanos, decision: &Decision) -> Option<usize> {
    match decision {
        Decision::Idle => {
            room[0] = IDLE;
            Some(1)
        }
        Decision::Run(run) => {
            let slice = small_distance(distance(now, run.slice_end))?;
            put_seat(room, 0, run_code(run.switched), SmallSeat::new(run.seat)?);
            room[SEAT_BYTES..SEAT_BYTES + 4].copy_from_slice(&slice.to_le_bytes());
            Some(RUN_BYTES)
        }
    }
}
