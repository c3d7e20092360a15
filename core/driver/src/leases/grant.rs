//! Granting a lease: what is checked first, and what follows, which cannot fail.

use super::isolation::Lessee;
use super::machine::{LeaseEvent, LeaseMachine, RingId};
use super::{Leases, LiveLease, allowed, placement};
use crate::machine::Notified;
use core::fmt;
use mainspring_abi::{CpuId, CpuSet, MAX_CPUS, Nanos, ThreadRef};
use mainspring_sched::Affinity;
use mainspring_sched::lease::{
    AccountingTarget, LeaseRef, LeaseRequest, Mode, NamedRing, NotLive, Owner, Refusal, RevocationPolicy,
};
use mainspring_sched::nohz::{Eligibility, Kind, Parked};

/// The ring that a lease is coupled to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeasedRing {
    /// The ring.
    pub ring: RingId,
    /// The thread whose ring it is. The lessee polls it.
    pub owner: ThreadRef,
}

/// A lease for a thread.
#[derive(Clone, Copy, Debug)]
pub struct GrantRequest<'a> {
    /// What the registry of leases decides on.
    pub request: LeaseRequest<'a>,
    /// The thread that gets the CPUs to itself.
    pub lessee: ThreadRef,
    /// The thread that asks, if it is one. Only the lessee itself asks for its own CPU; another thread asks the CPU from afar.
    pub caller: Option<ThreadRef>,
    /// The ring that the lessee polls.
    pub ring: Option<LeasedRing>,
    /// Whether the CPU shall do without a tick whenever it can.
    pub tickless: bool,
    /// Whether the lessee may spin while it has nothing to do.
    pub allow_busy_spin: bool,
}

/// A lease of one CPU that an island or a policy service asks for, and no thread itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuGrant {
    /// The process and the session with which the lease ends.
    pub owner: Owner,
    /// The thread that gets the CPU to itself.
    pub lessee: ThreadRef,
    /// What pays for the thread's time.
    pub target: AccountingTarget,
    /// How long it lasts; zero is until it is taken back.
    pub lifetime: Nanos,
    /// The lease whose place it takes.
    pub replaces: Option<LeaseRef>,
}

/// How soon such a lease can be taken back.
const REVOCATION_LATENCY: Nanos = Nanos::from_millis(1);

/// The longest mask of CPUs, in bytes.
const MASK_BYTES: usize = MAX_CPUS / 8;

/// What became of a request for a CPU without a tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Activate {
    /// The CPU decides when it next looks.
    Asked,
    /// An earlier request of another thread is still in the CPU's slot: ask again later.
    Occupied,
}

/// Why a lease was not granted. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GrantRefusal {
    /// The registry of leases refused it.
    Lease(Refusal),
    /// The lessee may run on none of the CPUs.
    Affinity,
    /// The lessee's context is spent on another CPU.
    ContextElsewhere,
    /// The lessee has another lease.
    AlreadyLeased(LeaseRef),
    /// There is no memory to bind the lessee.
    NoRoom,
}

impl GrantRefusal {
    /// As it stands in reports.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Lease(refusal) => refusal.label(),
            Self::Affinity => "affinity",
            Self::ContextElsewhere => "context-elsewhere",
            Self::AlreadyLeased(_) => "already-leased",
            Self::NoRoom => "no-room",
        }
    }
}

impl From<Refusal> for GrantRefusal {
    fn from(refusal: Refusal) -> Self {
        Self::Lease(refusal)
    }
}

impl fmt::Display for GrantRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lease(refusal) => write!(f, "{refusal}"),
            Self::Affinity => {
                f.write_str("the thread may run on none of the CPUs; lease one that it may use")
            }
            Self::ContextElsewhere => f.write_str(
                "the thread's context is spent on another CPU; lease that one, or move the context",
            ),
            Self::AlreadyLeased(lease) => {
                write!(f, "the thread has lease {lease}; replace or release it first")
            }
            Self::NoRoom => {
                f.write_str("there is no room to bind the thread; release leases that have ended")
            }
        }
    }
}

impl core::error::Error for GrantRefusal {}

impl Leases {
    /// Grants `cpu` as `asked` says, for computing without a tick, or refuses.
    pub(crate) fn grant_cpu<M: LeaseMachine>(
        &mut self,
        machine: &mut M,
        cpu: CpuId,
        asked: CpuGrant,
    ) -> Result<LeaseRef, GrantRefusal> {
        let CpuGrant { owner, lessee, target, lifetime, replaces } = asked;
        let mask: CpuSet = [cpu].into_iter().collect();
        let mut bytes = [0; MASK_BYTES];
        let length = mask.bytes().zip(&mut bytes).map(|(byte, place)| *place = byte).count();
        let asked = GrantRequest {
            request: LeaseRequest {
                owner,
                cpus: &bytes[..length],
                housekeeping_exclusions: &[],
                mode: Mode::Compute,
                ring: NamedRing::None,
                allow_irqs: false,
                target,
                max_revocation_latency: REVOCATION_LATENCY,
                revocation: RevocationPolicy::Silent,
                lifetime,
                replaces,
            },
            lessee,
            caller: None,
            ring: None,
            tickless: true,
            allow_busy_spin: false,
        };
        self.grant(machine, &asked)
    }

    /// Grants what `asked` says, or refuses. Then the lessee comes to its CPUs and other threads leave them: a ready thread
    /// at once; a running thread at the next interrupt of its CPU, which is sent; a sleeper when it wakes. A sleeper cannot
    /// be moved earlier: its deadline is in the heap of the CPU on which it sleeps, and to take it out would end its wait.
    pub fn grant<M: LeaseMachine>(
        &mut self,
        machine: &mut M,
        asked: &GrantRequest<'_>,
    ) -> Result<LeaseRef, GrantRefusal> {
        let bound = self.check_lessee(machine, asked)?;
        let now = machine.now();
        let target = machine.target_standing(asked.request.target);
        let created = self.registry.create(now, &asked.request, target, &self.online)?;
        let lease = created.lease;
        let cpus = CpuSet::from_bytes(asked.request.cpus).unwrap_or(CpuSet::EMPTY);
        self.live.push(LiveLease {
            lease,
            lessee: asked.lessee,
            cpus,
            ring: asked.ring,
            eligibility: eligibility(asked, cpus),
            tickless: asked.tickless,
            obstacle: None,
        });
        let lessee = Lessee { lease, thread: asked.lessee };
        machine.with_isolation(|isolation| {
            isolation.bind(asked.lessee, Some(bound));
            cpus.iter().for_each(|cpu| isolation.lease_cpu(cpu, lessee));
        });
        machine.lease_event(LeaseEvent::Granted { lease, replaces: asked.request.replaces });
        cpus.iter().for_each(|cpu| machine.leased_changed(cpu));
        debug_assert!(!self.housekeepers().is_empty(), "a CPU is left for the housekeeping");
        self.roll_back(machine);
        for cpu in cpus.iter() {
            placement::clear_queue(machine, cpu);
            placement::tell_who_stays(machine, cpu);
        }
        placement::bring(machine, asked.lessee);
        if asked.tickless {
            // An earlier request that is still in the slot is decided first, and the CPU asks again at its next tick.
            let (Activate::Asked | Activate::Occupied) = self.ask(machine, lease, asked.caller);
        }
        Ok(lease)
    }

    /// `caller` asks the CPU of `lease` to do without a tick from now on, whenever it can.
    pub fn activate<M: LeaseMachine>(
        &mut self,
        machine: &mut M,
        lease: LeaseRef,
        caller: ThreadRef,
    ) -> Result<Activate, NotLive> {
        self.registry.info(machine.now(), lease)?;
        if let Some(index) = self.position(lease) {
            self.live[index].tickless = true;
        }
        Ok(self.ask(machine, lease, Some(caller)))
    }

    /// What the registry of leases cannot know: whether the lessee can be where its lease is. The affinity that binds it there.
    fn check_lessee<M: LeaseMachine>(
        &self,
        machine: &mut M,
        asked: &GrantRequest<'_>,
    ) -> Result<Affinity, GrantRefusal> {
        let cpus = CpuSet::from_bytes(asked.request.cpus).map_err(Refusal::MalformedMask)?;
        let bound = allowed(&machine.own_affinity(asked.lessee), &cpus);
        if bound.is_empty() && !cpus.is_empty() {
            return Err(GrantRefusal::Affinity);
        }
        if machine.context_home(asked.lessee).is_some_and(|home| !cpus.contains(home)) {
            return Err(GrantRefusal::ContextElsewhere);
        }
        if let Some(other) =
            self.lease_of(asked.lessee).filter(|lease| asked.request.replaces != Some(*lease))
        {
            return Err(GrantRefusal::AlreadyLeased(other));
        }
        if !machine.with_isolation(|isolation| isolation.has_room_to_bind(asked.lessee)) {
            return Err(GrantRefusal::NoRoom);
        }
        machine.affinity_of(bound).ok_or(GrantRefusal::NoRoom)
    }

    /// The lessee asks for its own CPUs, when the event in progress is over. Another thread asks from afar: the request waits in
    /// the CPU's slot, and the CPU decides.
    fn ask<M: LeaseMachine>(
        &mut self,
        machine: &mut M,
        lease: LeaseRef,
        caller: Option<ThreadRef>,
    ) -> Activate {
        let Some(index) = self.position(lease) else { return Activate::Asked };
        let live = &self.live[index];
        let Some(caller) = caller.filter(|caller| *caller != live.lessee) else {
            let cpus = live.cpus;
            machine.with_isolation(|isolation| cpus.iter().for_each(|cpu| isolation.ask_for_tickless(cpu)));
            return Activate::Asked;
        };
        let (claim, Some(cpu)) = (live.claim(Some(caller)), live.cpus.iter().next()) else {
            return Activate::Asked;
        };
        match machine.with_remote_slot(cpu, |slot| slot.park(claim)) {
            Ok(Parked) => match machine.notify_cpu(cpu) {
                // A CPU that was not told finds the request at its next tick, which still comes.
                Notified::Sent | Notified::Pending | Notified::Failed => Activate::Asked,
            },
            Err(_occupied) => {
                machine.lease_event(LeaseEvent::SlotOccupied { lease, caller });
                Activate::Occupied
            }
        }
    }
}

fn eligibility(asked: &GrantRequest<'_>, cpus: CpuSet) -> Eligibility {
    Eligibility {
        kind: match asked.request.mode {
            Mode::KernelSqpoll => Kind::KernelSqpoll,
            Mode::UserspacePoller | Mode::DeviceOwner => Kind::AutoUserspacePoller,
            Mode::Compute | Mode::KernelWorker => Kind::AutoCompute,
        },
        max_revocation_latency: asked.request.max_revocation_latency,
        preferred_cpus: cpus,
        allow_busy_spin: asked.allow_busy_spin,
        accounting_target: asked.request.target,
    }
}
