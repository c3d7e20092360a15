//! A tournament over all CPUs: whose key is smallest, ties to the lower CPU.
//!
//! Conserved: every inner node holds the smaller of its two children, so the root is the smallest of all.

#[derive(Debug)]
pub(crate) struct Tournament<K> {
    leaves: usize,
    /// Winner (key, CPU) of each node; node 1 is the root, and leaf c is at `leaves + c`.
    nodes: Vec<(K, u32)>,
}

impl<K: Ord + Copy> Tournament<K> {
    /// All CPUs start with `key`; seats that no CPU has keep `last`, which no CPU's key may exceed.
    pub(crate) fn new(cpus: usize, key: K, last: K) -> Self {
        let leaves = cpus.next_power_of_two();
        let mut nodes = vec![(last, u32::MAX); 2 * leaves];
        for (cpu, node) in nodes[leaves..].iter_mut().enumerate() {
            *node = (if cpu < cpus { key } else { last }, cpu as u32);
        }
        for at in (1..leaves).rev() {
            nodes[at] = nodes[2 * at].min(nodes[2 * at + 1]);
        }
        Self { leaves, nodes }
    }

    /// The key of `cpu` is `key` from now on.
    #[inline]
    pub(crate) fn set(&mut self, cpu: usize, key: K) {
        let mut at = self.leaves + cpu;
        if self.nodes[at].0 == key {
            return;
        }
        self.nodes[at].0 = key;
        while at > 1 {
            at /= 2;
            let (left, right) = (self.nodes[2 * at], self.nodes[2 * at + 1]);
            let winner = if right.0 < left.0 { right } else { left };
            if self.nodes[at] == winner {
                return;
            }
            self.nodes[at] = winner;
        }
    }

    /// The smallest key and whose it is.
    pub(crate) fn first(&self) -> (K, usize) {
        let (key, cpu) = self.nodes[1];
        (key, cpu as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_wins_and_ties_go_to_the_lower_cpu() {
        let mut tournament = Tournament::new(5, 9, 9);
        let mut keys = [9u64; 5];
        let mut state = 1u64;
        for _ in 0..10_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (cpu, key) = ((state >> 33) as usize % 5, (state >> 40) % 7);
            tournament.set(cpu, key);
            keys[cpu] = key;
            let expected = (0..5).min_by_key(|cpu| (keys[*cpu], *cpu)).map(|cpu| (keys[cpu], cpu));
            assert_eq!(Some(tournament.first()), expected);
        }
    }
}
