//! The ideal fluid CPU, exactly: all competitors are served at once, each in proportion to its weight.
//!
//! The rules, restated from the promises of the core and not from its code:
//!
//! * Virtual time passes at reference weight over load, where load is the weight of all competitors.
//! * A thread's position moves by its own service over its weight. Lag is the distance from position to clock, times
//!   weight.
//! * A thread that sleeps, ends or moves away with a debt competes until the clock has reached its position. At most
//!   eight such debtors retire per event at which time has passed; the rest do at the next. Debts of threads that
//!   have left are remembered for as many as there are seats; beyond that, the one that is even soonest is forgiven.
//! * A thread that sleeps, yields or changes weight with a credit loses it. A thread that arrives where no thread
//!   is awake loses it too.
//! * A debt is kept in nanoseconds, whatever the weight.
//!
//! While a context runs, the schedule stands still; a thread on a context is asleep in it.
//!
//! When the clock jumps, and to where, depends on which threads are queued: see [`super::fairness`].

use super::Number;

/// The weight at which virtual time passes as fast as real time.
const REFERENCE: u64 = 64;

/// How many debtors retire at one event.
const RETIRED_PER_EVENT: usize = 8;

/// How far a thread has been served.
#[derive(Clone, Debug)]
pub struct Standing<N> {
    /// On the scale of its CPU's clock.
    pub position: N,
    /// The weight it competes with.
    pub weight: u64,
    /// Whether it competes.
    pub competes: bool,
    /// Whether it is awake.
    pub awake: bool,
}

/// The fluid schedule of one CPU.
#[derive(Clone, Debug)]
pub struct Fluid<N> {
    /// Virtual time.
    pub clock: N,
    at: u64,
    /// The threads that sit there, by thread index.
    members: Vec<(u32, Standing<N>)>,
    /// Debts of threads that have left: when they are even, and their weight.
    departed: Vec<(N, u64)>,
    /// How many of those are remembered.
    room: usize,
    /// When the debts that were struck off last were even.
    struck: Vec<N>,
}

/// How far `service` nanoseconds move a thread of `weight`.
pub fn span<N: Number>(service: u64, weight: u64) -> N {
    N::whole(i128::from(service)).scaled(REFERENCE, weight)
}

impl<N: Number> Fluid<N> {
    /// No thread there, at time zero; there are `seats` seats.
    #[must_use]
    pub fn new(seats: usize) -> Self {
        Self {
            clock: N::whole(0),
            at: 0,
            members: Vec::new(),
            departed: Vec::new(),
            room: seats,
            struck: Vec::new(),
        }
    }

    /// Every thread there.
    pub fn members(&self) -> impl Iterator<Item = (u32, &Standing<N>)> {
        self.members.iter().map(|(index, standing)| (*index, standing))
    }

    /// The standing of thread number `index`.
    #[must_use]
    pub fn standing(&self, index: u32) -> &Standing<N> {
        let found = self.members.iter().find(|(member, _)| *member == index);
        found.map(|(_, standing)| standing).expect("the model says that it sits here")
    }

    fn standing_mut(&mut self, index: u32) -> &mut Standing<N> {
        let found = self.members.iter_mut().find(|(member, _)| *member == index);
        found.map(|(_, standing)| standing).expect("the model says that it sits here")
    }

    /// The weight of all competitors.
    #[must_use]
    pub fn load(&self) -> u64 {
        let here: u64 = self.members.iter().filter(|(_, one)| one.competes).map(|(_, one)| one.weight).sum();
        here + self.departed.iter().map(|(_, weight)| weight).sum::<u64>()
    }

    /// The positions of all threads that do not compete awake: they might be just about even.
    pub fn absent(&self) -> impl Iterator<Item = &N> {
        let asleep = self.members.iter().filter(|(_, one)| !one.awake).map(|(_, one)| &one.position);
        asleep.chain(self.departed.iter().map(|(even, _)| even)).chain(&self.struck)
    }

    /// The CPU was not best effort's until `now`.
    pub fn stand_still(&mut self, now: u64) {
        self.at = now;
    }

    /// Lets every thread be served until `now`; whether time has passed.
    pub fn advance(&mut self, now: u64) -> bool {
        if now == self.at {
            return false;
        }
        let mut service = N::whole(i128::from(now - self.at)).scaled(REFERENCE, 1);
        self.at = now;
        self.struck.clear();
        for _ in 0..RETIRED_PER_EVENT {
            let Some(even) = self.next_even() else { break };
            let needed = even.minus(&self.clock).max(N::whole(0)).scaled(self.load(), 1);
            if service < needed {
                break;
            }
            service = service.minus(&needed);
            self.clock = self.clock.clone().max(even.clone());
            self.retire(&even);
        }
        let load = self.load();
        if load > 0 {
            self.clock = self.clock.plus(&service.scaled(1, load));
        }
        true
    }

    /// When the next debt is even.
    fn next_even(&self) -> Option<N> {
        let debtors = self.members.iter().filter(|(_, one)| one.competes && !one.awake);
        debtors.map(|(_, one)| &one.position).chain(self.departed.iter().map(|(even, _)| even)).min().cloned()
    }

    /// One debtor that is even at `even` competes no longer.
    fn retire(&mut self, even: &N) {
        let debtor = |one: &Standing<N>| one.competes && !one.awake && one.position == *even;
        if let Some((_, one)) = self.members.iter_mut().find(|(_, one)| debtor(one)) {
            one.competes = false;
        } else {
            self.forgive(even);
        }
    }

    fn forgive(&mut self, even: &N) {
        if let Some(at) = self.departed.iter().position(|(one, _)| one == even) {
            let (even, _) = self.departed.remove(at);
            self.struck.push(even);
        }
    }

    /// What thread number `index` is owed if it has run for `ran` since it was last charged.
    #[must_use]
    pub fn lag(&self, index: u32, ran: u64) -> N {
        let standing = self.standing(index);
        let position = standing.position.plus(&span(ran, standing.weight));
        self.clock.minus(&position).scaled(standing.weight, REFERENCE)
    }

    fn position_of(&self, lag: &N, weight: u64) -> N {
        self.clock.minus(&lag.scaled(REFERENCE, weight))
    }

    /// Thread number `index` arrives with `lag` and is awake.
    pub fn join(&mut self, index: u32, lag: N, weight: u64) {
        let alone = !self.members.iter().any(|(_, one)| one.awake);
        let lag = if alone { lag.min(N::whole(0)) } else { lag };
        let position = self.position_of(&lag, weight);
        self.members.push((index, Standing { position, weight, competes: true, awake: true }));
    }

    /// Thread number `index` goes, with what it is owed or owes. A debt stays behind as well.
    pub fn leave(&mut self, index: u32) -> N {
        let lag = self.lag(index, 0);
        let standing = self.standing(index).clone();
        self.members.retain(|(member, _)| *member != index);
        if standing.competes && standing.position > self.clock {
            if self.departed.len() >= self.room
                && let Some(soonest) = self.departed.iter().map(|(even, _)| even).min().cloned()
            {
                self.forgive(&soonest);
            }
            self.departed.push((standing.position.clone(), standing.weight));
        }
        match (standing.awake, standing.competes) {
            (true, _) => lag,
            (false, true) => lag.min(N::whole(0)),
            (false, false) => N::whole(0),
        }
    }

    /// Thread number `index` has run for `ran`.
    pub fn charge(&mut self, index: u32, ran: u64) {
        let standing = self.standing_mut(index);
        standing.position = standing.position.plus(&span(ran, standing.weight));
    }

    /// Thread number `index` falls asleep.
    pub fn sleep(&mut self, index: u32) {
        let clock = self.clock.clone();
        let standing = self.standing_mut(index);
        standing.awake = false;
        standing.competes = standing.position > clock;
    }

    /// Thread number `index` wakes, with `weight`.
    pub fn wake(&mut self, index: u32, weight: u64) {
        let clock = self.clock.clone();
        let debt =
            if self.standing(index).competes { self.lag(index, 0).min(N::whole(0)) } else { N::whole(0) };
        let same = self.standing(index).weight == weight;
        let position = self.position_of(&debt, weight);
        let standing = self.standing_mut(index);
        // The same weight needs no conversion, so nothing is lost to one.
        let kept = standing.position.clone().max(clock);
        standing.position = if same && standing.competes { kept } else { position };
        standing.weight = weight;
        standing.competes = true;
        standing.awake = true;
    }

    /// Thread number `index` goes on under `weight`.
    pub fn reweigh(&mut self, index: u32, weight: u64) {
        if self.standing(index).weight == weight {
            return;
        }
        let debt = self.lag(index, 0).min(N::whole(0));
        let position = self.position_of(&debt, weight);
        let standing = self.standing_mut(index);
        standing.position = position;
        standing.weight = weight;
    }

    /// Thread number `index`, which competes again after it was held, gets back the credit it had, if a thread is
    /// there that could owe it.
    pub fn restore(&mut self, index: u32, credit: &N) {
        let others = self.members.iter().any(|(member, one)| *member != index && one.awake);
        if others && *credit > N::whole(0) {
            let position = self.position_of(credit, self.standing(index).weight);
            self.standing_mut(index).position = position;
        }
    }

    /// Thread number `index` gives up what it is owed.
    pub fn forfeit(&mut self, index: u32) {
        let clock = self.clock.clone();
        let standing = self.standing_mut(index);
        standing.position = standing.position.clone().max(clock);
    }
}
