//! What the requests of each kind of object need of the CPU that carries them out.

use crate::object::caps::Object;

/// What a request of an object needs.
#[derive(Clone, Copy)]
pub struct ObjectTraits {
    /// Another CPU than that of the thread that asks can carry it out: it neither looks at the thread that runs here nor goes on in
    /// pieces before that thread goes on in user mode.
    pub runs_on_any_cpu: bool,
    /// It may be as much as fits one stretch with interrupts off: it wakes or tells many, clears pages, writes to a slow device, or
    /// looks at a whole table.
    pub is_heavy: bool,
    /// It may take frames: it makes something, or changes the address space.
    pub makes_something: bool,
}

impl ObjectTraits {
    /// The traits of `object`'s requests.
    pub fn of(object: &Object) -> Self {
        let (runs_on_any_cpu, is_heavy, makes_something) = match object {
            Object::Timer | Object::EndpointCall(_) | Object::EndpointServe(_) => (true, false, false),
            Object::Console
            | Object::ParkSpace
            | Object::ThreadHandle(_)
            | Object::ProcessHandle(_)
            | Object::SystemInfo => (true, true, false),
            Object::ThreadControl | Object::SchedulingPolicy => (false, false, false),
            Object::Interrupt(_) => (false, true, false),
            Object::ThreadSpawner
            | Object::ProcessSpawner
            | Object::VirtualMemory
            | Object::Memory(_)
            | Object::SchedulingContext(_)
            | Object::UserSession(_)
            | Object::CpuIsolation { .. }
            | Object::CpuIsolationLease(_)
            | Object::RealtimeIslands { .. }
            | Object::RealtimeIsland(..)
            | Object::Device(_)
            | Object::DeviceMemory(_)
            | Object::DmaMemory(_)
            | Object::PolicyService => (false, true, true),
        };
        Self { runs_on_any_cpu, is_heavy, makes_something }
    }
}
