//! One CPU with interrupts, criticality bands and the floor of best effort.
//!
//! Bands go first by criticality, inside a band by deadline; interrupts go before all. A band holds if in no interval
//! more of its work is due than what goes before it leaves over, both counted from a common release. That is exact, not
//! only sufficient: the common release is itself a pattern that misses when the test fails, and no other pattern leaves
//! less. For a single band without interrupts it is the processor-demand test.
//!
//! The floor competes by deadline in whichever band is first. With the top band it is therefore an ordinary task. To a
//! lower band it can come first, when a higher band is ready, or wait its turn, when none is; the test counts it as coming
//! first, which is safe but not exact, and the verdict says so. The floor's own time is tested against all bands together.
//!
//! A lower band can hold the floor up while no higher band is ready, so that it is still there when one is. That takes no
//! deadline away, because the lower band was found to fit beside all of the floor and all that is above it: let a higher
//! job be due at the end of an interval of length `L`, and the lower work, due by the floor's deadline, at `M <= L` of it.
//! What is due of the higher work and the floor within `L` is at most what arrives of it in any first part `s <= M` plus
//! `L - s`, by their own test; so it is at most what can be served of it within `M`, plus `L - M`. The lower band's test
//! leaves room for its work beside the former within `M`. (The argument is for two bands; that it
//! holds step by step for more is shown by tests of three, not proved here.)

use super::demand::{self, Denial, Task, Verdict, horizon, judge_within, well_formed};
use super::effort::Effort;
use super::response::worst_response;
use super::walk::{Aim, Point, Walk, done_at, due_by, left_over, narrow, released, walk_back};
use alloc::vec::Vec;
use mainspring_abi::Nanos;

/// A task and the band that it runs in; the higher band goes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Banded {
    /// What it asks for.
    pub task: Task,
    /// Its band.
    pub criticality: u8,
}

/// All that wants time on one CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Load<'a> {
    /// The tasks.
    pub tasks: &'a [Banded],
    /// What best effort keeps, if anything; [`Task::of_floor`](super::Task::of_floor).
    pub floor: Option<Task>,
    /// Bounded work that precedes every task: interrupts. Only cost and period count.
    pub interrupts: &'a [Task],
    /// What each release costs on top of its own work: switches and interrupts that it brings along. Added to every
    /// task, to the floor and to interrupts.
    pub overhead: Nanos,
}

/// What a test was about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The interrupts by themselves.
    Interrupts,
    /// The tasks of this band; with the floor, if it is the top band.
    Band(u8),
    /// The floor of best effort below several bands.
    Floor,
}

/// An interval from a common release: what is due in it, and what there is for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interval {
    /// Whose.
    pub part: Part,
    /// Its length.
    pub length: Nanos,
    /// What is due in it.
    pub demand: Nanos,
    /// The time in it that is left for that.
    pub supply: Nanos,
}

/// Why a CPU's load is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuDenial {
    /// What could not be shown to hold.
    pub part: Part,
    /// Why. A malformed task is named by its place in [`Load::tasks`].
    pub denial: Denial,
}

/// What was found of one CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuVerdict {
    /// Long-run use, floor, interrupts and overhead included, in millionths of the CPU.
    pub utilization_ppm: u64,
    /// The interval that decides: the first that does not fit, or else the tightest that was looked at. None if the
    /// load was refused for another reason, or a total density of at most one was enough.
    pub deciding: Option<Interval>,
    /// Whether the test was sufficient only: a refusal then does not mean that a deadline would be missed.
    pub sufficient_only: bool,
    /// Why it is refused, if it is.
    pub denial: Option<CpuDenial>,
}

impl CpuVerdict {
    /// Whether every deadline holds.
    #[must_use]
    pub fn is_admitted(&self) -> bool {
        self.denial.is_none()
    }

    /// Whether the common release of everything is sure to miss a deadline.
    #[must_use]
    pub fn has_witness(&self) -> bool {
        let overloaded = |why: CpuDenial| why.denial == Denial::Overload;
        let excess = |why: CpuDenial| matches!(why.denial, Denial::Demand { .. }) && !self.sufficient_only;
        self.denial.is_some_and(|why| overloaded(why) || excess(why))
    }
}

/// Judges all that wants time on one CPU.
#[must_use]
pub fn judge_cpu(load: &Load<'_>) -> CpuVerdict {
    judge_cpu_within(load, &mut { Effort::FULL })
}

/// As [`judge_cpu`], with the effort that is to be had.
#[must_use]
pub fn judge_cpu_within(load: &Load<'_>, effort: &mut Effort) -> CpuVerdict {
    let (Ok(found) | Err(found)) = decide(load, Aim::FirstExcess, effort);
    CpuVerdict {
        utilization_ppm: utilization_ppm(load),
        deciding: found.deciding,
        sufficient_only: found.sufficient_only,
        denial: found.denial,
    }
}

/// Whether all of `load` holds; if not, an interval that does not, if that is why.
pub(super) fn failure(load: &Load<'_>, effort: &mut Effort) -> Result<(), Option<Nanos>> {
    match decide(load, Aim::Verdict, effort) {
        Ok(_) => Ok(()),
        Err(found) => Err(found.deciding.map(|interval| interval.length)),
    }
}

/// The bands of `load`, the highest first.
fn bands(tasks: &[Banded]) -> Vec<u8> {
    let mut there = [false; 256];
    for banded in tasks {
        there[usize::from(banded.criticality)] = true;
    }
    (0..=u8::MAX).rev().filter(|band| there[usize::from(*band)]).collect()
}

/// A task with the overhead in its cost.
fn inflated(task: Task, overhead: Nanos) -> Task {
    Task { cost: task.cost + overhead, ..task }
}

/// What goes before a band, and what shares its order.
struct Standing {
    above: Vec<Task>,
    /// The band's own tasks in the order of the load, then the floor if this is the top band.
    peers: Vec<Task>,
}

/// Where band `criticality` stands in `load`. The load must be well formed.
fn standing(load: &Load<'_>, criticality: u8) -> Standing {
    let with_cost = |task: Task| inflated(task, load.overhead);
    let top = load.tasks.iter().map(|banded| banded.criticality).max();
    let floor = load.floor.map(with_cost);
    let in_band = |of: core::cmp::Ordering| {
        let tasks = load.tasks.iter().filter(move |banded| banded.criticality.cmp(&criticality) == of);
        tasks.map(move |banded| with_cost(banded.task))
    };
    let (higher, same) = (in_band(core::cmp::Ordering::Greater), in_band(core::cmp::Ordering::Equal));
    // Room for all of them and the floor at once: a kernel decides this with its interrupts off.
    let mut peers = Vec::with_capacity(same.clone().count() + 1);
    peers.extend(same);
    let mut above = interrupts(load);
    above.reserve(higher.clone().count());
    above.extend(higher);
    if top == Some(criticality) { &mut peers } else { &mut above }.extend(floor);
    Standing { above, peers }
}

/// The longest that the task at `place` can take from release to completion, or a bound on it if there are several bands
/// and a floor. `None` if there is none, or the effort was spent on it.
#[must_use]
pub fn response_bound(load: &Load<'_>, place: usize, effort: &mut Effort) -> Option<Nanos> {
    let criticality = load.tasks.get(place)?.criticality;
    let among_peers = load.tasks[..place].iter().filter(|other| other.criticality == criticality).count();
    let Standing { mut above, mut peers } = standing(load, criticality);
    if let Some(floor) = load.floor.map(|floor| inflated(floor, load.overhead))
        && bands(load.tasks).len() > 1
    {
        // Lower bands with earlier deadlines can hold the floor up while no higher band is ready, so that what it did
        // not get yet is before this task besides what it gets next.
        if load.tasks.iter().all(|other| other.criticality <= criticality) {
            peers.pop();
            above.push(floor);
        }
        above.push(Task { cost: floor.cost, deadline: Nanos::MAX, period: Nanos::MAX });
    }
    worst_response(&above, &peers, among_peers, effort)
}

/// Interrupts have no deadline of their own but the next one.
fn interrupts(load: &Load<'_>) -> Vec<Task> {
    let of = |task: &Task| Task { deadline: task.period, ..inflated(*task, load.overhead) };
    load.interrupts.iter().map(of).collect()
}

#[derive(Default)]
struct Found {
    deciding: Option<Interval>,
    sufficient_only: bool,
    denial: Option<CpuDenial>,
}

impl Found {
    fn refused(part: Part, denial: Denial) -> Self {
        let sufficient_only = denial == Denial::Undecided;
        Self { deciding: None, sufficient_only, denial: Some(CpuDenial { part, denial }) }
    }

    fn keep_tighter(&mut self, other: Option<Interval>) {
        let slack = |interval: Interval| interval.supply - interval.demand;
        if let Some(new) = other
            && self.deciding.is_none_or(|old| slack(new) < slack(old))
        {
            self.deciding = Some(new);
        }
    }
}

fn decide(load: &Load<'_>, aim: Aim, effort: &mut Effort) -> Result<Found, Found> {
    check_shape(load)?;
    let everything = everything(load);
    let bands = bands(load.tasks);
    if demand::overloaded(&everything) {
        let part = bands.last().map_or(Part::Floor, |lowest| Part::Band(*lowest));
        return Err(Found::refused(part, Denial::Overload));
    }
    let mut found = Found::default();
    for (rank, band) in bands.iter().enumerate() {
        let part = Part::Band(*band);
        effort.look_at(everything.len()).ok_or_else(|| Found::refused(part, Denial::Undecided))?;
        let standing = standing(load, *band);
        let sufficient_only = rank > 0 && load.floor.is_some();
        let interval = judge_band(part, &standing, sufficient_only, aim, effort)?;
        found.sufficient_only |= sufficient_only;
        found.keep_tighter(interval);
    }
    match (load.floor, bands.len()) {
        (Some(floor), 0) => {
            let standing =
                Standing { above: interrupts(load), peers: alloc::vec![inflated(floor, load.overhead)] };
            found.keep_tighter(judge_band(Part::Floor, &standing, false, aim, effort)?);
        }
        (Some(floor), 2..) => {
            found.sufficient_only = true;
            judge_floor(load, inflated(floor, load.overhead), &bands, aim, effort)?;
        }
        _ => {}
    }
    Ok(found)
}

fn everything(load: &Load<'_>) -> Vec<Task> {
    let tasks = load.tasks.iter().map(|banded| banded.task).chain(load.floor);
    let mut all: Vec<Task> = tasks.map(|task| inflated(task, load.overhead)).collect();
    all.extend(interrupts(load));
    all
}

/// Every task makes sense by itself, and fits its deadline when alone with its overhead.
fn check_shape(load: &Load<'_>) -> Result<(), Found> {
    for (place, banded) in load.tasks.iter().enumerate() {
        if !well_formed(&banded.task) {
            let denial = Denial::Malformed { task: place };
            return Err(Found::refused(Part::Band(banded.criticality), denial));
        }
    }
    let banded = load.tasks.iter().map(|banded| (Part::Band(banded.criticality), banded.task));
    let floor = load.floor.map(|floor| (Part::Floor, floor));
    let interrupts =
        load.interrupts.iter().map(|task| (Part::Interrupts, Task { deadline: task.period, ..*task }));
    for (part, task) in banded.chain(floor).chain(interrupts) {
        let demand = task.cost + load.overhead;
        if demand > task.deadline || task.period.is_zero() {
            let denial = Denial::Demand { interval: task.deadline, due: demand };
            let deciding = Interval { part, length: task.deadline, demand, supply: task.deadline };
            return Err(Found { deciding: Some(deciding), ..Found::refused(part, denial) });
        }
    }
    Ok(())
}

/// Whether `peers` hold by deadline in what `above` leaves; the tightest interval that was looked at.
fn judge_band(
    part: Part,
    Standing { above, peers }: &Standing,
    sufficient_only: bool,
    aim: Aim,
    effort: &mut Effort,
) -> Result<Option<Interval>, Found> {
    if above.is_empty() {
        return match judge_within(peers, aim, effort) {
            Verdict::Admitted { interval, .. } if interval.is_zero() => Ok(None),
            Verdict::Admitted { interval, due } => {
                Ok(Some(Interval { part, length: interval, demand: due, supply: interval }))
            }
            Verdict::Denied(denial @ Denial::Demand { interval, due }) => {
                let deciding = Interval { part, length: interval, demand: due, supply: interval };
                Err(Found { deciding: Some(deciding), ..Found::refused(part, denial) })
            }
            Verdict::Denied(denial) => Err(Found::refused(part, denial)),
        };
    }
    let undecided = || Found::refused(part, Denial::Undecided);
    let horizon = horizon(above, peers, effort).ok_or_else(undecided)?;
    let look = |limit: u64| {
        effort.look_at(peers.len())?;
        let (due, last) = due_by(peers, limit);
        let Some(at) = last else { return Some(None) };
        let need = done_at(due, above, at, effort)?;
        Some(Some(Point { at, due, need }))
    };
    let walk = walk_back(horizon, aim, look);
    let mut interval = |point: Point| {
        let supply = if aim == Aim::FirstExcess { left_over(above, point.at, effort) } else { 0 };
        let [length, demand, supply] = [point.at, point.due, supply].map(Nanos::new);
        Interval { part, length, demand, supply }
    };
    match walk {
        Walk::Fits(tightest) => Ok(tightest.map(interval)),
        Walk::Excess(point) => {
            let deciding = Some(interval(point));
            let [interval, due] = [point.at, point.due].map(Nanos::new);
            let denial = Some(CpuDenial { part, denial: Denial::Demand { interval, due } });
            Err(Found { deciding, sufficient_only, denial })
        }
        Walk::Undecided => Err(undecided()),
    }
}

/// Whether the floor gets its budget in each of its periods although several bands compete with it.
///
/// Suppose that it does not get it between its release and its deadline. While it waits only work that is due by that
/// deadline runs. Go back to the last moment at which no work of a band above the lowest was pending, nor other work that
/// is due by the deadline. From there on the CPU was busy with work due by the deadline and, until the floor's release,
/// with work of higher bands that is due later. If both together always fit, that cannot have happened.
fn judge_floor(
    load: &Load<'_>,
    floor: Task,
    bands: &[u8],
    aim: Aim,
    effort: &mut Effort,
) -> Result<(), Found> {
    let lowest = bands.last().copied();
    let of = |is_lowest: bool| -> Vec<Task> {
        let kept = load.tasks.iter().filter(|banded| (Some(banded.criticality) == lowest) == is_lowest);
        kept.map(|banded| inflated(banded.task, load.overhead)).collect()
    };
    let mut by_deadline = of(true);
    by_deadline.push(floor);
    let higher = of(false);
    let mut first = interrupts(load);
    let interrupts = first.len();
    first.extend_from_slice(&higher);
    let undecided = || Found::refused(Part::Floor, Denial::Undecided);
    let horizon = horizon(&first, &by_deadline, effort).ok_or_else(undecided)?;
    let interrupts = &first[..interrupts];
    let look = |limit: u64| {
        effort.look_at(by_deadline.len() + first.len())?;
        let Some(before) = limit.checked_sub(floor.deadline.get()) else { return Some(None) };
        let (lowest_due, lowest_last) = due_by(&by_deadline, limit);
        let (higher_due, higher_last) = due_by(&higher, limit);
        let late_of = |task: &Task| {
            let one = core::slice::from_ref(task);
            released(one, before).saturating_sub(due_by(one, limit).0.into())
        };
        let late: u128 = higher.iter().map(late_of).sum();
        // More can come just after each release.
        let since = |tasks: &[Task], from: u64, length: u64| {
            let last = |task: &Task| Some(length.checked_sub(1)? / task.period.get() * task.period.get() + 1);
            tasks.iter().filter_map(last).max().map(|last| from + last)
        };
        let changes = [
            lowest_last,
            higher_last,
            since(&higher, floor.deadline.get(), before),
            since(interrupts, 0, limit),
        ];
        let at = changes.into_iter().flatten().max().unwrap_or(0).max(floor.deadline.get());
        let before = u128::from(at - floor.deadline.get());
        let due =
            u128::from(lowest_due) + u128::from(higher_due) + late.min(before) + released(interrupts, limit);
        Some(Some(Point { at, due: narrow(due), need: narrow(due) }))
    };
    match walk_back(horizon, aim, look) {
        Walk::Fits(_) => Ok(()),
        Walk::Excess(point) => {
            let part = Part::Floor;
            let [length, demand] = [point.at, point.due].map(Nanos::new);
            let denial = CpuDenial { part, denial: Denial::Demand { interval: length, due: demand } };
            let deciding = Interval { part, length, demand, supply: length };
            Err(Found { deciding: Some(deciding), sufficient_only: true, denial: Some(denial) })
        }
        Walk::Undecided => Err(undecided()),
    }
}

fn utilization_ppm(load: &Load<'_>) -> u64 {
    let tasks = load.tasks.iter().map(|banded| banded.task).chain(load.floor);
    let tasks = tasks.map(|task| inflated(task, load.overhead)).chain(interrupts(load));
    to_ppm(tasks.map(|task| demand::utilization(&task)).fold(0, u128::saturating_add))
}

/// What [`demand::utilization`] counts, in millionths.
pub(super) fn to_ppm(sum: u128) -> u64 {
    let ppm = sum.saturating_mul(1_000_000).saturating_add(1 << 63) >> 64;
    u64::try_from(ppm).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
