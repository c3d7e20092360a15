//! Which CPU has something to do next: a tournament over all CPUs, smallest time first, ties to the lower CPU.
//!
//! Conserved: every inner node holds the earlier of its two children, so the root is the earliest of all.

use mainspring_abi::Nanos;

#[derive(Debug)]
pub(crate) struct Earliest {
    leaves: usize,
    /// Winner (time, CPU) of each node; node 1 is the root, and leaf c is at `leaves + c`.
    nodes: Vec<(Nanos, u32)>,
}

impl Earliest {
    pub(crate) fn new(cpus: usize) -> Self {
        let leaves = cpus.next_power_of_two();
        let mut nodes = vec![(Nanos::MAX, u32::MAX); 2 * leaves];
        for (cpu, node) in nodes[leaves..].iter_mut().enumerate() {
            node.1 = cpu as u32;
        }
        for at in (1..leaves).rev() {
            nodes[at] = nodes[2 * at];
        }
        Self { leaves, nodes }
    }

    /// CPU `cpu` has something to do at `time`.
    pub(crate) fn set(&mut self, cpu: usize, time: Nanos) {
        let mut at = self.leaves + cpu;
        if self.nodes[at].0 == time {
            return;
        }
        self.nodes[at].0 = time;
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

    /// The earliest time and whose it is.
    pub(crate) fn get(&self) -> (Nanos, usize) {
        let (time, cpu) = self.nodes[1];
        (time, cpu as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_wins_and_ties_go_to_the_lower_cpu() {
        let mut earliest = Earliest::new(5);
        let mut times = [Nanos::MAX; 5];
        let mut state = 1u64;
        for _ in 0..10_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (cpu, time) = ((state >> 33) as usize % 5, Nanos::new((state >> 40) % 7));
            earliest.set(cpu, time);
            times[cpu] = time;
            let expected = (0..5).min_by_key(|cpu| (times[*cpu], *cpu)).map(|cpu| (times[cpu], cpu));
            assert_eq!(Some(earliest.get()), expected);
        }
    }
}
