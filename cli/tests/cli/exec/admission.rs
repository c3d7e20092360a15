//! What is asked for, against the host and against what was granted before.

use super::Host;

//= OWN:exec
#[test]
fn two_grants_that_do_not_fit_together_are_not_both_made() {
    let host = Host::new("two");
    if !host.allows("quota") || !host.allows("cpuset") {
        return;
    }
    let cpu = first_cpu(&host);
    let first = host.start(&["--name", "first", "--cpus", &cpu], "echo here; exec sleep 60");
    let ask = |budget: &str| {
        host.run(&["exec", "--budget", budget, "--cpus", &cpu, "--name", "second", "--", "echo", "ran"])
    };
    let refused = ask("76ms/100ms");
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(3), ""), "{refused:?}");
    for words in [
        "second: 76ms in each 100ms".to_owned(),
        format!("CPU {cpu}: "),
        format!("first (process {}): 20ms in each 100ms", first.child.id()),
        "help: ask for less".to_owned(),
    ] {
        assert!(refused.stderr.contains(&words), "no {words:?} in:\n{}", refused.stderr);
    }
    let fits = ask("75ms/100ms");
    assert_eq!((fits.code, fits.stdout.as_str()), (Some(0), "ran\n"), "{fits:?}");
    first.signal("TERM");
    first.wait();
    assert_eq!(ask("95ms/100ms").code, Some(0), "the first has ended");
    assert_eq!(ask("96ms/100ms").code, Some(3), "5 % stays with everybody else");
    assert!(host.entries().is_empty());
}

#[test]
fn what_makes_no_sense_is_refused_with_what_would() {
    let host = Host::new("nonsense");
    for (options, words) in [
        (&["--budget", "20ms"][..], &["no period", "20ms/100ms"][..]),
        (&["--budget", "20/100ms"], &["no unit"]),
        (&["--budget", "0ms/100ms"], &["too short", "help: "]),
        (&["--budget", "20ms/5s"], &["a period of 5s is out of range", "from 1ms to 1s"]),
        (&["--budget", "5000s/100ms"], &["more than", "CPU", "help: grant less"]),
        (&["--budget", "20ms/100ms", "--deadline", "10ms"], &["deadline of 10ms", "from 20ms, the budget"]),
        (&["--budget", "20ms/100ms", "--deadline", "200ms"], &["deadline of 200ms", "to 100ms, the period"]),
        (&["--budget", "20ms/100ms", "--cpus", "x"], &["\"x\"", "0-3,5"]),
        (&["--budget", "20ms/100ms", "--cpus", "4000"], &["4000", "choose among"]),
        (&["--budget", "20ms/100ms", "--memory", "4K"], &["4096 bytes", "help: grant"]),
        (&["--budget", "20ms/100ms", "--memory", "lots"], &["no size", "512M"]),
        (&["--cpus", "0"], &["--budget"]),
    ] {
        let args = [&["exec"], options, &["--best-effort", "--", "touch", "ran"]].concat();
        host.run(&args).refused(words);
    }
    let cpu = first_cpu(&host);
    let both = ["exec", "--budget", "2ms/10ms", "--deadline", "5ms", "--cpus", &cpu, "--", "touch", "ran"];
    host.run(&both).refused(&["--deadline and --cpus exclude each other"]);
    host.run(&["exec", "--budget", "20ms/100ms"]).refused(&["<CMD>"]);
    assert!(!host.folder.path("ran").exists());
    assert!(host.entries().is_empty());
}

#[test]
fn ps_lists_what_is_granted_to_whom_and_what_is_used() {
    let host = Host::new("ps");
    assert_eq!(host.run(&["ps", "--json"]).ok().json(), serde_json::json!([]));
    let none = host.run(&["ps"]).ok();
    assert_eq!((none.stdout.as_str(), none.stderr.as_str()), ("", "nothing is granted\n"));
    let running = host.start(&["--name", "worker"], "echo here; exec sleep 60");
    let listed = host.run(&["ps", "--json"]).ok().json();
    let grant = &listed[0];
    assert_eq!((&grant["name"], &grant["budget_ns"]), (&"worker".into(), &20_000_000.into()), "{listed}");
    assert_eq!(grant["owner"]["pid"], running.child.id());
    assert_eq!(grant["processes"].as_array().map(Vec::len), Some(1), "{listed}");
    let used = grant["usage"]["used_ns"].as_u64().expect("use is always known");
    assert!(used > 0 || !host.allows("quota"), "only groups count finely: {listed}");
    let table = host.run(&["ps"]).ok().stdout;
    let row: Vec<&str> = table.lines().nth(1).expect("a row").split_whitespace().collect();
    assert_eq!(row[0], running.child.id().to_string(), "{table}");
    assert_eq!(row[2..6], ["worker", "20ms", "100ms", "100ms"], "{table}");
    running.signal("TERM");
    running.wait();
    assert_eq!(host.run(&["ps", "--json"]).ok().json(), serde_json::json!([]));
}

#[test]
fn no_name_of_a_grant_makes_up_a_line() {
    let host = Host::new("forged");
    let running = host.start(&["--name", "one\n2 0 two\u{1b}[31m"], "echo here; exec sleep 60");
    let table = host.run(&["ps"]).ok().stdout;
    assert_eq!(table.lines().count(), 2, "{table:?}");
    assert!(table.contains("one?2 0 two?[31m"), "{table:?}");
    running.signal("TERM");
    running.wait();
}

#[test]
fn a_registry_that_cannot_be_used_is_named() {
    let host = Host::new("registry");
    host.folder.write("run", "a file where the registry should be");
    host.run(&["ps"]).refused(&["run: ", "MAINSPRING_RUN_DIR"]);
    std::fs::remove_file(host.run_dir()).expect("removed");
    std::fs::create_dir(host.run_dir()).expect("made");
    std::fs::write(host.run_dir().join("1.json"), "{").expect("written");
    host.run(&["ps"]).refused(&["1.json", "no entry of the registry", "help: "]);
}

/// The first CPU that this process may use.
pub fn first_cpu(host: &Host) -> String {
    let ran = host.sh(&["--quiet"], "(grep Cpus_allowed_list /proc/self/status)");
    let list = ran.stdout.split_whitespace().last().expect("a list").to_owned();
    list.split([',', '-']).next().expect("a CPU").to_owned()
}
