use super::{END, Header, MAGIC, VERSION};
use mainspring_abi::{CpuId, Nanos, Policy};
use mainspring_sched::flight::{EventRef, Outcome, Room, Writer, write_event, write_outcome};
use std::io::{self, Write};

/// A block is written out when it has grown to this.
const BLOCK: usize = 64 << 10;

/// What stands before a block: its length and its checksum, of four bytes each.
const PREFIX: usize = 8;

/// Writes a flight record.
pub struct Recorder<'a> {
    out: Box<dyn Write + 'a>,
    /// The block being filled, with its prefix: its first `len` bytes count. Kept at full length, so that no byte is
    /// cleared twice.
    block: Vec<u8>,
    len: usize,
    last: Nanos,
    records: u64,
}

impl std::fmt::Debug for Recorder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("records", &self.records).finish_non_exhaustive()
    }
}

impl<'a> Recorder<'a> {
    /// Begins a record with `header`.
    pub fn new(mut out: Box<dyn Write + 'a>, header: &Header) -> io::Result<Self> {
        out.write_all(&MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        let mut start = Vec::new();
        write_header(&mut start, header);
        write_block(&mut out, &start)?;
        let block = vec![0; PREFIX + BLOCK + 2 * size_of::<Room>()];
        Ok(Self { out, block, len: PREFIX, last: Nanos::ZERO, records: 0 })
    }

    /// `event` is about to happen on `cpu`.
    #[inline(always)]
    pub fn begin(&mut self, now: Nanos, cpu: CpuId, event: EventRef<'_>) {
        let before = std::mem::replace(&mut self.last, now);
        self.records += 1;
        let mut writer = self.room();
        write_event(&mut writer, cpu, before, now, event);
        self.len += writer.written();
    }

    /// The event begun last had this outcome.
    #[inline]
    pub fn finish(&mut self, outcome: Outcome) -> io::Result<()> {
        self.end(outcome);
        if self.is_full() { self.flush() } else { Ok(()) }
    }

    /// The event begun last had this outcome. Call [`Recorder::flush`] next if that fills the block.
    #[inline(always)]
    pub(crate) fn end(&mut self, outcome: Outcome) {
        let now = self.last;
        let mut writer = self.room();
        write_outcome(&mut writer, now, outcome);
        self.len += writer.written();
    }

    /// Whether the block is to be flushed.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.len >= PREFIX + BLOCK
    }

    /// Ends the record.
    pub fn close(mut self, now: Nanos, digest: &str) -> io::Result<()> {
        if self.len > PREFIX {
            self.flush()?;
        }
        let mut end = END.to_vec();
        end.extend_from_slice(&self.records.to_le_bytes());
        end.extend_from_slice(&now.get().to_le_bytes());
        write_text(&mut end, digest);
        write_block(&mut self.out, &end)?;
        self.out.flush()
    }

    /// Where the next half of a record goes. A block is flushed long before its end, so there is always room.
    #[inline(always)]
    fn room(&mut self) -> Writer<'_> {
        match self.block[self.len..].first_chunk_mut() {
            Some(room) => Writer::new(room),
            None => unreachable!("a block has room for a record"),
        }
    }

    /// Writes the block out.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let prefix = prefix(&self.block[PREFIX..self.len]);
        self.block[..PREFIX].copy_from_slice(&prefix);
        self.out.write_all(&self.block[..self.len])?;
        self.len = PREFIX;
        Ok(())
    }
}

fn write_block(out: &mut dyn Write, block: &[u8]) -> io::Result<()> {
    out.write_all(&prefix(block))?;
    out.write_all(block)
}

fn prefix(block: &[u8]) -> [u8; PREFIX] {
    let mut prefix = [0; PREFIX];
    prefix[..4].copy_from_slice(&(block.len() as u32).to_le_bytes());
    prefix[4..].copy_from_slice(&crc32fast::hash(block).to_le_bytes());
    prefix
}

fn write_header(block: &mut Vec<u8>, header: &Header) {
    write_text(block, &header.workload);
    for number in [
        header.seed,
        header.cpus as u64,
        header.seats as u64,
        match header.policy {
            Policy::Eevdf => 0,
            Policy::Wfq => 1,
        },
        header.quantum.get(),
        header.tick.get(),
        u64::from(header.floor_ppm),
        header.threads.len() as u64,
    ] {
        block.extend_from_slice(&number.to_le_bytes());
    }
    for name in &header.threads {
        write_text(block, name);
    }
}

fn write_text(block: &mut Vec<u8>, text: &str) {
    block.extend_from_slice(&(text.len() as u32).to_le_bytes());
    block.extend_from_slice(text.as_bytes());
}
