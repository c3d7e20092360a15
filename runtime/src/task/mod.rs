//! A task: its record, its state, and the slots that records live in.
//!
//! Who may touch which field of a `Task`:
//!
//! | field | who |
//! | --- | --- |
//! | budget fields | written by the holder (the worker that runs it); any thread may read |
//! | `state`, `home`, `join`, `post` | by their protocols |
//! | `cancel` | set by any thread, once |
//! | `scope_failed` | set under the lock of a nursery that the task has open; cleared by the holder |
//! | `sp`, `worker`, `stack`, `body` | the holder |
//! | `ext`, `prev`, `next` | under the lock of the task's nursery; `ext` also at birth, and by the holder at its end unless `post` says otherwise |
//! | `link` | the free list; of a Ready task, the inbox that it is in |
//! | `forks`, `job`, `mark` | the holder |
//! | `wakers`, `kept` | by their protocol; they are of the slot and outlive its task |
#![allow(unsafe_code)]

pub(crate) mod body;
pub(crate) mod mask;
mod pointer;
pub(crate) mod slab;
pub mod state;
mod wait_reason;

use mask::{Mask, Masked};
pub(crate) use pointer::{Runnable, TaskPtr, WorkerCell};
pub use wait_reason::WaitReason;

use crate::budget::{Budget, Component, Pool};
use crate::caps::Held;
use crate::config::SLICE;
use crate::fork::Job;
use crate::nursery::core::NurseryCore;
use crate::observe::{self, Mark};
use crate::protocol::bias::Home;
use crate::protocol::granted::Granted;
use crate::protocol::inbox::Linked;
use crate::protocol::join::JoinCell;
use crate::protocol::mail_flag::MailFlag;
use crate::protocol::prim;
use crate::protocol::roster::Member;
use crate::protocol::slot_refs::SlotRefs;
use crate::quota::TaskQuota;
use crate::runtime::Inner;
use crate::stack::arena::Stack;
use crate::worker::Worker;
use mainspring_driver::ledgers::LedgerRef;
use state::{Event, StateCell, Woken};
use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

/// Bytes of a record that hold the closure, and then its result. Larger ones are boxed.
pub(crate) const BODY: usize = 80 - size_of::<Mark>();

/// In `exhausted`, above the five components.
const LOST_TO_WORKER: u8 = 0x80;
/// In `exhausted`: the task was unwound for a stop.
const STOPPED: u8 = 0x40;
/// In `exhausted`: the task has a quota, which every slow check asks.
const HAS_QUOTA: u8 = 0x20;
/// In `granted`, above the five components: the spawner set the budget, which is a bound.
const BOUND: u8 = 0x80;

/// What few tasks have.
#[derive(Debug, Default)]
pub(crate) struct Ext {
    /// Budget granted from outside and not yet taken up.
    pub(crate) mail: Budget,
    /// What the task may hand to nurseries that it opens, beside its budget.
    pub(crate) own_pool: Option<Pool>,
    /// Capabilities of its own, if not what children of its nursery usually have.
    pub(crate) caps: Option<Held>,
    /// Whose right to draw on a pool its own was taken from.
    pub(crate) caps_from: Option<TaskPtr>,
    /// Its place in the quota that it is bound to.
    pub(crate) quota: Option<TaskQuota>,
    /// What the contexts that it makes are charged to, if it has a `CapContext`.
    pub(crate) time_ledger: Option<LedgerRef>,
    /// Ops that its cleanups may still use, once one has begun.
    pub(crate) cleanup_ops: Option<u32>,
    /// Stack bytes, if not the usual.
    pub(crate) stack_size: Option<usize>,
    /// How many channels it has made.
    pub(crate) channels: u32,
    /// A name for people.
    pub(crate) name: Option<&'static str>,
}

impl Ext {
    /// The task is over: what it has left. Its right to draw on a pool goes back to the task that it was taken from, which
    /// has not ended.
    pub(crate) fn leave(mut self, ops_used: u64) -> Pool {
        if let Some(quota) = self.quota.take() {
            quota.end(ops_used);
        }
        if let (Some(from), Some(cap)) =
            (self.caps_from, self.caps.and_then(|held| held.caps().budget().copied()))
        {
            from.nursery().change_ext(&from, |ext| {
                if let Some(held) = &mut ext.caps {
                    held.restore(cap.limit());
                }
            });
        }
        let mut left = Pool::from(self.mail);
        left.put(&self.own_pool.unwrap_or_default());
        left
    }
}

/// A bit for each component that `budget` has any of.
#[inline]
fn bits_of(budget: Budget) -> u8 {
    u8::from(budget.ops > 0)
        | u8::from(budget.memory > 0) << 1
        | u8::from(budget.spawn_count > 0) << 2
        | u8::from(budget.channel_ops > 0) << 3
        | u8::from(budget.syscalls > 0) << 4
}

#[repr(C, align(8))]
struct Storage(UnsafeCell<MaybeUninit<[u8; BODY]>>);

#[repr(C, align(64))]
pub(crate) struct Task {
    /// Ops until the slow path of the check.
    pub(crate) fuel: AtomicU32,
    /// Ops beyond `fuel`.
    pub(crate) reserve: AtomicU32,
    pub(crate) state: StateCell,
    pub(crate) cancel: prim::AtomicBool,
    /// A bit for each component that was used up.
    pub(crate) exhausted: AtomicU8,
    /// A bit for each component that was ever granted.
    pub(crate) granted: Granted,
    /// What keeps a stop from it.
    pub(crate) mask: Mask,
    /// In its nursery's list.
    pub(crate) listed: prim::AtomicBool,
    /// A nursery that it has open has failed: what it does inside is over.
    pub(crate) scope_failed: AtomicBool,
    /// The saved context of a task with frames that does not run. Says nothing about whether there are any: `state` does.
    pub(crate) sp: Cell<usize>,
    /// The worker that runs it or ran it last: of a pinned task, the one that it stays on.
    pub(crate) worker: WorkerCell,
    pub(crate) nursery: AtomicPtr<NurseryCore>,
    /// If it was made for a job, that: it reports there and to no nursery.
    pub(crate) job: Cell<*const Job>,
    /// The worker that may change `state` alone, while the task waits for something of that worker's.
    pub(crate) home: Home,
    pub(crate) join: JoinCell,

    pub(crate) id: AtomicU64,
    pub(crate) memory: AtomicUsize,
    pub(crate) spawn_count: AtomicU16,
    pub(crate) channel_ops: AtomicU16,
    pub(crate) syscalls: AtomicU16,
    pub(crate) live: AtomicBool,
    /// It wants a stack of another size than the usual: `ext` says which.
    pub(crate) own_stack: AtomicBool,
    pub(crate) stack: AtomicUsize,
    /// The innermost nursery that it has open.
    pub(crate) owned: AtomicPtr<NurseryCore>,
    pub(crate) prev: Cell<*const Task>,
    pub(crate) next: Cell<*const Task>,
    pub(crate) ext: UnsafeCell<Option<Box<Ext>>>,

    pub(crate) ops_granted: AtomicU64,
    /// The job of the innermost `Cx::join` in its frames.
    pub(crate) forks: Cell<*const Job>,
    pub(crate) body: Cell<Option<&'static body::BodyKind>>,
    pub(crate) wait_reason: AtomicU8,
    pub(crate) mail_flag: MailFlag,
    /// The entity that a fair discipline schedules it as, by its number there.
    pub(crate) entity: AtomicU16,
    /// The wakers of the slot, of this task or of earlier ones that were futures.
    pub(crate) wakers: SlotRefs,
    /// What the wakers keep.
    pub(crate) kept: AtomicPtr<Inner>,
    /// The next free slot, or the next task in an inbox.
    pub(crate) link: prim::AtomicPtr<Task>,
    /// Where what it does is noted.
    pub(crate) mark: Mark,
    storage: Storage,
}

// SAFETY: shared fields are atomics or follow the table above; the rest is touched by the holder alone.
unsafe impl Sync for Task {}
// SAFETY: a record is memory of the slab, not of a thread.
unsafe impl Send for Task {}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Task>() == 256);

impl Linked for Task {
    fn link(&self) -> &prim::AtomicPtr<Self> {
        &self.link
    }
}

impl Member for Task {
    fn cancel_flag(&self) -> &prim::AtomicBool {
        &self.cancel
    }

    fn listed(&self) -> &prim::AtomicBool {
        &self.listed
    }

    fn prev(&self) -> &Cell<*const Self> {
        &self.prev
    }

    fn next(&self) -> &Cell<*const Self> {
        &self.next
    }

    fn interrupt_wait(&self) {
        self.wake(Event::Interrupt);
    }
}

impl Task {
    /// An unused slot.
    pub(crate) fn vacant() -> Self {
        Self {
            fuel: AtomicU32::new(0),
            reserve: AtomicU32::new(0),
            state: StateCell::default(),
            cancel: prim::AtomicBool::new(false),
            exhausted: AtomicU8::new(0),
            granted: Granted::new(),
            mask: Mask::none(),
            listed: prim::AtomicBool::new(false),
            scope_failed: AtomicBool::new(false),
            sp: Cell::new(0),
            worker: WorkerCell::none(),
            nursery: AtomicPtr::new(null_mut()),
            body: Cell::new(None),
            home: Home::new(),
            join: JoinCell::new(),
            id: AtomicU64::new(0),
            memory: AtomicUsize::new(0),
            spawn_count: AtomicU16::new(0),
            channel_ops: AtomicU16::new(0),
            syscalls: AtomicU16::new(0),
            live: AtomicBool::new(false),
            own_stack: AtomicBool::new(false),
            stack: AtomicUsize::new(0),
            owned: AtomicPtr::new(null_mut()),
            prev: Cell::new(null()),
            next: Cell::new(null()),
            ext: UnsafeCell::new(None),
            ops_granted: AtomicU64::new(0),
            forks: Cell::new(null()),
            job: Cell::new(null()),
            wait_reason: AtomicU8::new(0),
            mail_flag: MailFlag::new(),
            entity: AtomicU16::new(0),
            wakers: SlotRefs::new(),
            kept: AtomicPtr::new(null_mut()),
            link: prim::AtomicPtr::new(null_mut()),
            mark: Mark::none(),
            storage: Storage(UnsafeCell::new(MaybeUninit::uninit())),
        }
    }

    /// A new task in a slot that the caller alone holds.
    #[inline]
    pub(crate) fn born(&self, id: u64, nursery: *const NurseryCore, budget: Budget, has_handle: bool) {
        // SAFETY: the caller alone holds the slot.
        unsafe { *self.ext.get() = None };
        self.mail_flag.reset();
        self.set_budget(budget, SLICE);
        self.granted.reset(bits_of(budget));
        // SAFETY: the spawner's nursery, which is open.
        self.state.reset(unsafe { (*nursery).rt() }.config.migrates_started_tasks);
        self.cancel.store(false, Ordering::Relaxed);
        self.exhausted.store(0, Ordering::Relaxed);
        self.mask.set(Masked::NOT);
        self.listed.store(false, Ordering::Relaxed);
        self.scope_failed.store(false, Ordering::Relaxed);
        self.nursery.store(nursery.cast_mut(), Ordering::Relaxed);
        self.join.reset(has_handle);
        self.id.store(id, Ordering::Relaxed);
        self.stack.store(0, Ordering::Relaxed);
        self.owned.store(null_mut(), Ordering::Relaxed);
        self.forks.set(null());
        self.ops_granted.store(budget.ops.into(), Ordering::Relaxed);
        self.live.store(true, Ordering::Release);
    }

    #[inline]
    fn set_budget(&self, budget: Budget, slice: u32) {
        let fuel = budget.ops.min(slice);
        self.fuel.store(fuel, Ordering::Relaxed);
        self.reserve.store(budget.ops - fuel, Ordering::Relaxed);
        self.memory.store(budget.memory, Ordering::Relaxed);
        self.spawn_count.store(budget.spawn_count, Ordering::Relaxed);
        self.channel_ops.store(budget.channel_ops, Ordering::Relaxed);
        self.syscalls.store(budget.syscalls, Ordering::Relaxed);
    }

    /// What is left.
    #[inline]
    pub(crate) fn budget(&self) -> Budget {
        Budget {
            ops: self.ops(),
            memory: self.memory.load(Ordering::Relaxed),
            spawn_count: self.spawn_count.load(Ordering::Relaxed),
            channel_ops: self.channel_ops.load(Ordering::Relaxed),
            syscalls: self.syscalls.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn ops_used(&self) -> u64 {
        self.ops_granted.load(Ordering::Relaxed).saturating_sub(self.ops().into())
    }

    #[inline]
    pub(crate) fn ops(&self) -> u32 {
        // Another thread may read one of them before the holder moves some to the other, and the other after that.
        self.fuel.load(Ordering::Relaxed).saturating_add(self.reserve.load(Ordering::Relaxed))
    }

    /// Its budget was set by its spawner. The task is not published yet.
    pub(crate) fn bound_budget(&self) {
        self.granted.add(BOUND);
    }

    /// Whether its budget was set by its spawner.
    pub(crate) fn has_bound_budget(&self) -> bool {
        self.granted.bits() & BOUND != 0
    }

    /// Replaces the budget; the holder only. Components that have something again are no longer exhausted. The slice gets no
    /// longer, so that no sequence of calls that change the budget puts off the end of a quantum.
    pub(crate) fn write_budget(&self, budget: Budget) {
        self.set_budget(budget, self.fuel.load(Ordering::Relaxed));
        let now = bits_of(budget);
        self.granted.add(now);
        self.exhausted.store(self.exhausted.load(Ordering::Relaxed) & !now, Ordering::Relaxed);
    }

    /// The budget is this from here on, as that of a new task is: only what is in it counts as granted. Says how much of `slice` it
    /// begins with. The holder only.
    #[inline]
    pub(crate) fn begin_budget(&self, budget: Budget, slice: u32) -> u32 {
        self.set_budget(budget, slice);
        self.granted.reset(bits_of(budget) | BOUND);
        self.exhausted
            .store(self.exhausted.load(Ordering::Relaxed) & (STOPPED | HAS_QUOTA), Ordering::Relaxed);
        self.ops_granted.store(budget.ops.into(), Ordering::Relaxed);
        budget.ops.min(slice)
    }

    /// Takes all that is left of the budget. The holder only.
    #[inline]
    pub(crate) fn take_budget(&self) -> Budget {
        let left = self.budget();
        self.set_budget(Budget::ZERO, 0);
        left
    }

    /// Whether it has rare fields. The task itself only, and only if no other thread gives it any.
    #[inline]
    pub(crate) fn has_ext(&self) -> bool {
        // SAFETY: the caller says that no other thread writes the field.
        unsafe { (*self.ext.get()).is_some() }
    }

    /// Charges `n` ops if the slice has them, and says what is left of it.
    #[inline(always)]
    pub(crate) fn charge_slice(&self, n: u32) -> Option<u32> {
        let left = self.fuel.load(Ordering::Relaxed).checked_sub(n)?;
        self.fuel.store(left, Ordering::Relaxed);
        Some(left)
    }

    /// Charges `n` ops and takes the next slice, if the task was not interrupted and may go on: what nearly every slow
    /// check comes to, in a few instructions.
    pub(crate) fn next_slice(&self, n: u32) -> Option<u32> {
        let left = self.ops().checked_sub(n)?;
        if left < SLICE || self.exhausted.load(Ordering::Relaxed) != 0 || self.is_interrupted() {
            return None;
        }
        let slice = self.worker().next_slice()?;
        self.fuel.store(slice, Ordering::Relaxed);
        self.reserve.store(left - slice, Ordering::Relaxed);
        Some(slice)
    }

    /// Ops until a running task looks up.
    pub(crate) fn slice_ops(&self) -> u32 {
        self.nursery().rt().config.slice_ops()
    }

    /// At its start the task was given a whole slice; its first may be smaller.
    #[inline]
    pub(crate) fn trim_slice(&self, interval: u32) {
        if self.fuel.load(Ordering::Relaxed) > interval {
            let ops = self.ops();
            self.fuel.store(interval, Ordering::Relaxed);
            self.reserve.store(ops - interval, Ordering::Relaxed);
        }
    }

    /// Makes the next check take its slow path.
    pub(crate) fn force_slow_check(&self) {
        let ops = self.ops();
        self.reserve.store(ops, Ordering::Relaxed);
        self.fuel.store(0, Ordering::Relaxed);
    }

    /// Brings the next slow check nearer, as if `n` more ops had been used. None are: an op is an op, but a system call or the
    /// first touch of much memory takes the time of many, and timers wait meanwhile.
    #[inline]
    pub(crate) fn look_up_sooner(&self, n: u32) {
        let fuel = self.fuel.load(Ordering::Relaxed);
        let moved = fuel.min(n);
        self.fuel.store(fuel - moved, Ordering::Relaxed);
        self.reserve.store(self.reserve.load(Ordering::Relaxed) + moved, Ordering::Relaxed);
    }

    /// About how much of its first slice a task that ends has used.
    #[inline]
    pub(crate) fn slice_used(&self) -> u32 {
        let first = self.ops_granted.load(Ordering::Relaxed).min(SLICE.into()) as u32;
        first.saturating_sub(self.fuel.load(Ordering::Relaxed))
    }

    /// It is bound to a quota: its first check asks that. The task is not published yet.
    pub(crate) fn bind_quota(&self) {
        self.exhausted.store(self.exhausted.load(Ordering::Relaxed) | HAS_QUOTA, Ordering::Relaxed);
        self.force_slow_check();
    }

    /// Whether it is bound to a quota.
    #[inline(always)]
    pub(crate) fn has_quota(&self) -> bool {
        self.exhausted.load(Ordering::Relaxed) & HAS_QUOTA != 0
    }

    pub(crate) fn mark_exhausted(&self, component: Component) {
        self.exhausted
            .store(self.exhausted.load(Ordering::Relaxed) | 1 << component as u8, Ordering::Relaxed);
        self.force_slow_check();
    }

    /// The task is about to be unwound for a stop. True if it was before, and went on.
    pub(crate) fn mark_stopped(&self) -> bool {
        let bits = self.exhausted.load(Ordering::Relaxed);
        self.exhausted.store(bits | STOPPED, Ordering::Relaxed);
        bits & STOPPED != 0
    }

    /// The stop was for a scope of the task's, which is over.
    pub(crate) fn clear_stopped(&self) {
        self.exhausted.store(self.exhausted.load(Ordering::Relaxed) & !STOPPED, Ordering::Relaxed);
    }

    pub(crate) fn was_granted(&self, component: Component) -> bool {
        self.granted.bits() & 1 << component as u8 != 0
    }

    #[inline]
    pub(crate) fn nursery(&self) -> &NurseryCore {
        // SAFETY: a nursery outlives its tasks: its scope does not end before the last has reported.
        unsafe { &*self.nursery.load(Ordering::Relaxed) }
    }

    #[inline]
    pub(crate) fn worker(&self) -> &Worker {
        // SAFETY: set at each dispatch to the worker that runs the task, which does not go away under it.
        unsafe { &*self.worker.get() }
    }

    /// Whether it has been asked to stop.
    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::SeqCst) || self.nursery().is_cancelled()
    }

    /// Whether what it does is over: it was cancelled, or a nursery around it has failed.
    #[inline]
    pub(crate) fn is_interrupted(&self) -> bool {
        // One branch for both: neither is usual.
        self.cancel.load(Ordering::SeqCst) | self.scope_failed.load(Ordering::SeqCst)
            || self.nursery().is_cancelled()
            || self.fork_is_interrupted()
    }

    /// Whether it is a stolen half of a task that has been asked to stop.
    #[inline]
    pub(crate) fn fork_is_interrupted(&self) -> bool {
        // SAFETY: null, or the job that this task was made for: set before the task is published, and its frame waits for the
        // task.
        unsafe { self.job.get().as_ref() }.is_some_and(Job::is_interrupted)
    }

    pub(crate) fn stack(&self) -> Option<Stack> {
        // SAFETY: the address of the stack that this task holds.
        unsafe { Stack::from_address(self.stack.load(Ordering::Relaxed)) }
    }

    /// Fails the task here if little is left of its stack, rather than the process inside of what follows. The task itself only.
    #[inline(always)]
    pub(crate) fn probe_stack(&self) {
        self.assert_running();
        if let Some(stack) = self.stack() {
            crate::stack::overflow::probe(TaskPtr::of(self), stack);
        }
    }

    /// Whether it is the task that its worker runs. Asked by the task itself, or by code that passes for it: a reference to a
    /// `Cx` or a nursery reaches other tasks of the thread through a scoped thread-local.
    #[inline(always)]
    pub(crate) fn is_current(&self) -> bool {
        std::ptr::eq(self.worker().current.get(), self)
    }

    /// Panics unless it is the task that runs. Nothing has changed by then. Its worker.
    #[inline(always)]
    pub(crate) fn assert_running(&self) -> &Worker {
        let worker = self.worker();
        if !std::ptr::eq(worker.current.get(), self) {
            self.refuse_for_another();
        }
        worker
    }

    #[cold]
    #[inline(never)]
    fn refuse_for_another(&self) -> ! {
        let id = self.id.load(Ordering::Relaxed);
        panic!(
            "a Cx or Nursery of task {id} was used while that task does not run: each task uses the Cx that it was given, and \
             destructors that the runtime calls use none"
        );
    }

    /// Whether it has frames on a stack. A future that waits has none, as a task that was never dispatched.
    #[inline(always)]
    pub(crate) fn is_started(&self) -> bool {
        self.state.has_frames()
    }

    /// Whether it must go on on its worker's thread.
    #[inline(always)]
    pub(crate) fn is_pinned(&self) -> bool {
        self.state.is_pinned()
    }

    /// The rare fields, made if there were none.
    ///
    /// # Safety
    ///
    /// The caller holds the nursery's lock, or the task is not yet published.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn ext_mut(&self) -> &mut Ext {
        // SAFETY: as the caller promises, no other thread uses it now.
        unsafe { (*self.ext.get()).get_or_insert_default() }
    }

    /// Notes why the frames of the task are lost.
    pub(crate) fn set_lost(&self, how: crate::worker::finish::Lost) {
        if matches!(how, crate::worker::finish::Lost::WorkerPanic) {
            self.exhausted.store(self.exhausted.load(Ordering::Relaxed) | LOST_TO_WORKER, Ordering::Relaxed);
        }
    }

    pub(crate) fn lost_to_worker(&self) -> bool {
        self.exhausted.load(Ordering::Relaxed) & LOST_TO_WORKER != 0
    }

    pub(crate) fn storage(&self) -> *mut u8 {
        self.storage.0.get().cast()
    }

    /// Something that it may wait for has happened; it is queued if it did wait. A canceller sets a flag first, and then
    /// passes the heavy fence: see `StateCell::commit_wait`.
    pub(crate) fn wake(&self, event: Event) {
        // SAFETY: the pointer is null or the worker of this thread.
        let worker = unsafe { crate::worker::current().as_ref() };
        let here = worker.map(|worker| &**worker.section_flag());
        // SAFETY: the seats of a runtime live as long as its slots.
        if unsafe { self.state.wake(event, &self.home, here) } == Woken::Queue {
            crate::worker::schedule(Runnable::woken(TaskPtr::of(self)), worker);
        } else {
            observe::note_early_wake(self, worker);
        }
    }
}
