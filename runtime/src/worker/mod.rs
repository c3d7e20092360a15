//! A worker: the thread that runs tasks, its queues, and how it goes from one task to the next.
//!
//! Conserved: a Ready task is in exactly one place: a worker's slot, its deque, its line of yielded tasks, its inbox, the
//! global queue, or the hands of the worker that is about to run it. A worker never sleeps while its slot, its line or its
//! inbox has a task. Only a [`Runnable`] can be queued, and its owner knows that no thread is on the task's stack.
//!
//! A task with frames stays on its worker, and so on its thread, unless it was spawned as movable: a waker on another
//! thread pushes it onto that worker's inbox. Only tasks without frames are shared and stolen.
//!
//! A task that gives way switches straight to the next one; the worker's own stack is used to look for work elsewhere
//! and to sleep.
#![allow(unsafe_code)]

mod back_off;
mod discipline;
mod fair_tasks;
pub(crate) mod fair_tenants;
pub(crate) mod find_work;
pub(crate) mod finish;
mod pick;
mod picks;
mod run_queue;
mod stacks;
mod telemetry;
mod tenants;
mod turn;
pub mod victim;

pub(crate) use fair_tasks::handing_over;
pub(crate) use turn::Back;

use crate::event_loop::EventLoop;
use crate::io::readiness::Events;
use crate::observe::Running;
use crate::protocol::bias::SectionFlag;
use crate::protocol::deque::Owner;
use crate::protocol::roster::interrupt;
use crate::runtime::{Inner, Share};
use crate::spans;
use crate::stack::arena::Stack;
use crate::task::slab::FreeList;
use crate::task::state::Event;
use crate::task::{Runnable, Task, TaskPtr};
use crate::watchdog::TURN_BITS;
use discipline::Discipline;
use picks::PicksLeft;
use run_queue::RunQueue;
use std::cell::{Cell, RefCell, UnsafeCell};
use std::ptr::null;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tracing::span::EnteredSpan;
use turn::After;
use victim::Victims;

/// After this many picks in a row from the slot, the others get a turn.
const SLOT_STREAK: u32 = 16;
/// At every so many of these looks, one run and one wake are timed.
const SAMPLE_EVERY: u32 = 4;
/// At every so many of these looks, the oldest spawn of the worker's own has a turn.
const OLDEST_EVERY: u32 = 4;
/// So many ops of tasks that have ended count as a pick: tasks that end before their first slow check would never look.
const OPS_PER_PICK: u32 = 16;
/// With more than this many tasks in its deque, a worker takes a few at once.
const PLENTY: usize = 64;
/// That many.
const HANDFUL: usize = 8;
/// Every so many slices of a metered loop the worker looks at the clock and at timers: a look takes as long as many short
/// iterations.
const LOOK_UP_EVERY: u32 = 16;
/// A spawner gives way when more than this many tasks wait in its worker's deque.
pub(crate) const BACKLOG: usize = 256;
/// What a switch counts for in the op clock of the tenants.
const SWITCH_OPS: u64 = 16;

/// A worker, seen from its own thread.
pub(crate) struct Worker {
    rt: *const Inner,
    /// What the others see of this worker.
    share: *const Share,
    section_flag: Arc<SectionFlag>,
    pub(crate) is_virtual: bool,
    /// Neither virtual nor fair, without spans, and its tasks are not observed.
    is_plain: bool,
    /// It enters the spans of its tasks, or notes what they do.
    traces: bool,
    /// A task that returns reports only to its handle and its nursery: the runtime is neither virtual, nor does it keep spans or
    /// observe its tasks.
    ends_simply: bool,
    /// The current task's span.
    entered: RefCell<Option<EnteredSpan>>,
    /// The current task's record, if it is observed.
    pub(crate) running: Running,
    tally: Cell<finish::Tally>,
    pub(crate) index: usize,
    deque: Owner,
    /// Words that the worker took from its deque together, the next one last. All of them are newer than what is in the deque,
    /// which has many more when they are taken, so no idle worker misses them.
    hand: Cell<[usize; HANDFUL]>,
    in_hand: Cell<usize>,
    slot: Slot,
    slot_streak: Cell<u32>,
    line: RunQueue,
    pub(crate) current: Cell<*const Task>,
    /// The worker's own context while a task runs.
    pub(crate) sp: UnsafeCell<usize>,
    after: Cell<After>,
    free_stacks: Cell<Option<Stack>>,
    free_stack_count: Cell<usize>,
    pub(crate) slots: FreeList,
    pub(crate) victims: RefCell<Victims>,
    picks_left: PicksLeft,
    /// Slices that the current task has used since it was dispatched.
    slices: Cell<u32>,
    /// The current task has had its turn.
    turn_used: Cell<bool>,
    slice_ops: u32,
    /// Slices of a task's turn; 0 under the fair disciplines, which decide at each.
    quantum_slices: u32,
    next_id: Cell<u64>,
    /// When the sampled run began; 0 for none.
    run_began_ns: Cell<u64>,
    discipline: Discipline,
    /// How often the worker has looked at timers and shared queues.
    looks: Cell<u32>,
    /// Changes with every choice among equals.
    turns: Cell<u64>,
    /// The next wake is sampled.
    samples_wake: Cell<bool>,
    /// It works only while a task overstays on another worker, or while tasks that started here live.
    is_spare: bool,
    /// Tasks with frames that started here and have not ended.
    pub(crate) started: Cell<usize>,
    /// What the kernel told of sockets.
    events: Cell<Events>,
    /// How often in a row, about, it has looked on for work in vain.
    looks_in_vain: Cell<u32>,
    /// So often it does not look on before it does again.
    looks_left_out: Cell<u32>,
    /// It has had no turn for some time.
    owes_turn: Cell<bool>,
    next_turn_ns: Cell<u64>,
    /// The task whose wake is sampled, and when that was.
    sampled_wake: Cell<(*const Task, u64)>,
}

// SAFETY: a worker is handed to its thread whole, before that thread runs anything.
unsafe impl Send for Worker {}

/// The task that runs next on a worker.
#[derive(Debug, Default)]
struct Slot(Cell<Option<TaskPtr>>);

impl Slot {
    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.0.get().is_none()
    }

    /// The task, which stays.
    #[inline(always)]
    fn peek(&self) -> Option<TaskPtr> {
        self.0.get()
    }

    #[inline(always)]
    fn take(&self) -> Option<Runnable> {
        self.0.take().map(Runnable::woken)
    }

    /// Puts a task in; the one that was there comes out.
    #[inline(always)]
    fn replace(&self, task: Runnable) -> Option<Runnable> {
        self.0.replace(Some(task.take())).map(Runnable::woken)
    }
}

thread_local! {
    static CURRENT: Cell<*const Worker> = const { Cell::new(null()) };
}

/// The worker of this thread. Never inlined: a task may go on on another thread, and the compiler must not keep the
/// address of a thread-local across a switch.
#[inline(never)]
pub(crate) fn current() -> *const Worker {
    CURRENT.get()
}

#[inline(never)]
pub(crate) fn set_current(worker: *const Worker) {
    CURRENT.set(worker);
}

/// Queues a task that has just become Ready. A pinned one goes to its own worker. Any other goes to the worker of this
/// thread, or, if that is none of the task's runtime, to all.
pub(crate) fn schedule(task: Runnable, worker: Option<&Worker>) {
    spans::woken(task.ptr());
    task.mark.woken(task.ptr());
    let here = worker.filter(|worker| worker.is_of_runtime_of(&task));
    match here {
        Some(here) if here.may_queue(&task) => here.push_woken(task),
        _ => task.ptr().nursery().rt().inject(task, here.is_none()),
    }
}

impl Worker {
    pub(crate) fn new(rt: &Inner, index: usize, deque: Owner, victims: Victims) -> Self {
        let discipline = Discipline::of(rt, index);
        let traces = rt.spans.is_some() || rt.observed.is_some();
        Self {
            rt,
            share: &raw const rt.shares[index],
            section_flag: rt.shares[index].section_flag.clone(),
            is_virtual: rt.is_virtual(),
            is_plain: !rt.is_virtual() && !discipline.is_fair() && !traces,
            traces,
            ends_simply: !rt.is_virtual() && !traces,
            entered: RefCell::new(None),
            running: Running::none(),
            tally: Cell::new(finish::Tally::NONE),
            index,
            deque,
            hand: Cell::new([0; HANDFUL]),
            in_hand: Cell::new(0),
            slot: Slot::default(),
            slot_streak: Cell::new(0),
            line: RunQueue::new(),
            current: Cell::new(null()),
            sp: UnsafeCell::new(0),
            after: Cell::new(After::Nothing),
            free_stacks: Cell::new(None),
            free_stack_count: Cell::new(0),
            slots: FreeList::default(),
            victims: RefCell::new(victims),
            picks_left: PicksLeft::new(),
            slices: Cell::new(0),
            turn_used: Cell::new(false),
            slice_ops: rt.config.slice_ops(),
            quantum_slices: if discipline.is_fair() {
                0
            } else {
                rt.config.quantum_ops.div_ceil(rt.config.slice_ops())
            },
            next_id: Cell::new((index as u64 + 1) << 44),
            run_began_ns: Cell::new(0),
            discipline,
            looks: Cell::new(0),
            turns: Cell::new(index as u64),
            samples_wake: Cell::new(true),
            is_spare: index >= rt.config.worker_count(),
            started: Cell::new(0),
            events: Cell::default(),
            looks_in_vain: Cell::new(0),
            looks_left_out: Cell::new(0),
            owes_turn: Cell::new(false),
            next_turn_ns: Cell::new(0),
            sampled_wake: Cell::new((null(), 0)),
        }
    }

    /// Another event loop that this worker drives.
    #[inline]
    fn event_loop(&self) -> Option<&Arc<dyn EventLoop>> {
        if self.index == 0 { self.rt().event_loop.get() } else { None }
    }

    #[inline]
    pub(crate) fn rt(&self) -> &Inner {
        // SAFETY: the thread that has the worker keeps the runtime's inner part for longer than the worker.
        unsafe { &*self.rt }
    }

    #[inline]
    pub(crate) fn is_of_runtime_of(&self, task: &Task) -> bool {
        std::ptr::eq(self.rt, task.nursery().rt)
    }

    /// The section flag of the thread that runs this.
    #[inline(always)]
    pub(crate) fn section_flag(&self) -> &Arc<SectionFlag> {
        &self.section_flag
    }

    #[inline]
    fn my_share(&self) -> &Share {
        // SAFETY: part of the runtime, as above.
        unsafe { &*self.share }
    }

    pub(crate) fn new_task_id(&self) -> u64 {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        id
    }

    /// Whose turn it is among `n` equals. Not one after the other, since several may take turns with another period.
    pub(crate) fn turn_of(&self, n: usize) -> usize {
        self.turns.set(self.turns.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        (self.turns.get() >> 33) as usize % n.max(1)
    }

    /// The number of the worker that a task which has started runs on.
    pub(crate) fn index_of(task: &Task) -> usize {
        // SAFETY: set when the task was dispatched; a worker outlives its tasks, and its number never changes.
        unsafe { (&raw const (*task.worker.get()).index).read() }
    }

    /// Whether a task that is ready may be queued here. Cores keep a pinned task on its core, whichever thread
    /// wakes it.
    #[inline(always)]
    fn may_queue(&self, task: &Task) -> bool {
        !task.is_pinned() || std::ptr::eq(task.worker.get(), self) || self.discipline.tasks().is_some()
    }

    /// Whether `core/sched` chooses among the ready tasks.
    #[inline]
    pub(crate) fn is_fair(&self) -> bool {
        self.discipline.is_fair()
    }

    /// A task is ready, under one of the fair disciplines.
    #[cold]
    fn push_fair(&self, task: Runnable) {
        match &self.discipline {
            Discipline::WorkStealing => unreachable!("asked for by those that are fair"),
            Discipline::FairTenants(tenants) => self.push_to_tenant(tenants, task),
            Discipline::FairTasks(tasks) => self.wake_thread(tasks, task),
        }
    }

    /// A new child: others may steal it.
    #[inline]
    pub(crate) fn push_spawned(&self, task: Runnable) {
        if self.is_fair() {
            return self.push_fair(task);
        }
        self.publish(task);
        self.rt().idle_workers.published();
    }

    /// Puts a task where others may steal it. Call `published` afterwards.
    #[inline(always)]
    fn publish(&self, task: Runnable) {
        debug_assert!(!task.ptr().is_on_its_stack(), "a task on its stack");
        debug_assert!(!task.is_pinned(), "a task that must stay on its thread");
        self.push_newest(task.into_word());
    }

    /// Puts a word where the worker takes it first. What is in the hand is older, so it goes back to the deque before.
    #[inline(always)]
    fn push_newest(&self, word: usize) {
        if self.in_hand.get() != 0 {
            self.put_hand_back();
        }
        self.deque.push(word);
        self.picks_left.disturb();
    }

    #[cold]
    #[inline(never)]
    fn put_hand_back(&self) {
        for word in &self.hand.get()[..self.in_hand.replace(0)] {
            self.deque.push(*word);
        }
    }

    /// A word that others may steal.
    #[inline]
    pub(crate) fn push_word(&self, word: usize) {
        self.push_newest(word);
        self.rt().idle_workers.published();
    }

    /// Takes a word back if it is the newest in the deque.
    #[inline]
    pub(crate) fn take_newest(&self, word: usize) -> bool {
        match self.deque.pop() {
            Some(newest) if newest == word => true,
            Some(other) => {
                self.deque.push(other);
                false
            }
            None => false,
        }
    }

    /// A task that something on this worker has woken: it runs next here.
    #[inline]
    pub(crate) fn push_woken(&self, task: Runnable) {
        debug_assert!(!task.ptr().is_on_its_stack(), "a task on its stack");
        debug_assert!(self.is_virtual || self.may_queue(&task), "a task that must stay on its thread");
        if self.is_plain && !self.samples_wake.get() && self.slot.is_empty() {
            self.slot.replace(task);
        } else {
            self.push_woken_slowly(task);
        }
    }

    #[inline(never)]
    fn push_woken_slowly(&self, task: Runnable) {
        if !self.may_queue(&task) {
            // Of another virtual worker: those are at home in each other's channels.
            return self.rt().inject(task, false);
        }
        if self.is_fair() {
            return self.push_fair(task);
        }
        if self.samples_wake.get() {
            self.begin_wake_sample(task.ptr());
        }
        if let Some(displaced) = self.slot.replace(task) {
            self.line.push_back(displaced);
            self.share();
        }
    }

    /// A task that waited for something of this worker's own has been woken here.
    #[inline(always)]
    pub(crate) fn push_woken_at_home(&self, task: TaskPtr) {
        spans::woken(task);
        task.mark.woken(task);
        self.push_woken(Runnable::woken(task));
    }

    /// Whether another thread has made a task ready for this worker.
    #[inline(always)]
    fn has_mail(&self) -> bool {
        !self.my_share().inbox.is_empty()
    }

    /// Queues what others have made ready for this worker.
    #[cold]
    #[inline(never)]
    fn take_mail(&self) {
        self.my_share().inbox.take_all(|task| {
            let task = Runnable::woken(TaskPtr::from_raw(task).expect("an inbox has tasks"));
            debug_assert!(!task.ptr().is_on_its_stack(), "a task on its stack");
            match self.discipline.tenants() {
                Some(tenants) => tenants.push(self.fair_now(), task),
                // Its wake was somewhere else, so it does not take the place of one that was woken here.
                None if self.slot.is_empty() => _ = self.slot.replace(task),
                None => self.line.push_back(task),
            }
        });
    }

    /// If others sleep while several wait here, half of those that may move go where others can take them.
    #[inline]
    fn share(&self) {
        if self.line.movable() != 0 && self.line.len() > 1 && self.rt().idle_workers.sleeping() != 0 {
            self.share_half();
        }
    }

    #[cold]
    fn share_half(&self) {
        if self.is_virtual {
            return;
        }
        let mut shared = self.line.movable().div_ceil(2);
        // Once around, so that those that stay keep their order.
        for _ in 0..self.line.len() {
            match self.line.pop_front() {
                Some(task) if shared > 0 && !task.is_pinned() => {
                    shared -= 1;
                    self.publish(task);
                }
                Some(task) => self.line.push_back(task),
                None => break,
            }
        }
        self.rt().idle_workers.published();
    }

    /// Whether a task that gives way leaves to the worker's own stack first, and is queued from there: in the deterministic
    /// mode every choice is the machine's, and a fair queue must not have a task that is still on its stack. Another event loop has its turn
    /// there.
    #[inline]
    fn chooses_on_own_stack(&self) -> bool {
        self.is_virtual || self.is_fair() || self.owes_turn.get()
    }

    #[inline(always)]
    pub(crate) fn dispatch(&self, task: TaskPtr) {
        if self.traces {
            self.enter_span(task);
        }
        self.dispatch_plainly(task);
    }

    /// As [`Worker::dispatch`], of a worker that enters no spans.
    #[inline(always)]
    fn dispatch_plainly(&self, task: TaskPtr) {
        self.claim_home(task);
        self.begin(task);
    }

    /// No other worker is the home of the task, which is Ready, from here on.
    #[inline(always)]
    fn claim_home(&self, task: TaskPtr) {
        // SAFETY: the seats of a runtime live as long as its slots. A task that is Ready has no state of its home's.
        unsafe { task.home.claim(Some(&*self.section_flag), || ()) };
    }

    /// As [`Worker::dispatch`], of a task whose home is here or nowhere.
    #[inline(always)]
    fn begin(&self, task: TaskPtr) {
        self.note_running(task);
        task.state.step(Event::Dispatch);
        if let Some(tenants) = self.discipline.tenants() {
            tenants.dispatched(&task);
        }
        if std::ptr::eq(self.sampled_wake.get().0, task.raw()) {
            self.end_wake_sample();
        }
    }

    /// The task is the one that runs here: what the task, the worker and the monitor have to know of that.
    #[inline(always)]
    fn note_running(&self, task: TaskPtr) {
        debug_assert!(!std::thread::panicking(), "a task would run on a thread that panics");
        debug_assert!(self.may_run(task), "a task that must stay on its thread");
        // Without a look: a load here waits for the record, and a store does not.
        task.worker.set(self);
        self.current.set(task.raw());
        self.begin_turn();
        // Each pick counts the looks down, so that the monitor tells this turn from the task's last one.
        let turn = self.picks_left.get() as usize & TURN_BITS;
        self.my_share().running.store(task.word() | turn, Ordering::Relaxed);
    }

    /// The current task may use a whole quantum from here on.
    #[inline(always)]
    fn begin_turn(&self) {
        self.slices.set(0);
        self.turn_used.set(false);
    }

    /// Whether the task has no frames that belong to another worker's thread.
    #[inline]
    fn may_run(&self, task: TaskPtr) -> bool {
        !task.is_pinned() || std::ptr::eq(task.worker.get(), self)
    }

    /// Safe code relies on its thread: there is no safe way to go on.
    #[cold]
    #[inline(never)]
    fn wrong_thread() -> ! {
        eprintln!("mainspring: internal error: a task with frames was dispatched on another thread");
        std::process::abort();
    }

    /// The current task has used another slice, and can have one more without a look around: its size.
    #[inline]
    pub(crate) fn next_slice(&self) -> Option<u32> {
        let slices = self.slices.get() + 1;
        if slices.is_multiple_of(LOOK_UP_EVERY) || slices >= self.quantum_slices || self.has_tally() {
            return None;
        }
        self.slices.set(slices);
        Some(self.slice_ops)
    }

    /// The current task does what takes as long as `ops` beyond its slice: the next look around comes so many slices sooner.
    pub(crate) fn hurry_slices(&self, ops: u32) {
        let slices = self.slices.get();
        let last_before_look = slices | (LOOK_UP_EVERY - 1);
        self.slices.set(slices.saturating_add(ops / self.slice_ops).min(last_before_look));
    }

    /// The monitor wants a task to end that kept this worker: if it is the one that runs, it is told so.
    #[cold]
    fn cancel_overstayer(&self) {
        let Some(task) = TaskPtr::from_raw(self.current.get()) else { return };
        let share = self.my_share();
        if share.to_cancel.load(Ordering::Relaxed) == task.id.load(Ordering::Relaxed) {
            share.to_cancel.store(0, Ordering::Relaxed);
            interrupt(&*task);
        }
    }

    /// The current task has used another slice: timers are looked at. True if it has used its quantum, or a task has been woken,
    /// and others wait, or if another event loop waits for its turn. On a virtual worker the clock has no say in that.
    pub(crate) fn slice_over(&self) -> bool {
        self.report_tally();
        let now_ns = self.rt().timers.now_ns();
        self.my_share().looks_up(now_ns);
        if self.my_share().to_cancel.load(Ordering::Relaxed) != 0 {
            self.cancel_overstayer();
        }
        let fired = self.rt().timers.is_due_at(now_ns);
        if fired {
            self.rt().timers.fire_due();
        }
        self.look_outside(now_ns);
        match &self.discipline {
            Discipline::WorkStealing => {}
            Discipline::FairTenants(tenants) => {
                return self.tenant_turn_is_over(tenants) || self.owes_turn.get();
            }
            Discipline::FairTasks(tasks) => return self.thread_turn_is_over(tasks) || self.owes_turn.get(),
        }
        let slices = self.slices.get() + 1;
        self.slices.set(slices);
        // A task that a timer or another thread has woken does not wait for the rest of the quantum.
        let woken = !self.is_virtual && (fired || self.has_mail());
        if slices >= self.quantum_slices || woken {
            // If no other task is ready, this one goes on as before until one is.
            self.slices.set(0);
            self.turn_used.set(true);
        }
        // A virtual worker shares its thread with the others, whose tasks wait for this one.
        self.turn_used.get() && (self.rt().is_virtual() || self.has_others()) || self.owes_turn.get()
    }
}
