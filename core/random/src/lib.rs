//! The one source of chance of all machines: the simulator, the Linux runtime's players and the kernel's workload program
//! draw from it, so that a seed gives the same draws everywhere.
//!
//! Each thread and each CPU has a generator of its own, so that what one draws does not depend on when another does. A
//! thread draws its start first, then the amount of each step as it comes to it, through all of its lives.
#![no_std]
#![forbid(unsafe_code)]

use mainspring_abi::Nanos;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// What a generator is for; equal numbers in two streams share nothing.
#[derive(Clone, Copy, Debug)]
pub enum Stream {
    /// A thread instance's own choices.
    Thread(usize),
    /// A CPU's faults.
    Cpu(usize),
    /// Choices that belong to no thread and no CPU.
    Machine,
}

/// Durations to draw from.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    min: Nanos,
    /// How many durations there are to choose from; zero if there is no choice.
    count: u64,
}

impl Range {
    /// From `min` to `max`, both included. If `max` is less, there is no choice.
    #[must_use]
    pub fn new(min: Nanos, max: Nanos) -> Self {
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
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        // Multiply and shift; the bias is below 2^-40 for every bound that a workload can name.
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A duration of `range`, both ends included.
    pub fn draw(&mut self, range: impl Into<Range>) -> Nanos {
        self.pick(range.into())
    }

    /// A duration of `range`.
    #[inline(always)]
    pub fn pick(&mut self, Range { min, count }: Range) -> Nanos {
        if count == 0 { min } else { min + Nanos::new(self.below(count)) }
    }

    /// Whether something that happens `ppm` times in a million happens now.
    #[inline]
    pub fn chance(&mut self, ppm: u32) -> bool {
        ppm != 0 && self.below(1_000_000) < u64::from(ppm)
    }

    /// A duration from 1 ns up to `most`.
    #[inline]
    pub fn up_to(&mut self, most: Nanos) -> Nanos {
        if most.is_zero() { Nanos::ZERO } else { Nanos::new(1 + self.below(most.get())) }
    }

    /// A duration around `mean`: half of it up to one and a half.
    #[inline]
    pub fn around(&mut self, mean: Nanos) -> Nanos {
        Nanos::new(mean.get() / 2 + self.below(mean.get().max(1)) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_a_function_of_its_seed_and_its_name() {
        let draws = |seed, stream| {
            let mut random = Random::new(seed, stream);
            [(); 8].map(|()| random.below(1 << 40))
        };
        assert_eq!(draws(7, Stream::Thread(3)), draws(7, Stream::Thread(3)));
        for other in [Stream::Thread(2), Stream::Cpu(3), Stream::Machine] {
            assert_ne!(draws(7, Stream::Thread(3)), draws(7, other));
        }
        assert_ne!(draws(7, Stream::Machine), draws(8, Stream::Machine));
    }

    #[test]
    fn a_draw_is_within_its_range_and_reaches_both_ends() {
        let (min, max) = (Nanos::new(10), Nanos::new(13));
        let mut random = Random::new(1, Stream::Machine);
        let mut drawn = [false; 4];
        for _ in 0..200 {
            drawn[(random.draw(Range::new(min, max)) - min).get() as usize] = true;
        }
        assert_eq!(drawn, [true; 4]);
        assert_eq!(random.draw(Range::new(max, min)), max, "no choice");
    }

    /// The kernel's program is built apart from the rest: the draws themselves are fixed here.
    #[test]
    fn the_draws_of_a_seed_stay_what_they_are() {
        let mut random = Random::new(42, Stream::Thread(0));
        let drawn = [(); 3].map(|()| random.below(1_000_000));
        assert_eq!(drawn, DRAWN);
    }

    const DRAWN: [u64; 3] = [510_620, 520_029, 252_834];
}
