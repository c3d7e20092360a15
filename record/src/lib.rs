//! Flight records on the host: what every machine's runs leave behind, and everything that can be learnt from it.
//!
//! * [`mod@file`] reads and writes record files; [`log`] joins the records of a machine's CPUs.
//! * [`replay`] makes every decision of a record again. It is the only replay loop: [`report`], [`verify`] and [`explain`]
//!   look on while it runs.
//! * [`states`] follows what threads do while they do not run.
//! * [`playback`] shows what a machine did at any moment, [`follow`] what one does whose record is still being made.
//! * [`jobs`] keeps account of periods: what was released when, and what was late.
//! * [`terms`] counts what could have been used of a context.
//! * [`check`] judges every event from outside, live through [`watch`] or from a record.
//!
//! Conserved: whatever comes out of here comes from a replay without a difference.

pub mod check;
pub mod diff;
pub mod digest;
pub mod explain;
pub mod file;
pub mod follow;
pub mod jobs;
mod latency;
pub mod log;
pub mod playback;
pub mod replay;
pub mod report;
pub mod sections;
pub mod states;
pub mod terms;
pub mod verify;
mod view;
pub mod watch;

pub use latency::Latencies;
pub use log::{Entry, Log};
pub use replay::{ReplayError, Violation};
