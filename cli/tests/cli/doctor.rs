//! `mainspring doctor`: what the host allows, checked against the host's own files.

use crate::support::{Folder, Ran};
use serde_json::Value;
use std::fs;
use std::path::Path;

fn findings(folder: &Folder) -> Vec<Value> {
    let found = folder.run("doctor --json").ok().json();
    found.as_array().expect("a list of findings").clone()
}

fn finding<'a>(findings: &'a [Value], topic: &str) -> &'a Value {
    findings.iter().find(|finding| finding["topic"] == topic).expect("a finding")
}

#[test]
fn every_topic_is_answered_and_everything_that_is_not_good_comes_with_advice() {
    let folder = Folder::new("doctor-topics");
    let findings = findings(&folder);
    for topic in [
        "cgroup",
        "quota",
        "cpuset",
        "memory",
        "tree",
        "deadline",
        "deadline-bandwidth",
        "cpus",
        "nohz-full",
        "isolcpus",
        "governor",
        "clock",
        "timers",
        "io-uring",
    ] {
        let found = finding(&findings, topic);
        let good = found["status"] == "good";
        assert_eq!(good, found.get("advice").is_none(), "{found}");
        assert!(found["found"].as_str().is_some_and(|text| !text.is_empty()), "{found}");
    }
}

#[test]
fn a_place_for_groups_is_a_directory_of_this_host() {
    let folder = Folder::new("doctor-places");
    let findings = findings(&folder);
    for topic in ["quota", "cpuset", "memory"] {
        let found = finding(&findings, topic);
        if found["status"] == "good" {
            let (_, place) =
                found["found"].as_str().and_then(|text| text.rsplit_once(", in ")).expect("a place");
            assert!(Path::new(place).join("cgroup.procs").exists(), "{found}");
        }
    }
}

#[test]
fn the_cpus_and_the_deadline_bandwidth_are_those_of_the_kernel() {
    let folder = Folder::new("doctor-kernel");
    let findings = findings(&folder);
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    if !online.is_empty() {
        let found = finding(&findings, "cpus")["found"].as_str().expect("text").to_owned();
        assert!(found.ends_with(&format!(": {}", online.trim())), "{found}");
    }
    if fs::read_to_string("/proc/sys/kernel/sched_rt_runtime_us").is_ok_and(|text| text.trim() == "950000") {
        let found = finding(&findings, "deadline-bandwidth");
        assert!(found["found"].as_str().is_some_and(|text| text.starts_with("95.0 %")), "{found}");
    }
}

#[test]
fn people_get_the_same_as_programs() {
    let folder = Folder::new("doctor-text");
    let text = folder.run("doctor").ok().stdout;
    for found in &findings(&folder) {
        let line = text.lines().find(|line| line.split_whitespace().next() == found["topic"].as_str());
        let status = line.and_then(|line| line.split_whitespace().nth(1));
        assert_eq!(status, found["status"].as_str(), "{text}");
    }
    Ran::of(&mut folder.command("doctor --jsn")).refused(&["--json"]);
}
