mod authority;
mod expect;
mod operation;
mod places;

pub use authority::{
    Account, Calls, ContextSpec, ContextTarget, EndpointSpec, IslandSpec, LeaseMode, LeaseSpec, LeaseStart,
    Locks, MemorySpec, Overrun, PolicySpec, Residency, RingSpec,
};
pub use expect::{Condition, Expectation, Quantile, Subject};
pub use operation::{Operation, TimedOperation};
pub use places::Places;

use mainspring_abi::{CpuSet, LatencyClass, Nanos, Policy, Weight};

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
        match self.count {
            None => self.name.clone(),
            Some(_) => format!("{}.{n}", self.name),
        }
    }

    /// The period of the `every` step that a thread before step `at` comes to next, if its program goes on to its end and
    /// then once more.
    #[must_use]
    pub fn next_period(&self, at: usize) -> Option<Nanos> {
        let (before, rest) = self.program.split_at_checked(at)?;
        rest.iter().chain(before).find_map(|step| match step {
            Step::Every(period) => Some(*period),
            _ => None,
        })
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

/// A duration: fixed when both ends are equal, else seeded, uniform, both ends included, drawn at each use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The shortest.
    pub min: Nanos,
    /// The longest.
    pub max: Nanos,
}

impl From<Span> for mainspring_random::Range {
    fn from(Span { min, max }: Span) -> Self {
        Self::new(min, max)
    }
}

/// One step of a program.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// `run 300us`, `run 1ms..4ms`: computes for that much CPU time.
    Run(Span),
    /// `run forever`.
    RunForever,
    /// `sleep 16ms`.
    Sleep(Span),
    /// `every 20ms`: sleeps until the next multiple of the period since the thread's own start; counts a miss for
    /// each multiple that passed since the one it last waited for.
    Every(Nanos),
    /// `yield`.
    Yield,
    /// `park`, `park 5ms`: blocks until unparked, or until the timeout.
    Park {
        /// At most this long.
        timeout: Option<Span>,
    },
    /// `unpark NAME`: an unpark of a thread that is not parked is remembered, once.
    Unpark(ThreadTarget),
    /// `call NAME`, `call NAME 5ms needs 300us deadline 2ms drop`: sends a request to an endpoint and blocks for its
    /// reply, or until the timeout.
    Call(Call),
    /// `recv NAME`, `recv NAME 5ms`: takes a request from an endpoint, blocking for one.
    Recv {
        /// Index into [`Workload::endpoints`].
        endpoint: usize,
        /// At most this long.
        timeout: Option<Span>,
    },
    /// `reply`: answers the request taken last.
    Reply,
    /// `throw`: answers the request taken last with an exception.
    Throw,
    /// `spawn NAME`: starts one instance of a thread table whose `start` is `"spawn"`.
    Spawn(usize),
    /// `join NAME`, `join NAME 5ms`: blocks until the named thread has ended; for a spawned table, until the
    /// instance that this thread spawned last has.
    Join {
        /// The threads that must end.
        target: ThreadTarget,
        /// At most this long.
        timeout: Option<Span>,
    },
    /// `weight 128`: sets its own weight.
    Weight(Weight),
    /// `exit`.
    Exit,
    /// `alloc 65536`: takes so many bytes of memory and keeps them. Only the Linux runtime can.
    Alloc(u64),
    /// `syscall`: asks the operating system for something. Only the Linux runtime can.
    Syscall,
    /// `bind NAME`: takes a context that no thread holds, in place of its own if it has one.
    Bind(ContextTarget),
    /// `unbind`: gives its context back and goes on as best effort.
    Unbind,
    /// `revoke NAME`: takes a context from its holder and ends it.
    Revoke(ContextTarget),
    /// `drain NAME`: reads and clears the notifications of a context.
    Drain(ContextTarget),
    /// `lease NAME`: asks for an isolation lease. Index into [`Workload::leases`].
    Lease(usize),
    /// `release NAME`: gives a lease back. Index into [`Workload::leases`].
    Release(usize),
    /// `submit RING 4`, `submit RING 4 deadline 2ms drop`: puts entries into a submission ring.
    Submit {
        /// Index into [`Workload::rings`].
        ring: usize,
        /// How many entries, at least one.
        entries: u32,
        /// How long each stays fresh after its submission, at least a nanosecond.
        deadline: Option<Nanos>,
        /// What happens to an entry that is late.
        late: Lateness,
    },
    /// `complete RING 4`, `complete RING 4 timeout 5ms`: blocks until that many completions have been taken.
    Complete {
        /// Index into [`Workload::rings`].
        ring: usize,
        /// How many completions, at least one.
        entries: u32,
        /// At most this long.
        timeout: Option<Span>,
    },
    /// `poll RING`: serves one batch of a ring's submissions, spinning and then sleeping while there are none.
    Poll(usize),
}

impl Step {
    /// The word that it begins with.
    #[must_use]
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Run(_) | Self::RunForever => "run",
            Self::Sleep(_) => "sleep",
            Self::Every(_) => "every",
            Self::Yield => "yield",
            Self::Park { .. } => "park",
            Self::Unpark(_) => "unpark",
            Self::Call(_) => "call",
            Self::Recv { .. } => "recv",
            Self::Reply => "reply",
            Self::Throw => "throw",
            Self::Spawn(_) => "spawn",
            Self::Join { .. } => "join",
            Self::Weight(_) => "weight",
            Self::Exit => "exit",
            Self::Alloc(_) => "alloc",
            Self::Syscall => "syscall",
            Self::Bind(_) => "bind",
            Self::Unbind => "unbind",
            Self::Revoke(_) => "revoke",
            Self::Drain(_) => "drain",
            Self::Lease(_) => "lease",
            Self::Release(_) => "release",
            Self::Submit { .. } => "submit",
            Self::Complete { .. } => "complete",
            Self::Poll(_) => "poll",
        }
    }
}

/// A request, as its caller sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Index into [`Workload::endpoints`].
    pub endpoint: usize,
    /// At most this long.
    pub timeout: Option<Span>,
    /// The least budget that the caller's context must have left, else the call is refused.
    pub needs: Option<Nanos>,
    /// How long the request stays fresh after the call, at least a nanosecond.
    pub deadline: Option<Nanos>,
    /// What happens to a request that is late.
    pub late: Lateness,
}

impl Call {
    /// A call that asks for nothing but an answer.
    #[must_use]
    pub fn plain(endpoint: usize, timeout: Option<Span>) -> Self {
        Self { endpoint, timeout, needs: None, deadline: None, late: Lateness::default() }
    }
}

/// What happens to a request whose deadline has passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lateness {
    /// It is served, and counts as late.
    #[default]
    Allow,
    /// If it has not been started, it is answered as dropped and never served.
    Drop,
}

/// A thread that a step names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadTarget {
    /// Index into [`Workload::threads`].
    pub thread: usize,
    /// Which instance (`batch.3`); `None` for all of the table's (`batch`).
    pub instance: Option<u32>,
}
