//! Registries that lie, children that hide, and many that ask at once.

use super::{Host, eventually, is_alive};
use serde_json::{Value, json};
use std::fs;

/// A program whose child leaves its session, its terminal and its parent, as a daemon does.
const DAEMON: &str =
    "setsid sh -c '(cd / && exec sleep 100) >/dev/null 2>&1 < /dev/null & echo $!' & wait; exit 4";

#[test]
fn a_daemon_does_not_outlive_its_grant() {
    let host = Host::new("daemon");
    let (ran, report) = host.sh_reported(&[], DAEMON);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    let daemon: i32 = ran.stdout.trim().parse().expect("its number");
    assert!(!is_alive(daemon));
    assert_eq!(report["outlived"], 1, "{report}");
    host.assert_nothing_left_of(report["id"].as_str().expect("an id"));
}

#[test]
fn a_tree_that_keeps_forking_is_ended_with_its_supervisor() {
    let host = Host::new("forks");
    let forks = "echo $$; f() { sleep 0.01; f & f & wait; }; (sh -c 'while :; do sleep 0.02 & done' & wait)";
    let running = host.start(&["--memory", "64M"], forks);
    let entry = host.entry();
    running.signal("KILL");
    running.reap();
    eventually("the entry is gone", || host.entries().is_empty());
    host.assert_nothing_left_of(entry["id"].as_str().expect("an id"));
}

#[test]
fn of_many_that_ask_at_once_no_more_are_admitted_than_fit() {
    let host = Host::new("race");
    if !host.allows("quota") || !host.allows("cpuset") {
        return;
    }
    let cpu = super::admission::first_cpu(&host);
    // Each that is admitted stays until all have an answer: 3 of 30 % fit beside the 5 % of everybody else.
    let script = "echo in; until [ -e go ]; do sleep 0.01; done";
    let args = ["exec", "--budget", "30ms/100ms", "--cpus", &cpu, "--", "sh", "-c", script];
    let asked: Vec<_> = (0..8)
        .map(|_| {
            let mut command = host.command(&args);
            command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
            command.spawn().expect("the program starts")
        })
        .collect();
    eventually("three are in", || {
        host.run(&["ps", "--json"]).ok().json().as_array().map(Vec::len) == Some(3)
    });
    let mut asked = asked;
    eventually("the others were refused", || {
        let refused = |child: &mut std::process::Child| child.try_wait().ok().flatten().is_some();
        asked.iter_mut().filter_map(|child| refused(child).then_some(())).count() == 5
    });
    host.folder.write("go", "");
    let codes: Vec<_> =
        asked.into_iter().map(|child| child.wait_with_output().expect("it ends").status.code()).collect();
    assert_eq!(codes.iter().filter(|code| **code == Some(0)).count(), 3, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == Some(3)).count(), 5, "{codes:?}");
    assert!(host.entries().is_empty());
}

/// An entry as `exec` writes it.
fn an_entry(host: &Host) -> Value {
    let running = host.start(&[], "echo here; exec sleep 60");
    let entry = host.entry();
    running.signal("TERM");
    running.wait();
    assert!(host.entries().is_empty());
    entry
}

#[test]
fn a_registry_that_lies_is_not_believed_and_does_no_harm() {
    let host = Host::new("lies");
    let entry = an_entry(&host);
    let file = |name: &str| host.run_dir().join(name);
    let works = |what: &str| {
        let ran = host.sh(&[], "exit 5");
        assert_eq!(ran.code, Some(5), "{what}: {ran:?}");
        let listed = host.run(&["ps", "--json"]).ok().json();
        assert_eq!(listed, json!([]), "{what}");
        host.run(&["doctor"]).ok();
    };
    // An entry of another boot: today's processes with the same numbers are not its own.
    let own = format!("{}.json", entry["id"].as_str().expect("an id"));
    let mut of_another_boot = entry.clone();
    for who in ["owner", "guardian"] {
        of_another_boot[who]["pid"] = json!(std::process::id());
        of_another_boot[who]["boot"] = json!("00000000-0000-0000-0000-000000000000");
    }
    fs::write(file(&own), of_another_boot.to_string()).expect("written");
    works("another boot");
    assert!(!file(&own).exists(), "it is cleaned up");
    // Truncated, empty, or something else: the process that the name tells of is gone, and so is what it was granted.
    let whole = entry.to_string();
    for text in [&whole[..whole.len() / 2], "", "[1, 2]\n"] {
        fs::write(file(&own), text).expect("written");
        works("damaged");
        assert!(!file(&own).exists(), "it is cleaned up");
    }
    // An entry of a process that lives, or of no process that could be known: it is reported, and left for people.
    let started = fs::read_to_string("/proc/self/stat").expect("a process");
    let ticks =
        started.rsplit(')').next().and_then(|fields| fields.split_whitespace().nth(19)).expect("a field");
    for name in [format!("{}-{ticks}.json", std::process::id()), "foreign.json".to_owned()] {
        fs::write(file(&name), "{").expect("written");
        for ran in [host.sh(&[], "exit 5"), host.run(&["ps"])] {
            assert_eq!(ran.code, Some(2), "{ran:?}");
            assert!(ran.stderr.contains(&name) && ran.stderr.contains("help: "), "{ran:?}");
        }
        fs::remove_file(file(&name)).expect("it was left");
    }
    // One that names groups which are not ours: nothing that it names is emptied.
    let mut greedy = of_another_boot;
    if let Some(groups) = greedy["groups"].as_array_mut() {
        groups.iter_mut().for_each(|group| group["directory"] = json!("/sys/fs/cgroup"));
    }
    fs::write(file(&own), greedy.to_string()).expect("written");
    works("greedy");
    assert!(is_alive(std::process::id() as i32));
    works("afterwards");
}

#[test]
fn a_run_directory_that_is_no_directory_or_cannot_be_written_is_named() {
    let host = Host::new("nowhere");
    host.folder.write("run", "a file");
    let ran = host.sh(&[], "true");
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("run"), "{ran:?}");
    let listed = host.run(&["ps"]);
    assert_eq!(listed.code, Some(2), "{listed:?}");
    host.run(&["doctor"]).ok();
}
