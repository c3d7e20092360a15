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
