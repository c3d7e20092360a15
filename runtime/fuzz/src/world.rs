//! What the tasks of a run share, and a task's own place in it.

use crate::acts::{Act, Calls, Leases, Pending, Time};
use crate::line::Line;
use crate::model::{Authority, Life, Scope, TaskUse, Totals};
use crate::options::{Mutant, Options};
use crate::setting::Setting;
use crate::verdict::{self, violation};
use mainspring::sync::{Barrier, Condvar, Mutex, Notify, Once, RwLock, Semaphore};
use mainspring::{Budget, Component, Cost, Cx, Parker, Pool, Quota};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Waker;

/// What a host thread is asked to do.
pub type Job = Box<dyn FnOnce() + Send>;

/// Where tasks wait for each other, inside of a lock and at a barrier.
pub struct Meeting {
    pub number: Mutex<u64>,
    pub changed: Condvar,
    pub barrier: Barrier,
    /// Tasks that are in the lock.
    pub inside: AtomicI64,
}

/// A pair of numbers that are equal whenever the lock is free.
#[derive(Debug, Default)]
pub struct Twins(pub u64, pub u64);

pub struct World {
    pub options: Options,
    pub setting: Setting,
    pub totals: Arc<Totals>,
    acts_left: AtomicI64,
    tasks_left: AtomicI64,
    connections_left: AtomicI64,
    threads_left: AtomicI64,
    next_uid: AtomicU64,
    pub lines: Vec<Line>,
    pub parkers: Vec<Parker>,
    pub mutexes: Vec<Mutex<Twins>>,
    pub rwlock: RwLock<Twins>,
    pub notify: Notify,
    pub meeting: Meeting,
    pub semaphores: Vec<(Semaphore, AtomicI64)>,
    pub onces: Vec<(Once<u64>, AtomicU64)>,
    pub std_mutex: std::sync::Mutex<Twins>,
    /// Wakers of waits that may be over.
    pub stale: std::sync::Mutex<Vec<Waker>>,
    pub long_roots: AtomicU64,
    /// Spawns by host threads.
    pub root_spawns: AtomicU64,
    pub hosts: Vec<mpsc::Sender<Job>>,
    pub endpoints: Vec<Calls>,
    /// Calls that another task than the one that took them answers.
    pub pending: std::sync::Mutex<Vec<Pending>>,
    pub time: Time,
    pub quotas: Vec<Quota>,
    pub leases: Leases,
}

impl World {
    pub fn new(
        options: &Options,
        setting: &Setting,
        lines: Vec<Line>,
        hosts: Vec<mpsc::Sender<Job>>,
        endpoints: Vec<Calls>,
        quotas: Vec<Quota>,
    ) -> Self {
        Self {
            options: options.clone(),
            setting: setting.clone(),
            totals: Arc::default(),
            acts_left: AtomicI64::new(options.acts as i64),
            tasks_left: AtomicI64::new((options.acts / 4).max(2) as i64),
            connections_left: AtomicI64::new(2),
            threads_left: AtomicI64::new(8),
            next_uid: AtomicU64::new(0),
            lines,
            parkers: (0..3).map(|_| Parker::default()).collect(),
            mutexes: (0..2).map(|_| Mutex::new(Twins::default())).collect(),
            rwlock: RwLock::new(Twins::default()),
            notify: Notify::new(),
            meeting: Meeting {
                number: Mutex::new(0),
                changed: Condvar::new(),
                barrier: Barrier::new(2),
                inside: AtomicI64::new(0),
            },
            semaphores: (0..2).map(|_| (Semaphore::new(3), AtomicI64::new(3))).collect(),
            onces: (0..3).map(|_| (Once::new(), AtomicU64::new(0))).collect(),
            std_mutex: std::sync::Mutex::default(),
            stale: std::sync::Mutex::default(),
            long_roots: AtomicU64::new(0),
            root_spawns: AtomicU64::new(0),
            hosts,
            endpoints,
            pending: std::sync::Mutex::default(),
            time: Time::default(),
            quotas,
            leases: Leases::default(),
        }
    }

    /// Whether that is not left out.
    pub fn has(&self, act: Act) -> bool {
        !self.options.without.contains(&act)
    }

    fn take(counter: &AtomicI64) -> bool {
        counter.fetch_sub(1, Ordering::Relaxed) > 0
    }

    /// One act more, if any is left.
    pub fn take_act(&self) -> bool {
        let may = Self::take(&self.acts_left);
        if may {
            verdict::count_act();
        }
        may
    }

    /// Acts inside of an act that is under way: it is brought to its end whatever is left.
    pub fn count_act(&self) {
        self.acts_left.fetch_sub(1, Ordering::Relaxed);
        verdict::count_act();
    }

    pub fn is_over(&self) -> bool {
        self.acts_left.load(Ordering::Relaxed) <= 0
    }

    pub fn take_task(&self) -> bool {
        Self::take(&self.tasks_left)
    }

    pub fn take_connection(&self) -> bool {
        Self::take(&self.connections_left)
    }

    pub fn take_thread(&self) -> bool {
        Self::take(&self.threads_left)
    }

    pub fn uid(&self) -> u64 {
        self.next_uid.fetch_add(1, Ordering::Relaxed)
    }
}

/// The thread that this runs on, as the operating system sees it.
#[inline(never)]
pub fn thread_here() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static MINE: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    std::hint::black_box(MINE.with(|mine| *mine))
}

/// How often a task has looked on this thread.
#[inline(never)]
fn looks(more: u64) -> u64 {
    thread_local! {
        static LOOKS: Cell<u64> = const { Cell::new(0) };
    }
    LOOKS.set(LOOKS.get() + more);
    LOOKS.get()
}

/// What the halves of a join may use together, by the model: never more than their task has left.
#[derive(Debug)]
pub struct Allowance([AtomicU64; 5]);

impl Allowance {
    fn of(budget: Budget) -> Arc<Self> {
        Arc::new(Self(Component::ALL.map(|component| AtomicU64::new(budget.get(component)))))
    }

    /// Takes twice the cost of something and one more, if there is so much.
    fn take(&self, cost: Budget) -> bool {
        Component::ALL.into_iter().all(|component| {
            let most = reserve(cost, component);
            let take = |left: u64| left.checked_sub(most);
            self.0[component as usize].fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok()
        })
    }

    fn shrink(&self, left: impl Fn(Component, u64) -> u64) {
        for component in Component::ALL {
            let shrink = |now: u64| Some(left(component, now));
            let _ = self.0[component as usize].fetch_update(Ordering::SeqCst, Ordering::SeqCst, shrink);
        }
    }
}

/// What a task must have before it spends `cost`.
fn reserve(cost: Budget, component: Component) -> u64 {
    2 * cost.get(component) + u64::from(cost.get(component) > 0)
}

/// A task, or one half of a join: what the model knows of it.
pub struct Me<'w> {
    pub world: &'w World,
    pub scope: Arc<Scope>,
    pub life: Option<&'w Life>,
    pub authority: Authority,
    pub used: TaskUse,
    /// No other task changes its budget, which is known to the last op.
    pub is_exact: bool,
    pub depth: u32,
    pub is_half: bool,
    thread: u64,
    /// Looks so far. Only this task counts them.
    turns: AtomicU64,
    granted: Budget,
    pub uid: u64,
    number: Cell<u64>,
    pub seen: RefCell<Vec<(usize, u64, u64)>>,
    pub channels_made: Cell<u32>,
    /// Halves of its joins may have used what is counted per task.
    pub has_joined: Cell<bool>,
    /// It was given a pool for its nurseries, or supervises: what they leave may be more than it was granted.
    pub has_pool: Cell<bool>,
    pub recharged: Cell<[u64; 5]>,
    /// Its cleanup runs, on a budget that is not its own.
    pub cleans_up: Cell<bool>,
    /// The nurseries that it has open.
    pub open: RefCell<Vec<Arc<Scope>>>,
    /// It is bound to a context.
    pub on_context: Cell<bool>,
    /// It is bound to a quota.
    pub has_quota: Cell<bool>,
    /// It may hold a context that was lent to it.
    pub may_be_lent: Cell<bool>,
    /// Acts inside of acts, on its stack.
    nested: Cell<u32>,
    /// Of a half.
    allowance: Option<Arc<Allowance>>,
}

/// Acts inside of acts that fit on a stack, with the largest frames of any.
const NESTED: u32 = 8;

/// One level of acts, until it is dropped.
pub struct Level<'a>(&'a Cell<u32>);

impl Drop for Level<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl<'w> Me<'w> {
    /// At the start of a task's body.
    pub fn begin(
        cx: &Cx,
        world: &'w World,
        scope: &Arc<Scope>,
        life: Option<&'w Life>,
        authority: Authority,
        is_exact: bool,
        depth: u32,
    ) -> Self {
        let me = Self {
            world,
            scope: scope.clone(),
            life,
            authority,
            used: TaskUse::new(&world.totals),
            is_exact,
            depth,
            is_half: false,
            thread: thread_here(),
            turns: AtomicU64::new(0),
            granted: cx.budget(),
            uid: world.uid(),
            number: Cell::new(0),
            seen: RefCell::default(),
            channels_made: Cell::new(0),
            has_joined: Cell::new(false),
            has_pool: Cell::new(false),
            recharged: Cell::default(),
            cleans_up: Cell::new(false),
            open: RefCell::default(),
            on_context: Cell::new(false),
            has_quota: Cell::new(false),
            may_be_lent: Cell::new(false),
            nested: Cell::new(0),
            allowance: None,
        };
        me.look(cx);
        authority.check(&cx.caps(), "a task");
        me
    }

    /// At the start of a half of a join of `self`, wherever it runs.
    pub fn half(cx: &Cx, of: &Origin<'w>) -> Self {
        let mut me = Self::begin(cx, of.world, &of.scope, of.life, of.authority, false, of.depth + 1);
        me.is_half = true;
        me.granted = of.granted;
        me.open = RefCell::new(of.open.clone());
        me.cleans_up.set(of.cleans_up);
        me.nested.set(of.nested);
        me.on_context.set(of.on_context);
        me.may_be_lent.set(of.may_be_lent);
        me.has_quota.set(of.has_quota);
        me.allowance = Some(of.allowance.clone());
        me
    }

    /// What interrupts a nursery that it opens: the one that it has open, or the one that it is a child of.
    pub fn around(&self) -> Arc<Scope> {
        self.open.borrow().last().unwrap_or(&self.scope).clone()
    }

    /// What the halves of a join that it forks may use.
    pub fn allowance(&self, cx: &Cx) -> Arc<Allowance> {
        self.allowance.clone().unwrap_or_else(|| Allowance::of(cx.budget()))
    }

    /// A nursery takes its pool: so much, or half of what there is.
    pub fn endow(&self, pool: Option<&Pool>) {
        if let Some(allowance) = &self.allowance {
            allowance.shrink(|component, left| match pool {
                Some(pool) => left.saturating_sub(pool.get(component)),
                None if component == Component::SpawnCount => 0,
                None => left / 2,
            });
        }
    }

    pub fn origin(&self, allowance: &Arc<Allowance>) -> Origin<'w> {
        Origin {
            allowance: allowance.clone(),
            world: self.world,
            scope: self.scope.clone(),
            life: self.life,
            authority: self.authority,
            depth: self.depth,
            granted: self.granted,
            open: self.open.borrow().clone(),
            cleans_up: self.cleans_up.get(),
            nested: self.nested.get(),
            on_context: self.on_context.get(),
            may_be_lent: self.may_be_lent.get(),
            has_quota: self.has_quota.get(),
        }
    }

    /// One level of acts more, if the stack has room for it.
    pub fn nest(&self) -> Option<Level<'_>> {
        (self.nested.get() < NESTED).then(|| {
            self.nested.set(self.nested.get() + 1);
            Level(&self.nested)
        })
    }

    /// How often any task has looked on this thread: it stays the same for as long as this task runs alone.
    pub fn looks_here(&self) -> u64 {
        looks(0)
    }

    /// After every yield point: what holds for a task that runs.
    pub fn look(&self, _cx: &Cx) {
        looks(1);
        let told = self.thread + u64::from(self.world.options.mutant == Some(Mutant::Thread));
        if told != thread_here() && !self.world.options.may_move {
            violation("a started task goes on on another thread");
        }
        if std::thread::panicking() {
            violation("a task runs on a thread that is panicking");
        }
        let turn = self.turns.fetch_add(1, Ordering::SeqCst) + 1;
        std::hint::spin_loop();
        if self.turns.load(Ordering::SeqCst) != turn {
            violation("two threads run one task");
        }
    }

    pub fn number(&self) -> u64 {
        self.number.set(self.number.get() + 1);
        self.number.get()
    }

    pub fn was_granted(&self, component: Component) -> bool {
        self.granted.get(component) > 0 || self.recharged.get()[component as usize] > 0
    }

    /// It must be refused: it was granted none, and no other task can have given it any.
    pub fn has_none(&self, component: Component) -> bool {
        let a_half_may_recharge = self.has_joined.get() && self.authority.budget.is_some();
        self.is_exact && !self.was_granted(component) && !a_half_may_recharge && !self.has_pool.get()
    }

    /// Whether it may use that much: tasks that are to have enough keep within what they have.
    pub fn affords(&self, cx: &Cx, cost: Budget) -> bool {
        if !self.scope.is_ample {
            return true;
        }
        match &self.allowance {
            Some(allowance) => allowance.take(cost),
            None => Component::ALL.into_iter().all(|c| cx.budget().get(c) >= reserve(cost, c)),
        }
    }

    pub fn may_cost(&self, cost: Cost) {
        self.used.may_cost(cost);
    }

    pub fn did_cost(&self, cost: Cost) {
        if !self.cleans_up.get() {
            self.used.did_cost(cost);
        }
    }

    /// An act that costs this much if it is `charged`, and nothing or an op otherwise.
    pub fn paid<R>(
        &self,
        cx: &Cx,
        cost: Cost,
        act: impl FnOnce() -> R,
        charged: impl FnOnce(&R) -> bool,
    ) -> R {
        self.world.count_act();
        if self.world.options.mutant != Some(Mutant::Unpaid) {
            self.may_cost(cost);
        }
        let before = cx.budget();
        let result = act();
        self.look(cx);
        if charged(&result) {
            self.did_cost(cost);
            if self.is_exact && !self.cleans_up.get() {
                let after = cx.budget();
                for component in [Component::Ops, Component::ChannelOps, Component::Syscalls] {
                    let (had, has) = (before.get(component), after.get(component));
                    let price = cost.amounts().get(component);
                    if had != has + price {
                        violation(format_args!("{component}: had {had}, paid {price}, has {has}"));
                    }
                }
            }
        }
        result
    }
}

/// What a half of a join knows of the task that forks it.
pub struct Origin<'w> {
    world: &'w World,
    scope: Arc<Scope>,
    life: Option<&'w Life>,
    authority: Authority,
    depth: u32,
    granted: Budget,
    open: Vec<Arc<Scope>>,
    cleans_up: bool,
    nested: u32,
    on_context: bool,
    may_be_lent: bool,
    has_quota: bool,
    allowance: Arc<Allowance>,
}
