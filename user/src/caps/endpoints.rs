//! Endpoints: calls, and serving them.

use crate::client;
use mainspring_abi::kernel::{DIRECT_WORDS, DirectRequest, ReceivedCall};
use mainspring_abi::ring::{CapError, CapSqe, CapSqeV2, op};
use mainspring_schema::EndpointMethod;

/// Calls an endpoint and waits for the answer; its length.
#[inline]
pub fn call_endpoint(cap: u32, message: &[u8], answer: &mut [u8]) -> Result<u32, CapError> {
    client::carry_out(client::request(cap, 0, message, answer))
}

/// Calls an endpoint and waits for the answer, for `timeout_ns` at most: then the call is withdrawn, and its server is told
/// when it answers.
pub fn call_endpoint_for(
    cap: u32,
    message: &[u8],
    answer: &mut [u8],
    timeout_ns: u64,
) -> Result<u32, CapError> {
    client::call_for(client::request(cap, 0, message, answer), timeout_ns)
}

/// The request to receive a call.
#[must_use]
pub fn receive_request(cap: u32, buffer: &mut [u8]) -> CapSqeV2 {
    CapSqeV2::from_v1(CapSqe {
        cap_id: cap,
        op: op::RECV,
        result_addr: buffer.as_mut_ptr() as u64,
        result_len: buffer.len() as u32,
        ..CapSqe::default()
    })
}

/// The request to answer a call.
#[must_use]
pub fn return_request(cap: u32, call_id: u32, answer: &[u8]) -> CapSqeV2 {
    CapSqeV2::from_v1(CapSqe {
        cap_id: cap,
        op: op::RETURN,
        call_id,
        params_addr: answer.as_ptr() as u64,
        params_len: answer.len() as u32,
        ..CapSqe::default()
    })
}

/// The request to answer a call with an exception.
#[must_use]
pub fn throw_request(cap: u32, call_id: u32) -> CapSqeV2 {
    CapSqeV2::from_v1(CapSqe { cap_id: cap, op: op::THROW, call_id, ..CapSqe::default() })
}

/// Closes an endpoint, by its serving side: it takes no calls from now on, and those that it has end. How many those were.
pub fn close_endpoint(cap: u32) -> Result<u32, CapError> {
    let mut ended = 0;
    loop {
        match client::call(cap, EndpointMethod::Close as u16, &[], &mut [])? {
            0 => return Ok(ended),
            some => ended += some,
        }
    }
}

/// Lets an endpoint that was closed take calls again, by its serving side.
pub fn open_endpoint(cap: u32) -> Result<(), CapError> {
    client::call(cap, EndpointMethod::Open as u16, &[], &mut []).map(|_| ())
}

/// Waits for a call; what stands before its message in `buffer`.
pub fn receive(cap: u32, buffer: &mut [u8]) -> Result<ReceivedCall, CapError> {
    let _len = client::carry_out(receive_request(cap, buffer))?;
    head(buffer)
}

/// Answers a call and waits for the next one, with one request. If the caller has given up, just waits for the next.
#[inline]
pub fn answer_and_receive(
    cap: u32,
    call_id: u32,
    answer: &[u8],
    buffer: &mut [u8],
) -> Result<ReceivedCall, CapError> {
    let mut request = receive_request(cap, buffer);
    request.v1.op = op::RETURN_RECV;
    request.v1.call_id = call_id;
    request.v1.params_addr = answer.as_ptr() as u64;
    request.v1.params_len = answer.len() as u32;
    match client::carry_out(request) {
        Ok(_len) => head(buffer),
        Err(CapError::Cancelled) => receive(cap, buffer),
        Err(error) => Err(error),
    }
}

fn head(buffer: &[u8]) -> Result<ReceivedCall, CapError> {
    Ok(ReceivedCall::from_bytes(buffer.first_chunk().ok_or(CapError::BadAddress)?))
}

/// The longest message that fits into registers.
const SHORT: usize = 8 * DIRECT_WORDS;
const HEAD: usize = size_of::<ReceivedCall>();

/// A message that fits into registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Short {
    len: u32,
    words: [u64; DIRECT_WORDS],
}

impl Short {
    /// These bytes, if they are few enough.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut whole = [0; SHORT];
        whole.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let mut words = [0; DIRECT_WORDS];
        for (word, bytes) in words.iter_mut().zip(whole.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Some(Self { len: bytes.len() as u32, words })
    }

    /// A message of one number.
    #[inline(always)]
    #[must_use]
    pub fn number(number: u32) -> Self {
        Self { len: 4, words: [u64::from(number), 0, 0, 0] }
    }

    /// The number that the message begins with.
    #[inline(always)]
    #[must_use]
    pub fn to_number(self) -> u32 {
        self.words[0] as u32
    }

    /// Its bytes, and how many of them are the message.
    #[must_use]
    pub fn to_bytes(self) -> ([u8; SHORT], usize) {
        let mut bytes = [0; SHORT];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(self.words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        (bytes, (self.len as usize).min(SHORT))
    }
}

/// Calls an endpoint with a message in registers, and waits for the answer: by direct handoff if a server waits, else
/// through the ring.
#[inline(always)]
pub fn call_short(cap: u32, message: Short) -> Result<Short, CapError> {
    match call_direct(cap, message) {
        Err(CapError::NotDirect) => call_through_ring(cap, message),
        outcome => outcome,
    }
}

/// The same by direct handoff or not at all: [`CapError::NotDirect`] if no server waits.
#[inline(always)]
pub fn call_direct(cap: u32, message: Short) -> Result<Short, CapError> {
    let request = DirectRequest { op: op::CALL, cap_id: cap, len: message.len };
    client::direct(request, 0, message.words).map(|(head, words)| Short { len: head.len, words })
}

#[cold]
fn call_through_ring(cap: u32, message: Short) -> Result<Short, CapError> {
    let (bytes, len) = message.to_bytes();
    let mut answer = [0; SHORT];
    let answered = call_endpoint(cap, &bytes[..len], &mut answer)? as usize;
    Short::new(answer.get(..answered).unwrap_or(&answer)).ok_or(CapError::BadAddress)
}

/// Answers a call with a message in registers, and waits for the next call: by direct handoff if the caller waits, else
/// through the ring. What came, with its message, or without if that was too long for registers and is in `buffer`.
#[inline(always)]
pub fn answer_short(
    cap: u32,
    call_id: u32,
    answer: Short,
    buffer: &mut [u8],
) -> Result<(ReceivedCall, Option<Short>), CapError> {
    match answer_direct(cap, call_id, answer) {
        Ok((head, message)) => Ok((head, Some(message))),
        // The next call is too long for registers: it waits for a server with a buffer.
        Err(CapError::BadAddress) => receive_any(cap, buffer),
        Err(CapError::NotDirect) => answer_through_ring(cap, call_id, answer, buffer),
        Err(error) => Err(error),
    }
}

/// The same by direct handoff or not at all: [`CapError::NotDirect`] if the caller does not wait, or others do. If the next
/// call is too long for registers, the answer has been given, and the outcome is [`CapError::BadAddress`].
#[inline(always)]
pub fn answer_direct(cap: u32, call_id: u32, answer: Short) -> Result<(ReceivedCall, Short), CapError> {
    let request = DirectRequest { op: op::RETURN_RECV, cap_id: cap, len: answer.len };
    client::direct(request, call_id, answer.words).map(|(head, words)| (head, Short { len: head.len, words }))
}

#[cold]
fn answer_through_ring(
    cap: u32,
    call_id: u32,
    answer: Short,
    buffer: &mut [u8],
) -> Result<(ReceivedCall, Option<Short>), CapError> {
    let (bytes, len) = answer.to_bytes();
    let head = answer_and_receive(cap, call_id, &bytes[..len], buffer)?;
    Ok((head, in_buffer(head, buffer)))
}

/// Waits for a call: with its message, or without if that is too long for registers and is in `buffer`.
#[cold]
pub fn receive_any(cap: u32, buffer: &mut [u8]) -> Result<(ReceivedCall, Option<Short>), CapError> {
    let head = receive(cap, buffer)?;
    Ok((head, in_buffer(head, buffer)))
}

fn in_buffer(head: ReceivedCall, buffer: &[u8]) -> Option<Short> {
    Short::new(buffer.get(HEAD..HEAD + head.len as usize)?)
}
