//! `mainspring import`: recordings of a Linux machine become workloads, and its schedule stands beside ours.

use crate::support::Folder;
use std::fs;
use std::path::Path;

fn sample(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)).expect("a sample")
}

const FTRACE: &str = "import/tests/samples/ftrace.txt";
const PERF_DATA: &str = "docs/examples/recording.perf.data";

#[test]
fn a_recording_becomes_a_workload_that_runs_and_verifies() {
    let folder = Folder::new("import-run");
    for (name, from) in [("trace.txt", FTRACE), ("perf.data", PERF_DATA)] {
        folder.write(name, sample(from));
        folder.run(&format!("import {name} -o {name}.toml")).ok();
        folder.run(&format!("check {name}.toml")).ok();
        let json =
            folder.run(&format!("run {name}.toml --verify --report json --record {name}.msr")).ok().json();
        let hog = json["threads"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|row| row["name"].as_str().is_some_and(|name| name.starts_with("hog-")));
        assert!(hog.is_some_and(|row| row["runtime_ns"].as_u64() > Some(100_000_000)), "{name}");
        folder.run(&format!("replay {name}.msr")).ok();
    }
    let from_stdin = folder.run_with_input("import -", &sample(FTRACE)).ok();
    assert!(
        from_stdin.stdout.starts_with("# Made by `mainspring import` of <stdin>"),
        "{}",
        from_stdin.stdout
    );
}

#[test]
fn linuxs_schedule_stands_beside_ours() {
    let folder = Folder::new("import-compare");
    folder.write("perf.data", sample(PERF_DATA));
    let ran = folder.run("import perf.data --compare --threads 3").ok();
    for word in
        ["CPU time", "wake latency p99", "migrations", "hog-5763", "all threads", "faithful: ", "waits: "]
    {
        assert!(ran.stdout.contains(word), "no {word:?} in:\n{}", ran.stdout);
    }
    let part = folder.run("import perf.data --compare --between 100ms 200ms").ok();
    assert!(part.stdout.contains("on 2 CPUs"), "{}", part.stdout);
    assert_ne!(part.stdout, ran.stdout);
}

#[test]
fn what_is_no_recording_is_refused_with_its_place() {
    let folder = Folder::new("import-bad");
    folder.write(
        "text.txt",
        String::from_utf8(sample(FTRACE)).expect("text").replacen("next_pid=", "next_pid=x", 1),
    );
    folder.run("import text.txt").refused(&["text.txt: line 14: expected prev_comm=NAME"]);
    folder.write("cut.data", &sample(PERF_DATA)[..2_000]);
    folder.run("import cut.data").refused(&["cut.data: byte "]);
    folder.write("empty", "");
    folder.run("import empty").refused(&["no sched_switch event found", "perf sched record"]);
    folder.write("trace.dat", b"\x17\x08\x44tracing6\0");
    folder.run("import trace.dat").refused(&["trace-cmd report"]);
    folder.write("app.json", r#"{ "tasks": { "t": { "run": 10, "iorun": 1 } } }"#);
    folder.run("import app.json").refused(&["app.json: tasks.t.iorun: the event"]);
    folder.run("import missing").refused(&["missing"]);
    folder.write("w.toml", "");
    folder.run("import text.txt -o nowhere/w.toml").refused(&["text.txt"]);
}

#[test]
fn an_rt_app_description_becomes_a_workload() {
    let folder = Folder::new("import-rt-app");
    folder.write(
        "app.json",
        r#"{ "tasks": { "t": { "policy": "SCHED_DEADLINE", "dl-runtime": 2000, "dl-period": 10000, "run": 1000, "timer": { "ref": "u", "period": 10000 } } }, "global": { "duration": 1 } }"#,
    );
    folder.run("import app.json -o app.toml").ok();
    folder.run("admit app.toml").ok();
    folder.run("run app.toml --fail-on misses").ok();
}

#[test]
fn names_keep_their_letters_and_what_cannot_be_imported_is_told_for_what_it_is() {
    let folder = Folder::new("import-names");
    let switch = |at: &str, prev: &str, state: &str, next: &str| {
        format!(
            "  {} [000] d..2. 100.{at}: sched_switch: prev_comm={} prev_pid={} prev_prio=120 prev_state={state} ==> \
             next_comm={} next_pid={} next_prio=120\n",
            prev,
            prev.rsplit_once('-').expect("a pid").0,
            prev.rsplit_once('-').expect("a pid").1,
            next.rsplit_once('-').expect("a pid").0,
            next.rsplit_once('-').expect("a pid").1,
        )
    };
    let text = switch("000100", "bash-7", "S", "café-8") + &switch("004100", "café-8", "S", "swapper/0-0");
    folder.write("trace.txt", &text);
    let ran = folder.run("import trace.txt -o trace.toml").ok();
    assert!(ran.stderr.contains("wrote trace.toml"), "{}", ran.stderr);
    let made = String::from_utf8(folder.read("trace.toml")).expect("text");
    assert!(made.contains("name = \"café-8\""), "{made}");
    folder.run("run trace.toml").ok();
    folder
        .run("import trace.txt --between 5s 6s")
        .refused(&["--between: no thread ran then", "from 0ms to 4.000000ms"]);
    folder.run("import nothing.txt").refused(&["nothing.txt: ", "give the path of a recording"]);
    folder
        .run("import trace.txt -o trace.txt")
        .refused(&["is the recording, which --output would overwrite"]);
    assert_eq!(folder.read("trace.txt"), text.as_bytes());
}
