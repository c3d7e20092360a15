//! io_uring: operations that the kernel completes, one ring per runtime.
//!
//! Conserved: what the kernel may read or write for an operation outlives it. The operation's record and its buffers are in
//! the frames of the task that waits for it, and [`Uring::run`] does not return before its completion has come: a task that
//! is cancelled asks the kernel to give the operation up, and then waits for it all the same. A completion is taken once,
//! by whoever holds the lock.
#![allow(unsafe_code)]

use crate::cx::Cx;
use crate::task::WaitReason;
use crate::waiter::{self, task_word};
use io_uring::{IoUring, Probe, opcode, squeue};
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;

/// Submissions that fit into the ring at a time. Operations in flight may be many more.
const ENTRIES: u32 = 256;

/// The `user_data` of what nobody waits for. No record is at this address.
const NOBODY: u64 = 0;

/// Whether the kernel allows a ring with all operations that are used here.
pub(crate) fn probe() -> io::Result<()> {
    static FOUND: OnceLock<Result<(), (ErrorKind, String)>> = OnceLock::new();
    let found = FOUND.get_or_init(|| try_ring().map_err(|error| (error.kind(), error.to_string())));
    found.clone().map_err(|(kind, why)| io::Error::new(kind, why))
}

fn try_ring() -> io::Result<()> {
    let ring = IoUring::new(2)?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed = [
        opcode::Accept::CODE,
        opcode::Connect::CODE,
        opcode::Recv::CODE,
        opcode::Send::CODE,
        opcode::RecvMsg::CODE,
        opcode::SendMsg::CODE,
        opcode::OpenAt::CODE,
        opcode::Read::CODE,
        opcode::Write::CODE,
        opcode::AsyncCancel::CODE,
    ];
    if needed.into_iter().all(|code| probe.is_supported(code)) {
        Ok(())
    } else {
        Err(io::Error::new(ErrorKind::Unsupported, "the kernel's io_uring lacks operations; use epoll"))
    }
}

/// An operation in flight, in the frame of the task that waits for it.
struct Operation {
    result: AtomicI32,
    done: AtomicU8,
    waiter: usize,
}

/// What the submitting workers and the reaper share.
struct Shared {
    ring: IoUring,
    /// Held by whoever touches either queue.
    queues: Mutex<()>,
    closed: AtomicBool,
}

/// A ring, and the thread that waits for completions when no worker comes by.
pub(crate) struct Uring {
    shared: Arc<Shared>,
    reaper: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Uring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Uring")
    }
}

/// How an operation ended.
pub(crate) struct Completed {
    /// What the kernel answered.
    pub(crate) result: io::Result<u32>,
    /// The task was cancelled meanwhile; it has not been acknowledged.
    pub(crate) cancelled: bool,
}

impl Uring {
    pub(crate) fn new() -> io::Result<Self> {
        let shared = Arc::new(Shared {
            ring: IoUring::new(ENTRIES)?,
            queues: Mutex::default(),
            closed: AtomicBool::new(false),
        });
        let theirs = shared.clone();
        let reaper = std::thread::Builder::new()
            .name("mainspring-io".to_owned())
            .spawn(move || theirs.reap_until_closed())?;
        Ok(Self { shared, reaper: Mutex::new(Some(reaper)) })
    }

    /// Has the kernel carry `entry` out, and waits for it. Returns only when the kernel is through with it.
    ///
    /// # Safety
    ///
    /// What `entry` points to stays valid, and nobody else touches what it writes to, until this returns.
    pub(crate) unsafe fn run(&self, cx: &Cx, entry: &squeue::Entry) -> Completed {
        if std::thread::panicking() {
            // A destructor must not switch, and an operation that is begun has to be waited for.
            return Completed { result: Err(ErrorKind::WouldBlock.into()), cancelled: false };
        }
        loop {
            let operation = Operation {
                result: AtomicI32::new(0),
                done: AtomicU8::new(0),
                waiter: task_word(cx.task_ptr()),
            };
            let name = &raw const operation as u64;
            // SAFETY: the record lives until its completion has come, which is waited for; the rest is as promised.
            unsafe { self.shared.submit(&entry.clone().user_data(name), operation.waiter) };
            let cancelled = self.wait(cx, &operation, name);
            match operation.result.load(Ordering::Relaxed) {
                // Nobody asked for that: the thread that had submitted it has ended, and its operations with it.
                error if error == -libc::ECANCELED && !cancelled => {}
                error if error == -libc::EINTR && !cancelled => {}
                error if error < 0 => {
                    return Completed { result: Err(io::Error::from_raw_os_error(-error)), cancelled };
                }
                value => return Completed { result: Ok(value as u32), cancelled },
            }
        }
    }

    /// Waits for the completion; whether the task was cancelled meanwhile.
    fn wait(&self, cx: &Cx, operation: &Operation, name: u64) -> bool {
        // Acquire pairs with the release in `reap`: the result, and what the kernel wrote, is seen.
        while operation.done.load(Ordering::Acquire) == 0 {
            if cx.must_stop() {
                let cancel = opcode::AsyncCancel::new(name).build().user_data(NOBODY);
                // SAFETY: it points to nothing, it only names.
                unsafe { self.shared.submit(&cancel, operation.waiter) };
                let masked = cx.task().masked.swap(true, Ordering::Relaxed);
                while operation.done.load(Ordering::Acquire) == 0 {
                    cx.block(WaitReason::Io);
                }
                cx.task().masked.store(masked, Ordering::Relaxed);
                return true;
            }
            cx.block(WaitReason::Io);
        }
        false
    }

    /// Ends the reaper. Nothing is in flight any more.
    pub(crate) fn close(&self) {
        let reaper = self.reaper.lock().expect("no panic while it is held").take();
        let Some(reaper) = reaper else { return };
        self.shared.closed.store(true, Ordering::SeqCst);
        {
            let _queues = self.shared.queues.lock().expect("no panic while it is held");
            // Its completion is left for the reaper, which waits for one.
            // SAFETY: it points to nothing; the lock is held.
            unsafe { self.shared.push(&opcode::Nop::new().build().user_data(NOBODY)) };
        }
        let _ = reaper.join();
    }
}

impl Shared {
    /// Hands an entry to the kernel, takes whatever has completed, and wakes who waits for that, but not `own`.
    ///
    /// # Safety
    ///
    /// As for [`Uring::run`], until the completion of the entry has been taken.
    unsafe fn submit(&self, entry: &squeue::Entry, own: usize) {
        let mut woken = Vec::new();
        {
            let _queues = self.queues.lock().expect("no panic while it is held");
            // SAFETY: as the caller promises; the lock is held.
            unsafe { self.push(entry) };
            self.reap(&mut woken);
        }
        for word in woken.into_iter().filter(|word| *word != own) {
            waiter::wake(word);
        }
    }

    /// # Safety
    ///
    /// The lock is held, and what the entry points to stays valid until its completion has been taken.
    unsafe fn push(&self, entry: &squeue::Entry) {
        // SAFETY: nobody else has the submission queue: the lock is held. The entry is as the caller promises.
        while unsafe { self.ring.submission_shared().push(entry) }.is_err() {
            self.enter();
        }
        self.enter();
    }

    /// Tells the kernel of what is in the submission queue, all of it.
    fn enter(&self) {
        loop {
            match self.ring.submit() {
                Ok(_) => return,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    // It has no memory for them now, or too many completions wait: the reaper takes those.
                    Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => std::thread::yield_now(),
                    _ => {
                        // The entry would be in the queue still, and its task must not go on while it is.
                        eprintln!("mainspring: io_uring does not take an operation: {error}");
                        std::process::abort();
                    }
                },
            }
        }
    }

    /// Takes what has completed, under the lock: notes whom to wake.
    fn reap(&self, woken: &mut Vec<usize>) {
        // SAFETY: the caller holds the lock, so nobody else has the completion queue.
        for completion in unsafe { self.ring.completion_shared() } {
            if completion.user_data() == NOBODY {
                continue;
            }
            // SAFETY: the name of an operation whose task waits, in the frame that it is in, for `done`.
            let operation = unsafe { &*(completion.user_data() as *const Operation) };
            let waiter = operation.waiter;
            operation.result.store(completion.result(), Ordering::Relaxed);
            // Release pairs with the acquire in `wait`. The frame may go at once.
            operation.done.store(1, Ordering::Release);
            woken.push(waiter);
        }
    }

    fn reap_until_closed(&self) {
        const GETEVENTS: u32 = 1;
        loop {
            // SAFETY: it hands nothing over, and waits for one completion.
            let entered = unsafe { self.ring.submitter().enter::<libc::sigset_t>(0, 1, GETEVENTS, None) };
            if entered.is_err_and(|error| error.kind() != ErrorKind::Interrupted) {
                std::thread::yield_now();
            }
            let mut woken = Vec::new();
            {
                let _queues = self.queues.lock().expect("no panic while it is held");
                self.reap(&mut woken);
            }
            for word in woken {
                waiter::wake(word);
            }
            if self.closed.load(Ordering::SeqCst) {
                return;
            }
        }
    }
}
