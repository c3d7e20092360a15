//! Phases and choices of a program: what is repeated, for how long, and which way is taken.
//!
//! Every machine that plays programs follows them with [`Phases`], so that a seed takes the same ways on each.
//!
//! Conserved: steps are nested. A thread is in as many rounds as there are `repeat` and `for` steps around where it is.

use crate::{Span, Step};
use alloc::vec;
use alloc::vec::Vec;
use mainspring_abi::Nanos;
use mainspring_random::Random;

/// One way of a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Drawn numbers below this, and not below the way before, go this way: parts per million.
    pub below_ppm: u32,
    /// Index of its first step.
    pub first: usize,
}

/// A round under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// So many are left, this one included.
    Of(u64),
    /// Another begins before this time.
    Until(Nanos),
}

/// Where a thread is in the phases of its program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Phases(Vec<Round>);

impl Phases {
    /// Outside of all phases, where a program begins.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// The index of the step that follows step `at`, which is one of `repeat`, `for`, `either`, `or` and `end`.
    pub fn next(&mut self, program: &[Step], at: usize, now: Nanos, random: &mut Random) -> usize {
        match &program[at] {
            Step::Repeat { times, .. } => self.enter(Round::Of(*times), at),
            Step::For { span, .. } => {
                let until = now + random.draw(*span);
                self.enter(Round::Until(until), at)
            }
            Step::Either { ways, end } => {
                let drawn = random.below(1_000_000);
                let way = ways.iter().find(|way| drawn < u64::from(way.below_ppm));
                way.map_or(end + 1, |way| way.first)
            }
            Step::Or { end } => end + 1,
            Step::End { first: Some(first) } => {
                if self.goes_round_again(now) {
                    return *first;
                }
                self.0.pop();
                at + 1
            }
            _ => at + 1,
        }
    }

    fn enter(&mut self, round: Round, at: usize) -> usize {
        self.0.push(round);
        at + 1
    }

    /// A round of the innermost phase is over: whether there is another.
    fn goes_round_again(&mut self, now: Nanos) -> bool {
        match self.0.last_mut() {
            Some(Round::Of(left)) => {
                *left = left.saturating_sub(1);
                *left > 0
            }
            Some(Round::Until(until)) => now < *until,
            None => false,
        }
    }

    /// The period of the `every` step that a thread before step `at` comes to next, if its program goes on to its end and
    /// then once more. Of a choice that is not made yet, the first way is taken; a phase for a time goes on if it does now. If no
    /// `every` step is on that way, it is the next one in the text.
    #[must_use]
    pub fn next_period(&self, program: &[Step], at: usize, now: Nanos) -> Option<Nanos> {
        let start = at;
        let (mut phases, mut at, mut ends) = (self.clone(), at, vec![false; program.len()]);
        // Each step is passed at most twice: on the way to the end, and once more. A phase begins anew once.
        for _ in 0..4 * program.len() {
            at = match program.get(at) {
                None => 0,
                Some(Step::Every(period)) => return Some(*period),
                Some(Step::Repeat { times, .. }) => phases.enter(Round::Of(*times), at),
                Some(Step::For { span: Span { max, .. }, .. }) => phases.enter(Round::Until(now + *max), at),
                Some(Step::Or { end }) => end + 1,
                Some(Step::End { first: Some(first) }) => {
                    let was_here = core::mem::replace(&mut ends[at], true);
                    if !was_here && phases.goes_round_again(now) {
                        *first
                    } else {
                        phases.0.pop();
                        at + 1
                    }
                }
                Some(_) => at + 1,
            };
        }
        let (before, rest) = program.split_at_checked(start)?;
        rest.iter().chain(before).find_map(|step| match step {
            Step::Every(period) => Some(*period),
            _ => None,
        })
    }
}
