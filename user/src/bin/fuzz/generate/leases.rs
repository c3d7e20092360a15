//! Requests for CPUs to oneself, and for rings that the kernel polls.

use super::{Kind, Params, WORDS, cap, edge};
use crate::random::Random;

/// What is asked for: most often one CPU for a moment, by whoever asks; sometimes anything.
pub fn grant(random: &mut Random) -> Params {
    let mode = if random.once_in(16) { random.word() & 0xffff } else { random.below(2) };
    // A poller needs a ring, and nothing else may have one.
    let ring = if random.once_in(16) { random.word() & 0xffff } else { mode & 1 };
    let mut named = |kind, often: u64| if random.once_in(often) { u64::from(cap(random, kind)) } else { 0 };
    let (thread, account) = (named(Kind::Thread, 6), named(Kind::Context, 6));
    let (endpoint, replaces) = (named(Kind::Serve, 4), named(Kind::Lease, 6));
    let latency = if random.once_in(12) { edge(random) } else { 1 + random.below(100_000_000) };
    let lifetime = if random.once_in(12) { edge(random) } else { 1 + random.below(30_000_000) };
    let flags = random.below(8) | u64::from(random.once_in(2));
    let data = [
        mode | ring << 16 | thread << 32,
        latency,
        lifetime,
        account | endpoint << 32,
        replaces | flags << 32,
    ];
    let mut words = [0; WORDS];
    words[0] = 5 << 32 | 2 << 48;
    words[1..6].copy_from_slice(&data);
    let (bytes, count) = match random.below(16) {
        0 => (random.word(), random.below(66)),
        1 => (edge(random), random.below(9)),
        _ => (1 << random.below(4), 1),
    };
    // The two masks stand after the pointers to them.
    words[6] = 1 | 1 << 2 | 2 << 32 | count << 35;
    words[7] = 1 | 8 << 2 | 2 << 32 | u64::from(random.once_in(8)) << 35;
    (words[8], words[16]) = (bytes, random.below(16));
    Params { words, len: 17 }
}
