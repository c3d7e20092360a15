//! A digest of the decision sequence: 64-bit FNV-1a over 64-bit words. Equal runs have equal digests on every machine
//! and in every version; it guards against accidents, not against forgery.

const OFFSET: u64 = 0xCBF2_9CE4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01B3;

/// The digest of the decisions so far.
#[derive(Clone, Copy, Debug)]
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self::new()
    }
}

impl Digest {
    /// The digest of no decision.
    #[must_use]
    pub fn new() -> Self {
        Self(OFFSET)
    }

    #[inline]
    pub(crate) fn word(&mut self, word: u64) {
        // Plain FNV mixes upwards only; the rotation brings high bits back down.
        self.0 = (self.0 ^ word).wrapping_mul(PRIME).rotate_left(29);
    }

    /// One decision: on which CPU, when, and which thread, `None` for idle.
    #[inline]
    pub fn decision(&mut self, now_ns: u64, cpu: usize, thread: Option<u32>) {
        self.word(now_ns);
        self.word((cpu as u64) << 32 | u64::from(thread.unwrap_or(u32::MAX)));
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
