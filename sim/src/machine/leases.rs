//! Leases in the machine: who has which CPUs to itself, who is kept away from them, and when their tick stops.
//!
//! Conserved:
//! * `of_cpu` names exactly the CPUs of live leases, and at least one CPU is in none;
//! * on a leased CPU is its lessee, or somebody who cannot run anywhere else: others are not placed there, do not come
//!   over and are moved away when they wake;
//! * a thread's affinity here is the one that its scheduler has. A lease changes it only while the thread is on its way
//!   from one seat to the next, so a sleeper keeps its place until it wakes.

use super::Machine;
use super::thread::Home;
use mainspring_abi::{CpuId, CpuSet, Nanos, ThreadRef};
use mainspring_report::LeaseReport;
use mainspring_sched::lease::{
    AccountingTarget, EndReason, LeaseRef, LeaseRequest, Limits, Mode, NamedRing, Owner, Registry,
    RevocationPolicy, RollBack, SessionId, TargetStanding,
};
use mainspring_sched::nohz::{Claim, Conditions, Eligibility, Kind, Origin, RemoteSlot, RingFacts};
use mainspring_sched::{
    Affinity, NetworkNeed, NohzEntry, NohzExit, NohzRecheck, State, TickMode, Via, WaitKind,
};
use mainspring_workload::{Account, LeaseMode, LeaseSpec, LeaseStart, Workload};
use std::collections::BTreeMap;
use std::sync::Arc;

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
            self.core_nohz_forget(cpu, who);
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
            self.stop_polling(ring, mainspring_ring::StopReason::LeaseRevoked);
        }
    }

    /// Whether `cpu` is leased has changed: whether others ask it or go there follows.
    fn follow_lease_of(&mut self, cpu: usize) {
        self.mark_askable(cpu);
        self.rank_for_placement(cpu);
    }

    /// Where `thread` may run if no lease has a say in it.
    fn own_affinity(&self, thread: usize) -> Affinity {
        let spec = &self.workload.threads[self.table_of(thread)];
        spec.cpus.map_or(Affinity::Any, |cpus| Affinity::Only(Arc::new(cpus)))
    }

    /// Where `thread` may run by the leases of this moment.
    fn due_affinity(&self, thread: usize) -> Affinity {
        let own = self.own_affinity(thread);
        match self.leases.of_thread(thread) {
            None => own,
            Some(lease) => {
                let allowed = self.workload.leases[lease].cpus.iter().filter(|cpu| own.allows(*cpu));
                Affinity::Only(Arc::new(allowed.collect()))
            }
        }
    }

    /// Whether no lease keeps `thread` away from `cpu`.
    pub(super) fn may_enter(&self, thread: usize, cpu: usize) -> bool {
        if !self.leases.any() {
            return true;
        }
        let lessee = self.leases.of_cpu[cpu].map(|lease| self.leases.list[lease as usize].thread);
        lessee.is_none_or(|lessee| lessee == thread)
    }

    /// `thread` is about to start: it may run where its lease is, if it has one.
    pub(super) fn bind_to_lease(&mut self, thread: usize) {
        if self.leases.any() {
            self.threads[thread].affinity = self.due_affinity(thread);
        }
    }

    /// The best CPU for `thread`, which would rather be at `near`: one that nobody has to himself, if it may run on one.
    pub(super) fn open_place(&self, thread: usize, near: usize) -> usize {
        let affinity = self.due_affinity(thread);
        let allowed = |cpu: &usize| affinity.allows(self.cpu_id(*cpu));
        let open = |cpu: &usize| allowed(cpu) && self.may_enter(thread, *cpu);
        if open(&near) {
            return near;
        }
        let load = |cpu: &usize| self.cores[*cpu].queued() + usize::from(!self.lanes[*cpu].idle);
        let least = (0..self.cores.len()).filter(open).min_by_key(load);
        least
            .or_else(|| Some(near).filter(allowed))
            .or_else(|| (0..self.cores.len()).find(allowed))
            .unwrap_or(near)
    }

    /// Where `thread` is to be, if that is not where and as it is.
    fn due_elsewhere(&self, thread: usize) -> Option<(usize, Affinity)> {
        let (home, _) = self.place_of(thread)?;
        let affinity = self.due_affinity(thread);
        let bound = self.threads[thread].pinned || self.has_lent(thread).is_some();
        let goes = if bound { home } else { self.open_place(thread, home) };
        let stays = goes == home && affinity == self.threads[thread].affinity;
        (!stays && affinity.allows(self.cpu_id(goes))).then_some((goes, affinity))
    }

    /// Everybody on the CPUs of a lease who can be elsewhere goes there, and its thread comes.
    fn clear_cpus_of(&mut self, lease: usize) {
        let lessee = self.leases.list[lease].thread;
        let cpus = self.workload.leases[lease].cpus;
        let there = |machine: &Self, thread: usize| {
            machine.place_of(thread).is_some_and(|(cpu, _)| cpus.contains(machine.cpu_id(cpu)))
        };
        for thread in 0..self.threads.len() {
            if thread != lessee && there(self, thread) {
                self.resettle(thread);
                if there(self, thread) && self.due_elsewhere(thread).is_none() {
                    self.log_lease("lease-obstacle", lease, Some(lessee), Some(thread), "bound-here");
                }
            }
        }
        self.resettle(lessee);
    }

    /// Moves `thread` if a lease wants it elsewhere or bound otherwise. A sleeper stays until it wakes. The CPU that it
    /// ran on chooses another.
    fn resettle(&mut self, thread: usize) {
        let Some((home, seat)) = self.place_of(thread) else { return };
        let Some((goes, affinity)) = self.due_elsewhere(thread) else { return };
        let running = self.lanes[home].running == Some(thread as u32);
        let queued =
            matches!(self.cores[home].state(seat), Ok(State::Queued)) && !self.threads[thread].pinned;
        if !running && !queued {
            return;
        }
        if running {
            self.pause_work(home);
            self.sample_lag_now(home, thread as u32);
            self.end_segment(home, "moved");
            self.core_block_current(home, WaitKind::Park, None);
            self.lanes[home].running = None;
            self.lanes[home].done_at = Nanos::MAX;
        }
        self.carry_over(thread, goes, affinity);
        if running {
            self.decide(home, mainspring_sched::Stop::Nothing);
            if self.acting != Some(home) {
                self.carry_on(home);
            }
        }
    }

    /// Takes `thread`, which does not run, from its seat to one on `goes`, where it is ready.
    fn carry_over(&mut self, thread: usize, goes: usize, affinity: Affinity) {
        let Some((home, seat)) = self.place_of(thread) else { return };
        let Ok(mut removed) = self.core_remove(home, seat) else { return };
        if self.threads[thread].wait.is_some() {
            self.note_woken(thread, removed.permit.take());
        }
        removed.entity.set_affinity(affinity.clone());
        self.threads[thread].affinity = affinity;
        match self.core_accept(goes, removed.entity, Via::Admit) {
            Ok((seat, woken)) => {
                self.threads[thread].home = Some(Home::new(goes, seat));
                self.threads[thread].moved |= goes != home;
                self.leases.unsettled.retain(|other| *other != thread as u32);
                self.kick(goes, woken.reschedule, thread, self.acting);
            }
            Err(refused) => debug_assert!(false, "{refused}"),
        }
    }

    /// What `thread` waited for has come, and a lease wants it to wake somewhere else: it does; whether that is so.
    pub(super) fn wakes_elsewhere(&mut self, thread: usize) -> bool {
        if !self.leases.any() || self.has_lent(thread).is_some() {
            return false;
        }
        let Some((goes, affinity)) = self.due_elsewhere(thread) else { return false };
        self.carry_over(thread, goes, affinity);
        true
    }

    /// `thread` has woken where a lease does not want it: moves it on; whether that was so.
    pub(super) fn moves_on(&mut self, thread: usize) -> bool {
        let due = self.leases.any() && self.due_elsewhere(thread).is_some();
        if due {
            self.resettle(thread);
        }
        due
    }

    /// An interrupt has come to `cpu`: what it is without a tick for is proved again before anything else, and whoever
    /// was bound here by a lease that has ended is so no longer.
    pub(super) fn attend_leases(&mut self, cpu: usize) {
        if matches!(self.cores[cpu].tick_mode(), TickMode::TicklessLease { .. }) {
            self.recheck_window(cpu);
        }
        if self.leases.of_cpu[cpu].is_some() {
            self.ask_at_end_of_event(cpu);
        }
        for thread in std::mem::take(&mut self.leases.unsettled) {
            let here = self.place_of(thread as usize).is_some_and(|(home, _)| home == cpu);
            if here {
                self.resettle(thread as usize);
            }
            if self.due_elsewhere(thread as usize).is_some() {
                self.leases.unsettled.push(thread);
            }
        }
    }

    fn recheck_window(&mut self, cpu: usize) {
        let lease = self.cores[cpu].nohz().map(mainspring_sched::nohz::Activation::lease);
        let conditions = self.conditions(cpu, lease);
        if let NohzRecheck::RolledBack(obstacle) = self.core_nohz_recheck(cpu, conditions)
            && let Some(tenure) = self.tenure_with_window(cpu)
            && let Some(window) = &mut self.leases.list[tenure].window
        {
            window.found = Some(obstacle.label());
        }
    }

    fn tenure_with_window(&self, cpu: usize) -> Option<usize> {
        let here = |lease: usize| self.workload.leases[lease].cpus.contains(self.cpu_id(cpu));
        (0..self.leases.list.len()).find(|lease| self.leases.list[*lease].window.is_some() && here(*lease))
    }

    /// What is true on `cpu` of a claim under `lease`.
    fn conditions(&mut self, cpu: usize, lease: Option<LeaseRef>) -> Conditions {
        let Some(lease) = lease else { return Conditions::default() };
        let tenure = self.leases.list.iter().position(|tenure| tenure.live == Some(lease));
        let payer = self.lanes[cpu].running.and_then(|thread| {
            let who = self.holds(thread as usize)?.who();
            Some(AccountingTarget::Context {
                id: u64::from(who.id()),
                generation: u64::from(who.generation()),
            })
        });
        let (network_polling, next_wakeup) = match self.network_need(cpu) {
            NetworkNeed::Inactive => (false, Nanos::MAX),
            NetworkNeed::EveryTick => (true, Nanos::MAX),
            NetworkNeed::PollAt(at) => (false, at),
        };
        let ring = tenure.and_then(|tenure| self.workload.leases[tenure].ring);
        let Leases { registry, online, .. } = &mut self.leases;
        let housekeeping = registry.housekeepers_for(lease, online).is_ok_and(|cpus| !cpus.is_empty());
        Conditions {
            lease: registry.standing(self.now, lease),
            target: tenure
                .map_or(TargetStanding::Stale, |one| self.standing_of(self.leases.list[one].target)),
            payer: payer.unwrap_or(AccountingTarget::Ledger),
            ring: ring.map_or(RingFacts::NoRing, |ring| self.ring_facts(ring)),
            housekeeping,
            network_polling,
            next_wakeup,
            ..Conditions::default()
        }
    }

    /// Who asks for the CPU of a lease to stop ticking: the lessee itself where it runs, or another thread from afar.
    fn ask_to_go_tickless(&mut self, lease: usize, by: Option<usize>) {
        let cpus = self.workload.leases[lease].cpus;
        let lessee = self.leases.list[lease].thread;
        match by.filter(|by| *by != lessee) {
            None => {
                for cpu in cpus.iter() {
                    self.leases.asking.insert(cpu);
                }
            }
            Some(by) => {
                let Some(cpu) = cpus.iter().next() else { return };
                let caller = self.threads[by].identity;
                let Some(claim) = self.claim(lease, Some(caller)) else { return };
                match self.leases.slots[cpu.index()].park(claim) {
                    Ok(mainspring_sched::nohz::Parked) => {
                        self.send_reschedule(cpu.index());
                    }
                    Err(_occupied) => self.log_lease("nohz-refuse", lease, Some(by), None, "slot-occupied"),
                }
            }
        }
    }

    fn claim(&self, lease: usize, remote: Option<ThreadRef>) -> Option<Claim> {
        let spec = &self.workload.leases[lease];
        let Tenure { live, thread, target, .. } = &self.leases.list[lease];
        let lessee = self.threads[*thread].identity;
        let eligibility = Eligibility {
            kind: if spec.mode == LeaseMode::KernelSqpoll { Kind::KernelSqpoll } else { Kind::AutoCompute },
            max_revocation_latency: spec.max_revocation,
            preferred_cpus: spec.cpus,
            allow_busy_spin: spec.ring.is_some(),
            accounting_target: *target,
        };
        let origin = match (remote, spec.ring) {
            (Some(caller), _) => Origin::Remote { caller },
            (None, None) => Origin::Local { caller: lessee, poller: None },
            (None, Some(ring)) => {
                Origin::Local { caller: self.threads[self.ring_owner(ring)].identity, poller: Some(lessee) }
            }
        };
        live.map(|live| eligibility.claim(live, origin))
    }

    /// `cpu`, if it is leased, is to look whether it can do without a tick.
    #[inline]
    pub(super) fn ask_at_end_of_event(&mut self, cpu: usize) {
        if self.leases.is_leased(cpu) {
            let cpu = self.cpu_id(cpu);
            self.leases.asking.insert(cpu);
        }
    }

    /// After each event: ends what has expired, sees which windows have ended, and opens new ones.
    pub(super) fn tend_leases(&mut self) {
        // A CPU without a tick sees the end of its lease itself, at its one-shot.
        let over = |tenure: &Tenure| {
            tenure.live.is_some() && tenure.expires_at <= self.now && tenure.window.is_none()
        };
        if self.leases.list.iter().any(over) {
            let _expired = self.leases.registry.expire(self.now);
        }
        self.roll_back_leases();
        for lease in 0..self.leases.list.len() {
            self.see_window_end(lease);
        }
        let asking = std::mem::replace(&mut self.leases.asking, CpuSet::EMPTY);
        for cpu in asking.iter().map(CpuId::index) {
            self.try_to_go_tickless(cpu);
        }
    }

    fn see_window_end(&mut self, lease: usize) {
        let Some(cpu) = self.workload.leases[lease].cpus.iter().next().map(CpuId::index) else { return };
        if self.leases.list[lease].window.is_none()
            || matches!(self.cores[cpu].tick_mode(), TickMode::TicklessLease { .. })
        {
            return;
        }
        let counters = self.cores[cpu].telemetry();
        let tenure = &mut self.leases.list[lease];
        let Some(Window { since, exits, suppressed, found }) = tenure.window.take() else { return };
        let counted =
            NohzExit::ALL.into_iter().find(|why| counters.nohz_exits[*why as usize] > exits[*why as usize]);
        let reason = found.or(counted.map(NohzExit::label)).unwrap_or("unknown");
        let length = self.now - since;
        tenure.report.tickless_ns += length.get();
        tenure.report.ticks_suppressed += counters.ticks_suppressed_lease - suppressed;
        *tenure.report.exits.entry(reason.to_owned()).or_default() += 1;
        let thread = tenure.thread;
        self.log("nohz-exit", |machine, event| {
            event.cpu = Some(cpu as u32);
            event.lease = Some(machine.workload.leases[lease].name.clone());
            event.thread = Some(machine.thread_name(thread));
            event.amount_ns = Some(length.get());
            event.reason = Some(reason.to_owned());
        });
    }

    /// Stops the tick of `cpu` for whoever has leased it, if that can be proved harmless.
    fn try_to_go_tickless(&mut self, cpu: usize) {
        let parked = self.leases.slots[cpu].peek();
        let Some(lease) = self.leases.of_cpu[cpu].map(|lease| lease as usize) else {
            if let Some(request) = parked {
                self.leases.slots[cpu].finish(&request);
            }
            return;
        };
        let lessee = self.leases.list[lease].thread;
        let runs = self.lanes[cpu].running == Some(lessee as u32);
        let tickless = matches!(self.cores[cpu].tick_mode(), TickMode::TicklessLease { .. });
        // A request from afar that comes before the thread stays parked for the next tick.
        if !self.workload.leases[lease].nohz || !runs || tickless {
            return;
        }
        let claim = match parked {
            Some(request) => Some(request.claim),
            None => self.claim(lease, None),
        };
        let Some(claim) = claim else { return };
        let conditions = self.conditions(cpu, Some(claim.lease));
        let entry = self.core_nohz_enter(cpu, claim, conditions);
        if let Some(request) = parked {
            self.leases.slots[cpu].finish(&request);
        }
        match entry {
            NohzEntry::Tickless { wake_at } => {
                let counters = self.cores[cpu].telemetry();
                let window = Window {
                    since: self.now,
                    exits: counters.nohz_exits,
                    suppressed: counters.ticks_suppressed_lease,
                    found: None,
                };
                let tenure = &mut self.leases.list[lease];
                tenure.report.activations += 1;
                tenure.obstacle = None;
                tenure.window = Some(window);
                let remote = matches!(claim.origin, Origin::Remote { .. });
                self.log("nohz-enter", |machine, event| {
                    event.cpu = Some(cpu as u32);
                    event.lease = Some(machine.workload.leases[lease].name.clone());
                    event.thread = Some(machine.thread_name(lessee));
                    event.amount_ns = Some((wake_at - machine.now).get());
                    event.reason = Some(if remote { "remote" } else { "local" }.to_owned());
                });
            }
            NohzEntry::Refused(obstacle) => {
                // Said once, not at every tick.
                if self.leases.list[lease].obstacle.replace(obstacle.label()) != Some(obstacle.label()) {
                    self.log_lease("nohz-refuse", lease, Some(lessee), None, obstacle.label());
                }
            }
            NohzEntry::Already => {}
        }
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
