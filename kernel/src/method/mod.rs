//! Requests: taken from the ring of the thread that runs, checked, carried out or put in flight.
//!
//! Conserved: each accepted request has its completion's place from the start, and ends in exactly one of three ways: it
//! is completed here, it is in flight in the inbox, or its thread is gone. No lock but the
//! ring's own is held while a method runs.

mod contexts;
mod devices;
mod direct;
mod endpoints;
mod exchange;
mod islands;
mod leases;
mod memory;
mod message;
mod new_cap;
mod object_traits;
mod policy;
mod processes;
mod serve;
mod system;
mod threads;
mod work;

pub use contexts::not_bound;
pub use direct::{Progress, direct};
pub use endpoints::post_notice;
pub use leases::wire_end;
pub use processes::{InSession, PlannedProcess, Program, StartupContext};
pub use serve::{Answer, Call, Turn, drain, drain_in_interrupt, has_known_version, serve_polled};
pub use threads::Share;
pub use work::{Ending, Piece, Work, finish_spaces, work_on};

use crate::object::caps::Object;
use crate::sched::check;
use mainspring_abi::ring::{CapError, op};
use serve::without_object;

/// What a request does, by its operation and its object.
fn invoke(call: &mut Call<'_>, object: Option<Object>) -> Result<Answer, CapError> {
    check::requested();
    let Some(object) = object else { return without_object(call) };
    match (call.request.v1.op, object) {
        (op::CALL, Object::EndpointCall(index)) => endpoints::call(call, index),
        (op::RECV, Object::EndpointServe(index)) => endpoints::receive(call, index),
        (op::RETURN, Object::EndpointServe(index)) => endpoints::answer(call, index),
        (op::RETURN_RECV, Object::EndpointServe(index)) => endpoints::answer_and_receive(call, index),
        (op::THROW, Object::EndpointServe(index)) => endpoints::throw(call, index),
        (op::CALL, Object::EndpointServe(index)) => endpoints::serving(call, index),
        (op::CALL, Object::Console) => system::console(call),
        (op::CALL, Object::Timer) => system::timer(call),
        (op::CALL, Object::SystemInfo) => system::info(call),
        (op::CALL, Object::SchedulingPolicy) => threads::policy(call),
        (op::CALL, Object::ThreadSpawner) => threads::spawner(call),
        (op::CALL, Object::ThreadControl) => threads::control(call),
        (op::CALL, Object::ThreadHandle(of)) => threads::handle(call, &of),
        (op::CALL, Object::ParkSpace) => threads::park(call),
        (op::CALL, Object::ProcessSpawner) => processes::spawner(call),
        (op::CALL, Object::ProcessHandle(of)) => processes::handle(call, &of),
        (op::CALL, Object::VirtualMemory) => memory::virtual_memory(call),
        (op::CALL, Object::SchedulingContext(who)) => contexts::context(call, who),
        (op::CALL, Object::RealtimeIslands { percent }) => islands::islands(call, percent),
        (op::CALL, Object::RealtimeIsland(island, percent)) => islands::island(call, island, percent),
        (op::CALL, Object::Device(device)) => devices::device(call, device),
        (op::CALL, Object::DmaMemory(memory)) => devices::dma_memory(call, &memory),
        (op::CALL, Object::Interrupt(line)) => devices::interrupt(call, line),
        (op::CALL, Object::UserSession(session)) => contexts::user_session(call, session),
        (op::CALL, Object::CpuIsolation { any_mode }) => leases::isolation(call, any_mode),
        (op::CALL, Object::CpuIsolationLease(lease)) => leases::lease(call, lease),
        (op::CALL, Object::PolicyService) => policy::service(call),
        (op::CALL | op::RECV | op::RETURN | op::RETURN_RECV | op::THROW, _) => Err(CapError::NoSuchMethod),
        _ => Err(CapError::InvalidRequest),
    }
}
