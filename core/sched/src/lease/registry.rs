//! All leases of a machine.

use super::record::{
    EndReason, Endpoint, Info, Lease, LeaseRef, LeaseRequest, Mode, ModeSet, NamedRing, Owner,
    RevocationPolicy, ServiceId, SessionId, Standing, TargetStanding, Terms,
};
use super::refusal::{NotLive, Refusal};
use crate::cpu::NoRoom;
use crate::identity::Allocator;
use alloc::vec::Vec;
use mainspring_abi::{CpuId, CpuSet, Nanos, ProcessId};

/// What a machine grants.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many leases may exist at once.
    pub capacity: usize,
    /// The modes.
    pub modes: ModeSet,
    /// The longest revocation latency.
    pub max_revocation_latency: Nanos,
    /// Network polls and device interrupts are served by housekeeping CPUs only.
    pub devices_on_housekeeping: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            capacity: 64,
            modes: ModeSet::DEFAULT,
            max_revocation_latency: Nanos::from_millis(100),
            devices_on_housekeeping: false,
        }
    }
}

/// A lease was granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "if it replaced another, `Registry::roll_back` has that one to hand out"]
pub struct Created {
    /// Its name.
    pub lease: LeaseRef,
}

/// So many leases have ended just now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "call `Registry::roll_back` until it returns `None`"]
pub struct Ended(pub usize);

/// A lease that has ended. Its CPU must leave its tickless window, if it is in one: interrupt it, and let it recheck.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the CPU may be without a tick"]
pub struct RollBack {
    /// Which lease.
    pub lease: LeaseRef,
    /// The CPU; `None` if the lease had several, since then none of them can be tickless for it.
    pub cpu: Option<CpuId>,
    /// Why it ended.
    pub reason: EndReason,
    /// Where its owner wants to hear of it.
    pub notify: Option<Endpoint>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Live,
    /// It has ended, and its rollback has not been handed out.
    Ending(EndReason),
    /// It has ended; kept so that its owner can learn why.
    Ended(EndReason),
}

#[derive(Debug)]
struct Record {
    info: Info,
    state: State,
}

/// All leases of a machine. It allocates in [`Registry::new`] only.
#[derive(Debug)]
pub struct Registry {
    limits: Limits,
    housekeeping: CpuSet,
    names: Allocator<Lease>,
    records: Vec<Record>,
}

impl Registry {
    /// No leases yet. `housekeeping` are the CPUs that may do the machine's own work, as long as they are not leased.
    pub fn new(housekeeping: CpuSet, limits: Limits) -> Result<Self, NoRoom> {
        let mut records = Vec::new();
        // A lease and its replacement are both here until the first has been rolled back.
        records.try_reserve_exact(limits.capacity.saturating_mul(2))?;
        Ok(Self { limits, housekeeping, names: Allocator::new(), records })
    }

    /// Grants what `request` asks for, or says why not. `online` are the CPUs that run; `target` is what the keeper of
    /// the accounting targets says of the one that is named.
    pub fn create(
        &mut self,
        now: Nanos,
        request: &LeaseRequest<'_>,
        target: TargetStanding,
        online: &CpuSet,
    ) -> Result<Created, Refusal> {
        self.observe(now);
        self.check_shape(request, target)?;
        let replaced = self.replaced(request)?;
        let cpus = CpuSet::from_bytes(request.cpus).map_err(Refusal::MalformedMask)?;
        let exclusions =
            CpuSet::from_bytes(request.housekeeping_exclusions).map_err(Refusal::MalformedMask)?;
        self.check_placement(&cpus, &exclusions, online, request.replaces)?;
        let capacity = self.limits.capacity;
        if self.records.len() >= if replaced.is_some() { 2 * capacity } else { capacity } {
            return Err(Refusal::Full { capacity });
        }
        let lease = match request.replaces {
            Some(old) => self.names.renew(old)?,
            None => self.names.fresh()?,
        };
        if let Some(index) = replaced {
            self.records[index].state = State::Ending(EndReason::Superseded);
        }
        self.records.push(Record::new(now, lease, request, cpus, exclusions));
        Ok(Created { lease })
    }

    fn check_shape(&self, request: &LeaseRequest<'_>, target: TargetStanding) -> Result<(), Refusal> {
        if !self.limits.modes.contains(request.mode) {
            return Err(Refusal::ModeNotAllowed(request.mode));
        }
        let routed = self.limits.devices_on_housekeeping;
        match (request.mode, request.ring) {
            (Mode::KernelSqpoll, NamedRing::None) => return Err(Refusal::SqpollWithoutRing),
            (Mode::KernelSqpoll, NamedRing::CallerThread) | (_, NamedRing::None) => {}
            (_, NamedRing::CallerThread) if routed => {}
            (_, NamedRing::CallerThread) => return Err(Refusal::RingWithoutSqpoll),
        }
        if request.mode == Mode::DeviceOwner && !routed {
            return Err(Refusal::DevicesNotRouted);
        }
        match target {
            TargetStanding::Chargeable => {}
            TargetStanding::Stale => return Err(Refusal::StaleTarget),
            TargetStanding::Fabricated => return Err(Refusal::FabricatedTarget),
        }
        let max = self.limits.max_revocation_latency;
        if request.max_revocation_latency.is_zero() || request.max_revocation_latency > max {
            return Err(Refusal::RevocationLatency { max });
        }
        Ok(())
    }

    fn replaced(&self, request: &LeaseRequest<'_>) -> Result<Option<usize>, Refusal> {
        let Some(old) = request.replaces else { return Ok(None) };
        let index = self.live(old).map_err(Refusal::Replaces)?;
        if self.records[index].info.owner != request.owner {
            return Err(Refusal::NotOwner);
        }
        Ok(Some(index))
    }

    fn check_placement(
        &self,
        cpus: &CpuSet,
        exclusions: &CpuSet,
        online: &CpuSet,
        replaces: Option<LeaseRef>,
    ) -> Result<(), Refusal> {
        if cpus.is_empty() {
            return Err(Refusal::EmptyMask);
        }
        if let Some(cpu) = cpus.without(online).iter().next() {
            return Err(Refusal::Offline(cpu));
        }
        let others = || self.live_records().filter(|record| Some(record.info.lease) != replaces);
        for record in others() {
            if let Some(cpu) = cpus.and(&record.info.cpus).iter().next() {
                return Err(Refusal::Overlap { cpu, held_by: record.info.lease });
            }
        }
        let left = others().fold(self.housekeeping.and(online).without(cpus), |left, record| {
            left.without(&record.info.cpus)
        });
        // Existing leases keep a housekeeper that may work for them, too.
        let starved = |record: &Record| left.without(&record.info.housekeeping_exclusions).is_empty();
        if left.without(exclusions).is_empty() || others().any(starved) {
            return Err(Refusal::NoHousekeeping);
        }
        Ok(())
    }

    /// Takes `lease` back from any owner.
    pub fn revoke(&mut self, now: Nanos, lease: LeaseRef) -> Result<Ended, NotLive> {
        self.observe(now);
        let index = self.live(lease)?;
        self.records[index].state = State::Ending(EndReason::Revoked);
        Ok(Ended(1))
    }

    /// Its owner is done with `lease`: ends it if it is live, and forgets one that has ended.
    pub fn release(&mut self, now: Nanos, lease: LeaseRef) -> Result<Ended, NotLive> {
        self.observe(now);
        let index = self.find(lease)?;
        match self.records[index].state {
            State::Live => {
                self.records[index].state = State::Ending(EndReason::Released);
                Ok(Ended(1))
            }
            State::Ending(reason) => Err(NotLive::Ended(reason)),
            State::Ended(_) => {
                self.records.swap_remove(index);
                Ok(Ended(0))
            }
        }
    }

    /// `process` has exited: its leases end.
    pub fn process_exited(&mut self, process: ProcessId) -> Ended {
        self.end_all(EndReason::ProcessExit, |owner| owner.process == process)
    }

    /// Another instance has taken the place of `service`: its leases end.
    pub fn service_replaced(&mut self, service: ServiceId) -> Ended {
        self.end_all(EndReason::ServiceReplaced, |owner| owner.service == Some(service))
    }

    /// `session` has ended: its leases end.
    pub fn logged_out(&mut self, session: SessionId) -> Ended {
        self.end_all(EndReason::Logout, |owner| owner.session == Some(session))
    }

    /// Ends every lease whose lifetime is over.
    pub fn expire(&mut self, now: Nanos) -> Ended {
        Ended(self.observe(now))
    }

    /// When the next lifetime is over; [`Nanos::MAX`] if none will be.
    #[must_use]
    pub fn next_expiry(&self) -> Nanos {
        self.live_records().map(|record| record.info.terms.expires_at).min().unwrap_or(Nanos::MAX)
    }

    /// One lease that has ended and whose CPU has not been told. Call it until it returns `None` whenever leases may
    /// have ended.
    pub fn roll_back(&mut self) -> Option<RollBack> {
        let (index, reason) =
            self.records.iter().enumerate().find_map(|(index, record)| match record.state {
                State::Ending(reason) => Some((index, reason)),
                State::Live | State::Ended(_) => None,
            })?;
        let Info { lease, terms, revocation, .. } = &self.records[index].info;
        let notify = match *revocation {
            RevocationPolicy::Silent => None,
            RevocationPolicy::Notify(endpoint) => Some(endpoint),
        };
        let outcome = RollBack { lease: *lease, cpu: terms.sole_cpu, reason, notify };
        match reason {
            // Its owner is there to ask what became of it, and to release it.
            EndReason::Revoked | EndReason::Expired => self.records[index].state = State::Ended(reason),
            EndReason::Released
            | EndReason::ProcessExit
            | EndReason::ServiceReplaced
            | EndReason::Logout
            | EndReason::Superseded => drop(self.records.swap_remove(index)),
        }
        Some(outcome)
    }

    /// What `lease` says.
    pub fn info(&mut self, now: Nanos, lease: LeaseRef) -> Result<&Info, NotLive> {
        self.observe(now);
        let index = self.live(lease)?;
        Ok(&self.records[index].info)
    }

    /// How `lease` stands, for a proof.
    pub fn standing(&mut self, now: Nanos, lease: LeaseRef) -> Standing {
        self.observe(now);
        match self.live(lease) {
            Ok(index) => Standing::Live(self.records[index].info.terms),
            Err(NotLive::Ended(EndReason::Expired)) => Standing::Expired,
            Err(_) => Standing::Stale,
        }
    }

    /// The live lease that has `cpu`.
    #[must_use]
    pub fn lease_of(&self, cpu: CpuId) -> Option<LeaseRef> {
        self.live_records().find(|record| record.info.cpus.contains(cpu)).map(|record| record.info.lease)
    }

    /// The CPUs that do the machine's own work: online, in the housekeeping set, and in no lease.
    #[must_use]
    pub fn housekeepers(&self, online: &CpuSet) -> CpuSet {
        self.live_records()
            .fold(self.housekeeping.and(online), |left, record| left.without(&record.info.cpus))
    }

    /// The housekeepers that may work for `lease`.
    pub fn housekeepers_for(&self, lease: LeaseRef, online: &CpuSet) -> Result<CpuSet, NotLive> {
        let index = self.live(lease)?;
        Ok(self.housekeepers(online).without(&self.records[index].info.housekeeping_exclusions))
    }

    /// Where a piece of the machine's own work that arose on `from` is to be done: on `from` if it is a housekeeper, else
    /// on the next one. That goes for timers that belong to no CPU, deferred freeing and cleaning up, statistics,
    /// workers that nothing waits for, debugging, watching for hangs, balancing load and moving threads.
    #[must_use]
    pub fn home_for_housekeeping(&self, from: CpuId, online: &CpuSet) -> Option<CpuId> {
        let housekeepers = self.housekeepers(online);
        housekeepers.next_from(from).or_else(|| housekeepers.next_from(CpuId::BOOT))
    }

    /// How many leases `process` has, those included that have ended and were not released.
    #[must_use]
    pub fn held_by(&self, process: ProcessId) -> usize {
        self.records.iter().filter(|record| record.info.owner.process == process).count()
    }

    /// How many leases are live.
    #[must_use]
    pub fn live_count(&self) -> usize {
        self.live_records().count()
    }

    fn live_records(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(|record| record.state == State::Live)
    }

    /// Any look at the leases ends those that have expired.
    fn observe(&mut self, now: Nanos) -> usize {
        let over = |record: &&mut Record| record.state == State::Live && record.info.terms.expires_at <= now;
        self.records
            .iter_mut()
            .filter(over)
            .map(|record| record.state = State::Ending(EndReason::Expired))
            .count()
    }

    fn end_all(&mut self, reason: EndReason, whose: impl Fn(&Owner) -> bool) -> Ended {
        let mut ended = 0;
        for record in self.records.iter_mut().filter(|record| whose(&record.info.owner)) {
            match record.state {
                State::Live => {
                    record.state = State::Ending(reason);
                    ended += 1;
                }
                // It is still to be rolled back, and no owner will come to release it after that.
                State::Ending(_) => record.state = State::Ending(reason),
                State::Ended(_) => {}
            }
        }
        self.records.retain(|record| !matches!(record.state, State::Ended(_)) || !whose(&record.info.owner));
        Ended(ended)
    }

    fn live(&self, lease: LeaseRef) -> Result<usize, NotLive> {
        let index = self.find(lease)?;
        match self.records[index].state {
            State::Live => Ok(index),
            State::Ending(reason) | State::Ended(reason) => Err(NotLive::Ended(reason)),
        }
    }

    fn find(&self, lease: LeaseRef) -> Result<usize, NotLive> {
        let exact = self.records.iter().position(|record| record.info.lease == lease);
        exact.ok_or(if self.names.has_given_out(lease.id()) {
            NotLive::StaleGeneration
        } else {
            NotLive::Unknown
        })
    }
}

impl Record {
    fn new(
        now: Nanos,
        lease: LeaseRef,
        request: &LeaseRequest<'_>,
        cpus: CpuSet,
        housekeeping_exclusions: CpuSet,
    ) -> Self {
        let mut members = cpus.iter();
        let sole_cpu = members.next().filter(|_| members.next().is_none());
        let terms = Terms {
            lease,
            sole_cpu,
            mode: request.mode,
            ring: request.ring,
            allow_irqs: request.allow_irqs,
            target: request.target,
            max_revocation_latency: request.max_revocation_latency,
            expires_at: if request.lifetime.is_zero() { Nanos::MAX } else { now + request.lifetime },
        };
        let info = Info {
            lease,
            owner: request.owner,
            cpus,
            housekeeping_exclusions,
            revocation: request.revocation,
            terms,
        };
        Self { info, state: State::Live }
    }
}
