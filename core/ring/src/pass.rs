//! Passes over the pollers: each is selected once, and handles a bounded number of requests.

/// How many requests a selected poller handles in one pass, unless its machine says otherwise.
pub const SQES_PER_PASS: u32 = 2;

/// One round of service, periodic or from a syscall.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServicePass(u64);

/// Numbers the rounds.
#[derive(Debug, Default)]
pub struct Passes(u64);

impl Passes {
    /// A new round.
    pub fn begin(&mut self) -> ServicePass {
        self.0 += 1;
        ServicePass(self.0)
    }
}
