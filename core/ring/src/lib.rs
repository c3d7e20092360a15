//! Submission and completion rings in memory that the peer can write to at any time.
//!
//! Two sides share a region of memory. One *submits* requests and *reaps* completions; the other *consumes* and
//! *completes*. Neither trusts the other: each keeps its own indices, reads every shared word once, checks it, and uses
//! what it checked. A peer that lies gets a [`RingFault`]; no entry is lost by it.
//!
//! | value | holds | may |
//! | --- | --- | --- |
//! | [`Submitter`] | the submission tail | write requests, publish them |
//! | [`Reaper`] | the completion head | read completions, give their slots back |
//! | [`SubmissionQueue`] | the ownership record | be asked for a lease |
//! | [`SqLease`] | the right to consume | begin a [`Service`], until released or revoked |
//! | [`Service`] | the submission head, for now | accept requests |
//! | [`CqPlace`] | one slot of the completion queue | be completed; it cannot fail |
//! | [`Completer`] | the completion tail | hand out places, post completions |
//! | [`Sqpoll`] | mode and poller state | say who drains |
//!
//! [`Endpoint`] puts the consuming half together the way a kernel needs it. The wake protocol has its own
//! document, `src/wake/README.md`; deadlines are pure functions in [`deadline`] and [`order`].
//!
//! ```
//! use mainspring_abi::ring::{CapCqe, CapSqeV2, RingAbi};
//! use mainspring_ring::{CapEnter, Completer, CqPlace, Endpoint, Geometry, HeapRegion, Push, Reap, Reaper, Submitter};
//! use std::sync::Arc;
//!
//! let geometry = Geometry::new(RingAbi::V2, 8, 16)?;
//! let memory = Arc::new(HeapRegion::new(&geometry));
//! geometry.format(&memory)?;
//!
//! let mut submitter = Submitter::new(memory.clone(), geometry);
//! assert_eq!(submitter.push(&CapSqeV2::nop(42)), Push::Queued);
//! submitter.publish_for_caller();
//!
//! let mut kernel = Endpoint::attach(memory.clone())?;
//! let mut echo = |request: CapSqeV2, place: CqPlace, cq: &mut Completer<_>| {
//!     cq.complete(place, &CapCqe::completed(request.v1.user_data, 0));
//! };
//! assert_eq!(kernel.cap_enter(1, &mut echo), CapEnter::Available { completions: 1 });
//!
//! let mut reaper = Reaper::new(memory, geometry);
//! assert!(matches!(reaper.reap(), Reap::Completion(cqe) if cqe.user_data == 42));
//! # Ok::<(), mainspring_ring::GeometryError>(())
//! ```
#![no_std]

extern crate alloc;
#[cfg(all(feature = "linux", not(loom)))]
extern crate std;

mod complete;
mod consume;
pub mod deadline;
mod endpoint;
mod fault;
mod geometry;
#[cfg(all(feature = "linux", not(loom)))]
pub mod linux;
mod mode;
pub mod order;
mod owner;
mod pass;
mod reap;
mod region;
#[cfg(not(loom))]
mod shared;
mod stats;
mod submit;
pub mod sync;
mod wake;

pub use complete::{Completer, CompletionCounters, CqPlace, NoPlace};
pub use consume::{Next, NotAccepted, Service, SubmissionQueue};
pub use endpoint::{CapEnter, Dispatch, Endpoint, Pollable, Polled, RingParts};
pub use fault::RingFault;
pub use geometry::{Geometry, GeometryError};
pub use mode::{
    AccountingTarget, Charge, Idle, PollerState, RingMode, RingScope, Sqpoll, SqpollCounters, SqpollGrant,
    StartFinish, StartRequest, StopFinish, StopReason, StopRequest, TrySleep, Wake,
};
pub use owner::{Finished, Revoked, SqLease, SqOwner, SqRefusal};
pub use pass::{Passes, SQES_PER_PASS, ServicePass};
pub use reap::{Reap, Reaper};
#[cfg(not(loom))]
pub use region::HeapRegion;
pub use region::Region;
#[cfg(not(loom))]
pub use shared::SharedMemory;
pub use stats::RingStats;
pub use submit::{Push, Submitter};
pub use wake::{Sleep, Ticket, Wakeup};
