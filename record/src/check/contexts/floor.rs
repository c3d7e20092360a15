//! What best effort keeps: a part of every window of 100 ms, due at the window's end.
//!
//! Two accounts of the same thing. [`Floor::next`] says, by the stated rule, when best effort may insist, and the core's
//! decisions must follow it. [`Floor::watch`] does not care for the rule. It checks what the rule is for: a window through
//! which best effort was ready, beside contexts that fit beside the floor, has given it its part.

use super::super::ensure;
use mainspring_abi::ContextRef;
use std::collections::BTreeMap;

/// The windows begin at multiples of this.
pub const WINDOW: u64 = 100_000_000;

/// The parts of a CPU that densities are counted in.
const WHOLE: u128 = 1_000_000_000;

/// The floor of one CPU.
#[derive(Clone, Debug)]
pub struct Floor {
    budget: u64,
    /// Windows that were not served in full, and what each still lacks, oldest first.
    owed: BTreeMap<u64, u64>,
    /// Up to which window `owed` has been filled in.
    opened: u64,
    /// Since when best effort has been ready.
    wanted: Option<u64>,
    watch: Watch,
}

/// What was seen of the window that is being watched.
#[derive(Clone, Debug, Default)]
struct Watch {
    /// When it began.
    window: u64,
    /// What best effort ran in it.
    ran: u64,
    /// The contexts that were here at any time of it.
    beside: BTreeMap<ContextRef, Claim>,
    /// For some time of it there were none.
    alone: bool,
    /// Contexts that do not fit have been here since there were none.
    overloaded: bool,
}

/// What a context may ask for: budget, time to the deadline, criticality band.
pub type Claim = (u64, u64, u8);

impl Floor {
    /// So many parts per million.
    #[must_use]
    pub fn new(ppm: u32) -> Self {
        Self {
            budget: WINDOW / 1_000_000 * u64::from(ppm),
            owed: BTreeMap::new(),
            opened: 0,
            wanted: None,
            watch: Watch::default(),
        }
    }

    /// A best-effort thread waits, or none does.
    pub fn wanted(&mut self, now: u64, wanted: bool) {
        if !wanted {
            self.wanted = None;
            self.owed.clear();
        } else if self.wanted.is_none() {
            self.wanted = Some(now);
            self.opened = now.next_multiple_of(WINDOW);
        }
    }

    /// Windows that have begun by `now` are owed their part.
    fn open(&mut self, now: u64) {
        if self.budget == 0 || self.wanted.is_none() {
            return;
        }
        while self.opened <= now {
            self.owed.insert(self.opened, self.budget);
            self.opened += WINDOW;
        }
    }

    /// Best effort ran from `start` to `now`. What it had beyond its floor was free.
    pub fn spend(&mut self, start: u64, now: u64) {
        self.open(now);
        let (mut from, mut paid) = (start, 0);
        while from < now
            && paid < 16
            && let Some(mut window) = self.owed.first_entry()
        {
            from = from.max(*window.key());
            let part = (*window.get()).min(now.saturating_sub(from));
            from += part;
            *window.get_mut() -= part;
            if *window.get() == 0 {
                window.remove();
                paid += 1;
            }
        }
        if from < now && paid == 16 {
            // So late that the older windows are forgiven.
            let current = now - now % WINDOW;
            self.owed.retain(|window, _| *window >= current);
        }
        self.watch.ran += now.saturating_sub(start.max(self.watch.window));
    }

    /// When it may insist next, until when that is due, and on how much.
    #[must_use]
    pub fn next(&self) -> Option<(u64, u64, u64)> {
        self.wanted.filter(|_| self.budget > 0)?;
        let first = self.owed.first_key_value().map(|(window, left)| (*window, *left));
        let (window, left) = first.unwrap_or((self.opened, self.budget));
        Some((window, window + WINDOW, left))
    }

    /// On how much it may insist at `now` before something that is due at `due`.
    #[must_use]
    pub fn claims(&self, now: u64, due: u64) -> Option<u64> {
        self.next().filter(|(release, until, _)| *release <= now && *until < due).map(|(.., amount)| amount)
    }

    /// Time comes to `now`. `here` are the contexts of this CPU, and best effort has been running since `running`, if it does.
    /// `Err` if a window has ended in which best effort, ready all the time beside contexts that fit, had less than its floor.
    pub fn watch(
        &mut self,
        now: u64,
        here: &BTreeMap<ContextRef, Claim>,
        running: Option<u64>,
    ) -> Result<(), String> {
        self.watch.alone |= here.is_empty();
        while self.watch.window + WINDOW <= now {
            let (begin, end) = (self.watch.window, self.watch.window + WINDOW);
            let in_progress = running.map_or(0, |since| end.saturating_sub(since.max(begin)));
            let ran = self.watch.ran + in_progress;
            let ready = !self.watch.alone && self.wanted.is_some_and(|since| since <= begin);
            let fits = self.fits();
            self.watch.overloaded |= !fits;
            // What was charged already in the next window was charged at `now`, which is when this one is judged.
            self.watch.window = end;
            self.watch.ran = 0;
            self.watch.alone = here.is_empty();
            self.watch.beside.clone_from(here);
            if here.is_empty() {
                self.watch.overloaded = false;
            }
            ensure(!(ready && fits && !self.watch.overloaded && ran < self.budget), || {
                format!(
                    "best effort was ready from {begin}ns to {end}ns and had {ran}ns of its {}ns",
                    self.budget
                )
            })?;
        }
        for (who, claim) in here {
            self.watch.beside.insert(*who, *claim);
        }
        Ok(())
    }

    /// Whether the contexts of the watched window fit beside the floor, by a test that is enough for any of their releases.
    fn fits(&self) -> bool {
        let mut bands = self.watch.beside.values().map(|(.., band)| *band);
        let first = bands.next();
        let density: u128 = self
            .watch
            .beside
            .values()
            .map(|(budget, deadline, _)| u128::from(*budget) * WHOLE / u128::from((*deadline).max(1)) + 1)
            .sum();
        bands.all(|band| Some(band) == first)
            && density + u128::from(self.budget) * WHOLE / u128::from(WINDOW) <= WHOLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn beside(budget_ms: u64) -> BTreeMap<ContextRef, Claim> {
        [(ContextRef::new(1, 0), (budget_ms * MS, 100 * MS, 0))].into()
    }

    /// What is said of a window in which best effort, ready all the time, ran for `ran_ms`.
    fn window(ran_ms: u64, beside: &BTreeMap<ContextRef, Claim>) -> Result<(), String> {
        let mut floor = Floor::new(50_000);
        floor.watch(0, beside, None)?;
        floor.wanted(0, true);
        floor.spend(0, ran_ms * MS);
        floor.watch(99 * MS, beside, None)?;
        floor.watch(101 * MS, beside, None)
    }

    //= OWN:floor.window
    #[test]
    fn a_window_without_its_floor_is_noticed() {
        assert_eq!(window(5, &beside(90)), Ok(()));
        let told = window(4, &beside(90)).expect_err("a millisecond is missing");
        assert!(told.contains("had 4000000ns of its 5000000ns"), "{told}");
    }

    #[test]
    fn nothing_is_demanded_beside_contexts_that_do_not_fit() {
        assert_eq!(window(0, &beside(96)), Ok(()));
        assert_eq!(window(0, &BTreeMap::new()), Ok(()));
    }

    #[test]
    fn best_effort_that_still_runs_has_had_its_time() {
        let mut floor = Floor::new(50_000);
        let beside = beside(90);
        assert_eq!(floor.watch(0, &beside, None), Ok(()));
        floor.wanted(0, true);
        assert_eq!(floor.watch(102 * MS, &beside, Some(95 * MS)), Ok(()));
    }
}
