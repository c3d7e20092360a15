//! CPUs: which there are, and what disturbs a program on them.

use super::{Finding, read};
use crate::parse_cpu_list;
use std::collections::BTreeSet;
use std::path::Path;

pub(super) fn examine(cpus: &Path) -> Vec<Finding> {
    let online = read(cpus.join("online")).unwrap_or_default();
    vec![
        online_cpus(&online),
        list(
            "nohz-full",
            read(cpus.join("nohz_full")).as_deref(),
            "no CPU can run a program without a tick",
            "run without a tick when they have one thread",
            "boot with `nohz_full=LIST rcu_nocbs=LIST` for CPUs that one thread is to have to itself",
        ),
        list(
            "isolcpus",
            read(cpus.join("isolated")).as_deref(),
            "no CPU is kept free of other programs",
            "are left alone by the kernel's load balancing",
            "boot with `isolcpus=LIST`, or use `mainspring exec --cpus`, which keeps one program in but not others out",
        ),
        governor(cpus, &online),
        idle_states(cpus),
    ]
}

fn online_cpus(online: &str) -> Finding {
    match parse_cpu_list(online) {
        Ok(set) => Finding::good("cpus", format!("{} online: {online}", set.len())),
        Err(_) => Finding::missing("cpus", "which CPUs are online is not told", "mount /sys"),
    }
}

fn list(topic: &'static str, list: Option<&str>, none: &str, some: &str, advice: &str) -> Finding {
    match list.filter(|list| parse_cpu_list(list).is_ok()) {
        Some(list) => Finding::good(topic, format!("CPUs {list} {some}")),
        None => Finding::limited(topic, none, advice),
    }
}

/// How the frequency of CPUs is chosen: anything but full speed makes a budget in time worth less work.
fn governor(cpus: &Path, online: &str) -> Finding {
    const TOPIC: &str = "governor";
    let online = parse_cpu_list(online).unwrap_or(mainspring_abi::CpuSet::EMPTY);
    let governors: BTreeSet<String> = online
        .iter()
        .filter_map(|cpu| read(cpus.join(format!("cpu{cpu}/cpufreq/scaling_governor"))))
        .collect();
    if governors.is_empty() {
        return Finding::good(
            TOPIC,
            "the kernel does not change the CPUs' frequency (a virtual machine, or fixed)",
        );
    }
    let names = governors.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    if governors.iter().all(|name| name == "performance") {
        Finding::good(TOPIC, names)
    } else {
        Finding::limited(
            TOPIC,
            format!("{names}: a millisecond is worth less work at a lower frequency"),
            "`cpupower frequency-set -g performance`",
        )
    }
}

fn idle_states(cpus: &Path) -> Finding {
    const TOPIC: &str = "idle";
    let driver = read(cpus.join("cpuidle/current_driver")).filter(|driver| driver != "none");
    match driver {
        None => Finding::good(TOPIC, "no deep idle states"),
        Some(driver) if driver == "haltpoll" => {
            Finding::good(TOPIC, "haltpoll: a virtual CPU polls before it halts")
        }
        Some(driver) => Finding::limited(
            TOPIC,
            format!("{driver}: waking from deep states takes time"),
            "hold /dev/cpu_dma_latency open with 0 written to it, or `cpupower idle-set -D 10`",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;
    use std::fs;

    #[test]
    fn a_host_is_judged_by_its_files() {
        let root = std::env::temp_dir().join(format!("mainspring-host-{}-cpus", std::process::id()));
        fs::create_dir_all(root.join("cpu0/cpufreq")).expect("a folder");
        fs::write(root.join("online"), "0-3\n").expect("a file");
        fs::write(root.join("isolated"), "\n").expect("a file");
        fs::write(root.join("nohz_full"), "2-3\n").expect("a file");
        fs::write(root.join("cpu0/cpufreq/scaling_governor"), "powersave\n").expect("a file");
        let findings = examine(&root);
        fs::remove_dir_all(&root).expect("cleaned");
        let of = |topic: &str| findings.iter().find(|finding| finding.topic == topic).expect("a finding");
        assert_eq!(of("cpus").found, "4 online: 0-3");
        assert_eq!(of("nohz-full").status, Status::Good);
        assert_eq!(of("isolcpus").status, Status::Limited);
        assert_eq!(of("governor").status, Status::Limited);
        assert!(findings.iter().all(|f| (f.status == Status::Good) == f.advice.is_none()), "{findings:?}");
    }
}
