//! Flight records: recorded, replayed, explained; and refused when damaged.

use crate::support::Folder;

/// How many places of a record are damaged, one at a time.
const DAMAGES: usize = 40;

fn recorded(name: &str) -> Folder {
    let folder = Folder::with_workload(name);
    folder.run("run w.toml --record w.msr --seed 9 --quiet").ok();
    folder
}

/// Numbers from 0 to just below `end`, both ends included.
fn spread(end: usize) -> impl Iterator<Item = usize> {
    (0..DAMAGES).map(move |n| n * (end - 1) / (DAMAGES - 1))
}

#[test]
fn a_record_replays_to_the_same_decisions() {
    let folder = Folder::with_workload("replay");
    let report = folder.run("run w.toml --report json --record w.msr --seed 9").ok().json();
    let replayed = folder.run("replay w.msr").ok();
    let digest = report["digest"].as_str().expect("text");
    let decisions = format!("{} decisions", report["decisions"]);
    for word in ["w.msr: ok", " events", &decisions, digest, "w.toml"] {
        assert!(replayed.stdout.contains(word), "no {word:?} in {}", replayed.stdout);
    }
    assert_eq!(replayed.stderr, "");
    let piped = folder.run_with_input("replay -", &folder.read("w.msr")).ok();
    assert_eq!(piped.stdout.replace("<stdin>", "w.msr"), replayed.stdout);
}

#[test]
fn a_record_is_verified_without_its_workload() {
    let folder = recorded("verified");
    let plain = folder.run("replay w.msr").ok().stdout;
    let verified = folder.run("replay w.msr --verify").ok().stdout;
    assert_eq!(verified, plain.trim_end().to_owned() + ", verified\n");
    let piped = folder.run_with_input("replay - --verify", &folder.read("w.msr")).ok();
    assert_eq!(piped.stdout.replace("<stdin>", "w.msr"), verified);
    let whole = folder.read("w.msr");
    folder.write("bad.msr", &whole[..whole.len() / 2]);
    folder.run("replay bad.msr --verify").refused(&["bad.msr: ", "cut short"]);
}

#[test]
fn a_decision_that_differs_is_named() {
    let folder = recorded("differs");
    folder.write("wfq.msr", with_other_policy(folder.read("w.msr")));
    for args in ["replay wfq.msr", "explain wfq.msr --thread hog --at 90ms"] {
        let ran = folder.run(args);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert_eq!(ran.stdout, "");
        for word in ["wfq.msr: event ", " on CPU ", "recorded: ", "replayed: "] {
            assert!(ran.stderr.contains(word), "no {word:?} in:\n{}", ran.stderr);
        }
    }
}

/// A sound record, but one that says WFQ made decisions that EEVDF made. The first block begins after the magic and
/// the version, and holds the workload's name and then 64-bit words. The fourth word is the policy.
fn with_other_policy(mut record: Vec<u8>) -> Vec<u8> {
    const BLOCK: usize = 10;
    let word = |at: usize, record: &[u8]| -> usize {
        let bytes = record[at..at + 4].try_into().expect("four bytes");
        u32::from_le_bytes(bytes) as usize
    };
    let payload = BLOCK + 8;
    let policy = payload + 4 + word(payload, &record) + 3 * 8;
    assert_eq!(record[policy], 0, "the record is of EEVDF");
    record[policy] = 1;
    let checksum = crc32fast::hash(&record[payload..payload + word(BLOCK, &record)]);
    record[BLOCK + 4..payload].copy_from_slice(&checksum.to_le_bytes());
    record
}

#[test]
fn recording_changes_no_decision() {
    let folder = recorded("recording");
    let digest = |args: &str| folder.run(args).ok().json()["digest"].clone();
    assert_eq!(digest("run w.toml --report json"), digest("run w.toml --report json --record w.msr"));
}

#[test]
fn the_same_run_gives_the_same_record() {
    let folder = recorded("same-record");
    folder.run("run w.toml --record again.msr --seed 9").ok();
    assert!(folder.read("w.msr") == folder.read("again.msr"));
}

#[test]
fn a_flipped_byte_is_refused() {
    let folder = recorded("flipped");
    let good = folder.read("w.msr");
    for place in spread(good.len()) {
        let mut bad = good.clone();
        bad[place] ^= 0x10;
        folder.write("bad.msr", &bad);
        let ran = folder.run("replay bad.msr").refused(&["bad.msr: "]);
        assert!(!ran.stderr.contains("panicked"), "byte {place}: {ran:?}");
        // Explaining reads no further than the time asked about.
        if place < good.len() / 2 {
            folder.run("explain bad.msr --thread editor --at 99ms").refused(&["bad.msr: "]);
        }
    }
}

#[test]
fn a_truncated_record_is_refused() {
    let folder = recorded("truncated");
    let good = folder.read("w.msr");
    for length in spread(good.len()) {
        folder.write("bad.msr", &good[..length]);
        let ran = folder.run("replay bad.msr").refused(&["bad.msr: "]);
        assert!(!ran.stderr.contains("panicked"), "{length} bytes: {ran:?}");
    }
}

#[test]
fn what_is_no_record_is_refused() {
    let folder = Folder::with_workload("no-record");
    for command in ["replay", "explain --thread hog --at 1ms"] {
        folder.run(&format!("{command} gone.msr")).refused(&["gone.msr: No such file", "--record"]);
        folder.run(&format!("{command} .")).refused(&[".: ", "directory"]);
        folder.run(&format!("{command} w.toml")).refused(&["w.toml: ", "not a"]);
    }
}

#[test]
fn explain_says_why_a_thread_ran_or_did_not() {
    let folder = recorded("explain");
    for (thread, at) in [("editor", "16.1ms"), ("hog", "50ms"), ("batch.1", "0"), ("batch.0", "99999us")] {
        let told = folder.run(&format!("explain w.msr --thread {thread} --at {at}")).ok();
        assert!(told.stdout.contains(thread), "{told:?}");
        assert_eq!(told.stderr, "");
    }
}

#[test]
fn explain_lists_the_threads_when_it_does_not_know_one() {
    let folder = recorded("explain-unknown");
    let known = ["editr", "w.msr: ", "hog", "editor", "batch.0", "batch.1"];
    folder.run("explain w.msr --thread editr --at 1ms").refused(&known);
}

#[test]
fn explain_refuses_a_time_after_the_run() {
    let folder = recorded("explain-late");
    folder.run("explain w.msr --thread hog --at 10s").refused(&["w.msr: ", "100"]);
}

/// A run with something of what only its machine can tell: periods, misses, calls, contexts.
const TOLD: &str = r#"
[machine]
cpus = 2
duration = "200ms"

[costs]
switch = "1us"

[[context]]
name = "camera"
budget = "3ms"
period = "20ms"
cpus = [0]

[[thread]]
name = "camera"
context = "camera"
program = ["run 2ms..5ms", "every 20ms"]

[[thread]]
name = "client"
program = ["run 1ms", "call db", "sleep 5ms"]

[[thread]]
name = "db"
program = ["recv db", "run 1ms..2ms", "reply"]

[[thread]]
name = "hog"
count = 2
program = ["run forever"]

[[expect]]
misses = 1000
"#;

fn told(name: &str, seeds: &[u64]) -> Folder {
    let folder = Folder::new(name);
    folder.write("t.toml", TOLD);
    for seed in seeds {
        folder.run(&format!("run t.toml --record {seed}.msr --seed {seed} --quiet")).ok();
    }
    folder
}

//= OWN:report.record
#[test]
fn text_json_page_and_trace_come_from_a_record_alone() {
    let folder = told("told", &[3]);
    let mut live = folder
        .run("run t.toml --seed 3 --report json --schedule --html live.html --trace live.json")
        .ok()
        .json();
    folder.write("t.toml", "gone");
    let mut again =
        folder.run("report 3.msr --report json --schedule --html r.html --trace r.json").ok().json();
    assert!(live["misses_total"].as_u64().is_some_and(|misses| misses > 0), "{live}");
    for report in [&mut live, &mut again] {
        let report = report.as_object_mut().expect("an object");
        // How long it took, and what the command line adds to a run.
        for field in ["wall_ns", "expectations", "events", "jobs"] {
            report.remove(field);
        }
    }
    for (field, value) in live.as_object().expect("an object") {
        assert!(again[field] == *value, "{field} is not the same");
    }
    let text = |name: &str| String::from_utf8(folder.read(name)).expect("text");
    let rows = |page: String| {
        let (_, rest) = page.split_once("id=\"cpu-rows\">").expect("the rows of CPUs");
        rest.split_once('<').expect("their end").0.to_owned()
    };
    assert_eq!(rows(text("r.html")), rows(text("live.html")));
    let runs = |trace: String| {
        trace.lines().filter(|line| line.contains("\"ph\":\"X\"")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(runs(text("r.json")), runs(text("live.json")));
    assert!(text("r.json").contains("\"name\":\"miss\""));
    folder.write("t.toml", TOLD);
    let shown = |args: &str| -> Vec<String> {
        let ran = folder.run(args).ok().stdout;
        let lines = ran.lines().filter(|line| !line.contains(" decisions ") && !line.starts_with("held "));
        lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
    };
    assert_eq!(shown("report 3.msr"), shown("run t.toml --seed 3"));
    let report = folder.run("report 3.msr").ok().stdout;
    let third = report.lines().nth(2).unwrap_or_default();
    assert!(third.contains(" decisions · digest "), "how long the run took is made up: {third}");
    folder.run("report 3.msr --html 3.msr").refused(&["is the record, which --html would overwrite"]);
}

//= OWN:report.record
#[test]
fn a_cut_damaged_or_extended_record_is_refused_by_every_command() {
    let folder = told("halves", &[3]);
    let whole = folder.read("3.msr");
    let refused = |bytes: &[u8], why: &str| {
        folder.write("bad.msr", bytes);
        for args in [
            "replay bad.msr",
            "replay bad.msr --verify",
            "explain bad.msr --thread hog.0 --at 1us",
            "report bad.msr",
            "diff bad.msr 3.msr",
            "diff 3.msr bad.msr",
        ] {
            let ran = folder.run(args);
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args}: {ran:?}");
            assert!(ran.stderr.contains("bad.msr: ") && ran.stderr.contains(why), "{args}: {}", ran.stderr);
        }
    };
    for cut in spread(whole.len()).filter(|cut| *cut >= 10).step_by(5) {
        refused(&whole[..cut], "cut short");
    }
    refused(&[whole.as_slice(), b"\0"].concat(), "something follows the end");
    refused(&[whole.as_slice(), &whole].concat(), "something follows the end");
    let mut damaged = whole.clone();
    damaged[whole.len() - 30] ^= 1;
    refused(&damaged, "damaged");
}

/// What changed between two seeds?
#[test]
fn two_runs_are_compared_event_by_event_and_by_what_it_did() {
    let folder = told("diff", &[1, 2]);
    folder.run("run t.toml --record again.msr --seed 1 --quiet").ok();
    let same = folder.run("diff 1.msr again.msr").ok();
    assert_eq!(same.stdout, "the same decisions throughout\n");
    let ran = folder.run("diff 1.msr 2.msr");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    for words in [
        "seed: 1 in 1.msr, 2 in 2.msr",
        " decisions are the same; then\n",
        "  1.msr: at ",
        "  2.msr: at ",
        "camera ",
    ] {
        assert!(ran.stdout.contains(words), "no {words:?} in:\n{}", ran.stdout);
    }
    let report = |seed: u64| folder.run(&format!("report {seed}.msr --report json")).ok().json();
    for (thread, seed) in [(0, 1), (0, 2)] {
        let p99 = report(seed)["threads"][thread]["jobs"]["response_ns"]["p99"].as_u64().expect("a number");
        let shown = format!("{}.{:06}", p99 / 1_000_000, p99 % 1_000_000);
        assert!(ran.stdout.contains(shown.trim_end_matches('0')), "no {shown} in:\n{}", ran.stdout);
    }
    folder.run("diff 1.msr gone.msr").refused(&["gone.msr: "]);
}
