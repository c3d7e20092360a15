//! What the workload program says of itself, and the kernel's record cannot know.

use mainspring_report::Report;
use mainspring_workload::Workload;

/// Names of the threads by slot. The first slot is the program's own thread, which starts the others.
pub fn names(workload: &Workload, serial: &[String]) -> Vec<String> {
    let instances = instances(workload);
    let mut names = vec!["(starter)".to_owned()];
    for line in serial {
        let Some(rest) = line.strip_prefix("workload: life ") else { continue };
        if let (Some(instance), Some(slot)) = (field(rest, "instance"), field(rest, "slot"))
            && let Some(name) = instances.get(instance as usize)
        {
            let slot = slot as usize;
            if names.len() <= slot {
                names.resize(slot + 1, String::from("(unknown)"));
            }
            names[slot].clone_from(name);
        }
    }
    names
}

fn instances(workload: &Workload) -> Vec<String> {
    let names = workload
        .threads
        .iter()
        .flat_map(|spec| (0..spec.instances()).map(|number| spec.instance_name(number)));
    names.collect()
}

fn field(line: &str, name: &str) -> Option<u64> {
    line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}

/// What only the program knows: it says so at the end.
pub fn told(workload: &Workload, serial: &[String], report: &mut Report) {
    let instances = instances(workload);
    for line in serial {
        let Some(rest) = line.strip_prefix("workload: stats ") else { continue };
        let instance = field(rest, "instance").and_then(|instance| instances.get(instance as usize));
        let row = instance.and_then(|name| report.threads.iter_mut().find(|row| row.name == *name));
        if let Some(row) = row {
            row.misses = field(rest, "misses").unwrap_or(0);
            row.timeouts = field(rest, "timeouts").unwrap_or(0);
            row.refusals = field(rest, "refusals").unwrap_or(0);
        }
    }
}
