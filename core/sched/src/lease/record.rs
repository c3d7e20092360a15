//! What a lease says.

use crate::identity::Identity;
use mainspring_abi::{ContextRef, CpuId, CpuSet, Nanos, ProcessId};

/// What a [`LeaseRef`] names.
#[derive(Debug)]
pub enum Lease {}

/// The name of a lease. It proves nothing: each use asks the [`Registry`](super::Registry) whether it is live.
pub type LeaseRef = Identity<Lease>;

/// A login session, by a number that no other session ever has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(pub u64);

/// One running instance of a service; its replacement is another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServiceId(pub u32);

/// Where a notice goes, in the machine's own numbering.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Endpoint(pub u32);

/// The owners of a lease. It ends with the first of them that ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// The process that holds it.
    pub process: ProcessId,
    /// The session that the process runs in, if any.
    pub session: Option<SessionId>,
    /// The service that the process is an instance of, if any.
    pub service: Option<ServiceId>,
}

/// What the leased CPUs are for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// A thread that computes.
    Compute,
    /// The kernel polls a ring's submissions.
    KernelSqpoll,
    /// A thread that polls shared memory.
    UserspacePoller,
    /// A worker of the kernel.
    KernelWorker,
    /// A thread that owns a device's queues.
    DeviceOwner,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 5] =
        [Self::Compute, Self::KernelSqpoll, Self::UserspacePoller, Self::KernelWorker, Self::DeviceOwner];

    /// As it stands in reports.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::KernelSqpoll => "kernel-sqpoll",
            Self::UserspacePoller => "userspace-poller",
            Self::KernelWorker => "kernel-worker",
            Self::DeviceOwner => "device-owner",
        }
    }
}

/// Which modes a machine grants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModeSet(u8);

impl ModeSet {
    /// The modes that need only the scheduler's consent: computing, and rings that the kernel polls. Pollers in
    /// user space, kernel workers and device owners are for a policy service to allow.
    pub const DEFAULT: Self = Self(0).with(Mode::Compute).with(Mode::KernelSqpoll);

    /// These and `mode`.
    #[must_use]
    pub const fn with(self, mode: Mode) -> Self {
        Self(self.0 | 1 << mode as u8)
    }

    /// Whether `mode` is granted.
    #[must_use]
    pub const fn contains(self, mode: Mode) -> bool {
        self.0 & 1 << mode as u8 != 0
    }
}

/// Which ring a lease is coupled to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NamedRing {
    /// None: it declares that it needs neither network polls nor device interrupts.
    None,
    /// The ring of the thread that asks.
    CallerThread,
}

/// What pays for the time used under a lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AccountingTarget {
    /// A scheduling context, by its identity.
    Context {
        /// Which.
        id: u64,
        /// As of when.
        generation: u64,
    },
    /// The scheduler's ledger.
    Ledger,
}

impl From<ContextRef> for AccountingTarget {
    fn from(who: ContextRef) -> Self {
        Self::Context { id: u64::from(who.id()), generation: u64::from(who.generation()) }
    }
}

/// What the keeper of the accounting targets says of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TargetStanding {
    /// It can be charged.
    Chargeable,
    /// It existed, and does so no longer.
    Stale,
    /// There never was one of that name.
    Fabricated,
}

/// What happens besides the rollback when a lease is taken back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RevocationPolicy {
    /// Nothing.
    Silent,
    /// A notice is posted here.
    Notify(Endpoint),
}

/// A lease that is asked for.
#[derive(Clone, Copy, Debug)]
pub struct LeaseRequest<'a> {
    /// For whom.
    pub owner: Owner,
    /// The CPUs, as the canonical bitset that [`CpuSet::from_bytes`] reads.
    pub cpus: &'a [u8],
    /// CPUs that may not do the housekeeping for it: such as the sibling of a leased hyperthread.
    pub housekeeping_exclusions: &'a [u8],
    /// What for.
    pub mode: Mode,
    /// The ring that it is coupled to.
    pub ring: NamedRing,
    /// Whether interrupts that cannot be moved may stay on its CPUs.
    pub allow_irqs: bool,
    /// The account that pays.
    pub target: AccountingTarget,
    /// How long it may take until a revocation is felt.
    pub max_revocation_latency: Nanos,
    /// What else happens then.
    pub revocation: RevocationPolicy,
    /// How long it lasts; zero for until it is taken back.
    pub lifetime: Nanos,
    /// The lease that it takes the place of: same owner, whose old capability is stale from then on.
    pub replaces: Option<LeaseRef>,
}

/// A lease as the registry has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Its name.
    pub lease: LeaseRef,
    /// For whom.
    pub owner: Owner,
    /// The CPUs.
    pub cpus: CpuSet,
    /// CPUs that may not do the housekeeping for it.
    pub housekeeping_exclusions: CpuSet,
    /// What happens besides the rollback when it is taken back.
    pub revocation: RevocationPolicy,
    /// What a proof has to know of it.
    pub terms: Terms,
}

/// What a proof has to know of a live lease. Only the [`Registry`](super::Registry) makes one; a flight record that is
/// replayed has those that it made then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    pub(crate) lease: LeaseRef,
    pub(crate) sole_cpu: Option<CpuId>,
    pub(crate) mode: Mode,
    pub(crate) ring: NamedRing,
    pub(crate) allow_irqs: bool,
    pub(crate) target: AccountingTarget,
    pub(crate) max_revocation_latency: Nanos,
    pub(crate) expires_at: Nanos,
}

impl Terms {
    /// Which lease.
    #[must_use]
    pub fn lease(&self) -> LeaseRef {
        self.lease
    }

    /// Its CPU, if it has just one.
    #[must_use]
    pub fn sole_cpu(&self) -> Option<CpuId> {
        self.sole_cpu
    }

    /// What it is for.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The ring that it is coupled to.
    #[must_use]
    pub fn ring(&self) -> NamedRing {
        self.ring
    }

    /// Whether interrupts that cannot be moved may stay on its CPUs.
    #[must_use]
    pub fn allow_irqs(&self) -> bool {
        self.allow_irqs
    }

    /// The account that pays.
    #[must_use]
    pub fn target(&self) -> AccountingTarget {
        self.target
    }

    /// How long it may take until a revocation is felt.
    #[must_use]
    pub fn max_revocation_latency(&self) -> Nanos {
        self.max_revocation_latency
    }

    /// When it ends by itself; [`Nanos::MAX`] for never.
    #[must_use]
    pub fn expires_at(&self) -> Nanos {
        self.expires_at
    }
}

/// What the registry says of a lease at the moment, as a CPU that rechecks its window hears it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It is live, on these terms.
    Live(Terms),
    /// It has ended, or was never issued under that name.
    Stale,
    /// Its lifetime is over.
    Expired,
    /// The registry could not be read just now: another CPU has it.
    Contended,
}

/// Why a lease ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EndReason {
    /// It was taken back.
    Revoked,
    /// Its owner gave it up.
    Released,
    /// Its lifetime was over.
    Expired,
    /// Its process exited.
    ProcessExit,
    /// Its service was replaced.
    ServiceReplaced,
    /// Its session ended.
    Logout,
    /// Another lease took its place.
    Superseded,
}

impl EndReason {
    /// Every reason.
    pub const ALL: [Self; 7] = [
        Self::Revoked,
        Self::Released,
        Self::Expired,
        Self::ProcessExit,
        Self::ServiceReplaced,
        Self::Logout,
        Self::Superseded,
    ];

    /// As it stands in reports.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Revoked => "lease-revoked",
            Self::Released => "lease-released",
            Self::Expired => "lease-expired",
            Self::ProcessExit => "process-exit",
            Self::ServiceReplaced => "service-replaced",
            Self::Logout => "session-logout",
            Self::Superseded => "lease-superseded",
        }
    }
}
