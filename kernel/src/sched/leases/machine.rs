//! What the driver's leases ask of the kernel: facts about its CPUs, and a way to move the thread that one of them runs.

use super::{ANY, ENDED, LEASED, MASKS, NOTICES, SLOTS, TICKLESS, contexts, isolation};
use crate::arch::{self, LapicTimer};
use crate::devices;
use crate::object::thread;
use crate::sched::dispatch::current;
use crate::sched::machine::Kernel;
use crate::sched::per_cpu::{mine, per_cpu};
use crate::sched::sqpoll;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use mainspring_abi::{CpuId, CpuSet, Nanos, ThreadRef};
use mainspring_driver::leases::{Isolation, LeaseEvent, LeaseMachine, LeaseNotice, RingId, TickDuties};
use mainspring_sched::lease::{AccountingTarget, Endpoint, TargetStanding};
use mainspring_sched::nohz::{RemoteSlot, RingFacts};
use mainspring_sched::{Affinity, ClockEvent, NetworkNeed, WaitKind};

impl LeaseMachine for Kernel {
    /// A thread that is woken too early looks for itself, and goes on waiting where it is then.
    const MOVES_SLEEPERS: bool = true;
    /// Few enough for one stretch, with the search for a CPU for each.
    const LOOKED_AT_ONCE: u32 = 8;

    fn now(&self) -> Nanos {
        arch::now()
    }

    fn with_isolation<R>(&mut self, act: impl FnOnce(&mut Isolation) -> R) -> R {
        let mut isolation = isolation();
        let result = act(&mut isolation);
        LEASED.store(isolation.leased().folded(), Ordering::Relaxed);
        ANY.store(isolation.any(), Ordering::Relaxed);
        result
    }

    fn with_remote_slot<R>(&mut self, cpu: CpuId, act: impl FnOnce(&mut RemoteSlot) -> R) -> R {
        act(&mut SLOTS[cpu.index()].lock())
    }

    fn own_affinity(&self, thread: ThreadRef) -> Affinity {
        thread::slot(thread.index()).own_affinity()
    }

    /// Nothing is allocated: a set that nobody has becomes this one.
    fn affinity_of(&mut self, cpus: CpuSet) -> Option<Affinity> {
        let mut masks = MASKS.lock();
        if let Some(same) = masks.iter().find(|mask| ***mask == cpus) {
            return Some(Affinity::Only(Arc::clone(same)));
        }
        let free = masks.iter_mut().find_map(|mask| {
            *Arc::get_mut(mask)? = cpus;
            Some(Arc::clone(mask))
        });
        free.map(Affinity::Only)
    }

    fn tick_duties(&mut self, cpu: CpuId) -> TickDuties {
        let per_cpu = per_cpu(cpu.index());
        let pit = arch::fallback::is_active();
        TickDuties {
            deferred_work: per_cpu.has_deferred_work(),
            // The PIT interrupts the boot CPU, which passes its ticks on.
            global_timers: pit && cpu == CpuId::BOOT,
            // The kernel has no threads of its own, and nobody counts ticks.
            unbound_worker: false,
            watchdog: false,
            // A network is a program, whose timed waits are in the cores' own heaps.
            network: NetworkNeed::Inactive,
            fixed_interrupt: arch::has_fixed_interrupt(cpu.index()) || devices::routed_to(cpu),
            devices_on_housekeeping: false,
            // Time is the counter's, and threads are charged by it at each event.
            stable_clock: true,
            boundary_accounting: true,
            interruptible: per_cpu.ready.load(Ordering::Relaxed),
            periodic_timer: true,
            oneshot_timer: !pit,
            min_delta: LapicTimer.min_delta(),
        }
    }

    fn target_standing(&self, target: AccountingTarget) -> TargetStanding {
        contexts::lock().standing(target)
    }

    fn ring_facts(&mut self, ring: RingId) -> RingFacts {
        sqpoll::facts(ring)
    }

    fn stop_current(&mut self, cpu: CpuId) -> bool {
        let here = mine();
        debug_assert_eq!(cpu, here.id(), "only a CPU itself stops its thread");
        let thread = current(here);
        let mut core = here.lock();
        if core.cpu().current().is_none() {
            return false;
        }
        // Its registers were saved when it entered the kernel.
        thread.context.unbind();
        core.event(here, |cpu| cpu.block_current(WaitKind::Park, None));
        true
    }

    /// Every CPU reads [`LEASED`].
    fn leased_changed(&mut self, _: CpuId) {}

    /// It is posted when nothing is locked. There is room for the end of every lease and of its replacement.
    fn post_lease_notice(&mut self, endpoint: Endpoint, notice: LeaseNotice) {
        let noted = NOTICES.lock().push_back((endpoint, notice));
        debug_assert!(noted.is_ok(), "more leases have ended than there can be");
    }

    fn lease_event(&mut self, event: LeaseEvent) {
        match event {
            LeaseEvent::TickStopped { cpu, .. } => {
                TICKLESS.fetch_or(1 << cpu.index(), Ordering::Relaxed);
            }
            LeaseEvent::TickRestored { cpu, .. } => {
                TICKLESS.fetch_and(!(1 << cpu.index()), Ordering::Relaxed);
            }
            LeaseEvent::Ended { lease, .. } => {
                let noted = ENDED.lock().push_back(lease);
                debug_assert!(noted.is_ok(), "more leases have ended than there can be");
            }
            LeaseEvent::Granted { .. }
            | LeaseEvent::BoundHere { .. }
            | LeaseEvent::TickKept { .. }
            | LeaseEvent::SlotOccupied { .. } => {}
        }
    }
}
