//! The leases of a workload, by name: when each is asked for, how it ended, and the facts that the driver asks the machine for.
//!
//! What a lease means is [`mainspring_driver::leases`]; here is what only a simulated machine has: names, a report, and facts
//! about virtual CPUs.
//!
//! Conserved: a name is live exactly while the driver calls its last grant so.

mod machine;
mod report;

use super::Machine;
use mainspring_abi::{ContextRef, CpuId, CpuSet, Nanos, ThreadRef};
use mainspring_driver::leases::{
    self as driver, Attended, GrantRequest, Isolation, LeasedRing, RingId, affinity,
};
use mainspring_report::LeaseReport;
use mainspring_sched::lease::{
    AccountingTarget, Endpoint, LeaseRef, LeaseRequest, Limits, Mode, NamedRing, Owner, RevocationPolicy,
    TargetStanding,
};
use mainspring_sched::nohz::RemoteSlot;
use mainspring_workload::{Account, LeaseMode, LeaseSpec, LeaseStart, Numbering, Workload};
use std::collections::BTreeMap;

/// All leases of the workload.
#[derive(Debug)]
pub(super) struct Leases {
    /// `None` while an operation of the driver has them, or if there was no memory for them.
    driver: Option<driver::Leases>,
    isolation: Isolation,
    /// What other CPUs ask of each.
    slots: Vec<RemoteSlot>,
    named: Vec<NamedLease>,
    /// The name for which a lease of that number was granted.
    granted: BTreeMap<u64, usize>,
    /// The name for which one is asked at the moment.
    asking: Option<usize>,
}

/// One lease of the workload, over all that was granted under its name.
#[derive(Debug)]
struct NamedLease {
    thread: usize,
    /// When it is asked for without a step.
    starts_at: Nanos,
    live: Option<LeaseRef>,
    /// The last that was granted, if it may still have to be released.
    ended: Option<LeaseRef>,
    state: String,
    report: LeaseReport,
}

impl Leases {
    pub(super) fn new(workload: &Workload, numbers: &Numbering) -> Self {
        let online = CpuSet::first(workload.machine.cpus);
        let limits = Limits { capacity: workload.leases.len(), ..Limits::default() };
        let named = |spec: &LeaseSpec| NamedLease {
            thread: numbers.threads(spec.thread).start,
            starts_at: match spec.start {
                LeaseStart::At(at) => at,
                LeaseStart::Step => Nanos::MAX,
            },
            live: None,
            ended: None,
            state: "not asked for".to_owned(),
            report: LeaseReport {
                name: spec.name.clone(),
                cpus: spec.cpus.iter().map(|cpu| cpu.index() as u32).collect(),
                exits: BTreeMap::new(),
                ..LeaseReport::default()
            },
        };
        let isolation = Isolation::new(workload.machine.cpus, workload.leases.len());
        Self {
            driver: driver::Leases::new(online, online, limits).ok().filter(|_| isolation.is_ok()),
            isolation: isolation
                .or_else(|_| Isolation::new(0, 0))
                .unwrap_or_else(|_| unreachable!("no leases need no memory")),
            slots: (0..workload.machine.cpus).map(|_| RemoteSlot::new()).collect(),
            named: workload.leases.iter().map(named).collect(),
            granted: BTreeMap::new(),
            asking: None,
        }
    }

    /// Whether the workload has leases at all.
    #[inline]
    pub(super) fn any(&self) -> bool {
        !self.named.is_empty()
    }

    /// When the next lease is asked for without a step.
    #[inline]
    pub(super) fn next_start(&self) -> Nanos {
        self.named.iter().map(|lease| lease.starts_at).min().unwrap_or(Nanos::MAX)
    }

    /// Whether a lessee has `cpu` to itself.
    #[inline]
    pub(super) fn is_leased(&self, cpu: usize) -> bool {
        self.any() && CpuId::new(cpu).is_ok_and(|cpu| self.isolation.is_leased(cpu))
    }

    /// Threads that were moved off leased CPUs.
    pub(super) fn offloads(&self) -> u64 {
        let cpus = self.isolation.cpus().map_while(|cpu| CpuId::new(cpu).ok());
        cpus.map(|cpu| self.isolation.offloads(cpu)).sum()
    }

    /// Whether no lease keeps `thread` away from `cpu`.
    #[inline]
    pub(super) fn admits(&self, thread: ThreadRef, cpu: CpuId) -> bool {
        !self.any() || self.isolation.admits(thread, cpu)
    }
}

impl Machine<'_> {
    /// Lets the driver act on the leases. What it calls back into the machine for needs none of them.
    pub(super) fn with_leases<R>(
        &mut self,
        act: impl FnOnce(&mut driver::Leases, &mut Self) -> R,
    ) -> Option<R> {
        let mut leases = self.leases.driver.take()?;
        let result = act(&mut leases, self);
        self.leases.driver = Some(leases);
        Some(result)
    }

    /// Asks for the leases whose time has come.
    pub(super) fn start_leases(&mut self) {
        for lease in 0..self.leases.named.len() {
            if self.leases.named[lease].starts_at <= self.now {
                self.leases.named[lease].starts_at = Nanos::MAX;
                self.grant_lease(lease, None);
            }
        }
    }

    /// Asks for a lease, on behalf of the thread `by` if it is a step of one; whether it was granted. One that is live
    /// already is replaced.
    pub(super) fn grant_lease(&mut self, lease: usize, by: Option<usize>) -> bool {
        let named = &self.leases.named[lease];
        let (thread, live) = (named.thread, named.live);
        if let Some(ended) = named.ended.filter(|_| live.is_none()) {
            // What is left of the last one is in the way of the next.
            let _forgotten = self.with_leases(|leases, machine| leases.release(machine, ended));
        }
        let spec = &self.workload.leases[lease];
        let cpus: Vec<u8> = spec.cpus.bytes().collect();
        let asked = GrantRequest {
            request: LeaseRequest {
                owner: self.owner_of(thread),
                cpus: &cpus,
                housekeeping_exclusions: &[],
                mode: match spec.mode {
                    LeaseMode::Compute => Mode::Compute,
                    LeaseMode::Poller => Mode::UserspacePoller,
                    LeaseMode::KernelSqpoll => Mode::KernelSqpoll,
                    LeaseMode::KernelWorker => Mode::KernelWorker,
                },
                ring: if spec.ring.is_some() { NamedRing::CallerThread } else { NamedRing::None },
                allow_irqs: false,
                target: self.target_of(spec.account),
                max_revocation_latency: spec.max_revocation,
                revocation: match spec.revoke_endpoint {
                    Some(endpoint) => RevocationPolicy::Notify(Endpoint(endpoint as u32)),
                    None => RevocationPolicy::Silent,
                },
                lifetime: spec.lifetime.unwrap_or(Nanos::ZERO),
                replaces: live,
            },
            lessee: self.threads[thread].identity,
            caller: by.map(|by| self.threads[by].identity),
            ring: spec.ring.map(|ring| LeasedRing {
                ring: RingId(ring as u32),
                owner: self.threads[self.ring_owner(ring)].identity,
            }),
            tickless: spec.nohz,
            allow_busy_spin: spec.ring.is_some() || spec.mode == LeaseMode::Poller,
        };
        self.leases.asking = Some(lease);
        let granted = self.with_leases(|leases, machine| leases.grant(machine, &asked));
        self.leases.asking = None;
        match granted {
            Some(Ok(_lease)) => {
                if let Some(ring) = self.workload.leases[lease].ring {
                    self.rouse_poller(ring);
                }
                true
            }
            refused => {
                let why = refused.map_or("no-room", |refusal| refusal.err().map_or("", |why| why.label()));
                if let Some(by) = by {
                    self.refuse_step(by, why);
                }
                // A replacement that is refused leaves what there is.
                if live.is_none() {
                    let state = format!("refused: {why}");
                    if self.leases.named[lease].state != state {
                        let (now, name) = (self.now, &self.workload.leases[lease].name);
                        self.notices.push(format!("at {now} lease {name} was refused: {why}"));
                    }
                    self.leases.named[lease].state = state;
                }
                self.log_lease("lease-refuse", lease, Some(thread), None, why);
                false
            }
        }
    }

    /// The owner of a lease of `thread`: its process, its session, and the policy service if its process is one.
    pub(super) fn owner_of(&self, thread: usize) -> Owner {
        let process = self.threads[thread].process;
        let session = self.workload.threads[self.table_of(thread)].session;
        Owner {
            process,
            session: session.map(|session| self.session_id(session)),
            service: self.policy.as_ref().and_then(|policy| {
                let service = self.threads[policy.thread()].process == process;
                policy.service_id().filter(|_| service)
            }),
        }
    }

    fn target_of(&self, account: Account) -> AccountingTarget {
        match account {
            Account::Ledger => AccountingTarget::Ledger,
            Account::Context(context) => {
                let grant = self.grants.numbers.contexts(context).start;
                // No context has the number 0.
                self.grants.list[grant].who.unwrap_or(ContextRef::new(0, 0)).into()
            }
        }
    }

    /// What can be said of an accounting target at present.
    fn standing_of(&self, target: AccountingTarget) -> TargetStanding {
        match target {
            AccountingTarget::Ledger => TargetStanding::Chargeable,
            AccountingTarget::Context { id, generation } => {
                let known = u32::try_from(id).ok().and_then(|id| self.grants.numbered(id));
                let named = |who: ContextRef| u64::from(who.generation()) == generation;
                match known.map(|grant| &self.grants.list[grant]) {
                    None => TargetStanding::Fabricated,
                    Some(grant) if grant.revoked => TargetStanding::Stale,
                    Some(grant) if !grant.who.is_some_and(named) => TargetStanding::Stale,
                    Some(_) => TargetStanding::Chargeable,
                }
            }
        }
    }

    /// Whether `thread` has the lease, at present.
    pub(super) fn is_lessee(&self, lease: usize, thread: usize) -> bool {
        let named = &self.leases.named[lease];
        named.live.is_some() && named.thread == thread
    }

    /// Takes a lease back; whether there was one.
    pub(super) fn revoke_lease(&mut self, lease: usize) -> bool {
        let Some(live) = self.leases.named[lease].live else { return false };
        self.with_leases(|leases, machine| leases.revoke(machine, live).is_ok()).unwrap_or(false)
    }

    /// Its owner gives a lease up; whether there was one.
    pub(super) fn release_lease(&mut self, lease: usize) -> bool {
        let Some(live) = self.leases.named[lease].live else { return false };
        self.with_leases(|leases, machine| leases.release(machine, live).is_ok()).unwrap_or(false)
    }

    /// The session is over, and so are its leases.
    pub(super) fn end_leases_of_session(&mut self, session: usize) {
        if self.leases.any() {
            let session = self.session_id(session);
            self.with_leases(|leases, machine| leases.end_leases_of_session(machine, session));
        }
    }

    /// The life `ended` of instance `thread` is over, and its leases with it.
    pub(super) fn end_leases_of_thread(&mut self, thread: usize, ended: ThreadRef) {
        if !self.leases.any() {
            return;
        }
        self.threads[thread].affinity = self.own_affinity_of(thread);
        let process = self.threads[thread].process;
        let survives = |other: &super::thread::Thread| other.process == process && other.home.is_some();
        let last = !self.threads.iter().any(survives);
        self.with_leases(|leases, machine| {
            if last {
                leases.end_leases_of_process(machine, process);
            }
            leases.thread_exited(machine, ended);
        });
    }

    /// `thread` is about to start: it may run where its lease is, if it has one.
    pub(super) fn bind_to_lease(&mut self, thread: usize) {
        if self.leases.any() {
            self.threads[thread].affinity = self.due_affinity(thread);
        }
    }

    /// Where `thread` may run by the leases of this moment.
    pub(super) fn due_affinity(&mut self, thread: usize) -> mainspring_sched::Affinity {
        let thread = self.threads[thread].identity;
        affinity(self, thread)
    }

    /// An interrupt has come to `cpu`: leases are looked after before anything else.
    pub(super) fn attend_leases(&mut self, cpu: usize) {
        let id = self.cpu_id(cpu);
        let attended = self.with_leases(|leases, machine| leases.attend(machine, id));
        if attended == Some(Attended::ChooseNext) {
            self.choose(cpu);
        }
    }

    /// `cpu`, if it is leased, is to look whether it can do without a tick.
    #[inline]
    pub(super) fn ask_at_end_of_event(&mut self, cpu: usize) {
        let cpu = self.cpu_id(cpu);
        self.leases.isolation.ask_for_tickless(cpu);
    }

    /// After each event.
    pub(super) fn tend_leases(&mut self) {
        self.with_leases(|leases, machine| leases.after_event(machine));
    }
}
