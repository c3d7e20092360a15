//! Decisions and what follows from them: the running thread stops, another takes over, or the CPU idles.
//!
//! Conserved: the registers that are loaded are those of the thread that is installed. A CPU that goes on with the thread that it
//! ran before loads nothing anew. Whether it is the same thread is asked of its name, which was read while it had its slot: the
//! slot of a thread that has ended belongs to another as soon as nobody holds it, and that other one may be chosen next here.

use super::check;
use super::contexts;
use super::flush::drain_flushes;
use super::idle::{self, After};
use super::leases;
use super::machine::Kernel;
use super::notify::notify;
use super::per_cpu::{Locked, PerCpu, mine, per_cpu};
use super::policy;
use super::sqpoll;
use super::stretch;
use super::visible;
use super::wakeup::{self, take_permit};
use crate::arch::cpu;
use crate::arch::{self, LapicTimer};
use crate::devices;
use crate::measure::{self, Counter};
use crate::method::Ending;
use crate::object::inbox::{Awaits, Inbox, Serving, Short, Waiter, Waiting};
use crate::object::thread::{self, Thread};
use crate::object::{endpoint, process};
use core::sync::atomic::Ordering;
use mainspring_abi::ring::CapError;
use mainspring_abi::{Nanos, ThreadRef, kernel};
use mainspring_driver::contexts::Contexts;
use mainspring_driver::{RecordedCpu, placement};
use mainspring_kernel_core::ledger::Kind;
use mainspring_ring::deadline::Budget;
use mainspring_sched::flight::Log;
use mainspring_sched::hint::{likely, unlikely};
use mainspring_sched::{
    Authority, ClockEvent, Decision, Entity, Seat, Stop, Timeout, WaitKind, WaitPermit, arm_oneshot,
};
use spin::MutexGuard;

/// Threads that one look tells to end.
const KILLED_AT_ONCE: usize = 4;

/// Threads that are chosen and cannot go on, one after the other, before interrupts are taken.
const PASSED_AT_ONCE: u32 = 8;

/// The thread that this CPU runs. Only code that was entered from one, or has installed one, may ask.
#[must_use]
pub fn current(here: &PerCpu) -> &'static Thread {
    here.current.get()
}

/// What the CPU says it runs is what its core says runs.
///
/// # Panics
///
/// If it is not: somebody would be charged for another's time.
pub fn check_current(here: &PerCpu, thread: &Thread) {
    let core = here.lock();
    let running = core.cpu().running().map(Entity::thread);
    assert_eq!(running, Some(thread.name()), "the core says that another thread runs");
}

/// The running thread stops as `stop` says; another is installed when this returns.
pub fn stop(thread: &Thread, stop: Stop, after: After) {
    let (here, name) = (mine(), thread.name());
    let mut core = here.lock();
    thread.context.unbind();
    let decision = core.resched(here, stop);
    drop(core);
    carry_out(here, decision, Some(name), after);
}

/// Whether the running thread of this CPU has a context of its own or on loan.
#[inline(always)]
#[must_use]
pub fn runs_on_context() -> bool {
    contexts::exist() && !mine().lock().runs_best_effort()
}

/// Whether `thread`, which runs here, can give its call to `server` without asking the table of contexts: it has no context, which
/// is `Some(false)`, or one that may be lent to that one. `None` if the long way decides.
#[inline(always)]
#[must_use]
pub fn lends_to(thread: &Thread, server: ThreadRef) -> Option<bool> {
    if contexts::exist() { may_lend_to(thread.name(), server) } else { Some(false) }
}

#[inline(never)]
fn may_lend_to(thread: ThreadRef, server: ThreadRef) -> Option<bool> {
    let core = mine().lock();
    match core.cpu().running()?.authority() {
        Authority::BestEffort => Some(false),
        Authority::Context(context) => context.may_lend(thread, server).is_ok().then_some(true),
        Authority::Lent(_) => None,
    }
}

/// The number of the context that the running thread of this CPU has, 0 if it has none, and whether it can be spent now.
#[must_use]
pub fn own_context() -> (u32, Budget) {
    let core = mine().lock();
    let context = core.cpu().running().and_then(Entity::context);
    let budget = |usable| if usable { Budget::Available } else { Budget::Depleted };
    context.map_or((0, Budget::Available), |context| {
        (context.who().id(), budget(context.is_usable(arch::now())))
    })
}

/// A request was not begun on this CPU because it was late.
pub fn count_expired_request() {
    mine().count_expired_request();
}

/// Whether an event asks for a decision. Nothing is locked: a thread that waited for what happened to a context is told first.
#[must_use]
pub fn decision_wanted(here: &PerCpu) -> bool {
    contexts::tell_waiters(here);
    here.lock().cpu().reschedule_wanted()
}

/// The running thread waits in `cap_enter` until `deadline`, for what its inbox says, and hands over to `target` if there is
/// one. It `lends` that one its context, if its call to it is all that it waits for. Its inbox stays locked until the core knows that
/// it sleeps.
#[inline(always)]
pub fn block(
    here: &'static PerCpu,
    thread: &'static Thread,
    inbox: MutexGuard<'_, Inbox>,
    deadline: Nanos,
    target: Option<&'static Thread>,
    lends: bool,
) -> Result<(), CapError> {
    if let Some(target) = target
        && deadline == Nanos::MAX
        && !inbox.may_be_due()
        && switch_to(here, thread, target, inbox.kind(), || waits_alone(&inbox, lends))
    {
        drop(inbox);
        take_over(here, target, true);
        let name = target.name();
        if let Some(decision) = go_on(here, target) {
            carry_out(here, decision, Some(name), After::Block);
        }
        return Ok(());
    }
    block_slowly(here, thread, inbox, deadline, target)
}

fn block_slowly(
    here: &'static PerCpu,
    thread: &'static Thread,
    mut inbox: MutexGuard<'_, Inbox>,
    deadline: Nanos,
    target: Option<&'static Thread>,
) -> Result<(), CapError> {
    if runs_on_context() {
        drop(inbox);
        return block_on_context(here, thread, deadline, target);
    }
    let name = thread.name();
    let slept = fall_asleep(here, thread, &inbox, deadline, target);
    let given_up = if slept.is_err() { inbox.give_up(name) } else { None };
    drop(inbox);
    if let Some((awaits, waiter)) = given_up {
        forget(thread, awaits, waiter);
    }
    carry_out(here, slept?, Some(name), After::Block);
    Ok(())
}

/// As [`block`], for a thread that has a context. If it waits for a call alone, and the call has been received, the thread that
/// serves it has the context before it is woken. A thread that serves on its caller's time gives that back before it waits for
/// another call, and may wait for nothing else.
#[cold]
fn block_on_context(
    here: &'static PerCpu,
    thread: &'static Thread,
    deadline: Nanos,
    target: Option<&'static Thread>,
) -> Result<(), CapError> {
    let name = thread.name();
    // Only the thread itself puts operations in flight.
    let call = thread.inbox.lock().only_call(name);
    let ends = call.map(|(_, index)| endpoint::endpoint(index).lock());
    let mut inbox = thread.inbox.lock();
    if !inbox.is_waiting() {
        // What it waits for has come in the meantime.
        drop((inbox, ends));
        if let Some(target) = target {
            wakeup::wake(target);
        }
        if let Some(decision) = go_on(here, thread) {
            carry_out(here, decision, Some(name), After::Block);
        }
        return Ok(());
    }
    let kind = match (inbox.kind(), call) {
        (WaitKind::Call, None) => WaitKind::Ring,
        (kind, _) => kind,
    };
    let mut table = contexts::lock();
    let slept = table
        .about_to_wait(&mut Kernel, name, kind)
        .map_err(|_| CapError::BorrowedTime)
        .and_then(|()| begin_to_wait(here, thread, kind, deadline.min(inbox.next_deadline())));
    if slept.is_ok()
        && let (Some(ends), Some((caller, _))) = (&ends, call)
        && ends.lends()
        && let Some(server) = ends.server_of(caller)
    {
        contexts::lend(&mut table, name, server);
    }
    drop(table);
    let given_up = if slept.is_err() { inbox.give_up(name) } else { None };
    drop((inbox, ends));
    if let Some((awaits, waiter)) = given_up {
        forget(thread, awaits, waiter);
    }
    slept?;
    if let Some(target) = target {
        wakeup::wake(target);
    }
    let decision = here.lock().resched(here, Stop::Nothing);
    // It may have been elsewhere meanwhile.
    carry_out(here, decision, None, After::Block);
    Ok(())
}

/// The core is told that `thread`, which runs, sleeps, and nobody is chosen yet; or why it cannot, and then nothing has changed.
fn begin_to_wait(here: &PerCpu, thread: &Thread, kind: WaitKind, deadline: Nanos) -> Result<(), CapError> {
    let timeout = timeout(thread, deadline)?;
    let mut core = here.lock();
    if thread.is_killed() {
        drop(core);
        wakeup::give_back(timeout.map(|timeout| timeout.permit));
        return Err(CapError::Cancelled);
    }
    thread.context.unbind();
    core.event(here, |cpu| cpu.block_current(kind, timeout));
    Ok(())
}

/// What a wait until `deadline` needs.
fn timeout(thread: &Thread, deadline: Nanos) -> Result<Option<Timeout>, CapError> {
    if deadline == Nanos::MAX {
        return Ok(None);
    }
    let permit = take_permit(thread.process().index())?;
    Ok(Some(Timeout { deadline, user_data: 0, permit }))
}

/// Whether a thread that waits for what its inbox says waits for the answer to a call for which it `lends`, or for its next call, and
/// for nothing else.
#[inline(always)]
fn waits_alone(inbox: &Inbox, lends: bool) -> bool {
    let kind = inbox.kind();
    (kind == WaitKind::Call && lends || kind == WaitKind::Receive) && inbox.in_flight() == 1
}

/// `thread`, which runs, waits, and `target`, which has what it waited for, goes on in its place: in one go, if it sits
/// here and nothing speaks against it. Whether it does; [`take_over`] is next then. The caller has the inbox of `thread`
/// locked, so nobody finds out that it sleeps before that inbox says for what. A thread that runs on a context hands that over too, if
/// it `lends`: to the server of its call, or back to the caller that it answers.
#[inline(always)]
pub fn switch_to(
    here: &PerCpu,
    thread: &Thread,
    target: &Thread,
    kind: WaitKind,
    lends: impl FnOnce() -> bool,
) -> bool {
    let Some((_, seat)) = target.home().filter(|(cpu, _)| *cpu == here.id().index()) else { return false };
    if !leases::admits(seat.thread(), here.id()) {
        return false;
    }
    let mut core = here.lock();
    if thread.is_killed() {
        return false;
    }
    if unlikely(core.cpu().runs_on_context()) {
        return lends() && switch_on_context(here, thread, core, seat, kind);
    }
    let Some(permit) = core.event(here, |cpu| cpu.switch_directly(seat, kind)) else { return false };
    // Nobody can find it asleep before the lock is given back.
    thread.context.unbind();
    drop(core);
    measure::one(Counter::DirectSwitches);
    wakeup::give_back(permit);
    true
}

/// The same for `thread`, which runs on a context: it calls the one at `seat` on that, or answers the one at `seat`, which has lent it.
#[inline(never)]
fn switch_on_context(here: &PerCpu, thread: &Thread, core: Locked<'_>, seat: Seat, kind: WaitKind) -> bool {
    match kind {
        WaitKind::Call => call_on_context(here, thread, core, seat),
        WaitKind::Receive => answer_on_context(here, thread, core, seat),
        _ => false,
    }
}

// Each is a function of its own: what is around it would push the CPU's state out of the registers.
#[inline(never)]
fn call_on_context(here: &PerCpu, thread: &Thread, core: Locked<'_>, seat: Seat) -> bool {
    hand_context_over(here, thread, core, |table, cpu| table.call_directly(cpu, seat).then_some(None))
}

#[inline(never)]
fn answer_on_context(here: &PerCpu, thread: &Thread, core: Locked<'_>, seat: Seat) -> bool {
    hand_context_over(here, thread, core, |table, cpu| table.reply_directly(cpu, seat))
}

/// The table comes before the core, so it is only tried here.
///
/// A target that is told to end at this moment was marked before, and lets go of what it has after it has been woken: it still sleeps
/// here, so what it gets is returned then.
#[inline(always)]
fn hand_context_over(
    here: &PerCpu,
    thread: &Thread,
    mut core: Locked<'_>,
    switch: impl FnOnce(&mut Contexts, RecordedCpu<'_, Option<Log>>) -> Option<Option<WaitPermit>>,
) -> bool {
    let Some(mut table) = contexts::try_lock() else { return false };
    let Some(permit) = core.event(here, |cpu| switch(&mut table, cpu)) else { return false };
    thread.context.unbind();
    drop((core, table));
    measure::one(Counter::DirectSwitches);
    wakeup::give_back(permit);
    true
}

/// The core is told that `thread`, which runs, sleeps; or why it cannot, and then nothing has changed.
pub(super) fn fall_asleep(
    here: &PerCpu,
    thread: &Thread,
    inbox: &Inbox,
    deadline: Nanos,
    target: Option<&Thread>,
) -> Result<Decision, CapError> {
    let timeout = timeout(thread, deadline.min(inbox.next_deadline()))?;
    if let Some(target) = target {
        wakeup::hand_off(target);
    }
    let mut core = here.lock();
    if thread.is_killed() {
        // Whoever kills sets the mark and then wakes, with this lock: one of the two sees the other.
        drop(core);
        wakeup::give_back(timeout.map(|timeout| timeout.permit));
        return Err(CapError::Cancelled);
    }
    thread.context.unbind();
    Ok(core.resched(here, Stop::Blocked(inbox.kind(), timeout)))
}

/// Does what was decided, and what is decided then, until a thread is installed that can go on in user mode, or that is to
/// end: see [`leave`]. The registers that are loaded are those of `before`, which may have ended. What it comes after matters to
/// who asks why this CPU idles.
pub(super) fn carry_out(
    here: &'static PerCpu,
    mut decision: Decision,
    mut before: Option<ThreadRef>,
    after: After,
) {
    let mut passed = 0;
    loop {
        let told = contexts::tell_waiters(here);
        decision = match decision {
            Decision::Run(run) => {
                let thread = thread::slot(run.thread.index());
                debug_assert_eq!(thread.name(), run.thread, "a decision for a thread that is gone");
                let switched = before != Some(run.thread);
                if switched {
                    // Not where a call goes over to its server or back: these two tell each other what they like anyway.
                    cpu::clear_selectors();
                }
                take_over(here, thread, switched);
                let next = if passed < PASSED_AT_ONCE {
                    go_on(here, thread)
                } else {
                    passed = 0;
                    arm(here);
                    stretch::between(here, thread).or_else(|| go_on(here, thread))
                };
                // Somebody who was told just now may go first.
                let next = next.or_else(|| if told { stretch::preempted(here, thread) } else { None });
                let Some(next) = next else { return };
                (before, passed) = (Some(run.thread), passed + 1);
                next
            }
            Decision::Idle => {
                before = None;
                idle::idle(after)
            }
        };
    }
}

/// Makes `thread` what this CPU runs: registers, page tables, entry. Somebody else ran before if it is `switched`.
#[inline(always)]
pub fn take_over(here: &PerCpu, thread: &'static Thread, switched: bool) {
    let context = thread.context.bind();
    here.current.set(thread);
    load_space(here, thread.root.load(Ordering::Relaxed), Some(thread.process()));
    context.install(switched);
    if switched {
        visible::others_act();
        measure::switched(|| thread.name());
        if leases::is_leased(here.id()) {
            here.raise_lease_work();
        }
        placement::share_leftovers(&mut Kernel, here.id());
    }
}

/// Goes over to other page tables, and keeps account of which CPU has which.
#[inline(always)]
pub(super) fn load_space(here: &PerCpu, root: u64, process: Option<&process::Process>) {
    let loaded = here.loaded.load(Ordering::Relaxed);
    if loaded == root {
        return;
    }
    // Acquire: pairs with the release of who asked. Read before the tables change: what is asked for afterwards may be about
    // the new ones, of which the processor may know something by then.
    let asked = here.flush_asked.load(Ordering::Acquire);
    measure::one(Counter::TableLoads);
    let bit = 1 << here.id().index();
    if let Some(process) = process {
        process.resident.fetch_or(bit, Ordering::AcqRel);
        cpu::load_space(root);
    } else {
        cpu::load_kernel_space();
    }
    here.loaded.store(root, Ordering::Relaxed);
    let after = process.map_or(0, |process| process.index() + 1);
    let before = here.loaded_process.swap(after, Ordering::Relaxed);
    // Mostly another process was here, and is not any more.
    if likely(before != 0) && likely(before != after) {
        process::slot(before - 1).resident.fetch_and(!bit, Ordering::AcqRel);
    }
    // All translations of user addresses went with the old tables.
    here.flush_done.store(asked, Ordering::Release);
}

/// Whether the installed thread can go on: `None`, or what was decided because it cannot.
#[inline(always)]
pub fn go_on(here: &'static PerCpu, thread: &'static Thread) -> Option<Decision> {
    let mut inbox = lock_and_expire(thread);
    match inbox.waiting {
        Waiting::Not => return None,
        Waiting::Over(answer) => thread.context.mine().answer(answer),
        Waiting::Has(Short { head, words }) => {
            thread.context.mine().receive(head.len, head.call_id, head.deadline_ns, words);
        }
        Waiting::For(_) | Waiting::InRegisters { .. } | Waiting::Serving(_) | Waiting::Polling => {
            return woken_early(here, thread, inbox);
        }
    }
    inbox.waiting = Waiting::Not;
    None
}

/// The installed thread was woken while its inbox says that it waits: it sleeps again, or goes on with what there is. One
/// that has more to do goes on with that.
#[cold]
fn woken_early(
    here: &'static PerCpu,
    thread: &'static Thread,
    mut inbox: MutexGuard<'_, Inbox>,
) -> Option<Decision> {
    match inbox.waiting {
        Waiting::Serving(_) => {
            drop(inbox);
            return stretch::go_on(here, thread);
        }
        Waiting::Polling => {
            drop(inbox);
            return sqpoll::run(here, thread);
        }
        _ => {}
    }
    let answer = match still_waits(here, thread, &mut inbox) {
        Ok(decision) => return Some(decision),
        Err(answer) => answer,
    };
    let given_up = inbox.give_up(thread.name());
    drop(inbox);
    if let Some((awaits, waiter)) = given_up {
        forget(thread, awaits, waiter);
    }
    thread.context.mine().answer(answer);
    None
}

/// The decision to sleep on, or what ends the wait: the answer.
fn still_waits(here: &PerCpu, thread: &Thread, inbox: &mut Inbox) -> Result<Decision, u64> {
    let mut deadline = Nanos::MAX;
    if let Waiting::For(wait) = inbox.waiting {
        if let Some(answer) = inbox.answer(wait.min) {
            return Err(answer);
        }
        deadline = wait.deadline;
        if deadline != Nanos::MAX && deadline <= arch::now() {
            return Err(inbox.answer(0).unwrap_or(0));
        }
    }
    fall_asleep(here, thread, inbox, deadline, None)
        .map_err(|code| kernel::REFUSED | u64::from(code.number()))
}

/// The inbox of `thread`, locked, with everything ended in it that is due, and forgotten by its objects.
#[inline(always)]
pub fn lock_and_expire(thread: &Thread) -> MutexGuard<'_, Inbox> {
    let inbox = thread.inbox.lock();
    if inbox.may_be_due() { expire_due(thread, inbox) } else { inbox }
}

#[inline(never)]
fn expire_due<'t>(thread: &'t Thread, mut inbox: MutexGuard<'t, Inbox>) -> MutexGuard<'t, Inbox> {
    let now = arch::now();
    while let Some((awaits, waiter)) = inbox.expire(thread.name(), now) {
        // An object's lock comes before an inbox's.
        drop(inbox);
        forget(thread, awaits, waiter);
        inbox = thread.inbox.lock();
    }
    inbox
}

/// Its object, and the quota, forget an operation of `thread` that has ended.
pub fn forget(thread: &Thread, awaits: Awaits, waiter: Waiter) {
    if awaits == Awaits::Time {
        thread.process().ledger.refund(Kind::Sleeps, 1);
    }
    withdraw(thread.process(), awaits, waiter);
}

/// `waiter` is of `process`, and its thread has not ended.
fn withdraw(process: &process::Process, awaits: Awaits, waiter: Waiter) {
    match awaits {
        Awaits::Time => {}
        Awaits::Notice(context) => contexts::lock().stop_waiting(&mut Kernel, context, waiter.thread),
        Awaits::Interrupt(line) => devices::stop_waiting(line, waiter.thread),
        Awaits::Park(_) => process.parks.lock().withdraw(waiter),
        Awaits::Thread(name) => thread::slot(name.index()).life.lock().joiners.retain(|one| *one != waiter),
        Awaits::Process(name) => process::slot(name.index).state.lock().waiters.retain(|one| *one != waiter),
        Awaits::Answer(index) | Awaits::Call(index) => {
            endpoint::endpoint(index).lock().withdraw(waiter, process.index());
        }
    }
}

/// The installed thread ends with `code`. Nothing of it is left anywhere when this returns.
pub(super) fn end(thread: &'static Thread, code: i64) -> Decision {
    let (here, name) = (mine(), thread.name());
    let process = thread.process();
    if let Some(queue) = thread.queue.lock().take() {
        // This CPU is the ring's only consumer, and is not serving it now.
        let _ = queue.close();
    }
    let ended = thread.inbox.lock().close(name);
    for (awaits, waiter) in ended {
        forget(thread, awaits, waiter);
    }
    *thread.work.lock() = None;
    let place = thread.place.load(Ordering::Relaxed);
    load_space(here, 0, None);
    // A thread with a context ends under the table's lock, which comes before the core's, until what it held is where it
    // belongs. A thread without one gets none while its core is locked.
    let mut core = here.lock();
    let mut table = None;
    if !core.runs_best_effort() {
        drop(core);
        table = Some(contexts::lock());
        core = here.lock();
    }
    thread.context.unbind();
    let seat = core.cpu().current().expect("the thread that ends runs");
    // Dropped before the machine may end with its last process: what it holds of the heap is accounted for then.
    let mut entity = core.access(here, |cpu| cpu.exit_current());
    assert!(core.cpu().state(seat).is_err(), "a thread that ended still has its seat");
    drop(core);
    if let (Some(table), Some(entity)) = (&mut table, &mut entity) {
        contexts::thread_ended(table, entity);
    }
    drop((entity, table));
    sqpoll::poller_ended(name);
    leases::thread_ended(process, name);
    policy::thread_ended(name);
    for joiner in thread.end(code) {
        wakeup::finish(joiner, Ok(code as u32));
    }
    if let Some((code, waiters)) = process.thread_ended(place, code) {
        // What the last thread itself had in flight was withdrawn just now, after the others' calls were answered.
        leave_endpoints(process);
        crate::boot::process_ended(process, code);
        // Who waited finds nothing of it left: its place is free as soon as nobody has a handle.
        process.bury();
        for waiter in waiters {
            wakeup::finish(waiter, Ok(code as u32));
        }
    }
    here.lock().resched(here, Stop::Nothing)
}

/// The process, whose last thread has ended, leaves all endpoints: callers whose calls it had received and will not answer
/// are told.
fn leave_endpoints(process: &process::Process) {
    for endpoint in endpoint::all() {
        loop {
            let orphan = endpoint.lock().take_orphan(process.index());
            let Some(caller) = orphan else { break };
            wakeup::finish(caller, Err(CapError::PeerGone));
        }
        endpoint.lock().forget(process.index(), &process.ledger);
    }
}

/// `thread`, which runs, has no address space any more.
pub fn leave_space(thread: &Thread) {
    let root = arch::kernel_root().to_bits();
    thread.root.store(root, Ordering::Relaxed);
    load_space(mine(), root, Some(thread.process()));
}

/// The running thread ends, and its process if it is the last one; another is installed when this returns.
#[cold]
pub fn exit_thread(thread: &'static Thread, code: i64, after: After) {
    thread.leave();
    // Whether it has a context or not: one may be on its way to it, from a CPU that has not seen that it leaves.
    contexts::let_go(thread.name());
    Ending::begin(thread, code);
    stretch::begin(mine(), thread, Serving::default(), after);
}

/// The process ends: its threads are told, wherever they are. A few are told now, and each of them tells others.
pub fn end_process(process: &process::Process, code: i64) {
    if process.end(code) {
        let _others_are_told_by_them = kill_some(process);
    }
}

/// Tells some threads of `process` to end, if it is ending. Whether there may be others that have not been told.
pub fn kill_some(process: &process::Process) -> bool {
    if process.state.lock().ending.is_none() {
        return false;
    }
    let untold = process.threads().filter(|(thread, _)| !thread.is_killed());
    let mut told = 0;
    for (thread, name) in untold.take(KILLED_AT_ONCE) {
        kill(thread, name);
        told += 1;
    }
    told == KILLED_AT_ONCE
}

/// A thread is to end: it does so itself, the next time it would go on in user mode, which is made to be soon. One that waits for a
/// refill of its context goes on without it.
pub fn kill(thread: &Thread, name: ThreadRef) {
    thread.kill(name);
    wakeup::wake(thread);
    contexts::let_go(name);
    if let Some((cpu, _)) = thread.home()
        && cpu != cpu::index()
    {
        let _it_looks_at_its_thread_soon = notify(per_cpu(cpu));
    }
}

/// The timer interrupt: the core counts it, and timed waits that are due end.
pub fn timer(here: &'static PerCpu) {
    check::tick_taken(here);
    if arch::fallback::is_active() && here.next_timer.load(Ordering::SeqCst) > arch::now().get() {
        // A tick that comes anyhow, and nothing is due.
        return;
    }
    here.armed.store(u64::MAX, Ordering::Relaxed);
    if leases::any() && !leases::on_timer(here) {
        return;
    }
    let mut core = here.lock();
    let _outcome = core.event(here, |cpu| cpu.timer());
    let now = core.cpu.last();
    drop(core);
    // A decision that this asks for follows every interrupt.
    contexts::tell_waiters(here);
    let due = Nanos::new(here.fires_at.load(Ordering::Relaxed));
    if now + arch::CLOCK_SLACK < due {
        // Time may have stood still. If it has, the core hears of the rest when the timer comes again, which is at once.
        arch::timer_came(due);
    }
    wakeup::expire();
}

/// The last thing before user mode: nobody who was told to end goes on, and the timer is set.
#[inline(always)]
pub fn leave(here: &'static PerCpu, after: After) {
    if unlikely(here.has_lease_work()) || current(here).is_killed() {
        leave_with_work(here, after);
    } else {
        drain_flushes(here);
        arm(here);
    }
    check::leaving(here);
    measure::stretch_ends();
}

/// The same for a CPU that has leases to look after, or whose thread is to end.
#[cold]
fn leave_with_work(here: &'static PerCpu, after: After) {
    if here.has_lease_work() {
        leases::before_user_mode(here, after);
    }
    while current(here).is_killed() {
        exit_thread(current(here), kernel::KILLED, after);
    }
    drain_flushes(here);
    arm(here);
    if here.has_lease_work() {
        leases::look_again_soon(here);
    }
}

/// Another CPU's message: a look at the queue, and flushes.
pub fn message(here: &'static PerCpu) {
    // AcqRel: pairs with `notify`; what the sender did before it is seen by the look that follows.
    here.message_pending.swap(false, Ordering::AcqRel);
    drain_flushes(here);
    let reproved = leases::any() && leases::on_message(here);
    let mut core = here.lock();
    let cpu = core.cpu();
    let work = cpu.queued() > 0 || cpu.reschedule_wanted() || cpu.current().is_none();
    // A CPU that has proved its window again was only asked whether it still can.
    if work || !reproved {
        core.event(here, |cpu| cpu.reschedule_received());
    }
}

/// Sets the timer to what the core needs, if that is not what it is set to.
#[inline(always)]
pub fn arm(here: &PerCpu) {
    // It has been there since before: whoever changes `next_timer` from now on sees it.
    if here.next_timer.load(Ordering::SeqCst) != here.armed.load(Ordering::Relaxed) {
        arm_anew(here);
    }
}

fn arm_anew(here: &PerCpu) {
    loop {
        let next = here.next_timer.load(Ordering::SeqCst);
        // SeqCst: whoever changes `next_timer` looks at `armed` afterwards; one of the two sees the other.
        if next != here.armed.swap(next, Ordering::SeqCst) && !arch::fallback::is_active() {
            let now = arch::now();
            let fires_at = Nanos::new(next).min(now + LapicTimer.max_delta());
            here.fires_at.store(fires_at.get(), Ordering::Relaxed);
            arm_oneshot(&mut LapicTimer, now, fires_at);
        }
        if here.next_timer.load(Ordering::SeqCst) == next {
            return;
        }
    }
}

/// The first decision of a CPU; leaves to user mode and never comes back.
pub fn start() -> ! {
    let here = mine();
    here.ready.store(true, Ordering::Relaxed);
    // The message that brought a waiting CPU here has been taken.
    here.message_pending.store(false, Ordering::Release);
    let decision = here.lock().resched(here, Stop::Nothing);
    carry_out(here, decision, None, After::Start);
    leave(here, After::Start);
    cpu::enter_user()
}
