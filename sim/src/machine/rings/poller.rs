//! The thread that serves a ring for its owner: start, service, spin, sleep, wake, stop.

use super::OwnerStep;
use crate::machine::Machine;
use crate::machine::program::{Done, Progress};
use mainspring_abi::Nanos;
use mainspring_driver::local_ring::Server;
use mainspring_driver::sqpoll::{PollerStep, Stepped};
use mainspring_ring::{AccountingTarget, RingMode, SqpollGrant, StopReason};
use mainspring_sched::WaitKind;
use mainspring_workload::Account;

impl Machine<'_> {
    pub(super) fn wake_poller(&mut self, cpu: usize, ring: usize) {
        let Some(poller) = self.rings[ring].local.wake_poller() else { return };
        let index = poller.index() as usize;
        self.log_ring("ring-wake", ring, Some(index), None, "");
        if self.threads[index].identity == poller && self.threads[index].wait == Some(WaitKind::Ring) {
            self.wake_thread(index, Some(cpu));
        }
    }

    /// The poller that spins finds what was published.
    pub(super) fn end_spin(&mut self, ring: usize) {
        let (Some(poller), Some(spin)) = (self.rings[ring].poller, self.rings[ring].spin) else { return };
        let Some((cpu, _)) = self.place_of(poller) else { return };
        let runs = self.vcpus[cpu].running == Some(poller as u32);
        if runs {
            self.pause_work(cpu);
        }
        let spun = spin - self.threads[poller].remaining;
        self.threads[poller].remaining = Nanos::ZERO;
        if runs {
            self.expect_done(cpu);
        }
        self.book_spin(ring, spun);
    }

    pub(super) fn book_spin(&mut self, ring: usize, spun: Nanos) {
        let one = &mut self.rings[ring];
        one.spin = None;
        one.local.spun(self.now, spun);
    }

    /// `poll`: serves one batch; spins while there is none, and then sleeps.
    pub(in crate::machine) fn poll_ring(&mut self, thread: usize, ring: usize) -> Done {
        if !self.may_poll(thread, ring) {
            return self.sleep_until_polled(thread);
        }
        if let Some(spin) = self.rings[ring].spin {
            self.book_spin(ring, spin);
        }
        let had = self.rings[ring].local.held_by(Server::Poller) > 0;
        if self.serve_next(thread, ring) {
            self.retake(thread);
            return Done::Next;
        }
        if had {
            return Done::Next;
        }
        if self.rings[ring].local.mode() != RingMode::Sqpoll && !self.start_polling(thread, ring) {
            // Until a lease is granted, or granted again.
            return self.sleep_until_polled(thread);
        }
        let Stepped { next, held_back } = self.rings[ring].local.poll(self.now);
        if held_back {
            self.wake_submitter(ring);
        }
        match next {
            PollerStep::Serve { .. } => {
                self.wake_submitter(ring);
                if self.serve_next(thread, ring) {
                    self.retake(thread);
                }
                Done::Next
            }
            PollerStep::Spin { until } => {
                let spin = until - self.now;
                self.rings[ring].spin = Some(spin);
                self.threads[thread].remaining = spin;
                self.retake(thread);
                Done::Next
            }
            PollerStep::Sleep => {
                self.log_ring("ring-sleep", ring, Some(thread), None, "");
                self.sleep_until_polled(thread)
            }
            PollerStep::NotPolling => self.sleep_until_polled(thread),
        }
    }

    /// Whether `thread` is the one that polls `ring`: not its owner, and no second.
    pub(super) fn may_poll(&mut self, thread: usize, ring: usize) -> bool {
        let one = &self.rings[ring];
        let other = one.poller.filter(|poller| *poller != thread);
        let taken = other.is_some_and(|poller| self.threads[poller].home.is_some());
        let allowed = self.workload.rings[ring].sqpoll && one.owner != thread && !taken;
        if allowed {
            let identity = self.threads[thread].identity;
            let one = &mut self.rings[ring];
            one.poller = Some(thread);
            one.local.set_poller(identity);
        } else {
            self.refuse_step(thread, "the thread may not poll the ring");
            self.log_ring("ring-refuse", ring, Some(thread), None, "not-the-poller");
        }
        allowed
    }

    /// A poller with nothing to poll waits to be woken, and then takes the step again.
    pub(super) fn sleep_until_polled(&mut self, thread: usize) -> Done {
        self.begin_wait(thread);
        match self.block(thread, WaitKind::Ring, None) {
            // It must not wait on what was lent to it, and going round would take no time.
            Done::Next => Done::Stay(Progress::Exit),
            blocked @ Done::Stay(_) => {
                self.retake(thread);
                blocked
            }
        }
    }

    /// The owner offers its ring and the poller takes over, if the ring's lease allows it; whether it did.
    pub(super) fn start_polling(&mut self, thread: usize, ring: usize) -> bool {
        let Some(accounting) = self.poller_account(thread, ring) else { return false };
        let spin = self.workload.rings[ring].idle_spin;
        if !self.rings[ring].local.start_polling(SqpollGrant { accounting, spin }) {
            return false;
        }
        self.log_ring("ring-start", ring, Some(thread), None, "");
        if let Some((cpu, _)) = self.place_of(thread) {
            self.ask_at_end_of_event(cpu);
        }
        true
    }

    /// The target that pays for the poller: the ring's lease names it, if it has one. `None` while that lease is
    /// not live.
    pub(super) fn poller_account(&self, thread: usize, ring: usize) -> Option<AccountingTarget> {
        let Some(lease) = self.workload.leases.iter().position(|lease| lease.ring == Some(ring)) else {
            return Some(match self.holds(thread) {
                Some(context) => AccountingTarget::SchedulingContext(context.who().id()),
                None => AccountingTarget::SchedulerLedger,
            });
        };
        if !self.is_lessee(lease, thread) {
            return None;
        }
        Some(match self.workload.leases[lease].account {
            Account::Ledger => AccountingTarget::SchedulerLedger,
            Account::Context(context) => {
                let grant = self.grants.numbers.contexts(context).start;
                AccountingTarget::SchedulingContext(self.grants.list[grant].id()?)
            }
        })
    }

    /// The ring goes back to its owner. What the poller has accepted it finishes.
    pub(in crate::machine) fn stop_polling(&mut self, ring: usize, reason: StopReason) {
        if !self.rings[ring].local.stop_polling(reason) {
            return;
        }
        let why = match reason {
            StopReason::LeaseRevoked => "lease-ended",
            StopReason::CapReleased => "released",
            StopReason::Teardown => "teardown",
        };
        let poller = self.rings[ring].poller;
        self.log_ring("ring-stop", ring, poller, None, why);
        self.end_spin(ring);
        self.wake_owner(ring);
    }

    /// A poller that waits for its ring may begin now.
    pub(in crate::machine) fn rouse_poller(&mut self, ring: usize) {
        if let Some(poller) = self.rings[ring].poller
            && self.threads[poller].wait == Some(WaitKind::Ring)
            && self.rings[ring].local.mode() == RingMode::Syscall
        {
            self.wake_thread(poller, self.acting);
        }
    }

    pub(super) fn wake_submitter(&mut self, ring: usize) {
        if matches!(self.rings[ring].owner_step, OwnerStep::Submitting(_)) {
            self.wake_owner(ring);
        }
    }
}
