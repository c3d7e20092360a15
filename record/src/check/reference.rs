//! Which choices are right: which thread may be chosen, which may be stolen, and for how long.
//!
//! Where two tags differ by less than the core can tell apart, either choice is right.

use super::fairness::{Fairness, Tag};
use super::machine_model::MachineModel;
use super::{Number, ensure};
use mainspring_abi::Policy;
use mainspring_sched::{Affinity, Dispatch, State};

/// Whether the target of a direct handoff may go first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Preference {
    None,
    Free,
    Until(u64),
}

/// Until when a dispatched thread may run at most.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cap {
    /// It was chosen from the queue.
    None,
    /// It was handed the CPU for this long, give or take a nanosecond of the core's rounding.
    Direct(u64, u64),
    /// One or the other: it is too close to the limit to tell.
    Either(u64, u64),
}

impl<N: Number> Fairness<N> {
    /// No CPU has a thread for `thief` that is more overdue, on its own clock, than the one it asks. Equal ones go to
    /// the lower CPU.
    pub(super) fn judge_victim(
        &self,
        model: &MachineModel,
        victim: usize,
        thief: usize,
        given: bool,
    ) -> Result<(), String> {
        let due_in = |at: usize| {
            let (due, _) = self.most_overdue(model, at, thief)?;
            Some(due.minus(&self.cpus[at].fluid.clock))
        };
        let Some(taken) = due_in(victim) else {
            return ensure(!given, || format!("CPU {victim} had nothing to give"));
        };
        for at in (0..self.cpus.len()).filter(|at| *at != thief) {
            if let Some(other) = due_in(at) {
                ensure(!self.surely_before(&other, &taken), || {
                    format!("CPU {thief} stole from CPU {victim}, but CPU {at} is more overdue")
                })?;
            }
        }
        Ok(())
    }

    pub(super) fn most_overdue(&self, model: &MachineModel, at: usize, thief: usize) -> Option<(N, u32)> {
        let queued = model.on(at).filter(|(.., state)| *state == State::Queued);
        let allowed = queued.filter(|(thread, ..)| self.may_run(thread.index(), thief));
        let due = allowed.filter_map(|(thread, ..)| {
            Some((self.competitor(thread.index()).tag.as_ref()?.deadline.clone(), thread.index()))
        });
        due.min()
    }

    pub(super) fn may_run(&self, index: u32, cpu: usize) -> bool {
        let competitor = self.competitor(index);
        if competitor.holds {
            // A context stays where it is, also while its thread goes on without it.
            return false;
        }
        match &competitor.affinity {
            Affinity::Any => true,
            Affinity::Only(cpus) => cpus.iter().any(|one| one.index() == cpu),
        }
    }

    /// Judges the choice of `chosen`. The end of the slice that it takes over, if it does; `Err` if it is wrong.
    pub(super) fn choose(
        &mut self,
        model: &MachineModel,
        at: usize,
        now: u64,
        yielder: Option<u32>,
        (direct, preference): (Option<u32>, Preference),
        chosen: Option<u32>,
    ) -> Result<Cap, String> {
        if let Some(target) = direct {
            let (least, most) = self.handed(at, now, target, preference);
            if least > 0 {
                ensure(chosen == Some(target), || {
                    format!("t{target} was handed the CPU and {chosen:?} took it")
                })?;
                return Ok(Cap::Direct(least, most));
            }
            self.enqueue(at, target);
            if most > 0 && chosen == Some(target) {
                return Ok(Cap::Either(least, most));
            }
        }
        let mut queue: Vec<u32> = model
            .on(at)
            .filter(|(thread, ..)| self.competitor(thread.index()).tag.is_some())
            .map(|(thread, ..)| thread.index())
            .collect();
        if let Some(index) = yielder {
            // Others go first if one is owed service; only then does the one that yields stand with them.
            let (any, maybe) = self.somebody_owed(at, &queue);
            if any {
                return self.judge_choice(at, &queue, chosen).map(|()| Cap::None);
            }
            self.requeue(at, index);
            let mut all = queue.clone();
            all.push(index);
            self.pull_clock(at, &all);
            // Too close to tell whether one was owed; the thread that was chosen then comes first either way.
            if !maybe || chosen == Some(index) {
                queue = all;
            }
        } else {
            self.pull_clock(at, &queue);
        }
        self.judge_choice(at, &queue, chosen).map(|()| Cap::None)
    }

    /// Whether a thread of `queue` that could be chosen has come to its start: beyond doubt, and perhaps. WFQ looks at
    /// its first thread only.
    fn somebody_owed(&self, at: usize, queue: &[u32]) -> (bool, bool) {
        let clock = &self.cpus[at].fluid.clock;
        let tags = || queue.iter().filter_map(|one| self.competitor(*one).tag.as_ref());
        if self.setting.policy == Policy::Eevdf {
            let any = tags().any(|tag| self.surely_started(&tag.start, clock));
            return (any, tags().any(|tag| !self.surely_not_started(&tag.start, clock)));
        }
        let Some(first) = tags().map(|tag| &tag.deadline).min() else { return (false, false) };
        let foremost = || tags().filter(|tag| !self.surely_before(first, &tag.deadline));
        let all = foremost().all(|tag| self.surely_started(&tag.start, clock));
        (all, foremost().any(|tag| !self.surely_not_started(&tag.start, clock)))
    }

    /// How long the target of a handoff may run ahead of the queue, at least and at most: for the rest of the slice
    /// that it was handed, and no further ahead of its share than one request of its own would take it.
    fn handed(&self, at: usize, now: u64, target: u32, preference: Preference) -> (u64, u64) {
        let slice = match preference {
            Preference::None => 0,
            Preference::Free => u64::MAX,
            Preference::Until(end) => end - now,
        };
        let fluid = &self.cpus[at].fluid;
        let request = self.request(target);
        let start = self.tag(at, target).start;
        if self.surely_started(&start, &fluid.clock) {
            return (slice.min(request), slice.min(request));
        }
        let ahead_units = (-fluid.lag(target, 0).units()).max(0);
        let ahead = u64::try_from(ahead_units.div_euclid(super::fairness::UNITS)).unwrap_or(u64::MAX);
        let least = request.saturating_sub(ahead.saturating_add(2));
        let certain = self.surely_not_started(&start, &fluid.clock);
        let most = if certain { request.saturating_sub(ahead.saturating_sub(1)) } else { request };
        (slice.min(least), slice.min(most))
    }

    /// The clock moves up to the earliest start in `queue`, if no thread there may start.
    fn pull_clock(&mut self, at: usize, queue: &[u32]) {
        let starts = queue.iter().filter_map(|index| Some(&self.competitor(*index).tag.as_ref()?.start));
        if let Some(earliest) = starts.min().cloned() {
            let clock = &mut self.cpus[at].fluid.clock;
            *clock = clock.clone().max(earliest);
        }
    }

    /// `chosen` is the one to run of `queue`.
    fn judge_choice(&self, at: usize, queue: &[u32], chosen: Option<u32>) -> Result<(), String> {
        let tagged = |index: u32| self.competitor(index).tag.clone().map(|tag| (index, tag));
        let tags: Vec<(u32, Tag<N>)> = queue.iter().filter_map(|index| tagged(*index)).collect();
        let Some(index) = chosen else {
            return ensure(tags.is_empty(), || "idle with work queued".to_owned());
        };
        let Some((_, taken)) = tags.iter().find(|(one, _)| *one == index) else {
            return Err(format!("t{index} was chosen and is not queued"));
        };
        let eevdf = self.setting.policy == Policy::Eevdf;
        let clock = &self.cpus[at].fluid.clock;
        ensure(!eevdf || !self.surely_later(&taken.start, clock), || {
            format!("t{index} was chosen before its start {:?}, at {clock:?}", taken.start)
        })?;
        for (other, tag) in &tags {
            let eligible = !eevdf || self.surely_eligible(&tag.start, clock);
            ensure(
                *other == index || !eligible || !self.must_precede((*other, tag), (index, taken)),
                || format!("t{index} {taken:?} was chosen, but t{other} {tag:?} comes first at {clock:?}"),
            )?;
        }
        Ok(())
    }

    /// Whether `a` comes before `b` beyond doubt.
    pub(super) fn must_precede(&self, (a, x): (u32, &Tag<N>), (b, y): (u32, &Tag<N>)) -> bool {
        if !self.setting.strict {
            return self.surely_before(&x.deadline, &y.deadline);
        }
        (&x.deadline, &y.start, a) < (&y.deadline, &x.start, b)
    }

    pub(super) fn surely_before(&self, a: &N, b: &N) -> bool {
        if self.setting.strict { a < b } else { a.plus(&self.blur) < *b }
    }

    /// Whether a request with that start may not be chosen, beyond doubt.
    pub(super) fn surely_later(&self, start: &N, clock: &N) -> bool {
        self.setting.policy == Policy::Eevdf && self.surely_not_started(start, clock)
    }

    /// Whether a request with that start may be chosen, beyond doubt.
    pub(super) fn surely_eligible(&self, start: &N, clock: &N) -> bool {
        self.setting.policy == Policy::Wfq || self.surely_started(start, clock)
    }

    fn surely_not_started(&self, start: &N, clock: &N) -> bool {
        *start > clock.plus(&self.blur)
    }

    fn surely_started(&self, start: &N, clock: &N) -> bool {
        if self.setting.strict {
            return start <= clock;
        }
        // A thread that was put where the clock stands, as on waking, is there for the core too.
        start == clock || start.plus(&self.blur) <= *clock
    }

    /// A slice is what is left of the request, at most a quantum, and no more than the slice that was handed over.
    /// While best effort runs by right of its floor, no more than that either.
    pub(super) fn judge_slice(
        &self,
        now: u64,
        run: &Dispatch,
        cap: Cap,
        floor: Option<u64>,
    ) -> Result<(), String> {
        let index = run.thread.index();
        let left = self.request(index) - self.competitor(index).used;
        let own = (now + left.min(self.setting.quantum.get())).min(floor.unwrap_or(u64::MAX));
        let told = run.slice_end.get();
        let within = |least: u64, most: u64| {
            (own.min(now.saturating_add(least))..=own.min(now.saturating_add(most))).contains(&told)
        };
        let right = match cap {
            Cap::None => told == own,
            Cap::Direct(least, most) => within(least, most),
            Cap::Either(least, most) => within(least, most) || told == own,
        };
        ensure(right, || format!("{:?} has the CPU until {told}, not {own} within {cap:?}", run.thread))
    }
}
