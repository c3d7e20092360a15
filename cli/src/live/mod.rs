//! `run --live`: a run shown while it goes on, as a page on this host's own address and on a socket for `mainspring top`.
//!
//! Off unless asked for. The page's path begins with a number that only readers of this program's output know. The socket
//! stands in a folder that its owner alone may enter. Both only show the run: nothing that is sent to them changes it.
//!
//! Conserved: watchers cost a bounded amount. There are never more than a few of them, a request is short, and a watcher that does
//! not read is dropped.

mod http;
mod observers;

use crate::failure::Failure;
use crate::outfile;
use mainspring_report::Frame;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// How many may look on at once, in each of the two ways.
const ONLOOKERS: usize = 8;
/// How often a listener looks for a new connection.
const LOOK: Duration = Duration::from_millis(20);

/// The newest frame, and whether there will be others.
#[derive(Debug, Default)]
struct Shown {
    frame: Mutex<Arc<Frame>>,
    over: AtomicBool,
    /// Connections that are being answered.
    pages: AtomicUsize,
    observers: AtomicUsize,
}

impl Shown {
    fn frame(&self) -> Arc<Frame> {
        self.frame.lock().expect("no panic while it is held").clone()
    }

    /// Whether the run is over.
    fn is_over(&self) -> bool {
        // Relaxed: a flag that is looked at again and again.
        self.over.load(Ordering::Relaxed)
    }
}

/// A run that is shown, until dropped.
#[derive(Debug)]
pub struct Live {
    shown: Arc<Shown>,
    listeners: Vec<JoinHandle<()>>,
    url: String,
    socket: PathBuf,
}

impl Live {
    /// Begins to listen.
    pub fn start(address: SocketAddr) -> Result<Self, Failure> {
        let refused = |cause| Failure::Live { address, cause };
        let page = TcpListener::bind(address).map_err(refused)?;
        page.set_nonblocking(true).map_err(refused)?;
        let secret = secret().map_err(refused)?;
        let url = format!("http://{}/{secret}/", page.local_addr().map_err(refused)?);
        let (socket, listener) = private_socket().map_err(refused)?;
        let shown = Arc::new(Shown::default());
        let mut live = Self { shown: shown.clone(), listeners: Vec::new(), url, socket };
        let (of_page, of_socket) = (shown.clone(), shown);
        live.listen("page", move || {
            let next = || page.accept().map(|(stream, _)| stream);
            accept(
                &of_page,
                |shown| &shown.pages,
                next,
                move |shown, stream| http::answer(shown, &secret, stream),
            );
        })?;
        live.listen("socket", move || {
            let next = || listener.accept().map(|(stream, _)| stream);
            accept(&of_socket, |shown| &shown.observers, next, observers::send_frames);
        })?;
        Ok(live)
    }

    fn listen(&mut self, name: &str, act: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
        let named = std::thread::Builder::new().name(format!("live {name}"));
        let started = named.spawn(act).map_err(Failure::Thread)?;
        self.listeners.push(started);
        Ok(())
    }

    /// Where the page is.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where `mainspring top` connects.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// What is seen from now on.
    pub fn show(&self, frame: Frame) {
        *self.shown.frame.lock().expect("no panic while it is held") = Arc::new(frame);
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.shown.over.store(true, Ordering::Relaxed);
        for listener in self.listeners.drain(..) {
            let _ = listener.join();
        }
        remove(&self.socket);
    }
}

/// Answers each connection on a thread of its own until the run is over. One connection too many is closed.
fn accept<S: Send + 'static>(
    shown: &Arc<Shown>,
    count: fn(&Shown) -> &AtomicUsize,
    next: impl Fn() -> io::Result<S>,
    answer: impl Fn(&Shown, S) + Clone + Send + 'static,
) {
    while !shown.is_over() {
        let Ok(stream) = next() else {
            std::thread::sleep(LOOK);
            continue;
        };
        if count(shown).load(Ordering::Relaxed) >= ONLOOKERS {
            continue;
        }
        count(shown).fetch_add(1, Ordering::Relaxed);
        let (theirs, answer) = (shown.clone(), answer.clone());
        let act = move || {
            answer(&theirs, stream);
            count(&theirs).fetch_sub(1, Ordering::Relaxed);
        };
        if std::thread::Builder::new().spawn(act).is_err() {
            count(shown).fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// 128 random bits.
fn secret() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A socket in a new folder that only its owner may enter, so that no other user can connect at any moment.
fn private_socket() -> io::Result<(PathBuf, UnixListener)> {
    let runtime_dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| {
        // The address of a socket has room for 108 bytes.
        dir.is_dir() && dir.as_os_str().len() < 60
    });
    let folder = runtime_dir.unwrap_or_else(std::env::temp_dir).join(format!(
        "mainspring-live-{}-{}",
        std::process::id(),
        &secret()?[..8]
    ));
    DirBuilder::new().mode(0o700).create(&folder)?;
    let socket = folder.join("top.sock");
    outfile::remember(&socket);
    outfile::remember(&folder);
    let made = UnixListener::bind(&socket).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    match made {
        Ok(listener) => Ok((socket, listener)),
        Err(error) => {
            remove(&socket);
            Err(error)
        }
    }
}

/// Removes a socket and its folder; a signal may have done so already.
fn remove(socket: &Path) {
    let _ = fs::remove_file(socket);
    outfile::forget(socket);
    if let Some(folder) = socket.parent() {
        let _ = fs::remove_dir(folder);
        outfile::forget(folder);
    }
}
