//! Decisions and what follows from them: the running thread stops, another takes over, or the CPU idles.

use super::lane::{IDLE, Lane, lane, lanes, mine};
use super::wakeup::{self, share_leftovers, take_permit};
use crate::arch::cpu::{self, HardPath};
use crate::arch::{self, LapicTimer};
use crate::object::inbox::{Awaits, Inbox, OPS, Wait, Waiter};
use crate::object::thread::{self, Thread};
use crate::object::{endpoint, process};
use core::sync::atomic::{AtomicU64, Ordering};
use mainspring_abi::ring::CapError;
use mainspring_abi::{Nanos, ThreadRef, kernel};
use mainspring_sched::{
    Decision, Dispatch, IdleConditions, Offer, Stop, Timeout, Via, arm_oneshot, choose_victim,
};
use spin::MutexGuard;

/// The latest flush that anybody asked for.
static FLUSH: AtomicU64 = AtomicU64::new(0);
/// How long a thread that waits for a flush sleeps before it looks again.
const FLUSH_POLL: Nanos = Nanos::from_micros(200);
/// How often CPUs halted with nothing to run.
pub static IDLE_HALTS: AtomicU64 = AtomicU64::new(0);

/// The thread that this CPU runs. Only code that was entered from one, or has installed one, may ask.
#[must_use]
pub fn current() -> &'static Thread {
    thread::slot(mine().current.load(Ordering::Relaxed))
}

/// The running thread stops as `stop` says; another is installed when this returns.
pub fn stop(thread: &Thread, stop: Stop) {
    let here = mine();
    let mut core = here.lock();
    thread.context.unbind();
    let decision = core.resched(here, stop);
    drop(core);
    carry_out(decision, Some(thread));
}

/// Whether an event asks for a decision.
#[must_use]
pub fn decision_wanted() -> bool {
    mine().lock().cpu().reschedule_wanted()
}

/// The running thread waits in `cap_enter`, and hands over to `target` if there is one. Its inbox stays locked until the
/// core knows that it sleeps.
pub fn block(
    thread: &'static Thread,
    mut inbox: MutexGuard<'_, Inbox>,
    wait: Wait,
    target: Option<&Thread>,
) -> Result<(), CapError> {
    let decision = fall_asleep(thread, &mut inbox, wait, target)?;
    drop(inbox);
    carry_out(decision, Some(thread));
    Ok(())
}

fn fall_asleep(
    thread: &Thread,
    inbox: &mut Inbox,
    wait: Wait,
    target: Option<&Thread>,
) -> Result<Decision, CapError> {
    let mut deadline = wait.deadline.min(inbox.next_deadline());
    if inbox.awaited_flush().is_some() {
        // The other CPUs have been interrupted and do not report back: the thread looks again.
        deadline = deadline.min(arch::now() + FLUSH_POLL);
    }
    let timeout = if deadline == Nanos::MAX {
        None
    } else {
        let permit = take_permit(thread.process.load(Ordering::Relaxed))?;
        Some(Timeout { deadline, user_data: 0, permit })
    };
    inbox.wait = Some(wait);
    if let Some(target) = target {
        wakeup::hand_off(target);
    }
    let here = mine();
    let mut core = here.lock();
    thread.context.unbind();
    Ok(core.resched(here, Stop::Blocked(inbox.kind(), timeout)))
}

/// Does what was decided, and what is decided then, until a thread is installed that can go on in user mode.
fn carry_out(mut decision: Decision, mut before: Option<&Thread>) {
    loop {
        decision = match decision {
            Decision::Run(run) => {
                let thread = thread::slot(run.thread.index());
                install(thread, run, before);
                match go_on(thread) {
                    None => return,
                    Some(next) => {
                        before = Some(thread);
                        next
                    }
                }
            }
            Decision::Idle => {
                before = None;
                idle()
            }
        };
    }
}

/// Makes `thread` what this CPU runs: registers, page tables, entry.
fn install(thread: &Thread, run: Dispatch, before: Option<&Thread>) {
    let here = mine();
    debug_assert_eq!(thread.name(), run.thread, "a decision for a thread that is gone");
    let _ = thread.context.bind();
    here.current.store(run.thread.index(), Ordering::Relaxed);
    let same = before.is_some_and(|before| core::ptr::eq(before, thread));
    load_space(here, thread.root.load(Ordering::Relaxed), Some(thread.process.load(Ordering::Relaxed)));
    thread.context.install(!same);
    if !same {
        share_leftovers();
    }
}

/// Goes over to other page tables, and keeps account of which CPU has which.
fn load_space(here: &Lane, root: u64, process: Option<u32>) {
    let loaded = here.loaded.load(Ordering::Relaxed);
    if loaded == root {
        return;
    }
    let bit = 1 << here.id().index();
    if let Some(process) = process {
        process::slot(process).resident.fetch_or(bit, Ordering::AcqRel);
        cpu::load_space(root);
    } else {
        cpu::load_kernel_space();
    }
    here.loaded.store(root, Ordering::Relaxed);
    let before = here.loaded_process.swap(process.map_or(0, |index| index + 1), Ordering::Relaxed);
    if before != 0 && Some(before - 1) != process {
        process::slot(before - 1).resident.fetch_and(!bit, Ordering::AcqRel);
    }
    // All translations of user addresses went with the old tables.
    here.flush_done.store(here.flush_asked.load(Ordering::Acquire), Ordering::Release);
}

/// Whether the installed thread can go on: `None`, or what was decided because it cannot.
fn go_on(thread: &'static Thread) -> Option<Decision> {
    if thread.is_killed() {
        return Some(end(thread, kernel::KILLED));
    }
    let mut inbox = thread.inbox.lock();
    let wait = inbox.wait?;
    let now = arch::now();
    let mut expired = Ended::new();
    settle_due(thread, &mut inbox, now, &mut expired);
    let answer = match inbox.unread() {
        Err(fault) => Some(kernel::REFUSED | u64::from(fault.code().number())),
        Ok(unread) if unread >= wait.min || wait.deadline <= now => Some(u64::from(unread)),
        Ok(_) => None,
    };
    let decision = match answer {
        Some(value) => {
            inbox.wait = None;
            thread.context.mine().answer(value);
            None
        }
        None => match fall_asleep(thread, &mut inbox, wait, None) {
            Ok(decision) => Some(decision),
            Err(code) => {
                inbox.wait = None;
                thread.context.mine().answer(kernel::REFUSED | u64::from(code.number()));
                None
            }
        },
    };
    drop(inbox);
    withdraw_all(&expired);
    decision
}

/// Operations that ended by their deadline, for their objects to forget.
pub type Ended = heapless::Vec<(Awaits, Waiter), OPS>;

/// Ends what is due of a thread's operations, and notes in `ended` which those were.
pub fn settle_due(thread: &Thread, inbox: &mut Inbox, now: Nanos, ended: &mut Ended) {
    while let Some(one) = inbox.expire(thread.name(), now) {
        if one.0 == Awaits::Time {
            thread.process().sleeps.fetch_sub(1, Ordering::Relaxed);
        }
        let _ = ended.push(one);
    }
    if let Some(asked) = inbox.awaited_flush() {
        let done = flushed();
        if done >= asked {
            inbox.finish_flushes(done, now);
            thread.process().free_limbo(done);
        }
    }
}

/// The objects forget operations that have ended.
pub fn withdraw_all(ended: &Ended) {
    for (awaits, waiter) in ended {
        withdraw(*awaits, *waiter);
    }
}

fn withdraw(awaits: Awaits, waiter: Waiter) {
    match awaits {
        Awaits::Time | Awaits::Flush(_) => {}
        Awaits::Park(_) => {
            if let Some(thread) = thread::find(waiter.thread) {
                thread.process().parks.lock().withdraw(waiter);
            }
        }
        Awaits::Thread(name) => thread::slot(name.index()).life.lock().joiners.retain(|one| *one != waiter),
        Awaits::Process(name) => process::slot(name.index).state.lock().waiters.retain(|one| *one != waiter),
        Awaits::Answer(index) | Awaits::Call(index) => endpoint::endpoint(index).lock().withdraw(waiter),
    }
}

/// The installed thread ends with `code`. Nothing of it is left anywhere when this returns.
fn end(thread: &'static Thread, code: i64) -> Decision {
    let _hard = HardPath::enter();
    let (here, name) = (mine(), thread.name());
    let process = thread.process();
    if let Some(queue) = thread.queue.lock().take() {
        // This CPU is the ring's only consumer, and is not serving it now.
        let _ = queue.close();
    }
    let ended = thread.inbox.lock().close(name);
    for (awaits, _) in &ended {
        if *awaits == Awaits::Time {
            process.sleeps.fetch_sub(1, Ordering::Relaxed);
        }
    }
    withdraw_all(&ended);
    let place = thread.place.load(Ordering::Relaxed);
    load_space(here, 0, None);
    let mut core = here.lock();
    thread.context.unbind();
    let seat = core.cpu().current().expect("the thread that ends runs");
    let _entity = core.exit_current(here);
    thread.clear_home();
    assert!(core.cpu().state(seat).is_err(), "a thread that ended still has its seat");
    drop(core);
    for joiner in thread.end(code) {
        wakeup::finish(joiner, Ok(code as u32));
    }
    if let Some((code, waiters)) = process.thread_ended(place, code) {
        crate::boot::process_ended(process, code);
        orphans(process);
        for waiter in waiters {
            wakeup::finish(waiter, Ok(code as u32));
        }
    }
    here.lock().resched(here, Stop::Nothing)
}

/// Calls that the process had received and will not answer.
fn orphans(process: &process::Process) {
    for endpoint in endpoint::all() {
        loop {
            let orphan = endpoint.lock().take_orphan(process.name());
            let Some(caller) = orphan else { break };
            wakeup::finish(caller, Err(CapError::PeerGone));
        }
    }
}

/// The running thread ends; another is installed when this returns.
pub fn exit_thread(thread: &'static Thread, code: i64) {
    let decision = end(thread, code);
    carry_out(decision, None);
}

/// The process of `thread` ends: its threads are told, wherever they are.
pub fn end_process(process: &process::Process, code: i64) {
    let _hard = HardPath::enter();
    if !process.end(code) {
        return;
    }
    for (thread, name) in process.threads() {
        kill(thread, name);
    }
}

/// A thread is to end: it does so itself, the next time it would go on in user mode, which is made to be soon.
pub fn kill(thread: &Thread, name: ThreadRef) {
    thread.kill(name);
    wakeup::wake(thread);
    if let Some((cpu, _)) = thread.home()
        && cpu != cpu::index()
    {
        wakeup::tell(lane(cpu));
    }
}

/// This CPU has nothing to run: it serves, steals, or halts, until there is a decision to run something.
fn idle() -> Decision {
    let here = mine();
    load_space(here, 0, None);
    let bit = 1 << here.id().index();
    // SeqCst: with the load of offers after it, against a waker's queueing before its look at the idle CPUs. One of the
    // two sees the other.
    IDLE.fetch_or(bit, Ordering::SeqCst);
    loop {
        service();
        if let Some(decision) = look_for_work(here) {
            IDLE.fetch_and(!bit, Ordering::SeqCst);
            return decision;
        }
        let mut core = here.lock();
        let conditions =
            IdleConditions { deferred_completions: process::graves(), ..IdleConditions::default() };
        let _tick = core.enter_idle(here, &conditions);
        drop(core);
        arm(here);
        IDLE_HALTS.fetch_add(1, Ordering::Relaxed);
        let pending = cpu::halt();
        if pending.message {
            message(here);
        }
        if pending.timer {
            timer(here);
        }
    }
}

fn look_for_work(here: &'static Lane) -> Option<Decision> {
    let mut core = here.lock();
    if core.cpu().queued() > 0 {
        return Some(core.resched(here, Stop::Nothing));
    }
    drop(core);
    steal(here)
}

/// Takes the most overdue thread that this CPU may run from another CPU.
fn steal(here: &'static Lane) -> Option<Decision> {
    let mut offers = [Offer::NONE; cpu::MAX_CPUS];
    for (offer, lane) in offers.iter_mut().zip(lanes()) {
        *offer = lane.offer();
    }
    let bound = |victim: mainspring_abi::CpuId| lane(victim.index()).lock().cpu().bound_due_in(here.id());
    let victim = choose_victim(here.id(), &offers[..lanes().len()], bound)?;
    let there = lane(victim.index());
    let entity = there.lock().give(there, here.id())?;
    let thread = thread::slot(entity.thread().index());
    let mut core = here.lock();
    match core.accept(here, entity, Via::Steal) {
        Ok((seat, _)) => thread.set_home(here.id().index(), seat),
        Err(refused) => unreachable!("every CPU has a seat for every thread: {refused}"),
    }
    Some(core.resched(here, Stop::Nothing))
}

/// What has to be done now and then: on user ticks and on idle CPUs, a bounded piece at a time.
pub fn service() {
    process::bury_one();
}

/// The timer interrupt: the core counts it, and timed waits that are due end.
pub fn timer(here: &'static Lane) {
    let _hard = HardPath::enter();
    here.armed.store(u64::MAX, Ordering::Relaxed);
    let _outcome = here.lock().timer(here);
    wakeup::expire();
}

/// Another CPU's message: a look at the queue, and flushes.
pub fn message(here: &'static Lane) {
    let _hard = HardPath::enter();
    // AcqRel: pairs with `tell`; what the sender did before it is seen by the look that follows.
    here.message_pending.swap(false, Ordering::AcqRel);
    here.lock().reschedule_received(here);
    drain_flushes(here);
}

/// Sets the timer to what the core needs, if that is not what it is set to.
pub fn arm(here: &Lane) {
    loop {
        let next = here.next_timer.load(Ordering::SeqCst);
        // SeqCst: whoever changes `next_timer` looks at `armed` afterwards; one of the two sees the other.
        if next != here.armed.swap(next, Ordering::SeqCst) {
            arm_oneshot(&mut LapicTimer, arch::now(), Nanos::new(next));
        }
        if here.next_timer.load(Ordering::SeqCst) == next {
            return;
        }
    }
}

/// Forgets translations if others asked for it.
pub fn drain_flushes(here: &Lane) {
    // Acquire: pairs with the release of who asked; the page tables have changed before.
    let asked = here.flush_asked.load(Ordering::Acquire);
    if asked > here.flush_done.load(Ordering::Relaxed) {
        cpu::flush_translations();
        here.flush_done.store(asked, Ordering::Release);
    }
}

/// Translations of `process`'s pages have changed: this CPU forgets them now, the others are told to. What to wait for.
pub fn shoot_down(process: &process::Process) -> u64 {
    let here = mine();
    cpu::flush_translations();
    let resident = process.resident.load(Ordering::Acquire);
    let generation = FLUSH.fetch_add(1, Ordering::AcqRel) + 1;
    for lane in lanes() {
        if lane.id() != here.id() && resident >> lane.id().index() & 1 == 1 {
            // Release: pairs with the acquire in `drain_flushes`.
            lane.flush_asked.fetch_max(generation, Ordering::Release);
            wakeup::tell(lane);
        }
    }
    generation
}

/// Up to which generation every CPU that was asked has forgotten.
#[must_use]
pub fn flushed() -> u64 {
    let mut done = FLUSH.load(Ordering::Acquire);
    for lane in lanes() {
        let (asked, has) =
            (lane.flush_asked.load(Ordering::Acquire), lane.flush_done.load(Ordering::Acquire));
        if has < asked {
            done = done.min(has);
        }
    }
    done
}

/// The first decision of a CPU; leaves to user mode and never comes back.
pub fn start() -> ! {
    let here = mine();
    // The message that brought a waiting CPU here has been taken.
    here.message_pending.store(false, Ordering::Release);
    let decision = here.lock().resched(here, Stop::Nothing);
    carry_out(decision, None);
    arm(here);
    cpu::enter_user()
}
