//! `[[context]]`.

use super::{Known, OVERRUNS, TableError, cycle, each, own_name};
use crate::document::Section;
use crate::error::{Report, Reported, clipped};
use crate::names::Noun;
use crate::scope::NamedTable;
use crate::sections::PERIOD;
use crate::thread::RawThread;
use crate::value::{choice, fixed, integer, name};
use crate::{ContextSpec, cpus};

const KEYS: [&str; 12] = [
    "name",
    "budget",
    "period",
    "deadline",
    "cpus",
    "priority",
    "criticality",
    "refills",
    "overrun",
    "depth",
    "timeout_endpoint",
    "process",
];

/// Reads the contexts, and checks that their threads can use them.
pub(crate) fn contexts(
    known: &Known<'_, '_, '_>,
    threads: &[RawThread<'_>],
    report: &mut Report<'_>,
) -> Result<Vec<ContextSpec>, Reported> {
    let contexts = &known.scope.contexts;
    each(&contexts.named, |n, table| {
        let context = context(n, table, known, threads, report)?;
        if let Some(thread) = contexts.user(n).and_then(|user| threads.get(user))
            && let (Ok(Some(mask)), Some(own), Ok(Some(name))) = (&thread.cpus, context.cpus, &thread.context)
            && !own.iter().any(|cpu| mask.contains(cpu))
        {
            report.push(&name.at, TableError::NoCommonCpu { context: clipped(name.value) });
        }
        Ok(context)
    })
}

fn context(
    n: usize,
    table: &NamedTable<'_>,
    known: &Known<'_, '_, '_>,
    threads: &[RawThread<'_>],
    report: &mut Report<'_>,
) -> Result<ContextSpec, Reported> {
    let contexts = &known.scope.contexts;
    let mut section = Section::open("[[context]]", &KEYS, table.table.clone(), report);
    let cycle = cycle(&mut section);
    let budget = section.require("budget", "budget = \"2ms\"", |value, report| {
        let budget = fixed(value, "budget", PERIOD, report)?;
        let (_, limit) = cycle?;
        if budget > limit {
            let error = TableError::BudgetTooLarge { budget, bound: "deadline", limit };
            return Err(report.push(&value.at, error));
        }
        Ok(budget)
    });
    let cpus = section.read("cpus", |value, report| cpus::mask(value, known.cpus, report));
    let priority =
        section.read("priority", |value, report| integer(value, "priority", 0..=u16::MAX.into(), report));
    let criticality = section
        .read("criticality", |value, report| integer(value, "criticality", 0..=u8::MAX.into(), report));
    let refills = section.read("refills", |value, report| integer(value, "refills", 1..=16, report));
    let overrun = section.read("overrun", |value, report| choice(value, "overrun", &OVERRUNS, report));
    let depth = section.read("depth", |value, report| integer(value, "depth", 1..=8, report));
    let timeout_endpoint = section.read("timeout_endpoint", |value, report| {
        known.received_endpoint(&name(value, "endpoint", report)?, report)
    });
    let process = section.read("process", |value, report| {
        let process = known.processes.known(Noun::Process, &name(value, "process", report)?, report)?;
        match contexts.user(n).and_then(|user| threads.get(user)) {
            None => Ok(process),
            Some(thread) => {
                let thread = thread.name.as_ref().map_err(|reported| *reported)?;
                let context = table.name.as_ref().map_err(|reported| *reported)?;
                let (context, thread) = (clipped(context.value), clipped(thread.value));
                Err(report.push(&value.at, TableError::BoundElsewhere { context, thread }))
            }
        }
    });
    let (period, deadline) = cycle?;
    Ok(ContextSpec {
        name: own_name(table)?,
        count: contexts.count(n)?,
        budget: budget?,
        period,
        deadline,
        cpus: cpus?,
        priority: priority?.unwrap_or(0) as u16,
        criticality: criticality?.unwrap_or(0) as u8,
        refills: refills?.unwrap_or(8) as u8,
        overrun: overrun?.unwrap_or_default(),
        depth: depth?.unwrap_or(8) as u8,
        timeout_endpoint: timeout_endpoint?,
        process: process?,
    })
}
