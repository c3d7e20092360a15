//! CPU time as authority, on the simulator: published schedules, inversion both ways, and random workloads in which
//! contexts are granted, lent, revoked and lost.

mod common;

use common::authority::draw_authority;
use common::seeds::{Sweep, on_all_cores};
use common::{checked, checked_in, thread, workload};
use mainspring_record::check::{Bound, Setting, Wide};
use mainspring_report::{ContextReport, Report};

fn context<'a>(report: &'a Report, name: &str) -> &'a ContextReport {
    report.contexts.iter().find(|context| context.name == name).unwrap_or_else(|| panic!("no context {name}"))
}

/// Which thread ran from when to when, in milliseconds.
fn segments(report: &Report) -> Vec<(&str, u64, u64)> {
    let schedule = report.schedule.as_deref().expect("asked for");
    schedule
        .iter()
        .map(|one| (one.thread.as_str(), one.start_ns / 1_000_000, one.end_ns / 1_000_000))
        .collect()
}

/// Buttazzo: a task of 4 every 7 beside a server of 3 every 8 with jobs of 4 at 3 and of 3 at 13.
#[test]
fn buttazzo_constant_bandwidth_server_beside_a_periodic_task() {
    let workload = workload(
        r#"
        [machine]
        duration = "21ms"
        floor = "0%"
        [[context]]
        name = "task"
        budget = "4ms"
        period = "7ms"
        [[context]]
        name = "server"
        budget = "3ms"
        period = "8ms"
        [[thread]]
        name = "task"
        context = "task"
        program = ["run 4ms", "every 7ms"]
        [[thread]]
        name = "server"
        context = "server"
        start = "3ms"
        program = ["run 4ms", "sleep 1ms", "run 3ms", "exit"]
        "#,
    );
    let report = checked(&workload, 0, Bound::None).report;
    let published = [
        ("task", 0, 4),
        ("server", 4, 7),
        ("task", 7, 11),
        ("server", 11, 12),
        ("server", 13, 15),
        ("task", 15, 19),
        ("server", 19, 20),
    ];
    assert_eq!(segments(&report), published);
    assert_eq!((context(&report, "task").misses, context(&report, "server").misses), (0, 0));
}

/// seL4 MCS: budget 10, period 100, at most 4 refills.
//= EVO:gate.context
#[test]
fn sel4_sporadic_refills() {
    let workload = workload(
        r#"
        [machine]
        duration = "130ms"
        floor = "0%"
        [[context]]
        name = "sc"
        budget = "10ms"
        period = "100ms"
        refills = 4
        [[thread]]
        name = "client"
        context = "sc"
        program = ["run 3ms", "sleep 17ms", "run 10ms", "sleep 1s"]
        "#,
    );
    let report = checked(&workload, 0, Bound::None).report;
    let lists: Vec<Vec<(u64, u64)>> = report
        .events
        .expect("asked for")
        .iter()
        .filter(|event| event.kind == "refill")
        .filter_map(|event| event.refills.clone())
        .map(|list| list.iter().map(|(at, amount)| (at / 1_000_000, amount / 1_000_000)).collect())
        .collect();
    let published = [
        vec![(0, 10)],
        vec![(3, 7), (100, 3)],
        vec![(20, 7), (100, 3)],
        vec![(100, 3), (120, 7)],
        vec![(120, 7), (200, 3)],
    ];
    assert_eq!(lists[..published.len()], published);
}

/// Linux deadline documentation: (50, 50, 100) and (10, 100, 100) hold although their density is 1.1.
#[test]
fn linux_a_set_denser_than_one_holds() {
    let workload = workload(
        r#"
        [machine]
        duration = "1s"
        floor = "0%"
        [[context]]
        name = "first"
        budget = "50ms"
        deadline = "50ms"
        period = "100ms"
        [[context]]
        name = "second"
        budget = "10ms"
        period = "100ms"
        [[thread]]
        name = "first"
        context = "first"
        program = ["run 50ms", "every 100ms"]
        [[thread]]
        name = "second"
        context = "second"
        program = ["run 10ms", "every 100ms"]
        "#,
    );
    let report = checked(&workload, 0, Bound::None).report;
    assert_eq!((context(&report, "first").misses, context(&report, "second").misses), (0, 0));
    let second = segments(&report).into_iter().filter(|(name, ..)| *name == "second");
    assert!(second.into_iter().all(|(_, _, end)| end % 100 == 60), "its response is 60");
}

/// Zircon: A (10,5,0) and B (5,1,1): A runs and is preempted at 1.
#[test]
fn zircon_the_earlier_finish_preempts() {
    let report = pair(("10ms", "5ms", "0ms"), ("5ms", "1ms", "1ms"));
    assert_eq!(segments(&report)[..3], [("a", 0, 1), ("b", 1, 2), ("a", 2, 6)]);
}

fn pair(a: (&str, &str, &str), b: (&str, &str, &str)) -> Report {
    let one = |name: &str, (period, capacity, start): (&str, &str, &str)| {
        format!(
            "[[context]]\nname = \"{name}\"\nbudget = \"{capacity}\"\nperiod = \"{period}\"\n\
             [[thread]]\nname = \"{name}\"\ncontext = \"{name}\"\nstart = \"{start}\"\nprogram = [\"run {capacity}\", \"sleep 1s\"]\n"
        )
    };
    let text = format!("[machine]\nduration = \"30ms\"\nfloor = \"0%\"\n{}{}", one("a", a), one("b", b));
    checked(&workload(&text), 0, Bound::None).report
}

const CONTROL: &str = r#"
    [machine]
    duration = "1s"
    [[context]]
    name = "control"
    budget = "4ms"
    period = "10ms"
    criticality = 3
    [[endpoint]]
    name = "device"
    donation = DONATION
    [[thread]]
    name = "control"
    context = "control"
    program = ["run 500us", "call device", "run 500us", "every 10ms"]
    [[thread]]
    name = "driver"
    program = ["recv device", "run 2ms", "reply"]
    [[thread]]
    name = "batch"
    count = 6
    program = ["run forever"]
"#;

//= TICK:L6.inversion
#[test]
fn inversion_shows_without_donation_and_is_gone_with_it() {
    let without = checked(&workload(&CONTROL.replace("DONATION", "false")), 0, Bound::None).report;
    assert!(thread(&without, "control").misses > 10, "{:?}", thread(&without, "control"));
    let with = checked(&workload(&CONTROL.replace("DONATION", "true")), 0, Bound::None).report;
    assert_eq!((thread(&with, "control").misses, context(&with, "control").misses), (0, 0));
    let control = context(&with, "control");
    assert_eq!(control.donated_ns, 2_000_000 * 100, "the driver's two milliseconds, a hundred times");
    assert_eq!(control.used_ns, 3_000_000 * 100);
}

//= ARCH:donation.admit
#[test]
fn a_server_with_a_context_keeps_its_own_and_an_unbound_caller_lends_nothing() {
    let text = CONTROL.replace("DONATION", "true")
        + r#"
        [[context]]
        name = "driver"
        budget = "3ms"
        period = "10ms"
        [[thread]]
        name = "guest"
        program = ["call device", "run 100us", "sleep 50ms"]
    "#;
    let text = text.replace(
        "name = \"driver\"\n    program",
        "name = \"driver\"\n    context = \"driver\"\n    program",
    );
    let report = checked(&workload(&text), 0, Bound::None).report;
    assert_eq!(context(&report, "control").donated_ns, 0);
    assert!(context(&report, "driver").used_ns > 200_000_000, "{:?}", context(&report, "driver"));
}

/// A caller that states what a call needs is refused at once if that is not left.
#[test]
fn a_call_that_would_run_dry_is_refused_before_it_begins() {
    let text = CONTROL
        .replace("DONATION", "true")
        .replace("\"call device\"", "\"run 2ms\", \"call device needs 2ms\"");
    let report = checked(&workload(&text), 0, Bound::None).report;
    assert_eq!(thread(&report, "control").refusals, 100, "2.5 of 4 ms are used at each call");
    assert_eq!(context(&report, "control").donated_ns, 0);
}

//= ARCH:logout.revoke ARCH:logout.donation-skip
#[test]
fn a_session_that_ends_takes_its_contexts_along_but_for_loans_in_flight() {
    let text = CONTROL.replace("DONATION", "true").replace(
        "name = \"control\"\n    context",
        "name = \"control\"\n    session = \"desk\"\n    context",
    ) + r#"
        [[session]]
        name = "desk"
        [[at]]
        time = "301ms"
        do = "logout desk"
    "#;
    let report = checked(&workload(&text), 0, Bound::None).report;
    // At 301 ms the driver has the loan, since 300.5 ms: it keeps it until it replies, at 302.5 ms.
    let control = context(&report, "control");
    assert_eq!((control.state.as_str(), control.used_ns), ("revoked", 30 * 3_000_000 + 2_500_000));
    assert_eq!((report.telemetry.donation_inflight_skipped, control.generation), (1, 1));
    assert!(
        report.notices.iter().any(|notice| notice.contains("left loans in flight alone: 1")),
        "{:?}",
        report.notices
    );
    let events = report.events.expect("asked for");
    let revoked = events.iter().find(|event| event.kind == "revoke").expect("it was");
    assert_eq!((revoked.time_ns, revoked.reason.as_deref()), (302_500_000, Some("logout")));
}

fn try_seed(seed: u64, faults: bool) -> Result<Report, String> {
    let workload = draw_authority(seed, faults);
    let setting = Setting::of(&workload);
    checked_in::<Wide>(&workload, seed, setting).map(|checked| checked.report)
}

/// Random workloads, half of them with faults: every checker looks on at every event, every run is recorded,
/// replayed and repeated.
//= OWN:context.one-place EVO:S4.single-charge EVO:S4.eligible TICK:L5.enforce ARCH:donation.cancel ARCH:ctx.generation TICK:L6.partial-failure
#[test]
fn authority_is_conserved_over_random_workloads() {
    let sweep = Sweep::of(0..10_000);
    let (alone, count) = (sweep.alone, sweep.count());
    let (mut donated, mut revoked, mut depleted, mut windows) = (0u64, 0u64, 0u64, 0u64);
    let reports = on_all_cores(sweep.seeds, |seed| {
        try_seed(seed, seed % 2 == 1).unwrap_or_else(|what| {
            panic!(
                "seed {seed}: {what}\nreplay with: MAINSPRING_SEED={seed} cargo test -p mainspring-sim --release --test contexts \
                 authority_is_conserved"
            )
        })
    });
    for report in reports {
        donated += report.contexts.iter().filter(|context| context.donated_ns > 0).count() as u64;
        revoked += report.contexts.iter().filter(|context| context.state == "revoked").count() as u64;
        depleted += report.contexts.iter().map(|context| context.depletions).sum::<u64>();
        windows += report.leases.iter().map(|lease| lease.activations).sum::<u64>();
    }
    if !alone {
        // The draw must reach what it is meant to test.
        assert!(
            donated > count / 10 && revoked > count / 10 && depleted > count && windows > count,
            "{donated} {revoked} {depleted} {windows}"
        );
    }
}
