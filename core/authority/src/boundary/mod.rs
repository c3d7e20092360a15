//! The policy boundary: what a policy service may set, and what it never can.
//!
//! A policy service in user space chooses weights, classes, profiles, quotas, contexts and leases. It is consulted when
//! something changes, never when a CPU chooses what to run; and it is trusted with nothing that the rest could not
//! survive. A [`Boundary`] stands between: an [`Update`] carries its epoch and is taken as a whole or refused as a whole,
//! with a typed reason; every decision lands in a bounded [`DecisionLog`].
//!
//! Conserved, whatever the service does: the floor of best effort and the recovery thread are as the manifest says; what
//! is admitted passes admission; at least one CPU is not leased; every table has a bound; and a refused update
//! changes nothing but the counters and the log.
//!
//! When the service is slow, everything stands. When it is dead, or was cut off for its refused updates, contexts and
//! weights stand and are enforced, leases that do not outlive it are revoked, and hints mean what the manifest says until
//! another instance starts.

mod liveness;
mod log;
mod quota;
mod settings;
mod update;

pub use liveness::{Answer, Boundary, Instance, Lost, NotServing, Service};
pub use log::{Decision, DecisionLog, Record};
pub use quota::{Quota, QuotaSpecError};
pub use settings::{
    Hint, HintMap, Lease, Manifest, OnLoss, PlacedContext, ProfileKey, ResourceProfile, Settings,
    TableBounds, Treatment,
};
pub use update::{Change, Directive, Epoch, NAME_MAX, Refusal, Update};

#[cfg(test)]
mod tests;
