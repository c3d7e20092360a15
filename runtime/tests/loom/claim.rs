//! A value that its owner changes without a lock against its claimants.

use crate::{finds, model};
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex};
use loom::thread;
use mainspring::protocol::claim::Claimable;
use mainspring::protocol::mutant::Mutant;

/// The pool of a nursery, and the lock of its claimants.
struct Pool {
    value: Claimable<UnsafeCell<u32>>,
    lock: Mutex<()>,
}

fn take(value: &UnsafeCell<u32>, amount: u32) -> u32 {
    // SAFETY: the protocol lets one side in at a time; loom checks that.
    value.with_mut(|value| unsafe {
        let taken = amount.min(*value);
        *value -= taken;
        taken
    })
}

impl Pool {
    fn new(amount: u32) -> Self {
        Self { value: Claimable::new(UnsafeCell::new(amount)), lock: Mutex::new(()) }
    }

    /// What the owner does: without the lock, or with it once the value was claimed.
    fn own(&self, amount: u32) -> u32 {
        // SAFETY: the thread that calls this is the owner.
        let alone = unsafe { self.value.try_own(|value| take(value, amount)) };
        alone.unwrap_or_else(|| {
            let _guard = self.lock.lock().unwrap();
            // SAFETY: the owner, with the lock.
            unsafe { self.value.own_locked(|value| take(value, amount)) }
        })
    }

    fn claim(&self, amount: u32) -> u32 {
        let _guard = self.lock.lock().unwrap();
        // SAFETY: under the lock of the claimants.
        unsafe { self.value.claim(|value| take(value, amount)) }
    }
}

//= OWN:budget.conserve
#[test]
fn an_amount_goes_to_the_owner_or_to_a_claimant_and_never_to_both() {
    model(|| {
        let pool = Arc::new(Pool::new(10));
        let claimant = {
            let pool = pool.clone();
            thread::spawn(move || pool.claim(6) + pool.claim(1))
        };
        let owned = pool.own(5) + pool.own(3);
        let claimed = claimant.join().unwrap();
        let left = pool.own(10);
        assert_eq!(owned + claimed + left, 10, "{owned} and {claimed} taken, {left} left");
    });
}

#[test]
fn two_claimants_and_the_owner_change_the_value_one_at_a_time() {
    model(|| {
        let pool = Arc::new(Pool::new(6));
        let claimants = [(); 2].map(|()| {
            let pool = pool.clone();
            thread::spawn(move || pool.claim(2))
        });
        let owned = pool.own(3);
        let claimed: u32 = claimants.into_iter().map(|claimant| claimant.join().unwrap()).sum();
        assert_eq!(owned + claimed + pool.own(6), 6);
    });
}

#[test]
fn an_owner_that_was_alone_under_the_lock_does_without_it_until_the_next_claim() {
    model(|| {
        let pool = Arc::new(Pool::new(3));
        // SAFETY: the thread that calls this is the owner.
        let alone = |pool: &Pool| unsafe { pool.value.try_own(|_| ()) }.is_some();
        assert_eq!((pool.claim(1), alone(&pool)), (1, false));
        assert_eq!((pool.own(1), alone(&pool)), (1, true));
        let claimant = {
            let pool = pool.clone();
            thread::spawn(move || pool.claim(1))
        };
        let owned = pool.own(1);
        assert_eq!(owned + claimant.join().unwrap(), 1);
    });
}

#[test]
fn the_models_find_a_value_that_two_change_at_once() {
    let faults = [
        Mutant::OwnWithoutFence,
        Mutant::ClaimWithoutFence,
        Mutant::ClaimWithoutWaiting,
        Mutant::LeaveWithoutRelease,
    ];
    finds(&faults, "claim::an_amount_goes_to_the_owner_or_to_a_claimant_and_never_to_both");
    finds(&faults, "claim::two_claimants_and_the_owner_change_the_value_one_at_a_time");
    finds(&faults, "claim::an_owner_that_was_alone_under_the_lock_does_without_it_until_the_next_claim");
}
