//! Records read back. Every value is checked; bytes that no encoder wrote are refused, never believed.

use super::authority::{read_authority, read_context, read_who};
use super::bytes::{DecodeError, Reader};
use super::compact::{
    ENTER_IDLE, ENTER_IDLE_HERE, EXPIRE, EXPIRE_HERE, FLAG, LAST_SHORT_WAIT, LONG_WAIT, SHORT_WAIT, SMALL,
    TIMER, decides, ends_wait, idles,
};
use super::packed::{small_run, small_seat, small_sleep, small_wait, unpack_seat, unpack_wait};
use super::{DecodeState, Event, FAR_CPU, LONG_AGO, Outcome, Stamp, nohz};
use crate::account::Account;
use crate::cpu::{Decision, Dispatch, IdleTick, Seat, Stop, TimerOutcome, Via};
use crate::entity::{Affinity, Entity, OwnRequest};
use crate::tick::{IdleConditions, KeepTicking, NetworkNeed};
use crate::virtual_time::Lag;
use crate::waiter::{Timeout, WaitKind, WaitPermit};
use alloc::sync::Arc;
use mainspring_abi::{CpuId, CpuSet, LatencyClass, MAX_CPUS, Nanos, ProcessId, ThreadRef, Weight};

pub(super) type Read<T> = Result<T, DecodeError>;

/// Reads the next record: where and when it was, the event, the outcome.
pub fn read_record(r: &mut Reader<'_>, state: &mut DecodeState) -> Read<(Stamp, Event, Outcome)> {
    let first = r.byte()?;
    let (kind, is_small, flag) = (first & !(SMALL | FLAG), first & SMALL != 0, first & FLAG != 0);
    if flag && !is_small {
        return unknown("event", first);
    }
    let before = state.writer.last;
    let stamp =
        if matches!(kind, EXPIRE_HERE | ENTER_IDLE_HERE) { before } else { read_stamp(r, before.now)? };
    let event = event(r, kind, stamp.now)?;
    if stamp == before && has_shorter_start(kind, &event) {
        return unknown("event", kind);
    }
    let outcome = match is_small {
        true => small_outcome(r, kind, flag, stamp, state)?,
        false => outcome(r, kind, stamp.now)?,
    };
    state.note(stamp, &event, outcome);
    Ok((stamp, event, outcome))
}

/// Whether there is a shorter form for the event where and when the record before was.
fn has_shorter_start(kind: u8, event: &Event) -> bool {
    match event {
        Event::Expire => kind == EXPIRE,
        Event::EnterIdle(conditions) => kind == ENTER_IDLE && conditions.network == NetworkNeed::Inactive,
        _ => false,
    }
}

fn read_stamp(r: &mut Reader<'_>, before: Nanos) -> Read<Stamp> {
    let out_of_range = |what| DecodeError::OutOfRange { what };
    let (near, elapsed) = (usize::from(r.byte()?), r.short()?);
    let cpu = match near {
        FAR_CPU => Some(usize::from(r.short()?)).filter(|cpu| *cpu >= FAR_CPU),
        near => Some(near),
    };
    let cpu = cpu.and_then(|cpu| CpuId::new(cpu).ok()).ok_or(out_of_range("CPU"))?;
    let elapsed = match u64::from(elapsed) {
        LONG_AGO => Some(r.number("time")?).filter(|elapsed| *elapsed >= LONG_AGO),
        elapsed => Some(elapsed),
    };
    let now = elapsed.and_then(|elapsed| before.get().checked_add(elapsed)).ok_or(out_of_range("time"))?;
    Ok(Stamp { cpu, now: Nanos::new(now) })
}

/// A time that is written as its distance from `from`.
fn time_after(r: &mut Reader<'_>, from: Nanos, what: &'static str) -> Read<Nanos> {
    Ok(Nanos::new(from.get().wrapping_add(r.number(what)?)))
}

pub(super) fn unknown<T>(what: &'static str, code: u8) -> Read<T> {
    Err(DecodeError::UnknownCode { what, code: u64::from(code) })
}

fn event(r: &mut Reader<'_>, kind: u8, now: Nanos) -> Read<Event> {
    Ok(match kind {
        1 => {
            let via = via(r)?;
            Event::Accept(entity(r)?, via)
        }
        2 => Event::Resched(Stop::Nothing),
        3 => Event::Resched(Stop::Preempted),
        4 => Event::Resched(Stop::Yielded),
        5 => Event::Resched(Stop::Blocked(wait_kind(u64::from(r.byte()?))?, None)),
        LONG_WAIT => {
            let kind = wait_kind(u64::from(r.byte()?))?;
            let permit = WaitPermit::from_record(ProcessId::new(r.small("process")?));
            let deadline = time_after(r, now, "deadline")?;
            let timeout = Timeout { deadline, user_data: r.number("user data")?, permit };
            if small_wait(&timeout, now).is_some() {
                return Err(DecodeError::OutOfRange { what: "timed wait" });
            }
            Event::Resched(Stop::Blocked(kind, Some(timeout)))
        }
        7 => Event::ExitCurrent,
        8 => Event::Wake(seat(r)?),
        9 => Event::HandOff(seat(r)?),
        10 => Event::Hold(seat(r)?),
        11 => Event::Release(seat(r)?),
        12 => Event::Remove(seat(r)?),
        13 => Event::Give(cpu(r)?),
        TIMER => Event::Timer,
        EXPIRE | EXPIRE_HERE => Event::Expire,
        16 => Event::RescheduleReceived,
        ENTER_IDLE => {
            let flags = idle_flags(r)?;
            Event::EnterIdle(IdleConditions { network: network_need(r)?, ..flags })
        }
        ENTER_IDLE_HERE => Event::EnterIdle(idle_flags(r)?),
        18 => Event::SetWeight(seat(r)?, weight(r)?),
        19 => Event::SetClass(seat(r)?, class(r)?),
        21 => {
            let (kind, timeout) = blocked(r, now)?;
            Event::BlockCurrent(kind, timeout)
        }
        22 => Event::Bind(seat(r)?, read_context(r)?),
        23 => Event::Unbind(seat(r)?),
        24 => Event::Lend(seat(r)?, thread(r)?),
        25 => Event::WriteOff(seat(r)?),
        26 => Event::Nohz(nohz::read_event(r)?),
        SHORT_WAIT..=LAST_SHORT_WAIT => {
            let wait = wait_kind(u64::from(kind - SHORT_WAIT))?;
            Event::Resched(Stop::Blocked(wait, Some(unpack_wait(r.word()?, now))))
        }
        code => return unknown("event", code),
    })
}

fn blocked(r: &mut Reader<'_>, now: Nanos) -> Read<(WaitKind, Option<Timeout>)> {
    let kind = wait_kind(u64::from(r.byte()?))?;
    let timeout = match r.byte()? {
        0 => None,
        1 => {
            let permit = WaitPermit::from_record(ProcessId::new(r.small("process")?));
            let deadline = time_after(r, now, "deadline")?;
            Some(Timeout { deadline, user_data: r.number("user data")?, permit })
        }
        code => return unknown("timeout", code),
    };
    Ok((kind, timeout))
}

/// An outcome that is written together with the event of this kind.
fn small_outcome(
    r: &mut Reader<'_>,
    kind: u8,
    flag: bool,
    stamp: Stamp,
    state: &mut DecodeState,
) -> Read<Outcome> {
    Ok(match kind {
        TIMER => Outcome::Timer(TimerOutcome { ticked: false, reschedule: flag }),
        kind if ends_wait(kind) => {
            Outcome::Expired(Some((state.seat(stamp.cpu, r.byte()?)?, stamp.now)), flag)
        }
        kind if decides(kind) => {
            let (slot, as_long) = unpack_seat(r.byte()?);
            let seat = state.seat(stamp.cpu, slot)?;
            if !as_long {
                state.writer.slice = other_slice(r, state.writer.slice)?;
            }
            run(seat, stamp.now, state.writer.slice.into(), flag)
        }
        kind if idles(kind) && !flag => {
            let wake_at = Nanos::new(stamp.now.get().wrapping_add(r.word()?.into()));
            Outcome::Idle(IdleTick::Suppressed { wake_at })
        }
        kind => return unknown("event with a small outcome", kind),
    })
}

/// A slice that is not as long as the slice before.
fn other_slice(r: &mut Reader<'_>, before: u32) -> Read<u32> {
    let slice = u32::from(r.short()?) | u32::from(r.byte()?) << u16::BITS;
    if slice == before { Err(DecodeError::OutOfRange { what: "slice" }) } else { Ok(slice) }
}

fn run(seat: Seat, now: Nanos, slice: u64, switched: bool) -> Outcome {
    let slice_end = Nanos::new(now.get().wrapping_add(slice));
    Outcome::Decided(Decision::Run(Dispatch { seat, thread: seat.thread, switched, slice_end }))
}

/// An outcome with a code of its own. It has no short form together with the event of this kind.
fn outcome(r: &mut Reader<'_>, kind: u8, now: Nanos) -> Read<Outcome> {
    let code = r.byte()?;
    Ok(match code {
        2..=3 => Outcome::Seated(r.small("seat")?, code == 3),
        4 => Outcome::Refused,
        5 => Outcome::Decided(Decision::Idle),
        6..=7 => {
            let (seat, slice) =
                seat_and_distance(r, |at, slice| decides(kind) && small_run(at, slice, 0).is_some())?;
            run(seat, now, slice, code == 7)
        }
        8 => Outcome::Left(None),
        9 => Outcome::Left(Some((thread(r)?, Lag::from_units(r.signed("lag")?)))),
        10..=13 => Outcome::Ready((code - 10) & 1 == 1, (code - 10) & 2 == 2),
        14..=15 => Outcome::Direct(code == 15),
        16 => Outcome::BadSeat,
        17 | 19 if kind == TIMER => return Err(DecodeError::OutOfRange { what: "timer" }),
        17..=20 => {
            Outcome::Timer(TimerOutcome { ticked: (code - 17) & 1 == 1, reschedule: (code - 17) & 2 == 2 })
        }
        21 => Outcome::Expired(None, false),
        22..=23 => {
            let (seat, late) =
                seat_and_distance(r, |at, late| ends_wait(kind) && late == 0 && small_seat(at).is_some())?;
            Outcome::Expired(Some((seat, Nanos::new(now.get().wrapping_sub(late)))), code == 23)
        }
        24 => {
            let sleep = r.number("one-shot")?;
            if idles(kind) && small_sleep(sleep).is_some() {
                return Err(DecodeError::OutOfRange { what: "one-shot" });
            }
            Outcome::Idle(IdleTick::Suppressed { wake_at: Nanos::new(now.get().wrapping_add(sleep)) })
        }
        25 => {
            let code = r.byte()?;
            match KeepTicking::ALL.get(code as usize) {
                Some(reason) => Outcome::Idle(IdleTick::Kept(*reason)),
                None => return unknown("tick reason", code),
            }
        }
        26 => Outcome::Done,
        31 => Outcome::Took(read_who(r)?),
        40 => Outcome::Nohz(nohz::read_outcome(r)?),
        code => return unknown("outcome", code),
    })
}

/// A seat and a distance in time, as numbers, which are refused where there is a shorter form for both.
fn seat_and_distance(r: &mut Reader<'_>, shorter: impl FnOnce(Seat, u64) -> bool) -> Read<(Seat, u64)> {
    let (seat, distance) = (seat(r)?, r.number("time")?);
    if shorter(seat, distance) {
        return Err(DecodeError::OutOfRange { what: "seat" });
    }
    Ok((seat, distance))
}

fn cpu(r: &mut Reader<'_>) -> Read<CpuId> {
    CpuId::new(r.small("CPU")?).map_err(|_| DecodeError::OutOfRange { what: "CPU" })
}

pub(super) fn thread(r: &mut Reader<'_>) -> Read<ThreadRef> {
    let start = r.number("thread")?;
    let index = u32::try_from(start >> 1).map_err(|_| DecodeError::OutOfRange { what: "thread" })?;
    if start & 1 == 0 {
        return Ok(ThreadRef::new(index, 0));
    }
    match r.small("generation")? {
        0 => Err(DecodeError::OutOfRange { what: "generation" }),
        generation => Ok(ThreadRef::new(index, generation)),
    }
}

fn seat(r: &mut Reader<'_>) -> Read<Seat> {
    let slot = r.small("seat")?;
    Ok(Seat { slot, thread: thread(r)? })
}

fn weight(r: &mut Reader<'_>) -> Read<Weight> {
    Weight::new(r.number("weight")?).map_err(|_| DecodeError::OutOfRange { what: "weight" })
}

fn class(r: &mut Reader<'_>) -> Read<LatencyClass> {
    match r.byte()? {
        0 => Ok(LatencyClass::Interactive),
        1 => Ok(LatencyClass::Normal),
        2 => Ok(LatencyClass::Batch),
        code => unknown("latency class", code),
    }
}

fn via(r: &mut Reader<'_>) -> Read<Via> {
    match r.byte()? {
        0 => Ok(Via::Admit),
        1 => Ok(Via::Steal),
        2 => Ok(Via::HandOff),
        code => unknown("arrival", code),
    }
}

fn wait_kind(code: u64) -> Read<WaitKind> {
    let known = usize::try_from(code).ok().and_then(|code| WaitKind::ALL.get(code));
    known.copied().ok_or(DecodeError::UnknownCode { what: "wait", code })
}

/// The conditions, with a network that needs nothing.
fn idle_flags(r: &mut Reader<'_>) -> Read<IdleConditions> {
    let bits = r.byte()?;
    if bits >> 7 != 0 {
        return unknown("idle condition", bits);
    }
    let flag = |n: u8| bits >> n & 1 == 1;
    Ok(IdleConditions {
        deferred_completions: flag(0),
        ring_service: flag(1),
        oneshot: flag(2),
        idle_context: flag(3),
        nohz_lease: flag(4),
        stable_clock: flag(5),
        polled_waiter: flag(6),
        network: NetworkNeed::Inactive,
    })
}

fn network_need(r: &mut Reader<'_>) -> Read<NetworkNeed> {
    Ok(match r.byte()? {
        0 => NetworkNeed::Inactive,
        1 => NetworkNeed::EveryTick,
        2 => NetworkNeed::PollAt(Nanos::new(r.number("poll time")?)),
        code => return unknown("network need", code),
    })
}

pub(super) fn optional(r: &mut Reader<'_>, what: &'static str) -> Read<Option<u64>> {
    Ok(r.number(what)?.checked_sub(1))
}

pub(super) fn affinity(r: &mut Reader<'_>) -> Read<Affinity> {
    let Some(length) = optional(r, "CPU mask")? else { return Ok(Affinity::Any) };
    let mut bytes = [0; MAX_CPUS / 8];
    let Some(mask) = usize::try_from(length).ok().and_then(|length| bytes.get_mut(..length)) else {
        return Err(DecodeError::OutOfRange { what: "CPU mask" });
    };
    for byte in mask.iter_mut() {
        *byte = r.byte()?;
    }
    let cpus = CpuSet::from_bytes(mask).map_err(|_| DecodeError::OutOfRange { what: "CPU mask" })?;
    Ok(Affinity::Only(Arc::new(cpus)))
}

fn entity(r: &mut Reader<'_>) -> Read<Entity> {
    let thread = thread(r)?;
    let process = ProcessId::new(r.small("process")?);
    let weight = weight(r)?;
    let class = class(r)?;
    let last_cpu = match optional(r, "last CPU")? {
        None => None,
        Some(cpu) => Some(
            usize::try_from(cpu)
                .ok()
                .and_then(|cpu| CpuId::new(cpu).ok())
                .ok_or(DecodeError::OutOfRange { what: "last CPU" })?,
        ),
    };
    let request = OwnRequest::new(optional(r, "request")?.map(Nanos::new));
    let affinity = affinity(r)?;
    let used = Nanos::new(r.number("used")?);
    let lag = Lag::from_units(r.signed("lag")?);
    let runnable_since = optional(r, "ready time")?.map_or(Nanos::MAX, Nanos::new);
    let account = account(r)?;
    let authority = read_authority(r)?;
    Ok(Entity {
        thread,
        process,
        weight,
        class,
        last_cpu,
        request,
        affinity,
        used,
        lag,
        runnable_since,
        account,
        authority,
    })
}

fn account(r: &mut Reader<'_>) -> Read<Account> {
    let runtime = Nanos::new(r.number("runtime")?);
    let virtual_units = r.number("virtual runtime")?;
    let virtual_units_high = r.number("virtual runtime")?;
    Ok(Account {
        runtime,
        virtual_units,
        virtual_units_high,
        last_started: Nanos::new(r.number("start time")?),
        runnable_accumulated: Nanos::new(r.number("ready time")?),
        switches: r.number("switches")?,
        preemptions: r.number("preemptions")?,
        voluntary_blocks: r.number("blocks")?,
        migrations: r.number("migrations")?,
    })
}
