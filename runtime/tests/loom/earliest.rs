//! A new earliest deadline against a worker that falls asleep.

use crate::{finds, model};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use mainspring::protocol::earliest::{Earliest, NEVER, WhoKeeps};
use mainspring::protocol::mutant::Mutant;
use mainspring::protocol::sleep::{Depth, IdleWorkers, Woke};

/// What `Inner::add_timer` does with a deadline that is the earliest.
fn set(earliest: &Earliest, idle_workers: &IdleWorkers, at: u64) {
    earliest.set(at);
    match earliest.who_keeps() {
        WhoKeeps::Worker(keeper) => idle_workers.wake(keeper),
        WhoKeeps::Nobody => idle_workers.published(),
    }
}

/// A worker with nothing to do, as `Worker::next_anywhere`: it never sleeps over the deadline without knowing it. Model
/// time stands still, so that a deadline is over as soon as the worker plans to wake for it.
fn sleep_until_planned(earliest: &Earliest, idle_workers: &IdleWorkers, index: usize, done: &AtomicBool) {
    let mut searching = idle_workers.search();
    loop {
        let kept = earliest.keep(index);
        if kept.is_some_and(|at| at != NEVER) {
            // It sleeps until then, and then fires.
            earliest.resign();
            done.store(true, Ordering::Relaxed);
            return idle_workers.close();
        }
        let woke = idle_workers.sleep(index, searching, (Depth::Sleep, None), || {
            kept.is_some_and(|planned| earliest.is_before(planned))
        });
        if kept.is_some() {
            earliest.resign();
        }
        searching = match woke {
            Woke::ForWork(searching) | Woke::TimedOut(searching) => searching,
            Woke::Outside => unreachable!("it sleeps at its own bell"),
            Woke::Closed => return,
        };
    }
}

//= SCHED:6.3.1b
#[test]
fn a_new_deadline_reaches_a_worker_that_falls_asleep() {
    model(|| {
        let shared = Arc::new((Earliest::default(), IdleWorkers::new(1), AtomicBool::new(false)));
        let sleeper = {
            let shared = shared.clone();
            thread::spawn(move || sleep_until_planned(&shared.0, &shared.1, 0, &shared.2))
        };
        set(&shared.0, &shared.1, 7);
        // A worker that slept over the deadline would be a deadlock, which loom reports.
        sleeper.join().unwrap();
        assert!(shared.2.load(Ordering::Relaxed));
    });
}

#[test]
fn the_model_finds_a_deadline_that_is_slept_over() {
    let test = "earliest::a_new_deadline_reaches_a_worker_that_falls_asleep";
    finds(&[Mutant::SleepWithoutLook], test);
}
