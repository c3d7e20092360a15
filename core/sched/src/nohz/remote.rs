//! Asking another CPU to go tickless: only it can program its own timer, and only it can prove its own state.
//!
//! Conserved: a slot holds at most one request, and a request that is finished or withdrawn is gone. A request grants
//! nothing: the CPU that drains it proves everything itself, with the facts of that moment.

use super::eligibility::Claim;
use crate::lease::LeaseRef;
use core::fmt;

/// A request as it is parked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteRequest {
    /// What is claimed.
    pub claim: Claim,
    ticket: u64,
}

/// The request is parked: send the CPU a reschedule. If that gets lost, its next tick finds the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the CPU must be interrupted"]
pub struct Parked;

/// There is a request already, which the CPU has not come to yet. Ask again later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Occupied {
    /// The lease that it is for.
    pub by: LeaseRef,
}

impl fmt::Display for Occupied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rejected: a request for lease {} is still parked there; ask again later", self.by)
    }
}

impl core::error::Error for Occupied {}

/// Where a CPU finds what others ask of it. One per CPU, each under a lock of its own, which is never held together
/// with the scheduler's.
#[derive(Debug, Default)]
pub struct RemoteSlot {
    parked: Option<RemoteRequest>,
    tickets: u64,
}

impl RemoteSlot {
    /// Nothing is asked.
    #[must_use]
    pub const fn new() -> Self {
        Self { parked: None, tickets: 0 }
    }

    /// Leaves a request here, unless there is one.
    pub fn park(&mut self, claim: Claim) -> Result<Parked, Occupied> {
        if let Some(request) = &self.parked {
            return Err(Occupied { by: request.claim.lease });
        }
        self.tickets += 1;
        self.parked = Some(RemoteRequest { claim, ticket: self.tickets });
        Ok(Parked)
    }

    /// The request that is parked. It stays so until it is finished: a handler that cannot get at the scheduler now
    /// leaves it to the next tick.
    #[must_use]
    pub fn peek(&self) -> Option<RemoteRequest> {
        self.parked
    }

    /// `request` has been decided. One that was parked in its place meanwhile stays.
    pub fn finish(&mut self, request: &RemoteRequest) {
        if self.parked.as_ref() == Some(request) {
            self.parked = None;
        }
    }

    /// `lease` has ended: takes back what was asked under it; whether there was something.
    pub fn withdraw(&mut self, lease: LeaseRef) -> bool {
        self.parked.take_if(|request| request.claim.lease == lease).is_some()
    }
}
