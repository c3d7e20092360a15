//! Periods of threads and calls between them, as the report has them.

use super::Machine;
use mainspring_abi::Nanos;
use mainspring_record::jobs;
use mainspring_report::{EndpointReport, Job, JobsReport, Miss};
use mainspring_workload::Phases;

/// All periods of a run, as the report has them.
pub(super) struct PeriodReports {
    /// By thread: its report, and how many deadlines it missed.
    pub of_threads: Vec<(Option<JobsReport>, u64)>,
    pub misses: Vec<Miss>,
    pub misses_total: u64,
    pub jobs: Vec<Job>,
}

impl Machine<'_> {
    /// The thread at `index`, which has `cpu`, has done its job and waits for the next one.
    #[inline(never)]
    pub(super) fn every(&mut self, cpu: usize, index: usize, period: Nanos) {
        let thread = &mut self.threads[index];
        let Some(jobs) = &mut thread.jobs else { return };
        let release = jobs.finish(self.now, period);
        thread.job_waits = true;
        self.sleep_until(cpu, index, release);
        if self.threads[index].wait.is_none() && std::mem::take(&mut self.threads[index].job_waits) {
            self.begin_job(index);
        }
    }

    /// The thread at `index` has a CPU for the first time in its job.
    #[inline(never)]
    pub(super) fn begin_job(&mut self, index: usize) {
        if let Some(jobs) = &mut self.threads[index].jobs {
            jobs.start(self.now);
        }
    }

    /// The life of the thread at `index` is over, by itself if it is `done`.
    pub(super) fn end_jobs(&mut self, index: usize, done: bool) {
        let thread = &mut self.threads[index];
        let table = &self.workload.threads[thread.spec as usize];
        let step = thread.pc - self.script.first(thread.spec);
        let outside = Phases::new();
        let phases = self.phases.get(index).unwrap_or(&outside);
        if let Some(jobs) = &mut thread.jobs
            && let Some(period) = table.next_period(step as usize, phases, self.now)
        {
            jobs.end_life(self.now, period, self.workload.machine.duration, done);
        }
    }

    /// Closes the periods of all threads, at the end of the run.
    pub(super) fn close_jobs(&mut self) -> PeriodReports {
        let mut reports = PeriodReports {
            of_threads: Vec::new(),
            misses: std::mem::take(&mut self.context_misses),
            misses_total: 0,
            jobs: Vec::new(),
        };
        for index in 0..self.threads.len() {
            if self.threads[index].home.is_some() {
                self.end_jobs(index, false);
            }
            let Some(jobs) = self.threads[index].jobs.take() else {
                reports.of_threads.push((None, 0));
                continue;
            };
            let missed = jobs.misses();
            let (report, misses, listed) = jobs.report(&self.thread_name(index));
            reports.of_threads.push((report, missed));
            reports.misses_total += missed;
            reports.misses.extend(misses);
            reports.jobs.extend(listed);
        }
        reports.misses = jobs::number(reports.misses);
        reports.jobs.sort_by(|a, b| (a.release_ns, &a.thread).cmp(&(b.release_ns, &b.thread)));
        reports
    }

    /// Lists the misses among the events, each at its deadline.
    pub(super) fn list_misses(&mut self, misses: &[Miss]) {
        self.events.extend(misses.iter().map(Miss::event));
        self.events.sort_by_key(|event| event.time_ns);
    }

    pub(super) fn endpoint_reports(&mut self) -> Vec<EndpointReport> {
        let workload = self.workload;
        let specs = workload.endpoints.iter().zip(&mut self.endpoints).enumerate();
        let called = specs.filter(|(_, (_, endpoint))| endpoint.accepted > 0);
        type Row<'e> = (usize, (&'e mainspring_workload::EndpointSpec, &'e mut super::Endpoint));
        let row = |(number, (spec, endpoint)): Row<'_>| {
            let replies = endpoint.replies.count();
            let (callers, servers) = workload.users_of(number);
            EndpointReport {
                name: spec.name.clone(),
                calls: endpoint.accepted,
                replies,
                failures: endpoint.failed,
                pending: endpoint.accepted - replies - endpoint.failed,
                latency_ns: endpoint.replies.summary(),
                callers,
                servers,
            }
        };
        called.map(row).collect()
    }
}
