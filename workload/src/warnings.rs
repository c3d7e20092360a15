//! Things that a file may say and hardly means: waits that no thread ends, starts after the end, contexts that no thread uses, and
//! branches that no thread takes.

use crate::{Start, Step, Workload};
use mainspring_abi::Nanos;
use std::fmt;

/// Something that is probably a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The line, if the workload comes from a file.
    pub line: Option<usize>,
    /// What is odd, and what follows from it.
    pub what: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl Workload {
    /// What is probably a mistake.
    #[must_use]
    pub fn warnings(&self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        self.endless_parks(&mut warnings);
        self.late_starts(&mut warnings);
        self.unused_contexts(&mut warnings);
        self.unsignalled(&mut warnings);
        self.idle_phases(&mut warnings);
        warnings
    }

    fn steps(&self) -> impl Iterator<Item = (usize, usize, &Step)> {
        self.threads.iter().enumerate().flat_map(|(table, thread)| {
            thread.program.iter().enumerate().map(move |(at, step)| (table, at, step))
        })
    }

    /// A `park` without a timeout, of a thread that no thread unparks.
    fn endless_parks(&self, warnings: &mut Vec<Warning>) {
        // All sleepers are woken now and then.
        if !self.faults.burst_every.is_zero() {
            return;
        }
        let mut unparked = vec![false; self.threads.len()];
        for (_, _, step) in self.steps() {
            if let Step::Unpark(target) = step {
                unparked[target.thread] = true;
            }
        }
        for target in self.interrupts.iter().filter_map(|interrupt| interrupt.wakes) {
            unparked[target.thread] = true;
        }
        let mut told = vec![false; self.threads.len()];
        for (table, at, step) in self.steps() {
            if matches!(step, Step::Park { timeout: None })
                && !unparked[table]
                && !std::mem::replace(&mut told[table], true)
            {
                let name = &self.threads[table].name;
                let what = format!("nobody unparks {name}: its park never ends");
                warnings.push(Warning { line: self.places.step(table, at), what });
            }
        }
    }

    fn late_starts(&self, warnings: &mut Vec<Warning>) {
        let end = self.machine.duration;
        let mut late = |line, what: String, at: Nanos| {
            if at >= end {
                let what = format!("{what} at {at}, and the run ends at {end}");
                warnings.push(Warning { line, what });
            }
        };
        for (table, thread) in self.threads.iter().enumerate() {
            if let Start::At(span) = thread.start {
                late(self.places.thread(table), format!("{} starts", thread.name), span.min);
            }
        }
        for island in &self.islands {
            late(self.places.table("island"), format!("island {} asks", island.name), island.start);
        }
        for operation in &self.operations {
            late(self.places.table("at"), format!("`{}` comes", operation.text), operation.time);
        }
    }

    /// Ways that are never taken, phases that outlast the run, and siblings of a CPU that has none.
    fn idle_phases(&self, warnings: &mut Vec<Warning>) {
        let end = self.machine.duration;
        for (table, at, step) in self.steps() {
            let name = &self.threads[table].name;
            let mut warn = |at, what| warnings.push(Warning { line: self.places.step(table, at), what });
            match step {
                Step::For { span, .. } if span.min >= end => {
                    warn(at, format!("{name} is in this phase for {}, and the run ends at {end}", span.min));
                }
                Step::Either { ways, .. } => {
                    let before = std::iter::once(0).chain(ways.iter().map(|way| way.below_ppm));
                    for (way, _) in ways.iter().zip(before).filter(|(way, before)| way.below_ppm == *before) {
                        warn(way.first - 1, format!("{name} never goes this way: its chance is 0%"));
                    }
                }
                _ => {}
            }
        }
        if self.machine.smt_ppm.is_some() && self.machine.cpus == 1 {
            let what = "smt changes nothing: a CPU that is alone shares its core with none".to_owned();
            warnings.push(Warning { line: self.places.table("machine"), what });
        }
    }

    fn unused_contexts(&self, warnings: &mut Vec<Warning>) {
        let mut used: Vec<bool> = self.contexts.iter().map(|context| context.process.is_some()).collect();
        for context in self.threads.iter().filter_map(|thread| thread.context) {
            used[context] = true;
        }
        for context in self.endpoints.iter().filter_map(|endpoint| endpoint.context) {
            used[context.context] = true;
        }
        for (_, _, step) in self.steps() {
            if let Step::Bind(target) = step {
                used[target.context] = true;
            }
        }
        for (context, _) in self.contexts.iter().zip(&used).filter(|(_, used)| !**used) {
            let what = format!("nobody uses context {}: its time is set aside for nothing", context.name);
            warnings.push(Warning { line: self.places.table("context"), what });
        }
    }

    /// Waits at an object that no thread opens: a barrier with too few threads, a semaphore that is never raised, a condition without a
    /// signal.
    fn unsignalled(&self, warnings: &mut Vec<Warning>) {
        for (object, spec) in self.sync.iter().enumerate() {
            let brings = |step: &Step| match *step {
                Step::Up(semaphore) => semaphore == object,
                Step::Signal(condition) | Step::Broadcast(condition) => condition == object,
                _ => false,
            };
            let waits = |step: &Step| match *step {
                Step::Down { semaphore, timeout: None } => semaphore == object,
                Step::Wait { condition, timeout: None, .. } => condition == object,
                Step::Barrier { barrier, timeout: None } => barrier == object,
                _ => false,
            };
            let Some((table, at, _)) = self.steps().find(|(_, _, step)| waits(step)) else { continue };
            let kind = spec.kind.word();
            let short = match spec.kind {
                crate::SyncKind::Barrier { parties } => {
                    let there = self.threads.iter().filter(|thread| thread.program.iter().any(waits));
                    let there: usize = there.map(crate::ThreadSpec::instances).sum();
                    (there < parties as usize)
                        .then(|| format!("{there} of {parties} threads come to {kind} {}", spec.name))
                }
                crate::SyncKind::Mutex { .. } => None,
                crate::SyncKind::Semaphore { .. } | crate::SyncKind::Condition => {
                    let nobody = !self.steps().any(|(_, _, step)| brings(step));
                    nobody.then(|| format!("nobody raises {kind} {}", spec.name))
                }
            };
            if let Some(short) = short {
                let what = format!("{short}: waits there never end");
                warnings.push(Warning { line: self.places.step(table, at), what });
            }
        }
    }
}
