//! Records read back. Every value is checked; bytes that no encoder wrote are refused, never believed.

use super::bytes::{DecodeError, Reader};
use super::{Event, Outcome};
use crate::account::Account;
use crate::cpu::{Decision, Dispatch, IdleTick, Seat, Stop, TimerOutcome, Via};
use crate::entity::{Affinity, Entity};
use crate::tick::{IdleConditions, KeepTicking, NetworkNeed};
use crate::virtual_time::Lag;
use crate::waiter::{Timeout, WaitKind, WaitPermit};
use alloc::sync::Arc;
use mainspring_abi::{CpuId, CpuSet, LatencyClass, MAX_CPUS, Nanos, ProcessId, ThreadRef, Weight};

type Read<T> = Result<T, DecodeError>;

/// Reads one record: the CPU, the time since the record before, the event, the outcome.
pub fn read_record(r: &mut Reader<'_>) -> Read<(CpuId, Nanos, Event, Outcome)> {
    let kind = r.byte()?;
    let cpu = cpu(r)?;
    let elapsed = Nanos::new(r.number("time")?);
    let event = event(r, kind)?;
    let outcome = outcome(r)?;
    Ok((cpu, elapsed, event, outcome))
}

fn unknown<T>(what: &'static str, code: u8) -> Read<T> {
    Err(DecodeError::UnknownCode { what, code: u64::from(code) })
}

fn event(r: &mut Reader<'_>, kind: u8) -> Read<Event> {
    Ok(match kind {
        1 => {
            let via = via(r)?;
            Event::Accept(entity(r)?, via)
        }
        2 => Event::Resched(stop(r)?),
        3 => Event::ExitCurrent,
        4 => Event::Wake(seat(r)?),
        5 => Event::HandOff(seat(r)?),
        6 => Event::Hold(seat(r)?),
        7 => Event::Release(seat(r)?),
        8 => Event::Remove(seat(r)?),
        9 => Event::Give(cpu(r)?),
        10 => Event::Timer,
        11 => Event::Expire,
        12 => Event::RescheduleReceived,
        13 => Event::EnterIdle(idle_conditions(r)?),
        14 => Event::SetWeight(seat(r)?, weight(r)?),
        15 => Event::SetClass(seat(r)?, class(r)?),
        code => return unknown("event", code),
    })
}

fn outcome(r: &mut Reader<'_>) -> Read<Outcome> {
    Ok(match r.byte()? {
        code @ 2..=3 => Outcome::Seated(r.small("seat")?, code == 3),
        4 => Outcome::Refused,
        5 => Outcome::Decided(Decision::Idle),
        code @ 6..=7 => {
            let seat = seat(r)?;
            let slice_end = Nanos::new(r.number("slice end")?);
            let run = Dispatch { seat, thread: seat.thread, switched: code == 7, slice_end };
            Outcome::Decided(Decision::Run(run))
        }
        8 => Outcome::Left(None),
        9 => Outcome::Left(Some((thread(r)?, Lag::from_units(r.signed("lag")?)))),
        code @ 10..=13 => Outcome::Ready((code - 10) & 1 == 1, (code - 10) & 2 == 2),
        code @ 14..=15 => Outcome::Direct(code == 15),
        16 => Outcome::BadSeat,
        code @ 17..=20 => {
            Outcome::Timer(TimerOutcome { ticked: (code - 17) & 1 == 1, reschedule: (code - 17) & 2 == 2 })
        }
        21 => Outcome::Expired(None, false),
        code @ 22..=23 => {
            let seat = seat(r)?;
            Outcome::Expired(Some((seat, Nanos::new(r.number("deadline")?))), code == 23)
        }
        24 => Outcome::Idle(IdleTick::Suppressed { wake_at: Nanos::new(r.number("one-shot")?) }),
        25 => {
            let code = r.byte()?;
            match KeepTicking::ALL.get(code as usize) {
                Some(reason) => Outcome::Idle(IdleTick::Kept(*reason)),
                None => return unknown("tick reason", code),
            }
        }
        26 => Outcome::Done,
        code => return unknown("outcome", code),
    })
}

fn cpu(r: &mut Reader<'_>) -> Read<CpuId> {
    CpuId::new(r.small("CPU")?).map_err(|_| DecodeError::OutOfRange { what: "CPU" })
}

fn thread(r: &mut Reader<'_>) -> Read<ThreadRef> {
    Ok(ThreadRef::new(r.small("thread")?, r.small("generation")?))
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

fn wait_kind(r: &mut Reader<'_>) -> Read<WaitKind> {
    let code = r.byte()?;
    match WaitKind::ALL.get(code as usize) {
        Some(kind) => Ok(*kind),
        None => unknown("wait", code),
    }
}

fn stop(r: &mut Reader<'_>) -> Read<Stop> {
    Ok(match r.byte()? {
        0 => Stop::Nothing,
        1 => Stop::Preempted,
        2 => Stop::Yielded,
        3 => Stop::Blocked(wait_kind(r)?, None),
        4 => {
            let kind = wait_kind(r)?;
            let deadline = Nanos::new(r.number("deadline")?);
            let user_data = r.number("user data")?;
            let permit = WaitPermit::from_record(ProcessId::new(r.small("process")?));
            Stop::Blocked(kind, Some(Timeout { deadline, user_data, permit }))
        }
        code => return unknown("stop", code),
    })
}

fn idle_conditions(r: &mut Reader<'_>) -> Read<IdleConditions> {
    let bits = r.byte()?;
    if bits >> 7 != 0 {
        return unknown("idle condition", bits);
    }
    let flag = |n: u8| bits >> n & 1 == 1;
    let network = match r.byte()? {
        0 => NetworkNeed::Inactive,
        1 => NetworkNeed::EveryTick,
        2 => NetworkNeed::PollAt(Nanos::new(r.number("poll time")?)),
        code => return unknown("network need", code),
    };
    Ok(IdleConditions {
        deferred_completions: flag(0),
        ring_service: flag(1),
        oneshot: flag(2),
        idle_context: flag(3),
        nohz_lease: flag(4),
        stable_clock: flag(5),
        polled_waiter: flag(6),
        network,
    })
}

fn optional(r: &mut Reader<'_>, what: &'static str) -> Read<Option<u64>> {
    Ok(r.number(what)?.checked_sub(1))
}

fn affinity(r: &mut Reader<'_>) -> Read<Affinity> {
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
    let request = optional(r, "request")?.map(Nanos::new);
    let affinity = affinity(r)?;
    let used = Nanos::new(r.number("used")?);
    let lag = Lag::from_units(r.signed("lag")?);
    let runnable_since = optional(r, "ready time")?.map_or(Nanos::MAX, Nanos::new);
    let account = account(r)?;
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
