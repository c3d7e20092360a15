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

#[doc(hidden)]
pub use pieces::{Cut, CutPieces, Items, Piece, TakePieces};

use crate::cx::Cx;
use crate::task::TaskPtr;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

/// The payer that a [`Meter`] charges.
#[doc(hidden)]
pub trait Purse: Copy {
    /// A yield check that pays for `ops`.
    fn pay(self, ops: u32);
    /// As `pay`, out of line: for where it is seldom needed.
    fn pay_rarely(self, ops: u32);
}

/// A task that is metered. Not its `Cx`, which would have to be at hand beside it; but it is bound to that `Cx`, and so to the
/// task and its life.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Metered<'cx>(TaskPtr, PhantomData<&'cx Cx>);

impl Purse for Metered<'_> {
    #[inline(always)]
    fn pay(self, ops: u32) {
        if self.0.charge_slice(ops).is_none() {
            pause::check(self.0, ops);
        }
    }

    #[inline(always)]
    fn pay_rarely(self, ops: u32) {
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
    /// What may still be counted before it is paid for. Down to zero, never below.
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

    /// Pays for what was counted and for `n` more.
    #[inline(always)]
    fn pay_with(&self, n: u32) {
        self.purse.pay_rarely(self.take_unpaid().wrapping_add(n));
    }

    /// Pays for what was counted: the function is over, or the context is handed on.
    #[inline(always)]
    pub fn settle(&self) {
        let unpaid = self.take_unpaid();
        if unpaid != 0 {
            self.purse.pay(unpaid);
        }
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
        // The difference is kept before it is judged: one instruction then does both.
        let before = self.slack.get();
        let (slack, is_over) = before.overflowing_sub(n);
        self.slack.set(slack);
        if is_over {
            cold();
            self.slack.set(before);
            self.pay_with(n);
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
        self.slack.set(self.slack.get().wrapping_sub(1).wrapping_sub(self.extra.replace(0)));
        if self.unpaid() >= UNPAID_AT_CALLS {
            cold();
            self.pay_with(0);
        }
        cx
    }

    /// The items of a `for` loop.
    #[inline(always)]
    pub fn each<I: IntoIterator>(&self, items: I) -> I::IntoIter {
        items.into_iter()
    }

    /// Counts all items, if they know how many they are and they are few enough to be counted as a whole.
    #[inline(always)]
    pub fn takes<I: Iterator>(&self, items: &I) -> bool {
        let (least, most) = items.size_hint();
        if most != Some(least) {
            return false;
        }
        let before = self.slack.get();
        let (slack, is_over) = (before as usize).overflowing_sub(least);
        self.slack.set(slack as u32);
        if is_over {
            cold();
            self.slack.set(before);
            if least > SLACK as usize {
                return false;
            }
            self.pay_with(least as u32);
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
