//! Commands about this host and the programs on it: `exec`, `ps`, `doctor`.

pub mod doctor;
pub mod exec;
mod live;
pub mod ps;
