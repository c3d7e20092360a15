//! Console, Timer and SystemInfo.

use super::message::{with_long_result, with_params, with_result};
use super::{Answer, Call};
use crate::devices;
use crate::object::inbox::Awaits;
use crate::object::{process, thread};
use crate::sched::{leases, per_cpu, per_cpus, wakeup};
use crate::{arch, frames, log, measure};
use mainspring_abi::frame::{Frame, MAX_NOTE};
use mainspring_abi::ring::{ABI_VERSION_MAX, ABI_VERSION_MIN, CapError};
use mainspring_abi::{Nanos, ProcessId};
use mainspring_kernel_core::ledger::Kind;
use mainspring_sched::State;
use mainspring_schema as schema;
use mainspring_schema::{
    ConsoleMethod, SystemInfoMethod, TimerMethod, cpu, cpu_number, memory, objects, ring_versions, timer_now,
    timer_sleep,
};

fn slot_number(call: &Call<'_>, most: usize) -> Result<u32, CapError> {
    let slot = with_params::<schema::slot_number::Owned, _>(call, |params| Ok(params.get_slot()))?;
    if (slot as usize) < most { Ok(slot) } else { Err(CapError::InvalidParameter) }
}

fn telemetry(call: &Call<'_>) -> Result<Answer, CapError> {
    let number = with_params::<cpu_number::Owned, _>(call, |params| Ok(params.get_cpu()))? as usize;
    if number >= per_cpus().len() {
        return Err(CapError::InvalidParameter);
    }
    let per_cpu = per_cpu(number);
    let counters = per_cpu.lock().cpu().telemetry().clone();
    with_long_result::<schema::cpu_telemetry::Owned>(call, |mut result| {
        result.set_scheduler_tick_count(counters.ticks);
        result.set_ticks_suppressed_idle(counters.ticks_suppressed_idle);
        result.set_ticks_suppressed_lease(counters.ticks_suppressed_lease);
        result.set_nohz_enter_idle(counters.nohz_enter_idle);
        let mut kinds = result.reborrow().init_nohz_enter_lease(counters.nohz_enter_lease.len() as u32);
        for (place, count) in (0..).zip(counters.nohz_enter_lease) {
            kinds.set(place, count);
        }
        let mut reasons = result.reborrow().init_nohz_exit(counters.nohz_exits.len() as u32);
        for (place, count) in (0..).zip(counters.nohz_exits) {
            reasons.set(place, count);
        }
        result.set_oneshot_deadline_miss_count(counters.oneshot_deadline_misses);
        result.set_deadline_expired_count(per_cpu.expired_requests());
        result.set_budget_exhausted_count(counters.budgets_exhausted);
        result.set_realtime_overrun_count(counters.realtime_overruns);
        result.set_donation_depth_max(counters.donation_depth_max);
        let (polled, sleeps) = per_cpu.polled();
        result.set_sqpoll_busy_ns(polled.get());
        result.set_sqpoll_sleep_count(sleeps);
        result.set_housekeeping_offload_count(leases::offloads(per_cpu.id()));
    })
}

fn thread_info(call: &Call<'_>) -> Result<Answer, CapError> {
    let thread = thread::slot(slot_number(call, thread::MAX_THREADS)?);
    let name = thread.name();
    let (cpu, seat) = thread.home().ok_or(CapError::NotFound)?;
    let core = per_cpu(cpu).lock();
    let state = match core.cpu().state(seat) {
        Ok(State::Running) => schema::ThreadState::Running,
        Ok(State::Queued | State::Direct | State::Held | State::Throttled) => schema::ThreadState::Ready,
        Ok(State::Asleep(_)) => schema::ThreadState::Asleep,
        Err(_) => schema::ThreadState::Moving,
    };
    let account = core.cpu().entity(seat).map(|entity| {
        let account = entity.account();
        (entity.weight().get(), account.runtime().get(), account.last_started().get())
    });
    drop(core);
    let (weight, runtime, started) = account.unwrap_or_default();
    let process = thread.process().index();
    if thread.name() != name {
        // What was read is of two occupants of the slot: the one that was asked about is gone.
        return Err(CapError::NotFound);
    }
    with_result::<schema::thread_info::Owned>(call, |mut result| {
        result.set_process(process);
        result.set_cpu(cpu as u32);
        result.set_state(state);
        result.set_weight(weight);
        result.set_runtime_ns(runtime);
        result.set_last_started_ns(started);
    })
}

/// A case of a measurement ends and another begins.
fn begin_case(call: &Call<'_>) -> Result<Answer, CapError> {
    if !measure::ON {
        return Err(CapError::NoSuchMethod);
    }
    with_params::<schema::case_name::Owned, _>(call, |params| {
        let name = params.get_name().ok().and_then(|name| name.to_str().ok());
        let name = name.ok_or(CapError::InvalidParameter)?;
        let counts = measure::counts();
        let answer = with_long_result::<schema::counts::Owned>(call, |result| {
            let mut list = result.init_counts(counts.len() as u32);
            for (number, count) in (0..).zip(counts) {
                list.set(number, count);
            }
        })?;
        measure::begin_case(name);
        Ok(answer)
    })
}

fn process_info(call: &Call<'_>) -> Result<Answer, CapError> {
    let process = process::slot(slot_number(call, process::MAX_PROCESSES)?);
    // With its state locked, so that all of it is about one occupant of the slot.
    let state = process.state.lock();
    let (name, threads) = (state.name.clone(), state.live);
    if threads == 0 {
        // It is free, or somebody is making a process there that nobody can see yet.
        return Err(CapError::NotFound);
    }
    let pages = process.with_space(|space| space.frames()).map_err(|_| CapError::NotFound)?;
    drop(state);
    with_result::<schema::process_info::Owned>(call, |mut result| {
        result.set_name(name.as_str());
        result.set_threads(threads);
        result.set_pages(pages);
    })
}

/// The longest piece that a program prints at once, so that the line is not held for long.
const LINE: usize = 256;

pub fn console(call: &Call<'_>) -> Result<Answer, CapError> {
    let v1 = &call.request.v1;
    match ConsoleMethod::try_from(v1.method_id).map_err(|_| CapError::NoSuchMethod)? {
        ConsoleMethod::Write => {
            let len = (v1.params_len as usize).min(LINE);
            let mut line = [0; LINE];
            call.process().read(v1.params_addr, &mut line[..len])?;
            log::bytes(&line[..len]);
            Ok(Answer::Done(len as u32))
        }
        ConsoleMethod::Note => {
            let len = v1.params_len as usize;
            let mut note = [0; MAX_NOTE];
            let note = note.get_mut(..len).ok_or(CapError::InvalidParameter)?;
            call.process().read(v1.params_addr, note)?;
            frames::write(&Frame::Note(ProcessId::new(call.process().index()), note));
            Ok(Answer::Done(len as u32))
        }
        ConsoleMethod::Read => {
            let room = (v1.result_len as usize).min(LINE);
            // With the buffer known to be there and the address space locked: what was typed is not lost.
            call.process().with_space(|space| {
                let mut typed = [0; LINE];
                space.write(v1.result_addr, &typed[..room]).map_err(|_| CapError::BadAddress)?;
                let mut got = 0;
                while got < room
                    && let Some(byte) = log::typed()
                {
                    typed[got] = byte;
                    got += 1;
                }
                space.write(v1.result_addr, &typed[..got]).map_err(|_| CapError::BadAddress)?;
                Ok(Answer::Done(got as u32))
            })?
        }
    }
}

pub fn timer(call: &mut Call<'_>) -> Result<Answer, CapError> {
    match TimerMethod::try_from(call.request.v1.method_id).map_err(|_| CapError::NoSuchMethod)? {
        TimerMethod::Now => {
            with_result::<timer_now::Owned>(call, |mut result| result.set_time_ns(arch::now().get()))
        }
        TimerMethod::Sleep => {
            let deadline = with_params::<timer_sleep::Owned, _>(call, |params| Ok(params.get_deadline_ns()))?;
            call.may_wait().map_err(|_| CapError::QuotaExceeded)?;
            let charge = call.process().ledger.charge(Kind::Sleeps, 1).map_err(process::refusal)?;
            // A poller of the same ring may have taken the room that was just seen.
            call.begin(Awaits::Time, Nanos::new(deadline.min(u64::MAX - 1)))?;
            // Refunded when the sleep ends, see `dispatch::forget`.
            core::mem::forget(charge);
            Ok(Answer::Pending)
        }
    }
}

pub fn info(call: &Call<'_>) -> Result<Answer, CapError> {
    match SystemInfoMethod::try_from(call.request.v1.method_id).map_err(|_| CapError::NoSuchMethod)? {
        SystemInfoMethod::RingVersions => with_result::<ring_versions::Owned>(call, |mut result| {
            result.set_oldest(ABI_VERSION_MIN);
            result.set_newest(ABI_VERSION_MAX);
        }),
        SystemInfoMethod::Memory => {
            let heap = arch::allocations();
            with_result::<memory::Owned>(call, |mut result| {
                result.set_free_frames(arch::free_frames());
                result.set_total_frames(arch::total_frames());
                result.set_heap_used(heap.used);
                result.set_hard_path_allocations(heap.after_boot);
            })
        }
        SystemInfoMethod::Objects => with_result::<objects::Owned>(call, |mut result| {
            result.set_cpus(per_cpus().len() as u32);
            result.set_threads(thread::live());
            result.set_processes(process::live());
            result.set_pending_waits(wakeup::pending_waits());
            result.set_device_interrupts(devices::interrupts());
        }),
        SystemInfoMethod::Cpu => {
            let number = with_params::<cpu_number::Owned, _>(call, |params| Ok(params.get_cpu()))? as usize;
            if number >= per_cpus().len() {
                return Err(CapError::InvalidParameter);
            }
            let per_cpu = per_cpu(number);
            let (sent, pending) = per_cpu.messages();
            let core = per_cpu.lock();
            let (now, counters) = (arch::now(), core.cpu().telemetry().clone());
            let (idle, busy) = (core.cpu().idle_time(now), core.cpu().charged_time());
            let queued = core.cpu().queued() as u64;
            drop(core);
            with_result::<cpu::Owned>(call, |mut result| {
                result.set_timer_interrupts(counters.timer_interrupts);
                result.set_ticks(counters.ticks);
                result.set_ticks_suppressed(counters.ticks_suppressed_idle);
                result.set_reschedules_received(counters.reschedules);
                result.set_reschedules_sent(sent);
                result.set_reschedules_pending(pending);
                result.set_steals(counters.steals);
                result.set_handoffs(counters.handoffs);
                result.set_handoffs_queued(counters.handoffs_queued);
                result.set_idle_ns(idle.get());
                result.set_busy_ns(busy.get());
                result.set_timeouts(counters.timeouts);
                result.set_queue_depth_max(counters.queue_depth_max);
                result.set_nohz_enter_idle(counters.nohz_enter_idle);
                result.set_deadline_misses(counters.oneshot_deadline_misses);
                result.set_shootdowns(per_cpu.flushes());
                result.set_queued(queued);
            })
        }
        SystemInfoMethod::Telemetry => telemetry(call),
        SystemInfoMethod::Thread => thread_info(call),
        SystemInfoMethod::BeginCase => begin_case(call),
        SystemInfoMethod::Process => process_info(call),
    }
}
