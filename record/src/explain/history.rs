//! What led to a moment, and what came of it: the states of one thread, who serves which call, and where contexts went.
//!
//! An onlooker of a replay. The thread's state is read from its core after each event of that core, so there is no second
//! model of the scheduler. A state that lasted no time is not one.

use super::spent::wait;
use crate::replay::Onlooker;
use mainspring_abi::{ContextRef, Nanos};
use mainspring_sched::flight::{Event, Outcome};
use mainspring_sched::{Cpu, Decision, Entity, Seat, State, Stop, Via, WaitKind};
use std::collections::HashMap;
use std::fmt;

/// States that are remembered. The last two that lasted are wanted; those of one instant may be in between.
const KEPT: usize = 8;

/// What a thread does from some time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// It has a CPU.
    Running,
    /// It waits for a CPU.
    Ready,
    /// It may not be chosen.
    Held,
    /// Its context is used up.
    Throttled,
    /// It waits for something else.
    Blocked(WaitKind),
    /// It does not live.
    Gone,
}

impl From<State> for Doing {
    fn from(state: State) -> Self {
        match state {
            State::Running => Self::Running,
            State::Queued | State::Direct => Self::Ready,
            State::Held => Self::Held,
            State::Throttled => Self::Throttled,
            State::Asleep(kind) => Self::Blocked(kind),
        }
    }
}

impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running => f.write_str("running"),
            Self::Ready => f.write_str("ready"),
            Self::Held => f.write_str("held"),
            Self::Throttled => f.write_str("throttled"),
            Self::Blocked(kind) => write!(f, "blocked ({})", wait(*kind)),
            Self::Gone => f.write_str("not alive"),
        }
    }
}

/// How a thread lost the context that it held last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It serves the call of the thread while this one waits.
    Lent(u32),
    /// It was taken away, or given back.
    Unbound,
}

/// Follows a replay.
#[derive(Debug)]
pub(super) struct History {
    thread: u32,
    seat: Option<(usize, Seat)>,
    /// It has left its CPU for another one, or for good, which the record does not tell apart.
    on_its_way: bool,
    /// From when on it did what, oldest first.
    states: Vec<(Nanos, Doing)>,
    /// By caller: the thread that was handed its request.
    servers: HashMap<u32, u32>,
    /// The context that the thread lost last, when and how; `None` while it has one.
    lost: Option<(ContextRef, Nanos, Loss)>,
    /// The context that it holds.
    holds: Option<ContextRef>,
    /// How often each context was bound, by whomever.
    bound: HashMap<ContextRef, u64>,
    under_way: UnderWay,
}

/// What the event under way is about.
#[derive(Debug, Default)]
struct UnderWay {
    /// The thread itself arrives.
    arrives: bool,
    /// The running thread ends.
    exits: bool,
    /// The running thread calls, or answers, that one.
    hands_off: Option<(u32, u32)>,
    /// The running thread stops otherwise than for a call.
    stops_without_call: Option<u32>,
    loses: Option<Loss>,
    gets: Option<ContextRef>,
}

impl History {
    pub(super) fn of(thread: u32) -> Self {
        Self {
            thread,
            seat: None,
            on_its_way: false,
            states: vec![(Nanos::ZERO, Doing::Gone)],
            servers: HashMap::new(),
            lost: None,
            holds: None,
            bound: HashMap::new(),
            under_way: UnderWay::default(),
        }
    }

    /// What the thread does now, and since when.
    pub(super) fn last(&self) -> (Nanos, Doing) {
        self.states[self.states.len() - 1]
    }

    /// What it does since after `at`; `None` if that has not changed, or may turn out to be a move to another CPU.
    pub(super) fn changed_after(&self, at: Nanos) -> Option<(Nanos, Doing)> {
        Some(self.last()).filter(|(since, _)| *since > at && !self.on_its_way)
    }

    /// What it did before that; `None` at the beginning of the run.
    pub(super) fn before_last(&self) -> Option<Doing> {
        self.states.len().checked_sub(2).map(|at| self.states[at].1)
    }

    /// The thread that serves the call of `caller`, if the call was handed to it at once.
    pub(super) fn server_of(&self, caller: u32) -> Option<u32> {
        self.servers.get(&caller).copied()
    }

    /// The context that the thread lost and has not got back.
    pub(super) fn lost(&self) -> Option<(ContextRef, Nanos, Loss)> {
        self.lost
    }

    /// How often `context` was bound up to now.
    pub(super) fn times_bound(&self, context: ContextRef) -> u64 {
        self.bound.get(&context).copied().unwrap_or(0)
    }

    fn enter(&mut self, now: Nanos, doing: Doing) {
        let (since, last) = self.last();
        if last == doing {
            return;
        }
        if since == now && self.states.len() > 1 {
            self.states.pop();
            // A thread that ran in between, if only for an instant, waits for something else now.
            if self.last().1 == doing && last != Doing::Running {
                return;
            }
        }
        if self.states.len() == KEPT {
            self.states.remove(0);
        }
        self.states.push((now, doing));
    }

    fn lose(&mut self, now: Nanos, how: Loss) {
        if let Some(context) = self.holds.take() {
            self.lost = Some((context, now, how));
        } else if let Some((_, when, was @ Loss::Lent(_))) = &mut self.lost {
            // What it had lent does not come back.
            (*when, *was) = (now, how);
        }
    }
}

impl Onlooker for History {
    fn before(&mut self, _: Nanos, cpu: &mut Cpu, event: &Event) {
        let running = cpu.current().map(|seat| seat.thread().index());
        let mine = |seat: &Seat| seat.thread().index() == self.thread;
        let mut under_way = UnderWay::default();
        match event {
            Event::Accept(entity, via) => {
                let arrives = entity.thread().index();
                under_way.arrives = arrives == self.thread;
                if under_way.arrives {
                    under_way.gets = entity.context().map(|context| context.who());
                }
                if *via == Via::HandOff {
                    under_way.hands_off = running.map(|running| (running, arrives));
                }
            }
            Event::HandOff(seat) => {
                under_way.hands_off = running.map(|running| (running, seat.thread().index()));
            }
            Event::Lend(seat, to) => {
                under_way.hands_off = Some((seat.thread().index(), to.index()));
                under_way.loses = mine(seat).then_some(Loss::Lent(to.index()));
            }
            Event::Resched(Stop::Blocked(WaitKind::Call, _)) | Event::BlockCurrent(WaitKind::Call, _) => {}
            Event::Resched(_) | Event::BlockCurrent(..) | Event::ExitCurrent => {
                under_way.stops_without_call = running;
                under_way.exits = matches!(event, Event::ExitCurrent);
            }
            Event::Bind(seat, context) => {
                under_way.gets = mine(seat).then(|| context.who());
                *self.bound.entry(context.who()).or_default() += 1;
            }
            Event::Unbind(seat) | Event::WriteOff(seat) => {
                under_way.loses = mine(seat).then_some(Loss::Unbound);
            }
            _ => {}
        }
        self.under_way = under_way;
    }

    fn after(&mut self, now: Nanos, cpu: &Cpu, outcome: Outcome, _: Option<Entity>) -> Result<(), String> {
        let under_way = std::mem::take(&mut self.under_way);
        if let Some(stopped) = under_way.stops_without_call {
            self.servers.remove(&stopped);
        }
        if let Some((caller, server)) = under_way.hands_off {
            self.servers.insert(caller, server);
        }
        if let Outcome::Decided(Decision::Run(run)) = outcome {
            // A thread that runs waits for no answer.
            self.servers.remove(&run.thread.index());
        }
        if let Some(how) = under_way.loses {
            self.lose(now, how);
        }
        if under_way.gets.is_some() {
            (self.holds, self.lost) = (under_way.gets, None);
        }
        let at = cpu.id().index();
        if let (true, Outcome::Seated(slot, _)) = (under_way.arrives, outcome) {
            self.seat = cpu.resident_from(slot).map(|(seat, _)| (at, seat));
            if std::mem::take(&mut self.on_its_way) {
                // It was alive between the two CPUs.
                self.states.pop();
            }
        }
        match self.seat {
            Some((home, seat)) if home == at => match cpu.state(seat) {
                Ok(state) => self.enter(now, state.into()),
                Err(_) => {
                    self.seat = None;
                    self.enter(now, Doing::Gone);
                    self.on_its_way = !under_way.exits;
                }
            },
            _ => {}
        }
        Ok(())
    }
}
