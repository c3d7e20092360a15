//! Mailboxes that the server keeps: at least once, with ids.
//!
//! Conserved: a message leaves the mailbox when the actor has handled it, and not before. One that a node had when it died is handled
//! again, with the same id: an actor that remembers the ids that it has handled is not fooled. A mailbox takes as many messages as it has
//! room for, and a sender waits until one leaves. These messages carry no grant: the actor's node pays for them.

use crate::call::CallError;
use crate::connect::Connection;
use crate::error::Error;
use crate::node::{Actor, Message, Node};
use crate::wire;
use async_nats::jetstream::consumer::{AckPolicy, Consumer, pull};
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};
use async_nats::jetstream::{self, AckKind, ErrorCode};
use async_nats::{HeaderMap, HeaderValue};
use futures_util::StreamExt as _;
use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// How long the server remembers ids: what is sent again within it is kept once.
pub const REMEMBERED: Duration = Duration::from_secs(120);

/// How long the handler of one message may say nothing before the server gives the message to another node.
const PATIENCE: Duration = Duration::from_secs(5);

const PULL: Duration = Duration::from_secs(1);

fn stream_name(name: &str) -> String {
    format!("mainspring-mail-{name}")
}

fn subject(name: &str) -> String {
    format!("mainspring.mail.{name}")
}

/// The mailbox that the server keeps for one actor.
#[derive(Clone, Debug)]
pub struct DurableMailbox {
    on: Connection,
    name: String,
}

/// An actor that gets messages as long as this lives.
#[derive(Debug)]
#[must_use]
pub struct Served(JoinHandle<()>);

impl Drop for Served {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl DurableMailbox {
    /// Opens it, and makes it for `room` messages if there is none.
    pub async fn open(on: &Connection, name: &str, room: u32) -> Result<Self, Error> {
        if !wire::is_name(name) {
            return Err(Error::Name { name: name.to_owned() });
        }
        let config = Config {
            name: stream_name(name),
            subjects: vec![subject(name)],
            retention: RetentionPolicy::WorkQueue,
            storage: StorageType::File,
            discard: DiscardPolicy::New,
            max_messages: room.max(1).into(),
            duplicate_window: REMEMBERED,
            num_replicas: on.replicas,
            ..Config::default()
        };
        on.jetstream.get_or_create_stream(config).await.map_err(|e| Error::nats("making a mailbox", e))?;
        Ok(Self { on: on.clone(), name: name.to_owned() })
    }

    /// Sends a message, and returns when the server keeps it. It waits for room. After an error the message may have been kept: sent
    /// again with the same id, it is kept once.
    pub async fn tell(&self, id: &str, payload: Vec<u8>, timeout: Duration) -> Result<(), CallError> {
        let deadline = Instant::now() + timeout;
        let payload = bytes::Bytes::from(payload);
        let id: HeaderValue = id.parse().map_err(|_| CallError::BadId)?;
        let mut last;
        loop {
            let mut headers = HeaderMap::new();
            headers.insert(async_nats::header::NATS_MESSAGE_ID, id.clone());
            let context = &self.on.jetstream;
            let sent = async {
                context.publish_with_headers(subject(&self.name), headers, payload.clone()).await?.await
            };
            let left = deadline.saturating_duration_since(Instant::now());
            last = match tokio::time::timeout(left, sent).await {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(error)) if is_full(&error) => CallError::Busy,
                Ok(Err(error)) if error.kind() == PublishErrorKind::MaxPayloadExceeded => {
                    return Err(CallError::TooLarge);
                }
                Ok(Err(error)) if error.kind() == PublishErrorKind::StreamNotFound => CallError::NoActor,
                Ok(Err(error)) => match Error::nats("sending to a mailbox", error) {
                    Error::StorageFull => CallError::StorageFull,
                    _ => CallError::TimedOut,
                },
                Err(_) => CallError::TimedOut,
            };
            if Instant::now() + Duration::from_millis(50) >= deadline {
                return Err(last);
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// How many messages wait or are handled.
    pub async fn len(&self) -> Result<u64, Error> {
        let stream = self.on.jetstream.get_stream(stream_name(&self.name)).await;
        let mut stream = stream.map_err(|error| Error::nats("finding a mailbox", error))?;
        let info = stream.info().await.map_err(|error| Error::nats("looking at a mailbox", error))?;
        Ok(info.state.messages)
    }

    /// Whether there are none.
    pub async fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.len().await? == 0)
    }

    /// Hands its messages to an actor, one after the other. Several nodes may serve one mailbox: each message is with one at a time.
    pub async fn serve(&self, node: &Node, actor: Actor) -> Result<Served, Error> {
        let config = pull::Config {
            durable_name: Some("actor".into()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: PATIENCE,
            // One at a time: the order is that of the mailbox.
            max_ack_pending: 1,
            ..pull::Config::default()
        };
        let queue = self.on.jetstream.create_consumer_on_stream(config, stream_name(&self.name)).await;
        let queue = queue.map_err(|error| Error::nats("making a mailbox's queue", error))?;
        let node = node.clone();
        Ok(Served(tokio::spawn(async move {
            loop {
                // A server that is away comes back with what it kept.
                match next(&queue).await {
                    Some(message) => hand_over(&node, &actor, &message).await,
                    None => sleep(Duration::from_millis(20)).await,
                }
            }
        })))
    }
}

async fn next(queue: &Consumer<pull::Config>) -> Option<jetstream::Message> {
    let mut batch = queue.batch().max_messages(1).expires(PULL).messages().await.ok()?;
    batch.next().await?.ok()
}

/// Has the actor handle one message, and takes it off the mailbox afterwards.
async fn hand_over(node: &Node, actor: &Actor, message: &jetstream::Message) {
    let id = message.headers.as_ref().and_then(|headers| headers.get(async_nats::header::NATS_MESSAGE_ID));
    let id = id.map(|id| id.as_str().to_owned()).unwrap_or_default();
    let later = |after| AckKind::Nak(Some(after));
    let (runtime, unpaid) = (&node.0.runtime, node.0.terms.unpaid);
    if runtime.withdraw(&unpaid).is_err() {
        // Another node may have more, or this one later.
        let _ = message.ack_with(later(PATIENCE)).await;
        return;
    }
    let (tx, mut rx) = oneshot::channel();
    let never = Arc::new(AtomicBool::new(false));
    let given = Message { id, payload: message.payload.to_vec() };
    let sent = runtime.send_from_outside(actor, given, unpaid, never, move |reply, left| {
        let _ = tx.send((reply.is_ok(), left));
    });
    if sent.is_err() {
        runtime.deposit(&unpaid);
        let _ = message.ack_with(later(Duration::from_millis(100))).await;
        return;
    }
    let told = loop {
        tokio::select! {
            told = &mut rx => break told,
            () = sleep(PATIENCE / 3) => {
                let _ = message.ack_with(AckKind::Progress).await;
            }
        }
    };
    let handled = match told {
        Ok((handled, left)) => {
            runtime.deposit(&left);
            handled
        }
        Err(_) => false,
    };
    // An acknowledgement that is lost brings the message again, as a crash does.
    let _ = if handled {
        message.double_ack().await
    } else {
        message.ack_with(later(Duration::from_millis(100))).await
    };
}

/// Whether the mailbox had no room.
fn is_full(error: &PublishError) -> bool {
    let cause = error.source().and_then(|source| source.downcast_ref::<jetstream::Error>());
    cause.is_some_and(|cause| {
        cause.error_code() == ErrorCode::STREAM_STORE_FAILED
            && cause.to_string().contains("maximum messages exceeded")
    })
}
