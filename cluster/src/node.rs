//! A node: a runtime whose actors others reach by name, and the way to theirs.
//!
//! Without a server a node is alone, and everything works within its process. With one, an actor's mailbox is a subject of the server.
//!
//! Conserved: a message that another node sends is handled once or not at all. Its grant is taken before it is handled, and its rest is
//! settled before it is forgotten. The mailbox takes as many messages as it has room for; the sender of any other learns so, and waits.

use crate::batch::Batches;
use crate::call::{self, Call, CallError, Home};
use crate::connect::Connection;
use crate::directory::Directory;
use crate::error::Error;
use crate::grant::{Amount, Grant, Identity, Receipt, Signed, Trusted, Worthless};
use crate::ledger::{Balance, Ledger};
use crate::one_thread;
use crate::session::{Sessions, Took};
use crate::spent::{Record, Spent};
use crate::supervise::Fence;
use crate::text::Text as _;
use crate::wire::{self, Status};
use async_nats::{HeaderMap, Message as NatsMessage, Subject};
use futures_util::StreamExt as _;
use mainspring::{Address, AskError, Cx, Pool, Runtime};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// What an actor of a node gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The message's id: the same if the same message is delivered again.
    pub id: String,
    /// What it says.
    pub payload: Vec<u8>,
}

/// An actor that other nodes can reach.
pub type Actor = Address<Message, Vec<u8>>;

/// How a node deals with others.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Whom it believes.
    pub trusted: Trusted,
    /// What it spends itself on a message that carries no grant. A task needs at least one op and one spawn.
    pub unpaid: Pool,
    /// How much longer than its call a grant is valid. A node that has not settled by then, and this much later, has lost it.
    pub grace: Duration,
}

impl Default for Terms {
    fn default() -> Self {
        let unpaid = Pool { ops: 100_000, memory: 1 << 20, spawn_count: 1, channel_ops: 16, syscalls: 16 };
        Self { trusted: Trusted::new(), unpaid, grace: Duration::from_secs(5) }
    }
}

/// The way to other nodes.
///
/// Messages and replies have a client of their own, on the thread of the runtime's first worker, so that they cross no thread. Records and
/// leases have the connection that the node joined with, which a busy worker does not hold up.
pub(crate) struct Net {
    pub(crate) on: Connection,
    pub(crate) calls: Connection,
    /// What runs the client of `calls`.
    pub(crate) calls_tokio: Handle,
    pub(crate) spent: Spent,
    pub(crate) batches: Batches,
    pub(crate) tokio: Handle,
}

pub(crate) struct Shared {
    pub(crate) identity: Identity,
    /// The node's name, and which of its lives.
    pub(crate) life: String,
    pub(crate) terms: Terms,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) ledger: Ledger,
    pub(crate) net: Option<Net>,
    pub(crate) directory: Directory,
    pub(crate) sessions: Sessions,
    local: Mutex<HashMap<String, Arc<Local>>>,
    /// How many messages were taken, or tried to be.
    attempts: AtomicU64,
    /// What each sender has with this node: taken, and not settled.
    held: Mutex<HashMap<String, Pool>>,
}

/// An actor of this process.
#[derive(Debug)]
struct Local {
    actor: Actor,
    /// Until when it may act, if a supervisor placed it.
    fence: Option<Arc<Fence>>,
}

impl Shared {
    /// Who takes grants here.
    fn me(&self) -> (&Identity, &str) {
        (&self.identity, &self.life)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A node. Clones are the same node.
#[derive(Clone)]
pub struct Node(pub(crate) Arc<Shared>);

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Node").field(&self.0.life).finish()
    }
}

/// An actor that is reached as long as this lives.
#[derive(Debug)]
#[must_use]
pub struct Exported {
    node: Node,
    name: String,
    local: Arc<Local>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Exported {
    fn drop(&mut self) {
        let mut local = locked(&self.node.0.local);
        // Another export of the name, as of the next generation, stays.
        if local.get(&self.name).is_some_and(|there| Arc::ptr_eq(there, &self.local)) {
            local.remove(&self.name);
        }
        drop(local);
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// What is exported, and to whom it answers.
struct Served {
    node: Arc<Shared>,
    name: String,
    actor: Actor,
    /// Until when it may act, if a supervisor placed it.
    fence: Option<Arc<Fence>>,
    room: Arc<Semaphore>,
    /// Messages that wait or are handled, by the order in which they came: their ids are their senders' to choose.
    under_way: Mutex<HashMap<u64, UnderWay>>,
}

/// A message that waits or is handled.
struct UnderWay {
    /// The grant, by which its sender cancels it.
    grant: Option<String>,
    cancelled: Arc<AtomicBool>,
    /// When its sender does not wait any more.
    late: Option<Instant>,
}

/// How often messages are looked for whose sender does not wait any more.
const LATE: Duration = Duration::from_millis(20);

impl Node {
    /// A node that is alone: its actors are reached within this process, and it needs no server.
    pub fn local(identity: Identity, runtime: Arc<Runtime>) -> Self {
        Self::new(identity, runtime, Terms::default(), None)
    }

    /// A node that is reached over a server. To be called within Tokio, which goes on to serve it. For messages the node connects once more,
    /// and the runtime's first worker drives that connection from then on.
    pub async fn join(
        identity: Identity,
        runtime: Arc<Runtime>,
        terms: Terms,
        on: Connection,
    ) -> Result<Self, Error> {
        if !wire::is_name(&identity.name) {
            return Err(Error::Name { name: identity.name });
        }
        let spent = Spent::open(&on).await?;
        let tokio = Handle::current();
        let (calls, calls_tokio) = match one_thread::tokio_of(&runtime)? {
            Some(theirs) if theirs.id() != tokio.id() => (on.again(&theirs).await?, theirs),
            // It is there, or there is no such place.
            _ => (on.clone(), tokio.clone()),
        };
        let batches = Batches::start(&tokio, spent.clone(), on.client.clone());
        let node =
            Self::new(identity, runtime, terms, Some(Net { on, calls, calls_tokio, spent, batches, tokio }));
        node.serve_sessions().await?;
        Ok(node)
    }

    /// Answers what has become of grants that name this life, and records what their senders have not. Ends with the node.
    async fn serve_sessions(&self) -> Result<(), Error> {
        let Some(net) = &self.0.net else { return Ok(()) };
        let client = net.calls.client.clone();
        let subject = wire::standing_subject(&self.0.life);
        let failed = |error| Error::nats("subscribing to questions", error);
        let mut asked = client.subscribe(subject).await.map_err(failed)?;
        net.calls.caught_up("subscribing to questions").await?;
        let node = Arc::downgrade(&self.0);
        net.tokio.spawn(async move {
            while let Some(message) = asked.next().await {
                let Some(node) = node.upgrade() else { return };
                let signed = wire::signed_in(message.headers.as_ref(), wire::GRANT);
                let answer =
                    signed.map(|signed| node.sessions.standing(node.me(), &node.terms.trusted, &signed));
                let reply_to = message.reply.filter(|reply_to| wire::takes_replies(reply_to));
                if let (Some(Ok(answer)), Some(reply_to)) = (answer, reply_to) {
                    let mut headers = HeaderMap::new();
                    wire::write_signed(&mut headers, wire::RECEIPT, &answer);
                    // Who does not hear it asks again.
                    let _ = client.publish_with_headers(reply_to, headers, "".into()).await;
                }
            }
        });
        let (node, spent) = (Arc::downgrade(&self.0), net.spent.clone());
        net.tokio.spawn(async move {
            loop {
                sleep(Duration::from_secs(1)).await;
                let Some(overdue) = node.upgrade().map(|node| node.sessions.overdue()) else { return };
                for (life, number, pending) in overdue {
                    let settled = Record::Settled { by: pending.by, rest: pending.rest };
                    let Some(node) = node.upgrade() else { return };
                    if spent.first(&pending.id, pending.amount, settled).await.is_ok() {
                        node.sessions.recorded(&life, number);
                    }
                }
            }
        });
        Ok(())
    }

    fn new(identity: Identity, runtime: Arc<Runtime>, terms: Terms, net: Option<Net>) -> Self {
        let random = net.as_ref().map_or_else(String::new, |net| {
            net.calls.client.new_inbox().rsplit('.').next().unwrap_or_default().to_owned()
        });
        let life = format!("{}#{random}", identity.name);
        Self(Arc::new(Shared {
            identity,
            life,
            terms,
            runtime,
            ledger: Ledger::default(),
            net,
            directory: Directory::default(),
            sessions: Sessions::default(),
            local: Mutex::default(),
            attempts: AtomicU64::new(0),
            held: Mutex::default(),
        }))
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.0.identity.name
    }

    /// Where all is that this node has sent.
    pub fn balance(&self) -> Balance {
        self.0.ledger.balance()
    }

    /// How many grants that this node sent have no record on the server yet, beside those that are in flight. It comes to none.
    pub fn unrecorded(&self) -> usize {
        self.0.sessions.unrecorded()
    }

    /// Whether an actor of this name is on this node, and may act.
    pub fn hosts(&self, name: &str) -> bool {
        Self::local_actor(&self.0, name).is_some()
    }

    /// The actor of this name, on whatever node it is.
    pub fn actor(&self, name: impl Into<String>) -> Remote {
        Remote { node: self.0.clone(), name: name.into(), from: None }
    }

    /// Lets others reach an actor by a name, with at most `room` of their messages at a time. Of two nodes that export one name, each
    /// message gets to one.
    pub async fn export(&self, name: &str, actor: Actor, room: usize) -> Result<Exported, Error> {
        if !wire::is_name(name) {
            return Err(Error::Name { name: name.to_owned() });
        }
        self.serve(name, actor, room, None).await
    }

    /// Lets others reach an actor: by its name, or in its generation.
    pub(crate) async fn serve(
        &self,
        name: &str,
        actor: Actor,
        room: usize,
        fence: Option<Arc<Fence>>,
    ) -> Result<Exported, Error> {
        let local = Arc::new(Local { actor: actor.clone(), fence: fence.clone() });
        locked(&self.0.local).insert(name.to_owned(), local.clone());
        let mut exported = Exported { node: self.clone(), name: name.to_owned(), local, tasks: Vec::new() };
        let Some(net) = &self.0.net else { return Ok(exported) };
        let served = Arc::new(Served {
            node: self.0.clone(),
            name: name.to_owned(),
            actor,
            fence,
            room: Arc::new(Semaphore::new(room.max(1))),
            under_way: Mutex::default(),
        });
        let subject = match &served.fence {
            None => wire::actor_subject(name),
            Some(fence) => wire::supervised_subject(name, fence.generation()),
        };
        let client = &net.calls.client;
        let failed = |error| Error::nats("subscribing to a mailbox", error);
        let messages = client.queue_subscribe(subject, "actor".into()).await.map_err(failed)?;
        // Those who know this life send to it alone.
        let direct = wire::life_subject(&self.0.life, &name.replace('/', "."));
        let direct = client.subscribe(direct).await.map_err(failed)?;
        let mut messages = futures_util::stream::select(messages, direct);
        let mut cancels = client.subscribe(wire::cancel_subject(name)).await.map_err(failed)?;
        // Until the server has both, a message would find nobody.
        net.calls.caught_up("subscribing to a mailbox").await?;
        exported.tasks.push(net.calls_tokio.spawn({
            let served = served.clone();
            async move {
                while let Some(message) = messages.next().await {
                    served.accept(message);
                }
            }
        }));
        let cancelling = served.clone();
        exported.tasks.push(net.tokio.spawn(async move {
            while let Some(cancel) = cancels.next().await {
                let is_cancelled = |message: &&UnderWay| {
                    message.grant.as_ref().is_some_and(|grant| grant.as_bytes() == cancel.payload)
                };
                for message in locked(&cancelling.under_way).values().filter(is_cancelled) {
                    message.cancelled.store(true, Ordering::Relaxed);
                }
            }
        }));
        exported.tasks.push(net.tokio.spawn(async move {
            loop {
                sleep(LATE).await;
                let now = Instant::now();
                for message in locked(&served.under_way).values() {
                    // What has not begun does not begin.
                    if message.late.is_some_and(|late| late <= now) {
                        message.cancelled.store(true, Ordering::Relaxed);
                    }
                }
            }
        }));
        Ok(exported)
    }

    /// The actor of this name, if it is of this process and may act.
    fn local_actor(shared: &Shared, name: &str) -> Option<Arc<Local>> {
        let local = locked(&shared.local).get(name)?.clone();
        local.fence.as_ref().is_none_or(|fence| fence.may_act()).then_some(local)
    }
}

/// A message that an actor has. Whatever becomes of it, it is answered once.
struct Taken {
    served: Arc<Served>,
    /// Its key in `under_way`.
    key: u64,
    /// What pays for it, until it is settled.
    admitted: Option<Admitted>,
    reply_to: Subject,
    cancelled: Arc<AtomicBool>,
    /// Its place in the mailbox.
    _place: OwnedSemaphorePermit,
}

impl Taken {
    /// It has been handled, or will not be: tells its sender, and what is left.
    fn end(mut self, reply: Result<Vec<u8>, AskError>, left: Pool) {
        self.settle(reply, left);
    }

    fn settle(&mut self, reply: Result<Vec<u8>, AskError>, left: Pool) {
        let Some(admitted) = self.admitted.take() else { return };
        let (served, amount) = (&self.served, admitted.amount());
        let Some(net) = &served.node.net else { return };
        locked(&served.under_way).remove(&self.key);
        let (status, payload) = match reply {
            // Its sender would learn of nothing until its time is over.
            Ok(payload) if !wire::fits(&payload, net.calls.client.max_payload()) => {
                (Status::ReplyTooLarge, Vec::new())
            }
            Ok(payload) => (Status::Done, payload),
            Err(_) if self.cancelled.load(Ordering::Relaxed) && left == amount => {
                (Status::Cancelled, Vec::new())
            }
            Err(error) => (Status::of(error), Vec::new()),
        };
        let mut answer = HeaderMap::new();
        status.write(&mut answer);
        match admitted {
            Admitted::Paid { grant, by } => served.settle(net, grant, by, left, &mut answer),
            Admitted::Unpaid { .. } => served.node.runtime.deposit(&left),
        }
        served.answer(net, self.reply_to.clone(), answer, payload);
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // The runtime has gone, with what it had.
        self.settle(Err(AskError::Failed), Pool::ZERO);
    }
}

impl Served {
    /// Takes a message, if there is room; and tells its sender in any case.
    fn accept(self: &Arc<Self>, message: NatsMessage) {
        let Some(reply_to) = message.reply.clone().filter(|reply_to| wire::takes_replies(reply_to)) else {
            // It asks for nothing, not even whether there is room; or for a reply where none may go. No node of ours sends such.
            return;
        };
        let Some(net) = &self.node.net else { return };
        let place = match self.refuses(message.headers.as_ref()) {
            Some(status) => Err(status),
            None => Arc::clone(&self.room).try_acquire_owned().map_err(|_| Status::Busy),
        };
        let place = match place {
            Ok(place) => place,
            Err(status) => return self.refuse(net, reply_to, status),
        };
        let headers = message.headers.unwrap_or_default();
        match self.admit(&headers) {
            Ok(Some(admitted)) => self.begin(admitted, reply_to, &headers, message.payload.to_vec(), place),
            Err(status) => self.refuse(net, reply_to, status),
            // Others need not wait for its record.
            Ok(None) => {
                let served = self.clone();
                net.tokio.spawn(async move {
                    let Some(net) = &served.node.net else { return };
                    match served.admit_signed(net, &headers).await {
                        Ok(admitted) => {
                            served.begin(admitted, reply_to, &headers, message.payload.to_vec(), place);
                        }
                        Err(status) => served.refuse(net, reply_to, status),
                    }
                });
            }
        }
    }

    /// Why a message is not taken: its sender has been superseded, or this actor has.
    fn refuses(&self, headers: Option<&HeaderMap>) -> Option<Status> {
        let stale_sender = headers
            .and_then(wire::from)
            .is_some_and(|(name, generation)| self.node.directory.is_past(name, generation));
        let stale = self
            .fence
            .as_ref()
            .is_some_and(|fence| !fence.may_act() || wire::generation(headers) != Some(fence.generation()));
        (stale_sender || stale).then_some(Status::Superseded)
    }

    /// Says that a message was not taken. A sender that does not hear this waits until its timeout, and finds out then.
    fn refuse(&self, net: &Net, reply_to: Subject, status: Status) {
        let mut headers = HeaderMap::new();
        status.write(&mut headers);
        self.answer(net, reply_to, headers, Vec::new());
    }

    /// Replies, from whatever thread this is.
    fn answer(&self, net: &Net, reply_to: Subject, mut headers: HeaderMap, payload: Vec<u8>) {
        if let Some(fence) = &self.fence {
            if !fence.may_act() {
                // Another generation may have begun: nobody may take this for its answer.
                return;
            }
            wire::write_generation(&mut headers, fence.generation());
        }
        let client = net.calls.client.clone();
        // As for a refusal: a sender that does not hear it finds out.
        let mut publishes =
            Box::pin(async move { client.publish_with_headers(reply_to, headers, payload.into()).await });
        // Mostly there is room for it on its way to the server, and no other thread is needed.
        if publishes.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            net.tokio.spawn(publishes);
        }
    }

    /// Finds what pays for a message, and takes it. `None` if that needs a record first.
    fn admit(&self, headers: &HeaderMap) -> Result<Option<Admitted>, Status> {
        let Some(signed) = wire::signed(headers, wire::GRANT) else {
            let id = headers.get(wire::ID).map(|id| id.as_str().to_owned()).unwrap_or_default();
            let unpaid = self.node.terms.unpaid;
            self.node.runtime.withdraw(&unpaid).map_err(|_| Status::Unpayable)?;
            return Ok(Some(Admitted::Unpaid { id, amount: unpaid }));
        };
        let grant = Grant::read(&signed.text).map_err(Status::Worthless)?;
        if grant.within.is_none() {
            return Ok(None);
        }
        self.admit_within(&signed, grant).map(Some)
    }

    /// Takes a signed grant, by its record.
    async fn admit_signed(&self, net: &Net, headers: &HeaderMap) -> Result<Admitted, Status> {
        let malformed = Status::Worthless(Worthless::Malformed);
        let signed = wire::signed(headers, wire::GRANT).ok_or(malformed)?;
        let grant = self.node.terms.trusted.grant(&signed, &self.name).map_err(Status::Worthless)?;
        self.hold(&grant)?;
        // Each attempt has a name of its own: so the same life takes a grant once, too, however often it comes.
        let by = format!("{}/{}", self.node.life, self.node.attempts.fetch_add(1, Ordering::Relaxed));
        let taken = Record::Taken { by: by.clone() };
        match net.spent.first(&grant.id, grant.amount, taken.clone()).await {
            Ok(record) if record == taken => Ok(Admitted::Paid { grant, by }),
            Ok(_) => {
                self.let_go(&grant);
                Err(Status::Worthless(Worthless::Spent))
            }
            // Whether it was taken is not known: the sender finds out by the record.
            Err(_) => {
                self.let_go(&grant);
                Err(Status::Unrecorded)
            }
        }
    }

    /// Takes a grant that names this life: its number is remembered, and no record is needed before it is spent.
    fn admit_within(&self, signed: &Signed, grant: Grant) -> Result<Admitted, Status> {
        let (me, trusted) = (self.node.me(), &self.node.terms.trusted);
        let worthless = Status::Worthless;
        self.node.sessions.verify(me, trusted, signed, &grant).map_err(worthless)?;
        Trusted::is_for(&grant, &self.name).map_err(worthless)?;
        self.hold(&grant)?;
        match self.node.sessions.take(me, trusted, &grant) {
            Ok(Took::Number) => {}
            refused => {
                self.let_go(&grant);
                // Room comes with the records: the sender tries again.
                return Err(refused.map_or_else(worthless, |_| Status::Busy));
            }
        }
        let number = grant.within.as_ref().map_or(0, |within| within.number);
        let by = format!("{}/s{number}", self.node.life);
        Ok(Admitted::Paid { grant, by })
    }

    fn hold(&self, grant: &Grant) -> Result<(), Status> {
        let mut held = locked(&self.node.held);
        let has = held.entry(grant.from.clone()).or_default();
        let over = || Status::Worthless(Worthless::OverLimit);
        let would = has.plus(&grant.amount.into()).map_err(|_| over())?;
        let mut limit = self.node.terms.trusted.limit(&grant.from);
        limit.take(&would).map_err(|_| over())?;
        *has = would;
        Ok(())
    }

    fn let_go(&self, grant: &Grant) {
        if let Some(has) = locked(&self.node.held).get_mut(&grant.from) {
            // It was held, so it is there.
            let _ = has.take(&grant.amount.into());
        }
    }

    /// Has the actor handle it. The worker that has done so answers.
    fn begin(
        self: &Arc<Self>,
        admitted: Admitted,
        reply_to: Subject,
        headers: &HeaderMap,
        payload: Vec<u8>,
        place: OwnedSemaphorePermit,
    ) {
        let amount = admitted.amount();
        let (id, grant) = match &admitted {
            Admitted::Paid { grant, .. } => (grant.id.clone(), Some(grant.id.clone())),
            Admitted::Unpaid { id, .. } => (id.clone(), None),
        };
        let cancelled = Arc::new(AtomicBool::new(false));
        let late = wire::deadline(headers).and_then(|late| Instant::now().checked_add(late));
        let key = self.node.attempts.fetch_add(1, Ordering::Relaxed);
        locked(&self.under_way).insert(key, UnderWay { grant, cancelled: cancelled.clone(), late });
        let taken = Taken {
            served: self.clone(),
            key,
            admitted: Some(admitted),
            reply_to,
            cancelled: cancelled.clone(),
            _place: place,
        };
        // Held by both: a message that was not sent is answered here, with the reason.
        let taken = Arc::new(Mutex::new(Some(taken)));
        let handled = taken.clone();
        let message = Message { id, payload };
        let sent = self.node.runtime.send_from_outside(
            &self.actor,
            message,
            amount,
            cancelled,
            move |reply, left| {
                let taken = locked(&handled).take();
                if let Some(taken) = taken {
                    taken.end(reply, left);
                }
            },
        );
        if let Err(unsent) = sent
            && let Some(taken) = locked(&taken).take()
        {
            taken.end(Err(unsent.why), amount);
        }
    }

    /// Signs what is left, and has it recorded. The answer does not wait for the record: either of the two is enough.
    fn settle(&self, net: &Net, grant: Grant, by: String, rest: Pool, answer: &mut HeaderMap) {
        let rest = Amount::from(rest);
        if grant.within.is_some() {
            let (me, trusted) = (self.node.me(), &self.node.terms.trusted);
            if let Some(receipt) = self.node.sessions.settle(me, trusted, &grant, &by, rest) {
                wire::write_signed(answer, wire::RECEIPT, &receipt);
            }
            return self.let_go(&grant);
        }
        let receipt = Receipt { id: grant.id.clone(), by: by.clone(), rest };
        wire::write_signed(answer, wire::RECEIPT, &self.node.identity.sign(&receipt));
        let (node, spent) = (self.node.clone(), net.spent.clone());
        net.tokio.spawn(async move {
            let settled = Record::Settled { by: by.clone(), rest };
            let began = Instant::now();
            // A server that is away comes back, or the sender takes it as lost: the same bound.
            while began.elapsed() < crate::grant::LONGEST_VALIDITY {
                if let Ok(Some(_)) = spent.go_on(&grant.id, &by, &settled).await {
                    break;
                }
                sleep(Duration::from_millis(500)).await;
            }
            if let Some(has) = locked(&node.held).get_mut(&grant.from) {
                let _ = has.take(&grant.amount.into());
            }
        });
    }
}

/// What pays for a message.
enum Admitted {
    Paid {
        grant: Grant,
        /// Who has taken it: this life, at this attempt.
        by: String,
    },
    Unpaid {
        id: String,
        amount: Pool,
    },
}

impl Admitted {
    fn amount(&self) -> Pool {
        match self {
            Self::Paid { grant, .. } => grant.amount.into(),
            Self::Unpaid { amount, .. } => *amount,
        }
    }
}

/// An actor by its name.
#[derive(Clone)]
pub struct Remote {
    node: Arc<Shared>,
    name: String,
    /// The supervised actor that asks.
    from: Option<Arc<Fence>>,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Remote").field(&self.name).finish()
    }
}

impl Remote {
    /// As asked by a supervised actor: others refuse it once that has been superseded.
    pub(crate) fn from(self, fence: Arc<Fence>) -> Self {
        Self { from: Some(fence), ..self }
    }

    /// Refused if the one that asks has been superseded.
    fn may_ask(&self) -> Result<(), CallError> {
        let may = self.from.as_ref().is_none_or(|fence| fence.may_act());
        may.then_some(()).ok_or(CallError::Superseded)
    }

    /// The headers that say who asks.
    fn stamp(&self) -> Result<HeaderMap, CallError> {
        self.may_ask()?;
        let mut headers = HeaderMap::new();
        if let Some(fence) = &self.from {
            wire::write_from(&mut headers, fence.actor(), fence.generation());
        }
        Ok(headers)
    }

    /// Sends a message, from a task, and waits for its reply. The grant leaves the task's pool; what the message leaves of it is back when
    /// this returns, or, if that is known only later, goes to the root pool of this node. An actor of this process is asked directly,
    /// without a server. At most once: the message is handled once, or not at all.
    pub fn ask(
        &self,
        cx: &Cx,
        payload: Vec<u8>,
        grant: Pool,
        timeout: Duration,
    ) -> Result<Vec<u8>, CallError> {
        if let Some(local) = Node::local_actor(&self.node, &self.name) {
            self.may_ask()?;
            let message = Message { id: String::new(), payload };
            return local.actor.ask_timeout(cx, message, grant, timeout).map_err(CallError::of);
        }
        let Some(net) = &self.node.net else { return Err(CallError::NoActor) };
        let headers = self.stamp()?;
        let asked = cx.send_abroad(grant, |abroad| {
            let (node, name) = (self.node.clone(), self.name.clone());
            let paid = (grant, Home::Task(abroad.clone()));
            let call = Call::new(net, |tell| call::ask(node, name, headers, payload, paid, timeout, tell));
            cx.await_future(call).unwrap_or(Err(CallError::NotPermitted))
        });
        asked.map_err(|unpayable| CallError::Refused(AskError::Unpayable(unpayable)))?
    }

    /// As [`Remote::ask`], from outside of the runtime. The grant is of this node's root pool.
    pub async fn ask_outside(
        &self,
        payload: Vec<u8>,
        grant: Pool,
        timeout: Duration,
    ) -> Result<Vec<u8>, CallError> {
        let Some(net) = &self.node.net else { return Err(CallError::NoActor) };
        let headers = self.stamp()?;
        let unpayable = |unpayable| CallError::Refused(AskError::Unpayable(unpayable));
        self.node.runtime.withdraw(&grant).map_err(unpayable)?;
        let paid = (grant, Home::Root(self.node.runtime.clone()));
        let (node, name) = (self.node.clone(), self.name.clone());
        Call::new(net, |tell| call::ask(node, name, headers, payload, paid, timeout, tell)).await
    }

    /// Sends a message without a grant: the actor's node pays for it, as its terms say.
    pub async fn ask_unpaid(&self, payload: Vec<u8>, timeout: Duration) -> Result<Vec<u8>, CallError> {
        call::ask_unpaid(&self.node, &self.name, self.stamp()?, payload, timeout).await
    }
}
