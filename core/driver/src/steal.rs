//! Which CPU to steal from.
//!
//! Every CPU publishes an [`Offer`] after each of its events. A thief reads the published words and picks the most
//! overdue; it opens no queue but the one it takes from, and those that have threads bound to some CPUs, it among them.

use crate::machine::Machine;
use mainspring_abi::CpuId;
use mainspring_sched::Offer;

/// The CPU with the most overdue thread that `thief` may run; equal tags go to the lower CPU.
#[must_use]
pub fn choose_victim<M: Machine>(machine: &mut M, thief: CpuId) -> Option<CpuId> {
    let mut best: Option<(i64, CpuId)> = None;
    for victim in (0..machine.cpus()).map_while(|index| CpuId::new(index).ok()) {
        let offer = machine.offer(victim);
        if offer == Offer::NONE || victim == thief {
            continue;
        }
        let mut due_in = offer.due_in;
        if offer.may_reach(thief) {
            let bound = machine.with_cpu(victim, |cpu| cpu.cpu().bound_due_in(thief));
            due_in = due_in.min(bound.unwrap_or(Offer::NOTHING));
        }
        if due_in != Offer::NOTHING && best.is_none_or(|(least, _)| due_in < least) {
            best = Some((due_in, victim));
        }
    }
    best.map(|(_, victim)| victim)
}
