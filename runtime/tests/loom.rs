//! The protocols under the model checker: every interleaving of small programs, on the code that ships.
//! Run by `make loom`, which sets `--cfg loom`.
#![cfg(loom)]
#![allow(unsafe_code)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;
use mainspring::channel::model_pair;
use mainspring::protocol::brood::Brood;
use mainspring::protocol::deque::{Steal, deques};
use mainspring::protocol::join::{Dropped, Finished, JoinCell, Waiting};
use mainspring::protocol::sleep::{Dormitory, Woke};
use mainspring::task::state::{Committed, Event, StateCell, Woken};
use mainspring::{Capacity, Refusal};

/// Every interleaving with at most three preemptions, in which all known bugs of such protocols show.
fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(f);
}

//= SCHED:7.1.1a SCHED:7.1.1b SCHED:7.1.2
#[test]
fn each_word_of_a_deque_is_taken_once() {
    model(|| {
        let mut ends = deques(2).into_iter();
        let ((owner, stealer), (thief, _)) = (ends.next().unwrap(), ends.next().unwrap());
        let taken = Arc::new(AtomicUsize::new(0));
        let thief = {
            let taken = taken.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    if let Steal::Taken(word) = stealer.steal(&thief) {
                        assert_eq!(taken.fetch_or(word, Ordering::Relaxed) & word, 0, "taken twice");
                    }
                    // The next attempt must announce itself anew.
                    thief.withdraw();
                }
            })
        };
        owner.push(1);
        owner.push(2);
        // Beyond the first capacity under loom: a thief may read from the outgrown buffer.
        owner.push(4);
        let mut pops = 0;
        while let Some(word) = owner.pop() {
            assert_eq!(taken.fetch_or(word, Ordering::Relaxed) & word, 0, "taken twice");
            pops += 1;
        }
        thief.join().unwrap();
        while let Some(word) = owner.pop() {
            assert_eq!(taken.fetch_or(word, Ordering::Relaxed) & word, 0, "taken twice");
        }
        assert!(pops >= 1);
        assert_eq!(taken.load(Ordering::Relaxed), 7, "lost");
    });
}

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
fn a_result_is_seen_and_freed_once() {
    model(|| {
        let cell = Arc::new((JoinCell::new(), loom::cell::UnsafeCell::new(0), AtomicUsize::new(0)));
        let woken = Arc::new(AtomicBool::new(false));
        let task = {
            let (cell, woken) = (cell.clone(), woken.clone());
            thread::spawn(move || {
                // SAFETY: loom checks that the other side does not read it yet.
                cell.1.with_mut(|result| unsafe { *result = 42 });
                match cell.0.finish() {
                    Finished::KeepForHandle => {}
                    Finished::Wake(waiter) => {
                        assert_eq!(waiter, 64);
                        woken.store(true, Ordering::Release);
                    }
                    Finished::Free => {
                        cell.2.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        };
        match cell.0.wait(64) {
            Waiting::Done => {}
            Waiting::Wait => {
                while !woken.load(Ordering::Acquire) {
                    thread::yield_now();
                }
            }
        }
        assert!(cell.0.is_done());
        // SAFETY: loom checks that nobody writes it any more.
        cell.1.with(|result| assert_eq!(unsafe { *result }, 42));
        task.join().unwrap();
        assert_eq!(cell.2.load(Ordering::Relaxed), 0, "the handle frees it");
    });
}

#[test]
fn of_a_dropped_handle_and_an_ending_task_one_frees() {
    model(|| {
        let cell = Arc::new((JoinCell::new(), AtomicUsize::new(0)));
        let task = {
            let cell = cell.clone();
            thread::spawn(move || {
                if cell.0.finish() == Finished::Free {
                    cell.1.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        if cell.0.detach() == Dropped::Free {
            cell.1.fetch_add(1, Ordering::Relaxed);
        }
        task.join().unwrap();
        assert_eq!(cell.1.load(Ordering::Relaxed), 1);
    });
}

/// A task that waits for a flag, on its worker, and is queued by whoever is told to.
fn wait_for(state: &StateCell, queued: &AtomicUsize, flags: &[&AtomicBool]) {
    while !flags.iter().any(|flag| flag.load(Ordering::SeqCst)) {
        if state.commit_wait(Event::Block) == Committed::Queue {
            queued.fetch_add(1, Ordering::SeqCst);
        } else if flags.iter().any(|flag| flag.load(Ordering::SeqCst))
            && state.wake(Event::Interrupt) == Woken::Queue
        {
            // The last look of `Worker::settle`.
            queued.fetch_add(1, Ordering::SeqCst);
        }
        while queued.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        assert_eq!(queued.swap(0, Ordering::SeqCst), 1, "queued twice");
        state.dispatch_for_model();
    }
}

//= NURS:queue-race
#[test]
fn a_wake_and_a_cancellation_of_a_waiting_task_queue_it_once_each_at_most() {
    model(|| {
        let shared = Arc::new((
            StateCell::default(),
            AtomicUsize::new(0),
            AtomicBool::new(false),
            AtomicBool::new(false),
        ));
        shared.0.dispatch_for_model();
        let waker = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.2.store(true, Ordering::SeqCst);
                if shared.0.wake(Event::Wake) == Woken::Queue {
                    shared.1.fetch_add(1, Ordering::SeqCst);
                }
            })
        };
        wait_for(&shared.0, &shared.1, &[&shared.2, &shared.3]);
        waker.join().unwrap();
    });
}

/// What a child does at its end, and its owner's wait, with a thread's flag for the owner's wake.
fn end_of_child(brood: &Brood<usize>, woken: &AtomicBool) {
    if let Some(waiter) = brood.ended(1, |counted| *counted += 1) {
        assert_eq!(waiter, 64);
        assert!(!woken.swap(true, Ordering::SeqCst), "woken twice");
    }
}

//= NURS:notify
#[test]
fn the_last_child_wakes_the_owner_once_and_all_are_counted() {
    model(|| {
        let shared = Arc::new((Brood::new(0), AtomicBool::new(false)));
        shared.0.add();
        shared.0.add();
        let children: Vec<_> = (0..2)
            .map(|_| {
                let shared = shared.clone();
                thread::spawn(move || end_of_child(&shared.0, &shared.1))
            })
            .collect();
        if shared.0.wait(64) {
            while !shared.1.load(Ordering::SeqCst) {
                thread::yield_now();
            }
        } else {
            assert!(!shared.1.load(Ordering::SeqCst), "nobody waited");
        }
        assert!(!shared.0.wait(64), "all have ended");
        assert_eq!(shared.0.with(|counted| *counted), 2, "each came before it counted");
        for child in children {
            child.join().unwrap();
        }
    });
}

#[test]
fn a_value_passes_a_closing_channel_or_comes_back() {
    for capacity in [Capacity::Rendezvous, Capacity::Bounded(1)] {
        model(move || {
            let (sender, receiver) = model_pair::<u32>(capacity);
            let sending = thread::spawn(move || sender.send_blocking(7).map_err(|refused| refused.value));
            let first = receiver.recv_blocking();
            assert_eq!(first, Ok(7), "the sender closes the channel only after its send");
            assert_eq!(receiver.recv_blocking(), Err(Refusal::Closed));
            assert_eq!(sending.join().unwrap(), Ok(()));
        });
    }
}

#[test]
fn a_sender_whose_receiver_goes_gets_its_value_back() {
    model(|| {
        let (sender, receiver) = model_pair::<u32>(Capacity::Rendezvous);
        let receiving = thread::spawn(move || drop(receiver));
        assert_eq!(
            sender.send_blocking(7).map_err(|refused| (refused.why, refused.value)),
            Err((Refusal::Closed, 7))
        );
        receiving.join().unwrap();
    });
}
