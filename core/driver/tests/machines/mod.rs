//! Two machines to test the driver on, and scripts that run on both.
#![allow(dead_code, reason = "each test uses a part of this")]

pub mod host;
pub mod isolated;
pub mod script;
pub mod stepped;
pub mod virtual_machine;

use mainspring_abi::{CpuId, LatencyClass, Nanos, Policy, ProcessId, ThreadRef, Weight};
use mainspring_driver::CpuCore;
use mainspring_sched::{Affinity, Config, Cpu, Entity, Spec};
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
