//! What threads did while they did not run: ready, held, throttled, or waiting for something.

use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::HashMap;

/// Why a living thread does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThreadState {
    /// It waits for a CPU.
    Ready,
    /// It keeps its place in the queue and may not be chosen.
    Held,
    /// Its context is used up until the next refill.
    Throttled,
    /// It waits for a time.
    Sleep,
    /// It waits for an unpark.
    Park,
    /// It waits for the end of another thread.
    Join,
    /// It waits for the reply to a call.
    Call,
    /// It waits for a request at an endpoint.
    Receive,
    /// It waits for completions in a ring.
    Ring,
}

impl ThreadState {
    /// Every state, in the order of their codes.
    pub const ALL: [Self; 9] = [
        Self::Ready,
        Self::Held,
        Self::Throttled,
        Self::Sleep,
        Self::Park,
        Self::Join,
        Self::Call,
        Self::Receive,
        Self::Ring,
    ];

    /// As the JSON says it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Held => "held",
            Self::Throttled => "throttled",
            Self::Sleep => "sleep",
            Self::Park => "park",
            Self::Join => "join",
            Self::Call => "call",
            Self::Receive => "receive",
            Self::Ring => "ring",
        }
    }

    /// Whether it waits for something else than a CPU or its budget.
    #[must_use]
    pub fn is_blocked(self) -> bool {
        !matches!(self, Self::Ready | Self::Held | Self::Throttled)
    }
}

/// An interval in which a living thread did not run. Threads are numbers: there may be millions of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateEntry {
    /// Which thread, as a number of [`States::names`].
    pub thread: u32,
    /// Why it did not run.
    pub state: ThreadState,
    /// The CPU where it was.
    pub cpu: u32,
    /// From when.
    pub start_ns: u64,
    /// Until when.
    pub end_ns: u64,
    /// The thread that ended it, as far as the machine knows.
    pub by: Option<u32>,
}

/// All of them, by thread and then by time, and the names of the threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct States {
    /// Names of the threads by number.
    pub names: Vec<String>,
    /// The intervals.
    pub entries: Vec<StateEntry>,
}

/// One of them in JSON.
#[derive(Serialize, Deserialize)]
struct Row<T> {
    thread: T,
    state: ThreadState,
    cpu: u32,
    start_ns: u64,
    end_ns: u64,
    #[serde(default = "Option::default", skip_serializing_if = "Option::is_none")]
    by: Option<T>,
}

impl Serialize for States {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let name = |thread: u32| self.names.get(thread as usize).map_or("", String::as_str);
        let mut rows = serializer.serialize_seq(Some(self.entries.len()))?;
        for entry in &self.entries {
            let StateEntry { thread, state, cpu, start_ns, end_ns, by } = *entry;
            rows.serialize_element(&Row {
                thread: name(thread),
                state,
                cpu,
                start_ns,
                end_ns,
                by: by.map(name),
            })?;
        }
        rows.end()
    }
}

impl<'de> Deserialize<'de> for States {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let rows = Vec::<Row<String>>::deserialize(deserializer)?;
        let (mut states, mut known) = (Self::default(), HashMap::new());
        let mut number = |names: &mut Vec<String>, name: String| {
            *known.entry(name).or_insert_with_key(|name| {
                names.push(name.clone());
                names.len() as u32 - 1
            })
        };
        for Row { thread, state, cpu, start_ns, end_ns, by } in rows {
            let thread = number(&mut states.names, thread);
            let by = by.map(|by| number(&mut states.names, by));
            states.entries.push(StateEntry { thread, state, cpu, start_ns, end_ns, by });
        }
        Ok(states)
    }
}
