//! CPU time as a capability for any Linux program.
//!
//! * [`run`]: a program and its children under a grant.
//! * [`registry`]: what was granted on this host, to which program.
//! * [`admission`]: whether one more grant fits.
//! * [`doctor`]: what this host allows, and what to do about the rest.
//! * [`cgroup`], [`deadline`], [`process`], [`tree`]: what the kernel has to offer for that.
//!
//! What is conserved: everything that is made on the host (a group, a controller enabled, an entry of the registry) is
//! written to the registry before it is made, and removed by the first of supervisor, guardian and next user that
//! finds it without a program.

pub mod admission;
pub mod cgroup;
mod cpu_list;
pub mod deadline;
pub mod doctor;
mod error;
pub mod process;
pub mod registry;
mod report;
mod request;
pub mod run;
pub mod tree;

pub use cpu_list::{CpuListError, cpu_list, parse_cpu_list};
pub use error::{HostError, MissingRight, Refusal, RequestError};
pub use report::{ExecReport, GrantReport, bytes};
pub use request::{Request, allowed_cpus};
