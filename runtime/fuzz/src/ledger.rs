//! Values that are counted: each is dropped exactly once, and none is overwritten.

use crate::rng::mix;
use crate::verdict::violation;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Values per seed.
const SLOTS: usize = 1 << 18;
const FREE: u8 = 0;
const LIVE: u8 = 1;
const DROPPED: u8 = 2;

static STATES: [AtomicU8; SLOTS] = [const { AtomicU8::new(FREE) }; SLOTS];
static KINDS: [AtomicU8; SLOTS] = [const { AtomicU8::new(0) }; SLOTS];
static MADE: AtomicU32 = AtomicU32::new(0);
static GONE: AtomicU32 = AtomicU32::new(0);
static SEED: AtomicU64 = AtomicU64::new(0);

/// What a value is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Capture,
    Result,
    Message,
    Local,
    Error,
}

const NAMES: [&str; 5] = ["capture", "result", "message", "local", "error"];

/// A value that the ledger knows.
#[derive(Debug)]
pub struct Tracked {
    slot: u32,
    kind: Kind,
    canary: u64,
}

fn canary(slot: u32) -> u64 {
    mix(SEED.load(Ordering::Relaxed) ^ (u64::from(slot) << 32 | 0x5bd1))
}

impl Tracked {
    pub fn new(kind: Kind) -> Self {
        let slot = MADE.fetch_add(1, Ordering::Relaxed);
        if slot as usize >= SLOTS {
            violation("the fuzzer made more values than its ledger holds; ask for fewer acts");
        }
        KINDS[slot as usize].store(kind as u8, Ordering::Relaxed);
        STATES[slot as usize].store(LIVE, Ordering::Relaxed);
        Self { slot, kind, canary: canary(slot) }
    }

    /// Drops it, after it was noted as dropped: for the test of the ledger.
    pub fn forget_and_note(self) {
        STATES[self.slot as usize].store(DROPPED, Ordering::Relaxed);
    }

    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// The value is whole and alive.
    pub fn check(&self) {
        let name = NAMES[self.kind as usize];
        if self.canary != canary(self.slot) {
            violation(format_args!("a {name} was written over, or is from an earlier run"));
        }
        if STATES[self.slot as usize].load(Ordering::Relaxed) != LIVE {
            violation(format_args!("a {name} ({}) is used after it was dropped", self.slot));
        }
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        let name = NAMES[self.kind as usize];
        if self.canary != canary(self.slot) {
            violation(format_args!("a {name} was written over, or is from an earlier run"));
        }
        if STATES[self.slot as usize].swap(DROPPED, Ordering::Relaxed) != LIVE {
            violation(format_args!("a {name} ({}) was dropped twice", self.slot));
        }
        GONE.fetch_add(1, Ordering::Relaxed);
    }
}

/// A new run: nothing is known.
pub fn begin(seed: u64) {
    let made = MADE.swap(0, Ordering::Relaxed) as usize;
    GONE.store(0, Ordering::Relaxed);
    STATES[..made.min(SLOTS)].iter().for_each(|state| state.store(FREE, Ordering::Relaxed));
    SEED.store(seed, Ordering::Relaxed);
}

/// The run is over: everything is gone.
pub fn end() {
    let (made, gone) = (MADE.load(Ordering::Relaxed), GONE.load(Ordering::Relaxed));
    if made == gone {
        return;
    }
    let left: Vec<_> = (0..made as usize)
        .filter(|&slot| STATES[slot].load(Ordering::Relaxed) == LIVE)
        .take(8)
        .map(|slot| (NAMES[KINDS[slot].load(Ordering::Relaxed) as usize], slot))
        .collect();
    violation(format_args!("{} of {made} values were never dropped: {left:?}", made - gone));
}
