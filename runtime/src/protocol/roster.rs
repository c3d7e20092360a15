//! The tasks that a cancellation must reach: the members of a nursery that have waited, in a list behind the
//! nursery's lock.
//!
//! Conserved: a member is in the list from before its first wait until its end. A cancellation sets the flag of every member
//! and then interrupts it; a member that enlists after it finds its flag set; a member commits to a wait before its
//! last look at its flag ([`may_stay_asleep`]). So no member sleeps over a cancellation.
#![allow(unsafe_code)]

use super::asymmetric;
use super::mutant::{Mutant, broken};
use super::prim::{AtomicBool, Ordering};
use std::cell::Cell;
use std::ptr::null;

/// What can be cancelled. Its place in the list is touched under the lock that the list is behind.
pub trait Member: Sized {
    /// Set by the canceller, once.
    fn cancel_flag(&self) -> &AtomicBool;
    /// Whether it is in the list.
    fn listed(&self) -> &AtomicBool;
    /// The one before it in the list.
    fn prev(&self) -> &Cell<*const Self>;
    /// The one after it.
    fn next(&self) -> &Cell<*const Self>;
    /// Ends its wait, if it waits; leaves a mark if it is about to.
    fn interrupt_wait(&self);
}

/// The list.
#[derive(Debug)]
pub struct Roster<M> {
    first: *const M,
}

// SAFETY: a list of members is not of a thread; they are touched under the lock that it is behind.
unsafe impl<M: Sync> Send for Roster<M> {}

impl<M> Default for Roster<M> {
    fn default() -> Self {
        Self { first: null() }
    }
}

impl<M: Member> Roster<M> {
    /// A member is about to wait for the first time. `cancelled`: the cancellation has been.
    ///
    /// # Safety
    ///
    /// The member stays where it is until [`Roster::delist`], and the caller holds the lock that the list is behind.
    pub unsafe fn enlist(&mut self, member: &M, cancelled: bool) {
        member.prev().set(null());
        member.next().set(self.first);
        // SAFETY: null, or a member that is in the list.
        if let Some(next) = unsafe { self.first.as_ref() } {
            next.prev().set(member);
        }
        self.first = member;
        member.listed().store(true, Ordering::Relaxed);
        if cancelled && !broken(Mutant::EnlistBlindly) {
            member.cancel_flag().store(true, Ordering::SeqCst);
        }
    }

    /// A member that is in the list leaves it.
    ///
    /// # Safety
    ///
    /// The caller holds the lock that the list is behind.
    pub unsafe fn delist(&mut self, member: &M) {
        // SAFETY: null, or a member that is in the list; here and below.
        match unsafe { member.prev().get().as_ref() } {
            Some(prev) => prev.next().set(member.next().get()),
            None => self.first = member.next().get(),
        }
        // SAFETY: as above.
        if let Some(next) = unsafe { member.next().get().as_ref() } {
            next.prev().set(member.prev().get());
        }
        member.listed().store(false, Ordering::Relaxed);
    }

    /// Cancels every member. What says that the nursery is cancelled has been set before.
    ///
    /// # Safety
    ///
    /// The caller holds the lock that the list is behind.
    pub unsafe fn interrupt_all(&self) {
        if self.first.is_null() {
            return;
        }
        if broken(Mutant::WakeBeforeFlag) {
            self.members().for_each(Member::interrupt_wait);
        }
        self.members().for_each(|member| member.cancel_flag().store(true, Ordering::SeqCst));
        if broken(Mutant::WakeBeforeFlag) {
            return;
        }
        // Between the flags and the states: a member commits to a wait and then looks at its flag, with a light one between.
        asymmetric::heavy();
        self.members().for_each(Member::interrupt_wait);
    }

    /// Those in the list, none of which leaves while the caller holds the lock.
    fn members(&self) -> impl Iterator<Item = &M> {
        // SAFETY: null, or a member that is in the list; here and below.
        let first = unsafe { self.first.as_ref() };
        // SAFETY: as above.
        std::iter::successors(first, |member| unsafe { member.next().get().as_ref() })
    }
}

/// Cancels one member.
pub fn interrupt<M: Member>(member: &M) {
    member.cancel_flag().store(true, Ordering::SeqCst);
    // As in `interrupt_all`.
    asymmetric::heavy();
    member.interrupt_wait();
}

/// The last look of the worker that has committed a member's wait: false if the member was cancelled, and has to be
/// interrupted.
pub fn may_stay_asleep<M: Member>(member: &M) -> bool {
    // SeqCst: after the commit; see `interrupt`.
    !member.cancel_flag().load(Ordering::SeqCst)
}
