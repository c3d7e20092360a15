//! Loans along calls on the simulated machine: how deep they go, what they cost their owner, and when they end.

mod common;

use common::{checked, thread, workload};
use mainspring_record::check::Bound;
use mainspring_report::{ContextReport, Event, Report};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

fn run(text: &str) -> Report {
    checked(&workload(text), 1, Bound::None).report
}

fn grant(report: &Report) -> &ContextReport {
    report.contexts.iter().find(|context| context.name == "grant").expect("there is one")
}

fn events<'a>(report: &'a Report, kind: &'a str) -> impl Iterator<Item = &'a Event> {
    report.events.as_deref().unwrap_or_default().iter().filter(move |event| event.kind == kind)
}

fn times(report: &Report, kind: &str) -> Vec<u64> {
    events(report, kind).map(|event| event.time_ns).collect()
}

/// From when to when a thread had a CPU.
fn ran(report: &Report, name: &str) -> Vec<(u64, u64)> {
    let schedule = report.schedule.as_deref().unwrap_or_default().iter();
    schedule.filter(|entry| entry.thread == name).map(|entry| (entry.start_ns, entry.end_ns)).collect()
}

/// A client with a context calls `front`, which calls `back`, which works for 1 ms. Hogs are beside them, so that a server without
/// a loan waits for its turn. `own` is what the second server has, if anything.
fn chain(depth: u8, own: &str) -> Report {
    run(&format!(
        r#"
        [machine]
        duration = "100ms"
        [[context]]
        name = "grant"
        budget = "4ms"
        period = "20ms"
        depth = {depth}
        [[context]]
        name = "own"
        budget = "2ms"
        period = "20ms"
        [[thread]]
        name = "client"
        context = "grant"
        program = ["call front", "run 500us", "every 20ms"]
        [[thread]]
        name = "front"
        program = ["recv front", "run 500us", "call back", "run 500us", "reply"]
        [[thread]]
        name = "back"
        program = [{own} "recv back", "run 1ms", "reply"]
        [[thread]]
        name = "hog"
        count = 3
        program = ["run forever"]
        "#
    ))
}

//= TICK:L6.nested TICK:verify.realtime EVO:gate.context
#[test]
fn a_nested_call_carries_the_loan_on_and_each_reply_hands_it_back_by_one() {
    let report = chain(8, "");
    assert_eq!(thread(&report, "front").refusals, 0);
    assert_eq!(grant(&report).donated_ns, 5 * 2 * MS, "both servers, five times");
    assert_eq!((grant(&report).used_ns, grant(&report).misses), (5 * 2_500 * US, 0));
    let moved = |kind| {
        let first = events(&report, kind).take(2);
        first.map(|event| (event.thread.as_deref(), event.to.as_deref())).collect::<Vec<_>>()
    };
    assert_eq!(moved("donate"), [(Some("client"), Some("front")), (Some("front"), Some("back"))]);
    assert_eq!(moved("return"), [(Some("back"), Some("front")), (Some("front"), Some("client"))]);
    assert_eq!(report.telemetry.donation_depth_max, 2);
}

//= TICK:L6.depth TICK:L6.nested TICK:verify.realtime
#[test]
fn a_call_beyond_the_depth_of_its_context_is_refused_and_the_loan_stays() {
    let report = chain(1, "");
    assert_eq!(thread(&report, "front").refusals, 5, "each of its calls");
    let refused: Vec<_> = events(&report, "refuse").map(|event| event.reason.as_deref()).collect();
    assert_eq!(refused, [Some("donation"); 5]);
    assert_eq!(thread(&report, "back").runtime_ns, 0, "it is never called");
    assert_eq!(grant(&report).donated_ns, 5 * MS, "the first server goes on with what it has");
    assert_eq!((report.telemetry.donation_depth_max, grant(&report).misses), (1, 0));
}

//= TICK:L6.nested
#[test]
fn a_second_server_with_a_context_of_its_own_serves_on_that() {
    let report = chain(1, r#""bind own","#);
    assert_eq!(thread(&report, "front").refusals, 0, "nothing is lent beyond the depth");
    assert_eq!(grant(&report).donated_ns, 5 * MS, "the first server alone");
    let own = report.contexts.iter().find(|context| context.name == "own").expect("there is one");
    assert_eq!((own.used_ns, own.donated_ns), (5 * MS, 0));
}

/// A client with 4 ms of every 20 ms does what `client` says; the server waits for its call, and then does what `server` says.
fn one_call(cpus: usize, client: &str, server: &str, more: &str) -> Report {
    run(&format!(
        r#"
        [machine]
        cpus = {cpus}
        duration = "60ms"
        [[context]]
        name = "grant"
        budget = "4ms"
        period = "20ms"
        deadline = "15ms"
        [[thread]]
        name = "client"
        context = "grant"
        times = 1
        program = [{client}]
        [[thread]]
        name = "server"
        program = ["recv port", {server}]
        {more}
        "#
    ))
}

const CALLS: &str = r#""run 500us", "call port", "run 500us""#;
const LATE: &str = r#""run 5ms", "reply""#;

fn at_1ms(operation: &str) -> String {
    format!("[[at]]\ntime = \"1ms\"\ndo = \"{operation}\"\n")
}

/// Which ways there are is decided by what a workload can say: a simulated call is never cancelled by its caller's own thread, and
/// has no result that could be invalid.
//= OWN:donation.exits
#[test]
fn each_end_of_a_call_brings_the_loan_back_before_its_caller_runs() {
    let reply = r#""run 1ms", "reply""#;
    let timed = CALLS.replace("call port", "call port 600us");
    let ends = [
        ("reply", CALLS, reply, String::new(), 1_500),
        ("exception", CALLS, r#""run 1ms", "throw""#, String::new(), 1_500),
        ("no answer", CALLS, r#""run 1ms""#, String::new(), 1_500),
        ("timeout", &*timed, LATE, String::new(), 1_100),
        ("endpoint closed", CALLS, LATE, at_1ms("close port"), 1_000),
        ("server killed", CALLS, LATE, at_1ms("exit server"), 1_000),
        ("server exits", CALLS, r#""run 1ms", "exit""#, String::new(), 1_500),
    ];
    for (end, client, server, more, back) in ends {
        for cpus in [1, 2] {
            let report = one_call(cpus, client, server, &more);
            let back = back * US;
            assert_eq!(times(&report, "donate"), [500 * US], "{end}");
            let returned: Vec<_> =
                events(&report, "return").map(|event| (event.time_ns, event.to.as_deref())).collect();
            assert_eq!(returned, [(back, Some("client"))], "{end}, {cpus} CPUs");
            let [before, after] = ran(&report, "client")[..] else { panic!("{end}: it runs twice") };
            assert_eq!((before, after), ((0, 500 * US), (back, back + 500 * US)), "{end}, {cpus} CPUs");
            assert_eq!(grant(&report).used_ns, back + 500 * US, "{end}: it goes on with its own");
            assert_eq!(grant(&report).donated_ns, back - 500 * US, "{end}: nothing is charged after it");
            let failed = u64::from(!matches!(end, "reply" | "timeout"));
            assert_eq!(thread(&report, "client").failures, failed, "{end}");
            assert_eq!(thread(&report, "client").timeouts, u64::from(end == "timeout"), "{end}");
        }
    }
}

//= OWN:donation.exits EVO:gate.context
#[test]
fn a_loan_whose_caller_ends_or_whose_context_is_revoked_is_taken_from_the_server() {
    for (operation, ends) in [("exit client", 1), ("revoke grant", 2)] {
        for cpus in [1, 2] {
            let report = one_call(cpus, CALLS, r#""run 1ms", "reply""#, &at_1ms(operation));
            assert!(times(&report, "return").is_empty(), "{operation}: nobody has it back");
            assert_eq!((grant(&report).used_ns, grant(&report).donated_ns), (MS, MS / 2), "{operation}");
            assert_eq!(thread(&report, "server").runtime_ns, MS, "{operation}: it goes on as best effort");
            assert_eq!(ran(&report, "client").len(), ends, "{operation}");
            assert_eq!(times(&report, "revoke").len(), ends - 1, "{operation}");
        }
    }
}

//= TICK:L6.timeout EVO:gate.context
#[test]
fn a_call_ends_at_the_earliest_of_its_timeout_its_deadline_and_its_contexts() {
    let calls = |terms: &str| CALLS.replace("call port", &format!("call port {terms}"));
    let bounds = [
        ("", 15_000),
        ("timeout 3ms", 3_500),
        ("deadline 2ms drop", 2_500),
        ("timeout 3ms deadline 2ms drop", 2_500),
        ("timeout 1ms deadline 2ms drop", 1_500),
        ("timeout 40ms deadline 30ms drop", 15_000),
    ];
    for (terms, bound) in bounds {
        // It would take longer than any of them, and has budget for some of it.
        let report = one_call(1, &calls(terms), r#""run 40ms", "reply""#, "");
        let returned: Vec<_> =
            events(&report, "return").map(|event| (event.time_ns, event.reason.as_deref())).collect();
        assert_eq!(returned, [(bound * US, Some("timeout"))], "{terms:?}");
        assert_eq!(thread(&report, "client").timeouts, 1, "{terms:?}: its caller is told");
    }
}

//= ARCH:donation.charge TICK:verify.realtime
#[test]
fn time_is_charged_to_the_loan_from_its_first_to_its_last_nanosecond() {
    // 1 ms before the call, 2 ms in it: 1 ms is left for what comes after it.
    let client = r#""run 1ms", "call port", "run 30ms""#;
    let report = one_call(1, client, r#""run 2ms", "reply""#, "");
    let depleted: Vec<_> =
        events(&report, "deplete").take(2).map(|event| (event.time_ns, event.thread.as_deref())).collect();
    assert_eq!(depleted, [(4 * MS, Some("client")), (24 * MS, Some("client"))]);
    assert_eq!(grant(&report).donated_ns, 2 * MS);
    // A server that uses a loan up stands still with it until the refill, and the caller with it.
    let report = one_call(1, client, r#""run 5ms", "reply""#, "");
    let first = events(&report, "deplete").next().map(|event| (event.time_ns, event.thread.as_deref()));
    assert_eq!(first, Some((4 * MS, Some("server"))));
    assert_eq!(times(&report, "return"), [15 * MS], "at its bound, the context's deadline");
    assert_eq!(ran(&report, "server"), [(MS, 4 * MS), (15 * MS, 17 * MS)], "the rest is best effort");
}
