//! CALL, RECV and RETURN.

use super::{Answer, Call};
use crate::arch;
use crate::object::endpoint::endpoint;
use crate::object::inbox::{Awaits, Posted, Waiter};
use crate::object::thread;
use crate::sched::wakeup;
use mainspring_abi::Nanos;
use mainspring_abi::kernel::{MAX_MESSAGE, ReceivedCall};
use mainspring_abi::ring::{CapError, CapSqeV2};
use mainspring_ring::deadline::propagate;

const HEAD: usize = size_of::<ReceivedCall>();
/// Most messages are short, and a short buffer is sooner cleared.
const SHORT: usize = 128;

/// What a waiting operation asked for, if it still waits.
fn request_of(waiter: Waiter) -> Option<CapSqeV2> {
    thread::find(waiter.thread)?.inbox.lock().request(waiter).map(|op| op.request)
}

/// Gives a thread what it waited for. The first such thread of an entry may be handed the CPU; others are woken.
fn deliver(call: &mut Call<'_>, to: Waiter, outcome: Result<u32, CapError>) -> bool {
    let Some(thread) = thread::find(to.thread) else { return false };
    let what = thread.inbox.lock().finish(to, arch::now(), outcome);
    match what {
        Posted::Wake if call.turn.target.is_none() => call.turn.target = Some(thread),
        Posted::Wake => wakeup::wake(thread),
        Posted::Nothing => {}
        Posted::Stale => return false,
    }
    true
}

/// Copies a call from its caller to a server that waits, and notes that it is being served.
fn hand_over(index: u32, caller: Waiter, server: Waiter) -> Result<u32, Side> {
    let from = request_of(caller).ok_or(Side::Caller(CapError::PeerGone))?;
    if HEAD + from.v1.params_len as usize <= SHORT {
        copy_over(index, (caller, &from), server, &mut [0; SHORT])
    } else {
        copy_over(index, (caller, &from), server, &mut [0; HEAD + MAX_MESSAGE])
    }
}

fn copy_over(
    index: u32,
    (caller, from): (Waiter, &CapSqeV2),
    server: Waiter,
    buffer: &mut [u8],
) -> Result<u32, Side> {
    let to = request_of(server).ok_or(Side::Server(CapError::PeerGone))?;
    let len = from.v1.params_len as usize;
    let whole = HEAD + len;
    let sender = thread::slot(caller.thread.index()).process();
    let receiver = thread::slot(server.thread.index()).process();
    sender.read(from.v1.params_addr, &mut buffer[HEAD..whole]).map_err(Side::Caller)?;
    if whole > to.v1.result_len as usize {
        return Err(Side::Server(CapError::BadAddress));
    }
    let call_id = endpoint(index).lock().receive(caller, receiver.name()).map_err(Side::Caller)?;
    let head = ReceivedCall { call_id, len: len as u32, deadline_ns: propagate(from).deadline_ns };
    buffer[..HEAD].copy_from_slice(&head.to_bytes());
    if let Err(code) = receiver.write(to.v1.result_addr, &buffer[..whole]) {
        let _ = endpoint(index).lock().answer(call_id, receiver.name());
        return Err(Side::Server(code));
    }
    Ok(whole as u32)
}

/// Whose fault it is that a call could not be handed over.
enum Side {
    Caller(CapError),
    Server(CapError),
}

pub fn call(call: &mut Call<'_>, index: u32) -> Result<Answer, CapError> {
    if call.request.v1.params_len as usize > MAX_MESSAGE {
        return Err(CapError::BadAddress);
    }
    let caller = call.begin(Awaits::Answer(index), Nanos::MAX)?;
    loop {
        let mut ends = endpoint(index).lock();
        let Some(server) = ends.take_server() else {
            let queued = ends.add_caller(caller);
            drop(ends);
            return match queued {
                Ok(()) => Ok(Answer::Pending),
                Err(code) => call.cancel(caller, code),
            };
        };
        drop(ends);
        match hand_over(index, caller, server) {
            Ok(len) => {
                deliver(call, server, Ok(len));
                return Ok(Answer::Pending);
            }
            Err(Side::Caller(code)) => {
                // The server has not been disturbed: it goes on waiting.
                if endpoint(index).lock().add_server(server).is_err() {
                    deliver(call, server, Err(CapError::Overloaded));
                }
                return call.cancel(caller, code);
            }
            Err(Side::Server(code)) => {
                deliver(call, server, Err(code));
            }
        }
    }
}

pub fn receive(call: &mut Call<'_>, index: u32) -> Result<Answer, CapError> {
    let server = call.begin(Awaits::Call(index), Nanos::MAX)?;
    loop {
        let mut ends = endpoint(index).lock();
        let Some(caller) = ends.take_caller() else {
            let queued = ends.add_server(server);
            drop(ends);
            return match queued {
                Ok(()) => Ok(Answer::Pending),
                Err(code) => call.cancel(server, code),
            };
        };
        drop(ends);
        match hand_over(index, caller, server) {
            Ok(len) => {
                deliver(call, server, Ok(len));
                return Ok(Answer::Pending);
            }
            Err(Side::Caller(code)) => {
                deliver(call, caller, Err(code));
            }
            Err(Side::Server(code)) => {
                if endpoint(index).lock().add_caller(caller).is_err() {
                    deliver(call, caller, Err(CapError::Overloaded));
                }
                return call.cancel(server, code);
            }
        }
    }
}

pub fn answer(call: &mut Call<'_>, index: u32) -> Result<Answer, CapError> {
    if call.request.v1.params_len as usize <= SHORT {
        send_answer(call, index, &mut [0; SHORT])
    } else {
        send_answer(call, index, &mut [0; MAX_MESSAGE])
    }
}

fn send_answer(call: &mut Call<'_>, index: u32, buffer: &mut [u8]) -> Result<Answer, CapError> {
    let v1 = call.request.v1;
    let len = v1.params_len as usize;
    let message = buffer.get_mut(..len).ok_or(CapError::BadAddress)?;
    call.process().read(v1.params_addr, message)?;
    let caller = endpoint(index).lock().answer(v1.call_id, call.process().name())?;
    let to = request_of(caller).ok_or(CapError::PeerGone)?;
    let outcome = if len > to.v1.result_len as usize {
        Err(CapError::BadAddress)
    } else {
        let receiver = thread::slot(caller.thread.index()).process();
        receiver.write(to.v1.result_addr, message).map(|()| len as u32)
    };
    if deliver(call, caller, outcome) { Ok(Answer::Done(0)) } else { Err(CapError::PeerGone) }
}
