//! Where each grant is: one record for each on the server, changed by compare-and-set alone.
//!
//! ```text
//! (none) ──take──> Taken ──settle──> Settled      the rest is the sender's again
//!    │                └────lose────> Lost         the receiver never settled: a loss, with its reason
//!    └──reclaim──> Reclaimed                      the whole is the sender's again
//! ```
//!
//! Conserved: whoever makes the first record has the amount: the receiver that takes it, or the sender that takes it back. Each
//! record leads on to at most one other. A record is kept for much longer than a grant is valid, so that a node that starts again
//! cannot spend an old grant.

use crate::bucket;
use crate::connect::Connection;
use crate::error::Error;
use crate::grant::{Amount, LONGEST_VALIDITY};
use async_nats::jetstream::kv;
use serde::{Deserialize, Serialize};

/// The bucket's name.
pub const BUCKET: &str = "mainspring-grants";

/// The record of one grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The whole of it.
    pub amount: Amount,
    /// Where it is.
    pub state: Record,
}

/// What has become of a grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// A node spends it.
    Taken {
        /// Which node, which of its lives, and at which attempt.
        by: String,
    },
    /// It was spent but for this rest.
    Settled {
        /// By whom.
        by: String,
        /// What is left.
        rest: Amount,
    },
    /// Its sender has it back, whole.
    Reclaimed,
    /// The one that took it never said what is left.
    Lost {
        /// Who took it.
        by: String,
    },
}

/// What was left of one grant, in a record of many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settlement {
    /// The grant.
    pub id: String,
    /// The whole of it.
    pub amount: Amount,
    /// Who spent it.
    pub by: String,
    /// What is left.
    pub rest: Amount,
}

/// One value of the bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// The record of one grant, under its id.
    One(Entry),
    /// Grants between two lives that know each other, which were settled: under a key of its own.
    Many(Vec<Settlement>),
}

impl Value {
    /// The records that it has, each with its grant's id. `key` is where it was found.
    pub fn entries(self, key: &str) -> Vec<(String, Entry)> {
        match self {
            Self::One(entry) => vec![(key.to_owned(), entry)],
            Self::Many(many) => many
                .into_iter()
                .map(|Settlement { id, amount, by, rest }| {
                    (id, Entry { amount, state: Record::Settled { by, rest } })
                })
                .collect(),
        }
    }
}

/// The records of all grants.
#[derive(Clone, Debug)]
pub struct Spent(kv::Store);

impl Spent {
    /// Opens the bucket, and makes it if there is none.
    pub async fn open(on: &Connection) -> Result<Self, Error> {
        // All that a grant goes through is kept: whoever reads the bucket can check each step.
        bucket::open(on, BUCKET, 4, LONGEST_VALIDITY * 24).await.map(Self)
    }

    /// Makes the first record of a grant, or returns the one that is there. When the server's answer is lost, the record that it kept
    /// is read: so the caller learns who was first in any case, or an error.
    pub async fn first(&self, id: &str, amount: Amount, state: Record) -> Result<Record, Error> {
        match self.0.create(id, encode(amount, &state)).await {
            Ok(_) => Ok(state),
            Err(error) => match self.read(id).await? {
                Some((_, there)) => Ok(there.state),
                None => Err(Error::nats("recording a grant", error)),
            },
        }
    }

    /// Records many settlements at once, under a new key. True if the server has them.
    pub(crate) async fn settle_many(&self, key: &str, many: &[Settlement]) -> bool {
        let value = bytes::Bytes::from(serde_json::to_vec(many).unwrap_or_default());
        // If the answer was lost, the record is there.
        self.0.create(key, value.clone()).await.is_ok()
            || self.0.get(key).await.is_ok_and(|there| there == Some(value))
    }

    /// Goes on from `Taken` by this life to `next`. Returns the record that is there afterwards, which may be another's; `None` if nobody
    /// has taken the grant.
    pub async fn go_on(&self, id: &str, by: &str, next: &Record) -> Result<Option<Record>, Error> {
        let Some((revision, there)) = self.read(id).await? else { return Ok(None) };
        if there.state != (Record::Taken { by: by.to_owned() }) {
            return Ok(Some(there.state));
        }
        match self.0.update(id, encode(there.amount, next), revision).await {
            Ok(_) => Ok(Some(next.clone())),
            Err(error) => match self.read(id).await? {
                Some((_, now)) if now != there => Ok(Some(now.state)),
                _ => Err(Error::nats("settling a grant", error)),
            },
        }
    }

    /// The record of a grant, with its revision.
    pub async fn read(&self, id: &str) -> Result<Option<(u64, Entry)>, Error> {
        let entry = self.0.entry(id).await.map_err(|error| Error::nats("reading a grant", error))?;
        entry
            .map(|entry| {
                let record = serde_json::from_slice(&entry.value);
                record
                    .map(|record| (entry.revision, record))
                    .map_err(|error| Error::nats("reading a grant", error))
            })
            .transpose()
    }
}

fn encode(amount: Amount, state: &Record) -> bytes::Bytes {
    serde_json::to_vec(&Entry { amount, state: state.clone() }).unwrap_or_default().into()
}
