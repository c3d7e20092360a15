//! What this host allows, and what to do about each thing that it does not.
//!
//! Each check answers with a [`Finding`]. A check that can try the thing itself tries it: a right that is only read off
//! a setting may still be taken away by a container.

mod cpus;
mod grants;
mod kernel;

pub(crate) use grants::deadline_refusal;

use crate::cgroup::Hierarchies;
use serde::Serialize;
use std::fmt;
use std::path::Path;

/// How good an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// All that Mainspring can use.
    Good,
    /// It works, with a limit that is named.
    Limited,
    /// It is not to be had.
    Missing,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Good => "good",
            Self::Limited => "limited",
            Self::Missing => "missing",
        })
    }
}

/// The answer of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at: a stable word for programs.
    pub topic: &'static str,
    /// How good it is.
    pub status: Status,
    /// What was found.
    pub found: String,
    /// What to do about it, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Finding {
    fn good(topic: &'static str, found: impl Into<String>) -> Self {
        Self { topic, status: Status::Good, found: found.into(), advice: None }
    }

    fn limited(topic: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { topic, status: Status::Limited, found: found.into(), advice: Some(advice.into()) }
    }

    fn missing(topic: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { topic, status: Status::Missing, found: found.into(), advice: Some(advice.into()) }
    }
}

/// Asks the host everything.
#[must_use]
pub fn examine() -> Vec<Finding> {
    let hierarchies = Hierarchies::discover().unwrap_or_default();
    let mut findings = grants::examine(&hierarchies);
    findings.extend(cpus::examine(Path::new("/sys/devices/system/cpu")));
    findings.extend(kernel::examine());
    findings
}

/// The text of a file of `/proc` or `/sys`, trimmed; `None` if there is none.
fn read(path: impl AsRef<Path>) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}
