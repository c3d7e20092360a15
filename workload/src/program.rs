//! Programs: their steps with names resolved, and what can be said of one program by itself.

use crate::error::{Report, Reported, clipped};
use crate::names::Interner;
use crate::scope::Scope;
use crate::source::At;
use crate::step::RawStep;
use crate::thread::RawThread;
use crate::{Call, Step, ThreadTarget, Way, nesting};
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

/// Why a program cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramError {
    /// No step at all.
    Empty,
    /// A step behind one that never ends or never returns.
    Unreachable {
        /// The step that never ends or returns.
        after: &'static str,
    },
    /// `reply` in a program that never receives.
    ReplyWithoutRecv,
    /// `join` on the thread that joins.
    JoinsItself,
    /// `join` on a spawned thread that this program does not spawn.
    JoinsUnspawned {
        /// Its name.
        name: String,
    },
    /// `alloc` in a thread whose budget does not bound its memory.
    AllocWithoutBudget,
    /// `or` or `end` without what it belongs to.
    NothingOpen {
        /// Which of them.
        verb: &'static str,
    },
    /// A phase or a choice that has no `end`.
    NoEnd {
        /// How it begins.
        verb: &'static str,
    },
    /// Phases and choices within each other, more than a program may have.
    TooDeep,
    /// Ways whose chances are more than all.
    BeyondAll,
    /// A phase for a time in which no time passes.
    TimelessPhase,
    /// A round that takes no time, repeated for ever at one instant.
    Spins,
    /// A round that takes no time and waits only for threads that wait for it and take no time either.
    SpinsTogether,
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the program is empty"),
            Self::Unreachable { after } => write!(f, "this step is never reached: it stands after {after:?}"),
            Self::ReplyWithoutRecv => f.write_str("reply in a program that receives nothing"),
            Self::JoinsItself => f.write_str("a thread cannot wait for its own end"),
            Self::JoinsUnspawned { name } => write!(f, "join of {name:?}, which this program does not spawn"),
            Self::AllocWithoutBudget => f.write_str("alloc in a thread whose memory has no bound"),
            Self::NothingOpen { verb } => write!(f, "{verb:?} without a beginning"),
            Self::NoEnd { verb } => write!(f, "{verb:?} has no \"end\""),
            Self::TooDeep => write!(f, "phases and choices are nested more than {} deep", nesting::DEEPEST),
            Self::BeyondAll => f.write_str("the chances of the ways are more than 100%"),
            Self::TimelessPhase => f.write_str("the phase takes no time, so it would never end"),
            Self::Spins => f.write_str("the program repeats without taking time, so time would stand still"),
            Self::SpinsTogether => {
                f.write_str("the program and those that wake it take no time, so time would stand still")
            }
        }
    }
}

impl ProgramError {
    /// What to write instead.
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            Self::Empty => "add a step, such as program = [\"run forever\"]".into(),
            Self::Unreachable { after } => format!("remove it, or move it before {after:?}"),
            Self::ReplyWithoutRecv => "add \"recv ENDPOINT\" before it".into(),
            Self::JoinsItself => "name another thread, or write \"exit\" to end this one".into(),
            Self::JoinsUnspawned { name } => format!("add \"spawn {name}\" before it"),
            Self::AllocWithoutBudget => "add budget = { memory = 1048576 } to its table".into(),
            Self::NothingOpen { verb: "or" } => {
                "write \"either 70%\" before it, and \"end\" behind the last way".into()
            }
            Self::NothingOpen { .. } => {
                "write \"repeat 10\", \"for 200ms\" or \"either 70%\" before it, or remove it".into()
            }
            Self::NoEnd { .. } => "write \"end\" behind its last step".into(),
            Self::TooDeep => "give the inner ones to a thread of their own".into(),
            Self::BeyondAll => "lower them; an \"or\" without a percentage takes what is left".into(),
            Self::TimelessPhase => "add a run or a sleep step, such as \"run 10us\"".into(),
            Self::Spins => "add a run step, such as \"run 10us\", or end the program with times = N".into(),
            Self::SpinsTogether => "add a run step, such as \"run 10us\", to one of them".into(),
        }
    }
}

/// A program whose names are resolved, as far as it can be read.
pub(crate) struct Program {
    pub steps: Vec<At<Step>>,
    /// The tables that it spawns.
    pub spawned: HashSet<usize>,
    /// Whether it ends its thread by itself.
    pub exits: bool,
    /// What kept a step from being read, if any was.
    pub failed: Option<Reported>,
}

impl Program {
    /// Resolves the names of the program of thread table `own`.
    pub fn resolve(
        own: usize,
        thread: &RawThread<'_>,
        scope: &Scope<'_, '_>,
        endpoints: &mut Interner,
        report: &mut Report<'_>,
    ) -> Self {
        let mut program = Self { steps: Vec::new(), spawned: HashSet::new(), exits: false, failed: None };
        match &thread.program {
            Err(reported) => program.failed = Some(*reported),
            Ok(steps) => {
                for step in steps {
                    let resolved = step.as_ref().map_err(|reported| *reported).and_then(|step| {
                        let value = resolve(own, &step.value, scope, endpoints, report)?;
                        Ok(At { value, at: step.at.clone() })
                    });
                    match resolved {
                        Ok(step) => program.push(step),
                        Err(reported) => program.failed = Some(reported),
                    }
                }
                // A step that is missing may have been the beginning or the end of something.
                if program.failed.is_none()
                    && let Err(reported) = nesting::link(&mut program.steps, steps, report)
                {
                    program.failed = Some(reported);
                }
            }
        }
        program
    }

    fn push(&mut self, step: At<Step>) {
        match step.value {
            Step::Spawn(table) => {
                self.spawned.insert(table);
            }
            Step::Exit => self.exits = true,
            _ => {}
        }
        self.steps.push(step);
    }

    /// From the first step to the last.
    pub fn at(&self) -> Range<usize> {
        match (self.steps.first(), self.steps.last()) {
            (Some(first), Some(last)) => first.at.start..last.at.end,
            _ => 0..0,
        }
    }

    /// Reports what is wrong with the program of table `own` by itself.
    pub fn check(&self, own: usize, threads: &[RawThread<'_>], report: &mut Report<'_>) {
        self.check_reachable(report);
        if self.failed.is_some() {
            return;
        }
        let receives = self.steps.iter().any(|step| matches!(step.value, Step::Recv { .. }));
        for step in &self.steps {
            match step.value {
                Step::Reply | Step::Throw if !receives => {
                    report.push(&step.at, ProgramError::ReplyWithoutRecv);
                }
                Step::Alloc(_) => {
                    let budget = threads.get(own).map(|thread| thread.budget);
                    if matches!(budget, Some(Ok(budget)) if budget.is_none_or(|budget| budget.memory.is_none()))
                    {
                        report.push(&step.at, ProgramError::AllocWithoutBudget);
                    }
                }
                Step::Join { target, .. } => {
                    if let Some(error) = self.join_error(own, target, threads) {
                        report.push(&step.at, error);
                    }
                }
                _ => {}
            }
        }
    }

    fn check_reachable(&self, report: &mut Report<'_>) {
        for pair in self.steps.windows(2) {
            // Behind the end of one way or phase, another goes on.
            if matches!(pair[1].value, Step::Or { .. } | Step::End { .. }) {
                continue;
            }
            let after = match pair[0].value {
                Step::RunForever => "run forever",
                Step::Exit => "exit",
                _ => continue,
            };
            report.push(&pair[1].at, ProgramError::Unreachable { after });
        }
    }

    /// A spawned instance is joined by the thread that spawned it, so a table may join what it spawns of itself.
    fn join_error(
        &self,
        own: usize,
        target: ThreadTarget,
        threads: &[RawThread<'_>],
    ) -> Option<ProgramError> {
        let joined = threads.get(target.thread)?;
        if self.spawned.contains(&target.thread) {
            None
        } else if target.thread == own {
            Some(ProgramError::JoinsItself)
        } else if joined.is_spawned() && target.instance.is_none() {
            let name = joined.name.as_ref().ok()?;
            Some(ProgramError::JoinsUnspawned { name: clipped(name.value) })
        } else {
            None
        }
    }
}

fn resolve(
    own: usize,
    raw: &RawStep<'_>,
    scope: &Scope<'_, '_>,
    endpoints: &mut Interner,
    report: &mut Report<'_>,
) -> Result<Step, Reported> {
    let Scope { threads, contexts, leases, rings, sync, .. } = scope;
    Ok(match raw {
        RawStep::Plain(step) => step.clone(),
        RawStep::RunDrawn(name) => Step::RunDrawn(scope.distribution(name, report)?),
        RawStep::SleepDrawn(name) => Step::SleepDrawn(scope.distribution(name, report)?),
        RawStep::Unpark(name) => Step::Unpark(threads.target(name, report)?),
        RawStep::Call(name, options) => Step::Call(Call {
            endpoint: endpoints.number(name.value),
            timeout: options.timeout,
            needs: options.needs,
            deadline: options.deadline,
            late: options.lateness(),
        }),
        RawStep::Recv(name, timeout) => {
            Step::Recv { endpoint: endpoints.number(name.value), timeout: *timeout }
        }
        RawStep::Spawn(name) => Step::Spawn(threads.spawnable(name, report)?),
        RawStep::Join(name, timeout) => {
            Step::Join { target: threads.target(name, report)?, timeout: *timeout }
        }
        RawStep::Bind(name) => Step::Bind(contexts.own(own, name, report)?),
        RawStep::Drain(name) => Step::Drain(contexts.own(own, name, report)?),
        RawStep::Revoke(name) => Step::Revoke(contexts.target(name, report)?),
        RawStep::Lease(name) => Step::Lease(leases.find(name, report)?),
        RawStep::Release(name) => Step::Release(leases.find(name, report)?),
        RawStep::Submit(name, entries, options) => Step::Submit {
            ring: rings.find(name, report)?,
            entries: *entries,
            deadline: options.deadline,
            late: options.lateness(),
        },
        RawStep::Complete(name, entries, options) => {
            Step::Complete { ring: rings.find(name, report)?, entries: *entries, timeout: options.timeout }
        }
        RawStep::Poll(name) => Step::Poll(rings.find(name, report)?),
        RawStep::Lock(name, timeout) => Step::Lock { mutex: sync.mutex(name, report)?, timeout: *timeout },
        RawStep::Unlock(name) => Step::Unlock(sync.mutex(name, report)?),
        RawStep::Down(name, timeout) => {
            Step::Down { semaphore: sync.semaphore(name, report)?, timeout: *timeout }
        }
        RawStep::Up(name) => Step::Up(sync.semaphore(name, report)?),
        RawStep::Barrier(name, timeout) => {
            Step::Barrier { barrier: sync.barrier(name, report)?, timeout: *timeout }
        }
        RawStep::Wait(condition, mutex, timeout) => {
            let (condition, mutex) = (sync.condition(condition, report), sync.mutex(mutex, report));
            Step::Wait { condition: condition?, mutex: mutex?, timeout: *timeout }
        }
        RawStep::Signal(name) => Step::Signal(sync.condition(name, report)?),
        RawStep::Broadcast(name) => Step::Broadcast(sync.condition(name, report)?),
        // Where ways begin and phases end is found once all steps are read.
        RawStep::Either(chance) => Step::Either { ways: vec![Way { below_ppm: *chance, first: 0 }], end: 0 },
        RawStep::Or(_) => Step::Or { end: 0 },
    })
}
