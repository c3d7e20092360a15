//! Random nursery trees with faults, under the deterministic mode, against counts that the tasks keep themselves:
//! no orphan, no lost wake, first error wins, every op and every spawn paid for once.
//!
//! `MAINSPRING_TREES=1000000 cargo test --release -p mainspring-runtime --test trees` tries a million.
#![allow(unsafe_code)]

use mainspring::{
    Budget, Caps, Config, Cx, Exhaustion, Nursery, NurseryOptions, Pool, Profile, Runtime, TaskError,
};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

enum Step {
    Compute(u32),
    Yield,
    Sleep(u64),
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
    join: bool,
}

struct Child {
    steps: Vec<Step>,
    ops: u32,
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
        match self.below(24) {
            0..6 => Step::Compute(self.below(40) as u32),
            6..10 => Step::Yield,
            10..13 => Step::Sleep(self.below(30)),
            13 if self.one_in(3) => Step::Panic,
            14 if self.one_in(500) => Step::Overflow,
            15 if self.one_in(500) => Step::KillWorker,
            16.. if depth > 0 => Step::Nursery(self.scope(depth - 1)),
            _ => Step::Yield,
        }
    }

    fn scope(&mut self, depth: u32) -> Scope {
        let wanted = 1 + self.below(5) as u32;
        let count = wanted.min(self.tasks_left);
        self.tasks_left -= count;
        let deadline_us = self.one_in(6).then(|| self.below(40));
        let on_exhausted = match self.below(5) {
            // Nobody recharges: only a deadline ends such a wait.
            0 if deadline_us.is_some() => Exhaustion::Park,
            1 => Exhaustion::Fail,
            2 => Exhaustion::Cancel,
            _ => Exhaustion::Refill(Budget { ops: 100, ..Budget::ZERO }),
        };
        let on_exhausted = match on_exhausted {
            // A refill that the pool cannot pay waits as well.
            Exhaustion::Refill(_) if deadline_us.is_none() => Exhaustion::Cancel,
            other => other,
        };
        Scope {
            children: (0..count).map(|_| self.child(depth)).collect(),
            cancel: self.one_in(8),
            deadline_us,
            on_exhausted,
            join: self.one_in(2),
        }
    }

    fn child(&mut self, depth: u32) -> Child {
        Child {
            steps: self.steps(depth),
            ops: 5 + self.below(200) as u32,
            fails: self.one_in(15),
            cancel: self.one_in(15),
        }
    }
}

#[derive(Default)]
struct Books {
    ops: AtomicU64,
    started: AtomicU64,
    ended: AtomicU64,
    /// Closures that are gone: run, or dropped.
    gone: AtomicU64,
    refused: AtomicU64,
    /// Tasks whose frames were abandoned, so that no destructor ran.
    lost: AtomicU64,
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

struct Token<'a>(&'a Books);

impl Drop for Token<'_> {
    fn drop(&mut self) {
        add(&self.0.gone, 1);
    }
}

struct Alive<'a>(&'a Books);

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        add(&self.0.ended, 1);
    }
}

/// Free of charge, so that the books of ops need not know how deep a stack is.
#[inline(never)]
fn overflow(cx: &Cx, depth: u64) -> u64 {
    cx.check_iterations(0);
    let page = std::hint::black_box([depth; 256]);
    if depth == u64::MAX { page[0] } else { overflow(cx, depth + 1) + page[255] }
}

/// The first child of a nursery that failed, as the children saw it.
type FirstFailure = Mutex<Option<u64>>;

fn run_steps(cx: &Cx, steps: &[Step], books: &Books, failure: &FirstFailure) {
    let fail = || failure.lock().unwrap().get_or_insert(cx.id().0).to_owned();
    for step in steps {
        match step {
            Step::Compute(n) => {
                for _ in 0..*n {
                    cx.check();
                    add(&books.ops, 1);
                }
            }
            Step::Yield => cx.yield_now(),
            Step::Sleep(us) => cx.sleep(Duration::from_micros(*us)),
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
                add(&books.lost, 1);
                // SAFETY: the frames own nothing but memory and what the books know as lost, and borrow through scopes only.
                unsafe { cx.kill_worker() };
            }
            Step::Nursery(scope) => run_scope(cx, scope, books),
        }
    }
}

fn run_scope(cx: &Cx, scope: &Scope, books: &Books) {
    let mut options = NurseryOptions::new().on_exhausted(scope.on_exhausted);
    if let Some(us) = scope.deadline_us {
        options = options.deadline(Duration::from_micros(us));
    }
    let failure = FirstFailure::default();
    let ended_before = (books.started.load(Ordering::Relaxed), books.gone.load(Ordering::Relaxed));
    let result = cx.nursery_with(options, |n| {
        let handles: Vec<_> =
            scope.children.iter().filter_map(|child| spawn(n, child, books, &failure)).collect();
        if scope.cancel {
            n.cancel();
        }
        if scope.join {
            for handle in handles {
                drop(handle.join(cx));
            }
        }
    });
    assert!(books.started.load(Ordering::Relaxed) >= ended_before.0);
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

fn spawn<'scope>(
    n: &Nursery<'scope, '_>,
    child: &'scope Child,
    books: &'scope Books,
    failure: &'scope FirstFailure,
) -> Option<mainspring::Handle<'scope, ()>> {
    let token = Token(books);
    let part = n.pool().part(8);
    let spawned =
        n.builder().budget(Budget { ops: child.ops, ..Budget::ZERO }).pool(part).spawn_try(move |cx| {
            let _token = token;
            add(&books.started, 1);
            let _alive = Alive(books);
            run_steps(cx, &child.steps, books, failure);
            if child.fails {
                failure.lock().unwrap().get_or_insert(cx.id().0);
                return Err("an error");
            }
            Ok(())
        });
    match spawned {
        Ok(handle) => {
            add(&books.ops, 1);
            if child.cancel {
                handle.cancel();
            }
            Some(handle)
        }
        Err(_) => {
            add(&books.refused, 1);
            None
        }
    }
}

fn try_tree(runtime: &Runtime, seed: u64) -> u64 {
    let mut generator = Generator { rng: Xoshiro256PlusPlus::seed_from_u64(seed), tasks_left: 24 };
    let root =
        Child { steps: vec![Step::Nursery(generator.scope(3))], ops: 200, fails: false, cancel: false };
    let (books, failure) = (Books::default(), FirstFailure::default());
    let before = runtime.root_pool();
    let pool = Pool { ops: 100_000, spawn_count: 500, ..Pool::ZERO };
    let (books_ref, root_ref, failure_ref) = (&books, &root, &failure);
    let result = runtime.nursery(NurseryOptions::new().pool(pool).on_exhausted(Exhaustion::Cancel), |n| {
        let handle = n
            .builder()
            .budget(Budget { ops: root_ref.ops, ..Budget::ZERO })
            .pool(Pool { ops: 50_000, spawn_count: 400, ..Pool::ZERO })
            .spawn(move |cx| run_steps(cx, &root_ref.steps, books_ref, failure_ref));
        handle.unwrap().wait()
    });
    if let Ok(Err(TaskError::Panicked(message)))
    | Err(mainspring::NurseryError { error: TaskError::Panicked(message), .. }) = &result
    {
        panic!("tree {seed}: {message}");
    }
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (lost, ops) = (get(&books.lost), get(&books.ops));
    assert_eq!(get(&books.started), get(&books.ended) + lost, "tree {seed}: a task outlived its nursery");
    let after = runtime.root_pool();
    assert_eq!(before.ops - after.ops, ops, "tree {seed}: ops");
    let spawned = get(&books.gone) - get(&books.refused) + lost + 1;
    assert_eq!(before.spawn_count - after.spawn_count, spawned, "tree {seed}: spawns");
    spawned
}

//= NURS:no-orphans NURS:error-propagation NURS:owner-cancel SCHED:8.3.1 SCHED:8.1.3 SCHED:8.1.2b
#[test]
fn random_trees_lose_nothing_and_pay_for_everything() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("MAINSPRING_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("MAINSPRING_TREES").unwrap_or(20_000),
    };
    let caps = Caps::root(1000, Budget::MAX, Budget::ZERO, 0, 0);
    let mut tasks = 0;
    let mut seed = seeds.start;
    while seed < seeds.end {
        let config =
            Config::new(Profile::Service).workers(1 + (seed % 4) as usize).root_caps(caps).max_stacks(256);
        let runtime = config.deterministic_seed(seed).fail_on_deadlock().build().unwrap();
        for _ in 0..500 {
            if seed == seeds.end {
                break;
            }
            let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| try_tree(&runtime, seed)));
            match tried {
                Ok(spawned) => tasks += spawned,
                Err(payload) => {
                    eprintln!("replay: MAINSPRING_SEED={seed} cargo test -p mainspring-runtime --test trees");
                    std::panic::resume_unwind(payload);
                }
            }
            seed += 1;
        }
    }
    println!("{} trees, {tasks} tasks", seeds.end - seeds.start);
    let trees = seeds.end - seeds.start;
    assert!(trees < 100 || tasks > 5 * trees, "trees have tasks below the first level: {tasks} in {trees}");
}
