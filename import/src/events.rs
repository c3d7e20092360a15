//! The events of a recording, in the order of time.

use crate::error::{ImportError, Position};
use std::collections::HashMap;
use std::sync::Arc;

/// How many CPUs a machine may have.
const MOST_CPUS: u32 = 4_096;

/// How many events a recording may have; about a hundred bytes each.
const MOST_EVENTS: usize = 20_000_000;

/// A thread as an event names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Task {
    /// Its number. Zero is idle.
    pub tid: u32,
    /// Its name.
    pub comm: Arc<str>,
    /// The kernel's priority: 0 to 99 are realtime, 120 is nice 0; deadline threads are below 0.
    pub prio: i32,
}

/// What woke a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waker {
    /// This thread, by itself.
    Thread(u32),
    /// An interrupt, a timer among them, or the idle loop.
    Interrupt,
    /// The recording does not say.
    Unknown,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A CPU changes threads.
    Switch {
        /// The thread that ran.
        prev: Task,
        /// Whether that thread could have gone on.
        runnable: bool,
        /// Whether that thread has ended.
        ended: bool,
        /// The thread that runs next.
        next: Task,
    },
    /// A thread becomes ready.
    Waking {
        /// The thread.
        who: Task,
        /// What woke it.
        by: Waker,
    },
}

/// One event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// When, in nanoseconds of the recording's clock.
    pub at: u64,
    /// On which CPU.
    pub cpu: u32,
    /// What.
    pub kind: Kind,
}

/// The scheduler events of a recording.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recording {
    /// In the order of time.
    pub events: Vec<Event>,
    /// Whether it tells who was woken; if not, a wait ends when the thread runs again.
    pub has_wakeups: bool,
    /// Whether it tells interrupts from threads as wakers.
    pub knows_interrupts: bool,
    /// Whether the recorder says that it lost some.
    pub lost: bool,
}

impl Recording {
    /// The part from `from` to `to` nanoseconds after its beginning.
    ///
    /// # Errors
    /// When nothing happened then.
    pub fn between(mut self, from: u64, to: u64) -> Result<Self, ImportError> {
        let start = self.events.first().map_or(0, |event| event.at);
        let length_ns = self.events.last().map_or(0, |event| event.at - start);
        let inside = |at: u64| (from..=to).contains(&(at - start));
        self.events.retain(|event| inside(event.at));
        let switches = self.events.iter().any(|event| matches!(event.kind, Kind::Switch { .. }));
        if switches { Ok(self) } else { Err(ImportError::NoneBetween { length_ns }) }
    }
}

/// Puts events together as they are read.
#[derive(Default)]
pub(crate) struct Reader {
    names: HashMap<String, Arc<str>>,
    last_on: HashMap<u32, u64>,
    waking: Vec<Event>,
    wakeups: Vec<Event>,
    switches: Vec<Event>,
    pub lost: bool,
    pub knows_interrupts: bool,
}

/// Which event says that a thread became ready.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WakeEvent {
    /// `sched_waking`: on the waker's CPU.
    Waking,
    /// `sched_wakeup`: often on the CPU of the thread that was woken.
    Wakeup,
    /// `sched_wakeup_new`: a thread begins.
    New,
}

impl Reader {
    pub(crate) fn task(&mut self, comm: &str, tid: u32, prio: i32) -> Task {
        let comm = match self.names.get(comm) {
            Some(known) => Arc::clone(known),
            None => {
                let new: Arc<str> = comm.into();
                self.names.insert(comm.to_owned(), Arc::clone(&new));
                new
            }
        };
        Task { tid, comm, prio }
    }

    fn note(&mut self, at: u64, cpu: u32, place: Position) -> Result<(), ImportError> {
        if cpu >= MOST_CPUS {
            return Err(ImportError::TooMuch { what: "CPUs", most: MOST_CPUS.into() });
        }
        let last = self.last_on.entry(cpu).or_insert(at);
        if at < *last {
            return Err(ImportError::Backwards { place });
        }
        *last = at;
        if self.switches.len() + self.waking.len() + self.wakeups.len() >= MOST_EVENTS {
            return Err(ImportError::TooMuch { what: "events", most: MOST_EVENTS as u64 });
        }
        Ok(())
    }

    pub(crate) fn switch(
        &mut self,
        (at, cpu): (u64, u32),
        place: Position,
        prev: Task,
        state: &str,
        next: Task,
    ) -> Result<(), ImportError> {
        self.note(at, cpu, place)?;
        let ended = state.starts_with(['X', 'Z', 'x']);
        let kind = Kind::Switch { prev, runnable: state.starts_with('R'), ended, next };
        self.switches.push(Event { at, cpu, kind });
        Ok(())
    }

    pub(crate) fn wake(
        &mut self,
        (at, cpu): (u64, u32),
        place: Position,
        which: WakeEvent,
        who: Task,
        by: Waker,
    ) -> Result<(), ImportError> {
        self.note(at, cpu, place)?;
        let by = if which == WakeEvent::Wakeup { Waker::Unknown } else { by };
        let list = if which == WakeEvent::Wakeup { &mut self.wakeups } else { &mut self.waking };
        list.push(Event { at, cpu, kind: Kind::Waking { who, by } });
        Ok(())
    }

    pub(crate) fn finish(self) -> Result<Recording, ImportError> {
        if self.switches.is_empty() {
            return Err(ImportError::NoEvents);
        }
        // Both kinds tell of the same wakeups; `sched_waking` knows the waker.
        let only_new = !self.waking.is_empty();
        let wakes = if only_new { self.waking } else { self.wakeups };
        let has_wakeups = !wakes.is_empty();
        // The reason comes before what it leads to.
        let mut events: Vec<Event> = wakes.into_iter().chain(self.switches).collect();
        events.sort_by_key(|event| event.at);
        Ok(Recording { events, has_wakeups, knows_interrupts: self.knows_interrupts, lost: self.lost })
    }
}
