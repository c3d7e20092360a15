//! Requests: taken from the ring of the thread that runs, checked, carried out or put in flight.
//!
//! Conserved: each accepted request has its completion's place from the start, and ends in exactly one of three ways: it
//! is completed here, it is in flight in the inbox, or its thread is gone. No lock is held while a method runs.

mod endpoints;
mod memory;
mod message;
mod processes;
mod system;
mod threads;

pub use processes::{Program, start_process};

use crate::arch;
use crate::object::caps::Object;
use crate::object::inbox::{Awaits, Waiter};
use crate::object::process::Process;
use crate::object::thread::{Queue, Thread};
use mainspring_abi::Nanos;
use mainspring_abi::ring::{CapError, CapSqeV2, negotiate, op, word};
use mainspring_ring::deadline::{
    AtDispatch, Budget, MethodTraits, Previous, Verdict, at_completion, at_dispatch, refused,
};
use mainspring_ring::sync::Ordering;
use mainspring_ring::{CqPlace, Next, NoPlace, NotAccepted, Region, SqOwner, SqRefusal};

/// What the requests of one entry lead to besides their completions.
#[derive(Default)]
pub struct Turn {
    /// A thread that has what it waited for, and may be handed the CPU if the caller waits now.
    pub target: Option<&'static Thread>,
    /// The caller lets others go first.
    pub yields: bool,
    failed: bool,
}

/// What a method comes to.
pub enum Answer {
    /// It is done; the completion's result.
    Done(u32),
    /// It is in flight.
    Pending,
}

/// A request being carried out.
pub struct Call<'t> {
    /// Who asks.
    pub thread: &'static Thread,
    /// What for.
    pub request: CapSqeV2,
    /// What else it leads to.
    pub turn: &'t mut Turn,
    place: Option<CqPlace>,
}

impl Call<'_> {
    fn process(&self) -> &'static Process {
        self.thread.process()
    }

    /// Puts the request in flight.
    fn begin(&mut self, awaits: Awaits, deadline: Nanos) -> Result<Waiter, CapError> {
        let Some(place) = self.place.take() else { return Err(CapError::InvalidRequest) };
        let mut inbox = self.thread.inbox.lock();
        inbox.begin(self.thread.name(), &self.request, place, awaits, deadline).map_err(|place| {
            self.place = Some(place);
            CapError::QuotaExceeded
        })
    }

    /// Takes it out of flight again.
    fn cancel(&mut self, waiter: Waiter, code: CapError) -> Result<Answer, CapError> {
        let _ = self.thread.inbox.lock().finish(waiter, arch::now(), Err(code));
        Ok(Answer::Pending)
    }
}

/// Handles at most `limit` requests of `thread`'s ring.
pub fn drain(thread: &'static Thread, owner: SqOwner, limit: u32, turn: &mut Turn) -> Result<u32, CapError> {
    let Some(queue) = thread.queue.lock().clone() else { return Err(CapError::RingClosed) };
    check_version(&queue)?;
    if queue.shows_nothing() {
        return Ok(0);
    }
    let lease = queue.acquire(owner).map_err(SqRefusal::code)?;
    let mut service = queue.begin(&lease, limit).map_err(SqRefusal::code)?;
    let mut outcome = Ok(());
    loop {
        let reserved = thread.inbox.lock().completer().map(|completer| completer.reserve());
        let place = match reserved {
            Some(Ok(place)) => place,
            None | Some(Err(NoPlace::Full)) => break,
            Some(Err(NoPlace::Fault(fault))) => {
                outcome = Err(fault.code());
                break;
            }
        };
        match service.accept(place) {
            Ok((request, place)) => handle(thread, request, place, turn),
            Err(NotAccepted { place, why }) => {
                if let Some(completer) = thread.inbox.lock().completer() {
                    completer.give_back(place);
                }
                if let Next::Fault(fault) = why {
                    outcome = Err(fault.code());
                }
                break;
            }
        }
    }
    let requests = service.accepted();
    let _ = service.finish();
    let _ = queue.release(lease);
    outcome.map(|()| requests)
}

/// What the submitter says of its entries must be what they are read as. The kernel's own copy decides how they are read;
/// a submitter that says otherwise would be misread, so nothing is.
fn check_version(queue: &Queue) -> Result<(), CapError> {
    let abi = queue.geometry().abi();
    let read = |index| queue.region().word(index).load(Ordering::Relaxed);
    let (version, sizes) = (read(word::ABI_VERSION), read(word::ENTRY_SIZES));
    let told = negotiate(version, sizes as u16, (sizes >> 16) as u16)?;
    if told == abi { Ok(()) } else { Err(CapError::UnsupportedSqeVersion) }
}

fn handle(thread: &'static Thread, request: CapSqeV2, place: CqPlace, turn: &mut Turn) {
    let previous = if turn.failed { Previous::Failed } else { Previous::Completed };
    let object = find(thread, &request);
    let method = MethodTraits { realtime_safe: is_realtime_safe(&object, &request), reorder_safe: false };
    let verdict =
        at_dispatch(&request, &AtDispatch { now: arch::now(), method, budget: Budget::Available, previous });
    let mut call = Call { thread, request, turn, place: Some(place) };
    let cqe = match verdict {
        Verdict::Refuse(status, error) => refused(&request, status, error),
        Verdict::Run { .. } => match object.and_then(|object| invoke(&mut call, object)) {
            Ok(Answer::Pending) => {
                call.turn.failed = false;
                return;
            }
            Ok(Answer::Done(result)) => at_completion(&request, arch::now(), Ok(result)),
            Err(code) => at_completion(&request, arch::now(), Err(code)),
        },
    };
    call.turn.failed = cqe.error != 0;
    if let Some(place) = call.place.take() {
        thread.inbox.lock().post(place, &cqe);
    }
}

/// What a request is for; a NOP is for nothing, which is what no capability is needed for.
fn find(thread: &Thread, request: &CapSqeV2) -> Result<Option<Object>, CapError> {
    if request.v1.op == op::NOP {
        return Ok(None);
    }
    thread.process().state.lock().caps.find(request.v1.cap_id).map(Some)
}

/// Methods that never block, allocate or fault.
fn is_realtime_safe(object: &Result<Option<Object>, CapError>, request: &CapSqeV2) -> bool {
    match object {
        Ok(None) => true,
        Ok(Some(Object::Timer)) => request.v1.method_id == 0,
        _ => false,
    }
}

fn invoke(call: &mut Call<'_>, object: Option<Object>) -> Result<Answer, CapError> {
    let Some(object) = object else { return Ok(Answer::Done(0)) };
    match (call.request.v1.op, object) {
        (op::CALL, Object::EndpointCall(index)) => endpoints::call(call, index),
        (op::RECV, Object::EndpointServe(index)) => endpoints::receive(call, index),
        (op::RETURN, Object::EndpointServe(index)) => endpoints::answer(call, index),
        (op::CALL, Object::Console) => system::console(call),
        (op::CALL, Object::Timer) => system::timer(call),
        (op::CALL, Object::SystemInfo) => system::info(call),
        (op::CALL, Object::SchedulingPolicy) => threads::policy(call),
        (op::CALL, Object::ThreadSpawner) => threads::spawner(call),
        (op::CALL, Object::ThreadControl) => threads::control(call),
        (op::CALL, Object::ThreadHandle(name)) => threads::handle(call, name),
        (op::CALL, Object::ParkSpace) => threads::park(call),
        (op::CALL, Object::ProcessSpawner) => processes::spawner(call),
        (op::CALL, Object::ProcessHandle(name)) => processes::handle(call, name),
        (op::CALL, Object::VirtualMemory) => memory::virtual_memory(call),
        (op::CALL | op::RECV | op::RETURN, _) => Err(CapError::NoSuchMethod),
        _ => Err(CapError::InvalidRequest),
    }
}
