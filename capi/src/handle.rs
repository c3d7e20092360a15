//! Handles: an index and a generation in the shape of a pointer, which nobody follows.
//!
//! Conserved: a handle names one object for ever. A slot that is used again has another generation, and a slot whose
//! generations are used up is not used again.

use crate::layout::Opaque;
use crate::status::{JANUS_INVALID_HANDLE, JANUS_NO_MEMORY, JANUS_STALE_HANDLE};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a handle names. The number is in its topmost bits, where no address of a process has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Scheduler = 1,
    Nursery = 2,
    Task = 3,
    Channel = 4,
    Endpoint = 5,
    Call = 6,
    Context = 7,
    Quota = 8,
}

const INDEX_BITS: u32 = 24;
const INDEX_SHIFT: u32 = 4;
const GENERATION_SHIFT: u32 = INDEX_SHIFT + INDEX_BITS;
const KIND_SHIFT: u32 = 60;

/// A handle as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Name(u64);

impl Name {
    fn new(kind: Kind, index: usize, generation: u32) -> Self {
        let parts = (index as u64) << INDEX_SHIFT | u64::from(generation) << GENERATION_SHIFT;
        Self((kind as u64) << KIND_SHIFT | parts)
    }

    /// What C has.
    pub(crate) fn of(handle: *mut Opaque) -> Self {
        Self(handle.addr() as u64)
    }

    /// What C gets.
    pub(crate) fn handle(self) -> *mut Opaque {
        std::ptr::without_provenance_mut(self.0 as usize)
    }

    /// The slot and the generation, if it is a name of this kind.
    fn parts(self, kind: Kind) -> Result<(usize, u32), i32> {
        let (index, generation) =
            (self.0 >> INDEX_SHIFT & ((1 << INDEX_BITS) - 1), self.0 >> GENERATION_SHIFT);
        let parts = (index as usize, generation as u32);
        if Self::new(kind, parts.0, parts.1) == self { Ok(parts) } else { Err(JANUS_INVALID_HANDLE) }
    }
}

struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

struct Slots<T> {
    all: Vec<Slot<T>>,
    free: Vec<usize>,
}

/// All objects of a kind.
pub(crate) struct Table<T> {
    kind: Kind,
    most: usize,
    slots: Mutex<Slots<T>>,
}

impl<T: Clone> Table<T> {
    pub(crate) const fn new(kind: Kind) -> Self {
        Self::bounded(kind, 1 << INDEX_BITS)
    }

    const fn bounded(kind: Kind, most: usize) -> Self {
        Self { kind, most, slots: Mutex::new(Slots { all: Vec::new(), free: Vec::new() }) }
    }

    fn lock(&self) -> MutexGuard<'_, Slots<T>> {
        // Nothing here is left halfway by a panic.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A name for a new object, or the status that there are too many.
    pub(crate) fn insert(&self, value: T) -> Result<Name, i32> {
        let mut slots = self.lock();
        let index = match slots.free.pop() {
            Some(index) => index,
            None if slots.all.len() < self.most => {
                slots.all.push(Slot { generation: 0, value: None });
                slots.all.len() - 1
            }
            None => return Err(JANUS_NO_MEMORY),
        };
        let slot = &mut slots.all[index];
        // The generation of the first use is 1.
        slot.generation += 1;
        slot.value = Some(value);
        Ok(Name::new(self.kind, index, slot.generation))
    }

    /// The object, or the status that it never was or is no more.
    pub(crate) fn get(&self, name: Name) -> Result<T, i32> {
        let (index, generation) = name.parts(self.kind)?;
        let slots = self.lock();
        let slot = slots.all.get(index).ok_or(JANUS_INVALID_HANDLE)?;
        match &slot.value {
            Some(value) if slot.generation == generation => Ok(value.clone()),
            _ if (1..=slot.generation).contains(&generation) => Err(JANUS_STALE_HANDLE),
            _ => Err(JANUS_INVALID_HANDLE),
        }
    }

    /// How many objects there are.
    pub(crate) fn live(&self) -> usize {
        self.lock().all.iter().filter(|slot| slot.value.is_some()).count()
    }

    /// Takes the object out. Its name is stale from here on.
    pub(crate) fn remove(&self, name: Name) -> Result<T, i32> {
        self.get(name)?;
        let (index, generation) = name.parts(self.kind)?;
        let mut slots = self.lock();
        let slot = &mut slots.all[index];
        // Another thread may have been faster.
        let value = slot.value.take_if(|_| slot.generation == generation).ok_or(JANUS_STALE_HANDLE)?;
        if slot.generation < u32::MAX {
            slots.free.push(index);
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_name_is_of_one_object_and_of_one_kind() {
        let (tasks, channels) = (Table::new(Kind::Task), Table::new(Kind::Channel));
        let first = tasks.insert(1).unwrap();
        assert_eq!(tasks.get(first), Ok(1));
        assert_eq!(channels.get(first), Err(JANUS_INVALID_HANDLE));
        assert_eq!(channels.insert(7).map(|name| channels.get(name)), Ok(Ok(7)));
        assert_eq!(tasks.remove(first), Ok(1));
        let second = tasks.insert(2).unwrap();
        assert_ne!(first, second, "the slot is the same and the name is not");
        assert_eq!(tasks.get(first), Err(JANUS_STALE_HANDLE));
        assert_eq!(tasks.remove(first), Err(JANUS_STALE_HANDLE));
        assert_eq!(tasks.get(second), Ok(2));
    }

    #[test]
    fn what_was_never_given_out_is_invalid() {
        let tasks = Table::new(Kind::Task);
        let name = tasks.insert(1).unwrap();
        let Name(bits) = name;
        for never in
            [0, 1, 16, u64::MAX, bits + 1, bits + 16, bits + (1 << GENERATION_SHIFT), 3 << KIND_SHIFT]
        {
            assert_eq!(tasks.get(Name(never)), Err(JANUS_INVALID_HANDLE), "{never:#x}");
        }
    }

    #[test]
    fn a_place_whose_generations_are_used_up_is_not_used_again() {
        let tasks = Table::new(Kind::Task);
        let old = tasks.insert(1).unwrap();
        tasks.remove(old).unwrap();
        tasks.lock().all[0].generation = u32::MAX - 1;
        let last = tasks.insert(2).unwrap();
        tasks.remove(last).unwrap();
        let next = tasks.insert(3).unwrap();
        assert_eq!((tasks.get(last), tasks.get(next)), (Err(JANUS_STALE_HANDLE), Ok(3)));
        assert_eq!(tasks.lock().all.len(), 2);
    }

    #[test]
    fn a_full_table_refuses() {
        let tasks = Table::bounded(Kind::Task, 2);
        let first = tasks.insert(1).unwrap();
        tasks.insert(2).unwrap();
        assert_eq!(tasks.insert(3), Err(JANUS_NO_MEMORY));
        tasks.remove(first).unwrap();
        assert!(tasks.insert(3).is_ok());
    }

    #[test]
    fn of_many_who_remove_one_object_one_gets_it() {
        let table = Arc::new(Table::new(Kind::Task));
        for _ in 0..200 {
            let name = table.insert(1).unwrap();
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let table = table.clone();
                    std::thread::spawn(move || table.remove(name).is_ok())
                })
                .collect();
            let got = threads.into_iter().map(|thread| thread.join().unwrap()).filter(|got| *got).count();
            assert_eq!(got, 1);
        }
    }
}
