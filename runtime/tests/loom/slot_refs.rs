//! The wakers of a slot against the end of the runtime.

use crate::{finds, model};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use mainspring::protocol::mutant::Mutant;
use mainspring::protocol::slot_refs::{LetGo, SlotRefs};

/// The runtime's memory: freed when the last hold goes.
struct Memory {
    holds: AtomicUsize,
    freed: loom::cell::UnsafeCell<bool>,
    wakers: SlotRefs,
}

impl Memory {
    fn make_waker(&self) {
        self.wakers.keep(|| {
            assert_ne!(self.holds.fetch_add(1, Ordering::Relaxed), 0, "taken hold of after it went");
        });
    }

    fn use_waker(&self) {
        // SAFETY: loom checks that no thread writes it meanwhile.
        self.freed.with(|freed| assert!(!unsafe { *freed }, "used after it went"));
        if self.wakers.let_go() == LetGo::Last {
            self.let_go();
        }
    }

    fn let_go(&self) {
        if self.holds.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: loom checks that no thread reads it any more.
            self.freed
                .with_mut(|freed| assert!(!std::mem::replace(unsafe { &mut *freed }, true), "freed twice"));
        }
    }
}

#[test]
fn wakers_keep_the_memory_of_their_runtime_until_the_last() {
    model(|| {
        let memory = Arc::new(Memory {
            holds: AtomicUsize::new(1),
            freed: loom::cell::UnsafeCell::new(false),
            wakers: SlotRefs::new(),
        });
        memory.make_waker();
        let elsewhere = {
            let memory = memory.clone();
            thread::spawn(move || {
                // A clone of a waker, and both used up.
                memory.make_waker();
                memory.use_waker();
                memory.use_waker();
            })
        };
        // The next poll makes another; then the runtime goes, and then the waker.
        memory.make_waker();
        memory.let_go();
        memory.use_waker();
        elsewhere.join().unwrap();
        // SAFETY: no other thread is left.
        memory.freed.with(|freed| assert!(unsafe { *freed }, "kept for ever"));
    });
}

#[test]
fn the_model_finds_memory_that_goes_too_early() {
    finds(
        &[Mutant::LetGoWithoutAcquire, Mutant::NoHold],
        "slot_refs::wakers_keep_the_memory_of_their_runtime_until_the_last",
    );
}
