//! The machine's leases of CPUs: the driver's table under one lock, and when the kernel looks after it.
//!
//! The lock of the table is taken before that of the contexts, which is taken before any core's; what every CPU reads is under a
//! lock of its own, under which no other is taken. An interrupt only tries to take the table's. If another CPU has it, a window
//! is proved as far as this CPU can ([`recheck_without_leases`]), and what is left to do is done a moment later: the timer is set
//! to come soon.
//!
//! An interrupt may come in the middle of a thread's long work, where its thread cannot be moved. So the handler proves the window
//! again and marks the CPU as one with lease work. Threads leave, and the tick stops, in [`before_user_mode`], the one way out of the kernel.
//!
//! Conserved: from an interrupt of a leased CPU on no other thread than its lessee goes on in user mode there, but one that may
//! run nowhere else, and one that is moved a moment later because there are more of them than fit one stretch. A CPU that has
//! lease work has its timer set to come soon.

mod machine;

use super::dispatch::{arm, carry_out, current};
use super::idle::After;
use super::machine::Kernel;
use super::per_cpu::{PerCpu, per_cpus};
use super::{contexts, sqpoll, stretch, visible};
use crate::arch::cpu::MAX_CPUS;
use crate::arch::{self, LapicTimer};
use crate::method::{post_notice, wire_end};
use crate::object::process::Process;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use heapless::Deque;
use mainspring_abi::{CpuId, CpuSet, Nanos, ProcessId, ThreadRef};
use mainspring_driver::leases::{Attended, Isolation, LeaseNotice, Leases, recheck_without_leases};
use mainspring_driver::sessions::SessionRef;
use mainspring_sched::hint::unlikely;
use mainspring_sched::lease::{Endpoint, LeaseRef, Limits, Mode, ModeSet, SessionId};
use mainspring_sched::nohz::{Contended, Interrupt, RemoteSlot, on_contention};
use mainspring_sched::{ClockEvent, Decision, Stop, arm_oneshot};
use spin::{Mutex, MutexGuard, Once};

/// Leases that there can be at a time, those included that have ended and were not released.
const LEASES: usize = 32;
/// Leases that one process may have at a time, those included.
pub const LEASES_EACH: usize = 8;
/// How long it may take at most until a revocation is felt whose message got lost.
const LATENCY: Nanos = Nanos::from_secs(1);
/// How often an interrupt tries to take the table.
const TRIES: u32 = 100;
/// When a CPU looks again that could not look after its leases.
const SOON: Nanos = Nanos::from_micros(20);

static TABLE: Once<Mutex<Leases>> = Once::new();
static ISOLATION: Once<Mutex<Isolation>> = Once::new();
/// What other CPUs ask of each.
static SLOTS: [Mutex<RemoteSlot>; MAX_CPUS] = [const { Mutex::new(RemoteSlot::new()) }; MAX_CPUS];
/// Sets of CPUs that lessees are bound to. One that nobody else has can become another.
static MASKS: Mutex<Vec<Arc<CpuSet>>> = Mutex::new(Vec::new());
/// Ends that have not been told.
static NOTICES: Mutex<Deque<(Endpoint, LeaseNotice), { 2 * LEASES }>> = Mutex::new(Deque::new());

/// Leases that have ended, and whose rings have not been looked at.
static ENDED: Mutex<Deque<LeaseRef, { 2 * LEASES }>> = Mutex::new(Deque::new());

/// Whether a lease decides where any thread may run.
static ANY: AtomicBool = AtomicBool::new(false);
/// CPUs that are leased, bit by bit.
static LEASED: AtomicU64 = AtomicU64::new(0);
/// CPUs that may be without a tick under a lease, bit by bit: for an interrupt that finds the core taken.
static TICKLESS: AtomicU64 = AtomicU64::new(0);
/// Timer interrupts that found the core or the table taken, and came again a moment later.
pub static CONTENDED: AtomicU64 = AtomicU64::new(0);

/// Makes the tables. The CPUs are known.
pub fn init() {
    let cpus = per_cpus().len();
    let online = CpuSet::first(cpus);
    let limits = Limits {
        capacity: LEASES,
        modes: ModeSet::DEFAULT.with(Mode::UserspacePoller).with(Mode::KernelWorker),
        max_revocation_latency: LATENCY,
        devices_on_housekeeping: false,
    };
    TABLE.call_once(|| Mutex::new(Leases::new(online, online, limits).expect("the table fits in the heap")));
    ISOLATION.call_once(|| Mutex::new(Isolation::new(cpus, LEASES).expect("it fits in the heap")));
    // A thread that is bound has one, and another one if its lease has been replaced and it has not moved yet.
    MASKS.lock().extend((0..4 * LEASES).map(|_| Arc::new(CpuSet::EMPTY)));
}

/// Whether a lease decides where any thread may run. Without leases nothing else here has to be asked.
#[inline(always)]
#[must_use]
pub fn any() -> bool {
    // Relaxed: only a hint; who has to know is told by an interrupt, which orders it.
    ANY.load(Ordering::Relaxed)
}

/// CPUs that are leased, bit by bit.
#[inline(always)]
#[must_use]
pub fn leased() -> u64 {
    LEASED.load(Ordering::Relaxed)
}

/// Whether a lessee has `cpu` to itself.
#[inline(always)]
#[must_use]
pub fn is_leased(cpu: CpuId) -> bool {
    let leased = leased();
    unlikely(leased != 0) && leased >> cpu.index() & 1 == 1
}

/// Whether no lease keeps `thread` away from `cpu`.
#[inline(always)]
#[must_use]
pub fn admits(thread: ThreadRef, cpu: CpuId) -> bool {
    !is_leased(cpu) || isolation().admits(thread, cpu)
}

fn isolation() -> MutexGuard<'static, Isolation> {
    ISOLATION.get().expect("leases exist before anything is scheduled").lock()
}

/// Acts on the leases, with nothing else locked. What ended is told afterwards.
pub fn with_leases<R>(act: impl FnOnce(&mut Leases, &mut Kernel) -> R) -> R {
    let result = act(&mut table().lock(), &mut Kernel);
    tell_endings();
    result
}

fn table() -> &'static Mutex<Leases> {
    TABLE.get().expect("leases exist before anything is scheduled")
}

/// The table, if no other CPU has it or it is given back at once.
fn try_table() -> Option<MutexGuard<'static, Leases>> {
    (0..TRIES).find_map(|_| {
        core::hint::spin_loop();
        table().try_lock()
    })
}

/// Tells the endpoints what their leases' owners wanted to hear. Nothing is locked.
fn tell_endings() {
    loop {
        let ended = ENDED.lock().pop_front();
        let Some(lease) = ended else { break };
        sqpoll::lease_ended(lease);
    }
    loop {
        let notice = NOTICES.lock().pop_front();
        let Some((endpoint, notice)) = notice else { return };
        visible::others_act();
        let end = wire_end(notice.reason) as u64;
        post_notice(endpoint.0, [notice.lease.id(), notice.lease.generation(), end, notice.at.get()]);
    }
}

/// The timer of `here`, which is this CPU, has come: its tickless window is proved again before anything else is done. Whether
/// the core can be told of the interrupt; if it cannot, the interrupt comes again at once.
pub fn on_timer(here: &PerCpu) -> bool {
    if here.is_taken() {
        let tickless = TICKLESS.load(Ordering::Relaxed) >> here.id().index() & 1 == 1;
        match on_contention(Interrupt::Timer, tickless) {
            // What the core needs is in the past, so the shortest one-shot is what it is armed for on the way out.
            Contended::ArmShortest => {
                CONTENDED.fetch_add(1, Ordering::Relaxed);
                return false;
            }
            Contended::StillArmed => {}
        }
    }
    reprove(here);
    true
}

/// Another CPU's message has come to `here`, which is this CPU. Whether it was without a tick, has proved that again, and need
/// not be told of a reschedule.
pub fn on_message(here: &PerCpu) -> bool {
    let tickless = TICKLESS.load(Ordering::Relaxed) >> here.id().index() & 1 == 1;
    if tickless && here.is_taken() {
        match on_contention(Interrupt::Reschedule, tickless) {
            Contended::ArmShortest | Contended::StillArmed => CONTENDED.fetch_add(1, Ordering::Relaxed),
        };
        here.raise_lease_work();
        return false;
    }
    reprove(here);
    tickless
}

fn reprove(here: &PerCpu) {
    here.raise_lease_work();
    match try_table() {
        Some(mut leases) => leases.reprove(&mut Kernel, here.id()),
        None => {
            CONTENDED.fetch_add(1, Ordering::Relaxed);
            // Kept for a moment, or the tick is back: either way its timer comes.
            let _kept = recheck_without_leases(&mut Kernel, here.id());
        }
    }
}

/// `here`, which is this CPU and has lease work, is about to go on in user mode: threads that belong elsewhere leave, and the tick
/// stops if that was asked for and can be proved. Another thread may be installed when this returns.
#[cold]
pub fn before_user_mode(here: &'static PerCpu, after: After) {
    while attend(here) == Attended::ChooseNext {
        let decision = here.lock().resched(here, Stop::Nothing);
        // The thread that ran may have run elsewhere meanwhile.
        carry_out(here, decision, None, after);
        // As many were moved as fit one stretch.
        arm(here);
        let chosen = current(here);
        let name = chosen.name();
        if let Some(decision) = stretch::between(here, chosen) {
            carry_out(here, decision, Some(name), after);
        }
        here.raise_lease_work();
    }
}

/// `here`, which is this CPU, idles: what has expired ends, and sleepers leave a CPU that was leased.
pub fn while_idle(here: &PerCpu) {
    let (Attended::Continue | Attended::ChooseNext) = attend(here);
}

/// What has expired ends, threads leave that belong elsewhere, and the tick stops if that was asked for and can be proved. Lease work
/// that is left, because the table is taken or there are too many threads, stays marked.
fn attend(here: &PerCpu) -> Attended {
    if !here.take_lease_work() || !any() {
        return Attended::Continue;
    }
    let Some(mut leases) = try_table() else {
        CONTENDED.fetch_add(1, Ordering::Relaxed);
        here.raise_lease_work();
        return Attended::Continue;
    };
    let attended = leases.evict(&mut Kernel, here.id());
    leases.after_event_on(&mut Kernel, here.id());
    drop(leases);
    tell_endings();
    if isolation().may_have_strays(here.id()) {
        here.raise_lease_work();
    }
    attended
}

/// `here`, which is this CPU, runs a poller, which never goes on in user mode: as [`before_user_mode`]. What was decided if the
/// poller belongs elsewhere, and has gone there.
#[must_use]
pub fn while_polling(here: &PerCpu) -> Option<Decision> {
    let attended = attend(here);
    if here.has_lease_work() {
        look_again_soon(here);
    }
    (attended == Attended::ChooseNext).then(|| here.lock().resched(here, Stop::Nothing))
}

/// `here`, which is this CPU, could not look after all of its leases: its timer comes soon.
#[cold]
pub fn look_again_soon(here: &PerCpu) {
    if arch::fallback::is_active() {
        return;
    }
    let now = arch::now();
    let soon = now + SOON.max(LapicTimer.min_delta());
    if soon.get() < here.armed.swap(soon.get(), Ordering::SeqCst) {
        here.fires_at.store(soon.get(), Ordering::Relaxed);
        arm_oneshot(&mut LapicTimer, now, soon);
    }
}

/// `thread` of `process` has ended, and has left its CPU. If it was a lessee, its lease ends; if its process ends, by that.
pub fn thread_ended(process: &Process, thread: ThreadRef) {
    if any() {
        let exits = process.state.lock().ending.is_some();
        with_leases(|leases, machine| {
            if exits && leases.lease_of(thread).is_some() {
                leases.end_leases_of_process(machine, ProcessId::new(process.index()));
            }
            leases.thread_exited(machine, thread);
        });
    }
}

/// The process has ended, but for its last thread: its leases end.
pub fn process_ended(process: &Process) {
    with_leases(|leases, machine| {
        leases.end_leases_of_process(machine, ProcessId::new(process.index()));
    });
}

/// The session has ended: its leases end.
pub fn logged_out(session: SessionRef) {
    with_leases(|leases, machine| leases.end_leases_of_session(machine, session_id(session)));
}

/// The session as leases know it.
#[must_use]
pub fn session_id(session: SessionRef) -> SessionId {
    SessionId(session.id())
}

/// `here`, which is this CPU and is leased, does no housekeeping: its pass, and those that were left to it, are a housekeeper's. If
/// the table is taken, the pass comes again with the next service.
pub fn leave_passes(here: &PerCpu) {
    let Some(leases) = try_table() else { return };
    if let Some(home) = leases.home_for_housekeeping(here.id()) {
        per_cpus()[home.index()].owe_passes(here.take_owed_passes() | 1 << here.id().index());
    }
}

/// The passes of these CPUs, bit by bit, have been done by this one.
#[cold]
pub fn count_offloads(mut cpus: u64) {
    let mut isolation = isolation();
    while cpus != 0 {
        if let Ok(cpu) = CpuId::new(cpus.trailing_zeros() as usize) {
            isolation.count_offload(cpu);
        }
        cpus &= cpus - 1;
    }
}

/// `housekeeping_offload_count` of `cpu`.
#[must_use]
pub fn offloads(cpu: CpuId) -> u64 {
    isolation().offloads(cpu)
}

/// Whether a thread that may run on these CPUs, bit by bit, may run on none that is not leased.
#[must_use]
pub fn has_all(cpus: u64) -> bool {
    cpus & !leased() == 0
}

/// How many leases are live.
#[must_use]
pub fn live() -> usize {
    TABLE.get().map_or(0, |table| table.lock().live_count())
}
