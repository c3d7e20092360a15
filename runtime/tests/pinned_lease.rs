//! What a lease does to the threads of the process, in a process of its own: every thread of the process leaves the CPU.
#![allow(unsafe_code)]

use mainspring::{Config, CpuId, FairTaskSettings, LeaseRequest, Profile};
use std::time::Duration;

/// The CPUs that the thread of this process with that name may use, as `/proc` lists them.
fn mask(name: &str) -> Option<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let of = |task: std::io::Result<std::fs::DirEntry>| {
        let path = task.unwrap().path();
        let comm = std::fs::read_to_string(path.join("comm")).ok()?;
        let status = std::fs::read_to_string(path.join("status")).ok()?;
        let line = status.lines().find(|line| line.starts_with("Cpus_allowed_list:"))?.to_owned();
        (comm.trim() == name).then(|| line.split_whitespace().nth(1).unwrap_or_default().to_owned())
    };
    tasks.filter_map(of).next()
}

#[test]
fn the_hosts_cpu_of_a_leased_worker_is_left_by_the_process() {
    let settings = FairTaskSettings { leases: 1, ..FairTaskSettings::default() };
    let config = Config::new(Profile::Cluster).workers(2).fair_by_task(settings);
    // SAFETY: the one task here sleeps, and uses no thread-local.
    let runtime = unsafe { config.migrate_started_tasks() }.build().unwrap();
    // The workers have started.
    runtime.run(|cx| cx.sleep(Duration::from_millis(5))).unwrap();
    while mask("mainspring-1").is_none() {
        std::thread::yield_now();
    }
    let all = || ["mainspring-0", "mainspring-1"].map(mask);
    let (before, idle) = (all(), std::thread::spawn(std::thread::park));
    let lease = runtime.lease(LeaseRequest::new(3, [CpuId::new(1).unwrap()].into_iter().collect())).unwrap();
    let cpus = lease.host_cpus();
    let single = before[0].as_deref().is_some_and(|list| list.parse::<usize>().is_ok());
    if single {
        assert!(cpus.is_empty(), "there is none to spare");
    } else {
        let [cpu] = cpus[..] else { panic!("one worker, one CPU: {cpus:?}") };
        assert_eq!(mask("mainspring-1"), Some(cpu.to_string()), "it is pinned");
        assert_ne!(mask("mainspring-0"), before[0], "the other worker has left it");
        let this = std::thread::current();
        assert_ne!(
            mask(this.name().unwrap_or_default().get(..15).unwrap_or_default()),
            before[0],
            "and so has this thread"
        );
    }
    lease.revoke().unwrap();
    assert!(lease.host_cpus().is_empty());
    assert_eq!(all(), before, "as it was before");
    idle.thread().unpark();
    idle.join().unwrap();
}
