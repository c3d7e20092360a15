//! What each thread did: how long it ran, why it stopped, what ended its waits; and how Linux served it.
//!
//! Conserved: the bursts of a thread sum to the time that it was on a CPU within the recording.

use crate::events::{Event, Kind, Recording, Task, Waker};
use std::collections::{BTreeMap, HashMap};

/// A part of what a thread did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// It computed for so many nanoseconds.
    Run(u64),
    /// It woke this thread.
    Wake(u32),
    /// It was blocked for so many nanoseconds, until it was woken.
    Wait {
        /// How long.
        ns: u64,
        /// What ended it.
        by: Waker,
    },
}

/// A thread of a recording.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Thread {
    /// Its number.
    pub tid: u32,
    /// Its name, as last seen.
    pub comm: String,
    /// Its priority, as last seen.
    pub prio: i32,
    /// When it is first known to have been ready, since the beginning of the recording.
    pub start_ns: u64,
    /// What it did from then on.
    pub acts: Vec<Act>,
    /// CPU time.
    pub cpu_ns: u64,
    /// From each wakeup to running.
    pub latencies_ns: Vec<u64>,
    /// How often it ran on another CPU than before.
    pub migrations: u64,
    /// How often it was stopped while it could have gone on.
    pub preemptions: u64,
    /// The CPUs that it ran on.
    pub cpus: Vec<u32>,
}

/// All threads of a recording, by number.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Timelines {
    /// The threads, without idle.
    pub threads: Vec<Thread>,
    /// How many CPUs, by the greatest number seen.
    pub cpus: u32,
    /// How long the recording is.
    pub duration_ns: u64,
    /// How many switches must have happened that it does not have: a CPU stops another thread than the one it took up.
    pub missing_switches: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Unseen,
    Running {
        since: u64,
        cpu: u32,
    },
    /// Woken, or preempted: then the wakeup is `None`.
    Ready {
        woken: Option<u64>,
    },
    Blocked {
        since: u64,
    },
    Gone,
}

struct Tracked {
    thread: Thread,
    state: State,
    last_cpu: Option<u32>,
}

impl Tracked {
    fn new(task: &Task) -> Self {
        let thread = Thread { tid: task.tid, ..Thread::default() };
        Self { thread, state: State::Unseen, last_cpu: None }
    }

    fn ran(&mut self, ns: u64) {
        self.thread.cpu_ns += ns;
        match self.thread.acts.last_mut() {
            Some(Act::Run(before)) => *before += ns,
            _ if ns > 0 => self.thread.acts.push(Act::Run(ns)),
            _ => {}
        }
    }

    /// It has run up to `now`, if it was running.
    fn up_to(&mut self, now: u64) {
        if let State::Running { since, cpu } = self.state {
            self.ran(now - since);
            self.state = State::Running { since: now, cpu };
        }
    }

    fn woken(&mut self, now: u64, by: Waker) {
        match self.state {
            State::Blocked { since } => {
                self.thread.acts.push(Act::Wait { ns: now.saturating_sub(since), by });
            }
            State::Unseen | State::Gone => {
                self.thread.start_ns = if self.thread.acts.is_empty() { now } else { self.thread.start_ns }
            }
            State::Running { .. } | State::Ready { .. } => return,
        }
        self.state = State::Ready { woken: Some(now) };
    }

    fn switched_in(&mut self, now: u64, cpu: u32, has_wakeups: bool) {
        match self.state {
            State::Ready { woken: Some(woken) } => self.thread.latencies_ns.push(now.saturating_sub(woken)),
            // Its wakeup was not recorded.
            State::Blocked { .. } => self.woken(now, Waker::Unknown),
            // If wakeups are recorded, it was ready before the recording began.
            State::Unseen if !has_wakeups => self.thread.start_ns = now,
            State::Unseen | State::Ready { woken: None } | State::Running { .. } | State::Gone => {}
        }
        self.moved(cpu);
        self.state = State::Running { since: now, cpu };
    }

    fn moved(&mut self, cpu: u32) {
        if self.last_cpu.is_some_and(|last| last != cpu) {
            self.thread.migrations += 1;
        }
        self.last_cpu = Some(cpu);
        if !self.thread.cpus.contains(&cpu) {
            self.thread.cpus.push(cpu);
        }
    }
}

impl Timelines {
    /// Follows every thread through `recording`.
    #[must_use]
    pub fn of(recording: &Recording) -> Self {
        let (Some(first), Some(last)) = (recording.events.first(), recording.events.last()) else {
            return Self::default();
        };
        let (start, end) = (first.at, last.at - first.at);
        let mut all: BTreeMap<u32, Tracked> = BTreeMap::new();
        // By CPU, who runs there since when.
        let mut current: HashMap<u32, (u32, u64)> = HashMap::new();
        let (mut cpus, mut missing_switches) = (0, 0);
        for Event { at, cpu, kind } in &recording.events {
            let now = at - start;
            cpus = cpus.max(cpu + 1);
            match kind {
                Kind::Waking { who, by } => wake(&mut all, &current, now, *cpu, who, *by),
                Kind::Switch { prev, runnable, ended, next } => {
                    let (taken_up, since) = current.get(cpu).copied().unwrap_or((prev.tid, 0));
                    if taken_up != prev.tid {
                        missing_switches += 1;
                        missed_switch(&mut all, *cpu, taken_up);
                    }
                    if prev.tid != 0 {
                        let tracked = seen(&mut all, prev);
                        if !matches!(tracked.state, State::Running { cpu: on, .. } if on == *cpu) {
                            // It ran there since before the recording, or since a switch that is missing.
                            tracked.switched_in(since, *cpu, true);
                        }
                        tracked.up_to(now);
                        tracked.thread.preemptions += u64::from(*runnable);
                        tracked.state = match (ended, runnable) {
                            (true, _) => State::Gone,
                            (_, true) => State::Ready { woken: None },
                            (_, false) => State::Blocked { since: now },
                        };
                    }
                    current.insert(*cpu, (next.tid, now));
                    if next.tid != 0 {
                        seen(&mut all, next).switched_in(now, *cpu, recording.has_wakeups);
                    }
                }
            }
        }
        let threads = all.into_values().map(|mut tracked| {
            tracked.up_to(end);
            tracked.thread
        });
        Self { threads: threads.collect(), cpus, duration_ns: end, missing_switches }
    }
}

/// `tid` left `cpu` at a time that is not known. What it had there goes to the thread that is known to have run; and it is taken to
/// have blocked, since only a wakeup will show it again.
fn missed_switch(all: &mut BTreeMap<u32, Tracked>, cpu: u32, tid: u32) {
    if let Some(tracked) = all.get_mut(&tid)
        && let State::Running { since, cpu: on } = tracked.state
        && on == cpu
    {
        tracked.state = State::Blocked { since };
    }
}

fn seen<'a>(all: &'a mut BTreeMap<u32, Tracked>, task: &Task) -> &'a mut Tracked {
    let tracked = all.entry(task.tid).or_insert_with(|| Tracked::new(task));
    if *tracked.thread.comm != *task.comm {
        tracked.thread.comm = task.comm.to_string();
    }
    tracked.thread.prio = task.prio;
    tracked
}

fn wake(
    all: &mut BTreeMap<u32, Tracked>,
    current: &HashMap<u32, (u32, u64)>,
    now: u64,
    cpu: u32,
    who: &Task,
    by: Waker,
) {
    if who.tid == 0 {
        return;
    }
    let waits = matches!(seen(all, who).state, State::Blocked { .. } | State::Unseen);
    // A thread that wakes another is the one that runs on that CPU; before its first switch that is not known otherwise.
    let by = match by {
        Waker::Thread(tid) if tid != who.tid && waits => {
            if let Some(waker) = all.get_mut(&tid)
                && matches!(waker.state, State::Running { cpu: on, .. } if on == cpu)
                && current.get(&cpu).is_some_and(|(running, _)| *running == tid)
            {
                waker.up_to(now);
                waker.thread.acts.push(Act::Wake(who.tid));
                Waker::Thread(tid)
            } else {
                Waker::Unknown
            }
        }
        Waker::Thread(_) => Waker::Unknown,
        other => other,
    };
    seen(all, who).woken(now, by);
}
