//! The queue stands in the order of its tags: earlier deadline, later start, lower thread index.

use super::ensure;
use mainspring_sched::{Cpu, ThreadView};

/// Checks the queue of `cpu`, and lets it check itself.
pub fn check(cpu: &Cpu) -> Result<(), String> {
    cpu.verify().map_err(str::to_owned)?;
    let queue = cpu.queue();
    for pair in queue.windows(2) {
        let [first, second] = pair else { continue };
        ensure(stands_before(first, second), || {
            format!("{first:?} stands before {second:?}, against the order of tags")
        })?;
    }
    Ok(())
}

fn stands_before(first: &ThreadView, second: &ThreadView) -> bool {
    let (Some(a), Some(b)) = (first.tag, second.tag) else { return false };
    let later = b.deadline.since(a.deadline);
    let started_later = a.start.since(b.start);
    later > 0
        || later == 0
            && (started_later > 0 || started_later == 0 && first.thread.index() < second.thread.index())
}
