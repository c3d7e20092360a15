use super::{END, Header, MAGIC, VERSION};
use mainspring_abi::{CpuId, Nanos, Policy};
use mainspring_sched::flight::{EventRef, MAX_RECORD, Outcome, Writer, write_event, write_outcome};
use std::io::{self, Write};

/// A block is written out when it has grown to this.
const BLOCK: usize = 256 << 10;

/// Writes a flight record.
pub struct Recorder<'a> {
    out: Box<dyn Write + 'a>,
    block: Vec<u8>,
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
        let mut recorder =
            Self { out, block: Vec::with_capacity(BLOCK + 2 * MAX_RECORD), last: Nanos::ZERO, records: 0 };
        recorder.header(header);
        recorder.flush()?;
        Ok(recorder)
    }

    /// `event` is about to happen on `cpu`.
    #[inline]
    pub fn begin(&mut self, now: Nanos, cpu: CpuId, event: EventRef<'_>) {
        let elapsed = now - self.last;
        self.last = now;
        self.records += 1;
        self.append(|writer| write_event(writer, cpu, elapsed, event));
    }

    /// The event begun last had this outcome.
    #[inline]
    pub fn finish(&mut self, outcome: Outcome) -> io::Result<()> {
        self.append(|writer| write_outcome(writer, outcome));
        if self.block.len() >= BLOCK { self.flush() } else { Ok(()) }
    }

    /// Ends the record.
    pub fn close(mut self, now: Nanos, digest: &str) -> io::Result<()> {
        if !self.block.is_empty() {
            self.flush()?;
        }
        self.block.extend_from_slice(END);
        self.block.extend_from_slice(&self.records.to_le_bytes());
        self.block.extend_from_slice(&now.get().to_le_bytes());
        self.text(digest);
        self.flush()?;
        self.out.flush()
    }

    #[inline]
    fn append(&mut self, write: impl FnOnce(&mut Writer<'_>)) {
        let start = self.block.len();
        self.block.resize(start + MAX_RECORD, 0);
        let mut writer = Writer::new(&mut self.block[start..]);
        write(&mut writer);
        let length = writer.written().unwrap_or(MAX_RECORD);
        self.block.truncate(start + length);
    }

    fn header(&mut self, header: &Header) {
        self.text(&header.workload);
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
            header.threads.len() as u64,
        ] {
            self.block.extend_from_slice(&number.to_le_bytes());
        }
        for name in &header.threads {
            self.text(name);
        }
    }

    fn text(&mut self, text: &str) {
        self.block.extend_from_slice(&(text.len() as u32).to_le_bytes());
        self.block.extend_from_slice(text.as_bytes());
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&(self.block.len() as u32).to_le_bytes())?;
        self.out.write_all(&crc32fast::hash(&self.block).to_le_bytes())?;
        self.out.write_all(&self.block)?;
        self.block.clear();
        Ok(())
    }
}
