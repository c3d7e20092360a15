//! Which CPUs are leased and which threads a lease binds: what every CPU may have to read at any event.
//!
//! The [`Leases`](super::Leases) write this. A machine with a lock per CPU gives it a small lock of its own, which may be taken
//! under a CPU's lock and under which no other is taken.
//!
//! Conserved:
//! * a CPU has a lessee exactly while a live lease has the CPU;
//! * a thread has at most one binding, and a binding is gone only after the thread's scheduler has its affinity, or the thread
//!   has ended.

use alloc::boxed::Box;
use alloc::vec::Vec;
use mainspring_abi::{CpuId, CpuSet, ThreadRef};
use mainspring_sched::lease::LeaseRef;
use mainspring_sched::{Affinity, NoRoom};

/// A thread that has a CPU to itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lessee {
    /// Under which lease.
    pub lease: LeaseRef,
    /// The thread.
    pub thread: ThreadRef,
}

/// Where a thread may run because of a lease.
#[derive(Debug)]
struct Binding {
    thread: ThreadRef,
    /// `None` for where the thread may run by itself: its lease is over.
    affinity: Option<Affinity>,
    /// The thread's scheduler may still have another affinity, or the thread may still be elsewhere.
    pending: bool,
}

/// Which lessee has which CPU, which thread is bound where, and which CPUs have something to do about it. Allocates in
/// [`Isolation::new`] only.
#[derive(Debug)]
pub struct Isolation {
    lessees: Box<[Option<Lessee>]>,
    leased: CpuSet,
    bindings: Vec<Binding>,
    /// CPUs that have become leased and have not been cleared of others since, and the seat from which that goes on.
    uncleared: Box<[Option<u32>]>,
    /// CPUs that look whether they can do without a tick when the event in progress is over.
    asking: CpuSet,
    /// What each CPU has had taken off it while it was leased.
    offloads: Box<[u64]>,
}

impl Isolation {
    /// Of a machine with so many CPUs and room for so many leases.
    pub fn new(cpus: usize, leases: usize) -> Result<Self, NoRoom> {
        let mut lessees = Vec::new();
        lessees.try_reserve_exact(cpus)?;
        lessees.resize(cpus, None);
        let mut uncleared = Vec::new();
        uncleared.try_reserve_exact(cpus)?;
        uncleared.resize(cpus, None);
        let mut offloads = Vec::new();
        offloads.try_reserve_exact(cpus)?;
        offloads.resize(cpus, 0);
        let mut bindings = Vec::new();
        // A thread whose lease is over may keep its binding for as long as it sleeps.
        bindings.try_reserve_exact(leases.saturating_mul(2))?;
        Ok(Self {
            lessees: lessees.into_boxed_slice(),
            leased: CpuSet::EMPTY,
            bindings,
            uncleared: uncleared.into_boxed_slice(),
            asking: CpuSet::EMPTY,
            offloads: offloads.into_boxed_slice(),
        })
    }

    /// Whether a lease decides where any thread may run. Without leases nothing else here has to be asked.
    #[inline]
    #[must_use]
    pub fn any(&self) -> bool {
        !self.bindings.is_empty()
    }

    /// Whether a lessee has `cpu` to itself.
    #[inline]
    #[must_use]
    pub fn is_leased(&self, cpu: CpuId) -> bool {
        self.any() && self.leased.contains(cpu)
    }

    /// The CPUs that are leased.
    #[must_use]
    pub fn leased(&self) -> &CpuSet {
        &self.leased
    }

    /// The lessee that has `cpu` to itself.
    #[must_use]
    pub fn lessee(&self, cpu: CpuId) -> Option<Lessee> {
        self.lessees.get(cpu.index()).copied().flatten()
    }

    /// Whether no lease keeps `thread` away from `cpu`.
    #[inline]
    #[must_use]
    pub fn admits(&self, thread: ThreadRef, cpu: CpuId) -> bool {
        !self.is_leased(cpu) || self.lessee(cpu).is_none_or(|lessee| lessee.thread == thread)
    }

    /// Where its lease lets `thread` run, if it has one.
    #[must_use]
    pub fn binding(&self, thread: ThreadRef) -> Option<&Affinity> {
        self.bindings.iter().find(|binding| binding.thread == thread)?.affinity.as_ref()
    }

    /// `cpu`, if it is leased, is to look whether it can do without a tick when the event in progress is over.
    #[inline]
    pub fn ask_for_tickless(&mut self, cpu: CpuId) {
        if self.is_leased(cpu) {
            self.asking.insert(cpu);
        }
    }

    /// Work of `cpu`, which is leased, is done by a housekeeper: a thread has been moved there, or a piece of the machine's own
    /// work has been carried out there.
    pub fn count_offload(&mut self, cpu: CpuId) {
        if let Some(count) = self.offloads.get_mut(cpu.index()) {
            *count += 1;
        }
    }

    /// The CPUs that it knows, by number.
    pub fn cpus(&self) -> core::ops::Range<usize> {
        0..self.lessees.len()
    }

    /// `housekeeping_offload_count` of `cpu`.
    #[must_use]
    pub fn offloads(&self, cpu: CpuId) -> u64 {
        self.offloads.get(cpu.index()).copied().unwrap_or(0)
    }

    pub(super) fn has_room_to_bind(&self, thread: ThreadRef) -> bool {
        self.bindings.len() < self.bindings.capacity()
            || self.bindings.iter().any(|binding| binding.thread == thread)
    }

    /// `lessee` has `cpu` from now on. Other threads there have to leave.
    pub(super) fn lease_cpu(&mut self, cpu: CpuId, lessee: Lessee) {
        if let Some(slot) = self.lessees.get_mut(cpu.index()) {
            *slot = Some(lessee);
            self.leased.insert(cpu);
            self.uncleared[cpu.index()] = Some(0);
        }
    }

    /// `lease` is over on `cpu`. Another that has taken its place stays.
    pub(super) fn free_cpu(&mut self, cpu: CpuId, lease: LeaseRef) {
        if self.lessee(cpu).is_some_and(|lessee| lessee.lease == lease) {
            self.lessees[cpu.index()] = None;
            self.leased.remove(cpu);
            // A thread that stayed on another leased CPU, because no other would have it, may now be able to
            // come here.
            for other in self.leased.iter() {
                self.uncleared[other.index()] = Some(0);
            }
        }
    }

    /// `thread` may run where `affinity` says; with `None`, where it may run by itself.
    pub(super) fn bind(&mut self, thread: ThreadRef, affinity: Option<Affinity>) {
        match self.bindings.iter_mut().find(|binding| binding.thread == thread) {
            Some(binding) => (binding.affinity, binding.pending) = (affinity, true),
            None => self.bindings.push(Binding { thread, affinity, pending: true }),
        }
    }

    /// `thread` is where it belongs, and its scheduler has its affinity.
    pub(super) fn has_arrived(&mut self, thread: ThreadRef) {
        if let Some(binding) = self.bindings.iter_mut().find(|binding| binding.thread == thread) {
            binding.pending = false;
        }
        self.bindings.retain(|binding| binding.pending || binding.affinity.is_some());
    }

    /// `thread` has ended.
    pub(super) fn forget(&mut self, thread: ThreadRef) {
        self.bindings.retain(|binding| binding.thread != thread);
    }

    /// The thread of the pending binding at `index`. Past the last there is `None`.
    pub(super) fn pending(&self, index: usize) -> Option<Option<ThreadRef>> {
        self.bindings.get(index).map(|binding| binding.pending.then_some(binding.thread))
    }

    /// Whether `cpu` may still have threads that have to leave it.
    #[must_use]
    pub fn may_have_strays(&self, cpu: CpuId) -> bool {
        self.uncleared.get(cpu.index()).copied().flatten().is_some()
    }

    /// The seat from which `cpu` has still to be cleared of others. It counts as cleared afterwards.
    pub(super) fn take_uncleared(&mut self, cpu: CpuId) -> Option<u32> {
        self.uncleared.get_mut(cpu.index())?.take()
    }

    /// `cpu` is cleared up to `seat`. If it has to be cleared anew meanwhile, it is.
    pub(super) fn cleared_up_to(&mut self, cpu: CpuId, seat: u32) {
        if let Some(uncleared) = self.uncleared.get_mut(cpu.index()) {
            uncleared.get_or_insert(seat);
        }
    }

    /// Whether `cpu` asks to do without a tick. It asks no longer.
    pub(super) fn take_asking_of(&mut self, cpu: CpuId) -> bool {
        let asks = self.asking.contains(cpu);
        self.asking.remove(cpu);
        asks
    }

    /// The lowest CPU that asks to do without a tick. It asks no longer.
    pub(super) fn take_asking(&mut self) -> Option<CpuId> {
        let cpu = self.asking.iter().next()?;
        self.asking.remove(cpu);
        Some(cpu)
    }
}
