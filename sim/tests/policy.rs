//! A policy service that is dead, slow, stale or hostile, in a run: the rest goes on.

use mainspring_record::check;
use mainspring_report::{Report, ThreadReport};
use mainspring_sim::{Options, run};
use mainspring_workload::parse;

const SHOP: &str = r#"
[machine]
duration = "1s"
[policy]
service = "policyd"
recovery = "shell"
timeout = "50ms"
[[context]]
name = "pump"
budget = "2ms"
period = "10ms"
[[thread]]
name = "pump"
context = "pump"
program = ["run 2ms", "every 10ms"]
[[thread]]
name = "policyd"
program = ["run 300us", "every 20ms"]
[[thread]]
name = "shell"
latency = "interactive"
program = ["run 200us", "every 40ms"]
[[thread]]
name = "hog"
count = 2
program = ["run forever"]
"#;

fn simulate(text: &str) -> Report {
    let workload = parse("shop.toml", text).expect("a workload");
    let watch = Box::new(check::all(&workload));
    let options = Options { schedule: true, watch: Some(watch), ..Options::default() };
    run("shop.toml", &workload, options).expect("it runs")
}

fn with(operations: &[(u64, &str)]) -> Report {
    let at = |(ms, what): &(u64, &str)| format!("[[at]]\ntime = \"{ms}ms\"\ndo = \"{what}\"\n");
    simulate(&format!("{SHOP}{}", operations.iter().map(at).collect::<String>()))
}

fn thread<'r>(report: &'r Report, name: &str) -> &'r ThreadReport {
    report.threads.iter().find(|thread| thread.name == name).expect("a thread of that name")
}

fn policy_events(report: &Report) -> Vec<(u64, &str, &str)> {
    let events = report.events.as_deref().expect("the schedule was asked for").iter();
    events
        .filter(|event| event.kind.starts_with("policy-"))
        .map(|event| (event.time_ns / 1_000_000, &*event.kind, event.reason.as_deref().unwrap_or("")))
        .collect()
}

/// CPU time of `name` from `from_ms` on.
fn ran_after(report: &Report, name: &str, from_ms: u64) -> u64 {
    let entries = report.schedule.as_deref().expect("the schedule was asked for").iter();
    let after = entries.filter(|entry| entry.thread == name && entry.start_ns >= from_ms * 1_000_000);
    after.map(|entry| entry.end_ns - entry.start_ns).sum()
}

//= EVO:S7.fallback
#[test]
fn when_the_service_dies_every_share_goes_on_and_the_recovery_thread_runs() {
    let report = with(&[(100, "policy weight hog.1 192 epoch 2"), (300, "policy dies")]);
    assert_eq!(ran_after(&report, "policyd", 301), 0, "it is dead");
    assert_eq!(report.contexts[0].misses, 0);
    assert_eq!(thread(&report, "pump").misses, 0);
    let shell = thread(&report, "shell");
    assert_eq!((shell.misses, shell.weight), (0, 64));
    assert!(ran_after(&report, "shell", 301) >= 17 * 200_000, "seventeen periods are left");
    let (light, heavy) = (ran_after(&report, "hog.0", 301), ran_after(&report, "hog.1", 301));
    assert!(heavy.abs_diff(3 * light) < 40_000_000, "what was set stands: {heavy} against {light}");
    let events = policy_events(&report);
    assert_eq!(events.last(), Some(&(300, "policy-lost", "it ended")));
    assert!(report.notices.iter().any(|notice| notice.contains("was lost at 300ms: it ended")));
}

//= EVO:S7.fallback
#[test]
fn a_silent_service_is_slow_and_then_lost_and_what_it_says_later_has_no_effect() {
    let report = with(&[
        (100, "policy weight hog.1 192 epoch 2"),
        (200, "policy stalls"),
        (900, "policy weight hog.1 1 epoch 3"),
    ]);
    let kinds: Vec<_> = policy_events(&report).iter().map(|(_, kind, _)| *kind).collect();
    let told = ["policy-start", "policy-take", "policy-take", "policy-slow", "policy-lost", "policy-refuse"];
    assert_eq!(kinds, told, "the first word is the file's own epoch");
    assert_eq!(thread(&report, "hog.1").weight, 192);
    assert_eq!(report.contexts[0].misses, 0);
}

//= EVO:S7.fallback
#[test]
fn stale_and_hostile_updates_are_refused_with_their_reasons_and_counted() {
    let report = with(&[
        (100, "policy weight hog.0 128 epoch 5"),
        (150, "policy weight hog.0 1 epoch 5"),
        (200, "policy weight shell 1 epoch 6"),
        (250, "policy weight hog.1 65535 epoch 7"),
        (300, "policy profile shell batch epoch 8"),
        (350, "policy profile hog.1 batch epoch 9"),
    ]);
    let refused: Vec<_> = policy_events(&report)
        .into_iter()
        .filter(|(_, kind, _)| *kind == "policy-refuse")
        .map(|(at, _, reason)| (at, reason.to_owned()))
        .collect();
    let reasons = [
        (150, "epoch 5: epoch 5 is not above 5; read the settings again"),
        (200, "epoch 6: the recovery thread is not the policy's"),
        (250, "epoch 7: weight 65535 is outside of the manifest's bounds"),
        (300, "epoch 8: the recovery thread is not the policy's"),
    ];
    assert_eq!(refused, reasons.map(|(at, reason)| (at, reason.to_owned())));
    assert_eq!(["hog.0", "hog.1", "shell"].map(|name| thread(&report, name).weight), [128, 64, 64]);
    let counted = "policy service policyd: 2 updates taken, the last epoch is 9; 4 refused";
    assert!(report.notices.iter().any(|notice| notice == counted), "{:?}", report.notices);
}

#[test]
fn what_a_file_sets_has_an_epoch_and_a_thread_that_is_not_there_yet_is_treated_so_from_its_start() {
    let late = r#"
[[thread]]
name = "late"
start = "500ms"
program = ["run forever"]
[[at]]
time = "10ms"
do = "policy weight late 128 epoch 1"
[[at]]
time = "20ms"
do = "policy weight late 256 epoch 2"
"#;
    let report = simulate(&format!("{SHOP}{late}"));
    let refusals = policy_events(&report).into_iter().filter(|(_, kind, _)| *kind == "policy-refuse");
    assert_eq!(refusals.map(|(at, ..)| at).collect::<Vec<_>>(), [10]);
    assert_eq!(thread(&report, "late").weight, 256);
    assert!(ran_after(&report, "late", 500) > 2 * ran_after(&report, "hog.0", 500));
}

//= EVO:S7.fallback
#[test]
fn the_shipped_hostile_service_does_what_its_comment_says() {
    let text = std::fs::read_to_string("../workloads/hostile-policy.toml").expect("the workload");
    let report = simulate(&text);
    assert!(report.contexts.iter().all(|context| context.misses == 0));
    let kinds: Vec<_> = policy_events(&report).iter().map(|(_, kind, _)| *kind).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "policy-take").count(), 1 + 3);
    assert_eq!(kinds.iter().filter(|kind| **kind == "policy-refuse").count(), 3);
    assert_eq!(kinds.iter().filter(|kind| **kind == "policy-slow").count(), 2);
    assert_eq!(kinds.last(), Some(&"policy-lost"));
    assert_eq!(["hog.0", "hog.1", "shell"].map(|name| thread(&report, name).weight), [128, 4096, 64]);
    let shell = ran_after(&report, "shell", 700);
    assert!(
        shell >= 2 * 200_000,
        "a hog of 64 times its weight slows it down, and does not stop it: {shell}"
    );
}
