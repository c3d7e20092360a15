//! Service by deadline, within a window, and only where no submitter can tell the difference:
//! [`mainspring_abi::request::service_order`], for rings.

use crate::deadline::{MethodTraits, timing};
use crate::mode::RingMode;
use mainspring_abi::request;
use mainspring_abi::ring::CapSqeV2;

pub use mainspring_abi::request::{Order, OrderPolicy, WINDOW_MAX};

/// Whether this request may move. All conditions hold, or it stays where it is and nothing passes it.
#[must_use]
pub fn may_move(mode: RingMode, entry: &CapSqeV2, method: MethodTraits) -> bool {
    // Without a poller the submitter waits for its own calls, in its own order.
    mode == RingMode::Sqpoll && timing(entry).is_ok_and(|request| request::may_move(&request, method))
}

/// The order in which to serve `batch`, which stands in submission order and has at most [`WINDOW_MAX`] requests.
///
/// A request that may not move is a wall: those before it stay before it, those after it stay after. Between walls,
/// and within the window, the earlier deadline goes first; no deadline goes last; equals keep their order.
#[must_use]
pub fn service_order(policy: OrderPolicy, mode: RingMode, batch: &[(CapSqeV2, MethodTraits)]) -> Order {
    request::service_order(policy, batch.len(), |index| {
        let (entry, method) = &batch[index];
        may_move(mode, entry, *method).then(|| request::urgency(entry.deadline_ns))
    })
}
