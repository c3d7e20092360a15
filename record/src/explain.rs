//! Why a thread ran, or did not, at a given time: the record is replayed up to then, and the queue looked at.

mod chain;
mod spent;

pub use spent::Spent;

use crate::replay::{Replay, ReplayError};
use chain::Scene;
use mainspring_abi::{Nanos, Policy};
use mainspring_report::{Miss, Report, instant};
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
    /// There are not so many misses.
    NoSuchMiss {
        /// How many are listed.
        listed: usize,
        /// How many there were.
        total: u64,
    },
    /// The thread has no job that ended.
    NoJobs {
        /// Its name.
        name: String,
    },
    /// The record does not tell of misses and jobs.
    NotTold,
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
            Self::NoSuchMiss { listed: 0, .. } => f.write_str("no deadline was missed"),
            Self::NoSuchMiss { listed, total } => {
                write!(f, "{total} deadlines were missed; ask for --miss 1 to {listed}")
            }
            Self::NoJobs { name } => {
                write!(f, "no job of {name} ended; only threads with `every` steps have jobs")
            }
            Self::NotTold => {
                f.write_str("the record does not tell of misses and jobs; ask for --thread and --at")
            }
            Self::AfterEnd { end } => {
                write!(f, "the run ended at {}; ask for an earlier time", instant(end.get()))
            }
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
    /// From the thread to what it waits for, and what that waits for, in words.
    pub chain: Vec<String>,
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
    /// The name of its context, if it has one.
    pub context: Option<String>,
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
    let index = index_of(&names, thread)?;
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
    let told = replay.told();
    let scene = Scene { cpus: &replay.replayer.cpus, names: &names, told: told.as_ref() };
    let chain = scene.chain(index);
    let held = |cpu: &Cpu| {
        let threads = cpu.threads();
        let view = threads.iter().find(|view| view.thread.index() == index)?;
        Some(scene.context(view.context?.0))
    };
    let context = scene.cpus.iter().find_map(held);
    let mut place =
        replay.replayer.cpus.iter_mut().find_map(|cpu| ThreadState::of(cpu, at, policy, index, &names));
    if let Some(place) = &mut place {
        place.context = context;
    }
    Ok(Explanation { thread: thread.to_owned(), at, place, chain })
}

/// How the thread named `thread` spent the time from `from` to `to`.
pub fn spent(input: impl Read, thread: &str, from: Nanos, to: Nanos) -> Result<Spent, ExplainError> {
    Spent::of(input, thread, from, to)
}

/// What the machine told at the end of its record.
pub fn told(input: impl Read) -> Result<Report, ExplainError> {
    let mut replay = Replay::new(input)?;
    replay.check_rest()?;
    replay.told().ok_or(ExplainError::NotTold)
}

/// Miss `number` of a run, from 1.
pub fn miss(told: &Report, number: u64) -> Result<&Miss, ExplainError> {
    let row = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
    let none = ExplainError::NoSuchMiss { listed: told.misses.len(), total: told.misses_total };
    row.and_then(|row| told.misses.get(row)).ok_or(none)
}

/// From when to when the job of `thread` went on that took longest.
pub fn worst(told: &Report, thread: &str) -> Result<(Nanos, Nanos), ExplainError> {
    let names: Vec<String> = told.threads.iter().map(|row| row.name.clone()).collect();
    let row = &told.threads[index_of(&names, thread)? as usize];
    let response = row.jobs.as_ref().and_then(|jobs| jobs.response_ns.as_ref());
    let response = response.ok_or_else(|| ExplainError::NoJobs { name: thread.to_owned() })?;
    Ok((Nanos::new(response.max_at_ns), Nanos::new(response.max_at_ns + response.max)))
}

/// The index of the thread named `thread`.
fn index_of(names: &[String], thread: &str) -> Result<u32, ExplainError> {
    let found = names.iter().position(|name| name == thread).and_then(|index| u32::try_from(index).ok());
    found.ok_or_else(|| ExplainError::NoSuchThread {
        name: thread.to_owned(),
        known: names.iter().take(KNOWN_SHOWN).cloned().collect(),
        total: names.len(),
    })
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
            context: None,
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
                self.thread,
                instant(self.at.get())
            );
        };
        write!(f, "{} at {} on CPU {}: ", self.thread, instant(self.at.get()), place.cpu)?;
        match place.view.view.state {
            State::Running => writeln!(f, "running")?,
            State::Queued => writeln!(f, "ready, waiting for the CPU")?,
            State::Direct => writeln!(f, "ready, next in line by direct handoff")?,
            State::Held => writeln!(f, "held: it may not be chosen until it is released")?,
            State::Throttled => writeln!(f, "throttled: its context is used up until the next refill")?,
            State::Asleep(kind) => {
                write!(f, "blocked ({})", format!("{kind:?}").to_lowercase())?;
                match place.view.view.deadline {
                    Some(deadline) => writeln!(f, " until {} at the latest", instant(deadline.get()))?,
                    None => writeln!(f, " until somebody wakes it")?,
                }
            }
        }
        place.fmt(f)?;
        self.chain.iter().try_for_each(|line| writeln!(f, "{line}"))
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
            writeln!(
                f,
                "  it was chosen at {}: no eligible thread was due sooner then",
                instant(since.get())
            )?;
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
            "  on context {}: criticality {}, released at {}, due at {}",
            self.context.clone().unwrap_or_else(|| format!("{who:?}")),
            urgency.criticality,
            instant(urgency.release.get()),
            instant(urgency.deadline.get())
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
                urgency.criticality,
                instant(urgency.deadline.get())
            );
        }
        let Some(tag) = other.view.tag else { return "no request".to_owned() };
        let due = distance(tag.deadline.since(self.clock));
        let eligible = if other.eligible { "eligible" } else { "not eligible" };
        format!("{eligible}, due {due}, {}", owed(other.view.lag.as_nanos()))
    }
}

fn owed(lag_ns: i64) -> String {
    let size = instant(lag_ns.unsigned_abs());
    match lag_ns {
        0 => "neither owed nor ahead".to_owned(),
        1.. => format!("owed {size}"),
        _ => format!("ahead by {size}"),
    }
}

fn distance(units: i64) -> String {
    let size = instant(units.unsigned_abs() >> FRACTION_BITS);
    if units < 0 { format!("{size} ago") } else { format!("in {size}") }
}
