//! Actors of the cluster profile: a state with a mailbox, and addresses that others send to.
//!
//! Conserved: a message's grant leaves its sender when it is sent. While it is handled, the grant is the whole pool of the task that
//! handles it: the actor's own budget pays for nothing but taking it out. What is left goes back to the sender with the reply,
//! to the actor's nursery if the message asks for none, and to the root pool if the sender does not wait any more. So the
//! sender of a message pays for it, exactly, and a message that uses up its grant ends alone.

pub mod border;
mod replies;
mod serve;

pub use serve::ServeError;

use crate::audit;
use crate::budget::{Component, Pool, Unpayable};
use crate::calls;
use crate::channel::{Capacity, ChannelError, Receiver, Refusal, SendError, Sender};
use crate::cx::Cx;
use crate::error::SpawnError;
use crate::nursery::{Source, give_back, take_for_message};
use crate::profile::Profile;
use crate::runtime::Inner;
use replies::{Replies, SlotId};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What every message needs: a task handles it.
const LEAST: Pool = Pool { ops: 1, spawn_count: 1, ..Pool::ZERO };

/// A mailbox could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MailboxError {
    /// Actors belong to [`Profile::Cluster`].
    NotCluster,
    /// As for a channel.
    Channel(ChannelError),
}

impl fmt::Display for MailboxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotCluster => {
                f.write_str("actors belong to the cluster profile: Config::new(Profile::Cluster)")
            }
            Self::Channel(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for MailboxError {}

/// A message has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AskError {
    /// The grant is less than the mailbox takes (its least), or than the one op and one spawn that each message needs.
    /// Nothing was sent.
    TooLittle(Unpayable),
    /// The sender does not have the grant. Nothing was sent.
    Unpayable(Unpayable),
    /// The mailbox did not take it: it is closed, full for too long, or the sender's budget does not allow a send. What was
    /// granted is back.
    Refused(Refusal),
    /// It used up its grant of this component. What was left of the rest is back.
    Exhausted(Component),
    /// The actor failed with it, or ended before it. What was left is back.
    Failed,
    /// The actor may not spawn the task that handles it. What was granted is back.
    NotSpawned(SpawnError),
    /// Time was over. What is left of the grant when the message is done goes to the root pool.
    TimedOut,
    /// A destructor of a task that unwinds must not wait. As for `TimedOut`.
    Unwinding,
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLittle(unpayable) => write!(f, "too small a grant: {unpayable}"),
            Self::Unpayable(unpayable) => write!(f, "the sender does not have the grant: {unpayable}"),
            Self::Refused(why) => write!(f, "the mailbox did not take it: {why}"),
            Self::Exhausted(component) => write!(f, "it ran out of {component}; grant more"),
            Self::Failed => f.write_str("the actor failed or ended"),
            Self::NotSpawned(error) => write!(f, "the actor could not handle it: {error}"),
            Self::TimedOut => f.write_str("time was over"),
            Self::Unwinding => f.write_str("a destructor of a task that ends must not wait"),
        }
    }
}

impl std::error::Error for AskError {}

/// A message that was not sent, and why.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Unsent<M> {
    /// Why.
    pub why: AskError,
    /// The message.
    pub message: M,
}

impl<M> fmt::Debug for Unsent<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unsent").field("why", &self.why).finish_non_exhaustive()
    }
}

impl<M> fmt::Display for Unsent<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}

impl<M> std::error::Error for Unsent<M> {}

/// What the two sides of a mailbox share beside the messages.
struct Shared<M, R: Send> {
    replies: Replies<M, R>,
    /// The runtime that it was made in.
    memory: Arc<Inner>,
}

impl<M, R: Send> Drop for Shared<M, R> {
    fn drop(&mut self) {
        if let Some(alarm) = self.replies.last_alarm() {
            self.memory.timers.remove(alarm);
        }
    }
}

/// Who gets a reply, and what is left of the grant.
enum ReplyTo<R: Send> {
    Nobody,
    /// A task that waits. The letter is its slot's.
    Task(SlotId),
    /// Somebody outside of the runtime.
    Outside(border::Outside<R>),
}

/// What a message consists of. It is written and read in place: a copy of what was just written in parts waits for those writes. A letter
/// that is back with its slot has neither message nor reply.
struct Letter<M, R: Send> {
    message: Option<M>,
    /// What was granted, and then what is left.
    grant: Pool,
    to: ReplyTo<R>,
    /// The runtime of the sender, if it is not the mailbox's.
    foreign: Option<Arc<Inner>>,
    /// What came of the message, once it is over.
    reply: Option<Result<R, AskError>>,
}

impl<M, R: Send> Default for Letter<M, R> {
    fn default() -> Self {
        Self { message: None, grant: Pool::ZERO, to: ReplyTo::Nobody, foreign: None, reply: None }
    }
}

/// A message on its way. Whatever becomes of it, its grant goes somewhere.
struct Envelope<M, R: Send> {
    /// `None` once it is over.
    letter: Option<Box<Letter<M, R>>>,
    shared: Arc<Shared<M, R>>,
}

impl<M, R: Send> Envelope<M, R> {
    #[inline]
    fn letter(&mut self) -> &mut Letter<M, R> {
        self.letter.as_mut().expect("it is not over")
    }

    /// It is over, and the reply is in the letter: tells the sender that waits, or gives what is left to the root.
    #[inline]
    fn finish(&mut self) {
        let Some(letter) = self.letter.take() else { return };
        let unclaimed = match letter.to {
            ReplyTo::Task(slot) if letter.foreign.is_none() => self.shared.replies.fill(slot, letter),
            _ => return self.finish_rarely(letter),
        };
        if let Some(unclaimed) = unclaimed {
            put_to_root(&self.shared.memory, &unclaimed);
        }
    }

    /// As [`Envelope::finish`], for a sender that is not a task of the mailbox's runtime, or does not wait.
    #[inline(never)]
    fn finish_rarely(&self, mut letter: Box<Letter<M, R>>) {
        let foreign = letter.foreign.take();
        let unclaimed = match letter.to {
            ReplyTo::Task(slot) => self.shared.replies.fill(slot, letter),
            ReplyTo::Outside(outside) => {
                outside.tell(letter.reply.unwrap_or(Err(AskError::Failed)), letter.grant);
                None
            }
            ReplyTo::Nobody => Some(letter.grant),
        };
        if let Some(unclaimed) = unclaimed {
            put_to_root(foreign.as_ref().unwrap_or(&self.shared.memory), &unclaimed);
        }
    }

    /// Whether its sender has gone.
    #[inline]
    fn is_abandoned(&self) -> bool {
        match &self.letter.as_ref().expect("it is not over").to {
            ReplyTo::Nobody => false,
            ReplyTo::Task(slot) => self.shared.replies.is_abandoned(*slot),
            ReplyTo::Outside(outside) => outside.is_cancelled(),
        }
    }

    /// It is over without a reply.
    #[cold]
    #[inline(never)]
    fn fail(&mut self, why: AskError) {
        let letter = self.letter();
        letter.reply = Some(Err(why));
        // One that was not handled goes last: its destructor is the program's.
        let _message = letter.message.take();
        self.finish();
    }

    /// It was not sent: the letter, which is still full.
    fn unsent(mut self) -> Box<Letter<M, R>> {
        self.letter.take().expect("a message that was not handled")
    }
}

impl<M, R: Send> Drop for Envelope<M, R> {
    #[inline]
    fn drop(&mut self) {
        if self.letter.is_some() {
            self.fail(AskError::Failed);
        }
    }
}

fn put_to_root(rt: &Inner, pool: &Pool) {
    if *pool != Pool::ZERO {
        let put = {
            let mut root = rt.pool.lock().expect("no panic while it is held");
            root.plus(pool).map(|sum| *root = sum)
        };
        put.expect("the root pool can hold it");
    }
}

/// Where messages wait for their actor, which owns it. It outlives the actor's lives: a supervisor starts the next one on it.
pub struct Mailbox<M, R: Send> {
    receiver: Receiver<Envelope<M, R>>,
}

/// Where messages are sent to. Clones are the same address. When the last goes, the actor gets what is left and then ends.
pub struct Address<M, R: Send> {
    sender: Sender<Envelope<M, R>>,
    shared: Arc<Shared<M, R>>,
    least: Pool,
}

impl<M, R: Send> fmt::Debug for Mailbox<M, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mailbox")
    }
}

impl<M, R: Send> fmt::Debug for Address<M, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Address")
    }
}

impl<M, R: Send> Clone for Address<M, R> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), shared: self.shared.clone(), least: self.least }
    }
}

impl Cx {
    /// A mailbox for `room` messages, and its address. A full one makes its senders wait. A message whose grant is less than
    /// `least` is refused, so that no sender can have the handler cut short before it has done what must be done. By the task's
    /// `CapChannel`, in the cluster profile.
    ///
    /// ```
    /// # use mainspring::{Budget, Config, Pool, Profile};
    /// # let runtime = Config::new(Profile::Cluster).build().unwrap();
    /// let total = runtime.run(|cx| {
    ///     let (address, mailbox) = cx.mailbox::<u32, u32>(16, Pool::ZERO).unwrap();
    ///     cx.nursery(|n| {
    ///         n.start(move |cx| {
    ///             let mut sum = 0;
    ///             mailbox.serve(cx, &mut sum, |sum, _, more| { *sum += more; *sum }).unwrap();
    ///         }).unwrap();
    ///         let grant = Pool { ops: 100, spawn_count: 1, ..Pool::ZERO };
    ///         address.tell(cx, 40, grant).unwrap();
    ///         let total = address.ask(cx, 2, grant).unwrap();
    ///         drop(address);
    ///         total
    ///     })
    /// });
    /// assert_eq!(total.unwrap().unwrap(), 42);
    /// ```
    #[allow(clippy::type_complexity)]
    pub fn mailbox<M: Send, R: Send>(
        &self,
        room: u32,
        least: Pool,
    ) -> Result<(Address<M, R>, Mailbox<M, R>), MailboxError> {
        calls::count(self);
        if self.rt().config.profile != Profile::Cluster {
            return audit::noted(self, "CapChannel", "mailbox", Err(MailboxError::NotCluster));
        }
        let (sender, receiver) =
            self.channel(Capacity::Bounded(room.max(1))).map_err(MailboxError::Channel)?;
        let shared = Arc::new(Shared { replies: Replies::new(), memory: self.rt().memory() });
        Ok((Address { sender, shared, least: most(&least, &LEAST) }, Mailbox { receiver }))
    }
}

/// The larger of each component.
fn most(a: &Pool, b: &Pool) -> Pool {
    let mut all = *a;
    for component in Component::ALL {
        let more = b.get(component).saturating_sub(a.get(component));
        all.put(&Pool::only(component, more));
    }
    all
}

/// A reply that its sender waits for. On every way out what came back goes where the grant came from.
struct Waiting<'a, M, R: Send> {
    cx: &'a Cx,
    replies: &'a Replies<M, R>,
    slot: SlotId,
    source: Source,
    /// The slot is the sender's.
    is_open: bool,
}

impl<M, R: Send> Waiting<'_, M, R> {
    #[inline]
    fn wait(mut self, due_ns: Option<u64>, is_home: bool) -> Result<R, AskError> {
        let Some(letter) = self.replies.wait(self.cx, self.slot, due_ns, is_home) else {
            return Err(if std::thread::panicking() { AskError::Unwinding } else { AskError::TimedOut });
        };
        self.is_open = false;
        self.read(letter)
    }

    /// Takes the reply and the rest of the grant out of the letter, which goes back to its slot.
    #[inline]
    fn read(&self, mut letter: Box<Letter<M, R>>) -> Result<R, AskError> {
        give_back(self.cx, &letter.grant, self.source);
        let reply = letter.reply.take().expect("a letter comes back with a reply");
        self.replies.put_back(self.cx, self.slot, letter);
        reply
    }
}

impl<M, R: Send> Drop for Waiting<'_, M, R> {
    fn drop(&mut self) {
        if self.is_open
            && let Some(letter) = self.replies.abandon(self.cx, self.slot)
        {
            drop(self.read(letter));
        }
    }
}

impl<M: Send, R: Send> Address<M, R> {
    /// Sends a message that asks for nothing back. It waits for room. What the message leaves of its grant stays with the actor's
    /// nursery. Costs one op and one channel operation beside the grant.
    pub fn tell(&self, cx: &Cx, message: M, grant: Pool) -> Result<(), Unsent<M>> {
        self.tell_until(cx, message, grant, None)
    }

    /// As [`Address::tell`], if there is room.
    pub fn try_tell(&self, cx: &Cx, message: M, grant: Pool) -> Result<(), Unsent<M>> {
        self.tell_until(cx, message, grant, Some(Duration::ZERO))
    }

    /// Sends a message and waits for its reply. What the message leaves of its grant is back by then, whatever came of it. The grant
    /// is taken as a nursery's pool is: from the pool of the nursery around, the task's own, or its budget. Costs one op and one
    /// channel operation beside the grant.
    pub fn ask(&self, cx: &Cx, message: M, grant: Pool) -> Result<R, AskError> {
        self.ask_until(cx, message, grant, None)
    }

    /// As [`Address::ask`]: for the send and for the reply at most this long.
    pub fn ask_timeout(&self, cx: &Cx, message: M, grant: Pool, timeout: Duration) -> Result<R, AskError> {
        self.ask_until(cx, message, grant, Some(timeout))
    }

    fn ask_until(&self, cx: &Cx, message: M, grant: Pool, timeout: Option<Duration>) -> Result<R, AskError> {
        let due_ns = timeout.map(|timeout| {
            let ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
            cx.rt().timers.now_ns().saturating_add(ns)
        });
        let source = self.pay(cx, &grant)?;
        let (slot, letter) = self.shared.replies.open(cx);
        // From here on the grant is in the letter, and goes back by this if the task is stopped.
        let mut waiting = Waiting { cx, replies: &self.shared.replies, slot, source, is_open: true };
        if let Err((why, mut letter)) = self.send(cx, letter, message, &grant, timeout) {
            waiting.is_open = false;
            give_back(cx, &letter.grant, source);
            // It goes last: its destructor is the program's.
            let _message = letter.message.take();
            letter.foreign = None;
            self.shared.replies.put_back(cx, slot, letter);
            return Err(AskError::Refused(why));
        }
        waiting.wait(due_ns, self.is_home(cx))
    }

    /// Whether the mailbox is of the task's runtime.
    #[inline]
    fn is_home(&self, cx: &Cx) -> bool {
        std::ptr::eq(Arc::as_ptr(&self.shared.memory), cx.rt())
    }

    fn tell_until(
        &self,
        cx: &Cx,
        message: M,
        grant: Pool,
        timeout: Option<Duration>,
    ) -> Result<(), Unsent<M>> {
        let source = match self.pay(cx, &grant) {
            Ok(source) => source,
            Err(why) => return Err(Unsent { why, message }),
        };
        self.send(cx, Box::default(), message, &grant, timeout).map_err(|(why, mut letter)| {
            give_back(cx, &letter.grant, source);
            let message = letter.message.take().expect("a message that was not handled");
            Unsent { why: AskError::Refused(why), message }
        })
    }

    /// Takes the grant from the sender.
    #[inline]
    fn pay(&self, cx: &Cx, grant: &Pool) -> Result<Source, AskError> {
        calls::count(cx);
        if !grant.covers(&self.least) {
            let mut little = *grant;
            little.take(&self.least).map_err(AskError::TooLittle)?;
        }
        take_for_message(cx, grant).map_err(AskError::Unpayable)
    }

    /// Sends the message in this letter, which comes back, still full, if it is refused.
    #[inline]
    fn send(
        &self,
        cx: &Cx,
        mut letter: Box<Letter<M, R>>,
        message: M,
        grant: &Pool,
        timeout: Option<Duration>,
    ) -> Result<(), (Refusal, Box<Letter<M, R>>)> {
        letter.message = Some(message);
        letter.grant = *grant;
        letter.foreign = (!self.is_home(cx)).then(|| cx.rt().memory());
        let envelope = Envelope { letter: Some(letter), shared: self.shared.clone() };
        let sent = match timeout {
            None => self.sender.send(cx, envelope),
            Some(Duration::ZERO) => self.sender.try_send(cx, envelope),
            Some(timeout) => self.sender.send_timeout(cx, envelope, timeout),
        };
        sent.map_err(|SendError { why, value }| (why, value.unsent()))
    }

    /// Closes the mailbox: the actor gets what is in it, and then ends.
    pub fn close(&self) {
        self.sender.close();
    }
}
