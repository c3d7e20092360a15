use core::fmt;

/// The largest machine that Mainspring describes.
pub const MAX_CPUS: usize = 4096;

/// A CPU's number, below [`MAX_CPUS`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuId(u16);

/// A CPU number that no machine has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuIdError {
    /// What was asked for.
    pub cpu: usize,
}

impl fmt::Display for CpuIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CPU {} does not exist; the highest possible is {}", self.cpu, MAX_CPUS - 1)
    }
}

impl core::error::Error for CpuIdError {}

impl CpuId {
    /// The boot CPU.
    pub const BOOT: Self = Self(0);

    /// The CPU numbered `cpu`, if a machine can have it.
    pub const fn new(cpu: usize) -> Result<Self, CpuIdError> {
        if cpu < MAX_CPUS { Ok(Self(cpu as u16)) } else { Err(CpuIdError { cpu }) }
    }

    /// As an index into a table of CPUs.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Debug for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cpu{}", self.0)
    }
}

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A thread's name for the scheduler: a table index and the generation of its occupant.
///
/// A slot that is used again gets the next generation, so a stale reference equals no live thread's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadRef {
    index: u32,
    generation: u32,
}

impl ThreadRef {
    /// The occupant number `generation` of slot `index`.
    #[must_use]
    pub const fn new(index: u32, generation: u32) -> Self {
        Self { index, generation }
    }

    /// The table slot.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.index
    }

    /// Which occupant of the slot.
    #[must_use]
    pub const fn generation(self) -> u32 {
        self.generation
    }

    /// The reference of the slot's next occupant, or `None` when the slot has run out of generations and must
    /// be retired: wrapping would revive the oldest stale reference.
    #[must_use]
    pub const fn successor(self) -> Option<Self> {
        match self.generation.checked_add(1) {
            Some(generation) => Some(Self { index: self.index, generation }),
            None => None,
        }
    }
}

impl fmt::Debug for ThreadRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}.{}", self.index, self.generation)
    }
}

/// A scheduling context's name: its number, which is never given twice, and the generation that revocation advances.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContextRef {
    id: u32,
    generation: u32,
}

impl ContextRef {
    /// Generation `generation` of context `id`.
    #[must_use]
    pub const fn new(id: u32, generation: u32) -> Self {
        Self { id, generation }
    }

    /// The context's number.
    #[must_use]
    pub const fn id(self) -> u32 {
        self.id
    }

    /// How often it has been revoked.
    #[must_use]
    pub const fn generation(self) -> u32 {
        self.generation
    }
}

impl fmt::Debug for ContextRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}.{}", self.id, self.generation)
    }
}

/// The process (tenant) that a thread belongs to: what quotas are counted against.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(u32);

impl ProcessId {
    /// The process numbered `id`.
    #[must_use]
    pub const fn new(id: u32) -> Self {
        Self(id)
    }

    /// As an index into a table of processes.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The bare number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= ARCH:inv.threadref
    #[test]
    fn a_reused_slot_never_matches_an_old_reference() {
        let first = ThreadRef::new(7, 0);
        let second = first.successor().expect("a fresh slot has generations left");
        assert_eq!(second.index(), first.index());
        assert_ne!(second, first);
        assert_eq!(
            ThreadRef::new(7, u32::MAX).successor(),
            None,
            "an exhausted slot is retired, not wrapped"
        );
    }

    #[test]
    fn a_cpu_beyond_the_largest_machine_is_refused() {
        assert!(CpuId::new(MAX_CPUS - 1).is_ok());
        assert_eq!(CpuId::new(MAX_CPUS), Err(CpuIdError { cpu: MAX_CPUS }));
    }
}
