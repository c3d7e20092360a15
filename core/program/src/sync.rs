//! Mutexes, semaphores, barriers and conditions: threads that wait for each other.
//!
//! A mutex or a place of a semaphore is handed to the thread that has waited longest, before that thread is woken, so that nothing
//! can come in between. With donation, the threads that wait for a mutex add their weights to the weight of the thread that holds
//! it, and to the weight of the thread which that one waits for in turn.
//!
//! A machine takes a step with [`SyncObjects::step`]. If the step waits, the machine says whether the thread may wait, has the
//! thread wait until it is woken, and says so if time was over first.
//!
//! Conserved: a mutex has at most one owner, which lives; the value of a semaphore and the places taken sum to what it began with
//! and the `up`s; a thread is in the queue that its `Blocked` names and in no other.

use crate::Step;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use mainspring_abi::{Nanos, Weight};

/// How many owners a chain of donations goes through: more are in a circle.
const LONGEST_CHAIN: usize = 64;

/// What threads wait at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncKind {
    /// `[[mutex]]`: one thread at a time holds it; waiting ones get it in the order in which they came.
    Mutex {
        /// Whether the threads that wait add their weight to the weight of the thread that holds it. Default false.
        donation: bool,
    },
    /// `[[semaphore]]`.
    Semaphore {
        /// How many may pass before the first `up`. Default 1.
        value: u32,
    },
    /// `[[barrier]]`.
    Barrier {
        /// How many must have come before any goes on.
        parties: u32,
    },
    /// `[[condition]]`.
    Condition,
}

impl SyncKind {
    /// The name of its table.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Mutex { .. } => "mutex",
            Self::Semaphore { .. } => "semaphore",
            Self::Barrier { .. } => "barrier",
            Self::Condition => "condition",
        }
    }
}

/// What happened at an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncStats {
    /// How often a thread got what it came for.
    pub taken: u64,
    /// How often a thread had to wait.
    pub waits: u64,
    /// How often it waited in vain.
    pub timeouts: u64,
    /// How long all waited that were successful.
    pub waited_ns: u64,
    /// The longest of these waits.
    pub wait_max_ns: u64,
}

/// What the machine does for the objects.
pub trait SyncMachine {
    /// The time.
    fn now(&self) -> Nanos;
    /// Ends the wait of `thread`.
    fn wake(&mut self, thread: usize);
    /// The weight of `thread` at this moment; `None` if it has ended.
    fn weight_of(&self, thread: usize) -> Option<Weight>;
    /// Gives `thread` another weight.
    fn set_weight(&mut self, thread: usize, weight: Weight);
}

/// What a step came to, at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// The thread goes on.
    Through,
    /// The thread waits, if it may: [`SyncObjects::begin_wait`] or [`SyncObjects::refuse_wait`] follows.
    Waits,
    /// The step makes no sense now, and the thread goes on.
    Refused,
}

/// What is left for a thread that has waited in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenUp {
    /// It goes on.
    Over,
    /// It has given a mutex back for a signal: it takes its `wait` step once more, which waits for that mutex alone.
    TakesStepAgain,
}

/// A thread, the mutex that it waits for, and the owner of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MutexWait {
    /// The thread.
    pub waiter: usize,
    /// The mutex.
    pub mutex: usize,
    /// Its owner.
    pub owner: usize,
}

/// What a thread is blocked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blocked {
    /// At this object.
    At(usize),
    /// For a signal; then it needs the mutex.
    Signal { condition: usize, mutex: usize },
    /// For the mutex that it gave back for a signal which has come.
    Mutex(usize),
}

impl Blocked {
    /// The object in whose queue it is.
    fn queue(self) -> usize {
        let (Self::At(object) | Self::Mutex(object) | Self::Signal { condition: object, .. }) = self;
        object
    }
}

#[derive(Debug)]
struct Object {
    kind: SyncKind,
    owner: Option<usize>,
    value: u32,
    queue: VecDeque<usize>,
    stats: SyncStats,
}

impl Object {
    fn lends(&self) -> bool {
        matches!(self.kind, SyncKind::Mutex { donation: true })
    }
}

/// All that threads can wait at, and which thread does. Threads and objects have numbers from 0.
#[derive(Debug, Default)]
pub struct SyncObjects {
    objects: Vec<Object>,
    /// By thread, since when; empty if there are no objects.
    blocked: Vec<Option<(Blocked, Nanos)>>,
    /// By thread, the mutex that it has yet to get back after a wait for a signal.
    missing: Vec<Option<usize>>,
    /// By thread, its own weight while it is lent others'.
    own_weight: Vec<Option<Weight>>,
}

impl SyncObjects {
    /// Objects of these kinds, for so many threads.
    #[must_use]
    pub fn new(kinds: impl IntoIterator<Item = SyncKind>, threads: usize) -> Self {
        let object = |kind| Object {
            kind,
            owner: None,
            value: if let SyncKind::Semaphore { value } = kind { value } else { 0 },
            queue: VecDeque::new(),
            stats: SyncStats::default(),
        };
        let objects: Vec<Object> = kinds.into_iter().map(object).collect();
        let threads = if objects.is_empty() { 0 } else { threads };
        Self {
            objects,
            blocked: vec![None; threads],
            missing: vec![None; threads],
            own_weight: vec![None; threads],
        }
    }

    /// Whether there is no object at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Whether `thread` waits here: then only what it waits for may wake it.
    #[inline]
    #[must_use]
    pub fn is_waiting(&self, thread: usize) -> bool {
        self.blocked.get(thread).is_some_and(Option::is_some)
    }

    /// What happened at each object.
    pub fn stats(&self) -> impl Iterator<Item = SyncStats> {
        self.objects.iter().map(|object| object.stats)
    }

    /// Takes a step of `thread` at one of the objects. A step at none is refused.
    pub fn step(&mut self, thread: usize, step: &Step, machine: &mut impl SyncMachine) -> Came {
        match *step {
            Step::Lock { mutex, .. } => self.lock(thread, mutex, machine),
            Step::Unlock(mutex) if self.objects[mutex].owner == Some(thread) => {
                self.hand_mutex_on(mutex, machine);
                Came::Through
            }
            Step::Down { semaphore, .. } => {
                let object = &mut self.objects[semaphore];
                let Some(left) = object.value.checked_sub(1) else {
                    return self.enqueue(thread, Blocked::At(semaphore), machine);
                };
                object.value = left;
                object.stats.taken += 1;
                Came::Through
            }
            Step::Up(semaphore) => {
                match self.objects[semaphore].queue.pop_front() {
                    Some(next) => self.let_go(semaphore, next, machine),
                    None => {
                        let value = &mut self.objects[semaphore].value;
                        *value = value.saturating_add(1);
                    }
                }
                Came::Through
            }
            Step::Barrier { barrier, .. } => self.meet(thread, barrier, machine),
            Step::Wait { condition, mutex, .. } => match self.missing[thread].take() {
                Some(mutex) => self.lock(thread, mutex, machine),
                None if self.objects[mutex].owner == Some(thread) => {
                    self.enqueue(thread, Blocked::Signal { condition, mutex }, machine)
                }
                None => Came::Refused,
            },
            Step::Signal(condition) => {
                if let Some(next) = self.objects[condition].queue.pop_front() {
                    self.signalled(condition, next, machine);
                }
                Came::Through
            }
            Step::Broadcast(condition) => {
                while let Some(next) = self.objects[condition].queue.pop_front() {
                    self.signalled(condition, next, machine);
                }
                Came::Through
            }
            _ => Came::Refused,
        }
    }

    /// `thread`, whose step waits, may wait.
    pub fn begin_wait(&mut self, thread: usize, machine: &mut impl SyncMachine) {
        let Some((blocked, _)) = self.blocked[thread] else { return };
        self.objects[blocked.queue()].stats.waits += 1;
        match blocked {
            Blocked::At(object) | Blocked::Mutex(object) => self.lend_weight(object, machine),
            // The mutex is free for others once this one may wait.
            Blocked::Signal { mutex, .. } => self.hand_mutex_on(mutex, machine),
        }
    }

    /// `thread`, whose step waits, may not wait, and goes on without.
    pub fn refuse_wait(&mut self, thread: usize) {
        self.leave_queue(thread);
    }

    /// What `thread` waited for has not come in time. `None` if it came in the last moment.
    pub fn give_up(&mut self, thread: usize, machine: &mut impl SyncMachine) -> Option<GivenUp> {
        let blocked = self.leave_queue(thread)?;
        let (Blocked::At(object) | Blocked::Mutex(object) | Blocked::Signal { mutex: object, .. }) = blocked;
        self.objects[object].stats.timeouts += 1;
        self.lend_weight(object, machine);
        if matches!(blocked, Blocked::At(_)) {
            return Some(GivenUp::Over);
        }
        self.missing[thread] = Some(object);
        Some(GivenUp::TakesStepAgain)
    }

    /// `thread` has ended: it waits no more, and what it held goes on.
    pub fn end(&mut self, thread: usize, machine: &mut impl SyncMachine) {
        if self.is_empty() {
            return;
        }
        self.missing[thread] = None;
        if let Some(Blocked::At(object) | Blocked::Mutex(object)) = self.leave_queue(thread) {
            self.lend_weight(object, machine);
        }
        self.own_weight[thread] = None;
        for mutex in 0..self.objects.len() {
            if self.objects[mutex].owner == Some(thread) {
                self.hand_mutex_on(mutex, machine);
            }
        }
    }

    /// `thread` sets its own weight. Whether it is lent others' weights: then both count, and this one alone afterwards.
    pub fn set_own_weight(&mut self, thread: usize, weight: Weight, machine: &mut impl SyncMachine) -> bool {
        let Some(own) = self.own_weight.get_mut(thread).filter(|own| own.is_some()) else { return false };
        *own = Some(weight);
        self.weigh(thread, machine);
        true
    }

    /// Threads that wait for mutexes in a circle; each circle once.
    #[must_use]
    pub fn deadlocks(&self) -> Vec<Vec<MutexWait>> {
        let mut seen = vec![false; self.blocked.len()];
        let mut circles = Vec::new();
        for first in 0..self.blocked.len() {
            let mut chain: Vec<MutexWait> = Vec::new();
            let mut at = first;
            while let Some(wait) = self.mutex_wait(at).filter(|_| !seen[at]) {
                seen[at] = true;
                chain.push(wait);
                at = wait.owner;
            }
            if let Some(start) = chain.iter().position(|wait| wait.waiter == at) {
                circles.push(chain.split_off(start));
            }
        }
        circles
    }

    fn lock(&mut self, thread: usize, mutex: usize, machine: &impl SyncMachine) -> Came {
        let object = &mut self.objects[mutex];
        match object.owner {
            None => {
                object.owner = Some(thread);
                object.stats.taken += 1;
                Came::Through
            }
            // It would wait for itself.
            Some(owner) if owner == thread => Came::Refused,
            Some(_) => self.enqueue(thread, Blocked::At(mutex), machine),
        }
    }

    fn enqueue(&mut self, thread: usize, blocked: Blocked, machine: &impl SyncMachine) -> Came {
        self.objects[blocked.queue()].queue.push_back(thread);
        self.blocked[thread] = Some((blocked, machine.now()));
        Came::Waits
    }

    fn leave_queue(&mut self, thread: usize) -> Option<Blocked> {
        let (blocked, _) = self.blocked.get_mut(thread)?.take()?;
        self.objects[blocked.queue()].queue.retain(|other| *other != thread);
        Some(blocked)
    }

    fn meet(&mut self, thread: usize, barrier: usize, machine: &mut impl SyncMachine) -> Came {
        let SyncKind::Barrier { parties } = self.objects[barrier].kind else { return Came::Refused };
        if self.objects[barrier].queue.len() + 1 < parties as usize {
            return self.enqueue(thread, Blocked::At(barrier), machine);
        }
        while let Some(next) = self.objects[barrier].queue.pop_front() {
            self.let_go(barrier, next, machine);
        }
        self.objects[barrier].stats.taken += 1;
        Came::Through
    }

    /// The signal for `thread` has come: it needs its mutex, and goes on waiting for it if it must.
    fn signalled(&mut self, condition: usize, thread: usize, machine: &mut impl SyncMachine) {
        let Some((Blocked::Signal { mutex, .. }, since)) = self.blocked[thread] else { return };
        self.count_wait(condition, since, machine.now());
        if self.objects[mutex].owner.is_none() {
            self.objects[mutex].owner = Some(thread);
            self.let_go(mutex, thread, machine);
        } else {
            self.enqueue(thread, Blocked::Mutex(mutex), machine);
            self.objects[mutex].stats.waits += 1;
            self.lend_weight(mutex, machine);
        }
    }

    /// `mutex` goes to the thread that has waited longest, or is free.
    fn hand_mutex_on(&mut self, mutex: usize, machine: &mut impl SyncMachine) {
        let before = self.objects[mutex].owner.take();
        if let Some(next) = self.objects[mutex].queue.pop_front() {
            self.objects[mutex].owner = Some(next);
            self.let_go(mutex, next, machine);
        }
        if let Some(before) = before {
            self.weigh(before, machine);
        }
        self.lend_weight(mutex, machine);
    }

    /// `thread`, which is in no queue any more, has what it waited for at `object`.
    fn let_go(&mut self, object: usize, thread: usize, machine: &mut impl SyncMachine) {
        self.objects[object].stats.taken += 1;
        if let Some((_, since)) = self.blocked[thread].take() {
            self.count_wait(object, since, machine.now());
        }
        machine.wake(thread);
    }

    fn count_wait(&mut self, object: usize, since: Nanos, now: Nanos) {
        let waited = (now - since).get();
        let stats = &mut self.objects[object].stats;
        stats.waited_ns += waited;
        stats.wait_max_ns = stats.wait_max_ns.max(waited);
    }

    fn mutex_wait(&self, thread: usize) -> Option<MutexWait> {
        match self.blocked[thread]? {
            (Blocked::At(mutex) | Blocked::Mutex(mutex), _) => {
                self.objects[mutex].owner.map(|owner| MutexWait { waiter: thread, mutex, owner })
            }
            (Blocked::Signal { .. }, _) => None,
        }
    }

    /// The owner of `mutex` weighs what it is lent, and so do the threads that it waits for.
    fn lend_weight(&mut self, mutex: usize, machine: &mut impl SyncMachine) {
        let mut next = Some(mutex);
        for _ in 0..LONGEST_CHAIN {
            let Some(object) = next.map(|mutex| &self.objects[mutex]) else { return };
            let Some(owner) = object.owner.filter(|_| object.lends()) else { return };
            self.weigh(owner, machine);
            next = match self.blocked[owner] {
                Some((Blocked::At(other) | Blocked::Mutex(other), _)) => Some(other),
                _ => None,
            };
        }
    }

    /// Sets the weight of `thread`: its own, and the weights of all that wait for a mutex which it holds and which lends.
    fn weigh(&mut self, thread: usize, machine: &mut impl SyncMachine) {
        let held = self.objects.iter().filter(|object| object.lends() && object.owner == Some(thread));
        let waiting: Vec<usize> = held.flat_map(|object| object.queue.iter().copied()).collect();
        if waiting.is_empty() && self.own_weight[thread].is_none() {
            return;
        }
        let Some(present) = machine.weight_of(thread) else { return };
        let own = *self.own_weight[thread].get_or_insert(present);
        let lent = waiting.iter().filter_map(|other| machine.weight_of(*other));
        let total = u64::from(own.get()) + lent.map(|weight| u64::from(weight.get())).sum::<u64>();
        if waiting.is_empty() {
            self.own_weight[thread] = None;
        }
        if let Ok(weight) = Weight::new(total.min(u64::from(Weight::MAX.get())))
            && weight != present
        {
            machine.set_weight(thread, weight);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const THREADS: usize = 5;

    /// Threads that do one act at a time: each is woken, or it is not.
    struct Plain {
        now: u64,
        woken: [bool; THREADS],
        weight: [Weight; THREADS],
    }

    impl SyncMachine for Plain {
        fn now(&self) -> Nanos {
            Nanos::new(self.now)
        }

        fn wake(&mut self, thread: usize) {
            assert!(!self.woken[thread], "a wait ends once");
            self.woken[thread] = true;
        }

        fn weight_of(&self, thread: usize) -> Option<Weight> {
            Some(self.weight[thread])
        }

        fn set_weight(&mut self, thread: usize, weight: Weight) {
            self.weight[thread] = weight;
        }
    }

    /// Mutexes 0 and 1, of which the second lends; semaphore 2; barrier 3; condition 4.
    const KINDS: [SyncKind; 5] = [
        SyncKind::Mutex { donation: false },
        SyncKind::Mutex { donation: true },
        SyncKind::Semaphore { value: 2 },
        SyncKind::Barrier { parties: 3 },
        SyncKind::Condition,
    ];

    #[derive(Clone, Copy, Debug)]
    enum Act {
        Step(u8),
        GiveUp,
        End,
    }

    fn step(number: u8) -> Step {
        let (timeout, mutex) = (None, usize::from(number % 2));
        match number {
            0 | 1 => Step::Lock { mutex, timeout },
            2 | 3 => Step::Unlock(mutex),
            4 => Step::Down { semaphore: 2, timeout },
            5 => Step::Up(2),
            6 => Step::Barrier { barrier: 3, timeout },
            7 | 8 => Step::Wait { condition: 4, mutex, timeout },
            9 => Step::Signal(4),
            _ => Step::Broadcast(4),
        }
    }

    fn acts() -> impl Strategy<Value = Vec<(usize, Act)>> {
        let act = prop_oneof![
            8 => (0..11_u8).prop_map(Act::Step),
            2 => Just(Act::GiveUp),
            1 => Just(Act::End),
        ];
        proptest::collection::vec((0..THREADS, act), 0..200)
    }

    proptest! {
        #[test]
        fn owners_places_and_queues_are_what_the_steps_make_of_them(acts in acts()) {
            let mut sync = SyncObjects::new(KINDS, THREADS);
            let mut plain = Plain { now: 0, woken: [false; THREADS], weight: [Weight::DEFAULT; THREADS] };
            let mut waits = [false; THREADS];
            let (mut ups, mut again) = (0_u64, [const { None }; THREADS]);
            for (thread, act) in acts {
                plain.now += 1;
                match act {
                    Act::Step(number) if !waits[thread] => {
                        let step = again[thread].take().unwrap_or_else(|| step(number));
                        ups += u64::from(matches!(step, Step::Up(_)));
                        if sync.step(thread, &step, &mut plain) == Came::Waits {
                            waits[thread] = true;
                            sync.begin_wait(thread, &mut plain);
                            again[thread] = Some(step).filter(|step| matches!(step, Step::Wait { .. }));
                        }
                    }
                    Act::GiveUp if waits[thread] => {
                        let given_up = sync.give_up(thread, &mut plain);
                        waits[thread] = false;
                        if given_up != Some(GivenUp::TakesStepAgain) {
                            again[thread] = None;
                        }
                    }
                    Act::End => {
                        sync.end(thread, &mut plain);
                        (waits[thread], again[thread]) = (false, None);
                        // Another thread begins with its number.
                        plain.weight[thread] = Weight::DEFAULT;
                    }
                    Act::Step(_) | Act::GiveUp => {}
                }
                for thread in 0..THREADS {
                    if core::mem::take(&mut plain.woken[thread]) {
                        prop_assert!(waits[thread], "only a thread that waits is woken");
                        (waits[thread], again[thread]) = (false, None);
                    }
                    prop_assert_eq!(sync.is_waiting(thread), waits[thread]);
                    let queues = sync.objects.iter().filter(|object| object.queue.contains(&thread));
                    prop_assert_eq!(queues.count(), usize::from(waits[thread]), "one queue, or none");
                }
                for mutex in &sync.objects[..2] {
                    prop_assert!(mutex.owner.is_some() || mutex.queue.is_empty(), "a free mutex that a thread waits for");
                    prop_assert!(mutex.owner.is_none_or(|owner| !mutex.queue.contains(&owner)));
                }
                let semaphore = &sync.objects[2];
                prop_assert_eq!(u64::from(semaphore.value) + semaphore.stats.taken, 2 + ups);
                prop_assert!(semaphore.value == 0 || semaphore.queue.is_empty());
                prop_assert!(sync.objects[3].queue.len() < 3, "all have come");
                for thread in 0..THREADS {
                    let held = sync.objects.iter().filter(|object| object.lends() && object.owner == Some(thread));
                    let lent = held.flat_map(|object| &object.queue).count();
                    prop_assert!(lent > 0 || plain.weight[thread] == Weight::DEFAULT, "what nobody lends is given back");
                    prop_assert!(lent == 0 || plain.weight[thread] > Weight::DEFAULT);
                }
            }
        }
    }
}
