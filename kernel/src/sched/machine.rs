//! The kernel as the driver sees it: a lock for each CPU, an interrupt that may fail, and a table of threads.
//!
//! Conserved: what others see of a core without its lock is brought up to date before the lock is given back; no CPU holds two
//! of these locks (but [`super::record`]).

use super::contexts;
use super::leases;
use super::notify::notify;
use super::per_cpu::{IDLE, mine, per_cpu, per_cpus};
use super::wakeup::give_back;
use crate::measure::{self, Counter};
use crate::object::thread;
use core::sync::atomic::Ordering;
use mainspring_abi::{CpuId, ThreadRef};
use mainspring_driver::contexts::CallEnd;
use mainspring_driver::leases::{moves_on, wakes_elsewhere};
use mainspring_driver::steal::choose_victim;
use mainspring_driver::{CpuAccess, Home, Machine, Notified, Threads};
use mainspring_sched::flight::Log;
use mainspring_sched::hint::unlikely;
use mainspring_sched::{Offer, WaitPermit};

/// All CPUs of the machine, as the CPU sees them that executes this.
#[derive(Clone, Copy, Debug)]
pub struct Kernel;

/// The slots of all threads.
#[derive(Clone, Copy, Debug)]
pub struct ThreadTable;

impl Threads for ThreadTable {
    #[inline(always)]
    fn set_home(&mut self, thread: ThreadRef, home: Option<Home>) {
        let thread = thread::slot(thread.index());
        match home {
            Some(Home { cpu, seat }) => thread.set_home(cpu.index(), seat),
            None => thread.clear_home(),
        }
    }
}

impl Machine for Kernel {
    type Observer = Option<Log>;
    type Threads = ThreadTable;

    #[inline(always)]
    fn with_cpu<R>(&mut self, cpu: CpuId, act: impl FnOnce(&mut CpuAccess<'_, Self>) -> R) -> R {
        let per_cpu = per_cpu(cpu.index());
        per_cpu.lock().access(per_cpu, act)
    }

    fn cpus(&self) -> usize {
        per_cpus().len()
    }

    /// The kernel looks at this CPU's queue before it leaves to user mode or halts.
    #[inline(always)]
    fn this_cpu(&self) -> Option<CpuId> {
        Some(mine().id())
    }

    fn notify_cpu(&mut self, cpu: CpuId) -> Notified {
        if cpu == mine().id() {
            // For its leases, which it looks after before it goes on.
            mine().raise_lease_work();
            return Notified::Pending;
        }
        measure::one(Counter::CpusTargeted);
        notify(per_cpu(cpu.index()))
    }

    #[inline(always)]
    fn any_cpu_idles(&self) -> bool {
        // SeqCst: after the offer, see `PerCpu::publish`.
        let idle = IDLE.load(Ordering::SeqCst);
        unlikely(idle != 0) && idle & !leases::leased() != 0
    }

    fn next_idle_cpu(&self, from: CpuId) -> Option<CpuId> {
        let open = IDLE.load(Ordering::SeqCst) & !leases::leased();
        let above = open.checked_shr(from.index() as u32).unwrap_or(0);
        (above != 0).then(|| per_cpu(from.index() + above.trailing_zeros() as usize).id())
    }

    /// The slot of a thread that has ended may have another occupant.
    #[inline(always)]
    fn home(&self, thread: ThreadRef) -> Option<Home> {
        let (cpu, seat) = thread::slot(thread.index()).home().filter(|(_, seat)| seat.thread() == thread)?;
        Some(Home { cpu: per_cpu(cpu).id(), seat })
    }

    fn offer(&self, cpu: CpuId) -> Offer {
        per_cpu(cpu.index()).offer()
    }

    fn placed_weight(&self, cpu: CpuId) -> u64 {
        per_cpu(cpu.index()).placed_weight.load(Ordering::Relaxed)
    }

    fn add_placed_weight(&mut self, cpu: CpuId, weight: u64) {
        per_cpu(cpu.index()).placed_weight.fetch_add(weight, Ordering::Relaxed);
    }

    #[inline(always)]
    fn wait_ended(&mut self, _: ThreadRef, permit: Option<WaitPermit>) {
        give_back(permit);
    }

    #[inline(always)]
    fn search_begins(&mut self, home: Home) {
        if measure::ON {
            measure::one(Counter::WakeScans);
            let reach = self.with_cpu(home.cpu, |cpu| cpu.reach(home.seat));
            let idle = IDLE.load(Ordering::SeqCst);
            let eligible = per_cpus().iter().map(super::per_cpu::PerCpu::id).filter(|cpu| {
                idle >> cpu.index() & 1 == 1 && reach.as_ref().is_some_and(|reach| reach.allows(*cpu))
            });
            measure::add(Counter::IdleEligible, eligible.count() as u64);
        }
    }

    #[inline(always)]
    fn may_enter(&self, thread: ThreadRef, cpu: CpuId) -> bool {
        leases::admits(thread, cpu)
    }

    #[inline(always)]
    fn wakes_elsewhere(&mut self, thread: ThreadRef) -> bool {
        unlikely(leases::any()) && wakes_elsewhere(self, thread)
    }

    #[inline(always)]
    fn moves_on(&mut self, thread: ThreadRef) -> bool {
        unlikely(leases::any()) && moves_on(self, thread)
    }

    fn call_timed_out(&mut self, thread: ThreadRef) {
        contexts::call_in(thread, CallEnd::TimedOut);
    }

    /// A leased CPU takes nothing from others.
    fn choose_victim(&mut self, thief: CpuId) -> Option<CpuId> {
        if leases::is_leased(thief) { None } else { choose_victim(self, thief) }
    }

    fn rearm_timer(&mut self, cpu: CpuId) {
        let per_cpu = per_cpu(cpu.index());
        // SeqCst: see `dispatch::arm`.
        if per_cpu.next_timer.load(Ordering::SeqCst) < per_cpu.armed.load(Ordering::SeqCst) {
            let _it_sets_its_timer_before_it_goes_on = notify(per_cpu);
        }
    }
}
