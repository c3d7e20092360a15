//! A ring is served: requests are taken from it one at a time, judged, and carried out or put in flight.

use super::object_traits::ObjectTraits;
use super::work::{Job, Work};
use super::{exchange, invoke};
use crate::arch::{self, Ring};
use crate::measure::{self, Segment};
use crate::object::caps::Object;
use crate::object::endpoint::endpoint;
use crate::object::inbox::{Awaits, Waiter, completion};
use crate::object::process::Process;
use crate::object::thread::{Queue, Thread};
use crate::sched::{dispatch, sqpoll, visible, wakeup};
use mainspring_abi::Nanos;
use mainspring_abi::ring::{CapError, CapSqeV2, negotiate, op, word};
use mainspring_ring::deadline::{AtDispatch, Budget, MethodTraits, Previous, Verdict, at_dispatch, refused};
use mainspring_ring::sync::Ordering;
use mainspring_ring::{CqPlace, Next, Region, SQES_PER_PASS, Service, SqOwner, SqRefusal};
use mainspring_sched::hint::unlikely;

/// What the requests of one entry lead to besides their completions.
#[derive(Default)]
pub struct Turn {
    /// A thread that has what it waited for, and may be handed the CPU if the caller waits now.
    pub target: Option<&'static Thread>,
    /// The target has received the caller's call, and goes on with the caller's context if that one waits for nothing else.
    pub lends: bool,
    /// The caller lets others go first.
    pub yields: bool,
    /// Requests of others were at fault, and have ended.
    pub(super) ended_others: bool,
    /// There is more to do before the caller goes on, see [`super::work`].
    pub paused: bool,
    /// Requests that were accepted.
    pub handled: u32,
    /// One of them was as much as fits one stretch.
    pub(super) heavy: bool,
}

/// Requests that are accepted before interrupts are taken, unless one of them [is heavy](ObjectTraits::is_heavy).
const AT_ONCE: u32 = 4;

impl Turn {
    /// Whether one of the requests was as much as fits one stretch.
    #[must_use]
    pub fn is_heavy(&self) -> bool {
        self.heavy
    }

    /// `thread` has what it waited for. The first such thread may be handed the CPU; others are woken.
    pub(super) fn wake(&mut self, thread: &'static Thread) {
        match self.target {
            None => self.target = Some(thread),
            Some(_) => wakeup::wake(thread),
        }
    }
}

/// What a method comes to.
#[cfg_attr(not(test), expect(clippy::large_enum_variant, reason = "a box would need the heap"))]
pub enum Answer {
    /// It is done; the completion's result.
    Done(u32),
    /// It is in flight.
    Pending,
    /// It goes on with this.
    Work(Job),
    /// It is carried out once more when interrupts have been taken. Until now only requests of others have ended.
    Again,
}

impl Answer {
    /// The completion's result, if it is done.
    pub(super) fn result(&self) -> u32 {
        if let Self::Done(result) = self { *result } else { 0 }
    }
}

/// A request being carried out.
pub struct Call<'t> {
    /// Who asks.
    pub thread: &'static Thread,
    /// What for.
    pub request: &'t CapSqeV2,
    /// What else it leads to.
    pub turn: &'t mut Turn,
    place: Option<CqPlace>,
}

impl Call<'_> {
    pub(super) fn process(&self) -> &'static Process {
        self.thread.process()
    }

    /// Whether the request can be put in flight: asked by methods that cannot go back once they have begun.
    pub(super) fn may_wait(&self) -> Result<(), CapError> {
        if self.thread.inbox.lock().has_room() { Ok(()) } else { Err(CapError::Overloaded) }
    }

    /// Puts the request in flight.
    pub(super) fn begin(&mut self, awaits: Awaits, deadline: Nanos) -> Result<Waiter, CapError> {
        let Some(place) = self.place.take() else { return Err(CapError::InvalidRequest) };
        let mut inbox = self.thread.inbox.lock();
        inbox.begin(self.thread.name(), self.request, place, awaits, deadline).map_err(|place| {
            self.place = Some(place);
            CapError::QuotaExceeded
        })
    }

    /// Takes the request out of flight again, unless it has been completed meanwhile; whether it was taken out.
    pub(super) fn retract(&mut self, waiter: Waiter) -> bool {
        self.place = self.thread.inbox.lock().retract(waiter);
        self.place.is_some()
    }
}

/// Handles at most `limit` requests of `thread`'s ring.
#[inline(always)]
pub fn drain(thread: &'static Thread, owner: SqOwner, limit: u32, turn: &mut Turn) -> Result<(), CapError> {
    // Held for as long as it takes: only the CPU that runs the thread asks for it.
    let queue = thread.queue.lock();
    let Some(queue) = &*queue else { return Err(CapError::RingClosed) };
    check_version(queue)?;
    if unlikely(thread.is_polled()) {
        match sqpoll::enter(thread, queue) {
            sqpoll::Entry::Drain => {}
            sqpoll::Entry::Busy => return Err(CapError::Busy),
            sqpoll::Entry::Borrow => return serve_borrowed(thread, queue, turn),
        }
    }
    if queue.shows_nothing() {
        return Ok(());
    }
    let _segment = measure::within(Segment::Ring);
    let mut service = queue.serve(owner, limit).map_err(SqRefusal::code)?;
    let mut first = None;
    if service.pending() == 1 {
        let (request, seen) = (service.read(0), visible::look(thread));
        if exchange::exchange(thread, &request, turn) {
            thread.note_outcome(false);
            service.accept_read(1);
            return Ok(());
        }
        seen.refused(thread, CapError::NotDirect, request);
        first = Some(request);
    }
    serve_all(thread, service, first, turn)
}

/// The thread of a polled ring carries a few of its requests out on the poller's lease, if the poller is not at them. What is left
/// is the poller's.
#[cold]
fn serve_borrowed(thread: &'static Thread, queue: &Queue, turn: &mut Turn) -> Result<(), CapError> {
    if queue.shows_nothing() {
        return Ok(());
    }
    match queue.begin_borrowed(SQES_PER_PASS) {
        Ok(service) => serve_all(thread, service, None, turn),
        Err(_) => Ok(()),
    }
}

/// Carries out a request that the poller of `thread`'s ring has accepted, on the poller's CPU. A method that needs the thread's
/// own CPU is refused.
pub fn serve_polled(thread: &'static Thread, request: &CapSqeV2, place: CqPlace, turn: &mut Turn) {
    // It is for nothing, and nothing can be in its way.
    if request.v1.op == op::NOP && is_plain(request) {
        thread.note_outcome(false);
        return thread.inbox.lock().post(place, &completion(request, Ok(0)));
    }
    let refusal = match find(thread, request) {
        Ok(Some(object)) if !ObjectTraits::of(&object).runs_on_any_cpu => Some(CapError::NotPolled),
        _ if request.sched_ctx_id != 0 => Some(CapError::NotPolled),
        _ => None,
    };
    match refusal {
        Some(code) => {
            thread.note_outcome(true);
            thread.inbox.lock().post(place, &completion(request, Err(code)));
        }
        None => handle(thread, request, place, turn),
    }
}

/// Handles requests as they come, `first` before any other, until there are none or it is time for a pause.
#[inline(never)]
fn serve_all(
    thread: &'static Thread,
    mut service: Service<'_, Ring>,
    first: Option<CapSqeV2>,
    turn: &mut Turn,
) -> Result<(), CapError> {
    if let Some(request) = first {
        let place = thread.inbox.lock().completer().and_then(|completer| completer.reserve().ok());
        if let Some(place) = place {
            service.accept_read(1);
            handle(thread, &request, place, turn);
            turn.handled += 1;
        }
    }
    while !turn.paused {
        if turn.heavy && service.pending() > 0 {
            turn.paused = true;
            break;
        }
        let next = match thread.inbox.lock().completer() {
            Some(completer) => service.next(completer),
            None => return Ok(()),
        };
        match next {
            Next::Accepted(request, place) => {
                handle(thread, &request, place, turn);
                turn.handled += 1;
                turn.paused |= turn.handled.is_multiple_of(AT_ONCE);
            }
            Next::Fault(fault) => return Err(fault.code()),
            Next::Empty | Next::HeldBack | Next::QuotaSpent | Next::Stopping => return Ok(()),
        }
    }
    Ok(())
}

/// The same for a timer interrupt: as far as the first request that makes something, or that lends a context, which waits for its
/// owner's next entry.
pub fn drain_in_interrupt(thread: &'static Thread, limit: u32, turn: &mut Turn) -> Result<(), CapError> {
    let queue = thread.queue.lock();
    let Some(queue) = &*queue else { return Err(CapError::RingClosed) };
    check_version(queue)?;
    if queue.shows_nothing() {
        return Ok(());
    }
    let mut service = queue.serve(SqOwner::Timer, limit).map_err(SqRefusal::code)?;
    // A call is lent the caller's context when the caller waits for it, which it does in its own entry.
    let lends = dispatch::runs_on_context();
    while service.pending() > 0 {
        let request = service.read(0);
        if let Ok(Some(object)) = find(thread, &request)
            && (ObjectTraits::of(&object).makes_something
                || lends && matches!(object, Object::EndpointCall(_)))
        {
            break;
        }
        let place = thread.inbox.lock().completer().and_then(|completer| completer.reserve().ok());
        let Some(place) = place else { break };
        service.accept_read(1);
        handle(thread, &request, place, turn);
        if turn.heavy || turn.paused {
            break;
        }
    }
    Ok(())
}

/// Whether the submitter says of its entries what they are.
pub fn has_known_version(queue: &Queue) -> bool {
    check_version(queue).is_ok()
}

/// What the submitter says of its entries must be what they are read as. The kernel's own copy decides how they are read;
/// a submitter that says otherwise would be misread, so nothing is.
fn check_version(queue: &Queue) -> Result<(), CapError> {
    let abi = queue.geometry().abi();
    let read = |index| queue.region().word(index).load(Ordering::Relaxed);
    let (version, sizes) = (read(word::ABI_VERSION), read(word::ENTRY_SIZES));
    if version == abi.version() && sizes == u32::from(abi.sqe_size()) | u32::from(abi.cqe_size()) << 16 {
        return Ok(());
    }
    negotiate(version, sizes as u16, (sizes >> 16) as u16)?;
    Err(CapError::UnsupportedSqeVersion)
}

pub(super) fn handle(thread: &'static Thread, request: &CapSqeV2, place: CqPlace, turn: &mut Turn) {
    let object = find(thread, request);
    if let Verdict::Refuse(status, error) = judge(request, &object, thread) {
        thread.note_outcome(true);
        if error == CapError::DeadlineExpired {
            dispatch::count_expired_request();
        }
        return thread.inbox.lock().post(place, &refused(request, status, error));
    }
    turn.heavy |= matches!(&object, Ok(Some(object)) if ObjectTraits::of(object).is_heavy);
    let seen = visible::look(thread);
    let mut call = Call { thread, request, turn, place: Some(place) };
    let segment = measure::within(Segment::Method);
    let outcome = object.and_then(|object| invoke(&mut call, object));
    drop(segment);
    let outcome = match outcome {
        Ok(Answer::Pending) => {
            thread.note_outcome(false);
            return;
        }
        Ok(Answer::Work(job)) => {
            call.turn.paused = true;
            if let Some(place) = call.place.take() {
                *thread.work.lock() = Some(Work::Request(*request, place, job, seen));
            }
            return;
        }
        Ok(Answer::Again) => {
            call.turn.paused = true;
            if let Some(place) = call.place.take() {
                *thread.work.lock() = Some(Work::Again(*request, place));
            }
            return;
        }
        Ok(Answer::Done(result)) => Ok(result),
        Err(code) => Err(code),
    };
    thread.note_outcome(outcome.is_err());
    if let Err(code) = outcome
        && !call.turn.ended_others
    {
        seen.refused(thread, code, request);
    }
    if let Some(place) = call.place.take() {
        thread.inbox.lock().post(place, &completion(request, outcome));
    }
}

/// Whether a request has neither a deadline nor flags, and names no context.
#[inline(always)]
fn is_plain(request: &CapSqeV2) -> bool {
    let plain = request.v1.flags == 0 && request.sched_ctx_id == 0;
    plain && request.deadline_ns == 0 && request.qos_flags == 0
}

/// Whether a request runs at all, by its deadline and flags. A request that has neither always does.
#[inline]
fn judge(request: &CapSqeV2, object: &Result<Option<Object>, CapError>, thread: &Thread) -> Verdict {
    if is_plain(request) {
        return Verdict::Run { late: false };
    }
    let previous = if thread.previous_failed() { Previous::Failed } else { Previous::Completed };
    let method = MethodTraits { realtime_safe: is_realtime_safe(object, request), reorder_safe: false };
    // A request that names no context asks for none: whether its thread runs at all is the scheduler's business.
    let (own, budget) =
        if request.sched_ctx_id == 0 { (0, Budget::Available) } else { dispatch::own_context() };
    let at = AtDispatch { now: arch::now(), method, budget, previous };
    at_dispatch(request, own, &at)
}

/// What a request is for. A NOP is for nothing and a CANCEL for the caller's own, so neither needs a capability.
fn find(thread: &Thread, request: &CapSqeV2) -> Result<Option<Object>, CapError> {
    if matches!(request.v1.op, op::NOP | op::CANCEL) {
        return Ok(None);
    }
    thread.process().state.lock().caps.find(request.v1.cap_id).map(Some)
}

/// Methods that never block, allocate or fault, and calls to endpoints whose servers promise that.
fn is_realtime_safe(object: &Result<Option<Object>, CapError>, request: &CapSqeV2) -> bool {
    match object {
        Ok(None) => true,
        Ok(Some(Object::Timer)) => request.v1.method_id == 0,
        Ok(Some(Object::EndpointCall(index))) => endpoint(*index).lock().is_realtime_safe(),
        _ => false,
    }
}

/// NOP and CANCEL.
pub(super) fn without_object(call: &Call<'_>) -> Result<Answer, CapError> {
    if call.request.v1.op == op::NOP {
        return Ok(Answer::Done(0));
    }
    let thread = call.thread;
    let cancelled = thread.inbox.lock().cancel(thread.name(), call.request.v1.params_addr);
    let (awaits, waiter) = cancelled.ok_or(CapError::NotFound)?;
    dispatch::forget(thread, awaits, waiter);
    Ok(Answer::Done(0))
}
