//! Which CPU to steal from.
//!
//! Every CPU publishes an [`Offer`] after each of its events: the tag of the first thread in its queue that may run
//! anywhere, relative to its own clock, since every queue's clock has its own origin. A thief reads the published
//! words and picks the most overdue; it opens no queue but the one it takes from. Threads bound to some CPUs are
//! rare and not in the word; of them an offer tells only where they may go, and the thief asks those queues.

use mainspring_abi::CpuId;

/// What a CPU has to give.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// Deadline of its first unbound thread minus its clock: the lower, the more overdue. [`Offer::NOTHING`] if none.
    pub due_in: i64,
    /// CPUs (folded onto 64 bits) that its bound threads may use.
    pub bound_reach: u64,
}

impl Offer {
    /// The value of `due_in` for a queue without unbound threads.
    pub const NOTHING: i64 = i64::MAX;

    /// Nothing to give to anybody.
    pub const NONE: Self = Self { due_in: Self::NOTHING, bound_reach: 0 };

    /// Whether `thief` might find a bound thread here.
    #[must_use]
    pub fn may_reach(&self, thief: CpuId) -> bool {
        self.bound_reach >> (thief.index() % 64) & 1 == 1
    }
}

/// The CPU with the most overdue thread that `thief` may run; equal tags go to the lower CPU. `bound_due_in` asks
/// one CPU for the tag of its first bound thread that `thief` may run.
#[must_use]
pub fn choose_victim(
    thief: CpuId,
    offers: &[Offer],
    mut bound_due_in: impl FnMut(CpuId) -> Option<i64>,
) -> Option<CpuId> {
    let mut best: Option<(i64, CpuId)> = None;
    for (index, offer) in offers.iter().enumerate() {
        if *offer == Offer::NONE || index == thief.index() {
            continue;
        }
        let Ok(victim) = CpuId::new(index) else { break };
        let bound = if offer.may_reach(thief) { bound_due_in(victim) } else { None };
        let due_in = offer.due_in.min(bound.unwrap_or(Offer::NOTHING));
        if due_in != Offer::NOTHING && best.is_none_or(|(least, _)| due_in < least) {
            best = Some((due_in, victim));
        }
    }
    best.map(|(_, victim)| victim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(n: usize) -> CpuId {
        CpuId::new(n).expect("test CPUs exist")
    }

    fn open(due_in: i64) -> Offer {
        Offer { due_in, bound_reach: 0 }
    }

    //= ARCH:steal.lowest ARCH:inv.queue-order
    #[test]
    fn the_most_overdue_offer_wins_and_ties_go_to_the_lower_cpu() {
        let offers = [open(5), Offer::NONE, open(-3), open(-3)];
        assert_eq!(choose_victim(cpu(1), &offers, |_| None), Some(cpu(2)));
        assert_eq!(choose_victim(cpu(2), &offers, |_| None), Some(cpu(3)), "never from itself");
        assert_eq!(choose_victim(cpu(0), &[open(1), Offer::NONE], |_| None), None);
    }

    //= ARCH:steal.lowest EVO:S1.steal-bounded
    #[test]
    fn a_bound_thread_counts_only_where_it_may_go() {
        let offers = [Offer { due_in: Offer::NOTHING, bound_reach: 1 << 2 }, open(7), Offer::NONE];
        let mut asked = 0;
        let victim = choose_victim(cpu(2), &offers, |_| {
            asked += 1;
            Some(-9)
        });
        assert_eq!(
            (victim, asked),
            (Some(cpu(0)), 1),
            "one queue is opened, the one that may reach the thief"
        );
        assert_eq!(
            choose_victim(cpu(2), &offers, |_| None),
            Some(cpu(1)),
            "a folded bit may be a false hint"
        );
    }
}
