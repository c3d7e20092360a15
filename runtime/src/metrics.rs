//! Counters of a runtime, as a value and as text for Prometheus.

use crate::budget::{Component, Pool};
use crate::calls;
use crate::histogram::Durations;
use crate::runtime::{Runtime, WorkerStats};
use std::fmt::{self, Write};

/// What a runtime has done, and what it has: [`Runtime::metrics`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Metrics {
    /// Each worker's counters.
    pub workers: Vec<WorkerStats>,
    /// Tasks that have not ended.
    pub tasks: usize,
    /// Nurseries that are open.
    pub nurseries: usize,
    /// Stacks that were ever used.
    pub stacks: usize,
    /// Bytes of all task records.
    pub record_bytes: usize,
    /// What is left of the root pool.
    pub root_pool: Pool,
    /// From one switch to the next on a worker, one in about 256.
    pub yield_gap: Durations,
    /// From the first attempt of a round to the stolen task.
    pub steal_latency: Durations,
    /// From a wake on a worker to the task's run there, one in about 256.
    pub wake_latency: Durations,
}

impl Runtime {
    /// Counters of the workers, and how much there is of what they work on. It takes a snapshot: for every few seconds, not for
    /// every request.
    ///
    /// ```
    /// # use mainspring::{Config, Profile};
    /// let runtime = Config::new(Profile::Service).workers(2).build().unwrap();
    /// let text = runtime.metrics().prometheus();
    /// assert!(text.contains("mainspring_worker_parks_total{worker=\"1\"}"));
    /// ```
    pub fn metrics(&self) -> Metrics {
        calls::count_poll();
        let snapshot = self.snapshot();
        Metrics {
            workers: self.worker_stats(),
            tasks: snapshot.tasks.len(),
            nurseries: snapshot.nurseries.len(),
            stacks: snapshot.stacks,
            record_bytes: snapshot.record_bytes,
            root_pool: self.root_pool(),
            yield_gap: snapshot.yield_gap,
            steal_latency: snapshot.steal_latency,
            wake_latency: snapshot.wake_latency,
        }
    }
}

type Counter = (&'static str, &'static str, fn(&WorkerStats) -> u64);

const COUNTERS: [Counter; 6] = [
    ("tasks_spawned", "Tasks spawned by tasks, as of the worker's last look at the clock.", |worker| {
        worker.tasks_spawned
    }),
    ("tasks_stolen", "Tasks taken from other workers.", |worker| worker.tasks_stolen),
    ("steals_failed", "Attempts to steal that came to nothing.", |worker| worker.steals_failed),
    ("tasks_cancelled", "Tasks that ended as cancelled.", |worker| worker.tasks_cancelled),
    ("parks", "Times that the worker had nothing to do and slept.", |worker| worker.parks),
    ("deaths", "Times that the worker died and was started again.", |worker| worker.deaths),
];

impl Metrics {
    /// The text format of Prometheus, version 0.0.4.
    pub fn prometheus(&self) -> String {
        let mut text = String::new();
        self.write(&mut text).expect("a string takes all");
        text
    }

    fn write(&self, text: &mut String) -> fmt::Result {
        for (name, help, value) in COUNTERS {
            writeln!(text, "# HELP mainspring_worker_{name}_total {help}")?;
            writeln!(text, "# TYPE mainspring_worker_{name}_total counter")?;
            for (worker, stats) in self.workers.iter().enumerate() {
                writeln!(text, "mainspring_worker_{name}_total{{worker=\"{worker}\"}} {}", value(stats))?;
            }
        }
        let gauges = [
            ("tasks", "Tasks that have not ended.", self.tasks),
            ("nurseries", "Nurseries that are open.", self.nurseries),
            ("stacks", "Stacks that were ever used.", self.stacks),
            ("task_record_bytes", "Bytes of all task records.", self.record_bytes),
        ];
        for (name, help, value) in gauges {
            writeln!(text, "# HELP mainspring_{name} {help}\n# TYPE mainspring_{name} gauge")?;
            writeln!(text, "mainspring_{name} {value}")?;
        }
        writeln!(text, "# HELP mainspring_root_pool What is left of the root pool.")?;
        writeln!(text, "# TYPE mainspring_root_pool gauge")?;
        for component in Component::ALL {
            let left = self.root_pool.get(component);
            writeln!(text, "mainspring_root_pool{{component=\"{component}\"}} {left}")?;
        }
        let durations = [
            ("yield_gap", "From one switch to the next on a worker, sampled.", &self.yield_gap),
            ("steal_latency", "From the first attempt to steal to the stolen task.", &self.steal_latency),
            ("wake_latency", "From a wake on a worker to the run there, sampled.", &self.wake_latency),
        ];
        for (name, help, durations) in durations {
            writeln!(text, "# HELP mainspring_{name}_seconds {help} Within a factor of two.")?;
            writeln!(text, "# TYPE mainspring_{name}_seconds gauge")?;
            for share in [0.5, 0.9, 0.99] {
                if let Some(below) = durations.quantile(share) {
                    let seconds = below.as_secs_f64();
                    writeln!(text, "mainspring_{name}_seconds{{quantile=\"{share}\"}} {seconds}")?;
                }
            }
        }
        Ok(())
    }
}
