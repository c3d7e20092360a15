//! The reference scheduler: an exact fluid schedule beside the core, which knows every thread's lag and says at each
//! decision which choices are right.
//!
//! The clock jumps to the earliest start when everybody queued, or the only one who runs, is ahead of it.
//!
//! Where two tags differ by less than the core can tell apart, either choice is right.

use super::book::Book;
use super::contexts::{Grants, Lane};
use super::fact::{Arrival, Fact, Seen, Why};
use super::fluid::Fluid;
use super::reference::Preference;
use super::{Number, Setting, ensure};
use mainspring_abi::{LatencyClass, ThreadRef};
use mainspring_sched::flight::Outcome;
use mainspring_sched::{Affinity, Cpu, Decision, Lag, State, Via};

/// Tags closer than one part in this many of a nanosecond, of virtual time or of service if that is longer, may go
/// either way: the core rounds each change of its clock to 2^-20 and lets a request start 2^-10 early.
pub(super) const BLUR: u64 = 256;

/// The weight at which virtual time passes as fast as real time.
pub(super) const REFERENCE: u64 = 64;

/// Units of [`Number::units`] in a nanosecond.
pub(super) const UNITS: i128 = 1 << 20;

/// What to demand of lags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Nothing.
    None,
    /// EEVDF: less than one quantum, either way.
    Quantum,
    /// EEVDF with direct handoffs: less than two quanta, either way.
    Handoffs,
    /// WFQ: owed at most one quantum; ahead at most by its weight times the longest request per weight of anybody.
    Wfq,
}

/// A queued thread's tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tag<N> {
    pub(super) start: N,
    pub(super) deadline: N,
}

#[derive(Clone, Debug)]
pub(super) struct Competitor<N> {
    thread: ThreadRef,
    pub(super) class: LatencyClass,
    pub(super) affinity: Affinity,
    /// As last set.
    pub(super) weight: u64,
    pub(super) greatest_weight: u64,
    /// Service already had of the request in progress.
    pub(super) used: u64,
    /// While it is queued.
    pub(super) tag: Option<Tag<N>>,
    /// What it is owed while it is on no queue.
    pub(super) carried: N,
    /// Whether it holds a context.
    pub(super) holds: bool,
}

/// One CPU.
#[derive(Clone, Debug)]
pub(super) struct Place<N> {
    pub(super) fluid: Fluid<N>,
    pub(super) since: u64,
    pub(super) slice_end: u64,
    pub(super) direct: Option<u32>,
    /// Whether a sleeper is, or at this instant was, so nearly even that the core may count it otherwise.
    pub(super) doubtful: bool,
}

/// All CPUs and threads.
#[derive(Debug)]
pub struct Fairness<N> {
    pub(super) setting: Setting,
    pub(super) places: Vec<Place<N>>,
    threads: Vec<Option<Competitor<N>>>,
    /// The longest request per weight that anybody has had, as virtual time.
    pub(super) longest: N,
    pub(super) blur: N,
    /// Greatest lag seen, owed and ahead, in units.
    pub(super) extremes: (i128, i128),
    decisions: u64,
}

impl<N: Number> Fairness<N> {
    /// An empty machine.
    #[must_use]
    pub fn new(setting: &Setting) -> Self {
        let place = Place {
            fluid: Fluid::new(setting.threads()),
            since: 0,
            slice_end: u64::MAX,
            direct: None,
            doubtful: false,
        };
        Self {
            places: vec![place; setting.cpus],
            threads: vec![None; setting.threads()],
            setting: setting.clone(),
            longest: N::whole(0),
            blur: N::whole(1).scaled(1, BLUR),
            extremes: (0, 0),
            decisions: 0,
        }
    }

    /// How many decisions were judged.
    #[must_use]
    pub fn decisions(&self) -> u64 {
        self.decisions
    }

    /// The greatest lag that anybody had, owed and ahead, in units of 2^-20 ns.
    #[must_use]
    pub fn extremes(&self) -> (i128, i128) {
        self.extremes
    }

    /// The exact virtual time of CPU number `cpu`, in units of 2^-20 ns.
    #[must_use]
    pub fn clock_units(&self, cpu: usize) -> i128 {
        self.places[cpu].fluid.clock.units()
    }

    /// Lets the exact schedule follow `fact` and judges its outcome; `book` is as it was before.
    pub fn follow(&mut self, book: &Book, grants: &Grants, cpu: &Cpu, fact: &Fact) -> Result<(), String> {
        let (now, at) = (fact.now.get(), fact.cpu);
        if let (Seen::Give(thief), Outcome::Left(left), true) =
            (&fact.seen, fact.outcome, self.setting.one_clock)
        {
            self.judge_victim(book, at, thief.index(), left.is_some())?;
        }
        match (&fact.seen, fact.outcome) {
            (Seen::SetWeight(seat, weight), Outcome::Done) => {
                let competitor = self.competitor_mut(seat.thread().index());
                competitor.weight = u64::from(weight.get());
                competitor.greatest_weight = competitor.greatest_weight.max(competitor.weight);
                return Ok(());
            }
            (Seen::SetClass(seat, class), Outcome::Done) => {
                let index = seat.thread().index();
                self.competitor_mut(index).class = *class;
                // Of a shorter request, the whole ones are behind it.
                let request = self.request(index);
                self.competitor_mut(index).used %= request;
                return Ok(());
            }
            (Seen::Lend(seat, _), Outcome::Took(_)) => {
                self.competitor_mut(seat.thread().index()).holds = false;
                return Ok(());
            }
            (Seen::Timer, _) if grants.corner(at).holders == 0 => return Ok(()),
            (Seen::Expire, Outcome::Expired(Some((seat, _)), _)) if grants.is_lent(seat.thread()) => {
                return Ok(());
            }
            (_, Outcome::BadSeat | Outcome::Refused)
            | (Seen::RescheduleReceived | Seen::EnterIdle(_) | Seen::WriteOff(_) | Seen::Nohz(_), _)
            | (Seen::Expire, Outcome::Expired(None, _)) => return Ok(()),
            _ => {}
        }
        if book.page(at).on_context {
            self.places[at].fluid.stand_still(now);
        } else if self.places[at].fluid.advance(now) {
            self.places[at].doubtful = false;
            self.doubt(at);
        }
        self.catch_up(book, at, now);
        self.within_bounds(book, at, now)?;
        match (&fact.seen, fact.outcome) {
            (Seen::Accept(arrival), Outcome::Seated(_, reschedule)) => {
                self.arrive(book, grants, at, now, arrival, reschedule)
            }
            (Seen::Resched(why), Outcome::Decided(decision)) => {
                self.decide(book, grants, at, now, *why, decision)
            }
            (Seen::ExitCurrent, Outcome::Left(Some((thread, lag)))) => {
                self.charge(book, at, now, thread.index());
                let exact = self.leave(at, thread.index());
                self.agrees(thread, &exact, lag)
            }
            (Seen::Wake(seat) | Seen::HandOff(seat), Outcome::Ready(reschedule, _)) => {
                self.wake_up(book, grants, at, now, seat.thread(), reschedule)
            }
            (Seen::Expire, Outcome::Expired(Some((seat, _)), reschedule)) => {
                self.wake_up(book, grants, at, now, seat.thread(), reschedule)
            }
            (Seen::Timer, _) => {
                self.refill(at, grants);
                Ok(())
            }
            (Seen::BlockCurrent(..), Outcome::Done) => {
                if let Some(running) = book.page(at).running {
                    self.charge(book, at, now, running.index());
                    self.fall_asleep(book, at, running.index());
                }
                self.places[at].slice_end = u64::MAX;
                Ok(())
            }
            (Seen::Bind(seat, _), Outcome::Ready(..)) => self.bind(book, grants, at, now, seat.thread()),
            (Seen::Unbind(seat), Outcome::Took(_)) => {
                self.unbind(book, at, now, seat.thread());
                Ok(())
            }
            (Seen::HandOff(seat), Outcome::Direct(_)) => {
                self.wake(at, seat.thread().index());
                self.contend(book, at, now);
                self.places[at].direct = Some(seat.thread().index());
                Ok(())
            }
            (Seen::Hold(seat), Outcome::Done) => {
                let index = seat.thread().index();
                let competes = self.places[at].fluid.standing(index).awake;
                let credit = if competes { self.places[at].fluid.lag(index, 0) } else { N::whole(0) };
                self.withdraw(at, index);
                self.competitor_mut(index).carried = credit;
                Ok(())
            }
            (Seen::Release(seat), Outcome::Ready(reschedule, _)) => {
                let (thread, credit) =
                    (seat.thread(), self.competitor(seat.thread().index()).carried.clone());
                if grants.holds(thread) {
                    self.wake_up(book, grants, at, now, thread, reschedule)
                } else {
                    self.wake(at, thread.index());
                    self.places[at].fluid.restore(thread.index(), &credit);
                    self.publish(book, at, now, thread.index(), reschedule)
                }
            }
            (Seen::Remove(_), Outcome::Left(Some((thread, lag)))) => self.remove(at, thread, lag),
            (Seen::Give(thief), Outcome::Left(left)) => self.give(book, at, thief.index(), left),
            _ => Ok(()),
        }?;
        self.within_bounds(book, at, now)?;
        self.same_load(at, cpu.load())
    }

    /// Compares all lags and tags of a CPU with the exact ones; `book` is as it is now.
    pub fn compare(&self, book: &Book, cpu: &Cpu, fact: &Fact) -> Result<(), String> {
        let place = &self.places[fact.cpu];
        for view in cpu.threads() {
            let index = view.thread.index();
            let ready = matches!(view.state, State::Running | State::Queued | State::Direct);
            if !ready || !place.fluid.standing(index).awake {
                continue;
            }
            let running = book.page(fact.cpu).running == Some(view.thread);
            let ran = if running { fact.now.get() - place.since } else { 0 };
            let lag = cpu.lag(fact.now, view.seat).map_err(|error| error.to_string())?;
            self.agrees(view.thread, &place.fluid.lag(index, ran), lag)?;
            let (Some(tag), Some(exact)) = (view.tag, &self.competitor(index).tag) else { continue };
            let clock = cpu.virtual_clock();
            for (name, told, exact) in [
                ("start", tag.start.since(clock), &exact.start),
                ("deadline", tag.deadline.since(clock), &exact.deadline),
            ] {
                let exact = exact.minus(&place.fluid.clock).units();
                ensure((i128::from(told) - exact).abs() <= self.blur.units(), || {
                    format!("{:?}: {name} {told} units after the clock, exactly {exact}", view.thread)
                })?;
            }
        }
        Ok(())
    }

    pub(super) fn competitor(&self, index: u32) -> &Competitor<N> {
        self.threads[index as usize].as_ref().expect("the book knows it")
    }

    pub(super) fn competitor_mut(&mut self, index: u32) -> &mut Competitor<N> {
        self.threads[index as usize].as_mut().expect("the book knows it")
    }

    pub(super) fn request(&self, index: u32) -> u64 {
        self.setting.request(index, self.competitor(index).class)
    }

    fn arrive(
        &mut self,
        book: &Book,
        grants: &Grants,
        at: usize,
        now: u64,
        arrival: &Arrival,
        reschedule: bool,
    ) -> Result<(), String> {
        let index = arrival.thread.index();
        let known = self.threads[index as usize].as_ref().filter(|known| known.thread == arrival.thread);
        match known {
            Some(known) => {
                let carried = known.carried.units();
                let off = (i128::from(arrival.lag_ns) * UNITS - carried).abs();
                ensure(off <= 2 * UNITS, || {
                    format!(
                        "{:?} arrived with a lag of {}ns, exactly {carried} units",
                        arrival.thread, arrival.lag_ns
                    )
                })?;
            }
            None => {
                let weight = u64::from(arrival.weight.get());
                self.threads[index as usize] = Some(Competitor {
                    thread: arrival.thread,
                    class: arrival.class,
                    affinity: arrival.affinity.clone(),
                    weight,
                    greatest_weight: weight,
                    used: 0,
                    tag: None,
                    carried: N::whole(0),
                    holds: false,
                });
            }
        }
        // On its way a thread may have been bound to other CPUs.
        self.competitor_mut(index).affinity = arrival.affinity.clone();
        self.join(at, index);
        if grants.holds(arrival.thread) {
            self.competitor_mut(index).holds = true;
            self.places[at].fluid.sleep(index);
            self.doubt(at);
            return self.wake_up(book, grants, at, now, arrival.thread, reschedule);
        }
        self.competitor_mut(index).holds = false;
        if arrival.via == Via::HandOff && self.places[at].direct.is_none() {
            ensure(!reschedule, || "a direct target asked for a reschedule".to_owned())?;
            self.contend(book, at, now);
            self.places[at].direct = Some(index);
            return Ok(());
        }
        self.publish(book, at, now, index, reschedule)
    }

    pub(super) fn join(&mut self, at: usize, index: u32) {
        let competitor = self.competitor(index);
        let (carried, weight) = (competitor.carried.clone(), competitor.weight);
        self.places[at].fluid.join(index, carried, weight);
    }

    pub(super) fn leave(&mut self, at: usize, index: u32) -> N {
        let place = &mut self.places[at];
        let ahead = place.fluid.standing(index).position.minus(&place.fluid.clock);
        place.doubtful |= ahead <= self.blur && N::whole(0).minus(&ahead) <= self.blur;
        place.fluid.leave(index)
    }

    pub(super) fn wake(&mut self, at: usize, index: u32) {
        let weight = self.competitor(index).weight;
        self.places[at].fluid.wake(index, weight);
    }

    fn remove(&mut self, at: usize, thread: ThreadRef, lag: Lag) -> Result<(), String> {
        let index = thread.index();
        let carried = self.leave(at, index);
        if self.places[at].direct == Some(index) {
            self.places[at].direct = None;
        }
        self.agrees(thread, &carried, lag)?;
        let competitor = self.competitor_mut(index);
        competitor.carried = carried;
        competitor.tag = None;
        Ok(())
    }

    /// The most overdue thread that the thief may run goes.
    fn give(
        &mut self,
        book: &Book,
        at: usize,
        thief: usize,
        left: Option<(ThreadRef, Lag)>,
    ) -> Result<(), String> {
        let best = self.most_overdue(book, at, thief);
        let Some((thread, lag)) = left else {
            return ensure(best.is_none(), || format!("{best:?} was not given to CPU {thief}"));
        };
        let index = thread.index();
        let tag = self.competitor(index).tag.clone().ok_or("a thread was given that was not queued")?;
        ensure(self.may_run(index, thief), || {
            format!("{thread:?} was given to CPU {thief} against its mask")
        })?;
        if let Some((due, other)) = best {
            ensure(!self.surely_before(&due, &tag.deadline), || {
                format!("{thread:?} was given though t{other} is more overdue")
            })?;
        }
        let carried = self.leave(at, index);
        self.agrees(thread, &carried, lag)?;
        let competitor = self.competitor_mut(index);
        competitor.carried = carried;
        competitor.tag = None;
        Ok(())
    }

    fn decide(
        &mut self,
        book: &Book,
        grants: &Grants,
        at: usize,
        now: u64,
        why: Why,
        decision: Decision,
    ) -> Result<(), String> {
        self.decisions += 1;
        let before = book.page(at).running.map(ThreadRef::index);
        if let Some(index) = before {
            self.charge(book, at, now, index);
        }
        let rest = if self.places[at].slice_end > now {
            Preference::Until(self.places[at].slice_end)
        } else {
            Preference::None
        };
        let preference = match why {
            Why::Nothing => Preference::Free,
            Why::Preempted => Preference::None,
            // On a context, whoever yields stands in the queue like one who was preempted.
            Why::Yielded if book.page(at).on_context => Preference::None,
            Why::Yielded | Why::Blocked(..) => rest,
        };
        let shares = book.page(at).running.is_some_and(|thread| grants.lane(thread) == Lane::Fair);
        let yielder = before.filter(|_| why == Why::Yielded && shares && !book.page(at).on_context);
        if let Some(thread) = book.page(at).running {
            match yielder {
                Some(index) => {
                    self.places[at].fluid.forfeit(index);
                    self.competitor_mut(index).used = 0;
                }
                None if matches!(why, Why::Blocked(..)) => self.fall_asleep(book, at, thread.index()),
                None => self.stop(at, grants, thread),
            }
        }
        self.refill(at, grants);
        let chosen = match decision {
            Decision::Run(run) => Some(run),
            Decision::Idle => None,
        };
        if let Some(run) = chosen.filter(|_| grants.corner(at).on_context) {
            if let Some(index) = yielder {
                self.requeue(at, index);
            }
            (self.places[at].since, self.places[at].slice_end) = (now, run.slice_end.get());
            return Ok(());
        }
        let direct = self.places[at].direct.take();
        let cap = self.choose(
            book,
            at,
            now,
            yielder,
            (direct, preference),
            chosen.as_ref().map(|run| run.thread.index()),
        )?;
        if let Some(index) = yielder {
            self.requeue(at, index);
        }
        self.places[at].since = now;
        self.places[at].slice_end = u64::MAX;
        let Some(run) = chosen else { return Ok(()) };
        self.competitor_mut(run.thread.index()).tag = None;
        self.places[at].slice_end = run.slice_end.get();
        self.judge_slice(now, &run, cap, grants.corner(at).cap)?;
        let waited_for = book.on(at).any(|(thread, ..)| self.competitor(thread.index()).tag.is_some());
        if !waited_for {
            let start = self.tag(at, run.thread.index()).start;
            let fluid = &mut self.places[at].fluid;
            fluid.clock = fluid.clock.clone().max(start);
        }
        Ok(())
    }
}
