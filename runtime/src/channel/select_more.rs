//! What else a select waits for: notifications, permits, tokens, the latest value, the end of a child, and sockets.

use super::Select;
use super::select::{Arm, call};
use crate::io::{Pollable, Polled, Side};
use crate::line::{Claim, Node};
use crate::nursery::Handle;
use crate::protocol::join::Waiting;
use crate::protocol::wait_end::Outcome;
use crate::queue::{Queue, Rule};
use crate::sync::{CancelToken, Notify, Permit, Semaphore, WatchReceiver};
use crate::task::TaskPtr;
use crate::wait::Who;
use std::cell::{Cell, RefCell};
use std::io;

/// A wish at a queue.
struct QueueArm<'a, Q: Rule, F> {
    queue: &'a Queue<Q>,
    wish: Q::Wish,
    node: Option<Node<Q::Wish>>,
    then: Option<F>,
}

impl<Q: Rule, R, F: FnOnce(()) -> R> Arm<R> for QueueArm<'_, Q, F> {
    fn try_now(&mut self, _: &Who<'_>) -> Option<R> {
        self.queue.try_take(self.wish).then(|| call(&mut self.then, ()))
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self.queue).addr()
    }

    fn prepare(&mut self, who: &Who<'_>, claim: &Claim, index: usize) {
        self.node = Some(Node::of_select(who.word(), Some(self.wish), claim, index));
    }

    fn enlist(&self, _: &Who<'_>, claim: &Claim) -> bool {
        self.node.as_ref().is_none_or(|node| self.queue.enlist(node, self.wish, claim))
    }

    fn delist(&self, _: &Who<'_>) {
        if let Some(node) = &self.node {
            self.queue.delist(node, self.wish);
        }
    }

    fn put_back(&mut self, who: &Who<'_>, was_taken: bool) {
        if let Some(node) = self.node.take()
            && !was_taken
        {
            who.take_back(node.word);
        }
    }

    fn finish(&mut self, _: Outcome) -> R {
        call(&mut self.then, ())
    }
}

/// A socket. No thread takes it: the driver wakes the waiter, which looks.
struct PollArm<'a, F> {
    source: Polled<'a>,
    side: Side,
    ticket: Cell<Option<u64>>,
    /// Why it could not be waited for.
    error: RefCell<Option<io::Error>>,
    then: Option<F>,
}

impl<'a, F> PollArm<'a, F> {
    fn new(source: Polled<'a>, side: Side, then: F) -> Self {
        Self { source, side, ticket: Cell::new(None), error: RefCell::default(), then: Some(then) }
    }
}

impl<R, F: FnOnce(io::Result<()>) -> R> Arm<R> for PollArm<'_, F> {
    fn try_now(&mut self, who: &Who<'_>) -> Option<R> {
        let refused = self.error.take().map(Err);
        let ready = refused.unwrap_or_else(|| {
            if let Who::Task(cx) = who {
                self.source.is_of(cx.rt())?;
            }
            self.source.is_ready(self.side)
        });
        match ready {
            Ok(false) => None,
            Ok(true) => Some(call(&mut self.then, Ok(()))),
            Err(error) => Some(call(&mut self.then, Err(error))),
        }
    }

    /// It is in nobody's line that another select could be in.
    fn address(&self) -> usize {
        0
    }

    fn prepare(&mut self, _: &Who<'_>, _: &Claim, _: usize) {}

    fn enlist(&self, who: &Who<'_>, _: &Claim) -> bool {
        let word = who.word();
        match self.source.register(self.side, word) {
            Ok(ticket) => {
                self.ticket.set(ticket);
                ticket.is_some()
            }
            Err(error) => {
                *self.error.borrow_mut() = Some(error);
                false
            }
        }
    }

    fn delist(&self, _: &Who<'_>) {
        if let Some(ticket) = self.ticket.take() {
            self.source.unregister(self.side, ticket);
        }
    }

    fn put_back(&mut self, _: &Who<'_>, _: bool) {}

    fn finish(&mut self, _: Outcome) -> R {
        unreachable!("no thread takes it")
    }

    /// The driver has used the registration: it is time for another look.
    fn is_ready(&self) -> bool {
        self.ticket.get().is_some_and(|ticket| !self.source.is_registered(self.side, ticket))
    }
}

/// The end of a child. No thread takes it: the end wakes the waiter, which looks.
struct EndArm<F> {
    task: TaskPtr,
    /// The word that the child's end wakes, while it is announced.
    word: Cell<usize>,
    then: Option<F>,
}

impl<R, F: FnOnce(()) -> R> Arm<R> for EndArm<F> {
    fn try_now(&mut self, _: &Who<'_>) -> Option<R> {
        self.task.join.is_done().then(|| call(&mut self.then, ()))
    }

    fn address(&self) -> usize {
        self.task.word()
    }

    fn prepare(&mut self, _: &Who<'_>, _: &Claim, _: usize) {}

    fn enlist(&self, who: &Who<'_>, _: &Claim) -> bool {
        let word = who.word();
        if self.task.join.wait(word) == Waiting::Wait {
            self.word.set(word);
            return true;
        }
        who.take_back(word);
        // Unless the child has ended, another arm of this select waits for the same one, and is woken for both.
        !self.task.join.is_done()
    }

    fn delist(&self, who: &Who<'_>) {
        let word = self.word.take();
        if word != 0 && self.task.join.stop_waiting(word) == Waiting::Wait {
            who.take_back(word);
        }
    }

    fn put_back(&mut self, _: &Who<'_>, _: bool) {}

    fn finish(&mut self, _: Outcome) -> R {
        unreachable!("no thread takes it")
    }

    fn is_ready(&self) -> bool {
        self.task.join.is_done()
    }
}

impl<'a, R> Select<'a, R> {
    fn wish<Q: Rule>(mut self, queue: &'a Queue<Q>, wish: Q::Wish, then: impl FnOnce(()) -> R + 'a) -> Self {
        self.push(QueueArm { queue, wish, node: None, then: Some(then) });
        self
    }

    /// A socket to be read from without waiting, or a listener to accept from. An error is that it cannot be waited for, or is of
    /// another runtime. Another task may be faster with what has come: then the attempt waits, unless it has a timeout.
    ///
    /// ```
    /// # use mainspring::io::TcpListener;
    /// # use mainspring::{Config, Profile, Select, sync::CancelToken};
    /// # let runtime = Config::new(Profile::Service).build().unwrap();
    /// # runtime.run(|cx| {
    /// # let stop = CancelToken::new();
    /// # stop.cancel();
    /// let listener = TcpListener::bind(cx, "127.0.0.1:0").unwrap();
    /// let goes_on = Select::new().readable(&listener, |ready| ready.is_ok()).cancelled(&stop, || false).run(cx);
    /// assert_eq!(goes_on, Ok(false));
    /// # }).unwrap();
    /// ```
    pub fn readable(
        mut self,
        source: &'a impl Pollable,
        then: impl FnOnce(io::Result<()>) -> R + 'a,
    ) -> Self {
        self.push(PollArm::new(source.polled(), Side::Read, then));
        self
    }

    /// A socket to be written to without waiting, as [`Select::readable`].
    pub fn writable(
        mut self,
        source: &'a impl Pollable,
        then: impl FnOnce(io::Result<()>) -> R + 'a,
    ) -> Self {
        self.push(PollArm::new(source.polled(), Side::Write, then));
        self
    }

    /// A notification to wait for.
    pub fn notified(self, notify: &'a Notify, then: impl FnOnce() -> R + 'a) -> Self {
        self.wish(notify.queue(), (), |()| then())
    }

    /// Permits to wait for. More than the semaphore has in all never come.
    pub fn acquire(
        self,
        semaphore: &'a Semaphore,
        wanted: usize,
        then: impl FnOnce(Permit<'a>) -> R + 'a,
    ) -> Self {
        self.wish(semaphore.queue(), wanted, move |()| then(Permit::new(semaphore, wanted)))
    }

    /// A token to be cancelled.
    pub fn cancelled(self, token: &'a CancelToken, then: impl FnOnce() -> R + 'a) -> Self {
        self.wish(token.queue(), (), |()| then())
    }

    /// A value to be replaced, or its sender to go: [`WatchReceiver::changed`] says which, without waiting.
    pub fn changed<T: Send + Sync>(
        self,
        receiver: &'a WatchReceiver<T>,
        then: impl FnOnce() -> R + 'a,
    ) -> Self {
        let (queue, seen) = receiver.wish();
        self.wish(queue, seen, |()| then())
    }

    /// A child to end: [`Handle::join`] takes its result then, without waiting.
    ///
    /// ```
    /// # use mainspring::{Config, Profile, Select};
    /// # use std::time::Duration;
    /// # let runtime = Config::new(Profile::Service).build().unwrap();
    /// runtime.run(|cx| {
    ///     cx.nursery(|n| {
    ///         let slow = n.spawn(|cx| cx.sleep(Duration::from_millis(5))).unwrap();
    ///         let fast = n.spawn(|_| ()).unwrap();
    ///         let first = Select::new().ended(&slow, || "slow").ended(&fast, || "fast").run(cx);
    ///         assert_eq!(first, Ok("fast"));
    ///     })
    /// }).unwrap().unwrap();
    /// ```
    pub fn ended<T>(mut self, child: &'a Handle<'_, T>, then: impl FnOnce() -> R + 'a) -> Self {
        self.push(EndArm { task: child.task_ptr(), word: Cell::new(0), then: Some(|()| then()) });
        self
    }
}
