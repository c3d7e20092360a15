//! CALL, RECV and RETURN.
//!
//! A message goes from one address space into a buffer of the kernel's and from there into the other: no two address
//! spaces are locked at once. Whoever waits at an endpoint has its request in flight; it is looked at and ended with its
//! inbox locked once, so a request that was withdrawn meanwhile is noticed, and nothing is read or written for it.
//!
//! Whoever is in a queue of an endpoint that is locked is in its slot: a thread that ends leaves its queues before that.

use super::{Answer, Call, Turn};
use crate::arch;
use crate::object::endpoint::{Endpoint, Notice, endpoint};
use crate::object::inbox::{Awaits, Posted, Short, Waiter, Waiting};
use crate::object::thread;
use crate::sched::{contexts, dispatch, wakeup};
use mainspring_abi::kernel::{DIRECT_WORDS, MAX_MESSAGE, ReceivedCall};
use mainspring_abi::ring::{CapError, CapSqeV2, QosFlags};
use mainspring_abi::{ContextRef, Nanos, ThreadRef};
use mainspring_driver::contexts::CallEnd;
use mainspring_ring::deadline::{is_late, propagate};
use mainspring_schema::EndpointMethod;

pub(super) const HEAD: usize = size_of::<ReceivedCall>();
/// Most messages are short, and a short buffer is sooner cleared.
pub(super) const SHORT: usize = 64;

/// Requests of others that are found at fault and end before interrupts are taken.
const FAILED_AT_ONCE: u32 = 8;

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
    turn.ended_others = true;
    let _it_is_over = end(turn, to, code, CallEnd::DeliveryFailed);
}

/// Ends the waiting request `to` with `code`. A caller has its context back before that.
fn end(turn: &mut Turn, to: Waiter, code: CapError, how: CallEnd) -> Posted {
    contexts::return_loan(to.thread, how);
    let thread = thread::slot(to.thread.index());
    let what = thread.inbox.lock().finish(to, Err(code));
    if what == Posted::Wake {
        turn.wake(thread);
    }
    what
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

/// Everything is decided with the endpoint locked, and the request is put in flight last: then it waits, or a server that
/// waits has it. A server whose own request is at fault is told so, and the next one is tried: after a few of them, when interrupts have
/// been taken.
fn call_with(call: &mut Call<'_>, index: u32, buffer: &mut [u8]) -> Result<Answer, CapError> {
    let process = call.process();
    process.read(call.request.v1.params_addr, &mut buffer[HEAD..])?;
    let client = process.index();
    let mut ends = endpoint(index).lock();
    let opened = ends.open(client, &process.ledger)?;
    if !ends.may_call(client) {
        return Err(CapError::Overloaded);
    }
    let caller = match call.begin(Awaits::Answer(index), Nanos::MAX) {
        Ok(caller) => caller,
        Err(code) => {
            if opened {
                ends.close(client, &process.ledger);
            }
            return Err(code);
        }
    };
    let mut failed = 0;
    loop {
        let Some((server, call_id)) = ends.first_server() else {
            ends.add_caller(caller, client);
            return Ok(Answer::Pending);
        };
        if failed == FAILED_AT_ONCE && dispatch::runs_here(call.thread) && call.retract(caller) {
            if opened {
                ends.close(client, &process.ledger);
            }
            return Ok(Answer::Again);
        }
        if let Err(code) = may_lend(&ends, call.thread.name(), server.thread) {
            call.retract(caller);
            if opened {
                ends.close(client, &process.ledger);
            }
            return Err(code);
        }
        buffer[..HEAD].copy_from_slice(&head(call_id, call.request));
        let Err(why) = hand(call.turn, server, buffer) else {
            ends.serve_first(caller, client);
            let _on_what_it_has_otherwise = serve_on_own(&ends, server.thread);
            return Ok(Answer::Pending);
        };
        ends.drop_server();
        if let NotHanded::BadBuffer = why {
            failed += 1;
            fail(call.turn, server, CapError::BadAddress);
        }
    }
}

/// Whoever receives at the endpoint `index` is told of `notice`: a thread that waits there, or the next one that comes. Nothing
/// is locked.
pub fn post_notice(index: u32, notice: Notice) {
    let mut turn = Turn::default();
    let bytes = notice_bytes(notice);
    let mut ends = endpoint(index).lock();
    loop {
        let Some((server, _)) = ends.first_server() else {
            ends.add_notice(notice);
            break;
        };
        let handed = hand(&mut turn, server, &bytes);
        ends.drop_server();
        match handed {
            Ok(()) => break,
            Err(NotHanded::BadBuffer) => fail(&mut turn, server, CapError::BadAddress),
            Err(NotHanded::Stale) => {}
        }
    }
    drop(ends);
    if let Some(target) = turn.target {
        wakeup::wake(target);
    }
}

/// A notice as it is received: as a call under the number 0.
fn notice_bytes(notice: Notice) -> [u8; HEAD + size_of::<Notice>()] {
    let mut bytes = [0; HEAD + size_of::<Notice>()];
    let head = ReceivedCall { call_id: 0, len: size_of::<Notice>() as u32, deadline_ns: 0 };
    bytes[..HEAD].copy_from_slice(&head.to_bytes());
    for (bytes, word) in bytes[HEAD..].chunks_exact_mut(8).zip(notice) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// Writes the notice that waits longest into the buffer of the server that receives it; how much that was, or `None` if none
/// waits. It goes on waiting.
fn copy_notice(call: &Call<'_>, ends: &Endpoint) -> Result<Option<u32>, CapError> {
    let Some(notice) = ends.first_notice() else { return Ok(None) };
    let bytes = notice_bytes(notice);
    if bytes.len() > call.request.v1.result_len as usize {
        return Err(CapError::BadAddress);
    }
    call.process().write(call.request.v1.result_addr, &bytes)?;
    Ok(Some(bytes.len() as u32))
}

pub fn receive(call: &mut Call<'_>, index: u32) -> Result<Answer, CapError> {
    let by = call.process().index();
    let mut ends = endpoint(index).lock();
    if let Some(len) = copy_notice(call, &ends)? {
        ends.drop_notice();
        return Ok(Answer::Done(len));
    }
    let call_id = ends.next_call().ok_or(CapError::Overloaded)?;
    match copy_next(call, &mut ends, call_id)? {
        Copied::Whole(len) => {
            // A call that it has not answered is one that it serves on what it has.
            end_service(&ends, call.thread.name());
            receive_next(call, &mut ends, call_id);
            Ok(Answer::Done(len))
        }
        Copied::Later => Ok(Answer::Again),
        Copied::Nothing => {
            let server = call.begin(Awaits::Call(index), Nanos::MAX)?;
            end_service(&ends, call.thread.name());
            ends.add_server(server, call_id, by);
            Ok(Answer::Pending)
        }
    }
}

/// What a look for the next caller came to.
enum Copied {
    /// Its message, which is so long.
    Whole(u32),
    /// Nobody waits.
    Nothing,
    /// So many were at fault that the look goes on when interrupts have been taken.
    Later,
}

/// Copies the message of the caller whose turn it is into the buffer of the server that receives it under `call_id`. The caller goes on
/// waiting. One whose own request is at fault, or came too late to be of use, is told so, and the next one is tried.
fn copy_next(call: &mut Call<'_>, ends: &mut Endpoint, call_id: u32) -> Result<Copied, CapError> {
    let mut failed = 0;
    while let Some(caller) = ends.next_caller() {
        if failed == FAILED_AT_ONCE && dispatch::runs_here(call.thread) {
            return Ok(Copied::Later);
        }
        let may_call = may_lend(ends, caller.thread, call.thread.name()).map_err(Side::Caller);
        match may_call.and_then(|()| copy_message(call, caller, call_id)) {
            Ok(len) => return Ok(Copied::Whole(len)),
            Err(Side::Server(code)) => return Err(code),
            Err(Side::Caller(code)) => {
                failed += 1;
                ends.drop_caller();
                fail(call.turn, caller, code);
            }
        }
    }
    Ok(Copied::Nothing)
}

/// The call whose message was copied is received under `call_id`: on the endpoint's own context, or on the time of its caller if that
/// one lends it.
fn receive_next(call: &Call<'_>, ends: &mut Endpoint, call_id: u32) {
    let server = call.thread.name();
    if let Some(caller) = ends.receive_next(call_id, call.process().index(), server)
        && !serve_on_own(ends, server)
        && ends.lends()
    {
        contexts::call_received(caller, server);
    }
}

/// `server`, which has received a call, serves it on the endpoint's own context, if there is one and it can; whether it does.
fn serve_on_own(ends: &Endpoint, server: ThreadRef) -> bool {
    ends.own_context().is_some()
        && own_context_for(ends, server).is_some_and(|own| contexts::serve_on(own, server))
}

/// The endpoint's own context, if `server` may serve on it. Most endpoints have none.
#[cold]
fn own_context_for(ends: &Endpoint, server: ThreadRef) -> Option<ContextRef> {
    ends.own_context_of(thread::find(server)?.process().index())
}

/// `server` has answered, or waits for the next call: the endpoint's own context is at rest, if it served on that.
fn end_service(ends: &Endpoint, server: ThreadRef) {
    if let Some(own) = ends.own_context() {
        contexts::end_service(own, server);
    }
}

/// Whether a call of `caller` may be given to `server`. It may not if the caller's context would be lent too often, unless the server
/// has the endpoint's own.
pub(super) fn may_lend(ends: &Endpoint, caller: ThreadRef, server: ThreadRef) -> Result<(), CapError> {
    if !ends.lends() {
        return Ok(());
    }
    let has_own =
        ends.own_context().is_some() && own_context_for(ends, server).is_some_and(contexts::is_free);
    if has_own { Ok(()) } else { contexts::may_call(caller, server) }
}

/// Whose fault it is that a call could not be received.
enum Side {
    Caller(CapError),
    Server(CapError),
}

/// Copies the message of `caller`, which waits, to the server that receives it; how much that was. The caller's memory is
/// read with its inbox locked: as long as the request is there its thread lives, and its process with it.
fn copy_message(call: &Call<'_>, caller: Waiter, call_id: u32) -> Result<u32, Side> {
    let mut buffer = [0; HEAD + MAX_MESSAGE];
    let thread = thread::slot(caller.thread.index());
    let inbox = thread.inbox.lock();
    let from = &inbox.request(caller).ok_or(Side::Caller(CapError::PeerGone))?.request;
    let drops = from.deadline_ns != 0 && from.qos().is_ok_and(|qos| qos.has(QosFlags::DROP_IF_LATE));
    if drops && is_late(arch::now(), from.deadline_ns) {
        dispatch::count_expired_request();
        return Err(Side::Caller(CapError::DeadlineExpired));
    }
    let whole = HEAD + from.v1.params_len as usize;
    let message = buffer.get_mut(..whole).ok_or(Side::Caller(CapError::BadAddress))?;
    thread.process().read(from.v1.params_addr, &mut message[HEAD..]).map_err(Side::Caller)?;
    message[..HEAD].copy_from_slice(&head(call_id, from));
    drop(inbox);
    if whole > call.request.v1.result_len as usize {
        return Err(Side::Server(CapError::BadAddress));
    }
    call.process().write(call.request.v1.result_addr, message).map_err(Side::Server)?;
    Ok(whole as u32)
}

/// Answers a call and receives the next one. The next one is copied first: who cannot receive it has not answered either.
pub fn answer_and_receive(call: &mut Call<'_>, index: u32) -> Result<Answer, CapError> {
    with_answer(call, |call, answer| {
        let answered = call.request.v1.call_id;
        let mut ends = endpoint(index).lock();
        let caller = ends.find_call(answered, call.process().index())?;
        call.may_wait()?;
        if let Some(len) = copy_notice(call, &ends)? {
            give_answer(call, &mut ends, caller, answer)?;
            ends.end_call(answered);
            ends.drop_notice();
            return Ok(Answer::Done(len));
        }
        let call_id = ends.call_after(answered);
        let next = match caller {
            Some(_) => copy_next(call, &mut ends, call_id)?,
            None => Copied::Nothing,
        };
        if let Copied::Later = next {
            return Ok(Answer::Again);
        }
        give_answer(call, &mut ends, caller, answer)?;
        if let Copied::Whole(len) = next {
            ends.end_call(answered);
            receive_next(call, &mut ends, call_id);
            return Ok(Answer::Done(len));
        }
        let server = call.begin(Awaits::Call(index), Nanos::MAX)?;
        ends.end_call_and_wait(answered, server);
        Ok(Answer::Pending)
    })
}

pub fn answer(call: &mut Call<'_>, index: u32) -> Result<Answer, CapError> {
    with_answer(call, |call, answer| {
        let (answered, by) = (call.request.v1.call_id, call.process().index());
        let mut ends = endpoint(index).lock();
        let caller = ends.find_call(answered, by)?;
        give_answer(call, &mut ends, caller, answer)?;
        ends.end_call(answered);
        Ok(Answer::Done(0))
    })
}

/// Answers a call with an exception. A call that was withdrawn is over, as with an answer.
pub fn throw(call: &mut Call<'_>, index: u32) -> Result<Answer, CapError> {
    let (answered, by) = (call.request.v1.call_id, call.process().index());
    let mut ends = endpoint(index).lock();
    let caller = ends.find_call(answered, by)?;
    end_service(&ends, call.thread.name());
    let told = caller.map(|caller| end(call.turn, caller, CapError::Exception, CallEnd::Exception));
    ends.end_call(answered);
    match told {
        None | Some(Posted::Stale) => Err(CapError::Cancelled),
        Some(_) => Ok(Answer::Done(0)),
    }
}

/// Calls that one request to close an endpoint ends.
const ENDED_AT_ONCE: u32 = 4;

/// The serving side's own methods. Apart from the others, which are called more often.
#[inline(never)]
pub fn serving(call: &mut Call<'_>, index: u32) -> Result<Answer, CapError> {
    match EndpointMethod::try_from(call.request.v1.method_id).map_err(|_| CapError::NoSuchMethod)? {
        EndpointMethod::Close => {
            let mut ends = endpoint(index).lock();
            ends.set_shut(true);
            let mut ended = 0;
            while ended < ENDED_AT_ONCE
                && let Some(caller) = ends.take_any_caller()
            {
                let _it_is_over = end(call.turn, caller, CapError::PeerGone, CallEnd::EndpointClosed);
                ended += 1;
            }
            Ok(Answer::Done(ended))
        }
        EndpointMethod::Open => {
            endpoint(index).lock().set_shut(false);
            Ok(Answer::Done(0))
        }
    }
}

/// Reads the answer that the request brings, and works with it.
fn with_answer(
    call: &mut Call<'_>,
    work: impl FnOnce(&mut Call<'_>, &[u8]) -> Result<Answer, CapError>,
) -> Result<Answer, CapError> {
    let (address, len) = (call.request.v1.params_addr, call.request.v1.params_len as usize);
    if len <= SHORT {
        let mut message = [0; SHORT];
        call.process().read(address, &mut message[..len])?;
        work(call, &message[..len])
    } else if len <= MAX_MESSAGE {
        let mut message = [0; MAX_MESSAGE];
        call.process().read(address, &mut message[..len])?;
        work(call, &message[..len])
    } else {
        Err(CapError::BadAddress)
    }
}

/// Gives the answer to `caller`, if it still waits. A call that nobody waits for any more is over, which is the server's
/// outcome. So is one whose caller has no room for the answer, which is the caller's own fault.
fn give_answer(
    call: &mut Call<'_>,
    ends: &mut Endpoint,
    caller: Option<Waiter>,
    answer: &[u8],
) -> Result<(), CapError> {
    end_service(ends, call.thread.name());
    let handed = match caller {
        Some(caller) => {
            contexts::return_loan(caller.thread, CallEnd::Reply);
            hand(call.turn, caller, answer)
        }
        None => Err(NotHanded::Stale),
    };
    match (handed, caller) {
        (Err(NotHanded::BadBuffer), Some(caller)) => fail(call.turn, caller, CapError::BadAddress),
        (Err(_), _) => {
            ends.end_call(call.request.v1.call_id);
            return Err(CapError::Cancelled);
        }
        (Ok(()), _) => {}
    }
    Ok(())
}
