//! Jobs: what a thread does in each period of its `every` steps.
//!
//! A job is released at a multiple of the period since its thread's start, and is due at the next one. It ends where its
//! thread comes to the next `every` step, or ends; the next one is released at the multiple after that. So a late job
//! leaves no room for those whose periods pass meanwhile: they are never begun.
//!
//! Conserved: each multiple of the period that finds a job under way is one miss, at that time, whether or not the thread
//! ever runs again.

use crate::Latencies;
use mainspring_abi::Nanos;
use mainspring_program::next_release;
use mainspring_report::{Job, JobsReport, Miss, MissKind, Worst};

/// How many misses of one run are listed, the earliest. All are counted.
pub const MISSES_LISTED: usize = 10_000;

/// Times from a beginning to an end, and when the longest began.
#[derive(Debug, Default)]
pub struct Responses {
    latencies: Latencies,
    count: u64,
    worst: Option<(Nanos, Nanos)>,
}

impl Responses {
    /// Notes what began at `from` and took until `to`.
    pub fn record(&mut self, from: Nanos, to: Nanos) {
        let took = to - from;
        self.count += 1;
        self.latencies.record(took);
        if self.worst.is_none_or(|(most, _)| took > most) {
            self.worst = Some((took, from));
        }
    }

    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The quantiles, and when the longest began.
    pub fn summary(&mut self) -> Option<Worst> {
        let (_, at) = self.worst?;
        let quantiles = self.latencies.summary();
        Some(Worst { p50: quantiles.p50, p99: quantiles.p99, max: quantiles.max, max_at_ns: at.get() })
    }
}

/// The jobs of one instance, over all its lives.
#[derive(Debug, Default)]
pub struct Jobs {
    /// When the life under way began.
    life: Nanos,
    /// The job under way: when it was released. The `every` step that ends it has its period, so the multiples are counted from
    /// here, whatever the periods before.
    release: Nanos,
    started: Option<Nanos>,
    /// Whether the life is over.
    ended: bool,
    responses: Responses,
    /// The least time that was left at the end of a job, negative if it was late.
    slack_min_ns: Option<i64>,
    misses: u64,
    missed: Vec<Miss>,
    /// All jobs, if they are to be listed.
    listed: Option<Vec<Job>>,
}

impl Jobs {
    /// No job yet. With `list`, each is kept.
    #[must_use]
    pub fn new(list: bool) -> Self {
        Self { listed: list.then(Vec::new), ..Self::default() }
    }

    /// A life begins, and with it the first job.
    pub fn begin_life(&mut self, now: Nanos) {
        self.life = now;
        self.release = now;
        self.started = None;
        self.ended = false;
    }

    /// The thread has a CPU for the first time in this job.
    pub fn start(&mut self, now: Nanos) {
        self.started.get_or_insert(now);
    }

    /// The thread has come to an `every` step: its job is over. When the next one is released.
    pub fn finish(&mut self, now: Nanos, period: Nanos) -> Nanos {
        let begun = self.begun(period);
        let next = next_release(self.life, self.release, now, period);
        self.end_job(Some(now), self.multiple(period, begun + 1));
        self.skip(period, begun + 2, begun + next.missed);
        self.release = next.at;
        self.started = None;
        self.release
    }

    /// The life is over: the thread ended itself if it is `done`, else another thread ended it. `period` is the period of the next
    /// `every` step, and `end` the end of the run. A job that is due after the end is not judged. A life ends once.
    pub fn end_life(&mut self, now: Nanos, period: Nanos, end: Nanos, done: bool) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let begun = self.begun(period);
        let due = self.multiple(period, begun + 1);
        if done {
            self.end_job(Some(now), due);
        } else if due < end && self.release < end {
            self.end_job(None, due);
        }
        let passed = (now.min(end) - self.life).get().saturating_sub(1) / period.get();
        if self.release < end {
            self.skip(period, begun + 2, passed);
        }
    }

    /// The multiple of the period in which the job under way was released.
    fn begun(&self, period: Nanos) -> u64 {
        (self.release - self.life).get() / period.get()
    }

    fn multiple(&self, period: Nanos, number: u64) -> Nanos {
        self.life + Nanos::new(period.get().saturating_mul(number))
    }

    /// The periods that end with the multiples from `first` to `last` have passed with no job of their own.
    fn skip(&mut self, period: Nanos, first: u64, last: u64) {
        let Some(skipped) = (last + 1).checked_sub(first) else { return };
        self.misses += skipped;
        let room = MISSES_LISTED.saturating_sub(self.missed.len()) as u64;
        let listed = if self.listed.is_some() { skipped } else { skipped.min(room) };
        for number in first..first + listed {
            let (release, due) = (self.multiple(period, number - 1), self.multiple(period, number));
            self.list(Job::new(release.get(), due.get()), MissKind::Skipped);
        }
    }

    fn end_job(&mut self, finish: Option<Nanos>, due: Nanos) {
        let job = Job::new(self.release.get(), due.get());
        let job = job.ran(self.started.map(Nanos::get), finish.map(Nanos::get));
        let missed = finish.is_none_or(|finish| finish > due);
        if let Some(finish) = finish {
            self.responses.record(self.release, finish);
        }
        if let Some(slack) = job.slack_ns {
            self.slack_min_ns = Some(self.slack_min_ns.map_or(slack, |least| least.min(slack)));
        }
        if missed {
            self.misses += 1;
            let kind = if finish.is_some() { MissKind::Late } else { MissKind::Unfinished };
            self.list(job, kind);
        } else if let Some(listed) = &mut self.listed {
            listed.push(job);
        }
    }

    fn list(&mut self, job: Job, kind: MissKind) {
        if self.missed.len() < MISSES_LISTED {
            self.missed.push(Miss::of_job(&job, kind));
        }
        if let Some(listed) = &mut self.listed {
            listed.push(job);
        }
    }

    /// What is reported of the jobs of `thread`, its misses, and all of them if they were listed.
    pub fn report(mut self, thread: &str) -> (Option<JobsReport>, Vec<Miss>, Vec<Job>) {
        let row = (self.responses.count() + self.misses > 0).then(|| JobsReport {
            finished: self.responses.count(),
            response_ns: self.responses.summary(),
            slack_min_ns: self.slack_min_ns,
            first_miss_ns: self.missed.iter().map(|miss| miss.time_ns).min(),
        });
        for miss in &mut self.missed {
            miss.thread = Some(thread.to_owned());
        }
        let mut jobs = self.listed.unwrap_or_default();
        jobs.iter_mut().for_each(|job| thread.clone_into(&mut job.thread));
        (row, self.missed, jobs)
    }

    /// How many deadlines have been missed.
    #[must_use]
    pub fn misses(&self) -> u64 {
        self.misses
    }
}

/// The misses of a run, in the order of time and numbered from 1: at most [`MISSES_LISTED`].
#[must_use]
pub fn number(mut misses: Vec<Miss>) -> Vec<Miss> {
    misses.sort_by(|a, b| (a.time_ns, &a.context, &a.thread).cmp(&(b.time_ns, &b.context, &b.thread)));
    misses.truncate(MISSES_LISTED);
    (1..).zip(&mut misses).for_each(|(number, miss)| miss.number = number);
    misses
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(n: u64) -> Nanos {
        Nanos::new(n)
    }

    /// Release, deadline, start and finish of a job.
    type Times = (u64, u64, Option<u64>, Option<u64>);

    fn shown(jobs: Jobs) -> (Vec<Times>, Vec<(u64, MissKind)>) {
        let (_, missed, jobs) = jobs.report("t");
        let jobs = jobs.iter().map(|j| (j.release_ns, j.deadline_ns, j.start_ns, j.finish_ns)).collect();
        (jobs, missed.iter().map(|miss| (miss.time_ns, miss.kind)).collect())
    }

    #[test]
    fn a_late_job_is_missed_at_its_deadline_and_the_periods_it_covers_are_skipped() {
        let mut jobs = Jobs::new(true);
        jobs.begin_life(ns(5));
        jobs.start(ns(6));
        assert_eq!(jobs.finish(ns(15), ns(10)), ns(15), "just in time");
        jobs.start(ns(15));
        assert_eq!(jobs.finish(ns(46), ns(10)), ns(55));
        let (all, missed) = shown(jobs);
        assert_eq!(
            all,
            [
                (5, 15, Some(6), Some(15)),
                (15, 25, Some(15), Some(46)),
                (25, 35, None, None),
                (35, 45, None, None)
            ]
        );
        assert_eq!(missed, [(25, MissKind::Late), (35, MissKind::Skipped), (45, MissKind::Skipped)]);
    }

    #[test]
    fn a_job_that_never_runs_is_missed_and_so_are_those_behind_it() {
        let mut jobs = Jobs::new(true);
        jobs.begin_life(ns(0));
        jobs.end_life(ns(30), ns(10), ns(30), false);
        let (all, missed) = shown(jobs);
        assert_eq!(all, [(0, 10, None, None), (10, 20, None, None)], "what is due at the end is not judged");
        assert_eq!(missed, [(10, MissKind::Unfinished), (20, MissKind::Skipped)]);
    }

    #[test]
    fn a_job_that_is_not_released_before_the_end_is_none() {
        let mut jobs = Jobs::new(true);
        jobs.begin_life(ns(0));
        assert_eq!(jobs.finish(ns(3), ns(10)), ns(10));
        jobs.end_life(ns(9), ns(2), ns(9), false);
        assert_eq!(shown(jobs).1, []);
    }

    /// A program may change its period. What has been waited for is a time, and not a number of periods.
    #[test]
    fn a_period_that_changes_goes_on_from_the_last_release() {
        let mut jobs = Jobs::new(true);
        jobs.begin_life(ns(0));
        assert_eq!(jobs.finish(ns(3), ns(10)), ns(10));
        assert_eq!(jobs.finish(ns(11), ns(4)), ns(12), "not the second multiple of 4, which is long over");
        assert_eq!(jobs.finish(ns(13), ns(4)), ns(16));
        assert_eq!(jobs.finish(ns(17), ns(10)), ns(20));
        assert_eq!(jobs.finish(ns(31), ns(10)), ns(40));
        let (all, missed) = shown(jobs);
        let due: Vec<(u64, u64)> = all.iter().map(|(release, due, ..)| (*release, *due)).collect();
        assert_eq!(due, [(0, 10), (10, 12), (12, 16), (16, 20), (20, 30)]);
        assert_eq!(missed, [(30, MissKind::Late)]);
    }
}
