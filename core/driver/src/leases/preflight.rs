//! Asking why a CPU is not without a tick. Changes nothing, and decides nothing.

use super::Leases;
use super::machine::LeaseMachine;
use core::fmt;
use mainspring_abi::{CpuId, CpuSet};
use mainspring_sched::lease::{LeaseRef, NotLive};
use mainspring_sched::nohz::Preflight;

/// How every obligation of a lease's CPU stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeasePreflight {
    /// The CPUs of the lease.
    pub cpus: CpuSet,
    /// The CPUs that do the housekeeping for it: online, in no lease, and not excluded by it.
    pub housekeepers: CpuSet,
    /// Each obligation with the label of how it is met, or of what stands in the way.
    pub obligations: Preflight,
}

impl fmt::Display for LeasePreflight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpus, housekeepers, obligations } = self;
        write!(f, "{obligations} cpus={cpus:?} housekeepers={housekeepers:?}")
    }
}

impl Leases {
    /// How the obligations of `lease` stand on its first CPU.
    pub fn preflight<M: LeaseMachine>(
        &mut self,
        machine: &mut M,
        lease: LeaseRef,
    ) -> Result<LeasePreflight, NotLive> {
        let cpus = self.registry.info(machine.now(), lease)?.cpus;
        let housekeepers = self.registry.housekeepers_for(lease, &self.online)?;
        let Some(index) = self.position(lease) else { return Err(NotLive::Unknown) };
        let cpu = cpus.iter().next().unwrap_or(CpuId::BOOT);
        let claim = self.live[index].claim(None);
        let conditions = self.conditions(machine, cpu, Some(lease));
        let obligations =
            machine.with_cpu(cpu, |cpu| cpu.cpu().nohz_preflight(cpu.now(), &claim, &conditions));
        Ok(LeasePreflight { cpus, housekeepers, obligations })
    }
}
