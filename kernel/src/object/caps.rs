//! A process's capabilities: numbers that mean something in its own table only.
//!
//! Conserved: a number that is set aside or means something is charged to the process's ledger, and no other is.

use super::device::{DeviceId, LineId, Registers};
use super::hold::Hold;
use super::memory::MemoryObject;
use super::process::{Process, refusal};
use super::thread::Thread;
use crate::sched::visible::Digest;
use mainspring_abi::ContextRef;
use mainspring_abi::ring::CapError;
use mainspring_driver::sessions::SessionRef;
use mainspring_kernel_core::ledger::{Charge, Kind, Ledger};
use mainspring_sched::lease::LeaseRef;

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
    ThreadHandle(Hold<Thread>),
    /// Making processes.
    ProcessSpawner,
    /// A process that was made.
    ProcessHandle(Hold<Process>),
    /// Waiting on words of memory.
    ParkSpace,
    /// An endpoint's calling side.
    EndpointCall(u32),
    /// An endpoint's serving side.
    EndpointServe(u32),
    /// The process's address space.
    VirtualMemory,
    /// Memory that its holder can map.
    Memory(MemoryObject),
    /// The calling thread's weight and class.
    SchedulingPolicy,
    /// What the machine is.
    SystemInfo,
    /// A scheduling context, by its name.
    SchedulingContext(ContextRef),
    /// A login session, by its name.
    UserSession(SessionRef),
    /// Leasing CPUs, in every mode or in those that need only the scheduler's consent.
    CpuIsolation {
        /// In every mode.
        any_mode: bool,
    },
    /// A lease of CPUs, by its name.
    CpuIsolationLease(LeaseRef),
    /// A device, for the process that drives it.
    Device(DeviceId),
    /// Registers of a device, which its driver can map.
    DeviceMemory(Registers),
    /// Memory that a device can reach, which its driver can map.
    DmaMemory(MemoryObject),
    /// Messages of a device.
    Interrupt(LineId),
    /// Being the policy service.
    PolicyService,
    /// Having realtime islands admitted.
    RealtimeIslands {
        /// For so much of one CPU in all: more than 100 is on several.
        percent: u16,
    },
    /// A realtime island, by its name, and what its process may have of one CPU in islands, in percent.
    RealtimeIsland(IslandName, u16),
}

/// A realtime island's name: its number, and how often it had been adjusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IslandName {
    /// Its number.
    pub id: u32,
    /// Counts its adjustments.
    pub generation: u32,
}

impl Object {
    /// Which kind it is, as a number.
    fn kind(&self) -> u8 {
        match self {
            Self::Console => 0,
            Self::Timer => 1,
            Self::ThreadSpawner => 2,
            Self::ThreadControl => 3,
            Self::ThreadHandle(_) => 4,
            Self::ProcessSpawner => 5,
            Self::ProcessHandle(_) => 6,
            Self::ParkSpace => 7,
            Self::EndpointCall(_) => 8,
            Self::EndpointServe(_) => 9,
            Self::VirtualMemory => 10,
            Self::Memory(_) => 11,
            Self::SchedulingPolicy => 12,
            Self::SystemInfo => 13,
            Self::SchedulingContext(_) => 14,
            Self::UserSession(_) => 15,
            Self::CpuIsolation { .. } => 16,
            Self::CpuIsolationLease(_) => 17,
            Self::Device(_) => 18,
            Self::DeviceMemory(_) => 19,
            Self::DmaMemory(_) => 20,
            Self::Interrupt(_) => 21,
            Self::PolicyService => 22,
            Self::RealtimeIslands { .. } => 23,
            Self::RealtimeIsland(..) => 24,
        }
    }

    /// Whether a copy can be given to another process. Handles are of what one has made oneself, and parts of a device are its
    /// driver's.
    #[must_use]
    pub fn can_be_granted(&self) -> bool {
        !matches!(
            self,
            Self::ThreadHandle(_)
                | Self::ProcessHandle(_)
                | Self::DeviceMemory(_)
                | Self::DmaMemory(_)
                | Self::Interrupt(_)
                | Self::RealtimeIsland(..)
        )
    }
}

#[derive(Debug)]
struct Slot {
    generation: u16,
    /// There as long as the number is set aside for what is being made, or means something.
    charge: Option<Charge<'static>>,
    object: Option<Object>,
}

impl Slot {
    fn is_free(&self) -> bool {
        self.charge.is_none() && self.generation != u16::MAX
    }
}

/// The table of one process.
#[derive(Debug)]
pub struct Caps {
    slots: [Slot; CAPS],
}

impl Default for Caps {
    fn default() -> Self {
        Self { slots: [const { Slot { generation: 1, charge: None, object: None } }; CAPS] }
    }
}

impl Caps {
    /// For a new process: everything has been taken out.
    pub fn begin_anew(&mut self) {
        for slot in &mut self.slots {
            debug_assert!(slot.charge.is_none(), "a process has ended and still has a capability");
            slot.generation = 1;
        }
    }

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

    /// A number for `object`, on the account of the process whose table this is.
    pub fn insert(&mut self, object: Object, ledger: &'static Ledger<'static>) -> Result<u32, CapError> {
        let cap = self.reserve(ledger)?;
        self.fulfil(cap, object);
        Ok(cap)
    }

    /// Sets a number aside. It names nothing until it is fulfilled.
    pub fn reserve(&mut self, ledger: &'static Ledger<'static>) -> Result<u32, CapError> {
        let charge = ledger.charge(Kind::Capabilities, 1).map_err(refusal)?;
        let index = self.slots.iter().position(Slot::is_free).ok_or(CapError::QuotaExceeded)?;
        self.slots[index].charge = Some(charge);
        Ok(u32::from(self.slots[index].generation) << 16 | index as u32)
    }

    /// Gives a number that was set aside its object.
    pub fn fulfil(&mut self, cap: u32, object: Object) {
        let slot = &mut self.slots[(cap & 0xffff) as usize];
        debug_assert!(slot.charge.is_some() && slot.object.is_none(), "a number that was not set aside");
        slot.object = Some(object);
    }

    /// A number that was set aside is free again; no program has seen it.
    pub fn release(&mut self, cap: u32) {
        self.slots[(cap & 0xffff) as usize].charge = None;
    }

    /// `cap`, which is of the scheduling context `before`, is of `after` from now on. Nothing happens if it is not.
    pub fn rename_context(&mut self, cap: u32, before: ContextRef, after: ContextRef) {
        if self
            .look(cap)
            .is_some_and(|object| matches!(object, Object::SchedulingContext(who) if *who == before))
        {
            self.slots[(cap & 0xffff) as usize].object = Some(Object::SchedulingContext(after));
        }
    }

    /// `cap`, which is of the island `before`, is of `after` from now on. Nothing happens if it is not.
    pub fn rename_island(&mut self, cap: u32, before: IslandName, after: IslandName) {
        if let Some(Object::RealtimeIsland(island, percent)) = self.look(cap)
            && *island == before
        {
            let renamed = Object::RealtimeIsland(after, *percent);
            self.slots[(cap & 0xffff) as usize].object = Some(renamed);
        }
    }

    /// Takes `cap` out. Its number never means anything again. Drop the object without this table's lock.
    pub fn remove(&mut self, cap: u32) -> Result<Object, CapError> {
        self.find(cap)?;
        let slot = &mut self.slots[(cap & 0xffff) as usize];
        slot.generation += 1;
        slot.charge = None;
        slot.object.take().ok_or(CapError::InvalidCapability)
    }

    /// What the numbers mean.
    pub fn digest(&self, digest: &mut Digest) {
        for slot in &self.slots {
            let kind = slot.object.as_ref().map_or(0, |object| 1 + u64::from(object.kind()));
            digest.add(u64::from(slot.generation) << 16 | u64::from(slot.charge.is_some()) << 8 | kind);
        }
    }

    /// Takes everything out, one at a time.
    pub fn pop(&mut self) -> Option<Object> {
        self.slots.iter_mut().find_map(|slot| {
            let object = slot.object.take()?;
            slot.charge = None;
            Some(object)
        })
    }
}
