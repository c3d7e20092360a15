//! When the tick of a leased CPU stops, and when it is back: the machine's part of the proof.

use super::{Leases, Tenure, Window};
use crate::machine::Machine;
use mainspring_abi::{CpuId, CpuSet, Nanos, ThreadRef};
use mainspring_sched::lease::{AccountingTarget, LeaseRef, TargetStanding};
use mainspring_sched::nohz::{Activation, Claim, Conditions, Eligibility, Kind, Origin, Parked, RingFacts};
use mainspring_sched::{NetworkNeed, NohzEntry, NohzExit, NohzRecheck, TickMode};
use mainspring_workload::LeaseMode;

impl Machine<'_> {
    /// An interrupt has come to `cpu`: what it is without a tick for is proved again before anything else, and whoever
    /// was bound here by a lease that has ended is so no longer.
    pub(in crate::machine) fn attend_leases(&mut self, cpu: usize) {
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

    pub(super) fn recheck_window(&mut self, cpu: usize) {
        let lease = self.cores[cpu].nohz().map(Activation::lease);
        let conditions = self.conditions(cpu, lease);
        if let NohzRecheck::RolledBack(obstacle) = self.core(cpu).nohz_recheck(conditions)
            && let Some(tenure) = self.tenure_with_window(cpu)
            && let Some(window) = &mut self.leases.list[tenure].window
        {
            window.found = Some(obstacle.label());
        }
    }

    pub(super) fn tenure_with_window(&self, cpu: usize) -> Option<usize> {
        let here = |lease: usize| self.workload.leases[lease].cpus.contains(self.cpu_id(cpu));
        (0..self.leases.list.len()).find(|lease| self.leases.list[*lease].window.is_some() && here(*lease))
    }

    /// What is true on `cpu` of a claim under `lease`.
    pub(super) fn conditions(&mut self, cpu: usize, lease: Option<LeaseRef>) -> Conditions {
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
    pub(super) fn ask_to_go_tickless(&mut self, lease: usize, by: Option<usize>) {
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
                    Ok(Parked) => {
                        self.send_reschedule(cpu.index());
                    }
                    Err(_occupied) => self.log_lease("nohz-refuse", lease, Some(by), None, "slot-occupied"),
                }
            }
        }
    }

    pub(super) fn claim(&self, lease: usize, remote: Option<ThreadRef>) -> Option<Claim> {
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
    pub(in crate::machine) fn ask_at_end_of_event(&mut self, cpu: usize) {
        if self.leases.is_leased(cpu) {
            let cpu = self.cpu_id(cpu);
            self.leases.asking.insert(cpu);
        }
    }

    /// After each event: ends what has expired, sees which windows have ended, and opens new ones.
    pub(in crate::machine) fn tend_leases(&mut self) {
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

    pub(super) fn see_window_end(&mut self, lease: usize) {
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
    pub(super) fn try_to_go_tickless(&mut self, cpu: usize) {
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
        let entry = self.core(cpu).nohz_enter(claim, conditions);
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
}
