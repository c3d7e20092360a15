//! A CPU that has nothing to run: it serves, looks for work, and halts.
//!
//! Idling is a loop in the kernel, at privilege level 0, on the CPU's own stack and the kernel's own page tables. It is no
//! thread: the core says [`Decision::Idle`] and has nobody as its current one meanwhile, so there is nobody who could block,
//! wait or exit. Interrupts are on across the `hlt` alone, which takes what comes and does nothing else with it.
//!
//! Conserved: an idle CPU is in no process's resident set, and every tick is served once, here or by the thread that it
//! interrupted.

use super::check;
use super::dispatch::{self, arm, load_space};
use super::leases;
use super::machine::Kernel;
use super::per_cpu::{IDLE, PerCpu, mine, resched};
use super::{policy, sqpoll};
use crate::arch::{self, cpu};
use crate::devices;
use crate::measure::{self, Counter, Stretch};
use crate::object::memory;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use mainspring_driver::placement;
use mainspring_sched::{Decision, IdleConditions, IdleTick, Stop};

/// Pages that one service gives back.
const BURIED: u32 = 16;

/// Why a CPU came to idle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum After {
    /// It has just come up: no thread has run on it since it last began to schedule.
    Start,
    /// Its thread waits.
    Block,
    /// Its thread has ended, by itself or by a fault.
    Exit,
    /// Its thread could not go on after a timer interrupt.
    Timer,
    /// Its thread could not go on after another CPU's message.
    Message,
}

impl After {
    fn path(self) -> &'static str {
        match self {
            Self::Start => "cooperative-cpl0",
            Self::Block => "cpl0-dispatch-block",
            Self::Exit => "cpl0-dispatch-exit",
            Self::Timer => "cpl0-dispatch-timer",
            Self::Message => "cpl0-dispatch-message",
        }
    }
}

/// How often CPUs halted with nothing to run.
pub static HALTS: AtomicU64 = AtomicU64::new(0);
/// How often CPUs did that before they ever ran a thread.
pub static KERNEL_IDLE_HLT_ENTRIES: AtomicU64 = AtomicU64::new(0);
static SAYS: AtomicBool = AtomicBool::new(false);

/// Each CPU says when it first idles after each of these. Not said otherwise: a serial line is slow.
pub fn say() {
    SAYS.store(true, Ordering::Relaxed);
}

/// This CPU has nothing to run until there is a decision to run something.
#[cold]
pub fn idle(after: After) -> Decision {
    let here = mine();
    load_space(here, 0, None);
    let bit = 1 << here.id().index();
    // SeqCst: with the load of offers after it, against a waker's queueing before its look at the idle CPUs. One of the
    // two sees the other.
    IDLE.fetch_or(bit, Ordering::SeqCst);
    let mut ticked = false;
    loop {
        service();
        leases::while_idle(here);
        if ticked {
            check::tick_served(here);
        }
        if let Some(decision) = look_for_work(here) {
            check::going_on(&decision);
            IDLE.fetch_and(!bit, Ordering::SeqCst);
            return decision;
        }
        let mut core = here.lock();
        let conditions = IdleConditions {
            deferred_completions: memory::has_ended(),
            oneshot: !arch::fallback::is_active(),
            ..IdleConditions::default()
        };
        let tick = core.event(here, |cpu| cpu.enter_idle(&conditions));
        drop(core);
        arm(here);
        if here.has_lease_work() {
            leases::look_again_soon(here);
        }
        count(here, after, tick);
        let before = check::halting(here);
        measure::stretch_ends();
        let pending = cpu::halt();
        measure::stretch_begins(Stretch::Idle);
        check::halted(here, before, pending);
        devices::interrupted_all(pending.devices);
        if pending.message {
            dispatch::message(here);
        }
        if pending.timer {
            measure::one(Counter::TimersInIdle);
            dispatch::timer(here);
        }
        ticked = pending.timer;
    }
}

fn count(here: &PerCpu, after: After, tick: IdleTick) {
    HALTS.fetch_add(1, Ordering::Relaxed);
    if after == After::Start {
        KERNEL_IDLE_HLT_ENTRIES.fetch_add(1, Ordering::Relaxed);
    }
    if SAYS.load(Ordering::Relaxed) && !here.said_idle(after as u8) {
        say_once(here, after, tick);
    }
}

#[cold]
fn say_once(here: &PerCpu, after: After, tick: IdleTick) {
    let (cpu, path) = (here.id().index(), after.path());
    if after != After::Start {
        return crate::say!("sched: dispatch idle cpu={cpu} idle_path={path}");
    }
    let nohz = matches!(tick, IdleTick::Suppressed { .. });
    let source = if arch::fallback::is_active() { "pit" } else { "lapic" };
    crate::say!(
        "cpu-isolation: kernel-idle hlt cpu={cpu} idle_path={path} nohz_active={nohz} timer_source={source}"
    );
}

fn look_for_work(here: &'static PerCpu) -> Option<Decision> {
    let mut core = here.lock();
    if core.cpu().queued() > 0 {
        return Some(core.resched(here, Stop::Nothing));
    }
    drop(core);
    measure::one(Counter::StealsTried);
    placement::steal(&mut Kernel, here.id(), |cpu, _stolen| {
        measure::one(Counter::StealsMade);
        resched(cpu, Stop::Nothing)
    })
}

/// What has to be done now and then, a bounded piece at a time: by the tick of a thread that runs, or by the loop of a CPU
/// that idles. Timed waits are not of it, they end in the timer interrupt itself.
pub fn service() {
    check::serving();
    let here = mine();
    if leases::is_leased(here.id()) {
        return leases::leave_passes(here);
    }
    pass();
    let owed = here.take_owed_passes();
    if owed != 0 {
        pass();
        leases::count_offloads(owed);
    }
}

/// One piece of the machine's own work.
fn pass() {
    sqpoll::service();
    policy::service();
    // Whoever gives up an object buries it. This is for one that ended in the hands of somebody who could not.
    let _more_next_time = memory::bury(BURIED);
}
