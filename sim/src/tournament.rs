//! A tournament over all CPUs: the smallest of their keys is at hand.
//!
//! Conserved: every inner node holds the smaller of its two children, so the root is the smallest of all. A key that
//! ends in its CPU's number says whose it is, and gives ties to the lower CPU: see [`keyed`] and [`owner`].

/// Bits that hold a CPU's number.
const CPU_BITS: u32 = mainspring_abi::MAX_CPUS.trailing_zeros();

/// `value` as the key of `cpu`. Values beyond 2^51 count as one and the same: a simulated time is far below.
pub(crate) fn keyed(value: u64, cpu: usize) -> u64 {
    value.min((1 << (63 - CPU_BITS)) - 1) << CPU_BITS | cpu as u64
}

/// Whose key it is, and its value.
pub(crate) fn owner(key: u64) -> (u64, usize) {
    (key >> CPU_BITS, (key & ((1 << CPU_BITS) - 1)) as usize)
}

#[derive(Debug)]
pub(crate) struct Tournament<K> {
    leaves: usize,
    /// Smallest key below each node; node 1 is the root, and leaf c is at `leaves + c`.
    nodes: Vec<K>,
}

impl<K: Ord + Copy> Tournament<K> {
    /// `cpus` keys, all of which are `last` at first, and none of which may exceed it.
    pub(crate) fn new(cpus: usize, last: K) -> Self {
        let leaves = cpus.next_power_of_two();
        Self { leaves, nodes: vec![last; 2 * leaves] }
    }

    /// The key of `cpu` is `key` from now on.
    #[inline]
    pub(crate) fn set(&mut self, cpu: usize, key: K) {
        let mut at = self.leaves + cpu;
        if self.nodes[at] == key {
            return;
        }
        let mut winner = key;
        while at > 1 {
            self.nodes[at] = winner;
            winner = winner.min(self.nodes[at ^ 1]);
            at /= 2;
            if self.nodes[at] == winner {
                return;
            }
        }
        self.nodes[1] = winner;
    }

    /// The smallest key.
    #[inline]
    pub(crate) fn first(&self) -> K {
        self.nodes[1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_wins_and_ties_go_to_the_lower_cpu() {
        for cpus in [1, 5, 64] {
            let mut tournament = Tournament::new(cpus, u64::MAX);
            let mut values = vec![u64::MAX; cpus];
            let mut state = 1u64;
            for _ in 0..10_000 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let (cpu, value) = ((state >> 33) as usize % cpus, (state >> 40) % 7);
                tournament.set(cpu, keyed(value, cpu));
                values[cpu] = value;
                let expected = (0..cpus).map(|cpu| (values[cpu], cpu)).min();
                assert_eq!(Some(owner(tournament.first())), expected);
            }
        }
    }
}
