//! Requests in registers: a call to a server that waits, and an answer to a caller that waits together with the wait for
//! the next call. The message is a few words, which go from one thread's registers to the other's; neither ring is touched.
//! The other side may as well wait through its ring: then it gets the message there.
//!
//! Conserved: either the message has been handed over and the thread waits for what comes back, or nothing has changed that
//! anybody can see, and the same request through the ring says what is wrong with it or waits as long as it takes.

use super::Turn;
use super::endpoints::{HEAD, NotHanded, hand, hand_short, may_lend};
use crate::object::caps::Object;
use crate::object::endpoint::{Endpoint, endpoint};
use crate::object::inbox::{Awaits, Short, Waiter, Waiting};
use crate::object::thread::{self, Thread};
use crate::sched::per_cpu::PerCpu;
use crate::sched::{contexts, dispatch};
use mainspring_abi::kernel::{DIRECT_WORDS, DirectRequest, ReceivedCall};
use mainspring_abi::ring::{CapError, op};
use mainspring_driver::contexts::CallEnd;

/// What a request in registers has come to.
pub enum Progress {
    /// Whoever it was for runs on this CPU now, with the message, and the thread waits.
    HandedOver,
    /// The message has been given, and the thread is to wait, see [`crate::object::inbox::Waiting::InRegisters`].
    Given,
    /// Nothing has changed.
    Refused(CapError),
}

/// Carries out `request`, which `thread`, which runs here, has in its registers; `answered` is the call that it answers.
#[inline(always)]
pub fn direct(
    here: &'static PerCpu,
    thread: &'static Thread,
    request: DirectRequest,
    answered: u32,
    turn: &mut Turn,
) -> Progress {
    let state = thread.process().state.lock();
    let index = match (request.op, state.caps.look(request.cap_id)) {
        (op::CALL, Some(Object::EndpointCall(index)))
        | (op::RETURN_RECV, Some(Object::EndpointServe(index))) => *index,
        (op::CALL | op::RETURN_RECV, Some(_)) => return Progress::Refused(CapError::NoSuchMethod),
        (op::CALL | op::RETURN_RECV, None) => return Progress::Refused(CapError::InvalidCapability),
        _ => return Progress::Refused(CapError::InvalidRequest),
    };
    drop(state);
    let is_call = request.op == op::CALL;
    // Somebody else may have the context once the thread sleeps.
    let words = thread.context.mine().words();
    let mut ends = endpoint(index).lock();
    // Twice, each for one kind: what is known before the switch need not be asked again after it.
    let next = if is_call {
        hand_over(here, thread, index, &mut ends, true, answered)
    } else {
        hand_over(here, thread, index, &mut ends, false, answered)
    };
    if let Some(next) = next {
        drop(ends);
        dispatch::take_over(here, next.thread, true);
        next.thread.context.mine().receive(request.len, next.call_id, 0, words);
        return Progress::HandedOver;
    }
    give(thread, index, &mut ends, request, answered, turn)
}

/// Who goes on in the place of whoever asked.
struct Next {
    thread: &'static Thread,
    /// The number of the call that it receives; 0 for an answer.
    call_id: u32,
}

/// Whoever waits for the message of `thread`, and the number that it gets it under: the first server for a call, and for an
/// answer the caller of `call_id`, if the thread can then wait for the next one.
#[inline(always)]
fn partner(thread: &Thread, ends: &Endpoint, is_call: bool, call_id: u32) -> Option<(Waiter, u32)> {
    let process = thread.process().index();
    if ends.own_context().is_some() {
        return None;
    }
    if is_call {
        return ends.first_server().filter(|_| ends.may_call(process));
    }
    if ends.has_caller() {
        return None;
    }
    Some((ends.caller_of(call_id, process)?, 0))
}

/// Switches to whoever waits for the message, if it waits in registers and sits on this CPU, and the core agrees. Decides
/// everything with both inboxes and the core locked; what follows the switch cannot fail.
#[inline(always)]
fn hand_over(
    here: &'static PerCpu,
    thread: &'static Thread,
    index: u32,
    ends: &mut Endpoint,
    is_call: bool,
    answered: u32,
) -> Option<Next> {
    let (waiter, call_id) = partner(thread, ends, is_call, answered)?;
    if !waiter.is_in_registers() {
        return None;
    }
    let other = thread::slot(waiter.thread.index());
    let mut mine = thread.inbox.lock();
    // Only tried: no CPU waits for an inbox with another in hand.
    let mut theirs = other.inbox.try_lock()?;
    theirs.awaited_in_registers(waiter)?;
    if mine.may_be_due() || theirs.may_be_due() {
        return None;
    }
    let awaits = if is_call { Awaits::Answer(index) } else { Awaits::Call(index) };
    if !dispatch::switch_to(here, thread, other, awaits.kind(), || ends.lends() || !is_call) {
        return None;
    }
    theirs.waiting = Waiting::Not;
    let myself = mine.begin_in_registers(thread.name(), awaits);
    if is_call {
        ends.serve_first(myself, thread.process().index());
    } else {
        ends.end_call_and_wait(answered, myself);
    }
    Some(Next { thread: other, call_id })
}

/// The same without the CPU: whoever waits may be elsewhere, and may wait through its ring.
#[cold]
fn give(
    thread: &'static Thread,
    index: u32,
    ends: &mut Endpoint,
    request: DirectRequest,
    answered: u32,
    turn: &mut Turn,
) -> Progress {
    let is_call = request.op == op::CALL;
    let (client, ledger) = (thread.process().index(), &thread.process().ledger);
    let opened = match is_call.then(|| ends.open(client, ledger)) {
        Some(Err(code)) => return Progress::Refused(code),
        Some(Ok(opened)) => opened,
        None => false,
    };
    let given = give_to_partner(thread, index, ends, request, answered, turn);
    if let (Progress::Refused(_), true) = (&given, opened) {
        ends.close(client, ledger);
    }
    given
}

fn give_to_partner(
    thread: &'static Thread,
    index: u32,
    ends: &mut Endpoint,
    request: DirectRequest,
    answered: u32,
    turn: &mut Turn,
) -> Progress {
    let is_call = request.op == op::CALL;
    let Some((to, call_id)) = partner(thread, ends, is_call, answered) else {
        return Progress::Refused(CapError::NotDirect);
    };
    if is_call {
        if let Err(code) = may_lend(ends, thread.name(), to.thread) {
            return Progress::Refused(code);
        }
    } else {
        contexts::return_loan(to.thread, CallEnd::Reply);
    }
    let awaits = if is_call { Awaits::Answer(index) } else { Awaits::Call(index) };
    let myself = thread.inbox.lock().begin_in_registers(thread.name(), awaits);
    let head = ReceivedCall { call_id, len: request.len, deadline_ns: 0 };
    if hand_message(turn, to, is_call, Short { head, words: thread.context.mine().words() }).is_err() {
        let _nobody_knew = thread.inbox.lock().give_up(thread.name());
        return Progress::Refused(CapError::NotDirect);
    }
    // Nobody can answer before the endpoint is let go.
    if is_call {
        ends.serve_first(myself, thread.process().index());
    } else {
        ends.end_call_and_wait(answered, myself);
    }
    Progress::Given
}

/// Hands a message to whoever waits for it, in the way that it waits: in its registers, or in its memory.
fn hand_message(turn: &mut Turn, to: Waiter, is_call: bool, message: Short) -> Result<(), NotHanded> {
    if to.is_in_registers() {
        return hand_short(turn, to, |_| Some(message));
    }
    let mut bytes = [0; HEAD + 8 * DIRECT_WORDS];
    bytes[..HEAD].copy_from_slice(&message.head.to_bytes());
    for (bytes, word) in bytes[HEAD..].chunks_exact_mut(8).zip(message.words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    let from = if is_call { 0 } else { HEAD };
    hand(turn, to, &bytes[from..HEAD + message.head.len as usize])
}
