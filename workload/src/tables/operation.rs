//! `[[at]]`: the time and the text of one operation.

use super::{Known, TableError};
use crate::document::{Section, TableList};
use crate::error::{Report, Reported};
use crate::grammar::{Phrase, StepError, Verb, find, verb};
use crate::sections::HOUR;
use crate::source::At;
use crate::thread::LATENCIES;
use crate::value::{ENDLESS, Kind, fixed, text};
use crate::words::{Options, Words};
use crate::{MAX_TABLES, Operation, TimedOperation};
use mainspring_abi::{LatencyClass, Nanos};

const KEYS: [&str; 2] = ["time", "do"];

type Read = for<'k> fn(&Words<'_>, &Known<'k, '_, '_>, &mut Report<'_>) -> Result<Operation, Reported>;

const ADJUST: &str = "\"adjust CONTEXT budget 2ms period 10ms\"";
const POLICY: &str = "\"policy dies\", \"policy stalls\", \"policy weight THREAD 128 epoch 2\" or \
    \"policy profile THREAD batch epoch 2\"";
const WEIGHT: &str = "\"policy weight THREAD 128 epoch 2\"";
const PROFILE: &str = "\"policy profile THREAD interactive epoch 2\" (or normal, or batch)";

const VERBS: [Verb<Read>; 8] = [
    verb("revoke", 1, 1, "\"revoke CONTEXT\"", |words, known, report| {
        let name = words.name(1, "context", report)?;
        known.scope.contexts.target(&name, report).map(Operation::Revoke)
    }),
    verb("adjust", 5, 5, ADJUST, adjust),
    verb("logout", 1, 1, "\"logout SESSION\"", |words, known, report| {
        let name = words.name(1, "session", report)?;
        known.scope.sessions.find(&name, report).map(Operation::Logout)
    }),
    verb("exit", 1, 1, "\"exit THREAD\"", |words, known, report| {
        let name = words.name(1, "thread", report)?;
        known.scope.threads.target(&name, report).map(Operation::Exit)
    }),
    verb("revoke-lease", 1, 1, "\"revoke-lease LEASE\"", |words, known, report| {
        let name = words.name(1, "lease", report)?;
        known.scope.leases.find(&name, report).map(Operation::RevokeLease)
    }),
    verb("leave", 1, 1, "\"leave ISLAND\"", |words, known, report| {
        let name = words.name(1, "island", report)?;
        known.scope.islands.find(&name, report).map(Operation::LeaveIsland)
    }),
    verb("close", 1, 1, "\"close ENDPOINT\"", |words, known, report| {
        let name = words.name(1, "endpoint", report)?;
        known.endpoint(&name, report).map(Operation::CloseEndpoint)
    }),
    verb("policy", 1, 5, POLICY, |words, known, report| {
        let verb = find(words, 1, &POLICY_VERBS, report)?;
        (verb.read)(words, known, report)
    }),
];

const POLICY_VERBS: [Verb<Read>; 4] = [
    verb("dies", 0, 0, "\"policy dies\"", |_, _, _| Ok(Operation::PolicyDies)),
    verb("stalls", 0, 0, "\"policy stalls\"", |_, _, _| Ok(Operation::PolicyStalls)),
    verb("weight", 4, 4, WEIGHT, |words, known, report| {
        let name = words.name(2, "thread", report)?;
        let thread = known.scope.threads.target(&name, report);
        let (weight, epoch) = (words.weight(3, report), epoch(words, WEIGHT, report));
        Ok(Operation::PolicyWeight { thread: thread?, weight: weight?, epoch: epoch? })
    }),
    verb("profile", 4, 4, PROFILE, |words, known, report| {
        let name = words.name(2, "thread", report)?;
        let thread = known.scope.threads.target(&name, report);
        let (latency, epoch) = (latency(words, report), epoch(words, PROFILE, report));
        Ok(Operation::PolicyProfile { thread: thread?, latency: latency?, epoch: epoch? })
    }),
];

/// Reads what is done and when, and puts it into the order of time.
pub(crate) fn operations(
    tables: TableList<'_>,
    policy: bool,
    known: &Known<'_, '_, '_>,
    report: &mut Report<'_>,
) -> Result<Vec<TimedOperation>, Reported> {
    let tables = tables?;
    if let Some(table) = tables.get(MAX_TABLES) {
        return Err(report.push(&table.at, TableError::TooManyOperations));
    }
    let all: Vec<_> = tables
        .into_iter()
        .map(|table| {
            let mut section = Section::open("[[at]]", &KEYS, table, report);
            let time = section.require("time", "time = \"300ms\"", |value, report| {
                fixed(value, "time", Nanos::ZERO..=HOUR, report)
            });
            let done = section.require("do", "do = \"revoke NAME\"", |value, report| {
                let text = text(value, Kind::Operation, report)?;
                Ok((operation(text.clone(), policy, known, report)?, text.value.trim().to_owned()))
            });
            let (operation, text) = done?;
            Ok(TimedOperation { time: time?, operation, text })
        })
        .collect();
    let mut all = all.into_iter().collect::<Result<Vec<_>, Reported>>()?;
    all.sort_by_key(|timed| timed.time);
    Ok(all)
}

fn operation(
    text: At<&str>,
    policy: bool,
    known: &Known<'_, '_, '_>,
    report: &mut Report<'_>,
) -> Result<Operation, Reported> {
    let words = Words::split(Phrase::Operation, text);
    let verb = find(&words, 0, &VERBS, report)?;
    let operation = (verb.read)(&words, known, report)?;
    if verb.name == "policy" && !policy {
        return Err(report.push(&words.text.at, TableError::NoPolicy));
    }
    Ok(operation)
}

fn adjust(
    words: &Words<'_>,
    known: &Known<'_, '_, '_>,
    report: &mut Report<'_>,
) -> Result<Operation, Reported> {
    let name = words.name(1, "context", report)?;
    let context = known.scope.contexts.target(&name, report)?;
    let options = Options::read(words, 2, "adjust", &["budget", "period"], ADJUST, report)?;
    let missing = |option| StepError::NoValue { option, usage: ADJUST };
    let Some(budget) = options.budget else { return Err(words.refuse(0, missing("budget"), report)) };
    let Some(period) = options.period else { return Err(words.refuse(0, missing("period"), report)) };
    if budget > period {
        let error = TableError::BudgetTooLarge { budget, bound: "period", limit: period };
        return Err(report.push(&words.text.at, error));
    }
    Ok(Operation::Adjust { context, budget, period })
}

/// `epoch 2` behind the other arguments.
fn epoch(words: &Words<'_>, usage: &'static str, report: &mut Report<'_>) -> Result<u64, Reported> {
    if words.word(4) != Some("epoch") {
        return Err(words.refuse_extra(4, "policy", usage, &["epoch"], report));
    }
    words.number(5, "epoch", 0..=ENDLESS, report)
}

fn latency(words: &Words<'_>, report: &mut Report<'_>) -> Result<LatencyClass, Reported> {
    let found = LATENCIES.iter().find(|(word, _)| words.word(3) == Some(word));
    let classes = LATENCIES.map(|(word, _)| word);
    found
        .map(|(_, latency)| *latency)
        .ok_or_else(|| words.refuse_extra(3, "policy profile", PROFILE, &classes, report))
}
