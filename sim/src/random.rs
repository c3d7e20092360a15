//! Seeded choices. Each thread and each CPU has a generator of its own, so that what one draws does not depend on
//! when another does.

use mainspring_abi::Nanos;
use mainspring_workload::Span;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// What a generator is for; equal numbers in two streams share nothing.
#[derive(Clone, Copy, Debug)]
pub enum Stream {
    /// A thread instance's own choices.
    Thread(usize),
    /// A CPU's faults.
    Cpu(usize),
    /// Whatever is nobody's in particular.
    Machine,
}

/// A span, ready to be drawn from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    min: Nanos,
    /// How many durations there are to choose from; zero if there is no choice.
    count: u64,
}

impl From<Span> for Range {
    fn from(Span { min, max }: Span) -> Self {
        let width = (max - min).get();
        Self { min, count: if width == 0 { 0 } else { width.saturating_add(1) } }
    }
}

/// A seeded generator.
#[derive(Clone, Debug)]
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// The generator of `stream` in a run with `seed`.
    #[must_use]
    pub fn new(seed: u64, stream: Stream) -> Self {
        let (kind, index) = match stream {
            Stream::Thread(index) => (1, index as u64),
            Stream::Cpu(index) => (2, index as u64),
            Stream::Machine => (3, 0),
        };
        // The seeding function scrambles well, so distinct inputs are enough.
        let distinct = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (index << 2 | kind);
        Self(Xoshiro256PlusPlus::seed_from_u64(distinct))
    }

    /// A number below `bound`, which is not zero.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // Multiply and shift; the bias is below 2^-40 for every bound that a workload can name.
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A duration of `span`, both ends included.
    pub fn draw(&mut self, span: Span) -> Nanos {
        self.pick(Range::from(span))
    }

    /// A duration of `range`.
    #[inline(always)]
    pub(crate) fn pick(&mut self, Range { min, count }: Range) -> Nanos {
        if count == 0 { min } else { min + Nanos::new(self.below(count)) }
    }

    /// Whether something that happens `ppm` times in a million happens now.
    pub(crate) fn chance(&mut self, ppm: u32) -> bool {
        ppm != 0 && self.below(1_000_000) < u64::from(ppm)
    }

    /// A duration from 1 ns up to `most`.
    pub(crate) fn up_to(&mut self, most: Nanos) -> Nanos {
        if most.is_zero() { Nanos::ZERO } else { Nanos::new(1 + self.below(most.get())) }
    }

    /// A duration around `mean`: half of it up to one and a half.
    pub(crate) fn around(&mut self, mean: Nanos) -> Nanos {
        Nanos::new(mean.get() / 2 + self.below(mean.get().max(1)) + 1)
    }
}
