//! The JSON report is stable: these are its fields.

mod common;

use common::{granted, small};
use mainspring_report::{Event, Report, StateEntry, States, ThreadState, json, json_to};
use serde_json::Value;

fn fields(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

/// The fields, in alphabetical order, as `serde_json` keeps them.
fn assert_fields(value: &Value, expected: &str) {
    let expected: Vec<&str> = expected.split_whitespace().collect();
    assert_eq!(fields(value), expected);
}

#[test]
fn the_fields_of_the_json_report_are_frozen() {
    let report: Value = serde_json::from_str(&json(&small())).expect("valid JSON");
    assert_fields(
        &report,
        "config contexts cpus decisions digest duration_ns endpoints expectations islands leases machine misses misses_total notices \
         rings schedule seed telemetry threads wall_ns",
    );
    assert_fields(&report["config"], "policy quantum_ns tick_ns workload");
    assert_fields(
        &report["cpus"][0],
        "busy_ns id idle_ns overhead_ns queue_depth_max reschedules steals ticks ticks_suppressed timer_interrupts",
    );
    assert_fields(
        &report["threads"][0],
        "blocked_ns dropped entitled_ns failures lag_max_ns late migrations misses name preemptions ready_ns refusals runtime_ns switches \
         timeouts voluntary_blocks wake_latency_ns wakeups weight",
    );
    assert_fields(&report["threads"][0]["wake_latency_ns"], "max p50 p99");
    assert_fields(&report["schedule"][0], "cpu end_ns reason start_ns thread");
}

#[test]
fn the_fields_of_granted_time_are_frozen() {
    let report: Value = serde_json::from_str(&json(&granted())).expect("valid JSON");
    assert_fields(
        &report["contexts"][0],
        "budget_ns cpu criticality deadline_ns depletions donated_ns generation granted_ns misses name \
         overshoot_max_ns period_ns priority state used_ns",
    );
    assert_fields(&report["threads"][0]["jobs"], "finished first_miss_ns response_ns slack_min_ns");
    assert_fields(&report["threads"][0]["jobs"]["response_ns"], "max max_at_ns p50 p99");
    assert_fields(
        &report["jobs"][0],
        "deadline_ns finish_ns release_ns response_ns slack_ns start_ns thread",
    );
    assert_eq!(report["jobs"][0]["slack_ns"], -1_000_000);
    assert_fields(&report["misses"][0], "context finish_ns kind number release_ns start_ns thread time_ns");
    assert_eq!(report["misses"][0]["kind"], "late");
    assert_fields(&report["expectations"][0], "found held line what");
    assert_fields(&report["endpoints"][0], "callers calls failures latency_ns name pending replies servers");
    assert_eq!(report["contexts"][1]["cpu"], Value::Null);
    assert_fields(
        &report["leases"][0],
        "activations cpus exits name state thread tickless_ns ticks_suppressed",
    );
    assert_fields(&report["islands"][0], "admitted name reason");
    assert_fields(
        &report["rings"][0],
        "busy_ns completed dropped late mode name overflow sleeps spins_ns submitted wakeups",
    );
    assert_fields(&report["events"][0], "context cpu kind refills time_ns");
    assert_fields(&report["events"][1], "context cpu kind thread time_ns to");
    assert_eq!(report["events"][0]["refills"], serde_json::json!([[10_000_000, 2_000_000]]));
}

#[test]
fn states_name_their_threads_and_read_back() {
    let state = |thread, state, by| StateEntry { thread, state, cpu: 1, start_ns: 5, end_ns: 9, by };
    let names = vec!["a".to_owned(), "b".to_owned()];
    let entries = vec![state(0, ThreadState::Call, Some(1)), state(1, ThreadState::Ready, None)];
    let report = Report { states: Some(States { names, entries }), ..small() };
    let text = json(&report);
    let value: Value = serde_json::from_str(&text).expect("valid JSON");
    assert_fields(&value["states"][0], "by cpu end_ns start_ns state thread");
    assert_fields(&value["states"][1], "cpu end_ns start_ns state thread");
    assert_eq!((&value["states"][0]["thread"], &value["states"][0]["by"]), (&"a".into(), &"b".into()));
    assert_eq!(value["states"][0]["state"], "call");
    let read: Report = serde_json::from_str(&text).expect("a report");
    assert_eq!(read.states, report.states);
}

#[test]
fn a_report_from_before_contexts_still_reads() {
    let mut old = serde_json::to_value(small()).expect("JSON");
    for field in [
        "contexts",
        "leases",
        "islands",
        "rings",
        "notices",
        "expectations",
        "endpoints",
        "misses",
        "misses_total",
    ] {
        old.as_object_mut().expect("an object").remove(field).expect("it is written");
    }
    let back: Report = serde_json::from_value(old).expect("a report");
    assert_eq!(back, small());
}

#[test]
fn the_permanent_counters_are_reported_by_name() {
    let report: Value = serde_json::from_str(&json(&small())).expect("valid JSON");
    assert_fields(
        &report["telemetry"],
        "budget_exhausted_count deadline_expired_count donation_depth_max donation_inflight_skipped handoffs handoffs_queued \
         housekeeping_offload_count \
         nohz_enter_count nohz_exit_count oneshot_deadline_miss_count queue_depth_max realtime_overrun_count \
         reschedules_lost reschedules_pending reschedules_sent scheduler_tick_count sqpoll_busy_ns \
         sqpoll_sleep_count steals ticks_suppressed",
    );
}

#[test]
fn every_field_is_described_in_the_readme() {
    let readme = include_str!("../README.md");
    let report: Value = serde_json::from_str(&json(&granted())).expect("valid JSON");
    let whole_event = serde_json::to_value(Event {
        time_ns: 1,
        kind: "lease".to_owned(),
        cpu: Some(0),
        context: Some(String::new()),
        thread: Some(String::new()),
        to: Some(String::new()),
        lease: Some(String::new()),
        island: Some(String::new()),
        ring: Some(String::new()),
        count: Some(1),
        amount_ns: Some(1),
        reason: Some(String::new()),
        refills: Some(Vec::new()),
    });
    let whole_event = whole_event.expect("JSON");
    let parts = [
        &report["contexts"][0],
        &report["leases"][0],
        &report["islands"][0],
        &report["rings"][0],
        &report["expectations"][0],
        &report["endpoints"][0],
        &report["endpoints"][0]["latency_ns"],
        &report["misses"][0],
        &report["jobs"][0],
        &report["threads"][0]["jobs"],
        &whole_event,
        &report,
        &report["config"],
        &report["cpus"][0],
        &report["threads"][0],
        &report["telemetry"],
        &report["schedule"][0],
    ];
    for field in parts.iter().flat_map(|part| fields(part)) {
        let described = readme.contains(&format!("`{field}`")) || readme.contains(&format!("`{field}[]`"));
        assert!(described, "README.md does not describe {field}");
    }
}

#[test]
fn a_report_without_a_schedule_has_no_such_field() {
    let report = Report { schedule: None, events: None, ..granted() };
    let value: Value = serde_json::from_str(&json(&report)).expect("valid JSON");
    assert!(value.get("schedule").is_none() && value.get("events").is_none());
    let back: Report = serde_json::from_value(value).expect("a report");
    assert_eq!(back, report);
}

#[test]
fn json_reads_back_as_the_same_report() {
    let report = Report { seed: u64::MAX, ..granted() };
    let back: Report = serde_json::from_str(&json(&report)).expect("a report");
    assert_eq!(back, report);
}

#[test]
fn streamed_json_is_the_same_text() {
    let mut out = Vec::new();
    json_to(&small(), &mut out).expect("a vector takes everything");
    assert_eq!(out, json(&small()).into_bytes());
}
