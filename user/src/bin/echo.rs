//! A server: answers a number with the next one, and `when?` with the deadline that came along. `direct`: the same numbers, by
//! messages in registers.
#![no_std]
#![no_main]

use mainspring_user::caps::{self, Short};

mainspring_user::program!(main);

fn main() -> i64 {
    if caps::arguments() == "direct" { direct() } else { through_ring() }
}

fn through_ring() -> i64 {
    let endpoint = caps::need("serve:echo");
    let mut buffer = [0; 256];
    let mut answer = [0; 8];
    let mut call = caps::receive(endpoint, &mut buffer).expect("calls come");
    loop {
        let message = &buffer[16..16 + call.len as usize];
        let len = if message == b"when?" {
            answer = call.deadline_ns.to_le_bytes();
            8
        } else {
            let number = message.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
            answer[..4].copy_from_slice(&(number + 1).to_le_bytes());
            4
        };
        call = caps::answer_and_receive(endpoint, call.call_id, &answer[..len], &mut buffer)
            .expect("calls come");
    }
}

fn direct() -> i64 {
    let endpoint = caps::need("serve:direct");
    let mut buffer = [0; 256];
    let (mut call, mut message) = caps::receive_any(endpoint, &mut buffer).expect("calls come");
    loop {
        let number = message.map_or(0, Short::to_number);
        (call, message) = caps::answer_short(endpoint, call.call_id, Short::number(number + 1), &mut buffer)
            .expect("calls come");
    }
}
