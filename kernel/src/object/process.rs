//! Processes: an address space, a table of capabilities, quotas, and places for threads.
//!
//! A process ends when its last thread has: each thread ends itself, on the CPU it is on, when it is told to. The last one
//! takes the address space apart and gives everything back before it ends.

use super::ProcessRef;
use super::caps::{CAPS, Caps};
use super::endpoint;
use super::hold::{Claims, Hold, Slot};
use super::inbox::Waiter;
use super::memory::HELD;
use super::park::ParkList;
use super::thread;
use crate::arch::AddressSpace;
use crate::sched::contexts::SESSIONS_EACH;
use crate::sched::visible::Digest;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use heapless::{String, Vec as Few};
use mainspring_abi::ThreadRef;
use mainspring_abi::ring::CapError;
use mainspring_driver::ledgers::LedgerRef;
use mainspring_driver::sessions::SessionRef;
use mainspring_kernel_core::ledger::{Kind, Ledger, Limits, Pools, Refused};
use spin::{Mutex, Once};

/// How many processes there can be.
pub const MAX_PROCESSES: usize = 64;
/// How many threads one may have.
pub const THREADS: u32 = 128;
/// How many sleeps one may have pending.
pub const SLEEPS: u32 = 64;
/// How many pages one may have mapped.
pub const PAGES: u64 = 16_384;

/// How many frames one may always have, whatever others do: a program and a few dozen threads.
const GUARANTEED_FRAMES: u64 = 512;
/// The most that one process may have of each kind, in the order of [`mainspring_kernel_core::ledger::Kind`].
const LIMITS: Limits = Limits([
    PAGES,
    2 * PAGES,
    THREADS as u64,
    CAPS as u64,
    // As many as all endpoints together let one process have.
    (endpoint::ENDPOINTS * endpoint::SHARE) as u64,
    SLEEPS as u64,
    HELD as u64,
    // Its own place is its family's.
    0,
]);
/// How many threads one may always have, whatever others do.
const GUARANTEED_THREADS: u64 = 8;

/// How many processes a family may always have, whatever others do.
const GUARANTEED_PROCESSES: u64 = 8;
/// A family is charged for the places of its processes alone.
const FAMILY_LIMITS: Limits = Limits([0, 0, 0, 0, 0, 0, 0, MAX_PROCESSES as u64]);

/// The frames and threads of the machine that processes can be charged for, and the places that families can be.
static POOLS: Pools = Pools::new();

/// What families are charged for. A family is a program of the manifest, the processes that it has made, those that they have
/// made, and so on: it is known by the place of that program in the manifest.
static FAMILIES: [Ledger<'static>; MAX_PROCESSES] =
    [const { Ledger::new(&POOLS, FAMILY_LIMITS) }; MAX_PROCESSES];

fn family(number: u32) -> &'static Ledger<'static> {
    &FAMILIES[number as usize % MAX_PROCESSES]
}

/// Frames that no process can be charged for: what the kernel needs for a moment.
const KERNEL_FRAMES: u64 = 1024;

/// Lets processes be charged for all but the kernel's of `free` frames, and for all threads that there can be, and so many families
/// for all processes.
pub fn open_pools(free: u64, families: u64) {
    let processes = MAX_PROCESSES as u64;
    POOLS.frames.open(free.saturating_sub(KERNEL_FRAMES), processes, GUARANTEED_FRAMES);
    POOLS.threads.open(thread::MAX_THREADS as u64, processes, GUARANTEED_THREADS);
    POOLS.processes.open(processes, families, GUARANTEED_PROCESSES);
}

/// Frames that processes, present and to come, can still be charged for.
#[must_use]
pub fn chargeable_frames() -> u64 {
    let guaranteed = POOLS.frames.guaranteed();
    let left = |process: &Process| guaranteed.saturating_sub(process.ledger.amount(Kind::Frames));
    POOLS.frames.shared() + all().map(left).sum::<u64>()
}

/// A refusal of the ledger, as it is told to programs.
#[must_use]
pub fn refusal(why: Refused) -> CapError {
    match why {
        Refused::Limit => CapError::QuotaExceeded,
        Refused::Exhausted => CapError::NoMemory,
    }
}

/// What changes about a process, under one lock.
#[derive(Debug, Default)]
pub struct State {
    /// What it was started as.
    pub name: String<32>,
    /// Its capabilities.
    pub caps: Caps,
    /// Places (ring and stack) that threads have, bit by bit.
    pub places: u128,
    /// Threads that live.
    pub live: u32,
    /// Of those, how many have begun to end.
    pub leaving: u32,
    /// It is ending, with this code.
    pub ending: Option<i64>,
    /// It has ended: no thread is left.
    pub ended: bool,
    /// The threads that wait for that.
    pub waiters: Few<Waiter, 8>,
    /// Where the next mapping without an address goes.
    pub next_mapping: u64,
    /// Its own hold of its slot, until it is torn down.
    own: Option<Hold<Process>>,
}

/// A slot.
pub struct Process {
    index: u32,
    generation: AtomicU32,
    claims: Claims,
    /// What changes.
    pub state: Mutex<State>,
    /// Its address space.
    pub space: Mutex<Option<AddressSpace>>,
    /// The threads that wait on words of its memory.
    pub parks: Mutex<ParkList>,
    /// CPUs that have its page tables loaded, bit by bit.
    pub resident: AtomicU64,
    /// What the kernel holds for it.
    pub ledger: Ledger<'static>,
    /// The family that its place is charged to.
    family: AtomicU32,
    /// What its contexts are charged to, if it was granted any.
    pub resources: Mutex<Option<LedgerRef>>,
    /// The session that it is in, and whether the session ends with it. Nothing is locked by a CPU that has this.
    pub session: Mutex<Option<(SessionRef, bool)>>,
    /// Sessions that it holds and is not in: they end with it. Nothing is locked by a CPU that has this.
    pub held_sessions: Mutex<Few<SessionRef, SESSIONS_EACH>>,
    /// The machine has failed if this one does.
    pub essential: AtomicBool,
}

static PROCESSES: Once<Box<[Process; MAX_PROCESSES]>> = Once::new();
static LIVE: AtomicU32 = AtomicU32::new(0);
/// Slots that can be used, bit by bit.
static FREE: AtomicU64 = AtomicU64::new(0);

/// Makes the table.
pub fn init() {
    PROCESSES.call_once(|| {
        let make = |index| Process {
            index,
            generation: AtomicU32::new(0),
            claims: Claims::default(),
            state: Mutex::default(),
            space: Mutex::new(None),
            parks: Mutex::default(),
            resident: AtomicU64::new(0),
            ledger: Ledger::new(&POOLS, LIMITS),
            family: AtomicU32::new(0),
            resources: Mutex::new(None),
            session: Mutex::new(None),
            held_sessions: Mutex::default(),
            essential: AtomicBool::new(false),
        };
        let table: Vec<_> = (0..MAX_PROCESSES as u32).map(make).collect();
        FREE.store(u64::MAX >> (64 - MAX_PROCESSES), Ordering::Relaxed);
        table.try_into().unwrap_or_else(|_| unreachable!("it has as many as were made"))
    });
}

/// The slot with this number.
#[inline]
#[must_use]
pub fn slot(index: u32) -> &'static Process {
    // Numbers of slots are below the size of the table; saying so saves the check.
    &PROCESSES.get().expect("processes exist after init")[index as usize % MAX_PROCESSES]
}

/// All slots.
pub fn all() -> impl Iterator<Item = &'static Process> {
    PROCESSES.get().into_iter().flat_map(|table| table.iter())
}

/// How many processes are not torn down yet.
#[must_use]
pub fn live() -> u32 {
    LIVE.load(Ordering::Relaxed)
}

/// A slot for a new process of the family `number`, free again if the hold is dropped before the process [begins](Hold::begin).
pub fn allocate(number: u32) -> Result<Hold<Process>, CapError> {
    family(number).add(Kind::Processes, 1).map_err(|_| CapError::QuotaExceeded)?;
    let mut free = FREE.load(Ordering::Relaxed);
    while free != 0 {
        let bit = free & free.wrapping_neg();
        // Acquire: pairs with the release in `vacate`; the slot is as its last occupant left it.
        free = FREE.fetch_and(!bit, Ordering::Acquire);
        if free & bit != 0 {
            let slot = slot(bit.trailing_zeros());
            slot.family.store(number, Ordering::Relaxed);
            return Ok(Hold::first(slot));
        }
    }
    // Slots that have run out of generations are still counted as places.
    family(number).refund(Kind::Processes, 1);
    Err(CapError::QuotaExceeded)
}

impl Slot for Process {
    fn claims(&self) -> &Claims {
        &self.claims
    }

    /// A slot that has run out of generations is never used again.
    fn vacate(&'static self) {
        debug_assert!(
            self.ledger.is_empty(),
            "a process is gone and its ledger is not empty: {:?}",
            self.ledger
        );
        let family = family(self.family());
        // Only the code that vacates a slot changes its generation.
        if let Some(next) = self.generation.load(Ordering::Relaxed).checked_add(1) {
            self.generation.store(next, Ordering::Release);
            FREE.fetch_or(1 << self.index, Ordering::Release);
        }
        // Once the slot is free: a family that has been charged for a place finds one.
        family.refund(Kind::Processes, 1);
    }
}

impl Hold<Process> {
    /// Clears what a process that is being made needs of its slot. No other thread sees it there until it
    /// [begins](Hold::begin): it has no thread.
    pub fn prepare(&self, name: String<32>) {
        let mut state = self.state.lock();
        state.name = name;
        state.caps.begin_anew();
    }

    /// The process is there from now on, with the capabilities and the address space of its slot and one thread to come,
    /// until it is torn down. The machine has failed if an essential one does.
    pub fn begin(&self, essential: bool) {
        let mut state = self.state.lock();
        (state.places, state.live, state.leaving) = (1, 1, 0);
        (state.ending, state.ended) = (None, false);
        state.waiters.clear();
        state.next_mapping = mainspring_abi::kernel::MAPPINGS;
        state.own = Some(self.clone());
        drop(state);
        self.essential.store(essential, Ordering::Relaxed);
        LIVE.fetch_add(1, Ordering::Relaxed);
    }
}

impl Process {
    /// The slot's number.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The family that it is of, and that what it makes is of.
    #[must_use]
    pub fn family(&self) -> u32 {
        self.family.load(Ordering::Relaxed)
    }

    /// Its present occupant.
    #[must_use]
    pub fn name(&self) -> ProcessRef {
        ProcessRef { index: self.index, generation: self.generation.load(Ordering::Acquire) }
    }

    /// Works with its address space, which it has until it is torn down.
    pub fn with_space<T>(&self, work: impl FnOnce(&mut AddressSpace) -> T) -> Result<T, CapError> {
        self.space.lock().as_mut().map(work).ok_or(CapError::PeerGone)
    }

    /// Reads its memory.
    #[inline(always)]
    pub fn read(&self, address: u64, to: &mut [u8]) -> Result<(), CapError> {
        match &mut *self.space.lock() {
            Some(space) => space.read(address, to).map_err(|_| CapError::BadAddress),
            None => Err(CapError::PeerGone),
        }
    }

    /// Writes its memory.
    #[inline(always)]
    pub fn write(&self, address: u64, from: &[u8]) -> Result<(), CapError> {
        match &mut *self.space.lock() {
            Some(space) => space.write(address, from).map_err(|_| CapError::BadAddress),
            None => Err(CapError::PeerGone),
        }
    }

    /// Whether a CPU other than CPU `here` has its page tables loaded.
    #[must_use]
    pub fn is_loaded_beyond(&self, here: usize) -> bool {
        // Acquire: pairs with the release of a CPU that has loaded others.
        self.resident.load(Ordering::Acquire) & !(1 << here) != 0
    }

    /// All its threads are to end, and it with them. The first reason counts. Says whether it was the first.
    pub fn end(&self, code: i64) -> bool {
        let mut state = self.state.lock();
        if state.ending.is_some() || state.ended {
            return false;
        }
        state.ending = Some(code);
        true
    }

    /// Threads that belong to it, with their names.
    pub fn threads(&self) -> impl Iterator<Item = (&'static thread::Thread, ThreadRef)> {
        (0..thread::MAX_THREADS as u32).map(thread::slot).filter_map(move |thread| {
            // The name comes first: if the slot changes hands after this, the name names no thread.
            let name = thread.name();
            let belongs = core::ptr::eq(thread.process(), self) && thread.home().is_some();
            (belongs && thread.name() == name).then_some((thread, name))
        })
    }

    /// One of its threads has begun to end. Whether it is the last one: no other comes to be then.
    pub fn leaves(&self, code: i64) -> bool {
        let mut state = self.state.lock();
        state.leaving += 1;
        let last = state.leaving == state.live;
        if last {
            state.ending.get_or_insert(code);
        }
        last
    }

    /// One thread less. If it was the last one: how the process ended, and which threads waited for that;
    /// [`Process::bury`] is next.
    pub fn thread_ended(&self, place: u32, code: i64) -> Option<(i64, Few<Waiter, 8>)> {
        let mut state = self.state.lock();
        state.places &= !(1 << place);
        state.live -= 1;
        state.leaving = state.leaving.saturating_sub(1);
        if state.live > 0 {
            return None;
        }
        let code = *state.ending.get_or_insert(code);
        state.ended = true;
        Some((code, core::mem::take(&mut state.waiters)))
    }

    /// Nothing is left of it but how it ended, for the holders of a handle: its last thread gave everything back. Its slot
    /// may be another's when this returns.
    pub fn bury(&self) {
        LIVE.fetch_sub(1, Ordering::Relaxed);
        let own = self.state.lock().own.take();
        drop(own);
    }

    /// Page tables that it has been charged for. Those that were made for a mapping that was refused stay for the next one:
    /// taking them away again would need a flush.
    #[must_use]
    pub fn tables(&self) -> u64 {
        self.space.lock().as_ref().map_or(0, AddressSpace::tables)
    }

    /// Everything about it that its own threads can see or use, but for page tables.
    pub fn digest(&self, digest: &mut Digest) {
        let state = self.state.lock();
        state.caps.digest(digest);
        digest.add(state.places as u64);
        digest.add((state.places >> 64) as u64);
        digest.add(state.next_mapping);
        drop(state);
        digest.add(self.parks.lock().len() as u64);
        digest.add(self.ledger.amount(Kind::Frames) - self.tables());
        let kinds = [
            Kind::Mapped,
            Kind::Threads,
            Kind::Capabilities,
            Kind::EndpointPlaces,
            Kind::Sleeps,
            Kind::Objects,
        ];
        for kind in kinds {
            digest.add(self.ledger.amount(kind));
        }
        digest.add(family(self.family()).amount(Kind::Processes));
    }

    /// What others can see of it.
    pub fn digest_outside(&self, digest: &mut Digest) {
        let state = self.state.lock();
        digest.add(u64::from(state.live));
        digest.add(state.ending.map_or(0, |code| code as u64 ^ 1 << 63));
        digest.add(u64::from(state.ended));
        digest.add(state.waiters.len() as u64);
    }
}

/// Frames that the address spaces of all processes have.
#[must_use]
pub fn frames() -> u64 {
    all().map(|process| process.space.lock().as_ref().map_or(0, AddressSpace::frames)).sum()
}
