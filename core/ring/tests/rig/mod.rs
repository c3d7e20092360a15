//! Both sides of a ring in one place.
#![allow(dead_code, reason = "each test file uses its own part")]

use mainspring_abi::ring::{CapCqe, CapSqeV2, RingAbi};
use mainspring_ring::{
    Completer, CqPlace, Endpoint, Geometry, HeapRegion, Push, Reap, Reaper, RingScope, Submitter,
};
use std::sync::Arc;

pub type Memory = Arc<HeapRegion>;

pub struct Rig {
    pub region: Memory,
    pub endpoint: Endpoint<Memory>,
    pub submitter: Submitter<Memory>,
    pub reaper: Reaper<Memory>,
}

impl Rig {
    pub fn new(sq_entries: u32, cq_entries: u32) -> Self {
        Self::with(Geometry::new(RingAbi::V2, sq_entries, cq_entries).expect("powers of two"))
    }

    pub fn with(geometry: Geometry) -> Self {
        Self::scoped(geometry, RingScope::Thread)
    }

    pub fn scoped(geometry: Geometry, scope: RingScope) -> Self {
        let region = Arc::new(HeapRegion::new(&geometry));
        geometry.format(&region).expect("it was made for it");
        Self {
            endpoint: Endpoint::attach_as(region.clone(), scope).expect("just formatted"),
            submitter: Submitter::new(region.clone(), geometry),
            reaper: Reaper::new(region.clone(), geometry),
            region,
        }
    }

    pub fn submit(&mut self, ids: &[u64]) {
        for id in ids {
            assert_eq!(self.submitter.push(&CapSqeV2::nop(*id)), Push::Queued);
        }
        self.submitter.publish_for_caller();
    }

    pub fn reap_all(&mut self) -> Vec<u64> {
        let mut ids = Vec::new();
        while let Reap::Completion(cqe) = self.reaper.reap() {
            ids.push(cqe.user_data);
        }
        self.reaper.publish_for_caller();
        ids
    }
}

/// Completes each request at once.
pub fn echo(request: CapSqeV2, place: CqPlace, cq: &mut Completer<Memory>) {
    cq.complete(place, &CapCqe::completed(request.v1.user_data, 0));
}
