//! Workers on reservations of the host's kernel: held by the kernel's own word where this process has the rights, and best effort
//! that says so where it has not.

use mainspring::reserve::{Enforcement, NotReserved};
use mainspring::{Config, ConfigError, HostReservation, HostStanding, Profile, Runtime};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn runtime(reservation: HostReservation) -> Runtime {
    Config::new(Profile::Service).workers(2).reserve(reservation).build().unwrap()
}

/// One file of `/proc` of the threads of two workers. A thread that was joined may be listed for a while, so it waits until there are two.
fn of_workers(file: &str) -> Vec<String> {
    for _ in 0..1000 {
        let found = of_listed_workers(file);
        if found.len() == 2 {
            return found;
        }
        std::thread::sleep(ms(5));
    }
    of_listed_workers(file)
}

fn of_listed_workers(file: &str) -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let is_worker = |path: &std::path::PathBuf| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|name| {
            name.trim().strip_prefix("mainspring-").is_some_and(|number| number.parse::<usize>().is_ok())
        })
    };
    tasks.filter(is_worker).filter_map(|path| std::fs::read_to_string(path.join(file)).ok()).collect()
}

/// The policies of the workers' threads, as the kernel has them: field 41 of `stat`.
fn policies() -> Vec<String> {
    let policy =
        |stat: String| stat.rsplit(')').next().unwrap().split_whitespace().nth(38).unwrap().to_owned();
    of_workers("stat").into_iter().map(policy).collect()
}

/// The tests share the names of workers' threads: one at a time.
static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
fn every_worker_is_under_deadline_or_none_is_and_it_says_which() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let small = runtime(HostReservation::Deadline { budget: ms(1), period: ms(100) });
    match small.host_standing() {
        HostStanding::Held(Enforcement::Deadline) => assert_eq!(policies(), ["6", "6"]),
        HostStanding::BestEffort(why) => {
            assert_eq!(policies(), ["0", "0"], "none is: {why}");
            assert!(!why.to_string().is_empty());
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(small.run(|_| 7).unwrap(), 7, "tasks run either way, and may start threads");
    assert_eq!(small.run(|_| std::thread::spawn(|| 8).join().unwrap()).unwrap(), 8);
    drop(small);
    // More than the kernel gives to all of them together: the first of the two may fit, and is taken back.
    let whole = runtime(HostReservation::Deadline { budget: ms(100), period: ms(100) });
    let HostStanding::BestEffort(why) = whole.host_standing() else { panic!("{:?}", whole.host_standing()) };
    assert!(matches!(why, NotReserved::NoBandwidth | NotReserved::DeadlineNotPermitted), "{why}");
    assert_eq!(policies(), ["0", "0"]);
    assert_eq!(whole.run(|_| 9).unwrap(), 9);
}

#[test]
fn a_quota_holds_all_workers_together_and_its_group_goes_with_the_runtime() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let held = runtime(HostReservation::Quota { budget: ms(5), period: ms(50) });
    let group = match held.host_standing() {
        HostStanding::Held(Enforcement::Quota(group)) => group,
        HostStanding::BestEffort(why) => {
            assert!(matches!(why, NotReserved::NoController | NotReserved::GroupNotWritable(_)), "{why}");
            assert_eq!(held.run(|_| 7).unwrap(), 7);
            return;
        }
        other => panic!("{other:?}"),
    };
    let name = group.file_name().unwrap().to_str().unwrap();
    let groups = of_workers("cgroup");
    assert!(groups.len() == 2 && groups.iter().all(|list| list.contains(name)), "{groups:?}");
    // They compute until the kernel has held them back, which only happens to a group that used its quota up.
    let throttled = || {
        let stat = std::fs::read_to_string(group.join("cpu.stat")).unwrap();
        stat.lines().any(|line| line.strip_prefix("nr_throttled ").is_some_and(|count| count != "0"))
    };
    held.run(|cx| {
        cx.nursery(|n| {
            for _ in 0..2 {
                n.start(|cx| {
                    while !throttled() {
                        (0..10_000).for_each(|_| cx.check());
                    }
                })
                .unwrap();
            }
        })
    })
    .unwrap()
    .unwrap();
    let beside = runtime(HostReservation::Quota { budget: ms(5), period: ms(50) });
    assert!(matches!(beside.host_standing(), HostStanding::Held(_)), "two runtimes have a group each");
    drop((held, beside));
    assert!(!group.exists(), "nothing is left behind");
}

#[test]
fn a_group_whose_process_was_killed_is_removed_by_the_next() {
    const CHILD: &str = "MAINSPRING_TEST_KILLED";
    let quota = HostReservation::Quota { budget: ms(5), period: ms(50) };
    if std::env::var_os(CHILD).is_some() {
        let held = runtime(quota);
        if let HostStanding::Held(Enforcement::Quota(group)) = held.host_standing() {
            println!("group={}", group.display());
        }
        // Not by a way on which anything could be cleaned up.
        std::process::abort();
    }
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let this = std::env::current_exe().unwrap();
    let name = "a_group_whose_process_was_killed_is_removed_by_the_next";
    let child = Command::new(this).args(["--exact", name, "--nocapture"]).env(CHILD, "1").output().unwrap();
    let told = String::from_utf8_lossy(&child.stdout).into_owned();
    let Some(group) = told.lines().find_map(|line| line.split("group=").nth(1)) else {
        // Without the rights there is no group, which the test above looks at.
        return;
    };
    assert!(Path::new(group).exists(), "it was left behind");
    let next = runtime(quota);
    assert!(!Path::new(group).exists(), "the next has removed it");
    drop(next);
}

#[test]
fn without_the_rights_it_is_best_effort_and_says_why() {
    const CHILD: &str = "MAINSPRING_TEST_NOBODY";
    if std::env::var_os(CHILD).is_some() {
        let deadline = runtime(HostReservation::Deadline { budget: ms(1), period: ms(100) });
        assert_eq!(deadline.host_standing(), HostStanding::BestEffort(NotReserved::DeadlineNotPermitted));
        assert_eq!(deadline.run(|_| 7).unwrap(), 7);
        let quota = runtime(HostReservation::Quota { budget: ms(5), period: ms(50) });
        assert!(matches!(quota.host_standing(), HostStanding::BestEffort(_)), "{:?}", quota.host_standing());
        println!("best effort");
        return;
    }
    // A copy where anybody can run it.
    let place = std::env::temp_dir().join(format!("mainspring-reserve-{}", std::process::id()));
    std::fs::copy(std::env::current_exe().unwrap(), &place).unwrap();
    let mut child = Command::new(&place);
    child
        .args(["--exact", "without_the_rights_it_is_best_effort_and_says_why", "--nocapture"])
        .env(CHILD, "1");
    // SAFETY of the host: as nobody, if this process may become that; otherwise it has no rights in any case.
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|meta| {
        use std::os::unix::fs::MetadataExt;
        meta.uid() == 0
    });
    if is_root {
        child.uid(65_534).gid(65_534);
    }
    // A thread of this process that forks meanwhile may have the copy open for a moment.
    let told = loop {
        match child.output() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
            told => break told,
        }
    };
    std::fs::remove_file(&place).unwrap();
    let told = told.unwrap();
    let out = String::from_utf8_lossy(&told.stdout);
    assert!(
        told.status.success() && out.contains("best effort"),
        "{out}{}",
        String::from_utf8_lossy(&told.stderr)
    );
}

#[test]
fn what_no_kernel_could_hold_is_refused_and_virtual_workers_have_nothing_to_reserve() {
    let build = |reservation| Config::new(Profile::Service).workers(1).reserve(reservation).build();
    for (budget, period) in [(ms(2), ms(1)), (Duration::ZERO, ms(1))] {
        assert!(matches!(build(HostReservation::Deadline { budget, period }), Err(ConfigError::Reservation)));
    }
    for (budget, period) in [(ms(1), ms(2_000)), (Duration::from_micros(10), ms(10)), (ms(1), Duration::ZERO)]
    {
        assert!(matches!(build(HostReservation::Quota { budget, period }), Err(ConfigError::Reservation)));
    }
    let plain = Config::new(Profile::Service).workers(1).build().unwrap();
    assert_eq!(plain.host_standing(), HostStanding::NotAsked);
    let quota = HostReservation::Quota { budget: ms(5), period: ms(50) };
    let lock_step = Config::new(Profile::Service).deterministic_seed(1).reserve(quota).build().unwrap();
    assert_eq!(lock_step.host_standing(), HostStanding::BestEffort(NotReserved::Virtual));
}
