//! The work-stealing deque of Chase and Lev: the owner pushes and pops at the bottom, newest first; thieves steal at
//! the top, oldest first.
//!
//! Conserved: each word pushed is returned exactly once, by a pop or by a steal. Words are never zero. The memory
//! orderings are as in Lê, Pop, Cohen and Nardelli (PPoPP 2013). A buffer that was outgrown is kept until the deque
//! goes, since a thief may still read from it; together they are no larger than the one in use.
//!
//! The fence of a pop takes as long as the rest of a fork and join that is not stolen. It is there for thieves, so thieves
//! pay for it: a worker that wants to steal announces itself to all owners and makes them pass a fence
//! (`asymmetric::heavy`), and owners use theirs while any thief is announced. Since that costs the thief a system call, it
//! stays announced until it has popped `CALM` words of its own, or sleeps. The README beside this file has the argument.

use super::asymmetric;
use super::mutant::{Mutant, broken};
use super::prim::{AtomicIsize, AtomicPtr, AtomicUsize, Ordering, fence};
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::Arc;

const FIRST_CAPACITY: usize = if cfg!(loom) { 2 } else { 256 };

/// Pops after which a thief that has not stolen since is no longer one.
const CALM: u32 = if cfg!(loom) { 1 } else { 256 };

/// How many owners of a set of deques may be stealing from the others.
#[derive(Debug, Default)]
struct Thieves(AtomicUsize);

#[derive(Debug)]
struct Buffer {
    slots: Box<[AtomicUsize]>,
    /// The one that this one has replaced, or null.
    outgrown: *mut Buffer,
}

impl Buffer {
    fn new(capacity: usize, outgrown: *mut Self) -> *mut Self {
        let slots = (0..capacity).map(|_| AtomicUsize::new(0)).collect();
        Box::into_raw(Box::new(Self { slots, outgrown }))
    }

    fn slot(&self, index: isize) -> &AtomicUsize {
        &self.slots[index as usize & (self.slots.len() - 1)]
    }
}

#[derive(Debug)]
struct Shared {
    top: AtomicIsize,
    bottom: AtomicIsize,
    buffer: AtomicPtr<Buffer>,
}

/// The owner's end. It can be moved to another thread, and not shared.
#[derive(Debug)]
pub struct Owner {
    shared: Arc<Shared>,
    /// Only the owner changes the bottom, so it need not read it back.
    bottom: Cell<isize>,
    thieves: Arc<Thieves>,
    /// Pops until this owner is no longer announced as a thief; 0 if it is not.
    calm: Cell<u32>,
}

/// A thief's end.
#[derive(Clone, Debug)]
pub struct Stealer {
    shared: Arc<Shared>,
    _not_the_owner: PhantomData<()>,
}

/// What an attempt to steal came to.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steal {
    /// There was nothing.
    Empty,
    /// Another thread took it first; there may be more.
    Lost,
    /// The oldest word.
    Taken(usize),
}

/// Deques whose owners steal from each other: each with its owner's end and a thief's end.
pub fn deques(count: usize) -> Vec<(Owner, Stealer)> {
    let thieves = Arc::new(Thieves::default());
    (0..count)
        .map(|_| {
            let shared = Arc::new(Shared {
                top: AtomicIsize::new(0),
                bottom: AtomicIsize::new(0),
                buffer: AtomicPtr::new(Buffer::new(FIRST_CAPACITY, null_mut())),
            });
            let owner = Owner {
                shared: shared.clone(),
                bottom: Cell::new(0),
                thieves: thieves.clone(),
                calm: Cell::new(0),
            };
            (owner, Stealer { shared, _not_the_owner: PhantomData })
        })
        .collect()
}

impl Shared {
    #[allow(unsafe_code)]
    fn buffer(&self, order: Ordering) -> &Buffer {
        // SAFETY: buffers live until the deque goes, and `self` is part of it.
        unsafe { &*self.buffer.load(order) }
    }
}

impl Owner {
    /// Puts a word at the bottom.
    #[inline]
    pub fn push(&self, word: usize) {
        debug_assert_ne!(word, 0);
        let shared = &*self.shared;
        let bottom = self.bottom.get();
        // Acquire pairs with the CAS of a thief: its slot is read before it is written again.
        let top = shared.top.load(Ordering::Acquire);
        let mut buffer = shared.buffer(Ordering::Relaxed);
        if bottom - top >= buffer.slots.len() as isize {
            buffer = self.grow(top, bottom);
        }
        buffer.slot(bottom).store(word, Ordering::Relaxed);
        // Pairs with the fence in `steal`: a thief that sees the new bottom sees the word.
        if !broken(Mutant::PushWithoutRelease) {
            fence(Ordering::Release);
        }
        self.bottom.set(bottom + 1);
        shared.bottom.store(bottom + 1, Ordering::Relaxed);
    }

    #[cold]
    #[allow(unsafe_code)]
    fn grow(&self, top: isize, bottom: isize) -> &Buffer {
        let old_raw = self.shared.buffer.load(Ordering::Relaxed);
        let old = self.shared.buffer(Ordering::Relaxed);
        let new_raw = Buffer::new(old.slots.len() * 2, old_raw);
        // SAFETY: just made, and not yet published.
        let new = unsafe { &*new_raw };
        for index in top..bottom {
            new.slot(index).store(old.slot(index).load(Ordering::Relaxed), Ordering::Relaxed);
        }
        // Release pairs with the acquire in `steal`: a thief that sees the buffer sees its words.
        self.shared.buffer.store(new_raw, Ordering::Release);
        new
    }

    /// Takes the newest word.
    #[inline]
    pub fn pop(&self) -> Option<usize> {
        let shared = &*self.shared;
        let bottom = self.bottom.get() - 1;
        // Only thieves raise the top, so a deque that looks empty to its owner is empty: no fence is needed to say so.
        if shared.top.load(Ordering::Relaxed) > bottom {
            return None;
        }
        shared.bottom.store(bottom, Ordering::Relaxed);
        self.beware_of_thieves();
        let top = shared.top.load(Ordering::Relaxed);
        if top < bottom {
            self.bottom.set(bottom);
            return Some(shared.buffer(Ordering::Relaxed).slot(bottom).load(Ordering::Relaxed));
        }
        let word = (top == bottom)
            .then(|| shared.buffer(Ordering::Relaxed).slot(bottom).load(Ordering::Relaxed))
            .filter(|_| {
                shared.top.compare_exchange(top, top + 1, Ordering::SeqCst, Ordering::Relaxed).is_ok()
            });
        shared.bottom.store(bottom + 1, Ordering::Relaxed);
        word
    }

    /// Takes the `N` newest words at once, newest last. Takes none if thieves might want one of them.
    #[inline]
    pub fn pop_some<const N: usize>(&self) -> Option<[usize; N]> {
        let shared = &*self.shared;
        let bottom = self.bottom.get() - N as isize;
        if shared.top.load(Ordering::Relaxed) >= bottom {
            return None;
        }
        shared.bottom.store(bottom, Ordering::Relaxed);
        // As in `pop`: a thief that has not seen the new bottom is after the word at a top that is seen here, and that is
        // below all of these.
        self.beware_of_thieves();
        if shared.top.load(Ordering::Relaxed) >= bottom {
            shared.bottom.store(self.bottom.get(), Ordering::Relaxed);
            return None;
        }
        self.bottom.set(bottom);
        let buffer = shared.buffer(Ordering::Relaxed);
        Some(std::array::from_fn(|i| buffer.slot(bottom + i as isize).load(Ordering::Relaxed)))
    }

    /// Takes the oldest word. `None` also if a thief took it first.
    pub fn pop_oldest(&self) -> Option<usize> {
        let shared = &*self.shared;
        let top = shared.top.load(Ordering::Relaxed);
        if top >= self.bottom.get() {
            return None;
        }
        let word = shared.buffer(Ordering::Relaxed).slot(top).load(Ordering::Relaxed);
        // The bottom stays, so that only thieves are after the same word, and the CAS decides among all of them.
        if broken(Mutant::OldestWithoutCompare) {
            shared.top.store(top + 1, Ordering::SeqCst);
        } else {
            shared.top.compare_exchange(top, top + 1, Ordering::SeqCst, Ordering::Relaxed).ok()?;
        }
        Some(word)
    }

    /// After the owner has moved the bottom, and before it looks at the top.
    #[inline(always)]
    fn beware_of_thieves(&self) {
        // Pairs with the heavy one in `announce`: this sees the thief, or the thief sees the bottom.
        if !broken(Mutant::PopWithoutFence) {
            asymmetric::light();
        }
        // Acquire pairs with `withdraw`: if the thief has gone, the top that it left is seen below.
        if self.thieves.0.load(Ordering::Acquire) != 0 {
            self.calm_down();
            // Pairs with the fence in `steal`: of the owner and a thief after the same last word, at least one sees the
            // other, and the CAS on the top decides. Weaker, both could take it.
            if !broken(Mutant::PopWithoutFence) {
                fence(Ordering::SeqCst);
            }
        }
    }

    /// This owner is about to steal.
    fn announce(&self) {
        if self.calm.replace(CALM) == 0 {
            self.thieves.0.fetch_add(1, Ordering::SeqCst);
            // Pairs with the light one of an owner that takes words.
            if !broken(Mutant::AnnounceWithoutFence) {
                asymmetric::heavy();
            }
        }
    }

    /// This owner does not steal for now: the others need not be on their guard.
    pub fn withdraw(&self) {
        if self.calm.replace(0) != 0 {
            // Release pairs with the acquire in `pop`.
            self.thieves.0.fetch_sub(1, Ordering::Release);
        }
    }

    fn calm_down(&self) {
        match self.calm.get() {
            0 => {}
            1 => self.withdraw(),
            calm => self.calm.set(calm - 1),
        }
    }

    /// How many words there are.
    pub fn len(&self) -> usize {
        (self.bottom.get() - self.shared.top.load(Ordering::Relaxed)).max(0) as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.withdraw();
    }
}

impl Drop for Shared {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        let mut next = self.buffer.load(Ordering::Relaxed);
        while !next.is_null() {
            // SAFETY: the last reference is going, so no thread reads from the buffer or from those that it has replaced.
            // Each is in the chain once.
            next = unsafe { Box::from_raw(next) }.outgrown;
        }
    }
}

impl Stealer {
    /// Takes the oldest word, on behalf of the owner of another deque of the set.
    pub fn steal(&self, thief: &Owner) -> Steal {
        let shared = &*self.shared;
        if self.is_empty() {
            return Steal::Empty;
        }
        thief.announce();
        let top = shared.top.load(Ordering::Acquire);
        // Pairs with the fence in `pop`.
        if !broken(Mutant::AnnounceWithoutFence) {
            fence(Ordering::SeqCst);
        }
        let bottom = shared.bottom.load(Ordering::Acquire);
        if top >= bottom {
            return Steal::Empty;
        }
        let word = shared.buffer(Ordering::Acquire).slot(top).load(Ordering::Relaxed);
        match shared.top.compare_exchange(top, top + 1, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => Steal::Taken(word),
            Err(_) => Steal::Lost,
        }
    }

    /// About how many words there are.
    pub fn len(&self) -> usize {
        (self.shared.bottom.load(Ordering::Relaxed) - self.shared.top.load(Ordering::Relaxed)).max(0) as usize
    }

    /// Whether there seem to be none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
