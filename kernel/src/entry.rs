//! From user mode into the kernel and back: what each cause of an entry does.

use crate::arch::{self, Trap};
use crate::devices;
use crate::measure::{self, Stretch};
use crate::method::{self, Progress};
use crate::object::inbox::{Inbox, Serving, Wait, Waiting};
use crate::object::thread::Thread;
use crate::sched::dispatch::{self, current};
use crate::sched::idle::{self, After};
use crate::sched::per_cpu::PerCpu;
use crate::sched::{check, mine, stretch, visible, wakeup};
use mainspring_abi::kernel::{self, DIRECT, DirectRequest, EXIT_PROCESS, FOREVER, REFUSED};
use mainspring_abi::ring::CapError;
use mainspring_abi::{Nanos, kernel::call};
use mainspring_ring::SqOwner;
use mainspring_sched::Stop;
use spin::MutexGuard;

/// Requests of the current ring that a timer interrupt handles.
const TIMER_REQUESTS: u32 = 2;

/// The exception of an address that no processor can go to.
const GENERAL_PROTECTION: u8 = 13;

/// A system call.
pub fn system_call(number: u64, arguments: [u64; 3]) {
    measure::stretch_begins(Stretch::SystemCall);
    let here = mine();
    check::entered(here);
    let thread = current(here);
    match number {
        call::CAP_ENTER if arguments[0] & DIRECT != 0 => direct(here, thread, arguments[0], arguments[1]),
        call::CAP_ENTER => cap_enter(here, thread, arguments[0], arguments[1]),
        call::EXIT => exit(thread, arguments[0] == EXIT_PROCESS, arguments[1] as i64),
        _ => refuse(thread, CapError::InvalidRequest),
    }
    dispatch::leave(here, After::Exit);
}

/// An interrupt or a fault.
pub fn trap(trap: Trap) {
    measure::stretch_begins(match trap {
        Trap::Timer => Stretch::Timer,
        Trap::Message | Trap::Device(_) | Trap::Spurious => Stretch::Message,
        Trap::Fault { .. } => Stretch::Fault,
    });
    let here = mine();
    check::entered(here);
    let thread = current(here);
    let (mut after, mut paused) = (After::Timer, false);
    match trap {
        Trap::Timer => {
            dispatch::check_current(here, thread);
            measure::sample(|| thread.context.mine().instruction());
            dispatch::timer(here);
            paused = tick(thread);
            check::tick_served(here);
        }
        Trap::Message => {
            dispatch::message(here);
            after = After::Message;
        }
        Trap::Device(line) => {
            devices::interrupted(line);
            after = After::Message;
        }
        Trap::Spurious => {}
        Trap::Fault { vector, error, address } => return fault(here, thread, vector, error, address),
    }
    if !thread.context.mine().is_somewhere() {
        return fault(here, thread, GENERAL_PROTECTION, 0, 0);
    }
    if paused {
        stretch::begin(here, thread, Serving::default(), after);
    } else if dispatch::decision_wanted(here) {
        dispatch::stop(thread, Stop::Preempted, after);
    }
    dispatch::leave(here, after);
}

/// The running thread did what it may not: its process ends.
#[cold]
fn fault(here: &'static PerCpu, thread: &'static Thread, vector: u8, error: u64, address: u64) {
    let process = thread.process();
    crate::say!(
        "fault: process={} thread={:?} vector={vector} error={error:#x} address={address:#x} at={:#x}",
        process.state.lock().name,
        thread.name(),
        thread.context.mine().instruction()
    );
    let code = kernel::KILLED - i64::from(vector);
    dispatch::end_process(process, code);
    dispatch::exit_thread(thread, code, After::Exit);
    dispatch::leave(here, After::Exit);
}

/// The running thread's own share of a timer interrupt: what it waits for and has not asked about, and a bounded piece
/// of its ring. Whether it has more to do before it goes on.
fn tick(thread: &'static Thread) -> bool {
    let mut turn = method::Turn::default();
    // A ring that cannot be read is its owner's fault, and the owner learns of it at its next entry.
    let _ = method::drain_in_interrupt(thread, TIMER_REQUESTS, &mut turn);
    if let Some(target) = turn.target {
        wakeup::wake(target);
    }
    drop(dispatch::lock_and_expire(thread));
    idle::service();
    turn.paused
}

/// The running thread ends, or its whole process.
#[cold]
fn exit(thread: &'static Thread, whole_process: bool, code: i64) {
    if whole_process {
        dispatch::end_process(thread.process(), code);
    }
    dispatch::exit_thread(thread, code, After::Exit);
}

#[cold]
fn refuse(thread: &Thread, code: CapError) {
    thread.context.mine().answer(REFUSED | u64::from(code.number()));
}

fn cap_enter(here: &'static PerCpu, thread: &'static Thread, min: u64, timeout: u64) {
    let min = min.min(u64::from(kernel::CQ_ENTRIES)) as u32;
    let mut turn = method::Turn::default();
    check::requested();
    let drained = method::drain(thread, SqOwner::Syscall, kernel::SQ_ENTRIES, &mut turn);
    if turn.paused {
        return serve_on(here, thread, min, timeout, &turn);
    }
    let mut inbox = dispatch::lock_and_expire(thread);
    let outcome = match (drained, inbox.unread()) {
        (_, Err(fault)) => Err(fault.code()),
        (Err(code), Ok(unread)) if code != CapError::Busy || unread < min => Err(code),
        (_, Ok(unread)) => Ok(unread),
    };
    let wants_to_wait = matches!(outcome, Ok(unread) if unread < min) && timeout != 0;
    if wants_to_wait {
        let deadline = if timeout == FOREVER { Nanos::MAX } else { arch::now() + Nanos::new(timeout) };
        inbox.waiting = Waiting::For(Wait { min, deadline });
        return wait(here, thread, inbox, deadline, turn.target, turn.lends);
    }
    drop(inbox);
    match outcome {
        Ok(unread) => thread.context.mine().answer(u64::from(unread)),
        Err(code) => refuse(thread, code),
    }
    go_on(here, thread, &turn);
}

/// There is more to do than fits one stretch.
#[cold]
fn serve_on(here: &'static PerCpu, thread: &'static Thread, min: u32, timeout: u64, turn: &method::Turn) {
    if let Some(target) = turn.target {
        visible::others_act();
        wakeup::wake(target);
    }
    let deadline = if timeout == FOREVER { Nanos::MAX } else { arch::now() + Nanos::new(timeout) };
    let serving = Serving {
        wait: Some(Wait { min, deadline }),
        left: kernel::SQ_ENTRIES - turn.handled,
        yields: turn.yields,
    };
    stretch::begin(here, thread, serving, After::Block);
}

/// `cap_enter` with its one request in registers.
#[inline]
fn direct(here: &'static PerCpu, thread: &'static Thread, request: u64, call_id: u64) {
    let Some(request) = DirectRequest::from_word(request) else {
        return refuse(thread, CapError::InvalidRequest);
    };
    check::requested();
    let (mut turn, seen) = (method::Turn::default(), visible::look(thread));
    match method::direct(here, thread, request, call_id as u32, &mut turn) {
        Progress::HandedOver => {}
        Progress::Given => wait_in_registers(here, thread, &turn),
        Progress::Refused(code) => {
            seen.refused(thread, code, request);
            refuse(thread, code);
            go_on(here, thread, &turn);
        }
    }
}

#[cold]
fn wait_in_registers(here: &'static PerCpu, thread: &'static Thread, turn: &method::Turn) {
    let inbox = dispatch::lock_and_expire(thread);
    if let Waiting::InRegisters { .. } = inbox.waiting {
        return wait(here, thread, inbox, Nanos::MAX, turn.target, false);
    }
    // What it waits for has come in the meantime, from another CPU.
    drop(inbox);
    let _it_can = dispatch::go_on(here, thread);
    go_on(here, thread, turn);
}

/// The thread goes on, unless it lets others go first or should.
fn go_on(here: &'static PerCpu, thread: &'static Thread, turn: &method::Turn) {
    if let Some(target) = turn.target {
        wakeup::wake(target);
    }
    if turn.yields {
        dispatch::stop(thread, Stop::Yielded, After::Block);
    } else if dispatch::decision_wanted(here) {
        dispatch::stop(thread, Stop::Preempted, After::Block);
    }
}

/// The thread waits in `cap_enter` for what its inbox says, and hands over to `target` if there is one.
#[inline(always)]
fn wait(
    here: &'static PerCpu,
    thread: &'static Thread,
    inbox: MutexGuard<'_, Inbox>,
    deadline: Nanos,
    target: Option<&'static Thread>,
    lends: bool,
) {
    if let Err(code) = dispatch::block(here, thread, inbox, deadline, target, lends) {
        if let Some(target) = target {
            wakeup::wake(target);
        }
        refuse(thread, code);
    }
}
