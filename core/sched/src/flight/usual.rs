//! The usual records in one piece: a timer interrupt, the end of a timed wait, a decision.
//!
//! Nearly all records are one of these, and nearly all of these are small. They have the form that
//! [`write_event`](super::write_event) and [`write_outcome`](super::write_outcome) give them, byte for byte. But here event
//! and outcome are at hand together, so that a record is a few shifts and stores at places known beforehand. What is not
//! usual is not written at all; the caller is told, and takes the long way.

use super::encode::start;
use super::word::{distance, pack_seat, pack_wait};
use super::{LONG_AGO, TIME_SHIFT};
use crate::cpu::{Decision, Expired, Stop, TimerOutcome};
use mainspring_abi::{CpuId, Nanos};

// The codes of these events.
pub(super) const NOTHING_RAN: u8 = 2;
pub(super) const PREEMPTED: u8 = 3;
pub(super) const YIELDED: u8 = 4;
pub(super) const BLOCKED: u8 = 5;
pub(super) const SHORT_WAIT: u8 = 20;
pub(super) const TIMER: u8 = 14;
pub(super) const EXPIRE: u8 = 15;

// The codes of their outcomes.
pub(super) const IDLE: u8 = 5;

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

/// Bytes of a start, and of a start with a word.
const START: usize = 4;
const START_AND_WORD: usize = START + 8;

/// Room for a usual record, or for half of one.
pub type UsualRoom = [u8; START_AND_WORD];

/// Where and when a usual record is.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    now: Nanos,
    /// The start of the record but for its kind.
    place: u32,
}

impl Moment {
    /// On `cpu` at `now`, after a record of the time `before`; unless that was long before.
    #[must_use]
    #[inline(always)]
    pub fn new(cpu: CpuId, before: Nanos, now: Nanos) -> Option<Self> {
        let elapsed = distance(before, now);
        (elapsed < LONG_AGO).then(|| Self { now, place: start(0, cpu) | (elapsed as u32) << TIME_SHIFT })
    }

    #[inline(always)]
    fn start(self, kind: u8) -> u32 {
        self.place | u32::from(kind)
    }
}

#[inline(always)]
fn put_half(room: &mut UsualRoom, half: u32) {
    room[..START].copy_from_slice(&half.to_le_bytes());
}

#[inline(always)]
fn put_word(room: &mut UsualRoom, at: usize, word: u64) {
    room[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

/// Writes the record of a timer interrupt; its length.
#[inline(always)]
pub fn write_timer(room: &mut UsualRoom, moment: Moment, outcome: TimerOutcome) -> usize {
    let start = u64::from(moment.start(TIMER));
    put_word(room, 0, start | u64::from(timer_code(outcome)) << 32);
    START + 1
}

/// Writes the record of a timed wait that ended; its length, unless it is not usual.
#[inline(always)]
pub fn write_expired(room: &mut UsualRoom, moment: Moment, expired: &Expired) -> Option<usize> {
    let late = distance(expired.deadline, moment.now);
    let word = pack_seat(expired_code(expired.woken.reschedule), expired.seat, late)?;
    put_half(room, moment.start(EXPIRE));
    put_word(room, START, word);
    Some(START_AND_WORD)
}

/// Writes the first half of the record of a decision, how the running thread stopped; its length, unless it is not usual.
#[inline(always)]
pub fn write_stop(room: &mut UsualRoom, moment: Moment, stop: &Stop) -> Option<usize> {
    let (kind, length) = match stop {
        Stop::Nothing => (NOTHING_RAN, START),
        Stop::Preempted => (PREEMPTED, START),
        Stop::Yielded => (YIELDED, START),
        Stop::Blocked(wait, None) => {
            room[START] = *wait as u8;
            (BLOCKED, START + 1)
        }
        Stop::Blocked(wait, Some(timeout)) => {
            put_word(room, START, pack_wait(*wait, timeout, moment.now)?);
            (SHORT_WAIT, START_AND_WORD)
        }
    };
    put_half(room, moment.start(kind));
    Some(length)
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
            let word = pack_seat(run_code(run.switched), run.seat, distance(now, run.slice_end))?;
            put_word(room, 0, word);
            Some(8)
        }
    }
}
