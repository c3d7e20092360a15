//! What a run reports, on every machine: the data, and how it is shown.
//!
//! [`Report`] is the documented, stable JSON. A machine fills it in; this crate turns it into the text table, the
//! self-contained HTML page and the Perfetto trace.

mod model;

pub use model::{Config, CpuReport, Report, ScheduleEntry, Telemetry, ThreadReport, WakeLatency};
