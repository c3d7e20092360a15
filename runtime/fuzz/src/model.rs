//! What was granted and what was promised, kept apart from the runtime's own accounts.

use crate::verdict::violation;
use mainspring::{Budget, Caps, Component, Cost};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// What a task may do, by the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authority {
    /// Live children per nursery, and the most that one of them gets.
    pub spawn: Option<(u32, Budget)>,
    pub budget: Option<Budget>,
    /// How many, and how large.
    pub channel: Option<(u32, u32)>,
    pub executor: bool,
    /// How many contexts, and how much of a worker in millionths.
    pub context: Option<(u32, u32)>,
}

fn less(a: Budget, b: Budget) -> Budget {
    Budget {
        ops: a.ops.min(b.ops),
        memory: a.memory.min(b.memory),
        spawn_count: a.spawn_count.min(b.spawn_count),
        channel_ops: a.channel_ops.min(b.channel_ops),
        syscalls: a.syscalls.min(b.syscalls),
    }
}

fn both<T>(a: Option<T>, b: Option<T>, min: impl FnOnce(T, T) -> T) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(min(a, b)),
        _ => None,
    }
}

impl Authority {
    pub fn of(caps: &Caps) -> Self {
        Self {
            spawn: caps.spawn().map(|cap| (cap.task_limit(), cap.child_budget())),
            budget: caps.budget().map(|cap| cap.limit()),
            channel: caps.channel().map(|cap| (cap.channels(), cap.buffer())),
            executor: caps.executor().is_some(),
            context: caps.context().map(|cap| (cap.contexts(), cap.share_ppm())),
        }
    }

    /// What both allow.
    pub fn and(self, other: Self) -> Self {
        Self {
            spawn: both(self.spawn, other.spawn, |a, b| (a.0.min(b.0), less(a.1, b.1))),
            budget: both(self.budget, other.budget, less),
            channel: both(self.channel, other.channel, |a, b| (a.0.min(b.0), a.1.min(b.1))),
            executor: self.executor && other.executor,
            context: both(self.context, other.context, |a, b| (a.0.min(b.0), a.1.min(b.1))),
        }
    }

    /// What a child gets if its spawner asks for nothing: the rights to draw on the pool and to make contexts are not inherited.
    pub fn usual(self) -> Self {
        Self { budget: None, context: None, ..self }
    }

    /// The capabilities of a task are those that it was given; of a limit that it draws on there may be less.
    pub fn check(self, caps: &Caps, whose: &str) {
        let held = Self::of(caps);
        let limit_is_right = match (held.budget, self.budget) {
            (None, None) => true,
            (Some(held), Some(given)) => given.lacking(&held).is_none(),
            _ => false,
        };
        if held.usual() != self.usual() || held.context != self.context || !limit_is_right {
            violation(format_args!("{whose} holds {held:?}; it was given {self:?}"));
        }
    }
}

/// What tasks have used, by the table in `docs/runtime.md`: at least and at most. They differ by what was interrupted.
#[derive(Debug, Default)]
pub struct Totals {
    least: [AtomicU64; 5],
    most: [AtomicU64; 5],
}

impl Totals {
    /// `spent` was taken from the root.
    pub fn check(&self, component: Component, spent: i128) {
        let (least, most) = (&self.least[component as usize], &self.most[component as usize]);
        let (least, most) = (least.load(Ordering::Relaxed).into(), most.load(Ordering::Relaxed).into());
        // Memory is a total or is given back, as its page says.
        let least = if component == Component::Memory { 0 } else { least };
        if spent < least || spent > most {
            violation(format_args!("{component}: the root lost {spent}; its tasks used {least} to {most}"));
        }
    }
}

/// What one task has used. Goes into the totals when it ends, on every way out.
#[derive(Debug)]
pub struct TaskUse {
    totals: Arc<Totals>,
    least: [Cell<u64>; 5],
    most: [Cell<u64>; 5],
}

fn add(to: &[Cell<u64>; 5], amounts: &Budget) {
    for component in Component::ALL {
        let cell = &to[component as usize];
        cell.set(cell.get() + amounts.get(component));
    }
}

impl TaskUse {
    pub fn new(totals: &Arc<Totals>) -> Self {
        Self { totals: totals.clone(), least: Default::default(), most: Default::default() }
    }

    /// It may be charged from here on.
    pub fn may_cost(&self, cost: Cost) {
        add(&self.most, &cost.amounts());
    }

    /// It was not charged after all.
    pub fn did_not_cost(&self, cost: Cost) {
        for component in Component::ALL {
            let cell = &self.most[component as usize];
            cell.set(cell.get() - cost.amounts().get(component));
        }
    }

    /// It was charged.
    pub fn did_cost(&self, cost: Cost) {
        add(&self.least, &cost.amounts());
    }
}

impl Drop for TaskUse {
    fn drop(&mut self) {
        for i in 0..5 {
            self.totals.least[i].fetch_add(self.least[i].get(), Ordering::Relaxed);
            self.totals.most[i].fetch_add(self.most[i].get(), Ordering::Relaxed);
        }
    }
}

/// A nursery, by the model.
#[derive(Debug)]
pub struct Scope {
    around: Option<Arc<Scope>>,
    /// What becomes of the task that opened it.
    owner: Option<Arc<Fate>>,
    /// Its children are given enough for all they do.
    pub is_ample: bool,
    has_deadline: bool,
    /// A child that fails does not take the others with it.
    isolates: bool,
    /// A task cancels it, or is about to; or a child fails.
    may_cancel: AtomicBool,
    /// Children that failed: set before they do.
    failed: AtomicU32,
    /// A destructor of a child's values panics: that may count as its failure.
    pub explosive: AtomicBool,
    started: AtomicU32,
    ended: AtomicU32,
    /// What children captured or returned and has not been dropped.
    held: AtomicU32,
}

impl Scope {
    /// A nursery of a host thread: no outer nursery cancels it.
    pub fn at_root(is_ample: bool) -> Arc<Self> {
        Self::new(None, None, is_ample, false, false)
    }

    /// A nursery that `owner` opens, itself a child of `around`.
    pub fn inside(around: &Arc<Self>, owner: Option<&Life>, is_ample: bool, has_deadline: bool) -> Arc<Self> {
        Self::new(Some(around.clone()), owner.map(|life| life.fate.clone()), is_ample, has_deadline, false)
    }

    /// As [`Scope::inside`], of a nursery whose children fail alone.
    pub fn isolating(around: &Arc<Self>, owner: Option<&Life>) -> Arc<Self> {
        Self::new(Some(around.clone()), owner.map(|life| life.fate.clone()), true, false, true)
    }

    fn new(
        around: Option<Arc<Self>>,
        owner: Option<Arc<Fate>>,
        is_ample: bool,
        has_deadline: bool,
        isolates: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            around,
            owner,
            is_ample,
            has_deadline,
            isolates,
            may_cancel: AtomicBool::new(false),
            failed: AtomicU32::new(0),
            explosive: AtomicBool::new(false),
            started: AtomicU32::new(0),
            ended: AtomicU32::new(0),
            held: AtomicU32::new(0),
        })
    }

    pub fn will_cancel(&self) {
        self.may_cancel.store(true, Ordering::SeqCst);
    }

    pub fn will_fail(&self) {
        if !self.isolates {
            self.failed.fetch_add(1, Ordering::SeqCst);
            self.will_cancel();
        }
    }

    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst) > 0
    }

    /// Whether a child may find itself cancelled.
    pub fn cancels(&self) -> bool {
        self.has_deadline
            || !self.is_ample
            || self.explosive.load(Ordering::SeqCst)
            || self.may_cancel.load(Ordering::SeqCst)
            || self.owner.as_ref().is_some_and(|owner| owner.cancelled.load(Ordering::SeqCst))
            || self.around.as_ref().is_some_and(|around| around.cancels())
    }

    /// The nursery has returned: no child is left, and nothing that a child owned.
    pub fn is_over(&self) {
        let (started, ended) = (self.started.load(Ordering::SeqCst), self.ended.load(Ordering::SeqCst));
        if started != ended {
            violation(format_args!(
                "a nursery returned with {} of {started} children alive",
                started - ended
            ));
        }
        let held = self.held.load(Ordering::SeqCst);
        if held != 0 {
            violation(format_args!("a nursery returned while {held} values of its children were alive"));
        }
    }
}

/// Checks a scope on every way out of it.
pub struct ScopeEnd(pub Arc<Scope>);

impl Drop for ScopeEnd {
    fn drop(&mut self) {
        self.0.is_over();
    }
}

/// Something that a child of a scope owns.
#[derive(Debug)]
pub struct Held(Arc<Scope>);

impl Held {
    pub fn by(scope: &Arc<Scope>) -> Self {
        scope.held.fetch_add(1, Ordering::SeqCst);
        Self(scope.clone())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::SeqCst);
    }
}

/// How far a child has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    NotStarted,
    Running,
    Returned,
    Panicked,
    Failed,
    /// It unwound, and not by itself.
    Stopped,
    /// It needed more stack than it had.
    Overflowed,
}

/// What becomes of a child.
#[derive(Debug)]
pub struct Fate {
    stage: AtomicU8,
    /// The slot of the value that it returned.
    pub result: AtomicU32,
    /// Its handle was told to cancel, or will be.
    pub cancelled: AtomicBool,
    /// A destructor of what it owns panics.
    pub explosive: bool,
}

impl Fate {
    pub fn new(explosive: bool) -> Arc<Self> {
        Arc::new(Self {
            stage: AtomicU8::new(Stage::NotStarted as u8),
            result: AtomicU32::new(u32::MAX),
            cancelled: AtomicBool::new(false),
            explosive,
        })
    }

    pub fn stage(&self) -> Stage {
        const ALL: [Stage; 7] = [
            Stage::NotStarted,
            Stage::Running,
            Stage::Returned,
            Stage::Panicked,
            Stage::Failed,
            Stage::Stopped,
            Stage::Overflowed,
        ];
        ALL[self.stage.load(Ordering::SeqCst) as usize]
    }

    pub fn reach(&self, from: Stage, to: Stage) {
        let was = self.stage.compare_exchange(from as u8, to as u8, Ordering::SeqCst, Ordering::SeqCst);
        if was.is_err() {
            violation(format_args!("a task goes from {:?} to {to:?}", self.stage()));
        }
    }
}

/// From the start of a task's body to its end, on every way out.
pub struct Life {
    scope: Arc<Scope>,
    fate: Arc<Fate>,
}

impl Life {
    pub fn begin(scope: &Arc<Scope>, fate: &Arc<Fate>) -> Self {
        scope.started.fetch_add(1, Ordering::SeqCst);
        fate.reach(Stage::NotStarted, Stage::Running);
        Self { scope: scope.clone(), fate: fate.clone() }
    }

    pub fn returns(&self, slot: u32) {
        self.fate.result.store(slot, Ordering::SeqCst);
        self.fate.reach(self.so_far(), Stage::Returned);
    }

    /// Both halves of a join may: the first to get here counts. Nothing that stops the other half hides it.
    pub fn panics(&self) {
        self.scope.will_fail();
        if matches!(self.fate.stage(), Stage::Running | Stage::Overflowed) {
            let (from, to) = (self.fate.stage() as u8, Stage::Panicked as u8);
            let _ = self.fate.stage.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// Unless it is cancelled on the way down.
    pub fn overflows(&self) {
        self.scope.explosive.store(true, Ordering::SeqCst);
        self.fate.reach(self.so_far(), Stage::Overflowed);
    }

    pub fn fails(&self) {
        self.scope.will_fail();
        self.fate.reach(self.so_far(), Stage::Failed);
    }

    /// What a task is at whose end is near.
    fn so_far(&self) -> Stage {
        match self.fate.stage() {
            // A nursery that failed interrupted the recursion.
            Stage::Overflowed => Stage::Overflowed,
            _ => Stage::Running,
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        if self.fate.stage() == Stage::Running {
            self.fate.reach(Stage::Running, Stage::Stopped);
        }
        self.scope.ended.fetch_add(1, Ordering::SeqCst);
    }
}
