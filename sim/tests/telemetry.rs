//! The counters of a run: each moves by what it names, and every form of the report has it.

mod common;

use common::{checked, workload};
use mainspring_record::check::Bound;
use mainspring_report::{Report, Telemetry};

/// A machine on which everything happens that is counted: a lease whose CPU others leave, a poller that sleeps, calls that are too
/// late, a context that is used up on loan, two calls deep, two that cannot both be in time, and timers that come late.
const EVERYTHING: &str = r#"
    [machine]
    cpus = 4
    duration = "200ms"
    [faults]
    late_timer = { chance = "20%", by = "300us" }
    [[context]]
    name = "grant"
    budget = "2ms"
    period = "20ms"
    cpus = [0]
    [[context]]
    name = "tight"
    budget = "3ms"
    deadline = "3ms"
    period = "20ms"
    cpus = [0]
    [[lease]]
    name = "quiet"
    cpus = [3]
    thread = "alone"
    start = "50ms"
    [[ring]]
    name = "disk"
    owner = "app"
    sqpoll = true
    idle_spin = "50us"
    cost = "10us"
    [[thread]]
    name = "alone"
    program = ["run forever"]
    [[thread]]
    name = "client"
    context = "grant"
    program = ["call front", "every 20ms"]
    [[thread]]
    name = "tight"
    count = 2
    context = "tight"
    program = ["run 3ms", "every 20ms"]
    [[thread]]
    name = "front"
    program = ["recv front", "call back", "reply"]
    [[thread]]
    name = "back"
    program = ["recv back", "run 3ms", "reply"]
    [[thread]]
    name = "slow"
    cpus = [1]
    program = ["recv slow", "run 10ms", "reply"]
    [[thread]]
    name = "hasty"
    cpus = [2]
    count = 2
    program = ["call slow deadline 5ms drop", "sleep 1ms"]
    [[thread]]
    name = "app"
    cpus = [2]
    program = ["submit disk 2", "complete disk 2", "sleep 5ms"]
    [[thread]]
    name = "poller"
    cpus = [1]
    program = ["poll disk"]
    [[thread]]
    name = "sleeper"
    count = 6
    program = ["run 1ms", "sleep 4ms"]
"#;

fn report() -> Report {
    checked(&workload(EVERYTHING), 1, Bound::None).report
}

//= TICK:telemetry TICK:verify.realtime
#[test]
fn each_counter_moves_when_what_it_counts_happens() {
    let report = report();
    let Telemetry {
        scheduler_tick_count,
        ticks_suppressed,
        nohz_enter_count,
        nohz_exit_count,
        oneshot_deadline_miss_count,
        sqpoll_busy_ns,
        sqpoll_sleep_count,
        deadline_expired_count,
        budget_exhausted_count,
        realtime_overrun_count,
        donation_depth_max,
        housekeeping_offload_count,
        ..
    } = &report.telemetry;
    for cpu in &report.cpus {
        assert_eq!(scheduler_tick_count[&cpu.id.to_string()], cpu.ticks);
    }
    assert!(report.cpus.iter().any(|cpu| cpu.ticks > 0));
    let spared = |mode: &str| -> u64 {
        ticks_suppressed.iter().filter(|(key, _)| key.ends_with(mode)).map(|(_, count)| count).sum()
    };
    assert!(ticks_suppressed["3,lease"] >= 14 && spared("idle") > 0, "{ticks_suppressed:?}");
    let suppressed: u64 = report.cpus.iter().map(|cpu| cpu.ticks_suppressed).sum();
    assert_eq!(ticks_suppressed.values().sum::<u64>(), suppressed);
    assert_eq!(nohz_enter_count["3,compute"], report.leases[0].activations);
    let exits: u64 = nohz_exit_count.values().sum();
    let enters: u64 = nohz_enter_count.values().sum();
    assert!(exits > 0 && (exits..=exits + 4).contains(&enters), "a CPU is in one window at most at the end");
    assert!(*oneshot_deadline_miss_count > 0);
    let disk = &report.rings[0];
    assert_eq!((*sqpoll_busy_ns, *sqpoll_sleep_count), (disk.busy_ns + disk.spins_ns, disk.sleeps));
    assert!(disk.sleeps > 20);
    let dropped: u64 = report.threads.iter().map(|thread| thread.dropped).sum();
    assert_eq!(*deadline_expired_count, dropped + disk.dropped);
    assert!(dropped > 5);
    let depletions: u64 = report.contexts.iter().map(|context| context.depletions).sum();
    assert_eq!(*budget_exhausted_count, depletions);
    assert!(report.contexts[0].depletions > 5);
    assert!(*realtime_overrun_count >= 9, "one of the two in each period");
    assert_eq!(*donation_depth_max, 2);
    assert!(
        (1..=8).contains(housekeeping_offload_count),
        "each of the others leaves the leased CPU once at most"
    );
}

//= TICK:telemetry
#[test]
fn every_form_of_the_report_has_the_counters() {
    let report = report();
    let json = mainspring_report::json(&report);
    let text = mainspring_report::text(&report, mainspring_report::TextStyle::default());
    for name in [
        "scheduler_tick_count",
        "ticks_suppressed",
        "nohz_enter_count",
        "nohz_exit_count",
        "oneshot_deadline_miss_count",
        "sqpoll_busy_ns",
        "sqpoll_sleep_count",
        "deadline_expired_count",
        "budget_exhausted_count",
        "realtime_overrun_count",
        "donation_depth_max",
        "housekeeping_offload_count",
    ] {
        assert!(json.contains(&format!("\"{name}\"")), "{name} is not in the JSON form");
        assert!(text.contains(name), "{name} is not in the text");
    }
}
