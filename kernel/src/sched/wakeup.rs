//! A thread becomes ready: on its home CPU first, then whoever should know is told.

use super::lane::{Lane, idle_set, lane, mine};
use crate::arch::{self, cpu::HardPath};
use crate::measure::{self, Counter};
use crate::object::inbox::{Posted, Waiter};
use crate::object::thread::{self, Thread};
use core::sync::atomic::{AtomicU32, Ordering};
use mainspring_abi::ProcessId;
use mainspring_abi::ring::CapError;
use mainspring_sched::{
    Affinity, Entity, Handoff, Removed, SeatError, State, Via, WaitPermit, WaitQuota, Woken, probe_order,
};
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

/// Where a new thread begins: on the CPU that makes it, or the first that it may use.
pub fn first_home(affinity: &Affinity) -> Option<&'static Lane> {
    let here = mine();
    if affinity.allows(here.id()) {
        return Some(here);
    }
    super::lanes().iter().find(|lane| affinity.allows(lane.id()))
}

/// A new thread is ready, at the home that [`first_home`] gave.
#[expect(clippy::result_large_err, reason = "the thread itself comes back, and boxing it would allocate")]
pub fn publish(lane: &'static Lane, thread: &Thread, entity: Entity) {
    let affinity = entity.affinity().clone();
    let mut core = lane.lock();
    match core.event(lane, |cpu| cpu.accept(entity, Via::Admit)) {
        Ok((seat, woken)) => {
            thread.set_home(lane.id().index(), seat);
            drop(core);
            kick(lane, &woken, &affinity);
        }
        Err(refused) => unreachable!("every CPU has a seat for every thread that may use it: {refused}"),
    }
}

/// What `thread` waits for may have come: it looks for itself once it runs. Nothing happens if it does not sleep.
pub fn wake(thread: &Thread) {
    let _hard = HardPath::enter();
    while let Some((cpu, seat)) = thread.home() {
        let lane = lane(cpu);
        let mut core = lane.lock();
        match core.cpu().state(seat) {
            Ok(State::Asleep(_)) => {
                let Ok(woken) = core.event(lane, |cpu| cpu.wake(seat)) else { return };
                let affinity =
                    core.cpu().entity(seat).map_or(Affinity::Any, |entity| entity.affinity().clone());
                drop(core);
                kick(lane, &woken, &affinity);
                give_back(woken.permit);
                return;
            }
            Ok(_) | Err(SeatError::WrongState(_) | SeatError::ContextAway(_)) => return,
            Err(SeatError::Stale) => {
                drop(core);
                // It is on its way to another CPU, ready; or it has arrived there and slept again meanwhile.
                if thread.home() == Some((cpu, seat)) || thread.home().is_none() {
                    return;
                }
            }
        }
    }
}

/// As [`wake`], for a thread that the running one hands over to: the running one is about to wait.
#[expect(clippy::result_large_err, reason = "the thread itself comes back, and boxing it would allocate")]
pub fn hand_off(thread: &Thread) {
    let _hard = HardPath::enter();
    let here = mine();
    let Some((cpu, seat)) = thread.home() else { return };
    if cpu == here.id().index() {
        let mut core = here.lock();
        let handed = match core.cpu().state(seat) {
            Ok(State::Asleep(_)) => core.event(here, |cpu| cpu.hand_off(seat)),
            _ => return,
        };
        drop(core);
        match handed {
            Ok(Handoff::Direct(permit)) => give_back(permit),
            Ok(Handoff::Queued(woken)) => {
                kick(here, &woken, &Affinity::Any);
                give_back(woken.permit);
            }
            Err(_) => {}
        }
        return;
    }
    let there = lane(cpu);
    let mut core = there.lock();
    let movable = matches!(core.cpu().state(seat), Ok(State::Asleep(_)))
        && core.cpu().entity(seat).is_ok_and(|entity| entity.affinity().allows(here.id()));
    if !movable {
        drop(core);
        return wake(thread);
    }
    let Ok(Removed { entity, permit }) = core.event(there, |cpu| cpu.remove(seat)) else { return };
    drop(core);
    give_back(permit);
    let mut core = here.lock();
    match core.event(here, |cpu| cpu.accept(entity, Via::HandOff)) {
        Ok((seat, _)) => thread.set_home(here.id().index(), seat),
        Err(refused) => unreachable!("every CPU has a seat for every thread: {refused}"),
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

/// Tells one CPU, if any, about a thread that became ready on `home`'s.
fn kick(home: &Lane, woken: &Woken, affinity: &Affinity) {
    let here = mine();
    let nobody_idle = super::lane::IDLE.load(Ordering::SeqCst) == 0;
    if home.id() == here.id() && (woken.reschedule || nobody_idle) {
        // This CPU looks at its own queue before it leaves the kernel.
        return;
    }
    if measure::ON {
        measure::one(Counter::WakeScans);
        let idle = idle_set();
        let eligible = probe_order(home.id(), idle.contains(home.id()), &idle, affinity).count();
        measure::add(Counter::IdleEligible, eligible as u64);
    }
    for cpu in probe_order(home.id(), woken.reschedule, &idle_set(), affinity) {
        measure::one(Counter::CpusTargeted);
        if cpu == here.id() || tell(lane(cpu.index())) {
            return;
        }
    }
    // Nobody reschedules, but the running thread of that CPU has a competitor now: its timer may be set too late.
    if home.id() != here.id() && home.next_timer.load(Ordering::SeqCst) < home.armed.load(Ordering::SeqCst) {
        tell(home);
    }
}

/// Interrupts a CPU, unless that is under way already. Whether it was not and it could be: otherwise somebody else may be told.
pub fn tell(target: &Lane) -> bool {
    let here = mine();
    if !target.ready.load(Ordering::Relaxed) {
        // It looks for itself when it begins.
        measure::one(Counter::NotReady);
        return false;
    }
    // AcqRel: whoever finds it pending is ordered before the receiver's clearing of it, after which it looks.
    if target.message_pending.swap(true, Ordering::AcqRel) {
        here.pending.fetch_add(1, Ordering::Relaxed);
        measure::one(Counter::IpisPending);
        return false;
    }
    for _ in 0..SENDS {
        if send(here, target) {
            return true;
        }
    }
    // It has not been told: whoever comes next tries again. Release: as if the receiver had taken it.
    target.message_pending.store(false, Ordering::Release);
    false
}

/// How often a message is sent that does not arrive.
const SENDS: u32 = 2;

/// Sends one message; whether it has arrived, as far as this CPU can know.
fn send(here: &Lane, target: &Lane) -> bool {
    here.sent.fetch_add(1, Ordering::Relaxed);
    if LOSES.load(Ordering::Relaxed) != 0 && loses_this() {
        measure::one(Counter::SendFailures);
        return false;
    }
    let Some(()) = arch::send_reschedule(target.id()) else {
        measure::one(Counter::NoLapic);
        return false;
    };
    if arch::sending_failed() {
        measure::one(Counter::SendFailures);
        return false;
    }
    measure::one(Counter::IpisSent);
    true
}

/// Of this many messages one arrives, if it is not 0: for the proof that no CPU depends on any one of them.
static LOSES: AtomicU32 = AtomicU32::new(0);
static SENT: AtomicU32 = AtomicU32::new(0);

/// Lets only one of `of` messages between CPUs arrive from now on.
pub fn lose_messages(of: u32) {
    LOSES.store(of, Ordering::Relaxed);
}

#[cold]
fn loses_this() -> bool {
    !SENT.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOSES.load(Ordering::Relaxed).max(1))
}

/// Threads are still queued here while other CPUs have nothing to do: tells one of them.
#[inline(always)]
pub fn share_leftovers(here: &Lane) {
    if super::lane::IDLE.load(Ordering::SeqCst) != 0 && here.offer() != mainspring_sched::Offer::NONE {
        tell_an_idle_one(here);
    }
}

#[cold]
fn tell_an_idle_one(here: &Lane) {
    for cpu in probe_order(here.id(), false, &idle_set(), &Affinity::Any) {
        if tell(lane(cpu.index())) {
            return;
        }
    }
}

/// Timed waits that one interrupt ends.
const EXPIRED_AT_ONCE: u32 = 16;

/// Ends timed waits of this CPU that are due. If there are more than fit one stretch, the core still wants its timer for the
/// first of the rest, whose time has come: it is set to come at once.
pub fn expire() {
    let here = mine();
    for _ in 0..EXPIRED_AT_ONCE {
        let mut core = here.lock();
        let Some(expired) = core.event(here, |cpu| cpu.expire()) else { return };
        let affinity =
            core.cpu().entity(expired.seat).map_or(Affinity::Any, |entity| entity.affinity().clone());
        drop(core);
        kick(here, &expired.woken, &affinity);
        give_back(expired.woken.permit);
    }
}
