//! `mainspring explain` goes to the root: what was missed, who waits for whom, where the time went.

use crate::support::Folder;

/// A control loop that asks a store which has no time of its own, beside a hog: priority inversion. And two that call each
/// other.
const INVERSION: &str = r#"
[machine]
duration = "100ms"

[[endpoint]]
name = "store"
donation = false

[[context]]
name = "high"
budget = "3ms"
period = "10ms"

[[thread]]
name = "high"
context = "high"
program = ["run 500us", "call store", "run 200us", "every 10ms"]

[[thread]]
name = "store"
program = ["recv store", "run 1ms", "call disk", "reply"]

[[thread]]
name = "disk"
weight = 8
program = ["recv disk", "run 2ms", "reply"]

[[thread]]
name = "hog"
count = 2
program = ["run forever"]

[[thread]]
name = "left"
program = ["run 10us", "call right", "recv left", "reply"]

[[thread]]
name = "right"
program = ["run 10us", "call left", "recv right", "reply"]
"#;

fn recorded(name: &str) -> Folder {
    let folder = Folder::new(name);
    folder.write("w.toml", INVERSION);
    folder.run("run w.toml --record w.msr --quiet").ok();
    folder
}

#[track_caller]
fn says(folder: &Folder, args: &str, words: &[&str]) -> String {
    let shown = folder.run(args).ok().stdout;
    for word in words {
        assert!(shown.contains(word), "{args}: no {word:?} in:\n{shown}");
    }
    shown
}

/// When did it first miss, and why?
//= OWN:explain.root
#[test]
fn a_miss_is_explained_by_its_number() {
    let folder = recorded("explain-miss");
    let report = folder.run("report w.msr --report json").ok().json();
    let first = &report["misses"][0];
    assert_eq!(first["thread"], "high");
    let due = first["time_ns"].as_u64().expect("a number") / 1_000_000;
    let shown = says(
        &folder,
        "explain w.msr --miss 1",
        &[
            "miss 1 of ",
            ": high, released at ",
            &format!("due at {due}ms: late"),
            "was blocked for ",
            "(call)",
        ],
    );
    assert!(shown.contains(&format!("high at {due}ms on CPU 0: ")), "{shown}");
    let total = report["misses_total"].as_u64().expect("a number");
    folder
        .run(&format!("explain w.msr --miss {}", total + 1))
        .refused(&["deadlines were missed; ask for --miss 1 to "]);
    folder.run("explain w.msr --miss 0").refused(&["ask for --miss 1 to "]);
}

/// Who blocks `high`?
//= OWN:explain.root
#[test]
fn the_chain_of_waits_is_followed_to_what_runs_instead() {
    let folder = recorded("explain-chain");
    let json = folder.run("run w.toml --report json --schedule").ok().json();
    // At an instant when a hog runs while the disk is waited for.
    let schedule = json["schedule"].as_array().expect("a list");
    let store = schedule.iter().find(|entry| entry["thread"] == "store").expect("the store ran");
    let stored = store["end_ns"].as_u64().expect("a number");
    let hog = schedule
        .iter()
        .find(|entry| {
            let start = entry["start_ns"].as_u64().expect("a number");
            start > stored && entry["thread"].as_str().is_some_and(|name| name.starts_with("hog"))
        })
        .expect("a hog ran after it");
    let at = hog["start_ns"].as_u64().expect("a number") + 1_000;
    let name = hog["thread"].as_str().expect("a name");
    says(
        &folder,
        &format!("explain w.msr --thread high --at {at}ns"),
        &[
            "blocked (call)",
            "on context high: ",
            "it waited at endpoint store, whose server store was blocked (call)",
            &format!("it waited at endpoint disk, whose server disk was ready, while CPU 0 ran {name}"),
        ],
    );
}

/// Is anything deadlocked?
#[test]
fn threads_that_wait_for_each_other_are_a_deadlock() {
    let folder = recorded("explain-deadlock");
    says(
        &folder,
        "explain w.msr --thread left --at 90ms",
        &["a deadlock: left waits for right waits for left"],
    );
}

#[test]
fn the_time_of_a_thread_is_accounted_for_between_two_instants() {
    let folder = recorded("explain-between");
    let shown = says(
        &folder,
        "explain w.msr --thread hog.0 --between 10ms 60ms",
        &["hog.0 from 10ms to 60ms, 50ms in all"],
    );
    let ran: u64 = {
        let json = folder.run("run w.toml --report json --schedule").ok().json();
        let clip = |ns: &serde_json::Value| ns.as_u64().expect("a number").clamp(10_000_000, 60_000_000);
        let mine =
            json["schedule"].as_array().expect("a list").iter().filter(|entry| entry["thread"] == "hog.0");
        mine.map(|entry| clip(&entry["end_ns"]) - clip(&entry["start_ns"])).sum()
    };
    let exact = format!("{}.{:06}", ran / 1_000_000, ran % 1_000_000);
    let exact = exact.trim_end_matches('0').trim_end_matches('.');
    assert!(shown.contains(&format!("ran for {exact}ms\n")), "{exact} of\n{shown}");
    assert!(shown.contains("was ready for ") && shown.contains("while its CPU ran "), "{shown}");
    let longest = says(&folder, "explain w.msr --worst high", &["the longest job of high took ", "(call)"]);
    assert!(longest.contains("ran for 700us"), "{longest}");
    folder.run("explain w.msr --worst hog.0").refused(&["no job of hog.0 ended"]);
    folder.run("explain w.msr --thread hog.0 --between 1s 2s").refused(&["the run ended at 100ms"]);
}

/// A web server that asks a database and then a log, on a context that is revoked meanwhile.
const TWO_CALLS: &str = r#"
[machine]
duration = "200ms"

[[context]]
name = "ctl"
budget = "3ms"
period = "20ms"

[[thread]]
name = "web"
context = "ctl"
program = ["run 200us", "call db", "call log", "every 20ms"]

[[thread]]
name = "db"
program = ["recv db", "run 5ms", "reply"]

[[thread]]
name = "log"
program = ["recv log", "sleep 3ms", "run 1ms", "reply"]

[[thread]]
name = "noise"
count = 2
program = ["run forever"]

[[thread]]
name = "short"
start = "50ms"
times = 1
program = ["run 1ms"]

[[at]]
time = "90ms"
do = "revoke ctl"
"#;

fn two_calls(name: &str) -> Folder {
    let folder = Folder::new(name);
    folder.write("w.toml", TWO_CALLS);
    folder.run("run w.toml --record w.msr --quiet").ok();
    folder
}

//= OWN:explain.root
#[test]
fn of_two_endpoints_that_a_thread_calls_only_the_one_it_waits_at_is_named() {
    let folder = two_calls("explain-which");
    let json = folder.run("run w.toml --report json --schedule").ok().json();
    // While the database runs on the context that web has lent, and while the log does.
    let first_of = |server: &str| {
        let schedule = json["schedule"].as_array().expect("a list");
        let ran =
            schedule.iter().find(|entry| entry["thread"] == server && entry["start_ns"].as_u64() > Some(0));
        let ran = ran.expect("it ran");
        (ran["start_ns"].as_u64().expect("a number") + ran["end_ns"].as_u64().expect("a number")) / 2
    };
    for (server, other) in [("db", "log"), ("log", "db")] {
        let at = first_of(server);
        let words = format!("it waited at endpoint {server}, whose server {server} ran on CPU 0");
        let lent = format!("it had lent context ctl to {server} at ");
        let shown = says(&folder, &format!("explain w.msr --thread web --at {at}ns"), &[&words, &lent]);
        assert!(!shown.contains(&format!("endpoint {other}")), "{shown}");
    }
}

/// A request that waits behind another one has no server, so the record cannot say where it waits.
#[test]
fn an_endpoint_that_the_record_does_not_tell_is_not_made_up() {
    let folder = Folder::new("explain-either");
    folder.write(
        "w.toml",
        "[machine]\nduration = \"100ms\"\n\
         [[thread]]\nname = \"first\"\nprogram = [\"call db\", \"call log\", \"run 1ms\"]\n\
         [[thread]]\nname = \"second\"\nprogram = [\"run 1ms\", \"call db\", \"call log\"]\n\
         [[thread]]\nname = \"db\"\nprogram = [\"recv db\", \"sleep 20ms\", \"reply\"]\n\
         [[thread]]\nname = \"log\"\nprogram = [\"recv log\", \"sleep 20ms\", \"reply\"]\n",
    );
    folder.run("run w.toml --record w.msr --quiet").ok();
    let shown = says(
        &folder,
        "explain w.msr --thread second --at 10ms",
        &[
            "it waited at db or at log; the record does not say at which",
            "the server of db: db was blocked (sleep)",
        ],
    );
    assert!(!shown.contains("which nobody served"), "{shown}");
}

//= OWN:explain.root
#[test]
fn the_last_and_the_next_change_and_a_revoked_context_are_told() {
    let folder = two_calls("explain-changes");
    let json = folder.run("run w.toml --report json --schedule").ok().json();
    let states = json["states"].as_array().expect("a list");
    let call =
        states.iter().find(|entry| entry["thread"] == "web" && entry["state"] == "call").expect("a call");
    let [from, to] = ["start_ns", "end_ns"].map(|key| call[key].as_u64().expect("a number"));
    let ms = |ns: u64| {
        let text = format!("{}.{:06}", ns / 1_000_000, ns % 1_000_000);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    let at = (from + to) / 2;
    says(
        &folder,
        &format!("explain w.msr --thread web --at {at}ns"),
        &[&format!("  since {}us, running before; until {}ms, ", from / 1_000, ms(to))],
    );
    let revoked = "its context ctl was revoked at 90ms: it was best effort since";
    says(&folder, "explain w.msr --thread web --at 95ms", &[revoked]);
    says(&folder, "explain w.msr --thread web --at 150ms", &[revoked]);
    says(&folder, "explain w.msr --thread short --at 10ms", &["short at 10ms: it started later, at 50ms"]);
    says(&folder, "explain w.msr --thread short --at 150ms", &["short at 150ms: it had ended at "]);
    says(&folder, "explain w.msr --thread noise.0 --at 200ms", &["; until the end of the run"]);
}

/// A call on a context ends at the context's deadline, by the timer.
#[test]
fn a_wait_that_time_ends_is_ended_by_no_thread() {
    let folder = two_calls("explain-timer");
    let json = folder.run("run w.toml --report json --schedule").ok().json();
    let states = json["states"].as_array().expect("a list");
    let call =
        states.iter().find(|entry| entry["thread"] == "web" && entry["state"] == "call").expect("a call");
    assert_eq!((call["end_ns"].as_u64(), call.get("by")), (Some(20_000_000), None));
    let ended = states.iter().filter_map(|entry| entry.get("by")?.as_str());
    assert!(ended.clone().any(|by| by == "log") && ended.clone().all(|by| !by.starts_with("noise")));
}
