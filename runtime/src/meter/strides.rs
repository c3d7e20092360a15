//! `while` loops that count by themselves, in pieces: `while i < end { …; i += step; }`.
//!
//! Such a loop needs no count of its own. Its counter is given less far to go, and says how far it got.
//!
//! Conserved: a piece has no more rounds than its meter has room for, and all rounds are counted when it is over. A counter that
//! would pass the end of its type in a piece, or stand still, is refused, and its loop is counted round by round.

use super::{Meter, Purse};

/// A counter, its step, and the rounds that a meter has room for.
#[derive(Debug)]
pub struct Counter<'a, T, S> {
    counter: &'a T,
    step: &'a S,
    rounds: u32,
}

/// A number that counts.
pub trait Stride: Copy + Ord {
    /// Where a counter is after so many steps. `None` if it does not get there, or nowhere.
    fn after(self, rounds: u32, step: Self) -> Option<Self>;
    /// How many steps, no more than a piece has, there are between the two.
    fn rounds_to(self, end: Self, step: Self) -> u32;
}

/// Counters whose loops run in pieces: preferred by the method call of the expansion, since it needs one reference less.
pub trait PlannedStrides {
    /// What a piece is.
    type Piece;
    /// The next piece.
    fn piece(&self) -> Option<Self::Piece>;
}

/// Anything else that is compared and added to.
pub trait AnyStrides {
    /// There is no piece.
    fn piece(&self) -> Option<NoPiece>;
}

/// How far a counter may go.
#[derive(Debug)]
pub struct StridePiece<T> {
    begin: T,
    end: T,
}

/// Stands for a piece where there is none.
#[derive(Debug)]
pub enum NoPiece {}

impl<P: Purse> Meter<P> {
    /// The counter of a `while` loop.
    #[inline(always)]
    pub fn strides<'a, T, S>(&self, counter: &'a T, step: &'a S) -> Counter<'a, T, S> {
        Counter { counter, step, rounds: self.room() }
    }
}

impl<T: Stride> PlannedStrides for Counter<'_, T, T> {
    type Piece = StridePiece<T>;

    #[inline(always)]
    fn piece(&self) -> Option<StridePiece<T>> {
        let begin = *self.counter;
        begin.after(self.rounds, *self.step).map(|end| StridePiece { begin, end })
    }
}

impl<T, S> AnyStrides for &Counter<'_, T, S> {
    #[inline(always)]
    fn piece(&self) -> Option<NoPiece> {
        None
    }
}

impl<T: Stride> StridePiece<T> {
    /// How far the loop may go for now, if it is to end at `bound`.
    #[inline(always)]
    pub fn bound(&self, bound: T) -> T {
        bound.min(self.end)
    }

    /// Counts what the loop has done. Whether that was all.
    #[inline(always)]
    pub fn is_over<P: Purse>(&self, meter: &Meter<P>, counter: &T, step: &T) -> bool {
        meter.count_many(self.begin.rounds_to(*counter, *step));
        *counter < self.end
    }
}

impl NoPiece {
    /// Never called.
    pub fn bound<B>(&self, bound: B) -> B {
        bound
    }

    /// Never called.
    pub fn is_over<P: Purse, T, S>(&self, _: &Meter<P>, _: &T, _: &S) -> bool {
        match *self {}
    }
}

macro_rules! strides {
    ($($integer:ty as $unsigned:ty),*) => {$(
        impl Stride for $integer {
            #[inline(always)]
            fn after(self, rounds: u32, step: Self) -> Option<Self> {
                let rounds = Self::try_from(rounds).ok()?;
                if step < 1 {
                    return None;
                }
                self.checked_add(step.checked_mul(rounds)?)
            }

            #[inline(always)]
            fn rounds_to(self, end: Self, step: Self) -> u32 {
                // As an unsigned number the difference is right even where it is none of the type.
                let way = end.wrapping_sub(self) as $unsigned;
                (way / step as $unsigned) as u32
            }
        }
    )*};
}

strides!(
    u8 as u8,
    u16 as u16,
    u32 as u32,
    u64 as u64,
    usize as usize,
    i8 as u8,
    i16 as u16,
    i32 as u32,
    i64 as u64,
    isize as usize
);
