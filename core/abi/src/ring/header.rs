use core::mem::{offset_of, size_of};

/// The first word of every ring: `MSRG`.
pub const RING_MAGIC: u32 = u32::from_le_bytes(*b"MSRG");

/// The most entries that a queue may have; both counts are powers of two.
pub const MAX_ENTRIES: u32 = 1 << 15;

/// In [`RingHeader::flags`]: the poller sleeps, or is about to; the publisher of an entry must wake it.
pub const NEED_WAKEUP: u32 = 1 << 0;
/// In [`RingHeader::flags`]: an entry waits for room in the completion queue; the reader that makes room
/// must wake a sleeping poller.
pub const CQ_HELD_BACK: u32 = 1 << 1;
/// In [`RingHeader::waiter_flags`]: the reader of completions sleeps, or is about to.
pub const CQ_WAITING: u32 = 1 << 0;

/// What stands before the slots. Each group of words has one writer and its own cache line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, align(64))]
pub struct RingHeader {
    /// [`RING_MAGIC`].
    pub magic: u32,
    /// See [`super::RingAbi`].
    pub abi_version: u32,
    /// The size of a submission entry in the low half, of a completion entry in the high half.
    pub entry_sizes: u32,
    /// Slots of the submission queue.
    pub sq_entries: u32,
    /// Slots of the completion queue.
    pub cq_entries: u32,
    /// Zero.
    pub reserved_setup: [u32; 11],

    /// How many entries have been consumed. Written by the consumer.
    pub sq_head: u32,
    /// Zero.
    pub reserved_sq_head: [u32; 15],

    /// [`NEED_WAKEUP`], [`CQ_HELD_BACK`]. Written by the consumer.
    pub flags: u32,
    /// How many entries have had to wait for room in the completion queue. Written by the consumer.
    pub held_back: u32,
    /// Counts wakes of the poller; it sleeps on this word.
    pub sq_wakes: u32,
    /// Zero.
    pub reserved_flags: [u32; 13],

    /// How many entries have been published. Written by the submitter.
    pub sq_tail: u32,
    /// Zero.
    pub reserved_sq_tail: [u32; 15],

    /// How many completions have been read. Written by the submitter.
    pub cq_head: u32,
    /// Zero.
    pub reserved_cq_head: [u32; 15],

    /// How many completions have been posted. Written by the consumer.
    pub cq_tail: u32,
    /// Zero.
    pub reserved_cq_tail: [u32; 15],

    /// [`CQ_WAITING`]. Written by the submitter.
    pub waiter_flags: u32,
    /// Counts wakes of the reader of completions; it sleeps on this word.
    pub cq_wakes: u32,
    /// Zero.
    pub reserved_waiter: [u32; 14],

    /// Zero.
    pub reserved: [u32; 16],
}

/// How many 32-bit words the header has.
pub const HEADER_WORDS: usize = size_of::<RingHeader>() / 4;

/// Where the slots begin, in bytes: the submission queue's first, then the completion queue's.
pub const SLOTS_OFFSET: usize = size_of::<RingHeader>();

/// The header's words by their index, for code that sees the header as an array of atomics.
pub mod word {
    use super::{RingHeader, offset_of};

    /// [`RingHeader::magic`].
    pub const MAGIC: usize = offset_of!(RingHeader, magic) / 4;
    /// [`RingHeader::abi_version`].
    pub const ABI_VERSION: usize = offset_of!(RingHeader, abi_version) / 4;
    /// [`RingHeader::entry_sizes`].
    pub const ENTRY_SIZES: usize = offset_of!(RingHeader, entry_sizes) / 4;
    /// [`RingHeader::sq_entries`].
    pub const SQ_ENTRIES: usize = offset_of!(RingHeader, sq_entries) / 4;
    /// [`RingHeader::cq_entries`].
    pub const CQ_ENTRIES: usize = offset_of!(RingHeader, cq_entries) / 4;
    /// [`RingHeader::sq_head`].
    pub const SQ_HEAD: usize = offset_of!(RingHeader, sq_head) / 4;
    /// [`RingHeader::flags`].
    pub const FLAGS: usize = offset_of!(RingHeader, flags) / 4;
    /// [`RingHeader::held_back`].
    pub const HELD_BACK: usize = offset_of!(RingHeader, held_back) / 4;
    /// [`RingHeader::sq_wakes`].
    pub const SQ_WAKES: usize = offset_of!(RingHeader, sq_wakes) / 4;
    /// [`RingHeader::sq_tail`].
    pub const SQ_TAIL: usize = offset_of!(RingHeader, sq_tail) / 4;
    /// [`RingHeader::cq_head`].
    pub const CQ_HEAD: usize = offset_of!(RingHeader, cq_head) / 4;
    /// [`RingHeader::cq_tail`].
    pub const CQ_TAIL: usize = offset_of!(RingHeader, cq_tail) / 4;
    /// [`RingHeader::waiter_flags`].
    pub const WAITER_FLAGS: usize = offset_of!(RingHeader, waiter_flags) / 4;
    /// [`RingHeader::cq_wakes`].
    pub const CQ_WAKES: usize = offset_of!(RingHeader, cq_wakes) / 4;
}

const _: () = {
    assert!(size_of::<RingHeader>() == 512 && align_of::<RingHeader>() == 64);
    assert!(offset_of!(RingHeader, magic) == 0 && offset_of!(RingHeader, abi_version) == 4);
    assert!(offset_of!(RingHeader, entry_sizes) == 8 && offset_of!(RingHeader, sq_entries) == 12);
    assert!(offset_of!(RingHeader, cq_entries) == 16);
    assert!(offset_of!(RingHeader, sq_head) == 64);
    assert!(offset_of!(RingHeader, flags) == 128 && offset_of!(RingHeader, held_back) == 132);
    assert!(offset_of!(RingHeader, sq_wakes) == 136);
    assert!(offset_of!(RingHeader, sq_tail) == 192);
    assert!(offset_of!(RingHeader, cq_head) == 256);
    assert!(offset_of!(RingHeader, cq_tail) == 320);
    assert!(offset_of!(RingHeader, waiter_flags) == 384 && offset_of!(RingHeader, cq_wakes) == 388);
};
