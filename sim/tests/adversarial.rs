//! Loads that try to get more than their share, or to keep others from theirs. All run with every checker on.

mod common;

use common::{checked, thread, workload};
use mainspring_record::check::{Bound, all};
use mainspring_report::Report;
use mainspring_sim::{Options, run};

const MS: u64 = 1_000_000;
const QUANTUM: u64 = 3 * MS;

/// A machine with the default quantum of 3 ms.
fn machine(policy: &str, cpus: usize, duration: &str) -> String {
    format!("[machine]\npolicy = \"{policy}\"\ncpus = {cpus}\nduration = \"{duration}\"\n")
}

fn table(name: &str, rest: &str, program: &str) -> String {
    format!("[[thread]]\nname = \"{name}\"\n{rest}\nprogram = [{program}]\n")
}

fn eevdf(text: &str) -> Report {
    checked(&workload(text), 1, Bound::Quantum).report
}

fn within(what: &str, got: u64, wanted: u64, by: u64) {
    assert!(got.abs_diff(wanted) <= by, "{what}: {got}ns, not {wanted}ns within {by}ns");
}

//= EVO:S3.weights EVO:gate.fairness
#[test]
fn hogs_share_the_cpu_by_weight() {
    for policy in ["eevdf", "wfq"] {
        let weights = [16, 32, 64, 128, 200];
        let mut text = machine(policy, 1, "2s");
        for weight in weights {
            text += &table(&format!("w{weight}"), &format!("weight = {weight}"), "\"run forever\"");
        }
        let run = checked(&workload(&text), 1, if policy == "wfq" { Bound::Wfq } else { Bound::Quantum });
        let total: u64 = weights.iter().sum();
        let longest = weights.iter().map(|weight| QUANTUM / weight).max().expect("there are some");
        for weight in weights {
            let ahead = if policy == "wfq" { weight * longest } else { 0 };
            let share = 2_000 * MS * weight / total;
            let got = thread(&run.report, &format!("w{weight}")).runtime_ns;
            within(&format!("{policy} w{weight}"), got, share, QUANTUM.max(ahead) + 1);
        }
    }
}

//= EVO:gate.fairness
#[test]
fn a_thread_that_sleeps_just_before_each_quantum_ends_gains_nothing() {
    let mut text = machine("eevdf", 1, "2s");
    text += &table("honest", "count = 3", "\"run forever\"");
    text += &table("sneak", "", "\"run 2999us\", \"sleep 1us\"");
    let report = eevdf(&text);
    let share = 500 * MS;
    let got = thread(&report, "sneak").runtime_ns;
    assert!(got < share + QUANTUM, "the sneak got {got}ns of its {share}ns");
    assert!(got > share * 95 / 100, "nor is it punished: {got}ns of {share}ns");
    for honest in 0..3 {
        let got = thread(&report, &format!("honest.{honest}")).runtime_ns;
        assert!(got + QUANTUM > share, "honest.{honest} got {got}ns of {share}ns");
    }
}

//= EVO:gate.fairness
#[test]
fn short_sleepers_starve_no_hog() {
    for policy in ["eevdf", "wfq"] {
        let mut text = machine(policy, 1, "1s");
        text += &table("hog", "", "\"run forever\"");
        text += &table("sleeper", "count = 9", "\"run 90us\", \"sleep 10us\"");
        let report = checked(&workload(&text), 1, Bound::None).report;
        let got = thread(&report, "hog").runtime_ns;
        assert!(got + QUANTUM >= 100 * MS, "{policy}: the hog got {got}ns of its tenth");
    }
}

/// A pair that hands the CPU to and fro, and a hog.
fn ping_pong(policy: &str) -> Report {
    let mut text = machine(policy, 1, "1s");
    text += &table("ping", "", "\"run 50us\", \"call ball\"");
    text += &table("pong", "", "\"recv ball\", \"run 50us\", \"reply\"");
    text += &table("hog", "", "\"run forever\"");
    let bound = if policy == "wfq" { Bound::Wfq } else { Bound::Quantum };
    checked(&workload(&text), 1, bound).report
}

//= EVO:gate.fairness
#[test]
fn handing_the_cpu_to_and_fro_starves_no_hog_under_eevdf() {
    let report = ping_pong("eevdf");
    let got = thread(&report, "hog").runtime_ns;
    assert!(got + QUANTUM >= 333 * MS, "the hog got {got}ns, less than its third");
    assert!(report.telemetry.handoffs > 100, "the pair does hand over: {}", report.telemetry.handoffs);
}

//= EVO:gate.fairness
#[test]
fn handing_the_cpu_to_and_fro_starves_no_hog_under_wfq() {
    let report = ping_pong("wfq");
    let got = thread(&report, "hog").runtime_ns;
    assert!(got + QUANTUM >= 333 * MS, "the hog got {got}ns, less than its third");
}

/// Callers that hand the CPU to one server, and a hog.
fn server(policy: &str, bound: Bound) {
    let mut text = machine(policy, 1, "500ms");
    text += &table("caller", "count = 4", "\"run 200us\", \"call port\"");
    text += &table("server", "", "\"recv port\", \"run 700us\", \"reply\"");
    text += &table("hog", "", "\"run forever\"");
    let report = checked(&workload(&text), 1, bound).report;
    let got = thread(&report, "hog").runtime_ns;
    assert!(got + QUANTUM >= 500 * MS / 6, "the hog got {got}ns, less than its sixth");
}

//= EVO:gate.fairness
#[test]
fn a_server_of_many_callers_stays_within_its_bound_under_eevdf() {
    server("eevdf", Bound::Quantum);
}

//= EVO:gate.fairness
#[test]
fn a_server_of_many_callers_stays_within_its_bound_under_wfq() {
    server("wfq", Bound::Wfq);
}

//= EVO:gate.fairness
#[test]
fn many_processes_get_equal_shares() {
    let text = machine("eevdf", 1, "2s") + &table("p", "count = 200", "\"run forever\"");
    let report = eevdf(&text);
    for row in &report.threads {
        within(&row.name, row.runtime_ns, 10 * MS, QUANTUM);
    }
}

//= EVO:gate.fairness
#[test]
fn siblings_of_one_process_run_apart_and_a_loner_keeps_its_share() {
    let mut text = machine("eevdf", 1, "900ms");
    text += &table("crowd", "process = \"many\"\ncount = 8", "\"run forever\"");
    text += &table("loner", "process = \"few\"", "\"run forever\"");
    let report = eevdf(&text);
    for row in &report.threads {
        within(&row.name, row.runtime_ns, 100 * MS, QUANTUM);
    }
}

//= EVO:gate.fairness
#[test]
fn a_yield_storm_takes_no_more_than_its_share() {
    let mut text = machine("eevdf", 1, "100ms");
    text += &table("yielder", "count = 15", "\"run 1us\", \"yield\"");
    text += &table("worker", "", "\"run forever\"");
    let report = eevdf(&text);
    let got = thread(&report, "worker").runtime_ns;
    assert!(got + QUANTUM >= 100 * MS / 16, "the worker got {got}ns of its sixteenth");
}

/// A thread that yields for a while and then wants its half.
fn polite(policy: &str, bound: Bound) {
    let mut text = machine(policy, 1, "1s");
    let program = "\"run 10us\", \"yield\", ".repeat(200) + "\"run 100ms\"";
    text += &table("polite", "times = 1", &program);
    text += &table("other", "", "\"run forever\"");
    let report = checked(&workload(&text), 1, bound).report;
    // It yields a quantum to the other each time and is done with that after 0.6 s; then half of the CPU is its own.
    let got = thread(&report, "polite").runtime_ns;
    assert_eq!(got, 102 * MS, "it should have run all of its 102 ms by now");
}

//= EVO:gate.fairness
#[test]
fn a_thread_that_let_others_go_first_gets_its_share_once_it_wants_it_under_eevdf() {
    polite("eevdf", Bound::Quantum);
}

//= EVO:gate.fairness
#[test]
fn a_thread_that_let_others_go_first_gets_its_share_once_it_wants_it_under_wfq() {
    polite("wfq", Bound::Wfq);
}

//= EVO:S3.slices
#[test]
fn the_interactive_class_is_served_sooner_but_gets_no_more() {
    let mut text = machine("eevdf", 1, "3s");
    text += &table("hog", "count = 4", "\"run forever\"");
    text += &table("quick", "latency = \"interactive\"", "\"run forever\"");
    let report = eevdf(&text);
    within("a saturating interactive thread", thread(&report, "quick").runtime_ns, 600 * MS, QUANTUM);

    let mut text = machine("eevdf", 1, "2s");
    text += &table("hog", "count = 8", "\"run forever\"");
    text += &table("editor", "latency = \"interactive\"", "\"run 300us\", \"every 16ms\"");
    text += &table("clerk", "", "\"run 300us\", \"every 16ms\"");
    let report = eevdf(&text);
    let (editor, clerk) = (thread(&report, "editor"), thread(&report, "clerk"));
    assert!(
        editor.wake_latency_ns.p99 < clerk.wake_latency_ns.p99,
        "{:?} against {:?}",
        editor.wake_latency_ns,
        clerk.wake_latency_ns
    );
    assert!(editor.runtime_ns <= 200 * MS + QUANTUM, "more than a tenth: {}ns", editor.runtime_ns);
}

//= EVO:gate.fairness EVO:S1.steal-bounded
#[test]
fn four_thousand_cpus_drain_one_hot_queue() {
    let mut text = machine("eevdf", 4096, "30ms");
    text += "[costs]\nswitch = \"1us\"\nipi = \"2us\"\nmigration = \"5us\"\n";
    text += &table("pinned", "count = 16\ncpus = [0]", "\"run 50us..300us\", \"yield\"");
    text += &table("short", "start = \"spawn\"\ncount = 2000\ntimes = 1", "\"run 200us..2ms\"");
    text += &table("spawner", "cpus = [0]\nweight = 4096", "\"run 5us\", \"spawn short\"");
    let workload = workload(&text);
    let mut checks = all(&workload);
    let report = common::watched(&workload, 1, &mut checks).unwrap_or_else(|what| panic!("{what}"));
    let again = run("test", &workload, Options { seed: 1, ..Options::default() }).expect("it ran before");
    assert_eq!(report.digest, again.digest);
    assert!(report.telemetry.steals > 1_000, "{} steals", report.telemetry.steals);
    let starved: Vec<_> =
        report.threads.iter().filter(|row| row.name.starts_with("pinned") && row.runtime_ns == 0).collect();
    assert!(starved.is_empty(), "{starved:?}");
}

/// A thread that yields millions of times and never runs would keep its CPU at one instant for long: the run ends, and
/// names the thread.
#[test]
fn a_thread_that_only_yields_is_told_that_time_stands_still() {
    let workload = workload(
        r#"
        [machine]
        duration = "1ms"
        [[thread]]
        name = "idler"
        times = 100000000
        program = ["yield"]
        "#,
    );
    let error = run("idler", &workload, Options::default()).expect_err("it would take forever");
    assert!(error.to_string().contains("`idler`"), "{error}");
}
