//! What the CPUs of a replayed machine do at one moment, as a frame of `mainspring top`: of a record that is played back, and of a
//! run that is followed while it goes on.
//!
//! Conserved: a frame comes from decisions that were made again without a difference.

use crate::file::Header;
use crate::log::Entry;
use crate::replay::{Onlooker, ReplayError, Replayer};
use mainspring_abi::{Nanos, ThreadRef};
use mainspring_report::{ContextFrame, CpuFrame, Frame, LeaseFrame, QueueFrame, Report, ThreadFrame};
use mainspring_sched::flight::{Event, Outcome};
use mainspring_sched::{Cpu, Decision, Entity, State, ThreadView, Via, WaitKind};
use std::collections::HashMap;

/// How many threads a frame lists.
const THREADS_LISTED: usize = 1_000;

/// A machine whose decisions are made again.
#[derive(Debug)]
pub(crate) struct View {
    pub header: Header,
    /// What the machine tells that its CPUs do not know.
    pub summary: Option<Report>,
    pub now: Nanos,
    /// When the run ends.
    pub end: Nanos,
    replayer: Replayer,
    latencies: Latencies,
}

/// The longest time from a wakeup to running, by thread.
#[derive(Debug, Default)]
struct Latencies {
    woken: HashMap<ThreadRef, Nanos>,
    longest: HashMap<ThreadRef, Nanos>,
    under_way: Option<ThreadRef>,
}

impl Onlooker for Latencies {
    fn before(&mut self, now: Nanos, _: &mut Cpu, event: &Event) {
        self.under_way = match event {
            Event::Wake(seat) | Event::HandOff(seat) => Some(seat.thread()),
            _ => None,
        };
        if let Event::Accept(entity, Via::HandOff) = event {
            self.woken.insert(entity.thread(), now);
        }
    }

    fn after(&mut self, now: Nanos, _: &Cpu, outcome: Outcome, left: Option<Entity>) -> Result<(), String> {
        match (outcome, self.under_way) {
            (Outcome::Ready(..) | Outcome::Direct(_), Some(thread)) => {
                self.woken.insert(thread, now);
            }
            (Outcome::Expired(Some((seat, _)), _), _) => {
                self.woken.insert(seat.thread(), now);
            }
            (Outcome::Decided(Decision::Run(run)), _) => {
                if let Some(since) = self.woken.remove(&run.thread) {
                    let longest = self.longest.entry(run.thread).or_default();
                    *longest = (*longest).max(now - since);
                }
            }
            _ => {}
        }
        if let Some(entity) = left {
            self.woken.remove(&entity.thread());
        }
        Ok(())
    }
}

impl View {
    /// The machine before its first event.
    pub fn new(header: Header, summary: Option<Report>, end: Nanos) -> Result<Self, ReplayError> {
        let replayer = Replayer::new(&header)?;
        Ok(Self { header, summary, now: Nanos::ZERO, end, replayer, latencies: Latencies::default() })
    }

    /// Makes one decision again.
    pub fn step(&mut self, entry: Entry) -> Result<(), ReplayError> {
        self.replayer.step(entry, &mut self.latencies)
    }

    fn name(&self, thread: ThreadRef) -> String {
        let name = self.header.threads.get(thread.index() as usize);
        name.cloned().unwrap_or_else(|| format!("(thread {})", thread.index()))
    }

    /// What the machine does now.
    pub fn look(&self) -> Frame {
        let views: Vec<(&Cpu, ThreadView)> = self
            .replayer
            .cpus
            .iter()
            .flat_map(|cpu| cpu.threads().into_iter().map(move |view| (cpu, view)))
            .collect();
        let mut threads: Vec<ThreadFrame> = views.iter().map(|(cpu, view)| self.thread(cpu, view)).collect();
        threads.sort_by_key(|thread| std::cmp::Reverse(thread.runtime_ns));
        threads.truncate(THREADS_LISTED);
        let misses = self.summary.iter().flat_map(|summary| &summary.misses);
        Frame {
            machine: self
                .summary
                .as_ref()
                .map_or_else(|| "record".to_owned(), |summary| summary.machine.clone()),
            workload: self.header.workload.clone(),
            time_ns: self.now.get(),
            end_ns: Some(self.end.get()),
            cpus: self.replayer.cpus.iter().map(|cpu| self.cpu(cpu)).collect(),
            threads_total: views.len() as u64,
            contexts: views.iter().filter_map(|(cpu, view)| self.context(cpu, view)).collect(),
            leases: self.leases(),
            queues: self.queues(&views),
            misses: misses.filter(|miss| miss.time_ns <= self.now.get()).count() as u64,
            threads,
        }
    }

    fn cpu(&self, cpu: &Cpu) -> CpuFrame {
        let ready = |view: &ThreadView| matches!(view.state, State::Queued | State::Direct | State::Held);
        CpuFrame {
            id: cpu.id().index() as u32,
            running: cpu.current().map(|seat| self.name(seat.thread())),
            ready: cpu.threads().iter().filter(|view| ready(view)).count() as u64,
            busy_ns: Some((self.now - cpu.idle_time(self.now)).get()),
            steals: cpu.telemetry().steals,
        }
    }

    fn thread(&self, cpu: &Cpu, view: &ThreadView) -> ThreadFrame {
        let name = self.name(view.thread);
        let table = name.rsplit_once('.').filter(|(_, n)| n.bytes().all(|byte| byte.is_ascii_digit()));
        let ran = cpu.entity(view.seat).map_or(Nanos::ZERO, |entity| entity.account().runtime());
        let more = if view.state == State::Running { self.now - cpu.since() } else { Nanos::ZERO };
        let state = match view.state {
            State::Running => "runs".to_owned(),
            State::Queued | State::Direct => "ready".to_owned(),
            State::Held => "held".to_owned(),
            State::Throttled => "throttled".to_owned(),
            State::Asleep(kind) => format!("{kind:?}").to_lowercase(),
        };
        ThreadFrame {
            group: table.map_or_else(|| name.clone(), |(table, _)| table.to_owned()),
            name,
            state,
            cpu: Some(cpu.id().index() as u32),
            runtime_ns: Some((ran + more).get()),
            ops: None,
            wake_max_ns: self.latencies.longest.get(&view.thread).map(|longest| longest.get()),
        }
    }

    fn context(&self, cpu: &Cpu, view: &ThreadView) -> Option<ContextFrame> {
        let context = cpu.entity(view.seat).ok()?.context()?;
        let row = (context.who().id() as usize).checked_sub(1);
        let reported = row.and_then(|row| self.summary.as_ref()?.contexts.get(row));
        Some(ContextFrame {
            name: reported.map_or_else(|| format!("{:?}", context.who()), |reported| reported.name.clone()),
            holder: self.name(view.thread),
            budget_ns: context.spec().budget.get(),
            period_ns: context.spec().period.get(),
            left_ns: cpu.budget_left(self.now, view.seat)?.get(),
            used_ns: context.usage().used.get(),
            depletions: context.usage().depletions,
            throttled: view.state == State::Throttled,
        })
    }

    /// As the summary has it: a record does not know when leases began.
    fn leases(&self) -> Vec<LeaseFrame> {
        let leases = self.summary.iter().flat_map(|summary| &summary.leases);
        leases
            .map(|lease| LeaseFrame {
                name: lease.name.clone(),
                cpus: lease.cpus.clone(),
                thread: lease.thread.clone(),
                state: lease.state.clone(),
            })
            .collect()
    }

    fn queues(&self, views: &[(&Cpu, ThreadView)]) -> Vec<QueueFrame> {
        let waiting = |tables: &[String], kind: WaitKind| {
            let is_one = |view: &ThreadView| {
                let name = self.name(view.thread);
                let table = name.rsplit_once('.').map_or(name.as_str(), |(table, _)| table);
                view.state == State::Asleep(kind) && tables.iter().any(|t| t == table || *t == name)
            };
            views.iter().filter(|(_, view)| is_one(view)).count() as u64
        };
        let endpoints = self.summary.iter().flat_map(|summary| &summary.endpoints);
        endpoints
            .map(|endpoint| QueueFrame {
                name: endpoint.name.clone(),
                waiting: waiting(&endpoint.callers, WaitKind::Call),
                servers_idle: waiting(&endpoint.servers, WaitKind::Receive),
            })
            .collect()
    }
}
