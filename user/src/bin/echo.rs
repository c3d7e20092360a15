//! A server: answers a number with the next one, and `when?` with the deadline that came along.
#![no_std]
#![no_main]

use mainspring_user::caps;

mainspring_user::program!(main);

fn main() -> i64 {
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
