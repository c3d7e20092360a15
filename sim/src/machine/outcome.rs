//! The end of a run: books closed, report written.

use super::Machine;
use super::thread::Thread;
use crate::RunError;
use mainspring_abi::Nanos;
use mainspring_driver::contexts::Location;
use mainspring_driver::placement;
use mainspring_record::Latencies;
use mainspring_record::sections;
use mainspring_report::{ContextReport, JobsReport, RefusedStep, Report, Telemetry, ThreadReport, summary};
use mainspring_sched::{Cpu, Entity, State};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

impl Machine<'_> {
    pub(super) fn finish(mut self, name: &str, started: Instant) -> Result<Report, RunError> {
        for cpu in 0..self.cores.len() {
            self.end_segment(cpu, "end");
        }
        let (watch, recorder) = self.observer.take_parts();
        if let Some(mut watch) = watch {
            let cpus: Vec<&Cpu> = self.cores.iter().map(|core| &**core).collect();
            watch
                .end(self.now, &cpus)
                .map_err(|(cpu, what)| RunError::violation(self.now, cpu.index(), what))?;
        }
        let mut cpus = sections::cpus(self.cores.iter().map(|core| &**core), self.now);
        for (cpu, row) in cpus.iter_mut().enumerate() {
            row.overhead_ns = self.overhead_of(cpu);
        }
        self.note_unseen_misses();
        let periods = self.close_jobs();
        if self.schedule.is_some() {
            self.list_misses(&periods.misses);
        }
        let stuck = self.sync_notices().into_iter().chain(self.call_notices());
        let stuck: Vec<String> = stuck.collect();
        self.notices.extend(stuck);
        self.book_survivors();
        self.file_latencies();
        let threads = self.thread_reports(periods.of_threads);
        let endpoints = self.endpoint_reports();
        let contexts = self.context_reports();
        let islands = self.island_reports();
        let telemetry = sections::telemetry(self.cores.iter().map(|core| &**core), self.counted());
        let notices = self.policy_notices();
        self.notices.extend(notices);
        let leases = self.lease_reports();
        let rings = self.ring_reports()?;
        let sync = self.sync_reports();
        let machine = &self.workload.machine;
        if let Some(schedule) = &mut self.schedule {
            schedule.sort_by_key(|entry| (entry.start_ns, entry.cpu));
        }
        // The watcher that shared it is gone by now.
        let keeper = self.states.take().and_then(Rc::into_inner).map(RefCell::into_inner);
        let names = (0..self.threads.len()).map(|index| self.thread_name(index));
        let states = keeper.map(|keeper| keeper.finish(self.now, names));
        let misses_of_contexts: u64 = contexts.iter().map(|context| context.misses).sum();
        let report = Report {
            machine: "sim".to_owned(),
            config: sections::config(name, machine.policy, machine.quantum, machine.tick),
            seed: self.seed,
            duration_ns: machine.duration.get(),
            decisions: self.observer.decisions,
            digest: self.observer.digest.to_string(),
            cpus,
            threads,
            contexts,
            islands,
            leases,
            rings,
            sync,
            endpoints,
            misses: periods.misses,
            misses_total: periods.misses_total + misses_of_contexts,
            expectations: Vec::new(),
            notices: std::mem::take(&mut self.notices),
            events: self.schedule.is_some().then(|| std::mem::take(&mut self.events)),
            telemetry,
            jobs: self.schedule.is_some().then_some(periods.jobs),
            schedule: self.schedule.take(),
            states,
            wall_ns: u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX),
        };
        if let Some(recorder) = recorder {
            recorder.close(self.now, &report.digest, &summary(&report)).map_err(RunError::Record)?;
        }
        Ok(report)
    }

    /// Threads that still live are booked as if they ended now. Their cores have been closed: what they run or wait
    /// beyond the last charge is added here.
    fn book_survivors(&mut self) {
        for index in 0..self.threads.len() {
            let Some(home) = self.threads[index].home else { continue };
            let (cpu, seat) = (home.cpu.index(), home.seat);
            let running = self.vcpus[cpu].running == Some(index as u32);
            if running && let Some(entity) = placement::exit_current(self, home.cpu) {
                self.close_context(&entity);
                let lag = entity.lag();
                self.threads[index].lag_max = self.threads[index].lag_max.max(lag.abs());
                self.book_life(index, &entity, lag.as_nanos(), Nanos::ZERO);
                continue;
            }
            let asleep = matches!(self.cores[cpu].state(seat), Ok(State::Asleep(_)));
            let Some(removed) = placement::remove(self, self.threads[index].identity) else { continue };
            let entity = removed.entity;
            self.close_context(&entity);
            let lag = entity.lag();
            if !asleep {
                self.threads[index].lag_max = self.threads[index].lag_max.max(lag.abs());
            }
            let ready = entity.ready_since().map_or(Nanos::ZERO, |since| self.now - since);
            self.book_life(index, &entity, lag.as_nanos(), ready);
        }
    }

    /// What was used of the context that a survivor holds.
    fn close_context(&mut self, entity: &Entity) {
        if let Some(context) = entity.context()
            && let Some(grant) = self.grants.index(context.who())
        {
            self.grants.list[grant].usage = Some(*context.usage());
        }
    }

    fn thread_reports(&mut self, jobs: Vec<(Option<JobsReport>, u64)>) -> Vec<ThreadReport> {
        let names: Vec<String> = (0..self.threads.len()).map(|index| self.thread_name(index)).collect();
        type Lived<'t> = (&'t Thread, &'t mut Latencies);
        let report = |((name, (jobs, misses)), (thread, latencies)): ((String, _), Lived<'_>)| {
            let stats = &thread.stats;
            ThreadReport {
                name,
                weight: stats.weight,
                runtime_ns: stats.runtime_ns,
                entitled_ns: stats.entitled_ns,
                ready_ns: stats.ready_ns,
                blocked_ns: stats.alive_ns.saturating_sub(stats.runtime_ns + stats.ready_ns),
                wakeups: thread.wakeups,
                wake_latency_ns: latencies.summary(),
                lag_max_ns: thread.lag_max.magnitude().get(),
                preemptions: stats.preemptions,
                voluntary_blocks: stats.voluntary_blocks,
                migrations: stats.migrations,
                switches: stats.switches,
                misses,
                jobs,
                timeouts: stats.timeouts,
                refusals: stats.refusals,
                first_refusal: stats
                    .first_refusal
                    .map(|(at, why)| RefusedStep { time_ns: at.get(), reason: why.to_owned() }),
                late: stats.late,
                dropped: stats.dropped,
                failures: stats.failures,
            }
        };
        let lived = self.threads.iter().zip(self.latencies.iter_mut());
        names.into_iter().zip(jobs).zip(lived).map(report).collect()
    }

    /// In the order of the numbers that the record has for them; those that were never granted come last.
    fn context_reports(&mut self) -> Vec<ContextReport> {
        let mut order: Vec<usize> = (0..self.grants.list.len()).collect();
        order.sort_by_key(|index| self.grants.list[*index].id().unwrap_or(u32::MAX));
        order.into_iter().map(|index| self.context_report(index)).collect()
    }

    fn context_report(&mut self, index: usize) -> ContextReport {
        let spec = &self.workload.contexts[self.grants.list[index].table];
        let task = self.islands.admission.contexts()[index].task;
        let blank = ContextReport {
            name: self.context_name(index),
            budget_ns: task.cost.get(),
            period_ns: task.period.get(),
            deadline_ns: task.deadline.get(),
            criticality: spec.criticality,
            priority: spec.priority,
            state: "shelved".to_owned(),
            ..ContextReport::default()
        };
        let (now, id) = (self.now, self.grants.list[index].id());
        let info =
            id.and_then(|id| self.with_contexts(|contexts, machine| contexts.inspect(machine, now, id)));
        let Some(info) = info else { return blank };
        let grant = &self.grants.list[index];
        let usage = grant.usage.unwrap_or(info.usage);
        ContextReport {
            cpu: grant.home.map(|home| home as u32),
            budget_ns: info.spec.budget.get(),
            period_ns: info.spec.period.get(),
            deadline_ns: info.spec.deadline.get(),
            granted_ns: grant.terms.available(now).get(),
            used_ns: usage.used.get(),
            donated_ns: usage.donated.get(),
            depletions: usage.depletions,
            misses: usage.misses + grant.unseen_misses,
            overshoot_max_ns: usage.overshoot_max.get(),
            generation: info.who.generation().into(),
            state: match info.place {
                Location::Gone => "revoked",
                Location::Lent(_) | Location::InFlight(_) => "donated",
                Location::Bound(_) => "bound",
                Location::Rest => "shelved",
            }
            .to_owned(),
            ..blank
        }
    }

    /// What the machine itself has counted.
    fn counted(&self) -> Telemetry {
        Telemetry {
            reschedules_sent: self.sent.sent,
            reschedules_pending: self.sent.pending,
            reschedules_lost: self.sent.lost,
            sqpoll_busy_ns: self.poller_busy_ns(),
            sqpoll_sleep_count: self.poller_sleeps(),
            deadline_expired_count: self.entries_expired() + self.calls_expired(),
            housekeeping_offload_count: self.leases.offloads(),
            donation_inflight_skipped: self.contexts.inflight_skipped(),
            ..Telemetry::default()
        }
    }
}
