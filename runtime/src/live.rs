//! Letting others look at a runtime while it runs: a Unix socket for `mainspring top`.
//!
//! Off unless [`Runtime::serve_live`] is called. Each observer that connects is sent a line of JSON several times a second: what
//! workers, tasks and nurseries do, as in a [`Snapshot`]. Observers are only told, never asked. Who may connect
//! is decided by the mode of the socket's file.
//!
//! Conserved: nobody who looks on can slow the runtime down. A snapshot stops no worker; it is taken only while somebody is
//! connected; an observer that does not read is dropped; and there are never more than a few.

use crate::calls;
use crate::runtime::{Inner, Runtime};
use crate::snapshot::{Snapshot, TaskSnapshot};
use crate::task::state::TaskState;
use std::fmt::Write as _;
use std::fs::{DirBuilder, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// The mode of the socket's file unless another is asked for: its owner alone.
pub const OWNER_ONLY: u32 = 0o600;

/// How many may look on at once.
const OBSERVERS: usize = 8;
/// How often they are told.
const EVERY: Duration = Duration::from_millis(200);
/// How long one may take to read what it is sent.
const PATIENCE: Duration = Duration::from_millis(100);
/// How many tasks are listed; all are counted.
const TASKS_LISTED: usize = 1_000;

/// How many names are tried for the directory in which a socket is made.
const NAMES_TRIED: u32 = 1_000;

/// A socket on which a runtime is shown, until dropped.
#[derive(Debug)]
pub struct LiveSocket {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LiveSocket {
    /// Where to connect.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LiveSocket {
    fn drop(&mut self) {
        // Nothing else is told by it: a relaxed flag is enough, and the join is the order.
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // It may be gone already.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Runtime {
    /// Shows what this runtime does to those who may connect to the socket at `path`, which must not exist. `mode` is that of
    /// its file: [`OWNER_ONLY`], or more.
    ///
    /// # Errors
    /// When there is something at `path`, or no socket can be made there.
    ///
    /// ```
    /// use mainspring::{Config, Profile, live};
    /// let runtime = Config::new(Profile::Service).workers(1).build().unwrap();
    /// let path = std::env::temp_dir().join(format!("mainspring-live-{}", std::process::id()));
    /// let shown = runtime.serve_live(&path, live::OWNER_ONLY).unwrap();
    /// // `mainspring top PATH` shows the runtime until `shown` is dropped.
    /// # drop(shown);
    /// ```
    pub fn serve_live(&self, path: impl AsRef<Path>, mode: u32) -> io::Result<LiveSocket> {
        calls::count_costly_action();
        let path = path.as_ref().to_owned();
        let listener = listen(&path, mode)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (inner, stopped) = (Arc::downgrade(&self.inner().memory()), stop.clone());
        let thread = std::thread::Builder::new()
            .name("mainspring-live".to_owned())
            .spawn(move || serve(&listener, &inner, &stopped))?;
        Ok(LiveSocket { path, stop, thread: Some(thread) })
    }
}

/// Makes the socket. It gets its mode in a directory that only its owner may enter, before it gets its name: nobody can connect
/// in between. The name is given by a link, which never replaces a file.
fn listen(path: &Path, mode: u32) -> io::Result<UnixListener> {
    if path.symlink_metadata().is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let private = private_directory(parent)?;
    let made = (|| {
        let socket = private.join("s");
        let listener = UnixListener::bind(&socket)?;
        std::fs::set_permissions(&socket, Permissions::from_mode(mode))?;
        listener.set_nonblocking(true)?;
        std::fs::hard_link(&socket, path)?;
        Ok(listener)
    })();
    let _ = std::fs::remove_file(private.join("s"));
    let _ = std::fs::remove_dir(&private);
    made
}

/// Makes a directory in `parent` that only its owner may enter. Another thread, a process with the same number in another
/// namespace, or one that was killed may have left the first names taken.
fn private_directory(parent: &Path) -> io::Result<PathBuf> {
    let mut attempt = 0;
    loop {
        let private = parent.join(format!(".mainspring-{}-{attempt}", std::process::id()));
        match DirBuilder::new().mode(0o700).create(&private) {
            Err(taken) if taken.kind() == io::ErrorKind::AlreadyExists && attempt < NAMES_TRIED => {
                attempt += 1;
            }
            made => return made.map(|()| private),
        }
    }
}

fn serve(listener: &UnixListener, inner: &Weak<Inner>, stop: &AtomicBool) {
    let mut observers: Vec<UnixStream> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        while let Ok((stream, _)) = listener.accept() {
            // One too many finds its connection closed.
            if observers.len() < OBSERVERS
                && stream.set_nonblocking(false).is_ok()
                && stream.set_write_timeout(Some(PATIENCE)).is_ok()
            {
                observers.push(stream);
            }
        }
        if !observers.is_empty() {
            let Some(inner) = inner.upgrade() else { return };
            let line = line(&inner.snapshot(), inner.timers.now_ns());
            drop(inner);
            observers.retain_mut(|observer| observer.write_all(line.as_bytes()).is_ok());
        }
        std::thread::sleep(EVERY);
    }
}

/// A snapshot as a line of JSON: a frame of `mainspring top`.
fn line(snapshot: &Snapshot, now_ns: u64) -> String {
    let mut out = String::new();
    let process = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let _ = write!(out, "{{\"machine\":\"runtime\",\"workload\":{},", Quoted(process.trim_end()));
    let _ = write!(out, "\"time_ns\":{now_ns},\"threads_total\":{},\"cpus\":[", snapshot.tasks.len());
    for (id, worker) in snapshot.workers.iter().enumerate() {
        let running = snapshot.tasks.iter().find(|task| task.worker == Some(id));
        let comma = if id == 0 { "" } else { "," };
        let _ = write!(
            out,
            "{comma}{{\"id\":{id},\"ready\":{},\"steals\":{}",
            worker.queued, worker.stats.tasks_stolen
        );
        if let Some(running) = running {
            let _ = write!(out, ",\"running\":{}", Quoted(&name(running)));
        }
        out.push('}');
    }
    out.push_str("],\"threads\":[");
    for (at, task) in snapshot.tasks.iter().take(TASKS_LISTED).enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let group = task.nursery.map_or_else(String::new, |nursery| format!("nursery {nursery}"));
        let _ = write!(out, "{comma}{{\"name\":{},\"group\":{},", Quoted(&name(task)), Quoted(&group));
        let _ = write!(out, "\"state\":{},\"ops\":{}", Quoted(&state(task)), task.ops_used);
        if let Some(worker) = task.worker {
            let _ = write!(out, ",\"cpu\":{worker}");
        }
        out.push('}');
    }
    out.push_str("]}\n");
    out
}

fn name(task: &TaskSnapshot) -> String {
    task.name.map_or_else(|| format!("task {}", task.id.0), |name| format!("{name} {}", task.id.0))
}

/// What a task does, in a word.
fn state(task: &TaskSnapshot) -> String {
    match task.state {
        TaskState::Running => "runs".to_owned(),
        TaskState::Ready => "ready".to_owned(),
        TaskState::Blocked => format!("{:?}", task.waits_for).to_lowercase(),
        TaskState::BudgetExhausted => "exhausted".to_owned(),
        TaskState::Completed | TaskState::Cancelled => "ended".to_owned(),
    }
}

/// Text as a JSON string.
struct Quoted<'a>(&'a str);

impl std::fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                c if c.is_control() => write!(f, "\\u{:04x}", c as u32)?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}
