//! How much work a test may take.
//!
//! Every test of this module walks over points in time and looks at each task at every one of them. How many points there
//! are depends on the figures, not only on their number: periods without a common measure have as many as their product. So
//! each look is paid for from an [`Effort`], and a test that has none left says that it did not decide.

/// The looks at one task that are left; about ten nanoseconds each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort(u64);

impl Effort {
    /// For a command, or the start of a run: some tenths of a second.
    pub const FULL: Self = Self(1 << 24);
    /// For a decision that others wait for: some milliseconds.
    pub const ONLINE: Self = Self(1 << 17);

    /// So many looks.
    #[must_use]
    pub const fn new(looks: u64) -> Self {
        Self(looks)
    }

    /// Whether nothing is left.
    pub(crate) fn is_spent(self) -> bool {
        self.0 == 0
    }

    /// Pays for a look at each of `tasks` tasks. `None` if there is too little left; then nothing is left.
    pub(crate) fn look_at(&mut self, tasks: usize) -> Option<()> {
        let left = self.0.checked_sub(tasks as u64);
        self.0 = left.unwrap_or(0);
        left.map(drop)
    }
}
