//! The report of a run's record says what the run's own report says: two ways to the same numbers.

use mainspring_abi::{CpuId, Nanos, Policy, ThreadRef};
use mainspring_record::Log;
use mainspring_record::file::{Header, RecordReader};
use mainspring_record::report::RecordReport;
use mainspring_report::{Report, ThreadReport};
use mainspring_sched::flight::{self, EventRef, Outcome};
use mainspring_sched::{Entity, Spec, Via};
use mainspring_sim::{Options, run};
use mainspring_workload::{Workload, load};
use std::path::PathBuf;
use std::time::Duration;

fn example(name: &str) -> Workload {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "workloads"].iter().collect();
    load(folder.join(format!("{name}.toml"))).unwrap_or_else(|error| panic!("{error}"))
}

/// The report of a simulated run, and the report of its record.
fn both(name: &str) -> (Report, Report) {
    let workload = example(name);
    let mut bytes = Vec::new();
    let options =
        Options { seed: 5, schedule: true, record: Some(Box::new(&mut bytes)), ..Options::default() };
    let told = run(name, &workload, options).unwrap_or_else(|error| panic!("{error}"));
    let reader = RecordReader::new(bytes.as_slice()).expect("a sound record");
    let header = reader.header().clone();
    let log = Log::read(reader).expect("a sound record");
    let books = RecordReport::of(&header, log).unwrap_or_else(|error| panic!("{name}: {error}"));
    (told, books.report("sim", &header, Duration::ZERO))
}

#[test]
fn a_record_is_enough_for_the_report() {
    for name in
        ["tour", "fair-weights", "handoff-pingpong", "spawn-join", "sleepers", "many-processes", "faults"]
    {
        let (mut told, booked) = both(name);
        // What costs took is in no record.
        told.cpus.iter_mut().for_each(|cpu| cpu.overhead_ns.clear());
        assert_eq!(booked.digest, told.digest, "{name}");
        assert_eq!(booked.decisions, told.decisions, "{name}");
        assert_eq!(booked.cpus, told.cpus, "{name}");
        for booked in &booked.threads {
            let told = told.threads.iter().find(|told| told.name == booked.name);
            let told = told.unwrap_or_else(|| panic!("{name}: no row {}", booked.name));
            // What the thread alone knows is in no record; how far it was from its share is looked at less often.
            let expected = ThreadReport {
                misses: 0,
                jobs: None,
                timeouts: 0,
                refusals: 0,
                first_refusal: None,
                failures: 0,
                lag_max_ns: booked.lag_max_ns,
                ..told.clone()
            };
            assert_eq!(*booked, expected, "{name}");
            assert!(booked.lag_max_ns <= told.lag_max_ns, "{name}: {}", booked.name);
        }
        let ran = |report: &Report| {
            let mut ran: Vec<_> = report.schedule.clone().expect("asked for");
            ran.sort_by_key(|entry| (entry.start_ns, entry.cpu));
            ran.into_iter()
                .map(|entry| (entry.cpu, entry.thread, entry.start_ns, entry.end_ns))
                .collect::<Vec<_>>()
        };
        assert_eq!(ran(&booked), ran(&told), "{name}");
    }
}

#[test]
fn a_record_that_decides_otherwise_is_no_book() {
    let workload = example("fair-weights");
    let mut bytes = Vec::new();
    let options = Options { record: Some(Box::new(&mut bytes)), ..Options::default() };
    run("fair-weights", &workload, options).unwrap_or_else(|error| panic!("{error}"));
    let reader = RecordReader::new(bytes.as_slice()).expect("a sound record");
    let mut header = reader.header().clone();
    header.quantum = Nanos::from_millis(1);
    let log = Log::read(reader).expect("a sound record");
    let error = RecordReport::of(&header, log).expect_err("another quantum, other slices");
    assert!(error.to_string().contains("differs"), "{error}");
}

#[test]
fn a_thread_without_a_name_has_a_row_whatever_its_number() {
    let entity = Entity::new(Spec::new(ThreadRef::new(u32::MAX, 0)));
    let mut record = flight::Log::new(4 * size_of::<flight::Room>());
    record.begin(Nanos::ZERO, CpuId::BOOT, EventRef::Accept(&entity, Via::Admit));
    record.finish(Outcome::Seated(0, true));
    let mut log = Log::default();
    log.add(CpuId::BOOT, record.bytes(), 1, Nanos::from_millis(1)).expect("a sound record");
    let header = Header {
        workload: "forged".to_owned(),
        seed: 0,
        cpus: 1,
        seats: 1,
        policy: Policy::Eevdf,
        quantum: Nanos::from_millis(3),
        tick: Nanos::from_millis(10),
        floor_ppm: 0,
        threads: Vec::new(),
    };
    let books = RecordReport::of(&header, log).unwrap_or_else(|error| panic!("{error}"));
    let report = books.report("sim", &header, Duration::ZERO);
    let names: Vec<_> = report.threads.iter().map(|thread| thread.name.as_str()).collect();
    assert_eq!(names, ["(thread 4294967295)"]);
}
