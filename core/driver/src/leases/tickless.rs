//! When the tick of a leased CPU stops, and when it is back: what of the proof needs the whole machine.

use super::machine::{LeaseEvent, LeaseMachine, TickDuties};
use super::{Leases, LiveLease, placement};
use mainspring_abi::{CpuId, Nanos, ThreadRef};
use mainspring_sched::lease::{AccountingTarget, LeaseRef, Standing, TargetStanding};
use mainspring_sched::nohz::{Activation, Claim, Conditions, Origin, RingFacts};
use mainspring_sched::{Cpu, NetworkNeed, NohzEntry, NohzExit, NohzRecheck, TickMode};

/// What the handler of an interrupt has to do after [`Leases::attend`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Attended {
    /// Nothing more than without leases.
    Continue,
    /// The running thread was moved to another CPU. Choose a thread.
    ChooseNext,
}

/// A CPU without a tick, with its counters of the moment in which the tick stopped.
#[derive(Debug)]
pub(super) struct Window {
    pub lease: LeaseRef,
    pub since: Nanos,
    pub suppressed: u64,
    exits: [u64; NohzExit::ALL.len()],
    /// What the recheck that ended it found.
    found: Option<&'static str>,
}

fn is_tickless(cpu: &Cpu) -> bool {
    matches!(cpu.tick_mode(), TickMode::TicklessLease { .. })
}

/// The target that the running thread of `cpu` is charged to.
fn payer(cpu: &Cpu) -> AccountingTarget {
    let current = cpu.current().and_then(|seat| cpu.entity(seat).ok());
    current
        .and_then(|entity| entity.context())
        .map_or(AccountingTarget::Ledger, |context| context.who().into())
}

/// What is true on a CPU, but for what only the leases know.
fn conditions(duties: &TickDuties, payer: AccountingTarget) -> Conditions {
    let (network_polling, next_wakeup) = match duties.network {
        NetworkNeed::Inactive => (false, Nanos::MAX),
        NetworkNeed::EveryTick => (true, Nanos::MAX),
        NetworkNeed::PollAt(at) => (false, at),
    };
    Conditions {
        lease: Standing::Stale,
        target: TargetStanding::Stale,
        payer,
        ring: RingFacts::NoRing,
        housekeeping: false,
        // A leased CPU does not steal, so no work of other CPUs waits for it.
        sibling_work: false,
        deferred_cleanup: duties.deferred_work,
        global_timers: duties.global_timers,
        unbound_worker: duties.unbound_worker,
        watchdog: duties.watchdog,
        network_polling,
        fixed_irq: duties.fixed_interrupt,
        devices_on_housekeeping: duties.devices_on_housekeeping,
        stable_clock: duties.stable_clock,
        boundary_accounting: duties.boundary_accounting,
        interruptible: duties.interruptible,
        periodic: duties.periodic_timer,
        oneshot: duties.oneshot_timer,
        min_delta: duties.min_delta,
        next_wakeup,
    }
}

/// Proves the window of `cpu`, which is this one, again while another CPU has the [`Leases`]: whether the lease stands
/// cannot be read. The CPU asks again after the shortest time that its timer can do, or ticks again if the last proof is too
/// old for that.
pub fn recheck_without_leases<M: LeaseMachine>(machine: &mut M, cpu: CpuId) -> NohzRecheck {
    let duties = machine.tick_duties(cpu);
    machine.with_cpu(cpu, |cpu| {
        let conditions = Conditions { lease: Standing::Contended, ..conditions(&duties, payer(cpu.cpu())) };
        cpu.event().nohz_recheck(conditions)
    })
}

impl LiveLease {
    /// What is claimed: by the lessee itself, or for it by a thread on another CPU.
    pub(super) fn claim(&self, remote: Option<ThreadRef>) -> Claim {
        let origin = match (remote, self.ring) {
            (Some(caller), _) => Origin::Remote { caller },
            (None, None) => Origin::Local { caller: self.lessee, poller: None },
            (None, Some(ring)) => Origin::Local { caller: ring.owner, poller: Some(self.lessee) },
        };
        self.eligibility.claim(self.lease, origin)
    }
}

impl Leases {
    /// An interrupt has come to `cpu`, which is this one. A tickless window is proved again before anything else. Then each
    /// thread that is here and belongs elsewhere leaves. Called at every timer interrupt and reschedule, if there are
    /// leases.
    pub fn attend<M: LeaseMachine>(&mut self, machine: &mut M, cpu: CpuId) -> Attended {
        self.reprove(machine, cpu);
        self.evict(machine, cpu)
    }

    /// The first half of [`Leases::attend`]: a tickless window of `cpu`, which is this one, is proved again, or the CPU ticks.
    pub fn reprove<M: LeaseMachine>(&mut self, machine: &mut M, cpu: CpuId) {
        if machine.with_cpu(cpu, |cpu| is_tickless(cpu.cpu())) {
            self.recheck(machine, cpu);
        }
        machine.with_isolation(|isolation| isolation.ask_for_tickless(cpu));
    }

    /// The second half of [`Leases::attend`]: threads that are on `cpu`, which is this one, and belong elsewhere leave. A
    /// machine that handles interrupts in the middle of something calls this when that is over.
    pub fn evict<M: LeaseMachine>(&mut self, machine: &mut M, cpu: CpuId) -> Attended {
        if placement::attend(machine, cpu) { Attended::ChooseNext } else { Attended::Continue }
    }

    fn recheck<M: LeaseMachine>(&mut self, machine: &mut M, cpu: CpuId) {
        let lease = machine.with_cpu(cpu, |cpu| cpu.cpu().nohz().map(Activation::lease));
        let conditions = self.conditions(machine, cpu, lease);
        let outcome = machine.with_cpu(cpu, |cpu| cpu.event().nohz_recheck(conditions));
        if let NohzRecheck::RolledBack(obstacle) = outcome
            && let Some(window) = self.windows[cpu.index()].as_mut()
        {
            window.found = Some(obstacle.label());
        }
    }

    /// What is true on `cpu` of a claim under `lease`.
    pub(super) fn conditions<M: LeaseMachine>(
        &mut self,
        machine: &mut M,
        cpu: CpuId,
        lease: Option<LeaseRef>,
    ) -> Conditions {
        let duties = machine.tick_duties(cpu);
        let payer = machine.with_cpu(cpu, |cpu| payer(cpu.cpu()));
        let unleased = conditions(&duties, payer);
        let Some(lease) = lease else { return unleased };
        let standing = self.registry.standing(machine.now(), lease);
        let ring = self.position(lease).and_then(|index| self.live[index].ring);
        let housekeepers = self.registry.housekeepers_for(lease, &self.online);
        Conditions {
            lease: standing,
            target: match standing {
                Standing::Live(terms) => machine.target_standing(terms.target()),
                Standing::Stale | Standing::Expired | Standing::Contended => TargetStanding::Stale,
            },
            ring: ring.map_or(RingFacts::NoRing, |ring| machine.ring_facts(ring.ring)),
            housekeeping: housekeepers.is_ok_and(|cpus| !cpus.is_empty()),
            ..unleased
        }
    }

    /// After an event: ends what has expired, notes which windows have ended, and stops the tick where it was asked for.
    pub fn after_event<M: LeaseMachine>(&mut self, machine: &mut M) {
        self.look_around(machine);
        while let Some(cpu) = machine.with_isolation(super::Isolation::take_asking) {
            self.stop_tick(machine, cpu);
        }
    }

    /// As [`Leases::after_event`], of a machine whose CPUs program their own timers: only `cpu`, which is this one, stops its
    /// tick, whether it asked for that or has begun to run its lessee.
    pub fn after_event_on<M: LeaseMachine>(&mut self, machine: &mut M, cpu: CpuId) {
        self.look_around(machine);
        machine.with_isolation(|isolation| isolation.take_asking_of(cpu));
        self.stop_tick(machine, cpu);
    }

    fn look_around<M: LeaseMachine>(&mut self, machine: &mut M) {
        self.expire(machine);
        for index in 0..self.windows.len() {
            if self.windows[index].is_some() {
                self.note_end_of_window(machine, index);
            }
        }
    }

    fn note_end_of_window<M: LeaseMachine>(&mut self, machine: &mut M, index: usize) {
        let Ok(cpu) = CpuId::new(index) else { return };
        let (tickless, exits, suppressed) = machine.with_cpu(cpu, |cpu| {
            let counters = cpu.cpu().telemetry();
            (is_tickless(cpu.cpu()), counters.nohz_exits, counters.ticks_suppressed_lease)
        });
        if tickless {
            return;
        }
        let Some(window) = self.windows[index].take() else { return };
        let counted = |why: &NohzExit| exits[*why as usize] > window.exits[*why as usize];
        let counted = NohzExit::ALL.into_iter().find(counted);
        machine.lease_event(LeaseEvent::TickRestored {
            lease: window.lease,
            cpu,
            length: machine.now() - window.since,
            suppressed: suppressed - window.suppressed,
            reason: window.found.or(counted.map(NohzExit::label)).unwrap_or("unknown"),
        });
    }

    /// Stops the tick of `cpu` for its lessee, if every obligation is met now. A request that another CPU left in the slot of
    /// `cpu` is decided here; if its lessee does not run yet, it stays for the next tick.
    fn stop_tick<M: LeaseMachine>(&mut self, machine: &mut M, cpu: CpuId) {
        let request = machine.with_remote_slot(cpu, |slot| slot.peek());
        let lessee = machine.with_isolation(|isolation| isolation.lessee(cpu));
        let Some(index) = lessee.and_then(|lessee| self.position(lessee.lease)) else {
            if let Some(request) = request {
                machine.with_remote_slot(cpu, |slot| slot.finish(&request));
            }
            return;
        };
        let live = &self.live[index];
        let (runs, tickless) = machine.with_cpu(cpu, |cpu| {
            let current = cpu.cpu().current();
            (current.is_some_and(|seat| seat.thread() == live.lessee), is_tickless(cpu.cpu()))
        });
        // The interrupt that binds a lessee to its CPU is on its way, and asks again.
        if !live.tickless || !runs || tickless || !placement::is_where_its_lease_is(machine, live.lessee) {
            return;
        }
        let (lease, claim) = (live.lease, request.map_or_else(|| live.claim(None), |request| request.claim));
        let conditions = self.conditions(machine, cpu, Some(claim.lease));
        let (entry, exits, suppressed) = machine.with_cpu(cpu, |cpu| {
            let entry = cpu.event().nohz_enter(claim, conditions);
            (entry, cpu.cpu().telemetry().nohz_exits, cpu.cpu().telemetry().ticks_suppressed_lease)
        });
        if let Some(request) = request {
            machine.with_remote_slot(cpu, |slot| slot.finish(&request));
        }
        match entry {
            NohzEntry::Tickless { wake_at } => {
                let since = machine.now();
                self.windows[cpu.index()] = Some(Window { lease, since, suppressed, exits, found: None });
                self.live[index].obstacle = None;
                let remote = matches!(claim.origin, Origin::Remote { .. });
                machine.lease_event(LeaseEvent::TickStopped { lease, cpu, wake_at, remote });
            }
            NohzEntry::Refused(why) => {
                // Told once, not at every tick.
                if self.live[index].obstacle.replace(why) != Some(why) {
                    machine.lease_event(LeaseEvent::TickKept { lease, cpu, why });
                }
            }
            NohzEntry::Already => {}
        }
    }
}
