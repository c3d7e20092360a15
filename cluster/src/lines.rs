//! Messages between processes: one JSON value in each line.

use crate::error::Error;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Write as _};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};

/// A line is at most as long as a workload file may be, with room for what JSON escapes.
const LONGEST: u64 = 64 << 20;

/// Reads messages. Dropping a read half way loses nothing of the line.
#[derive(Debug)]
pub struct Lines<R> {
    who: &'static str,
    from: BufReader<R>,
    line: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// What `who` writes.
    pub fn new(who: &'static str, from: R) -> Self {
        Self { who, from: BufReader::new(from), line: Vec::new() }
    }

    /// The next message, or `None` when the other side has closed.
    pub async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Error> {
        let peer = |cause| Error::Peer { who: self.who, cause };
        let room = LONGEST.saturating_sub(self.line.len() as u64);
        (&mut self.from).take(room).read_until(b'\n', &mut self.line).await.map_err(peer)?;
        if self.line.is_empty() {
            return Ok(None);
        }
        let line = std::mem::take(&mut self.line);
        if line.last() != Some(&b'\n') {
            return Err(peer(io::ErrorKind::UnexpectedEof.into()));
        }
        serde_json::from_slice(&line)
            .map(Some)
            .map_err(|error| peer(io::Error::new(io::ErrorKind::InvalidData, error)))
    }
}

/// Writes a message to standard output.
pub fn write_line(who: &'static str, message: &impl Serialize) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    let written = serde_json::to_writer(&mut out, message).map_err(io::Error::from);
    written
        .and_then(|()| out.write_all(b"\n"))
        .and_then(|()| out.flush())
        .map_err(|cause| Error::Peer { who, cause })
}
