//! What `#[budgeted]` inserts.
//!
//! Conserved: each iteration and each call is paid for once. A function counts on its own, in registers, up to `SLACK`; the
//! count reaches the task when that is used up, before the context is handed on (but for a few at calls), and when the
//! function ends. Only a panic forgives what its function had not yet paid.
//!
//! The count is a difference, not a balance: code that charges the task out of the function's sight loses nothing. It begins
//! at a constant, not at what the task has left: so a function needs one register for it rather than two, and touches the
//! task only to pay.

mod pause;
mod pieces;
mod strides;

#[doc(hidden)]
pub use pieces::{Cut, CutPieces, Items, Piece, TakePieces};
#[doc(hidden)]
pub use strides::{AnyStrides, Counter, NoPiece, PlannedStrides, Stride, StridePiece};

use crate::cx::Cx;
use crate::task::TaskPtr;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

/// The payer that a [`Meter`] charges.
#[doc(hidden)]
pub trait Purse: Copy {
    /// Pays for `ops` if it need not look up for that. Else it does nothing.
    fn pays(self, ops: u32) -> bool;
    /// A yield check that pays for `ops`, for which `pays` was false.
    fn check(self, ops: u32);

    /// A yield check that pays for `ops`.
    #[inline(always)]
    fn pay(self, ops: u32) {
        if !self.pays(ops) {
            cold();
            self.check(ops);
        }
    }
}

/// A task that is metered. Not its `Cx`, which would have to be at hand beside it; but it is bound to that `Cx`, and so to the
/// task and its life.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Metered<'cx>(TaskPtr, PhantomData<&'cx Cx>);

impl Purse for Metered<'_> {
    #[inline(always)]
    fn pays(self, ops: u32) -> bool {
        self.0.charge_slice(ops).is_some()
    }

    #[inline(always)]
    fn check(self, ops: u32) {
        pause::check(self.0, ops);
    }
}

/// This many ops may be unpaid in a function. A constant, so that it needs no register; no more than the least interval of a
/// profile.
const SLACK: u32 = 512;
/// This many may not be unpaid when a function is called that gets the context.
const UNPAID_AT_CALLS: u32 = 64;

/// Counts the iterations and calls of one function.
///
/// A meter acts for one task, so it neither leaves that task nor outlives it:
///
/// ```compile_fail,E0277
/// # use mainspring::{Config, Profile};
/// # let runtime = Config::new(Profile::Service).build().unwrap();
/// runtime.run(|cx| {
///     let meter = cx.meter();
///     std::thread::scope(|threads| threads.spawn(move || meter.count()).join());
/// });
/// ```
///
/// ```compile_fail
/// # use mainspring::{Config, Profile};
/// # let runtime = Config::new(Profile::Service).build().unwrap();
/// let escaped = runtime.run(|cx| cx.meter());
/// ```
pub struct Meter<P: Purse> {
    purse: P,
    /// What may still be counted before it is paid for. Below zero only until that is seen.
    slack: Cell<u32>,
    /// What was counted since the last check, beyond that.
    extra: Cell<u32>,
}

impl<P: Purse> fmt::Debug for Meter<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter").field("unpaid", &self.unpaid()).finish_non_exhaustive()
    }
}

impl Cx {
    /// A meter for one function. `#[budgeted]` makes it.
    #[inline(always)]
    pub fn meter(&self) -> Meter<Metered<'_>> {
        self.probe_stack();
        Meter::new(Metered(self.task_ptr(), PhantomData))
    }
}

impl<P: Purse> Meter<P> {
    /// A meter for one function, which calls [`Meter::settle`] at its end. A destructor would cost too much: whatever has
    /// one is kept where an unwind finds it, in every loop that may panic.
    #[inline(always)]
    pub fn new(purse: P) -> Self {
        Self { purse, slack: Cell::new(SLACK), extra: Cell::new(0) }
    }

    /// Runs a function's body that can be left in ways that only a call can catch.
    #[inline(always)]
    pub fn run<R>(&self, body: impl FnOnce(&Self) -> R) -> R {
        body(self)
    }

    #[inline(always)]
    fn unpaid(&self) -> u32 {
        SLACK.wrapping_sub(self.slack.get()).wrapping_add(self.extra.get())
    }

    /// Takes what is unpaid, to pay for it. Before the check, which may unwind: what it pays for must not be paid for again.
    #[inline(always)]
    fn take_unpaid(&self) -> u32 {
        let unpaid = self.unpaid();
        self.slack.set(SLACK);
        self.extra.set(0);
        unpaid
    }

    /// Pays for what was counted: the function is over, or the context is handed on. What costs nothing is paid for too, which takes no
    /// longer than to ask whether it does.
    #[inline(always)]
    pub fn settle(&self) {
        let unpaid = self.take_unpaid();
        self.purse.pay(unpaid);
    }

    /// A loop goes round: counts an iteration with what was added in it, and pays if there is no slack for them.
    #[inline(always)]
    pub fn count(&self) {
        self.count_many(self.extra.replace(0).wrapping_add(1));
    }

    /// As [`Meter::count`], for a loop with others in it. What they added is a number that the compiler does not know, and
    /// would have to be kept at hand: it is paid for later.
    #[inline(always)]
    pub fn count_around(&self) {
        self.count_many(1);
    }

    #[inline(always)]
    fn count_many(&self, n: u32) {
        let (slack, is_over) = self.slack.get().overflowing_sub(n);
        // Before it is judged: one instruction then does both. What is unpaid is a difference, which is right beyond zero too.
        self.slack.set(slack);
        if is_over {
            cold();
            // Else it would be traced back to what there was before, which would be kept in a register of its own for that.
            self.slack.set(pause::untraced(slack));
            self.settle();
        }
    }

    /// Counts something that a check or the end of the function follows soon.
    #[inline(always)]
    pub fn add(&self) {
        self.extra.set(self.extra.get().wrapping_add(1));
    }

    /// The context is handed on to a method or into a value: to its new holder nothing is unpaid.
    #[inline(always)]
    pub fn hand_on<T>(&self, cx: T) -> T {
        self.settle();
        cx
    }

    /// A function is called with the context. It may look at what the task has left, so little may be unpaid; but a payment
    /// at each call would be a chain of writes and reads that takes as long as a short function.
    #[inline(always)]
    pub fn call_with<T>(&self, cx: T) -> T {
        self.count_call(1, cx)
    }

    /// As [`Meter::call_with`], and it counts the round of the loop that it is in.
    #[inline(always)]
    pub fn call_with_in_round<T>(&self, cx: T) -> T {
        self.count_call(2, cx)
    }

    #[inline(always)]
    fn count_call<T>(&self, ops: u32, cx: T) -> T {
        self.slack.set(self.slack.get().wrapping_sub(ops).wrapping_sub(self.extra.replace(0)));
        // Signed: the calls before may have cost more than there was.
        if self.slack.get() as i32 <= (SLACK - UNPAID_AT_CALLS) as i32 {
            cold();
            self.settle();
        }
        cx
    }

    /// How many rounds may be counted without a payment: one at least, and for that pays now if there are none.
    #[inline(always)]
    fn room(&self) -> u32 {
        if self.slack.get() == 0 {
            cold();
            self.settle();
        }
        self.slack.get()
    }

    /// The items of a `for` loop.
    #[inline(always)]
    pub fn each<I: IntoIterator>(&self, items: I) -> I::IntoIter {
        items.into_iter()
    }

    /// Counts all items, if they know how many they are and they are few enough to be counted as a whole.
    #[inline(always)]
    pub fn takes<I: Iterator>(&self, items: &I) -> bool {
        self.takes_beside(0, items)
    }

    /// As [`Meter::takes`], and then it counts the round of the loop that it is in.
    #[inline(always)]
    pub fn takes_with_round<I: Iterator>(&self, items: &I) -> bool {
        self.takes_beside(1, items)
    }

    /// The loop is paid for at once: to count it would come to a payment every few loops, which cannot be foreseen by the processor.
    #[inline(always)]
    fn takes_beside<I: Iterator>(&self, ops: u32, items: &I) -> bool {
        let (least, most) = items.size_hint();
        if most != Some(least) || least > SLACK as usize {
            return false;
        }
        let ops = ops + least as u32;
        if !self.purse.pays(ops) {
            cold();
            self.purse.check(self.take_unpaid().wrapping_add(ops));
        }
        true
    }

    /// The items of a `for` loop that ends with them, to be taken in pieces.
    #[inline(always)]
    pub fn items<I: Iterator>(&self, items: I) -> Items<'_, P, I> {
        Items { meter: self, items, over: false }
    }
}

/// Tells the compiler that its caller is on a rare path.
#[cold]
#[inline(always)]
fn cold() {}
