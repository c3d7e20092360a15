//! A caller is killed at the moment at which its server, on another CPU, gives the loan back without an answer: the caller ends, whichever
//! of the two is first.

use super::donation::{child, killed};
use super::{context, info, on_its_cpu};
use core::sync::atomic::{AtomicBool, Ordering};
use mainspring_random::{Random, Stream};
use mainspring_user::caps::{self, Context};
use mainspring_user::{arch, client, say};

const ROUNDS: u32 = 400;
/// How long the server keeps a loan at most, and how long after the call its caller is killed.
const LONGEST_NS: u64 = 40_000;
/// In place of anything else in a call: the server ends.
const QUIT: u8 = b'q';

/// The server has received a call.
static RECEIVED: AtomicBool = AtomicBool::new(false);

//= OWN:donation.exits
pub fn case(of: Context) {
    let server = on_its_cpu(of, serve);
    let mut random = Random::new(1, Stream::Thread(1));
    for _ in 0..ROUNDS {
        RECEIVED.store(false, Ordering::Relaxed);
        let caller = child("call-once", &[("call:k", caps::need("call:k")), ("context:held", of.0)]);
        assert!(
            caps::comes_true(0, || RECEIVED.load(Ordering::Acquire)),
            "the call of a child does not arrive"
        );
        spin_for(random.below(LONGEST_NS));
        killed(caller);
        assert!(!info(of).bound && !info(of).lent, "a context is still with who is gone");
    }
    caps::call_endpoint(caps::need("call:k"), &[QUIT], &mut [0; 8]).expect("a server answers before it ends");
    assert_eq!(super::ended(server), 0);
    say!("scheduling-context: endpoint_dropped=ok");
}

fn spin_for(ns: u64) {
    let until = caps::now() + ns;
    while caps::now() < until {
        arch::spin(10);
    }
}

/// The child: calls on the context that it was granted, and is not answered.
pub fn call_once() -> i64 {
    let of = context("context:held");
    let thread = on_its_cpu(of, move || {
        of.bind().expect("it is free");
        let _ = caps::call_endpoint(caps::need("call:k"), b"-", &mut [0; 8]);
        0
    });
    let _ = thread.join();
    0
}

/// Receives again without an answer, which it gives when nobody waits for it: the number of a call that was received is free then.
fn serve() -> i64 {
    let (endpoint, mut buffer) = (caps::need("serve:k"), [0; 64]);
    let mut random = Random::new(1, Stream::Thread(2));
    let mut unanswered = None;
    loop {
        let received = caps::receive(endpoint, &mut buffer).expect("it may serve");
        RECEIVED.store(true, Ordering::Release);
        let (is_last, call_id) = (buffer[16] == QUIT, received.call_id);
        let before = if is_last { Some(call_id) } else { unanswered.replace(call_id) };
        if let Some(before) = before {
            let answer = client::submit(caps::return_request(endpoint, before, &[0; 8]));
            let _nobody_waits = client::wait(answer.expect("there is room"));
        }
        if is_last {
            return 0;
        }
        spin_for(random.below(LONGEST_NS));
    }
}
