//! One CPU's record in memory that is set aside at once: for machines that have no time to write while they run.
//!
//! Conserved: the bytes are whole records, event and outcome, from the first event on without a gap. Once there is no room
//! for another the log stays as it is and counts what it loses.

use super::{EncodeState, EventRef, Outcome, Room, Stamp, Writer, write_event, write_outcome};
use alloc::vec;
use alloc::vec::Vec;
use mainspring_abi::{CpuId, Nanos};

/// A record in the making.
#[derive(Debug)]
pub struct Log {
    room: Vec<u8>,
    len: usize,
    /// Where the last record begins.
    record: usize,
    state: EncodeState,
    records: u64,
    lost: u64,
}

impl Log {
    /// Room for `bytes`.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        // Zeroes, which a host with virtual memory hands out when they are first written.
        Self { room: vec![0; bytes], len: 0, record: 0, state: EncodeState::new(), records: 0, lost: 0 }
    }

    /// `event` is about to be given to `cpu`. Its outcome comes next, to [`Log::finish`].
    pub fn begin(&mut self, now: Nanos, cpu: CpuId, event: EventRef<'_>) {
        if self.lost > 0 || self.room.len() - self.len < 2 * size_of::<Room>() {
            self.lost += 1;
            return;
        }
        self.records += 1;
        self.record = self.len;
        self.append(|_, state, writer| write_event(writer, state, Stamp { cpu, now }, event));
    }

    /// What came of the event that was begun last.
    pub fn finish(&mut self, outcome: Outcome) {
        if self.lost == 0 {
            self.append(|record, state, writer| {
                if let Some(kind) = record.first_mut() {
                    write_outcome(writer, state, kind, outcome);
                }
            });
        }
    }

    /// Appends what `write` writes; what it is given is the record so far.
    fn append(&mut self, write: impl FnOnce(&mut [u8], &mut EncodeState, &mut Writer<'_>)) {
        let (written, room) = self.room.split_at_mut(self.len);
        if let Some(room) = room.first_chunk_mut() {
            let mut writer = Writer::new(room);
            write(&mut written[self.record..], &mut self.state, &mut writer);
            self.len += writer.written();
        }
    }

    /// The records, one after the other.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.room[..self.len]
    }

    /// The same, for good.
    #[must_use]
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.room.truncate(self.len);
        self.room
    }

    /// How many records there are.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Records that there was no room for: the log ends before the first of them.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// When the last record was made.
    #[must_use]
    pub fn last(&self) -> Nanos {
        self.state.last.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flight::{DecodeState, Reader, read_record};

    #[test]
    fn what_does_not_fit_is_counted_and_what_does_reads_back() {
        let cpu = CpuId::new(3).expect("a CPU");
        let mut log = Log::new(4 * size_of::<Room>());
        let mut fitted = 0;
        for n in 1..1_000u64 {
            log.begin(Nanos::new(n * n), cpu, EventRef::RescheduleReceived);
            log.finish(Outcome::Done);
            if log.lost() == 0 {
                fitted = n;
            }
        }
        assert!(fitted > 0 && log.lost() == 999 - fitted);
        assert_eq!((log.records(), log.last()), (fitted, Nanos::new(fitted * fitted)));
        let bytes = log.into_bytes();
        let (mut at, mut state) = (0, DecodeState::new());
        for n in 1..=fitted {
            let mut reader = Reader::new(&bytes[at..]);
            let (stamp, event, outcome) = read_record(&mut reader, &mut state).expect("a whole record");
            at += reader.position();
            assert_eq!((stamp, outcome), (Stamp { cpu, now: Nanos::new(n * n) }, Outcome::Done));
            assert_eq!(event, crate::flight::Event::RescheduleReceived);
        }
        assert_eq!(at, bytes.len());
        assert_eq!(Log::new(0).bytes(), []);
    }
}
