//! Realtime islands: a graph that is admitted as a whole, with all it needs, or not at all.
//!
//! An island is not a priority. It is a bundle of budgets, memory, rings, devices, interrupts and isolated CPUs that a
//! [`Machine`] sets aside together. [`Machine::admit`] decides everything first and changes nothing; only when nothing
//! stands against it is anything taken.
//!
//! Conserved: what is free and what the islands hold is together what the machine has, of each resource; a device, an
//! interrupt or an isolated CPU has at most one holder; and the tasks of every CPU that an island uses, the floor of best
//! effort included, pass admission at all times.
//!
//! Admission checks what is declared. It does not measure how long a node runs, what the machine's own paths cost, or
//! how late its interrupts come; without such evidence none of this is hard realtime.

mod check;
mod machine;
mod reservations;
mod spec;

pub use check::IslandDenial;
pub use machine::{
    Admitted, Evidence, IslandError, IslandRef, Machine, NodeHome, OverrunAction, Phase, PlainTask,
};
pub use reservations::{Capacity, Reservations};
pub use spec::{
    Calls, DeviceReservation, HotPath, IrqSpec, IrqWork, Locks, NodeBudget, NodeTerms, OverrunPolicy,
    PreallocSpec, RealtimeIslandSpec, Residency, RingSpec, Shape, ShutdownPolicy,
};

#[cfg(test)]
mod tests;
