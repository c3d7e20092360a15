//! The kernel's way through a request, with the methods of endpoints and no others, and a switch before the short cut.

#[path = "../../../src/method/endpoints.rs"]
mod endpoints;
#[path = "../../../src/method/object_traits.rs"]
mod object_traits;
#[path = "../../../src/method/serve.rs"]
mod serve;
#[path = "../../../src/method/exchange.rs"]
mod short_cut;

pub use serve::{Answer, Call, Turn, drain};
pub use work::Work;

use crate::object::caps::Object;
use mainspring_abi::ring::{CapError, op};

/// No method of endpoints goes on for long.
pub mod work {
    use crate::sched::visible::Seen;
    use mainspring_abi::ring::CapSqeV2;
    use mainspring_ring::CqPlace;

    pub enum Job {}

    pub enum Work {
        Request(CapSqeV2, CqPlace, Job, Seen),
        Again(CapSqeV2, CqPlace),
    }
}

/// The short cut, in the world that has it.
mod exchange {
    use super::{Turn, short_cut};
    use crate::object::thread::Thread;
    use mainspring_abi::ring::CapSqeV2;
    use std::cell::Cell;

    thread_local! {
        pub static ALLOWED: Cell<bool> = const { Cell::new(false) };
        pub static TAKEN: Cell<u64> = const { Cell::new(0) };
    }

    pub fn exchange(thread: &'static Thread, request: &CapSqeV2, turn: &mut Turn) -> bool {
        let taken = ALLOWED.get() && short_cut::exchange(thread, request, turn);
        TAKEN.set(TAKEN.get() + u64::from(taken));
        taken
    }
}

pub fn allow_short_cut(allowed: bool) {
    exchange::ALLOWED.set(allowed);
}

pub fn short_cuts_taken() -> u64 {
    exchange::TAKEN.get()
}

fn invoke(call: &mut Call<'_>, object: Option<Object>) -> Result<Answer, CapError> {
    match (call.request.v1.op, object) {
        (_, None) => serve::without_object(call),
        (op::CALL, Some(Object::EndpointCall(index))) => endpoints::call(call, index),
        (op::RECV, Some(Object::EndpointServe(index))) => endpoints::receive(call, index),
        (op::RETURN, Some(Object::EndpointServe(index))) => endpoints::answer(call, index),
        (op::RETURN_RECV, Some(Object::EndpointServe(index))) => endpoints::answer_and_receive(call, index),
        _ => Err(CapError::NoSuchMethod),
    }
}
