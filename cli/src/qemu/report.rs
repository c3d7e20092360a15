//! The report of a run on the kernel, computed by making each of its recorded decisions again.

use super::logs::{Entry, Logs};
use mainspring_abi::{CpuId, Nanos, Policy, ThreadRef};
use mainspring_report::{Config, CpuReport, Report, ScheduleEntry, Telemetry, ThreadReport, WakeLatency};
use mainspring_sched::flight::{Event, Outcome};
use mainspring_sched::{Cpu, Decision, Entity, NohzExit, State, Stop, Via};
use mainspring_sim::digest::Digest;
use mainspring_sim::record::Header;
use mainspring_workload::Workload;
use std::collections::BTreeMap;
use std::time::Duration;

/// Names of the threads by slot. The first slot is the program's own thread, which starts the others.
pub fn names(workload: &Workload, serial: &[String]) -> Vec<String> {
    let instances: Vec<String> = workload
        .threads
        .iter()
        .flat_map(|spec| (0..spec.instances()).map(|number| spec.instance_name(number)))
        .collect();
    let mut names = vec!["(starter)".to_owned()];
    for line in serial {
        let Some(rest) = line.strip_prefix("workload: life ") else { continue };
        if let (Some(instance), Some(slot)) = (field(rest, "instance"), field(rest, "slot"))
            && let Some(name) = instances.get(instance as usize)
        {
            let slot = slot as usize;
            if names.len() <= slot {
                names.resize(slot + 1, String::from("(unknown)"));
            }
            names[slot].clone_from(name);
        }
    }
    names
}

fn field(line: &str, name: &str) -> Option<u64> {
    line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}

#[derive(Default)]
struct Thread {
    row: ThreadReport,
    born: Nanos,
    alive: Nanos,
    woken_at: Option<Nanos>,
    latencies: Vec<u64>,
}

/// What has been learnt so far.
pub struct Books {
    cpus: Vec<Cpu>,
    threads: BTreeMap<u32, Thread>,
    names: Vec<String>,
    running: Vec<Option<(ThreadRef, Nanos)>>,
    schedule: Vec<ScheduleEntry>,
    decisions: u64,
    end: Nanos,
}

impl Books {
    /// Fresh CPUs, as the kernel's were.
    pub fn new(header: &Header, names: &[String]) -> Self {
        let cpus = (0..header.cpus).filter_map(|number| {
            let id = CpuId::new(number).ok()?;
            let config = mainspring_sched::Config {
                quantum: header.quantum,
                tick: header.tick,
                ..mainspring_sched::Config::new(id, header.policy)
            };
            let mut cpu = Cpu::new(config);
            cpu.reserve(header.seats).ok()?;
            Some(cpu)
        });
        Self {
            cpus: cpus.collect(),
            threads: BTreeMap::new(),
            names: names.to_vec(),
            running: vec![None; header.cpus],
            schedule: Vec::new(),
            decisions: 0,
            end: Nanos::ZERO,
        }
    }

    /// Makes every decision again; their digest, or the first that differs.
    pub fn play(&mut self, logs: Logs) -> Result<String, String> {
        let mut digest = Digest::new();
        for (number, entry) in logs.entries.into_iter().enumerate() {
            let (now, cpu, recorded) = (entry.now, entry.cpu, entry.outcome);
            let what = format!("{:?}", entry.event);
            let replayed = self.step(entry)?;
            if replayed != recorded {
                return Err(format!(
                    "event {number} at {now} on CPU {cpu} differs: {what}\n  recorded: {recorded:?}\n  replayed: {replayed:?}"
                ));
            }
            if let Outcome::Decided(decision) = replayed {
                self.decisions += 1;
                let thread = match decision {
                    Decision::Run(run) => Some(run.thread.index()),
                    Decision::Idle => None,
                };
                digest.decision(now.get(), cpu.index(), thread);
            }
        }
        self.end = logs.end;
        self.close();
        Ok(digest.to_string())
    }

    fn step(&mut self, Entry { now, cpu, event, .. }: Entry) -> Result<Outcome, String> {
        let at = cpu.index();
        let core = self.cpus.get_mut(at).ok_or(format!("no CPU {cpu} in the workload's machine"))?;
        match event {
            Event::Accept(entity, via) => {
                let index = entity.thread().index();
                let thread = self.threads.entry(index).or_default();
                match via {
                    Via::Admit => thread.born = now,
                    Via::HandOff => {
                        thread.row.wakeups += 1;
                        thread.woken_at.get_or_insert(now);
                    }
                    Via::Steal => {}
                }
                let result = core.accept(now, entity, via);
                Ok((&result).into())
            }
            Event::ExitCurrent => {
                self.end_segment(at, now, "exited");
                let left = self.cpus[at].exit_current(now);
                let outcome = Outcome::from(&left);
                if let Some(entity) = left {
                    self.bury(&entity, now);
                }
                Ok(outcome)
            }
            Event::Resched(stop) => Ok(self.decide(at, now, stop)),
            event => {
                let sleeper = match event {
                    Event::Wake(seat) | Event::HandOff(seat) => Some(seat.thread()),
                    _ => None,
                };
                let outcome =
                    core.apply(now, event).map_err(|why| format!("at {now} on CPU {cpu}: {why}"))?;
                match (sleeper, outcome) {
                    (_, Outcome::Expired(Some((seat, _)), _)) => self.woken(seat.thread(), now),
                    (Some(thread), Outcome::Ready(..) | Outcome::Direct(_)) => self.woken(thread, now),
                    _ => {}
                }
                Ok(outcome)
            }
        }
    }

    fn decide(&mut self, at: usize, now: Nanos, stop: Stop) -> Outcome {
        let reason = match stop {
            Stop::Nothing => "",
            Stop::Preempted => "preempted",
            Stop::Yielded => "yielded",
            Stop::Blocked(..) => "blocked",
        };
        if let (Some(lag), Some(seat)) = (self.cpus[at].current_lag(now), self.cpus[at].current()) {
            let row = &mut self.threads.entry(seat.thread().index()).or_default().row;
            row.lag_max_ns = row.lag_max_ns.max(lag.magnitude().get());
        }
        let decision = self.cpus[at].resched(now, stop);
        match decision {
            Decision::Run(run) => {
                if run.switched {
                    self.end_segment(at, now, reason);
                    self.running[at] = Some((run.thread, now));
                }
                let lag = self.cpus[at].charged_lag();
                let thread = self.threads.entry(run.thread.index()).or_default();
                if let Some(lag) = lag {
                    thread.row.lag_max_ns = thread.row.lag_max_ns.max(lag.magnitude().get());
                }
                if let Some(since) = thread.woken_at.take() {
                    thread.latencies.push((now - since).get());
                }
            }
            Decision::Idle => self.end_segment(at, now, reason),
        }
        decision.into()
    }

    fn woken(&mut self, name: ThreadRef, now: Nanos) {
        let thread = self.threads.entry(name.index()).or_default();
        thread.row.wakeups += 1;
        thread.woken_at.get_or_insert(now);
    }

    fn end_segment(&mut self, at: usize, now: Nanos, reason: &str) {
        let Some((thread, start)) = self.running[at].take() else { return };
        if start < now {
            self.schedule.push(ScheduleEntry {
                cpu: at as u32,
                thread: self.name(thread.index()),
                start_ns: start.get(),
                end_ns: now.get(),
                reason: reason.to_owned(),
            });
        }
    }

    fn name(&self, index: u32) -> String {
        self.names.get(index as usize).cloned().unwrap_or_else(|| format!("(slot {index})"))
    }

    fn bury(&mut self, entity: &Entity, now: Nanos) {
        let thread = self.threads.entry(entity.thread().index()).or_default();
        let account = entity.account();
        let ready = entity.ready_since().map_or(Nanos::ZERO, |since| now - since);
        thread.row.weight = entity.weight().get();
        thread.row.runtime_ns += account.runtime().get();
        thread.row.entitled_ns += account.runtime().get().saturating_add_signed(entity.lag().as_nanos());
        thread.row.ready_ns += (account.runnable_accumulated() + ready).get();
        thread.row.preemptions += account.preemptions();
        thread.row.voluntary_blocks += account.voluntary_blocks();
        thread.row.migrations += account.migrations();
        thread.row.switches += account.switches();
        thread.alive += now - thread.born;
    }

    /// Threads that still live are booked as if they ended with the machine.
    fn close(&mut self) {
        for at in 0..self.cpus.len() {
            self.end_segment(at, self.end, "end");
            let end = self.end.max(self.cpus[at].since());
            while let Some(entity) = self.cpus[at].exit_current(end) {
                self.bury(&entity, end);
            }
            for view in self.cpus[at].threads() {
                if view.state != State::Running
                    && let Ok(removed) = self.cpus[at].remove(end, view.seat)
                {
                    self.bury(&removed.entity, end);
                }
            }
        }
    }

    /// The report.
    pub fn report(
        mut self,
        workload: &Workload,
        header: &Header,
        serial: &[String],
        digest: String,
        wall: Duration,
    ) -> Report {
        self.schedule.sort_by_key(|entry| (entry.start_ns, entry.cpu));
        let cpus = self.cpu_reports();
        let telemetry = self.telemetry();
        let names = std::mem::take(&mut self.names);
        let mut rows: BTreeMap<String, ThreadReport> = BTreeMap::new();
        let mut order = Vec::new();
        for (index, thread) in &mut self.threads {
            let Some(name) = names.get(*index as usize) else { continue };
            if !rows.contains_key(name) {
                order.push(name.clone());
            }
            add(rows.entry(name.clone()).or_default(), thread);
        }
        told(workload, serial, &mut rows);
        let threads = order.into_iter().filter_map(|name| {
            let row = rows.remove(&name)?;
            Some(ThreadReport { name, ..row })
        });
        Report {
            machine: "qemu".to_owned(),
            config: Config {
                workload: header.workload.clone(),
                policy: match header.policy {
                    Policy::Eevdf => "eevdf".to_owned(),
                    Policy::Wfq => "wfq".to_owned(),
                },
                quantum_ns: header.quantum.get(),
                tick_ns: header.tick.get(),
            },
            seed: header.seed,
            duration_ns: self.end.get(),
            decisions: self.decisions,
            wall_ns: u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX),
            digest,
            cpus,
            threads: threads.collect(),
            telemetry,
            schedule: Some(self.schedule),
            ..Report::default()
        }
    }

    fn cpu_reports(&self) -> Vec<CpuReport> {
        let report = |(id, core): (usize, &Cpu)| {
            let (counters, idle) = (core.telemetry(), core.idle_time(self.end));
            CpuReport {
                id: id as u32,
                busy_ns: (self.end - idle).get(),
                idle_ns: idle.get(),
                ticks: counters.ticks,
                ticks_suppressed: counters.ticks_suppressed_idle,
                reschedules: counters.reschedules,
                timer_interrupts: counters.timer_interrupts,
                steals: counters.steals,
                queue_depth_max: counters.queue_depth_max,
            }
        };
        self.cpus.iter().enumerate().map(report).collect()
    }

    /// Reschedules that were sent are not events of a core, and not in its record: those received are.
    fn telemetry(&self) -> Telemetry {
        let mut telemetry = Telemetry::default();
        for (cpu, core) in self.cpus.iter().enumerate() {
            let counters = core.telemetry();
            telemetry.scheduler_tick_count.insert(cpu.to_string(), counters.ticks);
            telemetry.ticks_suppressed.insert(format!("{cpu},idle"), counters.ticks_suppressed_idle);
            telemetry.nohz_enter_count.insert(format!("{cpu},idle"), counters.nohz_enter_idle);
            for reason in NohzExit::ALL {
                let count = counters.nohz_exits[reason as usize];
                telemetry.nohz_exit_count.insert(format!("{cpu},{}", reason.label()), count);
            }
            telemetry.oneshot_deadline_miss_count += counters.oneshot_deadline_misses;
            telemetry.queue_depth_max = telemetry.queue_depth_max.max(counters.queue_depth_max);
            telemetry.steals += counters.steals;
            telemetry.handoffs += counters.handoffs;
            telemetry.handoffs_queued += counters.handoffs_queued;
            telemetry.reschedules_sent += counters.reschedules;
        }
        telemetry
    }
}

/// Adds one life to its instance's row.
fn add(row: &mut ThreadReport, thread: &mut Thread) {
    let life = &thread.row;
    row.weight = life.weight;
    row.runtime_ns += life.runtime_ns;
    row.entitled_ns += life.entitled_ns;
    row.ready_ns += life.ready_ns;
    row.blocked_ns += thread.alive.get().saturating_sub(life.runtime_ns + life.ready_ns);
    row.wakeups += life.wakeups;
    row.lag_max_ns = row.lag_max_ns.max(life.lag_max_ns);
    row.preemptions += life.preemptions;
    row.voluntary_blocks += life.voluntary_blocks;
    row.migrations += life.migrations;
    row.switches += life.switches;
    thread.latencies.sort_unstable();
    let quantile = |percent: usize| {
        let last = thread.latencies.len().checked_sub(1)?;
        thread.latencies.get((last * percent).div_ceil(100)).copied()
    };
    row.wake_latency_ns = WakeLatency {
        p50: quantile(50).unwrap_or(0),
        p99: quantile(99).unwrap_or(0),
        max: thread.latencies.last().copied().unwrap_or(0),
    };
}

/// What only the program knows: it says so at the end.
fn told(workload: &Workload, serial: &[String], rows: &mut BTreeMap<String, ThreadReport>) {
    let instances = workload
        .threads
        .iter()
        .flat_map(|spec| (0..spec.instances()).map(|number| spec.instance_name(number)));
    let instances: Vec<String> = instances.collect();
    for line in serial {
        let Some(rest) = line.strip_prefix("workload: stats ") else { continue };
        let instance = field(rest, "instance").and_then(|instance| instances.get(instance as usize));
        if let Some(row) = instance.and_then(|name| rows.get_mut(name)) {
            row.misses = field(rest, "misses").unwrap_or(0);
            row.timeouts = field(rest, "timeouts").unwrap_or(0);
            row.refusals = field(rest, "refusals").unwrap_or(0);
        }
    }
}
