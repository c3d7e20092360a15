//! What must hold whenever a CPU leaves the kernel, serves a request or halts.
//!
//! Builds with debug assertions (`make kernel-checked`) look each time, count how often they did, and stop the machine at
//! the first that does not hold. In others all of this is nothing.

use super::per_cpu::{IDLE, PerCpu, per_cpus};
use super::visible;
use crate::arch::cpu::{self, Pending};
use crate::arch::{self, AddressSpace, examine};
use crate::object::process;
use core::sync::atomic::{AtomicU64, Ordering};
use mainspring_abi::Nanos;
use mainspring_abi::frame::CheckCounts;
use mainspring_sched::Decision;

const ON: bool = cfg!(debug_assertions);

static LEAVES: AtomicU64 = AtomicU64::new(0);
static HALTS: AtomicU64 = AtomicU64::new(0);
static SERVICES: AtomicU64 = AtomicU64::new(0);
static REQUESTS: AtomicU64 = AtomicU64::new(0);

/// What a CPU keeps for its checks. Nobody else writes it.
#[derive(Debug, Default)]
pub struct Checks {
    ticks_taken: AtomicU64,
    ticks_served: AtomicU64,
    user_entries: AtomicU64,
}

/// What an idle CPU must find again after it halted: the user side of the machine, and entries from user mode so far.
#[derive(Clone, Copy, Debug)]
pub struct AtHalt {
    user_side: (u64, (u64, u64)),
    user_entries: u64,
}

fn count(what: &AtomicU64) {
    what.fetch_add(1, Ordering::Relaxed);
}

fn nothing_is_held() {
    assert_eq!(cpu::held(), 0, "a scheduler core is locked");
    assert!(!examine::interrupts_are_on(), "interrupts are on in the kernel");
}

/// The kernel was entered from user mode.
#[inline(always)]
pub fn entered(here: &PerCpu) {
    if ON {
        assert!(examine::flags_are_the_kernels(), "the kernel runs with a flag of the thread it came from");
        count(&here.checks.user_entries);
    }
}

/// The timer interrupt has been taken.
#[inline(always)]
pub fn tick_taken(here: &PerCpu) {
    if ON {
        count(&here.checks.ticks_taken);
    }
}

/// What is done at each tick has been done.
#[inline(always)]
pub fn tick_served(here: &PerCpu) {
    if ON {
        count(&here.checks.ticks_served);
    }
}

fn every_tick_was_served_once(here: &PerCpu) {
    let read = |what: &AtomicU64| what.load(Ordering::Relaxed);
    let (taken, served) = (read(&here.checks.ticks_taken), read(&here.checks.ticks_served));
    assert_eq!(taken, served, "a tick was not served, or twice");
}

/// A method is about to run.
#[inline(always)]
pub fn requested() {
    if ON {
        nothing_is_held();
        count(&REQUESTS);
    }
}

/// The periodic service is about to run.
#[inline(always)]
pub fn serving() {
    if ON {
        nothing_is_held();
        what_can_be_charged_is_free();
        count(&SERVICES);
    }
}

/// With one CPU, where nobody else is in the middle of taking or giving back.
fn what_can_be_charged_is_free() {
    if per_cpus().len() == 1 {
        assert!(
            process::chargeable_frames() <= arch::free_frames(),
            "frames are in use that nobody pays for"
        );
    }
}

/// The CPU goes on to its current thread in user mode.
#[inline(always)]
pub fn leaving(here: &PerCpu) {
    if ON {
        look_before_user_mode(here);
    }
}

fn look_before_user_mode(here: &PerCpu) {
    nothing_is_held();
    every_tick_was_served_once(here);
    let thread = here.current.get();
    let core = here.lock();
    let running =
        core.cpu().current().and_then(|seat| core.cpu().entity(seat).ok()).map(|entity| entity.thread());
    drop(core);
    assert_eq!(running, Some(thread.name()), "the CPU and its core disagree about who runs");
    assert!(examine::enters_into(&thread.context), "an entry would not save the thread that runs");
    assert!(examine::has_base_of(&thread.context), "another thread's FS base is loaded");
    let root = thread.root.load(Ordering::Relaxed);
    assert_eq!((examine::tables(), here.loaded.load(Ordering::Relaxed)), (root, root), "not its page tables");
    let process = thread.process();
    let resident = process.resident.load(Ordering::Acquire) >> here.id().index() & 1 == 1;
    assert!(resident, "page tables are loaded and not counted as resident");
    assert_eq!(here.loaded_process.load(Ordering::Relaxed), process.index() + 1, "another's page tables");
    assert!(examine::user_pages_are_shut(), "the kernel could touch a user page");
    assert!(examine::can_leave_to(&thread.context), "the processor could not leave to this thread");
    count(&LEAVES);
}

/// The page tables of `space` are about to be taken apart.
#[inline(always)]
pub fn taking_apart(space: Option<&AddressSpace>) {
    if ON && let Some(space) = space {
        let root = space.root().to_bits();
        let loaded = per_cpus().iter().any(|cpu| cpu.loaded.load(Ordering::Acquire) == root);
        assert!(!loaded, "page tables that a CPU has loaded are taken apart");
    }
}

/// An idle CPU goes on with `decision`.
#[inline(always)]
pub fn going_on(decision: &Decision) {
    if ON {
        assert!(matches!(decision, Decision::Run(_)), "an idle CPU went on to idle");
    }
}

/// The CPU is about to halt; what [`halted`] needs.
#[inline(always)]
pub fn halting(here: &PerCpu) -> Option<AtHalt> {
    ON.then(|| look_before_halt(here))
}

fn look_before_halt(here: &PerCpu) -> AtHalt {
    nothing_is_held();
    every_tick_was_served_once(here);
    assert!(examine::runs_as_kernel(), "idle, but not as the kernel on the CPU's own stack");
    assert_eq!((examine::tables(), here.loaded.load(Ordering::Relaxed)), (0, 0), "idle on user page tables");
    let bit = 1 << here.id().index();
    for process in process::all() {
        assert_eq!(process.resident.load(Ordering::Acquire) & bit, 0, "an idle CPU is resident in a process");
    }
    assert_ne!(IDLE.load(Ordering::SeqCst) & bit, 0, "idle, and nobody can know");
    let nobody = here.lock().cpu().current().is_none();
    assert!(nobody, "idle, and a thread runs");
    count(&HALTS);
    AtHalt { user_side: examine::user_side(), user_entries: here.checks.user_entries.load(Ordering::Relaxed) }
}

/// The CPU halted, and `pending` came.
#[inline(always)]
pub fn halted(here: &PerCpu, before: Option<AtHalt>, pending: Pending) {
    if let Some(before) = before {
        look_after_halt(here, before, pending);
    }
}

fn look_after_halt(here: &PerCpu, before: AtHalt, pending: Pending) {
    nothing_is_held();
    assert_eq!(
        examine::user_side(),
        before.user_side,
        "an idle CPU's interrupt touched a user thread's state"
    );
    let entries = here.checks.user_entries.load(Ordering::Relaxed);
    assert_eq!(entries, before.user_entries, "an idle CPU's interrupt was taken for a user thread's");
    if !pending.timer && !arch::fallback::is_active() {
        let due = Nanos::new(here.armed.load(Ordering::Relaxed));
        let on_its_way = examine::timer_is_counting() || due <= arch::now() + arch::CLOCK_SLACK;
        assert!(on_its_way, "the one-shot was lost across the halt");
    }
}

/// How often everything was looked at; said as well, where anything was.
pub fn report() -> CheckCounts {
    let [leaves, halts, services, requests] =
        [&LEAVES, &HALTS, &SERVICES, &REQUESTS].map(|what| what.load(Ordering::Relaxed));
    let refusals = visible::compared();
    if ON {
        crate::say!(
            "checks: ok leaves={leaves} halts={halts} services={services} requests={requests} refusals: {refusals}"
        );
    }
    CheckCounts { leaves, halts, services, requests, refusals }
}
