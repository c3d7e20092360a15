//! One step of a program.

use crate::{Distribution, Way};
use alloc::vec::Vec;
use mainspring_abi::request::{Request, propagate};
use mainspring_abi::ring::QosFlags;
use mainspring_abi::{Nanos, Weight};
use mainspring_random::{Random, Range};

/// A duration: fixed when both ends are equal, else seeded, uniform, both ends included, drawn at each use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The shortest.
    pub min: Nanos,
    /// The longest.
    pub max: Nanos,
}

impl From<Span> for Range {
    fn from(Span { min, max }: Span) -> Self {
        Self::new(min, max)
    }
}

/// One step of a program.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// `run 300us`, `run 1ms..4ms`: computes for that much CPU time.
    Run(Span),
    /// `run NAME`: computes for a duration of a distribution. Index into the workload's distributions.
    RunDrawn(usize),
    /// `sleep NAME`: the same for a sleep. Index into the workload's distributions.
    SleepDrawn(usize),
    /// `run forever`.
    RunForever,
    /// `sleep 16ms`.
    Sleep(Span),
    /// `every 20ms`: sleeps until the next multiple of the period since the thread's own start; counts a miss for
    /// each multiple that passed since the one it last waited for.
    Every(Nanos),
    /// `yield`.
    Yield,
    /// `park`, `park 5ms`: blocks until unparked, or until the timeout.
    Park {
        /// At most this long.
        timeout: Option<Span>,
    },
    /// `unpark NAME`: an unpark of a thread that is not parked is remembered, once.
    Unpark(ThreadTarget),
    /// `call NAME`, `call NAME 5ms needs 300us deadline 2ms drop`: sends a request to an endpoint and blocks for its
    /// reply, or until the timeout.
    Call(Call),
    /// `recv NAME`, `recv NAME 5ms`: takes a request from an endpoint, blocking for one.
    Recv {
        /// Index into the workload's endpoints.
        endpoint: usize,
        /// At most this long.
        timeout: Option<Span>,
    },
    /// `reply`: answers the request taken last.
    Reply,
    /// `throw`: answers the request taken last with an exception.
    Throw,
    /// `spawn NAME`: starts one instance of a thread table whose `start` is `"spawn"`.
    Spawn(usize),
    /// `join NAME`, `join NAME 5ms`: blocks until the named thread has ended; for a spawned table, until the
    /// instance that this thread spawned last has.
    Join {
        /// The threads that must end.
        target: ThreadTarget,
        /// At most this long.
        timeout: Option<Span>,
    },
    /// `weight 128`: sets its own weight.
    Weight(Weight),
    /// `exit`.
    Exit,
    /// `alloc 65536`: takes so many bytes of memory and keeps them. Only the Linux runtime can.
    Alloc(u64),
    /// `syscall`: asks the operating system for something. Only the Linux runtime can.
    Syscall,
    /// `bind NAME`: takes a context that no thread holds, in place of its own if it has one.
    Bind(ContextTarget),
    /// `unbind`: gives its context back and goes on as best effort.
    Unbind,
    /// `revoke NAME`: takes a context from its holder and ends it.
    Revoke(ContextTarget),
    /// `drain NAME`: reads and clears the notifications of a context.
    Drain(ContextTarget),
    /// `lease NAME`: asks for an isolation lease. Index into the workload's leases.
    Lease(usize),
    /// `release NAME`: gives a lease back. Index into the workload's leases.
    Release(usize),
    /// `submit RING 4`, `submit RING 4 deadline 2ms drop`: puts entries into a submission ring.
    Submit {
        /// Index into the workload's rings.
        ring: usize,
        /// How many entries, at least one.
        entries: u32,
        /// How long each stays fresh after its submission, at least a nanosecond.
        deadline: Option<Nanos>,
        /// What happens to an entry that is late.
        late: Lateness,
    },
    /// `complete RING 4`, `complete RING 4 timeout 5ms`: blocks until that many completions have been taken.
    Complete {
        /// Index into the workload's rings.
        ring: usize,
        /// How many completions, at least one.
        entries: u32,
        /// At most this long.
        timeout: Option<Span>,
    },
    /// `lock NAME`, `lock NAME 5ms`: takes a mutex, blocking for it.
    Lock {
        /// Index into the workload's objects of synchronisation.
        mutex: usize,
        /// At most this long.
        timeout: Option<Span>,
    },
    /// `unlock NAME`: gives a mutex back. Index into the workload's objects of synchronisation.
    Unlock(usize),
    /// `down NAME`, `down NAME 5ms`: takes one from a semaphore, blocking while there is none.
    Down {
        /// Index into the workload's objects of synchronisation.
        semaphore: usize,
        /// At most this long.
        timeout: Option<Span>,
    },
    /// `up NAME`: adds one to a semaphore. Index into the workload's objects of synchronisation.
    Up(usize),
    /// `barrier NAME`, `barrier NAME 5ms`: blocks until enough threads are there.
    Barrier {
        /// Index into the workload's objects of synchronisation.
        barrier: usize,
        /// At most this long.
        timeout: Option<Span>,
    },
    /// `wait CONDITION MUTEX`, `wait CONDITION MUTEX 5ms`: gives the mutex back, blocks for a signal, and takes the mutex again.
    Wait {
        /// Index into the workload's objects of synchronisation.
        condition: usize,
        /// Index into the workload's objects of synchronisation.
        mutex: usize,
        /// For the signal at most this long; then the mutex is taken again all the same.
        timeout: Option<Span>,
    },
    /// `signal CONDITION`: ends the wait of the thread that has waited longest. Index into the workload's objects of synchronisation.
    Signal(usize),
    /// `broadcast CONDITION`: ends all waits there. Index into the workload's objects of synchronisation.
    Broadcast(usize),
    /// `repeat 10`: the steps up to its `end`, so many times.
    Repeat {
        /// At least once.
        times: u64,
        /// Index of its `end`.
        end: usize,
    },
    /// `for 200ms`: the steps up to its `end`, again and again until the time has passed; a round that has begun is finished.
    For {
        /// How long.
        span: Span,
        /// Index of its `end`.
        end: usize,
    },
    /// `either 70%`: one of several ways, by chance. What is left of the hundred goes on behind the `end`.
    Either {
        /// The ways, in the order of the file.
        ways: Vec<Way>,
        /// Index of its `end`.
        end: usize,
    },
    /// `or 20%`, `or`: where another way begins, and the one before is over.
    Or {
        /// Index of the `end`.
        end: usize,
    },
    /// `end`: the end of a phase or a choice.
    End {
        /// Index of the first step of another round of its phase; `None` for a choice.
        first: Option<usize>,
    },
    /// `poll RING`: serves one batch of a ring's submissions, spinning and then sleeping while there are none.
    Poll(usize),
}

impl Step {
    /// What a thread draws when it comes to the step: how long it takes, or how long it waits at most. No step draws more than
    /// one amount.
    #[must_use]
    pub fn amount(&self) -> Option<Drawn> {
        match *self {
            Self::Run(span) | Self::Sleep(span) => Some(Drawn::Span(span)),
            Self::RunDrawn(distribution) | Self::SleepDrawn(distribution) => {
                Some(Drawn::Distribution(distribution))
            }
            Self::Park { timeout }
            | Self::Call(Call { timeout, .. })
            | Self::Recv { timeout, .. }
            | Self::Join { timeout, .. }
            | Self::Complete { timeout, .. }
            | Self::Lock { timeout, .. }
            | Self::Down { timeout, .. }
            | Self::Barrier { timeout, .. }
            | Self::Wait { timeout, .. } => timeout.map(Drawn::Span),
            Self::Repeat { .. }
            | Self::For { .. }
            | Self::Either { .. }
            | Self::Or { .. }
            | Self::End { .. }
            | Self::RunForever
            | Self::Every(_)
            | Self::Yield
            | Self::Unpark(_)
            | Self::Reply
            | Self::Throw
            | Self::Spawn(_)
            | Self::Weight(_)
            | Self::Exit
            | Self::Alloc(_)
            | Self::Syscall
            | Self::Bind(_)
            | Self::Unbind
            | Self::Revoke(_)
            | Self::Drain(_)
            | Self::Lease(_)
            | Self::Release(_)
            | Self::Submit { .. }
            | Self::Unlock(_)
            | Self::Up(_)
            | Self::Signal(_)
            | Self::Broadcast(_)
            | Self::Poll(_) => None,
        }
    }

    /// The mutexes, semaphores, barriers and conditions that it names, as indices.
    #[must_use]
    pub fn sync_objects(&self) -> [Option<usize>; 2] {
        match *self {
            Self::Lock { mutex: object, .. }
            | Self::Unlock(object)
            | Self::Down { semaphore: object, .. }
            | Self::Up(object)
            | Self::Barrier { barrier: object, .. }
            | Self::Signal(object)
            | Self::Broadcast(object) => [Some(object), None],
            Self::Wait { condition, mutex, .. } => [Some(condition), Some(mutex)],
            _ => [None, None],
        }
    }

    /// Whether it only says which step is the next: see [`Phases`](crate::Phases).
    #[must_use]
    pub fn directs(&self) -> bool {
        matches!(
            self,
            Self::Repeat { .. } | Self::For { .. } | Self::Either { .. } | Self::Or { .. } | Self::End { .. }
        )
    }

    /// The word that it begins with.
    #[must_use]
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Run(_) | Self::RunForever => "run",
            Self::RunDrawn(_) => "run DISTRIBUTION",
            Self::SleepDrawn(_) => "sleep DISTRIBUTION",
            Self::Sleep(_) => "sleep",
            Self::Every(_) => "every",
            Self::Yield => "yield",
            Self::Park { .. } => "park",
            Self::Unpark(_) => "unpark",
            Self::Call(_) => "call",
            Self::Recv { .. } => "recv",
            Self::Reply => "reply",
            Self::Throw => "throw",
            Self::Spawn(_) => "spawn",
            Self::Join { .. } => "join",
            Self::Weight(_) => "weight",
            Self::Exit => "exit",
            Self::Alloc(_) => "alloc",
            Self::Syscall => "syscall",
            Self::Bind(_) => "bind",
            Self::Unbind => "unbind",
            Self::Revoke(_) => "revoke",
            Self::Drain(_) => "drain",
            Self::Lease(_) => "lease",
            Self::Release(_) => "release",
            Self::Submit { .. } => "submit",
            Self::Complete { .. } => "complete",
            Self::Poll(_) => "poll",
            Self::Lock { .. } => "lock",
            Self::Unlock(_) => "unlock",
            Self::Down { .. } => "down",
            Self::Up(_) => "up",
            Self::Barrier { .. } => "barrier",
            Self::Wait { .. } => "wait",
            Self::Signal(_) => "signal",
            Self::Broadcast(_) => "broadcast",
            Self::Repeat { .. } => "repeat",
            Self::For { .. } => "for",
            Self::Either { .. } => "either",
            Self::Or { .. } => "or",
            Self::End { .. } => "end",
        }
    }
}

/// A request, as its caller sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Index into the workload's endpoints.
    pub endpoint: usize,
    /// At most this long.
    pub timeout: Option<Span>,
    /// The least budget that the caller's context must have left, else the call is refused.
    pub needs: Option<Nanos>,
    /// How long the request stays fresh after the call, at least a nanosecond.
    pub deadline: Option<Nanos>,
    /// What happens to a request that is late.
    pub late: Lateness,
}

impl Call {
    /// A call that asks for nothing but an answer.
    #[must_use]
    pub fn plain(endpoint: usize, timeout: Option<Span>) -> Self {
        Self { endpoint, timeout, needs: None, deadline: None, late: Lateness::default() }
    }

    /// What the call says of its timing if it is made `now`, by a thread that serves a request with the timing `served`. It is fresh
    /// until its own deadline, or until the deadline of the request that is served, if that comes first. A call with a deadline
    /// takes only paths that are made for deadlines.
    #[must_use]
    pub fn timing(&self, now: Nanos, served: Option<&Request>) -> Request {
        let own = self.deadline.map(|deadline| (now + deadline).get());
        let inherited =
            served.map(|served| propagate(served).deadline_ns).filter(|inherited| *inherited != 0);
        let deadline_ns = own.into_iter().chain(inherited).min().unwrap_or(0);
        let order = QosFlags::DEADLINE_ORDERED.with(QosFlags::REORDERABLE);
        let qos = self.late.flag().with(QosFlags::PROPAGATE_DEADLINE).with(order);
        let qos = if deadline_ns == 0 { qos } else { qos.with(QosFlags::NO_BLOCKING_PATH) };
        Request { deadline_ns, qos, after_previous: false }
    }
}

/// What happens to a request whose deadline has passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lateness {
    /// It is served, and counts as late.
    #[default]
    Allow,
    /// If it has not been started, it is answered as dropped and never served.
    Drop,
}

impl Lateness {
    /// How a request says so.
    #[must_use]
    pub fn flag(self) -> QosFlags {
        match self {
            Self::Allow => QosFlags::ALLOW_LATE,
            Self::Drop => QosFlags::DROP_IF_LATE,
        }
    }
}

/// A thread that a step names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadTarget {
    /// Index into the workload's threads.
    pub thread: usize,
    /// Which instance (`batch.3`); `None` for all of the table's (`batch`).
    pub instance: Option<u32>,
}

/// Contexts that a step or table names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextTarget {
    /// Index into the workload's contexts.
    pub context: usize,
    /// Which instance (`audio.3`). `None` means all of the table's, which is the one if the table has no `count`; a
    /// `bind` or `drain` without an instance means the one with the number of the thread that does it.
    pub instance: Option<u32>,
}

/// A duration that is drawn at each use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drawn {
    /// Uniform, or fixed.
    Span(Span),
    /// Index into the workload's distributions.
    Distribution(usize),
}

impl Drawn {
    /// A duration. `distribution` finds one by its index.
    pub fn draw<'d>(
        self,
        random: &mut Random,
        distribution: impl FnOnce(usize) -> &'d Distribution,
    ) -> Nanos {
        match self {
            Self::Span(span) => random.draw(span),
            Self::Distribution(number) => distribution(number).draw(random),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_fresh_until_its_own_deadline_or_that_of_the_request_it_serves() {
        let now = Nanos::from_millis(10);
        let call = |deadline| Call { deadline, late: Lateness::Drop, ..Call::plain(0, None) };
        let plain = call(None).timing(now, None);
        assert_eq!((plain.deadline_ns, plain.dropped_at()), (0, None));
        assert!(!plain.qos.has(QosFlags::NO_BLOCKING_PATH), "without a deadline it may take any path");
        let own = call(Some(Nanos::from_millis(5))).timing(now, None);
        assert_eq!(own.dropped_at(), Some(Nanos::from_millis(15)));
        assert!(own.qos.has(QosFlags::NO_BLOCKING_PATH));
        let due = |call: Call, served: &Request| call.timing(now, Some(served)).deadline_ns;
        assert_eq!(due(call(None), &own), own.deadline_ns, "it inherits the deadline");
        assert_eq!(due(call(Some(Nanos::from_millis(1))), &own), Nanos::from_millis(11).get());
        assert_eq!(
            due(call(Some(Nanos::from_millis(9))), &own),
            own.deadline_ns,
            "which may be the earlier one"
        );
        assert_eq!(due(call(None), &plain), 0, "there is none to inherit");
        let late = Call { late: Lateness::Allow, ..call(Some(Nanos::from_millis(5))) };
        assert_eq!(late.timing(now, None).dropped_at(), None, "it may be late");
    }
}
