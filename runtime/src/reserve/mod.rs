//! What the host's kernel keeps for the workers, so that contexts hold against other processes too.
//!
//! Conserved: all workers have what was asked for, or none has. A runtime that does not get it goes on as best effort, says so once
//! ([`HostStanding`], and a `tracing` event), and leaves nothing behind: a group that was made for it is removed with the runtime,
//! and one whose process was killed is removed by the next runtime that makes one.

mod deadline;
mod quota;

use crate::calls;
use crate::os_threads::OsThreads;
use crate::runtime::Runtime;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// What the kernel is to keep for the workers: `Config::reserve`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostReservation {
    /// Each worker's thread is under `SCHED_DEADLINE`: the kernel gives it `budget` in each `period`, before all threads that are
    /// not. Such threads are not pinned, so leases keep only tasks of the runtime away.
    Deadline {
        /// CPU time of each worker in each period.
        budget: Duration,
        /// The period, which is the deadline too.
        period: Duration,
    },
    /// All workers' threads are in a cgroup with a quota: together they have `budget` in each `period`, before all groups of less
    /// weight, and no more.
    Quota {
        /// CPU time of all workers together in each period; may exceed the period.
        budget: Duration,
        /// The period: 1 ms to 1 s.
        period: Duration,
    },
}

impl HostReservation {
    fn parts(self) -> (Duration, Duration) {
        match self {
            Self::Deadline { budget, period } | Self::Quota { budget, period } => (budget, period),
        }
    }

    /// Whether no kernel could grant it.
    pub(crate) fn is_senseless(self) -> bool {
        let (budget, period) = self.parts();
        match self {
            Self::Deadline { .. } => budget.is_zero() || budget > period,
            Self::Quota { .. } => {
                let allowed = Duration::from_millis(1)..=Duration::from_secs(1);
                !allowed.contains(&period) || budget < Duration::from_millis(1)
            }
        }
    }
}

/// What became of a [`HostReservation`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostStanding {
    /// None was asked for.
    NotAsked,
    /// The kernel holds it.
    Held(Enforcement),
    /// It does not, and the workers run as best effort.
    BestEffort(NotReserved),
}

/// What holds a reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Enforcement {
    /// `SCHED_DEADLINE` of each worker's thread.
    Deadline,
    /// The quota of this group.
    Quota(PathBuf),
}

/// Why a reservation is not held.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotReserved {
    /// The process may not ask for `SCHED_DEADLINE`, or its threads are pinned.
    DeadlineNotPermitted,
    /// All deadline threads of this host together would have more than the kernel gives them.
    NoBandwidth,
    /// No cgroup hierarchy has the cpu controller for this process.
    NoController,
    /// Groups cannot be made or used there.
    GroupNotWritable(PathBuf),
    /// The workers are virtual: their time is not the host's.
    Virtual,
    /// The kernel says something else.
    Kernel(String),
}

impl fmt::Display for NotReserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DeadlineNotPermitted => f.write_str(
                "SCHED_DEADLINE is not permitted; run as root or with CAP_SYS_NICE, and do not pin the process to CPUs",
            ),
            Self::NoBandwidth => f.write_str(
                "the kernel's admission of SCHED_DEADLINE refuses so much; ask for less, or end other deadline threads",
            ),
            Self::NoController => f.write_str(
                "no cgroup hierarchy has the cpu controller for this process; mount it, or use SCHED_DEADLINE",
            ),
            Self::GroupNotWritable(path) => write!(
                f,
                "no group can be made in {}; run as root, or let the administrator delegate it",
                path.display()
            ),
            Self::Virtual => f.write_str("virtual workers use no time of the host; leave the seed out"),
            Self::Kernel(error) => write!(f, "the kernel refuses: {error}"),
        }
    }
}

impl std::error::Error for NotReserved {}

/// What a runtime has of the host, until it is dropped.
#[derive(Debug)]
pub(crate) struct Reserved {
    standing: HostStanding,
    /// Removed when all threads have left it.
    group: Option<quota::Group>,
}

impl Reserved {
    /// Asks the kernel, for workers that have all started.
    pub(crate) fn ask(wish: Option<HostReservation>, threads: Option<&OsThreads>) -> Self {
        let Some(wish) = wish else { return Self { standing: HostStanding::NotAsked, group: None } };
        let asked = match (wish, threads) {
            (_, None) => Err(NotReserved::Virtual),
            (HostReservation::Deadline { budget, period }, Some(threads)) => {
                deadline::reserve(threads, budget, period).map(|()| (Enforcement::Deadline, None))
            }
            (HostReservation::Quota { budget, period }, Some(threads)) => {
                let made = quota::Group::make(threads, budget, period);
                made.map(|group| (Enforcement::Quota(group.path().to_owned()), Some(group)))
            }
        };
        match asked {
            Ok((enforcement, group)) => Self { standing: HostStanding::Held(enforcement), group },
            Err(why) => {
                tracing::warn!(target: "mainspring", %why, "the host reserves nothing for the workers: best effort");
                Self { standing: HostStanding::BestEffort(why), group: None }
            }
        }
    }

    /// The workers have ended.
    pub(crate) fn end(&mut self) {
        drop(self.group.take());
    }
}

impl Runtime {
    /// What the host's kernel holds of `Config::reserve`.
    pub fn host_standing(&self) -> HostStanding {
        calls::count_poll();
        self.reserved().standing.clone()
    }
}
