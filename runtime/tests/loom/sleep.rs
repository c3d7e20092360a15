//! Falling asleep against publishing work.

use crate::{finds, model};
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use mainspring::protocol::mutant::Mutant;
use mainspring::protocol::sleep::{Depth, IdleWorkers, Woke};
use std::time::Duration;

//= SCHED:6.3.1b
#[test]
fn published_work_is_never_slept_over() {
    model(|| {
        let idle_workers = Arc::new(IdleWorkers::new(1));
        let work = Arc::new(AtomicBool::new(false));
        let worker = {
            let (idle_workers, work) = (idle_workers.clone(), work.clone());
            thread::spawn(move || {
                let mut searching = idle_workers.search();
                loop {
                    if work.load(Ordering::Relaxed) {
                        idle_workers.found(searching);
                        return;
                    }
                    searching = match idle_workers
                        .sleep(0, searching, (Depth::Sleep, None), || work.load(Ordering::Relaxed))
                    {
                        Woke::ForWork(searching) | Woke::TimedOut(searching) => searching,
                        Woke::Outside => idle_workers.search(),
                        Woke::Closed => panic!("nobody closed it"),
                    };
                }
            })
        };
        work.store(true, Ordering::Relaxed);
        idle_workers.published();
        // A worker that slept over the work would be a deadlock, which loom reports.
        worker.join().unwrap();
    });
}

/// A doze may miss the work. In the model its time is over at once.
#[test]
fn what_a_doze_misses_the_sleep_after_it_does_not() {
    model(|| {
        let idle_workers = Arc::new(IdleWorkers::new(1));
        let work = Arc::new(AtomicBool::new(false));
        let worker = {
            let (idle_workers, work) = (idle_workers.clone(), work.clone());
            thread::spawn(move || {
                let mut searching = idle_workers.search();
                let dozes = [(Depth::Doze, Some(Duration::from_micros(1)))];
                for how in dozes.into_iter().chain(std::iter::repeat((Depth::Sleep, None))) {
                    if work.load(Ordering::Relaxed) {
                        idle_workers.found(searching);
                        return;
                    }
                    searching = match idle_workers.sleep(0, searching, how, || work.load(Ordering::Relaxed)) {
                        Woke::ForWork(searching) | Woke::TimedOut(searching) => searching,
                        Woke::Outside => unreachable!("it slept at its own bell"),
                        Woke::Closed => panic!("nobody closed it"),
                    };
                }
            })
        };
        work.store(true, Ordering::Relaxed);
        idle_workers.published();
        worker.join().unwrap();
    });
}

/// The bell outside, which stays rung until it is answered, as the kernel's does.
#[derive(Default)]
struct Outside {
    rung: Mutex<bool>,
    bell: Condvar,
}

impl Outside {
    fn ring(&self) {
        *self.rung.lock().unwrap() = true;
        self.bell.notify_all();
    }

    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.bell.wait(rung).unwrap();
        }
        *rung = false;
    }
}

#[test]
fn published_work_is_not_slept_over_outside() {
    model(|| {
        let (idle_workers, outside) = (Arc::new(IdleWorkers::new(1)), Arc::new(Outside::default()));
        let bell = outside.clone();
        idle_workers.set_outer_bell(Box::new(move || bell.ring()));
        let work = Arc::new(AtomicBool::new(false));
        let worker = {
            let (idle_workers, work) = (idle_workers.clone(), work.clone());
            thread::spawn(move || {
                let mut searching = idle_workers.search();
                loop {
                    if work.load(Ordering::Relaxed) {
                        idle_workers.found(searching);
                        return;
                    }
                    let look = || work.load(Ordering::Relaxed);
                    searching =
                        match idle_workers.sleep_outside(0, searching, Depth::Sleep, || outside.wait(), look)
                        {
                            Woke::ForWork(searching) | Woke::TimedOut(searching) => searching,
                            Woke::Outside => idle_workers.search(),
                            Woke::Closed => panic!("nobody closed it"),
                        };
                }
            })
        };
        work.store(true, Ordering::Relaxed);
        idle_workers.published();
        worker.join().unwrap();
    });
}

#[test]
fn the_model_finds_work_that_is_slept_over_outside() {
    let faults = [Mutant::OutsideWithoutLook, Mutant::OuterBellForgotten, Mutant::SleepWithoutFence];
    finds(&faults, "sleep::published_work_is_not_slept_over_outside");
}

#[test]
fn two_sleepers_and_one_piece_of_work_end_with_a_shutdown() {
    model(|| {
        let idle_workers = Arc::new(IdleWorkers::new(2));
        let work = Arc::new(AtomicUsize::new(0));
        let workers: Vec<_> = (0..2)
            .map(|index| {
                let (idle_workers, work) = (idle_workers.clone(), work.clone());
                thread::spawn(move || {
                    let mut searching = idle_workers.search();
                    loop {
                        if work.compare_exchange(1, 2, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                            idle_workers.found(searching);
                            idle_workers.close();
                            return;
                        }
                        searching = match idle_workers.sleep(index, searching, (Depth::Sleep, None), || {
                            work.load(Ordering::Acquire) == 1
                        }) {
                            Woke::ForWork(searching) | Woke::TimedOut(searching) => searching,
                            Woke::Outside => unreachable!("it slept at its own bell"),
                            Woke::Closed => return,
                        };
                    }
                })
            })
            .collect();
        work.store(1, Ordering::Release);
        idle_workers.published();
        for worker in workers {
            worker.join().unwrap();
        }
        assert_eq!(work.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn the_model_finds_work_that_is_slept_over() {
    let faults = [Mutant::PublishWithoutFence, Mutant::SleepWithoutFence, Mutant::SleepWithoutLook];
    finds(&faults, "sleep::published_work_is_never_slept_over");
    finds(&[Mutant::SleepWithoutFence], "sleep::what_a_doze_misses_the_sleep_after_it_does_not");
}
