//! What a grant can be made of: quota, cpusets, memory, following a tree, and `SCHED_DEADLINE`.

use super::Finding;
use crate::cgroup::{GroupSet, Hierarchies, NoPlace, Version};
use crate::deadline;
use nix::errno::Errno;
use std::io;

pub(super) fn examine(hierarchies: &Hierarchies) -> Vec<Finding> {
    let mut findings = vec![
        versions(hierarchies),
        controller(hierarchies, "quota", "cpu", "a tree of processes can have a budget"),
        controller(hierarchies, "cpuset", "cpuset", "a tree can be kept to CPUs"),
        controller(hierarchies, "memory", "memory", "a tree's memory can be bounded"),
        tree(hierarchies),
        deadline(),
    ];
    findings.extend(deadline_bandwidth());
    findings
}

fn versions(hierarchies: &Hierarchies) -> Finding {
    let count = |version| hierarchies.iter().filter(|hierarchy| hierarchy.version == version).count();
    let found = match (count(Version::V1), count(Version::V2)) {
        (0, 0) => {
            let advice = "mount cgroup v2: `mount -t cgroup2 none /sys/fs/cgroup`";
            return Finding::missing("cgroup", "no hierarchy is mounted", advice);
        }
        (0, _) => "version 2".to_owned(),
        (v1, 0) => format!("version 1, {v1} hierarchies"),
        (v1, _) => format!("both versions: {v1} v1 hierarchies beside v2"),
    };
    Finding::good("cgroup", found)
}

fn controller(
    hierarchies: &Hierarchies,
    topic: &'static str,
    controller: &'static str,
    gives: &str,
) -> Finding {
    let (groups, missing) = GroupSet::plan(hierarchies, &[controller], "probe");
    match missing.first() {
        Some((_, why @ NoPlace::NoController { .. })) => Finding::missing(topic, why.to_string(), why.help()),
        Some((_, why)) => Finding::missing(topic, why.to_string(), why.help()),
        None => {
            let group = groups.iter().find(|group| group.controllers.iter().any(|name| name == controller));
            let place =
                group.and_then(|group| group.directory.parent()).map(|place| place.display().to_string());
            Finding::good(topic, format!("{gives}, in {}", place.unwrap_or_default()))
        }
    }
}

/// Whether all processes of a tree can be ended at once.
fn tree(hierarchies: &Hierarchies) -> Finding {
    let (groups, _) = GroupSet::plan(hierarchies, &["cpu"], "probe");
    if groups.iter().any(|group| group.version == Version::V2) {
        Finding::good("tree", "a v2 group follows every process of a tree and ends them at once")
    } else if groups.tracks() {
        let advice = "mount cgroup v2 beside v1: `mount -t cgroup2 none /sys/fs/cgroup/unified`";
        Finding::limited("tree", "v1 groups follow a tree; its processes are ended one by one", advice)
    } else {
        let advice = "run as root, or in a delegated group (`systemd-run --user --scope -p Delegate=yes …`)";
        Finding::missing("tree", "no group follows a tree; a program can leave its grant", advice)
    }
}

fn deadline() -> Finding {
    const TOPIC: &str = "deadline";
    match deadline::probe() {
        Ok(()) => Finding::good(TOPIC, "a thread can have SCHED_DEADLINE (tried)"),
        Err(cause) => {
            let (found, advice) = deadline_refusal(&cause);
            Finding::missing(TOPIC, found, advice)
        }
    }
}

/// What a refusal of `SCHED_DEADLINE` means, and what to do about it.
pub(crate) fn deadline_refusal(cause: &io::Error) -> (String, &'static str) {
    match cause.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EPERM) => (
            "SCHED_DEADLINE is not permitted: CAP_SYS_NICE is missing, or this process is pinned to some CPUs".into(),
            "run as root or with CAP_SYS_NICE (`setcap cap_sys_nice+ep` on the program), unpinned (`taskset -p` shows)",
        ),
        Some(Errno::EBUSY) => (
            "the kernel's own admission of SCHED_DEADLINE refuses: its bandwidth is used up".into(),
            "ask for less, or end other deadline threads; `sysctl kernel.sched_rt_runtime_us` is their share",
        ),
        Some(Errno::ENOSYS) => {
            ("this kernel has no SCHED_DEADLINE".into(), "boot Linux 3.14 or later; a sandbox may hide it")
        }
        _ => (
            format!("SCHED_DEADLINE: {cause}"),
            "look for a seccomp filter or a sandbox around this process",
        ),
    }
}

fn deadline_bandwidth() -> Option<Finding> {
    const TOPIC: &str = "deadline-bandwidth";
    let (shortest, longest) = deadline::period_bounds();
    Some(match deadline::bandwidth_ppm() {
        None => Finding::limited(
            TOPIC,
            "deadline threads may take all of every CPU: nothing is left for recovery",
            "`sysctl kernel.sched_rt_runtime_us=950000` keeps 5 % for everybody else",
        ),
        Some(ppm) => Finding::good(
            TOPIC,
            format!(
                "{}.{} % of each CPU, periods from {shortest} to {longest}",
                ppm / 10_000,
                ppm % 10_000 / 1_000
            ),
        ),
    })
}
