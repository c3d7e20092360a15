//! The events of all CPUs of a machine, joined by time.

use crate::file::{Item, Malformed, RecordError, RecordReader, Recorder, Trailer};
use mainspring_abi::{CpuId, Nanos};
use mainspring_sched::flight::{DecodeState, Event, Outcome, Reader, read_record};
use std::io::{self, Read};

/// One event of a record.
#[derive(Debug)]
pub struct Entry {
    /// When.
    pub now: Nanos,
    /// Where.
    pub cpu: CpuId,
    /// What was asked.
    pub event: Event,
    /// What was answered.
    pub outcome: Outcome,
}

/// The events of all CPUs, joined by time. Each CPU's own are in its own order; between CPUs any order replays.
#[derive(Debug, Default)]
pub struct Log {
    entries: Vec<Entry>,
    end: Nanos,
    /// The digest and the summary that a file ends with.
    digest: Option<String>,
    summary: String,
}

impl Log {
    /// Adds the record of one CPU: so many events as bytes, and when it was closed.
    pub fn add(&mut self, cpu: CpuId, bytes: &[u8], records: u64, end: Nanos) -> Result<(), RecordError> {
        let (mut at, mut state) = (0, DecodeState::new());
        for _ in 0..records {
            let mut reader = Reader::new(&bytes[at..]);
            let (stamp, event, outcome) = read_record(&mut reader, &mut state)
                .map_err(|error| RecordError::of_cpu(cpu, Malformed::Record(error)))?;
            at += reader.position();
            self.entries.push(Entry { now: stamp.now, cpu: stamp.cpu, event, outcome });
        }
        if at != bytes.len() {
            return Err(RecordError::of_cpu(cpu, Malformed::Trailing));
        }
        self.end = self.end.max(end).max(state.writer().last().now);
        // Stable: events of one CPU stay in their order.
        self.entries.sort_by_key(|entry| entry.now);
        Ok(())
    }

    /// The events of a flight record file.
    pub fn read(mut reader: RecordReader<impl Read>) -> Result<Self, RecordError> {
        let mut entries = Vec::new();
        loop {
            match reader.next_item()? {
                Item::Record(entry) => entries.push(entry),
                Item::End(Trailer { end, digest, summary, .. }) => {
                    return Ok(Self { entries, end, digest: Some(digest), summary });
                }
            }
        }
    }

    /// The events, by time.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The same, by value.
    #[must_use]
    pub(crate) fn into_entries(self) -> Vec<Entry> {
        self.entries
    }

    /// When the machine ended.
    #[must_use]
    pub fn end(&self) -> Nanos {
        self.end
    }

    /// The digest that the end of its file names, if it is of a file.
    #[must_use]
    pub fn digest(&self) -> Option<&str> {
        self.digest.as_deref()
    }

    /// What the CPUs do not know of the run, as JSON of a report.
    #[must_use]
    pub fn summary(&self) -> &str {
        &self.summary
    }

    /// Writes the events as a flight record file, and what the machine tells besides.
    pub fn write(&self, mut recorder: Recorder<'_>, digest: &str, summary: &str) -> io::Result<()> {
        for Entry { now, cpu, event, outcome } in &self.entries {
            recorder.begin(*now, *cpu, event.borrowed())?;
            recorder.finish(*outcome);
        }
        recorder.close(self.end, digest, summary)
    }
}
