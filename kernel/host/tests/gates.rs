//! What the kernel's sources and its proofs hold a change to.
#![allow(missing_docs, reason = "a test")]

use mainspring_abi::ring::{CapSqe, CapSqeV2};
use mainspring_conformance::{make_variable, project};
use mainspring_machine::proof::{self, MEASURED, PROOFS};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The words of a variable of the Makefile, each once.
fn listed(variable: &str) -> BTreeSet<String> {
    make_variable(variable).into_iter().collect()
}

#[test]
fn every_proof_is_listed_for_make_and_each_name_is_a_proofs() {
    let proofs: BTreeSet<_> = PROOFS.iter().map(|proof| proof.name.to_owned()).collect();
    assert_eq!(listed("KERNEL_PROOFS"), proofs);
    let measured: BTreeSet<_> = MEASURED.iter().map(|proof| proof.name.to_owned()).collect();
    assert_eq!(listed("MEASURED_PROOFS"), measured);
    for checked in listed("CHECKED_PROOFS") {
        assert!(proofs.contains(&checked), "{checked}");
    }
}

/// Parks and ends of processes are in `measure`, rings and their fairness in `smoke`.
//= EVO:gate.percpu
#[test]
fn the_smokes_of_the_queues_fail_without_what_they_are_to_show() {
    let smp = proof::find("smp").expect("it is a proof");
    assert_eq!(smp.cpus, [1, 2, 4, 8]);
    for (proof, marker) in [
        ("smoke", "smoke: ring_fairness=ok"),
        ("measure", "measure: park_resume=ok"),
        ("measure", "measure: exit_with_parked_thread=ok"),
        ("thread-scale", "scale: threads=2"),
    ] {
        let proof = proof::find(proof).expect("it is a proof");
        assert!(proof.markers.contains(&marker), "{} does not need {marker}", proof.name);
    }
}

/// Where a thread sits is changed by the driver, whose rules every machine shares, and by nothing of the kernel's own.
//= OWN:driver.one
#[test]
fn threads_start_wake_move_and_end_by_the_drivers_rules() {
    let mut sources = Vec::new();
    kernel_sources(&project().join("kernel/src"), &mut sources);
    let moves = ["accept", "wake", "hand_off", "remove", "give", "hold", "release"];
    for (file, text) in &sources {
        for name in moves {
            for call in [format!("event().{name}("), format!("|cpu| cpu.{name}(")] {
                assert!(!text.contains(&call), "{file} moves threads by itself: {call}");
            }
        }
    }
    let rules = ["place", "start", "wake", "expire", "steal", "hand_over", "share_leftovers", "set_weight"];
    for rule in rules {
        let call = format!("placement::{rule}(&mut Kernel");
        assert!(sources.iter().any(|(_, text)| text.contains(&call)), "the kernel never calls {call}");
    }
    let exits = sources.iter().filter(|(_, text)| text.contains("cpu.exit_current()")).count();
    assert_eq!(exits, 1, "a thread ends in one place");
}

/// All that a request says: what it asks for, its deadline, its flags, and the name of a context. Nothing of it is a budget, a period, a
/// priority, a criticality or a set of CPUs.
//= TICK:nongoal.sqe-policy
#[test]
fn a_request_of_the_kernel_carries_no_policy() {
    // A field that is added does not compile until it stands here.
    let CapSqeV2 { v1, deadline_ns: _, qos_flags: _, sched_ctx_id: _ } = CapSqeV2::nop(0);
    let CapSqe {
        user_data: _,
        cap_id: _,
        op: _,
        method_id: _,
        flags: _,
        call_id: _,
        params_addr: _,
        params_len: _,
        result_len: _,
        result_addr: _,
    } = v1;
    let mut sources = Vec::new();
    kernel_sources(&project().join("kernel/src"), &mut sources);
    for (file, text) in &sources {
        assert!(!text.contains("struct CapSqe"), "{file} has a request of its own");
    }
}

/// The sources of the kernel, with their paths below `kernel/src`.
fn kernel_sources(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("the kernel is there") {
        let path = entry.expect("it can be listed").path();
        if path.is_dir() {
            kernel_sources(&path, found);
        } else {
            let name =
                path.strip_prefix(project().join("kernel/src")).expect("it is below").display().to_string();
            found.push((name, fs::read_to_string(&path).expect("it can be read")));
        }
    }
}

/// The counts of the kernel that measures go to the serial line and to the program that began a case, each line labelled.
/// Everything else can only add to it.
//= EVO:S2.diagnostic
#[test]
fn what_is_measured_is_labelled_diagnostic_and_decides_nothing() {
    let mut sources = Vec::new();
    kernel_sources(&project().join("kernel/src"), &mut sources);
    let writes = [
        "ON",
        "one",
        "add",
        "sample",
        "switched",
        "self",
        "Counter",
        "Stretch",
        "stretch_begins",
        "stretch_ends",
        "stretch_is",
        "within",
        "holding",
    ];
    let once = [
        ("boot/mod.rs", "say_switches"),
        ("boot/mod.rs", "report"),
        ("method/system.rs", "begin_case"),
        // What ends is told before the next case begins.
        ("method/system.rs", "counts"),
    ];
    let mut uses = 0;
    for (file, text) in sources.iter().filter(|(file, _)| !file.starts_with("measure/")) {
        for rest in text.split("measure::").skip(1) {
            let word = rest.trim_start_matches('{');
            let word = word.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
            let allowed = writes.contains(&word) || once.contains(&(file.as_str(), word));
            assert!(allowed, "{file} uses measure::{word}, which may read what was measured");
            uses += 1;
        }
    }
    assert!(uses > 20, "{uses} uses were found");
    let (_, measure) = sources.iter().find(|(file, _)| file == "measure/mod.rs").expect("it is there");
    for said in measure.split("say!(\"").skip(1) {
        assert!(
            said.starts_with("measure: diagnostic ") || said.starts_with("sched: "),
            "not labelled: {said:.60}"
        );
    }
}
