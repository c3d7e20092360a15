//! Timer: the clock, and sleeping.

use super::{call_for, call_with, need, with_params};
use crate::client::{self, Ticket};
use mainspring_abi::ring::CapError;
use mainspring_schema as schema;

/// Monotonic time in nanoseconds.
#[must_use]
pub fn now() -> u64 {
    let method = schema::TimerMethod::Now as u16;
    call_for::<schema::timer_now::Owned, _>(need("timer"), method, &[], |time| time.get_time_ns())
        .unwrap_or(0)
}

/// Asks to be told at `deadline_ns`.
pub fn begin_sleep(deadline_ns: u64) -> Result<Ticket, CapError> {
    let method = schema::TimerMethod::Sleep as u16;
    with_params::<schema::timer_sleep::Owned, _>(
        |mut params| params.set_deadline_ns(deadline_ns),
        |bytes| {
            let ticket = client::submit(client::request(need("timer"), method, bytes, &mut []))?;
            // The parameters are on this stack: the kernel has read them when this returns.
            client::enter(0, 0)?;
            Ok(ticket)
        },
    )?
}

/// Sleeps until `deadline_ns`.
pub fn sleep_until(deadline_ns: u64) -> Result<(), CapError> {
    let method = schema::TimerMethod::Sleep as u16;
    call_with::<schema::timer_sleep::Owned>(need("timer"), method, |mut params| {
        params.set_deadline_ns(deadline_ns);
    })?;
    Ok(())
}

/// Sleeps for `ns`.
pub fn sleep(ns: u64) -> Result<(), CapError> {
    sleep_until(now() + ns)
}

/// Long enough for anything that happens at all.
const PATIENCE_NS: u64 = 30_000_000_000;

/// Looks every `step_ns` whether `holds`, until it does; whether it ever did. What must come true in the long run is waited
/// for this way: how long that takes is the host's business, on which a virtual CPU may stand still at any time.
pub fn comes_true(step_ns: u64, mut holds: impl FnMut() -> bool) -> bool {
    let end = now() + PATIENCE_NS;
    loop {
        if holds() {
            return true;
        }
        if now() >= end || sleep(step_ns).is_err() {
            return false;
        }
    }
}
