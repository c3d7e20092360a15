//! Threads: a table of slots that are never freed, each used by one thread after the other. The holder of a thread's slot
//! can still ask how the thread ended, so a slot is used again only when it has no holder.
//!
//! Conserved: a slot that is not free is charged to the ledger of its thread's process.

use super::hold::{Claims, Hold, Slot};
use super::inbox::{Inbox, Waiter};
use super::process::{self, refusal};
use crate::arch::{Context, ContextCell, Ring, StaticRef};
use crate::method::Work;
use crate::sched::sqpoll::Polling;
use crate::sched::visible::Digest;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use heapless::Vec as Few;
use mainspring_abi::ring::CapError;
use mainspring_abi::{CpuSet, ThreadRef};
use mainspring_driver::sessions::SessionRef;
use mainspring_kernel_core::ledger::{Charge, Kind, Ledger};
use mainspring_ring::SubmissionQueue;
use mainspring_sched::{Affinity, Seat};
use spin::{Mutex, Once};

pub use mainspring_abi::kernel::MAX_THREADS;

const NOWHERE: u64 = u64::MAX;

/// A thread's ring, as its own CPU consumes it.
pub type Queue = SubmissionQueue<Ring>;

/// Whether a thread lives, and which threads wait for its end.
#[derive(Debug, Default)]
pub struct Life {
    /// Its own hold of its slot, as long as it lives.
    own: Option<Hold<Thread>>,
    /// How it ended.
    pub ended: Option<i64>,
    /// The threads that wait for its end.
    pub joiners: Few<Waiter, 8>,
}

/// A slot.
pub struct Thread {
    index: u32,
    generation: AtomicU32,
    claims: Claims,
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
    /// The generation whose occupant has begun to end, plus one.
    leaving: AtomicU64,
    /// What it waits for.
    pub inbox: Mutex<Inbox>,
    /// Its ring.
    pub queue: Mutex<Option<Queue>>,
    /// The last request of its ring failed. Who serves the ring asks, and nobody else.
    has_failed: AtomicBool,
    /// What it has to do before it goes on; only the CPU that runs it asks.
    pub work: Mutex<Option<Work>>,
    /// The session that it has entered. Nothing is locked by a CPU that has this.
    pub session: Mutex<Option<SessionRef>>,
    /// Its life.
    pub life: Mutex<Life>,
    /// For the slot, as long as it is not free.
    charge: Mutex<Option<Charge<'static>>>,
    /// Room for the set of CPUs that its occupant may run on.
    cpus: Mutex<Arc<CpuSet>>,
    /// Its occupant may run on those only.
    is_bound: AtomicBool,
    /// The poller of its ring. Taken after the ring's own lock.
    pub polling: Mutex<Option<Polling>>,
    is_polled: AtomicBool,
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
            claims: Claims::default(),
            context: ContextCell::default(),
            home: AtomicU64::new(NOWHERE),
            root: AtomicU64::new(0),
            belongs_to: StaticRef::new(process::slot(0)),
            place: AtomicU32::new(0),
            killed: AtomicU64::new(0),
            leaving: AtomicU64::new(0),
            inbox: Mutex::default(),
            queue: Mutex::new(None),
            has_failed: AtomicBool::new(false),
            work: Mutex::new(None),
            session: Mutex::new(None),
            life: Mutex::default(),
            charge: Mutex::new(None),
            cpus: Mutex::new(Arc::new(CpuSet::EMPTY)),
            is_bound: AtomicBool::new(false),
            polling: Mutex::new(None),
            is_polled: AtomicBool::new(false),
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

/// A slot for a new thread of the process with this `ledger`, free again if the hold is dropped before the thread
/// [begins](Hold::begin).
pub fn allocate(ledger: &'static Ledger<'static>) -> Result<Hold<Thread>, CapError> {
    let charge = ledger.charge(Kind::Threads, 1).map_err(refusal)?;
    let slot = slot(FREE.lock().pop().ok_or(CapError::QuotaExceeded)?);
    *slot.charge.lock() = Some(charge);
    Ok(Hold::first(slot))
}

impl Slot for Thread {
    fn claims(&self) -> &Claims {
        &self.claims
    }

    /// A slot that has run out of generations is never used again.
    fn vacate(&'static self) {
        *self.charge.lock() = None;
        if let Some(next) = self.name().successor() {
            // Release: pairs with the acquire in `name`.
            self.generation.store(next.generation(), Ordering::Release);
            // The list has had room for every slot since `init`.
            FREE.lock().push(self.index);
        }
    }
}

impl Hold<Thread> {
    /// The thread lives from now on, until [`Thread::end`].
    pub fn begin(&self) {
        *self.life.lock() = Life { own: Some(self.clone()), ..Life::default() };
        *self.session.lock() = None;
        LIVE.fetch_add(1, Ordering::Relaxed);
    }
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
        // an occupant that is gone, does not erase a later occupant's mark.
        self.killed.fetch_max(u64::from(name.generation()) + 1, Ordering::Release);
    }

    /// Whether its present occupant is to end.
    #[must_use]
    pub fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Acquire) == u64::from(self.name().generation()) + 1
    }

    /// Its present occupant, which runs, has begun to end.
    pub fn leave(&self) {
        self.leaving.fetch_max(u64::from(self.name().generation()) + 1, Ordering::Release);
    }

    /// Whether its present occupant is to end, or has begun to.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.is_killed() || self.leaving.load(Ordering::Acquire) == u64::from(self.name().generation()) + 1
    }

    /// Where it sits: the CPU and its seat there.
    #[must_use]
    pub fn home(&self) -> Option<(usize, Seat)> {
        let bits = self.home.load(Ordering::Acquire);
        (bits != NOWHERE).then(|| ((bits >> 32) as usize, Seat::from_parts(bits as u32, self.name())))
    }

    /// It sits there from now on. Called with that CPU's lock held.
    pub fn set_home(&self, cpu: usize, seat: Seat) {
        // Release: pairs with the acquire in `home`; a CPU that looks there finds the seat taken.
        self.home.store((cpu as u64) << 32 | u64::from(seat.slot()), Ordering::Release);
    }

    /// It sits nowhere.
    pub fn clear_home(&self) {
        self.home.store(NOWHERE, Ordering::Release);
    }

    /// Lets its occupant, which does not live yet, run on `cpus` only. Nothing is allocated: the slot has room for one set.
    pub fn bind_to(&self, cpus: CpuSet) -> Affinity {
        let mut room = self.cpus.lock();
        // Another CPU may still be looking at the set of the last occupant, which it woke: for a moment, with no lock that
        // this one has.
        while Arc::get_mut(&mut room).is_none() {
            core::hint::spin_loop();
        }
        if let Some(room) = Arc::get_mut(&mut room) {
            *room = cpus;
        }
        self.is_bound.store(true, Ordering::Relaxed);
        Affinity::Only(Arc::clone(&room))
    }

    /// Lets its occupant, which does not live yet, run on every CPU.
    pub fn bind_to_none(&self) -> Affinity {
        self.is_bound.store(false, Ordering::Relaxed);
        Affinity::Any
    }

    /// Whether the request before the next one of its ring failed, whoever served it and in whichever pass.
    #[must_use]
    pub fn previous_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// A request of its ring has failed, or has not.
    #[inline(always)]
    pub fn note_outcome(&self, failed: bool) {
        // A line that others read is written when it changes, and no sooner.
        if self.has_failed.load(Ordering::Relaxed) != failed {
            self.has_failed.store(failed, Ordering::Relaxed);
        }
    }

    /// Whether its ring has a poller, or had one a moment ago.
    #[inline(always)]
    #[must_use]
    pub fn is_polled(&self) -> bool {
        self.is_polled.load(Ordering::Relaxed)
    }

    /// Its ring has a poller, or none.
    pub fn set_polled(&self, is_polled: bool) {
        self.is_polled.store(is_polled, Ordering::Relaxed);
    }

    /// Where its occupant may run by itself, whatever leases say.
    #[must_use]
    pub fn own_affinity(&self) -> Affinity {
        if self.is_bound.load(Ordering::Relaxed) {
            Affinity::Only(Arc::clone(&self.cpus.lock()))
        } else {
            Affinity::Any
        }
    }

    /// Sets its first registers; no CPU runs it yet.
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

    /// The session that it is in: its process's, or else the one that it has entered.
    #[must_use]
    pub fn in_session(&self) -> Option<SessionRef> {
        let of_process = self.process().session.lock().map(|(session, _)| session);
        of_process.or_else(|| *self.session.lock())
    }

    /// What others can see of it, and what it waits for.
    pub fn digest(&self, digest: &mut Digest) {
        if self.home().is_none() {
            return;
        }
        digest.add(u64::from(self.name().generation()));
        digest.add(self.killed.load(Ordering::Relaxed));
        let life = self.life.lock();
        digest.add(life.joiners.len() as u64);
        drop(life);
        digest.add(self.inbox.lock().in_flight() as u64);
    }

    /// It has ended with `code`; the threads that waited for that. The slot may be another's when this returns.
    pub fn end(&self, code: i64) -> Few<Waiter, 8> {
        let mut life = self.life.lock();
        LIVE.fetch_sub(1, Ordering::Relaxed);
        life.ended = Some(code);
        let (joiners, own) = (core::mem::take(&mut life.joiners), life.own.take());
        drop(life);
        drop(own);
        joiners
    }
}
