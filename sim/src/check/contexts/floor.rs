//! What best effort keeps: a budget of its own, which it may insist on when that is due before the first context.

use super::lots::Lots;

/// How often the floor is to be had.
const PERIOD: u64 = 100_000_000;

/// Its lots are as many as any context's.
const LIMIT: usize = 16;

/// The floor of one CPU.
#[derive(Clone, Debug)]
pub struct Floor {
    lots: Option<Lots>,
    wanted: bool,
}

impl Floor {
    /// So many parts per million.
    #[must_use]
    pub fn new(ppm: u32) -> Self {
        let budget = PERIOD / 1_000_000 * u64::from(ppm);
        Self { lots: (budget > 0).then(|| Lots::whole(budget, PERIOD, LIMIT, 0)), wanted: false }
    }

    /// Somebody of best effort waits, or nobody does.
    pub fn wanted(&mut self, now: u64, wanted: bool) {
        let before = std::mem::replace(&mut self.wanted, wanted);
        let Some(lots) = &mut self.lots else { return };
        match (before, wanted) {
            (false, true) => lots.resume(now),
            (true, false) => lots.pause(now),
            _ => {}
        }
    }

    /// Best effort ran from `start` to `now`. What it had beyond its floor was free.
    pub fn spend(&mut self, start: u64, now: u64) -> Result<(), String> {
        let Some(lots) = &mut self.lots else { return Ok(()) };
        let mut left = now - start;
        for _ in 0..LIMIT {
            let (release, amount) = lots.first();
            if release > now || left == 0 {
                break;
            }
            let part = amount.min(left);
            lots.spend(part)?;
            left -= part;
        }
        Ok(())
    }

    /// When it may insist next, until when that is due, and on how much.
    #[must_use]
    pub fn next(&self) -> Option<(u64, u64, u64)> {
        let (release, amount) = self.lots.as_ref()?.first();
        Some((release, release + PERIOD, amount))
    }

    /// On how much it may insist at `now` before something that is due at `due`.
    #[must_use]
    pub fn claims(&self, now: u64, due: u64) -> Option<u64> {
        self.next().filter(|(release, until, _)| *release <= now && *until < due).map(|(.., amount)| amount)
    }
}
