//! `mainspring run --on linux`: every step of a program on real workers. What is asserted is counted, not timed: how long
//! anything takes is up to the host.

use crate::support::{Folder, WORKLOAD};
use serde_json::Value;

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("a number, not {value}"))
}

/// Runs `text`, checks that its books balance and that its record replays, and returns the report.
#[track_caller]
fn play(name: &str, text: &str) -> Value {
    let folder = Folder::new(&format!("linux-{name}"));
    folder.write("w.toml", text);
    let report = folder.run("run w.toml --on linux --report json --schedule --record w.msr").ok().json();
    balance(&report);
    let replayed = folder.run("replay w.msr").ok();
    let digest = report["digest"].as_str().expect("text");
    assert!(
        replayed.stdout.contains(&format!("{} decisions, digest {digest}", report["decisions"])),
        "{replayed:?}"
    );
    report
}

/// All time of every CPU is some thread's or idle, to the nanosecond.
#[track_caller]
fn balance(report: &Value) {
    assert_eq!(report["machine"], "linux");
    let duration = number(&report["duration_ns"]);
    let cpus = report["cpus"].as_array().expect("rows");
    for cpu in cpus {
        assert_eq!(number(&cpu["busy_ns"]) + number(&cpu["idle_ns"]), duration, "{cpu}");
    }
    let threads = report["threads"].as_array().expect("rows");
    let sum = |rows: &[Value], key: &str| rows.iter().map(|row| number(&row[key])).sum::<u64>();
    assert_eq!(sum(threads, "runtime_ns"), sum(cpus, "busy_ns"), "each busy nanosecond is one thread's");
    for thread in threads {
        let alive = sum(std::slice::from_ref(thread), "runtime_ns")
            + number(&thread["ready_ns"])
            + number(&thread["blocked_ns"]);
        assert!(alive <= duration, "{thread}");
    }
    let ran = report["schedule"].as_array().expect("asked for").iter();
    let ran: u64 = ran.map(|entry| number(&entry["end_ns"]) - number(&entry["start_ns"])).sum();
    assert_eq!(ran, sum(threads, "runtime_ns"), "the schedule shows every interval");
}

#[track_caller]
fn row<'r>(report: &'r Value, name: &str) -> &'r Value {
    let rows = report["threads"].as_array().expect("rows");
    rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no row {name}"))
}

/// Whether a thread has come to the end of its program.
fn ended(report: &Value, name: &str) -> bool {
    let schedule = report["schedule"].as_array().expect("asked for");
    schedule.iter().any(|entry| entry["thread"] == name && entry["reason"] == "exited")
}

#[track_caller]
fn assert_counts(report: &Value, name: &str, counts: &[(&str, u64)]) {
    let row = row(report, name);
    for (key, count) in counts {
        assert_eq!(number(&row[*key]), *count, "{key} of {row}");
    }
}

#[test]
fn a_little_of_everything_on_two_workers() {
    let report = play("mixed", &WORKLOAD.replace("100ms", "500ms"));
    for name in ["hog", "editor", "batch.0", "batch.1"] {
        assert!(number(&row(&report, name)["runtime_ns"]) > 0, "{name}");
    }
    let on_cpu_1 = |entry: &&Value| entry["thread"].as_str().is_some_and(|name| name.starts_with("batch"));
    let schedule = report["schedule"].as_array().expect("asked for");
    assert!(schedule.iter().filter(on_cpu_1).count() > 0);
    assert!(schedule.iter().filter(on_cpu_1).all(|entry| entry["cpu"] == 1), "its mask holds");
}

#[test]
fn run_takes_the_cpu_time_that_it_says() {
    let report = play(
        "run",
        "[machine]\nduration = \"200ms\"\n[[thread]]\nname = \"a\"\ntimes = 10\nprogram = [\"run 300us\"]\n\
         [[thread]]\nname = \"b\"\nstart = \"5ms\"\nprogram = [\"run forever\"]\n",
    );
    let a = row(&report, "a");
    assert!(number(&a["runtime_ns"]) >= 3_000_000, "ten times 300us: {a}");
    assert_eq!(number(&a["voluntary_blocks"]), 0);
    let first = report["schedule"].as_array().expect("asked for").iter().find(|entry| entry["thread"] == "b");
    assert!(first.is_some_and(|entry| number(&entry["start_ns"]) >= 5_000_000), "it joins at its start");
}

#[test]
fn sleeps_and_periods_are_waits_of_their_own() {
    let report = play(
        "sleep",
        "[machine]\nduration = \"500ms\"\n[[thread]]\nname = \"s\"\ntimes = 7\nprogram = [\"sleep 1ms..2ms\"]\n\
         [[thread]]\nname = \"e\"\ntimes = 5\nprogram = [\"every 3ms\"]\n",
    );
    assert_counts(&report, "s", &[("voluntary_blocks", 7), ("wakeups", 7), ("refusals", 0)]);
    let e = row(&report, "e");
    // A period that passes before the wait for it begins is no wait.
    assert!(number(&e["voluntary_blocks"]) <= 5, "{e}");
    assert_eq!(e["wakeups"], e["voluntary_blocks"], "{e}");
    assert!(ended(&report, "e"), "it has had its five periods");
}

#[test]
fn a_yield_lets_the_other_go_first() {
    let report = play(
        "yield",
        "[machine]\nduration = \"300ms\"\n[[thread]]\nname = \"a\"\ncount = 2\nprogram = [\"run 20us\", \"yield\"]\n\
         [[thread]]\nname = \"b\"\ntimes = 50\nprogram = [\"run 1us\", \"yield\"]\n",
    );
    let entries = report["schedule"].as_array().expect("asked for");
    assert!(entries.iter().any(|entry| entry["reason"] == "yielded"), "while both live they alternate");
    assert!(number(&report["decisions"]) >= 50, "each yield is a decision");
    assert!(ended(&report, "b"), "fifty rounds");
    for name in ["a.0", "a.1", "b"] {
        assert_counts(&report, name, &[("voluntary_blocks", 0), ("wakeups", 0)]);
    }
}

#[test]
fn parks_end_by_an_unpark_or_by_time() {
    let report = play(
        "park",
        "[machine]\nduration = \"500ms\"\n[[thread]]\nname = \"p\"\ntimes = 10\nprogram = [\"park\", \"unpark u\"]\n\
         [[thread]]\nname = \"u\"\ntimes = 10\nprogram = [\"unpark p\", \"park\"]\n\
         [[thread]]\nname = \"t\"\ntimes = 4\nprogram = [\"park 1ms\"]\n",
    );
    assert_counts(&report, "p", &[("voluntary_blocks", 10), ("timeouts", 0)]);
    assert_counts(&report, "t", &[("voluntary_blocks", 4), ("timeouts", 4)]);
    assert!(ended(&report, "p"), "all ten came");
}

#[test]
fn calls_are_answered_once_each_and_may_time_out_or_fail() {
    let report = play(
        "call",
        "[machine]\nduration = \"600ms\"\n[[thread]]\nname = \"client\"\ncount = 2\ntimes = 25\n\
         program = [\"call shop\", \"run 10us\"]\n[[thread]]\nname = \"shop\"\ntimes = 50\n\
         program = [\"recv shop\", \"run 20us\", \"reply\"]\n[[thread]]\nname = \"hasty\"\ntimes = 3\n\
         program = [\"call closed 1ms\"]\n[[thread]]\nname = \"late\"\nstart = \"590ms\"\n\
         program = [\"recv closed\", \"reply\"]\n[[thread]]\nname = \"angry\"\ntimes = 5\n\
         program = [\"recv complaints\", \"throw\"]\n[[thread]]\nname = \"buyer\"\ntimes = 5\n\
         program = [\"call complaints\"]\n[[thread]]\nname = \"bored\"\ntimes = 2\nprogram = [\"recv never 1ms\"]\n\
         [[thread]]\nname = \"asker\"\nstart = \"595ms\"\nprogram = [\"call never 1ms\"]\n",
    );
    for client in ["client.0", "client.1"] {
        assert_counts(
            &report,
            client,
            &[("voluntary_blocks", 25), ("wakeups", 25), ("failures", 0), ("timeouts", 0)],
        );
    }
    assert!(ended(&report, "shop"), "fifty were served");
    assert!(number(&report["telemetry"]["handoffs"]) > 0, "a call hands the CPU over");
    assert_counts(&report, "hasty", &[("timeouts", 3), ("voluntary_blocks", 3)]);
    assert_counts(&report, "buyer", &[("failures", 5), ("timeouts", 0)]);
    assert_counts(&report, "bored", &[("timeouts", 2)]);
}

#[test]
fn calls_across_workers_lose_nothing() {
    let report = play(
        "cross",
        "[machine]\ncpus = 2\nduration = \"600ms\"\n[[thread]]\nname = \"c\"\ncpus = [0]\ntimes = 200\n\
         program = [\"call x\"]\n[[thread]]\nname = \"s\"\ncpus = [1]\ntimes = 200\nprogram = [\"recv x\", \"reply\"]\n",
    );
    for name in ["c", "s"] {
        assert!(ended(&report, name), "{name} is through");
    }
    assert_counts(&report, "c", &[("timeouts", 0), ("failures", 0), ("migrations", 0)]);
}

#[test]
fn children_are_spawned_and_joined_life_after_life() {
    let report = play(
        "spawn",
        "[machine]\nduration = \"600ms\"\n[[thread]]\nname = \"parent\"\ntimes = 20\n\
         program = [\"spawn child\", \"join child\"]\n[[thread]]\nname = \"child\"\ncount = 2\nstart = \"spawn\"\n\
         times = 1\nprogram = [\"run 50us\"]\n[[thread]]\nname = \"greedy\"\ntimes = 1\n\
         program = [\"spawn one\", \"spawn one\", \"spawn one\", \"join one\"]\n[[thread]]\nname = \"one\"\n\
         start = \"spawn\"\nprogram = [\"sleep 1ms\", \"exit\"]\n",
    );
    assert_counts(&report, "parent", &[("voluntary_blocks", 20), ("wakeups", 20), ("refusals", 0)]);
    let lives = report["schedule"].as_array().expect("asked for").iter();
    let lives = lives.filter(|entry| entry["thread"] == "child.0" && entry["reason"] == "exited").count();
    assert_eq!(lives, 20, "twenty lives of one instance");
    assert_counts(&report, "child.1", &[("runtime_ns", 0), ("switches", 0), ("weight", 64)]);
    assert_counts(&report, "greedy", &[("refusals", 2)]);
}

#[test]
fn joins_of_named_threads_wait_for_all_of_them_or_for_their_time() {
    let report = play(
        "join",
        "[machine]\nduration = \"500ms\"\n[[thread]]\nname = \"w\"\ncount = 3\ntimes = 2\nprogram = [\"sleep 2ms\"]\n\
         [[thread]]\nname = \"j\"\ntimes = 1\nprogram = [\"join w\", \"run 10us\"]\n\
         [[thread]]\nname = \"hog\"\nprogram = [\"sleep 1s\"]\n[[thread]]\nname = \"t\"\ntimes = 1\n\
         program = [\"join hog 2ms\"]\n",
    );
    assert_counts(&report, "j", &[("timeouts", 0)]);
    assert_counts(&report, "t", &[("timeouts", 1), ("voluntary_blocks", 1)]);
    let entries = report["schedule"].as_array().expect("asked for");
    let exit = |name: &str| {
        let entry = entries.iter().find(|entry| entry["thread"] == name && entry["reason"] == "exited");
        number(&entry.unwrap_or_else(|| panic!("{name} has not ended"))["end_ns"])
    };
    assert!(["w.0", "w.1", "w.2"].iter().all(|name| exit(name) <= exit("j")), "j was last");
}

#[test]
fn weights_change_and_exits_end() {
    let report = play(
        "weight",
        "[machine]\nduration = \"400ms\"\n[[thread]]\nname = \"a\"\nprogram = [\"weight 200\", \"run 1ms\"]\n\
         [[thread]]\nname = \"b\"\nprogram = [\"run 100us\", \"exit\"]\n",
    );
    assert_counts(&report, "a", &[("weight", 200)]);
    let entries = report["schedule"].as_array().expect("asked for");
    assert_eq!(
        entries.iter().filter(|entry| entry["thread"] == "b" && entry["reason"] == "exited").count(),
        1
    );
}

#[test]
fn timed_waits_beyond_the_quota_are_refused_and_counted() {
    let report = play(
        "quota",
        "[machine]\nduration = \"400ms\"\nwaiters = 1\n[[thread]]\nname = \"first\"\nprogram = [\"sleep 1s\"]\n\
         [[thread]]\nname = \"second\"\nstart = \"10ms\"\ntimes = 3\nprogram = [\"park 1ms\", \"run 10us\"]\n",
    );
    assert_counts(&report, "second", &[("refusals", 3), ("timeouts", 0)]);
}

#[test]
fn wfq_and_latency_classes_and_requests_are_the_cores() {
    let report = play(
        "wfq",
        "[machine]\npolicy = \"wfq\"\nquantum = \"1ms\"\nduration = \"300ms\"\n[[thread]]\nname = \"a\"\n\
         latency = \"batch\"\nrequest = \"2ms\"\nprogram = [\"run forever\"]\n[[thread]]\nname = \"b\"\n\
         latency = \"interactive\"\nprogram = [\"run 100us\", \"sleep 2ms\"]\n",
    );
    assert_eq!(report["config"]["policy"], "wfq");
    assert!(number(&row(&report, "b")["wakeups"]) > 0);
}

#[test]
fn traces_pages_and_explanations_come_from_linux_too() {
    let folder = Folder::with_workload("linux-files");
    folder.run("run w.toml --on linux --trace t.json --html p.html --record w.msr --quiet").ok();
    let trace: Value = serde_json::from_slice(&folder.read("t.json")).expect("a trace is JSON");
    assert!(trace["traceEvents"].as_array().is_some_and(|events| events.len() > 10));
    assert!(String::from_utf8(folder.read("p.html")).expect("text").contains("hog"));
    let told = folder.run("explain w.msr --thread hog --at 50ms").ok();
    assert!(told.stdout.contains("hog"), "{told:?}");
    let text = folder.run("run w.toml --on linux").ok();
    assert!(text.stdout.contains("w.toml on linux"), "{text:?}");
}

#[test]
fn what_linux_did_is_verified_and_so_is_its_record() {
    let folder = Folder::with_workload("linux-verified");
    let ran = folder.run("run w.toml --on linux --verify --record w.msr --quiet").ok();
    assert_eq!(ran.stderr, "");
    let replayed = folder.run("replay w.msr --verify").ok();
    assert!(replayed.stdout.contains("verified"), "{replayed:?}");
}

#[test]
fn what_linux_cannot_do_is_refused_with_its_line_and_the_machine_that_can() {
    let folder = Folder::new("linux-refused");
    let thread = "[[thread]]\nname = \"a\"\nprogram = [\"run 1ms\"]\n";
    folder.write("c.toml", format!("{thread}[faults]\nlost_reschedule = \"1%\"\n"));
    folder.run("run c.toml --on linux").refused(&["c.toml:4: ", "[faults]", "--on sim"]);
    folder.write("d.toml", format!("{thread}[network]\nevery = \"1ms\"\n"));
    folder.run("run d.toml --on linux --record d.msr").refused(&["d.toml:4: ", "[network]", "--on sim"]);
    assert_eq!(folder.list(), ["c.toml", "d.toml"], "nothing is left behind");
}

/// The control loop's calls are served on its context, or not, as the file says; how late anything is is up to the host.
#[test]
fn contexts_are_enforced_and_lent_along_calls() {
    for (file, lends) in [("inversion.toml", true), ("inversion-off.toml", false)] {
        let text = std::fs::read_to_string(format!("{}/../workloads/{file}", env!("CARGO_MANIFEST_DIR")))
            .expect("it is part of the project");
        let text = text.replace("duration = \"1s\"", "duration = \"200ms\"");
        let folder = Folder::new(&format!("linux-{file}"));
        folder.write("w.toml", &text);
        let report = folder.run("run w.toml --on linux --verify --report json --record w.msr").ok().json();
        folder.run("replay w.msr --verify").ok();
        let telemetry = &report["telemetry"];
        assert_eq!(number(&telemetry["donation_depth_max"]), u64::from(lends), "{file}: {telemetry}");
        let calls = &report["endpoints"][0];
        assert!(number(&calls["replies"]) > 0 && number(&calls["failures"]) == 0, "{calls}");
        assert!(number(&row(&report, "player")["runtime_ns"]) > 0);
    }
}

#[test]
fn a_context_that_is_revoked_or_does_not_fit_is_dealt_with() {
    let context =
        "[machine]\nduration = \"100ms\"\n[[context]]\nname = \"c\"\nbudget = \"9ms\"\nperiod = \"10ms\"\n";
    let thread = "[[thread]]\nname = \"a\"\ncontext = \"c\"\nprogram = [\"run forever\"]\n";
    let at = "[[at]]\ntime = \"20ms\"\ndo = \"revoke c\"\n";
    let report = play("revoked", &format!("{context}{thread}{at}"));
    assert!(number(&row(&report, "a")["runtime_ns"]) > 0);
    let folder = Folder::new("linux-too-much");
    folder.write("w.toml", format!("{}{thread}", context.replace("9ms", "10ms")));
    folder.run("run w.toml --on linux").refused(&["context \"c\"", "cpu0", "lower the budget"]);
}
