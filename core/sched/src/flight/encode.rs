//! One record: what happened, on which CPU and when; the event's values; the outcome.
//!
//! The most frequent events come millions of times a second. So what is small shares a word, and times are written as
//! distances from the event's own.

use super::authority::{write_authority, write_context, write_who};
use super::bytes::Writer;
use super::compact::{
    BLOCKED, ENTER_IDLE, ENTER_IDLE_HERE, EXPIRE, EXPIRE_HERE, IDLE, LONG_WAIT, NOTHING_RAN, PREEMPTED,
    TIMER, YIELDED, decides, ends_wait, idle_flags, idles, short_wait, small,
};
use super::packed::{distance, small_run, small_seat, small_sleep, small_wait};
use super::{EncodeState, EventRef, FAR_CPU, LONG_AGO, Outcome, Stamp, nohz};
use crate::cpu::{Decision, IdleTick, Seat, Stop, Via};
use crate::entity::{Affinity, Entity};
use crate::tick::NetworkNeed;
use crate::waiter::{Timeout, WaitKind};
use core::mem::replace;
use mainspring_abi::{LatencyClass, Nanos, ThreadRef};

/// Writes the first half of a record: what is about to happen at `stamp`. `state` is of the records before.
#[inline(always)]
pub fn write_event(w: &mut Writer<'_>, state: &mut EncodeState, stamp: Stamp, event: EventRef<'_>) {
    let (before, now) = (replace(&mut state.last, stamp), stamp.now);
    let start = |w: &mut Writer<'_>, kind: u8| write_start(w, kind, before, stamp);
    let at_seat = |w: &mut Writer<'_>, kind: u8, at: Seat| {
        start(w, kind);
        seat(w, at);
    };
    match event {
        EventRef::Accept(thread, via) => {
            start(w, 1);
            w.byte(via_code(via));
            entity(w, thread);
        }
        EventRef::Resched(Stop::Nothing) => start(w, NOTHING_RAN),
        EventRef::Resched(Stop::Preempted) => start(w, PREEMPTED),
        EventRef::Resched(Stop::Yielded) => start(w, YIELDED),
        EventRef::Resched(Stop::Blocked(kind, None)) => {
            start(w, BLOCKED);
            w.byte(*kind as u8);
        }
        EventRef::Resched(Stop::Blocked(kind, Some(timeout))) => match small_wait(timeout, now) {
            Some(wait) => {
                start(w, short_wait(*kind));
                w.word(wait);
            }
            None => {
                start(w, LONG_WAIT);
                w.byte(*kind as u8);
                w.number(u64::from(timeout.permit.process().get()));
                w.number(distance(now, timeout.deadline));
                w.number(timeout.user_data);
            }
        },
        EventRef::ExitCurrent => start(w, 7),
        EventRef::Wake(at) => at_seat(w, 8, at),
        EventRef::HandOff(at) => at_seat(w, 9, at),
        EventRef::Hold(at) => at_seat(w, 10, at),
        EventRef::Release(at) => at_seat(w, 11, at),
        EventRef::Remove(at) => at_seat(w, 12, at),
        EventRef::Give(thief) => {
            start(w, 13);
            w.number(thief.index() as u64);
        }
        EventRef::Timer => start(w, TIMER),
        EventRef::Expire if stamp == before => w.byte(EXPIRE_HERE),
        EventRef::Expire => start(w, EXPIRE),
        EventRef::RescheduleReceived => start(w, 16),
        EventRef::EnterIdle(conditions) if stamp == before && conditions.network == NetworkNeed::Inactive => {
            w.byte(ENTER_IDLE_HERE);
            w.byte(idle_flags(conditions));
        }
        EventRef::EnterIdle(conditions) => {
            start(w, ENTER_IDLE);
            w.byte(idle_flags(conditions));
            network_need(w, conditions.network);
        }
        EventRef::SetWeight(at, weight) => {
            at_seat(w, 18, at);
            w.number(u64::from(weight.get()));
        }
        EventRef::SetClass(at, class) => {
            at_seat(w, 19, at);
            w.byte(class_code(class));
        }
        EventRef::BlockCurrent(kind, timeout) => {
            start(w, 21);
            blocked(w, now, kind, timeout);
        }
        EventRef::Bind(at, context) => {
            at_seat(w, 22, at);
            write_context(w, context);
        }
        EventRef::Unbind(at) => at_seat(w, 23, at),
        EventRef::Lend(at, to) => {
            at_seat(w, 24, at);
            thread_ref(w, to);
        }
        EventRef::WriteOff(at) => at_seat(w, 25, at),
        EventRef::Nohz(event) => {
            start(w, 26);
            nohz::write_event(w, event);
        }
    }
}

#[inline(always)]
fn write_start(w: &mut Writer<'_>, kind: u8, before: Stamp, stamp: Stamp) {
    let (elapsed, cpu) = ((stamp.now - before.now).get(), stamp.cpu.index());
    w.byte(kind);
    w.byte(cpu.min(FAR_CPU) as u8);
    w.short(elapsed.min(LONG_AGO) as u16);
    if cpu >= FAR_CPU {
        w.short(cpu as u16);
    }
    if elapsed >= LONG_AGO {
        w.number(elapsed);
    }
}

fn via_code(via: Via) -> u8 {
    match via {
        Via::Admit => 0,
        Via::Steal => 1,
        Via::HandOff => 2,
    }
}

fn class_code(class: LatencyClass) -> u8 {
    match class {
        LatencyClass::Interactive => 0,
        LatencyClass::Normal => 1,
        LatencyClass::Batch => 2,
    }
}

/// Its index, and whether its generation, which mostly is the first, follows.
pub(super) fn thread_ref(w: &mut Writer<'_>, thread: ThreadRef) {
    let generation = u64::from(thread.generation());
    w.number(u64::from(thread.index()) << 1 | u64::from(generation != 0));
    if generation != 0 {
        w.number(generation);
    }
}

#[inline(never)]
fn seat(w: &mut Writer<'_>, seat: Seat) {
    w.number(u64::from(seat.slot));
    thread_ref(w, seat.thread);
}

fn blocked(w: &mut Writer<'_>, now: Nanos, kind: WaitKind, timeout: Option<&Timeout>) {
    w.byte(kind as u8);
    w.byte(u8::from(timeout.is_some()));
    if let Some(timeout) = timeout {
        w.number(u64::from(timeout.permit.process().get()));
        w.number(distance(now, timeout.deadline));
        w.number(timeout.user_data);
    }
}

fn network_need(w: &mut Writer<'_>, network: NetworkNeed) {
    match network {
        NetworkNeed::Inactive => w.byte(0),
        NetworkNeed::EveryTick => w.byte(1),
        NetworkNeed::PollAt(at) => {
            w.byte(2);
            w.number(at.get());
        }
    }
}

#[inline(never)]
fn entity(w: &mut Writer<'_>, entity: &Entity) {
    thread_ref(w, entity.thread);
    w.number(u64::from(entity.process.get()));
    w.number(u64::from(entity.weight.get()));
    w.byte(class_code(entity.class));
    optional(w, entity.last_cpu.map(|cpu| cpu.index() as u64));
    optional(w, entity.request.get().map(Nanos::get));
    affinity(w, &entity.affinity);
    w.number(entity.used.get());
    w.signed(entity.lag.units());
    optional(w, entity.ready_since().map(Nanos::get));
    let account = &entity.account;
    w.number(account.runtime.get());
    w.number(account.virtual_units);
    w.number(account.virtual_units_high);
    w.number(account.last_started.get());
    w.number(account.runnable_accumulated.get());
    for count in [account.switches, account.preemptions, account.voluntary_blocks, account.migrations] {
        w.number(count);
    }
    write_authority(w, &entity.authority);
}

pub(super) fn affinity(w: &mut Writer<'_>, affinity: &Affinity) {
    match affinity {
        Affinity::Any => w.number(0),
        Affinity::Only(cpus) => {
            w.number(cpus.bytes().count() as u64 + 1);
            for byte in cpus.bytes() {
                w.byte(byte);
            }
        }
    }
}

/// Zero for absent; otherwise one more than the value, which never is the largest there is.
pub(super) fn optional(w: &mut Writer<'_>, value: Option<u64>) {
    w.number(value.map_or(0, |value| value.saturating_add(1)));
}

/// Writes the second half of a record: what came of the event. `kind` is the first byte of the first half, which carries a small
/// outcome together with the event.
#[inline(always)]
pub fn write_outcome(w: &mut Writer<'_>, state: &mut EncodeState, kind: &mut u8, outcome: Outcome) {
    let now = state.last.now;
    match outcome {
        Outcome::Seated(slot, reschedule) => {
            w.byte(2 + u8::from(reschedule));
            w.number(u64::from(slot));
        }
        Outcome::Refused => w.byte(4),
        Outcome::Decided(Decision::Idle) => w.byte(IDLE),
        Outcome::Decided(Decision::Run(run)) => {
            let slice = distance(now, run.slice_end);
            match small_run(run.seat, slice, state.slice) {
                Some(next) if decides(*kind) => {
                    *kind = small(*kind, run.switched);
                    w.byte(next.seat);
                    next.slice.to_le_bytes()[..next.bytes() - 1].iter().for_each(|byte| w.byte(*byte));
                    state.slice = next.slice;
                }
                _ => {
                    w.byte(6 + u8::from(run.switched));
                    seat(w, run.seat);
                    w.number(slice);
                }
            }
        }
        Outcome::Left(None) => w.byte(8),
        Outcome::Left(Some((thread, lag))) => {
            w.byte(9);
            thread_ref(w, thread);
            w.signed(lag.units());
        }
        Outcome::Ready(reschedule, permit) => {
            w.byte(10 + u8::from(reschedule) + 2 * u8::from(permit));
        }
        Outcome::Direct(permit) => w.byte(14 + u8::from(permit)),
        Outcome::BadSeat => w.byte(16),
        Outcome::Timer(timer) if *kind == TIMER && !timer.ticked => *kind = small(TIMER, timer.reschedule),
        Outcome::Timer(timer) => w.byte(17 + u8::from(timer.ticked) + 2 * u8::from(timer.reschedule)),
        Outcome::Expired(None, _) => w.byte(21),
        Outcome::Expired(Some((at, deadline)), reschedule) => match small_seat(at) {
            Some(slot) if ends_wait(*kind) && deadline == now => {
                *kind = small(*kind, reschedule);
                w.byte(slot);
            }
            _ => {
                w.byte(22 + u8::from(reschedule));
                seat(w, at);
                w.number(distance(deadline, now));
            }
        },
        Outcome::Idle(IdleTick::Suppressed { wake_at }) => {
            let sleep = distance(now, wake_at);
            match small_sleep(sleep) {
                Some(word) if idles(*kind) => {
                    *kind = small(*kind, false);
                    w.word(word);
                }
                _ => {
                    w.byte(24);
                    w.number(sleep);
                }
            }
        }
        Outcome::Idle(IdleTick::Kept(reason)) => {
            w.byte(25);
            w.byte(reason as u8);
        }
        Outcome::Done => w.byte(26),
        Outcome::Took(who) => {
            w.byte(31);
            write_who(w, who);
        }
        Outcome::Nohz(outcome) => {
            w.byte(40);
            nohz::write_outcome(w, outcome);
        }
    }
}
