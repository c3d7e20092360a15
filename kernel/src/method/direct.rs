//! Requests in registers: a call to a server that waits, and an answer to a caller that waits together with the wait for
//! the next call. The message is a few words, which go from one thread's registers to the other's; neither ring is touched.
//! The other side may as well wait through its ring: then it gets the message there.
//!
//! Conserved: either the message has been handed over and the thread waits for what comes back, or nothing has changed that
//! anybody can see, and the same request through the ring says what is wrong with it or waits as long as it takes.

use super::Turn;
use super::endpoints::{HEAD, NotHanded, hand, hand_short};
use crate::object::caps::Object;
use crate::object::endpoint::endpoint;
use crate::object::inbox::{Awaits, Short, Waiter};
use crate::object::thread::{self, Thread};
use mainspring_abi::kernel::{DIRECT_WORDS, DirectRequest, ReceivedCall};
use mainspring_abi::ring::{CapError, op};

/// Carries out the request that `thread` has in its registers, with `words` as its message: the thread waits from now on,
/// see [`crate::object::inbox::Waiting::InRegisters`].
#[inline(always)]
pub fn direct(
    thread: &'static Thread,
    request: DirectRequest,
    call_id: u32,
    words: [u64; DIRECT_WORDS],
    turn: &mut Turn,
) -> Result<(), CapError> {
    let state = thread.process().state.lock();
    let index = match (request.op, state.caps.look(request.cap_id)) {
        (op::CALL, Some(Object::EndpointCall(index))) | (op::RETURN_RECV, Some(Object::EndpointServe(index))) => {
            *index
        }
        (op::CALL | op::RETURN_RECV, Some(_)) => return Err(CapError::NoSuchMethod),
        (op::CALL | op::RETURN_RECV, None) => return Err(CapError::InvalidCapability),
        _ => return Err(CapError::InvalidRequest),
    };
    drop(state);
    let done = if request.op == op::CALL {
        call(thread, index, request.len, words, turn)
    } else {
        answer_and_receive(thread, index, call_id, request.len, words, turn)
    };
    done.ok_or(CapError::NotDirect)
}

#[inline(always)]
fn call(
    thread: &'static Thread,
    index: u32,
    len: u32,
    words: [u64; DIRECT_WORDS],
    turn: &mut Turn,
) -> Option<()> {
    let mut ends = endpoint(index).lock();
    let server = ends.first_server()?;
    let caller = thread.inbox.lock().begin_in_registers(thread.name(), Awaits::Answer(index));
    let by = thread::slot(server.thread.index()).process().name();
    if let Ok(call_id) = ends.receive(caller, by) {
        let head = ReceivedCall { call_id, len, deadline_ns: 0 };
        if give(turn, server, true, Short { head, words }).is_ok() {
            let _served = ends.take_server();
            return Some(());
        }
        let _taken_back = ends.answer(call_id, by);
    }
    let _nobody_knew = thread.inbox.lock().give_up(thread.name());
    None
}

#[inline(always)]
fn answer_and_receive(
    thread: &'static Thread,
    index: u32,
    call_id: u32,
    len: u32,
    words: [u64; DIRECT_WORDS],
    turn: &mut Turn,
) -> Option<()> {
    let mut ends = endpoint(index).lock();
    if ends.has_caller() || !ends.has_room_for_server() {
        return None;
    }
    let by = thread.process().name();
    let caller = ends.caller_of(call_id, by)?;
    let server = thread.inbox.lock().begin_in_registers(thread.name(), Awaits::Call(index));
    let head = ReceivedCall { len, ..ReceivedCall::default() };
    if give(turn, caller, false, Short { head, words }).is_err() {
        let _nobody_knew = thread.inbox.lock().give_up(thread.name());
        return None;
    }
    // It is there, and there is room, as was just seen.
    let _caller = ends.answer(call_id, by);
    let _queued = ends.add_server(server);
    Some(())
}

/// Hands a message to whoever waits for it, in the way that it waits: in its registers, or in its memory.
#[inline(always)]
fn give(turn: &mut Turn, to: Waiter, is_call: bool, message: Short) -> Result<(), NotHanded> {
    if to.is_in_registers() {
        return hand_short(turn, to, |_| Some(message));
    }
    give_bytes(turn, to, is_call, &message)
}

#[cold]
fn give_bytes(turn: &mut Turn, to: Waiter, is_call: bool, message: &Short) -> Result<(), NotHanded> {
    let mut bytes = [0; HEAD + 8 * DIRECT_WORDS];
    bytes[..HEAD].copy_from_slice(&message.head.to_bytes());
    for (bytes, word) in bytes[HEAD..].chunks_exact_mut(8).zip(message.words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    let from = if is_call { 0 } else { HEAD };
    hand(turn, to, &bytes[from..HEAD + message.head.len as usize])
}
