//! The example files of the project, which the simulator's acceptance rests on.

use mainspring_abi::Policy;
use mainspring_workload::{Workload, load};
use std::path::PathBuf;

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "..", "workloads"].iter().collect()
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
    assert!(seen >= 17, "{seen} examples");
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
