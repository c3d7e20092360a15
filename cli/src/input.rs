//! Where input comes from: a file, or standard input where the path is `-`.

use crate::failure::Failure;
use crate::output::Output;
use crate::progress::Progress;
use indicatif::HumanBytes;
use mainspring_workload::{LoadError, MAX_FILE_BYTES, Workload, load, parse};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// What reports and errors call standard input.
const STDIN_NAME: &str = "<stdin>";

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// What reports and errors call the input.
pub fn name(path: &Path) -> String {
    if is_stdin(path) { STDIN_NAME.into() } else { path.display().to_string() }
}

/// The path to look at for what the input really is, standard input included.
pub fn on_disk(path: &Path) -> &Path {
    if is_stdin(path) { Path::new("/dev/stdin") } else { path }
}

/// Reads a workload.
pub fn workload(path: &Path) -> Result<Workload, LoadError> {
    if !is_stdin(path) {
        return load(path);
    }
    let path = || PathBuf::from(STDIN_NAME);
    let mut bytes = Vec::new();
    // One byte more than allowed tells too large from just fitting, and an endless pipe ends.
    let read = io::stdin().lock().take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|cause| LoadError::Read { path: path(), cause })?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(LoadError::TooLarge { path: path(), limit: MAX_FILE_BYTES });
    }
    let text = str::from_utf8(&bytes).map_err(|error| {
        let good = bytes.iter().take(error.valid_up_to());
        LoadError::NotText { path: path(), line: 1 + good.filter(|byte| **byte == b'\n').count() }
    })?;
    parse(STDIN_NAME, text).map_err(LoadError::Invalid)
}

/// The bytes of a flight record. Reading them shows how far it has come.
pub struct Record {
    bytes: Box<dyn Read>,
    bytes_read: u64,
    progress: Option<Progress>,
}

/// Opens a flight record, for `what`.
pub fn record(path: &Path, what: &'static str, output: Output) -> Result<Record, Failure> {
    if is_stdin(path) {
        return Ok(Record { bytes: Box::new(io::stdin().lock()), bytes_read: 0, progress: None });
    }
    let unreadable = |cause| Failure::Open { path: path.into(), cause };
    let file = File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if metadata.is_dir() {
        return Err(unreadable(io::ErrorKind::IsADirectory.into()));
    }
    let progress = metadata.is_file().then(|| Progress::new(what, metadata.len(), output));
    Ok(Record { bytes: Box::new(file), bytes_read: 0, progress })
}

impl Read for Record {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.bytes.read(buffer)?;
        self.bytes_read += count as u64;
        if let Some(progress) = &mut self.progress {
            progress.at(self.bytes_read, || HumanBytes(self.bytes_read).to_string());
        }
        Ok(count)
    }
}
