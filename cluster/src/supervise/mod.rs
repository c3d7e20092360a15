//! Supervisors across nodes: leases, placement, restarts and fencing.
//!
//! One bucket of the server has three kinds of records, each changed by compare-and-set alone:
//!
//! ```text
//! lease.NODE     renewed by its node; ended by another node once it has lapsed
//! load.NODE      what the node can carry, and what is reserved of it
//! group.GROUP    a supervisor's children: where each is, in which generation, and the last restarts
//! ```
//!
//! Conserved: a child has one generation at a time, at one incarnation of one node. The next generation is placed only when the child was
//! reported as stopped, or when the incarnation has ended. An incarnation stops its actors before any other node may end it.

pub mod capacity;
pub mod group;
mod host;
pub mod lease;
mod member;
pub mod state;
pub mod view;

pub use capacity::{Capacity, Demand, Load};
pub use group::{At, Child, Group, Spec, Stage};
pub(crate) use host::Fence;
pub use host::{Handler, Kinds, Place};
pub use lease::Lease;
pub use member::{Member, MemberConfig, supervise};
pub use view::{Act, View};

use crate::bucket;
use crate::connect::Connection;
use crate::error::Error;
use async_nats::jetstream::kv::Store;
use std::time::Duration;

/// The bucket's name.
pub const BUCKET: &str = "mainspring-members";

/// How many values of each record the server keeps.
const HISTORY: i64 = 64;

/// Opens the bucket, and makes it if there is none. Records stay until somebody removes them.
pub async fn open(on: &Connection) -> Result<Store, Error> {
    bucket::open(on, BUCKET, HISTORY, Duration::ZERO).await
}
