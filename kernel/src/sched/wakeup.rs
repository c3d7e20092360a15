//! A thread becomes ready. Where it runs is decided by [`placement`]; this is who asks, and the quota of timed waits.

use super::contexts;
use super::machine::Kernel;
use super::per_cpu::mine;
use crate::object::inbox::{Posted, Waiter};
use crate::object::thread::{self, Thread};
use mainspring_abi::ProcessId;
use mainspring_abi::ring::CapError;
use mainspring_driver::contexts::CallEnd;
use mainspring_driver::placement::{self, Wake};
use mainspring_sched::{Entity, WaitPermit, WaitQuota};
use spin::Mutex;

static QUOTA: Mutex<Option<WaitQuota>> = Mutex::new(None);

/// Sets the bounds on timed waits.
pub fn init_quota(total: u32, per_process: u32, processes: usize) {
    *QUOTA.lock() = Some(WaitQuota::new(total, per_process, processes));
}

/// Leave for a timed wait.
pub fn take_permit(process: u32) -> Result<WaitPermit, CapError> {
    let mut quota = QUOTA.lock();
    let quota = quota.as_mut().ok_or(CapError::QuotaExceeded)?;
    quota.take(ProcessId::new(process)).map_err(|_| CapError::QuotaExceeded)
}

/// Takes leave back.
#[inline]
pub fn give_back(permit: Option<WaitPermit>) {
    if let Some(permit) = permit {
        give_one_back(permit);
    }
}

fn give_one_back(permit: WaitPermit) {
    if let Some(quota) = QUOTA.lock().as_mut() {
        quota.give_back(permit);
    }
}

/// Timed waits pending.
#[must_use]
pub fn pending_waits() -> u32 {
    QUOTA.lock().as_ref().map_or(0, WaitQuota::pending)
}

/// A new thread is ready, beside the thread that made it if it may run there.
///
/// # Panics
///
/// If it may run on no CPU, which its maker has made sure of.
pub fn start(entity: Entity) {
    let (creator, weight) = (mine().id(), entity.weight().get().into());
    let cpu = placement::place(&mut Kernel, entity.thread(), entity.affinity(), weight, Some(creator));
    let cpu = cpu.expect("a thread may use at least one CPU");
    if let Err(refused) = placement::start(&mut Kernel, cpu, entity) {
        unreachable!("every CPU has a seat for every thread that may use it: {refused}");
    }
}

/// What `thread` waits for may have come: it looks for itself once it runs. Nothing happens if it does not sleep.
pub fn wake(thread: &Thread) {
    let name = thread.name();
    if placement::wake(&mut Kernel, name) == Wake::NotAsleep && contexts::exist() {
        contexts::call_in(name, CallEnd::Cancelled);
    }
}

/// As [`wake`], for a thread that the running one hands over to: the running one is about to wait.
pub fn hand_off(thread: &Thread) {
    let name = thread.name();
    if placement::hand_over(&mut Kernel, name) == Wake::NotAsleep && contexts::exist() {
        contexts::call_in(name, CallEnd::Cancelled);
    }
}

/// Something was posted for `waiter`'s thread: wakes it if that was what it waited for.
pub fn posted(waiter: Waiter, what: Posted) {
    if what == Posted::Wake
        && let Some(thread) = thread::find(waiter.thread)
    {
        wake(thread);
    }
}

/// Ends an operation of a thread and wakes it if that was what it waited for. Whether there was such an operation.
pub fn finish(waiter: Waiter, outcome: Result<u32, CapError>) -> bool {
    let Some(thread) = thread::find(waiter.thread) else { return false };
    let what = thread.inbox.lock().finish(waiter, outcome);
    posted(waiter, what);
    what != Posted::Stale
}

/// Timed waits that one interrupt ends. More would be too long a stretch.
const EXPIRED_AT_ONCE: u32 = 16;

/// Ends timed waits of this CPU that are due.
pub fn expire() {
    placement::expire(&mut Kernel, mine().id(), EXPIRED_AT_ONCE);
}
