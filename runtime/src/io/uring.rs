//! io_uring: operations that the kernel completes, one ring per runtime.
//!
//! Conserved: what the kernel may read or write for an operation outlives it. The operation's record and its buffers are in
//! the frames of the task that waits for it, and [`Uring::run`] does not return before its completion has come: a task that
//! is cancelled, or out of time, asks the kernel to give the operation up, and then waits for it all the same. If the kernel
//! has done it meanwhile, its result is returned: what was read or accepted is not lost. A completion is taken once, by the
//! thread that holds the lock. Only tasks of the ring's own runtime use it, so that nothing is in flight when that goes.
#![allow(unsafe_code)]

use crate::cx::Cx;
use crate::task::WaitReason;
use crate::time::Alarm;
use crate::waiter::{self, task_word};
use io_uring::{IoUring, Probe, opcode, squeue};
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;

/// Submissions that fit into the ring at a time. Operations in flight may be many more.
const ENTRIES: u32 = 256;

/// The `user_data` of an operation that no task waits for. No record is at this address.
const NOBODY: u64 = 0;

/// Whether the kernel allows a ring with all operations that are used here.
pub(crate) fn probe() -> io::Result<()> {
    static FOUND: OnceLock<Result<(), (ErrorKind, String)>> = OnceLock::new();
    let found = FOUND.get_or_init(|| try_ring().map_err(|error| (error.kind(), error.to_string())));
    found.clone().map_err(|(kind, why)| io::Error::new(kind, why))
}

fn try_ring() -> io::Result<()> {
    let ring = IoUring::new(ENTRIES)?;
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
    /// Held by a thread while it touches either queue.
    queues: Mutex<()>,
    closed: AtomicBool,
    /// The kernel is said to take nothing.
    #[cfg(test)]
    is_refused: AtomicBool,
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

/// Why a task asks the kernel to give an operation up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GivesUp {
    /// It was cancelled.
    Stop,
    /// Its time is over.
    Late,
}

impl Uring {
    pub(crate) fn new() -> io::Result<Self> {
        let shared = Arc::new(Shared {
            ring: IoUring::new(ENTRIES)?,
            queues: Mutex::default(),
            closed: AtomicBool::new(false),
            #[cfg(test)]
            is_refused: AtomicBool::new(false),
        });
        let theirs = shared.clone();
        let reaper = std::thread::Builder::new()
            .name("mainspring-io".to_owned())
            .spawn(move || theirs.reap_until_closed())?;
        Ok(Self { shared, reaper: Mutex::new(Some(reaper)) })
    }

    /// Has the kernel carry `entry` out, and waits for it. Returns only when the kernel is through with it. A task that was
    /// cancelled ends here, unless the kernel has done it.
    ///
    /// # Safety
    ///
    /// What `entry` points to stays valid, and no other code touches what it writes to, until this returns.
    pub(crate) unsafe fn run(&self, cx: &Cx, alarm: &Alarm<'_>, entry: &squeue::Entry) -> io::Result<u32> {
        if std::thread::panicking() {
            // A destructor must not switch, and an operation that is begun has to be waited for.
            return Err(ErrorKind::WouldBlock.into());
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
            let gave_up = self.wait(cx, alarm, &operation, name);
            let result = operation.result.load(Ordering::Relaxed);
            if result >= 0 {
                return Ok(result as u32);
            }
            match (-result, gave_up) {
                // This task did not ask for that: the thread that had submitted it has ended, and its operations
                // with it.
                (libc::ECANCELED | libc::EINTR, None) => {}
                (libc::ECANCELED | libc::EINTR, Some(GivesUp::Late)) => {
                    return Err(ErrorKind::TimedOut.into());
                }
                (libc::ECANCELED | libc::EINTR, Some(GivesUp::Stop)) => {
                    cx.acknowledge();
                    return Err(ErrorKind::Interrupted.into());
                }
                (error, _) => return Err(io::Error::from_raw_os_error(error)),
            }
        }
    }

    /// Waits for the completion; whether the task has asked the kernel to give the operation up.
    fn wait(&self, cx: &Cx, alarm: &Alarm<'_>, operation: &Operation, name: u64) -> Option<GivesUp> {
        // Acquire pairs with the release in `reap`: the result, and what the kernel wrote, is seen.
        while operation.done.load(Ordering::Acquire) == 0 {
            let gives_up = if cx.must_stop() {
                GivesUp::Stop
            } else if alarm.is_over() {
                GivesUp::Late
            } else {
                cx.block(WaitReason::Io);
                continue;
            };
            let cancel = opcode::AsyncCancel::new(name).build().user_data(NOBODY);
            // SAFETY: it points to nothing, it only names.
            unsafe { self.shared.submit(&cancel, operation.waiter) };
            let masked = cx.task().mask.begin_wait();
            while operation.done.load(Ordering::Acquire) == 0 {
                cx.block(WaitReason::Io);
            }
            cx.task().mask.set(masked);
            return Some(gives_up);
        }
        None
    }

    /// Ends the reaper. Nothing is in flight any more.
    pub(crate) fn close(&self) {
        let reaper = self.reaper.lock().expect("no panic while it is held").take();
        let Some(reaper) = reaper else { return };
        self.shared.closed.store(true, Ordering::SeqCst);
        let nop = opcode::Nop::new().build().user_data(NOBODY);
        let mut is_queued = false;
        loop {
            // The completion is left for the reaper, which waits for one.
            let queues = self.shared.queues.lock().expect("no panic while it is held");
            // SAFETY: it points to nothing; the lock is held.
            if unsafe { self.shared.hand_in(&nop, &mut is_queued) } {
                break;
            }
            drop(queues);
            std::thread::yield_now();
        }
        let _ = reaper.join();
    }
}

impl Shared {
    /// Hands an entry to the kernel, takes whatever has completed, and wakes the tasks that wait for that, but not `own`.
    ///
    /// The kernel may have no room now, because the completions were not taken. So the lock is let go of between two
    /// attempts, for the reaper and for others, and what has completed is taken in each.
    ///
    /// # Safety
    ///
    /// As for [`Uring::run`], until the completion of the entry has been taken.
    unsafe fn submit(&self, entry: &squeue::Entry, own: usize) {
        let mut is_queued = false;
        loop {
            let mut woken = Vec::new();
            let is_taken = {
                let _queues = self.queues.lock().expect("no panic while it is held");
                // SAFETY: as the caller promises; the lock is held.
                let is_taken = unsafe { self.hand_in(entry, &mut is_queued) };
                self.reap(&mut woken);
                is_taken
            };
            for word in woken.into_iter().filter(|word| *word != own) {
                waiter::wake(word);
            }
            if is_taken {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Puts an entry into the submission queue, unless it `is_queued`, and tells the kernel. False if that is to be tried
    /// again.
    ///
    /// # Safety
    ///
    /// The lock is held, and what the entry points to stays valid until its completion has been taken.
    unsafe fn hand_in(&self, entry: &squeue::Entry, is_queued: &mut bool) -> bool {
        if !*is_queued {
            // SAFETY: no other thread has the submission queue: the lock is held. The entry is as the caller
            // promises.
            *is_queued = unsafe { self.ring.submission_shared().push(entry) }.is_ok();
        }
        let is_queued = *is_queued;
        self.enter() && is_queued
    }

    /// Tells the kernel of what is in the submission queue. False if it cannot take all of it now.
    fn enter(&self) -> bool {
        #[cfg(test)]
        if self.is_refused.load(Ordering::SeqCst) {
            return false;
        }
        let Err(error) = self.ring.submit() else { return true };
        match error.raw_os_error() {
            // It has no memory for them now, or too many completions wait.
            Some(libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => false,
            _ => {
                // The entry would be in the queue still, and its task must not go on while it is.
                eprintln!("mainspring: io_uring does not take an operation: {error}");
                std::process::abort();
            }
        }
    }

    /// Takes what has completed, under the lock: notes which waiters to wake.
    fn reap(&self, woken: &mut Vec<usize>) {
        // SAFETY: the caller holds the lock, so no other thread has the completion queue.
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{NOBODY, Uring};
    use io_uring::opcode;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_submitter_that_the_kernel_refuses_lets_others_take_completions() {
        let Ok(uring) = Uring::new() else { return };
        let shared = &uring.shared;
        shared.is_refused.store(true, Ordering::SeqCst);
        std::thread::scope(|threads| {
            let submitter = threads.spawn(|| {
                let nop = opcode::Nop::new().build().user_data(NOBODY);
                // SAFETY: it points to nothing.
                unsafe { shared.submit(&nop, 0) };
            });
            // As the reaper does: it gets the lock again and again while the other one is refused.
            for _ in 0..100 {
                drop(shared.queues.lock().unwrap());
                std::thread::yield_now();
            }
            assert!(!submitter.is_finished());
            shared.is_refused.store(false, Ordering::SeqCst);
            submitter.join().unwrap();
        });
        uring.close();
    }
}
