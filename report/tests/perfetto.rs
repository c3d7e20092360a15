//! The trace is what the Chrome JSON trace event format asks for.

mod common;

use common::{entry, granted, small};
use mainspring_report::{NoSchedule, Report, perfetto};
use serde_json::Value;
use std::collections::HashMap;

fn trace(report: &Report) -> Value {
    let mut out = Vec::new();
    perfetto(report, &mut out).expect("a vector takes everything");
    serde_json::from_slice(&out).expect("valid JSON")
}

fn events<'a>(trace: &'a Value, phase: &str) -> Vec<&'a Value> {
    let all = trace["traceEvents"].as_array().expect("an event list");
    all.iter().filter(|event| event["ph"] == phase).collect()
}

#[test]
fn a_report_without_a_schedule_is_refused_before_anything_is_written() {
    let mut out = Vec::new();
    let error = perfetto(&Report { schedule: None, ..small() }, &mut out).expect_err("nothing to trace");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    assert!(error.get_ref().is_some_and(|inner| inner.is::<NoSchedule>()));
    assert!(out.is_empty());
}

#[test]
fn every_interval_is_on_its_cpu_and_on_its_thread() {
    let trace = trace(&small());
    let intervals = events(&trace, "X");
    assert_eq!(intervals.len(), 8);
    assert_eq!(intervals[0]["name"], "hog");
    assert_eq!(intervals[0]["args"]["reason"], "preempted");
    assert_eq!(intervals[1]["name"], "CPU 0");
    assert_eq!(intervals[1]["args"]["reason"], "preempted");
    let named: HashMap<(u64, u64), &str> = events(&trace, "M")
        .into_iter()
        .filter(|event| event["name"] == "thread_name")
        .map(|event| {
            let key = (event["pid"].as_u64().expect("pid"), event["tid"].as_u64().expect("tid"));
            (key, event["args"]["name"].as_str().expect("name"))
        })
        .collect();
    for pair in intervals.chunks(2) {
        let track = |event: &Value| {
            named[&(event["pid"].as_u64().expect("pid"), event["tid"].as_u64().expect("tid"))]
        };
        assert_eq!(track(pair[0]), pair[1]["name"], "the CPU's track is named like the other event");
        assert_eq!(track(pair[1]), pair[0]["name"], "the thread's track is named like the other event");
    }
}

#[test]
fn track_numbers_are_unique_across_processes() {
    let trace = trace(&small());
    let mut tracks: Vec<u64> = events(&trace, "M")
        .into_iter()
        .filter(|event| event["name"] == "thread_name")
        .map(|event| event["tid"].as_u64().expect("tid"))
        .collect();
    let all = tracks.len();
    tracks.sort_unstable();
    tracks.dedup();
    assert_eq!((tracks.len(), all), (5, 5));
}

#[test]
fn timestamps_are_exact_microseconds_that_do_not_decrease() {
    let mut out = Vec::new();
    perfetto(&small(), &mut out).expect("a vector takes everything");
    let text = String::from_utf8(out).expect("text");
    assert!(text.contains("\"ts\":0.500,\"dur\":300.000,"));
    assert!(text.contains("\"ts\":4000.001,\"dur\":999.999,"));
    let trace = trace(&small());
    let starts: Vec<f64> =
        events(&trace, "X").into_iter().map(|event| event["ts"].as_f64().expect("a number")).collect();
    assert!(starts.is_sorted());
}

#[test]
fn events_are_instants_on_their_cpu_else_their_thread_else_on_everything() {
    let trace = trace(&granted());
    let instants = events(&trace, "i");
    let name_of = |event: &Value| {
        let track = |other: &&&Value| (&other["pid"], &other["tid"]) == (&event["pid"], &event["tid"]);
        let named = events(&trace, "M").into_iter().filter(|event| event["name"] == "thread_name");
        named.collect::<Vec<_>>().iter().find(track).map(|event| event["args"]["name"].clone())
    };
    let shown: Vec<_> = instants
        .iter()
        .map(|event| (event["name"].as_str().expect("a name"), event["s"].as_str(), name_of(event)))
        .collect();
    let expected = [
        ("refill", Some("t"), Some("CPU 1".into())),
        ("donate", Some("t"), Some("CPU 0".into())),
        ("bind", Some("t"), Some("batch".into())),
        ("policy-slow", Some("g"), None),
    ];
    assert_eq!(shown, expected);
    assert_eq!(instants[1]["args"]["to"], "editor");
    assert_eq!(instants[1]["ts"].as_f64(), Some(3_001.0));
    assert!(instants[1]["args"].get("time_ns").is_none());
    let all = trace["traceEvents"].as_array().expect("an event list");
    assert!(all.iter().filter_map(|event| event["ts"].as_f64()).is_sorted(), "timestamps do not decrease");
}

#[test]
fn names_that_json_must_escape_survive() {
    let strange = "a\"b\\c\n</script>";
    let report = Report { schedule: Some(vec![entry(9, strange, 0, 1, "blo\"cked")]), ..small() };
    let trace = trace(&report);
    assert_eq!(events(&trace, "X")[0]["name"], strange);
    assert_eq!(events(&trace, "X")[0]["args"]["reason"], "blo\"cked");
}

#[test]
fn an_empty_schedule_is_a_valid_trace() {
    let trace = trace(&Report { schedule: Some(Vec::new()), ..Report::default() });
    assert!(events(&trace, "X").is_empty());
}
