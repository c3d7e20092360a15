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
/// the version, and holds the workload's name and then 64-bit words, of which the fourth is the policy.
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
