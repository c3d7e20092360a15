//! What waits at a queue: grants that are handed over, broadcasts, and meetings, by ordinary threads.

use crate::{finds, model};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use mainspring::protocol::mutant::Mutant;
use mainspring::sync::{Barrier, CancelToken, Condvar, Mutex, Notify, RwLock, Semaphore};

/// A thread that slept over its grant would be a deadlock, which loom reports.
#[test]
fn permits_go_from_hand_to_hand() {
    model(|| {
        let shared = Arc::new((Semaphore::new(1), AtomicUsize::new(0)));
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                let _permit = shared.0.acquire_blocking(1).unwrap();
                assert_eq!(shared.1.fetch_add(1, Ordering::SeqCst), 0, "two hold one permit");
                shared.1.fetch_sub(1, Ordering::SeqCst);
            })
        };
        {
            let _permit = shared.0.acquire_blocking(1).unwrap();
            assert_eq!(shared.1.fetch_add(1, Ordering::SeqCst), 0, "two hold one permit");
            shared.1.fetch_sub(1, Ordering::SeqCst);
        }
        other.join().unwrap();
        assert!(shared.0.try_acquire(1).is_some(), "the permit came back");
    });
}

#[test]
fn a_writer_is_alone_and_readers_see_what_it_wrote() {
    model(|| {
        let lock = Arc::new(RwLock::new((0, 0)));
        let writer = {
            let lock = lock.clone();
            thread::spawn(move || {
                let mut guard = lock.write_blocking();
                guard.0 += 1;
                guard.1 += 1;
                let guard = guard.downgrade();
                assert_eq!(*guard, (1, 1));
            })
        };
        let guard = lock.read_blocking();
        assert_eq!(guard.0, guard.1, "half of a write");
        drop(guard);
        writer.join().unwrap();
        assert_eq!(*lock.read_blocking(), (1, 1));
    });
}

#[test]
fn a_notification_is_never_slept_over() {
    model(|| {
        let notify = Arc::new(Notify::new());
        let other = {
            let notify = notify.clone();
            thread::spawn(move || notify.notify_one())
        };
        notify.notified_blocking();
        other.join().unwrap();
    });
}

#[test]
fn a_change_inside_of_a_mutex_is_never_slept_over() {
    model(|| {
        let shared = Arc::new((Mutex::new(false), Condvar::new()));
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                *shared.0.lock_blocking() = true;
                shared.1.notify_one();
            })
        };
        let mut changed = shared.0.lock_blocking();
        while !*changed {
            changed = shared.1.wait_blocking(changed);
        }
        drop(changed);
        other.join().unwrap();
    });
}

#[test]
fn all_that_meet_go_on_and_one_of_them_was_the_last() {
    model(|| {
        let barrier = Arc::new(Barrier::new(2));
        let other = {
            let barrier = barrier.clone();
            thread::spawn(move || barrier.wait_blocking())
        };
        let mine = barrier.wait_blocking();
        assert!(mine != other.join().unwrap());
    });
}

#[test]
fn a_token_that_is_cancelled_is_seen_by_those_that_wait_for_it() {
    model(|| {
        let token = CancelToken::new();
        let child = token.child();
        let other = thread::spawn(move || token.cancel());
        child.cancelled_blocking();
        assert!(other.join().unwrap());
    });
}

#[test]
fn the_models_find_a_change_that_grants_nothing() {
    finds(&[Mutant::LineUnserved], "sync::permits_go_from_hand_to_hand");
    finds(&[Mutant::LineUnserved], "sync::a_notification_is_never_slept_over");
    finds(&[Mutant::LineUnserved], "sync::all_that_meet_go_on_and_one_of_them_was_the_last");
}
