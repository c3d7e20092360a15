//! The usual exchange of messages in one go: a call to a server that waits, and an answer to a caller that waits together
//! with the wait for the next call.
//!
//! Nothing here is new: it does what [`super::drain`] does with those requests, but knows beforehand what they are, and so
//! looks at each object once. A caller's context goes to its server, and back with the answer, where the thread that sends the
//! message falls asleep: [`dispatch::block`] does that in one go, or the long way. Until then its partner sleeps.
//!
//! Conserved: either everything is as after `drain`, or nothing has changed that anybody can see and the caller takes the
//! long way: a message may have been written into a buffer whose owner still waits for one.

use super::Turn;
use super::endpoints::{HEAD, SHORT, hand};
use crate::object::caps::Object;
use crate::object::endpoint::endpoint;
use crate::object::inbox::{Awaits, Inbox, Waiter};
use crate::object::thread::Thread;
use crate::sched::dispatch;
use mainspring_abi::Nanos;
use mainspring_abi::kernel::ReceivedCall;
use mainspring_abi::ring::{CapSqeV2, op};
use mainspring_ring::CqPlace;

/// Carries `request` out, which is all that is pending in `thread`'s ring, if it is such an exchange. Whether it was.
#[inline(always)]
pub fn exchange(thread: &'static Thread, request: &CapSqeV2, turn: &mut Turn) -> bool {
    // A deadline could have passed, what a request depends on could have failed, and a context could be another's.
    if request.v1.flags | request.qos_flags | request.sched_ctx_id != 0 || request.deadline_ns != 0 {
        return false;
    }
    let done = match request.v1.op {
        op::CALL => call(thread, request, turn),
        op::RETURN_RECV => answer_and_receive(thread, request, turn),
        _ => None,
    };
    done.is_some()
}

/// Puts `request` in flight, with a place for its completion.
#[inline(always)]
fn begin(thread: &Thread, inbox: &mut Inbox, request: &CapSqeV2, awaits: Awaits) -> Option<Waiter> {
    let place = inbox.completer()?.reserve().ok()?;
    match inbox.begin(thread.name(), request, place, awaits, Nanos::MAX) {
        Ok(waiter) => Some(waiter),
        Err(place) => {
            give_back(inbox, place);
            None
        }
    }
}

fn give_back(inbox: &mut Inbox, place: CqPlace) {
    if let Some(completer) = inbox.completer() {
        completer.give_back(place);
    }
}

/// Takes back what [`begin`] put in flight and nobody has seen yet.
fn retract(inbox: &mut Inbox, waiter: Waiter) {
    if let Some(place) = inbox.retract(waiter) {
        give_back(inbox, place);
    }
}

#[inline(always)]
fn call(thread: &'static Thread, request: &CapSqeV2, turn: &mut Turn) -> Option<()> {
    let whole = HEAD + request.v1.params_len as usize;
    if whole > SHORT {
        return None;
    }
    let process = thread.process();
    let index = match process.state.lock().caps.look(request.v1.cap_id) {
        Some(Object::EndpointCall(index)) => *index,
        _ => return None,
    };
    let mut buffer = [0; SHORT];
    let client = process.index();
    let mut ends = endpoint(index).lock();
    if ends.own_context().is_some() {
        return None;
    }
    let (server, call_id) = ends.first_server()?;
    if !ends.may_call(client) {
        return None;
    }
    let lends = dispatch::lends_to(thread, server.thread)?;
    process.read(request.v1.params_addr, &mut buffer[HEAD..whole]).ok()?;
    let caller = begin(thread, &mut thread.inbox.lock(), request, Awaits::Answer(index))?;
    let head = ReceivedCall { call_id, len: request.v1.params_len, deadline_ns: 0 };
    buffer[..HEAD].copy_from_slice(&head.to_bytes());
    if hand(turn, server, &buffer[..whole]).is_err() {
        retract(&mut thread.inbox.lock(), caller);
        return None;
    }
    // Nobody can answer before the endpoint is let go.
    ends.serve_first(caller, client);
    if lends {
        turn.lends = ends.lends();
    }
    Some(())
}

#[inline(always)]
fn answer_and_receive(thread: &'static Thread, request: &CapSqeV2, turn: &mut Turn) -> Option<()> {
    let len = request.v1.params_len as usize;
    if len > SHORT {
        return None;
    }
    let process = thread.process();
    let index = match process.state.lock().caps.look(request.v1.cap_id) {
        Some(Object::EndpointServe(index)) => *index,
        _ => return None,
    };
    let mut buffer = [0; SHORT];
    let mut ends = endpoint(index).lock();
    if ends.has_caller() || ends.own_context().is_some() {
        return None;
    }
    let caller = ends.caller_of(request.v1.call_id, process.index())?;
    process.read(request.v1.params_addr, &mut buffer[..len]).ok()?;
    let server = begin(thread, &mut thread.inbox.lock(), request, Awaits::Call(index))?;
    if hand(turn, caller, &buffer[..len]).is_err() {
        retract(&mut thread.inbox.lock(), server);
        return None;
    }
    ends.end_call_and_wait(request.v1.call_id, server);
    Some(())
}
