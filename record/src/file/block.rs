//! One block of records while it is filled.
//!
//! Conserved: what has been appended is whole records but for one whose outcome is awaited. There is room for one more as long
//! as the block is not full, which is looked at once, so that a compact record is a few stores.

use mainspring_sched::flight::{CompactBuffer, FirstHalf, Room, Writer};
use std::hint::cold_path;

/// What stands before a block: its length and its checksum, of four bytes each.
pub(super) const PREFIX: usize = 8;

/// A block is closed when it has grown to this.
const FULL: usize = 128 << 10;

/// Beyond it there is room for the two halves of the record that fills it.
const ROOM: usize = FULL + 2 * size_of::<Room>();

/// A block in the making.
#[derive(Debug)]
pub(crate) struct Block {
    room: Box<[u8; ROOM]>,
    at: usize,
    /// Where the first byte of the record is whose outcome is awaited.
    kind: usize,
}

impl Block {
    pub(super) fn new() -> Self {
        let room = vec![0; ROOM].try_into().unwrap_or_else(|_| unreachable!("it is as long as it was made"));
        Self { room, at: PREFIX, kind: PREFIX }
    }

    pub(super) fn clear(&mut self) {
        self.at = PREFIX;
    }

    /// How many bytes of records it holds.
    pub(super) fn len(&self) -> usize {
        self.at - PREFIX
    }

    pub(super) fn is_full(&self) -> bool {
        self.at >= FULL
    }

    /// Appends what `write` writes, the first half of a record.
    pub(super) fn begin(&mut self, write: impl FnOnce(&mut Writer<'_>)) {
        self.kind = self.at;
        self.append(|_, writer| write(writer));
    }

    /// Appends what `write` writes, the second half of a record; and it may change the first byte of the first half.
    pub(super) fn finish(&mut self, write: impl FnOnce(&mut u8, &mut Writer<'_>)) {
        let kind = self.kind;
        self.append(|written, writer| write(&mut written[kind], writer));
    }

    fn append(&mut self, write: impl FnOnce(&mut [u8], &mut Writer<'_>)) {
        let (written, room) = self.room.split_at_mut(self.at);
        let Some(room) = room.first_chunk_mut() else {
            unreachable!("a full block is closed before the next record")
        };
        let mut writer = Writer::new(room);
        write(written, &mut writer);
        self.at += writer.written();
    }

    /// Room for a compact record, unless the block is full.
    #[inline(always)]
    pub(super) fn compact_buffer(&mut self) -> Option<&mut CompactBuffer> {
        if self.at < FULL { self.room[self.at..].first_chunk_mut() } else { None }
    }

    /// A compact record of this length has been written into that room; `None` if there is no compact form.
    #[inline(always)]
    pub(super) fn keep(&mut self, length: Option<usize>) -> Option<()> {
        let Some(length) = length else {
            cold_path();
            return None;
        };
        self.at += length;
        Some(())
    }

    /// The first half of a record has been written into that room, and the second is yet to come.
    #[cold]
    pub(super) fn keep_first(&mut self, half: FirstHalf) {
        self.kind = self.at;
        self.at += half.length();
    }

    /// The whole block as it is in the file.
    pub(super) fn close(&mut self) -> &[u8] {
        let (start, payload) = self.room[..self.at].split_at_mut(PREFIX);
        start.copy_from_slice(&prefix(payload));
        &self.room[..self.at]
    }
}

/// What stands before `payload`.
pub(super) fn prefix(payload: &[u8]) -> [u8; PREFIX] {
    let mut prefix = [0; PREFIX];
    prefix[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    prefix[4..].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
    prefix
}
