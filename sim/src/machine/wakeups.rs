//! Threads become ready, and CPUs hear of it.

use super::Machine;
use super::thread::Home;
use mainspring_abi::Nanos;
use mainspring_sched::hint::likely;
use mainspring_sched::{Handoff, Removed, Via, WaitPermit, probe_order};

impl Machine<'_> {
    /// What `thread` waited for has come; CPU `from`, if any, brought it.
    pub(super) fn wake_thread(&mut self, thread: usize, from: Option<usize>) {
        if self.wakes_elsewhere(thread) {
            return;
        }
        let Some(home) = self.threads[thread].home else { return };
        let (home, seat) = (home.cpu(), home.seat);
        let Ok(woken) = self.core(home).wake(seat) else { return };
        self.note_woken(thread, woken.permit);
        self.kick(home, woken.reschedule, thread, from);
    }

    /// What `thread` waited for has come from the running thread of `cpu`, which will wait in turn. It comes over to
    /// `cpu` if it may run there.
    pub(super) fn hand_over(&mut self, cpu: usize, thread: usize) {
        if self.wakes_elsewhere(thread) {
            return;
        }
        if !self.may_enter(thread, cpu) {
            self.wake_thread(thread, Some(cpu));
            return;
        }
        let Some(home) = self.threads[thread].home else { return };
        let (home, seat) = (home.cpu(), home.seat);
        if home == cpu {
            match self.core(cpu).hand_off(seat) {
                Ok(Handoff::Direct(permit)) => self.note_woken(thread, permit),
                Ok(Handoff::Queued(woken)) => {
                    self.note_woken(thread, woken.permit);
                    self.kick(cpu, woken.reschedule, thread, Some(cpu));
                }
                Err(_) => {}
            }
            return;
        }
        if self.threads[thread].pinned || !self.threads[thread].affinity.allows(self.cpu_id(cpu)) {
            self.wake_thread(thread, Some(cpu));
            return;
        }
        let Ok(Removed { entity, permit }) = self.core_remove(home, seat) else { return };
        self.note_woken(thread, permit);
        match self.core_accept(cpu, entity, Via::HandOff) {
            Ok((seat, woken)) => {
                self.threads[thread].home = Some(Home::new(cpu, seat));
                self.threads[thread].moved = true;
                self.kick(cpu, woken.reschedule, thread, Some(cpu));
            }
            Err(refused) => debug_assert!(false, "{refused}"),
        }
    }

    /// `thread`'s wait is over.
    pub(super) fn note_woken(&mut self, thread: usize, permit: Option<WaitPermit>) {
        if let Some(permit) = permit {
            self.quota.give_back(permit);
        }
        let thread = &mut self.threads[thread];
        thread.wait = None;
        thread.woken_at = self.now;
        thread.wakeups += 1;
    }

    /// `thread` is ready on `home`: disturbs the first CPU that should know and has not been told. CPU `from` looks
    /// after itself.
    #[inline]
    pub(super) fn kick(&mut self, home: usize, home_wants: bool, thread: usize, from: Option<usize>) {
        if home_wants && from == Some(home) {
            return;
        }
        let told = home_wants && self.send_reschedule(home);
        if likely(told || self.askable_count == 0 || self.threads[thread].pinned) {
            return;
        }
        self.kick_idle(home, thread);
    }

    /// `thread` is ready on `home`, which is busy: disturbs an idle CPU that may run it.
    fn kick_idle(&mut self, home: usize, thread: usize) {
        let chosen = {
            let affinity = &self.threads[thread].affinity;
            probe_order(self.cpu_id(home), false, &self.askable, affinity).next()
        };
        if let Some(cpu) = chosen {
            self.send_reschedule(cpu.index());
        }
    }

    /// Asks `cpu` to reschedule, unless it has been asked already; whether it was.
    pub(super) fn send_reschedule(&mut self, cpu: usize) -> bool {
        if self.lanes[cpu].ipi_pending {
            self.sent.pending += 1;
            return false;
        }
        self.sent.sent += 1;
        let faults = &self.workload.faults;
        let lane = &mut self.lanes[cpu];
        lane.ipi_pending = true;
        self.mark_askable(cpu);
        let lane = &mut self.lanes[cpu];
        if lane.random.chance(faults.lost_reschedule_ppm) {
            // The sender cannot know. The next timer interrupt there finds the work.
            self.sent.lost += 1;
            return true;
        }
        let late = if lane.random.chance(faults.late_reschedule_ppm) {
            lane.random.up_to(faults.late_reschedule_by)
        } else {
            Nanos::ZERO
        };
        lane.ipi_at = self.now + self.workload.costs.ipi + late;
        self.touch(cpu);
        true
    }
}
