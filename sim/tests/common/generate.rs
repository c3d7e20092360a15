//! Workloads drawn by seed: threads join, leave, sleep, yield, park, call, spawn and change their weights.

use mainspring_abi::{CpuId, CpuSet, LatencyClass, Nanos, Policy, Weight};
use mainspring_workload::{
    Call, Costs, EndpointSpec, Faults, Machine, Span, Start, Step, ThreadSpec, ThreadTarget, Workload,
};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// A source of choices.
pub struct Dice(Xoshiro256PlusPlus);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.next_u64() % bound
    }

    /// A number from `least` to `most`.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// What kind of workloads to draw.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub policy: Policy,
    pub faults: bool,
    /// Whether threads call each other, and so hand the CPU over directly.
    pub calls: bool,
    /// How many quanta a run takes.
    pub quanta: u64,
}

const WEIGHTS: [u64; 12] = [1, 2, 7, 16, 32, 64, 64, 64, 100, 128, 256, 1024];

/// The workload of `seed`.
pub fn draw(seed: u64, kind: Kind) -> Workload {
    let dice = &mut Dice::new(seed);
    let quantum = dice.pick(&[100_000, 700_001, 1_000_000, 3_000_000]);
    let cpus = if dice.chance(60) { 1 } else { dice.between(2, 4) as usize };
    let duration = quantum * kind.quanta * dice.between(1, 2);
    let tables = dice.between(2, 7) as usize;
    let spawns = dice.chance(50);
    let mut draft =
        Draft { dice, quantum, cpus, duration, tables, spawns, calls: kind.calls, uses_endpoint: false };
    let threads: Vec<ThreadSpec> = (0..tables).map(|index| draft.thread(index)).collect();
    let (uses_endpoint, costs, faults) = (draft.uses_endpoint, draft.costs(), draft.faults(kind.faults));
    let instances: usize = threads.iter().map(ThreadSpec::instances).sum();
    let processes = (0..tables).map(|index| format!("p{index}")).collect();
    let waiters = if dice.chance(85) { instances } else { dice.between(1, instances as u64) as usize };
    let machine = Machine {
        cpus,
        policy: kind.policy,
        quantum: Nanos::new(quantum),
        tick: Nanos::new(dice.pick(&[1_000_000, 4_000_000, 10_000_000])),
        duration: Nanos::new(duration),
        waiters,
        waiters_per_process: waiters,
        ..Machine::default()
    };
    let endpoints = if uses_endpoint { vec![EndpointSpec::named("port")] } else { Vec::new() };
    Workload { machine, costs, faults, processes, endpoints, threads, ..Workload::default() }
}

/// Hogs only, with weights that are powers of two, all from the start: loads on which the core does not round tags,
/// so that exact ties are ties for it too.
pub fn draw_hogs(seed: u64, policy: Policy) -> Workload {
    let mut workload = draw(seed, Kind { policy, faults: false, calls: false, quanta: 60 });
    let dice = &mut Dice::new(seed);
    workload.machine.cpus = 1;
    workload.costs = Costs::default();
    let zero = Span { min: Nanos::ZERO, max: Nanos::ZERO };
    for thread in &mut workload.threads {
        thread.weight = Weight::new(1 << dice.between(4, 7)).expect("a valid weight");
        thread.request = dice.chance(30).then(|| Nanos::new(workload.machine.quantum.get() / 2));
        (thread.start, thread.program, thread.cpus, thread.times) =
            (Start::At(zero), vec![Step::RunForever], None, None);
    }
    workload
}

struct Draft<'a> {
    dice: &'a mut Dice,
    quantum: u64,
    cpus: usize,
    duration: u64,
    tables: usize,
    /// Whether the last table is made by others.
    spawns: bool,
    calls: bool,
    uses_endpoint: bool,
}

impl Draft<'_> {
    fn thread(&mut self, index: usize) -> ThreadSpec {
        let spawned = index + 1 == self.tables && self.spawns;
        let mut program = self.program(spawned);
        let ends = spawned || self.dice.chance(25);
        if spawned && self.dice.chance(30) {
            program.push(Step::Exit);
        }
        let count = if spawned {
            Some(self.dice.between(1, 3) as u32)
        } else {
            self.dice.pick(&[None, None, Some(2)])
        };
        ThreadSpec {
            name: format!("t{index}"),
            count,
            process: index,
            weight: self.weight(),
            latency: self.dice.pick(&[
                LatencyClass::Normal,
                LatencyClass::Normal,
                LatencyClass::Interactive,
                LatencyClass::Batch,
            ]),
            request: self.request(),
            cpus: self.mask(),
            start: if spawned { Start::Spawned } else { self.start() },
            times: ends.then(|| self.dice.between(1, 12)),
            program,
            context: None,
            session: None,
            budget: None,
        }
    }

    fn weight(&mut self) -> Weight {
        let weight = self.dice.pick(&WEIGHTS);
        Weight::new(weight).expect("weights in the table are valid")
    }

    fn request(&mut self) -> Option<Nanos> {
        if self.dice.chance(60) {
            return None;
        }
        let least = self.quantum / 20;
        Some(Nanos::new(self.dice.between(least, self.quantum)))
    }

    fn mask(&mut self) -> Option<CpuSet> {
        if self.cpus == 1 || self.dice.chance(70) {
            return None;
        }
        let one = self.dice.below(self.cpus as u64) as usize;
        let other = self.dice.below(self.cpus as u64) as usize;
        Some([one, other].into_iter().map(|cpu| CpuId::new(cpu).expect("a CPU of this machine")).collect())
    }

    fn start(&mut self) -> Start {
        let at = if self.dice.chance(50) { 0 } else { self.dice.below(self.duration / 2) };
        Start::At(Span { min: Nanos::new(at), max: Nanos::new(at) })
    }

    /// A length around the quantum, with round numbers now and then.
    fn length(&mut self) -> u64 {
        match self.dice.below(6) {
            0 => self.quantum,
            1 => self.quantum / 2,
            2 => self.dice.between(1_000, self.quantum / 10),
            3 => self.dice.between(self.quantum, 4 * self.quantum),
            4 => self.quantum - self.dice.between(1, 5_000),
            _ => self.dice.between(1_000, self.quantum),
        }
    }

    fn span(&mut self) -> Span {
        let a = self.length();
        let b = if self.dice.chance(70) { a } else { self.length() };
        Span { min: Nanos::new(a.min(b)), max: Nanos::new(a.max(b)) }
    }

    /// At least one step takes CPU time, so that time passes.
    fn program(&mut self, spawned: bool) -> Vec<Step> {
        if !spawned && self.dice.chance(20) {
            return vec![Step::RunForever];
        }
        if self.dice.chance(12) && self.calls {
            self.uses_endpoint = true;
            let timeout = self.dice.chance(30).then(|| self.span());
            return vec![Step::Recv { endpoint: 0, timeout }, Step::Run(self.span()), Step::Reply];
        }
        let mut program = vec![Step::Run(self.span())];
        for _ in 0..self.dice.between(0, 4) {
            let step = self.step();
            program.push(step);
        }
        program
    }

    fn target(&mut self) -> ThreadTarget {
        ThreadTarget { thread: self.dice.below(self.tables as u64) as usize, instance: None }
    }

    fn step(&mut self) -> Step {
        match self.dice.below(13) {
            0 | 1 => Step::Run(self.span()),
            2 | 3 => Step::Sleep(self.span()),
            4 | 5 => Step::Yield,
            6 => Step::Every(Nanos::new(self.length() + 1)),
            7 => Step::Park { timeout: Some(self.span()) },
            8 => Step::Unpark(self.target()),
            9 if self.calls => {
                self.uses_endpoint = true;
                Step::Call(Call::plain(0, Some(self.span())))
            }
            10 => Step::Weight(self.weight()),
            11 if self.spawns => Step::Spawn(self.tables - 1),
            _ => Step::Join { target: self.target(), timeout: Some(self.span()) },
        }
    }

    fn costs(&mut self) -> Costs {
        if self.dice.chance(70) {
            return Costs::default();
        }
        let mut cost = || Nanos::new(self.dice.below(3_000));
        // A reschedule that takes time leaves a CPU idle with work queued, which no bound on lag allows for.
        Costs { switch: cost(), interrupt: cost(), migration: cost(), tick: cost(), ..Costs::default() }
    }

    fn faults(&mut self, on: bool) -> Faults {
        if !on {
            return Faults::default();
        }
        let quantum = self.quantum;
        let mut rate = || if self.dice.chance(40) { 0 } else { self.dice.below(300_000) as u32 };
        Faults {
            late_reschedule_ppm: rate(),
            late_reschedule_by: Nanos::new(quantum),
            lost_reschedule_ppm: rate(),
            late_timer_ppm: rate(),
            late_timer_by: Nanos::new(quantum / 2),
            stall_ppm: rate(),
            stall_for: Nanos::new(2 * quantum),
            burst_every: Nanos::new(self.dice.pick(&[0, 5 * quantum])),
            exit_every: Nanos::new(self.dice.pick(&[0, 7 * quantum])),
        }
    }
}
