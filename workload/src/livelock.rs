//! Time must pass: no set of threads may go round and round within one instant, or the simulator would never
//! leave it.
//!
//! A thread is *calm* if it can act only finitely often in any finite time:
//!
//! - each round of its program runs, sleeps or waits for a period, or
//! - it ends, and only calm threads spawn it, or
//! - each round waits for an event (an unpark, a call, a receiver) that only calm threads bring about.
//!
//! A wait that may be refused at once is none: a call that needs budget or carries a deadline, any call in a file
//! with contexts (its donation may be refused), and calls and receives on an endpoint that is closed. Each entry of a
//! ring takes time to be served, so a round that waits for completions, or serves them, takes time too.
//!
//! The calm threads are the least set closed under these rules; a thread outside of it is reported. What cannot be
//! read counts as calm, so that one mistake is not told twice. Events count their restless causes, and each thread
//! becomes calm once, so the whole check is linear in the size of the file.

use crate::error::{Report, Reported};
use crate::program::{Program, ProgramError};
use crate::thread::RawThread;
use crate::{Call, Operation, Span, Step, TimedOperation};
use std::collections::{HashMap, HashSet};

/// Something that a thread waits for and that others bring about.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Event {
    /// An unpark of a thread table.
    Unpark(usize),
    /// A call on an endpoint.
    Call(usize),
    /// A thread takes requests from an endpoint.
    Receive(usize),
    /// A spawn of a thread table.
    Spawn(usize),
}

#[derive(Default)]
struct EventState {
    /// How many steps of restless threads bring it about.
    restless: usize,
    waiting: Vec<usize>,
}

/// What keeps a call or a receive from waiting.
pub(crate) struct Refusals {
    contexts: bool,
    closed: HashSet<usize>,
}

impl Refusals {
    /// The refusals in a file which may have contexts, and whose operations may close endpoints.
    pub fn new(contexts: bool, operations: &Result<Vec<TimedOperation>, Reported>) -> Self {
        let closed = operations.iter().flatten().filter_map(|timed| match timed.operation {
            Operation::CloseEndpoint(endpoint) => Some(endpoint),
            _ => None,
        });
        Self { contexts, closed: closed.collect() }
    }

    fn call(&self, call: &Call) -> bool {
        let conditional = call.needs.is_some() || call.deadline.is_some();
        self.contexts || conditional || self.closed.contains(&call.endpoint)
    }

    /// What thread table `own` waits for in a step, unless its timeout or a refusal ends the wait at once.
    fn awaited(&self, own: usize, step: &Step) -> Option<Event> {
        let (event, timeout) = match step {
            Step::Park { timeout } => (Event::Unpark(own), timeout),
            Step::Call(call) if !self.call(call) => (Event::Receive(call.endpoint), &call.timeout),
            Step::Recv { endpoint, timeout } if !self.closed.contains(endpoint) => {
                (Event::Call(*endpoint), timeout)
            }
            _ => return None,
        };
        patient(*timeout).then_some(event)
    }
}

/// Reports every thread that could keep time from passing.
pub(crate) fn check(
    threads: &[RawThread<'_>],
    programs: &[Program],
    refusals: &Refusals,
    report: &mut Report<'_>,
) {
    let mut search = CalmSearch::new(threads, programs, refusals);
    search.run(programs);
    for (n, program) in programs.iter().enumerate() {
        if search.calm.get(n) == Some(&false) {
            let waits = program.steps.iter().any(|step| refusals.awaited(n, &step.value).is_some());
            let error = if waits { ProgramError::SpinsTogether } else { ProgramError::Spins };
            report.push(&program.at(), error);
        }
    }
}

struct CalmSearch {
    calm: Vec<bool>,
    events: HashMap<Event, EventState>,
    /// Threads that have become calm and whose events have not heard of it yet.
    fresh: Vec<usize>,
}

impl CalmSearch {
    fn new(threads: &[RawThread<'_>], programs: &[Program], refusals: &Refusals) -> Self {
        let mut search =
            Self { calm: vec![false; programs.len()], events: HashMap::new(), fresh: Vec::new() };
        let timed = timed(threads, programs);
        for (n, (thread, program)) in threads.iter().zip(programs).enumerate() {
            for event in program.steps.iter().filter_map(|step| caused(&step.value)) {
                search.events.entry(event).or_default().restless += 1;
            }
            for event in program.steps.iter().filter_map(|step| refusals.awaited(n, &step.value)) {
                search.events.entry(event).or_default().waiting.push(n);
            }
            let ends = !matches!(thread.times, Ok(None)) || program.exits;
            if ends && thread.is_spawned() {
                search.events.entry(Event::Spawn(n)).or_default().waiting.push(n);
            }
            let finite = ends && !thread.is_spawned();
            if finite || program.failed.is_some() || timed.get(n) == Some(&true) {
                search.mark_calm(n);
            }
        }
        search
    }

    fn mark_calm(&mut self, n: usize) {
        if let Some(calm) = self.calm.get_mut(n).filter(|calm| !**calm) {
            *calm = true;
            self.fresh.push(n);
        }
    }

    fn run(&mut self, programs: &[Program]) {
        // A wait for an event that no thread brings about lasts for ever, or until the timeout, so it is calm.
        let quiet: Vec<Event> =
            self.events.iter().filter(|(_, state)| state.restless == 0).map(|(event, _)| *event).collect();
        quiet.into_iter().for_each(|event| self.calm_down(event));
        while let Some(n) = self.fresh.pop() {
            let Some(program) = programs.get(n) else { continue };
            for event in program.steps.iter().filter_map(|step| caused(&step.value)) {
                let Some(state) = self.events.get_mut(&event) else { continue };
                state.restless -= 1;
                if state.restless == 0 {
                    self.calm_down(event);
                }
            }
        }
    }

    fn calm_down(&mut self, event: Event) {
        let waiting = self.events.get_mut(&event).map(|state| std::mem::take(&mut state.waiting));
        waiting.into_iter().flatten().for_each(|n| self.mark_calm(n));
    }
}

fn caused(step: &Step) -> Option<Event> {
    match step {
        Step::Unpark(target) => Some(Event::Unpark(target.thread)),
        Step::Call(call) => Some(Event::Call(call.endpoint)),
        Step::Recv { endpoint, .. } => Some(Event::Receive(*endpoint)),
        Step::Spawn(table) => Some(Event::Spawn(*table)),
        _ => None,
    }
}

fn lasts(span: &Span) -> bool {
    !span.max.is_zero()
}

/// For each table, whether each round takes time, whatever the others do.
fn timed(threads: &[RawThread<'_>], programs: &[Program]) -> Vec<bool> {
    let timed: Vec<bool> =
        programs.iter().map(|program| program.steps.iter().any(|step| passes(&step.value))).collect();
    // A join takes time once; then its target has ended. Only a target that never ends, or a new one that takes
    // time in each round, makes each round last.
    let join_lasts = |program: &Program, target: usize| {
        let repeats = threads.get(target).is_some_and(|thread| matches!(thread.times, Ok(None)));
        let endless = repeats && programs.get(target).is_some_and(|target| !target.exits);
        endless || program.spawned.contains(&target) && timed.get(target) == Some(&true)
    };
    let joins = |program: &Program| {
        program.steps.iter().any(|step| match step.value {
            Step::Join { target, timeout } => patient(timeout) && join_lasts(program, target.thread),
            _ => false,
        })
    };
    timed.iter().zip(programs).map(|(timed, program)| *timed || joins(program)).collect()
}

/// Whether a wait does not end at once.
fn patient(timeout: Option<Span>) -> bool {
    timeout.is_none_or(|timeout| lasts(&timeout))
}

/// Whether a step takes time whatever the others do.
pub(crate) fn passes(step: &Step) -> bool {
    match step {
        Step::Run(span) | Step::Sleep(span) => lasts(span),
        Step::RunForever
        | Step::RunDrawn(_)
        | Step::SleepDrawn(_)
        | Step::Every(_)
        | Step::Poll(_)
        | Step::Alloc(_)
        | Step::Syscall => true,
        Step::Complete { timeout, .. } => patient(*timeout),
        _ => false,
    }
}
