//! A program of the manifest and all that it makes are a family. However many processes one family makes, every other one has its own
//! guaranteed places.
//!
//! The breeder and those that it makes call the endpoint `x` of whoever judges, and wait for the answer: so they are there until they are let go.

use super::MS;
use alloc::vec::Vec;
use mainspring_user::caps::{self, Process};
use mainspring_user::{CapError, client};

/// Processes that a family may always have, its first one included.
const GUARANTEED: usize = 8;
/// What those that stay need.
const STAY: &[&str] = &["timer", "processes", "call:x"];

/// A child that makes as many processes as there can be takes no place from another family, which can have exactly those that are
/// guaranteed to it. Everything can be had again afterwards.
//= OWN:kernel.charge-all
pub fn process_hogs() {
    for _ in 0..2 {
        let breeder = caps::start("contain", "breed", STAY).expect("there is room");
        let waiting = gather();
        assert_eq!(
            caps::start("contain", "exit 0", &[]).err(),
            Some(CapError::QuotaExceeded),
            "the breeder stopped before it was refused"
        );
        assert_eq!(ask_neighbour(), GUARANTEED - 1, "a family has taken the places of its neighbour");
        let made = waiting.len();
        for call in waiting {
            let answer = caps::return_request(caps::need("serve:x"), call, &[0; 8]);
            client::wait(client::submit(answer).expect("there is room")).expect("it waits");
        }
        assert_eq!(breeder.wait(), Ok(made as i32 - 1), "some were made and never came");
        breeder.detach().expect("a handle can be dropped");
        let gone = || caps::usage().is_ok_and(|usage| usage.processes <= 2);
        assert!(caps::comes_true(2 * MS, gone), "somebody was never buried");
    }
}

/// The calls of the breeder and of all that it has made.
fn gather() -> Vec<u32> {
    let (endpoint, mut buffer) = (caps::need("serve:x"), [0; 64]);
    let (mut calls, mut made) = (Vec::new(), None);
    while made.is_none_or(|made| calls.len() <= made) {
        let call = caps::receive(endpoint, &mut buffer).expect("they call");
        calls.push(call.call_id);
        if call.len == 2 {
            made = Some(usize::from(buffer[16]));
        }
    }
    calls
}

fn ask_neighbour() -> usize {
    let mut answer = [0; 8];
    caps::call_endpoint(caps::need("call:family"), &[0], &mut answer).expect("the neighbour answers");
    usize::from(answer[0])
}

/// Makes processes until it is refused, says how many, and waits with them.
pub fn breed() -> i64 {
    let mut made = Vec::new();
    while let Ok(child) = caps::start("contain", "stay", STAY) {
        made.push(child);
    }
    let mut answer = [0; 8];
    caps::call_endpoint(caps::need("call:x"), &[made.len() as u8, 1], &mut answer).expect("it is let go");
    made.len() as i64
}

/// One of them.
pub fn stay() -> i64 {
    let mut answer = [0; 8];
    caps::call_endpoint(caps::need("call:x"), &[0], &mut answer).map_or(1, |_| 0)
}

/// Another family: whenever it is asked, makes as many processes as it can, says how many that were, and ends them.
pub fn neighbour() -> i64 {
    let (endpoint, mut buffer) = (caps::need("serve:family"), [0; 64]);
    let mut call = caps::receive(endpoint, &mut buffer);
    loop {
        let Ok(request) = call else { return 1 };
        let mut made: Vec<Process> = Vec::new();
        while let Ok(child) = caps::start("contain", "sleep", &["timer"]) {
            made.push(child);
        }
        let many = made.len() as u8;
        for child in made {
            let _ = child.kill();
            let _ = child.wait();
            let _ = child.detach();
        }
        call = caps::answer_and_receive(endpoint, request.call_id, &[many; 1], &mut buffer);
    }
}
