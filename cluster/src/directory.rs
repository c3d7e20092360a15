//! Where supervised actors are: the latest generation of each that this node has seen.
//!
//! Conserved: a generation only grows here, so a message to or from one that has passed is never taken for the current one.

use crate::error::Error;
use crate::node::Node;
use crate::supervise::view::group_key;
use crate::supervise::{self, Group};
use futures_util::StreamExt as _;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// How long the server may say nothing before the watch is made anew.
const QUIET: Duration = Duration::from_secs(5);

/// The latest generation of each supervised actor, by its name.
#[derive(Debug, Default)]
pub(crate) struct Directory(Mutex<HashMap<String, u64>>);

impl Directory {
    fn inner(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A group's record was seen.
    pub(crate) fn saw(&self, name: &str, group: &Group) {
        let mut inner = self.inner();
        for (child, state) in group.spec.children.iter().zip(&group.states) {
            if state.generation > 0 {
                let there = inner.entry(format!("{name}/{}", child.name)).or_default();
                *there = state.generation.max(*there);
            }
        }
    }

    pub(crate) fn generation(&self, name: &str) -> Option<u64> {
        self.inner().get(name).copied()
    }

    /// Whether a later generation was seen.
    pub(crate) fn is_past(&self, name: &str, generation: u64) -> bool {
        self.generation(name).is_some_and(|latest| latest > generation)
    }
}

/// A node that knows where supervised actors are, as long as this lives.
#[derive(Debug)]
#[must_use]
pub struct Following(JoinHandle<()>);

impl Drop for Following {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Node {
    /// Learns where supervised actors are, and goes on to: from then on they are reached as `GROUP/CHILD`. A member does so by itself.
    pub async fn follow_groups(&self) -> Result<Following, Error> {
        let Some(net) = &self.0.net else { return Err(Error::NoJetStream) };
        let store = supervise::open(&net.on).await?;
        let shared = self.0.clone();
        Ok(Following(net.tokio.spawn(async move {
            loop {
                if let Ok(mut watch) = store.watch_with_history(group_key(">")).await {
                    while let Ok(Some(Ok(entry))) = tokio::time::timeout(QUIET, watch.next()).await {
                        if let (Some(("group", name)), Some(group)) =
                            (entry.key.split_once('.'), Group::read(&entry.value))
                        {
                            shared.directory.saw(name, &group);
                        }
                    }
                }
                sleep(Duration::from_millis(100)).await;
            }
        })))
    }
}
