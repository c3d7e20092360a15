//! A worker: the thread that runs tasks, its queues, and how it goes from one task to the next.
//!
//! Conserved: a Ready task is in exactly one place: a worker's slot, its deque, its line of yielded tasks, the global
//! queue, or the hands of the worker that is about to run it. A worker never sleeps while its slot or line has a task.
//!
//! A task that gives way switches straight to the next one; the worker's own stack is used to look for work elsewhere
//! and to sleep. What must not happen before a stack has been left (queueing its task, committing its wait) is noted in
//! `after` and done by whoever runs next on the worker.
#![allow(unsafe_code)]

mod back_off;
pub(crate) mod fair;
pub(crate) mod finish;
pub(crate) mod hunt;
mod in_lane;
pub mod victim;

use crate::fork::task_of;
use crate::protocol::deque::Owner;
use crate::protocol::lanes::Lanes;
use crate::protocol::roster::may_stay_asleep;
use crate::runtime::{Inner, Share};
use crate::stack::arena::{self, Stack};
use crate::stack::switch::{prepare, switch};
use crate::task::slab::FreeList;
use crate::task::state::{Committed, Event};
use crate::task::{SLICE, Task, TaskPtr, WaitReason};
use fair::Fair;
use mainspring_abi::Nanos;
use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::VecDeque;
use std::ptr::null;
use std::sync::atomic::Ordering;
use victim::Victims;

/// After this many picks in a row from the slot, the others get a turn.
const SLOT_STREAK: u32 = 16;
/// Every so many picks the worker looks at timers, at the global queue and at its line first.
const TEND_EVERY: u32 = 64;
/// A spawner gives way when more than this many tasks wait in its worker's deque.
const BACKLOG: usize = 256;
/// What a switch counts for in the op clock of the fair discipline.
const SWITCH_OPS: u64 = 16;
/// A worker keeps this many free stacks for itself.
const KEEP_STACKS: usize = 256;

/// What to do for the task that was left, once its stack is no longer in use.
#[derive(Clone, Copy, Debug)]
enum After {
    Nothing,
    /// It waits.
    Wait(TaskPtr, Event),
    /// It yielded where others may take it.
    Queue(TaskPtr),
    /// It ended on a stack of its own.
    Unmap(Stack),
}

/// What a worker learns when its own stack runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Back {
    /// Nothing is left to run here.
    Idle = 0,
    /// The task that ran used more stack than it has.
    Overflow = 1,
    /// The task that ran took the worker down with it.
    Kill = 2,
}

/// A worker, seen from its own thread.
pub(crate) struct Worker {
    rt: *const Inner,
    /// What the others see of this worker.
    share: *const Share,
    pub(crate) is_virtual: bool,
    tally: Cell<finish::Tally>,
    pub(crate) index: usize,
    deque: Owner,
    slot: Cell<Option<TaskPtr>>,
    slot_streak: Cell<u32>,
    line: UnsafeCell<VecDeque<TaskPtr>>,
    pub(crate) current: Cell<*const Task>,
    /// The worker's own context while a task runs.
    pub(crate) sp: UnsafeCell<usize>,
    after: Cell<After>,
    free_stacks: Cell<Option<Stack>>,
    free_stack_count: Cell<usize>,
    pub(crate) slots: FreeList,
    pub(crate) victims: RefCell<Victims>,
    tick: Cell<u32>,
    /// Slices that the current task has used since it was dispatched.
    slices: Cell<u32>,
    next_id: Cell<u64>,
    /// When the sampled run began; 0 for none.
    run_began_ns: Cell<u64>,
    /// The ready tasks, under the fair discipline by tenant.
    fair: Option<RefCell<Fair>>,
    /// The lanes of all workers, under the fair discipline by task.
    lanes: Option<*const Lanes>,
    /// The current task gives way because its turn is over, not because it wants to.
    preempted: Cell<bool>,
    /// Whom the current task wakes next goes first here, when it stops.
    hands_over: Cell<bool>,
    /// Ops that tasks have used here: the clock of the fair discipline in the deterministic mode.
    op_clock: Cell<u64>,
    ops_at_dispatch: Cell<u64>,
    /// The task whose wake is sampled, and when that was.
    sampled_wake: Cell<(*const Task, u64)>,
}

// SAFETY: a worker is handed to its thread whole, and to the next one when that thread has died.
unsafe impl Send for Worker {}

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

/// Queues a task that has just become Ready: on this worker, or for all if this thread is none.
pub(crate) fn schedule(task: TaskPtr) {
    tracing::trace!(target: "mainspring", task = task.id.load(Ordering::Relaxed), "wake");
    let worker = current();
    let rt = task.nursery().rt;
    // SAFETY: the pointer is null or the worker of this thread.
    match unsafe { worker.as_ref() } {
        Some(worker) if std::ptr::eq(worker.rt, rt) => worker.push_woken(task),
        _ => task.nursery().rt().inject(task),
    }
}

impl Worker {
    pub(crate) fn new(rt: &Inner, index: usize, deque: Owner, victims: Victims) -> Self {
        Self {
            rt,
            share: &raw const rt.shares[index],
            is_virtual: rt.is_virtual(),
            tally: Cell::new(finish::Tally::NONE),
            index,
            deque,
            slot: Cell::new(None),
            slot_streak: Cell::new(0),
            line: UnsafeCell::new(VecDeque::with_capacity(64)),
            current: Cell::new(null()),
            sp: UnsafeCell::new(0),
            after: Cell::new(After::Nothing),
            free_stacks: Cell::new(None),
            free_stack_count: Cell::new(0),
            slots: FreeList::default(),
            victims: RefCell::new(victims),
            tick: Cell::new(0),
            slices: Cell::new(0),
            next_id: Cell::new((index as u64 + 1) << 44),
            run_began_ns: Cell::new(0),
            fair: rt.config.tenants.as_ref().map(|weights| RefCell::new(Fair::new(index, weights))),
            lanes: rt.lanes.as_ref().map(std::ptr::from_ref),
            preempted: Cell::new(false),
            hands_over: Cell::new(false),
            op_clock: Cell::new(0),
            ops_at_dispatch: Cell::new(0),
            sampled_wake: Cell::new((null(), 0)),
        }
    }

    #[inline]
    pub(crate) fn rt(&self) -> &Inner {
        // SAFETY: the runtime joins its workers before it goes.
        unsafe { &*self.rt }
    }

    #[inline]
    fn my_share(&self) -> &Share {
        // SAFETY: part of the runtime, as above.
        unsafe { &*self.share }
    }

    #[allow(clippy::mut_from_ref)]
    #[inline(always)]
    fn line(&self) -> &mut VecDeque<TaskPtr> {
        // SAFETY: only the worker's thread comes here, and no caller keeps the reference across a call.
        unsafe { &mut *self.line.get() }
    }

    pub(crate) fn new_task_id(&self) -> u64 {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        id
    }

    /// A new child: others may steal it.
    #[inline]
    pub(crate) fn push_spawned(&self, task: TaskPtr) {
        if self.is_fair() {
            return self.push_fair(task);
        }
        self.deque.push(task.word());
        self.rt().dormitory.published();
    }

    /// A word that others may steal.
    #[inline]
    pub(crate) fn push_word(&self, word: usize) {
        self.deque.push(word);
        self.rt().dormitory.published();
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
    pub(crate) fn push_woken(&self, task: TaskPtr) {
        if self.is_fair() {
            return self.push_fair(task);
        }
        if self.tick.get().is_multiple_of(TEND_EVERY) {
            self.sampled_wake.set((task.raw(), self.rt().timers.now_ns()));
        }
        if let Some(displaced) = self.slot.replace(Some(task)) {
            self.line().push_back(displaced);
            self.share();
        }
    }

    /// If others sleep while several wait here, half of those go where others can take them.
    #[inline]
    fn share(&self) {
        if self.rt().dormitory.sleeping() != 0 && self.line().len() > 1 {
            self.share_half();
        }
    }

    #[cold]
    fn share_half(&self) {
        if self.is_virtual {
            return;
        }
        for _ in 0..self.line().len() / 2 {
            if let Some(task) = self.line().pop_front() {
                self.deque.push(task.word());
            }
        }
        self.rt().dormitory.published();
    }

    #[inline]
    pub(crate) fn is_fair(&self) -> bool {
        self.fair.is_some() || self.lanes.is_some()
    }

    /// Whether a task that gives way leaves to the worker's own stack first, and is queued from there: in the deterministic
    /// mode every choice is the machine's, and a fair queue must not have a task that is still on its stack.
    #[inline]
    fn chooses_on_own_stack(&self) -> bool {
        self.is_virtual || self.is_fair()
    }

    /// The clock of the fair discipline: nanoseconds, or ops where the order must not depend on a clock.
    fn fair_now(&self) -> Nanos {
        Nanos::new(if self.is_virtual { self.op_clock.get() } else { self.rt().timers.now_ns() })
    }

    /// Under the fair discipline, counts the ops that `task` has used since it was dispatched.
    pub(crate) fn bill(&self, task: &Task) {
        if self.fair.is_some() {
            let used = task.ops_used();
            // A switch costs something too: a task that only yields must not run for nothing.
            let ops = used.saturating_sub(self.ops_at_dispatch.replace(used)) + SWITCH_OPS;
            self.op_clock.set(self.op_clock.get() + ops);
        }
    }

    fn bill_current(&self) {
        // SAFETY: the task that runs here, or null.
        if let Some(task) = unsafe { self.current.get().as_ref() } {
            self.bill(task);
        }
    }

    #[cold]
    fn push_fair(&self, task: TaskPtr) {
        let Some(fair) = &self.fair else { return self.wake_in_lane(task) };
        let now = self.fair_now();
        fair.borrow_mut().push(now, task.tenant.load(Ordering::Relaxed).into(), task);
        if !self.is_virtual && self.rt().dormitory.sleeping() != 0 {
            // Others sleep: one that is not the next here goes to them.
            let spare = { fair.borrow_mut().give() };
            if let Some(spare) = spare {
                self.rt().inject(spare);
            }
        }
    }

    fn pick_fair(&self, fair: &RefCell<Fair>, tick: u32) -> Option<TaskPtr> {
        if tick.is_multiple_of(TEND_EVERY) {
            self.rt().tend_timers();
        }
        // What waits for anybody joins the tenants here, a few at a time.
        for _ in 0..4 {
            let Some(task) = self.rt().global.pop() else { break };
            fair.borrow_mut().push(self.fair_now(), task.tenant.load(Ordering::Relaxed).into(), task);
        }
        fair.borrow_mut().next(self.fair_now())
    }

    /// Whether so many spawned tasks wait here that their spawner had better give way: records that are used again soon
    /// are still in the cache, and a million are not.
    #[inline]
    pub(crate) fn has_backlog(&self) -> bool {
        self.deque.len() > BACKLOG
    }

    /// Whether its own queues have a task.
    pub(crate) fn has_own(&self) -> bool {
        self.slot.get().is_some()
            || !self.line().is_empty()
            || !self.deque.is_empty()
            || self.fair.as_ref().is_some_and(|fair| !fair.borrow().is_empty())
    }

    /// Whether somebody else could run here.
    pub(crate) fn has_others(&self) -> bool {
        self.has_own() || !self.rt().global.is_empty()
    }

    /// The next task of this worker's own queues.
    #[inline]
    fn pick(&self) -> Option<TaskPtr> {
        let tick = self.tick.get().wrapping_add(1);
        self.tick.set(tick);
        if self.run_began_ns.get() != 0 {
            self.end_sample();
        }
        if let Some(fair) = &self.fair {
            return self.pick_fair(fair, tick);
        }
        if let Some(lanes) = self.lanes() {
            return self.pick_in_lane(lanes);
        }
        if tick.is_multiple_of(TEND_EVERY) {
            return self.pick_fairly();
        }
        if let Some(task) = self.slot.take() {
            let streak = self.slot_streak.get() + 1;
            self.slot_streak.set(streak);
            if streak < SLOT_STREAK {
                return Some(task);
            }
            self.slot_streak.set(0);
            self.line().push_back(task);
            return self.line().pop_front();
        }
        self.slot_streak.set(0);
        if let Some(word) = self.deque.pop() {
            return Some(task_of(word, self));
        }
        self.line().pop_front()
    }

    /// Now and then: timers, then the global queue, then the line, so that nobody waits for ever behind newer work.
    #[cold]
    fn pick_fairly(&self) -> Option<TaskPtr> {
        let now_ns = self.rt().timers.now_ns();
        self.run_began_ns.set(now_ns.max(1));
        self.my_share().looks_up(now_ns);
        self.rt().tend_timers();
        self.share();
        let global = self.rt().global.pop();
        global
            .or_else(|| self.line().pop_front())
            .or_else(|| self.slot.take())
            .or_else(|| self.deque.pop().map(|word| task_of(word, self)))
    }

    /// The sampled run is over.
    #[cold]
    fn end_sample(&self) {
        let began = self.run_began_ns.replace(0);
        let now_ns = self.rt().timers.now_ns();
        self.my_share().looks_up(now_ns);
        self.my_share().yield_gap.record(now_ns.saturating_sub(began));
    }

    /// The task whose wake was sampled runs.
    #[cold]
    fn end_wake_sample(&self) {
        let (_, woken) = self.sampled_wake.replace((null(), 0));
        let now_ns = self.rt().timers.now_ns();
        self.my_share().wake_latency.record(now_ns.saturating_sub(woken));
    }

    /// The next task of this worker's own queues that is still to run: one that was cancelled before it started is
    /// ended here instead.
    #[inline]
    pub(crate) fn next_local(&self) -> Option<TaskPtr> {
        loop {
            let task = self.pick()?;
            if self.is_runnable(task) {
                return Some(task);
            }
        }
    }

    #[inline]
    pub(crate) fn is_runnable(&self, task: TaskPtr) -> bool {
        if !task.is_started() && task.is_cancelled() {
            self.refuse(task);
            return false;
        }
        true
    }

    #[inline]
    pub(crate) fn dispatch(&self, task: TaskPtr) {
        task.state.step(Event::Dispatch);
        task.worker.set(self);
        self.current.set(task.raw());
        self.slices.set(0);
        if self.fair.is_some() {
            self.ops_at_dispatch.set(task.ops_used());
        }
        self.my_share().running.store(task.word(), Ordering::Relaxed);
        if std::ptr::eq(self.sampled_wake.get().0, task.raw()) {
            self.end_wake_sample();
        }
    }

    /// The current task has used another slice: timers are looked at. True if it has used its quantum and others wait.
    pub(crate) fn slice_over(&self, quantum_ops: u32) -> bool {
        self.report_tally();
        self.my_share().looks_up(self.rt().timers.now_ns());
        self.rt().tend_timers();
        if let Some(fair) = &self.fair {
            self.bill_current();
            return fair.borrow().turn_is_over(self.fair_now());
        }
        if let Some(lanes) = self.lanes() {
            let over = lanes.turn_is_over(self.index, self.fair_now());
            self.preempted.set(over);
            return over;
        }
        let slices = self.slices.get() + 1;
        self.slices.set(slices);
        slices.saturating_mul(SLICE) >= quantum_ops && self.has_others()
    }

    /// The current task gives way to others that are ready here. It stays Ready.
    #[inline]
    pub(crate) fn yield_now(&self, task: &Task) {
        self.report_tally();
        let me = TaskPtr::of(task);
        task.state.step(Event::Yield);
        if self.chooses_on_own_stack() {
            self.bill(task);
            self.after.set(After::Queue(me));
            self.leave_to_worker(task);
            return;
        }
        self.line().push_back(me);
        self.share();
        self.leave(task);
    }

    /// The current task waits until woken. It has told whoever will wake it.
    pub(crate) fn block(&self, task: &Task, reason: WaitReason) {
        self.report_tally();
        task.wait_reason.store(reason as u8, Ordering::Relaxed);
        if !task.listed.load(Ordering::Relaxed) {
            task.nursery().enlist(task);
        }
        self.bill(task);
        let event = if reason == WaitReason::Budget { Event::Exhaust } else { Event::Block };
        self.after.set(After::Wait(TaskPtr::of(task), event));
        if self.is_virtual || self.lanes.is_some() {
            self.leave_to_worker(task);
        } else {
            self.leave(task);
        }
        task.wait_reason.store(WaitReason::None as u8, Ordering::Relaxed);
    }

    /// Goes on with the next task of this worker, or with the worker itself.
    #[inline]
    fn leave(&self, task: &Task) {
        let Some(next) = self.next_local() else { return self.leave_to_worker(task) };
        if std::ptr::eq(next.raw(), task) {
            // Nobody else was ready, and nothing was noted: a task in a queue is not waiting.
            self.dispatch(next);
            return;
        }
        match self.context_of(next) {
            Some(context) => {
                self.dispatch(next);
                // SAFETY: the context of a task that was Ready and is now this worker's; it goes on once.
                unsafe { switch(task.sp.as_ptr(), context, 0) };
                task.worker().settle();
            }
            None => {
                self.no_stack(next);
                self.leave_to_worker(task);
            }
        }
    }

    fn leave_to_worker(&self, task: &Task) {
        self.current.set(null());
        // SAFETY: the worker saved its context when it left its stack for a task, and waits to go on.
        unsafe { switch(task.sp.as_ptr(), *self.sp.get(), Back::Idle as usize) };
        task.worker().settle();
    }

    /// The context to go on with: the saved one, or that of a new stack.
    #[inline]
    fn context_of(&self, task: TaskPtr) -> Option<usize> {
        if task.is_started() {
            return Some(task.sp.get());
        }
        let stack = self.take_stack(task)?;
        task.stack.store(stack.address(), Ordering::Relaxed);
        // SAFETY: the stack was free and is the task's now.
        Some(unsafe { prepare(stack.top(), task_main, task.word()) })
    }

    #[inline]
    fn take_stack(&self, task: TaskPtr) -> Option<Stack> {
        if task.own_stack.load(Ordering::Relaxed)
            && let Some(size) = task.nursery().with_ext(&task, |ext| ext.and_then(|ext| ext.stack_size))
        {
            return arena::dedicated(size).ok();
        }
        self.take_pooled_stack()
    }

    pub(crate) fn take_pooled_stack(&self) -> Option<Stack> {
        match self.free_stacks.get() {
            Some(stack) => {
                self.free_stacks.set(stack.next());
                self.free_stack_count.set(self.free_stack_count.get() - 1);
                Some(stack)
            }
            None => self.rt().arena.take().ok(),
        }
    }

    /// A pooled stack that nobody needs any more. It may still be the one we run on: only this worker takes it again, and
    /// not before it has left it.
    pub(crate) fn give_stack(&self, stack: Stack) {
        debug_assert!(stack.is_pooled());
        stack.set_next(self.free_stacks.get());
        self.free_stacks.set(Some(stack));
        self.free_stack_count.set(self.free_stack_count.get() + 1);
        if self.free_stack_count.get() > KEEP_STACKS {
            self.return_stacks();
        }
    }

    /// Half of the free stacks go back for the others, the ones freed longest ago. The newest stays: it may be in use.
    #[cold]
    fn return_stacks(&self) {
        let Some(mut last_kept) = self.free_stacks.get() else { return };
        for _ in 1..KEEP_STACKS / 2 {
            let Some(next) = last_kept.next() else { return };
            last_kept = next;
        }
        let Some(first) = last_kept.next() else { return };
        last_kept.set_next(None);
        let (mut last, mut count) = (first, 1);
        while let Some(next) = last.next() {
            last = next;
            count += 1;
        }
        self.free_stack_count.set(self.free_stack_count.get() - count);
        self.rt().arena.put_chain(first, last);
    }

    /// Does what was noted for the task that was left.
    #[inline]
    pub(crate) fn settle(&self) {
        match self.after.replace(After::Nothing) {
            After::Nothing => {}
            After::Wait(task, event) => {
                // Before the commit: whoever wakes the task afterwards finds it asleep on its lane.
                self.wait_in_lane(task);
                if task.state.commit_wait(event) == Committed::Queue {
                    self.push_woken(task);
                } else if (!may_stay_asleep(&*task) || task.scope_failed.load(Ordering::SeqCst))
                    && !task.masked.load(Ordering::Relaxed)
                {
                    // The canceller may have looked before the task waited. Its nursery is not asked: if somebody woke
                    // the task already, that may be gone. The flag is of the slot, which is not.
                    task.wake(Event::Interrupt);
                }
            }
            After::Queue(task) => self.push_yielded(task),
            After::Unmap(stack) => arena::unmap(stack),
        }
    }

    /// A future waits. It left no frame behind, so that its wait can be committed at once.
    pub(crate) fn park_without_stack(&self, task: TaskPtr) {
        self.report_tally();
        task.stack.store(0, Ordering::Relaxed);
        task.sp.set(0);
        task.wait_reason.store(WaitReason::Future as u8, Ordering::Relaxed);
        if !task.listed.load(Ordering::Relaxed) {
            task.nursery().enlist(&task);
        }
        self.current.set(null());
        self.after.set(After::Wait(task, Event::Block));
        self.settle();
    }

    fn push_yielded(&self, task: TaskPtr) {
        if self.fair.is_some() {
            return self.push_fair(task);
        }
        if let Some(lanes) = self.lanes() {
            return self.yield_in_lane(lanes);
        }
        self.line().push_back(task);
    }

    /// Runs `task` from the worker's own stack until nothing is left to run here.
    pub(crate) fn enter(&self, task: TaskPtr) -> Back {
        let Some(context) = self.context_of(task) else {
            self.no_stack(task);
            return Back::Idle;
        };
        self.dispatch(task);
        // SAFETY: the context of a task that was Ready and is now this worker's; it goes on once. The worker's own context
        // goes on when a task leaves to it, or by the overflow handler.
        let back = unsafe { switch(self.sp.get(), context, 0) };
        let back = match back {
            1 => Back::Overflow,
            2 => Back::Kill,
            _ => Back::Idle,
        };
        if back == Back::Idle {
            self.current.set(null());
        }
        self.settle();
        back
    }

    /// Ends the calling task's worker as a fault would. The task is failed as WorkerPanic.
    pub(crate) fn die(&self, task: &Task) -> ! {
        // SAFETY: the worker waits on its own stack. The task's context is never gone on with.
        unsafe { switch(task.sp.as_ptr(), *self.sp.get(), Back::Kill as usize) };
        std::process::abort()
    }
}

/// The first frame of a pooled stack: runs a task to its end, and then others that have not started, without leaving
/// the stack.
extern "C-unwind" fn task_main(word: usize) -> ! {
    let mut task = TaskPtr::from_word(word);
    task.worker().settle();
    loop {
        let stack = task.stack().expect("a started task has a stack");
        // SAFETY: the worker outlives this thread's stay on the stack.
        let worker = unsafe { &*finish::execute(task) };
        if !stack.is_pooled() {
            worker.report_tally();
            worker.after.set(After::Unmap(stack));
            worker.go_on(None);
        }
        if worker.is_virtual {
            worker.give_stack(stack);
            worker.go_on(None);
        }
        let mut next = worker.next_local();
        if next.is_none_or(|next| next.is_started() || !worker.tallies(next)) {
            worker.report_tally();
            // That may have woken their owner.
            next = next.or_else(|| worker.next_local());
        }
        match next {
            Some(next) if !next.is_started() && !next.own_stack.load(Ordering::Relaxed) => {
                next.stack.store(stack.address(), Ordering::Relaxed);
                worker.dispatch(next);
                task = next;
            }
            next => {
                worker.give_stack(stack);
                worker.go_on(next);
            }
        }
    }
}

impl Worker {
    /// Leaves a stack for good.
    fn go_on(&self, next: Option<TaskPtr>) -> ! {
        let mut dead = 0;
        let context = match next {
            Some(next) => match self.context_of(next) {
                Some(context) => {
                    self.dispatch(next);
                    Some(context)
                }
                None => {
                    self.no_stack(next);
                    None
                }
            },
            None => None,
        };
        let context = context.unwrap_or_else(|| {
            self.current.set(null());
            // SAFETY: the worker's context, which waits to go on.
            unsafe { *self.sp.get() }
        });
        // SAFETY: a context of this worker's, gone on with once; the one that is saved here is forgotten.
        unsafe { switch(&raw mut dead, context, Back::Idle as usize) };
        std::process::abort()
    }

    /// The first frame of a task whose stack is lost.
    pub(crate) fn abandoned_context(&self, task: TaskPtr, lost: Stack) -> Option<usize> {
        let stack = self.take_pooled_stack()?;
        stack.set_next(Some(lost));
        task.stack.store(stack.address(), Ordering::Relaxed);
        // SAFETY: the stack was free and is the task's now.
        Some(unsafe { prepare(stack.top(), abandoned_main, task.word()) })
    }
}

/// Waits for what the lost frames own, then ends the task.
extern "C-unwind" fn abandoned_main(word: usize) -> ! {
    let task = TaskPtr::from_word(word);
    task.worker().settle();
    let stack = task.stack().expect("just set");
    let lost = stack.next().expect("just set");
    // SAFETY: the worker outlives this thread's stay on the stack.
    let worker = unsafe { &*finish::bury(task) };
    worker.give_stack(stack);
    if lost.is_pooled() {
        worker.give_stack(lost);
    } else {
        worker.after.set(After::Unmap(lost));
    }
    worker.go_on(None)
}
