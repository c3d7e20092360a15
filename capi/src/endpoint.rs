//! Endpoints: calls between tasks of one scheduler, of a 64-bit word that is answered by another.
//!
//! Conserved: a call that was taken is answered once, by the task that took it. A call whose task returns or stops without an answer
//! ends for its caller, who is told that the server is gone.
#![allow(unsafe_code)]

use crate::caller::{Caller, call, status};
use crate::handle::{Kind, Name, Table};
use crate::layout::{JANUS_FOREVER, janus_call, janus_endpoint};
use crate::scheduler::current;
use crate::status::{JANUS_INVALID_ARGUMENT, JANUS_NOT_OWNER, JANUS_STALE_HANDLE, Problem};
use mainspring::Endpoint;
use mainspring::endpoint::Reply;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub(crate) static ENDPOINTS: Table<Endpoint<u64, u64>> = Table::new(Kind::Endpoint);
/// The calls that were taken and not answered.
pub(crate) static CALLS: Table<OpenCall> = Table::new(Kind::Call);

/// What answers a call. It is emptied once.
#[derive(Clone)]
pub(crate) struct OpenCall(Arc<Mutex<Option<Reply<u64, u64>>>>);

/// What an endpoint costs the task that makes it.
const ENDPOINT_BYTES: usize = 256;

/// The calls that a task has taken and not answered.
#[derive(Default)]
pub(crate) struct OpenCalls(Vec<Name>);

impl Drop for OpenCalls {
    /// Their callers wait for nobody.
    fn drop(&mut self) {
        for name in self.0.drain(..) {
            drop(CALLS.remove(name));
        }
    }
}

/// Makes an endpoint for tasks of one scheduler. Null if that fails. A task needs `JANUS_CAP_CHANNEL`. A thread makes it for the scheduler
/// that it has used last.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_endpoint_create() -> janus_endpoint {
    let made = call(|caller| {
        let endpoint = match caller {
            Caller::Task(frame) => {
                let cx = frame.running()?;
                let endpoint = cx.endpoint()?;
                cx.charge_alloc(ENDPOINT_BYTES)?;
                endpoint
            }
            Caller::Host(host) => current(host.scheduler)?.enter()?.runtime().endpoint(true),
        };
        Ok(ENDPOINTS.insert(endpoint)?)
    });
    made.map_or(null_mut(), Name::handle)
}

/// Calls, and waits at most `timeout_ns` for the answer; `JANUS_FOREVER` waits as long as it takes. Only a task can call. If a server has
/// taken the call and ends without an answer, the status is `JANUS_SERVER_GONE`.
///
/// # Safety
///
/// `answer` is null or can be written to.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn janus_endpoint_call(
    endpoint: janus_endpoint,
    word: u64,
    answer: *mut u64,
    timeout_ns: u64,
) -> i32 {
    status(|caller| {
        let endpoint = ENDPOINTS.get(Name::of(endpoint))?;
        let cx = caller.task()?.running()?;
        if answer.is_null() {
            return Err(JANUS_INVALID_ARGUMENT.into());
        }
        let came = match timeout_ns {
            JANUS_FOREVER => endpoint.call(cx, word),
            ns => endpoint.call_timeout(cx, word, Duration::from_nanos(ns)),
        };
        // SAFETY: not null, and the caller says that it can be written to.
        unsafe { answer.write(came.map_err(|error| error.why)?) };
        Ok(())
    })
}

/// Waits at most `timeout_ns` for a call; `JANUS_FOREVER` waits as long as it takes. Gives its word, and what answers it. Only a task can
/// receive, and the same task answers. A task that returns drops the calls that it has not answered.
///
/// # Safety
///
/// `word` and `taken` are null or can be written to.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn janus_endpoint_receive(
    endpoint: janus_endpoint,
    word: *mut u64,
    taken: *mut janus_call,
    timeout_ns: u64,
) -> i32 {
    status(|caller| {
        let endpoint = ENDPOINTS.get(Name::of(endpoint))?;
        let frame = caller.task()?;
        let cx = frame.running()?;
        if word.is_null() || taken.is_null() {
            return Err(JANUS_INVALID_ARGUMENT.into());
        }
        let (request, reply) = match timeout_ns {
            JANUS_FOREVER => endpoint.receive(cx)?,
            ns => endpoint.receive_timeout(cx, Duration::from_nanos(ns))?,
        };
        let name = CALLS.insert(OpenCall(Arc::new(Mutex::new(Some(reply)))))?;
        frame.calls.0.push(name);
        // SAFETY: not null, and the caller says that they can be written to.
        unsafe {
            word.write(request);
            taken.write(name.handle());
        }
        Ok(())
    })
}

/// Takes a call out of those that its task has open.
fn taken(caller: &mut Caller<'_>, handle: janus_call) -> Result<Reply<u64, u64>, Problem> {
    let name = Name::of(handle);
    CALLS.get(name)?;
    let calls = &mut caller.task()?.calls.0;
    let at = calls.iter().position(|open| *open == name).ok_or(JANUS_NOT_OWNER)?;
    calls.swap_remove(at);
    let call = CALLS.remove(name)?;
    let reply = call.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    reply.ok_or_else(|| JANUS_STALE_HANDLE.into())
}

/// Answers a call that this task has taken. The handle is given back. `JANUS_CLOSED` if the caller has stopped waiting.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_call_reply(call: janus_call, answer: u64) -> i32 {
    status(|caller| {
        let reply = taken(caller, call)?;
        // Also a task that has to end answers what it has taken.
        if reply.send(caller.task()?.cx, answer) { Ok(()) } else { Err(crate::status::JANUS_CLOSED.into()) }
    })
}

/// Drops a call that this task has taken: its caller is told that the server is gone. The handle is given back.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_call_drop(call: janus_call) -> i32 {
    status(|caller| taken(caller, call).map(drop))
}

/// Closes the endpoint and gives its handle back: calls that wait or are served fail.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_endpoint_destroy(endpoint: janus_endpoint) -> i32 {
    status(|_| {
        ENDPOINTS.remove(Name::of(endpoint))?.close();
        Ok(())
    })
}
