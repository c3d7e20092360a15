//! Expectations, overrides and sweeps: does it hold, and what if.

use crate::support::{Folder, Ran};
use serde_json::Value;

/// A camera whose frames sometimes cost more than its budget.
const CAMERA: &str = r#"
[machine]
cpus = 2
duration = "500ms"

[[context]]
name = "camera"
budget = "6ms"
period = "33ms"
cpus = [0]

[[thread]]
name = "camera"
context = "camera"
program = ["run 4ms..7ms", "every 33ms"]

[[thread]]
name = "client"
program = ["run 1ms", "call db", "sleep 5ms"]

[[thread]]
name = "db"
program = ["recv db", "run 200us", "reply"]

[[thread]]
name = "hog"
count = 2
program = ["run forever"]
"#;

fn folder(name: &str, expectations: &str) -> Folder {
    let folder = Folder::new(name);
    folder.write("w.toml", format!("{CAMERA}{expectations}"));
    folder
}

#[track_caller]
fn failed(ran: Ran, lines: &[&str]) -> Ran {
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert_eq!(ran.stderr.lines().count(), lines.len(), "{}", ran.stderr);
    for line in lines {
        assert!(ran.stderr.contains(line), "no {line:?} in:\n{}", ran.stderr);
    }
    ran
}

#[test]
fn expectations_that_hold_are_told_and_exit_with_zero() {
    let folder = folder(
        "expect-held",
        "[[expect]]\nthread = \"hog\"\nshare = \"50%..100%\"\nmisses = 0\n\
         [[expect]]\nendpoint = \"db\"\ncall_max = \"1s\"\n[[expect]]\ntimer_interrupts = 100000\n",
    );
    let ran = folder.run("run w.toml --quiet").ok();
    assert_eq!(ran.stdout.lines().filter(|line| line.starts_with("held ")).count(), 4, "{}", ran.stdout);
    let report = folder.run("run w.toml --report json").ok().json();
    let held: Vec<&Value> =
        report["expectations"].as_array().expect("a list").iter().map(|e| &e["held"]).collect();
    assert_eq!(held, [true, true, true, true]);
}

#[test]
fn each_expectation_that_fails_is_one_line_and_the_exit_code_is_4() {
    let folder = folder(
        "expect-failed",
        "[[expect]]\nthread = \"camera\"\nmisses = 0\nresponse_p99 = \"5ms\"\n\
         [[expect]]\nthread = \"hog\"\nshare = \"1%..2%\"\n[[expect]]\nendpoint = \"db\"\ncall_p99 = \"1us\"\n\
         [[expect]]\nmisses = 1000\n",
    );
    let ran = failed(
        folder.run("run w.toml"),
        &[
            "w.toml:29: expected camera: no misses; found ",
            "w.toml:29: expected camera: response p99 at most 5ms; found p99 ",
            "w.toml:33: expected hog: share within 1%..2%; found hog.0: share ",
            "w.toml:36: expected endpoint db: call to reply p99 at most 1us; found p99 ",
        ],
    );
    assert!(ran.stdout.contains("FAILED  camera: no misses"), "{}", ran.stdout);
}

#[test]
fn an_expectation_of_nothing_or_of_the_wrong_thing_is_refused_by_line() {
    let folder = folder(
        "expect-bad",
        "[[expect]]\nthread = \"camera\"\n[[expect]]\nthread = \"camera\"\ncall_p99 = \"1ms\"\n\
         [[expect]]\nthread = \"camra\"\nmisses = 0\n[[expect]]\nshare = \"5\"\n",
    );
    folder.run("run w.toml").refused(&[
        "w.toml:29:1: the table expects nothing",
        "w.toml:31:1: the condition cannot be expected of that\n",
        "help: it is of an endpoint: add endpoint = \"NAME\"",
        "did you mean \"camera\"?",
        "not a share with two limits: \"5\"",
    ]);
}

/// Does CI fail on a miss?
#[test]
fn a_run_can_fail_on_misses_and_say_so_to_a_build_server() {
    let folder = folder("fail-on", "");
    folder.run("run w.toml").ok();
    failed(
        folder.run("run w.toml --quiet --fail-on misses --junit ci.xml"),
        &["w.toml: expected no misses; found 5 misses, the first of camera at "],
    );
    let xml = String::from_utf8(folder.read("ci.xml")).expect("text");
    assert!(xml.contains("tests=\"1\" failures=\"1\""), "{xml}");
    assert!(xml.contains("<failure message=\"expected no misses; found "), "{xml}");
}

/// Does it hold with more budget, on fewer CPUs, for longer?
#[test]
fn values_of_the_file_can_be_changed_for_a_run() {
    let folder = folder("overrides", "");
    let changed =
        "--set context.camera.budget=8ms --cpus 1 --duration 330ms --policy wfq --set thread.hog.count=1";
    let report = folder.run(&format!("run w.toml --report json --fail-on misses {changed}")).ok().json();
    assert_eq!(report["duration_ns"], 330_000_000);
    assert_eq!(report["cpus"].as_array().map(Vec::len), Some(1));
    assert_eq!(report["config"]["policy"], "wfq");
    assert_eq!(report["contexts"][0]["budget_ns"], 8_000_000);
    assert_eq!(report["threads"].as_array().map(Vec::len), Some(4));
    folder.run("run w.toml --cpus 0").refused(&["cpus 0 is out of range"]);
    folder.run("run w.toml --policy fifo").refused(&["unknown policy \"fifo\""]);
    folder.run("run w.toml --set cpus=1").refused(&["\"cpus\" is no key of a workload", "machine.cpus"]);
    folder.run("run w.toml --set thread.gone.weight=1").refused(&["no thread is named \"gone\""]);
    folder.run("run w.toml --set machine.cpu=1").refused(&["unknown key \"cpu\""]);
}

/// Which seed of many is the worst, and does it hold on two CPUs?
#[test]
fn a_sweep_names_the_worst_seed_and_the_run_that_shows_it() {
    let folder = folder("sweep", "");
    let swept = folder.run("sweep w.toml --seeds 1..12 --set machine.cpus=1,2 --report json").ok().json();
    let settings = swept["settings"].as_array().expect("a list");
    assert_eq!(settings.len(), 2);
    for (setting, cpus) in settings.iter().zip(["1", "2"]) {
        assert_eq!(setting["settings"], format!("machine.cpus={cpus}"));
        assert_eq!(setting["runs"], 12);
        let mut most = (0, 0);
        let mut total = 0;
        for seed in 1..=12_u64 {
            let report =
                folder.run(&format!("run w.toml --report json --seed {seed} --cpus {cpus}")).ok().json();
            let misses = report["misses_total"].as_u64().expect("a number");
            let longest = report["threads"][0]["jobs"]["response_ns"]["max"].as_u64().expect("a number");
            total += misses;
            most = most.max((misses, longest));
            if setting["worst"]["seed"] == seed {
                assert_eq!(setting["worst"]["digest"], report["digest"]);
                assert_eq!(setting["worst"]["misses"], misses);
            }
        }
        assert_eq!(setting["misses"], total);
        assert_eq!(
            (&setting["worst"]["misses"], &setting["worst"]["response_ns"]),
            (&most.0.into(), &most.1.into())
        );
    }
    let text = folder.run("sweep w.toml --seeds 1..12 --set machine.cpus=1,2").ok().stdout;
    assert!(text.contains("the worst: seed ") && text.contains("mainspring run w.toml --seed "), "{text}");
}

#[test]
fn a_sweep_goes_on_where_it_was_stopped_and_fails_on_what_is_not_as_expected() {
    let folder = folder("sweep-save", "");
    let first = folder.run("sweep w.toml --seeds 1..6 --save s.jsonl --quiet").ok().stdout;
    assert!(first.starts_with("w.toml: 6 runs\n"), "{first}");
    // As if it had been killed while it wrote the last line.
    let saved = folder.read("s.jsonl");
    folder.write("s.jsonl", &saved[..saved.len() - 20]);
    let second = folder.run("sweep w.toml --seeds 1..9 --save s.jsonl --plot s.svg --quiet").ok().stdout;
    assert!(second.starts_with("w.toml: 9 runs, 5 of them from before\n"), "{second}");
    let third = folder.run("sweep w.toml --seeds 1..9 --save s.jsonl --jobs 1").ok().stdout;
    assert!(third.starts_with("w.toml: 9 runs, 9 of them from before\n"), "{third}");
    assert_eq!(third.split_once('\n').map(|(_, rest)| rest), second.split_once('\n').map(|(_, rest)| rest));
    assert!(String::from_utf8(folder.read("s.svg")).expect("text").starts_with("<svg "));
    // Another workload has other results.
    let other = folder.run("sweep w.toml --seeds 1..2 --save s.jsonl --duration 100ms").ok().stdout;
    assert!(other.starts_with("w.toml: 2 runs\n"), "{other}");
    let ran = folder.run("sweep w.toml --seeds 1..9 --fail-on misses --quiet");
    assert_eq!((ran.code, ran.stderr.lines().count()), (Some(4), 1), "{ran:?}");
    folder.run("sweep w.toml --seeds 9..1").refused(&["write the first and the last seed"]);
    folder.run("sweep w.toml --seeds 1..2 --set machine.cpus=1,0").refused(&["cpus 0 is out of range"]);
}

#[test]
fn a_sweep_writes_over_nothing_that_is_not_its_own() {
    let folder = folder("sweep-files", "");
    let workload = folder.read("w.toml");
    folder.run("sweep w.toml --seeds 1..2 --save w.toml").refused(&["w.toml:", "is no result of a sweep"]);
    folder
        .run("sweep w.toml --seeds 1..2 --plot w.toml")
        .refused(&["is the workload, which --plot would overwrite"]);
    assert_eq!(folder.read("w.toml"), workload);
    folder.write("other.json", "{\"a\": 1}\n");
    folder
        .run("sweep w.toml --seeds 1..2 --save other.json")
        .refused(&["other.json:1: is no result of a sweep"]);
    folder.run("sweep w.toml --seeds 1..2 --save s.jsonl").ok();
    folder
        .run("sweep w.toml --seeds 1..2 --save s.jsonl --plot s.jsonl")
        .refused(&["is the file of --save, which --plot would overwrite"]);
}

#[test]
fn a_setting_that_does_not_fit_is_told_from_what_the_file_says() {
    let folder = folder("settings", "");
    let ran =
        folder.run("run w.toml --cpus 0").refused(&["cpus 0 is out of range", "as the command line sets it"]);
    assert!(ran.stderr.contains("the file itself is fine"), "{}", ran.stderr);
    let text = String::from_utf8(folder.read("w.toml")).expect("text");
    let name = text.split("name = \"").nth(1).and_then(|rest| rest.split('"').next()).expect("a name");
    let slip = format!("{name}x");
    folder
        .run(&format!("run w.toml --set thread.{slip}.weight=3"))
        .refused(&[&format!("no thread is named \"{slip}\""), &format!("did you mean \"{name}\"?")]);
    folder.write("bad.toml", "[machine]\ncpus = 0\n");
    let ran = folder.run("run bad.toml --duration 1ms").refused(&["cpus 0 is out of range"]);
    assert!(!ran.stderr.contains("the command line"), "{}", ran.stderr);
}
