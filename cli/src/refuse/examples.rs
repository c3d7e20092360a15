//! Every workload file of the project: which the kernel refuses although the simulator takes it, and why.

use super::*;
use mainspring_workload::load;
use std::path::PathBuf;

/// What the kernel refuses of the files, by nature: real CPUs neither fail nor slow down on command, and there are so many of them, with
/// tables of so many places. This list may only get shorter.
const REFUSED: [(&str, &str); 7] = [
    ("big-little.toml", "has no counterpart of `speeds` in [machine]"),
    ("every-key.toml", "has no counterpart of [faults]"),
    ("faults.toml", "has no counterpart of [faults]"),
    ("hot-queue.toml", "4096 CPUs; the kernel has room for 16"),
    ("huge.toml", "4096 CPUs; the kernel has room for 16"),
    ("late-timers.toml", "has no counterpart of [faults]"),
    ("speed.toml", "64 CPUs; the kernel has room for 16"),
];

fn files() -> Vec<PathBuf> {
    let root: PathBuf = [env!("CARGO_MANIFEST_DIR"), ".."].iter().collect();
    let folders = [root.join("workloads"), root.join("docs/examples")];
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).expect("the folder exists"));
    let paths = entries.map(|entry| entry.expect("readable").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).collect()
}

#[test]
fn the_kernel_runs_every_file_that_the_simulator_runs_but_those_on_the_list() {
    let mut refused = Vec::new();
    for path in files() {
        let workload = load(&path).unwrap_or_else(|error| panic!("{error}"));
        if on(Machine::Sim, &workload).is_ok()
            && let Err(cannot) = on(Machine::Qemu, &workload)
        {
            let name = path.file_name().expect("a file").to_string_lossy().into_owned();
            refused.push((name, cannot.to_string()));
        }
    }
    refused.sort();
    let names: Vec<&str> = refused.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, REFUSED.map(|(name, _)| name), "{refused:#?}");
    for ((name, why), (_, reason)) in refused.iter().zip(REFUSED) {
        assert!(why.contains(reason), "{name}: {why}");
    }
}

/// Without the tables and keys that only a simulator can have, the file with every key there is runs on the kernel.
#[test]
fn the_kernel_has_every_key_but_faults_and_the_pace_of_cpus() {
    let root: PathBuf = [env!("CARGO_MANIFEST_DIR"), ".."].iter().collect();
    let text = std::fs::read_to_string(root.join("docs/examples/every-key.toml")).expect("readable");
    let paced = |line: &&str| !line.starts_with("speeds") && !line.starts_with("smt");
    let (before, faults) = text.split_once("[faults]\n").expect("it has faults");
    let (_, after) = faults.split_once("\n\n").expect("and other tables");
    let kept: Vec<&str> = before.lines().chain(after.lines()).filter(paced).collect();
    let workload = mainspring_workload::parse("every-key.toml", &kept.join("\n"));
    let workload = workload.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(on(Machine::Qemu, &workload), Ok(()));
}
