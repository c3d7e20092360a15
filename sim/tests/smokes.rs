//! The smokes of the simulated machine, on one CPU and on many: each with all checkers, recorded and replayed.

mod common;

use common::{checked, thread, workload};
use mainspring_record::check::Bound;
use mainspring_report::Report;

const MS: u64 = 1_000_000;

fn on(cpus: usize, duration: &str, rest: &str) -> Report {
    let text = format!("[machine]\ncpus = {cpus}\nduration = \"{duration}\"\n{rest}");
    checked(&workload(&text), 1, Bound::None).report
}

/// Work that can be divided: `threads` of them share 96 ms. When the last of them is done.
fn scale(cpus: usize, threads: u64) -> (u64, String) {
    let report = on(
        cpus,
        "200ms",
        &format!(
            "[[thread]]\nname = \"parent\"\ntimes = 1\nprogram = [{} \"join worker\", \"run 1us\"]\n\
             [[thread]]\nname = \"worker\"\nstart = \"spawn\"\ncount = {threads}\ntimes = 1\nprogram = [\"run {}ms\"]\n",
            "\"spawn worker\", ".repeat(threads as usize),
            96 / threads,
        ),
    );
    let ends = report.schedule.iter().flatten().filter(|entry| entry.thread.starts_with("worker"));
    (ends.map(|entry| entry.end_ns).max().unwrap_or(0), report.digest)
}

//= EVO:gate.percpu
#[test]
fn a_thread_is_spawned_joined_parked_and_ended_on_any_number_of_cpus() {
    for cpus in [1, 2, 4, 8] {
        let report = on(
            cpus,
            "100ms",
            r#"
            [[ring]]
            name = "disk"
            owner = "app"
            entries = 4
            cost = "10us"
            [[thread]]
            name = "main"
            times = 5
            program = ["spawn child", "spawn child", "join child 50ms", "unpark parker", "run 100us"]
            [[thread]]
            name = "child"
            start = "spawn"
            count = 2
            times = 1
            program = ["run 1ms", "exit"]
            [[thread]]
            name = "parker"
            program = ["park", "run 10us"]
            [[thread]]
            name = "app"
            times = 4
            program = ["submit disk 4", "complete disk 4", "sleep 1ms"]
            [[thread]]
            name = "caller"
            times = 10
            program = ["call port", "run 10us"]
            [[thread]]
            name = "server"
            program = ["recv port", "run 20us", "reply"]
            [[thread]]
            name = "killed"
            program = ["run 100us", "sleep 100us"]
            [[at]]
            time = "20ms"
            do = "exit killed"
            "#,
        );
        let runtime = |name: &str| thread(&report, name).runtime_ns;
        assert_eq!(runtime("main"), 500_000, "{cpus} CPUs: five rounds, each after its children");
        assert!(runtime("child.0") >= MS && runtime("child.1") >= MS, "{cpus} CPUs");
        assert_eq!(thread(&report, "parker").wakeups, 5, "{cpus} CPUs");
        assert_eq!((report.rings[0].submitted, report.rings[0].completed), (16, 16), "{cpus} CPUs");
        assert_eq!((runtime("caller"), runtime("server")), (100_000, 200_000), "{cpus} CPUs");
        let last = report
            .schedule
            .iter()
            .flatten()
            .filter(|entry| entry.thread == "killed")
            .map(|entry| entry.end_ns);
        assert!(last.max().is_some_and(|end| end <= 20 * MS), "{cpus} CPUs: it ran after its end");
    }
}

//= EVO:gate.percpu
#[test]
fn divided_work_takes_as_much_less_time_as_there_are_cpus_in_every_run() {
    for threads in [1, 2, 4, 8] {
        let (done, digest) = scale(8, threads);
        assert!((96 * MS / threads..=96 * MS / threads + MS).contains(&done), "{threads} threads: {done}ns");
        assert_eq!(scale(8, threads), (done, digest), "a second run is the same");
    }
    assert!(scale(2, 8).0 >= 48 * MS, "two CPUs do no more than two CPUs can");
}
