//! CALL, RECV and RETURN.
//!
//! A message goes from one address space into a buffer of the kernel's and from there into the other: no two address
//! spaces are locked at once. Whoever waits at an endpoint has its request in flight; it is looked at and ended with its
//! inbox locked once, so a request that was withdrawn meanwhile is noticed, and nothing is written for it.

use super::{Answer, Call, Turn};
use crate::object::endpoint::endpoint;
use crate::object::inbox::{Awaits, Posted, Short, Waiter, Waiting};
use crate::object::thread;
use mainspring_abi::Nanos;
use mainspring_abi::kernel::{DIRECT_WORDS, MAX_MESSAGE, ReceivedCall};
use mainspring_abi::ring::{CapError, CapSqeV2};
use mainspring_ring::deadline::propagate;

pub(super) const HEAD: usize = size_of::<ReceivedCall>();
/// Most messages are short, and a short buffer is sooner cleared.
pub(super) const SHORT: usize = 64;

/// Why something could not be handed to a request that waits.
pub(super) enum NotHanded {
    /// There is no such request any more.
    Stale,
    /// Its buffer is too small, or cannot be written. It goes on waiting.
    BadBuffer,
}

/// Ends the waiting request `to` with `bytes` in its buffer.
#[inline(always)]
pub(super) fn hand(turn: &mut Turn, to: Waiter, bytes: &[u8]) -> Result<(), NotHanded> {
    if to.is_in_registers() {
        return hand_short(turn, to, |awaits| short(awaits, bytes));
    }
    let thread = thread::slot(to.thread.index());
    let mut inbox = thread.inbox.lock();
    let request = &inbox.request(to).ok_or(NotHanded::Stale)?.request;
    let (address, room) = (request.v1.result_addr, request.v1.result_len as usize);
    if bytes.len() > room || thread.process().write(address, bytes).is_err() {
        return Err(NotHanded::BadBuffer);
    }
    let what = inbox.finish_found(to, Ok(bytes.len() as u32));
    drop(inbox);
    if what == Posted::Wake {
        turn.wake(thread);
    }
    Ok(())
}

/// Ends the waiting request `to`, which is in registers, with what `message` makes of what it waits for.
#[inline(always)]
pub(super) fn hand_short(
    turn: &mut Turn,
    to: Waiter,
    message: impl FnOnce(Awaits) -> Option<Short>,
) -> Result<(), NotHanded> {
    let thread = thread::slot(to.thread.index());
    let mut inbox = thread.inbox.lock();
    let awaits = inbox.awaited_in_registers(to).ok_or(NotHanded::Stale)?;
    inbox.waiting = Waiting::Has(message(awaits).ok_or(NotHanded::BadBuffer)?);
    drop(inbox);
    turn.wake(thread);
    Ok(())
}

/// `bytes` as a message in registers, if they are few enough: a call has its head before it, an answer has none.
fn short(awaits: Awaits, bytes: &[u8]) -> Option<Short> {
    let (head, message) = match awaits {
        Awaits::Call(_) => {
            let (head, message) = bytes.split_first_chunk()?;
            (ReceivedCall::from_bytes(head), message)
        }
        _ => (ReceivedCall { len: bytes.len() as u32, ..ReceivedCall::default() }, bytes),
    };
    let mut words = [0; DIRECT_WORDS];
    if message.len() > 8 * DIRECT_WORDS {
        return None;
    }
    for (word, bytes) in words.iter_mut().zip(message.chunks(8)) {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(whole);
    }
    Some(Short { head, words })
}

/// Ends the waiting request `to`, which is at fault.
fn fail(turn: &mut Turn, to: Waiter, code: CapError) {
    let thread = thread::slot(to.thread.index());
    let what = thread.inbox.lock().finish(to, Err(code));
    if what == Posted::Wake {
        turn.wake(thread);
    }
}

/// What stands before the message of `from`.
#[inline]
pub(super) fn head(call_id: u32, from: &CapSqeV2) -> [u8; HEAD] {
    let deadline_ns = if from.deadline_ns == 0 { 0 } else { propagate(from).deadline_ns };
    ReceivedCall { call_id, len: from.v1.params_len, deadline_ns }.to_bytes()
}

pub fn call(call: &mut Call<'_>, index: u32) -> Result<Answer, CapError> {
    let len = call.request.v1.params_len as usize;
    if HEAD + len <= SHORT {
        call_with(call, index, &mut [0; SHORT][..HEAD + len])
    } else if len <= MAX_MESSAGE {
        call_with(call, index, &mut [0; HEAD + MAX_MESSAGE][..HEAD + len])
    } else {
        Err(CapError::BadAddress)
    }
}

fn call_with(call: &mut Call<'_>, index: u32, buffer: &mut [u8]) -> Result<Answer, CapError> {
    call.process().read(call.request.v1.params_addr, &mut buffer[HEAD..])?;
    let mut caller = None;
    loop {
        let mut ends = endpoint(index).lock();
        if ends.first_server().is_none() && !ends.has_room_for_caller() {
            drop(ends);
            return match caller {
                Some(caller) => call.cancel(caller, CapError::Overloaded),
                None => Err(CapError::Overloaded),
            };
        }
        let waiter = match caller {
            Some(waiter) => waiter,
            None => call.begin(Awaits::Answer(index), Nanos::MAX)?,
        };
        caller = Some(waiter);
        let Some(server) = ends.take_server() else {
            // There is room, as was just seen.
            let _ = ends.add_caller(waiter);
            return Ok(Answer::Pending);
        };
        let by = thread::slot(server.thread.index()).process().name();
        let call_id = match ends.receive(waiter, by) {
            Ok(call_id) => call_id,
            Err(code) => {
                // The server has not been disturbed: it goes on waiting. It was in the queue, so there is room.
                let _ = ends.add_server(server);
                drop(ends);
                return call.cancel(waiter, code);
            }
        };
        drop(ends);
        buffer[..HEAD].copy_from_slice(&head(call_id, call.request));
        let Err(why) = hand(call.turn, server, buffer) else { return Ok(Answer::Pending) };
        // Somebody else may serve it.
        let _taken_back = endpoint(index).lock().answer(call_id, by);
        if let NotHanded::BadBuffer = why {
            fail(call.turn, server, CapError::BadAddress);
        }
    }
}

pub fn receive(call: &mut Call<'_>, index: u32) -> Result<Answer, CapError> {
    loop {
        let mut ends = endpoint(index).lock();
        let Some(caller) = ends.take_caller() else {
            if !ends.has_room_for_server() {
                return Err(CapError::Overloaded);
            }
            let server = call.begin(Awaits::Call(index), Nanos::MAX)?;
            return ends.add_server(server).map(|()| Answer::Pending);
        };
        let received = ends.receive(caller, call.process().name());
        drop(ends);
        let outcome = match received {
            Ok(call_id) => fetch(call, index, caller, call_id),
            Err(code) => Err(Side::Server(code)),
        };
        match outcome {
            Ok(len) => return Ok(Answer::Done(len)),
            Err(Side::Caller(code)) => fail(call.turn, caller, code),
            Err(Side::Server(code)) => {
                // The caller has not been disturbed: it goes on waiting, if there is room.
                if endpoint(index).lock().add_caller(caller).is_err() {
                    fail(call.turn, caller, CapError::Overloaded);
                }
                return Err(code);
            }
        }
    }
}

/// Whose fault it is that a call could not be received.
enum Side {
    Caller(CapError),
    Server(CapError),
}

/// Copies the message of `caller`, which waits, to the server that receives it; how much that was.
fn fetch(call: &Call<'_>, index: u32, caller: Waiter, call_id: u32) -> Result<u32, Side> {
    let copied = copy_message(call, caller, call_id);
    if copied.is_err() {
        let _ = endpoint(index).lock().answer(call_id, call.process().name());
    }
    copied
}

fn copy_message(call: &Call<'_>, caller: Waiter, call_id: u32) -> Result<u32, Side> {
    let gone = || Side::Caller(CapError::PeerGone);
    let thread = thread::find(caller.thread).ok_or_else(gone)?;
    let from = thread.inbox.lock().request(caller).map(|op| op.request).ok_or_else(gone)?;
    let whole = HEAD + from.v1.params_len as usize;
    let mut buffer = [0; HEAD + MAX_MESSAGE];
    let message = buffer.get_mut(..whole).ok_or(Side::Caller(CapError::BadAddress))?;
    thread.process().read(from.v1.params_addr, &mut message[HEAD..]).map_err(Side::Caller)?;
    message[..HEAD].copy_from_slice(&head(call_id, &from));
    if whole > call.request.v1.result_len as usize {
        return Err(Side::Server(CapError::BadAddress));
    }
    call.process().write(call.request.v1.result_addr, message).map_err(Side::Server)?;
    Ok(whole as u32)
}

/// Answers a call, and receives the next one if that went well.
pub fn answer_and_receive(call: &mut Call<'_>, index: u32) -> Result<Answer, CapError> {
    answer(call, index)?;
    receive(call, index)
}

pub fn answer(call: &mut Call<'_>, index: u32) -> Result<Answer, CapError> {
    let len = call.request.v1.params_len as usize;
    if len <= SHORT {
        send_answer(call, index, &mut [0; SHORT][..len])
    } else if len <= MAX_MESSAGE {
        send_answer(call, index, &mut [0; MAX_MESSAGE][..len])
    } else {
        Err(CapError::BadAddress)
    }
}

fn send_answer(call: &mut Call<'_>, index: u32, message: &mut [u8]) -> Result<Answer, CapError> {
    let v1 = &call.request.v1;
    call.process().read(v1.params_addr, message)?;
    let caller = endpoint(index).lock().answer(v1.call_id, call.process().name())?;
    match hand(call.turn, caller, message) {
        Ok(()) => Ok(Answer::Done(0)),
        Err(NotHanded::Stale) => Err(CapError::Cancelled),
        Err(NotHanded::BadBuffer) => {
            fail(call.turn, caller, CapError::BadAddress);
            Ok(Answer::Done(0))
        }
    }
}
