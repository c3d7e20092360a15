//! Two machines to test the driver on, and scripts that run on both.
#![allow(dead_code, reason = "each test uses a part of this")]

pub mod host;
pub mod isolated;
pub mod script;
pub mod stepped;
pub mod virtual_machine;

use mainspring_abi::{CpuId, CpuSet, LatencyClass, Nanos, Policy, ProcessId, ThreadRef, Weight};
use mainspring_driver::CpuCore;
use mainspring_driver::contexts::{AdmissionRules, Contexts};
use mainspring_driver::leases::{Isolation, Leases};
use mainspring_driver::ledgers::Ledgers;
use mainspring_driver::sessions::Sessions;
use mainspring_sched::lease::Limits;
use mainspring_sched::{Affinity, Config, Cpu, Entity, Spec, WaitQuota};
use std::sync::Arc;

pub fn cpu(index: usize) -> CpuId {
    CpuId::new(index).expect("test CPUs exist")
}

pub fn thread(index: u32) -> ThreadRef {
    ThreadRef::new(index, 0)
}

/// A CPU with seats for `threads`.
pub fn core(index: usize, threads: usize) -> CpuCore {
    let mut core = Cpu::new(Config::new(cpu(index), Policy::Eevdf));
    core.reserve(threads).expect("a few seats");
    CpuCore::new(core)
}

/// Room for some contexts, on the first `cpus` CPUs.
pub fn contexts(cpus: usize) -> Contexts {
    let rules = AdmissionRules { cpus: CpuSet::first(cpus), ..AdmissionRules::default() };
    let (sessions, ledgers) = (Sessions::new(1).expect("one"), Ledgers::new(1).expect("one"));
    Contexts::new(16, rules, sessions, ledgers).expect("a few contexts")
}

/// Room for some leases of `cpus` CPUs, and what every CPU reads of them.
pub fn leases(cpus: usize) -> (Leases, Isolation) {
    let (online, limits) = (CpuSet::first(cpus), Limits { capacity: 8, ..Limits::default() });
    let leases = Leases::new(online, online, limits).expect("a few leases");
    (leases, Isolation::new(cpus, 8).expect("a few leases"))
}

/// Timed waits for `threads`, which are all of one process.
pub fn quota(threads: usize) -> WaitQuota {
    // A thread may wait again before its last permit is back.
    let limit = 2 * threads as u32;
    WaitQuota::new(limit, limit, 1)
}

/// A thread that may run on `cpus`, or everywhere.
pub fn entity(index: u32, cpus: Option<&[usize]>) -> Entity {
    let affinity = cpus.map_or(Affinity::Any, |cpus| {
        Affinity::Only(Arc::new(cpus.iter().map(|index| cpu(*index)).collect()))
    });
    Entity::new(Spec {
        thread: thread(index),
        process: ProcessId::new(0),
        weight: Weight::DEFAULT,
        class: LatencyClass::Normal,
        request: Some(Nanos::from_millis(1)),
        affinity,
    })
}
