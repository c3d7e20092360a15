//! What a process and a runtime hold at a moment, and whether it has grown.

use mainspring::Runtime;
use std::fmt;

/// What is held at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Holds {
    rss_kib: u64,
    descriptors: usize,
    threads: usize,
    tasks: usize,
    nurseries: usize,
    stacks: usize,
    record_kib: usize,
}

impl Holds {
    /// Now.
    pub fn now(runtime: &Runtime) -> Self {
        let snapshot = runtime.snapshot();
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let rss_kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0);
        let count = |folder| std::fs::read_dir(folder).map_or(0, Iterator::count);
        Self {
            rss_kib,
            descriptors: count("/proc/self/fd"),
            threads: count("/proc/self/task"),
            tasks: snapshot.tasks.len(),
            nurseries: snapshot.nurseries.len(),
            stacks: snapshot.stacks,
            record_kib: snapshot.record_bytes / 1024,
        }
    }

    /// Whether `later` holds more than can be put down to chance. Connections and tasks come and go, so a few of each may
    /// differ; what leaks with each connection or round grows without end.
    pub fn grown(&self, later: &Self) -> Result<(), String> {
        // Valgrind's own memory is part of what is resident, and grows with what it has seen.
        let is_watched = std::env::var("LD_PRELOAD").is_ok_and(|libraries| libraries.contains("vgpreload"));
        let chance_kib = if is_watched { 1 << 30 } else { 16 << 10 };
        let rows = [
            ("memory in KiB", self.rss_kib, later.rss_kib, chance_kib),
            ("descriptors", self.descriptors as u64, later.descriptors as u64, 64),
            // The pool of blocking threads may fill up, once.
            ("threads", self.threads as u64, later.threads as u64, 64),
            ("tasks", self.tasks as u64, later.tasks as u64, 256),
            ("nurseries", self.nurseries as u64, later.nurseries as u64, 256),
            ("stacks", self.stacks as u64, later.stacks as u64, 256),
            // Each of the two workers keeps up to 8,192 free records of 256 bytes, and has them after a while.
            ("task records in KiB", self.record_kib as u64, later.record_kib as u64, 2 * 2048),
        ];
        let grown: Vec<String> = rows
            .iter()
            .filter(|(_, before, after, chance)| *after > before + chance)
            .map(|(what, before, after, _)| format!("{what}: from {before} to {after}"))
            .collect();
        if grown.is_empty() { Ok(()) } else { Err(format!("it grew: {}", grown.join(", "))) }
    }
}

impl fmt::Display for Holds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} KiB, {} descriptors, {} threads, {} tasks, {} nurseries, {} stacks, {} KiB of task records",
            self.rss_kib,
            self.descriptors,
            self.threads,
            self.tasks,
            self.nurseries,
            self.stacks,
            self.record_kib
        )
    }
}
