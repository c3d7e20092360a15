//! Recordings of a Linux 6.18 machine with two CPUs: a hog, a niced hog, a client and its server, and a ticker, while a compiler ran.
//! They were cut to some hundred milliseconds, and other programs' names replaced.

use mainspring_import::{Act, Kind, Recording, Timelines, Waker, compare, read, to_workload};
use mainspring_workload::{Step, parse};
use proptest::prelude::*;
use std::collections::HashMap;

const FTRACE: &[u8] = include_bytes!("samples/ftrace.txt");
const PERF_SCRIPT: &[u8] = include_bytes!("samples/perf-script.txt");
const PERF_DATA: &[u8] = include_bytes!("../../docs/examples/recording.perf.data");

fn samples() -> [(&'static str, Recording); 3] {
    let read = |bytes| read(bytes).unwrap_or_else(|error| panic!("{error}"));
    [("ftrace", read(FTRACE)), ("perf script", read(PERF_SCRIPT)), ("perf.data", read(PERF_DATA))]
}

/// CPU time by thread, from the switches alone.
fn on_cpu(recording: &Recording) -> HashMap<u32, u64> {
    let mut since: HashMap<u32, u64> = HashMap::new();
    let mut total = HashMap::new();
    let (start, end) = (recording.events[0].at, recording.events.last().expect("events").at);
    let mut last = HashMap::new();
    for event in &recording.events {
        if let Kind::Switch { prev, next, .. } = &event.kind {
            let from = since.insert(event.cpu, event.at).unwrap_or(start);
            *total.entry(prev.tid).or_insert(0) += event.at - from;
            last.insert(event.cpu, next.tid);
        }
    }
    for (cpu, tid) in last {
        *total.entry(tid).or_insert(0) += end - since[&cpu];
    }
    total.remove(&0);
    total.retain(|_, ns| *ns > 0);
    total
}

#[test]
fn bursts_sum_to_the_cpu_time_that_the_switches_show() {
    for (form, recording) in samples() {
        let timelines = Timelines::of(&recording);
        let expected = on_cpu(&recording);
        let ran: HashMap<u32, u64> = timelines
            .threads
            .iter()
            .filter(|thread| thread.cpu_ns > 0)
            .map(|thread| (thread.tid, thread.cpu_ns))
            .collect();
        assert_eq!(ran, expected, "{form}");
        for thread in &timelines.threads {
            let runs = thread.acts.iter().map(|act| if let Act::Run(ns) = act { *ns } else { 0 });
            assert_eq!(runs.sum::<u64>(), thread.cpu_ns, "{form}: {}", thread.comm);
        }
    }
}

#[test]
fn a_wait_that_a_thread_ended_has_its_wakeup_in_that_threads_acts() {
    for (form, recording) in samples() {
        let timelines = Timelines::of(&recording);
        let mut waits = 0;
        for thread in &timelines.threads {
            for act in &thread.acts {
                let Act::Wait { by: Waker::Thread(by), .. } = act else { continue };
                waits += 1;
                let waker = timelines.threads.iter().find(|other| other.tid == *by).expect("a thread");
                assert!(
                    waker.acts.contains(&Act::Wake(thread.tid)),
                    "{form}: {} by {}",
                    thread.comm,
                    waker.comm
                );
            }
        }
        assert!(waits > 10, "{form}: {waits}");
    }
}

#[test]
fn every_sample_is_a_workload_with_the_priorities_as_weights() {
    for (form, recording) in samples() {
        let timelines = Timelines::of(&recording);
        let text = to_workload(&timelines, form).expect("a workload");
        let workload = parse(form, &text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(workload.machine.cpus, 2);
        let weight = |name: &str| {
            let table = workload.threads.iter().find(|thread| thread.name.starts_with(name));
            table.map(|thread| thread.weight.get())
        };
        assert_eq!((weight("hog-"), weight("batch-")), (Some(64), Some(7)), "{form}: nice 0 and nice 10");
        let server =
            workload.threads.iter().find(|thread| thread.name.starts_with("server-")).expect("a server");
        let parks =
            server.program.iter().filter(|step| matches!(step, Step::Park { timeout: Some(_) })).count();
        assert!(parks > 5, "{form}: the client ends the server's waits: {parks}");
        let ticker =
            workload.threads.iter().find(|thread| thread.name.starts_with("ticker-")).expect("a ticker");
        let sleeps = ticker.program.iter().filter(|step| matches!(step, Step::Sleep(_))).count();
        assert!(sleeps > 5 || form == "perf script", "{form}: timers end the ticker's: {sleeps}");
    }
}

#[test]
fn a_comparison_shows_linuxs_own_figures() {
    let recording = read(FTRACE).expect("a recording");
    let timelines = Timelines::of(&recording);
    let table = compare(&recording, &timelines, &[], 5);
    assert!(
        table.contains("CPU time") && table.contains("-100%") && table.contains("faithful: 0.0%"),
        "{table}"
    );
    assert!(table.contains("more threads, which used less"), "{table}");
}

#[test]
fn a_cut_file_is_refused() {
    for end in [9, 104, 300, 5_000, PERF_DATA.len() - 1] {
        assert!(read(&PERF_DATA[..end]).is_err(), "{end}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn any_change_is_read_or_refused(
        which in 0usize..3,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = [FTRACE, PERF_SCRIPT, PERF_DATA][which].to_vec();
        // A part of it is enough, and quicker.
        let length = if which == 2 { bytes.len() } else { 8_000.min(bytes.len()) };
        bytes.truncate(length);
        for (place, byte) in changes {
            // The headers are the most delicate part.
            let place = place.index(bytes.len()) % if byte & 1 == 0 { 1_000 } else { usize::MAX };
            bytes[place] = byte;
        }
        if cut.index(4) == 0 {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(recording) = read(&bytes) {
            let timelines = Timelines::of(&recording);
            if let Ok(text) = to_workload(&timelines, "changed") {
                prop_assert!(parse("changed", &text).is_ok());
            }
            let _ = compare(&recording, &timelines, &[], 3);
        }
    }
}
