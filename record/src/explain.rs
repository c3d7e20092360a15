//! Why a thread ran, or did not, at a given time: the record is replayed up to then, and the queue looked at.

mod chain;
mod history;
mod spent;

pub use history::{Doing, Loss};
pub use spent::Spent;

use crate::replay::{Replay, ReplayError};
use chain::Scene;
use history::History;
use mainspring_abi::{ContextRef, Nanos, Policy};
use mainspring_report::{Miss, Report, instant};
use mainspring_sched::flight::Event;
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
    NoSummary,
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
            Self::NoSummary => {
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
    /// Since when it was so.
    pub since: Nanos,
    /// What it did before that, if the run had begun.
    pub before: Option<Doing>,
    /// When that ended, and what it did then; `None` if it was so until the end of the run.
    pub next: Option<(Nanos, Doing)>,
    /// What became of the context that it no longer had, in words.
    pub lost: Option<String>,
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
    let mut history = History::of(index);
    while let Some(next) = replay.peek_time()? {
        if next > at {
            break;
        }
        let _ = replay.step_before(&mut history)?;
    }
    if let Some(end) = replay.ended_at()
        && at > end
    {
        return Err(ExplainError::AfterEnd { end });
    }
    let policy = replay.header().policy;
    let mut scene = Scene::of(&replay.replayer.cpus, &names, &history);
    let mut place =
        replay.replayer.cpus.iter_mut().find_map(|cpu| ThreadState::of(cpu, at, policy, index, &names));
    let ((since, _), before, lost) = (history.last(), history.before_last(), history.lost());
    let bound = |history: &History| lost.map_or(0, |(who, ..)| history.times_bound(who));
    let bound_before = bound(&history);
    let next = next_change(&mut replay, &mut history, at)?;
    // A context that a thread gets again was not revoked.
    let mut bound_again = bound(&history) > bound_before;
    replay.look_through_rest(|event| {
        if let (Event::Bind(_, context), Some((who, ..))) = (event, lost) {
            bound_again |= context.who() == who;
        }
    })?;
    scene.summary = replay.summary();
    if let Some(place) = &mut place {
        place.context = scene.context_of(index);
    }
    let lost = lost.map(|lost| words_of_loss(&scene, lost, bound_again));
    let chain = scene.chain(index);
    Ok(Explanation { thread: thread.to_owned(), at, place, since, before, next, lost, chain })
}

/// When the thread next did something else after `at`, and what: the last that it did at that instant.
fn next_change<R: Read>(
    replay: &mut Replay<R>,
    history: &mut History,
    at: Nanos,
) -> Result<Option<(Nanos, Doing)>, ExplainError> {
    while let Some(next) = replay.peek_time()? {
        if history.changed_after(at).is_some_and(|(when, _)| when < next) {
            break;
        }
        let _ = replay.step_before(history)?;
    }
    let (since, doing) = history.last();
    Ok((since > at).then_some((since, doing)))
}

/// What became of a context that its thread no longer had.
fn words_of_loss(scene: &Scene<'_>, lost: (ContextRef, Nanos, Loss), bound_again: bool) -> String {
    let (who, when, how) = lost;
    let (name, when) = (scene.context(who), instant(when.get()));
    match how {
        Loss::Lent(to) => format!("it had lent context {name} to {} at {when}", scene.name(to)),
        Loss::Unbound if !bound_again && scene.is_revoked(who) => {
            format!("its context {name} was revoked at {when}: it was best effort since")
        }
        Loss::Unbound => format!("it gave up context {name} at {when}: it was best effort since"),
    }
}

/// How the thread named `thread` spent the time from `from` to `to`.
pub fn spent(input: impl Read, thread: &str, from: Nanos, to: Nanos) -> Result<Spent, ExplainError> {
    Spent::of(input, thread, from, to)
}

/// The summary that the record ends with.
pub fn summary(input: impl Read) -> Result<Report, ExplainError> {
    let mut replay = Replay::new(input)?;
    replay.check_rest()?;
    replay.summary().ok_or(ExplainError::NoSummary)
}

/// Miss `number` of a run, from 1.
pub fn miss(summary: &Report, number: u64) -> Result<&Miss, ExplainError> {
    let row = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
    let none = ExplainError::NoSuchMiss { listed: summary.misses.len(), total: summary.misses_total };
    row.and_then(|row| summary.misses.get(row)).ok_or(none)
}

/// From when to when the job of `thread` went on that took longest.
pub fn worst(summary: &Report, thread: &str) -> Result<(Nanos, Nanos), ExplainError> {
    let names: Vec<String> = summary.threads.iter().map(|row| row.name.clone()).collect();
    let row = &summary.threads[index_of(&names, thread)? as usize];
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
        // The threads ahead: the eligible ones before it in order. If it is not eligible itself, every eligible one is ahead.
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
        write!(f, "{} at {}", self.thread, instant(self.at.get()))?;
        let Some(place) = &self.place else {
            return match (self.before, self.next) {
                (Some(_), _) => writeln!(f, ": it had ended at {}", instant(self.since.get())),
                (None, Some((when, _))) => writeln!(f, ": it started later, at {}", instant(when.get())),
                (None, None) => writeln!(f, ": it never started"),
            };
        };
        write!(f, " on CPU {}: ", place.cpu)?;
        match place.view.view.state {
            State::Running => writeln!(f, "running")?,
            State::Queued => writeln!(f, "ready, waiting for the CPU")?,
            State::Direct => writeln!(f, "ready, next in line by direct handoff")?,
            State::Held => writeln!(f, "held: it could not be chosen until it was released")?,
            State::Throttled => writeln!(f, "throttled: its context was used up until the next refill")?,
            State::Asleep(kind) => {
                write!(f, "blocked ({})", spent::wait(kind))?;
                match place.view.view.deadline {
                    Some(deadline) => writeln!(f, " until {} at the latest", instant(deadline.get()))?,
                    None => writeln!(f, " until somebody woke it")?,
                }
            }
        }
        self.changes(f)?;
        place.fmt(f)?;
        if let Some(lost) = &self.lost {
            writeln!(f, "  {lost}")?;
        }
        self.chain.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl Explanation {
    /// The last and the next change.
    fn changes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  since {}", instant(self.since.get()))?;
        match self.before {
            Some(Doing::Gone) | None => write!(f, ", its start")?,
            Some(before) => write!(f, ", {before} before")?,
        }
        match self.next {
            Some((when, Doing::Gone)) => writeln!(f, "; until {}, when it ended", instant(when.get())),
            Some((when, next)) => writeln!(f, "; until {}, {next} then", instant(when.get())),
            None => writeln!(f, "; until the end of the run"),
        }
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
            writeln!(f, "  {} ran there: {}", running.name, self.stand(running))?;
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
            writeln!(f, "  nobody was ahead of it: it was the next to be chosen")?;
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
            Policy::Wfq => writeln!(f, "  its request was to finish {due} on the queue's virtual clock"),
            Policy::Eevdf if self.view.eligible => {
                writeln!(f, "  eligible; its request was due {due} on the queue's virtual clock")
            }
            Policy::Eevdf => writeln!(
                f,
                "  not eligible: it had had its share for now; its request was to start {} and was due {due} \
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
