//! A worker that is mostly alone against all other threads.

use crate::{finds, model};
use loom::sync::Arc;
use loom::thread;
use mainspring::protocol::bias::{BiasedLock, Home, SectionFlag};
use mainspring::protocol::mutant::Mutant;

/// Two threads take a home away at once, while its worker goes in and out.
#[test]
fn nobody_goes_on_while_a_home_s_worker_is_inside() {
    model(|| {
        let shared = Arc::new((Home::new(), SectionFlag::default(), loom::cell::UnsafeCell::new(0)));
        shared.0.move_in(&shared.1);
        let others = [(); 2].map(|()| {
            let shared = shared.clone();
            thread::spawn(move || {
                // SAFETY: the flag lives as long as the home.
                assert!(!unsafe { shared.0.claim(None, || ()) }, "it is not theirs");
                // SAFETY: no thread is inside any more; loom checks that.
                shared.2.with(|value| assert!(unsafe { *value } <= 1));
            })
        });
        if let Some(_section) = shared.0.enter(&shared.1) {
            // SAFETY: inside alone; loom checks that.
            shared.2.with_mut(|value| unsafe { *value += 1 });
        }
        for other in others {
            other.join().unwrap();
        }
        assert!(shared.0.enter(&shared.1).is_none(), "taken away for good");
    });
}

fn add(lock: &BiasedLock<loom::cell::UnsafeCell<u32>>, flag: Option<&std::sync::Arc<SectionFlag>>) {
    // SAFETY: the lock; loom checks it.
    lock.lock(flag).with_mut(|value| unsafe { *value += 1 });
}

#[test]
fn a_biased_lock_lets_one_in_at_a_time() {
    model(|| {
        let lock = Arc::new(BiasedLock::new(loom::cell::UnsafeCell::new(0)));
        let flag = std::sync::Arc::new(SectionFlag::default());
        add(&lock, Some(&flag));
        let other = {
            let lock = lock.clone();
            thread::spawn(move || {
                add(&lock, None);
                // Another worker, which may get the lock for itself.
                let flag = std::sync::Arc::new(SectionFlag::default());
                add(&lock, Some(&flag));
                add(&lock, Some(&flag));
            })
        };
        add(&lock, Some(&flag));
        add(&lock, Some(&flag));
        other.join().unwrap();
        add(&lock, None);
        // SAFETY: no other thread is left.
        lock.lock(None).with(|value| assert_eq!(unsafe { *value }, 7));
    });
}

#[test]
fn the_models_find_a_right_that_two_have() {
    let faults = [Mutant::EnterWithoutFence, Mutant::EvictWithoutWaiting];
    finds(&faults, "bias::nobody_goes_on_while_a_home_s_worker_is_inside");
    finds(&faults, "bias::a_biased_lock_lets_one_in_at_a_time");
}
