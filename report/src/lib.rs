//! What a run reports, on every machine: the data, and how it is shown.
//!
//! [`Report`] is the documented, stable JSON. A machine fills it in; this crate turns it into
//!
//! - [`text`], a table for a terminal,
//! - [`json`] and [`json_to`], the report for programs,
//! - [`perfetto_trace`], a trace of scheduler events for Perfetto's UI and its SQL, and [`perfetto`], a simpler one as JSON,
//! - [`html`], one self-contained page with the timeline and the tables.
//!
//! Every function here is a pure function of the report: the same report gives the same bytes.

mod frame;
mod html;
mod json;
mod model;
mod names;
mod perfetto;
mod sched_trace;
mod text;
mod units;

pub use frame::{ContextFrame, CpuFrame, Frame, LeaseFrame, QueueFrame, ThreadFrame, prometheus};
pub use html::{EVENT_LIMIT, PAGE_LIMIT, html, html_with_limit};
pub use json::{admission_json_to, json, json_to, read_summary, summary};
pub use model::{
    AdmissionCpu, AdmissionProgram, AdmissionReport, AdmissionTask, Config, ContextReport, CpuReport,
    DecidingInterval, EndpointReport, Event, Expected, FirstMiss, IslandReport, Job, JobsReport, LeaseReport,
    Miss, MissKind, MissTrace, RefusedStep, Report, RingReport, ScheduleEntry, StateEntry, States,
    SyncReport, Telemetry, ThreadReport, ThreadState, WakeLatency, Worst,
};
pub use perfetto::{NoSchedule, perfetto};
pub use sched_trace::perfetto_trace;
pub use text::{FOLD_ABOVE, SUMMARISE_ABOVE, TextStyle, admission_text, text};
pub use units::instant;
