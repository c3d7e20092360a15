//! Claims: a thread says that it may go tickless. A claim decides nothing.

use crate::lease::{AccountingTarget, LeaseRef, Mode};
use mainspring_abi::{CpuId, CpuSet, Nanos, ThreadRef};

/// What would run without a tick.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Nothing: tickless idle, which needs no lease.
    Idle,
    /// A ring whose submissions the kernel polls.
    KernelSqpoll,
    /// A thread that computes.
    AutoCompute,
    /// A thread that polls shared memory.
    AutoUserspacePoller,
    /// A realtime island's thread.
    RealtimeIsland,
}

impl Kind {
    /// Every kind, in the order of [`Telemetry::nohz_enter_lease`](crate::Telemetry::nohz_enter_lease).
    pub const ALL: [Self; 5] =
        [Self::Idle, Self::KernelSqpoll, Self::AutoCompute, Self::AutoUserspacePoller, Self::RealtimeIsland];

    /// As it stands in reports.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::KernelSqpoll => "kernel-sqpoll",
            Self::AutoCompute => "compute",
            Self::AutoUserspacePoller => "userspace-poller",
            Self::RealtimeIsland => "realtime-island",
        }
    }

    /// Whether a lease of `mode` is for this.
    #[must_use]
    pub const fn is_covered_by(self, mode: Mode) -> bool {
        match self {
            Self::Idle => false,
            Self::KernelSqpoll => matches!(mode, Mode::KernelSqpoll),
            Self::AutoCompute | Self::RealtimeIsland => matches!(mode, Mode::Compute),
            Self::AutoUserspacePoller => matches!(mode, Mode::UserspacePoller | Mode::DeviceOwner),
        }
    }
}

/// A reviewed claim that something may run without a tick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eligibility {
    /// What.
    pub kind: Kind,
    /// How long it may take until a revocation is felt.
    pub max_revocation_latency: Nanos,
    /// Where it would rather run. It excludes no other thread from there: that takes a lease.
    pub preferred_cpus: CpuSet,
    /// Whether it may spin while it has nothing to do.
    pub allow_busy_spin: bool,
    /// The account that pays for it.
    pub accounting_target: AccountingTarget,
}

impl Eligibility {
    /// The preferred CPU among `allowed`, or any of them if it prefers none.
    #[must_use]
    pub fn place(&self, allowed: &CpuSet) -> Option<CpuId> {
        let preferred = self.preferred_cpus.and(allowed);
        preferred.iter().next().or_else(|| allowed.iter().next())
    }

    /// The claim on the CPU of `lease`.
    #[must_use]
    pub fn claim(&self, lease: LeaseRef, origin: Origin) -> Claim {
        Claim {
            lease,
            kind: self.kind,
            max_revocation_latency: self.max_revocation_latency,
            allow_busy_spin: self.allow_busy_spin,
            accounting_target: self.accounting_target,
            origin,
        }
    }
}

/// Which thread asks, and from where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A thread on the CPU itself, which runs alone there; or its poller does.
    Local {
        /// The thread that asks.
        caller: ThreadRef,
        /// The thread that polls its ring, if there is a dedicated one.
        poller: Option<ThreadRef>,
    },
    /// A thread on another CPU, for the one that is pinned to this.
    Remote {
        /// The thread that asks.
        caller: ThreadRef,
    },
}

/// What of an [`Eligibility`] counts on one CPU under one lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The lease.
    pub lease: LeaseRef,
    /// What would run.
    pub kind: Kind,
    /// How long it may take until a revocation is felt.
    pub max_revocation_latency: Nanos,
    /// Whether it may spin while it has nothing to do.
    pub allow_busy_spin: bool,
    /// The account that pays for it.
    pub accounting_target: AccountingTarget,
    /// Which thread asks.
    pub origin: Origin,
}
