//! Where input comes from: a file, or standard input where the path is `-`.

use crate::failure::Failure;
use crate::output::Output;
use crate::progress::Progress;
use indicatif::HumanBytes;
use mainspring_workload::{LoadError, Setting, Workload, apply, parse, read_text, text_of};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

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

/// The text of a workload.
pub fn text(path: &Path) -> Result<String, LoadError> {
    if is_stdin(path) { text_of(Path::new(STDIN_NAME), io::stdin().lock()) } else { read_text(path) }
}

/// Reads a workload.
pub fn workload(path: &Path) -> Result<Workload, LoadError> {
    parse(&name(path), &text(path)?).map_err(LoadError::Invalid)
}

/// Reads a workload with settings made; and its text then.
pub fn workload_of(path: &Path, text: &str, settings: &[Setting]) -> Result<(String, Workload), Failure> {
    let set = apply(text, settings).map_err(|error| Failure::Setting { name: name(path), error })?;
    let workload = parse(&name(path), &set).map_err(|errors| {
        let errors = vec![LoadError::Invalid(errors)];
        // A reader who looks for the line must know that the file has another one.
        if set != text && parse(&name(path), text).is_ok() {
            Failure::LoadSet(errors)
        } else {
            Failure::Load(errors)
        }
    })?;
    Ok((set, workload))
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
