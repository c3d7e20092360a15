//! One record: kind, CPU, time since the last record, the event's values, the outcome.

use super::bytes::Writer;
use super::{EventRef, Outcome};
use crate::cpu::{Decision, IdleTick, Seat, Stop, Via};
use crate::entity::{Affinity, Entity};
use crate::tick::{IdleConditions, KeepTicking, NetworkNeed};
use crate::waiter::WaitKind;
use mainspring_abi::{CpuId, LatencyClass, Nanos};

/// Writes the first half of a record: what is about to happen on `cpu`, `elapsed` after the record before.
#[inline]
pub fn write_event(w: &mut Writer<'_>, cpu: CpuId, elapsed: Nanos, event: EventRef<'_>) {
    w.byte(kind(&event));
    w.number(cpu.index() as u64);
    w.number(elapsed.get());
    match event {
        EventRef::Accept(thread, via) => {
            w.byte(via_code(via));
            entity(w, thread);
        }
        EventRef::Resched(why) => stop(w, why),
        EventRef::Wake(at)
        | EventRef::HandOff(at)
        | EventRef::Hold(at)
        | EventRef::Release(at)
        | EventRef::Remove(at) => seat(w, at),
        EventRef::Give(thief) => w.number(thief.index() as u64),
        EventRef::EnterIdle(conditions) => idle_conditions(w, conditions),
        EventRef::SetWeight(at, weight) => {
            seat(w, at);
            w.number(u64::from(weight.get()));
        }
        EventRef::SetClass(at, class) => {
            seat(w, at);
            w.byte(class_code(class));
        }
        EventRef::ExitCurrent | EventRef::Timer | EventRef::Expire | EventRef::RescheduleReceived => {}
    }
}

fn kind(event: &EventRef<'_>) -> u8 {
    match event {
        EventRef::Accept(..) => 1,
        EventRef::Resched(_) => 2,
        EventRef::ExitCurrent => 3,
        EventRef::Wake(_) => 4,
        EventRef::HandOff(_) => 5,
        EventRef::Hold(_) => 6,
        EventRef::Release(_) => 7,
        EventRef::Remove(_) => 8,
        EventRef::Give(_) => 9,
        EventRef::Timer => 10,
        EventRef::Expire => 11,
        EventRef::RescheduleReceived => 12,
        EventRef::EnterIdle(_) => 13,
        EventRef::SetWeight(..) => 14,
        EventRef::SetClass(..) => 15,
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

fn wait_code(kind: WaitKind) -> u8 {
    WaitKind::ALL.iter().position(|one| *one == kind).map_or(u8::MAX, |code| code as u8)
}

#[inline]
fn seat(w: &mut Writer<'_>, seat: Seat) {
    w.number(u64::from(seat.slot));
    w.number(u64::from(seat.thread.index()));
    w.number(u64::from(seat.thread.generation()));
}

fn stop(w: &mut Writer<'_>, why: &Stop) {
    match why {
        Stop::Nothing => w.byte(0),
        Stop::Preempted => w.byte(1),
        Stop::Yielded => w.byte(2),
        Stop::Blocked(kind, None) => {
            w.byte(3);
            w.byte(wait_code(*kind));
        }
        Stop::Blocked(kind, Some(timeout)) => {
            w.byte(4);
            w.byte(wait_code(*kind));
            w.number(timeout.deadline.get());
            w.number(timeout.user_data);
            w.number(u64::from(timeout.permit.process().get()));
        }
    }
}

fn idle_conditions(w: &mut Writer<'_>, conditions: &IdleConditions) {
    let flags = [
        conditions.deferred_completions,
        conditions.ring_service,
        conditions.oneshot,
        conditions.idle_context,
        conditions.nohz_lease,
        conditions.stable_clock,
        conditions.polled_waiter,
    ];
    w.byte(flags.iter().rev().fold(0, |bits, flag| bits << 1 | u8::from(*flag)));
    match conditions.network {
        NetworkNeed::Inactive => w.byte(0),
        NetworkNeed::EveryTick => w.byte(1),
        NetworkNeed::PollAt(at) => {
            w.byte(2);
            w.number(at.get());
        }
    }
}

fn entity(w: &mut Writer<'_>, entity: &Entity) {
    w.number(u64::from(entity.thread.index()));
    w.number(u64::from(entity.thread.generation()));
    w.number(u64::from(entity.process.get()));
    w.number(u64::from(entity.weight.get()));
    w.byte(class_code(entity.class));
    optional(w, entity.last_cpu.map(|cpu| cpu.index() as u64));
    optional(w, entity.request.map(Nanos::get));
    match &entity.affinity {
        Affinity::Any => w.number(0),
        Affinity::Only(cpus) => {
            w.number(cpus.bytes().count() as u64 + 1);
            for byte in cpus.bytes() {
                w.byte(byte);
            }
        }
    }
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
}

/// Zero for absent; otherwise one more than the value, which never is the largest there is.
fn optional(w: &mut Writer<'_>, value: Option<u64>) {
    w.number(value.map_or(0, |value| value.saturating_add(1)));
}

/// Writes the second half of a record: what came of it.
#[inline]
pub fn write_outcome(w: &mut Writer<'_>, outcome: Outcome) {
    match outcome {
        Outcome::Seated(slot, reschedule) => {
            w.byte(2 + u8::from(reschedule));
            w.number(u64::from(slot));
        }
        Outcome::Refused => w.byte(4),
        Outcome::Decided(Decision::Idle) => w.byte(5),
        Outcome::Decided(Decision::Run(run)) => {
            w.byte(6 + u8::from(run.switched));
            seat(w, run.seat);
            w.number(run.slice_end.get());
        }
        Outcome::Left(None) => w.byte(8),
        Outcome::Left(Some((thread, lag))) => {
            w.byte(9);
            w.number(u64::from(thread.index()));
            w.number(u64::from(thread.generation()));
            w.signed(lag.units());
        }
        Outcome::Ready(reschedule, permit) => {
            w.byte(10 + u8::from(reschedule) + 2 * u8::from(permit));
        }
        Outcome::Direct(permit) => w.byte(14 + u8::from(permit)),
        Outcome::BadSeat => w.byte(16),
        Outcome::Timer(timer) => {
            w.byte(17 + u8::from(timer.ticked) + 2 * u8::from(timer.reschedule));
        }
        Outcome::Expired(None, _) => w.byte(21),
        Outcome::Expired(Some((at, deadline)), reschedule) => {
            w.byte(22 + u8::from(reschedule));
            seat(w, at);
            w.number(deadline.get());
        }
        Outcome::Idle(IdleTick::Suppressed { wake_at }) => {
            w.byte(24);
            w.number(wake_at.get());
        }
        Outcome::Idle(IdleTick::Kept(reason)) => {
            w.byte(25);
            w.byte(KeepTicking::ALL.iter().position(|one| *one == reason).map_or(u8::MAX, |code| code as u8));
        }
        Outcome::Done => w.byte(26),
    }
}
