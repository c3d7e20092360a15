use super::ContextTarget;
use super::{ThreadTarget, Workload};
use mainspring_abi::Nanos;
use std::fmt;

/// One condition of an `[[expect]]` table, which a run is held to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// What it is about.
    pub subject: Subject,
    /// What has to hold.
    pub condition: Condition,
    /// The line of its table.
    pub line: usize,
}

/// What something is expected of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The run as a whole.
    Run,
    /// Each of these threads.
    Thread(ThreadTarget),
    /// Each of these contexts.
    Context(ContextTarget),
    /// An endpoint, by its number.
    Endpoint(usize),
}

/// What is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// No more missed deadlines than this.
    Misses(u64),
    /// A response of a thread's jobs, from release to end, at most this long.
    Response(Quantile, Nanos),
    /// A latency from wakeup to running, at most this long.
    Wake(Quantile, Nanos),
    /// A latency from call to reply, at most this long.
    Call(Quantile, Nanos),
    /// A share of one CPU within these limits, in parts per million.
    Share {
        /// The least.
        min_ppm: u32,
        /// The greatest.
        max_ppm: u32,
    },
    /// A lag of at most this much, either way.
    Lag(Nanos),
    /// No more timer interrupts than this, on all CPUs together.
    TimerInterrupts(u64),
}

/// Which of many times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantile {
    /// The median.
    P50,
    /// The 99th percentile.
    P99,
    /// The greatest.
    Max,
}

impl fmt::Display for Quantile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::P50 => "p50",
            Self::P99 => "p99",
            Self::Max => "max",
        })
    }
}

impl Subject {
    /// Its name in `workload`.
    #[must_use]
    pub fn name(&self, workload: &Workload) -> String {
        match *self {
            Self::Run => "the run".to_owned(),
            Self::Thread(ThreadTarget { thread, instance }) => {
                let spec = &workload.threads[thread];
                instance.map_or_else(|| spec.name.clone(), |n| spec.instance_name(n as usize))
            }
            Self::Context(ContextTarget { context, instance }) => {
                let spec = &workload.contexts[context];
                let name = instance.map_or_else(|| spec.name.clone(), |n| spec.instance_name(n as usize));
                format!("context {name}")
            }
            Self::Endpoint(endpoint) => format!("endpoint {}", workload.endpoints[endpoint].name),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |ppm: u32| f64::from(ppm) / 10_000.0;
        match self {
            Self::Misses(0) => f.write_str("no misses"),
            Self::Misses(most) => write!(f, "at most {most} misses"),
            Self::Response(which, most) => write!(f, "response {which} at most {most}"),
            Self::Wake(which, most) => write!(f, "wake latency {which} at most {most}"),
            Self::Call(which, most) => write!(f, "call to reply {which} at most {most}"),
            Self::Share { min_ppm, max_ppm } => {
                write!(f, "share within {}%..{}%", percent(*min_ppm), percent(*max_ppm))
            }
            Self::Lag(most) => write!(f, "|lag| at most {most}"),
            Self::TimerInterrupts(most) => write!(f, "at most {most} timer interrupts"),
        }
    }
}
