//! Leases and claims for tests.

use super::{cpu_id, ms};
use mainspring_abi::{CpuSet, Nanos, ProcessId, ThreadRef};
use mainspring_sched::lease::{
    AccountingTarget, LeaseRef, LeaseRequest, Limits, Mode, NamedRing, Owner, Registry, RevocationPolicy,
    ServiceId, SessionId, TargetStanding,
};
use mainspring_sched::nohz::{Claim, Eligibility, Kind, Origin};

pub fn cpus(numbers: &[usize]) -> CpuSet {
    numbers.iter().map(|n| cpu_id(*n)).collect()
}

/// The canonical outside form.
pub fn mask(numbers: &[usize]) -> Vec<u8> {
    cpus(numbers).bytes().collect()
}

pub fn owner(process: u32) -> Owner {
    Owner {
        process: ProcessId::new(process),
        session: Some(SessionId(u64::from(process / 2))),
        service: Some(ServiceId(process)),
    }
}

/// A compute lease on `mask`, with nothing wrong with it.
pub fn compute(mask: &[u8]) -> LeaseRequest<'_> {
    LeaseRequest {
        owner: owner(1),
        cpus: mask,
        housekeeping_exclusions: &[],
        mode: Mode::Compute,
        ring: NamedRing::None,
        allow_irqs: false,
        target: AccountingTarget::Ledger,
        max_revocation_latency: ms(50),
        revocation: RevocationPolicy::Silent,
        lifetime: Nanos::ZERO,
        replaces: None,
    }
}

pub fn sqpoll(mask: &[u8]) -> LeaseRequest<'_> {
    LeaseRequest { mode: Mode::KernelSqpoll, ring: NamedRing::CallerThread, ..compute(mask) }
}

/// A machine of four CPUs, all of which may do housekeeping.
pub fn registry() -> Registry {
    registry_with(Limits::default())
}

pub fn registry_with(limits: Limits) -> Registry {
    Registry::new(CpuSet::first(4), limits).expect("there is memory for a few leases")
}

pub fn grant(registry: &mut Registry, now: Nanos, request: &LeaseRequest<'_>) -> LeaseRef {
    let granted = registry.create(now, request, TargetStanding::Chargeable, &CpuSet::first(4));
    granted.expect("nothing is wrong with the request").lease
}

pub fn eligibility(kind: Kind) -> Eligibility {
    Eligibility {
        kind,
        max_revocation_latency: ms(25),
        preferred_cpus: CpuSet::EMPTY,
        allow_busy_spin: true,
        accounting_target: AccountingTarget::Ledger,
    }
}

pub fn local(lease: LeaseRef, caller: ThreadRef) -> Claim {
    eligibility(Kind::AutoCompute).claim(lease, Origin::Local { caller, poller: None })
}
