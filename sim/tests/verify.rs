//! Recorded runs under the eyes of the checkers: what is sound passes, whatever the machine's clocks, and what no CPU could
//! notice on its own is found.

use mainspring_abi::{CpuId, Nanos, Policy, ThreadRef};
use mainspring_record::Log;
use mainspring_record::ReplayError;
use mainspring_record::file::{Header, RecordReader};
use mainspring_record::verify::verify;
use mainspring_sched::Floor;
use mainspring_sched::flight::{self, Event};
use mainspring_sched::{Config, Cpu, Entity, Spec, Stop, Via};
use mainspring_sim::{Options, run};
use mainspring_workload::load;
use std::path::PathBuf;

/// The record of a simulated run.
fn recorded(name: &str) -> (Header, Log) {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "workloads"].iter().collect();
    let workload = load(folder.join(format!("{name}.toml"))).unwrap_or_else(|error| panic!("{error}"));
    let mut bytes = Vec::new();
    let options = Options { seed: 5, record: Some(Box::new(&mut bytes)), ..Options::default() };
    run(name, &workload, options).unwrap_or_else(|error| panic!("{error}"));
    let reader = RecordReader::new(bytes.as_slice()).expect("a sound record");
    (reader.header().clone(), Log::read(reader).expect("a sound record"))
}

#[test]
fn every_sort_of_recorded_run_passes() {
    for name in [
        "tour",
        "faults",
        "spawn-join",
        "handoff-pingpong",
        "many-processes",
        "robot-control",
        "sqpoll-lease",
        "network",
    ] {
        let (header, log) = recorded(name);
        let events = log.entries().len() as u64;
        match verify(&header, log) {
            Ok(seen) => assert_eq!(seen, events, "{name}"),
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

const FLOOR_PPM: u32 = 50_000;

fn config(cpu: CpuId) -> Config {
    Config { floor: Floor::from_ppm(FLOOR_PPM).expect("a share"), ..Config::new(cpu, Policy::Eevdf) }
}

/// Two CPUs that are driven by hand, each with a record and a clock of its own.
struct Pair {
    cpus: [Cpu; 2],
    logs: [flight::Log; 2],
}

impl Pair {
    fn new() -> Self {
        let cpu = |number| {
            let id = CpuId::new(number).expect("a CPU");
            let mut cpu = Cpu::new(config(id));
            cpu.reserve(8).expect("memory");
            cpu
        };
        Self { cpus: [cpu(0), cpu(1)], logs: [0, 1].map(|_| flight::Log::new(1 << 16)) }
    }

    fn apply(&mut self, cpu: usize, now_us: u64, event: Event) {
        let now = Nanos::from_micros(now_us);
        self.logs[cpu].begin(now, self.cpus[cpu].id(), event.borrowed());
        let (outcome, _) = self.cpus[cpu].apply(now, event).expect("possible");
        self.logs[cpu].finish(outcome);
    }

    /// The first CPU gives a thread to the second at `left`, and it arrives at `arrived`, each by its own clock.
    fn steal(&mut self, left_us: u64, arrived_us: u64) {
        let (thief, left) = (self.cpus[1].id(), Nanos::from_micros(left_us));
        self.logs[0].begin(left, self.cpus[0].id(), flight::EventRef::Give(thief));
        let given = self.cpus[0].give(left, thief);
        self.logs[0].finish((&given).into());
        self.apply(1, arrived_us, Event::Accept(given.expect("one is left"), Via::Steal));
    }

    fn verify(self) -> Result<u64, ReplayError> {
        let Config { policy, quantum, tick, .. } = config(CpuId::BOOT);
        let header = Header {
            workload: "by hand".into(),
            seed: 0,
            cpus: 2,
            seats: 8,
            policy,
            quantum,
            tick,
            floor_ppm: FLOOR_PPM,
            threads: Vec::new(),
        };
        let mut all = Log::default();
        let ends = Nanos::from_micros(500);
        for (cpu, log) in self.logs.into_iter().enumerate() {
            let id = CpuId::new(cpu).expect("a CPU");
            all.add(id, log.bytes(), log.records(), ends).expect("sound records");
        }
        verify(&header, all)
    }
}

fn thread(index: u32) -> Entity {
    Entity::new(Spec::new(ThreadRef::new(index, 0)))
}

#[test]
fn a_thread_may_seem_to_arrive_before_it_left() {
    for arrived in [90, 110] {
        let mut pair = Pair::new();
        pair.apply(0, 1, Event::Accept(thread(0), Via::Admit));
        pair.apply(0, 2, Event::Accept(thread(1), Via::Admit));
        pair.apply(0, 3, Event::Resched(Stop::Nothing));
        pair.steal(100, arrived);
        pair.apply(1, arrived + 1, Event::Resched(Stop::Nothing));
        pair.apply(0, 200, Event::Resched(Stop::Yielded));
        match pair.verify() {
            Ok(events) => assert_eq!(events, 7),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_thread_on_two_cpus_at_once_is_found_though_each_of_them_is_right() {
    let mut pair = Pair::new();
    for cpu in [0, 1] {
        pair.apply(cpu, 1 + cpu as u64, Event::Accept(thread(7), Via::Admit));
        pair.apply(cpu, 10 + cpu as u64, Event::Resched(Stop::Nothing));
    }
    let error = pair.verify().expect_err("it is on two CPUs");
    assert!(matches!(&error, ReplayError::Violation(violation) if violation.cpu.index() == 1), "{error}");
}

#[test]
fn a_thread_number_that_no_machine_has_is_refused() {
    let mut pair = Pair::new();
    pair.apply(0, 1, Event::Accept(thread(u32::MAX), Via::Admit));
    let error = pair.verify().expect_err("there are not so many threads");
    assert!(error.to_string().contains("no machine has so many"), "{error}");
}

/// Whatever happened on a machine, in whatever order it is told: it is judged, and nothing of it ends the checkers.
#[test]
fn records_that_were_tampered_with_are_judged_and_never_a_panic() {
    let mut judged = [0; 2];
    for name in ["tour", "spawn-join", "handoff-pingpong", "robot-control", "sqpoll-lease", "inversion"] {
        let (header, whole) = recorded(name);
        for seed in 1..=25 {
            let Some(log) = tampered(&header, &whole, seed) else { continue };
            let verdict = std::panic::catch_unwind(|| verify(&header, log));
            match verdict {
                Ok(verdict) => judged[usize::from(verdict.is_err())] += 1,
                Err(_) => panic!("{name}: tampered with by seed {seed}, it ended the checkers"),
            }
        }
    }
    assert!(judged[1] > 50, "hardly anything is found: {judged:?}");
}

/// The same with some events left out, moved in time or to another CPU; `None` if that is no record any more.
fn tampered(header: &Header, whole: &Log, seed: u64) -> Option<Log> {
    let mut state = seed;
    let mut dice = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let one_in = 1 + dice(200);
    let mut logs: Vec<_> = (0..header.cpus).map(|_| flight::Log::new(1 << 22)).collect();
    for entry in whole.entries() {
        let (mut cpu, mut now) = (entry.cpu.index(), entry.now);
        if dice(one_in) == 0 {
            match dice(4) {
                0 => continue,
                1 => cpu = dice(header.cpus as u64) as usize,
                2 => now += Nanos::new(dice(5_000_000)),
                _ => now += Nanos::new(1 << dice(63)),
            }
        }
        let log = &mut logs[cpu];
        log.begin(now.max(log.last()), CpuId::new(cpu).ok()?, entry.event.borrowed());
        log.finish(entry.outcome);
    }
    let mut all = Log::default();
    for (cpu, log) in logs.into_iter().enumerate() {
        all.add(CpuId::new(cpu).ok()?, log.bytes(), log.records(), log.last()).ok()?;
    }
    Some(all)
}
