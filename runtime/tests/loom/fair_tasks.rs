//! A thread that stops against a worker that takes it, and a wake against a worker that sleeps.

use crate::finds;
use crate::state::Waiter;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use mainspring::Nanos;
use mainspring::protocol::fair_tasks::{
    FairTaskSettings, FairTasks, Group, Schedule, Stopped, TimeLimits, WakeWorker,
};
use mainspring::protocol::mutant::Mutant;
use mainspring::protocol::sleep::{Depth, IdleWorkers, Woke};
use mainspring::task::state::Event;
use mainspring_abi::ContextRef;
use mainspring_driver::contexts::Location;
use mainspring_sched::context::ContextSpec;

/// As [`crate::model`], on a stack that has room for a core, which is made there.
fn model(f: impl Fn() + Sync + Send + 'static) {
    let f = std::sync::Arc::new(f);
    crate::model(move || {
        let f = f.clone();
        thread::Builder::new().stack_size(1 << 15).spawn(move || f()).unwrap().join().unwrap();
    });
}

fn small_cores(workers: usize, threads: usize) -> FairTasks {
    let settings = FairTaskSettings { threads, ..FairTaskSettings::default() };
    FairTasks::new(workers, &settings, TimeLimits::NONE).expect("a few bytes")
}

fn admit(fair_tasks: &FairTasks, word: usize, schedule: &Schedule, here: Option<usize>) -> WakeWorker {
    let thread = fair_tasks.claim(schedule, None).expect("there is one");
    fair_tasks.admit(thread, word, schedule, false, here, Nanos::ZERO)
}

/// As [`admit`], of a task that stays where it runs first.
fn admit_staying(fair_tasks: &FairTasks, word: usize) {
    let thread = fair_tasks.claim(&Schedule::default(), None).expect("there is one");
    let _ = fair_tasks.admit(thread, word, &Schedule::default(), true, Some(0), Nanos::ZERO);
}

/// A stack that two workers must not be on at once: loom reports it if they are.
#[derive(Default)]
struct OneStack {
    frames: loom::cell::UnsafeCell<u32>,
}

impl OneStack {
    fn run(&self) -> u32 {
        // SAFETY: loom checks that no other thread is here.
        self.frames.with_mut(|frames| unsafe {
            *frames += 1;
            *frames
        })
    }
}

/// A worker's turn: takes what its core has, or what another's can give, runs it on its stack, and says that it has
/// stopped once the stack is left. The first turn of each thread ends in a yield, the second one ends it.
fn take_turn(fair_tasks: &FairTasks, worker: usize, stacks: &[OneStack], now: u64) -> bool {
    let Some(next) = fair_tasks.next(worker, true, Nanos::new(now)) else { return false };
    let turns = stacks[next.word - 1].run();
    if turns == 1 {
        fair_tasks.stop(worker, Stopped::Yielded, Nanos::new(now + 1));
    } else {
        let _ = fair_tasks.end(worker, Nanos::new(now + 1));
    }
    true
}

#[test]
fn a_thread_that_yields_is_never_on_two_workers_and_none_is_lost() {
    model(|| {
        let fair_tasks = Arc::new(small_cores(2, 2));
        let stacks: Arc<[OneStack; 2]> = Arc::default();
        for word in 1..=2 {
            let _ = admit(&fair_tasks, word, &Schedule::default(), Some(0));
        }
        let thief = {
            let (fair_tasks, stacks) = (fair_tasks.clone(), stacks.clone());
            thread::spawn(move || {
                let mut now = 10;
                while take_turn(&fair_tasks, 1, &stacks[..], now) {
                    now += 10;
                }
            })
        };
        let mut now = 10;
        while take_turn(&fair_tasks, 0, &stacks[..], now) {
            now += 10;
        }
        thief.join().unwrap();
        // Each worker ended its turns when it saw nothing; whatever the other had in hand then is on its core now.
        for worker in [0, 1] {
            while take_turn(&fair_tasks, worker, &stacks[..], now + 100) {}
        }
        for stack in stacks.iter() {
            assert_eq!(stack.run(), 3, "a yield, an end, and this");
        }
    });
}

#[test]
fn a_thread_that_only_a_sleeping_worker_may_run_is_never_slept_over() {
    model(|| {
        let fair_tasks = Arc::new(small_cores(2, 1));
        let idle_workers = Arc::new(IdleWorkers::new(2));
        let worker = {
            let (fair_tasks, idle_workers) = (fair_tasks.clone(), idle_workers.clone());
            thread::spawn(move || {
                let mut searching = idle_workers.search();
                loop {
                    if let Some(next) = fair_tasks.next(1, true, Nanos::new(5)) {
                        assert_eq!(next.word, 7);
                        let _ = fair_tasks.end(1, Nanos::new(6));
                        idle_workers.found(searching);
                        return;
                    }
                    fair_tasks.set_idle(1, true);
                    let woke = idle_workers
                        .sleep(1, searching, (Depth::Sleep, None), || fair_tasks.has_work_for(1, true));
                    fair_tasks.set_idle(1, false);
                    searching = match woke {
                        Woke::ForWork(searching) | Woke::TimedOut(searching) => searching,
                        Woke::Outside => unreachable!("it sleeps at its own bell"),
                        Woke::Closed => panic!("nobody closed it"),
                    };
                }
            })
        };
        let only_there = Schedule {
            workers: Some([mainspring::CpuId::new(1).unwrap()].into_iter().collect()),
            ..Schedule::default()
        };
        let WakeWorker(told) = admit(&fair_tasks, 7, &only_there, None);
        if let Some(told) = told {
            idle_workers.wake(told);
        }
        // A worker that slept over it would be a deadlock, which loom reports.
        worker.join().unwrap();
    });
}

#[test]
fn a_wake_finds_a_thread_asleep_on_its_core_however_early_it_comes() {
    model(|| {
        let shared = Arc::new((small_cores(1, 1), Waiter::running()));
        let _ = admit(&shared.0, 7, &Schedule::default(), None);
        assert!(shared.0.next(0, true, Nanos::new(1)).is_some());
        let waker = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.1.complete();
                if shared.1.is_to_be_queued(Event::Wake, None) {
                    let _ = shared.0.wake(0, None, Nanos::new(3));
                }
            })
        };
        // What `Worker::settle` does: the core first, then the commit.
        if !shared.1.is_over() {
            shared.0.stop(0, Stopped::Waits(mainspring_sched::WaitKind::Park), Nanos::new(2));
            if shared.1.commits_to_be_queued() {
                let _ = shared.0.wake(0, Some(0), Nanos::new(4));
            }
            let mut next = shared.0.next(0, true, Nanos::new(5));
            while next.is_none() {
                thread::yield_now();
                next = shared.0.next(0, true, Nanos::new(5));
            }
            shared.1.state.dispatch_for_model();
        }
        waker.join().unwrap();
        let _ = shared.0.end(0, Nanos::new(9));
        assert!(shared.0.next(0, true, Nanos::new(10)).is_none(), "queued once");
    });
}

/// Two threads that stay where they run first, on two cores that steal: the worker that runs one first runs it
/// always.
#[test]
fn a_thread_that_has_run_is_given_to_no_other_worker() {
    model(|| {
        let fair_tasks = Arc::new(small_cores(2, 2));
        for word in 1..=2 {
            admit_staying(&fair_tasks, word);
        }
        let run = |fair_tasks: &FairTasks, worker: usize| {
            let mut ran = Vec::new();
            let mut now = 10;
            while let Some(next) = fair_tasks.next(worker, true, Nanos::new(now)) {
                ran.push(next.word);
                if ran.iter().filter(|&&word| word == next.word).count() == 2 {
                    let _ = fair_tasks.end(worker, Nanos::new(now + 1));
                } else {
                    fair_tasks.stop(worker, Stopped::Yielded, Nanos::new(now + 1));
                }
                now += 10;
            }
            ran
        };
        let other = {
            let fair_tasks = fair_tasks.clone();
            thread::spawn(move || run(&fair_tasks, 1))
        };
        let here = run(&fair_tasks, 0);
        let there = other.join().unwrap();
        assert!(
            !here.iter().any(|word| there.contains(word)),
            "one thread on two fair_tasks: {here:?}, {there:?}"
        );
    });
}

/// A thread whose context is used up is woken while its worker plans to sleep: the plan knows of the refill, or the worker is
/// told. The clock stands still until the worker has planned for the refill.
#[test]
fn a_refill_that_comes_while_a_worker_falls_asleep_is_not_slept_over() {
    model(|| {
        let settings = FairTaskSettings { threads: 1, contexts: 1, ..FairTaskSettings::default() };
        let time = TimeLimits { contexts: 1, share_ppm: 1_000_000 };
        let fair_tasks = Arc::new(FairTasks::new(1, &settings, time).expect("a few bytes"));
        let idle_workers = Arc::new(IdleWorkers::new(1));
        let spec = ContextSpec::new(Nanos::from_millis(1), Nanos::from_millis(10));
        let who = fair_tasks.grant_context(spec, None, Nanos::ZERO).expect("contexts").expect("it fits");
        let _ = admit(&fair_tasks, 7, &Schedule::default(), None);
        assert!(fair_tasks.next(0, true, Nanos::ZERO).is_some());
        let (bound, _) = fair_tasks.bind_current(who, 0, 0, Nanos::ZERO).expect("contexts");
        bound.expect("it is at rest");
        // All of the budget, and more, at once; and then it waits. Its refills are in the next periods; a core that waits for
        // none is looked at after ten.
        let after = Nanos::from_millis(2);
        fair_tasks.stop(0, Stopped::Waits(mainspring_sched::WaitKind::Park), after);
        let waker = {
            let (fair_tasks, idle_workers) = (fair_tasks.clone(), idle_workers.clone());
            thread::spawn(move || {
                let WakeWorker(told) = fair_tasks.wake(0, None, after);
                if let Some(told) = told {
                    idle_workers.wake(told);
                }
            })
        };
        let mut searching = idle_workers.search();
        loop {
            assert!(fair_tasks.next(0, true, after).is_none(), "it is throttled");
            let until = fair_tasks.plan_sleep(0, after);
            if until.is_some_and(|until| until < Nanos::from_millis(50)) {
                idle_workers.found(searching);
                break;
            }
            fair_tasks.set_idle(0, true);
            let woke =
                idle_workers.sleep(0, searching, (Depth::Sleep, None), || fair_tasks.has_work_for(0, true));
            fair_tasks.set_idle(0, false);
            fair_tasks.wakes(0);
            searching = match woke {
                Woke::ForWork(searching) | Woke::TimedOut(searching) => searching,
                Woke::Outside => unreachable!("it sleeps at its own bell"),
                Woke::Closed => panic!("nobody closed it"),
            };
        }
        waker.join().unwrap();
        assert!(fair_tasks.next(0, true, Nanos::from_millis(50)).is_some(), "it is refilled");
    });
}

/// A thread whose context is used up is woken while it is told to end: it does not wait for its refill.
#[test]
fn a_thread_that_is_to_end_is_not_left_throttled() {
    model(|| {
        let settings = FairTaskSettings { threads: 1, contexts: 1, ..FairTaskSettings::default() };
        let time = TimeLimits { contexts: 1, share_ppm: 1_000_000 };
        let fair_tasks = Arc::new(FairTasks::new(1, &settings, time).expect("a few bytes"));
        let is_to_end = Arc::new(AtomicBool::new(false));
        let spec = ContextSpec::new(Nanos::from_millis(1), Nanos::from_millis(10));
        let who = fair_tasks.grant_context(spec, None, Nanos::ZERO).expect("contexts").expect("it fits");
        let _ = admit(&fair_tasks, 7, &Schedule::default(), None);
        assert!(fair_tasks.next(0, true, Nanos::ZERO).is_some());
        let (bound, _) = fair_tasks.bind_current(who, 0, 0, Nanos::ZERO).expect("contexts");
        bound.expect("it is at rest");
        let after = Nanos::from_millis(2);
        fair_tasks.stop(0, Stopped::Waits(mainspring_sched::WaitKind::Park), after);
        let canceller = {
            let (fair_tasks, is_to_end) = (fair_tasks.clone(), is_to_end.clone());
            thread::spawn(move || {
                is_to_end.store(true, Ordering::SeqCst);
                let _ = fair_tasks.release_throttled(|_| is_to_end.load(Ordering::SeqCst), after);
            })
        };
        let _ = fair_tasks.wake(0, None, after);
        let _ = fair_tasks.look_after(0, |_| is_to_end.load(Ordering::SeqCst), after);
        canceller.join().unwrap();
        assert!(fair_tasks.next(0, true, after).is_some(), "it goes on without its context");
    });
}

/// Cores of one worker with one thread's context, which the caller binds to tenant 0.
fn with_context() -> (Arc<FairTasks>, ContextRef) {
    let settings = FairTaskSettings { threads: 1, contexts: 1, ..FairTaskSettings::default() };
    let time = TimeLimits { contexts: 1, share_ppm: 1_000_000 };
    let fair_tasks = Arc::new(FairTasks::new(1, &settings, time).expect("a few bytes"));
    let spec = ContextSpec::new(Nanos::from_millis(1), Nanos::from_millis(10));
    let who = fair_tasks.grant_context(spec, None, Nanos::ZERO).expect("contexts").expect("it fits");
    (fair_tasks, who)
}

fn bind_to_tenant(fair_tasks: &Arc<FairTasks>, who: ContextRef) -> thread::JoinHandle<()> {
    let fair_tasks = fair_tasks.clone();
    thread::spawn(move || {
        let (bound, _) = fair_tasks.bind_group(who, Group::Tenant(0), Nanos::ZERO).expect("contexts");
        bound.expect("it is of no group");
    })
}

/// A context is bound to a tenant while its first thread is admitted: the thread has it.
#[test]
fn a_thread_that_is_admitted_is_not_passed_over_by_its_group() {
    model(|| {
        let (fair_tasks, who) = with_context();
        let host = bind_to_tenant(&fair_tasks, who);
        let _ = admit(&fair_tasks, 7, &Schedule::default(), None);
        let _ = fair_tasks.offer_after_admission(0, None, Nanos::ZERO);
        host.join().unwrap();
        assert!(fair_tasks.held_context(0, Nanos::ZERO).is_some(), "it came to neither");
    });
}

/// A context is bound to a tenant while the tenant's only thread ends: it is at rest afterwards.
#[test]
fn a_context_that_a_group_gives_to_a_thread_that_ends_comes_to_rest() {
    model(|| {
        let (fair_tasks, who) = with_context();
        let _ = admit(&fair_tasks, 7, &Schedule::default(), None);
        assert!(fair_tasks.next(0, true, Nanos::ZERO).is_some());
        let host = bind_to_tenant(&fair_tasks, who);
        let _ = fair_tasks.end(0, Nanos::ZERO);
        host.join().unwrap();
        let (info, _) = fair_tasks.context_info(who, Nanos::ZERO).expect("contexts").expect("it lives");
        assert_eq!(info.place, Location::Rest);
    });
}

#[test]
fn the_models_find_a_thread_that_moves_and_one_that_is_slept_over() {
    finds(
        &[Mutant::RefillSleptOver],
        "fair_tasks::a_refill_that_comes_while_a_worker_falls_asleep_is_not_slept_over",
    );
    finds(&[Mutant::ReadiedWithoutLook], "fair_tasks::a_thread_that_is_to_end_is_not_left_throttled");
    finds(
        &[Mutant::AdmittedPastGroup],
        "fair_tasks::a_thread_that_is_admitted_is_not_passed_over_by_its_group",
    );
    let gift = "fair_tasks::a_context_that_a_group_gives_to_a_thread_that_ends_comes_to_rest";
    finds(&[Mutant::EndedPastGift], gift);
    finds(&[Mutant::StaysNowhere], "fair_tasks::a_thread_that_has_run_is_given_to_no_other_worker");
    let slept_over = Mutant::SleepWithoutLook;
    finds(&[slept_over], "fair_tasks::a_thread_that_only_a_sleeping_worker_may_run_is_never_slept_over");
}
