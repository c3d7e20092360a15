//! A run that is followed while it goes on: its decisions are made again as its CPUs record them.
//!
//! Conserved: each event of a CPU is replayed once, in that CPU's order. Events of different CPUs are replayed in the order of time, up to
//! the moment when the last CPU was asked. Later events wait, since another CPU may not have shown its earlier ones yet.

use crate::file::{Header, Malformed, RecordError};
use crate::log::Entry;
use crate::replay::ReplayError;
use crate::view::View;
use mainspring_abi::{CpuId, Nanos};
use mainspring_report::{Frame, Report};
use mainspring_sched::flight::{DecodeState, Reader, Room, read_record};
use std::collections::VecDeque;

/// No record of an event and its outcome is longer.
const LONGEST_RECORD: usize = 2 * size_of::<Room>();

/// A run that is being followed.
#[derive(Debug)]
pub struct Following {
    view: View,
    cpus: Vec<Followed>,
}

/// One CPU's record, as far as it was read.
#[derive(Debug)]
struct Followed {
    state: DecodeState,
    /// The beginning of a record whose end has not been read.
    begun: Vec<u8>,
    /// Read, and not replayed yet.
    next: VecDeque<Entry>,
    /// Up to when its events are known.
    known_until: Nanos,
}

impl Following {
    /// Follows a machine from its first event on. `end` is when the run will be over.
    pub fn new(header: Header, end: Nanos) -> Result<Self, ReplayError> {
        let new = || Followed {
            state: DecodeState::new(),
            begun: Vec::new(),
            next: VecDeque::new(),
            known_until: Nanos::ZERO,
        };
        let cpus = (0..header.cpus).map(|_| new()).collect();
        Ok(Self { view: View::new(header, None, end)?, cpus })
    }

    /// The next bytes of a CPU's record, which was asked at `asked`. If there are `more`, they may end in the middle of an event.
    pub fn feed(&mut self, cpu: CpuId, asked: Nanos, bytes: &[u8], more: bool) -> Result<(), ReplayError> {
        let Followed { state, begun, next, known_until } =
            self.cpus.get_mut(cpu.index()).ok_or(ReplayError::NoSuchCpu { cpu })?;
        begun.extend_from_slice(bytes);
        let mut at = 0;
        while at < begun.len() && (!more || begun.len() - at >= LONGEST_RECORD) {
            let mut reader = Reader::new(&begun[at..]);
            let (stamp, event, outcome) = read_record(&mut reader, state)
                .map_err(|error| RecordError::of_cpu(cpu, Malformed::Record(error)))?;
            at += reader.position();
            next.push_back(Entry { now: stamp.now, cpu: stamp.cpu, event, outcome });
        }
        begun.drain(..at);
        *known_until = if more { state.writer().last().now } else { asked };
        Ok(())
    }

    /// The frame of the moment up to which the events of every CPU are known. `summary` is what the CPUs do not know.
    pub fn frame(&mut self, summary: Report) -> Result<Frame, ReplayError> {
        let at = self.cpus.iter().map(|cpu| cpu.known_until).min().unwrap_or_default();
        let next = |cpus: &[Followed]| {
            let due = |cpu: &Followed| cpu.next.front().map(|entry| entry.now).filter(|now| *now <= at);
            let times = cpus.iter().enumerate().filter_map(|(cpu, followed)| Some((due(followed)?, cpu)));
            times.min().map(|(_, cpu)| cpu)
        };
        while let Some(cpu) = next(&self.cpus) {
            let entry = self.cpus[cpu].next.pop_front();
            entry.map_or(Ok(()), |entry| self.view.step(entry))?;
        }
        self.view.now = self.view.now.max(at);
        self.view.summary = Some(summary);
        Ok(self.view.look())
    }
}
