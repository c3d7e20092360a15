//! Threads: a table of slots that are never freed, each used by one thread after the other.

use super::inbox::{Inbox, Waiter};
use super::process;
use crate::arch::{Context, ContextCell, RingMemory, StaticRef};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use heapless::Vec as Few;
use mainspring_abi::ThreadRef;
use mainspring_abi::ring::CapError;
use mainspring_ring::SubmissionQueue;
use mainspring_sched::Seat;
use spin::{Mutex, Once};

/// How many threads there can be.
pub const MAX_THREADS: usize = 512;

const NOWHERE: u64 = u64::MAX;

/// A thread's ring, as its own CPU consumes it.
pub type Queue = SubmissionQueue<Arc<RingMemory>>;

/// Whether a thread lives, and who wants to know when it does not.
#[derive(Debug, Default)]
pub struct Life {
    generation: u32,
    /// Taken by a thread, alive or ended.
    used: bool,
    /// How it ended.
    pub ended: Option<i64>,
    /// Who waits for its end.
    pub joiners: Few<Waiter, 8>,
    /// Handles that can still ask.
    pub handles: u32,
}

/// A slot.
pub struct Thread {
    index: u32,
    generation: AtomicU32,
    /// Its registers.
    pub context: ContextCell,
    home: AtomicU64,
    /// The page tables it runs with.
    pub root: AtomicU64,
    /// The process it belongs to; the thread keeps the process alive.
    pub belongs_to: StaticRef<process::Process>,
    /// Which of its process's places (ring, stack) it has.
    pub place: AtomicU32,
    /// Which occupant is to end at the next opportunity: its generation plus one.
    killed: AtomicU64,
    /// What it waits for.
    pub inbox: Mutex<Inbox>,
    /// Its ring.
    pub queue: Mutex<Option<Queue>>,
    /// Its life.
    pub life: Mutex<Life>,
}

static THREADS: Once<Box<[Thread; MAX_THREADS]>> = Once::new();
static FREE: Mutex<Vec<u32>> = Mutex::new(Vec::new());
static LIVE: AtomicU32 = AtomicU32::new(0);

/// Makes the table. There are processes already.
pub fn init() {
    THREADS.call_once(|| {
        let make = |index| Thread {
            index,
            generation: AtomicU32::new(0),
            context: ContextCell::default(),
            home: AtomicU64::new(NOWHERE),
            root: AtomicU64::new(0),
            belongs_to: StaticRef::new(process::slot(0)),
            place: AtomicU32::new(0),
            killed: AtomicU64::new(0),
            inbox: Mutex::default(),
            queue: Mutex::new(None),
            life: Mutex::default(),
        };
        let table: Vec<_> = (0..MAX_THREADS as u32).map(make).collect();
        table.try_into().unwrap_or_else(|_| unreachable!("it has as many as were made"))
    });
    FREE.lock().extend((0..MAX_THREADS as u32).rev());
}

/// The slot with this number.
#[inline]
#[must_use]
pub fn slot(index: u32) -> &'static Thread {
    // Numbers of slots are below the size of the table; saying so saves the check.
    &THREADS.get().expect("threads exist after init")[index as usize % MAX_THREADS]
}

/// The thread that `name` names, while it has its slot.
#[inline]
#[must_use]
pub fn find(name: ThreadRef) -> Option<&'static Thread> {
    let thread = slot(name.index());
    (thread.name() == name).then_some(thread)
}

/// How many threads live.
#[must_use]
pub fn live() -> u32 {
    LIVE.load(Ordering::Relaxed)
}

/// A slot for a new thread.
pub fn allocate() -> Result<&'static Thread, CapError> {
    let index = FREE.lock().pop().ok_or(CapError::QuotaExceeded)?;
    let thread = slot(index);
    let mut life = thread.life.lock();
    *life = Life { generation: thread.generation.load(Ordering::Relaxed), used: true, ..Life::default() };
    LIVE.fetch_add(1, Ordering::Relaxed);
    Ok(thread)
}

impl Thread {
    /// Its present occupant.
    #[must_use]
    pub fn name(&self) -> ThreadRef {
        // Acquire: pairs with the release when a slot is freed; a reference that matches sees the present occupant.
        ThreadRef::new(self.index, self.generation.load(Ordering::Acquire))
    }

    /// `name` is to end at the next opportunity. Nothing happens to a later occupant of its slot.
    pub fn kill(&self, name: ThreadRef) {
        // Release: pairs with the acquire in `is_killed`. The greatest generation counts: a mark that comes late, for
        // somebody who is gone, does not erase that of a later occupant.
        self.killed.fetch_max(u64::from(name.generation()) + 1, Ordering::Release);
    }

    /// Whether its present occupant is to end.
    #[must_use]
    pub fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Acquire) == u64::from(self.name().generation()) + 1
    }

    /// Where it sits: the CPU and its seat there.
    #[must_use]
    pub fn home(&self) -> Option<(usize, Seat)> {
        let bits = self.home.load(Ordering::Acquire);
        (bits != NOWHERE).then(|| ((bits >> 32) as usize, Seat::from_parts(bits as u32, self.name())))
    }

    /// It sits there from now on. Called with that CPU's lock held.
    pub fn set_home(&self, cpu: usize, seat: Seat) {
        // Release: pairs with the acquire in `home`; who goes there finds the seat taken.
        self.home.store((cpu as u64) << 32 | u64::from(seat.slot()), Ordering::Release);
    }

    /// It sits nowhere.
    pub fn clear_home(&self) {
        self.home.store(NOWHERE, Ordering::Release);
    }

    /// Sets its first registers; nobody runs it yet.
    pub fn prepare(&self, set: impl FnOnce(&mut Context)) {
        set(self.context.bind());
        self.context.unbind();
    }

    /// The process it belongs to.
    #[inline]
    #[must_use]
    pub fn process(&self) -> &'static process::Process {
        self.belongs_to.get()
    }

    /// It has ended with `code`; who waited for that.
    pub fn end(&self, code: i64) -> Few<Waiter, 8> {
        let mut life = self.life.lock();
        LIVE.fetch_sub(1, Ordering::Relaxed);
        life.ended = Some(code);
        let joiners = core::mem::take(&mut life.joiners);
        self.free_if_forgotten(&mut life);
        joiners
    }

    /// One handle less.
    pub fn drop_handle(&self, name: ThreadRef) {
        let mut life = self.life.lock();
        if life.generation == name.generation() && life.handles > 0 {
            life.handles -= 1;
            self.free_if_forgotten(&mut life);
        }
    }

    /// The slot can be used again once the thread has ended and nobody can ask how. A slot that has run out of
    /// generations is never used again.
    fn free_if_forgotten(&self, life: &mut Life) {
        if !life.used || life.ended.is_none() || life.handles > 0 {
            return;
        }
        life.used = false;
        if let Some(next) = self.name().successor() {
            life.generation = next.generation();
            self.generation.store(next.generation(), Ordering::Release);
            // The list has had room for every slot since `init`.
            FREE.lock().push(self.index);
        }
    }

    /// Gives a slot back that was allocated for a thread that never came to be.
    pub fn abandon(&self) {
        let _nobody = self.end(0);
    }

    /// Notes one more handle.
    pub fn add_handle(&self) {
        self.life.lock().handles += 1;
    }
}

impl Life {
    /// Whether `name` is who this life is of.
    #[must_use]
    pub fn is_of(&self, name: ThreadRef) -> bool {
        self.used && self.generation == name.generation()
    }
}
