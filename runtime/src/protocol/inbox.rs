//! Tasks that other threads have made ready for one worker.
//!
//! Conserved: what is pushed is taken once, by the worker, oldest first. A push neither allocates nor waits: the link is in
//! what is pushed, which is in one inbox at a time.
//!
//! A waker pushes and then tells the worker ([`IdleWorkers::notify`](super::sleep::IdleWorkers::notify)). A worker looks
//! into its inbox after it has said that it sleeps, so it does not sleep over a task in it.

use super::mutant::{Mutant, broken};
use super::prim::{AtomicPtr, Ordering};
use std::ptr::null_mut;

/// What can be in an inbox.
pub trait Linked: Sized {
    /// Where the inbox keeps the next one. No other code uses it while this is in an inbox.
    fn link(&self) -> &AtomicPtr<Self>;
}

/// A stack of links: any thread pushes, the worker takes all.
#[derive(Debug)]
pub struct Inbox<N> {
    newest: AtomicPtr<N>,
}

impl<N> Default for Inbox<N> {
    fn default() -> Self {
        Self { newest: AtomicPtr::new(null_mut()) }
    }
}

impl<N: Linked> Inbox<N> {
    /// Puts `node` in.
    ///
    /// # Safety
    ///
    /// The node is in no inbox, and stays where it is until it has been taken out.
    #[allow(unsafe_code)]
    pub unsafe fn push(&self, node: &N) {
        let address = std::ptr::from_ref(node).cast_mut();
        let mut newest = self.newest.load(Ordering::Relaxed);
        loop {
            node.link().store(newest, Ordering::Relaxed);
            // Release pairs with the acquire in `take_all`: the worker sees the link, and the task as its waker saw it.
            // A node that was taken and pushed again meanwhile does no harm: the worker takes all, never one.
            let order =
                if broken(Mutant::InboxWithoutRelease) { Ordering::Relaxed } else { Ordering::Release };
            if broken(Mutant::InboxWithoutCompare) {
                return self.newest.store(address, order);
            }
            match self.newest.compare_exchange_weak(newest, address, order, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => newest = other,
            }
        }
    }

    /// Whether there is nothing. Exact for a worker that has said that it sleeps, a hint for others.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.newest.load(Ordering::Relaxed).is_null()
    }

    /// Takes everything out, and calls `f` with each, oldest first. The worker only.
    #[allow(unsafe_code)]
    pub fn take_all(&self, mut f: impl FnMut(*const N)) {
        // Acquire pairs with the release in `push`.
        let mut newest = self.newest.swap(null_mut(), Ordering::Acquire);
        let mut oldest: *mut N = null_mut();
        // SAFETY: null, or a node that was pushed and stays until `f` has it; here and below.
        while let Some(node) = unsafe { newest.as_ref() } {
            let next = node.link().load(Ordering::Relaxed);
            node.link().store(oldest, Ordering::Relaxed);
            oldest = newest;
            newest = next;
        }
        // SAFETY: as above.
        while let Some(node) = unsafe { oldest.as_ref() } {
            oldest = node.link().load(Ordering::Relaxed);
            f(node);
        }
    }
}
