//! A ring's shape: its ABI and the sizes of its queues, checked once and then kept in private memory.

use crate::region::Region;
use crate::sync::{AtomicU64, Ordering};
use core::fmt;
use mainspring_abi::ring::{
    CapCqe, CapError, CapSqe, CapSqeV2, MAX_ENTRIES, RING_MAGIC, RingAbi, SLOTS_OFFSET, negotiate, word,
};

/// The shape of a ring. Both sides work from their own copy, so that a peer that rewrites the header later
/// changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    abi: RingAbi,
    sq_entries: u32,
    cq_entries: u32,
    /// 64-bit words of a submission slot, and before the first completion slot: known from the rest, and needed each time.
    sqe_words: u32,
    cq_base: u32,
}

/// Why a piece of memory is not a ring that this side can use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GeometryError {
    /// The first word is not a ring's.
    NotARing {
        /// What stands there.
        magic: u32,
    },
    /// The version or the entry sizes are not supported.
    Abi(CapError),
    /// A queue's size is not a power of two from 1 to [`MAX_ENTRIES`].
    Entries {
        /// What was asked for.
        entries: u32,
    },
    /// The memory ends before the last slot.
    TooSmall {
        /// How many 64-bit words of slots there must be.
        needed_words: usize,
        /// How many there are.
        words: usize,
    },
}

impl GeometryError {
    /// The code that a caller across the ring's boundary gets.
    #[must_use]
    pub const fn code(self) -> CapError {
        match self {
            Self::Abi(error) => error,
            Self::NotARing { .. } => CapError::UnsupportedRingAbi,
            Self::Entries { .. } | Self::TooSmall { .. } => CapError::RingCorrupt,
        }
    }
}

impl fmt::Display for GeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotARing { magic } => {
                write!(f, "the first word is {magic:#x}, a ring's is {RING_MAGIC:#x}")
            }
            Self::Abi(error) => error.fmt(f),
            Self::Entries { entries } => {
                write!(f, "{entries} entries; a queue has a power of two of them, from 1 to {MAX_ENTRIES}")
            }
            Self::TooSmall { needed_words, words } => {
                write!(f, "the slots take {needed_words} words of 8 bytes, the memory has {words}")
            }
        }
    }
}

impl core::error::Error for GeometryError {}

/// Loom explores every order of every atomic access: there an entry is its first word, `user_data`, alone.
const MODEL_WORDS: usize = 1;

impl Geometry {
    /// A ring of `abi` with these many slots.
    pub const fn new(abi: RingAbi, sq_entries: u32, cq_entries: u32) -> Result<Self, GeometryError> {
        if !sq_entries.is_power_of_two() || sq_entries > MAX_ENTRIES {
            return Err(GeometryError::Entries { entries: sq_entries });
        }
        if !cq_entries.is_power_of_two() || cq_entries > MAX_ENTRIES {
            return Err(GeometryError::Entries { entries: cq_entries });
        }
        let sqe_words = if cfg!(loom) { MODEL_WORDS as u32 } else { abi.sqe_size() as u32 / 8 };
        Ok(Self { abi, sq_entries, cq_entries, sqe_words, cq_base: sq_entries * sqe_words })
    }

    /// The ABI.
    #[must_use]
    pub const fn abi(&self) -> RingAbi {
        self.abi
    }

    /// Slots of the submission queue.
    #[must_use]
    pub const fn sq_entries(&self) -> u32 {
        self.sq_entries
    }

    /// Slots of the completion queue.
    #[must_use]
    pub const fn cq_entries(&self) -> u32 {
        self.cq_entries
    }

    /// The same in all versions.
    const fn cqe_words() -> usize {
        if cfg!(loom) { MODEL_WORDS } else { CapCqe::WORDS }
    }

    /// How many 64-bit words all slots take.
    #[must_use]
    pub const fn slot_words(&self) -> usize {
        self.cq_base as usize + self.cq_entries as usize * Self::cqe_words()
    }

    /// How many bytes the whole ring takes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        SLOTS_OFFSET + self.slot_words() * 8
    }

    /// Makes a ring of zeroed memory. The side that creates the memory does this before the other sees it.
    pub fn format(&self, region: &impl Region) -> Result<(), GeometryError> {
        self.fits(region)?;
        let sizes = u32::from(self.abi.sqe_size()) | u32::from(self.abi.cqe_size()) << 16;
        // Relaxed: handing the memory to the other side orders these, whatever the way it is handed over.
        region.word(word::ABI_VERSION).store(self.abi.version(), Ordering::Relaxed);
        region.word(word::ENTRY_SIZES).store(sizes, Ordering::Relaxed);
        region.word(word::SQ_ENTRIES).store(self.sq_entries, Ordering::Relaxed);
        region.word(word::CQ_ENTRIES).store(self.cq_entries, Ordering::Relaxed);
        region.word(word::MAGIC).store(RING_MAGIC, Ordering::Relaxed);
        Ok(())
    }

    /// The shape of the ring that the peer made. Each word is read once; whatever the peer writes there
    /// afterwards is never looked at again.
    pub fn attach(region: &impl Region) -> Result<Self, GeometryError> {
        let read = |index| region.word(index).load(Ordering::Relaxed);
        let magic = read(word::MAGIC);
        if magic != RING_MAGIC {
            return Err(GeometryError::NotARing { magic });
        }
        let sizes = read(word::ENTRY_SIZES);
        let abi = negotiate(read(word::ABI_VERSION), sizes as u16, (sizes >> 16) as u16)
            .map_err(GeometryError::Abi)?;
        let geometry = Self::new(abi, read(word::SQ_ENTRIES), read(word::CQ_ENTRIES))?;
        geometry.fits(region)?;
        Ok(geometry)
    }

    fn fits(&self, region: &impl Region) -> Result<(), GeometryError> {
        let (needed_words, words) = (self.slot_words(), region.slots().len());
        if words < needed_words { Err(GeometryError::TooSmall { needed_words, words }) } else { Ok(()) }
    }

    /// Where the slot that `index` falls in begins. The mask keeps any index inside.
    #[inline]
    fn sqe_at(&self, index: u32) -> usize {
        (index & (self.sq_entries - 1)) as usize * self.sqe_words as usize
    }

    #[inline]
    fn cqe_at(&self, index: u32) -> usize {
        self.cq_base as usize + (index & (self.cq_entries - 1)) as usize * Self::cqe_words()
    }

    /// Copies the entry out; relaxed, since the acquire of the tail before it ordered the peer's writes.
    #[inline(always)]
    pub(crate) fn read_sqe(&self, region: &impl Region, index: u32) -> CapSqeV2 {
        let at = self.sqe_at(index);
        match self.abi {
            RingAbi::V1 => CapSqeV2::from_v1(CapSqe::from_words(&read_words(region, at))),
            RingAbi::V2 => CapSqeV2::from_words(&read_words(region, at)),
        }
    }

    /// Writes the entry; relaxed, since the release of the tail after it orders these writes.
    #[inline(always)]
    pub(crate) fn write_sqe(&self, region: &impl Region, index: u32, sqe: &CapSqeV2) {
        let at = self.sqe_at(index);
        match self.abi {
            RingAbi::V1 => write_words(region, at, &sqe.v1.to_words()),
            RingAbi::V2 => write_words(region, at, &sqe.to_words()),
        }
    }

    #[inline(always)]
    pub(crate) fn read_cqe(&self, region: &impl Region, index: u32) -> CapCqe {
        CapCqe::from_words(&read_words(region, self.cqe_at(index)))
    }

    #[inline(always)]
    pub(crate) fn write_cqe(&self, region: &impl Region, index: u32, cqe: &CapCqe) {
        write_words(region, self.cqe_at(index), &cqe.to_words());
    }
}

/// The `N` words of a slot; under loom the first of them alone.
#[inline(always)]
fn slot<const N: usize>(region: &impl Region, at: usize) -> &[AtomicU64] {
    &region.slots()[at..at + if cfg!(loom) { MODEL_WORDS } else { N }]
}

/// Words that the slot does not have (under loom) read as zero.
#[inline(always)]
fn read_words<const N: usize>(region: &impl Region, at: usize) -> [u64; N] {
    let mut words = [0; N];
    for (word, shared) in words.iter_mut().zip(slot::<N>(region, at)) {
        *word = u64::from_le(shared.load(Ordering::Relaxed));
    }
    words
}

#[inline(always)]
fn write_words<const N: usize>(region: &impl Region, at: usize, words: &[u64; N]) {
    for (shared, word) in slot::<N>(region, at).iter().zip(words) {
        shared.store(word.to_le(), Ordering::Relaxed);
    }
}
