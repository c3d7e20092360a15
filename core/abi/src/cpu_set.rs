use crate::{CpuId, MAX_CPUS};
use core::fmt;

const WORDS: usize = MAX_CPUS / 64;

/// A set of CPUs.
///
/// Its outside form is the canonical little-endian bitset: CPU n is bit n mod 8 of byte n div 8, the empty set has
/// no bytes, and the last byte is never zero. [`CpuSet::from_bytes`] refuses every other form, so that equal sets
/// have equal bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CpuSet {
    words: [u64; WORDS],
}

/// Bytes that are not a canonical CPU set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MaskError {
    /// The last byte is zero; leave it out.
    TrailingZero,
    /// More bytes than [`MAX_CPUS`] bits.
    TooLong {
        /// How many bytes were given.
        bytes: usize,
    },
}

impl fmt::Display for MaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TrailingZero => {
                f.write_str("a CPU mask must not end in a zero byte; leave trailing zeros out")
            }
            Self::TooLong { bytes } => {
                write!(f, "a CPU mask has at most {} bytes, not {bytes}", MAX_CPUS / 8)
            }
        }
    }
}

impl core::error::Error for MaskError {}

impl CpuSet {
    /// No CPU at all.
    pub const EMPTY: Self = Self { words: [0; WORDS] };

    /// The CPUs 0 to `count - 1`.
    #[must_use]
    pub fn first(count: usize) -> Self {
        (0..count.min(MAX_CPUS)).filter_map(|cpu| CpuId::new(cpu).ok()).collect()
    }

    /// Reads the canonical form.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, MaskError> {
        if bytes.len() > MAX_CPUS / 8 {
            return Err(MaskError::TooLong { bytes: bytes.len() });
        }
        if bytes.last() == Some(&0) {
            return Err(MaskError::TrailingZero);
        }
        let mut set = Self::EMPTY;
        for (n, byte) in bytes.iter().enumerate() {
            set.words[n / 8] |= u64::from(*byte) << (n % 8 * 8);
        }
        Ok(set)
    }

    /// The canonical form, byte by byte.
    pub fn bytes(&self) -> impl Iterator<Item = u8> + '_ {
        let length = self.last().map_or(0, |cpu| cpu.index() / 8 + 1);
        self.words.iter().flat_map(|word| word.to_le_bytes()).take(length)
    }

    /// Adds `cpu`.
    pub fn insert(&mut self, cpu: CpuId) {
        self.words[cpu.index() / 64] |= 1 << (cpu.index() % 64);
    }

    /// Takes `cpu` out.
    pub fn remove(&mut self, cpu: CpuId) {
        self.words[cpu.index() / 64] &= !(1 << (cpu.index() % 64));
    }

    /// Whether `cpu` is a member.
    #[must_use]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.words[cpu.index() / 64] >> (cpu.index() % 64) & 1 == 1
    }

    /// Whether no CPU is a member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// How many CPUs are members.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The members of both sets.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self { words: core::array::from_fn(|n| self.words[n] & other.words[n]) }
    }

    /// The members that `other` lacks.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        Self { words: core::array::from_fn(|n| self.words[n] & !other.words[n]) }
    }

    /// The lowest member that is `from` or above.
    #[must_use]
    pub fn next_from(&self, from: CpuId) -> Option<CpuId> {
        let first = from.index() / 64;
        let masked = self.words[first] & (u64::MAX << (from.index() % 64));
        let rest = self.words.iter().enumerate().skip(first + 1).map(|(n, word)| (n, *word));
        core::iter::once((first, masked))
            .chain(rest)
            .find(|(_, word)| *word != 0)
            .and_then(|(n, word)| CpuId::new(n * 64 + word.trailing_zeros() as usize).ok())
    }

    /// The highest member.
    #[must_use]
    pub fn last(&self) -> Option<CpuId> {
        let (n, word) = self.words.iter().enumerate().rfind(|(_, word)| **word != 0)?;
        CpuId::new(n * 64 + 63 - word.leading_zeros() as usize).ok()
    }

    /// The members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        let mut next = self.next_from(CpuId::BOOT);
        core::iter::from_fn(move || {
            let cpu = next?;
            next = CpuId::new(cpu.index() + 1).ok().and_then(|from| self.next_from(from));
            Some(cpu)
        })
    }

    /// The set folded onto 64 bits: bit n mod 64 for each member n. Exact on machines of up to 64 CPUs; on larger
    /// ones a clear bit still proves absence.
    #[must_use]
    pub fn folded(&self) -> u64 {
        self.words.iter().fold(0, |sum, word| sum | word)
    }
}

impl FromIterator<CpuId> for CpuSet {
    fn from_iter<I: IntoIterator<Item = CpuId>>(cpus: I) -> Self {
        let mut set = Self::EMPTY;
        for cpu in cpus {
            set.insert(cpu);
        }
        set
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    fn set(cpus: &[usize]) -> CpuSet {
        cpus.iter().map(|cpu| CpuId::new(*cpu).expect("test CPUs exist")).collect()
    }

    //= ARCH:ctx.cpumask
    #[test]
    fn the_outside_form_is_little_endian_without_trailing_zeros() {
        assert_eq!(set(&[]).bytes().count(), 0);
        assert_eq!(set(&[0, 9]).bytes().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(CpuSet::from_bytes(&[1, 2]), Ok(set(&[0, 9])));
        assert_eq!(CpuSet::from_bytes(&[]), Ok(CpuSet::EMPTY));
        assert_eq!(CpuSet::from_bytes(&[1, 0]), Err(MaskError::TrailingZero));
        assert_eq!(CpuSet::from_bytes(&[1; 513]), Err(MaskError::TooLong { bytes: 513 }));
    }

    #[test]
    fn every_set_survives_its_outside_form() {
        for step in 1..97 {
            let before: CpuSet = (0..MAX_CPUS).step_by(step).filter_map(|cpu| CpuId::new(cpu).ok()).collect();
            let bytes: Vec<u8> = before.bytes().collect();
            assert_eq!(CpuSet::from_bytes(&bytes), Ok(before));
        }
    }

    #[test]
    fn iteration_ascends_and_searches_from_any_member() {
        let cpus = set(&[3, 63, 64, 4095]);
        assert_eq!(cpus.iter().map(CpuId::index).collect::<Vec<_>>(), [3, 63, 64, 4095]);
        assert_eq!(cpus.next_from(CpuId::new(65).expect("in range")).map(CpuId::index), Some(4095));
        assert_eq!(cpus.last().map(CpuId::index), Some(4095));
        assert_eq!(cpus.len(), 4);
        assert_eq!(cpus.folded(), 1 << 3 | 1 << 63 | 1);
    }

    #[test]
    fn set_algebra_agrees_with_membership() {
        let (a, b) = (set(&[1, 2, 70]), set(&[2, 3, 70, 71]));
        for cpu in (0..100).filter_map(|cpu| CpuId::new(cpu).ok()) {
            assert_eq!(a.and(&b).contains(cpu), a.contains(cpu) && b.contains(cpu));
            assert_eq!(a.without(&b).contains(cpu), a.contains(cpu) && !b.contains(cpu));
        }
    }
}
