//! The grant as the kernel enforces it, by the kernel's own counters.

use super::{Host, OWN_CPU_GROUP};
use std::process::Command;

//= OWN:exec
#[test]
fn a_tree_is_held_to_its_budget_by_the_kernel() {
    let host = Host::new("quota");
    if !host.allows("quota") {
        return;
    }
    // Three hogs, until the kernel has held their group back, or never does. The script reads the group's own files.
    let script = format!(
        "{OWN_CPU_GROUP}
        here=$(group cpu)
        cat $here/cpu.max 2>/dev/null || echo $(cat $here/cpu.cfs_quota_us) $(cat $here/cpu.cfs_period_us)
        for i in 1 2 3; do (while :; do :; done) & done
        tries=0
        until grep -q 'nr_throttled [1-9]' $here/cpu.stat; do
            tries=$((tries + 1)); [ $tries -lt 5000 ] || exit 9
        done"
    );
    let (ran, report) = host.sh_reported(&[], &script);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "20000 100000\n"), "{ran:?}");
    assert!(report["usage"]["throttled_periods"].as_u64() > Some(0), "{report}");
    assert!(report["usage"]["throttled_ns"].as_u64() > Some(0), "{report}");
    assert_eq!(report["context"]["depletions"], report["usage"]["throttled_periods"]);
    assert_eq!(report["outlived"], 3, "{report}");
    assert_eq!(report["enforced"][0], "quota");
    host.assert_nothing_left_of(report["id"].as_str().expect("an id"));
}

#[test]
fn stress_ng_with_more_workers_than_cpus_is_held_to_its_budget() {
    let host = Host::new("stress");
    if !host.allows("quota") {
        return;
    }
    // Where it is not installed, four hogs of the shell take its place, each with as much to do.
    let script = match Command::new("stress-ng").arg("--version").output() {
        Ok(_) => "stress-ng --quiet --cpu 4 --cpu-method loop --cpu-ops 40",
        Err(_) => "for i in 1 2 3 4; do (i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done) & done; wait",
    };
    let (ran, report) = host.sh_reported(&[], script);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(report["usage"]["throttled_periods"].as_u64() > Some(0), "{report}");
    host.assert_nothing_left_of(report["id"].as_str().expect("an id"));
}

#[test]
fn a_tree_is_kept_to_its_cpus() {
    let host = Host::new("cpus");
    // Affinity does it where no cpuset can.
    let script = "(grep Cpus_allowed_list /proc/self/status)";
    let allowed = Command::new("sh").args(["-c", script]).output().expect("a shell").stdout;
    let allowed = String::from_utf8(allowed).expect("text");
    let all = allowed.split_whitespace().last().expect("a list");
    let last = all.rsplit([',', '-']).next().expect("a CPU");
    let (ran, report) = host.sh_reported(&["--cpus", last], script);
    assert_eq!(ran.stdout.split_whitespace().last(), Some(last), "{ran:?}");
    let means = if host.allows("cpuset") { "cpuset" } else { "affinity" };
    assert!(report["enforced"].as_array().is_some_and(|all| all.iter().any(|one| one == means)), "{report}");
    assert_eq!(report["cpus"], last);
}

#[test]
fn a_tree_that_wants_more_memory_than_granted_is_ended_by_the_kernel() {
    let host = Host::new("memory");
    if !host.allows("memory") {
        return;
    }
    let greedy = "x=$(head -c 200000000 /dev/zero | tr '\\0' a); echo ${#x}";
    let (ran, report) = host.sh_reported(&["--memory", "32M"], greedy);
    assert_ne!(ran.stdout, "200000000\n", "{ran:?}");
    assert!(report["usage"]["oom_kills"].as_u64() > Some(0), "{report}");
    assert!(report["usage"]["memory_peak_bytes"].as_u64() <= Some(32 << 20), "{report}");
    host.assert_nothing_left_of(report["id"].as_str().expect("an id"));
}

#[test]
fn the_first_thread_has_its_deadline_from_the_kernel_and_its_children_have_none() {
    let host = Host::new("deadline");
    // Field 41 of a process's status is its policy; 6 is SCHED_DEADLINE.
    let script = "cut -d' ' -f41 /proc/$$/stat; sh -c 'cut -d\" \" -f41 /proc/$$/stat'; true";
    let args =
        ["exec", "--budget", "2ms/100ms", "--deadline", "50ms", "--report", "json", "--", "sh", "-c", script];
    let ran = host.run(&args);
    if host.allows("deadline") && host.allows("quota") {
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "6\n0\n"), "{ran:?}");
        let report: serde_json::Value = serde_json::from_str(&ran.stderr).expect("JSON");
        assert_eq!(report["enforced"][0], "deadline");
        assert_eq!(report["context"]["deadline_ns"], 50_000_000);
        host.assert_nothing_left_of(report["id"].as_str().expect("an id"));
    } else {
        ran.refused(&["rights are missing", "--best-effort"]);
    }
}
