//! Writing on a thread of its own, so that a run does not wait for checksums or for the disk.
//!
//! Conserved: what was put comes out whole and in order, or the first error is told, at the next put or at the close. At most
//! [`AHEAD`] pieces wait to be written; then whoever puts waits. A block is handed over, not copied, and comes back when it
//! has been written.

use super::block::Block;
use super::write::Outlet;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, Scope};

/// How many pieces may wait to be written: enough for a thread that has to wait for a CPU.
const AHEAD: usize = 32;

#[derive(Debug)]
enum Piece {
    Bytes(Vec<u8>),
    Block(Block),
}

/// An outlet whose work is done by a thread.
#[derive(Debug)]
pub(crate) struct Background {
    pieces: Option<SyncSender<Piece>>,
    /// Blocks that have been written.
    written: Receiver<Block>,
    /// Blocks to be filled again. The last one was written last, so it is the nearest in memory.
    spare: Vec<Block>,
    result: Receiver<io::Result<()>>,
}

impl Background {
    /// Writes to `out` from a thread of `scope`.
    pub(crate) fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        mut out: Box<dyn Write + Send + 'scope>,
    ) -> io::Result<Self> {
        let (pieces, to_write) = sync_channel(AHEAD);
        let (spent, written) = sync_channel(AHEAD + 1);
        let (done, result) = sync_channel(1);
        let work = move || {
            let outcome = to_write.iter().try_for_each(|piece| match piece {
                Piece::Bytes(bytes) => out.write_all(&bytes),
                Piece::Block(mut block) => {
                    out.write_all(block.close())?;
                    // Nobody fills it again once the run is over.
                    let _ = spent.try_send(block);
                    Ok(())
                }
            });
            // Nobody asks once the run has failed.
            let _ = done.send(outcome.and_then(|()| out.flush()));
        };
        Builder::new().name("recorder".to_owned()).spawn_scoped(scope, work)?;
        Ok(Self { pieces: Some(pieces), written, spare: Vec::new(), result })
    }

    fn send(&mut self, piece: Piece) -> io::Result<()> {
        match self.pieces.as_ref().map(|pieces| pieces.send(piece)) {
            Some(Ok(())) => Ok(()),
            Some(Err(_)) | None => {
                self.outcome().and_then(|()| Err(io::Error::other("the record has been closed")))
            }
        }
    }

    /// How the thread's work ended.
    fn outcome(&self) -> io::Result<()> {
        self.result.recv().unwrap_or_else(|_| Err(io::Error::other("the thread that writes has ended")))
    }
}

impl Outlet for Background {
    fn put(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        self.send(Piece::Bytes(bytes))
    }

    fn exchange(&mut self, block: &mut Block) -> io::Result<()> {
        self.spare.extend(self.written.try_iter());
        let mut empty = self.spare.pop().unwrap_or_else(Block::new);
        empty.clear();
        self.send(Piece::Block(std::mem::replace(block, empty)))
    }

    fn close(&mut self) -> io::Result<()> {
        self.pieces = None;
        self.outcome()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainspring_abi::{CpuId, Nanos};
    use mainspring_sched::flight::{EventRef, Place, write_event};

    /// A block with that many starts of records in it.
    fn fill(block: &mut Block, events: usize) {
        for n in 0..events {
            let place = Place { cpu: CpuId::BOOT, now: Nanos::new(n as u64) };
            block.append(|writer| write_event(writer, Place::START, place, EventRef::Timer));
        }
    }

    #[test]
    fn everything_is_written_in_order() {
        let (mut out, mut expected) = (Vec::new(), Vec::new());
        std::thread::scope(|scope| {
            let mut outlet = Background::start(scope, Box::new(&mut out)).expect("threads can be made");
            let mut block = Block::new();
            for n in 0..200 {
                let bytes = vec![n as u8; n * 7 + 1];
                expected.extend_from_slice(&bytes);
                outlet.put(bytes).expect("memory takes it");
                fill(&mut block, n);
                expected.extend_from_slice(block.close());
                outlet.exchange(&mut block).expect("memory takes it");
                assert_eq!(block.len(), 0, "what was written before is still in it");
            }
            outlet.close().expect("memory takes it");
            assert!(outlet.put(b"more".to_vec()).is_err(), "it is closed");
            assert!(outlet.exchange(&mut block).is_err(), "it is closed");
        });
        assert!(out == expected);
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
        for pieces in 0..80 {
            let told = std::thread::scope(|scope| {
                let mut block = Block::new();
                fill(&mut block, 23);
                let piece = block.close().len();
                let out = Box::new(Full { room: piece * pieces });
                let mut outlet = Background::start(scope, out).expect("threads can be made");
                for _ in 0..=pieces {
                    outlet.exchange(&mut block)?;
                    fill(&mut block, 23);
                }
                outlet.close()
            });
            assert_eq!(told.expect_err("it is full").kind(), io::ErrorKind::StorageFull);
        }
    }
}
