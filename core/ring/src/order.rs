//! Service by deadline, within a window, and only where nobody can tell the difference.

use crate::deadline::MethodTraits;
use crate::mode::RingMode;
use mainspring_abi::ring::{CapSqeV2, QosFlags, SQE_AFTER_PREVIOUS};

/// The most requests that may change places with each other.
pub const WINDOW_MAX: usize = 16;

/// Whether a ring's consumer orders by deadline at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrderPolicy {
    /// As submitted.
    Submission,
    /// By deadline among at most this many neighbours, and never more than [`WINDOW_MAX`].
    ByDeadline {
        /// How many.
        window: usize,
    },
}

/// A permutation of at most [`WINDOW_MAX`] requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    places: [u8; WINDOW_MAX],
    len: usize,
}

impl Order {
    /// Indices into the batch, in the order of service.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.places[..self.len].iter().map(|place| usize::from(*place))
    }
}

/// Whether this request may move. All conditions hold, or it stays where it is and nothing passes it.
#[must_use]
pub fn may_move(mode: RingMode, request: &CapSqeV2, method: MethodTraits) -> bool {
    let wanted = QosFlags::DEADLINE_ORDERED.with(QosFlags::REORDERABLE);
    // Without a poller the submitter waits for its own calls, in its own order.
    mode == RingMode::Sqpoll
        && request.qos().is_ok_and(|qos| qos.has(wanted))
        && request.v1.flags & SQE_AFTER_PREVIOUS == 0
        && method.reorder_safe
}

/// The order in which to serve `batch`, which stands in submission order and has at most [`WINDOW_MAX`] requests.
///
/// A request that may not move is a wall: those before it stay before it, those after it stay after. Between walls,
/// and within the window, the earlier deadline goes first; no deadline goes last; equals keep their order.
#[must_use]
pub fn service_order(policy: OrderPolicy, mode: RingMode, batch: &[(CapSqeV2, MethodTraits)]) -> Order {
    let len = batch.len().min(WINDOW_MAX);
    let mut order = Order { places: core::array::from_fn(|index| index as u8), len };
    let OrderPolicy::ByDeadline { window } = policy else { return order };
    let window = window.clamp(1, WINDOW_MAX);
    let moves = |index: &u8| {
        let (request, method) = &batch[usize::from(*index)];
        may_move(mode, request, *method)
    };
    for block in order.places[..len].chunks_mut(window) {
        for run in block.chunk_by_mut(|a, b| moves(a) && moves(b)) {
            // At most sixteen of them, and stable; a request that may not move is a run of its own.
            for end in 1..run.len() {
                let mut at = end;
                while at > 0 && urgency(batch, run[at]) < urgency(batch, run[at - 1]) {
                    run.swap(at, at - 1);
                    at -= 1;
                }
            }
        }
    }
    order
}

fn urgency(batch: &[(CapSqeV2, MethodTraits)], index: u8) -> u64 {
    match batch[usize::from(index)].0.deadline_ns {
        0 => u64::MAX,
        deadline_ns => deadline_ns,
    }
}
