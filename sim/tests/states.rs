//! What threads did while they did not run: with the schedule it is all of their lives, and a record knows it too.

mod common;

use common::generate::{Kind, draw};
use mainspring_abi::Policy;
use mainspring_record::Log;
use mainspring_record::file::RecordReader;
use mainspring_record::report::RecordReport;
use mainspring_report::{Report, States, ThreadState};
use mainspring_sim::{Options, run};
use mainspring_workload::{Workload, load};
use std::collections::BTreeMap;
use std::path::PathBuf;

fn example(name: &str) -> Workload {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "workloads"].iter().collect();
    load(folder.join(format!("{name}.toml"))).unwrap_or_else(|error| panic!("{error}"))
}

/// The report of a run with all that it lists, and its record.
fn recorded(workload: &Workload, seed: u64) -> (Report, Vec<u8>) {
    let mut bytes = Vec::new();
    let options = Options { seed, schedule: true, record: Some(Box::new(&mut bytes)), ..Options::default() };
    let report = run("states", workload, options).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    (report, bytes)
}

fn states_of_record(bytes: &[u8]) -> States {
    let reader = RecordReader::new(bytes).expect("a sound record");
    let header = reader.header().clone();
    let log = Log::read(reader).expect("a sound record");
    let report = RecordReport::of_file(&header, log).unwrap_or_else(|error| panic!("{error}"));
    report.states.expect("a record has states")
}

/// Start, end and state of something that a thread did; `None` is running.
type Did = (u64, u64, Option<ThreadState>);

/// Everything that each thread did, by name and then by time.
fn lives(report: &Report) -> BTreeMap<&str, Vec<Did>> {
    let mut lives: BTreeMap<&str, Vec<Did>> = BTreeMap::new();
    for entry in report.schedule.iter().flatten() {
        lives.entry(&entry.thread).or_default().push((entry.start_ns, entry.end_ns, None));
    }
    let states = report.states.as_ref().expect("the run lists states");
    for entry in &states.entries {
        let name = states.names[entry.thread as usize].as_str();
        lives.entry(name).or_default().push((entry.start_ns, entry.end_ns, Some(entry.state)));
    }
    lives.values_mut().for_each(|life| life.sort_unstable());
    lives
}

/// Each instant of a life is in one interval, and the sums are those of the thread's row.
fn check(what: &str, report: &Report) {
    let lives = lives(report);
    for thread in &report.threads {
        let life = lives.get(thread.name.as_str()).map_or(&[] as &[_], Vec::as_slice);
        for pair in life.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "{what}: {} does two things at once: {pair:?}", thread.name);
        }
        let sum = |wanted: fn(Option<ThreadState>) -> bool| -> u64 {
            life.iter().filter(|(_, _, state)| wanted(*state)).map(|(start, end, _)| end - start).sum()
        };
        assert_eq!(sum(|state| state.is_none()), thread.runtime_ns, "{what}: {} ran", thread.name);
        let ready = |state: Option<ThreadState>| {
            matches!(state, Some(ThreadState::Ready | ThreadState::Held | ThreadState::Throttled))
        };
        assert_eq!(sum(ready), thread.ready_ns, "{what}: {} was ready", thread.name);
        let waits = |state: Option<ThreadState>| state.is_some_and(ThreadState::is_blocked);
        assert_eq!(sum(waits), thread.blocked_ns, "{what}: {} was blocked", thread.name);
    }
}

/// Everything that a CPU did adds up to the run.
fn check_cpus(what: &str, report: &Report) {
    for cpu in &report.cpus {
        let mine = report.schedule.iter().flatten().filter(|entry| entry.cpu == cpu.id);
        let scheduled: u64 = mine.map(|entry| entry.end_ns - entry.start_ns).sum();
        assert_eq!(scheduled, cpu.busy_ns, "{what}: CPU {}", cpu.id);
        let overhead: u64 = cpu.overhead_ns.values().sum();
        assert_eq!(cpu.work_ns() + overhead + cpu.idle_ns, report.duration_ns, "{what}: CPU {}", cpu.id);
    }
}

#[test]
fn the_states_of_a_thread_and_its_runs_are_its_whole_life() {
    for seed in 0..150 {
        for (calls, faults) in [(false, false), (true, false), (true, true)] {
            let policy = if seed % 2 == 0 { Policy::Eevdf } else { Policy::Wfq };
            let workload = draw(seed, Kind { policy, faults, calls, quanta: 20 });
            let (report, bytes) = recorded(&workload, seed);
            let what = format!("seed {seed}, calls {calls}, faults {faults}");
            check(&what, &report);
            check_cpus(&what, &report);
            assert_eq!(
                without_wakers(report.states),
                without_wakers(Some(states_of_record(&bytes))),
                "{what}"
            );
        }
    }
}

#[test]
fn the_states_of_threads_with_contexts_leases_and_rings_are_their_whole_lives() {
    for name in
        ["robot-control", "inversion", "voice-agent", "audio-graph", "sqpoll-lease", "spawn-join", "network"]
    {
        let (report, bytes) = recorded(&example(name), 3);
        check(name, &report);
        check_cpus(name, &report);
        assert_eq!(without_wakers(report.states), without_wakers(Some(states_of_record(&bytes))), "{name}");
    }
}

#[test]
fn a_call_and_its_reply_are_wakeups_by_the_other_side() {
    for name in ["inversion-off", "voice-agent"] {
        let (report, _) = recorded(&example(name), 0);
        let states = report.states.expect("the run lists states");
        let name_of = |number: u32| states.names[number as usize].as_str();
        let server = if name == "voice-agent" { "model" } else { "store" };
        let mut seen = [0, 0];
        for entry in &states.entries {
            let by = entry.by.map(name_of);
            match entry.state {
                ThreadState::Receive if entry.end_ns < report.duration_ns => {
                    assert!(by.is_some_and(|by| by != server), "{name}: {entry:?} was ended by {by:?}");
                    seen[0] += 1;
                }
                ThreadState::Call if entry.end_ns < report.duration_ns => {
                    assert_eq!(by, Some(server), "{name}: {entry:?}");
                    seen[1] += 1;
                }
                _ => {}
            }
        }
        assert!(seen.iter().all(|seen| *seen > 10), "{name}: {seen:?}");
    }
}

/// No record has the thread that ended a wait.
fn without_wakers(states: Option<States>) -> States {
    let mut states = states.expect("the run lists states");
    states.entries.iter_mut().for_each(|entry| entry.by = None);
    states
}
