//! Every way in which a lease ends: taken back, given up, its owner gone, its lifetime over, replaced.
//!
//! All of them do the same afterwards, in [`Leases::roll_back`]: the generation is stale already; the CPU is free for others;
//! the request that another CPU may have left is withdrawn; the record of the tickless window is cleared; the CPU is told; and
//! the endpoint that the owner named hears of it.

use super::machine::{LeaseEvent, LeaseMachine, LeaseNotice};
use super::{Leases, placement};
use crate::machine::Notified;
use mainspring_abi::{ProcessId, ThreadRef};
use mainspring_sched::lease::{EndReason, Ended, LeaseRef, NotLive, RollBack, ServiceId, SessionId};

impl Leases {
    /// Takes `lease` back.
    pub fn revoke<M: LeaseMachine>(&mut self, machine: &mut M, lease: LeaseRef) -> Result<(), NotLive> {
        let Ended(_) = self.registry.revoke(machine.now(), lease)?;
        self.roll_back(machine);
        Ok(())
    }

    /// Its owner gives `lease` up, or is done with one that has ended.
    pub fn release<M: LeaseMachine>(&mut self, machine: &mut M, lease: LeaseRef) -> Result<(), NotLive> {
        let Ended(_) = self.registry.release(machine.now(), lease)?;
        self.roll_back(machine);
        Ok(())
    }

    /// `session` has logged out: its leases end.
    pub fn end_leases_of_session<M: LeaseMachine>(&mut self, machine: &mut M, session: SessionId) {
        let Ended(_) = self.registry.logged_out(session);
        self.roll_back(machine);
    }

    /// Another instance has taken the place of `service`: its leases end.
    pub fn end_leases_of_service<M: LeaseMachine>(&mut self, machine: &mut M, service: ServiceId) {
        let Ended(_) = self.registry.service_replaced(service);
        self.roll_back(machine);
    }

    /// `process` has exited: its leases end.
    pub fn end_leases_of_process<M: LeaseMachine>(&mut self, machine: &mut M, process: ProcessId) {
        let Ended(_) = self.registry.process_exited(process);
        self.roll_back(machine);
    }

    /// `thread` has ended. If it was a lessee, no thread is left to use its lease, which is taken back. If the last thread
    /// of its process has ended, the process's leases end by [`Leases::end_leases_of_process`] before this.
    pub fn thread_exited<M: LeaseMachine>(&mut self, machine: &mut M, thread: ThreadRef) {
        if let Some(lease) = self.lease_of(thread) {
            let _ended = self.revoke(machine, lease);
        }
        machine.with_isolation(|isolation| isolation.forget(thread));
    }

    /// Ends every lease whose lifetime is over.
    pub fn expire<M: LeaseMachine>(&mut self, machine: &mut M) {
        let now = machine.now();
        if self.registry.next_expiry() <= now {
            let Ended(_) = self.registry.expire(now);
        }
        self.roll_back(machine);
    }

    /// Carries out the end of each lease that the registry has ended.
    pub(super) fn roll_back<M: LeaseMachine>(&mut self, machine: &mut M) {
        while let Some(RollBack { lease, cpu, reason, notify }) = self.registry.roll_back() {
            self.end(machine, lease, reason);
            if let Some(cpu) = cpu {
                machine.with_remote_slot(cpu, |slot| slot.withdraw(lease));
                // A CPU whose lease has expired finds that out for itself, and says so.
                if reason != EndReason::Expired {
                    machine.with_cpu(cpu, |cpu| cpu.event().nohz_forget(lease));
                }
                match machine.notify_cpu(cpu) {
                    // A CPU that was not told finds out at its one-shot or its tick.
                    Notified::Sent | Notified::Pending | Notified::Failed => {}
                }
            }
            if let Some(endpoint) = notify {
                let at = machine.now();
                machine.post_lease_notice(endpoint, LeaseNotice { lease, reason, at });
            }
        }
    }

    fn end<M: LeaseMachine>(&mut self, machine: &mut M, lease: LeaseRef, reason: EndReason) {
        let Some(index) = self.position(lease) else { return };
        let live = self.live.swap_remove(index);
        let successor = self.lease_of(live.lessee).is_some();
        let gone = machine.home(live.lessee).is_none();
        machine.with_isolation(|isolation| {
            live.cpus.iter().for_each(|cpu| isolation.free_cpu(cpu, lease));
            match (successor, gone) {
                (true, _) => {}
                (false, true) => isolation.forget(live.lessee),
                (false, false) => isolation.bind(live.lessee, None),
            }
        });
        machine.lease_event(LeaseEvent::Ended { lease, reason });
        live.cpus.iter().for_each(|cpu| machine.leased_changed(cpu));
        let leased = machine.with_isolation(|isolation| *isolation.leased());
        leased.iter().for_each(|cpu| placement::clear_queue(machine, cpu));
    }
}
