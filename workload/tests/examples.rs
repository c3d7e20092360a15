//! The example files of the project, which the simulator's acceptance rests on.

use mainspring_abi::{CpuSet, Nanos, Policy};
use mainspring_authority::admission::{Candidate, Survey, Task, survey};
use mainspring_sched::Floor;
use mainspring_workload::{Operation, Step, Workload, load};
use std::path::PathBuf;

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "workloads"].iter().collect()
}

fn example(name: &str) -> Workload {
    load(folder().join(format!("{name}.toml"))).unwrap_or_else(|error| panic!("{error}"))
}

fn instances(workload: &Workload) -> usize {
    workload.threads.iter().map(|thread| thread.instances()).sum()
}

#[test]
fn every_example_is_valid_and_says_what_it_shows() {
    let mut seen = 0;
    for entry in std::fs::read_dir(folder()).expect("the folder exists") {
        let path = entry.expect("readable").path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        load(&path).unwrap_or_else(|error| panic!("{error}"));
        let text = std::fs::read_to_string(&path).expect("readable");
        assert!(text.starts_with("# "), "{} begins with a comment", path.display());
        assert!(text.lines().all(|line| line.len() <= 110), "{} fits a screen", path.display());
        seen += 1;
    }
    assert!(seen >= 24, "{seen} examples");
}

#[test]
fn the_examples_have_the_sizes_that_the_acceptance_names() {
    let size = |name| {
        let workload = example(name);
        (workload.machine.cpus, instances(&workload), workload.machine.duration.to_string())
    };
    assert_eq!(size("speed"), (64, 1_000, "2s".into()));
    assert_eq!(size("huge"), (4_096, 100_000, "1s".into()));
    assert_eq!(size("idle"), (4, 4, "1s".into()));
    assert_eq!(size("tour").0, 2);
    assert_eq!(size("hot-queue").0, 4_096);
}

#[test]
fn the_fault_example_has_every_fault() {
    let faults = example("faults").faults;
    let rates =
        [faults.late_reschedule_ppm, faults.lost_reschedule_ppm, faults.late_timer_ppm, faults.stall_ppm];
    assert!(rates.iter().all(|rate| *rate > 0));
    assert!(!faults.burst_every.is_zero() && !faults.exit_every.is_zero());
}

#[test]
fn the_published_schedules_keep_their_proportions() {
    let two = example("eevdf-two-clients");
    assert_eq!((two.machine.policy, two.machine.quantum.to_string()), (Policy::Eevdf, "1ms".into()));
    assert_eq!(two.threads[0].weight, two.threads[1].weight);

    let six = example("wfq-six-flows");
    assert_eq!(six.machine.policy, Policy::Wfq);
    let weights: Vec<u16> = six.threads.iter().map(|thread| thread.weight.get()).collect();
    let total: u16 = weights.iter().sum();
    assert!(weights[0] * 2 == total && weights[1..].iter().all(|weight| weight * 10 == total));
}

#[test]
fn the_examples_of_the_manual_are_valid_and_quoted_as_they_are() {
    let docs: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "docs"].iter().collect();
    for entry in std::fs::read_dir(docs.join("examples")).expect("the folder exists") {
        let path = entry.expect("readable").path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            load(path).unwrap_or_else(|error| panic!("{error}"));
        }
    }
    let manual = std::fs::read_to_string(docs.join("workload-files.md")).expect("readable");
    let example = std::fs::read_to_string(docs.join("examples/every-key.toml")).expect("readable");
    assert!(manual.contains(example.trim()), "workload-files.md quotes every-key.toml");
}

/// The contexts of a workload as admission sees them, with the floor of best effort on each CPU.
fn judged(workload: &Workload) -> Survey {
    let machine = CpuSet::first(workload.machine.cpus);
    let contexts = workload.contexts.iter().flat_map(|context| {
        let candidate = Candidate {
            name: context.name.clone(),
            task: Task { cost: context.budget, deadline: context.deadline, period: context.period },
            criticality: 0,
            cpus: context.cpus.unwrap_or(machine),
        };
        std::iter::repeat_n(candidate, context.instances())
    });
    let floor = Floor::from_ppm(workload.machine.floor_ppm).expect("within range");
    survey(&contexts.collect::<Vec<_>>(), &machine, floor, Nanos::ZERO)
}

#[test]
fn the_examples_with_contexts_are_admitted_beside_the_floor() {
    for name in
        ["audio-graph", "voice-agent", "robot-control", "hostile-policy", "inversion", "inversion-off"]
    {
        let workload = example(name);
        assert!(!workload.contexts.is_empty(), "{name}");
        let found = judged(&workload);
        assert!(found.is_admitted(), "{name}: {:?}", found.refusals);
    }
}

#[test]
fn what_the_operator_gives_the_robots_camera_is_admitted_too() {
    let mut workload = example("robot-control");
    let adjusts = workload.operations.clone();
    for timed in adjusts {
        if let Operation::Adjust { context, budget, period } = timed.operation {
            let context = &mut workload.contexts[context.context];
            assert_ne!((context.budget, context.period), (budget, period));
            (context.budget, context.period) = (budget, period);
        }
    }
    assert!(judged(&workload).is_admitted());
}

#[test]
fn the_two_inversions_differ_in_donation_alone() {
    let (mut on, off) = (example("inversion"), example("inversion-off"));
    assert!(on.endpoints[0].donation && !off.endpoints[0].donation);
    on.endpoints[0].donation = false;
    assert_eq!(on, off);
}

#[test]
fn the_leased_poller_serves_what_the_application_submits() {
    let workload = example("sqpoll-lease");
    let polls =
        |table: usize| workload.threads[table].program.iter().any(|step| matches!(step, Step::Poll(0)));
    let lease = &workload.leases[0];
    assert!(workload.rings[0].sqpoll && polls(lease.thread.thread));
    assert_eq!(lease.ring, Some(0));
    assert_eq!(workload.threads[lease.thread.thread].cpus, Some(lease.cpus));
}
