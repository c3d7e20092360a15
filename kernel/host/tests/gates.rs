//! The gates that a change must pass: what `make` runs, read from the Makefile and from what `make -n` would do.
#![allow(missing_docs, reason = "a test")]

use mainspring_abi::ring::{CapSqe, CapSqeV2};
use mainspring_machine::proof::{self, MEASURED, PROOFS};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The words of a variable of the Makefile.
fn words(variable: &str) -> BTreeSet<String> {
    let makefile = fs::read_to_string(root().join("Makefile")).expect("the Makefile is there");
    let begin = format!("{variable} := ");
    let value = makefile.lines().find_map(|line| line.strip_prefix(&begin)).expect("the variable is set");
    value.split_whitespace().map(str::to_owned).collect()
}

/// What `make TARGET` would run.
fn commands(target: &str) -> String {
    let mut make = Command::new("make");
    // What an outer make says is not for this one.
    make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").env_remove("MFLAGS");
    let output = make.args(["-n", target]).current_dir(root()).output().expect("make can be run");
    assert!(output.status.success(), "make -n {target}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn every_proof_is_run_by_make_and_each_name_is_a_proofs() {
    let listed = words("KERNEL_PROOFS");
    let proofs: BTreeSet<_> = PROOFS.iter().map(|proof| proof.name.to_owned()).collect();
    assert_eq!(listed, proofs);
    let measured: BTreeSet<_> = MEASURED.iter().map(|proof| proof.name.to_owned()).collect();
    assert_eq!(words("MEASURED_PROOFS"), measured);
    for checked in words("CHECKED_PROOFS") {
        assert!(proofs.contains(&checked), "{checked}");
    }
    let all = commands("kernel-proofs");
    for run in [words("KERNEL_PROOFS"), words("CHECKED_PROOFS"), words("MEASURED_PROOFS")] {
        for name in run {
            assert!(all.contains(&format!(" {name}")), "{name} is not run");
        }
    }
    assert!(all.contains("--checked "), "nothing runs on the kernel that checks itself");
    assert!(all.contains("--measured "), "nothing runs on the kernel that measures");
}

/// Parks and ends of processes are in `measure`, rings and their fairness in `smoke`.
//= EVO:gate.percpu
#[test]
fn a_change_of_the_queues_has_to_pass_every_smoke_and_keeps_its_raw_logs() {
    for name in ["smoke", "spawn", "thread-scale", "measure", "smp"] {
        assert!(words("KERNEL_PROOFS").contains(name), "make kernel-proofs leaves out {name}");
    }
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
    assert!(commands("kernel-proofs").contains("--logs "), "raw output is not kept");
    let scale = commands("bench-scale");
    assert!(scale.contains("--logs ") && scale.contains("--times 5"), "one run is no evidence: {scale}");
}

/// Where a thread sits is changed by the driver, whose rules every machine shares, and by nothing of the kernel's own.
//= OWN:driver.one
#[test]
fn threads_start_wake_move_and_end_by_the_drivers_rules() {
    let mut sources = Vec::new();
    kernel_sources(&root().join("kernel/src"), &mut sources);
    let moves = ["accept", "wake", "hand_off", "remove", "give", "hold", "release"];
    for (file, text) in &sources {
        for name in moves {
            for call in [format!("event().{name}("), format!("|cpu| cpu.{name}(")] {
                assert!(!text.contains(&call), "{file} moves threads by itself: {call}");
            }
        }
    }
    let rules = ["place", "start", "wake", "kick", "steal", "hand_over", "share_leftovers", "set_weight"];
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
    kernel_sources(&root().join("kernel/src"), &mut sources);
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
                path.strip_prefix(root().join("kernel/src")).expect("it is below").display().to_string();
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
    kernel_sources(&root().join("kernel/src"), &mut sources);
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
    ];
    let once = [
        ("boot/mod.rs", "say_switches"),
        ("boot/mod.rs", "report"),
        ("method/system.rs", "begin_case"),
        // What ends is told before the next case begins.
        ("method/system.rs", "counts"),
    ];
    let mut uses = 0;
    for (file, text) in sources.iter().filter(|(file, _)| file != "measure.rs") {
        for rest in text.split("measure::").skip(1) {
            let word = rest.trim_start_matches('{');
            let word = word.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
            let allowed = writes.contains(&word) || once.contains(&(file.as_str(), word));
            assert!(allowed, "{file} uses measure::{word}, which may read what was measured");
            uses += 1;
        }
    }
    assert!(uses > 20, "{uses} uses were found");
    let (_, measure) = sources.iter().find(|(file, _)| file == "measure.rs").expect("it is there");
    for said in measure.split("say!(\"").skip(1) {
        assert!(
            said.starts_with("measure: diagnostic ") || said.starts_with("sched: "),
            "not labelled: {said:.60}"
        );
    }
}
