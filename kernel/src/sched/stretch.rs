//! Stretches of kernel work with interrupts off, and what happens between them.
//!
//! The kernel is not interrupted but where it says so. A thread that has long work to do (`method::work`) says so
//! after each piece: interrupts that came meanwhile are taken, and if another thread is due, this one stops as if it had been
//! preempted in user mode. When it is chosen again it goes on with the next piece. So a stretch is as long as one piece, the
//! time is the thread's own, and a CPU that idles or runs somebody else is never in the middle of it.

use super::check;
use super::dispatch::{self, arm, current, fall_asleep};
use super::flush::drain_flushes;
use super::idle::{self, After};
use super::per_cpu::PerCpu;
use super::visible;
use crate::arch::{self, cpu};
use crate::devices;
use crate::measure::{self, Stretch};
use crate::method::{Piece, work_on};
use crate::object::inbox::{Serving, Waiting};
use crate::object::thread::Thread;
use mainspring_abi::Nanos;
use mainspring_sched::{Decision, Stop};

/// How long a thread that waits for other CPUs sleeps before it looks again.
const POLL: Nanos = Nanos::from_micros(200);

/// `thread`, which runs, has more to do before it goes on; what comes of it is installed when this returns.
#[cold]
pub fn begin(here: &'static PerCpu, thread: &'static Thread, serving: Serving, after: After) {
    // It may end, and its slot be another's then.
    let name = thread.name();
    thread.inbox.lock().waiting = Waiting::Serving(serving);
    if let Some(decision) = go_on(here, thread) {
        dispatch::carry_out(here, decision, Some(name), after);
    }
}

/// `thread`, which runs, does what it has to do, piece by piece: `None` if it goes on in user mode or is to end then, or
/// what was decided because it does not.
#[cold]
pub fn go_on(here: &'static PerCpu, thread: &'static Thread) -> Option<Decision> {
    arm(here);
    // What came before was a stretch of its own. The first piece is done in any case: a thread that was chosen gets on.
    take_interrupts(here);
    loop {
        match work_on(thread) {
            Piece::More => {}
            Piece::Wait => return Some(wait(here, thread)),
            Piece::Over { yields: true } => return Some(stop(here, thread, Stop::Yielded)),
            Piece::Over { yields: false } => {
                return dispatch::go_on(here, thread).or_else(|| preempted(here, thread));
            }
            Piece::End(code) => return Some(dispatch::end(thread, code)),
        }
        if let Some(decision) = between(here, thread) {
            return Some(decision);
        }
    }
}

/// Between two pieces, or after many threads that could not go on: interrupts are taken. What was decided if another thread
/// than `thread`, which runs, is due.
pub(super) fn between(here: &'static PerCpu, thread: &Thread) -> Option<Decision> {
    debug_assert!(core::ptr::eq(current(here), thread), "somebody else's work");
    take_interrupts(here);
    preempted(here, thread)
}

/// What was decided if another thread than `thread`, which runs, is due.
pub(super) fn preempted(here: &PerCpu, thread: &Thread) -> Option<Decision> {
    dispatch::decision_wanted(here).then(|| stop(here, thread, Stop::Preempted))
}

/// A stretch ends and another begins: interrupts that have come are taken and served.
fn take_interrupts(here: &'static PerCpu) {
    measure::stretch_ends();
    let pending = cpu::take_interrupts();
    measure::stretch_begins(Stretch::Requests);
    if pending.message || pending.timer || pending.devices != 0 {
        visible::others_act();
    }
    if pending.devices != 0 {
        devices::interrupted_all(pending.devices);
    }
    if pending.message {
        dispatch::message(here);
    }
    if pending.timer {
        dispatch::timer(here);
        idle::service();
        check::tick_served(here);
        arm(here);
    }
    drain_flushes(here);
}

fn stop(here: &PerCpu, thread: &Thread, stop: Stop) -> Decision {
    let mut core = here.lock();
    thread.context.unbind();
    core.resched(here, stop)
}

/// The thread sleeps a little; where it cannot, others go first.
fn wait(here: &PerCpu, thread: &Thread) -> Decision {
    let inbox = thread.inbox.lock();
    let slept = fall_asleep(here, thread, &inbox, arch::now() + POLL, None);
    drop(inbox);
    slept.unwrap_or_else(|_| stop(here, thread, Stop::Yielded))
}
