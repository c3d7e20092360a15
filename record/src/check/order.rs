//! The queue stands in order: threads that are ready on contexts by urgency, then best effort by its tags: earlier
//! deadline, later start, lower thread index.

use super::ensure;
use mainspring_abi::Nanos;
use mainspring_sched::{Cpu, ThreadView};
use std::cmp::Reverse;

/// Checks the queue of `cpu`, and lets it check itself.
pub fn check(cpu: &Cpu) -> Result<(), String> {
    cpu.verify().map_err(str::to_owned)?;
    let queue = cpu.queue();
    for pair in queue.windows(2) {
        let [first, second] = pair else { continue };
        ensure(stands_before(first, second), || {
            format!("{first:?} stands before {second:?}, against their order")
        })?;
    }
    Ok(())
}

fn stands_before(first: &ThreadView, second: &ThreadView) -> bool {
    let (a, b) = match (first.tag, second.tag) {
        (Some(a), Some(b)) => (a, b),
        (None, None) => return rank(first).is_some() && rank(first) < rank(second),
        (None, Some(_)) => return rank(first).is_some(),
        (Some(_), None) => return false,
    };
    let later = b.deadline.since(a.deadline);
    let started_later = a.start.since(b.start);
    later > 0
        || later == 0
            && (started_later > 0 || started_later == 0 && first.thread.index() < second.thread.index())
}

/// The higher band; then the earlier deadline, the higher priority, the earlier release, the lower thread.
type Rank = (Reverse<u8>, Nanos, Reverse<u16>, Nanos, u32);

fn rank(view: &ThreadView) -> Option<Rank> {
    let (_, urgency) = view.context?;
    let (band, priority) = (Reverse(urgency.criticality), Reverse(urgency.priority));
    Some((band, urgency.deadline, priority, urgency.release, view.thread.index()))
}
