//! `for` loops in pieces, with a check between two of them.
//!
//! A loop that is left for its checks, rather than interrupted by them, is the loop that it was before: the compiler
//! unrolls and vectorises it. Where the items can be cut in two, as ranges and slices can, a piece is counted at once.
//!
//! Conserved: the pieces together have each item once, in order, and each item is counted once.

use super::{Meter, Purse, SLACK};
use std::ops::Range;
use std::slice;

/// The items of a loop, and the meter that counts them.
#[derive(Debug)]
pub struct Items<'m, P: Purse, I> {
    pub(super) meter: &'m Meter<P>,
    pub(super) items: I,
    pub(super) over: bool,
}

impl<P: Purse, I> Items<'_, P, I> {
    /// Whether the last piece was the last.
    #[inline(always)]
    pub fn is_over(&self) -> bool {
        self.over
    }
}

/// The most items of a piece.
const PIECE: u32 = SLACK;

/// Items that can be cut in two.
pub trait Cut: Iterator + Sized {
    /// Takes the first items off, `PIECE` of them if there are more, and says how many, and whether these were all.
    fn cut(&mut self) -> (Self, u32, bool);
}

/// Pieces of items that can be cut: preferred by the method call of the expansion, since it needs one reference less.
pub trait CutPieces {
    /// What a piece is.
    type Piece: Iterator;
    /// The next piece, which is counted, and will be used whole.
    fn piece(&mut self) -> Self::Piece;
}

impl<P: Purse, I: Cut> CutPieces for Items<'_, P, I> {
    type Piece = I;

    #[inline(always)]
    fn piece(&mut self) -> I {
        let (piece, count, over) = self.items.cut();
        self.over = over;
        self.meter.count_many(count);
        piece
    }
}

/// Pieces of any items, which are counted as they come.
pub trait TakePieces {
    /// What a piece is.
    type Piece: Iterator;
    /// The next piece.
    fn piece(self) -> Self::Piece;
}

impl<'i, 'm, P: Purse, I: Iterator> TakePieces for &'i mut &mut Items<'m, P, I> {
    type Piece = Piece<'i, 'm, P, I>;

    #[inline(always)]
    fn piece(self) -> Self::Piece {
        let room = self.meter.room();
        Piece { items: self, room, taken: 0 }
    }
}

/// The next few items, which are counted when they have been used.
#[derive(Debug)]
pub struct Piece<'i, 'm, P: Purse, I> {
    items: &'i mut Items<'m, P, I>,
    /// So many may yet be taken without a payment.
    room: u32,
    taken: u32,
}

impl<P: Purse, I: Iterator> Iterator for Piece<'_, '_, P, I> {
    type Item = I::Item;

    #[inline(always)]
    fn next(&mut self) -> Option<I::Item> {
        if self.taken == self.room {
            self.items.meter.count_many(self.taken);
            return None;
        }
        let item = self.items.items.next();
        if item.is_some() {
            self.taken += 1;
        } else {
            self.items.over = true;
            self.items.meter.count_many(self.taken);
        }
        item
    }
}

macro_rules! cut_ranges {
    ($($integer:ty as $unsigned:ty),*) => {$(
        impl Cut for Range<$integer> {
            #[inline(always)]
            fn cut(&mut self) -> (Self, u32, bool) {
                // As an unsigned number the difference is right even where it is none of the type.
                let left = if self.start < self.end { self.end.wrapping_sub(self.start) as $unsigned as u64 } else { 0 };
                let begin = self.start;
                if left <= u64::from(PIECE) {
                    return (begin..self.end, left as u32, true);
                }
                // No more than the end, which is written down for the compiler: it leaves checks of bounds out by that.
                self.start = begin.wrapping_add(PIECE as $integer).min(self.end);
                (begin..self.start, PIECE, false)
            }
        }
    )*};
}

cut_ranges!(
    u16 as u16,
    u32 as u32,
    u64 as u64,
    usize as usize,
    i16 as u16,
    i32 as u32,
    i64 as u64,
    isize as usize
);

impl<T> Cut for slice::Iter<'_, T> {
    #[inline(always)]
    fn cut(&mut self) -> (Self, u32, bool) {
        let all = self.as_slice();
        if all.len() <= PIECE as usize {
            return (all.iter(), all.len() as u32, true);
        }
        let (piece, rest) = all.split_at(PIECE as usize);
        *self = rest.iter();
        (piece.iter(), PIECE, false)
    }
}

impl<T> Cut for slice::IterMut<'_, T> {
    #[inline(always)]
    fn cut(&mut self) -> (Self, u32, bool) {
        let all = std::mem::take(self).into_slice();
        let count = all.len();
        if count <= PIECE as usize {
            return (all.iter_mut(), count as u32, true);
        }
        let (piece, rest) = all.split_at_mut(PIECE as usize);
        *self = rest.iter_mut();
        (piece.iter_mut(), PIECE, false)
    }
}
