//! A message to an actor of another node, and what becomes of its grant.
//!
//! Conserved: from when the grant leaves until it is over, the node's ledger has it in flight. It is over by a receipt, by the record
//! that says what is left, by taking it back before anybody took it, or as a loss with its reason; and only once.

use crate::grant::{Amount, Grant, LONGEST_VALIDITY, Receipt, Signed, Trusted, Worthless, now_ms};
use crate::ledger::Reason;
use crate::node::{Net, Shared};
use crate::session::{Asked, Kind, Outgoing, Standing, Within};
use crate::spent::{Record, Settlement};
use crate::text::Text as _;
use crate::wire::{self, Status};
use async_nats::client::RequestErrorKind;
use async_nats::{HeaderMap, Request};
use mainspring::actor::border::Abroad;
use mainspring::{AskError, Component, Pool, Runtime};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

/// A message to another node has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError {
    /// No node serves an actor of this name.
    NoActor,
    /// Its mailbox was full for as long as the sender waited.
    Busy,
    /// Time was over. What is left of the grant comes back when that is known.
    TimedOut,
    /// The actor used up the grant of this component.
    Exhausted(Component),
    /// The actor failed, or ended before it.
    Failed,
    /// The other node does not accept the grant.
    Worthless(Worthless),
    /// The other node does not spend anything on messages without a grant.
    Unpaid,
    /// The message is larger than the server takes.
    TooLarge,
    /// It was handled, and its reply is larger than the server takes.
    ReplyTooLarge,
    /// The other node could not record the grant: its server does not answer, or has no room.
    Unrecorded,
    /// The server has no room for what it should keep.
    StorageFull,
    /// The message's id has a line break.
    BadId,
    /// The task may not wait for futures: it has no `CapExecutor`.
    NotPermitted,
    /// The actor, or the one that asks, has been started anew elsewhere. Whether the message was handled is not known.
    Superseded,
    /// As for an actor of this process.
    Refused(AskError),
}

impl CallError {
    pub(crate) fn of(error: AskError) -> Self {
        match error {
            AskError::Exhausted(component) => Self::Exhausted(component),
            AskError::Failed => Self::Failed,
            AskError::TimedOut => Self::TimedOut,
            other => Self::Refused(other),
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoActor => f.write_str("no node serves an actor of this name"),
            Self::Busy => f.write_str("the actor's mailbox stayed full; send less, or wait longer"),
            Self::TimedOut => f.write_str("time was over"),
            Self::Exhausted(component) => write!(f, "it ran out of {component}; grant more"),
            Self::Failed => f.write_str("the actor failed or ended"),
            Self::Worthless(why) => write!(f, "the other node does not accept the grant: {why}"),
            Self::Unpaid => f.write_str("the other node spends nothing on messages without a grant"),
            Self::TooLarge => f.write_str("the message is larger than the server takes (max_payload)"),
            Self::ReplyTooLarge => {
                f.write_str("it was handled, and the reply is larger than the server takes (max_payload)")
            }
            Self::Unrecorded => f.write_str(
                "the other node could not record the grant; see whether its NATS server answers and has room",
            ),
            Self::StorageFull => f.write_str("the NATS server has no room left; make room where it stores"),
            Self::BadId => f.write_str("the message's id has a line break"),
            Self::NotPermitted => f.write_str("the task may not wait for futures; it needs CapExecutor"),
            Self::Superseded => f.write_str("another generation of the actor has begun; ask again"),
            Self::Refused(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for CallError {}

/// Where what is left of a grant goes.
pub(crate) enum Home {
    /// To the task that sent it, or to the root pool if that has gone.
    Task(Abroad),
    /// To the root pool.
    Root(Arc<Runtime>),
}

impl Home {
    fn bring_back(&self, rest: &Pool) {
        match self {
            // The ledger has seen to it that it is no more than went out, and once.
            Self::Task(abroad) => {
                let _ = abroad.bring_back(rest);
            }
            Self::Root(runtime) => runtime.deposit(rest),
        }
    }
}

/// How long a sender waits before it tries a full mailbox again: twice as long each time, between these.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));

/// How often the record of a grant is looked at that has no receipt.
const LOOK: Duration = Duration::from_millis(300);

/// A grant on its way.
struct Sent {
    node: Arc<Shared>,
    grant: Grant,
    home: Home,
    /// The life that it names.
    session: Option<Arc<Outgoing>>,
}

impl Sent {
    /// It is over, and this is left.
    fn settle(&self, rest: Amount) {
        if self.node.ledger.settle(&self.grant.id, rest.into()) {
            self.home.bring_back(&rest.into());
        } else {
            // More than was granted: whoever says so is not believed, and what there was is lost. Or it was over before.
            let _ = self.node.ledger.lose(&self.grant.id, Reason::BadReceipt);
        }
    }

    /// The receipt, if it is from the one that could take the grant, and for it.
    fn receipt(&self, signed: &Signed) -> Result<Receipt, Worthless> {
        let Some(session) = &self.session else {
            return self.node.terms.trusted.receipt(signed, &self.grant);
        };
        session.key.verify(Kind::Receipt, signed)?;
        let receipt = Receipt::read(&signed.text)?;
        Trusted::is_about(&receipt, &self.grant)?;
        Ok(receipt)
    }

    /// Finds out what has become of it, however long that takes.
    async fn resolve(self) {
        let Some(net) = &self.node.net else { return };
        let lost_after = self.grant.expires_ms + self.node.terms.grace.as_millis() as u64;
        loop {
            let first = match (&self.session, &self.grant.within) {
                (Some(session), Some(within)) => self.standing(net, session, within, lost_after).await,
                // Whoever makes the first record has it.
                _ => Some(Record::Reclaimed),
            };
            let Some(first) = first else {
                sleep(LOOK).await;
                continue;
            };
            match net.spent.first(&self.grant.id, self.grant.amount, first).await {
                Ok(Record::Taken { by }) if now_ms() > lost_after => {
                    // Whatever this comes to is there at the next look.
                    let lost = Record::Lost { by: by.clone() };
                    if !matches!(net.spent.go_on(&self.grant.id, &by, &lost).await, Ok(Some(_))) {
                        sleep(LOOK).await;
                    }
                    continue;
                }
                Ok(Record::Taken { .. }) | Err(_) => {
                    sleep(LOOK).await;
                    continue;
                }
                Ok(Record::Reclaimed) => self.settle(self.grant.amount),
                Ok(Record::Settled { rest, .. }) => self.settle(rest),
                Ok(Record::Lost { .. }) => {
                    let _ = self.node.ledger.lose(&self.grant.id, Reason::NeverSettled);
                }
            }
            self.is_recorded();
            return;
        }
    }

    /// Asks the life that the grant names, and says which record follows. `None` if that is not known yet.
    async fn standing(
        &self,
        net: &Net,
        session: &Outgoing,
        within: &Within,
        lost_after: u64,
    ) -> Option<Record> {
        let asked = Asked { id: self.grant.id.clone(), within: within.clone(), standing: None };
        let mut headers = HeaderMap::new();
        wire::write_signed(&mut headers, wire::GRANT, &session.key.sign(Kind::Void, &asked));
        let request = Request::new().headers(headers).timeout(Some(LOOK));
        let subject = wire::standing_subject(&session.life);
        if let Ok(reply) = net.calls.client.send_request(subject, request).await
            && let Some(signed) = wire::signed_in(reply.headers.as_ref(), wire::RECEIPT)
            && session.key.verify(Kind::Voided, &signed).is_ok()
            && let Ok(answer) = Asked::read(&signed.text)
            && answer.within == *within
            && answer.id == self.grant.id
        {
            match answer.standing? {
                Standing::Void => return Some(Record::Reclaimed),
                Standing::Settled { by, rest } => return Some(Record::Settled { by, rest }),
                Standing::Taken => {}
            }
        }
        // The life may have written its record and ended.
        if let Ok(Some((_, entry))) = net.spent.read(&self.grant.id).await {
            return Some(entry.state);
        }
        (now_ms() > lost_after).then(|| Record::Lost { by: session.life.clone() })
    }

    /// The server has its record.
    fn is_recorded(&self) {
        if let (Some(session), Some(within)) = (&self.session, &self.grant.within) {
            session.recorded(within.number);
        }
    }

    /// Whether the record of a signed grant says the same as its receipt: any node that is believed could sign one, but the record says who
    /// has taken the grant. Where there is no record, nobody has. `None` if the server does not say.
    async fn is_confirmed(&self, net: &Net, receipt: &Receipt) -> Option<bool> {
        let settled = Record::Settled { by: receipt.by.clone(), rest: receipt.rest };
        let recorded = net.spent.go_on(&receipt.id, &receipt.by, &settled).await;
        recorded.ok().map(|recorded| recorded == Some(settled))
    }

    /// Has a record say what the receipt does, with others. The other node does so, too, if it does not learn of it: one of the two lives
    /// on.
    fn record(self, net: &Net, receipt: Receipt) {
        let Receipt { id, by, rest } = receipt;
        if let (Some(session), Some(within)) = (self.session, &self.grant.within) {
            let settled = Settlement { id, amount: self.grant.amount, by, rest };
            net.batches.add(settled, session, within.number);
        }
    }
}

/// How a message gets to an actor, and what authenticates its grant.
struct Route {
    session: Arc<Outgoing>,
    subject: String,
    generation: Option<u64>,
}

impl Route {
    /// To the life that handled the last message, if there is one.
    fn known(node: &Shared, name: &str) -> Option<Self> {
        let generation = node.directory.generation(name).filter(|_| wire::is_supervised(name));
        let session = node.sessions.to(&known_as(name, generation))?;
        let subject = match generation {
            Some(generation) => wire::supervised_subject(name, generation),
            None => wire::life_subject(&session.life, name),
        };
        Some(Self { session, subject, generation })
    }
}

/// What a session is kept under.
fn known_as(name: &str, generation: Option<u64>) -> String {
    generation.map_or_else(|| name.to_owned(), |generation| format!("{name}/{generation}"))
}

/// Sends a message with a grant, and tells what came of it. The grant is accounted for even if nobody listens any more.
pub(crate) async fn ask(
    node: Arc<Shared>,
    name: String,
    headers: HeaderMap,
    payload: Vec<u8>,
    (amount, home): (Pool, Home),
    timeout: Duration,
    mut tell: Tell,
) -> Result<Vec<u8>, CallError> {
    let deadline = Instant::now() + timeout;
    let message = Outgo { name, headers, payload: payload.into() };
    let home = match Route::known(&node, &message.name) {
        Some(route) => match attempt(&node, &message, amount, home, deadline, &mut tell, Some(route)).await {
            Ok(reply) => return reply,
            // Nobody is there any more: whoever serves the name now has not heard of it.
            Err(home) => home,
        },
        None => home,
    };
    let Some(net) = &node.net else { return Err(CallError::NoActor) };
    let tokio = net.tokio.clone();
    // A signature and a record take more stack than a task may have, and this is rare.
    let first = tokio.spawn(async move {
        let sent = attempt(&node, &message, amount, home, deadline, &mut tell, None).await;
        sent.unwrap_or(Err(CallError::NoActor))
    });
    first.await.unwrap_or(Err(CallError::Failed))
}

/// A message on its way out.
struct Outgo {
    name: String,
    headers: HeaderMap,
    payload: bytes::Bytes,
}

/// Closed when nobody waits for the reply any more.
pub(crate) type Tell = oneshot::Sender<()>;

/// A call that is made where it is waited for. If it is not waited for any more, it goes on by itself: somebody has to find out what became
/// of the grant.
pub(crate) struct Call<F: Future<Output = Result<Vec<u8>, CallError>> + Send + 'static> {
    call: Option<Pin<Box<F>>>,
    waits: Option<oneshot::Receiver<()>>,
    tokio: Handle,
    /// Whose clock it has where it is polled without any Tokio.
    calls_tokio: Handle,
}

impl<F: Future<Output = Result<Vec<u8>, CallError>> + Send + 'static> Call<F> {
    pub(crate) fn new(net: &Net, call: impl FnOnce(Tell) -> F) -> Self {
        let (tell, waits) = oneshot::channel();
        let (tokio, calls_tokio) = (net.tokio.clone(), net.calls_tokio.clone());
        Self { call: Some(Box::pin(call(tell))), waits: Some(waits), tokio, calls_tokio }
    }
}

impl<F: Future<Output = Result<Vec<u8>, CallError>> + Send + 'static> Future for Call<F> {
    type Output = Result<Vec<u8>, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        // It may be polled by a worker of the other runtime.
        let _within = Handle::try_current().is_err().then(|| this.calls_tokio.enter());
        let Some(call) = &mut this.call else { return Poll::Ready(Err(CallError::Failed)) };
        let polled = call.as_mut().poll(context);
        if polled.is_ready() {
            this.call = None;
        }
        polled
    }
}

impl<F: Future<Output = Result<Vec<u8>, CallError>> + Send + 'static> Drop for Call<F> {
    fn drop(&mut self) {
        self.waits = None;
        if let Some(call) = self.call.take() {
            self.tokio.spawn(call);
        }
    }
}

/// Sends a message with one grant. If nobody got it by the route, it is as before, and can be sent otherwise.
async fn attempt(
    node: &Arc<Shared>,
    Outgo { name, headers, payload }: &Outgo,
    amount: Pool,
    home: Home,
    deadline: Instant,
    tell: &mut Tell,
    route: Option<Route>,
) -> Result<Result<Vec<u8>, CallError>, Home> {
    let Some(net) = &node.net else { return Ok(Err(CallError::NoActor)) };
    let left = deadline.saturating_duration_since(Instant::now());
    let validity = (left + node.terms.grace).min(LONGEST_VALIDITY - Duration::from_secs(60));
    let id = net.calls.client.new_inbox().rsplit('.').next().unwrap_or_default().to_owned();
    let session = route.as_ref().map(|route| route.session.clone());
    let grant = Grant {
        id: id.clone(),
        from: node.identity.name.clone(),
        to: name.clone(),
        amount: amount.into(),
        expires_ms: now_ms() + validity.as_millis() as u64,
        within: session.as_ref().map(|session| session.within(&node.life)),
    };
    let signed = match &session {
        Some(session) => session.key.sign(Kind::Grant, &grant),
        None => node.identity.sign(&grant),
    };
    node.ledger.send(&id, amount);
    let sent = Sent { node: node.clone(), grant, home, session };
    let ended = tokio::select! {
        ended = request(node, net, name, (headers, Some(&signed)), payload, deadline, route.as_ref()) => ended,
        // The task was cancelled.
        () = tell.closed() => Err(CallError::TimedOut),
    };
    if let (Err(_), Some(route)) = (&ended, &route) {
        // That life may have ended: the next message goes to whoever serves the name.
        node.sessions.forget(&known_as(name, route.generation), &route.session);
    }
    match ended {
        Err(CallError::NoActor) if let Some(session) = sent.session.clone() => {
            // The server says that nobody got it. It goes on with another grant.
            let _ = node.ledger.settle(&id, amount);
            let Sent { home, grant, .. } = sent;
            let (spent, whole) = (net.spent.clone(), grant.amount);
            net.tokio.spawn(async move {
                while spent.first(&grant.id, whole, Record::Reclaimed).await.is_err() {
                    sleep(LOOK).await;
                }
                if let Some(within) = &grant.within {
                    session.recorded(within.number);
                }
            });
            Err(home)
        }
        Ok(replied) => {
            let receipt = replied.receipt.and_then(|signed| sent.receipt(&signed).ok());
            let confirmed = match &receipt {
                None => Some(false),
                Some(receipt) if sent.session.is_none() => sent.is_confirmed(net, receipt).await,
                Some(_) => Some(true),
            };
            let Some(receipt) = receipt.filter(|_| confirmed == Some(true)) else {
                // Refused before it was taken, or said by somebody who has no right to: the record knows.
                resolve_soon(net, sent).await;
                if let Some(route) = &route {
                    // If that life does not take what names it, the next message goes to whoever serves the name.
                    node.sessions.forget(&known_as(name, route.generation), &route.session);
                }
                let is_believed = confirmed.is_none();
                return Ok(if is_believed {
                    replied.result
                } else {
                    replied.result.and(Err(CallError::Failed))
                });
            };
            sent.settle(receipt.rest);
            match &sent.session {
                Some(_) => sent.record(net, receipt),
                None => {
                    let (key, me) = (known_as(name, replied.generation), &node.identity);
                    node.sessions.learn(me, &node.terms.trusted, &node.life, &key, &receipt.by);
                }
            }
            Ok(replied.result)
        }
        Err(error) => {
            let _ = net.calls.client.publish(wire::cancel_subject(name), id.into()).await;
            resolve_soon(net, sent).await;
            Ok(Err(error))
        }
    }
}

/// Resolves it, and waits for that a moment: mostly its rest is back with the reply.
async fn resolve_soon(net: &Net, sent: Sent) {
    let resolving = net.tokio.spawn(sent.resolve());
    let _ = tokio::time::timeout(LOOK, resolving).await;
}

/// Sends a message without a grant.
pub(crate) async fn ask_unpaid(
    node: &Shared,
    name: &str,
    mut headers: HeaderMap,
    payload: Vec<u8>,
    timeout: Duration,
) -> Result<Vec<u8>, CallError> {
    let net = node.net.as_ref().ok_or(CallError::NoActor)?;
    headers.insert(wire::ID, net.calls.client.new_inbox().as_str());
    let deadline = Instant::now() + timeout;
    request(node, net, name, (&headers, None), &payload.into(), deadline, None).await?.result
}

/// What a node replied.
struct Replied {
    result: Result<Vec<u8>, CallError>,
    receipt: Option<Signed>,
    /// Of the supervised actor that was asked.
    generation: Option<u64>,
}

/// Sends until somebody takes it or time is over. What was taken, or may have been, is not sent again.
async fn request(
    node: &Shared,
    net: &Net,
    name: &str,
    (headers, grant): (&HeaderMap, Option<&Signed>),
    payload: &bytes::Bytes,
    deadline: Instant,
    route: Option<&Route>,
) -> Result<Replied, CallError> {
    let is_supervised = wire::is_supervised(name);
    if !is_supervised && !wire::is_name(name) {
        return Err(CallError::NoActor);
    }
    let mut pause = BACKOFF.0;
    let mut last = CallError::TimedOut;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(last);
        }
        let generation = match route {
            Some(route) => route.generation,
            None => node.directory.generation(name).filter(|_| is_supervised),
        };
        let subject = match generation {
            _ if let Some(route) = route => route.subject.clone(),
            Some(generation) => wire::supervised_subject(name, generation),
            None if is_supervised => {
                last = CallError::NoActor;
                sleep(pause.min(left)).await;
                pause = (pause * 2).min(BACKOFF.1);
                continue;
            }
            None => wire::actor_subject(name),
        };
        let mut headers = headers.clone();
        if let Some(grant) = grant {
            wire::write_signed(&mut headers, wire::GRANT, grant);
        }
        if let Some(generation) = generation {
            wire::write_generation(&mut headers, generation);
        }
        wire::write_deadline(&mut headers, left);
        let request = Request::new().headers(headers).payload(payload.clone()).timeout(Some(left));
        let replied = net.calls.client.send_request(subject, request).await;
        match replied {
            Ok(message) => {
                let status = Status::read(message.headers.as_ref());
                match status {
                    // It was not taken, and the next generation may take it.
                    Status::Superseded if route.is_none() => last = CallError::Superseded,
                    _ if generation.is_some_and(|generation| {
                        wire::generation(message.headers.as_ref()).is_some_and(|from| from != generation)
                            || node.directory.is_past(name, generation)
                    }) =>
                    {
                        return Err(CallError::Superseded);
                    }
                    Status::Busy if wire::signed_in(message.headers.as_ref(), wire::RECEIPT).is_none() => {
                        last = CallError::Busy;
                    }
                    _ => {
                        let receipt = wire::signed_in(message.headers.as_ref(), wire::RECEIPT);
                        let result = result(status, message.payload.to_vec());
                        return Ok(Replied { result, receipt, generation });
                    }
                }
            }
            Err(error) => match error.kind() {
                // It was never with anybody. After a reply, whoever sent that, only the receiver knows.
                RequestErrorKind::NoResponders if route.is_some() => {
                    return Err(if last == CallError::Busy { last } else { CallError::NoActor });
                }
                RequestErrorKind::NoResponders => last = CallError::NoActor,
                RequestErrorKind::MaxPayloadExceeded => return Err(CallError::TooLarge),
                // It may have been taken.
                _ => return Err(CallError::TimedOut),
            },
        }
        sleep(pause.min(deadline.saturating_duration_since(Instant::now()))).await;
        pause = (pause * 2).min(BACKOFF.1);
    }
}

fn result(status: Status, payload: Vec<u8>) -> Result<Vec<u8>, CallError> {
    match status {
        Status::Done => Ok(payload),
        Status::Busy => Err(CallError::Busy),
        Status::Failed | Status::TooLittle => Err(CallError::Failed),
        Status::Unrecorded => Err(CallError::Unrecorded),
        Status::ReplyTooLarge => Err(CallError::ReplyTooLarge),
        Status::Unpayable => Err(CallError::Unpaid),
        Status::Worthless(why) => Err(CallError::Worthless(why)),
        Status::Exhausted(component) => Err(CallError::Exhausted(component)),
        Status::Cancelled => Err(CallError::TimedOut),
        Status::Superseded => Err(CallError::Superseded),
    }
}
