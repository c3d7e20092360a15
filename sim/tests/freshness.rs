//! Deadlines of calls say how long an answer is of use, and nothing else: late calls are marked, dropped or refused, each
//! counted apart, and none of them gets CPU time for being urgent.

use mainspring_record::check;
use mainspring_report::{Report, ThreadReport};
use mainspring_sim::{Options, run};
use mainspring_workload::parse;

fn simulate(text: &str) -> Report {
    let workload = parse("calls.toml", text).expect("a workload");
    let watch = Box::new(check::all(&workload));
    let options = Options { schedule: true, watch: Some(watch), ..Options::default() };
    run("calls.toml", &workload, options).expect("it runs")
}

fn thread<'r>(report: &'r Report, name: &str) -> &'r ThreadReport {
    report.threads.iter().find(|thread| thread.name == name).expect("a thread of that name")
}

/// Each of `callers` calls once at 1 ms; a server that is busy until 10 ms serves one after the other, 1 ms each.
fn rush(endpoint: &str, callers: &[(&str, &str)]) -> Report {
    let caller = |(name, call): &(&str, &str)| {
        format!(
            "[[thread]]\nname = \"{name}\"\nstart = \"1ms\"\ntimes = 1\nprogram = [\"call desk {call}\", \"run 1us\"]\n"
        )
    };
    let callers: String = callers.iter().map(caller).collect();
    simulate(&format!(
        "[machine]\ncpus = 4\nduration = \"50ms\"\n[[endpoint]]\nname = \"desk\"\n{endpoint}\n{callers}\
         [[thread]]\nname = \"clerk\"\nprogram = [\"run 10ms\", \"recv desk\", \"run 1ms\", \"reply\", \
         \"recv desk\", \"run 1ms\", \"reply\", \"recv desk\", \"run 1ms\", \"reply\", \"recv desk\"]\n"
    ))
}

fn counts(report: &Report, name: &str) -> [u64; 5] {
    let thread = thread(report, name);
    [thread.late, thread.dropped, thread.failures, thread.timeouts, thread.refusals]
}

//= TICK:L4.drop-if-late TICK:L7.status
#[test]
fn late_dropped_and_timed_out_calls_are_told_apart() {
    let callers = [
        ("patient", "timeout 40ms"),
        ("late", "deadline 5ms"),
        ("dropped", "deadline 5ms drop"),
        ("hasty", "timeout 5ms"),
    ];
    let report = rush("", &callers);
    assert_eq!(counts(&report, "patient"), [0, 0, 0, 0, 0]);
    assert_eq!(counts(&report, "late"), [1, 0, 0, 0, 0], "it is served, and says so");
    assert_eq!(counts(&report, "dropped"), [0, 1, 0, 0, 0], "it is never served");
    assert_eq!(counts(&report, "hasty"), [0, 0, 0, 1, 0]);
    let clerk = thread(&report, "clerk").runtime_ns;
    assert_eq!(clerk, 12_000_000, "two of the four were served");
}

//= TICK:L7.errors
#[test]
fn a_path_that_is_not_realtime_safe_refuses_deadlines_and_takes_the_rest() {
    let report = rush("realtime_safe = false", &[("plain", ""), ("urgent", "deadline 20ms")]);
    assert_eq!(counts(&report, "plain"), [0, 0, 0, 0, 0]);
    assert_eq!(counts(&report, "urgent"), [0, 0, 0, 0, 1]);
    let refused = report.events.as_deref().expect("asked for").iter().find(|event| event.kind == "refuse");
    assert_eq!(refused.and_then(|event| event.reason.as_deref()), Some("realtime-unsafe"));
}

/// The callers in the order in which they were answered.
fn answered(report: &Report) -> Vec<&str> {
    let schedule = report.schedule.as_deref().expect("asked for").iter();
    schedule.filter(|entry| entry.reason == "exited").map(|entry| &*entry.thread).collect()
}

//= TICK:L4.deadline-ordered
#[test]
fn calls_are_served_by_deadline_only_where_the_endpoint_allows_it_and_within_its_window() {
    let callers = [("first", "deadline 40ms"), ("second", "deadline 30ms"), ("third", "deadline 20ms")];
    assert_eq!(answered(&rush("", &callers)), ["first", "second", "third"]);
    assert_eq!(answered(&rush("reorder = true\nwindow = 3", &callers)), ["third", "second", "first"]);
    assert_eq!(answered(&rush("reorder = true\nwindow = 2", &callers)), ["second", "first", "third"]);
}

//= TICK:L4.propagate
#[test]
fn a_nested_call_is_no_fresher_than_the_one_it_serves() {
    let report = simulate(
        r#"
[machine]
cpus = 3
duration = "50ms"
[[thread]]
name = "caller"
start = "1ms"
times = 1
program = ["call front deadline 5ms"]
[[thread]]
name = "front"
program = ["recv front", "call back drop", "reply"]
[[thread]]
name = "back"
program = ["run 10ms", "recv back", "run 1ms", "reply"]
"#,
    );
    assert_eq!(counts(&report, "front"), [0, 1, 0, 0, 0], "what it asks for is of no use after 6 ms");
    assert_eq!(counts(&report, "caller"), [0, 0, 0, 0, 0], "answered at its deadline, which is not late");
}
