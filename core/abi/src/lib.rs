//! What every Mainspring machine agrees on: identities, units and sets, as newtypes with checked constructors.
//!
//! Nothing here schedules; the one rule is the rule of request deadlines, which rings and endpoint calls share. A value of
//! one of these types is valid by construction, so code that takes one never checks it again. What comes from outside (a workload file, a ring, a capability call) enters through a
//! constructor that can refuse, and the refusal says what would have been accepted.
#![no_std]

pub mod boot;
mod cpu_set;
pub mod frame;
mod ids;
pub mod kernel;
pub mod plan;
mod policy;
pub mod request;
pub mod ring;
mod time;

pub use cpu_set::{CpuSet, MaskError};
pub use ids::{ContextRef, CpuId, CpuIdError, MAX_CPUS, ProcessId, ThreadRef};
pub use policy::{LatencyClass, Policy, Weight, WeightError};
pub use time::Nanos;
