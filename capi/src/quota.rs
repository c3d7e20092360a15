//! Quotas: so much in every period, for the tasks that share it.
//!
//! Conserved: what was used comes back with time and not before. A share is taken out of its quota for as long as the share or a task of it lives.
#![allow(unsafe_code)]

use crate::caller::{Caller, call, status};
use crate::handle::{Kind, Name, Table};
use crate::layout::{JANUS_EMPTY_FAIL, JANUS_EMPTY_THROTTLE, janus_pool, janus_quota, janus_rate};
use crate::scheduler::{current, reserved};
use crate::status::{JANUS_IN_TASK, JANUS_INVALID_ARGUMENT, Problem};
use mainspring::quota::WhenEmpty;
use mainspring::{Component, Pool, Quota, Rate};
use std::ptr::null_mut;
use std::time::Duration;

/// What a handle costs the task that takes a share, until the task ends.
const QUOTA_BYTES: usize = 512;

pub(crate) static QUOTAS: Table<Quota> = Table::new(Kind::Quota);

fn rate(asked: &janus_rate) -> Result<Rate, Problem> {
    reserved(&[asked.reserved.into()])?;
    let when_empty = match asked.when_empty {
        JANUS_EMPTY_THROTTLE => WhenEmpty::Throttle,
        JANUS_EMPTY_FAIL => WhenEmpty::Fail,
        other => {
            return Err(Problem::new(
                JANUS_INVALID_ARGUMENT,
                format_args!("there is no way {other} to be empty"),
            ));
        }
    };
    let (limits, bursts) = (Pool::from(asked.limit), Pool::from(asked.burst));
    let mut rate = Rate::per(Duration::from_nanos(asked.period_ns)).when_empty(when_empty);
    for component in Component::ALL {
        let (limit, burst) = (limits.get(component), bursts.get(component));
        if limit > 0 {
            rate = rate.limit(component, limit);
        }
        if burst > 0 {
            rate = rate.burst(component, burst);
        }
    }
    Ok(rate)
}

/// Makes a quota on the current scheduler of the calling thread: full at its start. Null if that fails. Not for tasks, which share theirs.
///
/// # Safety
///
/// `asked` is null or can be read.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn janus_quota_create(asked: *const janus_rate) -> janus_quota {
    let made = call(|caller| {
        // SAFETY: null, or the caller says that it can be read.
        let asked = rate(unsafe { asked.as_ref() }.ok_or(JANUS_INVALID_ARGUMENT)?)?;
        let Caller::Host(host) = caller else { return Err(JANUS_IN_TASK.into()) };
        let quota = current(host.scheduler)?.enter()?.runtime().quota(asked)?;
        Ok(QUOTAS.insert(quota)?)
    });
    made.map_or(null_mut(), Name::handle)
}

/// A quota out of another one, which has so much less until the last task and the handle of the new one are gone. It has the period of the
/// whole, and limits what the whole limits. Null if that fails.
///
/// # Safety
///
/// `asked` is null or can be read.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn janus_quota_share(whole: janus_quota, asked: *const janus_rate) -> janus_quota {
    let made = call(|caller| {
        // SAFETY: null, or the caller says that it can be read.
        let asked = rate(unsafe { asked.as_ref() }.ok_or(JANUS_INVALID_ARGUMENT)?)?;
        let whole = QUOTAS.get(Name::of(whole))?;
        if let Some(cx) = caller.running()? {
            cx.charge_alloc(QUOTA_BYTES)?;
        }
        Ok(QUOTAS.insert(whole.share(asked)?)?)
    });
    made.map_or(null_mut(), Name::handle)
}

/// What could be used of the quota now, and how often a task had to wait for it.
///
/// # Safety
///
/// `left` and `throttled` are null or can be written to.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn janus_quota_left(
    quota: janus_quota,
    left: *mut janus_pool,
    throttled: *mut u64,
) -> i32 {
    status(|_| {
        let quota = QUOTAS.get(Name::of(quota))?;
        // SAFETY: each is null, or the caller says that it can be written to.
        unsafe {
            if !left.is_null() {
                left.write(quota.left().into());
            }
            if !throttled.is_null() {
                throttled.write(quota.throttled());
            }
        }
        Ok(())
    })
}

/// Gives the handle back. Tasks that share the quota keep it.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_quota_destroy(quota: janus_quota) -> i32 {
    status(|_| {
        QUOTAS.remove(Name::of(quota))?;
        Ok(())
    })
}
