//! `[[thread]]` before its names are resolved.

use crate::document::{Section, table};
use crate::error::{Field, Report, Reported};
use crate::program::ProgramError;
use crate::sections::{SLICE, time};
use crate::source::At;
use crate::step::{RawStep, step};
use crate::suggest::nearest;
use crate::value::{ENDLESS, Found, Kind, ValueError, choice, integer, name, span, text};
use crate::{MAX_THREADS, Span, Start, TaskBudget, cpus};
use mainspring_abi::{CpuSet, LatencyClass, Nanos, Weight};
use std::ops::Range;
use toml::de::{DeTable, DeValue};

const KEYS: [&str; 13] = [
    "name", "count", "process", "weight", "latency", "request", "cpus", "start", "program", "times",
    "context", "session", "budget",
];
pub(crate) const LATENCIES: [(&str, LatencyClass); 3] = [
    ("interactive", LatencyClass::Interactive),
    ("normal", LatencyClass::Normal),
    ("batch", LatencyClass::Batch),
];

/// A thread table; what could not be read has been reported, and the rest is still good for checks.
pub(crate) struct RawThread<'d> {
    pub at: Range<usize>,
    pub name: Result<At<&'d str>, Reported>,
    pub count: Field<At<u32>>,
    pub process: Field<At<&'d str>>,
    pub weight: Field<Weight>,
    pub latency: Field<LatencyClass>,
    pub request: Field<Nanos>,
    pub cpus: Field<CpuSet>,
    pub start: Field<Start>,
    pub program: Result<RawProgram<'d>, Reported>,
    pub times: Field<u64>,
    pub context: Field<At<&'d str>>,
    pub session: Field<At<&'d str>>,
    pub budget: Field<TaskBudget>,
}

/// A program, step by step.
pub(crate) type RawProgram<'d> = Vec<Result<At<RawStep<'d>>, Reported>>;

impl<'d> RawThread<'d> {
    /// Reads one `[[thread]]` of a machine of `cpus` CPUs.
    pub fn read(table: At<&'d DeTable<'d>>, cpus: usize, report: &mut Report<'_>) -> Self {
        let mut thread = Section::open("[[thread]]", &KEYS, table, report);
        Self {
            at: thread.at(),
            name: thread.require("name", "name = \"worker\"", |value, report| name(value, "thread", report)),
            count: thread.read("count", count),
            process: thread.read("process", |value, report| name(value, "process", report)),
            weight: thread.read("weight", weight),
            latency: thread.read("latency", |value, report| choice(value, "latency", &LATENCIES, report)),
            request: time(&mut thread, "request", SLICE),
            cpus: thread.read("cpus", |value, report| cpus::mask(value, cpus, report)),
            start: thread.read("start", start),
            program: thread.require("program", "program = [\"run forever\"]", program),
            times: thread.read("times", |value, report| integer(value, "times", 1..=ENDLESS, report)),
            context: thread.read("context", |value, report| name(value, "context", report)),
            session: thread.read("session", |value, report| name(value, "session", report)),
            budget: thread.read("budget", budget),
        }
    }

    /// Whether another thread starts it; `false` also when `start` could not be read.
    pub fn is_spawned(&self) -> bool {
        matches!(self.start, Ok(Some(Start::Spawned)))
    }

    /// How many threads it makes, as far as can be read.
    pub fn instances(&self) -> usize {
        match &self.count {
            Ok(Some(count)) => count.value as usize,
            _ => 1,
        }
    }
}

fn count(value: &Found<'_>, report: &mut Report<'_>) -> Result<At<u32>, Reported> {
    let count = integer(value, "count", 1..=MAX_THREADS as u64, report)?;
    Ok(At { value: count as u32, at: value.at.clone() })
}

fn weight(value: &Found<'_>, report: &mut Report<'_>) -> Result<Weight, Reported> {
    let number = integer(value, "weight", 1..=u64::from(u16::MAX), report)?;
    Ok(Weight::new(number).unwrap_or_default())
}

fn budget(value: &Found<'_>, report: &mut Report<'_>) -> Result<TaskBudget, Reported> {
    const COMPONENTS: [&str; 5] = ["ops", "memory", "spawns", "channel_ops", "syscalls"];
    let mut budget = Section::open("the budget", &COMPONENTS, table(value, Kind::Budget, report)?, report);
    let mut read = |key, most: u64| budget.read(key, |value, report| integer(value, key, 1..=most, report));
    let (ops, memory) = (read("ops", u32::MAX.into()), read("memory", ENDLESS));
    let (spawns, channel_ops) = (read("spawns", u16::MAX.into()), read("channel_ops", u16::MAX.into()));
    let syscalls = read("syscalls", u16::MAX.into());
    Ok(TaskBudget {
        ops: ops?.map(|ops| ops as u32),
        memory: memory?,
        spawns: spawns?.map(|spawns| spawns as u16),
        channel_ops: channel_ops?.map(|ops| ops as u16),
        syscalls: syscalls?.map(|syscalls| syscalls as u16),
    })
}

fn start(value: &Found<'_>, report: &mut Report<'_>) -> Result<Start, Reported> {
    match value.value.as_str() {
        Some("spawn") => Ok(Start::Spawned),
        Some(text) if nearest(text, ["spawn"]).is_some() => {
            choice(value, "start", &[("spawn", ())], report).map(|()| Start::Spawned)
        }
        _ => span(value, report).map(Start::At),
    }
}

fn program<'d>(value: &Found<'d>, report: &mut Report<'_>) -> Result<RawProgram<'d>, Reported> {
    let DeValue::Array(list) = value.value else {
        let error =
            ValueError::WrongType { expected: Kind::Program, found: value.value.type_str(), quoted: None };
        return Err(report.push(&value.at, error));
    };
    if list.is_empty() {
        return Err(report.push(&value.at, ProgramError::Empty));
    }
    let steps = list.iter().map(|item| {
        let item = At { value: item.get_ref(), at: item.span() };
        let step = step(text(&item, Kind::Step, report)?, report)?;
        Ok(At { value: step, at: item.at })
    });
    Ok(steps.collect())
}

/// The start of a thread that says nothing.
pub(crate) const AT_ONCE: Start = Start::At(Span { min: Nanos::ZERO, max: Nanos::ZERO });
