//! Calls with deadlines that wait at an endpoint: the earliest goes first where the endpoint and the request allow that, and one that
//! came too late is dropped, if it asked for that, when its turn comes.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::format;
use alloc::vec::Vec;
use mainspring_abi::ring::QosFlags;
use mainspring_user::caps::{self, Process};
use mainspring_user::{CapError, client, say, schema};

mainspring_user::program!(main);

const MS: u64 = 1_000_000;
const LATER: u64 = 3_600_000 * MS;
/// Long enough for a call to be made in time on a slow host.
const SOON: u64 = 2_000 * MS;
const ORDERED: QosFlags = QosFlags::DEADLINE_ORDERED.with(QosFlags::REORDERABLE);

fn main() -> i64 {
    let mut words = caps::arguments().split(' ');
    match (words.next(), words.next(), words.next()) {
        (Some("call"), Some(deadline), Some(qos)) => call(deadline, qos),
        _ => {
            order();
            late();
            0
        }
    }
}

/// The child: one call, whose message is the number of its deadline; how it ended.
fn call(deadline: &str, qos: &str) -> i64 {
    let number: u64 = deadline.parse().expect("a number");
    let (message, mut answer) = ([number as u8], [0; 8]);
    let mut request = client::request(caps::need("call:x"), 0, &message, &mut answer);
    request.deadline_ns = if number == 0 { 0 } else { LATER + number };
    request.qos_flags = qos.parse().expect("flags");
    if number > 200 {
        // It is late before it is received.
        request.deadline_ns = caps::now() + SOON;
    }
    match client::wait(client::submit(request).expect("there is room")) {
        Ok(_) => 0,
        Err(CapError::DeadlineExpired) => 1,
        Err(_) => 2,
    }
}

fn caller(endpoint: &str, deadline: u64, qos: QosFlags) -> Process {
    let arguments = format!("call {deadline} {}", qos.bits());
    let granted = [("call:x", caps::need(&format!("call:{endpoint}")))];
    let child = caps::start_with("deadlines", &arguments, &["console", "timer"], &granted);
    let child = child.expect("the program is in the image");
    // It has called when its thread sleeps.
    let asleep = |slot| {
        let waits = |info: schema::thread_info::Reader<'_>| {
            info.get_process() == child.slot() && info.get_state() == Ok(schema::ThreadState::Asleep)
        };
        caps::thread_info(slot, waits).unwrap_or(false)
    };
    assert!(caps::comes_true(MS, || (0..64).any(asleep)), "the child never calls");
    child
}

/// The messages of `count` calls at an endpoint, in the order in which they are received.
fn served(endpoint: &str, count: usize) -> Vec<u8> {
    let cap = caps::need(&format!("serve:{endpoint}"));
    let mut messages = Vec::new();
    for _ in 0..count {
        let mut buffer = [0; 64];
        let call = caps::receive(cap, &mut buffer).expect("a call waits");
        messages.push(buffer[16]);
        client::carry_out(caps::return_request(cap, call.call_id, &[])).expect("its caller waits");
    }
    messages
}

fn ended(children: Vec<Process>, code: i32) {
    for child in children {
        assert_eq!(child.wait(), Ok(code));
        child.detach().expect("a handle can be dropped");
    }
}

/// Deadlines order the calls of several clients within the endpoint's window, and only those that ask for it.
//= TICK:L4.deadline-ordered TICK:verify.realtime
fn order() {
    // Clients take turns by their places. So that these are in the order in which the clients start, it asks again if they are not:
    // a place of a client before may have been taken.
    let ask = |endpoint: &str, wishes: &[(u64, QosFlags)]| {
        for _ in 0..50 {
            let children: Vec<_> =
                wishes.iter().map(|(deadline, qos)| caller(endpoint, *deadline, *qos)).collect();
            let in_order = children.is_sorted_by_key(Process::slot);
            let order = served(endpoint, wishes.len());
            ended(children, 0);
            if in_order {
                return order;
            }
        }
        panic!("places are never in order")
    };
    let wishes = [30, 10, 20].map(|deadline| (deadline, ORDERED));
    assert_eq!(ask("ordered", &wishes), [10, 20, 30], "the earliest goes first");
    assert_eq!(ask("plain", &wishes), [30, 10, 20], "the endpoint does not say that calls may change places");
    let wishes = [(30, ORDERED), (10, QosFlags::DEADLINE_ORDERED), (20, ORDERED)];
    assert_eq!(ask("ordered", &wishes), [30, 10, 20], "one that may not be moved was passed, or moved");
    say!("deadlines: order=ok");
}

/// A call that is late when its turn comes is dropped if it asked for that, and served if it did not.
fn late() {
    let children = Vec::from([caller("plain", 250, QosFlags::DROP_IF_LATE)]);
    let other = Vec::from([caller("plain", 251, QosFlags::default())]);
    caps::sleep(SOON).expect("within the quota");
    assert_eq!(served("plain", 1), [251], "what was late was not dropped, or what was not to be dropped was");
    ended(children, 1);
    ended(other, 0);
    say!("deadlines: late=ok");
}
