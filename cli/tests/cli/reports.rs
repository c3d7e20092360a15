//! `mainspring run`: the report.

use crate::support::{Folder, Ran, WORKLOAD};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

fn has_keys(value: &Value, keys: &str) {
    for key in keys.split_whitespace() {
        assert!(value.get(key).is_some(), "no {key:?} in {value}");
    }
}

#[test]
fn the_json_report_has_the_documented_keys() {
    let folder = Folder::with_workload("json-keys");
    let report = folder.run("run w.toml --report json --schedule --seed 5").ok().json();
    has_keys(&report, "machine seed duration_ns decisions wall_ns digest cpus threads telemetry schedule");
    has_keys(&report["cpus"][0], "id busy_ns idle_ns ticks ticks_suppressed reschedules");
    has_keys(
        &report["threads"][0],
        "name weight runtime_ns entitled_ns ready_ns blocked_ns wakeups wake_latency_ns lag_max_ns preemptions \
         voluntary_blocks migrations",
    );
    has_keys(&report["threads"][0]["wake_latency_ns"], "p50 p99 max");
    has_keys(&report["schedule"][0], "cpu thread start_ns end_ns reason");
    assert_eq!(report["machine"], "sim");
    assert_eq!(report["seed"], 5);
    assert_eq!(report["duration_ns"], 100_000_000);
    let names: Vec<&Value> =
        report["threads"].as_array().expect("rows").iter().map(|row| &row["name"]).collect();
    assert_eq!(names, ["hog", "editor", "batch.0", "batch.1"]);
}

//= OWN:miss.truth
#[test]
fn a_thread_that_never_runs_misses_each_of_its_deadlines_at_that_time() {
    let folder = Folder::new("reports-starved");
    folder.write(
        "w.toml",
        "[machine]\nduration = \"55ms\"\nfloor = \"0%\"\n\
         [[context]]\nname = \"all\"\nbudget = \"100ms\"\nperiod = \"100ms\"\n\
         [[thread]]\nname = \"hog\"\ncontext = \"all\"\nprogram = [\"run forever\"]\n\
         [[thread]]\nname = \"starved\"\nprogram = [\"run 1ms\", \"every 10ms\"]\n",
    );
    let json = folder.run("run w.toml --report json --record w.msr").ok().json();
    let times = |json: &serde_json::Value| -> Vec<u64> {
        let misses = json["misses"].as_array().expect("misses").iter();
        misses.map(|miss| miss["time_ns"].as_u64().expect("a time") / 1_000_000).collect()
    };
    assert_eq!(times(&json), [10, 20, 30, 40, 50]);
    assert_eq!(json["threads"][1]["runtime_ns"], 0);
    assert_eq!(times(&folder.run("report w.msr --report json").ok().json()), [10, 20, 30, 40, 50]);
    let text = folder.run("run w.toml").ok().stdout;
    assert!(text.contains("missed periods: starved 5"), "{text}");
    assert!(folder.run("explain w.msr --miss 2").ok().stdout.contains("due at 20ms"));
}

//= TICK:telemetry
#[test]
fn the_twelve_permanent_counters_are_in_the_json_report_by_name() {
    let folder = Folder::with_workload("telemetry");
    let telemetry = folder.run("run w.toml --report json").ok().json()["telemetry"].clone();
    has_keys(
        &telemetry,
        "scheduler_tick_count ticks_suppressed nohz_enter_count nohz_exit_count oneshot_deadline_miss_count \
         sqpoll_busy_ns sqpoll_sleep_count deadline_expired_count budget_exhausted_count realtime_overrun_count \
         donation_depth_max housekeeping_offload_count",
    );
    assert!(telemetry["scheduler_tick_count"]["0"].as_u64().is_some_and(|ticks| ticks > 0), "{telemetry}");
}

#[test]
fn the_json_report_has_a_schedule_only_if_asked_for() {
    let folder = Folder::with_workload("json-schedule");
    let report = folder.run("run w.toml --report json --html w.html --trace w.json").ok().json();
    assert_eq!(report.get("schedule"), None);
}

#[test]
fn the_text_report_says_that_it_shows_no_schedule() {
    let folder = Folder::with_workload("text-schedule");
    assert!(folder.run("run w.toml --schedule").ok().stderr.contains("--report json"));
    assert_eq!(folder.run("run w.toml --schedule --quiet").ok().stderr, "");
}

#[test]
fn the_seed_decides() {
    let folder = Folder::with_workload("seeds");
    let digest = |seed: &str| {
        folder.run(&format!("run w.toml --report json --seed {seed}")).ok().json()["digest"].clone()
    };
    assert_eq!(digest("1"), digest("1"));
    assert_ne!(digest("1"), digest("2"));
    assert_eq!(digest("18446744073709551615"), digest("18446744073709551615"));
}

#[test]
fn the_text_report_names_every_thread_and_is_plain_in_a_pipe() {
    let folder = Folder::with_workload("text");
    let ran = folder.run("run w.toml").ok();
    for word in ["w.toml", "sim", "hog", "editor", "batch.1", "digest"] {
        assert!(ran.stdout.contains(word), "no {word:?} in:\n{}", ran.stdout);
    }
    assert!(!ran.stdout.contains('\x1b'), "colour in a pipe:\n{}", ran.stdout);
    assert_eq!(ran.stderr, "", "a quick run in a pipe says nothing besides");
}

#[test]
fn colour_is_used_when_forced_and_not_when_refused() {
    let folder = Folder::with_workload("colour");
    let always = Ran::of(folder.command("run w.toml --color always").env("NO_COLOR", "1")).ok();
    assert!(always.stdout.contains("\x1b["), "the option is stronger than the environment");
    assert!(!folder.run("run w.toml --color never").ok().stdout.contains('\x1b'));
    assert!(folder.run("check gone.toml --color always").stderr.contains("\x1b["));
}

#[test]
fn a_locale_without_unicode_gets_ascii() {
    let folder = Folder::with_workload("ascii");
    let shown = Ran::of(folder.command("run w.toml").env("LC_ALL", "C").env("LANG", "en_GB.UTF-8")).ok();
    assert!(shown.stdout.is_ascii(), "{}", shown.stdout);
}

#[test]
fn instances_are_folded_unless_expanded() {
    let folder = Folder::new("expand");
    folder.write(
        "w.toml",
        "[[thread]]\nname = \"many\"\ncount = 200\nprogram = [\"run 1ms\", \"sleep 9ms\"]\n",
    );
    assert!(!folder.run("run w.toml").ok().stdout.contains("many.199"));
    assert!(folder.run("run w.toml --expand").ok().stdout.contains("many.199"));
}

#[test]
fn a_workload_may_come_from_standard_input() {
    let folder = Folder::with_workload("stdin");
    let piped = folder.run_with_input("run - --report json --seed 3", WORKLOAD.as_bytes()).ok().json();
    let file = folder.run("run w.toml --report json --seed 3").ok().json();
    assert_eq!(piped["digest"], file["digest"]);
    assert_eq!(piped["config"]["workload"], "<stdin>");
    folder.run_with_input("run -", b"[machine]\ncpu = 1\n").refused(&["<stdin>:2:1: "]);
}

/// Reads one line of what `args` prints, then goes away.
fn one_line_of(folder: &Folder, args: &str) {
    let mut child = folder
        .command(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut line = String::new();
    let mut stdout = BufReader::with_capacity(16, child.stdout.take().expect("a pipe"));
    stdout.read_line(&mut line).expect("a line");
    assert!(!line.is_empty());
    drop(stdout);
    let mut complaints = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut complaints).expect("text");
    assert_eq!(child.wait().expect("the program ends").code(), Some(0), "{complaints}");
    assert_eq!(complaints, "");
}

#[test]
fn a_reader_who_has_seen_enough_is_no_error() {
    let folder = Folder::new("broken-pipe");
    // More than any pipe holds, so that the program is still writing when the reader is gone.
    let spin = "[machine]\nduration = \"200ms\"\n[[thread]]\nname = \"a\"\ncount = 2\nprogram = [\"run 10us\", \"yield\"]\n";
    folder.write("w.toml", spin);
    one_line_of(&folder, "run w.toml --report json --schedule");
    one_line_of(&folder, "run w.toml --expand");
    one_line_of(&folder, "completions bash");
    one_line_of(&folder, "run --help");
    one_line_of(&folder, "check w.toml");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_under_standard_output_is_told() {
    let folder = Folder::with_workload("stdout-full");
    for args in ["run w.toml", "run w.toml --report json", "check w.toml", "completions zsh"] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        Ran::of(folder.command(args).stdout(full)).refused(&["standard output: cannot write"]);
    }
}
