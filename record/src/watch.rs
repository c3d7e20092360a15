//! Looking on at a run: what checkers are given.
//!
//! A watcher sees what a flight record would hold, as it happens, together with the CPU it happened to. It keeps its
//! own books and compares.

use mainspring_abi::{CpuId, Nanos};
use mainspring_sched::Cpu;
use mainspring_sched::flight::{EventRef, Outcome};

/// A watcher of a run. `Err` says what must not be, and ends the run.
pub trait Watch {
    /// `event` is about to be given to `cpu`.
    fn before(&mut self, now: Nanos, cpu: &Cpu, event: EventRef<'_>);

    /// `cpu` answered the event announced last with `outcome`.
    fn after(&mut self, now: Nanos, cpu: &Cpu, outcome: Outcome) -> Result<(), String>;

    /// The run is over.
    fn end(&mut self, _now: Nanos, _cpus: &[&Cpu]) -> Result<(), (CpuId, String)> {
        Ok(())
    }
}
