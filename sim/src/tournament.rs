//! A tournament over all CPUs: the smallest of their keys is at hand.
//!
//! Conserved: every inner node holds the smallest of its children, so the root is the smallest of all. A key that ends
//! in its CPU's number says whose it is, and gives ties to the lower CPU: see [`keyed`] and [`owner`].
//!
//! Siblings lie side by side in a group, which is a cache line: eight to a group leave a third of the levels of a
//! binary tree, and the smallest of eight is found without a branch.
//!
//! Which CPU acts next depends on the smallest key, and that depends on the last event, so the latency of the comparison
//! counts. The first CPU is therefore taken out before it acts, and its rivals are compared meanwhile. When it comes back,
//! the best rival is nearly always first, and that one is known by then. The host's branch predictor guesses so, and begins
//! the rival's event before the key of the last CPU is computed.

use mainspring_sched::hint::unlikely;

/// Bits that hold a CPU's number.
const CPU_BITS: u32 = mainspring_abi::MAX_CPUS.trailing_zeros();

/// Bits that hold a value. A simulated time is far below: two to this many nanoseconds are thirteen days.
const VALUE_BITS: u32 = 50;

/// The smallest number that a processor takes as it is.
const SMALLEST: u64 = 1 << (f64::MANTISSA_DIGITS - 1);

/// A value and its CPU, as the bits of a floating-point number. Positive floats have the order of their bits, and the
/// minimum of two is a single instruction on every x86_64 processor. The minimum of two integers is not.
pub(crate) type Key = f64;

/// Comes after every key.
pub(crate) const LAST: Key = f64::INFINITY;

const _: () = assert!(SMALLEST + (1 << (VALUE_BITS + CPU_BITS)) < LAST.to_bits());

/// `value` as the key of `cpu`. Values that are too great count as one and the same.
#[inline(always)]
pub(crate) fn keyed(value: u64, cpu: usize) -> Key {
    f64::from_bits(SMALLEST + (value.min((1 << VALUE_BITS) - 1) << CPU_BITS | cpu as u64))
}

/// The value of a key, and the CPU that it belongs to. [`LAST`] belongs to no CPU, at a time that never comes.
#[inline(always)]
pub(crate) fn owner(key: Key) -> (u64, usize) {
    let bits = key.to_bits() - SMALLEST;
    (bits >> CPU_BITS, (bits & ((1 << CPU_BITS) - 1)) as usize)
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

/// The keys that compete for one place.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Group<K>([K; FAN]);

#[derive(Debug)]
pub(crate) struct Tournament<K> {
    /// The root's children first; what competes for the place n of group g is group `FAN * g + 1 + n`.
    groups: Vec<Group<K>>,
    /// The first group whose members are the CPUs' own keys.
    leaves: usize,
    first: K,
    last: K,
    /// The smallest key beside the CPU that is out, in each of its groups, from its own to the root's.
    rivals: [K; LEVELS],
    /// The smallest of all of them.
    rival: K,
}

/// The lesser of two, in the one form that is a single instruction for numbers with a fraction.
#[inline(always)]
fn lesser<K: PartialOrd + Copy>(a: K, b: K) -> K {
    if a < b { a } else { b }
}

/// One after the other: that is the fewest instructions, and the result is not needed before the event is over.
#[inline(always)]
fn least<K: PartialOrd + Copy>(group: &[K; FAN]) -> K {
    let [first, others @ ..] = group;
    others.iter().fold(*first, |least, key| lesser(least, *key))
}

impl<K: PartialOrd + Copy> Tournament<K> {
    /// `cpus` keys. All are `last` at first, and none may exceed it.
    pub(crate) fn new(cpus: usize, last: K) -> Self {
        let (mut leaves, mut width) = (0, 1);
        while width * FAN < cpus {
            leaves += width;
            width *= FAN;
        }
        Self {
            groups: vec![Group([last; FAN]); leaves + width],
            leaves,
            first: last,
            last,
            rivals: [last; LEVELS],
            rival: last,
        }
    }

    #[inline(always)]
    fn leaf(&self, cpu: usize) -> Spot {
        Spot { group: self.leaves + cpu / FAN, place: cpu % FAN }
    }

    /// The key of `cpu` is `key` from now on. No CPU is taken out.
    #[inline]
    pub(crate) fn set(&mut self, cpu: usize, key: K) {
        let (mut spot, mut winner) = (self.leaf(cpu), key);
        loop {
            let Group(group) = &mut self.groups[spot.group];
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

    /// Takes the key of `cpu` out until [`Tournament::put_back`]. No other CPU is taken out, and no key changes
    /// meanwhile.
    #[inline(always)]
    pub(crate) fn take_out(&mut self, cpu: usize) {
        let (mut spot, mut best) = (self.leaf(cpu), self.last);
        for rival in &mut self.rivals {
            let Group(group) = &mut self.groups[spot.group];
            group[spot.place] = self.last;
            *rival = least(group);
            best = lesser(*rival, best);
            let Some(above) = spot.above() else { break };
            spot = above;
        }
        self.rival = best;
    }

    /// `cpu`, which is out, comes back with `key`.
    #[inline(always)]
    pub(crate) fn put_back(&mut self, cpu: usize, key: K) {
        let (mut spot, mut winner) = (self.leaf(cpu), key);
        for rival in &self.rivals {
            self.groups[spot.group].0[spot.place] = winner;
            winner = lesser(winner, *rival);
            let Some(above) = spot.above() else { break };
            spot = above;
        }
        // A branch and not a conditional move: the next event then need not wait for `key`.
        self.first = if unlikely(key < self.rival) { key } else { self.rival };
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
            let mut tournament = Tournament::new(cpus, LAST);
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
