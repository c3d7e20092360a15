//! ThreadSpawner, ThreadControl, ThreadHandle, ParkSpace and SchedulingPolicy.

use super::message::{with_params, with_result};
use super::{Answer, Call};
use crate::arch::{self, Flags, Frame, PAGE, USER_END, ring_memory};
use crate::object::caps::Object;
use crate::object::inbox::Awaits;
use crate::object::process::{Process, THREADS};
use crate::object::thread;
use crate::sched::{dispatch, mine, wakeup};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use mainspring_abi::kernel::{
    CQ_ENTRIES, RING_ARENA, RING_STRIDE, SQ_ENTRIES, STACK_BYTES, STACK_STRIDE, STACKS, THREAD_BLOCK,
};
use mainspring_abi::ring::{CapError, HEADER_WORDS, RingAbi};
use mainspring_abi::{CpuId, CpuSet, LatencyClass, Nanos, ProcessId, ThreadRef, Weight};
use mainspring_ring::sync::Ordering as RingOrdering;
use mainspring_ring::{Completer, Geometry, Region, SubmissionQueue};
use mainspring_sched::{Affinity, Entity, PolicyCap, PolicyError, Spec};
use mainspring_schema::{
    LatencyClass as WireClass, ParkSpaceMethod, SchedulingPolicyMethod, ThreadControlMethod,
    ThreadHandleMethod, ThreadSpawnerMethod, deadline, handle, park_wait, park_wake, set_fs_base,
    set_latency_class, set_weight, snapshot, thread_create,
};

/// What a new thread is to be.
#[derive(Clone, Debug)]
pub struct NewThread {
    pub entry: u64,
    pub argument: u64,
    pub weight: Weight,
    pub class: LatencyClass,
    pub request: Option<Nanos>,
    pub cpus: u64,
}

/// Makes a thread of `process`, with one handle or none, and lets it run. Nothing is left behind when it is refused.
pub fn create(process: &'static Process, new: &NewThread, handle: bool) -> Result<ThreadRef, CapError> {
    if new.entry >= USER_END {
        return Err(CapError::BadAddress);
    }
    let affinity = affinity(new.cpus)?;
    let place = {
        let mut state = process.state.lock();
        if state.ending.is_some() || state.ended {
            return Err(CapError::PeerGone);
        }
        let place = state.places.trailing_ones();
        if place >= THREADS {
            return Err(CapError::QuotaExceeded);
        }
        state.places |= 1 << place;
        state.live += 1;
        place
    };
    match create_in(process, new, affinity, place, handle) {
        Ok(name) => Ok(name),
        Err(code) => {
            let mut state = process.state.lock();
            state.places &= !(1 << place);
            state.live -= 1;
            Err(code)
        }
    }
}

fn create_in(
    process: &'static Process,
    new: &NewThread,
    affinity: Affinity,
    place: u32,
    handle: bool,
) -> Result<ThreadRef, CapError> {
    let ring_address = RING_ARENA + u64::from(place) * RING_STRIDE;
    let stack = STACKS + u64::from(place) * STACK_STRIDE + PAGE as u64;
    let top = stack + STACK_BYTES - THREAD_BLOCK;
    let geometry =
        Geometry::new(RingAbi::V2, SQ_ENTRIES, CQ_ENTRIES).map_err(|_| CapError::InvalidParameter)?;
    let (ring, root) = process.with_space(|space| {
        // A place that was used before keeps its pages.
        let ring = match space.ring_at(ring_address) {
            Some(ring) => ring,
            None => {
                let ring = ring_memory().ok_or(CapError::NoMemory)?;
                space.map_ring(ring_address, ring.clone()).map_err(|_| CapError::NoMemory)?;
                ring
            }
        };
        let mut at = stack;
        while at < stack + STACK_BYTES {
            if !space.is_mapped(at) {
                let frame = Frame::new().ok_or(CapError::NoMemory)?;
                space.map(at, frame, Flags::Write).map_err(|_| CapError::NoMemory)?;
            }
            at += PAGE as u64;
        }
        Ok((ring, space.root()))
    })??;
    for word in 0..HEADER_WORDS {
        ring.word(word).store(0, RingOrdering::Relaxed);
    }
    geometry.format(&ring).map_err(|_| CapError::NoMemory)?;
    let thread = thread::allocate()?;
    let name = thread.name();
    thread.root.store(root.to_bits(), Ordering::Relaxed);
    thread.belongs_to.set(process);
    thread.place.store(place, Ordering::Relaxed);
    thread.inbox.lock().open(name.generation(), Completer::new(ring.clone(), geometry));
    *thread.queue.lock() = Some(SubmissionQueue::new(ring, geometry));
    // As after a call: the stack is aligned but for the return address.
    thread.prepare(|context| context.start(new.entry, top - 8, [new.argument, ring_address, top], top));
    let entity = Entity::new(Spec {
        thread: name,
        process: ProcessId::new(process.index()),
        weight: new.weight,
        class: new.class,
        request: new.request,
        affinity,
    });
    if handle {
        thread.add_handle();
    }
    if let Err(code) = wakeup::publish(thread, entity) {
        if handle {
            thread.drop_handle(name);
        }
        *thread.queue.lock() = None;
        let _nothing = thread.inbox.lock().close(name);
        thread.abandon();
        return Err(code);
    }
    // Whoever ends the process tells the threads that it finds. This one was not to be found until just now.
    if process.state.lock().ending.is_some() {
        dispatch::kill(thread, name);
    }
    Ok(name)
}

fn affinity(cpus: u64) -> Result<Affinity, CapError> {
    if cpus == 0 {
        return Ok(Affinity::Any);
    }
    let online = arch::cpu::online();
    let set: CpuSet = (0..online.min(64))
        .filter(|cpu| cpus >> cpu & 1 == 1)
        .filter_map(|cpu| CpuId::new(cpu).ok())
        .collect();
    if set == CpuSet::EMPTY { Err(CapError::InvalidParameter) } else { Ok(Affinity::Only(Arc::new(set))) }
}

fn class_of(class: WireClass) -> LatencyClass {
    match class {
        WireClass::Interactive => LatencyClass::Interactive,
        WireClass::Normal => LatencyClass::Normal,
        WireClass::Batch => LatencyClass::Batch,
    }
}

pub fn spawner(call: &Call<'_>) -> Result<Answer, CapError> {
    let ThreadSpawnerMethod::Create =
        ThreadSpawnerMethod::try_from(call.request.v1.method_id).map_err(|_| CapError::NoSuchMethod)?;
    let new = with_params::<thread_create::Owned, _>(call, |params| {
        Ok(NewThread {
            entry: params.get_entry(),
            argument: params.get_argument(),
            weight: Weight::new(u64::from(params.get_weight())).map_err(|_| CapError::InvalidParameter)?,
            class: params.get_latency_class().map(class_of).map_err(|_| CapError::InvalidParameter)?,
            request: (params.get_request_ns() != 0).then(|| Nanos::new(params.get_request_ns())),
            cpus: params.get_cpus(),
        })
    })?;
    let process = call.process();
    // The number comes first: a thread that nobody has a handle of must not come to be.
    let cap = process.state.lock().caps.insert(Object::Reserved)?;
    let name = create(process, &new, true).inspect_err(|_| {
        let _ = process.state.lock().caps.remove(cap);
    })?;
    process.state.lock().caps.fulfil(cap, Object::ThreadHandle(name));
    with_result::<handle::Owned>(call, |mut result| {
        result.set_cap(cap);
        result.set_slot(name.index());
    })
}

pub fn control(call: &mut Call<'_>) -> Result<Answer, CapError> {
    match ThreadControlMethod::try_from(call.request.v1.method_id).map_err(|_| CapError::NoSuchMethod)? {
        ThreadControlMethod::SetFsBase => {
            let base = with_params::<set_fs_base::Owned, _>(call, |params| Ok(params.get_base()))?;
            if base >= USER_END {
                return Err(CapError::BadAddress);
            }
            call.thread.context.mine().set_fs_base(base);
            Ok(Answer::Done(0))
        }
        ThreadControlMethod::Yield => {
            call.turn.yields = true;
            Ok(Answer::Done(0))
        }
    }
}

/// A deadline as requests give it: 0 is none.
pub fn deadline_of(call: &Call<'_>) -> Result<Nanos, CapError> {
    if call.request.v1.params_len == 0 {
        return Ok(Nanos::MAX);
    }
    with_params::<deadline::Owned, _>(call, |params| Ok(when(params.get_deadline_ns())))
}

fn when(deadline_ns: u64) -> Nanos {
    if deadline_ns == 0 { Nanos::MAX } else { Nanos::new(deadline_ns) }
}

pub fn handle(call: &mut Call<'_>, name: ThreadRef) -> Result<Answer, CapError> {
    let thread = thread::slot(name.index());
    match ThreadHandleMethod::try_from(call.request.v1.method_id).map_err(|_| CapError::NoSuchMethod)? {
        ThreadHandleMethod::Join => {
            let deadline = deadline_of(call)?;
            let waiter = call.begin(Awaits::Thread(name), deadline)?;
            let mut life = thread.life.lock();
            let refused = match life.ended {
                _ if !life.is_of(name) => Err(CapError::InvalidCapability),
                Some(code) => Ok(code as u32),
                None => match life.joiners.push(waiter) {
                    Ok(()) => return Ok(Answer::Pending),
                    Err(_) => Err(CapError::Overloaded),
                },
            };
            drop(life);
            let _ = call.thread.inbox.lock().finish(waiter, refused);
            Ok(Answer::Pending)
        }
        ThreadHandleMethod::Detach => {
            call.process().state.lock().caps.remove(call.request.v1.cap_id)?;
            thread.drop_handle(name);
            Ok(Answer::Done(0))
        }
    }
}

pub fn park(call: &mut Call<'_>) -> Result<Answer, CapError> {
    let process = call.process();
    match ParkSpaceMethod::try_from(call.request.v1.method_id).map_err(|_| CapError::NoSuchMethod)? {
        ParkSpaceMethod::Wait => {
            let (address, expected, deadline) = with_params::<park_wait::Owned, _>(call, |params| {
                Ok((params.get_address(), params.get_expected(), when(params.get_deadline_ns())))
            })?;
            let waiter = call.begin(Awaits::Park(address), deadline)?;
            let mut parks = process.parks.lock();
            // Looked at with the list locked: whoever changes the word after this finds the waiter.
            let now = match process.with_space(|space| space.read_u32(address)) {
                Ok(Ok(value)) if value == expected => match parks.insert(address, waiter) {
                    Ok(()) => return Ok(Answer::Pending),
                    Err(code) => Err(code),
                },
                Ok(Ok(_)) => Ok(1),
                _ => Err(CapError::BadAddress),
            };
            drop(parks);
            let _ = call.thread.inbox.lock().finish(waiter, now);
            Ok(Answer::Pending)
        }
        ParkSpaceMethod::Wake => {
            let (address, count) = with_params::<park_wake::Owned, _>(call, |params| {
                Ok((params.get_address(), params.get_count()))
            })?;
            let mut woken = 0;
            while woken < count {
                let waiter = process.parks.lock().pop(address);
                let Some(waiter) = waiter else { break };
                woken += u32::from(wakeup::finish(waiter, Ok(0)));
            }
            Ok(Answer::Done(woken))
        }
    }
}

pub fn policy(call: &Call<'_>) -> Result<Answer, CapError> {
    let (here, cap) = (mine(), PolicyCap::of(call.thread.name()));
    let refuse = |error: PolicyError| match error {
        PolicyError::NotTheCaller => CapError::InvalidCapability,
        PolicyError::Weight(_) => CapError::InvalidParameter,
    };
    match SchedulingPolicyMethod::try_from(call.request.v1.method_id).map_err(|_| CapError::NoSuchMethod)? {
        SchedulingPolicyMethod::SetWeight => {
            let weight = with_params::<set_weight::Owned, _>(call, |params| Ok(params.get_weight()))?;
            here.lock().call_set_weight(here, &cap, weight).map_err(refuse)?;
            Ok(Answer::Done(0))
        }
        SchedulingPolicyMethod::SetLatencyClass => {
            let class = with_params::<set_latency_class::Owned, _>(call, |params| {
                params.get_latency_class().map(class_of).map_err(|_| CapError::InvalidParameter)
            })?;
            here.lock().call_set_class(here, &cap, class).map_err(refuse)?;
            Ok(Answer::Done(0))
        }
        SchedulingPolicyMethod::Snapshot => {
            let account = here.lock().call_snapshot(&cap).map_err(refuse)?;
            with_result::<snapshot::Owned>(call, |mut result| {
                result.set_version(account.version);
                result.set_weight(account.weight.get());
                result.set_latency_class(match account.class {
                    LatencyClass::Interactive => WireClass::Interactive,
                    LatencyClass::Normal => WireClass::Normal,
                    LatencyClass::Batch => WireClass::Batch,
                });
                result.set_runtime_ns(account.runtime.get());
                result.set_virtual_runtime_ns(account.virtual_runtime.get());
                result.set_last_started_ns(account.last_started.get());
                result.set_voluntary_blocks(account.voluntary_blocks);
                result.set_preemptions(account.preemptions);
                result.set_runnable_accumulated_ns(account.runnable_accumulated.get());
            })
        }
    }
}
