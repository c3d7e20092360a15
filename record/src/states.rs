//! What each thread did while it did not run, followed event by event.
//!
//! The state of a thread is read from its core after each event that can have changed it: the event's own thread, the one
//! that stopped, the one that begins, and those of the CPU that wait for a refill. So it needs no second model of the
//! scheduler, and it is the same for a live run, which a [`Watch`] sees, and for a record that is replayed.
//!
//! Conserved: from its arrival to its end, each instant of a thread is in exactly one interval, one in which it ran or one
//! that is listed here. Where two CPUs read two clocks, an instant between them may be in none.

use crate::watch::Watch;
use mainspring_abi::{Nanos, ThreadRef};
use mainspring_report::{StateEntry, States, ThreadState};
use mainspring_sched::flight::{EventRef, Outcome};
use mainspring_sched::{Cpu, Decision, Seat, State, Via, WaitKind};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Follows the states of all threads.
#[derive(Debug, Default)]
pub struct StateKeeper {
    /// By thread index, which a record may choose as it likes.
    lives: HashMap<u32, Life>,
    /// Threads that wait for a refill, by CPU.
    throttled: Vec<Vec<Seat>>,
    under_way: UnderWay,
    entries: Vec<StateEntry>,
}

/// The present life of a thread.
#[derive(Clone, Copy, Debug, Default)]
struct Life {
    thread: Option<ThreadRef>,
    /// Why it does not run; `None` if it does.
    state: Option<ThreadState>,
    since: Nanos,
    cpu: u32,
    /// It has left its CPU and not arrived at another.
    left: Option<Nanos>,
    /// The thread that is about to end its wait.
    waker: Option<u32>,
}

/// The threads that the event under way is about.
#[derive(Clone, Copy, Debug, Default)]
struct UnderWay {
    stopped: Option<Seat>,
    named: Option<Seat>,
    arrives: Option<ThreadRef>,
    /// The running thread ends the wait of the other one.
    hands_off: bool,
    /// A thread leaves for good or for another CPU.
    leaves: bool,
}

impl StateKeeper {
    /// The wait of `thread` is about to be ended by the thread `by`.
    pub fn woken_by(&mut self, thread: u32, by: u32) {
        self.life(thread).waker = Some(by);
    }

    /// `event` is about to be given to `cpu`.
    pub fn before(&mut self, cpu: &Cpu, event: EventRef<'_>) {
        let mut under_way = UnderWay { stopped: cpu.current(), ..UnderWay::default() };
        match event {
            EventRef::Accept(entity, via) => {
                under_way.arrives = Some(entity.thread());
                under_way.hands_off = via == Via::HandOff;
            }
            EventRef::HandOff(seat) => {
                under_way.named = Some(seat);
                under_way.hands_off = true;
            }
            EventRef::Remove(seat) => {
                under_way.named = Some(seat);
                under_way.leaves = true;
            }
            EventRef::Wake(seat)
            | EventRef::Hold(seat)
            | EventRef::Release(seat)
            | EventRef::Bind(seat, _)
            | EventRef::Unbind(seat)
            | EventRef::Lend(seat, _)
            | EventRef::WriteOff(seat) => under_way.named = Some(seat),
            EventRef::ExitCurrent | EventRef::Give(_) => under_way.leaves = true,
            _ => {}
        }
        self.under_way = under_way;
    }

    /// `cpu` answered with `outcome`.
    pub fn after(&mut self, now: Nanos, cpu: &Cpu, outcome: Outcome) {
        let UnderWay { stopped, named, arrives, hands_off, leaves } = std::mem::take(&mut self.under_way);
        if let (Outcome::Left(Some((thread, _))), true) = (outcome, leaves) {
            let exits = stopped.is_some_and(|seat| seat.thread() == thread);
            self.leave(now, cpu, thread, exits);
        }
        if let (Outcome::Seated(slot, _), Some(thread)) = (outcome, arrives) {
            self.arrive(now, thread);
            if let (true, Some(by)) = (hands_off, stopped) {
                self.life(thread.index()).waker = Some(by.thread().index());
            }
            if let Some((seat, _)) = cpu.resident_from(slot) {
                self.look_at(now, cpu, seat);
            }
        }
        if let (true, Some(seat), Some(by)) = (hands_off, named, stopped) {
            self.life(seat.thread().index()).waker = Some(by.thread().index());
        }
        let begins = match outcome {
            Outcome::Decided(Decision::Run(run)) => Some(run.seat),
            Outcome::Expired(Some((seat, _)), _) => Some(seat),
            _ => None,
        };
        for seat in [stopped, named, begins].into_iter().flatten() {
            self.look_at(now, cpu, seat);
        }
        self.look_at_throttled(now, cpu);
    }

    /// Threads that wait for a refill are queued again by whatever event comes when it is due.
    fn look_at_throttled(&mut self, now: Nanos, cpu: &Cpu) {
        let at = cpu.id().index();
        let Some(list) = self.throttled.get_mut(at).filter(|list| !list.is_empty()) else { return };
        let waiting = std::mem::take(list);
        for seat in waiting {
            self.look_at(now, cpu, seat);
        }
    }

    fn life(&mut self, thread: u32) -> &mut Life {
        self.lives.entry(thread).or_default()
    }

    fn arrive(&mut self, now: Nanos, thread: ThreadRef) {
        let life = *self.life(thread.index());
        if life.thread != Some(thread) {
            // Another life: the one before had left for good.
            self.close(thread.index(), life.left.unwrap_or(now));
            *self.life(thread.index()) = Life { thread: Some(thread), since: now, ..Life::default() };
        }
        self.life(thread.index()).left = None;
    }

    fn leave(&mut self, now: Nanos, cpu: &Cpu, thread: ThreadRef, exits: bool) {
        let life = self.life(thread.index());
        // Its arrival elsewhere may come first, since two CPUs read two clocks.
        if life.thread != Some(thread) || life.cpu as usize != cpu.id().index() {
            return;
        }
        if exits {
            self.close(thread.index(), now);
            self.life(thread.index()).thread = None;
        } else {
            life.left = Some(now);
        }
    }

    /// Reads the state of the thread at `seat`, if it still sits there.
    fn look_at(&mut self, now: Nanos, cpu: &Cpu, seat: Seat) {
        let Ok(state) = cpu.state(seat) else { return };
        let state = match state {
            State::Running => None,
            State::Queued | State::Direct => Some(ThreadState::Ready),
            State::Held => Some(ThreadState::Held),
            State::Throttled => Some(ThreadState::Throttled),
            State::Asleep(kind) => Some(waiting_for(kind)),
        };
        let (thread, at) = (seat.thread(), cpu.id().index());
        if state == Some(ThreadState::Throttled) {
            if self.throttled.len() <= at {
                self.throttled.resize_with(at + 1, Vec::new);
            }
            if !self.throttled[at].contains(&seat) {
                self.throttled[at].push(seat);
            }
        }
        let life = self.life(thread.index());
        if life.thread == Some(thread) && life.state == state && life.cpu as usize == at {
            return;
        }
        self.close(thread.index(), now);
        let life = self.life(thread.index());
        *life = Life { thread: Some(thread), state, since: now, cpu: at as u32, ..*life };
    }

    /// The state under way of a thread ends.
    fn close(&mut self, thread: u32, now: Nanos) {
        let life = self.life(thread);
        let (state, waker) = (life.state.take(), life.waker.take());
        let Life { since, cpu, .. } = *life;
        if let Some(state) = state
            && since < now
        {
            let by = if state.is_blocked() { waker } else { None };
            let (start_ns, end_ns) = (since.get(), now.get());
            self.entries.push(StateEntry { thread, state, cpu, start_ns, end_ns, by });
        }
    }

    /// The run is over. Threads are renamed by their index; those that share a name become one.
    #[must_use]
    pub fn finish(mut self, end: Nanos, names: impl IntoIterator<Item = String>) -> States {
        let mut threads: Vec<u32> = self.lives.keys().copied().collect();
        threads.sort_unstable();
        for &thread in &threads {
            let life = *self.life(thread);
            if life.thread.is_some() {
                self.close(thread, life.left.unwrap_or(end));
            }
        }
        let (mut known, mut list, mut number_of) = (HashMap::new(), Vec::new(), HashMap::new());
        for (thread, name) in (0_u32..).zip(names) {
            let number = *known.entry(name).or_insert_with_key(|name: &String| {
                list.push(name.clone());
                list.len() as u32 - 1
            });
            number_of.insert(thread, number);
        }
        for thread in threads {
            number_of.entry(thread).or_insert_with(|| {
                list.push(format!("(thread {thread})"));
                list.len() as u32 - 1
            });
        }
        let mut entries = self.entries;
        for entry in &mut entries {
            entry.thread = number_of[&entry.thread];
            entry.by = entry.by.and_then(|by| number_of.get(&by).copied());
        }
        entries.sort_by_key(|entry| (entry.thread, entry.start_ns));
        States { names: list, entries }
    }
}

fn waiting_for(kind: WaitKind) -> ThreadState {
    match kind {
        WaitKind::Sleep => ThreadState::Sleep,
        WaitKind::Park => ThreadState::Park,
        WaitKind::Join => ThreadState::Join,
        WaitKind::Call => ThreadState::Call,
        WaitKind::Receive => ThreadState::Receive,
        WaitKind::Ring => ThreadState::Ring,
    }
}

/// A keeper that looks on at a live run, before another watcher if there is one. The keeper is shared with the machine,
/// which knows who ends which wait.
pub struct WithStates<'a> {
    keeper: Rc<RefCell<StateKeeper>>,
    other: Option<Box<dyn Watch + 'a>>,
}

impl<'a> WithStates<'a> {
    /// Shows every event to `keeper`, and to `other`.
    #[must_use]
    pub fn new(keeper: Rc<RefCell<StateKeeper>>, other: Option<Box<dyn Watch + 'a>>) -> Self {
        Self { keeper, other }
    }
}

impl Watch for WithStates<'_> {
    fn before(&mut self, now: Nanos, cpu: &Cpu, event: EventRef<'_>) {
        self.keeper.borrow_mut().before(cpu, event);
        if let Some(other) = &mut self.other {
            other.before(now, cpu, event);
        }
    }

    fn after(&mut self, now: Nanos, cpu: &Cpu, outcome: Outcome) -> Result<(), String> {
        self.keeper.borrow_mut().after(now, cpu, outcome);
        self.other.as_mut().map_or(Ok(()), |other| other.after(now, cpu, outcome))
    }

    fn end(&mut self, now: Nanos, cpus: &[&Cpu]) -> Result<(), (mainspring_abi::CpuId, String)> {
        self.other.as_mut().map_or(Ok(()), |other| other.end(now, cpus))
    }
}
