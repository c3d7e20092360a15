//! Where frames come from: a record that is played back, or the socket of a live runtime.

use crate::failure::Failure;
use crate::input;
use crate::output::Output;
use mainspring_abi::Nanos;
use mainspring_record::playback::Playback;
use mainspring_report::Frame;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::time::Duration;

/// How long the first frame of a live runtime may take.
const FIRST_FRAME: Duration = Duration::from_secs(5);
/// A line that is longer is no frame.
const LONGEST_LINE: u64 = 16 << 20;

/// What is looked at.
pub enum Source {
    Record { name: String, playback: Box<Playback> },
    Live { path: PathBuf, frames: Receiver<Frame>, last: Option<Box<Frame>>, ended: bool },
}

impl Source {
    /// Opens `path`: a socket is connected to, anything else is read as a record.
    pub fn open(path: &Path, output: Output) -> Result<Self, Failure> {
        if std::fs::metadata(path).is_ok_and(|there| there.file_type().is_socket()) {
            return connect(path).map_err(|cause| Failure::Open { path: path.into(), cause });
        }
        let name = input::name(path);
        let mut bytes = Vec::new();
        let mut record = input::record(path, "reading", output)?;
        record.read_to_end(&mut bytes).map_err(|cause| Failure::Open { path: path.into(), cause })?;
        drop(record);
        match Playback::new(bytes) {
            Ok(playback) => Ok(Self::Record { name, playback: Box::new(playback) }),
            Err(error) => Err(Failure::Replay { name, error }),
        }
    }

    /// Whether time can be chosen.
    pub fn is_record(&self) -> bool {
        matches!(self, Self::Record { .. })
    }

    /// When a record ends.
    pub fn end(&self) -> Option<Nanos> {
        match self {
            Self::Record { playback, .. } => Some(playback.end()),
            Self::Live { .. } => None,
        }
    }

    /// Whether a live runtime has gone.
    pub fn has_ended(&self) -> bool {
        matches!(self, Self::Live { ended: true, .. })
    }

    /// The frame of a record at a time, or at its end; of a live runtime the newest.
    pub fn frame_at(&mut self, at: Option<Nanos>) -> Result<Frame, Failure> {
        match self {
            Self::Record { name, playback } => {
                let at = at.unwrap_or(playback.end());
                playback.frame(at).map_err(|error| Failure::Replay { name: name.clone(), error })
            }
            Self::Live { path, frames, last, ended } => {
                loop {
                    match frames.try_recv() {
                        Ok(frame) => *last = Some(Box::new(frame)),
                        Err(TryRecvError::Empty) => break,
                        Err(TryRecvError::Disconnected) => {
                            *ended = true;
                            break;
                        }
                    }
                }
                if last.is_none() {
                    match frames.recv_timeout(FIRST_FRAME) {
                        Ok(frame) => *last = Some(Box::new(frame)),
                        Err(RecvTimeoutError::Disconnected) => *ended = true,
                        Err(RecvTimeoutError::Timeout) => {}
                    }
                }
                last.as_deref().cloned().ok_or_else(|| Failure::Open {
                    path: path.clone(),
                    cause: io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "it tells nothing: not a runtime that serves frames",
                    ),
                })
            }
        }
    }
}

/// Reads frames on a thread of its own, so that a runtime that stalls does not stall the screen.
fn connect(path: &Path) -> io::Result<Source> {
    let stream = UnixStream::connect(path)?;
    let (tell, frames) = sync_channel(4);
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        loop {
            let mut line = String::new();
            let read = reader.by_ref().take(LONGEST_LINE).read_line(&mut line);
            let Ok(1..) = read else { return };
            let Ok(frame) = serde_json::from_str(&line) else { return };
            if tell.send(frame).is_err() {
                return;
            }
        }
    });
    Ok(Source::Live { path: path.into(), frames, last: None, ended: false })
}
