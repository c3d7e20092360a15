//! A tournament over all CPUs: the smallest of their keys is at hand.
//!
//! Conserved: every inner node holds the smallest of its children, so the root is the smallest of all. A key that ends
//! in its CPU's number says whose it is, and gives ties to the lower CPU: see [`keyed`] and [`owner`].
//!
//! Siblings lie side by side in a group, which is a cache line: eight to a group leave a third of the levels of a
//! binary tree, and the smallest of eight is found without a branch.

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

/// How many siblings compete in a group.
const FAN: usize = 8;

#[derive(Debug)]
pub(crate) struct Tournament<K> {
    /// The root's children first; what competes for the place n of group g is group `FAN * g + 1 + n`.
    groups: Vec<[K; FAN]>,
    /// The first group whose members are the CPUs' own keys.
    leaves: usize,
    first: K,
}

impl<K: Ord + Copy> Tournament<K> {
    /// `cpus` keys, all of which are `last` at first, and none of which may exceed it.
    pub(crate) fn new(cpus: usize, last: K) -> Self {
        let (mut leaves, mut width) = (0, 1);
        while width * FAN < cpus {
            leaves += width;
            width *= FAN;
        }
        Self { groups: vec![[last; FAN]; leaves + width], leaves, first: last }
    }

    /// The key of `cpu` is `key` from now on.
    #[inline]
    pub(crate) fn set(&mut self, cpu: usize, key: K) {
        let (mut at, mut place, mut winner) = (self.leaves + cpu / FAN, cpu % FAN, key);
        loop {
            let group = &mut self.groups[at];
            if group[place] == winner {
                return;
            }
            group[place] = winner;
            let [a, b, c, d, e, f, g, h] = *group;
            winner = a.min(b).min(c.min(d)).min(e.min(f).min(g.min(h)));
            if at == 0 {
                self.first = winner;
                return;
            }
            (at, place) = ((at - 1) / FAN, (at - 1) % FAN);
        }
    }

    /// The smallest key.
    #[inline]
    pub(crate) fn first(&self) -> K {
        self.first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_wins_and_ties_go_to_the_lower_cpu() {
        for cpus in [1, 5, 64, 65] {
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
