//! Endpoints: calls, and serving them.

use crate::client;
use mainspring_abi::kernel::ReceivedCall;
use mainspring_abi::ring::{CapError, CapSqe, CapSqeV2, op};

/// Calls an endpoint and waits for the answer; its length.
pub fn call_endpoint(cap: u32, message: &[u8], answer: &mut [u8]) -> Result<u32, CapError> {
    client::call(cap, 0, message, answer)
}

/// Calls an endpoint and waits for the answer, for `timeout_ns` at most: then the call is withdrawn, and whoever received it
/// is told when it answers.
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

/// Waits for a call; what stands before its message in `buffer`.
pub fn receive(cap: u32, buffer: &mut [u8]) -> Result<ReceivedCall, CapError> {
    let _len = client::carry_out(receive_request(cap, buffer))?;
    head(buffer)
}

/// Answers a call and waits for the next one, with one request. If the caller has given up, just waits for the next.
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
