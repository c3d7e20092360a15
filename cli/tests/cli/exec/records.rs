//! What is kept of a program: a record that `mainspring report` reads, a page, and how it fared under a deadline.

use super::Host;
use serde_json::Value;

#[test]
fn a_record_of_the_use_is_reported_as_any_other() {
    let host = Host::new("record");
    let (ran, told) =
        host.sh_reported(&["--record", "use.msr", "--html", "use.html", "--name", "job"], "exit 3");
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let report: Value = host.folder.run("report use.msr --report json").ok().json();
    assert_eq!(report["machine"], "host");
    assert_eq!(report["contexts"][0], told["context"], "the same row");
    assert_eq!(report["threads"][0]["name"], "job");
    assert_eq!(report["decisions"], 0, "they were the kernel's");
    let notices = report["notices"].as_array().expect("a list");
    assert!(
        notices.iter().any(|notice| notice.as_str().is_some_and(|text| text.contains("ended with 3"))),
        "{report}"
    );
    let text = host.folder.run("report use.msr").ok();
    assert!(text.stdout.contains("job") && text.stdout.contains("20ms"), "{text:?}");
    host.folder.run("report use.msr --html again.html").ok();
    for page in ["use.html", "again.html"] {
        let page = String::from_utf8(host.folder.read(page)).expect("text");
        assert!(page.contains("job") && page.contains("<html"), "a page");
    }
    host.folder.run("replay use.msr --verify").ok();
}

#[test]
fn a_record_that_cannot_be_written_is_told_before_the_program_runs() {
    let host = Host::new("record-nowhere");
    let ran = host.sh(&["--record", "no/such/folder.msr"], "echo ran");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
}

#[test]
fn a_hog_under_a_deadline_uses_its_budget_up_and_that_is_counted() {
    let host = Host::new("lateness");
    if !host.allows("deadline") || !host.allows("quota") {
        return;
    }
    // One thread that never waits, until some windows have passed by the clock of the shell.
    let script = "end=$(($(date +%s) + 3)); i=0; while :; do i=$((i + 1)); [ $((i % 20000)) -ne 0 ] || { read -r up rest < /proc/uptime; \
                  [ -n \"$first\" ] || first=${up%.*}; [ ${up%.*} -lt $((first + 3)) ] || exit 0; }; done";
    let args = [
        "exec",
        "--budget",
        "2ms/10ms",
        "--deadline",
        "10ms",
        "--report",
        "json",
        "--output",
        "report.json",
        "--",
        "sh",
        "-c",
        script,
    ];
    let ran = host.run(&args);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let report: Value = serde_json::from_slice(&host.folder.read("report.json")).expect("JSON");
    let counted = &report["lateness"];
    let number = |key: &str| counted[key].as_u64().unwrap_or_else(|| panic!("{key} in {report}"));
    assert!(number("used_up") > 0, "it always wanted more: {report}");
    assert_eq!(number("used_up") + number("late"), number("periods"), "{report}");
    assert_eq!(
        (&report["context"]["depletions"], &report["context"]["misses"]),
        (&counted["used_up"], &counted["late"])
    );
}

#[test]
fn cpus_can_be_had_alone_and_one_is_left() {
    let host = Host::new("exclusive");
    let cpu = super::admission::first_cpu(&host);
    let all = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    if !host.allows("quota") || !host.allows("cpuset") || all < 2 {
        return;
    }
    let args = ["exec", "--budget", "10ms/100ms", "--cpus", &cpu, "--exclusive", "--name", "lessee", "--"];
    let lease = |script: &str| host.run(&[&args[..], &["sh", "-c", script]].concat());
    let script = "line=$(grep -E ':cpuset:' /proc/self/cgroup); cat /sys/fs/cgroup/cpuset${line##*:}/cpuset.cpu_exclusive \
                  2>/dev/null || cat /sys/fs/cgroup/${line##*:}/cpuset.cpus.partition";
    let ran = lease(script);
    if ran.code != Some(0) {
        // Another cpuset of this host has the CPU.
        assert!(ran.stderr.contains("the CPUs to itself"), "{ran:?}");
        return;
    }
    assert!(["1", "root"].contains(&ran.stdout.trim()), "{ran:?}");
    // While it is held, no other grant is counted there, and another one that may run nowhere else is refused.
    let held = host.start(&["--cpus", &cpu, "--exclusive", "--name", "lessee"], "echo here; exec sleep 60");
    let entry = host.entry();
    assert_eq!(entry["exclusive"], true, "{entry}");
    let refused = host.run(&["exec", "--budget", "1ms/100ms", "--cpus", &cpu, "--", "true"]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stderr.contains("lessee") && refused.stderr.contains("to itself"), "{refused:?}");
    let roams = host.run(&["exec", "--budget", "1ms/100ms", "--", "sh", "-c", "exit 6"]);
    assert_eq!(roams.code, Some(6), "it is counted on the others: {roams:?}");
    held.signal("TERM");
    held.wait();
    host.assert_nothing_left_of(entry["id"].as_str().expect("an id"));
    assert_eq!(lease("true").code, Some(0), "it can be had again");
    let list = String::from_utf8(
        std::process::Command::new("sh")
            .args(["-c", "grep Cpus_allowed_list /proc/self/status"])
            .output()
            .expect("a shell")
            .stdout,
    );
    let list = list.expect("text");
    let every = list.split_whitespace().last().expect("a list").to_owned();
    let greedy = host.run(&["exec", "--budget", "1ms/100ms", "--cpus", &every, "--exclusive", "--", "true"]);
    greedy.refused(&["a CPU has to be left"]);
}
