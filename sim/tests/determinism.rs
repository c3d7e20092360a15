//! The same file, the same seed and the same number of CPUs are the same run: the same decisions in the same order.

mod common;

use mainspring_report::Report;
use mainspring_sim::{Options, run};
use mainspring_workload::Workload;
use std::collections::BTreeSet;

fn recorded(workload: &Workload, seed: u64) -> (Report, Vec<u8>) {
    let mut record = Vec::new();
    let options = Options { seed, record: Some(Box::new(&mut record)), ..Options::default() };
    let report = run("same", workload, options).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    (report, record)
}

fn with_cpus(workload: &Workload, cpus: usize) -> Workload {
    let mut workload = workload.clone();
    workload.machine.cpus = cpus;
    workload
}

/// Chance decides about nearly everything here.
const BUSY: &str = r#"
    [machine]
    duration = "200ms"
    [costs]
    ipi = "2us"
    migration = "3us"
    [faults]
    lost_reschedule = "2%"
    late_timer = { chance = "5%", by = "200us" }
    stall = { chance = "1%", for = "300us" }
    burst_every = "7ms"
    exit_every = "30ms"
    [[thread]]
    name = "main"
    program = ["spawn worker", "run 100us..1ms", "sleep 1ms"]
    [[thread]]
    name = "worker"
    start = "spawn"
    count = 9
    program = ["run 50us..2ms", "either 50%", "sleep 10us..1ms", "or", "yield", "end", "call port 3ms"]
    [[thread]]
    name = "server"
    count = 2
    program = ["recv port", "run 10us..400us", "reply"]
"#;

//= SCHED:9.1.1 SCHED:9.3.1
#[test]
fn one_seed_and_number_of_cpus_is_one_run_wherever_it_is_made() {
    let workload = common::workload(BUSY);
    let mut digests = BTreeSet::new();
    for cpus in [2, 3, 5] {
        let workload = with_cpus(&workload, cpus);
        for seed in [1, 2, 3] {
            let (report, record) = recorded(&workload, seed);
            assert!(report.decisions > 100, "{}", report.decisions);
            // In other threads of the host, at the same time, after other runs.
            std::thread::scope(|scope| {
                let again = [(); 3].map(|()| scope.spawn(|| recorded(&workload, seed)));
                for again in again {
                    let (same, same_record) = again.join().expect("no run panics");
                    assert_eq!(same.digest, report.digest, "seed {seed} on {cpus} CPUs");
                    assert!(same_record == record, "seed {seed} on {cpus} CPUs: another record");
                }
            });
            digests.insert(report.digest);
        }
    }
    assert_eq!(digests.len(), 9, "another seed or number of CPUs is another run");
}
