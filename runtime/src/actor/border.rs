//! Grants that cross the border of the runtime: with messages to other machines, and from them.
//!
//! Conserved: what goes abroad leaves its task at once, and at most as much comes back: to the task while it waits, and to the root
//! pool when the task has gone. What comes from abroad is the whole pool of the task that handles its message, and what is left of it
//! leaves the runtime again with the reply. Only the host, which has the [`Runtime`], lets anything in.

use super::{Address, AskError, Envelope, LEAST, Letter, ReplyTo, Unsent, most, put_to_root};
use crate::budget::{Pool, Unpayable};
use crate::calls;
use crate::channel::SendError;
use crate::cx::Cx;
use crate::foreign;
use crate::nursery::{Source, give_back, take_for_message};
use crate::runtime::{Inner, Runtime};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

type Told<R> = Box<dyn FnOnce(Result<R, AskError>, Pool) + Send>;

/// Who outside of the runtime waits for a reply.
pub(super) struct Outside<R> {
    told: Told<R>,
    cancelled: Arc<AtomicBool>,
}

impl<R> Outside<R> {
    /// Calls code of the host, which has the rest of the grant from here on: its panic stays there.
    pub(super) fn tell(self, reply: Result<R, AskError>, left: Pool) {
        let _ = foreign::tell_subscriber(|| (self.told)(reply, left));
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

/// A grant that is abroad.
#[derive(Clone)]
pub struct Abroad(Arc<Shared>);

struct Shared {
    rt: Arc<Inner>,
    state: Mutex<State>,
}

struct State {
    /// What has not come back.
    out: Pool,
    /// What has, for the task that waits.
    back: Pool,
    waits: bool,
}

impl std::fmt::Debug for Abroad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Abroad").field(&self.state(|state| state.out)).finish()
    }
}

impl Abroad {
    /// What has not come back.
    pub fn out(&self) -> Pool {
        calls::count_poll();
        self.state(|state| state.out)
    }

    /// This much is back: it goes to the task that sent it, or to the root pool if that does not wait any more. Refused, and nothing
    /// changed, if it is more than is out.
    pub fn bring_back(&self, rest: &Pool) -> Result<(), Unpayable> {
        calls::count_action();
        let to_root = self.state(|state| {
            state.out.take(rest)?;
            if state.waits {
                state.back.put(rest);
            }
            Ok(!state.waits)
        })?;
        if to_root {
            put_to_root(&self.0.rt, rest);
        }
        Ok(())
    }

    fn state<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.0.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The task waits. On every way out it takes what has come back.
struct Waits<'a> {
    cx: &'a Cx,
    source: Source,
    abroad: Abroad,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let back = self.abroad.state(|state| {
            state.waits = false;
            std::mem::take(&mut state.back)
        });
        give_back(self.cx, &back, self.source);
    }
}

impl Cx {
    /// Takes a grant out of the runtime, as the grant of a message is taken, and waits in `f` for what comes back. What `f` brings back is
    /// the task's again when it returns. What is brought back later goes to the root pool, and what never is has left the runtime.
    pub fn send_abroad<T>(&self, grant: Pool, f: impl FnOnce(&Abroad) -> T) -> Result<T, Unpayable> {
        calls::count(self);
        self.probe_stack();
        let source = take_for_message(self, &grant)?;
        let state = Mutex::new(State { out: grant, back: Pool::ZERO, waits: true });
        let waits =
            Waits { cx: self, source, abroad: Abroad(Arc::new(Shared { rt: self.rt().memory(), state })) };
        Ok(f(&waits.abroad))
    }
}

impl Runtime {
    /// Takes this much out of the root pool: it has left the runtime. Refused if the root does not have it.
    pub fn withdraw(&self, amount: &Pool) -> Result<(), Unpayable> {
        calls::count_action();
        self.inner().pool.lock().expect("no panic while it is held").take(amount)
    }

    /// Puts this much into the root pool.
    ///
    /// # Panics
    ///
    /// If the root pool cannot hold it: then nothing has changed.
    pub fn deposit(&self, amount: &Pool) {
        calls::count_action();
        put_to_root(self.inner(), amount);
    }

    /// Sends a message that comes from outside of the runtime, with a grant that the runtime did not have before, if there is room in
    /// the mailbox. `reply` is told what came of it, and has then what is left of the grant; it is called by a worker and must not
    /// block. A message that is refused has not been granted anything. One that is `cancelled` before its turn is not handled, and
    /// has all of its grant left.
    pub fn send_from_outside<M: Send, R: Send>(
        &self,
        address: &Address<M, R>,
        message: M,
        grant: Pool,
        cancelled: Arc<AtomicBool>,
        reply: impl FnOnce(Result<R, AskError>, Pool) + Send + 'static,
    ) -> Result<(), Unsent<M>> {
        calls::count_action();
        let mut enough = grant;
        if let Err(unpayable) = enough.take(&most(&address.least, &LEAST)) {
            return Err(Unsent { why: AskError::TooLittle(unpayable), message });
        }
        let to = ReplyTo::Outside(Outside { told: Box::new(reply), cancelled });
        let letter = Box::new(Letter { message: Some(message), grant, to, ..Letter::default() });
        let envelope = Envelope { letter: Some(letter), shared: address.shared.clone() };
        address.sender.send_blocking_timeout(envelope, Duration::ZERO).map_err(|SendError { why, value }| {
            let message = value.unsent().message.take().expect("a message that was not handled");
            Unsent { why: AskError::Refused(why), message }
        })
    }
}
