//! Admission: will every deadline hold?
//!
//! A set of sporadic tasks on one CPU, scheduled by earliest deadline first, meets all its deadlines if and only if no
//! interval from the moment all are released together holds more work that is due in it than time: the exact
//! processor-demand test (Baruah, Rosier and Howell 1990), walked backwards in few steps (Zhang and Burns 2009).
//! Utilization and density are never the verdict, only a quick acceptance: a total density of at most one is
//! sufficient, not necessary. [`judge_cpu`] adds criticality bands, interrupts and the floor of best effort. Several CPUs
//! are partitioned first and tested one by one; [`survey`] does all of it and says what it found.
//!
//! Every answer is bounded in time by an [`Effort`], and fails closed: what cannot be decided within it is refused, and
//! says so.

mod bands;
mod demand;
mod effort;
mod group;
#[cfg(test)]
mod model;
mod placement;
mod response;
mod survey;
mod walk;

pub use bands::{
    Banded, CpuDenial, CpuVerdict, Interval, Load, Part, judge_cpu, judge_cpu_within, response_bound,
};
pub use demand::{Denial, Task, Verdict, demand, judge};
pub use effort::Effort;
pub use group::overcommitted;
pub use survey::{Candidate, CpuReport, Refusal, Survey, TaskReport, survey};
