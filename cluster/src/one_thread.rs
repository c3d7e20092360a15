//! Tokio on the thread of a runtime's first worker: a message goes from the NATS client to an actor there, and its reply back, without
//! another thread that would have to wake up.
//!
//! Conserved: one thread at a time is in Tokio's loop. It is the worker, or, where the loop was attached to an ordinary runtime and the
//! worker has not waited for some time, its deputy. All leave for good before the loop is taken down.

use crate::error::Error;
use mainspring::Runtime;
use mainspring::event_loop::{AttachError, EventLoop};
use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::thread::ThreadId;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// How long a worker may be busy before its deputy runs the loop, twice that at most.
const BUSY: Duration = Duration::from_millis(10);

/// A deputy that runs the loop looks so often whether it is still there.
const LOOK: Duration = Duration::from_millis(100);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A bell that is heard once for any number of rings before that.
#[derive(Debug, Default)]
struct Bell {
    rung: Mutex<bool>,
    rings: Condvar,
}

impl Bell {
    fn ring(&self) {
        *locked(&self.rung) = true;
        self.rings.notify_one();
    }

    /// Waits for a ring. Without a time it waits as long as it takes.
    fn wait(&self, timeout: Option<Duration>) {
        let rung = locked(&self.rung);
        let mut rung = match timeout {
            None => self.rings.wait_while(rung, |rung| !*rung).unwrap_or_else(PoisonError::into_inner),
            Some(timeout) => {
                let waited = self.rings.wait_timeout_while(rung, timeout, |rung| !*rung);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        *rung = false;
    }
}

/// A thread that runs the loop while the worker runs tasks that leave it no time, or do not check.
#[derive(Debug, Default)]
struct Deputy {
    /// How often the worker has begun to wait.
    waits: AtomicU64,
    /// The worker waits.
    is_idle: AtomicBool,
    /// The deputy runs the loop, or is about to.
    runs: AtomicBool,
    /// The deputy sleeps until the worker has something to do.
    sleeps: AtomicBool,
    /// Of the deputy, where it does not run the loop.
    bell: Arc<Bell>,
    /// Has the deputy leave the loop.
    leave: Notify,
}

/// While this lives, the worker counts as waiting.
struct Waiting<'a>(&'a Deputy);

impl<'a> Waiting<'a> {
    fn begin(deputy: &'a Deputy) -> Self {
        deputy.waits.fetch_add(1, Ordering::SeqCst);
        // SeqCst, here and in the deputy: the worker sees that the deputy runs the loop, or the deputy sees that the worker waits.
        deputy.is_idle.store(true, Ordering::SeqCst);
        if deputy.runs.load(Ordering::SeqCst) {
            deputy.leave.notify_one();
        }
        Self(deputy)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.is_idle.store(false, Ordering::SeqCst);
        if self.0.sleeps.load(Ordering::SeqCst) && self.0.sleeps.swap(false, Ordering::SeqCst) {
            self.0.bell.ring();
        }
    }
}

/// The loop that the worker waits in.
#[derive(Debug)]
struct Loop {
    /// Read by those inside. `None` when it has been taken down.
    tokio: RwLock<Option<tokio::runtime::Runtime>>,
    handle: Handle,
    /// Nobody goes in any more.
    is_closing: AtomicBool,
    worker: OnceLock<ThreadId>,
    bell: Notify,
    /// The bell of a worker that has no loop any more.
    outer_bell: Bell,
    deputy: Option<Deputy>,
}

impl EventLoop for Loop {
    fn wait(&self, timeout: Option<Duration>) {
        self.worker.get_or_init(|| std::thread::current().id());
        if timeout == Some(Duration::ZERO) {
            // The deputy does what is to be done.
            if !self.deputy.as_ref().is_some_and(|deputy| deputy.runs.load(Ordering::SeqCst)) {
                let _ = self.run(tokio::task::yield_now());
            }
            return;
        }
        let _waiting = self.deputy.as_ref().map(Waiting::begin);
        let rung = self.bell.notified();
        let has_run = match timeout {
            None => self.run(rung),
            // Made inside, where there is a clock.
            Some(timeout) => self.run(async move { drop(tokio::time::timeout(timeout, rung).await) }),
        };
        if !has_run {
            self.outer_bell.wait(Some(timeout.unwrap_or(Duration::from_secs(1))));
        }
    }

    fn wake(&self) {
        self.bell.notify_one();
        // A closing that is not seen here wakes the worker itself, afterwards.
        if self.is_closing.load(Ordering::SeqCst) {
            self.outer_bell.ring();
        }
    }
}

impl Loop {
    fn new(has_deputy: bool) -> Result<Self, Error> {
        let started = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let tokio = started.map_err(|cause| Error::NotStarted { what: "Tokio", cause: cause.into() })?;
        Ok(Self {
            handle: tokio.handle().clone(),
            tokio: RwLock::new(Some(tokio)),
            is_closing: AtomicBool::new(false),
            worker: OnceLock::new(),
            bell: Notify::new(),
            outer_bell: Bell::default(),
            deputy: has_deputy.then(Deputy::default),
        })
    }

    /// Runs the loop until this is over. False if the loop has been taken down.
    fn run(&self, until: impl Future<Output = ()>) -> bool {
        // A closing that is not seen here rings the bells, which end the wait.
        if self.is_closing.load(Ordering::SeqCst) {
            return false;
        }
        let tokio = self.tokio.read().unwrap_or_else(PoisonError::into_inner);
        tokio.as_ref().map(|tokio| tokio.block_on(until)).is_some()
    }

    /// Ends what runs in it. What was spawned there goes away where it waits.
    fn take_down(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
        self.wake();
        let tokio = self.tokio.write().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(tokio) = tokio {
            tokio.shutdown_background();
        }
    }

    /// One look of the deputy, after it has rested. How often the worker had begun to wait by then.
    fn look(&self, deputy: &Deputy, seen: u64) -> u64 {
        let waits = deputy.waits.load(Ordering::SeqCst);
        let is_idle = || deputy.is_idle.load(Ordering::SeqCst);
        if waits != seen {
            return waits;
        }
        if is_idle() {
            // It has waited all that time: nothing is to be looked at until it goes on.
            deputy.sleeps.store(true, Ordering::SeqCst);
            if !is_idle() || deputy.waits.load(Ordering::SeqCst) != waits {
                deputy.sleeps.store(false, Ordering::SeqCst);
            }
            return waits;
        }
        deputy.runs.store(true, Ordering::SeqCst);
        if !is_idle() {
            let _ = self.run(async { drop(tokio::time::timeout(LOOK, deputy.leave.notified()).await) });
        }
        deputy.runs.store(false, Ordering::SeqCst);
        waits
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // Not by its own drop, which may not be where something else of Tokio runs.
        let tokio = self.tokio.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(tokio) = tokio {
            tokio.shutdown_background();
        }
        if let Some(deputy) = &self.deputy {
            deputy.bell.ring();
        }
    }
}

/// Looks after a loop until it is gone.
fn stand_in(of: &Weak<Loop>, bell: &Bell) {
    let mut seen = 0;
    let (mut sleeps, mut runs) = (false, false);
    loop {
        if sleeps {
            bell.wait(None);
        }
        if !runs {
            bell.wait(Some(BUSY));
        }
        let Some(event_loop) = of.upgrade() else { return };
        let Some(deputy) = &event_loop.deputy else { return };
        let before = seen;
        seen = event_loop.look(deputy, before);
        sleeps = deputy.sleeps.load(Ordering::SeqCst);
        // The worker is busy still: it goes on at once.
        runs = !sleeps && before == seen && !deputy.is_idle.load(Ordering::SeqCst);
    }
}

/// Where to spawn what is to run on the thread of the runtime's first worker. An ordinary runtime begins to drive Tokio by this. `None` if
/// it drives something else, or is deterministic.
pub(crate) fn tokio_of(runtime: &Runtime) -> Result<Option<Handle>, Error> {
    if runtime.event_loop().is_none() {
        let event_loop = Arc::new(Loop::new(true)?);
        match runtime.attach_event_loop(event_loop.clone()) {
            Ok(()) => {
                let bell = event_loop.deputy.as_ref().map(|deputy| deputy.bell.clone()).unwrap_or_default();
                let of = Arc::downgrade(&event_loop);
                let builder = std::thread::Builder::new().name("mainspring-deputy".to_owned());
                let started = builder.spawn(move || stand_in(&of, &bell));
                started.map_err(|cause| Error::NotStarted { what: "a thread", cause: cause.into() })?;
            }
            Err(AttachError::Taken | AttachError::Deterministic) => {}
            Err(cause) => return Err(Error::NotStarted { what: "a thread", cause: cause.into() }),
        }
    }
    let driven = runtime.event_loop().and_then(|driven| (&**driven as &dyn Any).downcast_ref::<Loop>());
    let open = driven.filter(|driven| !driven.is_closing.load(Ordering::SeqCst));
    Ok(open.map(|driven| driven.handle.clone()))
}

/// A runtime whose first worker also runs Tokio. A node that joins there ([`crate::Node::join`], called within [`OneThread::tokio`], with a
/// connection that was made there) is served by one thread: a call of another node costs it no way between threads. Its lease is renewed
/// there, too, so handlers have to check their budget as any task does.
///
/// What runs in Tokio ends when this is dropped.
#[derive(Debug)]
pub struct OneThread {
    runtime: Arc<Runtime>,
    event_loop: Arc<Loop>,
}

impl OneThread {
    /// Starts both. `config` may have more workers; the first of them runs Tokio.
    pub fn start(config: mainspring::Config) -> Result<Self, Error> {
        let event_loop = Arc::new(Loop::new(false)?);
        let built = config.event_loop(event_loop.clone()).build();
        let runtime =
            built.map_err(|cause| Error::NotStarted { what: "the runtime", cause: cause.into() })?;
        Ok(Self { runtime: Arc::new(runtime), event_loop })
    }

    /// The runtime.
    pub fn runtime(&self) -> &Arc<Runtime> {
        &self.runtime
    }

    /// Where to spawn what is to run on the worker's thread.
    pub fn tokio(&self) -> &Handle {
        &self.event_loop.handle
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
