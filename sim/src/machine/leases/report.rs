//! What is said of leases: the events of a run, and its report.

use crate::machine::Machine;
use mainspring_abi::{CpuId, Nanos};
use mainspring_driver::leases::{LeaseEvent, LeaseNotice};
use mainspring_report::LeaseReport;
use mainspring_ring::StopReason;
use mainspring_sched::lease::{EndReason, LeaseRef};

impl Machine<'_> {
    fn name_of(&self, lease: LeaseRef) -> Option<usize> {
        self.leases.granted.get(&lease.id()).copied()
    }

    pub(super) fn note_lease_event(&mut self, event: LeaseEvent) {
        match event {
            LeaseEvent::Granted { lease, replaces } => self.note_granted(lease, replaces.is_some()),
            LeaseEvent::Ended { lease, reason } => self.note_ended(lease, reason),
            LeaseEvent::BoundHere { lease, thread } => {
                let Some(name) = self.name_of(lease) else { return };
                let lessee = self.leases.named[name].thread;
                let stays = Some(thread.index() as usize);
                self.log_lease("lease-obstacle", name, Some(lessee), stays, "bound-here");
            }
            LeaseEvent::SlotOccupied { lease, caller } => {
                let Some(name) = self.name_of(lease) else { return };
                let caller = Some(caller.index() as usize);
                self.log_lease("nohz-refuse", name, caller, None, "slot-occupied");
            }
            LeaseEvent::TickKept { lease, why, .. } => {
                let Some(name) = self.name_of(lease) else { return };
                let lessee = self.leases.named[name].thread;
                self.log_lease("nohz-refuse", name, Some(lessee), None, why.label());
            }
            LeaseEvent::TickStopped { lease, cpu, wake_at, remote } => {
                let Some(name) = self.name_of(lease) else { return };
                self.leases.named[name].report.activations += 1;
                let reason = if remote { "remote" } else { "local" };
                self.log_tick("nohz-enter", name, cpu, wake_at - self.now, reason);
            }
            LeaseEvent::TickRestored { lease, cpu, length, suppressed, reason } => {
                let Some(name) = self.name_of(lease) else { return };
                let report = &mut self.leases.named[name].report;
                report.tickless_ns += length.get();
                report.ticks_suppressed += suppressed;
                *report.exits.entry(reason.to_owned()).or_default() += 1;
                self.log_tick("nohz-exit", name, cpu, length, reason);
            }
        }
    }

    fn note_granted(&mut self, lease: LeaseRef, replaced: bool) {
        let Some(name) = self.leases.asking else { return };
        self.leases.granted.insert(lease.id(), name);
        let named = &mut self.leases.named[name];
        named.live = Some(lease);
        named.ended = None;
        named.state = "live".to_owned();
        let thread = named.thread;
        let reason = if replaced { "replaced" } else { "granted" };
        self.log_lease("lease", name, Some(thread), None, reason);
    }

    fn note_ended(&mut self, lease: LeaseRef, reason: EndReason) {
        // A lease that was replaced goes on under its name: only its generation has ended.
        let Some(name) = self.name_of(lease).filter(|name| self.leases.named[*name].live == Some(lease))
        else {
            return;
        };
        let named = &mut self.leases.named[name];
        named.ended = named.live.take();
        named.state = reason.label().to_owned();
        let thread = named.thread;
        self.log_lease("lease", name, Some(thread), None, reason.label());
        if let Some(ring) = self.workload.leases[name].ring {
            self.stop_polling(ring, StopReason::LeaseRevoked);
        }
    }

    pub(super) fn log_notice(&mut self, endpoint: usize, notice: LeaseNotice) {
        let Some(name) = self.name_of(notice.lease) else { return };
        self.log("lease-notice", |machine, event| {
            event.lease = Some(machine.workload.leases[name].name.clone());
            event.to = Some(machine.workload.endpoints[endpoint].name.clone());
            event.reason = Some(notice.reason.label().to_owned());
        });
    }

    fn log_tick(&mut self, kind: &str, name: usize, cpu: CpuId, amount: Nanos, reason: &'static str) {
        self.log(kind, |machine, event| {
            event.cpu = Some(cpu.index() as u32);
            event.lease = Some(machine.workload.leases[name].name.clone());
            event.thread = Some(machine.thread_name(machine.leases.named[name].thread));
            event.amount_ns = Some(amount.get());
            event.reason = Some(reason.to_owned());
        });
    }

    pub(super) fn log_lease(
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

    pub(in crate::machine) fn lease_reports(&mut self) -> Vec<LeaseReport> {
        (0..self.leases.named.len()).map(|name| self.lease_report(name)).collect()
    }

    fn lease_report(&self, name: usize) -> LeaseReport {
        let named = &self.leases.named[name];
        let mut report = named.report.clone();
        report.thread = self.thread_name(named.thread);
        let last = named.live.or(named.ended);
        let driver = self.leases.driver.as_ref();
        let window = driver.zip(last).and_then(|(leases, lease)| leases.tickless_since(lease));
        let obstacle = driver.zip(named.live).and_then(|(leases, lease)| leases.obstacle(lease));
        report.state = match (named.live.is_some(), window, obstacle) {
            (true, Some(_), _) => "live, tickless".to_owned(),
            (true, None, Some(obstacle)) => format!("live, ticking: {obstacle}"),
            _ => named.state.clone(),
        };
        if let Some((cpu, since, spared)) = window {
            let suppressed = self.cores[cpu.index()].telemetry().ticks_suppressed_lease;
            report.tickless_ns += (self.now - since).get();
            report.ticks_suppressed += suppressed - spared;
        }
        report
    }
}
