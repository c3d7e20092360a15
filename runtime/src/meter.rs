//! What `#[budgeted]` inserts.
//!
//! Conserved: each iteration is paid for once, at the back-edge check of its interval or when the function returns.

use crate::cx::Cx;

/// Counts the iterations of one function's loops, and pays for them an interval at a time.
#[derive(Debug)]
pub struct Meter<'a> {
    cx: &'a Cx,
    left: u32,
}

impl Cx {
    /// A meter for one function. `#[budgeted]` makes it.
    #[inline(always)]
    pub fn meter(&self) -> Meter<'_> {
        Meter { cx: self, left: self.yield_interval() }
    }
}

impl Meter<'_> {
    /// A loop goes round.
    #[inline(always)]
    pub fn iteration(&mut self) {
        self.left -= 1;
        if self.left == 0 {
            // Before the check, which may unwind: what was paid for must not be paid for again.
            self.left = self.cx.yield_interval();
            pay(self.cx);
        }
    }

    /// A function is about to be called.
    #[inline(always)]
    pub fn call(&self) {
        self.cx.check();
    }
}

/// Pays for an interval. Takes no meter: its count would have to be in memory, where a loop waits for it.
#[cold]
#[inline(never)]
fn pay(cx: &Cx) {
    cx.check_iterations(cx.yield_interval());
}

impl Drop for Meter<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let n = self.cx.yield_interval() - self.left;
        if n != 0 {
            self.cx.charge_silently(n);
        }
    }
}
