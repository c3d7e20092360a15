//! Tokio on the thread of a runtime's first worker: a message goes from the NATS client to an actor there, and its reply back, without
//! another thread that would have to wake up.
//!
//! Conserved: one thread at a time is in Tokio's loop, the worker's. It leaves for good before the loop is taken down.

use crate::error::Error;
use mainspring::Runtime;
use mainspring::event_loop::EventLoop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, RwLock};
use std::thread::ThreadId;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// The loop that the worker waits in.
#[derive(Debug)]
struct Loop {
    /// Read by the worker while it is inside. `None` when it has been taken down.
    tokio: RwLock<Option<tokio::runtime::Runtime>>,
    /// The worker does not go in any more.
    is_closing: AtomicBool,
    worker: OnceLock<ThreadId>,
    bell: Notify,
    /// The bell of a worker that has no loop any more.
    rung: Mutex<bool>,
    rings: Condvar,
}

impl EventLoop for Loop {
    fn wait(&self, timeout: Option<Duration>) {
        self.worker.get_or_init(|| std::thread::current().id());
        // A closing that is not seen here rings the bell, which ends the wait.
        if !self.is_closing.load(Ordering::SeqCst)
            && let Some(tokio) = &*self.tokio.read().unwrap_or_else(PoisonError::into_inner)
        {
            return tokio.block_on(async {
                match timeout {
                    None => self.bell.notified().await,
                    Some(Duration::ZERO) => tokio::task::yield_now().await,
                    Some(timeout) => drop(tokio::time::timeout(timeout, self.bell.notified()).await),
                }
            });
        }
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        if !*rung {
            let longest = timeout.unwrap_or(Duration::from_secs(1));
            rung = self.rings.wait_timeout(rung, longest).unwrap_or_else(PoisonError::into_inner).0;
        }
        *rung = false;
    }

    fn wake(&self) {
        self.bell.notify_one();
        // A closing that is not seen here wakes the worker itself, afterwards.
        if self.is_closing.load(Ordering::SeqCst) {
            *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.rings.notify_one();
        }
    }
}

impl Loop {
    /// Ends what runs in it. What was spawned there goes away where it waits.
    fn take_down(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
        self.wake();
        let tokio = self.tokio.write().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(tokio) = tokio {
            tokio.shutdown_background();
        }
    }
}

/// A runtime whose first worker also runs Tokio. A node that joins there ([`crate::Node::join`], called within [`OneThread::tokio`], with a
/// connection that was made there) is served by one thread: a call of another node costs it no way between threads. Its lease is renewed
/// there, too, so handlers have to check their budget as any task does.
///
/// What runs in Tokio ends when this is dropped.
#[derive(Debug)]
pub struct OneThread {
    runtime: Arc<Runtime>,
    tokio: Handle,
    event_loop: Arc<Loop>,
}

impl OneThread {
    /// Starts both. `config` may have more workers; the first of them runs Tokio.
    pub fn start(config: mainspring::Config) -> Result<Self, Error> {
        let started = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let tokio = started.map_err(|cause| Error::NotStarted { what: "Tokio", cause: cause.into() })?;
        let handle = tokio.handle().clone();
        let event_loop = Arc::new(Loop {
            tokio: RwLock::new(Some(tokio)),
            is_closing: AtomicBool::new(false),
            worker: OnceLock::new(),
            bell: Notify::new(),
            rung: Mutex::new(false),
            rings: Condvar::new(),
        });
        let built = config.event_loop(event_loop.clone()).build();
        let runtime =
            built.map_err(|cause| Error::NotStarted { what: "the runtime", cause: cause.into() })?;
        Ok(Self { runtime: Arc::new(runtime), tokio: handle, event_loop })
    }

    /// The runtime.
    pub fn runtime(&self) -> &Arc<Runtime> {
        &self.runtime
    }

    /// Where to spawn what is to run on the worker's thread.
    pub fn tokio(&self) -> &Handle {
        &self.tokio
    }
}

impl Drop for OneThread {
    fn drop(&mut self) {
        let event_loop = self.event_loop.clone();
        if event_loop.worker.get() == Some(&std::thread::current().id()) {
            // Of the loop itself, or of a task: it has to go on before the loop can be left.
            std::thread::spawn(move || event_loop.take_down());
        } else {
            event_loop.take_down();
        }
    }
}
