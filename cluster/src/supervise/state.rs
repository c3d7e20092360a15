//! What an actor keeps on the server from one generation to the next, behind a fence.
//!
//! Conserved: each value says which generation wrote it, and is written by compare-and-set on the value before. A generation that begins
//! writes first, under its own number. From then on the server refuses whatever an earlier generation writes, however late it comes.

use crate::bucket;
use crate::connect::Connection;
use crate::error::Error;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::kv::{Store, UpdateError};
use bytes::Bytes;
use std::error::Error as _;
use std::fmt;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The bucket's name.
pub const BUCKET: &str = "mainspring-state";

/// How long a write is tried.
const PATIENCE: Duration = Duration::from_secs(5);

/// A state was not saved.
#[derive(Debug)]
#[non_exhaustive]
pub enum SaveError {
    /// A later generation has begun, or the node's lease is over: this one must not act any more.
    Superseded,
    /// The server did not answer in time. Whether the state was saved is not known.
    Unanswered,
    /// The state is larger than the server takes. It was not saved.
    TooLarge,
    /// The server has no room for it. It was not saved.
    StorageFull,
    /// The task may not wait for futures: it has no `CapExecutor`.
    NotPermitted,
}

impl fmt::Display for SaveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Superseded => "a later generation of the actor has begun",
            Self::Unanswered => "the server did not answer in time",
            Self::TooLarge => "the state is larger than the server takes (max_payload)",
            Self::StorageFull => "the NATS server has no room left; make room where it stores",
            Self::NotPermitted => "the task may not wait for futures; it needs CapExecutor",
        })
    }
}

impl std::error::Error for SaveError {}

pub(crate) async fn open(on: &Connection) -> Result<Store, Error> {
    bucket::open(on, BUCKET, 1, Duration::ZERO).await
}

/// One actor's state, written by one generation.
#[derive(Debug)]
pub struct Fenced {
    store: Store,
    key: String,
    generation: u64,
    revision: u64,
}

fn encode(generation: u64, bytes: &[u8]) -> Bytes {
    [&generation.to_be_bytes(), bytes].concat().into()
}

/// The generation that wrote a value, and what it wrote.
pub fn decode(value: &[u8]) -> Option<(u64, &[u8])> {
    let (generation, bytes) = value.split_first_chunk()?;
    Some((u64::from_be_bytes(*generation), bytes))
}

impl Fenced {
    /// Puts up the fence for this generation, and returns what the last one saved.
    pub async fn take_over(
        store: Store,
        actor: &str,
        generation: u64,
    ) -> Result<(Self, Option<Vec<u8>>), SaveError> {
        let key = actor.replace('/', ".");
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let Ok(entry) = store.entry(&key).await else {
                sleep(Duration::from_millis(50)).await;
                continue;
            };
            let (revision, value) = entry.map_or((0, Bytes::new()), |entry| (entry.revision, entry.value));
            let (there, bytes) = decode(&value).unwrap_or((0, &[]));
            if there > generation {
                return Err(SaveError::Superseded);
            }
            if let Ok(revision) = store.update(&key, encode(generation, bytes), revision).await {
                let saved = (there > 0).then(|| bytes.to_vec());
                return Ok((Self { store, key, generation, revision }, saved));
            }
        }
        Err(SaveError::Unanswered)
    }

    /// Saves, unless a later generation has begun. Returns the revision of the record.
    pub async fn save(&mut self, bytes: &[u8]) -> Result<u64, SaveError> {
        let began = Instant::now();
        let value = encode(self.generation, bytes);
        let mut last = SaveError::Unanswered;
        while began.elapsed() < PATIENCE {
            let refused = match self.store.update(&self.key, value.clone(), self.revision).await {
                Ok(revision) => {
                    self.revision = revision;
                    return Ok(revision);
                }
                Err(error) if is_too_large(&error) => return Err(SaveError::TooLarge),
                Err(error) => Error::nats("saving a state", error),
            };
            last = SaveError::Unanswered;
            // The answer was lost, or somebody else has written, or there is no room.
            match self.store.entry(&self.key).await {
                Ok(Some(entry)) if entry.revision == self.revision => {
                    if matches!(refused, Error::StorageFull) {
                        last = SaveError::StorageFull;
                    }
                }
                Ok(Some(entry)) if entry.value == value => {
                    self.revision = entry.revision;
                    return Ok(entry.revision);
                }
                Ok(_) => return Err(SaveError::Superseded),
                Err(_) => {}
            }
            sleep(Duration::from_millis(20)).await;
        }
        Err(last)
    }
}

/// Whether the client did not even send it.
fn is_too_large(error: &UpdateError) -> bool {
    let cause = error.source().and_then(|source| source.downcast_ref::<PublishError>());
    cause.is_some_and(|cause| cause.kind() == PublishErrorKind::MaxPayloadExceeded)
}
