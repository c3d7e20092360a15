//! `[[expect]]`: what a run is held to.

use super::{Known, TableError};
use crate::decimal::scaled;
use crate::document::{Section, TableList};
use crate::error::{Field, Report, Reported, clipped};
use crate::sections::HOUR;
use crate::value::{ENDLESS, Found, Kind, ValueError, fixed, integer, name, text};
use crate::{Condition, Expectation, MAX_TABLES, Quantile, Subject};
use mainspring_abi::Nanos;

const KEYS: [&str; 16] = [
    "thread",
    "context",
    "endpoint",
    "misses",
    "response_p50",
    "response_p99",
    "response_max",
    "wake_p50",
    "wake_p99",
    "wake_max",
    "call_p50",
    "call_p99",
    "call_max",
    "share",
    "lag",
    "timer_interrupts",
];

/// Conditions on times: the key, whose, and what it means.
type Time = (&'static str, fn(Quantile, Nanos) -> Condition, Quantile);
const TIMES: [Time; 9] = [
    ("response_p50", Condition::Response, Quantile::P50),
    ("response_p99", Condition::Response, Quantile::P99),
    ("response_max", Condition::Response, Quantile::Max),
    ("wake_p50", Condition::Wake, Quantile::P50),
    ("wake_p99", Condition::Wake, Quantile::P99),
    ("wake_max", Condition::Wake, Quantile::Max),
    ("call_p50", Condition::Call, Quantile::P50),
    ("call_p99", Condition::Call, Quantile::P99),
    ("call_max", Condition::Call, Quantile::Max),
];

/// Reads what is expected, one after the other in the order of the file.
pub(crate) fn expectations(
    tables: TableList<'_>,
    known: &Known<'_, '_, '_>,
    report: &mut Report<'_>,
) -> Result<Vec<Expectation>, Reported> {
    let tables = tables?;
    if let Some(table) = tables.get(MAX_TABLES) {
        return Err(report.push(&table.at, TableError::TooManyExpectations));
    }
    let mut all = Ok(Vec::new());
    for table in tables {
        let line = report.line(&table.at);
        let (mut section, at) = {
            let at = table.at.clone();
            (Section::open("[[expect]]", &KEYS, table, report), at)
        };
        let read = conditions(&mut section, known);
        let found = read.and_then(|(subject, conditions)| {
            if conditions.is_empty() {
                return Err(report.push(&at, TableError::ExpectsNothing));
            }
            let misplaced = conditions.iter().find(|condition| !applies(subject, condition));
            match misplaced {
                Some(condition) => {
                    Err(report.push(&at, TableError::ExpectedElsewhere { of: whose(condition) }))
                }
                None => Ok(conditions
                    .into_iter()
                    .map(|condition| Expectation { subject, condition, line })
                    .collect()),
            }
        });
        match (&mut all, found) {
            (Ok(all), Ok(found)) => {
                let found: Vec<Expectation> = found;
                all.extend(found);
            }
            (_, Err(reported)) => all = Err(reported),
            (Err(_), Ok(_)) => {}
        }
    }
    all
}

fn conditions(
    section: &mut Section<'_, '_, '_>,
    known: &Known<'_, '_, '_>,
) -> Result<(Subject, Vec<Condition>), Reported> {
    let thread = section.read("thread", |value, report| {
        let name = name(value, "thread", report)?;
        known.scope.threads.target(&name, report).map(Subject::Thread)
    });
    let context = section.read("context", |value, report| {
        let name = name(value, "context", report)?;
        known.scope.contexts.target(&name, report).map(Subject::Context)
    });
    let endpoint = section.read("endpoint", |value, report| {
        let name = name(value, "endpoint", report)?;
        known.endpoint(&name, report).map(Subject::Endpoint)
    });
    let mut found: Vec<Field<Condition>> = Vec::new();
    let number = |value: &Found<'_>, report: &mut Report<'_>, what| integer(value, what, 0..=ENDLESS, report);
    found.push(section.read("misses", |v, r| number(v, r, "misses").map(Condition::Misses)));
    for (key, condition, which) in TIMES {
        found.push(section.read(key, |value, report| {
            fixed(value, key, Nanos::ZERO..=HOUR, report).map(|most| condition(which, most))
        }));
    }
    found.push(section.read("share", share));
    found.push(section.read("lag", |v, r| fixed(v, "lag", Nanos::ZERO..=HOUR, r).map(Condition::Lag)));
    found.push(
        section.read("timer_interrupts", |v, r| {
            number(v, r, "timer_interrupts").map(Condition::TimerInterrupts)
        }),
    );
    let subjects: Vec<Subject> = [thread?, context?, endpoint?].into_iter().flatten().collect();
    let subject = match subjects.as_slice() {
        [] => Subject::Run,
        [one] => *one,
        _ => return Err(section.refuse(TableError::ExpectsOfSeveral)),
    };
    let conditions = found.into_iter().filter_map(Result::transpose).collect::<Result<_, _>>()?;
    Ok((subject, conditions))
}

/// Whether a condition makes sense of a subject.
fn applies(subject: Subject, condition: &Condition) -> bool {
    match condition {
        Condition::Misses(_) => !matches!(subject, Subject::Endpoint(_)),
        Condition::Call(..) => matches!(subject, Subject::Endpoint(_)),
        Condition::TimerInterrupts(_) => subject == Subject::Run,
        Condition::Response(..) | Condition::Wake(..) | Condition::Share { .. } | Condition::Lag(_) => {
            matches!(subject, Subject::Thread(_))
        }
    }
}

/// What a condition is of, as it is written.
fn whose(condition: &Condition) -> &'static str {
    match condition {
        Condition::Misses(_) => "of a thread, a context or the whole run",
        Condition::Call(..) => "of an endpoint: add endpoint = \"NAME\"",
        Condition::TimerInterrupts(_) => "of the whole run: write it in a table without a name",
        _ => "of a thread: add thread = \"NAME\"",
    }
}

/// `20%..30%`.
fn share(value: &Found<'_>, report: &mut Report<'_>) -> Result<Condition, Reported> {
    let text = text(value, Kind::Share, report)?;
    let ppm = |part: &str| {
        let number = part.trim().strip_suffix('%')?;
        u32::try_from(scaled(number, 10_000).ok()?).ok().filter(|ppm| *ppm <= 1_000_000)
    };
    let limits = text.value.split_once("..").and_then(|(min, max)| Some((ppm(min)?, ppm(max)?)));
    match limits {
        Some((min_ppm, max_ppm)) if min_ppm <= max_ppm => Ok(Condition::Share { min_ppm, max_ppm }),
        _ => Err(report.push(&text.at, ValueError::BadShare { text: clipped(text.value) })),
    }
}
