//! The scheduler of one CPU.
//!
//! Conserved, between any two events:
//! * Each thread here sits in exactly one seat and is in exactly one [`State`]; at most one is running, and at most
//!   one is the direct target.
//! * Time is charged when a running interval ends and at no other time. What was charged here, plus idle time, plus
//!   the interval in progress, is the time since the CPU began.
//! * A timed wait holds its permit; the event that ends the wait hands it back.
//! * A CPU with something queued has a timer due no later than the end of the running thread's request, and one whose
//!   thread runs on a context no later than the end of its budget.
//! * A thread that holds a context competes by the context's deadline and not for a fair share; the fair clock stands
//!   still while it runs. A thread whose context is lent cannot be made ready.

mod authority;
mod direct_call;
mod direct_switch;
mod dispatch;
mod inspect;
mod nohz;
mod policy;
mod realtime;
mod timer;
mod transfer;
mod wakeup;

pub use authority::{BindRefusal, LendError, NotBound, Overran, UnbindError};
pub use dispatch::{Decision, Dispatch, Stop};
pub use inspect::ThreadView;
pub use nohz::{NohzEntry, NohzRecheck};
pub use policy::{PolicyCap, PolicyError, Snapshot};
pub use timer::{Expired, IdleTick, TimerOutcome};
pub use transfer::{AcceptError, Refused, Removed, Via};
pub use wakeup::{Handoff, Woken};

use crate::entity::{Authority, Entity};
use crate::fair::{Ask, FairQueue, Tag};
use crate::floor::Floor;
use crate::heap::SeatHeap;
use crate::hint::unlikely;
use crate::nohz::Activation;
use crate::telemetry::Telemetry;
use crate::tick::Tick;
use crate::waiter::{Due, Timeout, WaitKind, WaitPermit};
use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use core::fmt;
use mainspring_abi::{ContextRef, CpuId, LatencyClass, Nanos, Policy, ThreadRef, Weight};
use realtime::{Band, Realtime};

/// How a CPU schedules.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Which CPU.
    pub cpu: CpuId,
    /// Best-effort policy.
    pub policy: Policy,
    /// The unit of best-effort service.
    pub quantum: Nanos,
    /// The tick's period.
    pub tick: Nanos,
    /// What best effort keeps, however many contexts there are.
    pub floor: Floor,
    /// Seeds the balance of the queue's tree; no decision depends on it.
    pub shape: u64,
}

impl Config {
    /// The defaults: a quantum of 3 ms and a tick of 10 ms.
    #[must_use]
    pub fn new(cpu: CpuId, policy: Policy) -> Self {
        Self {
            cpu,
            policy,
            quantum: Nanos::from_millis(3),
            tick: Nanos::from_millis(10),
            floor: Floor::DEFAULT,
            shape: 0x9E37_79B9_7F4A_7C15 ^ cpu.index() as u64,
        }
    }
}

/// Where a thread sits on a CPU. It names the thread too, so a stale seat is noticed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Seat {
    pub(crate) slot: u32,
    pub(crate) thread: ThreadRef,
}

impl Seat {
    /// The thread that sits there.
    #[must_use]
    pub fn thread(self) -> ThreadRef {
        self.thread
    }

    /// The seat's number on its CPU.
    #[must_use]
    pub fn slot(self) -> u32 {
        self.slot
    }

    /// A seat by its numbers, as a record names it. Its use is refused if no such thread sits there.
    #[must_use]
    pub fn from_parts(slot: u32, thread: ThreadRef) -> Self {
        Self { slot, thread }
    }
}

/// What a thread on this CPU is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It has the CPU.
    Running,
    /// It waits for the CPU.
    Queued,
    /// It waits for the CPU as the target of a direct handoff.
    Direct,
    /// It keeps its place but may not be chosen until released.
    Held,
    /// Its context is used up: it may not be chosen until the next refill.
    Throttled,
    /// It waits for something else.
    Asleep(WaitKind),
}

/// A seat that could not be used as asked; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeatError {
    /// The thread does not sit there: it has ended or moved.
    Stale,
    /// The thread is in another state than the operation needs.
    WrongState(State),
    /// The thread waits for its context to come back; bring it back or write it off first.
    ContextAway(ContextRef),
}

impl fmt::Display for SeatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale => f.write_str("the thread does not sit there any more; look its seat up again"),
            Self::WrongState(state) => write!(f, "the thread is {state:?}, which does not allow that"),
            Self::ContextAway(who) => {
                write!(f, "the thread has lent its context {who:?}; bring it back or write it off first")
            }
        }
    }
}

impl core::error::Error for SeatError {}

/// No memory for the seats asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct NoRoom;

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not enough memory to reserve the seats; admit fewer threads")
    }
}

impl core::error::Error for NoRoom {}

impl From<TryReserveError> for NoRoom {
    fn from(_: TryReserveError) -> Self {
        Self
    }
}

/// In this order, and aligned, all that running, waiting and sleeping need is in the first two cache lines: one for
/// what a decision reads, one for what it books. The third is for moves and reports.
#[derive(Debug)]
#[repr(C, align(64))]
struct Occupant {
    /// The service it asks for at a time, by its own wish or its class.
    request: Nanos,
    /// Given with a timed wait, and handed back when its time is over.
    user_data: u64,
    permit: Option<WaitPermit>,
    state: State,
    entity: Entity,
}

const _: () = assert!(core::mem::offset_of!(Occupant, entity.runnable_since) == 64);
const _: () = assert!(core::mem::offset_of!(Occupant, entity.account.migrations) == 128);
const _: () = assert!(size_of::<Slot>() == 192);

impl Occupant {
    fn new(mut entity: Entity, quantum: Nanos) -> Self {
        Self {
            request: entity.begin_request(quantum),
            entity,
            state: State::Queued,
            permit: None,
            user_data: 0,
        }
    }

    /// Charges an interval of `ran`, which moved the thread by `moved`, to the account and to the request in progress.
    #[inline]
    fn charge(&mut self, ran: Nanos, moved: u64) {
        self.entity.account.charge(ran, moved);
        let used = self.entity.used + ran;
        self.entity.used = if used < self.request { used } else { self.past_requests(used - self.request) };
    }

    /// Requests follow each other without a gap; a thread that was not stopped may have had
    /// several.
    #[inline]
    fn past_requests(&self, used: Nanos) -> Nanos {
        if used < self.request { used } else { Nanos::new(used.get() % self.request.get()) }
    }

    #[inline]
    fn wait_for_cpu(&mut self, now: Nanos) {
        self.state = State::Queued;
        self.entity.runnable_since = now;
    }

    #[inline]
    fn begin_to_run(&mut self, now: Nanos, cpu: CpuId, switched: bool) {
        self.state = State::Running;
        let entity = &mut self.entity;
        let ready_for = now - core::mem::replace(&mut entity.runnable_since, Nanos::MAX);
        entity.account.runnable_accumulated += ready_for;
        entity.account.last_started = now;
        entity.account.switches += u64::from(switched);
        entity.last_cpu = Some(cpu);
    }

    /// It waits from now on, and begins another request afterwards.
    #[inline]
    fn fall_asleep(&mut self, kind: WaitKind) {
        self.state = State::Asleep(kind);
        self.entity.used = Nanos::ZERO;
        self.entity.account.voluntary_blocks += 1;
    }

    /// Keeps what a timed wait comes with; when it is due.
    #[inline]
    fn set_timeout(&mut self, timeout: Timeout) -> Due {
        let Timeout { deadline, user_data, permit } = timeout;
        self.permit = Some(permit);
        self.user_data = user_data;
        Due { deadline, thread_index: self.entity.thread.index() }
    }

    /// `authority` says whether any thread here has a context or has lent one. If none has, this thread's authority
    /// need not be read.
    #[inline]
    fn ask(&self, authority: bool) -> Ask {
        // A context stays on its CPU, also while its thread goes on without it.
        let bound = authority && !matches!(self.entity.authority, Authority::BestEffort);
        self.ask_to_run(if bound { Some(0) } else { self.entity.affinity.folded() })
    }

    #[inline]
    fn ask_to_run(&self, reach: Option<u64>) -> Ask {
        let Entity { used, thread, .. } = &self.entity;
        Ask { request: self.request, used: *used, thread_index: thread.index(), reach }
    }
}

#[derive(Debug)]
enum Slot {
    Vacant { next: Option<u32> },
    Taken(Occupant),
}

/// The occupant of a slot that its CPU's own tables name, which therefore is taken.
#[inline]
fn taken(slots: &mut [Slot], slot: u32) -> &mut Occupant {
    match &mut slots[slot as usize] {
        Slot::Taken(occupant) => occupant,
        Slot::Vacant { .. } => vacant(slot),
    }
}

#[cold]
fn vacant(slot: u32) -> ! {
    unreachable!("slot {slot} is named by a table but vacant")
}

/// The scheduler of one CPU.
// In this order, what every event needs comes first, in as few cache lines as it takes.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Cpu {
    current: Option<u32>,
    direct: Option<u32>,
    /// When the running thread's request ends.
    slice_end: Nanos,
    /// When the running interval, or idle time, began.
    since: Nanos,
    charged_total: Nanos,
    quantum: Nanos,
    id: CpuId,
    resched_wanted: bool,
    /// On what the running thread runs.
    band: Band,
    /// How many threads here hold a context.
    contexts: u32,
    /// How many threads here have lent theirs.
    lent: u32,
    slots: Vec<Slot>,
    tick: Tick,
    telemetry: Telemetry,
    waits: SeatHeap<Due>,
    fair: FairQueue,
    realtime: Realtime,
    vacant: Option<u32>,
    capacity: usize,
    occupied: usize,
    held: usize,
    idle_total: Nanos,
    /// The record of the tickless window under a lease. It counts only while the tick is in that mode.
    window: Option<Activation>,
}

impl Cpu {
    /// A CPU that is idle since time zero and has no seats.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            fair: FairQueue::new(config.policy, config.shape),
            tick: Tick::new(config.tick),
            realtime: Realtime::new(config.floor),
            band: Band::Fair,
            contexts: 0,
            lent: 0,
            quantum: config.quantum,
            id: config.cpu,
            slots: Vec::new(),
            vacant: None,
            capacity: 0,
            occupied: 0,
            waits: SeatHeap::new(),
            current: None,
            direct: None,
            held: 0,
            since: Nanos::ZERO,
            slice_end: Nanos::MAX,
            resched_wanted: false,
            idle_total: Nanos::ZERO,
            charged_total: Nanos::ZERO,
            telemetry: Telemetry::default(),
            window: None,
        }
    }

    /// Sets seats for `threads` threads aside: the number of threads that may ever be here at once, which with
    /// stealing is all there are. The only method that allocates.
    pub fn reserve(&mut self, threads: usize) -> Result<(), NoRoom> {
        if threads >= u32::MAX as usize {
            return Err(NoRoom);
        }
        self.slots.try_reserve_exact(threads.saturating_sub(self.slots.len()))?;
        self.fair.reserve(threads)?;
        self.waits.reserve(threads)?;
        self.realtime.reserve(threads)?;
        self.capacity = self.capacity.max(threads);
        Ok(())
    }

    /// How many seats have been set aside.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether there is a seat for one more thread to come, and room for what one more may owe when it leaves.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.occupied < self.capacity && !self.fair.is_full_of_debts()
    }

    /// Sets the weight of the thread at `seat`. It counts from the next time the thread is queued.
    pub fn set_weight(&mut self, seat: Seat, weight: Weight) -> Result<(), SeatError> {
        self.occupant_mut(seat)?.entity.weight = weight;
        Ok(())
    }

    /// Sets the latency class of the thread at `seat`. It counts from the next time the thread is queued.
    pub fn set_class(&mut self, seat: Seat, class: LatencyClass) -> Result<(), SeatError> {
        let quantum = self.quantum;
        let occupant = self.occupant_mut(seat)?;
        occupant.entity.class = class;
        occupant.request = occupant.entity.begin_request(quantum);
        Ok(())
    }

    fn occupant(&self, seat: Seat) -> Result<&Occupant, SeatError> {
        match self.slots.get(seat.slot as usize) {
            Some(Slot::Taken(occupant)) if occupant.entity.thread == seat.thread => Ok(occupant),
            _ => Err(SeatError::Stale),
        }
    }

    fn occupant_mut(&mut self, seat: Seat) -> Result<&mut Occupant, SeatError> {
        match self.slots.get_mut(seat.slot as usize) {
            Some(Slot::Taken(occupant)) if occupant.entity.thread == seat.thread => Ok(occupant),
            _ => Err(SeatError::Stale),
        }
    }

    /// See [`taken`].
    #[inline]
    fn at(&self, slot: u32) -> &Occupant {
        match &self.slots[slot as usize] {
            Slot::Taken(occupant) => occupant,
            Slot::Vacant { .. } => vacant(slot),
        }
    }

    #[inline]
    fn at_mut(&mut self, slot: u32) -> &mut Occupant {
        taken(&mut self.slots, slot)
    }

    fn seat_of(&self, slot: u32) -> Seat {
        Seat { slot, thread: self.at(slot).entity.thread }
    }

    /// The tags that `slot` would be queued with.
    fn tag_if_queued(&self, slot: u32) -> Tag {
        let occupant = self.at(slot);
        self.fair.tag(slot, occupant.request, occupant.entity.used, Nanos::ZERO)
    }

    /// Lets the fluid schedule run until `now`. A thread that runs while no other waits goes from request to
    /// request without a decision, and the clock must not fall behind its current request: the time that it gets
    /// then is taken from no other thread.
    #[inline]
    fn bring_clock_up(&mut self, now: Nanos) {
        if self.band == Band::Deadline {
            self.fair.skip(now);
        } else {
            self.bring_fair_clock_up(now);
        }
    }

    /// The same for a CPU that is best effort's.
    #[inline]
    fn bring_fair_clock_up(&mut self, now: Nanos) {
        self.fair.advance(now);
        if unlikely(!self.contended()) {
            self.keep_up_with_lone_runner(now);
        }
    }

    #[inline(never)]
    fn keep_up_with_lone_runner(&mut self, now: Nanos) {
        if let Some(slot) = self.current {
            let start = self.running_tag(slot, now - self.since).start;
            self.fair.catch_up(start);
        }
    }

    /// The tags of the request that the running `slot` is at, `ran` after it was last charged.
    fn running_tag(&self, slot: u32, ran: Nanos) -> Tag {
        let occupant = self.at(slot);
        self.fair.tag(slot, occupant.request, occupant.past_requests(occupant.entity.used + ran), ran)
    }

    /// Whether any thread here holds a context or has lent one. If none does, an occupant's authority is not looked at:
    /// it is beyond the cache lines that a decision needs.
    #[inline]
    fn has_authority(&self) -> bool {
        self.contexts != 0 || self.lent != 0
    }

    /// Whether `slot` neither holds a context nor has lent one.
    #[inline]
    fn is_best_effort(&self, slot: u32) -> bool {
        !self.has_authority() || matches!(self.at(slot).entity.authority, Authority::BestEffort)
    }

    /// Whether a best-effort thread waits for the CPU.
    #[inline]
    fn contended(&self) -> bool {
        self.fair.queued() != 0 || self.direct.is_some()
    }
}

#[cfg(test)]
mod tests;
