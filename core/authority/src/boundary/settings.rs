//! What the policy service has set, over what the manifest says.

use super::quota::Quota;
use crate::admission::Candidate;
use alloc::collections::BTreeMap;
use alloc::string::String;
use mainspring_abi::{CpuId, CpuSet, LatencyClass, Nanos, ProcessId, ThreadRef, Weight};
use mainspring_sched::Floor;

/// How a best-effort thread is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Treatment {
    /// Its share.
    pub weight: Weight,
    /// How soon it wants to be served.
    pub class: LatencyClass,
}

/// What a runtime says of its own thread. A hint has no effect but through a [`HintMap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hint {
    /// A user or another thread waits for it.
    LatencySensitive,
    /// No user and no thread waits for it.
    Batch,
    /// It serves a device.
    Driver,
    /// It polls.
    Poller,
    /// It acts for a user, in bursts.
    Agent,
}

impl Hint {
    /// Every hint.
    pub const ALL: [Self; 5] = [Self::LatencySensitive, Self::Batch, Self::Driver, Self::Poller, Self::Agent];
}

/// What each hint means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HintMap {
    of: [Treatment; Hint::ALL.len()],
}

impl HintMap {
    /// How a thread with this hint is treated.
    #[must_use]
    pub fn treatment(&self, hint: Hint) -> Treatment {
        self.of[hint as usize]
    }

    pub(super) fn set(&mut self, hint: Hint, treatment: Treatment) {
        self.of[hint as usize] = treatment;
    }
}

impl Default for HintMap {
    /// Every thread gets the default share; the hints differ in how soon they are served.
    fn default() -> Self {
        let mut map = Self { of: [Treatment::default(); Hint::ALL.len()] };
        for hint in [Hint::LatencySensitive, Hint::Driver] {
            map.set(hint, Treatment { class: LatencyClass::Interactive, ..Treatment::default() });
        }
        map.set(Hint::Batch, Treatment { class: LatencyClass::Batch, ..Treatment::default() });
        map
    }
}

/// The name of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProfileKey(pub u32);

/// A template that an identity, session, account or service is given: how its threads begin. It holds no CPU
/// time, and nothing can be charged to it:
///
/// ```compile_fail,E0599
/// # use mainspring_abi::Nanos;
/// use mainspring_authority::boundary::ResourceProfile;
/// fn spend(profile: &mut ResourceProfile) {
///     let _ = profile.charge(Nanos::ZERO, Nanos::new(1));
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ResourceProfile {
    /// What to call it.
    pub name: String,
    /// How its threads are treated.
    pub treatment: Treatment,
    /// The limit on what they use together, if there is one.
    pub quota: Option<Quota>,
}

/// What becomes of a lease when its granter is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLoss {
    /// It lasts until it expires.
    Keep,
    /// It is revoked.
    Revoke,
}

/// A CPU that its holder has for itself. A lease gives no CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The process that has it.
    pub holder: ProcessId,
    /// When it ends by itself.
    pub expires: Nanos,
    /// What becomes of it when the service is lost.
    pub on_loss: OnLoss,
}

/// How many of each the service may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableBounds {
    /// Changes in one update.
    pub changes: usize,
    /// Profiles.
    pub profiles: usize,
    /// Threads whose weight differs from their profile's.
    pub threads: usize,
    /// Processes with a quota of their own.
    pub quotas: usize,
    /// Admitted contexts.
    pub contexts: usize,
}

/// What boot says and no update can change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The CPUs.
    pub cpus: CpuSet,
    /// What best effort keeps of each.
    pub floor: Floor,
    /// What each release of an admitted context costs besides its own work.
    pub overhead: Nanos,
    /// The least weight that the service may give.
    pub weight_min: Weight,
    /// The greatest.
    pub weight_max: Weight,
    /// The thread that recovers the machine. No policy applies to it.
    pub recovery: ThreadRef,
    /// How the recovery thread is treated.
    pub recovery_treatment: Treatment,
    /// What hints mean until a service says otherwise, and again when it is lost.
    pub hints: HintMap,
    /// The longest lease.
    pub lease_max: Nanos,
    /// After how long a silence the service counts as slow.
    pub slow_after: Nanos,
    /// After how long a silence it counts as dead. More than `slow_after`.
    pub dead_after: Nanos,
    /// After how many refused updates in a row an instance is cut off; zero is never.
    pub refusals_max: u32,
    /// How much of everything the service may set.
    pub bounds: TableBounds,
}

impl Manifest {
    /// A manifest with the usual bounds.
    #[must_use]
    pub fn new(cpus: CpuSet, recovery: ThreadRef) -> Self {
        Self {
            cpus,
            floor: Floor::DEFAULT,
            overhead: Nanos::ZERO,
            weight_min: Weight::new(1).unwrap_or_default(),
            weight_max: Weight::new(4096).unwrap_or_default(),
            recovery,
            recovery_treatment: Treatment::default(),
            hints: HintMap::default(),
            lease_max: Nanos::from_secs(60),
            slow_after: Nanos::from_millis(500),
            dead_after: Nanos::from_secs(5),
            refusals_max: 16,
            bounds: TableBounds { changes: 64, profiles: 256, threads: 4096, quotas: 1024, contexts: 256 },
        }
    }
}

/// A context that is admitted, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedContext {
    /// What it asks for.
    pub candidate: Candidate,
    /// Its CPU. It keeps it until it asks for something else.
    pub home: CpuId,
}

/// What the service has set so far.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Settings {
    pub(super) hints: HintMap,
    pub(super) profiles: BTreeMap<ProfileKey, ResourceProfile>,
    pub(super) threads: BTreeMap<ThreadRef, Treatment>,
    pub(super) quotas: BTreeMap<ProcessId, Quota>,
    pub(super) contexts: BTreeMap<u32, PlacedContext>,
    pub(super) leases: BTreeMap<CpuId, Lease>,
}

impl Settings {
    /// What hints mean now.
    #[must_use]
    pub fn hints(&self) -> &HintMap {
        &self.hints
    }

    /// A profile.
    #[must_use]
    pub fn profile(&self, key: ProfileKey) -> Option<&ResourceProfile> {
        self.profiles.get(&key)
    }

    /// How a thread is treated, if the service has said so.
    #[must_use]
    pub fn treatment(&self, thread: ThreadRef) -> Option<Treatment> {
        self.threads.get(&thread).copied()
    }

    /// A process's quota.
    #[must_use]
    pub fn quota(&self, process: ProcessId) -> Option<Quota> {
        self.quotas.get(&process).copied()
    }

    /// The admitted contexts, by the service's numbers.
    #[must_use]
    pub fn contexts(&self) -> &BTreeMap<u32, PlacedContext> {
        &self.contexts
    }

    /// Which CPUs are leased, and their leases.
    pub fn leases(&self) -> impl Iterator<Item = (CpuId, Lease)> + '_ {
        self.leases.iter().map(|(cpu, lease)| (*cpu, *lease))
    }
}
