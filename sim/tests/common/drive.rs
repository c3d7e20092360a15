//! A few CPUs without a machine: events at random, each shown to a watcher.

use mainspring_abi::{ContextRef, CpuId, LatencyClass, Nanos, Policy, ProcessId, ThreadRef, Weight};
use mainspring_record::check::{Bound, Setting};
use mainspring_record::watch::Watch;
use mainspring_sched::Floor;
use mainspring_sched::context::{Context, ContextSpec, Overrun};
use mainspring_sched::flight::{EventRef, Outcome};
use mainspring_sched::{
    Authority, Config, Cpu, Decision, Entity, IdleConditions, Seat, Spec, State, Stop, Timeout, Via,
    WaitKind, WaitPermit, WaitQuota,
};

/// How many threads there may ever be in one run.
const THREADS: u32 = 24;

/// How many contexts there may ever be in one run.
const CONTEXTS: usize = 8;

/// How often a CPU may be asked at one instant before that is a standstill.
const STANDSTILL: u32 = 1_000;

type Step = Result<(), String>;

/// Numbers by seed.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((u128::from(z ^ (z >> 31)) * bound as u128) >> 64) as usize
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        if from.is_empty() { None } else { Some(from[self.below(from.len())]) }
    }
}

/// The CPUs, and whatever is outside of them.
pub struct Drive<W> {
    pub watch: W,
    pub cpus: Vec<Cpu>,
    pub now: Nanos,
    pub dice: Dice,
    /// What was done, for a reader of a failure.
    pub log: Vec<String>,
    /// Whether it is kept.
    pub logged: bool,
    pub events: u64,
    /// Whether interrupts come a little too late.
    pub late: bool,
    quota: WaitQuota,
    /// Contexts that no thread has, by their numbers.
    at_rest: Vec<Option<Box<Context>>>,
    created: Vec<ContextRef>,
    #[expect(clippy::vec_box, reason = "a context is boxed once and moves in its box")]
    loose: Vec<Box<Context>>,
    admitted: u32,
    policy: Policy,
    floor_ppm: u32,
}

/// The setting of the run with `seed`.
fn shape(seed: u64) -> (usize, Policy, u32) {
    let mut dice = Dice::new(seed ^ 0xA5A5);
    let policy = if dice.one_in(4) { Policy::Wfq } else { Policy::Eevdf };
    (1 + dice.below(3), policy, [0, 50_000, 50_000, 300_000][dice.below(4)])
}

/// What its checkers must know.
pub fn setting(seed: u64) -> Setting {
    let (cpus, policy, floor_ppm) = shape(seed);
    Setting {
        cpus,
        policy,
        quantum: Nanos::from_millis(3),
        tick: Nanos::from_millis(10),
        floor_ppm,
        requests: vec![None; THREADS as usize],
        punctual: true,
        one_clock: true,
        bound: Bound::None,
        strict: false,
    }
}

impl<W: Watch> Drive<W> {
    pub fn new(seed: u64, watch: W) -> Self {
        let (count, policy, floor_ppm) = shape(seed);
        let floor = Floor::from_ppm(floor_ppm).expect("a share");
        let cpus = (0..count).map(|index| {
            let id = CpuId::new(index).expect("few CPUs");
            let mut cpu = Cpu::new(Config { floor, ..Config::new(id, policy) });
            cpu.reserve(THREADS as usize).expect("seats fit in memory");
            cpu
        });
        Self {
            watch,
            cpus: cpus.collect(),
            now: Nanos::ZERO,
            dice: Dice::new(seed),
            log: Vec::new(),
            logged: false,
            events: 0,
            late: false,
            quota: WaitQuota::new(1_000, 1_000, 1),
            at_rest: Vec::new(),
            created: Vec::new(),
            loose: Vec::new(),
            admitted: 0,
            policy,
            floor_ppm,
        }
    }

    /// For people: what this run is like.
    pub fn describe(&self) -> String {
        format!("{} CPUs, {:?}, floor {} ppm", self.cpus.len(), self.policy, self.floor_ppm)
    }

    fn event<T>(
        &mut self,
        at: usize,
        event: EventRef<'_>,
        act: impl FnOnce(&mut Cpu, Nanos) -> T,
    ) -> Result<T, String>
    where
        for<'a> &'a T: IntoOutcome,
    {
        let name = self.logged.then(|| format!("{:?} cpu{at}: {}", self.now, brief(event)));
        self.watch.before(self.now, &self.cpus[at], event);
        let done = act(&mut self.cpus[at], self.now);
        let outcome = (&done).outcome();
        self.note(name, &outcome);
        self.watch.after(self.now, &self.cpus[at], outcome)?;
        Ok(done)
    }

    fn note(&mut self, name: Option<String>, outcome: &dyn std::fmt::Debug) {
        self.events += 1;
        if let Some(name) = name {
            self.log.push(format!("{name} -> {outcome:?}"));
        }
    }

    fn permit_back(&mut self, permit: Option<WaitPermit>) {
        if let Some(permit) = permit {
            self.quota.give_back(permit);
        }
    }

    /// Every seated thread that `suits`.
    fn seats(&self, suits: impl Fn(&Cpu, Seat, State, &Authority) -> bool) -> Vec<(usize, Seat)> {
        let mut found = Vec::new();
        for (at, cpu) in self.cpus.iter().enumerate() {
            for view in cpu.threads() {
                let entity = cpu.entity(view.seat).expect("it sits there");
                if suits(cpu, view.seat, view.state, entity.authority()) {
                    found.push((at, view.seat));
                }
            }
        }
        found
    }

    fn find(&self, thread: ThreadRef) -> Option<(usize, Seat)> {
        self.seats(|_, seat, _, _| seat.thread() == thread).pop()
    }

    /// One thing happens, and what follows from it.
    pub fn step(&mut self) -> Step {
        let at = self.dice.below(self.cpus.len());
        match self.dice.below(22) {
            0 | 1 => self.admit(at),
            2 | 3 => self.block(at),
            4 | 5 => self.wake(),
            6 => self.stop(at, Stop::Yielded),
            7 => self.exit(at),
            8..=10 => self.bind(),
            11 => self.unbind(),
            12..=14 => self.call(at),
            15 | 16 => self.reply(),
            17 => self.lose(),
            18 => self.hold_or_release(),
            19 => self.move_one(),
            20 => self.steal(at),
            _ => self.other(at),
        }?;
        self.decide_all()?;
        self.pass()
    }

    fn admit(&mut self, at: usize) -> Step {
        if self.admitted == THREADS {
            return Ok(());
        }
        let weights = [1, 20, 64, 64, 64, 300, 1_000];
        let classes =
            [LatencyClass::Normal, LatencyClass::Normal, LatencyClass::Interactive, LatencyClass::Batch];
        let spec = Spec {
            weight: Weight::new(weights[self.dice.below(weights.len())]).expect("a weight"),
            class: classes[self.dice.below(classes.len())],
            ..Spec::new(ThreadRef::new(self.admitted, 0))
        };
        self.admitted += 1;
        self.accept(at, Entity::new(spec), Via::Admit)
    }

    fn accept(&mut self, at: usize, entity: Entity, via: Via) -> Step {
        let name =
            self.logged.then(|| format!("{:?} cpu{at}: accept {:?} {via:?}", self.now, entity.thread()));
        self.watch.before(self.now, &self.cpus[at], EventRef::Accept(&entity, via));
        let result = self.cpus[at].accept(self.now, entity, via);
        let outcome = Outcome::from(&result);
        self.note(name, &outcome);
        self.watch.after(self.now, &self.cpus[at], outcome)
    }

    fn timeout(&mut self, kind: WaitKind) -> Option<Timeout> {
        if kind != WaitKind::Sleep && !self.dice.one_in(3) {
            return None;
        }
        let permit = self.quota.take(ProcessId::new(0)).expect("an ample quota");
        let length = Nanos::new(1 + self.dice.below(20_000_000) as u64);
        Some(Timeout { deadline: self.now + length, user_data: 0, permit })
    }

    fn stop(&mut self, at: usize, stop: Stop) -> Step {
        if self.cpus[at].current().is_none() {
            return Ok(());
        }
        self.decide(at, stop)
    }

    fn decide(&mut self, at: usize, stop: Stop) -> Step {
        let name = self.logged.then(|| format!("{:?} cpu{at}: resched {stop:?}", self.now));
        self.watch.before(self.now, &self.cpus[at], EventRef::Resched(&stop));
        let decision = self.cpus[at].resched(self.now, stop);
        let _ = self.cpus[at].take_overrun();
        self.note(name, &decision);
        self.watch.after(self.now, &self.cpus[at], decision.into())?;
        if decision == Decision::Idle {
            let conditions = IdleConditions::default();
            let _ = self
                .event(at, EventRef::EnterIdle(&conditions), |cpu, now| cpu.enter_idle(now, &conditions))?;
        }
        Ok(())
    }

    fn block(&mut self, at: usize) -> Step {
        let kind = WaitKind::ALL[self.dice.below(WaitKind::ALL.len())];
        if self.cpus[at].current().is_none() {
            return Ok(());
        }
        if self.dice.one_in(3) {
            self.hand_off(at)?;
        }
        let timeout = self.timeout(kind);
        if self.dice.one_in(4) {
            return self.block_current(at, kind, timeout);
        }
        self.stop(at, Stop::Blocked(kind, timeout))
    }

    fn block_current(&mut self, at: usize, kind: WaitKind, timeout: Option<Timeout>) -> Step {
        let name = self.logged.then(|| format!("{:?} cpu{at}: block {kind:?} {timeout:?}", self.now));
        self.note(name, &Outcome::Done);
        self.watch.before(self.now, &self.cpus[at], EventRef::BlockCurrent(kind, timeout.as_ref()));
        assert!(self.cpus[at].block_current(self.now, kind, timeout), "somebody ran");
        let _ = self.cpus[at].take_overrun();
        self.watch.after(self.now, &self.cpus[at], Outcome::Done)
    }

    fn hand_off(&mut self, at: usize) -> Step {
        let here = self.cpus[at].id();
        let asleep = self.seats(|cpu, _, state, _| cpu.id() == here && matches!(state, State::Asleep(_)));
        let Some((_, seat)) = self.dice.pick(&asleep) else { return Ok(()) };
        let done = self.event(at, EventRef::HandOff(seat), |cpu, now| cpu.hand_off(now, seat))?;
        match done {
            Ok(mainspring_sched::Handoff::Direct(permit)) => self.permit_back(permit),
            Ok(mainspring_sched::Handoff::Queued(woken)) => self.permit_back(woken.permit),
            Err(_) => {}
        }
        Ok(())
    }

    fn wake(&mut self) -> Step {
        let careless = self.dice.one_in(10);
        let asleep = self.seats(|_, _, state, authority| {
            careless || matches!(state, State::Asleep(_)) && !matches!(authority, Authority::Lent(_))
        });
        let Some((at, seat)) = self.dice.pick(&asleep) else { return Ok(()) };
        self.wake_at(at, seat)
    }

    fn wake_at(&mut self, at: usize, seat: Seat) -> Step {
        if let Ok(woken) = self.event(at, EventRef::Wake(seat), |cpu, now| cpu.wake(now, seat))? {
            self.permit_back(woken.permit);
        }
        Ok(())
    }

    fn exit(&mut self, at: usize) -> Step {
        let left = self.event(at, EventRef::ExitCurrent, Cpu::exit_current)?;
        let Some(mut entity) = left else { return Ok(()) };
        match entity.take_context() {
            Some(context) => self.give_back(context),
            None => Ok(()),
        }
    }

    /// A context that has left its thread goes back to its donor, or to rest, or among the loose ones.
    fn give_back(&mut self, mut context: Box<Context>) -> Step {
        while let Some(donor) = context.return_to() {
            let Some((at, seat)) = self.find(donor) else { continue };
            let lent = matches!(self.cpus[at].entity(seat).map(Entity::authority), Ok(Authority::Lent(who)) if *who == context.who());
            if lent {
                self.bind_to(at, seat, context)?;
                return self.wake_at(at, seat);
            }
        }
        if self.dice.one_in(2) {
            context.suspend();
            let place = context.who().id() as usize - 1;
            self.at_rest[place] = Some(context);
        } else {
            self.loose.push(context);
        }
        Ok(())
    }

    fn a_context(&mut self) -> Option<Box<Context>> {
        if !self.loose.is_empty() && self.dice.one_in(2) {
            let index = self.dice.below(self.loose.len());
            let mut context = self.loose.swap_remove(index);
            // Its donors have given it up: it starts afresh.
            while context.return_to().is_some() {}
            return Some(context);
        }
        if self.created.len() < CONTEXTS && self.dice.one_in(2) {
            let period = [1_000_000, 5_000_000, 10_000_000, 40_000_000, 400_000_000][self.dice.below(5)];
            let most = period * (1 + self.dice.below(9)) / 10;
            let budget = 1 + self.dice.below(most);
            let deadline = budget.max(period / (1 + self.dice.below(3)));
            let spec = ContextSpec {
                deadline: Nanos::new(deadline as u64),
                priority: self.dice.below(2) as u16,
                criticality: self.dice.below(2) as u8,
                refills: 2 + self.dice.below(4) as u8,
                overrun: Overrun::ALL[self.dice.below(4)],
                depth: 1 + self.dice.below(3) as u8,
                ..ContextSpec::new(Nanos::new(budget as u64), Nanos::new(period as u64))
            };
            let who = ContextRef::new(self.created.len() as u32 + 1, 0);
            self.created.push(who);
            self.at_rest.push(Some(Box::new(Context::new(who, spec, self.now))));
        }
        let who = self.dice.pick(&self.created)?;
        self.at_rest[who.id() as usize - 1].take()
    }

    fn bind(&mut self) -> Step {
        let careless = self.dice.one_in(10);
        let free = self.seats(|_, _, _, authority| careless || matches!(authority, Authority::BestEffort));
        let Some((at, seat)) = self.dice.pick(&free) else { return Ok(()) };
        match self.a_context() {
            Some(context) => self.bind_to(at, seat, context),
            None => Ok(()),
        }
    }

    fn bind_to(&mut self, at: usize, seat: Seat, context: Box<Context>) -> Step {
        let name = self.logged.then(|| {
            format!(
                "{:?} cpu{at}: bind {seat:?} {:?} {:?}",
                self.now,
                context.who(),
                context.refills().list()
            )
        });
        self.watch.before(self.now, &self.cpus[at], EventRef::Bind(seat, &context));
        let bound = self.cpus[at].bind(self.now, seat, context);
        let outcome = Outcome::from(&bound);
        self.note(name, &outcome);
        self.watch.after(self.now, &self.cpus[at], outcome)?;
        if let Err(refused) = bound {
            self.loose.push(refused.context);
        }
        Ok(())
    }

    fn unbind(&mut self) -> Step {
        let holding = self.seats(|_, _, _, authority| matches!(authority, Authority::Context(_)));
        let Some((at, seat)) = self.dice.pick(&holding) else { return Ok(()) };
        match self.unbind_at(at, seat)? {
            Some(context) => self.give_back(context),
            None => Ok(()),
        }
    }

    fn unbind_at(&mut self, at: usize, seat: Seat) -> Result<Option<Box<Context>>, String> {
        let taken = self.event(at, EventRef::Unbind(seat), |cpu, now| cpu.unbind(now, seat))?;
        let _ = self.cpus[at].take_overrun();
        Ok(taken.ok())
    }

    /// The running thread calls another on its own CPU, or one that comes there, with its context if it has one.
    fn call(&mut self, at: usize) -> Step {
        let Some(caller) = self.cpus[at].current() else { return Ok(()) };
        let here = self.cpus[at].id();
        let careless = self.dice.one_in(8);
        let servers = self.seats(|cpu, seat, _, authority| {
            cpu.id() == here && seat != caller && (careless || matches!(authority, Authority::BestEffort))
        });
        let Some((_, server)) = self.dice.pick(&servers) else { return Ok(()) };
        let timeout = self.timeout(WaitKind::Call);
        self.block_current(at, WaitKind::Call, timeout)?;
        let lent = self.event(at, EventRef::Lend(caller, server.thread()), |cpu, now| {
            cpu.lend(now, caller, server.thread())
        })?;
        if let Ok(context) = lent {
            self.bind_to(at, server, context)?;
        }
        if matches!(self.cpus[at].state(server), Ok(State::Asleep(_))) {
            self.wake_at(at, server)?;
        }
        Ok(())
    }

    /// A thread that works on a loan is done with it.
    fn reply(&mut self) -> Step {
        let on_loan = self.seats(|_, _, _, authority| {
            matches!(authority, Authority::Context(context) if context.donors().depth() > 0)
        });
        let Some((at, seat)) = self.dice.pick(&on_loan) else { return Ok(()) };
        if self.cpus[at].current() == Some(seat) && self.dice.one_in(2) {
            self.block_current(at, WaitKind::Receive, None)?;
        }
        match self.unbind_at(at, seat)? {
            Some(context) => self.give_back(context),
            None => Ok(()),
        }
    }

    /// A thread's loan will not come back.
    fn lose(&mut self) -> Step {
        let careless = self.dice.one_in(10);
        let lent = self.seats(|_, _, _, authority| careless || matches!(authority, Authority::Lent(_)));
        let Some((at, seat)) = self.dice.pick(&lent) else { return Ok(()) };
        let lost = self.event(at, EventRef::WriteOff(seat), |cpu, _| cpu.write_off(seat))?;
        if lost.is_ok() && self.dice.one_in(2) {
            self.wake_at(at, seat)?;
        }
        Ok(())
    }

    fn hold_or_release(&mut self) -> Step {
        let held = self.seats(|_, _, state, _| state == State::Held);
        if let Some((at, seat)) = self.dice.pick(&held) {
            self.event(at, EventRef::Release(seat), |cpu, now| cpu.release(now, seat))?.ok();
            return Ok(());
        }
        let queued = self.seats(|_, _, state, _| state == State::Queued);
        let Some((at, seat)) = self.dice.pick(&queued) else { return Ok(()) };
        self.event(at, EventRef::Hold(seat), |cpu, now| cpu.hold(now, seat))?.ok();
        Ok(())
    }

    fn move_one(&mut self) -> Step {
        let seats = self.seats(|_, _, state, authority| {
            state != State::Running && !matches!(authority, Authority::Lent(_))
        });
        let Some((at, seat)) = self.dice.pick(&seats) else { return Ok(()) };
        let removed = self.event(at, EventRef::Remove(seat), |cpu, now| cpu.remove(now, seat))?;
        let Ok(removed) = removed else { return Ok(()) };
        self.permit_back(removed.permit);
        let mut entity = removed.entity;
        let to = self.dice.below(self.cpus.len());
        if self.dice.one_in(4) {
            // It ends; its context goes on.
            return entity.take_context().map_or(Ok(()), |context| self.give_back(context));
        }
        if self.dice.one_in(4)
            && let Some(context) = entity.take_context()
        {
            self.give_back(context)?;
        }
        self.accept(to, entity, Via::Admit)
    }

    /// With more than one other CPU, the machine chooses the victim.
    fn steal(&mut self, at: usize) -> Step {
        if self.cpus.len() != 2 || self.cpus[at].current().is_some() {
            return Ok(());
        }
        let (victim, thief) = (1 - at, self.cpus[at].id());
        let given = self.event(victim, EventRef::Give(thief), |cpu, now| cpu.give(now, thief))?;
        given.map_or(Ok(()), |entity| self.accept(at, entity, Via::Steal))
    }

    fn other(&mut self, at: usize) -> Step {
        let all = self.seats(|_, _, _, _| true);
        let Some((on, seat)) = self.dice.pick(&all) else { return Ok(()) };
        if self.dice.one_in(3) {
            return self.stop(at, Stop::Preempted);
        }
        if self.dice.one_in(2) {
            let weight = Weight::new([1, 64, 128, 500][self.dice.below(4)]).expect("a weight");
            self.event(on, EventRef::SetWeight(seat, weight), |cpu, _| cpu.set_weight(seat, weight))?.ok();
        } else {
            let class =
                [LatencyClass::Normal, LatencyClass::Interactive, LatencyClass::Batch][self.dice.below(3)];
            self.event(on, EventRef::SetClass(seat, class), |cpu, _| cpu.set_class(seat, class))?.ok();
        }
        Ok(())
    }

    /// Every CPU does what it wants to do at this instant.
    fn decide_all(&mut self) -> Step {
        for at in 0..self.cpus.len() {
            for turn in 0.. {
                if turn == STANDSTILL {
                    return Err(format!("CPU {at} asks for ever: {:?}", self.cpus[at].next_timer()));
                }
                if self.cpus[at].next_timer() <= self.now {
                    self.interrupt(at)?;
                    continue;
                }
                let idle = self.cpus[at].current().is_none();
                if idle && self.cpus[at].queued() > 0 {
                    self.decide(at, Stop::Nothing)?;
                } else if !idle && self.cpus[at].reschedule_wanted() {
                    self.decide(at, Stop::Preempted)?;
                } else {
                    break;
                }
            }
        }
        Ok(())
    }

    fn interrupt(&mut self, at: usize) -> Step {
        let _ = self.event(at, EventRef::Timer, Cpu::timer)?;
        while let Some(expired) = self.event(at, EventRef::Expire, Cpu::expire)? {
            self.permit_back(expired.woken.permit);
        }
        match (self.cpus[at].current(), self.cpus[at].reschedule_wanted()) {
            (Some(_), true) => self.decide(at, Stop::Preempted),
            (None, _) => self.decide(at, Stop::Nothing),
            _ => Ok(()),
        }
    }

    /// Some time passes, up to the next interrupt at most.
    fn pass(&mut self) -> Step {
        let turns = self.dice.below(4);
        for _ in 0..turns {
            let next = self.cpus.iter().map(Cpu::next_timer).min().expect("a CPU");
            let whole = next - self.now + Nanos::new(u64::from(self.late));
            let part = Nanos::new(1 + self.dice.below(2_000_000) as u64);
            self.now += if self.dice.one_in(2) { whole } else { whole.min(part) };
            self.decide_all()?;
        }
        Ok(())
    }

    /// The run is over.
    pub fn end(&mut self) -> Step {
        self.watch
            .end(self.now, &self.cpus.iter().collect::<Vec<_>>())
            .map_err(|(cpu, what)| format!("{cpu:?}: {what}"))
    }
}

/// What came of an event, as a record has it.
pub trait IntoOutcome {
    fn outcome(self) -> Outcome;
}

macro_rules! outcomes {
    ($($by_reference:ty),* ; $($by_value:ty),*) => {
        $(impl IntoOutcome for &$by_reference { fn outcome(self) -> Outcome { self.into() } })*
        $(impl IntoOutcome for &$by_value { fn outcome(self) -> Outcome { (*self).into() } })*
    };
}

outcomes!(
    Option<Entity>, Option<mainspring_sched::Expired>,
    Result<mainspring_sched::Woken, mainspring_sched::SeatError>,
    Result<mainspring_sched::Handoff, mainspring_sched::SeatError>,
    Result<mainspring_sched::Removed, mainspring_sched::SeatError>,
    Result<(), mainspring_sched::SeatError>,
    Result<ContextRef, mainspring_sched::UnbindError>,
    Result<Box<Context>, mainspring_sched::UnbindError>,
    Result<Box<Context>, mainspring_sched::LendError>;
    mainspring_sched::TimerOutcome, mainspring_sched::IdleTick
);

fn brief(event: EventRef<'_>) -> String {
    match event {
        EventRef::EnterIdle(_) => "enter idle".to_owned(),
        other => format!("{other:?}"),
    }
}
