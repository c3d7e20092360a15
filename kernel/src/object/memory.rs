//! Memory that several processes can map.
//!
//! Objects live in a table of fixed size. A [`MemoryObject`] is a reference to one; the object ends with its last reference,
//! and its pages are given back a few at a time, see [`bury`].
//!
//! Conserved: each holder of an object pays for all of it. A capability carries the charge of its process; a second process
//! that is given the object is charged again, before it starts, and can be refused. What the last holder was charged is
//! refunded with the last page and not before, so every page is charged to some process for as long as it is not free. A
//! process ends after that, so none needs the ledger of a process that has ended. An object that was ever mapped writable is
//! never mapped executable, and the other way round, by any process.

use super::caps::CAPS;
use super::process::{self, refusal};
use crate::arch::{Flags, Frame, FrameList};
use core::sync::atomic::{AtomicU32, Ordering};
use heapless::Vec;
use mainspring_abi::ring::CapError;
use mainspring_kernel_core::ledger::{Charge, Kind, Ledger, Refused};
use spin::Mutex;

/// Objects that one process may hold: as many as it can have capabilities.
pub const HELD: usize = CAPS;
/// As many as all processes together may hold, so that no process's objects are in the way of another's.
const OBJECTS: usize = HELD * process::MAX_PROCESSES;

const WRITABLE: u32 = 1;
const EXECUTABLE: u32 = 2;

struct Slot {
    holders: AtomicU32,
    /// How programs may use it has been decided: writable or executable.
    access: AtomicU32,
    pages: Mutex<FrameList>,
    /// What its last holder was charged, until the pages are given back.
    owed: Mutex<Option<Charges>>,
}

/// For the frames of an object, and for holding it.
type Charges = (Charge<'static>, Charge<'static>);

static SLOTS: [Slot; OBJECTS] = [const {
    Slot {
        holders: AtomicU32::new(0),
        access: AtomicU32::new(0),
        pages: Mutex::new(FrameList::new()),
        owed: Mutex::new(None),
    }
}; OBJECTS];

/// Slots that no object has.
struct Free {
    /// Those that were used before.
    again: Vec<u16, OBJECTS>,
    /// From here on none was ever used.
    fresh: u16,
}

static FREE: Mutex<Free> = Mutex::new(Free { again: Vec::new(), fresh: 0 });
/// Objects without a holder, whose pages are to be given back.
static ENDED: Mutex<Vec<u16, OBJECTS>> = Mutex::new(Vec::new());
/// How many of those there are, those that are being worked on included.
static ENDED_COUNT: AtomicU32 = AtomicU32::new(0);

/// A reference to an object, with what its holder is charged if it is a capability's.
#[derive(Debug)]
pub struct MemoryObject {
    slot: u32,
    /// Refunded with it, or with the object's pages if it is the last reference.
    charges: Option<Charges>,
}

impl Clone for MemoryObject {
    /// For the moment: a holder that keeps it must be charged, see [`MemoryObject::held_by`].
    fn clone(&self) -> Self {
        // Relaxed: the holder of a reference keeps the object.
        SLOTS[self.slot as usize].holders.fetch_add(1, Ordering::Relaxed);
        Self { slot: self.slot, charges: None }
    }
}

impl Drop for MemoryObject {
    fn drop(&mut self) {
        let slot = &SLOTS[self.slot as usize];
        // AcqRel: the last holder comes after everything that the other holders did.
        if slot.holders.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        // One that is refused before it has a page leaves nothing to others.
        if slot.pages.lock().frames() == 0 {
            return free(self.slot as u16);
        }
        *slot.owed.lock() = self.charges.take();
        ENDED_COUNT.fetch_add(1, Ordering::Relaxed);
        // The list has room for every object.
        let _there_is_room = ENDED.lock().push(self.slot as u16);
    }
}

/// Slot `number` has no pages and no holder: it can be another object's.
fn free(number: u16) {
    // The list has room for every object.
    let _there_is_room = FREE.lock().again.push(number);
}

fn charges(ledger: &'static Ledger<'static>, pages: usize) -> Result<Charges, Refused> {
    let frames = pages + FrameList::overhead(pages);
    Ok((ledger.charge(Kind::Frames, frames as u64)?, ledger.charge(Kind::Objects, 1)?))
}

impl MemoryObject {
    /// An object that will have so many pages, on the account of its maker. It has none yet, see [`MemoryObject::fill`].
    pub fn new(ledger: &'static Ledger<'static>, pages: usize) -> Result<Self, CapError> {
        let charges = charges(ledger, pages).map_err(refusal)?;
        let mut free = FREE.lock();
        let number = match free.again.pop() {
            Some(number) => number,
            None if usize::from(free.fresh) < OBJECTS => {
                free.fresh += 1;
                free.fresh - 1
            }
            None => return Err(CapError::NoMemory),
        };
        drop(free);
        let (number, slot) = (u32::from(number), &SLOTS[usize::from(number)]);
        slot.holders.store(1, Ordering::Relaxed);
        slot.access.store(0, Ordering::Relaxed);
        Ok(Self { slot: number, charges: Some(charges) })
    }

    /// The same object, held by another process, which pays for it.
    pub fn held_by(&self, ledger: &'static Ledger<'static>) -> Result<Self, CapError> {
        let charges = charges(ledger, self.len()).map_err(refusal)?;
        let mut held = self.clone();
        held.charges = Some(charges);
        Ok(held)
    }

    fn slot(&self) -> &'static Slot {
        &SLOTS[self.slot as usize]
    }

    /// How many pages it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slot().pages.lock().len()
    }

    /// Gives it one more page; its maker does that before any other thread knows it.
    pub fn fill(&self) -> Result<(), CapError> {
        let frame = Frame::new().ok_or(CapError::NoMemory)?;
        self.slot().pages.lock().push(frame).ok_or(CapError::NoMemory)
    }

    /// Gives back at most `most` of the pages that it was filled with; whether nothing is left.
    pub fn unfill(&self, most: u32) -> bool {
        let mut pages = self.slot().pages.lock();
        for _ in 0..most {
            if pages.pop().is_none() {
                *pages = FrameList::new();
                return true;
            }
        }
        false
    }

    /// One of its pages.
    #[must_use]
    pub fn page(&self, number: usize) -> Option<Frame> {
        self.slot().pages.lock().get(number)
    }

    /// Decides that programs may have `access` to it, if no program has had the other access. Whether they may.
    #[must_use]
    pub fn allow(&self, access: Flags) -> bool {
        let (mark, other) = match access {
            Flags::Read => return true,
            Flags::Write => (WRITABLE, EXECUTABLE),
            Flags::Execute => (EXECUTABLE, WRITABLE),
        };
        let decide = |now: u32| (now & other == 0).then_some(now | mark);
        self.slot().access.fetch_update(Ordering::Relaxed, Ordering::Relaxed, decide).is_ok()
    }
}

/// Whether an object without a holder still has pages.
#[must_use]
pub fn has_ended() -> bool {
    // Acquire: pairs with the release in `bury`; who sees that none is left sees the refunds.
    ENDED_COUNT.load(Ordering::Acquire) != 0
}

/// Gives back at most `most` pages of objects without a holder, and no more objects than that; whether there may be others.
pub fn bury(mut most: u32) -> bool {
    while has_ended() {
        if most == 0 {
            return true;
        }
        // The CPU that takes it from the list has it alone.
        let Some(number) = ENDED.lock().pop() else { return false };
        let slot = &SLOTS[usize::from(number)];
        let mut pages = slot.pages.lock();
        while most > 0 && pages.pop().is_some() {
            most -= 1;
        }
        if pages.len() > 0 {
            drop(pages);
            let _there_is_room = ENDED.lock().push(number);
            return true;
        }
        *pages = FrameList::new();
        drop(pages);
        drop(slot.owed.lock().take());
        free(number);
        ENDED_COUNT.fetch_sub(1, Ordering::Release);
    }
    false
}

/// Frames that objects have: their pages and their lists.
#[must_use]
pub fn frames() -> u64 {
    let fresh = usize::from(FREE.lock().fresh);
    SLOTS[..fresh].iter().map(|slot| slot.pages.lock().frames()).sum()
}
