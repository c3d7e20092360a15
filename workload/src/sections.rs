//! `[machine]`, `[costs]`, `[faults]` and `[network]`.

use crate::document::{Section, table};
use crate::error::{Field, Report, Reported};
use crate::source::At;
use crate::tables::TableError;
use crate::value::{Found, Kind, ValueError, chance, choice, fixed, flag, integer};
use crate::{Costs, Faults, MAX_THREADS, Machine, Network, cpus};
use mainspring_abi::{MAX_CPUS, Nanos, Policy};
use std::ops::RangeInclusive;
use toml::de::{DeTable, DeValue};

/// A table that may be absent.
pub(crate) type Table<'d> = Option<At<&'d DeTable<'d>>>;

pub(crate) const SECOND: Nanos = Nanos::from_secs(1);
pub(crate) const HOUR: Nanos = Nanos::from_secs(3600);
/// What a quantum, a request and the shortest run may be.
pub(crate) const SLICE: RangeInclusive<Nanos> = Nanos::from_micros(1)..=SECOND;
const TICK: RangeInclusive<Nanos> = Nanos::from_micros(100)..=SECOND;
const DURATION: RangeInclusive<Nanos> = Nanos::from_micros(1)..=HOUR;
pub(crate) const COST: RangeInclusive<Nanos> = Nanos::ZERO..=SECOND;
/// A fault that takes no time is none.
const DELAY: RangeInclusive<Nanos> = Nanos::new(1)..=HOUR;
/// Shorter periods would drown the run in what they start.
pub(crate) const PERIOD: RangeInclusive<Nanos> = Nanos::from_micros(1)..=HOUR;

const POLICIES: [(&str, Policy); 2] = [("eevdf", Policy::Eevdf), ("wfq", Policy::Wfq)];

/// `[machine]` before the number of threads is known.
pub(crate) struct RawMachine {
    cpus: Field<u64>,
    policy: Field<Policy>,
    quantum: Field<Nanos>,
    tick: Field<Nanos>,
    duration: Field<Nanos>,
    waiters: Field<u64>,
    waiters_per_process: Field<u64>,
    floor: Field<u32>,
    speeds: Field<Vec<u32>>,
    smt: Field<u32>,
    nodes: Field<u64>,
}

impl RawMachine {
    pub fn read(table: Field<At<&DeTable<'_>>>, report: &mut Report<'_>) -> Result<Self, Reported> {
        const KEYS: [&str; 11] = [
            "cpus",
            "policy",
            "quantum",
            "tick",
            "duration",
            "waiters",
            "waiters_per_process",
            "floor",
            "speeds",
            "smt",
            "nodes",
        ];
        let empty = DeTable::new();
        let table = table?.unwrap_or(At { value: &empty, at: 0..0 });
        let mut machine = Section::open("[machine]", &KEYS, table, report);
        let waiters = 1..=MAX_THREADS as u64;
        let cpus = machine.read("cpus", |value, report| integer(value, "cpus", 1..=MAX_CPUS as u64, report));
        let count = cpus.map_or(None, |cpus| Some(cpus.unwrap_or(1) as usize));
        Ok(Self {
            cpus,
            policy: machine.read("policy", |value, report| choice(value, "policy", &POLICIES, report)),
            quantum: time(&mut machine, "quantum", SLICE),
            tick: time(&mut machine, "tick", TICK),
            duration: time(&mut machine, "duration", DURATION),
            waiters: machine
                .read("waiters", |value, report| integer(value, "waiters", waiters.clone(), report)),
            waiters_per_process: machine.read("waiters_per_process", |value, report| {
                integer(value, "waiters_per_process", waiters.clone(), report)
            }),
            floor: machine.read("floor", floor),
            speeds: machine.read("speeds", |value, report| speeds(value, count, report)),
            smt: machine.read("smt", speed),
            nodes: machine.read("nodes", |value, report| {
                let most = count.unwrap_or(MAX_CPUS) as u64;
                integer(value, "nodes", 1..=most, report)
            }),
        })
    }

    /// How many CPUs; as many as can be if the file does not say so properly, so that no mask is blamed for that.
    pub fn cpus(&self) -> usize {
        self.cpus.map_or(MAX_CPUS, |cpus| cpus.unwrap_or(1) as usize)
    }

    /// With what is left out filled in.
    pub fn finish(self, instances: usize) -> Result<Machine, Reported> {
        let waiters = self.waiters?.map_or(instances, |waiters| waiters as usize);
        let default = Machine::default();
        Ok(Machine {
            cpus: self.cpus?.map_or(default.cpus, |cpus| cpus as usize),
            policy: self.policy?.unwrap_or(default.policy),
            quantum: self.quantum?.unwrap_or(default.quantum),
            tick: self.tick?.unwrap_or(default.tick),
            duration: self.duration?.unwrap_or(default.duration),
            waiters,
            waiters_per_process: self.waiters_per_process?.map_or(waiters, |waiters| waiters as usize),
            floor_ppm: self.floor?.unwrap_or(default.floor_ppm),
            speeds_ppm: self.speeds?.unwrap_or_default(),
            smt_ppm: self.smt?,
            nodes: self.nodes?.map_or(default.nodes, |nodes| nodes as usize),
        })
    }
}

/// The share of best effort, which may be no more than half.
fn floor(value: &Found<'_>, report: &mut Report<'_>) -> Result<u32, Reported> {
    const GREATEST_PPM: u32 = 500_000;
    let ppm = chance(value, report)?;
    if ppm <= GREATEST_PPM { Ok(ppm) } else { Err(report.push(&value.at, TableError::FloorTooHigh)) }
}

/// How fast each of the CPUs is; `None` if their number is not known.
fn speeds(value: &Found<'_>, cpus: Option<usize>, report: &mut Report<'_>) -> Result<Vec<u32>, Reported> {
    let DeValue::Array(list) = value.value else {
        let found = value.value.type_str();
        let error = ValueError::WrongType { expected: Kind::Speeds, found, quoted: None };
        return Err(report.push(&value.at, error));
    };
    let all = list.iter().map(|item| At { value: item.get_ref(), at: item.span() });
    let read: Vec<_> = all.map(|item| speed(&item, report)).collect();
    let read = read.into_iter().collect::<Result<Vec<u32>, Reported>>()?;
    match cpus {
        Some(cpus) if cpus != read.len() => {
            Err(report.push(&value.at, TableError::SpeedsDiffer { speeds: read.len(), cpus }))
        }
        _ => Ok(read),
    }
}

/// A part of full speed. One that stands still would never be done.
fn speed(value: &Found<'_>, report: &mut Report<'_>) -> Result<u32, Reported> {
    const LEAST_PPM: u32 = 10_000;
    let ppm = chance(value, report)?;
    if ppm >= LEAST_PPM { Ok(ppm) } else { Err(report.push(&value.at, TableError::TooSlow)) }
}

/// One duration within limits.
pub(crate) fn time(
    section: &mut Section<'_, '_, '_>,
    key: &'static str,
    limits: RangeInclusive<Nanos>,
) -> Field<Nanos> {
    section.read(key, |value, report| fixed(value, key, limits, report))
}

/// Reads `[costs]`.
pub(crate) fn costs(table: Table<'_>, report: &mut Report<'_>) -> Result<Costs, Reported> {
    const KEYS: [&str; 6] = ["switch", "interrupt", "ipi", "migration", "tick", "node"];
    let Some(table) = table else { return Ok(Costs::default()) };
    let mut section = Section::open("[costs]", &KEYS, table, report);
    let [switch, interrupt, ipi, migration, tick, node] = KEYS.map(|key| time(&mut section, key, COST));
    Ok(Costs {
        switch: switch?.unwrap_or_default(),
        interrupt: interrupt?.unwrap_or_default(),
        ipi: ipi?.unwrap_or_default(),
        migration: migration?.unwrap_or_default(),
        node: node?.unwrap_or_default(),
        tick: tick?.unwrap_or_default(),
    })
}

/// Reads `[faults]`.
pub(crate) fn faults(table: Table<'_>, report: &mut Report<'_>) -> Result<Faults, Reported> {
    const KEYS: [&str; 6] =
        ["late_reschedule", "lost_reschedule", "late_timer", "stall", "burst_every", "exit_every"];
    let Some(table) = table else { return Ok(Faults::default()) };
    let mut section = Section::open("[faults]", &KEYS, table, report);
    let late_reschedule = section.read("late_reschedule", late);
    let lost_reschedule = section.read("lost_reschedule", chance);
    let late_timer = section.read("late_timer", late);
    let stalled = section.read("stall", stall);
    let [burst_every, exit_every] = ["burst_every", "exit_every"].map(|key| time(&mut section, key, PERIOD));
    let (late_reschedule_ppm, late_reschedule_by) = late_reschedule?.unwrap_or_default();
    let (late_timer_ppm, late_timer_by) = late_timer?.unwrap_or_default();
    let (stall_ppm, stall_for) = stalled?.unwrap_or_default();
    Ok(Faults {
        late_reschedule_ppm,
        late_reschedule_by,
        lost_reschedule_ppm: lost_reschedule?.unwrap_or_default(),
        late_timer_ppm,
        late_timer_by,
        stall_ppm,
        stall_for,
        burst_every: burst_every?.unwrap_or_default(),
        exit_every: exit_every?.unwrap_or_default(),
    })
}

/// `{ chance = "1%", by = "2ms" }`.
fn late(value: &Found<'_>, report: &mut Report<'_>) -> Result<(u32, Nanos), Reported> {
    let mut section =
        Section::open("the fault", &["chance", "by"], table(value, Kind::LateFault, report)?, report);
    let rate = section.require("chance", "chance = \"1%\"", chance);
    let by = section.require("by", "by = \"2ms\"", |value, report| fixed(value, "by", DELAY, report));
    Ok((rate?, by?))
}

/// `{ chance = "0.01%", for = "5ms" }`.
fn stall(value: &Found<'_>, report: &mut Report<'_>) -> Result<(u32, Nanos), Reported> {
    let mut section =
        Section::open("the fault", &["chance", "for"], table(value, Kind::StallFault, report)?, report);
    let rate = section.require("chance", "chance = \"0.01%\"", chance);
    let length = section.require("for", "for = \"5ms\"", |value, report| fixed(value, "for", DELAY, report));
    Ok((rate?, length?))
}

/// Reads `[network]` of a machine of `cpus` CPUs.
pub(crate) fn network(table: Table<'_>, cpus: usize, report: &mut Report<'_>) -> Field<Network> {
    const KEYS: [&str; 5] = ["cpu", "every", "work", "budget", "clock"];
    let Some(table) = table else { return Ok(None) };
    let mut section = Section::open("[network]", &KEYS, table, report);
    let cpu = section.read("cpu", |value, report| cpus::cpu(value, cpus, report));
    let every =
        section.require("every", "every = \"1ms\"", |value, report| fixed(value, "every", PERIOD, report));
    let work = time(&mut section, "work", COST);
    let budget = time(&mut section, "budget", Nanos::new(1)..=SECOND);
    let clock = section.read("clock", flag);
    Ok(Some(Network {
        cpu: cpu?.map_or(0, |cpu| cpu.index()),
        every: every?,
        work: work?.unwrap_or_default(),
        budget: budget?.unwrap_or(Nanos::from_micros(50)),
        clock: clock?.unwrap_or(true),
    }))
}
