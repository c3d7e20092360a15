//! Calls and answers in every way that they can go: many at once, long and short, in memory and in registers, to bad buffers,
//! given up, and to servers that end.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};
use mainspring_abi::kernel::{DirectRequest, MAX_MESSAGE, ReceivedCall};
use mainspring_abi::ring::op;
use mainspring_user::caps::{self, Short, ThreadOptions};
use mainspring_user::schema::ThreadState;
use mainspring_user::{CapError, client, say};

mainspring_user::program!(main);

const MS: u64 = 1_000_000;
/// Ends a server.
const STOP: u32 = u32::MAX;
const HEAD: usize = size_of::<ReceivedCall>();

fn main() -> i64 {
    let ends = (caps::need("call:x"), caps::need("serve:x"));
    lengths(ends);
    buffers(ends);
    withdrawn_before_it_was_received(ends);
    withdrawn_after_it_was_received(ends);
    refused_in_registers(ends);
    registers_and_rings(ends);
    crowd(ends);
    abandoned(ends);
    killed_at_any_moment(ends);
    closed(ends);
    // The last one waits in registers when the process ends.
    let left = caps::spawn(ThreadOptions::default(), move || serve_in_registers(ends.1));
    let _left = left.expect("within the quota");
    assert_eq!(call_in_registers(ends.0, Short::number(7)), Ok(Short::number(8)));
    0
}

/// An endpoint is closed: the call that is being served and those that wait end, others are refused, and the server is told when it
/// answers. Opened again, it takes calls as before.
fn closed((call, serve): (u32, u32)) {
    const CALLERS: u32 = 6;
    let stage = Arc::new(AtomicU32::new(0));
    let seen = stage.clone();
    let server = caps::spawn(ThreadOptions::default(), move || {
        let head = caps::receive(serve, &mut [0; HEAD + 8]).expect("a call comes");
        seen.store(1, Ordering::Release);
        while seen.load(Ordering::Acquire) == 1 {
            let _ = caps::park(seen.as_ptr() as u64, 1, 0);
        }
        let answered = client::carry_out(caps::return_request(serve, head.call_id, b"late"));
        assert_eq!(answered, Err(CapError::Cancelled), "nobody waits for it any more");
        let head = caps::receive(serve, &mut [0; HEAD + 8]).expect("a call comes");
        let answered = client::carry_out(caps::return_request(serve, head.call_id, b"yes"));
        i64::from(answered != Ok(0))
    });
    let server = server.expect("within the quota");
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let calls =
                move || i64::from(caps::call_endpoint(call, b"x", &mut [0; 8]) != Err(CapError::PeerGone));
            caps::spawn(ThreadOptions::default(), calls).expect("within the quota")
        })
        .collect();
    let asleep =
        |slot| caps::thread_info(slot, |info| info.get_state() == Ok(ThreadState::Asleep)) == Ok(true);
    let there = || stage.load(Ordering::Acquire) == 1 && callers.iter().all(|caller| asleep(caller.slot()));
    assert!(caps::comes_true(MS, there), "not everybody has called");
    assert_eq!(caps::close_endpoint(serve), Ok(CALLERS), "one was being served, and the others waited");
    for caller in &callers {
        assert_eq!(caller.join(), Ok(0), "its call has ended otherwise");
    }
    for _ in 0..20 {
        assert_eq!(caps::call_endpoint(call, b"x", &mut [0; 8]), Err(CapError::PeerGone));
        assert_eq!(caps::call_direct(call, Short::number(1)), Err(CapError::PeerGone));
    }
    stage.store(2, Ordering::Release);
    let _ = caps::unpark(stage.as_ptr() as u64, 1);
    caps::open_endpoint(serve).expect("the serving side can");
    assert_eq!(caps::call_endpoint(call, b"x", &mut [0; 8]), Ok(3), "it takes calls again");
    assert_eq!(server.join(), Ok(0));
    say!("calls: closed=ok");
}

/// A call in registers to a server that waits, sooner or later.
fn call_in_registers(call: u32, message: Short) -> Result<Short, CapError> {
    let mut outcome = Err(CapError::NotDirect);
    let asked = caps::comes_true(MS, || {
        outcome = caps::call_direct(call, message);
        outcome != Err(CapError::NotDirect)
    });
    assert!(asked, "no server ever waited");
    outcome
}

/// Answers numbers with the next one, and messages of other lengths with themselves reversed; a message without bytes ends
/// it. Messages go through registers where they fit.
fn serve_in_registers(serve: u32) -> i64 {
    let mut buffer = [0; HEAD + MAX_MESSAGE];
    let (mut head, mut message) = caps::receive_any(serve, &mut buffer).expect("a call comes");
    loop {
        let answer = match message {
            Some(short) if head.len == 4 => Short::number(short.to_number().wrapping_add(1)),
            Some(short) => {
                let (mut bytes, len) = short.to_bytes();
                bytes[..len].reverse();
                Short::new(&bytes[..len]).expect("as long as it was")
            }
            // Too long for registers: its first bytes.
            None => Short::new(&buffer[HEAD..HEAD + 8]).expect("eight bytes"),
        };
        if head.len == 0 {
            let returned = client::submit(caps::return_request(serve, head.call_id, &[])).expect("room");
            return i64::from(client::wait(returned) != Ok(0));
        }
        (head, message) = caps::answer_short(serve, head.call_id, answer, &mut buffer).expect("a call comes");
    }
}

/// Requests in registers that make no sense, or that no thread waits for, are refused and change nothing.
fn refused_in_registers((call, serve): (u32, u32)) {
    let ask = |op, cap_id| client::direct(DirectRequest { op, cap_id, len: 4 }, 0, [0; 4]).err();
    assert_eq!(ask(op::CALL, call), Some(CapError::NotDirect), "nobody serves");
    assert_eq!(ask(op::RETURN_RECV, serve), Some(CapError::NotDirect), "no call has that number");
    assert_eq!(ask(op::CALL, serve), Some(CapError::NoSuchMethod));
    assert_eq!(ask(op::RETURN_RECV, call), Some(CapError::NoSuchMethod));
    assert_eq!(ask(op::CALL, caps::need("timer")), Some(CapError::NoSuchMethod));
    assert_eq!(ask(op::CALL, call ^ 1 << 16), Some(CapError::InvalidCapability));
    assert_eq!(ask(op::CALL, u32::MAX), Some(CapError::InvalidCapability));
    for operation in [op::NOP, op::RECV, op::RETURN, op::CANCEL, u16::MAX] {
        assert_eq!(ask(operation, call), Some(CapError::InvalidRequest));
    }
    let too_long = DirectRequest { op: op::CALL, cap_id: call, len: 33 };
    assert_eq!(client::direct(too_long, 0, [0; 4]).err(), Some(CapError::InvalidRequest));
    say!("calls: refused_in_registers=ok");
}

/// Callers and servers in registers and in memory, each with each, and messages that registers have no room for.
fn registers_and_rings((call, serve): (u32, u32)) {
    let message: Vec<u8> = (1..=64).collect();
    let mut answer = [0; MAX_MESSAGE];
    let server = caps::spawn(ThreadOptions::default(), move || serve_in_registers(serve));
    let server = server.expect("within the quota");
    for len in 1..=32 {
        let mut expected = Vec::from(&message[..len]);
        expected.reverse();
        if len == 4 {
            expected = (u32::from_le_bytes([1, 2, 3, 4]) + 1).to_le_bytes().to_vec();
        }
        let short = Short::new(&message[..len]).expect("it fits");
        for _ in 0..3 {
            let (bytes, got) = call_in_registers(call, short).expect("the server answers").to_bytes();
            assert_eq!(bytes[..got], expected[..], "{len} bytes from registers to registers");
            let got = caps::call_endpoint(call, &message[..len], &mut answer).expect("the server answers");
            assert_eq!(answer[..got as usize], expected[..], "{len} bytes from memory to registers");
        }
    }
    let got = caps::call_endpoint(call, &message, &mut answer).expect("the server answers");
    assert_eq!(answer[..got as usize], message[..8], "too long for registers, and served all the same");
    assert_eq!(caps::call_endpoint(call, &message[..8], &mut answer[..4]), Err(CapError::BadAddress));
    assert_eq!(caps::call_endpoint(call, &[], &mut answer), Ok(0));
    assert_eq!(server.join(), Ok(0));
    // A server with a buffer takes what comes from registers, and its answer comes back there if it fits.
    let server = caps::spawn(ThreadOptions::default(), move || {
        let mut buffer = [0; 64];
        let mut head = caps::receive(serve, &mut buffer).expect("a call comes");
        for len in 1..=32 {
            let answer = Vec::from(&buffer[HEAD..HEAD + head.len as usize]);
            assert_eq!(answer.len(), len);
            head = caps::answer_and_receive(serve, head.call_id, &answer, &mut buffer).expect("a call comes");
        }
        let returned = client::submit(caps::return_request(serve, head.call_id, &[9; 40])).expect("room");
        i64::from(client::wait(returned) != Ok(0))
    });
    let server = server.expect("within the quota");
    for len in 1..=32 {
        let short = Short::new(&message[..len]).expect("it fits");
        assert_eq!(
            call_in_registers(call, short),
            Ok(short),
            "{len} bytes from registers to memory and back"
        );
    }
    let long_answer = call_in_registers(call, Short::number(1));
    assert_eq!(long_answer, Err(CapError::BadAddress), "the caller's own mistake, as with a small buffer");
    assert_eq!(server.join(), Ok(0));
    say!("calls: registers_and_rings=ok");
}

/// A server that ends without an answer: its caller is told, in registers as in memory.
fn abandoned((call, serve): (u32, u32)) {
    for in_registers in [false, true] {
        let child = caps::start_with("child", "abandon", &[], &[("serve", serve)]).expect("in the image");
        let told = if in_registers {
            call_in_registers(call, Short::number(1)).err()
        } else {
            caps::call_endpoint(call, b"well?", &mut [0; 8]).err()
        };
        assert_eq!(told, Some(CapError::PeerGone));
        assert_eq!(child.wait(), Ok(0));
        child.detach().expect("a handle can be dropped");
    }
    say!("calls: abandoned=ok");
}

/// A process whose threads do nothing but call each other in registers is killed at all moments of that; the endpoint serves
/// the next client.
//= ARCH:inv.direct-ipc
fn killed_at_any_moment((call, serve): (u32, u32)) {
    const ROUNDS: u64 = 30;
    for round in 0..ROUNDS {
        let ends = [("call", call), ("serve", serve)];
        let child = caps::start_with("child", "converse", &["threads"], &ends).expect("in the image");
        caps::sleep(round * 53_000).expect("within the quota");
        child.kill().expect("a handle can kill");
        assert_eq!(child.wait(), Ok(-3000));
        child.detach().expect("a handle can be dropped");
    }
    assert_eq!(
        caps::call_direct(call, Short::number(1)),
        Err(CapError::NotDirect),
        "nobody of the dead waits"
    );
    let server = caps::spawn(ThreadOptions::default(), move || serve_in_registers(serve));
    let server = server.expect("within the quota");
    assert_eq!(call_in_registers(call, Short::number(1)), Ok(Short::number(2)));
    assert_eq!(caps::call_endpoint(call, &[], &mut []), Ok(0));
    assert_eq!(server.join(), Ok(0));
    say!("calls: killed_at_any_moment=ok rounds={ROUNDS}");
}

/// Messages and answers of all lengths, up to the longest and beyond.
fn lengths((call, serve): (u32, u32)) {
    let server = caps::spawn(ThreadOptions::default(), move || {
        let mut buffer = [0; HEAD + MAX_MESSAGE];
        let mut head = caps::receive(serve, &mut buffer).expect("a call comes");
        loop {
            let len = head.len as usize;
            if len == 4 && buffer[HEAD..HEAD + 4] == STOP.to_le_bytes() {
                return i64::from(
                    client::wait(
                        client::submit(caps::return_request(serve, head.call_id, &[])).expect("room"),
                    ) != Ok(0),
                );
            }
            let mut answer = Vec::from(&buffer[HEAD..HEAD + len]);
            answer.reverse();
            head = caps::answer_and_receive(serve, head.call_id, &answer, &mut buffer).expect("a call comes");
        }
    });
    let server = server.expect("within the quota");
    let message: Vec<u8> = (0..MAX_MESSAGE).map(|at| at as u8).collect();
    let mut answer = [0; MAX_MESSAGE];
    for len in [0, 1, 7, 8, 47, 48, 49, 63, 64, 65, 500, MAX_MESSAGE] {
        let got = caps::call_endpoint(call, &message[..len], &mut answer).expect("the server answers");
        assert_eq!(got as usize, len);
        assert!(answer[..len].iter().rev().eq(&message[..len]), "{len} bytes came back otherwise");
    }
    let long = [0; MAX_MESSAGE + 1];
    assert_eq!(caps::call_endpoint(call, &long, &mut answer), Err(CapError::BadAddress));
    let nowhere = client::request(call, 0, &[], &mut []);
    for (params_addr, params_len) in [(0x5555_5555_5000, 8), (0xffff_8000_0000_0000, 4), (u64::MAX - 2, 8)] {
        let mut request = nowhere;
        (request.v1.params_addr, request.v1.params_len) = (params_addr, params_len);
        let refused = client::wait(client::submit(request).expect("room"));
        assert_eq!(refused, Err(CapError::BadAddress), "{params_addr:#x}");
    }
    // The answer does not fit: the caller's own mistake, of which the server learns nothing.
    assert_eq!(caps::call_endpoint(call, &message[..8], &mut answer[..4]), Err(CapError::BadAddress));
    assert_eq!(caps::call_endpoint(call, &STOP.to_le_bytes(), &mut answer), Ok(0));
    assert_eq!(server.join(), Ok(0));
    say!("calls: lengths=ok");
}

/// A server whose buffer cannot take the call is told so; the call goes to the next one.
fn buffers((call, serve): (u32, u32)) {
    let mut small = [0; HEAD + 2];
    let first = client::submit(caps::receive_request(serve, &mut small)).expect("room");
    let mut large = [0; 64];
    let second = client::submit(caps::receive_request(serve, &mut large)).expect("room");
    let mut answer = [0; 4];
    let asked = client::submit(client::request(call, 0, b"four", &mut answer)).expect("room");
    client::enter(2, u64::MAX).expect("an honest ring is served");
    assert_eq!(client::wait(first), Err(CapError::BadAddress));
    assert_eq!(client::wait(second), Ok(HEAD as u32 + 4));
    let head = ReceivedCall::from_bytes(large.first_chunk().expect("a head"));
    assert_eq!(&large[HEAD..HEAD + 4], b"four");
    let stranger = client::submit(caps::return_request(serve, head.call_id ^ 1 << 16, b"no")).expect("room");
    assert_eq!(client::wait(stranger), Err(CapError::InvalidParameter), "no call has that number");
    assert_eq!(
        client::wait(client::submit(caps::return_request(serve, head.call_id, b"yes")).expect("room")),
        Ok(0)
    );
    assert_eq!((client::wait(asked), &answer[..3]), (Ok(3), &b"yes"[..]));
    let again = client::submit(caps::return_request(serve, head.call_id, b"yes")).expect("room");
    assert_eq!(client::wait(again), Err(CapError::InvalidParameter), "a call is answered once");
    say!("calls: buffers=ok");
}

/// A call that no server received in time leaves nothing at the endpoint; nor does a receive.
fn withdrawn_before_it_was_received((call, serve): (u32, u32)) {
    let mut answer = [0; 8];
    for _ in 0..100 {
        let late = caps::call_endpoint_for(call, b"anybody?", &mut answer, MS / 10);
        assert_eq!(late, Err(CapError::TimedOut));
    }
    let mut buffer = [0; 64];
    let receive = client::submit(caps::receive_request(serve, &mut buffer)).expect("room");
    assert_eq!(client::wait_for(receive, 5 * MS), Ok(None), "the calls have gone");
    assert_eq!(client::cancel(receive), Err(CapError::Cancelled));
    let late = caps::call_endpoint_for(call, b"anybody?", &mut answer, 5 * MS);
    assert_eq!(late, Err(CapError::TimedOut), "the receive has gone");
    let refused = caps::call_endpoint_for(u32::MAX, b"anybody?", &mut answer, 5 * MS);
    assert_eq!(refused, Err(CapError::InvalidCapability), "a call that fails before its time is over");
    say!("calls: withdrawn_before=ok");
}

/// A call that is given up while it is served: the server is told when it answers, once, and the next call is another.
fn withdrawn_after_it_was_received((call, serve): (u32, u32)) {
    const RECEIVED: u32 = 1;
    const GIVEN_UP: u32 = 2;
    let step = Arc::new(AtomicU32::new(0));
    let told = step.clone();
    let server = caps::spawn(ThreadOptions::default(), move || {
        let mut buffer = [0; 64];
        let first = caps::receive(serve, &mut buffer).expect("a call comes");
        told.store(RECEIVED, Ordering::Release);
        let given_up = caps::comes_true(MS, || told.load(Ordering::Acquire) == GIVEN_UP);
        assert!(given_up, "the caller does not wait for ever");
        let answer = |call_id| {
            let returned = client::submit(caps::return_request(serve, call_id, b"late")).expect("room");
            client::wait(returned)
        };
        assert_eq!(answer(first.call_id), Err(CapError::Cancelled), "nobody waits for it");
        assert_eq!(answer(first.call_id), Err(CapError::InvalidParameter), "that was said once");
        let second = caps::receive(serve, &mut buffer).expect("a call comes");
        assert_ne!(first.call_id, second.call_id);
        assert_eq!(answer(second.call_id), Ok(0));
        0
    });
    let server = server.expect("within the quota");
    let mut answer = [7; 8];
    // Given up when the server has it, however long that takes.
    let asked = client::submit(client::request(call, 0, b"one", &mut answer)).expect("room");
    client::enter(0, 0).expect("an honest ring is served");
    let received = caps::comes_true(MS, || step.load(Ordering::Acquire) == RECEIVED);
    assert!(received, "the server never had the call");
    assert_eq!(client::cancel(asked), Err(CapError::Cancelled));
    step.store(GIVEN_UP, Ordering::Release);
    assert_eq!(caps::call_endpoint(call, b"two", &mut answer), Ok(4));
    assert_eq!(server.join(), Ok(0));
    say!("calls: withdrawn_after=ok");
}

/// Many callers, some of them impatient, and several servers: each answer is to its own call.
fn crowd((call, serve): (u32, u32)) {
    const CALLERS: u32 = 6;
    const CALLS: u32 = 300;
    let served = Arc::new(AtomicU32::new(0));
    let answers = [answer_with_one_request, answer_with_two_requests, answer_in_registers];
    let servers = answers.map(|answer: Answer| {
        let served = served.clone();
        let work = move || serve_numbers(serve, &served, answer);
        caps::spawn(ThreadOptions::default(), work).expect("within the quota")
    });
    let callers = [0, 1, 2, 3, 4, 5].map(|number: u32| {
        let work = move || {
            let mut answer = [0; 4];
            let mut given_up = 0;
            for round in 0..CALLS {
                let question = number << 16 | round;
                let message = question.to_le_bytes();
                let outcome = if number % 2 == 1 && round % 7 == 0 {
                    caps::call_endpoint_for(call, &message, &mut answer, MS / 500)
                } else if number.is_multiple_of(3) {
                    caps::call_short(call, Short::number(question)).map(|short| {
                        answer = short.to_number().to_le_bytes();
                        4
                    })
                } else {
                    caps::call_endpoint(call, &message, &mut answer)
                };
                match outcome {
                    Ok(len) => assert_eq!((len, u32::from_le_bytes(answer)), (4, question + 1)),
                    Err(error) => {
                        assert_eq!((error, round % 7), (CapError::TimedOut, 0));
                        given_up += 1;
                    }
                }
            }
            given_up
        };
        caps::spawn(ThreadOptions::default(), work).expect("within the quota")
    });
    let given_up: i64 = callers.iter().map(|caller| i64::from(caller.join().expect("it ends"))).sum();
    let mut answer = [0; 4];
    for _ in &servers {
        assert_eq!(caps::call_endpoint(call, &STOP.to_le_bytes(), &mut answer), Ok(0));
    }
    let withdrawn: i64 = servers.iter().map(|server| i64::from(server.join().expect("it ends"))).sum();
    let served = i64::from(served.load(Ordering::Relaxed));
    assert!(withdrawn <= given_up, "{withdrawn} answers for nobody, but {given_up} given up");
    assert_eq!(served + given_up, i64::from(CALLERS * CALLS), "each call ended once");
    say!("calls: crowd=ok served={served} given_up={given_up} withdrawn={withdrawn}");
}

/// Answers a call, and receives the next one into the buffer; how the answer went.
type Answer = fn(u32, u32, &[u8], &mut [u8]) -> Result<(), CapError>;

fn answer_with_one_request(
    serve: u32,
    call_id: u32,
    answer: &[u8],
    buffer: &mut [u8],
) -> Result<(), CapError> {
    let mut request = caps::receive_request(serve, buffer);
    request.v1.op = op::RETURN_RECV;
    request.v1.call_id = call_id;
    (request.v1.params_addr, request.v1.params_len) = (answer.as_ptr() as u64, answer.len() as u32);
    let answered = client::carry_out(request).map(|_| ());
    if answered.is_err() {
        caps::receive(serve, buffer).expect("a call comes");
    }
    answered
}

fn answer_with_two_requests(
    serve: u32,
    call_id: u32,
    answer: &[u8],
    buffer: &mut [u8],
) -> Result<(), CapError> {
    let returned = client::submit(caps::return_request(serve, call_id, answer)).expect("room");
    let received = client::submit(caps::receive_request(serve, buffer)).expect("room");
    client::enter(2, u64::MAX).expect("an honest ring is served");
    let answered = client::wait(returned).map(|_| ());
    client::wait(received).expect("a call comes");
    answered
}

fn answer_in_registers(serve: u32, call_id: u32, answer: &[u8], buffer: &mut [u8]) -> Result<(), CapError> {
    let short = Short::new(answer).expect("it fits");
    match caps::answer_direct(serve, call_id, short) {
        Ok((head, message)) => {
            buffer[..HEAD].copy_from_slice(&head.to_bytes());
            buffer[HEAD..HEAD + 4].copy_from_slice(&message.to_number().to_le_bytes());
            Ok(())
        }
        Err(CapError::NotDirect) => answer_with_one_request(serve, call_id, answer, buffer),
        Err(error) => Err(error),
    }
}

/// Answers numbers with the next one until told to stop; how many answers no caller waited for.
fn serve_numbers(serve: u32, served: &AtomicU32, answer: Answer) -> i64 {
    let mut buffer = [0; 64];
    let mut withdrawn = 0;
    caps::receive(serve, &mut buffer).expect("a call comes");
    loop {
        let head = ReceivedCall::from_bytes(buffer.first_chunk().expect("a head"));
        let number = buffer[HEAD..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        if number == STOP {
            let returned = client::submit(caps::return_request(serve, head.call_id, &[])).expect("room");
            assert_eq!(client::wait(returned), Ok(0));
            return withdrawn;
        }
        match answer(serve, head.call_id, &(number + 1).to_le_bytes(), &mut buffer) {
            Ok(()) => drop(served.fetch_add(1, Ordering::Relaxed)),
            Err(error) => {
                assert_eq!(error, CapError::Cancelled);
                withdrawn += 1;
            }
        }
    }
}
