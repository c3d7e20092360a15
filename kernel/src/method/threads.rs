//! ThreadSpawner, ThreadControl, ThreadHandle, ParkSpace and SchedulingPolicy.

use super::message::{with_params, with_result};
use super::new_cap::NewCap;
use super::{Answer, Call};
use crate::arch::{self, AddressSpace, MapError, PAGE, Ring, SpaceRoot, USER_END};
use crate::object::caps::Object;
use crate::object::hold::Hold;
use crate::object::inbox::Awaits;
use crate::object::process::{Process, THREADS, refusal};
use crate::object::thread::{self, Thread};
use crate::sched::machine::Kernel;
use crate::sched::{dispatch, leases, mine, wakeup};
use core::sync::atomic::Ordering;
use mainspring_abi::kernel::{
    CQ_ENTRIES, MOST_WOKEN, RING_ARENA, RING_STRIDE, SQ_ENTRIES, STACK_BYTES, STACK_STRIDE, STACKS,
    THREAD_BLOCK,
};
use mainspring_abi::ring::{CapError, HEADER_WORDS, RingAbi};
use mainspring_abi::{CpuId, CpuSet, LatencyClass, Nanos, ProcessId, ThreadRef, Weight};
use mainspring_authority::boundary::Treatment;
use mainspring_driver::placement;
use mainspring_driver::sqpoll::Poller;
use mainspring_kernel_core::ledger::Ledger;
use mainspring_ring::sync::Ordering as RingOrdering;
use mainspring_ring::{Completer, Geometry, Region, SubmissionQueue};
use mainspring_sched::{Affinity, Entity, MAX_REQUEST, PolicyCap, PolicyError, Spec, class_request};
use mainspring_schema::{
    LatencyClass as WireClass, ParkSpaceMethod, SchedulingPolicyMethod, ThreadControlMethod,
    ThreadHandleMethod, ThreadSpawnerMethod, deadline, handle, park_wait, park_wake, set_fs_base,
    set_latency_class, set_weight, set_weight_of, snapshot, thread_create,
};

/// What a new thread is to be.
#[derive(Clone, Debug)]
pub struct NewThread {
    pub entry: u64,
    pub argument: u64,
    pub share: Share,
    pub cpus: u64,
}

/// How much of a CPU a thread gets, and how soon.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    weight: Weight,
    class: LatencyClass,
    /// Service asked for at a time; `None` leaves that to the class.
    request: Option<Nanos>,
}

impl Share {
    pub const DEFAULT: Self = Self { weight: Weight::DEFAULT, class: LatencyClass::Normal, request: None };

    /// That of the thread that runs here.
    pub fn of_caller() -> Self {
        let core = mine().lock();
        let running = core.cpu().current().and_then(|seat| core.cpu().entity(seat).ok());
        running.map_or(Self::DEFAULT, |entity| Self {
            weight: entity.weight(),
            class: entity.class(),
            request: entity.own_request(),
        })
    }

    /// Its weight and class.
    pub fn treatment(self) -> Treatment {
        Treatment { weight: self.weight, class: self.class }
    }

    /// How urgent its class is.
    fn urgency(self) -> u8 {
        match self.class {
            LatencyClass::Interactive => 2,
            LatencyClass::Normal => 1,
            LatencyClass::Batch => 0,
        }
    }

    /// How long it may be made to wait: the sooner, the less is asked for at a time.
    fn service(self) -> Nanos {
        self.request.unwrap_or_else(|| class_request(self.class, mine().quantum))
    }

    /// Whether who has this much may give `other` to a thread that it makes.
    fn covers(self, other: Self) -> bool {
        other.weight <= self.weight && other.urgency() <= self.urgency() && other.service() >= self.service()
    }

    /// As much of it as who has `bound` may give away.
    pub fn within(self, bound: Self) -> Self {
        let lesser = Self {
            weight: self.weight.min(bound.weight),
            class: if self.urgency() <= bound.urgency() { self.class } else { bound.class },
            request: self.request,
        };
        let request = if lesser.service() < bound.service() { Some(bound.service()) } else { self.request };
        Self { request, ..lesser }
    }
}

/// A place (ring and stack) of a process, set aside for a thread. It is free again if the thread is not made.
struct RingAndStack {
    process: &'static Process,
    number: u32,
    taken: bool,
}

impl RingAndStack {
    fn reserve(process: &'static Process) -> Result<Self, CapError> {
        let mut state = process.state.lock();
        if state.ending.is_some() || state.ended {
            return Err(CapError::PeerGone);
        }
        let number = state.places.trailing_ones();
        if number >= THREADS {
            return Err(CapError::QuotaExceeded);
        }
        state.places |= 1 << number;
        state.live += 1;
        Ok(Self { process, number, taken: false })
    }
}

impl Drop for RingAndStack {
    fn drop(&mut self) {
        if !self.taken {
            let mut state = self.process.state.lock();
            state.places &= !(1 << self.number);
            state.live -= 1;
        }
    }
}

/// The memory of a place: where its ring is, the ring, and the page tables to run with.
pub struct ThreadMemory {
    place: u32,
    /// One for each side of the kernel: requests, and completions.
    rings: (Ring, Ring),
    root: SpaceRoot,
}

/// Maps what a thread needs in `space`: a ring and a stack. A place that was used before keeps its pages.
pub fn map_thread_memory(space: &mut AddressSpace, place: u32) -> Result<ThreadMemory, CapError> {
    let pages = STACK_BYTES / PAGE as u64;
    let ring = space.open_place(ring_address(place), stack_address(place), pages).map_err(refused)?;
    let second = ring.share().ok_or(CapError::NoMemory)?;
    Ok(ThreadMemory { place, rings: (ring, second), root: space.root() })
}

fn refused(why: MapError) -> CapError {
    match why {
        MapError::Refused(why) => refusal(why),
        _ => CapError::NoMemory,
    }
}

fn ring_address(place: u32) -> u64 {
    RING_ARENA + u64::from(place) * RING_STRIDE
}

fn stack_address(place: u32) -> u64 {
    STACKS + u64::from(place) * STACK_STRIDE + PAGE as u64
}

/// A thread that can be made: what it needs is there, and nothing can be in the way any more.
pub struct PlannedThread {
    new: NewThread,
    affinity: Affinity,
    geometry: Geometry,
    thread: Hold<Thread>,
}

impl PlannedThread {
    /// Whether the process with this `ledger` can have such a thread.
    pub fn decide(new: NewThread, ledger: &'static Ledger<'static>) -> Result<Self, CapError> {
        if new.entry >= USER_END {
            return Err(CapError::BadAddress);
        }
        if new.share.request.is_some_and(|request| request.is_zero() || request > MAX_REQUEST) {
            return Err(CapError::InvalidParameter);
        }
        let thread = thread::allocate(ledger)?;
        let affinity = affinity(&thread, new.cpus)?;
        let geometry =
            Geometry::new(RingAbi::V2, SQ_ENTRIES, CQ_ENTRIES).map_err(|_| CapError::InvalidParameter)?;
        Ok(Self { new, affinity, geometry, thread })
    }

    /// The slot that it will have.
    pub fn slot(&self) -> u32 {
        self.thread.name().index()
    }

    /// Makes it: a thread of `process` with memory that is mapped there. Whoever wants to ask how it ends has the
    /// hold.
    pub fn apply(self, process: &'static Process, memory: ThreadMemory) -> Hold<Thread> {
        let Self { new, affinity, geometry, thread: held } = self;
        let ThreadMemory { place, rings: (ring, second), root } = memory;
        let (thread, name) = (held.slot(), held.name());
        for word in 0..HEADER_WORDS {
            ring.word(word).store(0, RingOrdering::Relaxed);
        }
        geometry.format(&ring).expect("a ring's page holds a ring of the kernel's sizes");
        thread.root.store(root.to_bits(), Ordering::Relaxed);
        thread.belongs_to.set(process);
        thread.place.store(place, Ordering::Relaxed);
        thread.inbox.lock().open(name.generation(), Completer::new(second, geometry));
        *thread.queue.lock() = Some(SubmissionQueue::new(ring, geometry));
        thread.note_outcome(false);
        let top = stack_address(place) + STACK_BYTES - THREAD_BLOCK;
        let arguments = [new.argument, ring_address(place), top];
        // As after a call: the stack is aligned but for the return address.
        thread.prepare(|context| context.start(new.entry, top - 8, arguments, top));
        let entity = Entity::new(Spec {
            thread: name,
            process: ProcessId::new(process.index()),
            weight: new.share.weight,
            class: new.share.class,
            request: new.share.request,
            affinity,
        });
        held.begin();
        wakeup::start(entity);
        // Whoever ends the process tells the threads that it finds. This one was not to be found until just now.
        if process.state.lock().ending.is_some() {
            dispatch::kill(thread, name);
        }
        held
    }
}

/// A poller that can be made: an entity of the core on these CPUs, with a slot and a place of a thread, and nothing else of one.
pub struct PlannedPoller {
    thread: Hold<Thread>,
    place: RingAndStack,
    affinity: Affinity,
}

impl PlannedPoller {
    /// Whether `process` can have one more.
    pub fn decide(process: &'static Process, cpus: CpuSet) -> Result<Self, CapError> {
        let place = RingAndStack::reserve(process)?;
        let thread = thread::allocate(&process.ledger)?;
        let affinity = thread.bind_to(cpus);
        Ok(Self { thread, place, affinity })
    }

    /// The name that it will have.
    pub fn name(&self) -> ThreadRef {
        self.thread.name()
    }

    /// Makes it, for the ring of `owner`.
    pub fn apply(self, owner: &Thread) {
        let Self { thread: held, mut place, affinity } = self;
        place.taken = true;
        let (thread, name, process) = (held.slot(), held.name(), place.process);
        thread.root.store(owner.root.load(Ordering::Relaxed), Ordering::Relaxed);
        thread.belongs_to.set(process);
        thread.place.store(place.number, Ordering::Relaxed);
        thread.inbox.lock().open_for_poller(name.generation());
        let entity = Poller::new(name).entity(ProcessId::new(process.index()), affinity);
        held.begin();
        wakeup::start(entity);
        if process.state.lock().ending.is_some() {
            dispatch::kill(thread, name);
        }
    }
}

fn affinity(thread: &Thread, cpus: u64) -> Result<Affinity, CapError> {
    if cpus == 0 {
        return Ok(thread.bind_to_none());
    }
    let online = arch::cpu::online();
    let set: CpuSet = (0..online.min(64))
        .filter(|cpu| cpus >> cpu & 1 == 1)
        .filter_map(|cpu| CpuId::new(cpu).ok())
        .collect();
    if set == CpuSet::EMPTY {
        return Err(CapError::InvalidParameter);
    }
    // It would be in the way of a lessee for as long as it lives.
    if leases::has_all(set.folded()) {
        return Err(CapError::Busy);
    }
    Ok(thread.bind_to(set))
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
    let (new, policy) = with_params::<thread_create::Owned, _>(call, |params| {
        let share = Share {
            weight: Weight::new(u64::from(params.get_weight())).map_err(|_| CapError::InvalidParameter)?,
            class: params.get_latency_class().map(class_of).map_err(|_| CapError::InvalidParameter)?,
            request: (params.get_request_ns() != 0).then(|| Nanos::new(params.get_request_ns())),
        };
        let (entry, argument, cpus) = (params.get_entry(), params.get_argument(), params.get_cpus());
        Ok((NewThread { entry, argument, share, cpus }, params.get_policy()))
    })?;
    let process = call.process();
    if !Share::of_caller().covers(new.share) {
        let state = process.state.lock();
        let Some(Object::SchedulingPolicy) = state.caps.look(policy) else {
            return Err(CapError::InvalidCapability);
        };
    }
    let cap = NewCap::reserve(process)?;
    let mut place = RingAndStack::reserve(process)?;
    let planned = PlannedThread::decide(new, &process.ledger)?;
    // The answer comes first: a thread whose maker cannot be told of it is not made.
    let answer = with_result::<handle::Owned>(call, |mut result| {
        result.set_cap(cap.number());
        result.set_slot(planned.slot());
    })?;
    // The memory comes last: its pages stay where they are for the next thread of this place.
    let memory = process.with_space(|space| map_thread_memory(space, place.number))??;
    place.taken = true;
    cap.fulfil(Object::ThreadHandle(planned.apply(process, memory)));
    Ok(answer)
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

pub fn handle(call: &mut Call<'_>, of: &Hold<Thread>) -> Result<Answer, CapError> {
    match ThreadHandleMethod::try_from(call.request.v1.method_id).map_err(|_| CapError::NoSuchMethod)? {
        ThreadHandleMethod::Join => {
            let deadline = deadline_of(call)?;
            let mut life = of.life.lock();
            if let Some(code) = life.ended {
                return Ok(Answer::Done(code as u32));
            }
            if life.joiners.is_full() {
                return Err(CapError::Overloaded);
            }
            let waiter = call.begin(Awaits::Thread(of.name()), deadline)?;
            // There is room, as was just seen.
            let _ = life.joiners.push(waiter);
            Ok(Answer::Pending)
        }
        ThreadHandleMethod::Detach => {
            let object = call.process().state.lock().caps.remove(call.request.v1.cap_id)?;
            drop(object);
            Ok(Answer::Done(0))
        }
        ThreadHandleMethod::Kill => {
            // One that has ended already stays so.
            dispatch::kill(of, of.name());
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
            let mut parks = process.parks.lock();
            // Looked at with the list locked: whoever changes the word after this finds the waiter.
            let value = process.with_space(|space| space.read_u32(address))?;
            if value.map_err(|_| CapError::BadAddress)? != expected {
                return Ok(Answer::Done(1));
            }
            if !parks.has_room() {
                return Err(CapError::Overloaded);
            }
            let waiter = call.begin(Awaits::Park(address), deadline)?;
            parks.insert(address, waiter);
            Ok(Answer::Pending)
        }
        ParkSpaceMethod::Wake => {
            let (address, count) = with_params::<park_wake::Owned, _>(call, |params| {
                Ok((params.get_address(), params.get_count()))
            })?;
            let mut woken = 0;
            while woken < count.min(MOST_WOKEN) {
                let waiter = process.parks.lock().pop(address);
                let Some(waiter) = waiter else { break };
                woken += u32::from(wakeup::finish(waiter, Ok(0)));
            }
            Ok(Answer::Done(woken))
        }
    }
}

/// Sets the weight of a thread of which the caller has a handle. Apart from what is called more often.
#[inline(never)]
fn weigh_another(call: &Call<'_>) -> Result<Answer, CapError> {
    let (thread, weight) = with_params::<set_weight_of::Owned, _>(call, |params| {
        let weight = Weight::new(params.get_weight()).map_err(|_| CapError::InvalidParameter)?;
        Ok((params.get_thread(), weight))
    })?;
    let state = call.process().state.lock();
    let Some(Object::ThreadHandle(of)) = state.caps.look(thread) else {
        return Err(CapError::InvalidCapability);
    };
    let of = of.name();
    drop(state);
    if thread::find(of).is_some() && placement::set_weight(&mut Kernel, of, weight) {
        Ok(Answer::Done(0))
    } else {
        Err(CapError::PeerGone)
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
            here.lock().event(here, |cpu| cpu.call_set_weight(&cap, weight)).map_err(refuse)?;
            Ok(Answer::Done(0))
        }
        SchedulingPolicyMethod::SetWeightOf => weigh_another(call),
        SchedulingPolicyMethod::SetLatencyClass => {
            let class = with_params::<set_latency_class::Owned, _>(call, |params| {
                params.get_latency_class().map(class_of).map_err(|_| CapError::InvalidParameter)
            })?;
            here.lock().event(here, |cpu| cpu.call_set_class(&cap, class)).map_err(refuse)?;
            Ok(Answer::Done(0))
        }
        SchedulingPolicyMethod::Snapshot => {
            let account = here.lock().cpu().call_snapshot(&cap).map_err(refuse)?;
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
