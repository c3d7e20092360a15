//! What the driver's leases ask of a simulated machine.

use crate::machine::Machine;
use mainspring_abi::{CpuId, CpuSet, Nanos, ThreadRef};
use mainspring_driver::leases::{Isolation, LeaseEvent, LeaseMachine, LeaseNotice, RingId, TickDuties};
use mainspring_sched::lease::{AccountingTarget, Endpoint, TargetStanding};
use mainspring_sched::nohz::{RemoteSlot, RingFacts};
use mainspring_sched::{Affinity, WaitKind};
use std::sync::Arc;

/// The shortest one-shot of a virtual timer.
const MIN_DELTA: Nanos = Nanos::from_micros(1);

impl Machine<'_> {
    /// Where instance `thread` may run if no lease decides.
    pub(in crate::machine) fn own_affinity_of(&self, thread: usize) -> Affinity {
        let spec = &self.workload.threads[self.table_of(thread)];
        spec.cpus.map_or(Affinity::Any, |cpus| Affinity::Only(Arc::new(cpus)))
    }
}

impl LeaseMachine for Machine<'_> {
    fn now(&self) -> Nanos {
        self.now
    }

    fn with_isolation<R>(&mut self, act: impl FnOnce(&mut Isolation) -> R) -> R {
        act(&mut self.leases.isolation)
    }

    fn with_remote_slot<R>(&mut self, cpu: CpuId, act: impl FnOnce(&mut RemoteSlot) -> R) -> R {
        act(&mut self.leases.slots[cpu.index()])
    }

    fn own_affinity(&self, thread: ThreadRef) -> Affinity {
        self.own_affinity_of(thread.index() as usize)
    }

    fn affinity_of(&mut self, cpus: CpuSet) -> Option<Affinity> {
        Some(Affinity::Only(Arc::new(cpus)))
    }

    fn context_home(&mut self, thread: ThreadRef) -> Option<CpuId> {
        let index = thread.index() as usize;
        let home = match self.holds(index).and_then(|context| self.grants.index(context.who())) {
            Some(grant) => self.grants.list[grant].home,
            None => self.starting_place(index).filter(|_| self.threads[index].home.is_none()),
        };
        home.map(|home| self.cpu_id(home))
    }

    /// A virtual CPU does nothing at its tick but what the workload gives it to do: a network to poll.
    fn tick_duties(&mut self, cpu: CpuId) -> TickDuties {
        TickDuties {
            deferred_work: false,
            global_timers: false,
            unbound_worker: false,
            watchdog: false,
            network: self.network_need(cpu.index()),
            fixed_interrupt: false,
            devices_on_housekeeping: false,
            stable_clock: true,
            boundary_accounting: true,
            interruptible: true,
            periodic_timer: true,
            oneshot_timer: true,
            min_delta: MIN_DELTA,
        }
    }

    fn target_standing(&self, target: AccountingTarget) -> TargetStanding {
        self.standing_of(target)
    }

    fn ring_facts(&mut self, ring: RingId) -> RingFacts {
        self.facts_of_ring(ring.0 as usize)
    }

    fn stop_current(&mut self, cpu: CpuId) -> bool {
        let cpu = cpu.index();
        let Some(thread) = self.vcpus[cpu].running else { return false };
        self.pause_work(cpu);
        self.look_at_lag_of_stopping(cpu, thread);
        self.end_segment(cpu, "moved");
        self.core_block_current(cpu, WaitKind::Park, None);
        self.vcpus[cpu].running = None;
        self.vcpus[cpu].done_at = Nanos::MAX;
        true
    }

    fn leased_changed(&mut self, cpu: CpuId) {
        self.mark_askable(cpu.index());
        self.rank_for_placement(cpu.index());
    }

    /// A thread that receives from the endpoint wakes, as for a notice of a context.
    fn post_lease_notice(&mut self, endpoint: Endpoint, notice: LeaseNotice) {
        let endpoint = endpoint.0 as usize;
        self.log_notice(endpoint, notice);
        if let Some(receiver) = self.endpoints[endpoint].receivers.pop_front()
            && self.threads[receiver.thread as usize].is_waiting(receiver, WaitKind::Receive)
        {
            self.wake_thread(receiver.thread as usize, self.acting);
        }
    }

    fn lease_event(&mut self, event: LeaseEvent) {
        self.note_lease_event(event);
    }
}
