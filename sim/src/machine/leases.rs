//! Leases in the machine: who has which CPUs to itself, who is kept away from them, and when their tick stops.
//!
//! Conserved:
//! * `of_cpu` names exactly the CPUs of live leases, and at least one CPU is in none;
//! * on a leased CPU is its lessee, or somebody who cannot run anywhere else: others are not placed there, do not come
//!   over and are moved away when they wake;
//! * a thread's affinity here is the one that its scheduler has. A lease changes it only while the thread is on its way
//!   from one seat to the next, so a sleeper keeps its place until it wakes.

mod placement;
mod window;

use super::Machine;
use mainspring_abi::{CpuId, CpuSet, Nanos};
use mainspring_report::LeaseReport;
use mainspring_ring::StopReason;
use mainspring_sched::NohzExit;
use mainspring_sched::lease::{
    AccountingTarget, EndReason, LeaseRef, LeaseRequest, Limits, Mode, NamedRing, Owner, Registry,
    RevocationPolicy, RollBack, SessionId, TargetStanding,
};
use mainspring_sched::nohz::RemoteSlot;
use mainspring_workload::{Account, LeaseMode, LeaseSpec, LeaseStart, Workload};
use std::collections::BTreeMap;

/// All leases of the workload.
#[derive(Debug)]
pub(super) struct Leases {
    registry: Registry,
    online: CpuSet,
    list: Vec<Tenure>,
    /// The lease that has each CPU.
    of_cpu: Vec<Option<u32>>,
    /// What other CPUs ask of each.
    slots: Vec<RemoteSlot>,
    /// CPUs that look whether they can do without a tick when the event in progress is over.
    asking: CpuSet,
    /// Threads whose lease has begun or ended, and whose affinity has not followed yet.
    unsettled: Vec<u32>,
}

/// One lease of the workload, over all that was granted under its name.
#[derive(Debug)]
struct Tenure {
    thread: usize,
    /// When it is asked for without a step.
    starts_at: Nanos,
    live: Option<LeaseRef>,
    /// The last that was granted, if it may still have to be released.
    ended: Option<LeaseRef>,
    target: AccountingTarget,
    expires_at: Nanos,
    state: String,
    /// Since when its CPU is without a tick, with the counters of that moment.
    window: Option<Window>,
    /// Why its CPU is not without a tick, as was last told.
    obstacle: Option<&'static str>,
    report: LeaseReport,
}

#[derive(Debug)]
struct Window {
    since: Nanos,
    exits: [u64; NohzExit::ALL.len()],
    suppressed: u64,
    /// What the recheck that ended it found.
    found: Option<&'static str>,
}

impl Leases {
    pub(super) fn new(workload: &Workload, bases: &[usize]) -> Self {
        let online = CpuSet::first(workload.machine.cpus);
        let capacity = workload.leases.len().max(1);
        let limits = Limits { capacity, ..Limits::default() };
        let tenure = |spec: &LeaseSpec| Tenure {
            thread: bases[spec.thread.thread] + spec.thread.instance.unwrap_or(0) as usize,
            starts_at: match spec.start {
                LeaseStart::At(at) => at,
                LeaseStart::Step => Nanos::MAX,
            },
            live: None,
            ended: None,
            target: AccountingTarget::Ledger,
            expires_at: Nanos::MAX,
            state: "not asked for".to_owned(),
            window: None,
            obstacle: None,
            report: LeaseReport {
                name: spec.name.clone(),
                cpus: spec.cpus.iter().map(|cpu| cpu.index() as u32).collect(),
                exits: BTreeMap::new(),
                ..LeaseReport::default()
            },
        };
        Self {
            // Room for so few cannot be wanting; without it every lease is refused.
            registry: Registry::new(online, limits)
                .or_else(|_| Registry::new(online, Limits { capacity: 0, ..limits }))
                .unwrap_or_else(|_| unreachable!("no room needs no memory")),
            online,
            list: workload.leases.iter().map(tenure).collect(),
            of_cpu: vec![None; workload.machine.cpus],
            slots: (0..workload.machine.cpus).map(|_| RemoteSlot::new()).collect(),
            asking: CpuSet::EMPTY,
            unsettled: Vec::new(),
        }
    }

    /// Whether the workload has leases at all.
    #[inline]
    pub(super) fn any(&self) -> bool {
        !self.list.is_empty()
    }

    /// When the next lease is asked for without a step.
    #[inline]
    pub(super) fn next_start(&self) -> Nanos {
        self.list.iter().map(|tenure| tenure.starts_at).min().unwrap_or(Nanos::MAX)
    }

    /// Whether somebody has `cpu` to itself.
    #[inline]
    pub(super) fn is_leased(&self, cpu: usize) -> bool {
        self.any() && self.of_cpu[cpu].is_some()
    }

    fn of_thread(&self, thread: usize) -> Option<usize> {
        self.list.iter().position(|tenure| tenure.live.is_some() && tenure.thread == thread)
    }
}

impl Machine<'_> {
    /// Asks for the leases whose time has come.
    pub(super) fn start_leases(&mut self) {
        for lease in 0..self.leases.list.len() {
            if self.leases.list[lease].starts_at <= self.now {
                self.leases.list[lease].starts_at = Nanos::MAX;
                self.grant_lease(lease, None);
            }
        }
    }

    /// Asks for a lease, on behalf of the thread `by` if it is a step of one; whether it was granted. One that is live
    /// already is replaced.
    pub(super) fn grant_lease(&mut self, lease: usize, by: Option<usize>) -> bool {
        let spec = &self.workload.leases[lease];
        let thread = self.leases.list[lease].thread;
        let granted = self.may_lease(spec, thread).and_then(|()| self.create_lease(lease));
        let who = match granted {
            Ok(who) => who,
            Err(why) => {
                if let Some(by) = by {
                    self.threads[by].stats.refusals += 1;
                }
                // A replacement that is refused leaves what there is.
                if self.leases.list[lease].live.is_none() {
                    self.leases.list[lease].state = format!("refused: {why}");
                }
                self.log_lease("lease-refuse", lease, Some(thread), None, why);
                return false;
            }
        };
        let replaced = self.leases.list[lease].live.replace(who).is_some();
        self.leases.list[lease].ended = None;
        self.leases.list[lease].state = "live".to_owned();
        self.log_lease("lease", lease, Some(thread), None, if replaced { "replaced" } else { "granted" });
        for cpu in spec.cpus.iter().map(CpuId::index) {
            self.leases.of_cpu[cpu] = Some(lease as u32);
            self.follow_lease_of(cpu);
        }
        debug_assert!(
            !self.leases.registry.housekeepers(&self.leases.online).is_empty(),
            "somebody does the housekeeping"
        );
        self.roll_back_leases();
        self.clear_cpus_of(lease);
        if let Some(ring) = self.workload.leases[lease].ring {
            self.rouse_poller(ring);
        }
        if self.workload.leases[lease].nohz {
            self.ask_to_go_tickless(lease, by);
        }
        true
    }

    /// What the registry of leases cannot know: whether the thread can be where its lease is.
    fn may_lease(&self, spec: &LeaseSpec, thread: usize) -> Result<(), &'static str> {
        if !spec.cpus.iter().any(|cpu| self.own_affinity(thread).allows(cpu)) {
            return Err("affinity");
        }
        let home = match self.holds(thread).and_then(|context| self.grants.index(context.who())) {
            Some(grant) => Some(self.grants.list[grant].home),
            None => self.starting_place(thread).filter(|_| self.threads[thread].home.is_none()),
        };
        let there = |home: usize| spec.cpus.contains(self.cpu_id(home));
        if home.is_none_or(there) { Ok(()) } else { Err("context-elsewhere") }
    }

    fn create_lease(&mut self, lease: usize) -> Result<LeaseRef, &'static str> {
        let spec = &self.workload.leases[lease];
        let tenure = &self.leases.list[lease];
        let table = &self.workload.threads[self.table_of(tenure.thread)];
        let (target, standing) = match spec.account {
            Account::Ledger => (AccountingTarget::Ledger, TargetStanding::Chargeable),
            Account::Context(context) => {
                let grant = self.grants.named(self.workload, context).start;
                let who = self.grants.list[grant].who;
                let target = AccountingTarget::Context {
                    id: u64::from(who.id()),
                    generation: u64::from(who.generation()),
                };
                (target, self.standing_of(target))
            }
        };
        let cpus: Vec<u8> = spec.cpus.bytes().collect();
        let request = LeaseRequest {
            owner: Owner {
                process: self.threads[tenure.thread].process,
                session: table.session.map(|session| SessionId(session as u32)),
                service: None,
            },
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
            target,
            max_revocation_latency: spec.max_revocation,
            revocation: RevocationPolicy::Silent,
            lifetime: spec.lifetime.unwrap_or(Nanos::ZERO),
            replaces: tenure.live,
        };
        let (live, ended) = (tenure.live, tenure.ended);
        if live.is_none()
            && let Some(ended) = ended
        {
            // What is left of the last one is in the way of the next.
            let _ = self.leases.registry.release(self.now, ended);
        }
        let created = self.leases.registry.create(self.now, &request, standing, &self.leases.online);
        let created = created.map_err(|refusal| refusal.label())?;
        self.leases.list[lease].target = target;
        self.leases.list[lease].expires_at =
            self.workload.leases[lease].lifetime.map_or(Nanos::MAX, |lifetime| self.now + lifetime);
        Ok(created.lease)
    }

    /// What can be said of an accounting target at present.
    fn standing_of(&self, target: AccountingTarget) -> TargetStanding {
        match target {
            AccountingTarget::Ledger => TargetStanding::Chargeable,
            AccountingTarget::Context { id, generation } => {
                let known = usize::try_from(id).ok().and_then(|id| self.grants.list.get(id.checked_sub(1)?));
                match known {
                    None => TargetStanding::Fabricated,
                    Some(grant) if grant.revoked => TargetStanding::Stale,
                    Some(grant) if u64::from(grant.who.generation()) != generation => TargetStanding::Stale,
                    Some(_) => TargetStanding::Chargeable,
                }
            }
        }
    }

    /// Whether `thread` has the lease, at present.
    pub(super) fn is_lessee(&self, lease: usize, thread: usize) -> bool {
        let tenure = &self.leases.list[lease];
        tenure.live.is_some() && tenure.thread == thread
    }

    /// Takes a lease back; whether there was one.
    pub(super) fn revoke_lease(&mut self, lease: usize) -> bool {
        let Some(live) = self.leases.list[lease].live else { return false };
        let ended = self.leases.registry.revoke(self.now, live).is_ok();
        self.roll_back_leases();
        ended
    }

    /// Its owner gives a lease up; whether there was one.
    pub(super) fn release_lease(&mut self, lease: usize) -> bool {
        let Some(live) = self.leases.list[lease].live else { return false };
        let ended = self.leases.registry.release(self.now, live).is_ok();
        self.roll_back_leases();
        ended
    }

    /// The session is over, and so are its leases.
    pub(super) fn end_leases_of_session(&mut self, session: usize) {
        if self.leases.any() {
            let _ended = self.leases.registry.logged_out(SessionId(session as u32));
            self.roll_back_leases();
        }
    }

    /// `thread` has ended, and its leases with it.
    pub(super) fn end_leases_of_thread(&mut self, thread: usize) {
        if !self.leases.any() {
            return;
        }
        self.threads[thread].affinity = self.own_affinity(thread);
        self.leases.unsettled.retain(|other| *other != thread as u32);
        let Some(lease) = self.leases.of_thread(thread) else { return };
        let process = self.threads[thread].process;
        let survives = |other: &super::thread::Thread| other.process == process && other.home.is_some();
        if self.threads.iter().any(survives) {
            self.revoke_lease(lease);
        } else {
            let _ended = self.leases.registry.process_exited(process);
            self.roll_back_leases();
        }
    }

    /// Tells the CPU of each lease that has ended.
    fn roll_back_leases(&mut self) {
        while let Some(RollBack { lease: who, cpu, reason, notify: _ }) = self.leases.registry.roll_back() {
            if let Some(lease) = self.leases.list.iter().position(|tenure| tenure.live == Some(who)) {
                self.end_tenure(lease, reason);
            }
            let Some(cpu) = cpu.map(CpuId::index) else { continue };
            self.leases.slots[cpu].withdraw(who);
            self.core(cpu).nohz_forget(who);
            self.send_reschedule(cpu);
        }
    }

    fn end_tenure(&mut self, lease: usize, reason: EndReason) {
        let tenure = &mut self.leases.list[lease];
        tenure.ended = tenure.live.take();
        tenure.state = reason.label().to_owned();
        let thread = tenure.thread;
        self.log_lease("lease", lease, Some(thread), None, reason.label());
        for cpu in self.workload.leases[lease].cpus.iter().map(CpuId::index) {
            self.leases.of_cpu[cpu] = None;
            self.follow_lease_of(cpu);
        }
        if self.threads[thread].home.is_some() {
            self.leases.unsettled.push(thread as u32);
        }
        if let Some(ring) = self.workload.leases[lease].ring {
            self.stop_polling(ring, StopReason::LeaseRevoked);
        }
    }

    /// Whether `cpu` is leased has changed: whether others ask it or go there follows.
    fn follow_lease_of(&mut self, cpu: usize) {
        self.mark_askable(cpu);
        self.rank_for_placement(cpu);
    }

    fn log_lease(
        &mut self,
        kind: &str,
        lease: usize,
        thread: Option<usize>,
        to: Option<usize>,
        reason: &'static str,
    ) {
        self.log(kind, |machine, event| {
            let spec = &machine.workload.leases[lease];
            event.cpu = spec.cpus.iter().next().map(|cpu| cpu.index() as u32);
            event.lease = Some(spec.name.clone());
            event.thread = thread.map(|thread| machine.thread_name(thread));
            event.to = to.map(|to| machine.thread_name(to));
            event.reason = Some(reason.to_owned());
        });
    }

    pub(super) fn lease_reports(&mut self) -> Vec<LeaseReport> {
        let report = |(lease, tenure): (usize, &Tenure)| {
            let mut report = tenure.report.clone();
            report.thread = self.thread_name(tenure.thread);
            report.state = match (tenure.live.is_some(), &tenure.window, tenure.obstacle) {
                (true, Some(_), _) => "live, tickless".to_owned(),
                (true, None, Some(obstacle)) => format!("live, ticking: {obstacle}"),
                _ => tenure.state.clone(),
            };
            if let Some(window) = &tenure.window
                && let Some(cpu) = self.workload.leases[lease].cpus.iter().next()
            {
                let suppressed = self.cores[cpu.index()].telemetry().ticks_suppressed_lease;
                report.tickless_ns += (self.now - window.since).get();
                report.ticks_suppressed += suppressed - window.suppressed;
            }
            report
        };
        self.leases.list.iter().enumerate().map(report).collect()
    }
}
