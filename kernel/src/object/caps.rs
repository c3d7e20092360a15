//! A process's capabilities: numbers that mean something in its own table only.

use super::ProcessRef;
use super::memory::MemoryObject;
use alloc::sync::Arc;
use mainspring_abi::ThreadRef;
use mainspring_abi::ring::CapError;

/// Capabilities that a process can have.
pub const CAPS: usize = 128;

/// What a capability is of.
#[derive(Clone, Debug)]
pub enum Object {
    /// The serial console.
    Console,
    /// The clock.
    Timer,
    /// Making threads.
    ThreadSpawner,
    /// The calling thread itself.
    ThreadControl,
    /// A thread that was made.
    ThreadHandle(ThreadRef),
    /// Making processes.
    ProcessSpawner,
    /// A process that was made.
    ProcessHandle(ProcessRef),
    /// Waiting on words of memory.
    ParkSpace,
    /// An endpoint's calling side.
    EndpointCall(u32),
    /// An endpoint's serving side.
    EndpointServe(u32),
    /// The process's address space.
    VirtualMemory,
    /// Memory that can be mapped by whoever has it.
    Memory(Arc<MemoryObject>),
    /// The calling thread's weight and class.
    SchedulingPolicy,
    /// What the machine is.
    SystemInfo,
    /// A number set aside for what is being made.
    Reserved,
}

#[derive(Clone, Debug)]
struct Slot {
    generation: u16,
    object: Option<Object>,
}

/// The table of one process.
#[derive(Debug)]
pub struct Caps {
    slots: [Slot; CAPS],
}

impl Default for Caps {
    fn default() -> Self {
        Self { slots: [const { Slot { generation: 1, object: None } }; CAPS] }
    }
}

impl Caps {
    /// What `cap` is of.
    pub fn find(&self, cap: u32) -> Result<Object, CapError> {
        self.look(cap).cloned().ok_or(CapError::InvalidCapability)
    }

    /// What `cap` is of, looked at in its place.
    #[inline]
    #[must_use]
    pub fn look(&self, cap: u32) -> Option<&Object> {
        let slot = self.slots.get((cap & 0xffff) as usize)?;
        if u32::from(slot.generation) != cap >> 16 {
            return None;
        }
        slot.object.as_ref()
    }

    /// A number for `object`.
    pub fn insert(&mut self, object: Object) -> Result<u32, CapError> {
        let index = self.slots.iter().position(|slot| slot.object.is_none() && slot.generation != u16::MAX);
        let index = index.ok_or(CapError::QuotaExceeded)?;
        let slot = &mut self.slots[index];
        slot.object = Some(object);
        Ok(u32::from(slot.generation) << 16 | index as u32)
    }

    /// Gives a number that was set aside its object.
    pub fn fulfil(&mut self, cap: u32, object: Object) {
        if matches!(self.find(cap), Ok(Object::Reserved)) {
            self.slots[(cap & 0xffff) as usize].object = Some(object);
        }
    }

    /// Takes `cap` out. Its number never means anything again.
    pub fn remove(&mut self, cap: u32) -> Result<Object, CapError> {
        self.find(cap)?;
        let slot = &mut self.slots[(cap & 0xffff) as usize];
        slot.generation += 1;
        slot.object.take().ok_or(CapError::InvalidCapability)
    }

    /// Takes everything out, one at a time.
    pub fn pop(&mut self) -> Option<Object> {
        self.slots.iter_mut().find_map(|slot| slot.object.take())
    }
}
