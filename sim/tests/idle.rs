//! Idle CPUs take few interrupts, and every timed wait is on time all the same.

mod common;

use common::{checked, thread, workload};
use mainspring_record::check::Bound;

/// One idle second on each CPU, but for a wait now and then.
const QUIET: &str = r#"
    [machine]
    cpus = 5
    duration = "1s"
    [[thread]]
    name = "sleeper"
    cpus = [0]
    program = ["run 10us", "sleep 200ms"]
    [[thread]]
    name = "parker"
    cpus = [1]
    program = ["park 300ms", "run 10us"]
    [[thread]]
    name = "caller"
    cpus = [2]
    program = ["call quiet 100ms", "run 10us"]
    [[thread]]
    name = "receiver"
    cpus = [3]
    program = ["recv other 400ms", "run 10us"]
    [[thread]]
    name = "never"
    cpus = [3]
    program = ["recv quiet", "sleep 2s", "reply"]
    [[thread]]
    name = "friend"
    cpus = [3]
    program = ["sleep 2s", "call other"]
"#;

//= TICK:verify.idle ARCH:tickless.bound TICK:L1.deadline-waiter TICK:L1.idle-entry
#[test]
fn one_idle_second_has_few_interrupts_and_every_timeout_is_on_time() {
    // The checks see that each wait ends at its deadline, to the nanosecond.
    let report = checked(&workload(QUIET), 1, Bound::Quantum).report;
    assert_eq!(report.cpus[4].idle_ns, 1_000_000_000);
    for cpu in &report.cpus {
        assert!(cpu.timer_interrupts <= 11, "{cpu:?}");
        assert!(cpu.ticks <= 1, "{cpu:?}");
        // Ticks after the last interrupt have not been counted yet.
        assert!((89..=99).contains(&cpu.ticks_suppressed), "{cpu:?}");
    }
    for (name, least) in [("parker", 3), ("caller", 9), ("receiver", 2)] {
        assert!(thread(&report, name).timeouts >= least, "{name} timed out too seldom");
        assert_eq!(thread(&report, name).wake_latency_ns.max, 0, "{name} ran when it was due");
    }
    assert_eq!(thread(&report, "sleeper").wakeups, 4);
    assert_eq!(thread(&report, "sleeper").wake_latency_ns.max, 0);
}

//= TICK:L1.states TICK:L1.netpoll TICK:L1.enter
#[test]
fn a_network_without_a_clock_keeps_the_tick_of_its_cpu_alone() {
    let text = r#"
        [machine]
        cpus = 2
        duration = "1s"
        [network]
        cpu = 1
        every = "7ms"
        work = "10us"
        clock = false
        [[thread]]
        name = "nobody"
        start = "999ms"
        program = ["run 1us", "sleep 1s"]
    "#;
    let report = checked(&workload(text), 1, Bound::Quantum).report;
    assert!(report.cpus[0].timer_interrupts <= 11, "{:?}", report.cpus[0]);
    assert_eq!((report.cpus[1].ticks, report.cpus[1].ticks_suppressed), (99, 0), "{:?}", report.cpus[1]);
}

//= TICK:L1.netpoll
#[test]
fn a_network_with_a_clock_lets_its_cpu_sleep_until_it_has_work() {
    let text = r#"
        [machine]
        duration = "1s"
        [network]
        cpu = 0
        every = "40ms"
        work = "120us"
        budget = "50us"
        clock = true
        [[thread]]
        name = "nobody"
        start = "999ms"
        program = ["run 1us", "sleep 1s"]
    "#;
    let report = checked(&workload(text), 1, Bound::Quantum).report;
    let cpu = &report.cpus[0];
    assert!(cpu.ticks <= 1 && cpu.ticks_suppressed >= 98, "{cpu:?}");
    // 24 arrivals, and each takes three polls of at most 50 us.
    assert!(cpu.timer_interrupts <= 24 * 3 + 11, "{cpu:?}");
}

//= TICK:L1.contention ARCH:tickless.restore
#[test]
fn one_runnable_thread_keeps_the_tick() {
    let text = r#"
        [machine]
        duration = "1s"
        [[thread]]
        name = "alone"
        program = ["run forever"]
    "#;
    let report = checked(&workload(text), 1, Bound::Quantum).report;
    assert_eq!((report.cpus[0].ticks, report.cpus[0].ticks_suppressed), (99, 0));
}

//= TICK:telemetry.evidence
#[test]
fn counters_of_an_idle_run_have_the_values_that_follow_from_it() {
    let report = checked(&workload(QUIET), 1, Bound::Quantum).report;
    let telemetry = &report.telemetry;
    for cpu in &report.cpus {
        let key = format!("{},idle", cpu.id);
        assert_eq!(telemetry.scheduler_tick_count[&cpu.id.to_string()], cpu.ticks);
        assert_eq!(telemetry.ticks_suppressed[&key], cpu.ticks_suppressed);
        let exits: u64 = ["dispatch", "reschedule", "rollback"]
            .iter()
            .map(|reason| telemetry.nohz_exit_count[&format!("{},{reason}", cpu.id)])
            .sum();
        // Each CPU is tickless at the end, so it has entered once more than it has left.
        assert_eq!(telemetry.nohz_enter_count[&key], exits + 1, "CPU {}", cpu.id);
    }
    assert_eq!(telemetry.nohz_enter_count["4,idle"], 1);
    assert_eq!(telemetry.oneshot_deadline_miss_count, 0);
    for unused in [
        telemetry.sqpoll_busy_ns,
        telemetry.sqpoll_sleep_count,
        telemetry.deadline_expired_count,
        telemetry.budget_exhausted_count,
        telemetry.realtime_overrun_count,
        telemetry.donation_depth_max,
        telemetry.housekeeping_offload_count,
    ] {
        assert_eq!(unused, 0, "nothing of the kind exists in this machine");
    }
}
