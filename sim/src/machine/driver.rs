//! The simulated machine as the driver sees it.
//!
//! Conserved: nothing fails here. A reschedule that a fault loses has been sent as far as its sender knows.

use super::Machine;
use super::observer::Observer;
use super::thread::ThreadTable;
use crate::RunError;
use crate::tournament::{LAST, owner};
use mainspring_abi::{CpuId, Nanos, ThreadRef};
use mainspring_driver::contexts::CallEnd;
use mainspring_driver::{CpuAccess, Home, Notified, Threads, leases, placement, steal};
use mainspring_sched::hint::unlikely;
use mainspring_sched::{Offer, WaitKind, WaitPermit};

impl Threads for ThreadTable {
    fn set_home(&mut self, thread: ThreadRef, home: Option<Home>) {
        self[thread.index() as usize].home = home;
    }
}

impl<'a> mainspring_driver::Machine for Machine<'a> {
    type Observer = Observer<'a>;
    type Threads = ThreadTable;

    /// All CPUs have one record, in the order of events.
    const ARRIVAL_DELAY: Nanos = Nanos::ZERO;

    #[inline(always)]
    fn with_cpu<R>(&mut self, cpu: CpuId, act: impl FnOnce(&mut CpuAccess<'_, Self>) -> R) -> R {
        self.touch(cpu.index());
        let core = &mut self.cores[cpu.index()];
        act(&mut CpuAccess::new(core, self.now, &mut self.observer, &mut self.threads))
    }

    fn cpus(&self) -> usize {
        self.cores.len()
    }

    #[inline(always)]
    fn this_cpu(&self) -> Option<CpuId> {
        self.here
    }

    #[inline(always)]
    fn notify_cpu(&mut self, cpu: CpuId) -> Notified {
        if self.send_reschedule(cpu.index()) { Notified::Sent } else { Notified::Pending }
    }

    #[inline(always)]
    fn any_cpu_idles(&self) -> bool {
        self.askable_count != 0
    }

    fn next_idle_cpu(&self, from: CpuId) -> Option<CpuId> {
        self.askable.next_from(from)
    }

    #[inline(always)]
    fn home(&self, thread: ThreadRef) -> Option<Home> {
        self.threads.get(thread.index() as usize)?.home
    }

    fn offer(&self, cpu: CpuId) -> Offer {
        self.steal_offers.offer(cpu.index(), &self.cores)
    }

    fn placed_weight(&self, cpu: CpuId) -> u64 {
        self.placed_weight[cpu.index()]
    }

    fn add_placed_weight(&mut self, cpu: CpuId, weight: u64) {
        self.placed_weight[cpu.index()] += weight;
        self.rank_for_placement(cpu.index());
    }

    #[inline(always)]
    fn wait_ended(&mut self, thread: ThreadRef, permit: Option<WaitPermit>) {
        self.note_woken(thread.index() as usize, permit);
    }

    fn thread_moved(&mut self, thread: ThreadRef) {
        self.threads[thread.index() as usize].moved = true;
    }

    /// Seats for all threads at once would do too, but hardly any CPU ever needs more than a few, and the tables of many
    /// CPUs stay close together if they are small.
    fn make_room(&mut self, cpu: CpuId) -> bool {
        let (core, threads) = (&mut self.cores[cpu.index()], self.threads.len());
        if core.has_room() || core.capacity() >= threads {
            return true;
        }
        let made = core.reserve(threads.min(2 * core.capacity())).is_ok();
        if !made {
            let cpus = self.cores.len();
            self.observer.trouble.get_or_insert(RunError::NoRoom { cpus, threads });
        }
        made
    }

    #[inline(always)]
    fn may_enter(&self, thread: ThreadRef, cpu: CpuId) -> bool {
        self.leases.admits(thread, cpu)
    }

    #[inline(always)]
    fn wakes_elsewhere(&mut self, thread: ThreadRef) -> bool {
        unlikely(self.leases.any()) && leases::wakes_elsewhere(self, thread)
    }

    #[inline(always)]
    fn moves_on(&mut self, thread: ThreadRef) -> bool {
        unlikely(self.leases.any()) && leases::moves_on(self, thread)
    }

    #[inline(always)]
    fn timed_out(&mut self, thread: ThreadRef, kind: WaitKind) {
        if unlikely(kind != WaitKind::Sleep) {
            self.time_out(thread.index() as usize, kind);
        }
    }

    fn call_timed_out(&mut self, thread: ThreadRef) {
        self.take_loan_back(thread.index() as usize, CallEnd::TimedOut);
        // The timer ends the wait, not the thread that it interrupts.
        let _woken = placement::wake(self, thread);
    }

    fn least_placed_cpu(&self) -> Option<CpuId> {
        let least = self.placement.first();
        (least != LAST).then(|| self.cpu_id(owner(least).1))
    }

    fn choose_victim(&mut self, thief: CpuId) -> Option<CpuId> {
        if self.leases.is_leased(thief.index()) {
            return None;
        }
        let victim = if self.steal_offers.any_bound(&self.cores) {
            steal::choose_victim(self, thief)
        } else {
            self.steal_offers.most_overdue(thief, &self.cores)
        };
        if let Some(acting) = self.acting {
            // Its offer has just been looked at, and its event goes on.
            self.steal_offers.touch(acting);
        }
        victim
    }
}
