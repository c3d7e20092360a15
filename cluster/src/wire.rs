//! How messages look on the server: subjects, headers and statuses.

use crate::grant::{Signed, Worthless};
use crate::session;
use async_nats::HeaderMap;
use mainspring::{AskError, Component};
use std::time::Duration;

/// A signed grant.
pub const GRANT: &str = "Mainspring-Grant";
/// A signed receipt.
pub const RECEIPT: &str = "Mainspring-Receipt";
/// The id of a message without a grant.
pub(crate) const ID: &str = "Mainspring-Id";
/// How many milliseconds its sender waits.
const WAITS: &str = "Mainspring-Waits";
const STATUS: &str = "Mainspring-Status";
/// The generation of the actor that a message is for, or that a reply is from.
const GENERATION: &str = "Mainspring-Generation";
/// The supervised actor that sends, and its generation.
const FROM: &str = "Mainspring-From";

/// Our headers take less than this, whatever the names in them.
const MOST_OF_HEADERS: usize = 1_024;

/// Whether it can be part of a subject, and the key of a bucket.
pub fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// Where messages for an actor go.
pub fn actor_subject(name: &str) -> String {
    format!("mainspring.actor.{name}")
}

/// Where messages for one generation of a supervised actor go. Its name is `GROUP/CHILD`.
pub fn supervised_subject(name: &str, generation: u64) -> String {
    format!("mainspring.supervised.{}.{generation}", name.replace('/', "."))
}

/// Where messages for an actor of one life of a node go. The node's name is part of it, so that the server can allow it to that node alone.
pub(crate) fn life_subject(life: &str, name: &str) -> String {
    format!("mainspring.life.{}.{}.{name}", session::node_of(life), session::token(life))
}

/// Where one life of a node is asked what has become of a grant.
pub(crate) fn standing_subject(life: &str) -> String {
    format!("mainspring.standing.{}.{}", session::node_of(life), session::token(life))
}

/// Where the ids of messages go that nobody waits for any more.
pub(crate) fn cancel_subject(name: &str) -> String {
    format!("mainspring.cancel.{}", name.replace('/', "."))
}

/// Whether a reply may go there: to an inbox, or to what a server makes of one on its way between accounts and clusters, which clients cannot
/// ask for. A node may publish more than those who send to its actors, as to the server's own subjects: it must not do so for them.
pub(crate) fn takes_replies(subject: &str) -> bool {
    ["_INBOX.", "_R_.", "_GR_."].iter().any(|prefix| subject.starts_with(prefix))
}

/// Whether the server takes a message of this size, beside our headers.
pub(crate) fn fits(payload: &[u8], max_payload: usize) -> bool {
    payload.len() + MOST_OF_HEADERS <= max_payload
}

/// Whether it is the name of a supervised actor: `GROUP/CHILD`.
pub fn is_supervised(name: &str) -> bool {
    name.split_once('/').is_some_and(|(group, child)| is_name(group) && is_name(child))
}

pub(crate) fn write_generation(headers: &mut HeaderMap, generation: u64) {
    headers.insert(GENERATION, generation.to_string().as_str());
}

pub(crate) fn generation(headers: Option<&HeaderMap>) -> Option<u64> {
    headers?.get(GENERATION)?.as_str().parse().ok()
}

pub(crate) fn write_from(headers: &mut HeaderMap, name: &str, generation: u64) {
    headers.insert(FROM, format!("{name} {generation}").as_str());
}

pub(crate) fn from(headers: &HeaderMap) -> Option<(&str, u64)> {
    let (name, generation) = headers.get(FROM)?.as_str().split_once(' ')?;
    Some((name, generation.parse().ok()?))
}

pub(crate) fn write_signed(headers: &mut HeaderMap, what: &str, signed: &Signed) {
    headers.insert(what, signed.line());
}

pub(crate) fn signed(headers: &HeaderMap, what: &str) -> Option<Signed> {
    Some(Signed::of_line(headers.get(what)?.as_str()))
}

pub(crate) fn signed_in(headers: Option<&HeaderMap>, what: &str) -> Option<Signed> {
    signed(headers?, what)
}

pub(crate) fn write_deadline(headers: &mut HeaderMap, waits: Duration) {
    headers.insert(WAITS, waits.as_millis().to_string().as_str());
}

/// How long the sender waits from now on, if it says so.
pub(crate) fn deadline(headers: &HeaderMap) -> Option<Duration> {
    headers.get(WAITS)?.as_str().parse().ok().map(Duration::from_millis)
}

/// What a node says of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Done,
    /// Its mailbox has no room. Nothing was taken.
    Busy,
    /// It is not known whether the grant was taken.
    Unrecorded,
    /// The node does not have what it spends on a message without a grant.
    Unpayable,
    Worthless(Worthless),
    Exhausted(Component),
    /// Its sender did not wait any more when its turn came.
    Cancelled,
    /// The mailbox takes larger grants only.
    TooLittle,
    /// The sender's or the receiver's generation has passed. Nothing was taken.
    Superseded,
    /// It was handled, and its reply is larger than the server takes.
    ReplyTooLarge,
    Failed,
}

const WORTHLESS: [(&str, Worthless); 8] = [
    ("malformed", Worthless::Malformed),
    ("unknown-signer", Worthless::UnknownSigner),
    ("forged", Worthless::Forged),
    ("not-for-this", Worthless::NotForThis),
    ("expired", Worthless::Expired),
    ("spent", Worthless::Spent),
    ("over-limit", Worthless::OverLimit),
    ("too-much", Worthless::TooMuch),
];

impl Status {
    pub(crate) fn of(error: AskError) -> Self {
        match error {
            AskError::Exhausted(component) => Self::Exhausted(component),
            AskError::Refused(mainspring::Refusal::TimedOut | mainspring::Refusal::WouldBlock) => Self::Busy,
            AskError::TooLittle(_) => Self::TooLittle,
            _ => Self::Failed,
        }
    }

    fn words(self) -> (&'static str, String) {
        match self {
            Self::Done => ("done", String::new()),
            Self::Busy => ("busy", String::new()),
            Self::Unrecorded => ("unrecorded", String::new()),
            Self::Unpayable => ("unpayable", String::new()),
            Self::Cancelled => ("cancelled", String::new()),
            Self::TooLittle => ("too-little", String::new()),
            Self::Superseded => ("superseded", String::new()),
            Self::ReplyTooLarge => ("reply-too-large", String::new()),
            Self::Failed => ("failed", String::new()),
            Self::Exhausted(component) => ("exhausted", component.to_string()),
            Self::Worthless(why) => {
                let word =
                    WORTHLESS.iter().find(|(_, other)| *other == why).map_or("malformed", |(word, _)| word);
                ("worthless", word.to_owned())
            }
        }
    }

    pub(crate) fn write(self, headers: &mut HeaderMap) {
        match self.words() {
            (word, more) if more.is_empty() => headers.insert(STATUS, word),
            (word, more) => headers.insert(STATUS, format!("{word} {more}")),
        }
    }

    /// The status of a reply. One that cannot be read counts as failed.
    pub(crate) fn read(headers: Option<&HeaderMap>) -> Self {
        let Some(text) = headers.and_then(|headers| headers.get(STATUS)) else { return Self::Failed };
        let (word, more) = text.as_str().split_once(' ').unwrap_or((text.as_str(), ""));
        match word {
            "done" => Self::Done,
            "busy" => Self::Busy,
            "unrecorded" => Self::Unrecorded,
            "unpayable" => Self::Unpayable,
            "cancelled" => Self::Cancelled,
            "too-little" => Self::TooLittle,
            "superseded" => Self::Superseded,
            "reply-too-large" => Self::ReplyTooLarge,
            "exhausted" => Component::ALL
                .into_iter()
                .find(|component| component.to_string() == more)
                .map_or(Self::Failed, Self::Exhausted),
            "worthless" => {
                let why = WORTHLESS.iter().find(|(word, _)| *word == more);
                why.map_or(Self::Failed, |(_, why)| Self::Worthless(*why))
            }
            _ => Self::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_read_as_it_was_written() {
        let plain = [
            Status::Done,
            Status::Busy,
            Status::Unrecorded,
            Status::Unpayable,
            Status::Cancelled,
            Status::TooLittle,
            Status::Superseded,
            Status::ReplyTooLarge,
            Status::Failed,
        ];
        let worthless = WORTHLESS.iter().map(|(_, why)| Status::Worthless(*why));
        for status in plain.into_iter().chain(worthless).chain(Component::ALL.map(Status::Exhausted)) {
            let mut headers = HeaderMap::new();
            status.write(&mut headers);
            assert_eq!(Status::read(Some(&headers)), status);
        }
        assert_eq!(Status::read(None), Status::Failed);
    }

    #[test]
    fn names_cannot_reach_other_subjects() {
        for bad in ["", "a.b", "*", ">", "a b", "a\n", &"x".repeat(65)] {
            assert!(!is_name(bad), "{bad:?}");
        }
        assert!(is_name("sum-2_a"));
        for bad in ["a", "a/", "/a", "a/b/c", "a/*", "a.b/c"] {
            assert!(!is_supervised(bad), "{bad:?}");
        }
        assert!(is_supervised("a/b"));
    }
}
