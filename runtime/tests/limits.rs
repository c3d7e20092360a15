//! The command that measures the runtime against its limits: that it measures all of them, and tells a miss. What it
//! measures is up to the host, and asserted nowhere.

#[path = "../examples/limits/figures.rs"]
mod figures;

use figures::{Figure, Limit, Work, measure};

//= SCHED:13.1.1
#[test]
fn switch_spawn_memory_and_steal_are_measured_against_their_limits() {
    let figures =
        measure(&Work { yields: 500, spawns: 500, parked: 200, forks: 300, parallel: 8, steps: 1_000 });
    let limit = |name: &str| figures.iter().find(|figure| figure.name == name).map(|figure| figure.limit);
    assert_eq!(limit("switch"), Some(Limit::Below(1_000.0)), "a microsecond");
    assert_eq!(limit("spawn"), Some(Limit::Above(1_000_000.0)), "a million a second");
    assert_eq!(limit("memory"), Some(Limit::Below(16_384.0)), "16 KiB");
    assert_eq!(limit("steal"), Some(Limit::Below(10_000.0)), "ten microseconds");
    for figure in figures.iter().filter(|figure| ["switch", "spawn", "scaling"].contains(&figure.name)) {
        assert!(figure.value > 0.0 && figure.value.is_finite(), "{figure}");
    }
}

#[test]
fn a_parallel_load_is_measured_on_one_worker_and_on_all_cores() {
    let figures = measure(&Work { yields: 1, spawns: 1, parked: 1, forks: 1, parallel: 64, steps: 20_000 });
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let scaling = figures.iter().find(|figure| figure.name == "scaling");
    assert_eq!(scaling.is_some(), cores > 1, "there is something to scale to");
    if let Some(scaling) = scaling {
        let Limit::Above(limit) = scaling.limit else { panic!("{scaling}") };
        assert!(limit > 0.0 && limit.is_finite(), "a part of what plain threads gain: {scaling}");
    }
}

#[test]
fn a_figure_beyond_its_limit_is_a_miss_and_so_is_none() {
    let figure = |value, limit| Figure { name: "switch", unit: "ns", value, limit };
    assert!(figure(9.0, Limit::Below(10.0)).holds() && figure(11.0, Limit::Above(10.0)).holds());
    assert!(!figure(10.0, Limit::Below(10.0)).holds() && !figure(10.0, Limit::Above(10.0)).holds());
    assert!(!figure(f64::NAN, Limit::Below(10.0)).holds(), "what was not measured does not hold");
    assert!(figure(11.0, Limit::Below(10.0)).to_string().contains("MISSED"));
}
