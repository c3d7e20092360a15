//! What `#[budgeted]` inserts.
//!
//! Conserved: each iteration and each call is paid for once. A function counts on its own, down from what its task may use
//! before it looks up; the count reaches the task when nothing is left of that, before the context is handed on (but for
//! a few at calls), and when the function ends. Only a panic forgives what its function had not yet paid.
//!
//! The count is a difference, not a balance: code that charges the task out of the function's sight loses nothing.

mod pause;
mod pieces;

#[doc(hidden)]
pub use pieces::{Cut, CutPieces, Items, Piece, TakePieces};

use crate::cx::Cx;
use crate::task::TaskPtr;
use std::cell::Cell;
use std::fmt;
use std::sync::atomic::Ordering;

/// Whom a [`Meter`] charges.
#[doc(hidden)]
pub trait Purse: Copy {
    /// Ops that may be used before the purse wants to be asked again.
    fn allowance(self) -> u32;
    /// A yield check that pays for `ops`. Returns the next allowance.
    fn pay(self, ops: u32) -> u32;
    /// As `pay`, where an allowance has been used up.
    fn pay_at_pause(self, ops: u32) -> u32;
    /// Pays for `ops` where nothing may switch or unwind.
    fn pay_silently(self, ops: u32);
}

/// A task that is metered. Not its `Cx`, which would have to be at hand beside it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Metered(TaskPtr);

impl Purse for Metered {
    #[inline(always)]
    fn allowance(self) -> u32 {
        self.0.fuel.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn pay(self, ops: u32) -> u32 {
        match self.0.charge_slice(ops) {
            Some(left) => left,
            None => pause::check(self.0, ops),
        }
    }

    #[inline(always)]
    fn pay_at_pause(self, ops: u32) -> u32 {
        pause::check(self.0, ops)
    }

    #[inline(always)]
    fn pay_silently(self, ops: u32) {
        if self.0.charge_slice(ops).is_none() {
            pause::charge(self.0, ops);
        }
    }
}

/// This many may not be unpaid when a function is called that gets the context.
const UNPAID_AT_CALLS: u32 = 64;

/// Counts the iterations and calls of one function, and pays for them.
pub struct Meter<P: Purse = Metered> {
    purse: P,
    /// What may be used before the next check: down to zero, never below.
    left: Cell<u32>,
    /// What `left` began at, and what was counted without a check. The difference to `left` is not yet paid for.
    due: Cell<u32>,
}

impl<P: Purse> fmt::Debug for Meter<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter").field("unpaid", &self.unpaid()).finish_non_exhaustive()
    }
}

impl Cx {
    /// A meter for one function. `#[budgeted]` makes it.
    #[inline(always)]
    pub fn meter(&self) -> Meter {
        Meter::new(Metered(self.task_ptr()))
    }
}

impl<P: Purse> Meter<P> {
    /// A meter for one function, which calls [`Meter::settle`] at its end. A destructor would cost too much: whatever has
    /// one is kept where an unwind finds it, in every loop that may panic.
    #[inline(always)]
    pub fn new(purse: P) -> Self {
        let allowance = purse.allowance();
        Self { purse, left: Cell::new(allowance), due: Cell::new(allowance) }
    }

    /// Runs a function's body that can be left in ways that only a call can catch.
    #[inline(always)]
    pub fn run<R>(&self, body: impl FnOnce(&Self) -> R) -> R {
        body(self)
    }

    /// The function is over.
    #[inline(always)]
    pub fn settle(self) {
        let unpaid = self.unpaid();
        if unpaid != 0 {
            self.purse.pay_silently(unpaid);
        }
    }

    #[inline(always)]
    fn unpaid(&self) -> u32 {
        self.due.get().wrapping_sub(self.left.get())
    }

    #[inline(always)]
    fn renew(&self, allowance: u32) {
        self.left.set(allowance);
        self.due.set(allowance);
    }

    /// Counts something that a check or the end of the function follows soon.
    #[inline(always)]
    pub fn count(&self) {
        self.count_many(1);
    }

    /// Counts several of them.
    #[inline(always)]
    pub fn count_many(&self, n: u32) {
        self.due.set(self.due.get().wrapping_add(n));
    }

    /// A loop goes round: counts an iteration, and checks if nothing was left for it.
    #[inline(always)]
    pub fn iteration(&self) {
        self.iterations(1);
    }

    /// A loop has gone round so often.
    #[inline(always)]
    pub fn iterations(&self, n: u32) {
        // The difference is kept before it is judged: one instruction then does both.
        let before = self.left.get();
        let (left, is_over) = before.overflowing_sub(n);
        self.left.set(left);
        if is_over {
            cold();
            self.left.set(before);
            self.count_many(n);
            self.pause();
        }
    }

    /// Pays where nothing is left. The call has no part of the meter but numbers, so that the meter can be in registers.
    #[inline(always)]
    fn pause(&self) {
        let unpaid = self.unpaid();
        // Before the check, which may unwind: what it pays for must not be paid for again.
        self.due.set(self.left.get());
        let allowance = self.purse.pay_at_pause(unpaid);
        self.renew(allowance);
    }

    /// The context is handed on: to its new holder nothing is unpaid.
    #[inline(always)]
    pub fn hand_on<T>(&self, cx: T) -> T {
        self.pay();
        cx
    }

    #[inline(always)]
    fn pay(&self) {
        let unpaid = self.unpaid();
        self.due.set(self.left.get());
        let allowance = self.purse.pay(unpaid);
        self.renew(allowance);
    }

    /// A function is called with the context. It will look at what the task has left, so little may be unpaid; but a
    /// payment at each call would be a chain of writes and reads that takes as long as a short function.
    #[inline(always)]
    pub fn call_with<T>(&self, cx: T) -> T {
        self.iteration();
        if self.unpaid() >= UNPAID_AT_CALLS {
            cold();
            self.pay();
        }
        cx
    }

    /// The items of a `for` loop that ends with them, to be taken in pieces.
    #[inline(always)]
    pub fn items<I: IntoIterator>(&self, items: I) -> Items<'_, P, I::IntoIter> {
        Items { meter: self, items: items.into_iter(), over: false }
    }

    /// Counts a piece of a loop that is about to run, and checks first if too little is left for it.
    #[inline(always)]
    fn piece(&self, n: u32) {
        match self.left.get().checked_sub(n) {
            Some(left) => self.left.set(left),
            None => {
                cold();
                self.pause();
                self.count_many(n);
            }
        }
    }
}

/// Says that whoever calls it is seldom there.
#[cold]
#[inline(always)]
fn cold() {}
