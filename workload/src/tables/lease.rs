//! `[[lease]]`.

use super::{Known, TableError, each, own_name};
use crate::document::Section;
use crate::error::{Report, Reported, clipped};
use crate::scope::NamedTable;
use crate::sections::{HOUR, PERIOD, time};
use crate::suggest::nearest;
use crate::value::{Found, choice, fixed, flag, name};
use crate::{Account, ContextTarget, LeaseMode, LeaseSpec, LeaseStart, RingSpec, ThreadSpec, cpus};
use mainspring_abi::Nanos;
use std::ops::RangeInclusive;

const KEYS: [&str; 11] = [
    "name",
    "cpus",
    "thread",
    "mode",
    "ring",
    "account",
    "max_revocation",
    "lifetime",
    "revoke_endpoint",
    "nohz",
    "start",
];
const MODES: [(&str, LeaseMode); 4] = [
    ("compute", LeaseMode::Compute),
    ("poller", LeaseMode::Poller),
    ("kernel-sqpoll", LeaseMode::KernelSqpoll),
    ("kernel-worker", LeaseMode::KernelWorker),
];
const LEDGER: &str = "ledger";
const REVOCATION: RangeInclusive<Nanos> = Nanos::from_micros(1)..=Nanos::from_secs(1);

/// Reads the leases.
pub(crate) fn leases(
    known: &Known<'_, '_, '_>,
    threads: &Result<Vec<ThreadSpec>, Reported>,
    rings: &Result<Vec<RingSpec>, Reported>,
    report: &mut Report<'_>,
) -> Result<Vec<LeaseSpec>, Reported> {
    each(&known.scope.leases, |_, table| lease(table, known, threads, rings, report))
}

fn lease(
    table: &NamedTable<'_>,
    known: &Known<'_, '_, '_>,
    threads: &Result<Vec<ThreadSpec>, Reported>,
    rings: &Result<Vec<RingSpec>, Reported>,
    report: &mut Report<'_>,
) -> Result<LeaseSpec, Reported> {
    let mut section = Section::open("[[lease]]", &KEYS, table.table.clone(), report);
    let cpus = section.require("cpus", "cpus = [1]", |value, report| cpus::mask(value, known.cpus, report));
    let thread = section.require("thread", "thread = \"NAME\"", |value, report| {
        known.scope.threads.one(&name(value, "thread", report)?, report)
    });
    let mode = section.read("mode", |value, report| choice(value, "mode", &MODES, report));
    let mode = mode.map(Option::unwrap_or_default);
    let ring = section.read("ring", |value, report| {
        let name = name(value, "ring", report)?;
        let ring = known.scope.rings.find(&name, report)?;
        if mode? != LeaseMode::KernelSqpoll {
            return Err(report.push(&value.at, TableError::RingWithoutSqpoll));
        }
        match rings.as_ref().map(|rings| rings.get(ring)) {
            Err(reported) => Err(*reported),
            Ok(Some(spec)) if !spec.sqpoll => {
                Err(report.push(&value.at, TableError::NotSqpoll { ring: clipped(name.value) }))
            }
            Ok(_) => Ok(ring),
        }
    });
    let account = section.read("account", |value, report| account(value, known, report));
    let max_revocation = time(&mut section, "max_revocation", REVOCATION);
    let lifetime = time(&mut section, "lifetime", PERIOD);
    let revoke_endpoint = section.read("revoke_endpoint", |value, report| {
        known.received_endpoint(&name(value, "endpoint", report)?, report)
    });
    let nohz = section.read("nohz", flag);
    let start = section.read("start", start);
    if let (Ok(LeaseMode::KernelSqpoll), Ok(None)) = (mode, ring) {
        return Err(report.push(&table.table.at, TableError::SqpollWithoutRing));
    }
    let (thread, threads) = (thread?, threads.as_ref().map_err(|reported| *reported)?);
    let own = threads.get(thread.thread).and_then(|spec| spec.context);
    let own = own.map(|context| Account::Context(ContextTarget { context, instance: thread.instance }));
    Ok(LeaseSpec {
        name: own_name(table)?,
        cpus: cpus?,
        thread,
        mode: mode?,
        ring: ring?,
        account: account?.or(own).unwrap_or(Account::Ledger),
        max_revocation: max_revocation?.unwrap_or(Nanos::from_millis(1)),
        lifetime: lifetime?,
        revoke_endpoint: revoke_endpoint?,
        nohz: nohz?.unwrap_or(true),
        start: start?.unwrap_or(LeaseStart::At(Nanos::ZERO)),
    })
}

fn account(
    value: &Found<'_>,
    known: &Known<'_, '_, '_>,
    report: &mut Report<'_>,
) -> Result<Account, Reported> {
    let name = name(value, "context", report)?;
    if name.value == LEDGER {
        return Ok(Account::Ledger);
    }
    known.scope.contexts.one(&name, report).map(Account::Context)
}

fn start(value: &Found<'_>, report: &mut Report<'_>) -> Result<LeaseStart, Reported> {
    match value.value.as_str() {
        Some("step") => Ok(LeaseStart::Step),
        Some(text) if nearest(text, ["step"]).is_some() => {
            choice(value, "start", &[("step", LeaseStart::Step)], report)
        }
        _ => fixed(value, "start", Nanos::ZERO..=HOUR, report).map(LeaseStart::At),
    }
}
