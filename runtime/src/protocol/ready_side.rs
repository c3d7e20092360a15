//! One side of a socket: whether an attempt may succeed, and who waits until one may.
//!
//! The kernel tells each change of a socket once. So what it told is kept here until an attempt finds that it is used up.
//!
//! Conserved: what the kernel told after an attempt began is not forgotten when that attempt finds nothing. While the side is
//! ready, the first of the line is on its way: it was woken, and it either attempts, and then the next one is woken if the side is
//! still ready, or gives its turn up to the next one.

use super::mutant::{Mutant, broken};
use super::prim::{AtomicU64, AtomicUsize, Mutex, Ordering};
use std::collections::VecDeque;

/// An attempt may succeed.
const READY: u64 = 1;
/// The other end has ended the connection, or part of what is there comes by itself: a short read does not mean that nothing is left.
const MORE: u64 = 2;
/// One more event. The state changes with each.
const EVENT: u64 = 4;

/// What an event says of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// An attempt may succeed.
    Ready,
    /// As `Ready`, and so may those after it, however little they find.
    ReadyForMore,
}

/// What was known of a side before an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen(u64);

impl Seen {
    /// Whether an attempt may succeed.
    #[inline]
    pub fn is_ready(self) -> bool {
        self.0 & (READY | MORE) != 0
    }
}

/// What came of a registration.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registered {
    /// It has this place in the line.
    InLine(u64),
    /// The side is ready: the word was not used.
    Ready,
}

/// What came of taking a registration back.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakenBack {
    /// It was in the line: its word is the caller's again.
    Word(usize),
    /// It had its turn. The caller attempts, or passes the turn on.
    Woken,
}

/// The waiters, first come first.
#[derive(Debug, Default)]
struct Line {
    words: VecDeque<(u64, usize)>,
    next_ticket: u64,
}

/// One side of a socket.
#[derive(Debug)]
pub struct ReadySide {
    state: AtomicU64,
    /// How many are in the line: read without its lock.
    waiting: AtomicUsize,
    line: Mutex<Line>,
}

impl Default for ReadySide {
    /// Ready: the first attempt tells.
    fn default() -> Self {
        Self { state: AtomicU64::new(READY), waiting: AtomicUsize::new(0), line: Mutex::new(Line::default()) }
    }
}

impl ReadySide {
    /// To be asked before an attempt.
    #[inline]
    pub fn seen(&self) -> Seen {
        // Acquire: the attempt comes after what the event told.
        Seen(self.state.load(Ordering::Acquire))
    }

    /// The attempt would have blocked. True if nothing was told since.
    pub fn used_up(&self, seen: Seen) -> bool {
        self.clear(seen, READY | MORE)
    }

    /// The attempt has found less than it could take.
    pub fn found_little(&self, seen: Seen) {
        if seen.0 & MORE == 0 {
            self.clear(seen, READY);
        }
    }

    fn clear(&self, seen: Seen, bits: u64) -> bool {
        if broken(Mutant::ClearWithoutCompare) {
            self.state.fetch_and(!bits, Ordering::AcqRel);
            return true;
        }
        // AcqRel: it is one of the changes that `register` and `tell` order.
        self.state.compare_exchange(seen.0, seen.0 & !bits, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The kernel has told something. The first of the line is to be woken, if there is one.
    #[must_use]
    pub fn tell(&self, told: Told) -> Option<usize> {
        let bits = if told == Told::ReadyForMore { READY | MORE } else { READY };
        // AcqRel: see `register`.
        let add = |state: u64| Some((state | bits).wrapping_add(EVENT));
        let _ = self.state.fetch_update(Ordering::AcqRel, Ordering::Relaxed, add);
        self.first()
    }

    /// The next of the line, if the side is ready: it is to be woken. For one that has had its turn.
    #[must_use]
    pub fn next(&self) -> Option<usize> {
        if broken(Mutant::TurnLost) { None } else { self.first() }
    }

    fn first(&self) -> Option<usize> {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut line = self.line.lock().expect("no panic while it is held");
        if !self.seen().is_ready() {
            return None;
        }
        let next = line.words.pop_front().map(|(_, word)| word);
        self.waiting.store(line.words.len(), Ordering::Release);
        next
    }

    /// Gets in line, unless the side is ready.
    pub fn register(&self, word: usize) -> Registered {
        let mut line = self.line.lock().expect("no panic while it is held");
        let ticket = line.next_ticket;
        line.next_ticket += 1;
        line.words.push_back((ticket, word));
        self.waiting.store(line.words.len(), Ordering::Release);
        // A read-modify-write, as an event's is: one of the two comes first. If it is this one, the event acquires the count from
        // it; else this one sees the event.
        let is_ready = Seen(self.state.fetch_or(0, Ordering::AcqRel)).is_ready();
        if is_ready && !broken(Mutant::RegisterWithoutLook) {
            line.words.pop_back();
            self.waiting.store(line.words.len(), Ordering::Release);
            return Registered::Ready;
        }
        Registered::InLine(ticket)
    }

    /// Whether a registration has not been used yet.
    pub fn is_registered(&self, ticket: u64) -> bool {
        let line = self.line.lock().expect("no panic while it is held");
        line.words.iter().any(|(other, _)| *other == ticket)
    }

    /// Takes a registration back.
    pub fn unregister(&self, ticket: u64) -> TakenBack {
        let mut line = self.line.lock().expect("no panic while it is held");
        let Some(place) = line.words.iter().position(|(other, _)| *other == ticket) else {
            return TakenBack::Woken;
        };
        let (_, word) = line.words.remove(place).expect("just found");
        self.waiting.store(line.words.len(), Ordering::Release);
        TakenBack::Word(word)
    }
}
