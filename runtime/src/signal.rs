//! Signals of the process: waited for by tasks and threads, or as the end of a token.
//!
//! Conserved: a signal that comes is told to every [`Signals`] that asked for it, at least once for all that come together, as the
//! kernel itself does it. The handler does what a handler may: it sets a bit and writes to a descriptor; a thread of the process
//! tells the rest.
#![allow(unsafe_code)]

use crate::calls;
use crate::cx::Cx;
use crate::queue::{Queue, Rule};
use crate::runtime::Runtime;
use crate::sync::{AcquireError, CancelToken};
use crate::task::WaitReason;
use crate::wait::Who;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// A signal that a program may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Signal(u8);

impl Signal {
    /// The terminal is gone, or the configuration is to be read again.
    pub const HANGUP: Self = Self(libc::SIGHUP as u8);
    /// Ctrl-C.
    pub const INTERRUPT: Self = Self(libc::SIGINT as u8);
    /// Asked to end.
    pub const TERMINATE: Self = Self(libc::SIGTERM as u8);
    /// Ctrl-\\.
    pub const QUIT: Self = Self(libc::SIGQUIT as u8);
    /// The program's own.
    pub const USER1: Self = Self(libc::SIGUSR1 as u8);
    /// The program's own.
    pub const USER2: Self = Self(libc::SIGUSR2 as u8);
    /// A child process has ended.
    pub const CHILD: Self = Self(libc::SIGCHLD as u8);
    /// The terminal has another size.
    pub const WINDOW: Self = Self(libc::SIGWINCH as u8);

    /// Its number.
    pub const fn number(self) -> i32 {
        self.0 as i32
    }

    const fn bit(self) -> u64 {
        1 << self.0
    }
}

/// The signals that have come and were not told yet, a bit each.
static COME: AtomicU64 = AtomicU64::new(0);
/// What the handler writes to, so that the thread wakes; -1 before there is one.
static BELL: AtomicI32 = AtomicI32::new(-1);
static LISTENERS: Mutex<Listeners> = Mutex::new(Listeners { all: Vec::new(), handled: 0 });

struct Listeners {
    all: Vec<(u64, Weak<Listener>)>,
    /// The signals that have a handler.
    handled: u64,
}

enum Listener {
    Queue(Queue<Told>),
    Token(CancelToken),
}

/// The signals that were told and not taken.
#[derive(Default)]
struct Told(u64);

impl Rule for Told {
    type Wish = ();

    fn take(&mut self, (): ()) -> bool {
        self.0 != 0
    }

    fn put_back(&mut self, (): (), _: bool) {}
}

impl Listener {
    fn tell(&self, bits: u64) {
        match self {
            Self::Queue(queue) => queue.change(|told, _| told.0 |= bits),
            Self::Token(token) => _ = token.cancel(),
        }
    }
}

/// In the handler: only what a handler may do.
fn comes(signal: Signal) {
    COME.fetch_or(signal.bit(), Ordering::SeqCst);
    let one = 1u64.to_ne_bytes();
    // SAFETY: a write of bytes of this frame to a descriptor that is never closed. It may fail if the counter is full: then the
    // thread is about to read it.
    unsafe { libc::write(BELL.load(Ordering::SeqCst), one.as_ptr().cast(), one.len()) };
}

/// The thread that tells the listeners.
fn listen(mut bell: File) {
    let mut count = [0; 8];
    loop {
        if bell.read(&mut count).is_err_and(|error| error.kind() != io::ErrorKind::Interrupted) {
            return;
        }
        let bits = COME.swap(0, Ordering::SeqCst);
        let told: Vec<_> = {
            let mut listeners = LISTENERS.lock().expect("no panic while it is held");
            listeners.all.retain(|(_, listener)| listener.strong_count() > 0);
            let wants = |(mask, listener): &(u64, Weak<Listener>)| Some((mask & bits, listener.upgrade()?));
            listeners.all.iter().filter_map(wants).filter(|(bits, _)| *bits != 0).collect()
        };
        told.into_iter().for_each(|(bits, listener)| listener.tell(bits));
    }
}

fn add(signals: &[Signal], listener: Listener) -> io::Result<Arc<Listener>> {
    let mut listeners = LISTENERS.lock().expect("no panic while it is held");
    if BELL.load(Ordering::SeqCst) < 0 {
        // SAFETY: the call takes numbers only.
        let bell = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if bell < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, and no other owner has it; the thread keeps it for as long as the process lives.
        let file = unsafe { File::from_raw_fd(bell) };
        let number = file.as_raw_fd();
        std::thread::Builder::new().name("mainspring-signals".to_owned()).spawn(move || listen(file))?;
        BELL.store(number, Ordering::SeqCst);
    }
    for signal in signals {
        if listeners.handled & signal.bit() == 0 {
            let signal = *signal;
            // SAFETY: the handler allocates nothing, takes no lock and does not unwind.
            unsafe { signal_hook_registry::register(signal.number(), move || comes(signal)) }?;
            listeners.handled |= signal.bit();
        }
    }
    let mask = signals.iter().fold(0, |mask, signal| mask | signal.bit());
    let listener = Arc::new(listener);
    if listeners.all.len() == listeners.all.capacity() {
        // The list grows only if all in it live.
        listeners.all.retain(|(_, listener)| listener.strong_count() > 0);
    }
    listeners.all.push((mask, Arc::downgrade(&listener)));
    Ok(listener)
}

/// Signals that are waited for, from [`Runtime::signals`] on. What the signal did before does not happen any more, for the rest of the
/// process.
#[derive(Clone)]
pub struct Signals(Arc<Listener>);

impl std::fmt::Debug for Signals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signals")
    }
}

/// A token that a signal cancels, as long as this lives: [`Runtime::stop_on`].
#[derive(Debug)]
pub struct StopOn {
    token: CancelToken,
    _listener: Signals,
}

impl StopOn {
    /// The token.
    pub fn token(&self) -> &CancelToken {
        &self.token
    }
}

impl Runtime {
    /// Waits for these signals from now on. Signals are the process's, so only the host says which are waited for; tasks are handed
    /// what it returns.
    pub fn signals(&self, signals: &[Signal]) -> io::Result<Signals> {
        calls::count_costly_action();
        add(signals, Listener::Queue(Queue::new(Told::default()))).map(Signals)
    }

    /// A token that the first of these signals cancels: for a shutdown in which tasks end what they have begun.
    pub fn stop_on(&self, signals: &[Signal]) -> io::Result<StopOn> {
        calls::count_costly_action();
        let token = CancelToken::new();
        let listener = add(signals, Listener::Token(token.clone())).map(Signals)?;
        Ok(StopOn { token, _listener: listener })
    }
}

impl Signals {
    /// Waits for one of the signals. Several of the same that come together are one. Fails only in a destructor of a task that
    /// unwinds.
    pub fn recv(&self, cx: &Cx) -> Result<Signal, AcquireError> {
        self.recv_as(&Who::Task(cx), None)
    }

    /// As [`Signals::recv`], for at most this long.
    pub fn recv_timeout(&self, cx: &Cx, timeout: Duration) -> Result<Signal, AcquireError> {
        self.recv_as(&Who::Task(cx), Some(timeout))
    }

    /// As [`Signals::recv`], from an ordinary thread, which blocks. Must not be called from inside a task.
    pub fn recv_blocking(&self) -> Signal {
        self.recv_as(&Who::thread(), None).expect("a thread waits for as long as it takes")
    }

    fn recv_as(&self, who: &Who<'_>, timeout: Option<Duration>) -> Result<Signal, AcquireError> {
        let Listener::Queue(queue) = &*self.0 else { unreachable!("made by Runtime::signals") };
        let due_ns = who.due_ns(timeout);
        loop {
            queue.wait(who, (), WaitReason::Sync, who.time_until(due_ns))?;
            let taken = queue.change(|told, _| {
                let first = (told.0 != 0).then(|| told.0.trailing_zeros() as u8);
                told.0 &= told.0.wrapping_sub(1);
                first
            });
            // Another that waits may have taken it.
            if let Some(number) = taken {
                return Ok(Signal(number));
            }
        }
    }
}
