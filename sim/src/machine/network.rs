//! A network stack that the scheduler polls: a source of work with a clock of its own, or without.

use super::Machine;
use super::overhead::Cost;
use mainspring_abi::Nanos;
use mainspring_sched::{NetworkNeed, NetworkPollClock, PollResult};
use mainspring_workload::Network;

/// The simulated network card: at every multiple of a period there is work to do.
#[derive(Debug)]
pub(super) struct Nic {
    spec: Network,
    /// When work next arrives.
    arrives_at: Nanos,
    backlog: Nanos,
}

impl Nic {
    pub(super) fn new(spec: &Network) -> Self {
        Self { spec: spec.clone(), arrives_at: spec.every, backlog: Nanos::ZERO }
    }

    fn receive(&mut self, now: Nanos) {
        while self.arrives_at <= now {
            self.backlog += self.spec.work;
            self.arrives_at += self.spec.every;
        }
    }
}

impl NetworkPollClock for Nic {
    fn next_poll_deadline(&self, now: Nanos) -> Option<Nanos> {
        Some(if self.backlog.is_zero() { self.arrives_at } else { now })
    }

    fn poll_until_budget(&mut self, now: Nanos, budget: Nanos) -> PollResult {
        self.receive(now);
        let spent = self.backlog.min(budget);
        self.backlog = self.backlog - spent;
        PollResult { spent, more: !self.backlog.is_zero() }
    }
}

impl Machine<'_> {
    /// What networking needs of `cpu` while it is idle.
    pub(super) fn network_need(&self, cpu: usize) -> NetworkNeed {
        match &self.nic {
            Some(nic) if nic.spec.cpu != cpu => NetworkNeed::Inactive,
            Some(nic) if !nic.spec.clock => NetworkNeed::EveryTick,
            Some(_) => NetworkNeed::PollAt(self.vcpus[cpu].net_at),
            None => NetworkNeed::Inactive,
        }
    }

    /// The network's deadline has come on `cpu`.
    pub(super) fn poll_network(&mut self, cpu: usize) {
        self.interrupt(cpu, Cost::Interrupt, self.workload.costs.interrupt);
        self.poll(cpu);
        self.reconsider(cpu);
    }

    /// A network without a clock is polled at each tick of its CPU.
    pub(super) fn poll_network_on_tick(&mut self, cpu: usize) {
        if self.nic.as_ref().is_some_and(|nic| nic.spec.cpu == cpu && !nic.spec.clock) {
            self.poll(cpu);
        }
    }

    fn poll(&mut self, cpu: usize) {
        let Some(nic) = &mut self.nic else { return };
        let result = nic.poll_until_budget(self.now, nic.spec.budget);
        if nic.spec.clock {
            // Work beyond the budget waits until this poll's own time is over.
            let next = nic.next_poll_deadline(self.now + result.spent).unwrap_or(Nanos::MAX);
            self.vcpus[cpu].net_at = next.max(self.now + Nanos::new(1));
        }
        self.interrupt(cpu, Cost::Network, result.spent);
    }
}
