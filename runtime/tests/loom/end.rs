//! The end of a task against its handle, its nursery, and a supervisor that leaves it something.

use crate::{finds, model};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;
use mainspring::protocol::join::{Dropped, Finished, JoinCell, Waiting};
use mainspring::protocol::mail_flag::MailFlag;
use mainspring::protocol::mutant::Mutant;
use mainspring::protocol::wait_group::WaitGroup;

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
        // SAFETY: loom checks that no thread writes it any more.
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

/// What a child does at its end, and its owner's wait, with a thread's flag for the owner's wake.
fn end_of_child(wait_group: &WaitGroup<usize>, woken: &AtomicBool) {
    if let Some(waiter) = wait_group.ended(1, |counted| *counted += 1) {
        assert_eq!(waiter, 64);
        assert!(!woken.swap(true, Ordering::SeqCst), "woken twice");
    }
}

//= NURS:notify
#[test]
fn the_last_child_wakes_the_owner_once_and_all_are_counted() {
    model(|| {
        let shared = Arc::new((WaitGroup::new(0), AtomicBool::new(false)));
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

/// One child ends, another spawns a sibling, and the owner waits: either the sibling is waited for, or it is refused.
#[test]
fn a_child_that_a_guest_spawns_is_waited_for_or_refused() {
    model(|| {
        let shared = Arc::new((WaitGroup::new(0), AtomicBool::new(false), AtomicBool::new(true)));
        shared.0.add();
        let (took, ran) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let guest = {
            let (shared, took, ran) = (shared.clone(), took.clone(), ran.clone());
            thread::spawn(move || {
                if shared.0.add_guest(|_| shared.2.load(Ordering::SeqCst)) {
                    took.fetch_add(1, Ordering::SeqCst);
                    ran.fetch_add(1, Ordering::SeqCst);
                    end_of_child(&shared.0, &shared.1);
                }
            })
        };
        let child = {
            let shared = shared.clone();
            thread::spawn(move || end_of_child(&shared.0, &shared.1))
        };
        // The owner takes no more, under the lock, and waits.
        shared.0.with(|_| shared.2.store(false, Ordering::SeqCst));
        while shared.0.wait(64) {
            while !shared.1.load(Ordering::SeqCst) {
                thread::yield_now();
            }
        }
        assert_eq!(took.load(Ordering::SeqCst), ran.load(Ordering::SeqCst), "not waited for");
        assert_eq!(shared.0.with(|counted| *counted), 1 + ran.load(Ordering::SeqCst));
        guest.join().unwrap();
        child.join().unwrap();
    });
}

#[test]
fn what_is_left_for_a_task_is_found_at_its_end_or_refused() {
    model(|| {
        let shared = Arc::new((
            MailFlag::new(),
            AtomicBool::new(false),
            loom::sync::Mutex::new(()),
            loom::cell::UnsafeCell::new(0),
        ));
        let task = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (post, over, lock, left) = &*shared;
                over.store(true, Ordering::Relaxed);
                let _guard = post.is_announced().then(|| lock.lock().unwrap());
                // SAFETY: under the lock, or alone; loom checks that.
                left.with_mut(|left| std::mem::take(unsafe { &mut *left }))
            })
        };
        let (post, over, lock, left) = &*shared;
        post.announce();
        let accepted = {
            let _guard = lock.lock().unwrap();
            let accepted = !over.load(Ordering::Relaxed);
            if accepted {
                // SAFETY: under the lock; loom checks that.
                left.with_mut(|left| unsafe { *left += 5 });
            }
            accepted
        };
        let found = task.join().unwrap();
        assert_eq!(found, if accepted { 5 } else { 0 }, "lost");
    });
}

#[test]
fn the_models_find_an_end_that_is_not_told() {
    finds(&[Mutant::DoneWithoutRelease], "end::a_result_is_seen_and_freed_once");
    finds(&[Mutant::WaiterLeft], "end::the_last_child_wakes_the_owner_once_and_all_are_counted");
    finds(&[Mutant::AnnounceMailWithoutFence], "end::what_is_left_for_a_task_is_found_at_its_end_or_refused");
}
