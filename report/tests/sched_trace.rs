//! The trace, read back by the field numbers of Perfetto's published schema, by code that shares nothing with its writer.

mod common;

use common::{entry, granted, small};
use mainspring_report::{NoSchedule, Report, StateEntry, States, ThreadState, perfetto_trace};
use std::collections::{BTreeMap, BTreeSet};

/// The value of a field: a number, or what has a length.
#[derive(Clone, Debug)]
enum Value {
    Number(u64),
    Bytes(Vec<u8>),
}

type Fields = Vec<(u64, Value)>;

fn varint(bytes: &[u8], at: &mut usize) -> u64 {
    let (mut n, mut shift) = (0, 0);
    loop {
        let byte = bytes[*at];
        *at += 1;
        n |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return n;
        }
    }
}

fn fields(bytes: &[u8]) -> Fields {
    let (mut at, mut fields) = (0, Vec::new());
    while at < bytes.len() {
        let tag = varint(bytes, &mut at);
        let value = match tag & 7 {
            0 => Value::Number(varint(bytes, &mut at)),
            1 => {
                at += 8;
                Value::Number(u64::from_le_bytes(bytes[at - 8..at].try_into().expect("eight bytes")))
            }
            2 => {
                let length = varint(bytes, &mut at) as usize;
                at += length;
                Value::Bytes(bytes[at - length..at].to_vec())
            }
            other => panic!("wire type {other}"),
        };
        fields.push((tag >> 3, value));
    }
    fields
}

fn numbers(of: &Fields, field: u64) -> Vec<u64> {
    let mine = of.iter().filter(|(number, _)| *number == field);
    mine.filter_map(|(_, value)| if let Value::Number(n) = value { Some(*n) } else { None }).collect()
}

fn number(of: &Fields, field: u64) -> u64 {
    numbers(of, field).first().copied().unwrap_or_default()
}

fn inner(of: &Fields, field: u64) -> Vec<Fields> {
    let mine = of.iter().filter(|(number, _)| *number == field);
    mine.filter_map(|(_, value)| if let Value::Bytes(bytes) = value { Some(fields(bytes)) } else { None })
        .collect()
}

fn text(of: &Fields, field: u64) -> String {
    let bytes = of.iter().find_map(|(number, value)| match value {
        Value::Bytes(bytes) if *number == field => Some(bytes.clone()),
        _ => None,
    });
    String::from_utf8(bytes.unwrap_or_default()).expect("text")
}

fn packets(report: &Report) -> Vec<Fields> {
    let mut out = Vec::new();
    perfetto_trace(report, &mut out).expect("a vector takes everything");
    inner(&fields(&out), 1)
}

/// Time, CPU, and the fields of each scheduler event of that kind.
fn scheduler_events(packets: &[Fields], kind: u64) -> Vec<(u64, u64, u64, Fields)> {
    let mut events = Vec::new();
    for bundle in packets.iter().flat_map(|packet| inner(packet, 1)) {
        let cpu = number(&bundle, 1);
        for event in inner(&bundle, 2) {
            events.extend(
                inner(&event, kind).pop().map(|told| (number(&event, 1), cpu, number(&event, 2), told)),
            );
        }
    }
    events
}

const SWITCH: u64 = 4;
const WAKING: u64 = 20;

/// `a` calls `b` on one CPU; `c` runs on the other and starts late.
fn calls() -> Report {
    let state =
        |thread, state, start_ns, end_ns, by| StateEntry { thread, state, cpu: 0, start_ns, end_ns, by };
    Report {
        schedule: Some(vec![
            entry(0, "a", 0, 10, "blocked"),
            entry(0, "b", 15, 30, "blocked"),
            entry(1, "c", 22, 40, "preempted"),
            entry(0, "a", 30, 40, "end"),
        ]),
        states: Some(States {
            names: ["a", "b", "c"].map(str::to_owned).to_vec(),
            entries: vec![
                state(0, ThreadState::Call, 10, 30, Some(1)),
                state(1, ThreadState::Receive, 0, 10, Some(0)),
                state(1, ThreadState::Ready, 10, 15, None),
                state(1, ThreadState::Receive, 30, 40, None),
                state(2, ThreadState::Ready, 20, 22, None),
            ],
        }),
        threads: ["a", "b", "c"].map(|name| common::thread(name, 64, 1, 1)).to_vec(),
        duration_ns: 40,
        ..small()
    }
}

#[test]
fn a_report_without_a_schedule_is_refused_before_anything_is_written() {
    let mut out = Vec::new();
    let error =
        perfetto_trace(&Report { schedule: None, ..small() }, &mut out).expect_err("nothing to trace");
    assert!(error.get_ref().is_some_and(|inner| inner.is::<NoSchedule>()));
    assert!(out.is_empty());
}

#[test]
fn each_cpu_has_one_chain_of_switches_that_gives_the_schedule_back() {
    for report in [small(), granted(), calls()] {
        let packets = packets(&report);
        let mut running: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let mut ran = BTreeSet::new();
        for (time, cpu, pid, switch) in scheduler_events(&packets, SWITCH) {
            let (from, to) = (number(&switch, 2), number(&switch, 6));
            assert_eq!(pid, from, "a switch is told by the thread that leaves");
            let (before, since) = running.insert(cpu, (to, time)).unwrap_or_default();
            assert_eq!(from, before, "CPU {cpu} at {time}");
            assert!(since <= time);
            if from != 0 {
                let state = number(&switch, 4);
                ran.insert((cpu, since, time, text(&switch, 1), state));
            } else {
                assert_eq!(text(&switch, 1), "swapper");
            }
        }
        assert!(running.values().all(|(to, _)| *to == 0), "each CPU is idle at the end");
        let expected: BTreeSet<_> = report
            .schedule
            .iter()
            .flatten()
            .map(|e| {
                let state = match e.reason.as_str() {
                    "blocked" => 1,
                    "depleted" => 2,
                    "exited" => 16,
                    "preempted" => 256,
                    _ => 0,
                };
                (u64::from(e.cpu), e.start_ns, e.end_ns, e.thread.clone(), state)
            })
            .collect();
        assert_eq!(ran, expected);
    }
}

#[test]
fn threads_wake_where_their_waker_runs_and_before_they_run() {
    let packets = packets(&calls());
    let tids: BTreeMap<u64, String> = inner(&inner(&packets[0], 2)[0], 2)
        .iter()
        .map(|thread| (number(thread, 1), text(thread, 2)))
        .collect();
    let name = |tid: u64| tids.get(&tid).map_or("nobody", String::as_str);
    let wakings: Vec<_> = scheduler_events(&packets, WAKING)
        .iter()
        .map(|(time, cpu, by, told)| (*time, *cpu, name(*by).to_owned(), text(told, 1)))
        .collect();
    let told = |time, by: &str, thread: &str| (time, 0, by.to_owned(), thread.to_owned());
    // `a` and `c` arrive; `b` waits when the run ends, so nothing wakes it.
    let expected = [told(0, "nobody", "a"), told(10, "a", "b"), told(20, "nobody", "c"), told(30, "b", "a")];
    assert_eq!(wakings, expected);
    let first = inner(&packets[0], 2);
    assert_eq!(number(&inner(&first[0], 1)[0], 1), 1, "all are threads of one process");
    for bundle in packets.iter().flat_map(|packet| inner(packet, 1)) {
        let order: Vec<(u64, bool)> = inner(&bundle, 2)
            .iter()
            .map(|event| (number(event, 1), !inner(event, SWITCH).is_empty()))
            .collect();
        assert!(order.is_sorted(), "by time, and wakings before switches: {order:?}");
    }
}

#[test]
fn waits_are_slices_and_flows_join_who_woke_whom() {
    let packets = packets(&calls());
    let events: Vec<(u64, Fields)> = packets
        .iter()
        .flat_map(|packet| inner(packet, 11).into_iter().map(|event| (number(packet, 8), event)))
        .collect();
    let kinds = |kind| events.iter().filter(move |(_, event)| number(event, 9) == kind);
    let began: Vec<_> = kinds(1).map(|(time, event)| (*time, text(event, 23))).collect();
    assert_eq!(began, [(10, "call".to_owned()), (0, "receive".to_owned()), (30, "receive".to_owned())]);
    assert_eq!(kinds(2).map(|(time, _)| *time).collect::<Vec<_>>(), [30, 10, 40]);
    let flows = |field| -> Vec<_> {
        kinds(3)
            .flat_map(|(_, event)| numbers(event, field).into_iter().map(|flow| (flow, text(event, 23))))
            .collect()
    };
    assert_eq!(flows(47), [(1, "wakes b".to_owned()), (2, "wakes a".to_owned())]);
    assert_eq!(flows(48), [(1, "woken by a".to_owned()), (2, "woken by b".to_owned())]);
    let counted: Vec<_> = kinds(4).map(|(time, event)| (*time, number(event, 30))).collect();
    assert_eq!(counted, [(10, 1), (15, 0), (20, 1), (22, 0)]);
}

#[test]
fn events_are_instants_and_refills_count_what_is_left() {
    let packets = packets(&granted());
    let named: Vec<String> =
        packets.iter().flat_map(|packet| inner(packet, 60)).map(|track| text(&track, 2)).collect();
    let context = granted().events.expect("events")[0].context.clone().expect("a context");
    assert!(named.contains(&format!("budget of {context}")), "{named:?}");
    let instants: Vec<String> = packets
        .iter()
        .flat_map(|packet| inner(packet, 11))
        .filter(|event| number(event, 9) == 3)
        .map(|event| text(&event, 23))
        .collect();
    let kinds: Vec<String> =
        granted().events.expect("events").iter().map(|event| event.kind.clone()).collect();
    assert_eq!(instants, kinds);
}
