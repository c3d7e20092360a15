//! What a machine does at one moment, for people and programs that look on: a frame of `mainspring top`.
//!
//! A frame is the same whether it comes from a live run or from a record that is played back. [`prometheus`] tells it as the
//! text that Prometheus reads.

use serde::{Deserialize, Serialize};
use std::fmt::{self, Write};

/// One moment of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Frame {
    /// Which machine: `sim`, `linux`, `qemu`, or what the process that embeds the runtime calls itself.
    pub machine: String,
    /// What it runs.
    pub workload: String,
    /// When, since its start.
    pub time_ns: u64,
    /// When it ends, if that is known.
    pub end_ns: Option<u64>,
    /// One per CPU or worker.
    pub cpus: Vec<CpuFrame>,
    /// One per thread or task: all that live, or the first ones.
    pub threads: Vec<ThreadFrame>,
    /// How many live.
    pub threads_total: u64,
    /// One per scheduling context that a thread holds.
    pub contexts: Vec<ContextFrame>,
    /// One per isolation lease.
    pub leases: Vec<LeaseFrame>,
    /// One per endpoint or other queue that threads wait at.
    pub queues: Vec<QueueFrame>,
    /// Deadlines missed so far.
    pub misses: u64,
}

/// One CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuFrame {
    /// Its number.
    pub id: u32,
    /// The thread that has it.
    pub running: Option<String>,
    /// Threads that are ready there.
    pub ready: u64,
    /// Time in which it had a thread, so far; `None` if that is not counted.
    pub busy_ns: Option<u64>,
    /// Threads that it took from others.
    pub steals: u64,
}

/// One thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadFrame {
    /// Its name.
    pub name: String,
    /// The table, nursery or tenant that it is of.
    pub group: String,
    /// `runs`, `ready`, `held`, `throttled`, or what it waits for.
    pub state: String,
    /// Where it is.
    pub cpu: Option<u32>,
    /// CPU time that it has had, if that is counted.
    pub runtime_ns: Option<u64>,
    /// Ops that it has used, if those are counted.
    pub ops: Option<u64>,
    /// The longest time from a wakeup to running.
    pub wake_max_ns: Option<u64>,
}

/// One scheduling context.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContextFrame {
    /// Its name.
    pub name: String,
    /// The thread that holds it.
    pub holder: String,
    /// CPU time in each period.
    pub budget_ns: u64,
    /// The period.
    pub period_ns: u64,
    /// What may be used now.
    pub left_ns: u64,
    /// What all its holders have used.
    pub used_ns: u64,
    /// How often it ran out.
    pub depletions: u64,
    /// Whether its holder waits for a refill.
    pub throttled: bool,
}

/// One isolation lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LeaseFrame {
    /// Its name.
    pub name: String,
    /// The CPUs it isolates.
    pub cpus: Vec<u32>,
    /// The thread that has them.
    pub thread: String,
    /// Where it is.
    pub state: String,
}

/// One queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueFrame {
    /// Its name.
    pub name: String,
    /// Callers that wait there for an answer.
    pub waiting: u64,
    /// Servers that wait there for work.
    pub servers_idle: u64,
}

/// A frame as Prometheus reads it.
#[must_use]
pub fn prometheus(frame: &Frame) -> String {
    let mut out = String::new();
    let mut one = |name: &str, kind: &str, help: &str, samples: &[(Vec<(&str, &str)>, u64)]| {
        if samples.is_empty() {
            return;
        }
        let _ = writeln!(out, "# HELP mainspring_{name} {help}\n# TYPE mainspring_{name} {kind}");
        for (labels, value) in samples {
            let labels: Vec<String> =
                labels.iter().map(|(label, value)| format!("{label}=\"{}\"", Escaped(value))).collect();
            let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            let _ = writeln!(out, "mainspring_{name}{labels} {value}");
        }
    };
    let ids: Vec<String> = frame.cpus.iter().map(|cpu| cpu.id.to_string()).collect();
    let cpus = || ids.iter().zip(&frame.cpus);
    one("time_nanoseconds", "gauge", "Time since the start.", &[(vec![], frame.time_ns)]);
    one("threads", "gauge", "Threads that live.", &[(vec![], frame.threads_total)]);
    one("misses_total", "counter", "Deadlines missed.", &[(vec![], frame.misses)]);
    let busy: Vec<_> =
        cpus().filter_map(|(id, cpu)| Some((vec![("cpu", id.as_str())], cpu.busy_ns?))).collect();
    one("cpu_busy_nanoseconds_total", "counter", "Time in which a CPU had a thread.", &busy);
    let ready: Vec<_> = cpus().map(|(id, cpu)| (vec![("cpu", id.as_str())], cpu.ready)).collect();
    one("cpu_ready_threads", "gauge", "Threads that are ready on a CPU.", &ready);
    let steals: Vec<_> = cpus().map(|(id, cpu)| (vec![("cpu", id.as_str())], cpu.steals)).collect();
    one("cpu_steals_total", "counter", "Threads that a CPU took from others.", &steals);
    let threads = |value: fn(&ThreadFrame) -> Option<u64>| -> Vec<_> {
        let labels = |thread: &'_ ThreadFrame| value(thread);
        frame
            .threads
            .iter()
            .filter_map(|thread| {
                Some((vec![("thread", thread.name.as_str()), ("group", &thread.group)], labels(thread)?))
            })
            .collect()
    };
    one(
        "thread_runtime_nanoseconds_total",
        "counter",
        "CPU time that a thread has had.",
        &threads(|t| t.runtime_ns),
    );
    one("thread_ops_total", "counter", "Ops that a task has used.", &threads(|t| t.ops));
    one(
        "thread_wake_latency_max_nanoseconds",
        "gauge",
        "Longest time from a wakeup to running.",
        &threads(|t| t.wake_max_ns),
    );
    let contexts = |value: fn(&ContextFrame) -> u64| -> Vec<_> {
        frame
            .contexts
            .iter()
            .map(|context| (vec![("context", context.name.as_str())], value(context)))
            .collect()
    };
    one(
        "context_budget_nanoseconds",
        "gauge",
        "CPU time of a context in each period.",
        &contexts(|c| c.budget_ns),
    );
    one(
        "context_left_nanoseconds",
        "gauge",
        "CPU time of a context that may be used.",
        &contexts(|c| c.left_ns),
    );
    one(
        "context_used_nanoseconds_total",
        "counter",
        "CPU time of a context that was used.",
        &contexts(|c| c.used_ns),
    );
    one("context_depletions_total", "counter", "How often a context ran out.", &contexts(|c| c.depletions));
    let queues: Vec<_> =
        frame.queues.iter().map(|queue| (vec![("queue", queue.name.as_str())], queue.waiting)).collect();
    one("queue_waiting", "gauge", "Threads that wait at a queue for an answer.", &queues);
    out
}

/// A label's value with what would end it escaped.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_has_a_type_for_each_name_and_escapes_labels() {
        let frame = Frame {
            time_ns: 5,
            cpus: vec![CpuFrame { id: 3, busy_ns: Some(7), ..CpuFrame::default() }],
            threads: vec![ThreadFrame {
                name: "a\"b\\\n".to_owned(),
                runtime_ns: Some(9),
                ..ThreadFrame::default()
            }],
            ..Frame::default()
        };
        let text = prometheus(&frame);
        assert!(text.contains("mainspring_cpu_busy_nanoseconds_total{cpu=\"3\"} 7\n"));
        assert!(text.contains(
            "mainspring_thread_runtime_nanoseconds_total{thread=\"a\\\"b\\\\\\n\",group=\"\"} 9\n"
        ));
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let name = line.split(['{', ' ']).next().expect("a name");
            assert!(text.contains(&format!("# TYPE {name} ")), "{name}");
            assert!(line.rsplit(' ').next().is_some_and(|value| value.parse::<u64>().is_ok()), "{line}");
        }
        assert!(!text.contains("context_"), "what there is none of is not told");
    }
}
