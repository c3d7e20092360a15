//! A recording as a workload file.
//!
//! Each thread is a table whose program is what it did, once. A wait that another thread ended is a `park`, and that thread's
//! program has the `unpark` where the wakeup was; a park ends by itself after four times as long as it was recorded, so that a
//! wakeup that comes too early for it (an unpark is remembered once) stops nothing. Any other wait is a `sleep` as long as recorded.

use crate::error::ImportError;
use crate::events::Waker;
use crate::timeline::{Act, Thread, Timelines};
use std::collections::{HashMap, HashSet};
use std::fmt::Write;

/// The size that a workload file may have.
const MOST_BYTES: usize = 16 << 20;
/// The longest run.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Linux's weights by nice value, from -20 to 19 (`sched_prio_to_weight`).
const WEIGHTS: [u32; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904, 3906, 3121,
    2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87, 70, 56, 45, 36, 29,
    23, 18, 15,
];

/// What a thread of that kernel priority weighs here, where nice 0 weighs 64.
pub(crate) fn weight(prio: i32) -> u32 {
    match usize::try_from(prio.saturating_sub(100)) {
        Ok(nice) => ((WEIGHTS[nice.min(39)] + 8) / 16).max(1),
        Err(_) => 65_535,
    }
}

/// The name of each thread in the workload, by its number.
pub(crate) fn names(timelines: &Timelines) -> HashMap<u32, String> {
    let mut taken = HashSet::new();
    let name = |thread: &Thread| {
        let plain: String =
            thread.comm.chars().map(|c| if c.is_alphanumeric() || c == '_' { c } else { '-' }).collect();
        let plain = plain.trim_matches('-');
        let plain = if plain.is_empty() { "thread" } else { plain };
        format!("{plain}-{}", thread.tid)
    };
    let mut of = |thread: &Thread| {
        let mut name = name(thread);
        while !taken.insert(name.clone()) {
            name.push('x');
        }
        (thread.tid, name)
    };
    timelines.threads.iter().map(&mut of).collect()
}

/// The workload file of a recording; `source` says in its heading what it was made of.
pub fn to_workload(timelines: &Timelines, source: &str) -> Result<String, ImportError> {
    if timelines.duration_ns > LONGEST_NS {
        return Err(ImportError::TooMuch { what: "nanoseconds", most: LONGEST_NS });
    }
    let names = names(timelines);
    let busy: HashSet<u32> =
        timelines.threads.iter().filter(|thread| thread.cpu_ns > 0).map(|thread| thread.tid).collect();
    if busy.is_empty() {
        return Err(ImportError::NoEvents);
    }
    let mut out = String::new();
    let source: String = source.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    let _ = writeln!(out, "# Made by `mainspring import` of {source}: {} threads that ran.", busy.len());
    let _ = writeln!(out, "[machine]\ncpus = {}\ntick = \"4ms\"", timelines.cpus.max(1));
    let _ = writeln!(out, "duration = \"{}ns\"", timelines.duration_ns.max(1_000));
    for thread in timelines.threads.iter().filter(|thread| busy.contains(&thread.tid)) {
        table(thread, &names, &busy, &mut out);
        if out.len() > MOST_BYTES {
            return Err(ImportError::TooMuch { what: "bytes in a workload file", most: MOST_BYTES as u64 });
        }
    }
    Ok(out)
}

fn table(thread: &Thread, names: &HashMap<u32, String>, busy: &HashSet<u32>, out: &mut String) {
    let _ = write!(out, "\n[[thread]]\nname = \"{}\"\ntimes = 1\n", names[&thread.tid]);
    if weight(thread.prio) != 64 {
        let _ = writeln!(out, "weight = {}", weight(thread.prio));
    }
    if thread.prio < 100 {
        out.push_str("latency = \"interactive\"\n");
    }
    if let Some(cpu) = bound_to(thread) {
        let _ = writeln!(out, "cpus = [{cpu}]");
    }
    if thread.start_ns > 0 {
        let _ = writeln!(out, "start = \"{}ns\"", thread.start_ns);
    }
    out.push_str("program = [\n");
    for act in &thread.acts {
        let _ = match act {
            Act::Run(ns) => writeln!(out, "  \"run {ns}ns\","),
            Act::Wake(who) if busy.contains(who) => writeln!(out, "  \"unpark {}\",", names[who]),
            Act::Wake(_) => Ok(()),
            Act::Wait { ns, by: Waker::Thread(by) } if busy.contains(by) => {
                writeln!(out, "  \"park {}ns\",", ns.saturating_mul(4).clamp(1_000_000, LONGEST_NS))
            }
            Act::Wait { ns, .. } => writeln!(out, "  \"sleep {}ns\",", (*ns).max(1)),
        };
    }
    out.push_str("]\n");
}

/// Threads of the kernel that belong to one CPU have its number in their name: `ksoftirqd/1`, `kworker/1:0H`.
fn bound_to(thread: &Thread) -> Option<u32> {
    let (name, number) = thread.comm.split_once('/')?;
    let number = number.split(':').next()?;
    let cpu = number.parse().ok()?;
    let of_kernel =
        ["migration", "ksoftirqd", "kworker", "cpuhp", "idle_inject", "irq_work", "rcuc", "ktimers"]
            .contains(&name);
    (of_kernel && thread.cpus == [cpu]).then_some(cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_linuxs_in_the_same_proportion() {
        assert_eq!([weight(120), weight(100), weight(139), weight(125)], [64, 5548, 1, 21]);
        assert_eq!([weight(0), weight(-1), weight(99)], [65_535; 3], "realtime");
        assert_eq!(weight(i32::MAX), 1);
    }
}
