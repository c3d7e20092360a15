//! Random nursery trees with faults, under the deterministic mode, against counts that the tasks keep themselves:
//! no orphan, no lost wake, first error wins, every component paid for once and nothing made, at every profile.
//!
//! The checker knows what a nursery was opened with, what was moved into it, and what tasks below it were charged. It does not
//! know how the runtime divides that: recharges, supervision, refills, top-ups and what ends early may make no difference.
//!
//! `MAINSPRING_TREES=1000000 cargo test --release -p mainspring-runtime --test trees` tries a million.
#![allow(unsafe_code)]

use mainspring::{
    Budget, Caps, Component, Config, Cx, Exhaustion, Handle, Nursery, NurseryOptions, Pool, Profile,
    RechargeError, Runtime, TaskError, TaskState,
};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::future::poll_fn;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

enum Step {
    Compute(u32),
    Yield,
    Sleep(u64),
    Pay(Component),
    Alloc(usize),
    /// Charged, and refunded at once.
    Box,
    /// By the task's own CapBudget, if it has one.
    Recharge(Budget),
    /// Both halves compute.
    Join(u32, u32),
    /// Awaits a future that is ready at this poll.
    Await(u32),
    Panic,
    Overflow,
    KillWorker,
    Nursery(Scope),
}

struct Scope {
    children: Vec<Child>,
    cancel: bool,
    deadline_us: Option<u64>,
    on_exhausted: Exhaustion,
    care: Vec<Care>,
    /// Opened by the same task, inside.
    inner: Option<Box<Scope>>,
    join: bool,
    /// All children are awaited, and then the pool is looked at.
    settle: bool,
}

/// What an owner does for its children, in whatever state they are.
enum Care {
    Recharge(usize, Budget),
    Supervise(usize, Budget),
    CancelAndRecharge(usize, Budget),
    TopUp(Pool),
    /// Gives way until a child has run out or ended, or for a few turns, and then recharges it.
    Rescue(usize, Budget),
    Yield,
}

#[derive(Clone, Copy)]
enum Authority {
    /// What the nursery gives: no CapBudget.
    Usual,
    /// All that the spawner has, and this much of its CapBudget.
    Heir(Budget),
    Nothing,
}

struct Child {
    steps: Vec<Step>,
    budget: Budget,
    /// Which part of the nursery's pool it gets for nurseries of its own.
    pool: Option<u64>,
    authority: Authority,
    /// It is a future that is ready at this poll, and has no steps.
    future: Option<u32>,
    fails: bool,
    cancel: bool,
}

struct Generator {
    rng: Xoshiro256PlusPlus,
    tasks_left: u32,
}

impl Generator {
    fn below(&mut self, bound: u64) -> u64 {
        self.rng.next_u64() % bound
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn steps(&mut self, depth: u32) -> Vec<Step> {
        (0..self.below(6)).map(|_| self.step(depth)).collect()
    }

    fn step(&mut self, depth: u32) -> Step {
        match self.below(30) {
            0..6 => Step::Compute(self.below(40) as u32),
            6..9 => Step::Yield,
            9 => Step::Await(self.below(4) as u32),
            10..13 => Step::Sleep(self.below(30)),
            13 if self.one_in(3) => Step::Panic,
            14 if self.one_in(500) => Step::Overflow,
            15 if self.one_in(500) => Step::KillWorker,
            16..18 => Step::Pay(self.component()),
            18 => Step::Alloc(self.below(60) as usize),
            19 => Step::Box,
            20 => Step::Recharge(self.budget()),
            21 => Step::Join(self.below(20) as u32, self.below(20) as u32),
            22.. if depth > 0 => Step::Nursery(self.scope(depth - 1)),
            _ => Step::Yield,
        }
    }

    fn component(&mut self) -> Component {
        [Component::ChannelOps, Component::Syscalls, Component::Memory][self.below(3) as usize]
    }

    /// Some of each component, or of ops alone.
    fn budget(&mut self) -> Budget {
        let ops = 1 + self.below(80) as u32;
        if self.one_in(2) {
            return Budget { ops, ..Budget::ZERO };
        }
        Budget {
            ops,
            memory: self.below(100) as usize,
            spawn_count: self.below(4) as u16,
            channel_ops: self.below(6) as u16,
            syscalls: self.below(6) as u16,
        }
    }

    fn care(&mut self, children: u32) -> Care {
        let child = self.below(children.max(1).into()) as usize;
        match self.below(12) {
            0..3 => Care::Recharge(child, self.budget()),
            3..6 => Care::Supervise(child, self.budget()),
            6 => Care::CancelAndRecharge(child, self.budget()),
            7 => Care::TopUp(self.budget().into()),
            8..10 => Care::Rescue(child, self.budget()),
            _ => Care::Yield,
        }
    }

    fn scope(&mut self, depth: u32) -> Scope {
        let wanted = 1 + self.below(5) as u32;
        let count = wanted.min(self.tasks_left);
        self.tasks_left -= count;
        let deadline_us = self.one_in(6).then(|| self.below(40));
        let on_exhausted = match self.below(6) {
            0..2 => Exhaustion::Park,
            2 => Exhaustion::Fail,
            3 => Exhaustion::Cancel,
            4 => Exhaustion::RefillOrFail,
            _ => Exhaustion::Refill(self.budget()),
        };
        let inner = (depth > 0 && self.one_in(8)).then(|| Box::new(self.scope(depth - 1)));
        Scope {
            children: (0..count).map(|_| self.child(depth)).collect(),
            cancel: self.one_in(8),
            deadline_us,
            on_exhausted,
            care: (0..self.below(6)).map(|_| self.care(count)).collect(),
            inner,
            join: self.one_in(2),
            settle: self.one_in(2),
        }
    }

    fn child(&mut self, depth: u32) -> Child {
        // Some run out soon.
        let ops = if self.one_in(3) { 1 + self.below(10) as u32 } else { 5 + self.below(200) as u32 };
        Child {
            steps: self.steps(depth),
            budget: Budget { ops, ..self.budget() },
            pool: (!self.one_in(4)).then_some(8),
            authority: match self.below(6) {
                0 => Authority::Nothing,
                1..4 => Authority::Heir(Budget { ops: 500, memory: 500, ..self.budget() }),
                _ => Authority::Usual,
            },
            future: self.one_in(10).then(|| self.below(4) as u32),
            fails: self.one_in(15),
            cancel: self.one_in(15),
        }
    }
}

#[derive(Default)]
struct Accounts {
    started: AtomicU64,
    ended: AtomicU64,
    /// Closures that are gone: run, or dropped.
    gone: AtomicU64,
    refused: AtomicU64,
    /// Tasks whose frames were abandoned, so that no destructor ran.
    lost: AtomicU64,
    /// How often the pool of a nursery was looked at while the tree ran.
    settled: AtomicU64,
    /// Recharges that were granted.
    granted: AtomicU64,
    /// Recharges of children that had run out.
    rescued: AtomicU64,
}

/// What was charged to whatever was granted in one place, and to what came from there.
#[derive(Default)]
struct Ledger<'a> {
    sure: [AtomicU64; 5],
    /// Charges of calls that a task never came back from: made or not.
    doubtful: [AtomicU64; 5],
    /// What came in by supervision.
    supervised: [AtomicU64; 5],
    source: Option<&'a Ledger<'a>>,
}

impl<'a> Ledger<'a> {
    fn below(source: &'a Ledger<'a>) -> Self {
        Self { source: Some(source), ..Self::default() }
    }

    fn places(&self) -> impl Iterator<Item = &Ledger<'a>> {
        std::iter::successors(Some(self), |ledger| ledger.source)
    }

    /// A child got this by supervision. It comes from the pool that the owner is a child of. What is left of it ends in the
    /// pool of the child's nursery, and then in the pools of the nurseries that the owner has open around that one.
    fn supervise(&self, owner: &Ledger<'_>, amount: &Pool) {
        let ends_in = self.places().take_while(|ledger| !std::ptr::addr_eq(*ledger, owner));
        for ledger in ends_in {
            for component in Component::ALL {
                add(&ledger.supervised[component as usize], amount.get(component));
            }
        }
    }

    fn supervised(&self) -> Pool {
        let mut all = Pool::ZERO;
        for component in Component::ALL {
            all.put(&Pool::only(component, self.supervised[component as usize].load(Ordering::Relaxed)));
        }
        all
    }

    fn charge(&self, component: Component, amount: u64) {
        self.places().for_each(|ledger| add(&ledger.sure[component as usize], amount));
    }

    fn refund(&self, component: Component, amount: u64) {
        for ledger in self.places() {
            ledger.sure[component as usize].fetch_sub(amount, Ordering::Relaxed);
        }
    }

    /// Makes a call that charges this if it returns Ok, and may have if it never returns.
    fn pay<T, E>(&self, cost: &[(Component, u64)], call: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let unsure = Unsure::new(self, cost);
        let result = call();
        unsure.is_known(result.is_ok());
        result
    }

    /// Whether `granted` has become `left` by what was charged and by nothing else.
    fn assert_conserved(&self, granted: &Pool, left: &Pool, what: &str) {
        for component in Component::ALL {
            let sure = self.sure[component as usize].load(Ordering::Relaxed);
            let most = sure + self.doubtful[component as usize].load(Ordering::Relaxed);
            let (granted, left) = (granted.get(component), left.get(component));
            assert!(left <= granted, "{what}: {left} {component} are left of {granted}");
            let used = granted - left;
            assert!(
                (sure..=most).contains(&used),
                "{what}: {used} {component} are gone of {granted}, and {sure} to {most} were charged"
            );
        }
    }
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

struct Token<'a>(&'a Accounts);

impl Drop for Token<'_> {
    fn drop(&mut self) {
        add(&self.0.gone, 1);
    }
}

struct Alive<'a>(&'a Accounts);

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        add(&self.0.ended, 1);
    }
}

/// Free of charge, so that the accounts of ops need not know how deep a stack is.
#[inline(never)]
fn overflow(cx: &Cx, depth: u64) -> u64 {
    cx.check_iterations(0);
    let page = std::hint::black_box([depth; 256]);
    if depth == u64::MAX { page[0] } else { overflow(cx, depth + 1) + page[255] }
}

/// The first child of a nursery that failed, as the children saw it.
type FirstFailure = Mutex<Option<u64>>;

/// A charge that may be made by a call from which the task has not come back.
struct Unsure<'a, 'b> {
    ledger: &'a Ledger<'b>,
    cost: &'a [(Component, u64)],
    known: AtomicBool,
}

impl<'a, 'b> Unsure<'a, 'b> {
    fn new(ledger: &'a Ledger<'b>, cost: &'a [(Component, u64)]) -> Self {
        Self { ledger, cost, known: AtomicBool::new(false) }
    }

    fn is_known(&self, charged: bool) {
        if !self.known.swap(true, Ordering::Relaxed) && charged {
            self.cost.iter().for_each(|&(component, amount)| self.ledger.charge(component, amount));
        }
    }
}

impl Drop for Unsure<'_, '_> {
    fn drop(&mut self) {
        if self.known.load(Ordering::Relaxed) {
            return;
        }
        for &(component, amount) in self.cost {
            self.ledger.places().for_each(|ledger| add(&ledger.doubtful[component as usize], amount));
        }
    }
}

fn compute(cx: &Cx, n: u32, ledger: &Ledger<'_>) {
    for _ in 0..n {
        cx.check();
        ledger.charge(Component::Ops, 1);
    }
}

/// A future that is ready at its poll number `polls`; each is charged to the task that polls.
fn future<'a>(polls: u32, ledger: &'a Ledger<'a>) -> impl Future<Output = ()> + Send + 'a {
    let mut left = polls;
    poll_fn(move |context| {
        ledger.charge(Component::Ops, 1);
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    })
}

/// `mine` has what the task's own budget is charged.
fn run_steps(cx: &Cx, steps: &[Step], accounts: &Accounts, mine: &Ledger<'_>, failure: &FirstFailure) {
    let fail = || failure.lock().unwrap().get_or_insert(cx.id().0).to_owned();
    let op = (Component::Ops, 1);
    for step in steps {
        match step {
            Step::Compute(n) => compute(cx, *n, mine),
            Step::Yield => cx.yield_now(),
            Step::Sleep(us) => cx.sleep(Duration::from_micros(*us)),
            Step::Pay(component) => {
                let paid = mine.pay(&[op, (*component, 1)], || cx.pay(*component));
                if paid.is_err() && *component != Component::Memory {
                    // The attempt costs an op, also where the component was never granted.
                    mine.charge(Component::Ops, 1);
                }
            }
            Step::Alloc(bytes) => {
                let cost = [op, (Component::Memory, *bytes as u64)];
                let _ = mine.pay(&cost, || cx.charge_alloc(*bytes));
            }
            Step::Box => {
                let before = cx.budget().memory;
                let cost = [op, (Component::Memory, 24)];
                if let Ok(paid) = mine.pay(&cost, || cx.try_box([0u8; 24])) {
                    drop(paid);
                    mine.refund(Component::Memory, 24);
                    assert!(cx.budget().memory >= before, "a refund is whole");
                }
            }
            Step::Recharge(amount) => {
                let may = cx.caps().budget().is_some();
                match cx.recharge(*amount) {
                    Ok(()) => {
                        assert!(may, "a recharge without CapBudget");
                        add(&accounts.granted, 1);
                    }
                    Err(error) => assert_eq!(may, error != RechargeError::NotPermitted, "{error}"),
                }
            }
            Step::Join(a, b) => {
                let unsure = Unsure::new(mine, &[(Component::Ops, 2)]);
                cx.join(
                    |cx| {
                        // The join has been paid for.
                        unsure.is_known(true);
                        compute(cx, *a, mine);
                    },
                    |cx| compute(cx, *b, mine),
                );
            }
            Step::Await(polls) => {
                let awaited = cx.await_future(future(*polls, mine));
                assert_eq!(awaited.is_ok(), cx.caps().executor().is_some());
            }
            Step::Panic => {
                fail();
                // Not `panic!`: the hook would print a million times.
                std::panic::resume_unwind(Box::new("a fault"));
            }
            Step::Overflow => {
                fail();
                overflow(cx, 0);
            }
            Step::KillWorker => {
                fail();
                add(&accounts.lost, 1);
                // SAFETY: the frames own nothing but memory and what the accounts know as lost, and borrow through scopes only.
                unsafe { cx.kill_worker() };
            }
            Step::Nursery(scope) => run_scope(cx, scope, accounts, mine, mine),
        }
    }
}

/// `mine` has what the task's own budget is charged, `source` what is charged to where the nursery's pool comes from.
fn run_scope(cx: &Cx, scope: &Scope, accounts: &Accounts, mine: &Ledger<'_>, source: &Ledger<'_>) {
    let mut options = NurseryOptions::new().on_exhausted(scope.on_exhausted);
    if let Some(us) = scope.deadline_us {
        options = options.deadline(Duration::from_micros(us));
    }
    let failure = FirstFailure::default();
    let ledger = Ledger::below(source);
    let started_before = accounts.started.load(Ordering::Relaxed);
    let result = cx.nursery_with(options, |n| {
        let mut granted = n.pool();
        let handles: Vec<_> = scope
            .children
            .iter()
            .filter_map(|child| spawn(cx, n, child, accounts, mine, &ledger, &failure))
            .collect();
        for care in &scope.care {
            if let Some(amount) = take_care(cx, n, care, &handles, accounts, &mut granted) {
                ledger.supervise(mine, &amount);
            }
        }
        if let Some(inner) = &scope.inner {
            run_scope(cx, inner, accounts, mine, &ledger);
        }
        if scope.cancel {
            n.cancel();
        }
        if scope.join {
            for handle in handles {
                drop(handle.join(cx));
            }
        }
        if scope.settle {
            n.await_all(cx);
            granted.put(&ledger.supervised());
            ledger.assert_conserved(&granted, &n.pool(), "while the tree runs");
            add(&accounts.settled, 1);
        }
    });
    assert!(accounts.started.load(Ordering::Relaxed) >= started_before);
    let first = *failure.lock().unwrap();
    match (result, first) {
        (Ok(()), first) => {
            assert_eq!(first, None, "a failure must be seen");
            assert!(!scope.cancel, "a cancelled nursery must say so");
        }
        (Err(error), Some(first)) if matches!(error.error, TaskError::Panicked(_)) => {
            assert_eq!(error.task.map(|id| id.0), Some(first), "the first error wins");
        }
        (Err(error), _) => assert!(!matches!(error.error, TaskError::Deadlock)),
    }
}

/// `granted` is what the nursery was given so far. Returns what a child got by supervision.
fn take_care<'scope>(
    cx: &Cx,
    n: &Nursery<'scope, '_>,
    care: &Care,
    handles: &[Handle<'scope, ()>],
    accounts: &Accounts,
    granted: &mut Pool,
) -> Option<Pool> {
    let recharge = |child: &Handle<'scope, ()>, amount: &Budget| {
        let was_out = child.state() == TaskState::BudgetExhausted;
        match n.recharge(child, *amount) {
            Ok(()) => {
                add(&accounts.granted, 1);
                add(&accounts.rescued, was_out.into());
            }
            Err(RechargeError::Pool(_) | RechargeError::Finished) => {}
            Err(error) => panic!("{error}"),
        }
    };
    match care {
        Care::Yield => cx.yield_now(),
        Care::TopUp(amount) => {
            if n.top_up(*amount).is_ok() {
                granted.put(amount);
            }
        }
        Care::Recharge(child, amount) => {
            if let Some(child) = handles.get(*child) {
                recharge(child, amount);
            }
        }
        Care::CancelAndRecharge(child, amount) => {
            if let Some(child) = handles.get(*child) {
                child.cancel();
                recharge(child, amount);
            }
        }
        Care::Supervise(child, amount) => {
            let child = handles.get(*child)?;
            let may = cx.caps().budget().is_some();
            match n.supervise(cx, child, *amount) {
                Ok(()) => {
                    assert!(may, "supervision without CapBudget");
                    add(&accounts.granted, 1);
                    return Some(Pool::from(*amount));
                }
                Err(RechargeError::WouldOverflow(component)) => panic!("no child has that much {component}"),
                Err(_) => {}
            }
        }
        Care::Rescue(child, amount) => {
            let child = handles.get(*child)?;
            let mut turns = 0..20;
            while child.state() != TaskState::BudgetExhausted
                && !child.is_finished()
                && turns.next().is_some()
            {
                cx.yield_now();
            }
            recharge(child, amount);
        }
    }
    None
}

fn spawn<'scope>(
    cx: &Cx,
    n: &Nursery<'scope, '_>,
    child: &'scope Child,
    accounts: &'scope Accounts,
    mine: &Ledger<'_>,
    ledger: &'scope Ledger<'scope>,
    failure: &'scope FirstFailure,
) -> Option<Handle<'scope, ()>> {
    let token = Token(accounts);
    // The child is paid for before the spawner's own op, at which the spawner may be stopped.
    let child_paid = Unsure::new(ledger, &[(Component::SpawnCount, 1)]);
    let spawned = mine.pay(&[(Component::Ops, 1)], || {
        if let Some(polls) = child.future {
            return n.spawn_future(async move {
                let _token = token;
                add(&accounts.started, 1);
                let _alive = Alive(accounts);
                future(polls, ledger).await;
            });
        }
        let mut builder = n.builder().budget(child.budget);
        if let Some(parts) = child.pool {
            builder = builder.pool(n.pool().part(parts));
        }
        builder = match child.authority {
            Authority::Usual => builder,
            Authority::Heir(limit) => builder.caps(cx.caps().attenuate_budget(limit)),
            Authority::Nothing => builder.caps(Caps::none()),
        };
        builder.spawn_try(move |cx| {
            let _token = token;
            add(&accounts.started, 1);
            let _alive = Alive(accounts);
            run_steps(cx, &child.steps, accounts, ledger, failure);
            if child.fails {
                failure.lock().unwrap().get_or_insert(cx.id().0);
                return Err("an error");
            }
            Ok(())
        })
    });
    child_paid.is_known(spawned.is_ok());
    match spawned {
        Ok(handle) => {
            if child.cancel {
                handle.cancel();
            }
            Some(handle)
        }
        Err(_) => {
            add(&accounts.refused, 1);
            None
        }
    }
}

/// What trees came to.
#[derive(Default)]
struct Sum {
    tasks: u64,
    settled: u64,
    granted: u64,
    rescued: u64,
}

fn root_caps() -> Caps {
    Caps::root(1000, Budget::MAX, Budget { ops: 20_000, memory: 20_000, ..Budget::MAX }, 10, 10)
}

fn try_tree(runtime: &Runtime, seed: u64, sum: &mut Sum) {
    let mut generator = Generator { rng: Xoshiro256PlusPlus::seed_from_u64(seed), tasks_left: 24 };
    let steps = vec![Step::Nursery(generator.scope(3))];
    let (accounts, failure) = (Accounts::default(), FirstFailure::default());
    let all = Ledger::default();
    let below = Ledger::below(&all);
    let before = runtime.root_pool();
    let pool = Pool { ops: 100_000, spawn_count: 500, memory: 100_000, channel_ops: 2000, syscalls: 2000 };
    let (books_ref, steps_ref, failure_ref, below_ref) = (&accounts, &steps, &failure, &below);
    let result = runtime.nursery(NurseryOptions::new().pool(pool).on_exhausted(Exhaustion::Cancel), |n| {
        let handle = n
            .builder()
            .caps(root_caps())
            .budget(Budget { ops: 200, memory: 200, channel_ops: 10, syscalls: 10, ..Budget::ZERO })
            .pool(Pool { ops: 50_000, spawn_count: 400, memory: 5000, channel_ops: 500, syscalls: 500 })
            .spawn(move |cx| run_steps(cx, steps_ref, books_ref, below_ref, failure_ref));
        handle.unwrap().wait()
    });
    if let Ok(Err(TaskError::Panicked(message)))
    | Err(mainspring::NurseryError { error: TaskError::Panicked(message), .. }) = &result
    {
        panic!("tree {seed}: {message}");
    }
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let lost = get(&accounts.lost);
    assert_eq!(
        get(&accounts.started),
        get(&accounts.ended) + lost,
        "tree {seed}: a task outlived its nursery"
    );
    all.charge(Component::SpawnCount, 1);
    all.assert_conserved(&before, &runtime.root_pool(), &format!("tree {seed}, at its end"));
    sum.tasks += get(&accounts.gone) - get(&accounts.refused) + lost + 1;
    sum.settled += get(&accounts.settled);
    sum.granted += get(&accounts.granted);
    sum.rescued += get(&accounts.rescued);
}

const PROFILES: [Profile; 3] = [Profile::Service, Profile::Cluster, Profile::Sovereign];

/// How many trees one runtime runs.
const BATCH: u64 = 500;

//= NURS:no-orphans NURS:error-propagation NURS:owner-cancel SCHED:8.3.1 SCHED:8.1.3 SCHED:8.1.2b OWN:budget.conserve
#[test]
fn random_trees_lose_nothing_and_pay_for_everything() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("MAINSPRING_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("MAINSPRING_TREES").unwrap_or(20_000),
    };
    let mut sum = Sum::default();
    let mut seed = seeds.start;
    while seed < seeds.end {
        // A batch has a profile and a number of workers of its own, also when one of its trees is tried alone.
        let batch = seed / BATCH;
        let (profile, workers) = (PROFILES[(batch % 3) as usize], 1 + (batch % 4) as usize);
        let config = Config::new(profile).workers(workers).root_caps(root_caps()).max_stacks(256);
        let runtime = config.deterministic_seed(seed).fail_on_deadlock().build().unwrap();
        for _ in 0..BATCH {
            if seed == seeds.end {
                break;
            }
            let tried =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| try_tree(&runtime, seed, &mut sum)));
            if let Err(payload) = tried {
                eprintln!(
                    "{profile:?}; replay: MAINSPRING_SEED={seed} cargo test -p mainspring-runtime --test trees"
                );
                std::panic::resume_unwind(payload);
            }
            seed += 1;
        }
    }
    let (trees, Sum { tasks, settled, granted, rescued }) = (seeds.end - seeds.start, sum);
    println!(
        "{trees} trees, {tasks} tasks, {settled} pools looked at, {granted} recharges, {rescued} of them in need"
    );
    if trees >= 3 * BATCH {
        assert!(tasks > 5 * trees, "trees have tasks below the first level: {tasks} in {trees}");
        assert!(settled > trees / 4, "pools are looked at while trees run: {settled} in {trees}");
        assert!(granted > trees / 2 && rescued > trees / 100, "{granted} recharges, {rescued} in need");
    }
}
