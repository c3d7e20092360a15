//! The sets whose admission is counted: so many contexts on one CPU that only the exact test can tell whether they fit.

use mainspring_abi::Nanos;
use mainspring_authority::admission::{Task, Verdict, judge};

/// How many contexts there are, and how many instructions their admission may take: 0.1 s and 1 s of a CPU that does 10⁹
/// instructions a second.
pub const LIMITS: [(usize, u64); 2] = [(1_000, 100_000_000), (5_000, 1_000_000_000)];

/// `count` contexts that use nine tenths of a CPU, with deadlines before their periods, which have no common measure.
fn contexts(count: usize) -> Vec<Task> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut draw = |least: u64, most: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        least + state % (most - least)
    };
    let tasks = (0..count).map(|_| {
        let period = draw(10_000_000, 100_000_000);
        let cost = period * 9 / 10 / count as u64;
        let deadline = period * draw(50, 100) / 100;
        Task { cost: Nanos::new(cost), deadline: Nanos::new(deadline), period: Nanos::new(period) }
    });
    tasks.collect()
}

/// Makes the set and runs the counted part.
pub fn measure(count: usize) {
    let tasks = contexts(count);
    match counted_admission(&tasks) {
        Verdict::Admitted { interval, .. } => {
            assert!(!interval.is_zero(), "it is no case for the exact test")
        }
        Verdict::Denied(denial) => panic!("the set fits: {denial}"),
    }
}

/// Valgrind counts from entry to exit of this function.
#[inline(never)]
#[unsafe(no_mangle)]
fn counted_admission(tasks: &[Task]) -> Verdict {
    judge(std::hint::black_box(tasks))
}
