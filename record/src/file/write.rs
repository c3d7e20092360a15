use super::block::{Block, prefix};
use super::{END, Header, MAGIC, VERSION};
use mainspring_abi::{CpuId, Nanos, Policy};
use mainspring_sched::flight::{
    EncodeState, EventRef, FirstHalf, Outcome, Stamp, write_decision, write_event, write_expired, write_idle,
    write_outcome, write_stop, write_timer,
};
use mainspring_sched::{Decision, Expired, IdleConditions, IdleTick, Stop, TimerOutcome};
use std::io::{self, Write};

/// Writes a flight record.
pub struct Recorder<'a> {
    block: Block,
    state: EncodeState,
    /// Bytes of the records in the blocks that have been closed.
    bytes: u64,
    out: Box<dyn Write + 'a>,
}

impl std::fmt::Debug for Recorder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl<'a> Recorder<'a> {
    /// Begins a record with `header`.
    pub fn new(mut out: Box<dyn Write + 'a>, header: &Header) -> io::Result<Self> {
        let mut payload = Vec::new();
        write_header(&mut payload, header);
        let mut start = MAGIC.to_vec();
        start.extend_from_slice(&VERSION.to_le_bytes());
        start.extend_from_slice(&prefix(&payload));
        start.append(&mut payload);
        out.write_all(&start)?;
        Ok(Self { block: Block::new(), state: EncodeState::new(), bytes: 0, out })
    }

    /// `event` is about to happen on `cpu`. Its outcome comes next, to [`Recorder::finish`].
    pub fn begin(&mut self, now: Nanos, cpu: CpuId, event: EventRef<'_>) -> io::Result<()> {
        let flushed = if self.block.is_full() { self.flush() } else { Ok(()) };
        self.block.begin(|writer| write_event(writer, &mut self.state, Stamp { cpu, now }, event));
        flushed
    }

    /// The event begun last had this outcome.
    pub fn finish(&mut self, outcome: Outcome) {
        self.block.finish(|kind, writer| write_outcome(writer, &mut self.state, kind, outcome));
    }

    /// Records a timer interrupt, if the record has a compact form.
    #[inline(always)]
    pub fn timer(&mut self, stamp: Stamp, outcome: TimerOutcome) -> Option<()> {
        let length = write_timer(self.block.compact_buffer()?, &mut self.state, stamp, outcome);
        self.block.keep(length)
    }

    /// Records the end of a timed wait, if the record has a compact form.
    #[inline(always)]
    pub fn expired(&mut self, stamp: Stamp, expired: Option<&Expired>) -> Option<()> {
        let length = write_expired(self.block.compact_buffer()?, &self.state, stamp, expired?);
        self.block.keep(length)
    }

    /// Records that a CPU idles, if the record has a compact form.
    #[inline(always)]
    pub fn idle(&mut self, stamp: Stamp, conditions: &IdleConditions, tick: IdleTick) -> Option<()> {
        let length = write_idle(self.block.compact_buffer()?, &self.state, stamp, conditions, tick);
        self.block.keep(length)
    }

    /// Writes how the running thread stops, if that has a compact form. What is decided comes next, to [`Recorder::decision`].
    #[inline(always)]
    pub fn stop(&mut self, stamp: Stamp, stop: &Stop) -> Option<FirstHalf> {
        write_stop(self.block.compact_buffer()?, &self.state, stamp, stop)
    }

    /// Records the decision that came of such a stop. If that has no compact form, the record has begun, and what was decided goes to
    /// [`Recorder::finish`].
    #[inline(always)]
    pub fn decision(&mut self, half: FirstHalf, stamp: Stamp, decision: &Decision) -> Option<()> {
        let length = write_decision(self.block.compact_buffer()?, &mut self.state, half, stamp, decision);
        if length.is_none() {
            self.block.keep_first(half);
        }
        self.block.keep(length)
    }

    /// Ends the record. `summary` is what the CPUs do not know; see [`Trailer::summary`](super::Trailer).
    pub fn close(mut self, now: Nanos, digest: &str, summary: &str) -> io::Result<()> {
        if self.block.len() > 0 {
            self.flush()?;
        }
        let mut payload = END.to_vec();
        payload.extend_from_slice(&self.bytes.to_le_bytes());
        payload.extend_from_slice(&now.get().to_le_bytes());
        write_text(&mut payload, digest);
        write_text(&mut payload, summary);
        let mut end = prefix(&payload).to_vec();
        end.append(&mut payload);
        self.out.write_all(&end)?;
        self.out.flush()
    }

    #[cold]
    #[inline(never)]
    fn flush(&mut self) -> io::Result<()> {
        self.bytes += self.block.len() as u64;
        let written = self.out.write_all(self.block.close());
        self.block.clear();
        written
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
