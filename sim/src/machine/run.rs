//! Setting a machine up, and the loop that lets its time pass.

use super::calls::endpoints;
use super::devices::Devices;
use super::grants::Grants;
use super::islands::Islands;
use super::leases::Leases;
use super::network::Nic;
use super::observer::Observer;
use super::overhead::Overhead;
use super::pace::{Nodes, Paces};
use super::policy::Policy;
use super::rings::Ring;
use super::script::Script;
use super::thread::{Stats, Thread, ThreadTable};
use super::virtual_cpu::VirtualCpu;
use super::{LATENCIES_AT_A_TIME, Machine, ReschedulesSent, foresight};
use crate::admission;
use crate::random::{Random, Stream};
use crate::steal_offers::StealOffers;
use crate::tournament::{LAST, Tournament, keyed, owner};
use crate::{Options, RunError};
use mainspring_abi::{CpuId, CpuSet, Nanos, ProcessId, ThreadRef};
use mainspring_driver::{CpuCore, Machine as _};
use mainspring_program::SyncObjects;
use mainspring_record::Latencies;
use mainspring_record::file::{Header, Recorder};
use mainspring_record::jobs::Jobs;
use mainspring_record::states::WithStates;
use mainspring_record::watch::Watch;
use mainspring_report::Report;
use mainspring_sched::hint::unlikely;
use mainspring_sched::{Affinity, Config, Cpu, Entity, Lag, Spec, WaitQuota};
use mainspring_workload::{Faults, Phases, Start, Step, ThreadSpec, Workload};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// The fewest seats that a CPU has to begin with.
const FIRST_SEATS: usize = 16;

/// How often progress is reported.
const PROGRESS_STEPS: u64 = 1_000;

pub(crate) fn run(name: &str, workload: &Workload, mut options: Options<'_>) -> Result<Report, RunError> {
    let started = Instant::now();
    let mut progress = options.progress.take();
    let mut machine = Machine::new(name, workload, options)?;
    machine.enter_idle_everywhere();
    let duration = workload.machine.duration;
    let step = Nanos::new((duration.get() / PROGRESS_STEPS).max(1));
    let mut tell_at = step;
    while let Some(now) = machine.advance(duration) {
        if unlikely(machine.observer.trouble.is_some())
            && let Some(error) = machine.observer.trouble.take()
        {
            return Err(error);
        }
        if unlikely(now >= tell_at) {
            tell_at = now + step;
            if let Some(tell) = &mut progress {
                tell(now);
            }
        }
    }
    machine.now = duration;
    machine.finish(name, started)
}

impl<'a> Machine<'a> {
    fn new(name: &str, workload: &'a Workload, options: Options<'a>) -> Result<Self, RunError> {
        let cpus = workload.machine.cpus;
        let seed = options.seed;
        let (threads, numbers) = (instances(workload, seed, options.schedule), workload.thread_numbers());
        let cores = cores(workload, threads.len())?;
        let islands = Islands::new(workload);
        let (grants, contexts) = Grants::new(workload, &islands.admission)
            .map_err(|_| RunError::NoRoom { cpus, threads: threads.len() })?;
        let paces = Paces::of(&workload.machine);
        let mut machine = Self {
            workload,
            seed,
            now: Nanos::ZERO,
            askable: CpuSet::first(cpus),
            askable_count: cpus,
            idle_count: cpus,
            steal_offers: StealOffers::new(cpus),
            vcpus: (0..cpus).map(|cpu| VirtualCpu::new(Random::new(seed, Stream::Cpu(cpu)))).collect(),
            switches: vec![0; cpus],
            overheads: vec![Overhead::default(); cpus],
            agenda: Tournament::new(cpus, LAST),
            turn: keyed(0, 0),
            outside: Nanos::ZERO,
            authority: has_authority(workload) || options.schedule,
            foresight: foresight::is_safe(&workload.faults)
                && workload.interrupts.is_empty()
                && paces.is_none(),
            paces,
            nodes: Nodes::of(workload, threads.len()),
            phases: phases_of(workload),
            disturbed: workload.faults != Faults::default()
                || workload.network.is_some()
                || !workload.interrupts.is_empty(),
            script: Script::new(workload),
            placement: Tournament::new(cpus, LAST),
            placed_weight: vec![0; cpus],
            acting: None,
            here: None,
            touched: Vec::new(),
            endpoints: endpoints(workload)?,
            grants,
            contexts,
            islands,
            policy: Policy::new(workload, &numbers),
            leases: Leases::new(workload, &numbers),
            sync: SyncObjects::new(workload.sync.iter().map(|spec| spec.kind), threads.len()),
            devices: Devices::new(workload, seed),
            rings: workload.rings.iter().map(|spec| Ring::new(spec, &numbers)).collect(),
            overruns: Vec::new(),
            next_operation: 0,
            context_misses: Vec::new(),
            events: Vec::new(),
            notices: Vec::new(),
            quota: quota(workload),
            starts: Vec::new(),
            next_burst: Nanos::MAX,
            next_exit: Nanos::MAX,
            random: Random::new(seed, Stream::Machine),
            nic: workload.network.as_ref().map(Nic::new),
            observer: Observer::new(None, None),
            schedule: options.schedule.then(Vec::new),
            states: options.schedule.then(Rc::default),
            latencies: threads.iter().map(|_| Latencies::default()).collect(),
            untold_latencies: Vec::with_capacity(LATENCIES_AT_A_TIME),
            sent: ReschedulesSent::default(),
            cores,
            threads,
            numbers,
        };
        for cpu in 0..cpus {
            machine.placement.set(cpu, keyed(0, cpu));
        }
        machine.note_refused_contexts();
        machine.plan_starts();
        machine.plan_faults();
        machine.outside = machine.next_from_outside();
        let recorder = match options.record {
            Some(out) => Some(Recorder::new(out, &machine.header(name, seed)).map_err(RunError::Record)?),
            None => None,
        };
        let watch = match &machine.states {
            Some(keeper) => Some(Box::new(WithStates::new(keeper.clone(), options.watch)) as Box<dyn Watch>),
            None => options.watch,
        };
        machine.observer = Observer::new(watch, recorder);
        Ok(machine)
    }

    fn header(&self, name: &str, seed: u64) -> Header {
        let machine = &self.workload.machine;
        Header {
            workload: name.to_owned(),
            seed,
            cpus: machine.cpus,
            seats: self.threads.len(),
            policy: machine.policy,
            quantum: machine.quantum,
            tick: machine.tick,
            floor_ppm: machine.floor_ppm,
            threads: (0..self.threads.len()).map(|index| self.thread_name(index)).collect(),
        }
    }

    fn plan_starts(&mut self) {
        for index in 0..self.threads.len() {
            if let Start::At(span) = self.workload.threads[self.threads[index].spec as usize].start {
                let at = self.threads[index].random.draw(span);
                self.starts.push((at, index as u32));
            }
        }
        self.starts.sort_unstable_by(|a, b| b.cmp(a));
    }

    fn plan_faults(&mut self) {
        let faults = &self.workload.faults;
        if !faults.burst_every.is_zero() {
            self.next_burst = self.random.around(faults.burst_every);
        }
        if !faults.exit_every.is_zero() {
            self.next_exit = self.random.around(faults.exit_every);
        }
        if let Some(network) = &self.workload.network
            && network.clock
        {
            self.vcpus[network.cpu].net_at = network.every;
        }
    }

    fn enter_idle_everywhere(&mut self) {
        for cpu in 0..self.cores.len() {
            self.reconsider(cpu);
        }
        self.rearm_touched();
    }

    /// Handles the next thing that happens, if it happens before `end`; when.
    #[inline(always)]
    fn advance(&mut self, end: Nanos) -> Option<Nanos> {
        let turn = self.agenda.first();
        let (at, cpu) = owner(turn);
        let at = Nanos::new(at);
        if unlikely(at >= self.outside) {
            return self.advance_from_outside(end);
        }
        if unlikely(at >= end) {
            return None;
        }
        self.now = at;
        if turn > self.turn {
            self.turn = turn;
        }
        self.cpu_event(cpu);
        if unlikely(self.authority) {
            self.tend_authority();
        }
        self.rearm_touched();
        Some(at)
    }

    #[inline(never)]
    fn advance_from_outside(&mut self, end: Nanos) -> Option<Nanos> {
        let at = self.outside;
        if at >= end {
            return None;
        }
        self.now = at;
        self.happen_from_outside();
        self.tend_authority();
        self.rearm_touched();
        Some(at)
    }

    /// What follows from an event beyond the CPUs it touched.
    #[inline(never)]
    fn tend_authority(&mut self) {
        if !self.overruns.is_empty() {
            self.deal_with_overruns();
        }
        if self.leases.any() {
            self.tend_leases();
        }
        if self.schedule.is_some() {
            for grant in 0..self.grants.list.len() {
                self.show_refills(grant);
            }
        }
        self.outside = self.next_from_outside();
    }

    /// When something happens next that no CPU does.
    fn next_from_outside(&self) -> Nanos {
        let start = self.starts.last().map_or(Nanos::MAX, |(at, _)| *at);
        let policy = self.policy.as_ref().map_or(Nanos::MAX, Policy::next);
        let faults = self.next_burst.min(self.next_exit).min(self.devices.next());
        let asked = self.islands.next().min(self.leases.next_start());
        start.min(policy).min(faults).min(asked).min(self.operation_at())
    }

    fn operation_at(&self) -> Nanos {
        self.workload.operations.get(self.next_operation).map_or(Nanos::MAX, |next| next.time)
    }

    fn happen_from_outside(&mut self) {
        let now = self.now;
        if self.islands.next() == now {
            self.ask_for_island();
        } else if self.leases.next_start() == now {
            // Before the threads, so that no thread starts on a CPU that it would have to leave at once.
            self.start_leases();
        } else if self.starts.last().is_some_and(|(at, _)| *at == now) {
            self.start_next();
        } else if self.operation_at() == now {
            self.operate();
        } else if self.policy.as_ref().is_some_and(|policy| policy.next() == now) {
            self.poll_policy();
        } else if self.devices.any() && self.devices.next() == now {
            self.raise_interrupts();
        } else if self.next_burst == now {
            self.burst();
        } else {
            self.kill_one();
        }
    }

    fn start_next(&mut self) {
        let Some((_, index)) = self.starts.pop() else { return };
        let index = index as usize;
        let weight = u64::from(self.workload.threads[self.threads[index].spec as usize].weight.get());
        let cpu = match self.starting_place(index) {
            Some(cpu) => {
                self.add_placed_weight(self.cpu_id(cpu), weight);
                cpu
            }
            None => self.place_new(index, None),
        };
        self.admit(index, cpu, None);
    }

    /// How soon `cpu` is chosen for a thread that starts by itself: never while a lessee has it to itself.
    pub(super) fn rank_for_placement(&mut self, cpu: usize) {
        let leased = self.leases.is_leased(cpu);
        let rank = if leased { LAST } else { keyed(self.placed_weight[cpu], cpu) };
        self.placement.set(cpu, rank);
    }

    /// A fresh thread in instance `index`.
    pub(super) fn new_life(&mut self, index: usize) -> Entity {
        let now = self.now;
        let thread = &mut self.threads[index];
        let spec = &self.workload.threads[thread.spec as usize];
        let treatment = self.policy.as_ref().and_then(|policy| policy.treatment(thread.identity));
        let (weight, class) =
            treatment.map_or((spec.weight, spec.latency), |treatment| (treatment.weight, treatment.class));
        thread.start = now;
        thread.pc = self.script.first(thread.spec);
        thread.rounds = 0;
        thread.remaining = Nanos::ZERO;
        thread.ahead = false;
        thread.moved = false;
        thread.wait = None;
        thread.unpark_pending = false;
        thread.retakes = false;
        thread.join_deadline = None;
        thread.spawned.clear();
        if let Some(phases) = self.phases.get_mut(index) {
            *phases = Phases::new();
        }
        thread.woken_at = Nanos::MAX;
        thread.stats.weight = weight.get();
        if let Some(jobs) = &mut thread.jobs {
            jobs.begin_life(now);
            thread.job_waits = true;
        }
        Entity::new(Spec {
            thread: thread.identity,
            process: thread.process,
            weight,
            class,
            request: spec.request,
            affinity: thread.affinity.clone(),
        })
    }
}

/// Whether there is anything in `workload` beside best effort.
fn has_authority(workload: &Workload) -> bool {
    !(workload.contexts.is_empty()
        && workload.islands.is_empty()
        && workload.leases.is_empty()
        && workload.policy.is_none())
}

/// Where each instance is in the phases of its program; empty if no program has any.
fn phases_of(workload: &Workload) -> Vec<Phases> {
    let has_phases = |step: &Step| matches!(step, Step::End { .. });
    let any = workload.threads.iter().any(|table| table.program.iter().any(has_phases));
    let count = workload.threads.iter().map(ThreadSpec::instances).sum();
    if any { vec![Phases::new(); count] } else { Vec::new() }
}

/// The instances of all tables. `list` says whether each of their jobs is listed.
fn instances(workload: &Workload, seed: u64, list: bool) -> ThreadTable {
    let mut threads = Vec::new();
    for (table, spec) in workload.threads.iter().enumerate() {
        let affinity = spec.cpus.map_or(Affinity::Any, |cpus| Affinity::Only(Arc::new(cpus)));
        let periodic = spec.is_periodic();
        for _ in 0..spec.instances() {
            let index = threads.len();
            threads.push(Thread {
                spec: table as u32,
                process: ProcessId::new(spec.process as u32),
                affinity: affinity.clone(),
                random: Random::new(seed, Stream::Thread(index)),
                identity: ThreadRef::new(index as u32, 0),
                home: None,
                start: Nanos::ZERO,
                pc: 0,
                rounds: 0,
                remaining: Nanos::ZERO,
                ahead: false,
                moved: false,
                wait: None,
                wait_number: 0,
                unpark_pending: false,
                retakes: false,
                jobs: periodic.then(|| Box::new(Jobs::new(list))),
                job_waits: false,
                serving: Vec::new(),
                joiners: Vec::new(),
                join_deadline: None,
                spawned: Vec::new(),
                woken_at: Nanos::MAX,
                wakeups: 0,
                lag_max: Lag::ZERO,
                stats: Box::new(Stats { weight: spec.weight.get(), ..Stats::default() }),
            });
        }
    }
    ThreadTable(threads)
}

fn cores(workload: &Workload, threads: usize) -> Result<Vec<CpuCore>, RunError> {
    let machine = &workload.machine;
    // Twice its share of the threads is what a CPU may well need.
    let seats = FIRST_SEATS.max(2 * threads / machine.cpus);
    let mut cores = Vec::with_capacity(machine.cpus);
    for index in 0..machine.cpus {
        let no_room = || RunError::NoRoom { cpus: machine.cpus, threads };
        let cpu = CpuId::new(index).map_err(|_| no_room())?;
        let config = Config {
            quantum: machine.quantum,
            tick: machine.tick,
            floor: admission::floor(workload),
            ..Config::new(cpu, machine.policy)
        };
        let mut core = Cpu::new(config);
        core.reserve(threads.min(seats)).map_err(|_| no_room())?;
        cores.push(CpuCore::new(core));
    }
    Ok(cores)
}

fn quota(workload: &Workload) -> WaitQuota {
    let limit = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let machine = &workload.machine;
    WaitQuota::new(limit(machine.waiters), limit(machine.waiters_per_process), workload.processes.len())
}
