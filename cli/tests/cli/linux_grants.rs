//! `mainspring run --on linux` with all that can be granted: contexts, sessions, leases, islands, rings. What is asserted is
//! counted, not timed: how long anything takes is up to the host.

use crate::support::Folder;
use serde_json::Value;

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("a number, not {value}"))
}

/// Runs `text` on Linux under the eyes of the checkers, replays its record under them again, and returns the report.
#[track_caller]
fn play(name: &str, text: &str) -> Value {
    play_in(&Folder::new(&format!("grants-{name}")), text)
}

#[track_caller]
fn play_in(folder: &Folder, text: &str) -> Value {
    folder.write("w.toml", text);
    let report =
        folder.run("run w.toml --on linux --verify --report json --schedule --record w.msr").ok().json();
    let replayed = folder.run("replay w.msr --verify").ok();
    let digest = report["digest"].as_str().expect("text");
    assert!(replayed.stdout.contains(digest) && replayed.stdout.contains("verified"), "{replayed:?}");
    report
}

/// A workload of the project, in less time.
fn shipped(file: &str, times: &[(&str, &str)]) -> String {
    let path = format!("{}/../workloads/{file}", env!("CARGO_MANIFEST_DIR"));
    let mut text = std::fs::read_to_string(path).expect("it is part of the project");
    for (from, to) in times {
        assert!(text.contains(from), "{file} has {from}");
        text = text.replace(from, to);
    }
    text
}

#[track_caller]
fn row<'r>(report: &'r Value, kind: &str, name: &str) -> &'r Value {
    let rows = report[kind].as_array().expect("rows");
    rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no row {name} of {kind}: {report}"))
}

fn exits(report: &Value, name: &str) -> usize {
    let schedule = report["schedule"].as_array().expect("asked for");
    schedule.iter().filter(|entry| entry["thread"] == name && entry["reason"] == "exited").count()
}

/// The CPUs on which a thread has run.
fn cpus_of(report: &Value, name: &str) -> Vec<u64> {
    let schedule = report["schedule"].as_array().expect("asked for");
    let ran = schedule.iter().filter(|entry| entry["thread"] == name).map(|entry| number(&entry["cpu"]));
    let mut cpus: Vec<u64> = ran.collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

#[test]
fn a_voice_agent_serves_on_its_callers_time_until_they_log_out() {
    let folder = Folder::new("grants-voice");
    // Longer than it needs to be: some call is answered in time on any host.
    let times = [("duration = \"1s\"", "duration = \"3s\""), ("time = \"600ms\"", "time = \"2s\"")];
    let report = play_in(&folder, &shipped("voice-agent.toml", &times));
    assert_eq!(row(&report, "contexts", "alice")["state"], "revoked", "she has logged out");
    for name in ["bob.0", "bob.1"] {
        let context = row(&report, "contexts", name);
        assert_ne!(context["state"], "revoked", "{context}");
        assert!(number(&context["used_ns"]) > 0, "{context}");
    }
    assert_eq!(number(&report["telemetry"]["donation_depth_max"]), 1);
    let speech = &report["endpoints"][0];
    assert!(number(&speech["replies"]) > 0, "{speech}");
    // The record knows contexts by the names that their tables have.
    let told = folder.run("explain w.msr --thread bob.1 --at 100ms").ok();
    assert!(told.stdout.contains("bob.1 at 100ms"), "{told:?}");
    assert!(!told.stdout.contains("context c"), "by its name, not its number: {told:?}");
}

#[test]
fn a_robot_has_its_island_and_is_adjusted() {
    let times = [("duration = \"1s\"", "duration = \"300ms\""), ("time = \"500ms\"", "time = \"100ms\"")];
    let report = play("robot", &shipped("robot-control.toml", &times));
    let arm = row(&report, "islands", "arm");
    assert_eq!(arm["admitted"], true, "{arm}");
    assert_eq!(number(&row(&report, "contexts", "camera")["budget_ns"]), 8_000_000, "it was given more");
    for name in ["servo", "planner", "camera"] {
        assert!(number(&row(&report, "contexts", name)["used_ns"]) > 0, "{name}");
        assert_eq!(cpus_of(&report, name), [0], "{name} runs where its context is");
    }
}

#[test]
fn an_audio_graph_is_admitted_as_a_whole() {
    let times = [("duration = \"1s\"", "duration = \"300ms\"")];
    let report = play("audio", &shipped("audio-graph.toml", &times));
    assert_eq!(row(&report, "islands", "studio")["admitted"], true);
    for name in ["capture", "drums", "keys", "effects", "mixer"] {
        assert!(number(&row(&report, "contexts", name)["used_ns"]) > 0, "{name}");
    }
}

#[test]
fn a_poller_has_its_cpu_until_its_lease_is_revoked() {
    let times = [
        ("duration = \"1s\"", "duration = \"500ms\""),
        ("time = \"800ms\"", "time = \"350ms\""),
        ("start = \"400ms\"", "start = \"150ms\""),
    ];
    let report = play("sqpoll", &shipped("sqpoll-lease.toml", &times));
    let lease = row(&report, "leases", "poller-cpu");
    assert_eq!((&lease["state"], &lease["thread"]), (&"lease-revoked".into(), &"poller".into()), "{lease}");
    let ring = row(&report, "rings", "disk");
    assert_eq!(ring["mode"], "syscall", "the ring went back to its owner");
    assert!(number(&ring["submitted"]) > 0 && number(&ring["wakeups"]) > 0, "{ring}");
    assert!(number(&ring["sleeps"]) >= number(&ring["wakeups"]), "it is woken out of a sleep: {ring}");
    let busy = number(&report["telemetry"]["sqpoll_busy_ns"]);
    let ran = number(&row(&report, "threads", "poller")["runtime_ns"]);
    assert!(busy > 0 && busy <= ran, "what the poller is charged for is its own CPU time: {busy} of {ran}");
    for name in ["batch.0", "batch.1", "batch.2", "batch.3"] {
        assert!(!cpus_of(&report, name).contains(&3), "{name} has left the leased CPU");
    }
    assert_eq!(cpus_of(&report, "visitor"), [3], "it may run nowhere else");
}

const LEASE: &str =
    "[machine]\ncpus = 2\nduration = \"300ms\"\n[[lease]]\nname = \"l\"\ncpus = [1]\nthread = \"a\"\n";
const HOGS: &str = "[[thread]]\nname = \"hog\"\ncount = 3\nprogram = [\"run forever\"]\n";

#[test]
fn every_end_of_a_lease_gives_the_cpu_back() {
    let a = "[[thread]]\nname = \"a\"\nprogram = [\"run 2ms\", \"sleep 2ms\"]\n";
    let short = "[[thread]]\nname = \"a\"\ntimes = 1\nprogram = [\"run 10ms\"]\n";
    let releases = "[[thread]]\nname = \"a\"\nprogram = [\"run 10ms\", \"release l\", \"sleep 50ms\"]\n";
    let session = "[[session]]\nname = \"s\"\n[[thread]]\nname = \"a\"\nsession = \"s\"\nprogram = [\"run 2ms\", \"sleep 2ms\"]\n";
    let at = |what: &str| format!("[[at]]\ntime = \"100ms\"\ndo = \"{what}\"\n");
    let cases = [
        ("revoked", "lease-revoked", format!("{LEASE}{HOGS}{a}{}", at("revoke-lease l"))),
        ("released", "lease-released", format!("{LEASE}{HOGS}{releases}")),
        ("expired", "lease-expired", format!("{LEASE}lifetime = \"100ms\"\n{HOGS}{a}")),
        ("exit", "process-exit", format!("{LEASE}{HOGS}{short}")),
        ("killed", "process-exit", format!("{LEASE}{HOGS}{a}{}", at("exit a"))),
        ("logout", "session-logout", format!("{LEASE}{HOGS}{session}{}", at("logout s"))),
    ];
    for (name, state, text) in cases {
        let report = play(&format!("lease-{name}"), &text);
        let lease = row(&report, "leases", "l");
        // A thread that ends before its process is told to has its lease revoked.
        let exit = name == "exit" || name == "killed";
        assert!(lease["state"] == state || exit && lease["state"] == "lease-revoked", "{name}: {lease}");
        let hogs = ["hog.0", "hog.1", "hog.2"].map(|hog| cpus_of(&report, hog));
        assert!(hogs.iter().any(|cpus| cpus.contains(&1)), "{name}: others use the CPU again: {hogs:?}");
    }
}

#[test]
fn while_a_lease_lives_nobody_else_comes_to_its_cpu() {
    let a = "[[thread]]\nname = \"a\"\nprogram = [\"run 5ms\", \"sleep 5ms\"]\n";
    let report = play("lease-alone", &format!("{LEASE}{HOGS}{a}"));
    assert_eq!(row(&report, "leases", "l")["state"], "live");
    assert_eq!(cpus_of(&report, "a"), [1]);
    for hog in ["hog.0", "hog.1", "hog.2"] {
        assert_eq!(cpus_of(&report, hog), [0], "{hog}");
    }
}

#[test]
fn a_lease_is_asked_for_by_a_step_replaced_and_refused() {
    let lease = LEASE.replace("[1]\n", "[1]\nstart = \"step\"\n").replace("300ms", "1s");
    let a = "[[thread]]\nname = \"a\"\nprogram = [\"run 1ms\", \"lease l\", \"run 5ms\", \"lease l\", \"run forever\"]\n";
    let report = play("lease-step", &format!("{lease}{HOGS}{a}"));
    assert_eq!(row(&report, "leases", "l")["state"], "live");
    assert_eq!(number(&row(&report, "threads", "a")["refusals"]), 0);
    // A CPU has to be left for the housekeeping.
    let all = lease.replace("[1]", "[0, 1]");
    let report = play("lease-refused", &format!("{all}{HOGS}{a}"));
    let state = row(&report, "leases", "l")["state"].as_str().expect("text").to_owned();
    assert!(state.starts_with("refused: "), "{state}");
    assert_eq!(number(&row(&report, "threads", "a")["refusals"]), 2);
    // One whose context is spent elsewhere cannot come.
    let context = "[[context]]\nname = \"c\"\nbudget = \"1ms\"\nperiod = \"10ms\"\ncpus = [0]\n";
    let bound = a.replace("name = \"a\"", "name = \"a\"\ncontext = \"c\"");
    let report = play("lease-elsewhere", &format!("{lease}{context}{HOGS}{bound}"));
    let state = row(&report, "leases", "l")["state"].as_str().expect("text").to_owned();
    assert!(state.starts_with("refused: "), "{state}");
}

const CONTEXT: &str = "[machine]\ncpus = 2\nduration = \"300ms\"\n[[context]]\nname = \"c\"\nbudget = \"2ms\"\nperiod = \"10ms\"\n";

#[test]
fn a_thread_binds_a_context_on_another_cpu_and_gives_it_up() {
    let text = format!(
        "{CONTEXT}cpus = [1]\n[[thread]]\nname = \"a\"\ntimes = 5\n\
         program = [\"run 100us\", \"bind c\", \"run 200us\", \"drain c\", \"unbind\", \"run 100us\", \"unbind\"]\n"
    );
    let report = play("bind", &text);
    let context = row(&report, "contexts", "c");
    assert_eq!(context["state"], "shelved", "{context}");
    assert!(number(&context["used_ns"]) >= 5 * 200_000, "each time it ran on it: {context}");
    assert!(cpus_of(&report, "a").contains(&1), "it came over");
    assert_eq!(number(&row(&report, "threads", "a")["refusals"]), 5, "there was nothing to give up any more");
}

#[test]
fn a_step_revokes_and_a_second_time_finds_nothing() {
    // Time enough for the second to come by, on a host that has much to do.
    let context = CONTEXT.replace("300ms", "2s");
    let text = format!(
        "{context}[[thread]]\nname = \"a\"\ncontext = \"c\"\nprogram = [\"run forever\"]\n\
         [[thread]]\nname = \"b\"\ntimes = 2\nprogram = [\"sleep 20ms\", \"revoke c\"]\n"
    );
    let report = play("revoke-step", &text);
    assert_eq!(row(&report, "contexts", "c")["state"], "revoked");
    assert_eq!(number(&row(&report, "threads", "b")["refusals"]), 1);
}

#[test]
fn a_fault_ends_its_thread_or_tells_an_endpoint_or_ends_the_island() {
    let faulty = CONTEXT.replace("10ms\"\n", "10ms\"\noverrun = \"fault\"\n");
    let a = "[[thread]]\nname = \"a\"\ncontext = \"c\"\nprogram = [\"run forever\"]\n";
    let join = "[[thread]]\nname = \"j\"\ntimes = 1\nprogram = [\"join a\"]\n";
    let report = play("fault-ends", &format!("{faulty}{a}{join}"));
    assert_eq!((exits(&report, "a"), exits(&report, "j")), (1, 1), "it was ended, and its joiner knows");
    let told = faulty.replace("overrun", "timeout_endpoint = \"stop\"\noverrun");
    let brake = "[[thread]]\nname = \"brake\"\ntimes = 1\nprogram = [\"recv stop\", \"run 50us\"]\n";
    let report = play("fault-tells", &format!("{told}{a}{brake}"));
    assert_eq!(
        (exits(&report, "a"), exits(&report, "brake")),
        (0, 1),
        "the brake was told, the thread lives"
    );
    let island = "[[island]]\nname = \"i\"\nperiod = \"10ms\"\nnodes = [\"c\"]\noverrun = \"shutdown\"\n";
    let report = play("fault-island", &format!("{CONTEXT}{island}{a}"));
    let reason = row(&report, "islands", "i")["reason"].as_str().expect("text").to_owned();
    assert!(reason.contains("shutdown at"), "{reason}");
    assert_eq!(row(&report, "contexts", "c")["state"], "revoked");
    assert_eq!(exits(&report, "a"), 0, "it goes on as best effort");
}

#[test]
fn an_island_comes_late_and_leaves_and_one_that_does_not_fit_gets_nothing() {
    let island = "[[island]]\nname = \"i\"\nperiod = \"10ms\"\nnodes = [\"c\"]\nstart = \"50ms\"\n";
    let a = "[[thread]]\nname = \"a\"\ncontext = \"c\"\nprogram = [\"run 50us\", \"sleep 500us\"]\n";
    let leave = "[[at]]\ntime = \"200ms\"\ndo = \"leave i\"\n";
    let report = play("island-late", &format!("{CONTEXT}{island}{a}{leave}"));
    let reason = row(&report, "islands", "i")["reason"].as_str().expect("text").to_owned();
    assert!(reason.contains("admitted at") && reason.contains("left at"), "{reason}");
    let context = row(&report, "contexts", "c");
    assert_eq!(context["state"], "revoked");
    assert!(number(&context["used_ns"]) > 0, "the thread that lived already took it: {context}");
    let greedy = CONTEXT.replace("2ms", "10ms");
    let report = play("island-refused", &format!("{greedy}{}{a}", island.replace("start = \"50ms\"\n", "")));
    assert_eq!(row(&report, "islands", "i")["admitted"], false);
    assert_eq!(number(&row(&report, "contexts", "c")["used_ns"]), 0);
    assert!(number(&row(&report, "threads", "a")["runtime_ns"]) > 0, "it runs as best effort");
}

#[test]
fn a_default_context_goes_from_thread_to_thread_of_its_process() {
    let context = CONTEXT.replace("10ms\"\n", "10ms\"\nprocess = \"p\"\n");
    let text = format!(
        "{context}[[thread]]\nname = \"a\"\nprocess = \"p\"\ntimes = 1\nprogram = [\"run 1ms\", \"unbind\", \"run 1ms\"]\n\
         [[thread]]\nname = \"b\"\nprocess = \"p\"\ncpus = [0]\nstart = \"1ms\"\nprogram = [\"run 20us\", \"sleep 1ms\"]\n"
    );
    let report = play("default", &text);
    let context = row(&report, "contexts", "c");
    assert_eq!(context["state"], "bound", "the second has it: {context}");
    assert!(number(&context["used_ns"]) >= 1_000_000, "{context}");
}

#[test]
fn an_endpoint_lends_its_own_context_and_calls_that_are_late_are_dropped() {
    let endpoint = "[[endpoint]]\nname = \"e\"\ncontext = \"c\"\n";
    let text = format!(
        "{CONTEXT}{endpoint}[[thread]]\nname = \"client\"\ntimes = 10\nprogram = [\"call e\", \"run 10us\"]\n\
         [[thread]]\nname = \"server\"\nprogram = [\"recv e\", \"run 100us\", \"reply\"]\n"
    );
    let report = play("endpoint", &text);
    assert_eq!(exits(&report, "client"), 1, "all ten were answered");
    let context = row(&report, "contexts", "c");
    assert!(number(&context["used_ns"]) >= 10 * 100_000, "the server ran on it: {context}");
    assert_eq!(number(&context["donated_ns"]), 0, "no caller lent anything");
    // No thread serves: a call that is not begun by its deadline is dropped, and one that needs more than there is is refused.
    let text = "[machine]\nduration = \"200ms\"\n[[context]]\nname = \"c\"\nbudget = \"1ms\"\nperiod = \"10ms\"\n\
         [[thread]]\nname = \"late\"\ntimes = 3\nprogram = [\"call e deadline 1ms drop\"]\n\
         [[thread]]\nname = \"poor\"\ncontext = \"c\"\ntimes = 3\nprogram = [\"call e needs 5ms timeout 1ms\"]\n\
         [[thread]]\nname = \"server\"\nstart = \"190ms\"\nprogram = [\"recv e\", \"reply\"]\n";
    let report = play("dropped", text);
    let late = row(&report, "threads", "late");
    assert_eq!((number(&late["dropped"]), number(&late["timeouts"])), (3, 0), "{late}");
    let poor = row(&report, "threads", "poor");
    assert_eq!((number(&poor["refusals"]), number(&poor["timeouts"])), (3, 0), "{poor}");
}

#[test]
fn urgent_calls_go_first_within_the_window() {
    let text = "[machine]\nduration = \"1s\"\n[[endpoint]]\nname = \"e\"\nreorder = true\nwindow = 4\n\
         [[thread]]\nname = \"slow\"\ntimes = 1\nprogram = [\"call e deadline 10s\"]\n\
         [[thread]]\nname = \"fast\"\nstart = \"20ms\"\ntimes = 1\nprogram = [\"call e deadline 5s\"]\n\
         [[thread]]\nname = \"server\"\nstart = \"700ms\"\nprogram = [\"recv e\", \"run 10ms\", \"reply\"]\n";
    let report = play("order", text);
    let schedule = report["schedule"].as_array().expect("asked for");
    let end = |name: &str| {
        let exit = schedule.iter().find(|entry| entry["thread"] == name && entry["reason"] == "exited");
        number(&exit.unwrap_or_else(|| panic!("{name} was answered"))["end_ns"])
    };
    assert!(end("fast") < end("slow"), "the later call with the earlier deadline is served first");
}

#[test]
fn a_ring_without_a_poller_is_served_by_its_owner_and_nobody_else() {
    let ring = "[machine]\nduration = \"200ms\"\n[[ring]]\nname = \"r\"\nowner = \"a\"\nentries = 4\n";
    let text = format!(
        "{ring}[[thread]]\nname = \"a\"\ntimes = 20\nprogram = [\"submit r 4\", \"complete r 4\"]\n\
         [[thread]]\nname = \"stranger\"\ntimes = 2\nprogram = [\"submit r 1\", \"run 10us\"]\n\
         [[thread]]\nname = \"greedy\"\ntimes = 1\nprogram = [\"poll r\"]\n"
    );
    let report = play("ring-own", &text);
    let row_of = row(&report, "rings", "r");
    assert_eq!((number(&row_of["submitted"]), number(&row_of["completed"])), (80, 80), "{row_of}");
    assert_eq!(row_of["mode"], "syscall");
    assert_eq!(number(&row(&report, "threads", "stranger")["refusals"]), 2);
    assert_eq!(number(&row(&report, "threads", "greedy")["refusals"]), 1, "the ring has no poller");
    // Completions that are not reaped leave no room, and a wait for more than there will be times out.
    let text = format!(
        "{ring}[[thread]]\nname = \"a\"\ntimes = 1\nprogram = [\"submit r 16\", \"complete r 13 timeout 5ms\"]\n"
    );
    let report = play("ring-full", &text);
    let a = row(&report, "threads", "a");
    assert_eq!((number(&a["refusals"]), number(&a["timeouts"])), (1, 1), "{a}");
}

#[test]
fn a_ring_goes_on_when_its_poller_ends_and_comes_anew_with_its_owner() {
    let text = "[machine]\ncpus = 2\nduration = \"400ms\"\n[[ring]]\nname = \"r\"\nowner = \"a\"\nsqpoll = true\n\
         [[thread]]\nname = \"a\"\ncount = 1\nprogram = [\"submit r 4\", \"complete r 4\", \"sleep 1ms\"]\n\
         [[thread]]\nname = \"p\"\nprogram = [\"poll r\"]\n[[at]]\ntime = \"150ms\"\ndo = \"exit p\"\n";
    let report = play("ring-poller-ends", text);
    let ring = row(&report, "rings", "r");
    assert_eq!(ring["mode"], "syscall", "{ring}");
    assert_eq!(exits(&report, "p"), 1);
    let owed = number(&ring["submitted"]) - number(&ring["completed"]);
    assert!(owed <= 4, "nothing is lost: {ring}");
}

#[test]
fn a_policy_service_is_obeyed_within_its_bounds_and_outlived() {
    let report =
        play("policy", &shipped("hostile-policy.toml", &[("duration = \"1s\"", "duration = \"3s\"")]));
    let notices: Vec<&str> =
        report["notices"].as_array().expect("some").iter().filter_map(Value::as_str).collect();
    let told = |what: &str| notices.iter().filter(|notice| notice.contains(what)).count();
    assert_eq!(told("policyd: 3 updates taken, the last epoch is 4; 3 refused"), 1, "{notices:#?}");
    assert_eq!(told("was refused"), 3, "{notices:#?}");
    assert_eq!(told("policyd was lost") * told("shell is there to recover"), 1, "{notices:#?}");
    let weight = |name| number(&row(&report, "threads", name)["weight"]);
    assert_eq!((weight("hog.0"), weight("hog.1"), weight("shell")), (128, 4096, 64), "what it set stands");
    let context = row(&report, "contexts", "pump");
    assert!(
        number(&context["used_ns"]) > 0 && context["state"] == "bound",
        "weights take nothing from it: {context}"
    );
}

#[test]
fn players_wait_for_each_other_at_locks_in_the_order_in_which_they_came() {
    let machine = "[machine]\ncpus = 2\nduration = \"1s\"\n";
    // Ten rounds of three: no two threads are in the mutex together, since all of them sleep in there.
    let text = format!(
        "{machine}[[mutex]]\nname = \"m\"\n\
         [[thread]]\nname = \"t\"\ncount = 3\ntimes = 10\n\
         program = [\"lock m\", \"run 20us\", \"sleep 100us\", \"unlock m\", \"unlock m\"]\n"
    );
    let report = play("mutex", &text);
    let mutex = row(&report, "sync", "m");
    assert_eq!((number(&mutex["taken"]), number(&mutex["timeouts"])), (30, 0), "{mutex}");
    assert!(number(&mutex["waits"]) > 0 && number(&mutex["waited_ns"]) > 0, "{mutex}");
    let refusals = |name| number(&row(&report, "threads", name)["refusals"]);
    assert_eq!(
        refusals("t.0") + refusals("t.1") + refusals("t.2"),
        30,
        "what one does not hold cannot be unlocked"
    );
    // A semaphore of one place, a barrier of two, and a condition that is signalled, broadcast and waited for too long.
    let text = format!(
        "{machine}[[semaphore]]\nname = \"s\"\nvalue = 0\n[[barrier]]\nname = \"b\"\nparties = 2\n\
         [[mutex]]\nname = \"m\"\n[[condition]]\nname = \"c\"\n\
         [[thread]]\nname = \"giver\"\ntimes = 5\nprogram = [\"run 50us\", \"up s\", \"barrier b\"]\n\
         [[thread]]\nname = \"taker\"\ntimes = 5\nprogram = [\"down s\", \"barrier b\"]\n\
         [[thread]]\nname = \"waiter\"\ncount = 2\ntimes = 1\nprogram = [\"lock m\", \"wait c m\", \"unlock m\"]\n\
         [[thread]]\nname = \"patient\"\nstart = \"50ms\"\ntimes = 1\n\
         program = [\"broadcast c\", \"lock m\", \"wait c m 5ms\", \"unlock m\", \"down s 1ms\"]\n"
    );
    let report = play("locks", &text);
    for name in ["giver", "taker", "waiter.0", "waiter.1", "patient"] {
        assert_eq!(exits(&report, name), 1, "{name} stands still: {}", report["sync"]);
        assert_eq!(number(&row(&report, "threads", name)["refusals"]), 0, "{name}");
    }
    assert_eq!(number(&row(&report, "sync", "s")["taken"]), 5);
    assert_eq!(number(&row(&report, "sync", "b")["taken"]), 10, "{}", report["sync"]);
    assert_eq!(number(&row(&report, "threads", "patient")["timeouts"]), 2);
}

#[test]
fn a_mutex_outlives_its_owner_lends_it_weight_and_a_circle_is_told() {
    let machine = "[machine]\nduration = \"2s\"\n[[mutex]]\nname = \"m\"\ndonation = true\n";
    let text = format!(
        "{machine}[[thread]]\nname = \"owner\"\nweight = 10\nprogram = [\"lock m\", \"run forever\"]\n\
         [[thread]]\nname = \"next\"\nweight = 50\nstart = \"50ms\"\ntimes = 1\nprogram = [\"lock m\", \"run 1ms\", \"unlock m\"]\n\
         [[at]]\ntime = \"1s\"\ndo = \"exit owner\"\n"
    );
    let report = play("mutex-heir", &text);
    assert_eq!(exits(&report, "next"), 1, "what the dead one held goes on");
    assert_eq!(number(&row(&report, "threads", "owner")["weight"]), 60, "it was lent the other's weight");
    let text = "[machine]\nduration = \"200ms\"\n[[mutex]]\nname = \"a\"\n[[mutex]]\nname = \"b\"\n\
         [[thread]]\nname = \"x\"\nprogram = [\"lock a\", \"sleep 10ms\", \"lock b\"]\n\
         [[thread]]\nname = \"y\"\nprogram = [\"lock b\", \"sleep 10ms\", \"lock a\"]\n";
    let report = play("circle", text);
    let notices = report["notices"].to_string();
    assert!(notices.contains("deadlock: x waits for mutex b, which y holds"), "{notices}");
}
