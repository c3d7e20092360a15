use super::block::{Block, prefix};
use super::{END, Header, MAGIC, VERSION};
use mainspring_abi::{CpuId, Nanos, Policy};
use mainspring_sched::flight::{
    EventRef, Moment, Outcome, UsualRoom, write_decision, write_event, write_expired, write_outcome,
    write_stop, write_timer,
};
use mainspring_sched::{Decision, Expired, Stop, TimerOutcome};
use std::io::{self, Write};

/// Where a record goes, in order.
pub(crate) trait Outlet {
    /// Takes bytes that are written as they are.
    fn put(&mut self, bytes: Vec<u8>) -> io::Result<()>;

    /// Takes a block and leaves an empty one in its place, even if it fails.
    fn exchange(&mut self, block: &mut Block) -> io::Result<()>;

    /// Waits until everything is written. Nothing can be put afterwards.
    fn close(&mut self) -> io::Result<()>;
}

/// At once.
impl Outlet for Box<dyn Write + '_> {
    fn put(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        self.write_all(&bytes)
    }

    fn exchange(&mut self, block: &mut Block) -> io::Result<()> {
        let written = self.write_all(block.close());
        block.clear();
        written
    }

    fn close(&mut self) -> io::Result<()> {
        self.flush()
    }
}

/// Writes a flight record.
pub struct Recorder<'a> {
    block: Block,
    last: Nanos,
    /// Bytes of the records in the blocks that have been closed.
    bytes: u64,
    out: Box<dyn Outlet + 'a>,
}

impl std::fmt::Debug for Recorder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl<'a> Recorder<'a> {
    /// Begins a record with `header`.
    pub fn new(out: Box<dyn Write + 'a>, header: &Header) -> io::Result<Self> {
        Self::on(Box::new(out), header)
    }

    /// Begins a record with `header` on `out`.
    pub(crate) fn on(mut out: Box<dyn Outlet + 'a>, header: &Header) -> io::Result<Self> {
        let mut payload = Vec::new();
        write_header(&mut payload, header);
        let mut start = MAGIC.to_vec();
        start.extend_from_slice(&VERSION.to_le_bytes());
        start.extend_from_slice(&prefix(&payload));
        start.append(&mut payload);
        out.put(start)?;
        Ok(Self { block: Block::new(), last: Nanos::ZERO, bytes: 0, out })
    }

    /// `event` is about to happen on `cpu`.
    #[inline(always)]
    pub fn begin(&mut self, now: Nanos, cpu: CpuId, event: EventRef<'_>) {
        let before = std::mem::replace(&mut self.last, now);
        self.block.append(|writer| write_event(writer, cpu, before, now, event));
    }

    /// The event begun last had this outcome.
    #[inline(always)]
    pub fn finish(&mut self, outcome: Outcome) -> io::Result<()> {
        let now = self.last;
        self.block.append(|writer| write_outcome(writer, now, outcome));
        if self.block.is_full() { self.flush() } else { Ok(()) }
    }

    /// A timer interrupt came on `cpu`.
    #[inline(always)]
    pub(crate) fn timer(&mut self, now: Nanos, cpu: CpuId, outcome: TimerOutcome) -> io::Result<()> {
        let usual = self.usual(now, cpu, |room, moment| Some(write_timer(room, moment, outcome)));
        if usual.is_some() { Ok(()) } else { self.unusual(now, cpu, EventRef::Timer, outcome.into()) }
    }

    /// `cpu` was told to end a timed wait.
    #[inline(always)]
    pub(crate) fn expire(&mut self, now: Nanos, cpu: CpuId, expired: &Option<Expired>) -> io::Result<()> {
        let usual = self.usual(now, cpu, |room, moment| write_expired(room, moment, expired.as_ref()?));
        if usual.is_some() { Ok(()) } else { self.unusual(now, cpu, EventRef::Expire, expired.into()) }
    }

    /// The running thread of `cpu` stops. What is decided comes next, to [`Recorder::decided`].
    #[inline(always)]
    pub(crate) fn stops(&mut self, now: Nanos, cpu: CpuId, stop: &Stop) {
        if self.usual(now, cpu, |room, moment| write_stop(room, moment, stop)).is_none() {
            self.begin_unusual(now, cpu, EventRef::Resched(stop));
        }
    }

    /// This was decided at `now`.
    #[inline(always)]
    pub(crate) fn decided(&mut self, now: Nanos, decision: &Decision) -> io::Result<()> {
        match self.block.append_usual(|room| write_decision(room, now, decision)) {
            Some(()) => Ok(()),
            None => self.finish_unusual((*decision).into()),
        }
    }

    #[inline(always)]
    fn usual(
        &mut self,
        now: Nanos,
        cpu: CpuId,
        write: impl FnOnce(&mut UsualRoom, Moment) -> Option<usize>,
    ) -> Option<()> {
        let moment = Moment::new(cpu, self.last, now)?;
        self.block.append_usual(|room| write(room, moment))?;
        self.last = now;
        Some(())
    }

    #[cold]
    #[inline(never)]
    fn unusual(&mut self, now: Nanos, cpu: CpuId, event: EventRef<'_>, outcome: Outcome) -> io::Result<()> {
        self.begin(now, cpu, event);
        self.finish(outcome)
    }

    #[cold]
    #[inline(never)]
    fn begin_unusual(&mut self, now: Nanos, cpu: CpuId, event: EventRef<'_>) {
        self.begin(now, cpu, event);
    }

    #[cold]
    #[inline(never)]
    fn finish_unusual(&mut self, outcome: Outcome) -> io::Result<()> {
        self.finish(outcome)
    }

    /// Ends the record.
    pub fn close(mut self, now: Nanos, digest: &str) -> io::Result<()> {
        if !self.block.is_empty() {
            self.flush()?;
        }
        let mut payload = END.to_vec();
        payload.extend_from_slice(&self.bytes.to_le_bytes());
        payload.extend_from_slice(&now.get().to_le_bytes());
        write_text(&mut payload, digest);
        let mut end = prefix(&payload).to_vec();
        end.append(&mut payload);
        self.out.put(end)?;
        self.out.close()
    }

    #[cold]
    #[inline(never)]
    fn flush(&mut self) -> io::Result<()> {
        self.bytes += self.block.len() as u64;
        self.out.exchange(&mut self.block)
    }
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
