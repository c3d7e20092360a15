//! Falling asleep against publishing work.

use crate::{finds, model};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;
use mainspring::protocol::mutant::Mutant;
use mainspring::protocol::sleep::{Dormitory, Woke};

//= SCHED:6.3.1b
#[test]
fn published_work_is_never_slept_over() {
    model(|| {
        let dormitory = Arc::new(Dormitory::new(1));
        let work = Arc::new(AtomicBool::new(false));
        let worker = {
            let (dormitory, work) = (dormitory.clone(), work.clone());
            thread::spawn(move || {
                let mut searching = dormitory.search();
                loop {
                    if work.load(Ordering::Relaxed) {
                        dormitory.found(searching);
                        return;
                    }
                    searching = match dormitory.sleep(0, searching, None, || work.load(Ordering::Relaxed)) {
                        Woke::ForWork(searching) | Woke::TimedOut(searching) => searching,
                        Woke::Closed => panic!("nobody closed it"),
                    };
                }
            })
        };
        work.store(true, Ordering::Relaxed);
        dormitory.published();
        // A worker that slept over the work would be a deadlock, which loom reports.
        worker.join().unwrap();
    });
}

#[test]
fn two_sleepers_and_one_piece_of_work_end_with_a_shutdown() {
    model(|| {
        let dormitory = Arc::new(Dormitory::new(2));
        let work = Arc::new(AtomicUsize::new(0));
        let workers: Vec<_> = (0..2)
            .map(|index| {
                let (dormitory, work) = (dormitory.clone(), work.clone());
                thread::spawn(move || {
                    let mut searching = dormitory.search();
                    loop {
                        if work.compare_exchange(1, 2, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                            dormitory.found(searching);
                            dormitory.close();
                            return;
                        }
                        searching = match dormitory
                            .sleep(index, searching, None, || work.load(Ordering::Acquire) == 1)
                        {
                            Woke::ForWork(searching) | Woke::TimedOut(searching) => searching,
                            Woke::Closed => return,
                        };
                    }
                })
            })
            .collect();
        work.store(1, Ordering::Release);
        dormitory.published();
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
}
