//! What is measured, with which peers, and how much of it.

use crate::victim::Victim;
use std::time::Duration;

/// Figures of one measurement: the benchmark's own has the empty name, the others say what they are.
pub type Figures = Vec<(&'static str, f64)>;

/// A runtime that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
#[allow(missing_docs)]
pub enum Peer {
    Mainspring,
    /// Ours, with started tasks that may move: what the sound default costs.
    MainspringMoving,
    Tokio,
    May,
    Smol,
    Rayon,
    Corosensei,
    Go,
    /// Threads of the host: the victim under `SCHED_DEADLINE`, if that is allowed.
    Thread,
}

impl Peer {
    /// As in the JSON file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mainspring => "mainspring",
            Self::MainspringMoving => "mainspring-moving",
            Self::Tokio => "tokio",
            Self::May => "may",
            Self::Smol => "smol",
            Self::Rayon => "rayon",
            Self::Corosensei => "corosensei",
            Self::Go => "go",
            Self::Thread => "thread",
        }
    }
}

/// A benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Bench {
    /// A hundred tasks that yield in turn, on one worker.
    Yield,
    /// Empty tasks, spawned and joined, on two workers.
    Spawn,
    /// Round trips between two tasks on one worker.
    #[value(name = "pingpong")]
    PingPong,
    /// Resident bytes of a parked task with a stack.
    Memory,
    /// Resident bytes of a parked future.
    MemoryFuture,
    /// Resident bytes of a task that has not started.
    MemoryUnstarted,
    /// A tree of tasks, ten children each.
    Skynet,
    /// Binary fork and join.
    Fib,
    /// Loops with and without `#[budgeted]`.
    Check,
    /// Requests to a server on hyper, on two workers.
    Http,
    /// The same beside a handler that keeps its thread for 20 ms.
    HttpOverstay,
    /// The timer of a victim, without an attack.
    HostileNone,
    /// Loops that never wait.
    HostileSpin,
    /// Tasks that spawn without end.
    HostileFork,
    /// Senders that never wait.
    HostileFlood,
    /// Allocations without end.
    HostileAlloc,
    /// System calls without end.
    HostileSyscall,
    /// Jobs with deadlines and a millisecond of granted time in each ten, beside loops that never wait.
    DeadlineSpin,
    /// The same beside tasks that spawn without end.
    DeadlineFork,
    /// Beside senders that never wait.
    DeadlineFlood,
    /// Beside allocations without end.
    DeadlineAlloc,
    /// Beside system calls without end.
    DeadlineSyscall,
}

impl Bench {
    /// In the order of the table.
    pub const ALL: [Self; 22] = [
        Self::Yield,
        Self::Spawn,
        Self::PingPong,
        Self::Skynet,
        Self::Fib,
        Self::Memory,
        Self::MemoryFuture,
        Self::MemoryUnstarted,
        Self::Check,
        Self::Http,
        Self::HttpOverstay,
        Self::HostileNone,
        Self::HostileSpin,
        Self::HostileFork,
        Self::HostileFlood,
        Self::HostileAlloc,
        Self::HostileSyscall,
        Self::DeadlineSpin,
        Self::DeadlineFork,
        Self::DeadlineFlood,
        Self::DeadlineAlloc,
        Self::DeadlineSyscall,
    ];

    /// As in the JSON file and on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Yield => "yield",
            Self::Spawn => "spawn",
            Self::PingPong => "pingpong",
            Self::Memory => "memory",
            Self::MemoryFuture => "memory-future",
            Self::MemoryUnstarted => "memory-unstarted",
            Self::Skynet => "skynet",
            Self::Fib => "fib",
            Self::Check => "check",
            Self::Http => "http",
            Self::HttpOverstay => "http-overstay",
            Self::HostileNone => "hostile-none",
            Self::HostileSpin => "hostile-spin",
            Self::HostileFork => "hostile-fork",
            Self::HostileFlood => "hostile-flood",
            Self::HostileAlloc => "hostile-alloc",
            Self::HostileSyscall => "hostile-syscall",
            Self::DeadlineSpin => "deadline-spin",
            Self::DeadlineFork => "deadline-fork",
            Self::DeadlineFlood => "deadline-flood",
            Self::DeadlineAlloc => "deadline-alloc",
            Self::DeadlineSyscall => "deadline-syscall",
        }
    }

    /// What the figures count. All are better when lower.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Yield => "ns/yield",
            Self::Spawn => "ns/task",
            Self::PingPong => "ns/round trip",
            Self::Memory | Self::MemoryFuture | Self::MemoryUnstarted => "bytes/task",
            Self::Skynet | Self::Fib => "ms",
            Self::Check => "% overhead",
            Self::Http => "ns/request",
            Self::HttpOverstay => "times quiet p99",
            _ if self.has_deadlines() => "% of deadlines missed",
            _ => "us, p99 lateness",
        }
    }

    /// The peers that take part, in the order of a round.
    pub fn peers(self) -> &'static [Peer] {
        use Peer::{Corosensei, Go, Mainspring, MainspringMoving, May, Rayon, Smol, Thread, Tokio};
        match self {
            Self::Yield | Self::PingPong => &[Mainspring, MainspringMoving, Tokio, May, Smol, Corosensei, Go],
            Self::Spawn => &[Mainspring, MainspringMoving, Tokio, Smol, Rayon, Go],
            Self::Memory => &[Mainspring, May, Go],
            Self::MemoryFuture => &[Mainspring, Tokio, Smol],
            Self::MemoryUnstarted | Self::Check => &[Mainspring],
            Self::Http | Self::HttpOverstay => &[Mainspring, Tokio],
            Self::Skynet => &[Mainspring, MainspringMoving, Tokio, May, Smol, Rayon, Go],
            Self::Fib => &[Mainspring, MainspringMoving, Rayon],
            _ if self.has_deadlines() => &[Mainspring, Tokio, May, Thread, Go],
            _ => &[Mainspring, MainspringMoving, Tokio, May, Go],
        }
    }

    /// What the hostile tasks do, if there are any.
    pub fn attack(self) -> Option<Attack> {
        Some(match self {
            Self::HostileNone => Attack::None,
            Self::HostileSpin | Self::DeadlineSpin => Attack::Spin,
            Self::HostileFork | Self::DeadlineFork => Attack::Fork,
            Self::HostileFlood | Self::DeadlineFlood => Attack::Flood,
            Self::HostileAlloc | Self::DeadlineAlloc => Attack::Alloc,
            Self::HostileSyscall | Self::DeadlineSyscall => Attack::Syscall,
            _ => return None,
        })
    }

    /// Whether its victim has jobs with deadlines.
    pub fn has_deadlines(self) -> bool {
        let with = [
            Self::DeadlineSpin,
            Self::DeadlineFork,
            Self::DeadlineFlood,
            Self::DeadlineAlloc,
            Self::DeadlineSyscall,
        ];
        with.contains(&self)
    }

    /// Its victim.
    pub fn victim(self, window: Duration) -> Victim {
        if self.has_deadlines() { Victim::with_jobs(window) } else { Victim::with_ticks(window) }
    }
}

/// What hostile tasks do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Attack {
    None,
    Spin,
    Fork,
    Flood,
    Alloc,
    Syscall,
}

/// How many hostile tasks there are: more than workers.
pub const ATTACKERS: usize = 4;
/// A flood is drained after so many messages, a hoard is dropped after so many blocks, a fork bomb goes off with so
/// many children at once, so that the attack lasts and the machine does too.
pub const HOARD: usize = 1000;
/// A block of a hoard.
pub const BLOCK: usize = 64 << 10;
/// Tasks of `yield`.
pub const YIELDERS: u32 = 100;
/// Children of a node of `skynet`.
pub const FAN_OUT: u64 = 10;

/// How much is done in one measurement.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Yields of each task.
    pub yields: u32,
    /// Tasks to spawn.
    pub spawns: u32,
    /// Round trips.
    pub trips: u32,
    /// Tasks that wait at once.
    pub parked: u32,
    /// Leaves of the tree: a power of [`FAN_OUT`].
    pub leaves: u64,
    /// Which Fibonacci number.
    pub fib: u32,
    /// Each loop of `check` is timed so often.
    pub loop_times: u32,
    /// How long an attack lasts.
    pub window: Duration,
}

impl Work {
    /// What the targets speak of.
    pub const FULL: Self = Self {
        yields: 50_000,
        spawns: 1_000_000,
        trips: 500_000,
        parked: 1_000_000,
        leaves: 1_000_000,
        fib: 32,
        loop_times: 60,
        window: Duration::from_secs(1),
    };
    /// To see that it runs.
    pub const QUICK: Self = Self {
        yields: 500,
        spawns: 10_000,
        trips: 5_000,
        parked: 10_000,
        leaves: 10_000,
        fib: 20,
        loop_times: 2,
        window: Duration::from_millis(100),
    };

    /// The arguments of the Go program, in its order.
    pub fn arguments(&self) -> [String; 7] {
        [
            self.yields.to_string(),
            self.spawns.to_string(),
            self.trips.to_string(),
            self.parked.to_string(),
            self.leaves.to_string(),
            self.window.as_millis().to_string(),
            HOARD.to_string(),
        ]
    }
}
