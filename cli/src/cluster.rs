//! What needs a NATS server is done by another program, `mainspring-cluster`: this one is built without a client for it.

use crate::failure::Failure;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

/// The program's name.
const PROGRAM: &str = "mainspring-cluster";

/// A command that runs it: the one beside this program, or else the first on the PATH.
pub fn program() -> Command {
    let beside = std::env::current_exe().ok().and_then(|path| Some(path.parent()?.join(PROGRAM)));
    Command::new(beside.filter(|path| path.is_file()).unwrap_or_else(|| PathBuf::from(PROGRAM)))
}

/// Why it did not start.
pub fn absent(cause: io::Error) -> Failure {
    Failure::NoCluster { cause }
}

/// Becomes it, with these words: what ends this process ends it. Returns only if it does not start.
pub fn become_it(words: impl IntoIterator<Item = OsString>) -> Failure {
    absent(program().args(words).exec())
}

/// Becomes a worker: this program makes its runs.
pub fn become_worker(words: &[OsString]) -> Failure {
    let this = match std::env::current_exe() {
        Ok(this) => this,
        Err(cause) => return absent(cause),
    };
    let mut all = vec![OsString::from("worker"), "--mainspring".into(), this.into()];
    all.extend(words.iter().cloned());
    become_it(all)
}
