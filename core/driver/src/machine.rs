//! What a machine gives the driver: its CPUs, where its threads are, and a way to tell a CPU something.
//!
//! Conserved:
//! * No operation of the driver holds two CPUs at once. So a lock per CPU is enough, in any order.
//! * A thread leaves one CPU before it enters the next. In between it is ready and belongs to the operation that moves it.
//! * A thread's home changes only while its new CPU is held, together with the seat. So a home that was read names a seat that
//!   the thread has, or has left since.
//! * A CPU is marked as told only if it will look at its core after that. [`Notified::Failed`] leaves it untold.

use crate::observer::Observer;
use crate::recorded_cpu::{CpuCore, RecordedCpu};
use crate::steal::choose_victim;
use alloc::boxed::Box;
use mainspring_abi::{CpuId, Nanos, ThreadRef};
use mainspring_sched::context::{Context, Notices};
use mainspring_sched::{
    Affinity, Authority, Cpu, Entity, NotBound, Offer, Overran, Refused, Removed, Seat, State, Via, WaitKind,
    WaitPermit, Woken,
};

/// A CPU, and a thread's seat there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Home {
    /// The CPU.
    pub cpu: CpuId,
    /// The seat on that CPU.
    pub seat: Seat,
}

/// Which CPU a thread or a context left, and when. It arrives at the next one later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Left {
    /// The CPU, if that is known.
    pub cpu: Option<CpuId>,
    /// The time.
    pub at: Nanos,
}

/// What became of a notification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a CPU that was not notified sleeps on: try the next one"]
pub enum Notified {
    /// The CPU will look at its core because of this notification.
    Sent,
    /// An earlier notification is on its way. The CPU will look, but it may find other work first.
    Pending,
    /// The CPU could not be notified and is not marked as told.
    Failed,
}

/// The threads of a machine, as far as a locked CPU changes them.
pub trait Threads {
    /// `thread` sits at `home` from now on, or nowhere because it has ended. The CPU of `home` is held.
    fn set_home(&mut self, thread: ThreadRef, home: Option<Home>);
}

/// A machine with several CPUs.
///
/// The methods without a body are what a machine has to have. The others are for what some machines add.
pub trait Machine: Sized {
    /// Looks on at the CPUs.
    type Observer: Observer;
    /// Knows where threads sit.
    type Threads: Threads;

    /// How much later than it left a thread arrives at the earliest. A machine with a record for each CPU needs at least one
    /// nanosecond, so that the records can be joined by time. A machine with one record for all its CPUs needs nothing.
    const ARRIVAL_DELAY: Nanos = Nanos::new(1);

    /// Exclusive access to one CPU, at the present time. `act` must not ask for another CPU.
    fn with_cpu<R>(&mut self, cpu: CpuId, act: impl FnOnce(&mut CpuAccess<'_, Self>) -> R) -> R;

    /// How many CPUs there are. They are numbered from 0.
    fn cpus(&self) -> usize;

    /// The CPU on which this code runs, if it will look at its own core before it runs a thread again. It need not be told.
    fn this_cpu(&self) -> Option<CpuId>;

    /// Asks `cpu` to look at its core.
    fn notify_cpu(&mut self, cpu: CpuId) -> Notified;

    /// Whether any CPU idles that [`Machine::next_idle_cpu`] would name.
    fn any_cpu_idles(&self) -> bool;

    /// The lowest CPU from `from` upwards that idles and takes threads of others: not one that is leased.
    fn next_idle_cpu(&self, from: CpuId) -> Option<CpuId>;

    /// Where `thread` sits. While it moves this is the seat that it left. `None` if it has not started or has ended, also if another
    /// thread has its number by now.
    fn home(&self, thread: ThreadRef) -> Option<Home>;

    /// What `cpu` has to give, as it was after its last event.
    fn offer(&self, cpu: CpuId) -> Offer;

    /// The weight of the threads that [`place`](crate::placement::place) has sent to `cpu` so far.
    fn placed_weight(&self, cpu: CpuId) -> u64;

    /// [`place`](crate::placement::place) sends a thread of this weight to `cpu`.
    fn add_placed_weight(&mut self, cpu: CpuId, weight: u64);

    /// The wait of `thread` is over. The permit of a timed wait goes back to its quota.
    fn wait_ended(&mut self, thread: ThreadRef, permit: Option<WaitPermit>);

    /// The thread at `home` became ready, and CPUs are considered for it from now on. For machines that count such searches.
    #[inline(always)]
    fn search_begins(&mut self, home: Home) {
        let _ = home;
    }

    /// `thread` has arrived on another CPU than the one it left.
    fn thread_moved(&mut self, thread: ThreadRef) {
        let _ = thread;
    }

    /// A thread is about to enter or to leave `cpu`. A machine that has not reserved a seat for every thread on every CPU makes
    /// room here, and says whether there is any.
    fn make_room(&mut self, cpu: CpuId) -> bool {
        let _ = cpu;
        true
    }

    /// A thread was queued on `cpu`, another CPU than this one, and `cpu` was not told. Its running thread has a competitor now,
    /// so a timer that was set without one may be set too late.
    fn rearm_timer(&mut self, cpu: CpuId) {
        let _ = cpu;
    }

    /// Whether no lease keeps `thread` away from `cpu`. Only a hint: a lease may begin at any time.
    fn may_enter(&self, thread: ThreadRef, cpu: CpuId) -> bool {
        let _ = (thread, cpu);
        true
    }

    /// The wait of `thread` is over. A lease may want it to wake on another CPU than its home: if so, carries it there and says
    /// so.
    fn wakes_elsewhere(&mut self, thread: ThreadRef) -> bool {
        let _ = thread;
        false
    }

    /// `thread` has woken on its home because its wait timed out. A lease may not want it there: if so, carries it on and says so.
    fn moves_on(&mut self, thread: ThreadRef) -> bool {
        let _ = thread;
        false
    }

    /// What `thread` waited for has not come in time. The wait is over on its CPU, and the machine is asked for nothing else about
    /// it yet.
    #[inline(always)]
    fn timed_out(&mut self, thread: ThreadRef, kind: WaitKind) {
        let _ = (thread, kind);
    }

    /// The call that `thread` waited for has timed out while it is served on the thread's own context. The context comes back, and
    /// then the thread is woken. For machines with contexts.
    fn call_timed_out(&mut self, thread: ThreadRef) {
        let _ = thread;
    }

    /// The CPU with the least placed weight of all that are not leased, if the machine keeps account of it. Only faster than
    /// looking at them all.
    fn least_placed_cpu(&self) -> Option<CpuId> {
        None
    }

    /// The CPU that `thief` should steal from: by [`choose_victim`], unless the machine comes to the same answer faster.
    fn choose_victim(&mut self, thief: CpuId) -> Option<CpuId> {
        choose_victim(self, thief)
    }
}

/// One CPU, held, at the present time.
#[derive(Debug)]
pub struct CpuAccess<'a, M: Machine> {
    core: &'a mut CpuCore,
    now: Nanos,
    observer: &'a mut M::Observer,
    threads: &'a mut M::Threads,
}

impl<'a, M: Machine> CpuAccess<'a, M> {
    /// For a machine that holds `core`.
    #[inline(always)]
    pub fn new(
        core: &'a mut CpuCore,
        now: Nanos,
        observer: &'a mut M::Observer,
        threads: &'a mut M::Threads,
    ) -> Self {
        Self { core, now, observer, threads }
    }

    /// The CPU, to look at.
    #[inline(always)]
    #[must_use]
    pub fn cpu(&self) -> &Cpu {
        self.core
    }

    /// The present time, or the time of the last event here if that is later.
    #[inline(always)]
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now.max(self.core.last())
    }

    /// One event, at the present time. Threads come and go by the methods below, which keep their homes.
    #[inline(always)]
    pub fn event(&mut self) -> RecordedCpu<'_, M::Observer> {
        self.core.at(self.now, self.observer)
    }

    /// Whether the thread at `seat` sits here and waits.
    #[inline(always)]
    #[must_use]
    pub fn is_asleep(&self, seat: Seat) -> bool {
        matches!(self.core.state(seat), Ok(State::Asleep(_)))
    }

    /// Where the queued thread at `seat` may be taken to. `None` if it sits here no longer, is not queued, or holds a context,
    /// which binds it to this CPU.
    #[must_use]
    pub fn reach(&self, seat: Seat) -> Option<Affinity> {
        let entity = self.core.entity(seat).ok()?;
        let movable =
            self.core.state(seat) == Ok(State::Queued) && *entity.authority() == Authority::BestEffort;
        movable.then(|| entity.affinity().clone())
    }

    /// Whether the thread at `seat` may be taken to `to`: its affinity allows that, and no context binds it here.
    #[must_use]
    pub fn is_movable(&self, seat: Seat, to: CpuId) -> bool {
        let moves =
            |entity: &Entity| *entity.authority() == Authority::BestEffort && entity.affinity().allows(to);
        self.core.entity(seat).is_ok_and(moves)
    }

    /// A thread comes here and is ready. It is new, or it has `left` another CPU.
    #[expect(clippy::result_large_err, reason = "a refusal gives the thread back, by value")]
    pub fn accept(&mut self, entity: Entity, via: Via, left: Option<Left>) -> Result<(Home, Woken), Refused> {
        if let Some(left) = left {
            self.now = self.now.max(left.at + M::ARRIVAL_DELAY);
        }
        let thread = entity.thread();
        let (seat, woken) = self.event().accept(entity, via)?;
        let home = Home { cpu: self.core.id(), seat };
        self.threads.set_home(thread, Some(home));
        Ok((home, woken))
    }

    /// The thread at `seat`, which does not run, leaves. `None` if it runs or sits here no longer: then nothing happens, not
    /// even an event.
    pub fn remove(&mut self, seat: Seat) -> Option<(Removed, Left)> {
        let removed = self.take_out(seat)?;
        Some((removed, self.departure()))
    }

    fn take_out(&mut self, seat: Seat) -> Option<Removed> {
        match self.core.state(seat) {
            Ok(State::Running) | Err(_) => None,
            Ok(_) => self.event().remove(seat).ok(),
        }
    }

    /// The most overdue thread that `thief` may run leaves.
    pub fn give(&mut self, thief: CpuId) -> Option<(Entity, Left)> {
        let entity = self.event().give(thief)?;
        Some((entity, self.departure()))
    }

    /// The thread at `seat` gets a context, which may have `left` another CPU; whether this CPU should reschedule.
    pub fn bind(&mut self, seat: Seat, context: Box<Context>, left: Option<Left>) -> Result<bool, NotBound> {
        if let Some(left) = left.filter(|left| left.cpu != Some(self.core.id())) {
            self.now = self.now.max(left.at + M::ARRIVAL_DELAY);
        }
        self.event().bind(seat, context)
    }

    /// What overran at the last event here. Ask after each event that stops a thread or moves a context.
    pub fn take_overrun(&mut self) -> Option<Overran> {
        self.core.take_overrun()
    }

    /// The notices of the context that the thread at `seat` holds. No decision depends on them.
    pub fn notices_mut(&mut self, seat: Seat) -> Option<&mut Notices> {
        self.core.notices_mut(seat)
    }

    fn departure(&self) -> Left {
        Left { cpu: Some(self.core.id()), at: self.core.last() }
    }

    /// The thread at `seat`, which does not run, ends, and sits nowhere. `None` if it runs or sits here no longer.
    pub fn end(&mut self, seat: Seat) -> Option<Removed> {
        let removed = self.take_out(seat)?;
        self.threads.set_home(removed.entity.thread(), None);
        Some(removed)
    }

    /// The running thread ends, and sits nowhere.
    pub fn exit_current(&mut self) -> Option<Entity> {
        let entity = self.event().exit_current()?;
        self.threads.set_home(entity.thread(), None);
        Some(entity)
    }
}
