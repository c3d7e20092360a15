//! Who calls: a task, by the frame that its function runs in, or an ordinary thread.
//!
//! Conserved: `CURRENT` is the frame of the task whose C code runs on this thread, and null while a call into this library is
//! under way. A call may switch tasks, so that other frames come and go on the thread meanwhile; none of them sees this one. Tasks
//! stay on the thread that they started on, because no scheduler of this library lets started tasks move.
#![allow(unsafe_code)]

use crate::endpoint::OpenCalls;
use crate::fork;
use crate::handle::Name;
use crate::nursery;
use crate::scheduler::Scheduler;
use crate::status::{
    JANUS_BUSY, JANUS_FORKED, JANUS_INTERNAL, JANUS_NOT_A_TASK, JANUS_NURSERY_LEFT_OPEN, JANUS_TASK_FAILED,
    Problem, TaskFault,
};
use mainspring::{Component, Cx, Stop, TaskError};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A task or a thread, for the objects that belong to one of them. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnerId(u64);

impl OwnerId {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The nurseries of a caller.
#[derive(Default)]
pub(crate) struct Nurseries {
    /// Those that are open, the innermost last.
    pub(crate) open: Vec<Name>,
    /// Those that have ended and were not destroyed.
    pub(crate) ended: HashSet<Name>,
}

/// What a task's C code runs in.
pub(crate) struct TaskFrame<'a> {
    pub(crate) cx: &'a Cx,
    id: OwnerId,
    /// The scheduler that it runs on.
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) nurseries: Nurseries,
    /// The calls that it has taken and not answered.
    pub(crate) calls: OpenCalls,
    /// What ends the task when its function returns.
    pub(crate) stop: Option<Stop>,
    error: String,
}

impl TaskFrame<'_> {
    /// The task's context, for a call that may wait. A task that has to end is refused; it gives way, so that a loop of refused
    /// calls does not keep its worker.
    pub(crate) fn running(&mut self) -> Result<&Cx, Problem> {
        let Some(stop) = &self.stop else { return Ok(self.cx) };
        let problem = problem_of(stop);
        // The task is stopped anew each time, and has been by the first.
        drop(Stop::catch(|| self.cx.yield_now()));
        Err(problem)
    }

    /// The task has got more of what it had run out of: it goes on.
    pub(crate) fn revive(&mut self) {
        let exhausted = match self.stop.as_ref().and_then(Stop::error) {
            Some(TaskError::BudgetExhausted(component)) => *component,
            _ => return,
        };
        let has_some = |component: Component| self.cx.budget().get(component) > 0;
        if has_some(exhausted) {
            self.stop = None;
        }
    }
}

fn problem_of(stop: &Stop) -> Problem {
    match stop.error() {
        Some(error) => error.into(),
        None => JANUS_INTERNAL.into(),
    }
}

/// What an ordinary thread has.
pub(crate) struct HostFrame {
    id: OwnerId,
    /// The scheduler that its nurseries are of.
    pub(crate) scheduler: Option<Name>,
    pub(crate) nurseries: Nurseries,
    error: String,
}

impl Drop for HostFrame {
    /// The thread ends. Tasks of its nurseries may use what is on its stack, so that it waits for them.
    fn drop(&mut self) {
        // In the child of a fork there are no tasks to wait for.
        if fork::is_child() {
            return;
        }
        nursery::abandon(&mut self.nurseries, None);
    }
}

thread_local! {
    static CURRENT: Cell<*mut TaskFrame<'static>> = const { Cell::new(null_mut()) };
    static HOST: RefCell<HostFrame> = RefCell::new(HostFrame {
        id: OwnerId::new(),
        scheduler: None,
        nurseries: Nurseries::default(),
        error: String::new(),
    });
}

/// Who calls.
pub(crate) enum Caller<'a> {
    Task(&'a mut TaskFrame<'static>),
    Host(&'a mut HostFrame),
}

impl Caller<'_> {
    pub(crate) fn id(&self) -> OwnerId {
        match self {
            Self::Task(frame) => frame.id,
            Self::Host(frame) => frame.id,
        }
    }

    pub(crate) fn nurseries(&mut self) -> &mut Nurseries {
        match self {
            Self::Task(frame) => &mut frame.nurseries,
            Self::Host(frame) => &mut frame.nurseries,
        }
    }

    /// The task, for what a thread cannot do.
    pub(crate) fn task(&mut self) -> Result<&mut TaskFrame<'static>, Problem> {
        match self {
            Self::Task(frame) => Ok(frame),
            Self::Host(_) => Err(JANUS_NOT_A_TASK.into()),
        }
    }

    /// The context of a task that may wait; none for a thread.
    pub(crate) fn running(&mut self) -> Result<Option<&Cx>, Problem> {
        match self {
            Self::Task(frame) => frame.running().map(Some),
            Self::Host(_) => Ok(None),
        }
    }

    pub(crate) fn error(&mut self) -> &mut String {
        match self {
            Self::Task(frame) => &mut frame.error,
            Self::Host(frame) => &mut frame.error,
        }
    }
}

fn attempt<R>(
    mut caller: Caller<'_>,
    f: impl FnOnce(&mut Caller<'_>) -> Result<R, Problem>,
) -> Result<R, i32> {
    let problem = match Stop::catch(|| f(&mut caller)) {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(problem)) => problem,
        Err(stop) => {
            let problem = problem_of(&stop);
            if let Caller::Task(frame) = &mut caller {
                frame.stop = Some(stop);
            }
            problem
        }
    };
    *caller.error() = problem.text;
    Err(problem.status)
}

/// Runs a call from C: finds out who calls, and lets nothing unwind.
pub(crate) fn call<R>(f: impl FnOnce(&mut Caller<'_>) -> Result<R, Problem>) -> Result<R, i32> {
    if fork::is_child() {
        return Err(JANUS_FORKED);
    }
    let current = CURRENT.replace(null_mut());
    if !current.is_null() {
        // SAFETY: the frame of the task that runs here, which `run_function` keeps until its C code has returned. Nobody else has
        // it while `CURRENT` is null.
        let done = attempt(Caller::Task(unsafe { &mut *current }), f);
        CURRENT.set(current);
        return done;
    }
    HOST.try_with(|host| match host.try_borrow_mut() {
        Ok(mut host) => attempt(Caller::Host(&mut host), f),
        // A signal handler.
        Err(_) => Err(JANUS_BUSY),
    })
    // The thread is at its end.
    .unwrap_or(Err(JANUS_BUSY))
}

/// As [`call`], for what gives a status.
pub(crate) fn status(f: impl FnOnce(&mut Caller<'_>) -> Result<(), Problem>) -> i32 {
    call(f).err().unwrap_or(crate::status::JANUS_OK)
}

/// How the children of a nursery failed, by the number of the task.
pub(crate) type Faults = Arc<Mutex<Vec<(u64, TaskFault)>>>;

/// What a task runs, and with what.
pub(crate) struct Work {
    pub(crate) function: unsafe extern "C-unwind" fn(*mut c_void) -> i64,
    pub(crate) arg: *mut c_void,
    pub(crate) faults: Faults,
    pub(crate) scheduler: Arc<Scheduler>,
}

// SAFETY: whoever spawns it says by that that the argument may go to another thread.
unsafe impl Send for Work {}

impl Work {
    /// Runs the function as the body of a task. What C has left open is ended, and what stopped the task takes effect.
    pub(crate) fn run(self, cx: &Cx) -> Result<i64, TaskFault> {
        let mut frame = TaskFrame {
            cx,
            id: OwnerId::new(),
            scheduler: self.scheduler,
            nurseries: Nurseries::default(),
            calls: OpenCalls::default(),
            stop: None,
            error: String::new(),
        };
        let current: *mut TaskFrame<'_> = &raw mut frame;
        CURRENT.set(current.cast());
        // SAFETY: the spawner promised that the function may be called with this argument. If it throws an exception of C++, the
        // process is aborted on the way. A panic of a function that is Rust ends the task.
        let value = Stop::catch(|| unsafe { (self.function)(self.arg) });
        CURRENT.set(null_mut());
        if fork::is_child() {
            // The worker would go on, and run the parent's tasks a second time.
            eprintln!("a task returned in the child of a fork: exec or _exit there");
            std::process::abort();
        }
        // Before its nurseries are waited for: a task in one may wait for an answer.
        frame.calls = OpenCalls::default();
        let value = value.unwrap_or_else(|stop| {
            frame.stop = Some(stop);
            0
        });
        let left_open = !frame.nurseries.open.is_empty();
        let (nurseries, stop) = (&mut frame.nurseries, &mut frame.stop);
        nursery::abandon(nurseries, Some((cx, stop)));
        if let Some(stop) = frame.stop.take() {
            drop(frame);
            stop.resume();
        }
        let fault = match value {
            _ if left_open => TaskFault { status: JANUS_NURSERY_LEFT_OPEN, code: value },
            0.. => return Ok(value),
            _ => TaskFault { status: JANUS_TASK_FAILED, code: value },
        };
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).push((cx.id().0, fault));
        Err(fault)
    }
}
