//! Writing on a thread of its own, so that a run does not wait for the disk.
//!
//! Conserved: what was written comes out whole and in order, or the first error is told, at the next write or at the
//! flush, which is the end. At most [`AHEAD`] pieces wait to be written; then the writer waits.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, Scope};

/// How many pieces may wait to be written: enough for a thread that has to wait for a CPU.
const AHEAD: usize = 64;

/// A writer whose work is done by a thread.
#[derive(Debug)]
pub(crate) struct Background {
    pieces: Option<SyncSender<Vec<u8>>>,
    /// Pieces that have been written, to be filled again.
    spent: Receiver<Vec<u8>>,
    result: Receiver<io::Result<()>>,
}

impl Background {
    /// Writes to `out` from a thread of `scope`.
    pub(crate) fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        mut out: Box<dyn Write + Send + 'scope>,
    ) -> io::Result<Self> {
        let (pieces, to_write) = sync_channel::<Vec<u8>>(AHEAD);
        let (written, spent) = sync_channel(AHEAD + 1);
        let (done, result) = sync_channel(1);
        let work = move || {
            let outcome = to_write.iter().try_for_each(|piece| {
                out.write_all(&piece)?;
                // Nobody fills it again once the run is over.
                let _ = written.try_send(piece);
                Ok(())
            });
            // Nobody asks once the run has failed.
            let _ = done.send(outcome.and_then(|()| out.flush()));
        };
        Builder::new().name("recorder".to_owned()).spawn_scoped(scope, work)?;
        Ok(Self { pieces: Some(pieces), spent, result })
    }

    /// How the thread's work ended.
    fn outcome(&self) -> io::Result<()> {
        self.result.recv().unwrap_or_else(|_| Err(io::Error::other("the thread that writes has ended")))
    }
}

impl Write for Background {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut piece = self.spent.try_recv().unwrap_or_default();
        piece.clear();
        piece.extend_from_slice(bytes);
        match self.pieces.as_ref().map(|pieces| pieces.send(piece)) {
            Some(Ok(())) => Ok(bytes.len()),
            Some(Err(_)) | None => {
                self.outcome().and_then(|()| Err(io::Error::other("the record has been closed")))
            }
        }
    }

    /// Waits until everything is written. Nothing can be written afterwards.
    fn flush(&mut self) -> io::Result<()> {
        self.pieces = None;
        self.outcome()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_written_in_order() {
        let mut out = Vec::new();
        let pieces: Vec<Vec<u8>> = (0..100u8).map(|n| vec![n; usize::from(n) * 7 + 1]).collect();
        std::thread::scope(|scope| {
            let mut writer = Background::start(scope, Box::new(&mut out)).expect("threads can be made");
            for piece in &pieces {
                writer.write_all(piece).expect("memory takes it");
            }
            writer.flush().expect("memory takes it");
            assert!(writer.write_all(b"more").is_err(), "it is closed");
        });
        assert_eq!(out, pieces.concat());
    }

    /// Takes `room` bytes, then is full.
    struct Full {
        room: usize,
    }

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match self.room.checked_sub(bytes.len()) {
                Some(room) => self.room = room,
                None => return Err(io::Error::from(io::ErrorKind::StorageFull)),
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_error_is_told_with_its_cause_and_ends_the_writing() {
        for pieces in 0..20 {
            let told = std::thread::scope(|scope| {
                let out = Box::new(Full { room: 100 * pieces });
                let mut writer = Background::start(scope, out).expect("threads can be made");
                (0..=pieces).try_for_each(|_| writer.write_all(&[0; 100])).and_then(|()| writer.flush())
            });
            assert_eq!(told.expect_err("it is full").kind(), io::ErrorKind::StorageFull);
        }
    }
}
