//! Why a thread ran, or did not, at a given time: the record is replayed up to then, and the queue looked at.

use crate::replay::{Replay, ReplayError};
use mainspring_abi::{Nanos, Policy};
use mainspring_sched::{Cpu, FRACTION_BITS, State, ThreadView, VirtualTime};
use std::fmt;
use std::io::Read;

/// How many of those ahead in a queue are named.
const AHEAD_SHOWN: usize = 8;

/// How many known threads are listed when an unknown one is asked for.
const KNOWN_SHOWN: usize = 20;

/// Why there is no explanation.
#[derive(Debug)]
pub enum ExplainError {
    /// The record does not replay.
    Replay(ReplayError),
    /// No thread has that name.
    NoSuchThread {
        /// What was asked for.
        name: String,
        /// Some that there are.
        known: Vec<String>,
        /// How many there are in all.
        total: usize,
    },
    /// The run was over before that time.
    AfterEnd {
        /// When it ended.
        end: Nanos,
    },
}

impl fmt::Display for ExplainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replay(error) => error.fmt(f),
            Self::NoSuchThread { name, known, total } => {
                write!(f, "no thread is named `{name}`; there are {}", known.join(", "))?;
                if *total > known.len() {
                    write!(f, " and {} more", total - known.len())?;
                }
                Ok(())
            }
            Self::AfterEnd { end } => write!(f, "the run ended at {end}; ask for an earlier time"),
        }
    }
}

impl std::error::Error for ExplainError {}

impl From<ReplayError> for ExplainError {
    fn from(error: ReplayError) -> Self {
        Self::Replay(error)
    }
}

/// What a thread was doing, and why.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// Its name.
    pub thread: String,
    /// When.
    pub at: Nanos,
    /// Where it was, unless it did not live then.
    pub place: Option<ThreadState>,
}

/// A living thread's situation.
#[derive(Clone, Debug)]
pub struct ThreadState {
    /// Its CPU.
    pub cpu: usize,
    /// The CPU's policy.
    pub policy: Policy,
    /// The thread itself.
    pub view: Candidate,
    /// Since when it runs, if it does.
    pub running_since: Option<Nanos>,
    /// The thread that runs on its CPU instead, if another does.
    pub running: Option<Candidate>,
    /// Queued threads that come before it.
    pub ahead: Vec<Candidate>,
    /// How many do.
    pub ahead_total: usize,
    /// The queue's clock.
    pub clock: VirtualTime,
}

/// A thread that competes, by name.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// What the scheduler knows of it.
    pub view: ThreadView,
    /// Whether its request's start has come.
    pub eligible: bool,
}

/// Explains what the thread named `thread` was doing at `at`.
pub fn explain(input: impl Read, thread: &str, at: Nanos) -> Result<Explanation, ExplainError> {
    let mut replay = Replay::new(input)?;
    let names = replay.header().threads.clone();
    let Some(index) = names.iter().position(|name| name == thread) else {
        let known = names.iter().take(KNOWN_SHOWN).cloned().collect();
        return Err(ExplainError::NoSuchThread { name: thread.to_owned(), known, total: names.len() });
    };
    while let Some(next) = replay.peek_time()? {
        if next > at {
            break;
        }
        let _ = replay.step()?;
    }
    if let Some(end) = replay.ended_at()
        && at > end
    {
        return Err(ExplainError::AfterEnd { end });
    }
    let policy = replay.header().policy;
    replay.check_rest()?;
    let place = replay
        .replayer
        .cpus
        .iter_mut()
        .find_map(|cpu| ThreadState::of(cpu, at, policy, index as u32, &names));
    Ok(Explanation { thread: thread.to_owned(), at, place })
}

impl ThreadState {
    fn of(cpu: &mut Cpu, at: Nanos, policy: Policy, index: u32, names: &[String]) -> Option<Self> {
        let threads = cpu.threads_at(at);
        let cpu = &*cpu;
        let candidate = |view: ThreadView| Candidate {
            name: names.get(view.thread.index() as usize).cloned().unwrap_or_default(),
            eligible: view.tag.map_or(view.context.is_some(), |tag| cpu.is_eligible(tag.start)),
            view,
        };
        let view = candidate(threads.iter().find(|view| view.thread.index() == index)?.clone());
        let running = threads.iter().find(|other| other.state == State::Running);
        let queue: Vec<Candidate> = cpu.queue().into_iter().map(candidate).collect();
        // Those ahead: eligible ones before it in order. If it is not eligible itself, every eligible one is ahead.
        let before = queue.iter().take_while(|other| other.view.thread != view.view.thread);
        let behind = queue.iter().skip_while(|other| other.view.thread != view.view.thread).skip(1);
        let ahead: Vec<Candidate> = before
            .filter(|other| other.eligible || !view.eligible)
            .chain(behind.filter(|other| other.eligible && !view.eligible))
            .cloned()
            .collect();
        let queued = view.view.state == State::Queued;
        Some(Self {
            cpu: cpu.id().index(),
            policy,
            running_since: (view.view.state == State::Running).then(|| cpu.since()),
            running: running.filter(|other| other.thread.index() != index).cloned().map(candidate),
            ahead_total: if queued { ahead.len() } else { 0 },
            ahead: if queued { ahead.into_iter().take(AHEAD_SHOWN).collect() } else { Vec::new() },
            clock: cpu.virtual_clock(),
            view,
        })
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(place) = &self.place else {
            return write!(
                f,
                "{} at {}: not alive; it had not started yet, or had ended",
                self.thread, self.at
            );
        };
        write!(f, "{} at {} on CPU {}: ", self.thread, self.at, place.cpu)?;
        match place.view.view.state {
            State::Running => writeln!(f, "running")?,
            State::Queued => writeln!(f, "ready, waiting for the CPU")?,
            State::Direct => writeln!(f, "ready, next in line by direct handoff")?,
            State::Held => writeln!(f, "held: it may not be chosen until it is released")?,
            State::Throttled => writeln!(f, "throttled: its context is used up until the next refill")?,
            State::Asleep(kind) => {
                write!(f, "blocked ({})", format!("{kind:?}").to_lowercase())?;
                match place.view.view.deadline {
                    Some(deadline) => writeln!(f, " until {deadline} at the latest")?,
                    None => writeln!(f, " until somebody wakes it")?,
                }
            }
        }
        place.fmt(f)
    }
}

impl fmt::Display for ThreadState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let view = &self.view.view;
        let class = format!("{:?}", view.class).to_lowercase();
        writeln!(f, "  weight {}, {class}; {}", view.weight.get(), owed(view.lag.as_nanos()))?;
        self.context(f)?;
        self.tag(f)?;
        if let Some(running) = &self.running {
            writeln!(f, "  {} runs there: {}", running.name, self.stand(running))?;
        }
        if let Some(since) = self.running_since {
            writeln!(f, "  it was chosen at {since}: no eligible thread was due sooner then")?;
        }
        if self.ahead_total > 0 {
            writeln!(f, "  {} ahead of it:", self.ahead_total)?;
            for other in &self.ahead {
                writeln!(f, "    {}: {}", other.name, self.stand(other))?;
            }
            if self.ahead_total > self.ahead.len() {
                writeln!(f, "    and {} more", self.ahead_total - self.ahead.len())?;
            }
        } else if view.state == State::Queued {
            writeln!(f, "  nobody is ahead of it: it is the next to be chosen")?;
        }
        Ok(())
    }
}

impl ThreadState {
    fn context(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((who, urgency)) = self.view.view.context else { return Ok(()) };
        writeln!(
            f,
            "  on context {who:?}: criticality {}, released at {}, due at {}",
            urgency.criticality, urgency.release, urgency.deadline
        )
    }

    fn tag(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(tag) = self.view.view.tag else { return Ok(()) };
        let due = distance(tag.deadline.since(self.clock));
        let start = tag.start.since(self.clock);
        match self.policy {
            Policy::Wfq => writeln!(f, "  its request finishes {due} on the queue's virtual clock"),
            Policy::Eevdf if self.view.eligible => {
                writeln!(f, "  eligible; its request is due {due} on the queue's virtual clock")
            }
            Policy::Eevdf => writeln!(
                f,
                "  not eligible: it has had its share for now; its request starts {} and is due {due} \
                 on the queue's virtual clock",
                distance(start)
            ),
        }
    }

    fn stand(&self, other: &Candidate) -> String {
        if let (Some((_, urgency)), None) = (other.view.context, other.view.tag) {
            return format!(
                "on a context of criticality {}, due at {}",
                urgency.criticality, urgency.deadline
            );
        }
        let Some(tag) = other.view.tag else { return "no request".to_owned() };
        let due = distance(tag.deadline.since(self.clock));
        let eligible = if other.eligible { "eligible" } else { "not eligible" };
        format!("{eligible}, due {due}, {}", owed(other.view.lag.as_nanos()))
    }
}

fn owed(lag_ns: i64) -> String {
    let size = Nanos::new(lag_ns.unsigned_abs());
    match lag_ns {
        0 => "neither owed nor ahead".to_owned(),
        1.. => format!("owed {size}"),
        _ => format!("ahead by {size}"),
    }
}

fn distance(units: i64) -> String {
    let size = Nanos::new(units.unsigned_abs() >> FRACTION_BITS);
    if units < 0 { format!("{size} ago") } else { format!("in {size}") }
}
