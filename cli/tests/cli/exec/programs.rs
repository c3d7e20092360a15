//! Real programs: their output, their exit codes, their children.

use super::Host;
use std::process::Command;

//= OWN:exec
#[test]
fn a_program_keeps_its_output_and_its_exit_code_and_leaves_nothing() {
    let host = Host::new("codes");
    for (script, code) in [("echo out; exit 0", 0), ("echo out; exit 7", 7), ("echo out; kill -KILL $$", 137)]
    {
        let (ran, report) = host.sh_reported(&[], script);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), "out\n"), "{ran:?}");
        assert_eq!(report["status"], code);
        assert_eq!(report["signal"], if code == 137 { 9.into() } else { serde_json::Value::Null });
        assert!(report["usage"]["used_ns"].as_u64().is_some_and(|used| used > 0), "{report}");
        assert_eq!(report["context"]["budget_ns"], 20_000_000);
        host.assert_nothing_left_of(report["id"].as_str().expect("an id"));
    }
}

#[test]
fn a_program_that_cannot_run_is_told_apart_from_one_that_failed() {
    let host = Host::new("cannot-run");
    let base = ["exec", "--budget", "20ms/100ms", "--best-effort", "--"];
    let missing = host.run(&[&base[..], &["./no-such-program"]].concat());
    assert_eq!(missing.code, Some(127));
    assert!(missing.stderr.contains("./no-such-program: No such file"), "{}", missing.stderr);
    host.folder.write("plain", "no program");
    let plain = host.run(&[&base[..], &["./plain"]].concat());
    assert_eq!(plain.code, Some(126));
    assert!(plain.stderr.contains("help: make the file executable"), "{}", plain.stderr);
    assert!(host.entries().is_empty());
}

#[test]
fn a_pipeline_runs_as_it_would_without() {
    let host = Host::new("pipeline");
    let ran = host.sh(&[], "seq 1 20000 | sort -rn | uniq | head -n 3 | tr '\\n' ' '");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "20000 19999 19998 "), "{ran:?}");
}

#[test]
fn a_compiler_and_its_children_run_under_the_grant() {
    let host = Host::new("compiler");
    if Command::new("cc").arg("--version").output().is_err() {
        return;
    }
    host.folder.write("hello.c", "#include <stdio.h>\nint main(void) { puts(\"compiled\"); return 4; }\n");
    let (ran, report) = host.sh_reported(&[], "cc -O1 -o hello hello.c && ./hello");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(4), "compiled\n"), "{ran:?}");
    // The compiler proper is a grandchild of the shell: the shell alone never uses that much.
    assert!(report["usage"]["used_ns"].as_u64() > Some(5_000_000), "{report}");
    host.assert_nothing_left_of(report["id"].as_str().expect("an id"));
}

#[test]
fn what_outlives_the_program_is_ended_and_counted() {
    let host = Host::new("outlives");
    let (ran, report) = host.sh_reported(&[], "sleep 100 & echo $!; (trap '' TERM; sleep 100) & exit 3");
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(report["outlived"].as_u64() >= Some(2), "{report}");
    let pid = ran.stdout.trim().parse().expect("a number");
    assert!(!super::is_alive(pid), "{pid}");
    host.assert_nothing_left_of(report["id"].as_str().expect("an id"));
}

#[test]
fn the_report_goes_where_it_is_wanted() {
    let host = Host::new("report");
    let base = ["exec", "--budget", "20ms/100ms", "--best-effort"];
    let text = host.run(&[&base[..], &["--", "echo", "out"]].concat()).ok();
    assert_eq!(text.stdout, "out\n");
    assert!(text.stderr.starts_with("echo: ended with 0 after "), "{}", text.stderr);
    assert!(text.stderr.contains("granted 20ms in each 100ms, on CPUs "), "{}", text.stderr);
    let quiet = host.run(&[&base[..], &["--quiet", "--", "echo", "out"]].concat()).ok();
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("out\n", ""));
    let json =
        host.run(&[&base[..], &["--quiet", "--report", "json", "--name", "job", "--", "true"]].concat()).ok();
    let report: serde_json::Value = serde_json::from_str(&json.stderr).expect("JSON on standard error");
    assert_eq!(report["context"]["name"], "job");
    let nowhere = host.run(&[&base[..], &["--output", "no/where", "--", "touch", "ran"]].concat());
    nowhere.refused(&["no/where", "make its directory first"]);
    assert!(!host.folder.path("ran").exists(), "the program ran though its report could not be written");
}

#[test]
fn use_is_told_while_the_program_runs() {
    let host = Host::new("stats");
    // The script ends when the supervisor has written its second line.
    let script = "until [ \"$(grep -c 'used ' lines)\" -ge 2 ]; do sleep 0.05; done";
    let mut command = host.command(&[
        "exec",
        "--budget",
        "20ms/100ms",
        "--best-effort",
        "--stats",
        "--",
        "sh",
        "-c",
        script,
    ]);
    let lines = std::fs::File::create(host.folder.path("lines")).expect("a file");
    let status = command.stderr(lines).status().expect("the program starts");
    assert!(status.success());
    let told = String::from_utf8(host.folder.read("lines")).expect("text");
    assert!(told.lines().next().is_some_and(|line| line.starts_with("1 s, used ")), "{told}");
    assert_eq!(host.allows("quota"), told.contains("held back in "), "{told}");
}
