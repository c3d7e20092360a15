//! What each event does to contexts, and which outcomes it can have.

use super::super::book::Book;
use super::super::ensure;
use super::super::fact::{Fact, Seen, Why};
use super::{Grants, Lane, Right};
use mainspring_abi::{ContextRef, ThreadRef};
use mainspring_sched::flight::Outcome;
use mainspring_sched::{Cpu, Decision, Seat, State, WaitKind};

impl Grants {
    /// Follows `fact` and judges its outcome; `book` is as it was before, `cpu` as it is now.
    pub fn follow(&mut self, book: &Book, cpu: &Cpu, fact: &Fact) -> Result<(), String> {
        self.refilled.clear();
        let (now, at) = (fact.now.get(), fact.cpu);
        self.watch_floor(book, at, now)?;
        match (&fact.seen, fact.outcome) {
            (Seen::Accept(arrival), Outcome::Seated(slot, reschedule)) => {
                self.arrive(at, now, arrival.thread, &arrival.title)?;
                let seat = Seat::from_parts(slot, arrival.thread);
                let direct = arrival.via == mainspring_sched::Via::HandOff
                    && book.page(at).direct.is_none()
                    && self.held(arrival.thread).is_none();
                self.publish(book, at, now, seat, (!direct).then_some(reschedule))
            }
            (Seen::Wake(seat) | Seen::Release(seat), Outcome::Ready(reschedule, _)) => {
                self.publish(book, at, now, *seat, Some(reschedule))
            }
            (Seen::HandOff(seat), Outcome::Ready(reschedule, _)) => {
                let needed = book.page(at).direct.is_some() || self.held(seat.thread()).is_some();
                ensure(needed, || "a handoff was queued needlessly".to_owned())?;
                self.publish(book, at, now, *seat, Some(reschedule))
            }
            (Seen::HandOff(seat), Outcome::Direct(_)) => {
                let right = self.right(seat.thread());
                ensure(right == Right::None, || format!("{seat:?} is the direct target and has {right:?}"))?;
                self.publish(book, at, now, *seat, None)
            }
            (Seen::Expire, Outcome::Expired(Some((seat, _)), reschedule)) => {
                if self.is_lent(seat.thread()) {
                    self.tally.expired_away += 1;
                    return ensure(!reschedule, || format!("{seat:?} is ready though its context is away"));
                }
                self.publish(book, at, now, seat, Some(reschedule))
            }
            (Seen::Hold(seat), Outcome::Done) => {
                self.fall_asleep(at, seat.thread(), now);
                Ok(())
            }
            (Seen::Remove(seat), Outcome::Left(Some(_))) => {
                self.depart(at, seat.thread(), now);
                Ok(())
            }
            (Seen::Give(_), Outcome::Left(Some((thread, _)))) => {
                let right = self.right(thread);
                ensure(right == Right::None, || format!("{thread:?} was stolen with {right:?}"))
            }
            (Seen::ExitCurrent, Outcome::Left(Some((thread, _)))) => {
                self.charge(book, at, now)?;
                self.corners[at].on_context = false;
                self.depart(at, thread, now);
                Ok(())
            }
            (Seen::BlockCurrent(..), Outcome::Done) => {
                self.charge(book, at, now)?;
                self.corners[at].on_context = false;
                if let Some(thread) = book.page(at).running {
                    self.fall_asleep(at, thread, now);
                }
                Ok(())
            }
            (Seen::Resched(why), Outcome::Decided(decision)) => self.decide(book, at, now, *why, decision),
            (Seen::Timer, Outcome::Timer(told)) => self.timer(book, at, now, told.reschedule),
            (Seen::Bind(seat, given), Outcome::Ready(reschedule, _)) => {
                let allowed = self.may_bind(cpu, seat.thread(), given);
                ensure(allowed, || {
                    format!("{seat:?} has {:?} and got {given:?}", self.right(seat.thread()))
                })?;
                self.bind(book, at, now, *seat, given, reschedule)
            }
            (Seen::Unbind(seat), Outcome::Took(who)) => self.unbind(book, at, now, *seat, who),
            (Seen::Lend(seat, to), Outcome::Took(who)) => self.lend(book, at, now, *seat, *to, who),
            (Seen::WriteOff(seat), Outcome::Took(who)) => {
                let right = self.right(seat.thread());
                ensure(right == Right::Lent(who), || {
                    format!("{seat:?} has {right:?}, written off was {who:?}")
                })?;
                self.holder_mut(seat.thread()).right = Right::None;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Looks at the windows of the floor that have ended, on a machine whose interrupts come when they are due.
    fn watch_floor(&mut self, book: &Book, at: usize, now: u64) -> Result<(), String> {
        if !self.punctual {
            return Ok(());
        }
        let corner = &mut self.corners[at];
        let best_effort_runs = book.page(at).running.is_some() && !corner.on_context && corner.holders > 0;
        corner.floor.watch(now, &corner.here, best_effort_runs.then_some(corner.since))
    }

    /// The running interval of CPU number `at` ends: it is charged to the context or counts against the floor.
    fn charge(&mut self, book: &Book, at: usize, now: u64) -> Result<(), String> {
        let start = std::mem::replace(&mut self.corners[at].since, now);
        let Some(thread) = book.page(at).running else { return Ok(()) };
        let punctual = self.punctual;
        if self.corners[at].on_context {
            let grant = self.held_mut(thread).ok_or_else(|| format!("{thread:?} runs on no context"))?;
            return grant.spend(start, now, punctual).map_err(|what| format!("{thread:?}: {what}"));
        }
        if self.corners[at].holders > 0 {
            self.corners[at].floor.spend(start, now);
        }
        Ok(())
    }

    fn depart(&mut self, at: usize, thread: ThreadRef, now: u64) {
        self.forget(at, thread);
        self.take_out(at, thread, now);
    }

    fn fall_asleep(&mut self, at: usize, thread: ThreadRef, now: u64) {
        self.forget(at, thread);
        if let Some(grant) = self.held_mut(thread) {
            grant.pause(now);
        }
    }

    /// The thread at `seat` is ready. `told` is whether that asks for a reschedule, if the outcome says.
    fn publish(
        &mut self,
        book: &Book,
        at: usize,
        now: u64,
        seat: Seat,
        told: Option<bool>,
    ) -> Result<(), String> {
        let thread = seat.thread();
        ensure(!self.is_lent(thread), || format!("{thread:?} is ready though its context is away"))?;
        self.resume(seat, now);
        self.queue(at, thread, now);
        let page = book.page(at);
        let on_context = self.corners[at].on_context;
        let holds = self.held(thread).is_some();
        let expected = match (self.lane(thread), page.running) {
            (Lane::Throttled, _) => Some(false),
            (_, None) => Some(true),
            (Lane::Context, Some(running)) if on_context => Some(self.more_urgent(thread, running)),
            (Lane::Context, Some(_)) => Some(true),
            (Lane::Fair, Some(_)) if holds => Some(false),
            (Lane::Fair, Some(running)) if on_context => {
                let due = self.held(running).map_or(u64::MAX, super::Grant::due);
                let floor = &mut self.corners[at].floor;
                if told.is_some() {
                    floor.wanted(now, true);
                }
                Some(floor.claims(now, due).is_some())
            }
            // Between two of best effort the exact schedule judges.
            (Lane::Fair, Some(_)) => None,
        };
        match (told, expected) {
            (Some(told), Some(expected)) => ensure(told == expected, || {
                let lane = self.lane(thread);
                format!("{thread:?} is ready on {lane:?}: reschedule is {told}, by the rules {expected}")
            }),
            _ => Ok(()),
        }
    }

    fn resume(&mut self, seat: Seat, now: u64) {
        if let Some(grant) = self.held_mut(seat.thread()) {
            grant.resume(now);
        }
    }

    fn bind(
        &mut self,
        book: &Book,
        at: usize,
        now: u64,
        seat: Seat,
        given: &super::Given,
        reschedule: bool,
    ) -> Result<(), String> {
        let thread = seat.thread();
        let state = book.seated(at, seat).ok_or_else(|| format!("{seat:?} does not sit here"))?;
        if state == State::Running {
            self.charge(book, at, now)?;
        }
        self.take_in(at, now, thread, given)?;
        match state {
            State::Running => {
                let page = book.page(at);
                let waiting = page.queued - page.urgent + usize::from(page.direct.is_some());
                self.corners[at].floor.wanted(now, waiting > 0);
                self.resume(seat, now);
                self.forget(at, thread);
                self.holder_mut(thread).lane = Lane::Context;
                self.corners[at].on_context = true;
                ensure(reschedule, || "a new context asks for no decision".to_owned())
            }
            State::Queued | State::Direct => self.publish(book, at, now, seat, Some(reschedule)),
            State::Held | State::Throttled | State::Asleep(_) => {
                ensure(!reschedule, || format!("{seat:?} is {state:?} and asks for a reschedule"))
            }
        }
    }

    fn unbind(
        &mut self,
        book: &Book,
        at: usize,
        now: u64,
        seat: Seat,
        who: ContextRef,
    ) -> Result<(), String> {
        let thread = seat.thread();
        let right = self.right(thread);
        ensure(right == Right::Holds(who), || format!("{seat:?} has {right:?}, taken was {who:?}"))?;
        let state = book.seated(at, seat).ok_or_else(|| format!("{seat:?} does not sit here"))?;
        if state == State::Running {
            self.charge(book, at, now)?;
            self.corners[at].on_context = false;
        }
        self.depart(at, thread, now);
        let holder = self.holder_mut(thread);
        (holder.right, holder.lane) = (Right::None, Lane::Fair);
        if matches!(state, State::Queued | State::Throttled)
            && self.corners[at].on_context
            && book.page(at).running.is_some()
        {
            self.corners[at].floor.wanted(now, true);
        }
        Ok(())
    }

    fn lend(
        &mut self,
        book: &Book,
        at: usize,
        now: u64,
        seat: Seat,
        to: ThreadRef,
        who: ContextRef,
    ) -> Result<(), String> {
        let thread = seat.thread();
        let right = self.right(thread);
        ensure(right == Right::Holds(who), || format!("{seat:?} has {right:?}, lent was {who:?}"))?;
        let state = book.seated(at, seat);
        ensure(state == Some(State::Asleep(WaitKind::Call)), || format!("{seat:?} is {state:?} and lends"))?;
        ensure(self.may_lend(thread, to), || format!("{thread:?} must not lend {who:?} to {to:?}"))?;
        self.take_out(at, thread, now);
        if let Some(grant) = self.held_mut(thread) {
            grant.donors.push(thread);
        }
        self.tally.lent += 1;
        self.holder_mut(thread).right = Right::Lent(who);
        Ok(())
    }

    fn decide(
        &mut self,
        book: &Book,
        at: usize,
        now: u64,
        why: Why,
        decision: Decision,
    ) -> Result<(), String> {
        self.charge(book, at, now)?;
        let page = book.page(at);
        let mut waiting = page.queued - page.urgent + usize::from(page.direct.is_some());
        if let Some(thread) = page.running {
            if let Why::Blocked(..) = why {
                self.fall_asleep(at, thread, now);
            } else {
                self.requeue(at, thread, now);
                waiting += usize::from(self.lane(thread) == Lane::Fair);
            }
        }
        self.refill(at, now, None);
        waiting -= self.refilled.iter().filter(|(_, lane)| *lane == Lane::Fair).count();
        self.choose(at, now, waiting > 0, decision)
    }

    /// `thread` could go on and has been charged. Whoever goes on without its context does so until the refill.
    fn requeue(&mut self, at: usize, thread: ThreadRef, now: u64) {
        let without = !self.corners[at].on_context;
        self.queue(at, thread, now);
        if without && self.lane(thread) == Lane::Throttled {
            let refill = self.holder_mut(thread).refill;
            self.stand(at, thread, Lane::Fair, refill);
        }
    }

    fn timer(&mut self, book: &Book, at: usize, now: u64, reschedule: bool) -> Result<(), String> {
        if self.corners[at].holders == 0 {
            return Ok(());
        }
        let page = book.page(at);
        self.refill(at, now, page.running);
        let left = self.refilled.iter().filter(|(_, lane)| *lane == Lane::Fair).count();
        let waiting = page.queued - page.urgent + usize::from(page.direct.is_some()) - left;
        let Some(running) = page.running else { return Ok(()) };
        let first = self.most_urgent(at);
        let wanted = if self.corners[at].on_context {
            let over = self.budget_end(book, at).is_some_and(|end| end.get() <= now);
            let outdone = first.is_some_and(|first| self.more_urgent(first, running));
            let due = self.held(running).map_or(u64::MAX, super::Grant::due);
            let floor = &mut self.corners[at].floor;
            let claims = waiting > 0 && {
                floor.wanted(now, true);
                floor.claims(now, due).is_some()
            };
            over || outdone || claims
        } else {
            first.is_some()
        };
        ensure(reschedule || !wanted, || {
            format!("the timer asks for no decision: {running:?} runs, {first:?} is ready on a context")
        })
    }

    /// Whoever's refill has come is ready on its context; `running` is so from the next decision on.
    fn refill(&mut self, at: usize, now: u64, running: Option<ThreadRef>) {
        while let Some(&(due, index)) = self.corners[at].refills.first()
            && due <= now
        {
            let Some(thread) = self.holders[index as usize].as_ref().map(|holder| holder.thread) else {
                return;
            };
            let lane = self.lane(thread);
            if running == Some(thread) {
                self.forget(at, thread);
                continue;
            }
            self.stand(at, thread, Lane::Context, None);
            self.tally.refilled += 1;
            self.refilled.push((thread, lane));
        }
    }
}
