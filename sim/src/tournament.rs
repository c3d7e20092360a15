//! A tournament over all CPUs: the smallest of their keys is at hand.
//!
//! Conserved: every inner node holds the smallest of its children, so the root is the smallest of all. A key that ends
//! in its CPU's number says whose it is, and gives ties to the lower CPU: see [`keyed`] and [`owner`].
//!
//! Siblings lie side by side in a group, which is a cache line: eight to a group leave a third of the levels of a
//! binary tree, and the smallest of eight is found without a branch.
//!
//! What a CPU does next depends on who is first, and who is first on what the last one did, so every step between the two
//! counts. Whoever is first is therefore taken out before it acts: its rivals are compared while it does, and when it comes
//! back only the best of each group are left to compare it with.

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

/// How many groups there are at most from a leaf up to the root.
const LEVELS: usize = (CPU_BITS as usize).div_ceil(FAN.ilog2() as usize);

/// Where a CPU's key competes: a group, and its place there.
#[derive(Clone, Copy, Debug)]
struct Spot {
    group: usize,
    place: usize,
}

impl Spot {
    /// Where the winner of this group competes, unless it has won.
    #[inline(always)]
    fn above(self) -> Option<Self> {
        let child = self.group.checked_sub(1)?;
        Some(Self { group: child / FAN, place: child % FAN })
    }
}

#[derive(Debug)]
pub(crate) struct Tournament<K> {
    /// The root's children first; what competes for the place n of group g is group `FAN * g + 1 + n`.
    groups: Vec<[K; FAN]>,
    /// The first group whose members are the CPUs' own keys.
    leaves: usize,
    first: K,
    last: K,
    /// Of the CPU that is out: the smallest of the others in each of its groups, from its own to the root's.
    rivals: [K; LEVELS],
}

#[inline(always)]
fn least<K: Ord + Copy>(group: &[K; FAN]) -> K {
    let [a, b, c, d, e, f, g, h] = *group;
    a.min(b).min(c.min(d)).min(e.min(f).min(g.min(h)))
}

impl<K: Ord + Copy> Tournament<K> {
    /// `cpus` keys, all of which are `last` at first, and none of which may exceed it.
    pub(crate) fn new(cpus: usize, last: K) -> Self {
        let (mut leaves, mut width) = (0, 1);
        while width * FAN < cpus {
            leaves += width;
            width *= FAN;
        }
        Self { groups: vec![[last; FAN]; leaves + width], leaves, first: last, last, rivals: [last; LEVELS] }
    }

    #[inline(always)]
    fn leaf(&self, cpu: usize) -> Spot {
        Spot { group: self.leaves + cpu / FAN, place: cpu % FAN }
    }

    /// The key of `cpu` is `key` from now on. Nobody is out.
    #[inline]
    pub(crate) fn set(&mut self, cpu: usize, key: K) {
        let (mut spot, mut winner) = (self.leaf(cpu), key);
        loop {
            let group = &mut self.groups[spot.group];
            if group[spot.place] == winner {
                return;
            }
            group[spot.place] = winner;
            winner = least(group);
            let Some(above) = spot.above() else { break };
            spot = above;
        }
        self.first = winner;
    }

    /// Takes the key of `cpu` out until [`Tournament::put_back`]. Nobody else is out, and no key changes meanwhile.
    #[inline(always)]
    pub(crate) fn take_out(&mut self, cpu: usize) {
        let mut spot = self.leaf(cpu);
        for rival in &mut self.rivals {
            let group = &mut self.groups[spot.group];
            group[spot.place] = self.last;
            *rival = least(group);
            let Some(above) = spot.above() else { break };
            spot = above;
        }
    }

    /// `cpu`, which is out, comes back with `key`.
    #[inline(always)]
    pub(crate) fn put_back(&mut self, cpu: usize, key: K) {
        let (mut spot, mut winner) = (self.leaf(cpu), key);
        for rival in &self.rivals {
            self.groups[spot.group][spot.place] = winner;
            winner = winner.min(*rival);
            let Some(above) = spot.above() else { break };
            spot = above;
        }
        self.first = winner;
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
        for cpus in [1, 5, 64, 65, 600, 4096] {
            let mut tournament = Tournament::new(cpus, u64::MAX);
            let mut values = vec![u64::MAX; cpus];
            let mut state = 1u64;
            for _ in 0..10_000 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let (cpu, value) = ((state >> 33) as usize % cpus, (state >> 40) % 7);
                if state >> 63 == 0 {
                    tournament.set(cpu, keyed(value, cpu));
                } else {
                    tournament.take_out(cpu);
                    tournament.put_back(cpu, keyed(value, cpu));
                }
                values[cpu] = value;
                let expected = (0..cpus).map(|cpu| (values[cpu], cpu)).min();
                assert_eq!(Some(owner(tournament.first())), expected);
            }
        }
    }
}
