//! Islands in a run: admitted as a whole or not at all, at their start, beside what is there.

use mainspring_record::check;
use mainspring_report::Report;
use mainspring_sim::{Options, run};
use mainspring_workload::parse;

fn simulate(text: &str) -> Report {
    let workload = parse("island.toml", text).expect("a workload");
    let watch = Box::new(check::all(&workload));
    let options = Options { schedule: true, watch: Some(watch), ..Options::default() };
    run("island.toml", &workload, options).expect("it runs")
}

/// Two nodes of `budget` each in 10 ms on CPU 0, in an island that says `more`.
fn studio(budget: &str, more: &str) -> String {
    let node = |name: &str| {
        format!(
            r#"
[[context]]
name = "{name}"
budget = "{budget}"
period = "10ms"
[[thread]]
name = "{name}"
context = "{name}"
program = ["run {budget}", "every 10ms"]
"#
        )
    };
    format!(
        r#"
[machine]
cpus = 2
duration = "500ms"
[[island]]
name = "studio"
period = "10ms"
cpus = [0]
nodes = ["left", "right"]
{more}
{}{}
[[thread]]
name = "hog"
count = 3
program = ["run forever"]
"#,
        node("left"),
        node("right")
    )
}

fn island_events(report: &Report) -> Vec<(u64, &str)> {
    let events = report.events.as_deref().expect("the schedule was asked for").iter();
    events
        .filter(|event| event.kind == "island")
        .map(|event| (event.time_ns / 1_000_000, event.reason.as_deref().unwrap_or("")))
        .collect()
}

//= EVO:S6.record EVO:S6.fail-closed
#[test]
fn an_island_that_fits_is_admitted_and_nobody_of_it_is_late() {
    let report = simulate(&studio("4ms", ""));
    assert!(report.islands[0].admitted, "{:?}", report.islands);
    assert_eq!(island_events(&report), [(0, "admitted at 0ns")]);
    for context in &report.contexts {
        assert_eq!((context.cpu, context.misses, &*context.state), (Some(0), 0, "bound"));
        assert_eq!(context.used_ns, 50 * 4_000_000);
    }
    assert_eq!(report.notices, [""; 0]);
}

//= EVO:S6.fail-closed
#[test]
fn an_island_that_does_not_fit_gets_nothing_and_its_threads_run_as_best_effort() {
    let report = simulate(&studio("5ms", ""));
    assert!(!report.islands[0].admitted);
    assert!(report.islands[0].reason.contains("does not fit on CPU 0"), "{:?}", report.islands);
    assert_eq!(island_events(&report).len(), 1);
    for context in &report.contexts {
        assert_eq!(
            (context.used_ns, context.granted_ns, context.cpu, &*context.state),
            (0, 0, None, "shelved"),
            "not even the node that would have fitted"
        );
    }
    let nodes = report.threads.iter().filter(|thread| thread.name != "hog");
    assert!(nodes.take(2).all(|thread| thread.runtime_ns > 0));
    assert!(report.notices[0].starts_with("island studio was refused and runs as best effort"));
}

//= EVO:S6.fail-closed TICK:L7.memory TICK:L7.no-block
#[test]
fn what_cannot_be_realtime_is_refused_though_it_would_fit() {
    for (more, word) in [
        (
            "memory = [{ name = \"samples\", bytes = 4096, residency = \"normal\" }]",
            "samples is not resident",
        ),
        ("locks = \"unbounded\"", "takes a lock"),
        ("calls = \"blocking\"", "passive server"),
        ("deadline = \"3ms\"", "fits the deadline"),
        ("devices = [\"dac\", \"dac\"]", "device dac is taken"),
    ] {
        let report = simulate(&studio("4ms", more));
        assert!(!report.islands[0].admitted, "{more}");
        assert!(report.islands[0].reason.contains(word), "{:?}", report.islands);
        assert!(report.contexts.iter().all(|context| context.used_ns == 0));
    }
}

#[test]
fn an_island_that_starts_later_binds_its_threads_then() {
    let report = simulate(&studio("4ms", "start = \"200ms\""));
    assert_eq!(island_events(&report), [(200, "admitted at 200ms")]);
    let bound = report.events.as_deref().expect("asked for").iter().filter(|event| event.kind == "bind");
    let bound: Vec<_> = bound.map(|event| (event.cpu, event.time_ns >= 200_000_000)).collect();
    assert_eq!(bound, [(Some(0), true), (Some(0), true)]);
    for context in &report.contexts {
        assert_eq!(context.misses, 0);
        assert!(context.used_ns >= 28 * 4_000_000, "{context:?}");
    }
}

#[test]
fn a_second_island_is_judged_beside_the_first_and_fits_when_that_has_left() {
    let second = |start: &str| {
        format!(
            r#"
[[island]]
name = "second"
period = "10ms"
cpus = [0]
start = "{start}"
nodes = ["extra"]
[[context]]
name = "extra"
budget = "3ms"
period = "10ms"
[[thread]]
name = "extra"
context = "extra"
program = ["run 3ms", "every 10ms"]
[[at]]
time = "200ms"
do = "leave studio"
"#
        )
    };
    let early = simulate(&(studio("4ms", "") + &second("100ms")));
    assert_eq!([early.islands[0].admitted, early.islands[1].admitted], [true, false]);
    let late = simulate(&(studio("4ms", "") + &second("300ms")));
    assert_eq!([late.islands[0].admitted, late.islands[1].admitted], [true, true]);
    assert_eq!(late.islands[0].reason, "admitted at 0ns; left at 200ms");
    let states: Vec<_> = late.contexts.iter().map(|context| &*context.state).collect();
    assert_eq!(states, ["revoked", "revoked", "bound"]);
    assert!(late.contexts.iter().all(|context| context.misses == 0));
}

#[test]
fn what_is_adjusted_before_an_island_asks_is_what_it_asks_for() {
    let at = "[[at]]\ntime = \"100ms\"\ndo = \"adjust left budget 6ms period 10ms\"\n";
    let late = "start = \"200ms\"";
    assert!(simulate(&studio("4ms", late)).islands[0].admitted);
    let report = simulate(&(studio("4ms", late) + at));
    assert!(!report.islands[0].admitted, "{:?}", report.islands);
    let at = at.replace("6ms", "3ms");
    let report = simulate(&(studio("4ms", late) + &at));
    assert!(report.islands[0].admitted, "{:?}", report.islands);
    let left = report.contexts.iter().find(|context| context.name == "left").expect("it is listed");
    assert_eq!((left.budget_ns, left.granted_ns), (3_000_000, 30 * 3_000_000), "from its admission on");
}

//= EVO:S6.record EVO:gate.island
#[test]
fn an_overrun_of_one_node_shuts_the_island_down_if_it_says_so() {
    let text = studio("4ms", "overrun = \"shutdown\"").replace("run 4ms\"", "run 5ms\"");
    let report = simulate(&text);
    assert!(report.islands[0].reason.contains("; shutdown at "), "{:?}", report.islands);
    assert!(report.contexts.iter().all(|context| context.state == "revoked"));
    assert!(report.telemetry.budget_exhausted_count > 0, "it shows in the counters");
    let alive = report.threads.iter().filter(|thread| ["left", "right"].contains(&&*thread.name));
    assert!(alive.into_iter().all(|thread| thread.runtime_ns > 8_000_000), "they go on as best effort");
}

/// A plain context beside an island.
const BESIDE: &str = r#"
[[context]]
name = "plain"
budget = "1ms"
period = "10ms"
cpus = [0]
[[thread]]
name = "plain"
context = "plain"
cpus = [0]
program = ["run 1ms", "every 10ms"]
"#;

#[test]
fn an_adjustment_that_would_break_what_was_admitted_changes_nothing() {
    for (what, fits) in [
        ("adjust plain budget 1400us period 10ms", true),
        ("adjust plain budget 2ms period 10ms", false),
        ("adjust left budget 4400us period 10ms", true),
        ("adjust left budget 5ms period 10ms", false),
        ("adjust left budget 4ms period 20ms", false),
    ] {
        let at = format!("[[at]]\ntime = \"100ms\"\ndo = \"{what}\"\n");
        let report = simulate(&(studio("4ms", "") + BESIDE + &at));
        let refused = report.notices.iter().any(|notice| notice.contains("was not adjusted"));
        assert_eq!(refused, !fits, "{what}: {:?}", report.notices);
        let events = report.events.as_deref().expect("asked for");
        let adjusted: Vec<_> = events.iter().filter(|event| event.kind == "adjust").collect();
        assert_eq!(adjusted.len(), 1);
        assert_eq!(adjusted[0].reason.is_none(), fits);
        let contexts = report.contexts.iter();
        let budgets: Vec<_> = contexts.map(|context| (&*context.name, context.budget_ns)).collect();
        // They are numbered as they are granted: those of the island when it is admitted.
        let before = [("plain", 1_000_000), ("left", 4_000_000), ("right", 4_000_000)];
        assert_eq!(budgets == before, !fits, "{what}");
        assert!(report.contexts.iter().all(|context| context.misses == 0), "{what}");
    }
}

#[test]
fn plain_contexts_that_are_too_much_run_and_the_report_says_so() {
    let more = BESIDE.replace("1ms", "9ms").replace("plain", "greedy").replace("10ms", "9200us");
    let hog = "[[thread]]\nname = \"hog\"\ncount = 3\nprogram = [\"run forever\"]\n";
    let text = format!("[machine]\ncpus = 2\n{BESIDE}{more}{hog}");
    let report = simulate(&text);
    assert!(
        report.notices[0].starts_with("the contexts of CPU 0 were not admitted: "),
        "{:?}",
        report.notices
    );
    assert!(report.notices[0].ends_with("are missed when all are released together"));
    assert!(report.contexts.iter().all(|context| context.used_ns > 0));
    assert!(report.contexts.iter().any(|context| context.misses > 0));
}
