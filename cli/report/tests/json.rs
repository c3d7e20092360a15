//! The JSON report is stable: these are its fields.

mod common;

use common::small;
use mainspring_report::{Report, json, json_to};
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
        "config cpus decisions digest duration_ns machine schedule seed telemetry threads wall_ns",
    );
    assert_fields(&report["config"], "policy quantum_ns tick_ns workload");
    assert_fields(
        &report["cpus"][0],
        "busy_ns id idle_ns queue_depth_max reschedules steals ticks ticks_suppressed timer_interrupts",
    );
    assert_fields(
        &report["threads"][0],
        "blocked_ns entitled_ns lag_max_ns migrations misses name preemptions ready_ns refusals runtime_ns switches \
         timeouts voluntary_blocks wake_latency_ns wakeups weight",
    );
    assert_fields(&report["threads"][0]["wake_latency_ns"], "max p50 p99");
    assert_fields(&report["schedule"][0], "cpu end_ns reason start_ns thread");
}

#[test]
fn the_permanent_counters_are_reported_by_name() {
    let report: Value = serde_json::from_str(&json(&small())).expect("valid JSON");
    assert_fields(
        &report["telemetry"],
        "budget_exhausted_count deadline_expired_count donation_depth_max handoffs handoffs_queued housekeeping_offload_count \
         nohz_enter_count nohz_exit_count oneshot_deadline_miss_count queue_depth_max realtime_overrun_count \
         reschedules_lost reschedules_pending reschedules_sent scheduler_tick_count sqpoll_busy_ns \
         sqpoll_sleep_count steals ticks_suppressed",
    );
}

#[test]
fn every_field_is_described_in_the_readme() {
    let readme = include_str!("../README.md");
    let report: Value = serde_json::from_str(&json(&small())).expect("valid JSON");
    let parts = [
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
    let report = Report { schedule: None, ..small() };
    let value: Value = serde_json::from_str(&json(&report)).expect("valid JSON");
    assert!(value.get("schedule").is_none());
    let back: Report = serde_json::from_value(value).expect("a report");
    assert_eq!(back, report);
}

#[test]
fn json_reads_back_as_the_same_report() {
    let report = Report { seed: u64::MAX, ..small() };
    let back: Report = serde_json::from_str(&json(&report)).expect("a report");
    assert_eq!(back, report);
}

#[test]
fn streamed_json_is_the_same_text() {
    let mut out = Vec::new();
    json_to(&small(), &mut out).expect("a vector takes everything");
    assert_eq!(out, json(&small()).into_bytes());
}
