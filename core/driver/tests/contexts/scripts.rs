//! Random scripts of create, bind, call, reply, timeout, cancel, kill, revoke, logout and exit over several CPUs, against a slow
//! and obvious model. The model knows only where each thread stands in which chain.

use crate::machines::cpu;
use crate::rig::{Doing, Rig, at, ms, on};
use mainspring_abi::{ContextRef, Nanos, ThreadRef};
use mainspring_driver::contexts::{
    CallEnd, ContextError, Delivery, Drained, Grant, Lent, Location, NoLoan, RevokeReason,
};
use mainspring_driver::{Machine, placement};
use mainspring_sched::Authority;
use mainspring_sched::context::ContextSpec;
use proptest::prelude::*;

const CPUS: usize = 3;
const THREADS: usize = 8;

#[derive(Clone, Debug)]
enum Step {
    Grant {
        budget: u64,
        cpus: Vec<usize>,
        depth: u8,
        of_session: bool,
    },
    Create {
        context: usize,
        budget: u64,
    },
    Bind {
        context: usize,
        thread: usize,
    },
    Unbind {
        thread: usize,
    },
    /// The running thread of a CPU waits for a request.
    Receive {
        on: usize,
    },
    /// The running thread of a CPU calls one that waits for a request.
    Call {
        on: usize,
        server: usize,
    },
    /// The running thread of a CPU answers the call that it took last.
    Answer {
        on: usize,
        end: CallEnd,
    },
    /// A call ends from outside.
    End {
        caller: usize,
        end: CallEnd,
    },
    /// A thread that waits for a request is woken by something else.
    Disturb {
        thread: usize,
    },
    /// A thread leaves a CPU for another one, and arrives later.
    Depart {
        from: usize,
        to: usize,
    },
    Arrive,
    Deliver {
        thread: usize,
    },
    Kill {
        thread: usize,
    },
    Start {
        thread: usize,
        on: usize,
    },
    Revoke {
        context: usize,
    },
    Drain {
        context: usize,
    },
    Logout,
    Adjust {
        context: usize,
        budget: u64,
    },
    Advance {
        micros: u64,
    },
}

fn ends() -> impl Strategy<Value = CallEnd> {
    (0..CallEnd::ALL.len()).prop_map(|index| CallEnd::ALL[index])
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let thread = 0..THREADS;
    let context = 0..12_usize;
    let step = prop_oneof![
        2 => (1..4_u64, prop::collection::vec(0..CPUS, 1..=CPUS), 1..4_u8, any::<bool>())
            .prop_map(|(budget, cpus, depth, of_session)| Step::Grant { budget, cpus, depth, of_session }),
        1 => (context.clone(), 1..4_u64).prop_map(|(context, budget)| Step::Create { context, budget }),
        4 => (context.clone(), thread.clone()).prop_map(|(context, thread)| Step::Bind { context, thread }),
        1 => thread.clone().prop_map(|thread| Step::Unbind { thread }),
        4 => (0..CPUS).prop_map(|on| Step::Receive { on }),
        12 => (0..CPUS, thread.clone()).prop_map(|(on, server)| Step::Call { on, server }),
        4 => (0..CPUS, ends()).prop_map(|(on, end)| Step::Answer { on, end }),
        2 => (thread.clone(), ends()).prop_map(|(caller, end)| Step::End { caller, end }),
        4 => thread.clone().prop_map(|thread| Step::Disturb { thread }),
        6 => (0..CPUS, 0..CPUS).prop_map(|(from, to)| Step::Depart { from, to }),
        2 => Just(Step::Arrive),
        2 => thread.clone().prop_map(|thread| Step::Deliver { thread }),
        1 => thread.clone().prop_map(|thread| Step::Kill { thread }),
        2 => (thread, 0..CPUS).prop_map(|(thread, on)| Step::Start { thread, on }),
        1 => context.clone().prop_map(|context| Step::Revoke { context }),
        1 => context.clone().prop_map(|context| Step::Drain { context }),
        1 => Just(Step::Logout),
        1 => (context, 1..5_u64).prop_map(|(context, budget)| Step::Adjust { context, budget }),
        6 => (1..3_000_u64).prop_map(|micros| Step::Advance { micros }),
    ];
    prop::collection::vec(step, 1..160)
}

/// One context, as the model knows it. The last of the chain holds it, the others have lent it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Whereabouts {
    Rest,
    Chain(Vec<ThreadRef>),
    Gone,
}

struct Known {
    who: ContextRef,
    at: Whereabouts,
    budget: Nanos,
    of_session: bool,
    /// Its session has ended, and it is on loan.
    ends: bool,
}

struct World {
    rig: Rig,
    known: Vec<Known>,
    session: mainspring_driver::sessions::SessionRef,
    skipped: u64,
}

impl World {
    fn new() -> Self {
        let mut rig = Rig::new(CPUS, THREADS);
        let session = rig.contexts.sessions.open().expect("room");
        // The first half of the threads are of the session.
        for index in 0..THREADS / 2 {
            rig.machine.sessions[index] = Some(session);
        }
        let mut world = Self { rig, known: Vec::new(), session, skipped: 0 };
        for server in CPUS..THREADS {
            world.rig.run(server);
            assert!(world.rig.receive(server));
        }
        for client in 0..CPUS {
            world.grant(client as u64 + 1, &[client, (client + 1) % CPUS], 3, client == 1);
            world.bind(client, client);
        }
        world
    }

    /// The threads that wait for a request, also those that were woken by something else.
    fn receivers(&self) -> Vec<usize> {
        (0..THREADS).filter(|index| self.rig.threads[*index].doing == Doing::Receiving).collect()
    }

    fn context(&self, index: usize) -> Option<usize> {
        (!self.known.is_empty()).then(|| index % self.known.len())
    }

    /// Whether a thread can be acted on: it lives and does not move.
    fn sits(&self, index: usize) -> bool {
        let thread = &self.rig.threads[index];
        thread.doing != Doing::Dead && self.rig.machine.moving() != Some(thread.name)
    }

    fn running(&self, on: usize) -> Option<usize> {
        self.rig.running(cpu(on))
    }

    /// The model: `caller` is at the end of its call.
    fn call_ended(&mut self, caller: ThreadRef) {
        for known in &mut self.known {
            if let Whereabouts::Chain(chain) = &mut known.at
                && let Some(place) = chain.iter().position(|one| *one == caller)
                && place + 1 < chain.len()
            {
                chain.truncate(place + 1);
                if place == 0 && known.ends {
                    known.at = Whereabouts::Gone;
                }
            }
        }
    }

    /// The model: `thread` is no more.
    fn thread_ended(&mut self, thread: ThreadRef) {
        for known in &mut self.known {
            if let Whereabouts::Chain(chain) = &mut known.at
                && let Some(place) = chain.iter().position(|one| *one == thread)
            {
                chain.truncate(place);
                if place == 0 {
                    known.at = if known.ends { Whereabouts::Gone } else { Whereabouts::Rest };
                } else if place == 1 && known.ends {
                    known.at = Whereabouts::Gone;
                }
            }
        }
    }

    fn step(&mut self, step: &Step) {
        match step.clone() {
            Step::Grant { budget, cpus, depth, of_session } => self.grant(budget, &cpus, depth, of_session),
            Step::Create { context, budget } => self.create(context, budget),
            Step::Bind { context, thread } => self.bind(context, thread),
            Step::Unbind { thread } => self.unbind(thread),
            Step::Receive { on } => {
                if let Some(thread) = self.running(on) {
                    self.rig.receive(thread);
                }
            }
            Step::Call { on, server } => self.call(on, server),
            Step::Answer { on, end } => {
                let caller =
                    self.running(on).and_then(|server| self.rig.threads[server].serving.last().copied());
                if let Some(caller) = caller {
                    self.end(caller.index() as usize, end);
                }
            }
            Step::End { caller, end } => self.end(caller, end),
            Step::Disturb { thread } => {
                let receivers = self.receivers();
                if !receivers.is_empty() {
                    let name = self.rig.threads[receivers[thread % receivers.len()]].name;
                    placement::wake(&mut self.rig.machine, name);
                }
            }
            Step::Depart { from, to } => {
                self.rig.machine.depart(cpu(from), cpu(to));
            }
            Step::Arrive => {
                self.rig.machine.arrive();
            }
            Step::Deliver { thread } => {
                let name = self.rig.threads[thread].name;
                if let Delivery::SentBack(who) = self.rig.contexts.deliver(&mut self.rig.machine, name) {
                    let known = self.known.iter_mut().find(|known| known.who == who).expect("it was granted");
                    let Whereabouts::Chain(chain) = &mut known.at else { panic!("nobody had {who:?}") };
                    assert_eq!(chain.pop(), Some(name));
                    if chain.len() == 1 && known.ends {
                        known.at = Whereabouts::Gone;
                    }
                }
            }
            Step::Kill { thread } => self.kill(thread),
            Step::Start { thread, on } => {
                if self.rig.threads[thread].doing == Doing::Dead {
                    self.rig.start(thread, on);
                }
            }
            Step::Revoke { context } => self.revoke(context),
            Step::Drain { context } => self.drain(context),
            Step::Logout => self.logout(),
            Step::Adjust { context, budget } => self.adjust(context, budget),
            Step::Advance { micros } => self.rig.advance(Nanos::from_micros(micros)),
        }
        self.rig.decide_all();
    }

    fn grant(&mut self, budget: u64, cpus: &[usize], depth: u8, of_session: bool) {
        let live = self.known.iter().filter(|known| known.at != Whereabouts::Gone).count();
        if live >= 12 {
            return;
        }
        let of_session = of_session && self.rig.contexts.sessions.is_live(self.session);
        let spec = ContextSpec { cpus: on(cpus), depth, ..ContextSpec::new(ms(budget), ms(10)) };
        let grant = Grant { session: of_session.then_some(self.session), ..at(cpus[0]) };
        let who = self.rig.grant_spec(spec, grant);
        self.known.push(Known { who, at: Whereabouts::Rest, budget: ms(budget), of_session, ends: false });
    }

    fn create(&mut self, context: usize, budget: u64) {
        let Some(index) = self.context(context) else { return };
        let creator = self.known[index].who;
        let now = self.rig.machine.now;
        let wish = ContextSpec { depth: 1, ..ContextSpec::new(ms(budget), ms(10)) };
        let Some(held) = self.rig.contexts.spec(creator.id()).cloned() else { return };
        let wish = ContextSpec { cpus: held.cpus.clone(), ..wish };
        if let Ok(who) = self.rig.contexts.create(now, creator, wish) {
            let Known { of_session, .. } = self.known[index];
            assert!(ms(budget) <= held.budget, "no more than its creator holds");
            assert!(
                !self.known[index].ends && self.known[index].at != Whereabouts::Gone,
                "a stale name creates"
            );
            self.known.push(Known {
                who,
                at: Whereabouts::Rest,
                budget: ms(budget),
                of_session,
                ends: false,
            });
        }
    }

    fn bind(&mut self, context: usize, thread: usize) {
        let Some(index) = self.context(context).filter(|_| self.sits(thread)) else { return };
        let (who, name) = (self.known[index].who, self.rig.threads[thread].name);
        let bare = self.rig.authority(thread, |authority| *authority == Authority::BestEffort) == Some(true);
        // One that comes over is ready, so it may not be one that waits for an answer.
        if matches!(self.rig.threads[thread].doing, Doing::Calling(_)) {
            return;
        }
        match self.rig.contexts.bind(&mut self.rig.machine, who, name) {
            Ok(()) => {
                assert!(bare && self.known[index].at == Whereabouts::Rest);
                self.known[index].at = Whereabouts::Chain(vec![name]);
            }
            Err(_) => assert!(
                !bare || self.known[index].at != Whereabouts::Rest || self.runs_elsewhere(thread, who)
            ),
        }
    }

    fn runs_elsewhere(&self, thread: usize, who: ContextRef) -> bool {
        let home = self.rig.machine.home(self.rig.threads[thread].name).expect("it lives");
        let allowed = self.rig.contexts.spec(who.id()).is_some_and(|spec| spec.cpus.allows(home.cpu));
        !allowed && self.rig.machine.core(home.cpu).current() == Some(home.seat)
    }

    fn unbind(&mut self, thread: usize) {
        let name = self.rig.threads[thread].name;
        let Some(who) = self.rig.contexts.unbind(&mut self.rig.machine, name) else { return };
        let known = self.known.iter_mut().find(|known| known.who == who).expect("it was granted");
        assert_eq!(known.at, Whereabouts::Chain(vec![name]), "only its owner can give it up");
        known.at = Whereabouts::Rest;
    }

    fn call(&mut self, on: usize, server: usize) {
        let Some(caller) = self.running(on) else { return };
        let receivers = self.receivers();
        if receivers.is_empty() || self.rig.threads[caller].doing != Doing::Working {
            return;
        }
        let server = receivers[server % receivers.len()];
        let (from, to) = (self.rig.threads[caller].name, self.rig.threads[server].name);
        match self.rig.call(caller, server) {
            Ok(Lent::Asleep(who) | Lent::Ready(who) | Lent::InFlight(who)) => {
                let known = self.known.iter_mut().find(|known| known.who == who).expect("it was granted");
                let Whereabouts::Chain(chain) = &mut known.at else { panic!("nobody had {who:?}") };
                assert_eq!(chain.last(), Some(&from), "who lends has it");
                chain.push(to);
            }
            Err(NoLoan::Loan(_)) => {}
            Err(NoLoan::NotCalling) => panic!("it waits for the call"),
            Err(_) => {}
        }
    }

    fn end(&mut self, caller: usize, end: CallEnd) {
        if let Doing::Calling(_) = self.rig.threads[caller].doing {
            let name = self.rig.threads[caller].name;
            self.rig.end_call(caller, end);
            self.call_ended(name);
        }
    }

    fn kill(&mut self, thread: usize) {
        if self.rig.threads[thread].doing == Doing::Dead {
            return;
        }
        let name = self.rig.threads[thread].name;
        let callers = self.rig.threads[thread].serving.clone();
        self.rig.kill(thread);
        self.thread_ended(name);
        for caller in callers {
            self.call_ended(caller);
        }
    }

    fn revoke(&mut self, context: usize) {
        let Some(index) = self.context(context) else { return };
        let who = self.known[index].who;
        let revoked = self.rig.contexts.revoke(&mut self.rig.machine, who, RevokeReason::Explicit);
        let could = self.known[index].at != Whereabouts::Gone && !self.known[index].ends;
        assert_eq!(revoked.is_ok(), could, "a live context can be revoked, once");
        if could {
            self.known[index].at = Whereabouts::Gone;
        }
    }

    fn drain(&mut self, context: usize) {
        let Some(index) = self.context(context) else { return };
        let Known { who, ref at, ends, .. } = self.known[index];
        match self.rig.contexts.drain(&mut self.rig.machine, who) {
            Ok(Drained::Ok(_)) => assert!(*at != Whereabouts::Gone && !ends, "a stale name drains {who:?}"),
            Ok(Drained::StaleGeneration { current: 1 }) => assert!(*at == Whereabouts::Gone || ends),
            Err(ContextError::Forgotten(_)) => assert_eq!(*at, Whereabouts::Gone),
            other => panic!("{other:?}"),
        }
    }

    fn logout(&mut self) {
        let Ok(logout) = self.rig.contexts.logout(&mut self.rig.machine, self.session) else { return };
        let of_session = |thread: &ThreadRef| (thread.index() as usize) < THREADS / 2;
        let mut skipped = 0;
        for known in self.known.iter_mut().filter(|known| !known.ends) {
            match &known.at {
                Whereabouts::Gone => {}
                Whereabouts::Rest if known.of_session => known.at = Whereabouts::Gone,
                Whereabouts::Rest => {}
                Whereabouts::Chain(chain) => {
                    let belongs = known.of_session || of_session(&chain[0]);
                    if chain.len() > 1 {
                        skipped += u64::from(belongs || chain.iter().any(of_session));
                        known.ends = belongs;
                    } else if belongs {
                        known.at = Whereabouts::Gone;
                    }
                }
            }
        }
        assert_eq!(u64::from(logout.inflight_skipped), skipped);
        self.skipped += skipped;
    }

    fn adjust(&mut self, context: usize, budget: u64) {
        let Some(index) = self.context(context) else { return };
        let (who, now) = (self.known[index].who, self.rig.machine.now);
        let terms = (ms(budget), ms(10), ms(10));
        let adjusted = self.rig.contexts.adjust(&mut self.rig.machine, now, who, terms);
        if adjusted.is_ok() {
            self.known[index].budget = ms(budget);
        }
    }

    /// Everything that the model knows, compared with the table and with every CPU.
    fn compare(&mut self) {
        self.rig.verify();
        assert_eq!(self.rig.contexts.inflight_skipped(), self.skipped);
        for known in &self.known {
            let place = self.rig.contexts.place(known.who.id());
            match (&known.at, place) {
                (Whereabouts::Gone, Some(Location::Gone) | None) => {}
                (Whereabouts::Rest, Some(Location::Rest)) => {}
                (Whereabouts::Chain(chain), Some(Location::Bound(holder))) => assert_eq!(chain, &[holder]),
                (Whereabouts::Chain(chain), Some(Location::Lent(holder) | Location::InFlight(holder))) => {
                    assert!(chain.len() > 1 && chain.last() == Some(&holder), "{chain:?} against {holder:?}");
                }
                (at, place) => panic!("{:?} is {place:?} and not {at:?}", known.who),
            }
        }
        for index in 0..THREADS {
            let name = self.rig.threads[index].name;
            let holds = self.known.iter().find(|known| {
                let flies = self.rig.contexts.place(known.who.id()) == Some(Location::InFlight(name));
                !flies && matches!(&known.at, Whereabouts::Chain(chain) if chain.last() == Some(&name))
            });
            let lent = self.known.iter().find(|known| {
                matches!(&known.at, Whereabouts::Chain(chain) if chain.split_last().unwrap().1.contains(&name))
            });
            assert_eq!(self.rig.holds(index), holds.map(|known| known.who), "thread {index} holds");
            assert_eq!(self.rig.lent(index), lent.map(|known| known.who), "thread {index} has lent");
            self.check_budget(index);
        }
    }

    /// The refills of a context add up to its budget.
    fn check_budget(&self, index: usize) {
        let sum = self.rig.authority(index, |authority| match authority {
            Authority::Context(context) => {
                let sum = context.refills().list().iter().map(|refill| refill.amount.get()).sum();
                Some((context.who(), Nanos::new(sum)))
            }
            _ => None,
        });
        if let Some(Some((who, sum))) = sum {
            let known = self.known.iter().find(|known| known.who == who).expect("it was granted");
            assert_eq!(sum, known.budget, "the refills of {who:?} sum to its budget");
        }
    }

    /// Lets every call end: no thread waits for ever.
    fn wind_up(&mut self) {
        self.rig.machine.arrive();
        for caller in 0..THREADS {
            self.end(caller, CallEnd::Reply);
            self.compare();
        }
        for thread in 0..THREADS {
            assert_eq!(self.rig.lent(thread), None, "thread {thread} waits for ever");
        }
        assert_eq!(self.rig.contexts.in_flight(), 0);
    }
}

proptest! {
    //= OWN:context.one-place OWN:donation.exits
    #[test]
    fn every_context_is_in_one_place_whatever_happens(script in steps()) {
        let mut world = World::new();
        for step in &script {
            world.step(step);
            world.compare();
        }
        world.wind_up();
    }
}
