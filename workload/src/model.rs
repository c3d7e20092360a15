mod authority;
mod distribution;
mod expect;
mod interrupt;
mod operation;
mod phases;
mod places;
mod sync;

pub use authority::{
    Account, Calls, ContextSpec, EndpointSpec, IslandSpec, LeaseMode, LeaseSpec, LeaseStart, Locks,
    MemorySpec, Overrun, PolicySpec, Residency, RingSpec,
};
pub use distribution::DistributionSpec;
pub use expect::{Condition, Expectation, Quantile, Subject};
pub use interrupt::InterruptSpec;
pub use operation::{Operation, TimedOperation};
pub use places::Places;
pub use sync::SyncSpec;

pub use mainspring_program::{
    Batch, Call, ContextTarget, Distribution, Drawn, Lateness, Phases, Span, Step, SyncKind, ThreadTarget,
    Way,
};

use crate::numbering::instance_name;
use mainspring_abi::{CpuSet, LatencyClass, Nanos, Policy, Weight};
use mainspring_program::MutexWait;
use mainspring_random::Random;

/// How many thread instances one workload may have.
pub const MAX_THREADS: usize = 4_000_000;

/// How many tables one workload may have of each kind that stands for authority: contexts, endpoints, leases,
/// islands, sessions, rings and timed operations.
pub const MAX_TABLES: usize = 10_000;

/// A checked workload: names are resolved to indices, durations to nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workload {
    /// The machine to run on.
    pub machine: Machine,
    /// What the machine's own work costs in virtual time. Only the simulator reads it.
    pub costs: Costs,
    /// What goes wrong, by seed. Only the simulator reads it.
    pub faults: Faults,
    /// Kernel-resident networking, if the machine has any.
    pub network: Option<Network>,
    /// The names of the processes; threads refer to them by index.
    pub processes: Vec<String>,
    /// The names of the sessions; threads refer to them by index.
    pub sessions: Vec<String>,
    /// The endpoints: those with a table, then those that are only named by steps, in the order of first use.
    pub endpoints: Vec<EndpointSpec>,
    /// The thread tables in the order of the file, one per `[[thread]]`, not per instance.
    pub threads: Vec<ThreadSpec>,
    /// The context tables in the order of the file, one per `[[context]]`, not per instance.
    pub contexts: Vec<ContextSpec>,
    /// Isolation of CPUs for one thread each.
    pub leases: Vec<LeaseSpec>,
    /// Groups of contexts that are admitted as a whole or not at all.
    pub islands: Vec<IslandSpec>,
    /// Submission and completion rings.
    pub rings: Vec<RingSpec>,
    /// What threads wait at for each other: mutexes, semaphores, barriers, then conditions.
    pub sync: Vec<SyncSpec>,
    /// Durations that are not uniform.
    pub distributions: Vec<DistributionSpec>,
    /// Devices that interrupt.
    pub interrupts: Vec<InterruptSpec>,
    /// Which thread is the policy service, if any.
    pub policy: Option<PolicySpec>,
    /// What an operator does and when, in the order of time; at the same time in the order of the file.
    pub operations: Vec<TimedOperation>,
    /// What its runs are held to, in the order of the file.
    pub expectations: Vec<Expectation>,
    /// Where in its file all that is; empty for a workload that does not come from one.
    pub places: Places,
}

impl Workload {
    /// The thread tables that call endpoint `number`, and those that receive on it, by name.
    #[must_use]
    pub fn users_of(&self, number: usize) -> (Vec<String>, Vec<String>) {
        let with = |uses: &dyn Fn(&Step) -> bool| {
            let tables = self.threads.iter().filter(|table| table.program.iter().any(uses));
            tables.map(|table| table.name.clone()).collect()
        };
        let callers = with(&|step| matches!(step, Step::Call(call) if call.endpoint == number));
        let servers = with(&|step| matches!(step, Step::Recv { endpoint, .. } if *endpoint == number));
        (callers, servers)
    }

    /// Threads that wait for mutexes in a circle, in words.
    pub fn describe_deadlock(&self, circle: &[MutexWait], name: impl Fn(usize) -> String) -> String {
        let wait = |wait: &MutexWait| {
            let mutex = &self.sync[wait.mutex].name;
            format!("{} waits for mutex {mutex}, which {} holds", name(wait.waiter), name(wait.owner))
        };
        let waits: Vec<String> = circle.iter().map(wait).collect();
        format!("deadlock: {}", waits.join("; "))
    }

    /// A duration, as a table or a step says.
    pub fn draw(&self, drawn: Drawn, random: &mut Random) -> Nanos {
        drawn.draw(random, |number| &self.distributions[number].kind)
    }

    /// What a thread draws as it comes to `step`. Every machine draws it then and there, once, also if the step turns out not to
    /// wait: so the draws of a thread depend on its seed and its steps alone, never on what others did in the meantime.
    pub fn draw_amount(&self, step: &Step, random: &mut Random) -> Option<Nanos> {
        step.amount().map(|drawn| self.draw(drawn, random))
    }
}

/// `[machine]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// How many CPUs, 1 to 4096. Default 1.
    pub cpus: usize,
    /// Best-effort policy. Default EEVDF.
    pub policy: Policy,
    /// The unit of best-effort service. Default 3 ms.
    pub quantum: Nanos,
    /// The period of the scheduler tick. Default 10 ms.
    pub tick: Nanos,
    /// How long the run takes. Default 1 s.
    pub duration: Nanos,
    /// How many timed waits may be pending in the whole system; default: as many as there are thread instances.
    pub waiters: usize,
    /// How many timed waits one process may have pending; default as `waiters`.
    pub waiters_per_process: usize,
    /// The share of each CPU that best effort keeps however many contexts there are, in parts per million, at most
    /// half. Default 5 %; zero gives contexts the whole CPU.
    pub floor_ppm: u32,
    /// How fast each CPU computes, in parts per million of full speed; empty where all have full speed. Only the simulator reads it.
    pub speeds_ppm: Vec<u32>,
    /// CPUs 2n and 2n + 1 share a core: the part of its speed that each keeps while both run, in parts per million. Only the
    /// simulator reads it.
    pub smt_ppm: Option<u32>,
    /// Into how many nodes of memory the CPUs are divided, in their order. Default 1. Only the simulator reads it.
    pub nodes: usize,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            cpus: 1,
            policy: Policy::default(),
            quantum: Nanos::from_millis(3),
            tick: Nanos::from_millis(10),
            duration: Nanos::from_secs(1),
            waiters: MAX_THREADS,
            waiters_per_process: MAX_THREADS,
            floor_ppm: 50_000,
            speeds_ppm: Vec::new(),
            smt_ppm: None,
            nodes: 1,
        }
    }
}

/// `[costs]`: each is zero unless set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Costs {
    /// Switching from one thread to another; delays the thread that comes.
    pub switch: Nanos,
    /// Taking any timer or device interrupt; delays the thread that was interrupted.
    pub interrupt: Nanos,
    /// From sending a reschedule to its arrival on the other CPU.
    pub ipi: Nanos,
    /// Cold caches after a move to another CPU; delays the thread that moved.
    pub migration: Nanos,
    /// The work of one scheduler tick, on top of the interrupt.
    pub tick: Nanos,
    /// Memory that is far away after a move to a CPU of another node, on top of the migration.
    pub node: Nanos,
}

/// `[faults]`: each is off unless set. Rates are probabilities in parts per million of the occasions named.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// A reschedule arrives late by up to `late_reschedule_by`: parts per million of reschedules sent.
    pub late_reschedule_ppm: u32,
    /// See `late_reschedule_ppm`.
    pub late_reschedule_by: Nanos,
    /// A reschedule is lost: parts per million of reschedules sent.
    pub lost_reschedule_ppm: u32,
    /// A timer fires late by up to `late_timer_by`: parts per million of timer interrupts.
    pub late_timer_ppm: u32,
    /// See `late_timer_ppm`.
    pub late_timer_by: Nanos,
    /// A CPU stalls (takes no interrupt and makes no progress) for up to `stall_for`: parts per million of timer
    /// interrupts.
    pub stall_ppm: u32,
    /// See `stall_ppm`.
    pub stall_for: Nanos,
    /// Every sleeping or parked thread is woken at once, about every this long. Zero: never.
    pub burst_every: Nanos,
    /// A random thread exits, about every this long. Zero: never.
    pub exit_every: Nanos,
}

/// `[network]`: a network stack that the scheduler polls.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// The CPU that polls. Default 0.
    pub cpu: usize,
    /// How often there is something to do.
    pub every: Nanos,
    /// How long one poll takes. Default 0.
    pub work: Nanos,
    /// The longest that one poll may take; work beyond it waits for the next poll. Default 50 us.
    pub budget: Nanos,
    /// Whether the stack tells its next deadline. If not, its CPU stays ForcedPeriodic. Default true.
    pub clock: bool,
}

/// `[[thread]]`: `count` instances of one program.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadSpec {
    /// The name; instances are `name` if `count` is absent, else `name.0`, `name.1` and so on.
    pub name: String,
    /// How many instances; `None` when the file does not say, which means one, with the bare name.
    pub count: Option<u32>,
    /// Index into [`Workload::processes`]. Default: a process of the thread's own name.
    pub process: usize,
    /// Best-effort weight. Default 64.
    pub weight: Weight,
    /// Latency class. Default normal.
    pub latency: LatencyClass,
    /// The service it asks for at a time; `None` leaves it to the latency class.
    pub request: Option<Nanos>,
    /// The CPUs it may use; `None` means all. Never empty, never beyond the machine.
    pub cpus: Option<CpuSet>,
    /// When it joins. Default at time 0.
    pub start: Start,
    /// What it does, from first to last and then again.
    pub program: Vec<Step>,
    /// How often the program runs before the thread ends by itself; `None` for ever.
    pub times: Option<u64>,
    /// Index into [`Workload::contexts`]: what it is bound to from its start. Instance `n` of a table with a `count`
    /// is bound to instance `n` of the context.
    pub context: Option<usize>,
    /// Index into [`Workload::sessions`]: whose logout revokes its context.
    pub session: Option<usize>,
    /// What it may use in all. Only the Linux runtime has such budgets.
    pub budget: Option<TaskBudget>,
}

/// `budget = { ops = 100000, spawns = 10 }`: what each life of a thread may use before it stands still. A component that
/// is not named is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskBudget {
    /// Steps, and looks up from computing, which come every few microseconds.
    pub ops: Option<u32>,
    /// Bytes that its `alloc` steps take.
    pub memory: Option<u64>,
    /// Its `spawn` steps.
    pub spawns: Option<u16>,
    /// Its `call`, `recv`, `reply`, `throw` and `unpark` steps.
    pub channel_ops: Option<u16>,
    /// Its `syscall` steps.
    pub syscalls: Option<u16>,
}

impl ThreadSpec {
    /// How many instances the table makes.
    #[must_use]
    pub fn instances(&self) -> usize {
        self.count.unwrap_or(1) as usize
    }

    /// The name of instance `n`.
    #[must_use]
    pub fn instance_name(&self, n: usize) -> String {
        instance_name(&self.name, self.count, n)
    }
}

/// When a thread joins.
#[derive(Clone, Debug, PartialEq)]
pub enum Start {
    /// By itself at a time, or a seeded time within a span (drawn for each instance).
    At(Span),
    /// When another thread's `spawn` step makes it. At most `count` instances live at once.
    Spawned,
}
