//! The victim that a worker without tasks steals from.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// How a worker picks its victims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VictimStrategy {
    /// A seeded draw among the others.
    #[default]
    Random,
    /// One after the other.
    RoundRobin,
    /// The one with the longest queue.
    LeastLoaded,
}

/// The most attempts of one round, whatever the configuration.
pub const MAX_ATTEMPTS: usize = 4;

/// The seed of a runtime that was given none.
pub const DEFAULT_SEED: u64 = 0x6d61_696e_7370_7269;

/// One worker's choice of victims: a function of seed, worker and history.
#[derive(Clone, Debug)]
pub struct Victims {
    me: usize,
    workers: usize,
    strategy: VictimStrategy,
    rng: Xoshiro256PlusPlus,
    turn: usize,
}

impl Victims {
    /// The choices of worker `me` of `workers`.
    pub fn new(seed: u64, me: usize, workers: usize, strategy: VictimStrategy) -> Self {
        let rng =
            Xoshiro256PlusPlus::seed_from_u64(seed ^ (me as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        Self { me, workers, strategy, rng, turn: me }
    }

    /// How many attempts one round has.
    pub fn attempts(&self) -> usize {
        (self.workers - 1).min(MAX_ATTEMPTS)
    }

    /// The next victim, never `me`. `load` says how long a worker's queue is. There are at least two workers.
    pub fn next(&mut self, load: impl Fn(usize) -> usize) -> usize {
        match self.strategy {
            VictimStrategy::Random => {
                let draw = self.below(self.workers - 1);
                if draw >= self.me { draw + 1 } else { draw }
            }
            VictimStrategy::RoundRobin => {
                self.turn = (self.turn + 1) % self.workers;
                if self.turn == self.me {
                    self.turn = (self.turn + 1) % self.workers;
                }
                self.turn
            }
            VictimStrategy::LeastLoaded => {
                // Ties go to the next after the last victim, so that equal queues take turns.
                let from = self.turn + 1;
                let victim = (0..self.workers)
                    .map(|offset| (from + offset) % self.workers)
                    .filter(|&worker| worker != self.me)
                    .max_by_key(|&worker| (load(worker), usize::from(worker != self.turn)))
                    .unwrap_or((self.me + 1) % self.workers);
                self.turn = victim;
                victim
            }
        }
    }

    /// A seeded number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.rng.next_u64()) * bound as u128) >> 64) as usize
    }
}
