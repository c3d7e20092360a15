//! CPU isolation leases: which owner has which CPUs to itself, on what terms, until when.
//!
//! A lease is placement and exclusivity. It holds no CPU time and cannot make any: what runs under it is charged to
//! the [`AccountingTarget`] that it names, like everything else. Nor does it stop a tick: that takes what
//! [`nohz`](crate::nohz) proves about the CPU at the moment.
//!
//! Conserved by the [`Registry`]:
//! * No CPU is in two live leases.
//! * At least one online CPU of the housekeeping set is in no live lease.
//! * A lease that has ended stays ended: its identity is honoured never again.
//! * Each lease that ends is handed out by [`Registry::roll_back`] exactly once.

mod record;
mod refusal;
mod registry;

pub use record::{
    AccountingTarget, EndReason, Endpoint, Info, Lease, LeaseRef, LeaseRequest, Mode, ModeSet, NamedRing,
    Owner, RevocationPolicy, ServiceId, SessionId, Standing, TargetStanding, Terms,
};
pub use refusal::{NotLive, Refusal};
pub use registry::{Created, Ended, Limits, Registry, RollBack};
