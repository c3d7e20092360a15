//! Nurseries and their children.

use super::alone::{MESSAGE, ops};
use super::{Act, future, live};
use crate::ledger::{Kind, Tracked};
use crate::model::{Authority, Fate, Held, Life, Scope, ScopeEnd, Stage};
use crate::options::Mutant;
use crate::rng::Rng;
use crate::setting::Discipline;
use crate::verdict::violation;
use crate::world::{Me, World};
use mainspring::{
    Budget, Caps, ContextError, Cost, Cx, Exhaustion, Handle, LatencyClass, Nursery, NurseryError,
    NurseryOptions, NurseryState, Pool, Priority, Profile, Quota, QuotaError, RechargeError, Runtime,
    Schedule, SchedulingContext, SpawnError, TaskError, TaskState,
};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Panics when it is dropped, unless that would end the process.
#[derive(Debug)]
struct Bomb {
    _value: Tracked,
    is_armed: bool,
}

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.is_armed && !std::thread::panicking() {
            resume_unwind(Box::new(MESSAGE));
        }
    }
}

/// What a child returns.
#[derive(Debug)]
pub struct Parcel {
    value: Tracked,
    _held: Held,
    bomb: Option<Bomb>,
}

impl Parcel {
    pub fn new(scope: &Arc<Scope>) -> Self {
        Self { value: Tracked::new(Kind::Result), _held: Held::by(scope), bomb: None }
    }

    pub fn slot(&self) -> u32 {
        self.value.slot()
    }
}

/// The error of a child.
#[derive(Debug)]
pub struct Fault(#[allow(dead_code)] Tracked);

impl From<Fault> for Box<dyn std::error::Error + Send + Sync> {
    fn from(_: Fault) -> Self {
        "an error of the fuzzer".into()
    }
}

/// A child that has a handle.
pub(super) struct Child<'scope> {
    pub(super) handle: Handle<'scope, Parcel>,
    pub(super) fate: Arc<Fate>,
}

/// How a child is spawned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    Spawn,
    Try,
    Start,
    Future,
}

/// What a spawner asks for a child.
pub(super) struct Ask {
    pub(super) how: How,
    budget: Option<Budget>,
    pool: Option<Pool>,
    caps: Option<(Caps, Authority)>,
    priority: Priority,
    tenant: Option<usize>,
    schedule: Option<Schedule>,
    on_context: bool,
    explosive: bool,
    is_exact: bool,
}

impl Ask {
    pub(super) fn plain(budget: Budget) -> Self {
        Self {
            how: How::Spawn,
            budget: Some(budget),
            pool: None,
            caps: None,
            priority: Priority::Normal,
            tenant: None,
            schedule: None,
            on_context: false,
            explosive: false,
            is_exact: true,
        }
    }

    /// What the pool must have.
    fn price(&self) -> Pool {
        let mut price = Pool { spawn_count: 1, ..Pool::ZERO };
        price.put(&self.pool.unwrap_or(Pool::ZERO));
        price.put(&self.budget.map_or(Pool::ZERO, Pool::from));
        price
    }
}

/// A nursery that is open, by the model.
pub struct OpenNursery<'n, 'scope, 'w: 'scope> {
    pub me: &'n Me<'w>,
    pub(super) n: &'n Nursery<'scope, 'w>,
    pub(super) scope: Arc<Scope>,
    /// What its children may do at most.
    pub(super) authority: Authority,
    /// Children take from the pool by themselves.
    pub(super) refills: bool,
}

/// The nursery is among those that the task has open.
pub(super) struct Opened<'a, 'w>(&'a Me<'w>);

impl<'a, 'w> Opened<'a, 'w> {
    pub(super) fn new(me: &'a Me<'w>, scope: &Arc<Scope>) -> Self {
        me.open.borrow_mut().push(scope.clone());
        Self(me)
    }
}

impl Drop for Opened<'_, '_> {
    fn drop(&mut self) {
        self.0.open.borrow_mut().pop();
    }
}

/// A child's closure: `body` says whether it fails.
pub(super) fn closure<'scope, 'w: 'scope>(
    world: &'w World,
    scope: &Arc<Scope>,
    fate: &Arc<Fate>,
    authority: Authority,
    ask: &Ask,
    depth: u32,
    body: impl FnOnce(&Cx, &Me<'_>) -> bool + Send + 'scope,
) -> impl FnOnce(&Cx) -> Result<Parcel, Fault> + Send + 'scope {
    let capture = (Tracked::new(Kind::Capture), Held::by(scope));
    let bomb = ask.explosive.then(|| Bomb { _value: Tracked::new(Kind::Capture), is_armed: true });
    let (how, is_exact, budget, has_pool) = (ask.how, ask.is_exact, ask.budget, ask.pool.is_some());
    let (scope, fate) = (scope.clone(), fate.clone());
    move |cx: &Cx| {
        let (capture, mut bomb) = (capture, bomb);
        capture.0.check();
        if super::alone::has_local(cx) {
            violation("a child finds a value of its spawner's");
        }
        let life = Life::begin(&scope, &fate);
        if let (Some(budget), true) = (budget, is_exact)
            && cx.budget() != budget
        {
            violation(format_args!("a task starts with {:?}; it was granted {budget:?}", cx.budget()));
        }
        let me = Me::begin(cx, world, &scope, Some(&life), authority, is_exact, depth);
        me.has_pool.set(has_pool);
        me.has_quota.set(cx.quota().is_some());
        let fails = body(cx, &me);
        drop(me);
        capture.0.check();
        if fails && how == How::Try {
            life.fails();
            bomb.iter_mut().for_each(|bomb| bomb.is_armed = false);
            return Err(Fault(Tracked::new(Kind::Error)));
        }
        let mut parcel = Parcel::new(&scope);
        if parcel.slot().is_multiple_of(2) && bomb.is_some() {
            life.panics();
            drop(bomb.take());
            violation("a destructor that panics did not");
        }
        // Or with the result.
        parcel.bomb = bomb;
        life.returns(parcel.slot());
        Ok(parcel)
    }
}

impl<'n, 'scope, 'w: 'scope> OpenNursery<'n, 'scope, 'w> {
    /// A child of a pattern, with enough for what it does. If it is refused, its closure is dropped, and what waits for it
    /// hears of that. False if it is.
    pub fn spawn(&self, cx: &Cx, budget: Budget, body: impl FnOnce(&Cx, &Me<'_>) + Send + 'scope) -> bool {
        self.spawn_child(cx, budget, body).is_some()
    }

    /// As [`OpenNursery::spawn`]: the child, if it is not refused.
    pub(super) fn spawn_child(
        &self,
        cx: &Cx,
        budget: Budget,
        body: impl FnOnce(&Cx, &Me<'_>) + Send + 'scope,
    ) -> Option<Child<'scope>> {
        let (_, most) = self.authority.spawn?;
        if most.lacking(&budget).is_some() || !self.me.world.take_task() {
            return None;
        }
        self.launch(cx, &Ask::plain(budget), None, |cx, me| {
            body(cx, me);
            false
        })
    }

    /// As [`OpenNursery::spawn`], on a context.
    pub fn spawn_on(
        &self,
        cx: &Cx,
        budget: Budget,
        context: &SchedulingContext,
        body: impl FnOnce(&Cx, &Me<'_>) + Send + 'scope,
    ) -> bool {
        let Some((_, most)) = self.authority.spawn else { return false };
        if most.lacking(&budget).is_some() || !self.me.world.take_task() {
            return false;
        }
        let ask = Ask { on_context: true, ..Ask::plain(budget) };
        let child = self.launch(cx, &ask, Some(context), |cx, me| {
            body(cx, me);
            false
        });
        child.is_some()
    }

    pub fn bind_quota(&self, quota: &Quota) -> Result<(), QuotaError> {
        self.n.bind_quota(quota)
    }

    pub fn cancel(&self) {
        self.scope.will_cancel();
        self.n.cancel();
    }

    /// Spawns what is asked for, and checks what comes of it.
    fn launch(
        &self,
        cx: &Cx,
        ask: &Ask,
        context: Option<&SchedulingContext>,
        body: impl FnOnce(&Cx, &Me<'_>) -> bool + Send + 'scope,
    ) -> Option<Child<'scope>> {
        let (me, n) = (self.me, self.n);
        let fate = Fate::new(ask.explosive);
        if ask.explosive {
            self.scope.explosive.store(true, Ordering::SeqCst);
        }
        let mut authority = ask.caps.map_or(self.authority.usual(), |(_, asked)| self.authority.and(asked));
        if me.world.options.mutant == Some(Mutant::Authority) {
            authority.channel = None;
        }
        let (pool, live) = (n.pool(), n.live());
        let mut builder = n.builder().priority(ask.priority).name("fuzz");
        if let Some(budget) = ask.budget {
            builder = builder.budget(budget);
        }
        if let Some(pool) = ask.pool {
            builder = builder.pool(pool);
        }
        if let Some((caps, _)) = ask.caps {
            builder = builder.caps(caps);
        }
        if let Some(tenant) = ask.tenant {
            builder = builder.tenant(tenant);
        }
        if let Some(schedule) = &ask.schedule {
            builder = builder.schedule(schedule.clone());
        }
        if let Some(context) = context {
            builder = builder.context(context);
        }
        let inherits = me.has_quota.get();
        let body = move |cx: &Cx, me: &Me<'_>| {
            if inherits && !me.has_quota.get() {
                violation("a child of a task with a quota has none");
            }
            body(cx, me)
        };
        let f = closure(me.world, &self.scope, &fate, authority, ask, me.depth + 1, body);
        let spawn = Cost::SPAWN;
        me.may_cost(spawn);
        let is_plain = ask.pool.is_none()
            && ask.caps.is_none()
            && ask.tenant.is_none()
            && ask.schedule.is_none()
            && !ask.on_context;
        let is_short = is_plain && ask.budget.is_none() && ask.priority == Priority::Normal;
        let spawn_it = || match ask.how {
            How::Spawn if is_short => n.spawn(move |cx| f(cx).unwrap_or_else(|_| unreachable!())).map(Some),
            How::Spawn => builder.spawn(move |cx| f(cx).unwrap_or_else(|_| unreachable!())).map(Some),
            How::Try if is_short => n.spawn_try(f).map(Some),
            How::Try => builder.spawn_try(f).map(Some),
            How::Start if is_short => n.start(move |cx| drop(f(cx))).map(|()| None),
            How::Start => builder.start(move |cx| drop(f(cx))).map(|()| None),
            How::Future => {
                let used = crate::model::TaskUse::new(&me.world.totals);
                n.spawn_future(future::child(&self.scope, &fate, used)).map(Some)
            }
        };
        let spawned = match catch_unwind(AssertUnwindSafe(spawn_it)) {
            Ok(spawned) => spawned,
            // A refused spawn drops what the child would have had.
            Err(payload) if ask.explosive && is_own(&*payload) => return None,
            Err(payload) => resume_unwind(payload),
        };
        me.look(cx);
        match spawned {
            Ok(handle) => {
                me.did_cost(spawn);
                match (self.authority.spawn, me.authority.spawn) {
                    (Some((_, most)), Some(_)) => {
                        if let Some(over) = ask.budget.and_then(|budget| most.lacking(&budget)) {
                            violation(format_args!("a child gets more than CapSpawn allows: {over:?}"));
                        }
                    }
                    _ => violation("a task without CapSpawn spawns"),
                }
                handle.map(|handle| Child { handle, fate })
            }
            Err(error) => {
                me.used.did_not_cost(spawn);
                self.check_refusal(error, ask, pool, live);
                None
            }
        }
    }

    /// Whether children may take from the pool meanwhile: refills, draws by capability, cleanups.
    fn is_drawn_on(&self) -> bool {
        self.refills || self.authority.budget.is_some() || self.me.world.has(Act::Cleanup)
    }

    pub(super) fn check_refusal(&self, error: SpawnError, ask: &Ask, pool: Pool, live: u64) {
        let (me, authority) = (self.me, self.authority);
        let beyond = match (authority.spawn, ask.budget) {
            (Some((_, most)), Some(budget)) => most.lacking(&budget).is_some(),
            (None, _) => true,
            _ => false,
        };
        let is_right = match error {
            _ if beyond => true,
            SpawnError::NotPermitted => {
                let sovereign = me.world.setting.profile == Profile::Sovereign;
                (sovereign && authority.budget.is_none()) || (ask.how == How::Future && !authority.executor)
            }
            SpawnError::NurseryNotActive => self.n.state() != NurseryState::Open && self.scope.cancels(),
            SpawnError::SpawnBudgetExhausted => pool.spawn_count == 0 || self.is_drawn_on(),
            SpawnError::TaskLimit(limit) => {
                authority.spawn.is_some_and(|(most, _)| most == limit && live >= most.into())
            }
            SpawnError::Pool(_) => self.is_drawn_on() || pool.clone().take(&ask.price()).is_err(),
            SpawnError::OtherTenant(own) => own != 0 && ask.tenant.is_some_and(|tenant| tenant != own),
            SpawnError::Context(ContextError::Revoked(_) | ContextError::Busy) => ask.on_context,
            SpawnError::Ledger(_) | SpawnError::Thread(_) => {
                me.world.setting.discipline == Discipline::ByTask
            }
            _ => false,
        };
        if !is_right {
            violation(format_args!(
                "a spawn with {authority:?}, pool {pool:?}, {live} live children and budget {:?} is refused: {error}",
                ask.budget
            ));
        }
    }

    /// What a child ended with.
    fn joined(&self, fate: &Fate, result: Result<Parcel, TaskError>) {
        check_end(&self.scope, fate, result);
    }
}

/// Whether it is a panic of the fuzzer's own.
fn is_own(payload: &(dyn std::any::Any + Send)) -> bool {
    payload.downcast_ref::<&str>() == Some(&MESSAGE)
}

/// Drops a handle: its child's result goes with it, if that is there, and may panic.
pub(super) fn let_go(Child { handle, fate }: Child<'_>) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(handle)))
        && !(fate.explosive && is_own(&*payload))
    {
        violation("a handle's destructor panics");
    }
}

pub(super) fn check_end(scope: &Scope, fate: &Fate, result: Result<Parcel, TaskError>) {
    let stage = fate.stage();
    let is_right = match &result {
        Ok(parcel) => {
            parcel.value.check();
            stage == Stage::Returned && fate.result.load(Ordering::SeqCst) == parcel.slot()
        }
        Err(TaskError::Panicked(message)) => {
            message.contains(MESSAGE) && (stage == Stage::Panicked || fate.explosive)
        }
        Err(TaskError::Failed(_)) => stage == Stage::Failed,
        Err(TaskError::Cancelled) => {
            (matches!(stage, Stage::NotStarted | Stage::Stopped | Stage::Overflowed) || fate.explosive)
                && (fate.cancelled.load(Ordering::SeqCst) || scope.cancels())
        }
        Err(TaskError::StackOverflow) => stage == Stage::Overflowed,
        Err(TaskError::Unwinding | TaskError::WorkerPanic | TaskError::NoStack | TaskError::Deadlock) => {
            false
        }
        // Out of budget, in one way or another.
        Err(_) => matches!(stage, Stage::NotStarted | Stage::Stopped | Stage::Overflowed) && !scope.is_ample,
    };
    if !is_right {
        let cancels = scope.cancels();
        let result = result.as_ref().map(|parcel| parcel.slot());
        violation(format_args!(
            "a task that is {stage:?} ends with {result:?}; cancelled: {cancels}, {fate:?}, {scope:?}"
        ));
    }
    if let Ok(mut parcel) = result {
        parcel.bomb.iter_mut().for_each(|bomb| bomb.is_armed = false);
    }
}

pub(super) fn check_nursery(scope: &Scope, asked_pool: bool, result: &Result<(), NurseryError>) {
    let is_right = match result {
        Ok(()) => !scope.has_failed(),
        Err(NurseryError { task: None, error: TaskError::Failed(_), .. }) => asked_pool,
        Err(NurseryError { error: TaskError::Failed(_), .. }) => scope.has_failed(),
        Err(NurseryError { error: TaskError::Panicked(message), .. }) => {
            message.contains(MESSAGE) && (scope.has_failed() || scope.explosive.load(Ordering::SeqCst))
        }
        Err(NurseryError { error: TaskError::Cancelled | TaskError::DeadlineExceeded, .. }) => {
            scope.cancels()
        }
        Err(NurseryError { error: TaskError::StackOverflow, .. }) => scope.explosive.load(Ordering::SeqCst),
        Err(NurseryError {
            error: TaskError::Unwinding | TaskError::WorkerPanic | TaskError::NoStack | TaskError::Deadlock,
            ..
        }) => false,
        Err(_) => !scope.is_ample,
    };
    if !is_right {
        violation(format_args!("a nursery ends with {result:?}; failed: {}, {scope:?}", scope.has_failed()));
    }
}

/// A nursery for a pattern: its children are [`OpenNursery::spawn`]ed and have enough.
pub fn with_open_nursery<'w>(
    cx: &Cx,
    me: &Me<'w>,
    rng: &mut Rng,
    body: impl for<'n, 'scope> FnOnce(&Cx, &OpenNursery<'n, 'scope, 'w>, &mut Rng),
) {
    let scope = Scope::inside(&me.around(), me.life, true, false);
    let _end = ScopeEnd(scope.clone());
    let opened = Opened::new(me, &scope);
    me.endow(None);
    let result = cx.nursery_with(NurseryOptions::new().on_exhausted(Exhaustion::Fail), |n| {
        let open = OpenNursery { me, n, scope: scope.clone(), authority: me.authority, refills: false };
        body(cx, &open, rng);
    });
    drop(opened);
    check_nursery(&scope, false, &result);
}

/// Takes something away, or tries to add something: the model knows what should come of it.
fn narrower(rng: &mut Rng, caps: Caps) -> (Caps, Authority) {
    let mut authority = Authority::of(&caps);
    let mut narrow = caps;
    for what in 0..5 {
        if !rng.one_in(5) {
            continue;
        }
        match what {
            0 => (narrow, authority.spawn) = (narrow.without_spawn(), None),
            1 => (narrow, authority.budget) = (narrow.without_budget(), None),
            2 => (narrow, authority.channel) = (narrow.without_channel(), None),
            3 => (narrow, authority.context) = (narrow.without_context(), None),
            _ => (narrow, authority.executor) = (narrow.without_executor(), false),
        }
    }
    if rng.one_in(8) {
        narrow = narrow.attenuate_channel(3, 4);
        authority.channel = authority.channel.map(|(n, size)| (n.min(3), size.min(4)));
    }
    if rng.one_in(12) {
        // What a task can make up is worth no more than what its nursery has.
        narrow = Caps::root(u32::MAX, Budget::MAX, Budget::MAX, u32::MAX, u32::MAX);
        narrow = narrow.with_contexts(u32::MAX, u32::MAX);
        authority = Authority::of(&narrow);
    }
    if rng.one_in(12) {
        narrow = Caps::none();
        authority = Authority { spawn: None, budget: None, channel: None, executor: false, context: None };
    }
    (narrow, authority)
}

/// A part of the pool, as much as a task can hold and its capability allows.
fn part(pool: &Pool, parts: u64, most: &Budget) -> Budget {
    pool.part(parts).narrow().min(*most)
}

/// The least that a child of an ample scope gets.
const ENOUGH: Budget = Budget { ops: 2000, memory: 0, spawn_count: 0, channel_ops: 60, syscalls: 6 };

fn draw_ask(open: &OpenNursery<'_, '_, '_>, cx: &Cx, rng: &mut Rng) -> Option<Ask> {
    let (me, scope) = (open.me, &open.scope);
    let setting = &me.world.setting;
    let (_, most) = open.authority.spawn.unwrap_or((0, Budget::MAX));
    let pool = open.n.pool();
    let ample = part(&pool, 8, &most);
    if scope.is_ample && ample.lacking(&ENOUGH).is_some() {
        return None;
    }
    let tiny = Budget {
        ops: rng.below(120) as u32,
        memory: rng.pick(&[0, 1000]),
        spawn_count: rng.below(6) as u16,
        channel_ops: rng.below(6) as u16,
        syscalls: rng.below(4) as u16,
    };
    let how = match rng.below(10) {
        0..4 => How::Spawn,
        4..7 => How::Try,
        7..9 => How::Start,
        _ => How::Future,
    };
    let mut budget = if scope.is_ample { ample } else { tiny };
    if rng.one_in(12) {
        // More than any child may get, if there is a limit: it must be refused.
        match rng.below(3) {
            0 => budget.ops = most.ops.saturating_add(1),
            1 => budget.channel_ops = most.channel_ops.saturating_add(1),
            _ => budget.syscalls = most.syscalls.saturating_add(1),
        }
    }
    let by_default = how == How::Future || (!scope.is_ample && rng.one_in(4));
    let caps = (how != How::Future && rng.one_in(4)).then(|| narrower(rng, cx.caps()));
    Some(Ask {
        how,
        budget: (!by_default).then_some(budget),
        pool: (how != How::Future && rng.one_in(3)).then(|| pool.part(8)),
        caps,
        priority: if rng.one_in(5) { Priority::High } else { Priority::Normal },
        tenant: (setting.discipline == Discipline::ByTenant && rng.one_in(2))
            .then(|| rng.below(setting.tenants as u64) as usize),
        schedule: (setting.discipline == Discipline::ByTask && rng.one_in(2)).then(|| Schedule {
            class: rng.pick(&[LatencyClass::Interactive, LatencyClass::Normal, LatencyClass::Batch]),
            ..Schedule::default()
        }),
        on_context: false,
        explosive: how != How::Future && rng.one_in(30) && me.world.has(Act::Explosive),
        is_exact: !open.refills && !by_default,
    })
}

/// What a child does with its life.
fn child_body(seed: u64) -> impl FnOnce(&Cx, &Me<'_>) -> bool + Send {
    move |cx, me| {
        let mut rng = Rng::new(seed);
        let acts = rng.below(12);
        live(cx, me, &mut rng, acts);
        rng.one_in(15)
    }
}

/// What happens to children that run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    Ample,
    Fail,
    Cancel,
    Refill,
    /// They wait, and their owner recharges them or cancels the nursery.
    Tended,
    /// They wait for the deadline.
    Deadline,
    /// They wait, and no task can recharge them.
    Silent,
}

pub fn nursery(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let plan = match rng.below(12) {
        0 => Plan::Fail,
        1 => Plan::Cancel,
        2 if me.world.has(Act::Refill) => Plan::Refill,
        3 if me.world.has(Act::Tended) => Plan::Tended,
        4 => Plan::Deadline,
        _ => Plan::Ample,
    };
    open(cx, me, rng, plan);
}

pub fn silent_park(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    if rng.one_in(4) {
        open(cx, me, rng, Plan::Silent);
    }
}

fn open(cx: &Cx, me: &Me<'_>, rng: &mut Rng, plan: Plan) {
    if me.depth >= 4 || me.cleans_up.get() {
        return;
    }
    let refill = Budget { ops: 50, channel_ops: 3, syscalls: 2, ..Budget::ZERO };
    let on_exhausted = match plan {
        Plan::Ample | Plan::Fail => Exhaustion::Fail,
        Plan::Cancel => Exhaustion::Cancel,
        Plan::Refill => Exhaustion::Refill(refill),
        Plan::Tended | Plan::Deadline | Plan::Silent => Exhaustion::Park,
    };
    let mut options = NurseryOptions::new().on_exhausted(on_exhausted);
    let deadline = plan == Plan::Deadline || (plan != Plan::Silent && rng.one_in(8));
    if deadline {
        options = options.deadline(Duration::from_micros(rng.below(600)));
    }
    let mut authority = me.authority;
    if rng.one_in(8) {
        let (caps, asked) = narrower(rng, cx.caps());
        options = options.caps(caps);
        authority = authority.and(asked);
    }
    let asked_pool = rng.one_in(10);
    let pool = Pool { ops: 5000, spawn_count: 4, channel_ops: 100, ..Pool::ZERO };
    if asked_pool {
        options = options.pool(pool);
    }
    me.endow(asked_pool.then_some(&pool));
    let scope = Scope::inside(&me.around(), me.life, plan == Plan::Ample, deadline);
    let _end = ScopeEnd(scope.clone());
    let opened = Opened::new(me, &scope);
    let result = cx.nursery_with(options, |n| {
        let refills = matches!(plan, Plan::Refill | Plan::Tended);
        let open = OpenNursery { me, n, scope: scope.clone(), authority, refills };
        tend(cx, &open, rng, plan);
    });
    drop(opened);
    me.look(cx);
    check_nursery(&scope, asked_pool, &result);
}

/// The body of a nursery.
fn tend<'scope>(cx: &Cx, open: &OpenNursery<'_, 'scope, '_>, rng: &mut Rng, plan: Plan) {
    let (me, n) = (open.me, open.n);
    let mut children: Vec<Child<'scope>> = Vec::new();
    for _ in 0..1 + rng.below(6) {
        let seed = rng.draw();
        if me.world.take_task()
            && let Some(ask) = draw_ask(open, cx, rng)
        {
            children.extend(open.launch(cx, &ask, None, child_body(seed)));
        }
        if rng.one_in(4) && plan != Plan::Silent {
            live(cx, me, rng, 1);
        }
    }
    if me.world.has(Act::TopUp) && rng.one_in(4) {
        top_up(cx, open, rng);
    }
    if plan == Plan::Tended {
        recharge(cx, open, rng, &children);
    }
    if rng.one_in(10) {
        open.cancel();
    }
    if plan != Plan::Tended && plan != Plan::Silent && rng.one_in(8) {
        n.await_all(cx);
        me.look(cx);
    }
    while !children.is_empty() {
        me.world.count_act();
        let child = children.swap_remove(rng.below(children.len() as u64) as usize);
        let handle = &child.handle;
        std::hint::black_box((handle.id(), handle.state(), handle.ops_used(), handle.budget()));
        match rng.below(6) {
            // Left to the nursery.
            0 => let_go(child),
            1 => {
                let Child { handle, fate } = child;
                if me.world.options.mutant != Some(Mutant::Cancel) {
                    fate.cancelled.store(true, Ordering::SeqCst);
                }
                handle.cancel();
                let result = handle.join(cx);
                open.joined(&fate, result);
            }
            // A child that waits for budget is not waited for.
            _ if plan == Plan::Tended || plan == Plan::Silent => let_go(child),
            _ => {
                let Child { handle, fate } = child;
                let result = handle.join(cx);
                open.joined(&fate, result);
            }
        }
        me.look(cx);
    }
    if plan == Plan::Tended {
        open.cancel();
    }
}

/// The owner moves more into the pool: all of it, from somewhere, or nothing.
fn top_up(cx: &Cx, open: &OpenNursery<'_, '_, '_>, rng: &mut Rng) {
    let (me, n) = (open.me, open.n);
    let amount = Pool {
        ops: rng.pick(&[0, 100, 2000, u64::MAX]),
        memory: rng.pick(&[0, 10]),
        spawn_count: rng.pick(&[0, 1]),
        channel_ops: rng.pick(&[0, 5]),
        syscalls: rng.pick(&[0, 2]),
    };
    me.world.count_act();
    me.endow(Some(&amount));
    let (own, before) = (cx.budget(), n.pool());
    let result = n.top_up(amount);
    let (left, after) = (cx.budget(), n.pool());
    me.look(cx);
    for component in mainspring::Component::ALL {
        // What leaves the task's budget goes into the pool. It may come from elsewhere instead.
        let (had, has) = (own.get(component), left.get(component));
        let moved = if result.is_ok() { amount.get(component) } else { 0 };
        if me.is_exact && has != had && had != has.saturating_add(moved) {
            violation(format_args!("{component}: had {had}, moved {moved}, has {has}"));
        }
        // Children only give back meanwhile.
        let expected = before.get(component).saturating_add(moved);
        if !open.is_drawn_on() && after.get(component) < expected {
            violation(format_args!(
                "{component}: the pool has {} after {result:?} to {expected}",
                after.get(component)
            ));
        }
    }
    match result {
        Ok(()) if amount.ops == u64::MAX => violation("a pool was topped up with more than there is"),
        Ok(()) => me.has_pool.set(true),
        Err(RechargeError::Pool(_)) => {}
        Err(error) => violation(format_args!("a top-up is refused: {error}")),
    }
}

/// The owner looks after children that ran out.
fn recharge<'scope>(cx: &Cx, open: &OpenNursery<'_, 'scope, '_>, rng: &mut Rng, children: &[Child<'scope>]) {
    let (me, n) = (open.me, open.n);
    for _ in 0..rng.below(12) {
        me.world.count_act();
        cx.yield_now();
        me.look(cx);
        for Child { handle, .. } in children {
            if handle.state() != TaskState::BudgetExhausted && !rng.one_in(6) {
                continue;
            }
            let amount = Budget { ops: 60, channel_ops: 4, syscalls: 2, ..Budget::ZERO };
            if rng.one_in(3) {
                supervise(cx, open, handle, amount);
                continue;
            }
            let pool = n.pool();
            match n.recharge(handle, amount) {
                Ok(()) | Err(RechargeError::Finished) => {}
                Err(RechargeError::Pool(_))
                    if open.is_drawn_on() || pool.clone().take(&amount.into()).is_err() => {}
                Err(error) => violation(format_args!("a recharge from {pool:?} is refused: {error}")),
            }
        }
    }
}

fn supervise<'scope>(
    cx: &Cx,
    open: &OpenNursery<'_, 'scope, '_>,
    handle: &Handle<'scope, Parcel>,
    amount: Budget,
) {
    let (me, n) = (open.me, open.n);
    let result = n.supervise(cx, handle, amount);
    if result.is_ok() {
        // What the child leaves of it comes to its owner with the nursery's rest.
        me.has_pool.set(true);
    }
    let is_cluster = me.world.setting.profile == Profile::Cluster;
    match (result, me.authority.budget) {
        (Err(RechargeError::NotASupervisor), _) if !is_cluster => {}
        (Ok(()), _) if !is_cluster => violation("a supervisor outside of the cluster profile"),
        (Ok(()), None) => violation("a supervisor without CapBudget"),
        (Ok(()), Some(limit)) if limit.lacking(&amount).is_some() => {
            violation("a supervisor beyond its CapBudget")
        }
        _ => {}
    }
}

/// Tasks at the root, until no act is left.
pub fn run_root(runtime: &Runtime, world: &World, seed: u64) {
    let mut rng = Rng::new(seed);
    for _ in 0..40 {
        if world.is_over() {
            return;
        }
        // In the deterministic mode a host that spawns while tasks run is not part of what replays.
        let may = world.has(Act::HostNursery) && !world.setting.is_deterministic();
        if rng.one_in(4) && may {
            host_nursery(runtime, world, &mut rng);
        } else {
            host_run(runtime, world, &mut rng);
        }
    }
}

fn host_run(runtime: &Runtime, world: &World, rng: &mut Rng) {
    // Several roots may hold all of a small pool between them for a while.
    let scope = Scope::at_root(world.setting.roots == 1 || world.setting.pool == Pool::AMPLE);
    let fate = Fate::new(false);
    let (mut own, limit) = (rng.fork(), 20 + rng.below(200));
    let (scope_ref, fate_ref) = (&scope, &fate);
    world.root_spawns.fetch_add(1, Ordering::Relaxed);
    let result = runtime.run(move |cx| {
        let capture = Tracked::new(Kind::Capture);
        let life = Life::begin(scope_ref, fate_ref);
        let me = Me::begin(cx, world, scope_ref, Some(&life), world.setting.authority, false, 0);
        if world.options.mutant == Some(Mutant::Leak) {
            std::mem::forget(Tracked::new(Kind::Local));
        }
        for _ in 0..limit {
            if world.is_over() {
                break;
            }
            live(cx, &me, &mut own, 10);
        }
        capture.check();
        let parcel = Parcel::new(scope_ref);
        life.returns(parcel.slot());
        parcel
    });
    if let Err(TaskError::Failed(error)) = &result {
        violation(format_args!("a root task is refused: {error}"));
    }
    check_end(&scope, &fate, result);
    scope.is_over();
}

/// A nursery of an ordinary thread.
fn host_nursery(runtime: &Runtime, world: &World, rng: &mut Rng) {
    let scope = Scope::at_root(true);
    let root = runtime.root_pool();
    let pool = root.part(4 * world.setting.roots as u64);
    let enough = Pool::from(ENOUGH).part(1);
    if pool.clone().take(&enough).is_err() || pool.spawn_count < 10 {
        return host_run(runtime, world, rng);
    }
    let options = NurseryOptions::new().pool(pool).on_exhausted(Exhaustion::Fail);
    let result = runtime.nursery(options, |n| {
        let mut children = Vec::new();
        for _ in 0..1 + rng.below(4) {
            let mut ask =
                Ask::plain(part(&n.pool(), 4, &world.setting.authority.spawn.map_or(Budget::MAX, |s| s.1)));
            ask.how = How::Try;
            ask.is_exact = true;
            let fate = Fate::new(false);
            let authority = world.setting.authority.usual();
            let f = closure(world, &scope, &fate, authority, &ask, 1, child_body(rng.draw()));
            let spawned =
                n.builder().budget(ask.budget.unwrap_or_default()).pool(n.pool().part(4)).spawn_try(f);
            match spawned {
                Ok(handle) => {
                    world.root_spawns.fetch_add(1, Ordering::Relaxed);
                    children.push(Child { handle, fate });
                }
                Err(SpawnError::NurseryNotActive) if scope.cancels() => {}
                Err(SpawnError::Thread(_)) => {}
                Err(error) => violation(format_args!("a host's spawn is refused: {error}")),
            }
        }
        if rng.one_in(5) {
            scope.will_cancel();
            n.cancel();
        }
        for Child { handle, fate } in children {
            match rng.below(4) {
                0 => drop(handle),
                1 => {
                    fate.cancelled.store(true, Ordering::SeqCst);
                    handle.cancel();
                    check_end(&scope, &fate, handle.wait());
                }
                _ => check_end(&scope, &fate, handle.wait()),
            }
        }
    });
    scope.is_over();
    let asked_pool = world.setting.roots > 1;
    check_nursery(&scope, asked_pool, &result);
}

/// What roots cost that no task pays for: one spawn each.
pub fn host_costs(world: &World) -> u64 {
    world.root_spawns.load(Ordering::Relaxed)
}

/// What a pattern's child needs that only yields and looks.
pub fn little() -> Budget {
    Budget { channel_ops: 4, ..ops(60) }
}
