//! A record played back: what its machine did at any moment, as frames of `mainspring top`.

use crate::file::RecordReader;
use crate::log::{Entry, Log};
use crate::replay::ReplayError;
use crate::view::View;
use mainspring_abi::Nanos;
use mainspring_report::{Frame, read_summary};
use std::vec::IntoIter;

/// A record that is being played back.
#[derive(Debug)]
pub struct Playback {
    record: Vec<u8>,
    view: View,
    left: IntoIter<Entry>,
    next: Option<Entry>,
}

impl Playback {
    /// The record in `bytes`, at its beginning.
    pub fn new(record: Vec<u8>) -> Result<Self, ReplayError> {
        let reader = RecordReader::new(record.as_slice())?;
        let header = reader.header().clone();
        let log = Log::read(reader)?;
        let view = View::new(header, read_summary(log.summary()), log.end())?;
        let left = log.into_entries().into_iter();
        Ok(Self { record, view, left, next: None })
    }

    /// When the run ended.
    #[must_use]
    pub fn end(&self) -> Nanos {
        self.view.end
    }

    /// The frame at `at`. Going back makes the decisions up to then once more.
    pub fn frame(&mut self, at: Nanos) -> Result<Frame, ReplayError> {
        let at = at.min(self.view.end);
        if at < self.view.now {
            *self = Self::new(std::mem::take(&mut self.record))?;
        }
        while let Some(entry) = self.next.take().or_else(|| self.left.next()) {
            if entry.now > at {
                self.next = Some(entry);
                break;
            }
            self.view.step(entry)?;
        }
        self.view.now = at;
        Ok(self.view.look())
    }
}
