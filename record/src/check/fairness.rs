//! The reference scheduler: an exact fluid schedule beside the core, which knows every thread's lag and says at each
//! decision which choices are right.
//!
//! The clock jumps to the earliest start when every queued thread, or a thread that runs alone, is ahead of it.
//!
//! Where two tags differ by less than the core can tell apart, either choice is right.

use super::contexts::{Grants, QueueKind};
use super::fluid::Fluid;
use super::machine_model::MachineModel;
use super::observation::{Arrival, Observation, ObservedEvent, StopKind};
use super::reference::Preference;
use super::{Number, Setting, ensure};
use mainspring_abi::{LatencyClass, Nanos, ThreadRef};
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
    /// WFQ: owed at most one quantum; ahead at most by its weight times the longest request per weight of any
    /// thread.
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
    /// The request length that it brought along.
    pub(super) request: Option<Nanos>,
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
pub(super) struct CpuFairness<N> {
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
    pub(super) cpus: Vec<CpuFairness<N>>,
    threads: Vec<Option<Competitor<N>>>,
    /// The longest request per weight that any thread has had, as virtual time.
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
        let place = CpuFairness {
            fluid: Fluid::new(setting.threads()),
            since: 0,
            slice_end: u64::MAX,
            direct: None,
            doubtful: false,
        };
        Self {
            cpus: vec![place; setting.cpus],
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

    /// The greatest lag that any thread had, owed and ahead, in units of 2^-20 ns.
    #[must_use]
    pub fn extremes(&self) -> (i128, i128) {
        self.extremes
    }

    /// Lets the exact schedule follow `observed` and judges its outcome; `model` is as it was before.
    pub fn follow(
        &mut self,
        model: &MachineModel,
        grants: &Grants,
        cpu: &Cpu,
        observed: &Observation,
    ) -> Result<(), String> {
        let (now, at) = (observed.now.get(), observed.cpu);
        if let (ObservedEvent::Give(thief), Outcome::Left(left), true) =
            (&observed.event, observed.outcome, self.setting.one_clock)
        {
            self.judge_victim(model, at, thief.index(), left.is_some())?;
        }
        match (&observed.event, observed.outcome) {
            (ObservedEvent::SetWeight(seat, weight), Outcome::Done) => {
                let competitor = self.competitor_mut(seat.thread().index());
                competitor.weight = u64::from(weight.get());
                competitor.greatest_weight = competitor.greatest_weight.max(competitor.weight);
                return Ok(());
            }
            (ObservedEvent::SetClass(seat, class), Outcome::Done) => {
                let index = seat.thread().index();
                self.competitor_mut(index).class = *class;
                // With shorter requests, it has whole ones behind it.
                let request = self.request(index);
                self.competitor_mut(index).used %= request;
                return Ok(());
            }
            (ObservedEvent::Lend(seat, _), Outcome::Took(_)) => {
                self.competitor_mut(seat.thread().index()).holds = false;
                return Ok(());
            }
            (ObservedEvent::Timer, _) if grants.cpu_contexts(at).holders == 0 => return Ok(()),
            (ObservedEvent::Expire, Outcome::Expired(Some((seat, _)), _))
                if grants.is_lent(seat.thread()) =>
            {
                return Ok(());
            }
            (_, Outcome::BadSeat | Outcome::Refused)
            | (
                ObservedEvent::RescheduleReceived
                | ObservedEvent::EnterIdle(_)
                | ObservedEvent::WriteOff(_)
                | ObservedEvent::Nohz(_),
                _,
            )
            | (ObservedEvent::Expire, Outcome::Expired(None, _)) => return Ok(()),
            _ => {}
        }
        if model.cpu_model(at).on_context {
            self.cpus[at].fluid.stand_still(now);
        } else if self.cpus[at].fluid.advance(now) {
            self.cpus[at].doubtful = false;
            self.doubt(at);
        }
        self.catch_up(model, at, now);
        self.within_bounds(model, at, now)?;
        match (&observed.event, observed.outcome) {
            (ObservedEvent::Accept(arrival, via), Outcome::Seated(_, reschedule)) => {
                self.arrive(model, grants, at, now, (arrival, *via), reschedule)
            }
            (ObservedEvent::Resched(why), Outcome::Decided(decision)) => {
                self.decide(model, grants, at, now, *why, decision)
            }
            (ObservedEvent::ExitCurrent, Outcome::Left(Some((thread, lag)))) => {
                self.charge(model, at, now, thread.index());
                let exact = self.leave(at, thread.index());
                self.agrees(thread, &exact, lag)
            }
            (ObservedEvent::Wake(seat) | ObservedEvent::HandOff(seat), Outcome::Ready(reschedule, _)) => {
                self.wake_up(model, grants, at, now, seat.thread(), reschedule)
            }
            (ObservedEvent::Expire, Outcome::Expired(Some((seat, _)), reschedule)) => {
                self.wake_up(model, grants, at, now, seat.thread(), reschedule)
            }
            (ObservedEvent::Timer, _) => {
                self.refill(at, grants);
                Ok(())
            }
            (ObservedEvent::BlockCurrent(..), Outcome::Done) => {
                if let Some(running) = model.cpu_model(at).running {
                    self.charge(model, at, now, running.index());
                    self.fall_asleep(model, at, running.index());
                }
                self.cpus[at].slice_end = u64::MAX;
                Ok(())
            }
            (ObservedEvent::Bind(seat, _), Outcome::Ready(..)) => {
                self.bind(model, grants, at, now, seat.thread())
            }
            (ObservedEvent::Unbind(seat), Outcome::Took(_)) => {
                self.unbind(model, at, now, seat.thread());
                Ok(())
            }
            (ObservedEvent::HandOff(seat), Outcome::Direct(_)) => {
                self.wake(at, seat.thread().index());
                self.contend(model, at, now);
                self.cpus[at].direct = Some(seat.thread().index());
                Ok(())
            }
            (ObservedEvent::Hold(seat), Outcome::Done) => {
                let index = seat.thread().index();
                let competes = self.cpus[at].fluid.standing(index).awake;
                let credit = if competes { self.cpus[at].fluid.lag(index, 0) } else { N::whole(0) };
                self.withdraw(at, index);
                self.competitor_mut(index).carried = credit;
                Ok(())
            }
            (ObservedEvent::Release(seat), Outcome::Ready(reschedule, _)) => {
                let (thread, credit) =
                    (seat.thread(), self.competitor(seat.thread().index()).carried.clone());
                if grants.holds(thread) {
                    self.wake_up(model, grants, at, now, thread, reschedule)
                } else {
                    self.wake(at, thread.index());
                    self.cpus[at].fluid.restore(thread.index(), &credit);
                    self.publish(model, at, now, thread.index(), reschedule)
                }
            }
            (ObservedEvent::Remove(_), Outcome::Left(Some((thread, lag)))) => self.remove(at, thread, lag),
            (ObservedEvent::Give(thief), Outcome::Left(left)) => self.give(model, at, thief.index(), left),
            _ => Ok(()),
        }?;
        self.within_bounds(model, at, now)?;
        self.same_load(at, cpu.load())
    }

    /// Compares all lags and tags of a CPU with the exact ones; `model` is as it is now.
    pub fn compare(&self, model: &MachineModel, cpu: &Cpu, observed: &Observation) -> Result<(), String> {
        let place = &self.cpus[observed.cpu];
        for view in cpu.threads() {
            let index = view.thread.index();
            let ready = matches!(view.state, State::Running | State::Queued | State::Direct);
            if !ready || !place.fluid.standing(index).awake {
                continue;
            }
            let running = model.cpu_model(observed.cpu).running == Some(view.thread);
            let ran = if running { observed.now.get() - place.since } else { 0 };
            let lag = cpu.lag(observed.now, view.seat).map_err(|error| error.to_string())?;
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
        self.threads[index as usize].as_ref().expect("the model knows it")
    }

    pub(super) fn competitor_mut(&mut self, index: u32) -> &mut Competitor<N> {
        self.threads[index as usize].as_mut().expect("the model knows it")
    }

    pub(super) fn request(&self, index: u32) -> u64 {
        let competitor = self.competitor(index);
        self.setting.request(index, competitor.request, competitor.class)
    }

    fn arrive(
        &mut self,
        model: &MachineModel,
        grants: &Grants,
        at: usize,
        now: u64,
        (arrival, via): (&Arrival, Via),
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
                    request: arrival.request,
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
            self.cpus[at].fluid.sleep(index);
            self.doubt(at);
            return self.wake_up(model, grants, at, now, arrival.thread, reschedule);
        }
        self.competitor_mut(index).holds = false;
        if via == Via::HandOff && self.cpus[at].direct.is_none() {
            ensure(!reschedule, || "a direct target asked for a reschedule".to_owned())?;
            self.contend(model, at, now);
            self.cpus[at].direct = Some(index);
            return Ok(());
        }
        self.publish(model, at, now, index, reschedule)
    }

    pub(super) fn join(&mut self, at: usize, index: u32) {
        let competitor = self.competitor(index);
        let (carried, weight) = (competitor.carried.clone(), competitor.weight);
        self.cpus[at].fluid.join(index, carried, weight);
    }

    pub(super) fn leave(&mut self, at: usize, index: u32) -> N {
        let place = &mut self.cpus[at];
        let ahead = place.fluid.standing(index).position.minus(&place.fluid.clock);
        place.doubtful |= ahead <= self.blur && N::whole(0).minus(&ahead) <= self.blur;
        place.fluid.leave(index)
    }

    pub(super) fn wake(&mut self, at: usize, index: u32) {
        let weight = self.competitor(index).weight;
        self.cpus[at].fluid.wake(index, weight);
    }

    fn remove(&mut self, at: usize, thread: ThreadRef, lag: Lag) -> Result<(), String> {
        let index = thread.index();
        let carried = self.leave(at, index);
        if self.cpus[at].direct == Some(index) {
            self.cpus[at].direct = None;
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
        model: &MachineModel,
        at: usize,
        thief: usize,
        left: Option<(ThreadRef, Lag)>,
    ) -> Result<(), String> {
        let best = self.most_overdue(model, at, thief);
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
        model: &MachineModel,
        grants: &Grants,
        at: usize,
        now: u64,
        why: StopKind,
        decision: Decision,
    ) -> Result<(), String> {
        self.decisions += 1;
        let before = model.cpu_model(at).running.map(ThreadRef::index);
        if let Some(index) = before {
            self.charge(model, at, now, index);
        }
        let rest = if self.cpus[at].slice_end > now {
            Preference::Until(self.cpus[at].slice_end)
        } else {
            Preference::None
        };
        let preference = match why {
            StopKind::Nothing => Preference::Free,
            StopKind::Preempted => Preference::None,
            // On a context, a thread that yields stands in the queue like a preempted one.
            StopKind::Yielded if model.cpu_model(at).on_context => Preference::None,
            StopKind::Yielded | StopKind::Blocked(..) => rest,
        };
        let shares =
            model.cpu_model(at).running.is_some_and(|thread| grants.queue(thread) == QueueKind::Fair);
        let yielder =
            before.filter(|_| why == StopKind::Yielded && shares && !model.cpu_model(at).on_context);
        if let Some(thread) = model.cpu_model(at).running {
            match yielder {
                Some(index) => {
                    self.cpus[at].fluid.forfeit(index);
                    self.competitor_mut(index).used = 0;
                }
                None if matches!(why, StopKind::Blocked(..)) => self.fall_asleep(model, at, thread.index()),
                None => self.stop(at, grants, thread),
            }
        }
        self.refill(at, grants);
        let chosen = match decision {
            Decision::Run(run) => Some(run),
            Decision::Idle => None,
        };
        if let Some(run) = chosen.filter(|_| grants.cpu_contexts(at).on_context) {
            if let Some(index) = yielder {
                self.requeue(at, index);
            }
            (self.cpus[at].since, self.cpus[at].slice_end) = (now, run.slice_end.get());
            return Ok(());
        }
        let direct = self.cpus[at].direct.take();
        let cap = self.choose(
            model,
            at,
            now,
            yielder,
            (direct, preference),
            chosen.as_ref().map(|run| run.thread.index()),
        )?;
        if let Some(index) = yielder {
            self.requeue(at, index);
        }
        self.cpus[at].since = now;
        self.cpus[at].slice_end = u64::MAX;
        let Some(run) = chosen else { return Ok(()) };
        self.competitor_mut(run.thread.index()).tag = None;
        self.cpus[at].slice_end = run.slice_end.get();
        self.judge_slice(now, &run, cap, grants.cpu_contexts(at).cap)?;
        let waited_for = model.on(at).any(|(thread, ..)| self.competitor(thread.index()).tag.is_some());
        if !waited_for {
            let start = self.tag(at, run.thread.index()).start;
            let fluid = &mut self.cpus[at].fluid;
            fluid.clock = fluid.clock.clone().max(start);
        }
        Ok(())
    }
}
