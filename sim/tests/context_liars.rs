//! The checkers of contexts are checked: each lie about a context is found.
//!
//! Each lie changes one event or outcome of a run that is right otherwise. A rule that no lie can break is no rule.

mod common;

use common::drive::{Drive, setting};
use mainspring_abi::{ContextRef, CpuId, Nanos, Policy, ThreadRef};
use mainspring_record::check::contexts::Grants;
use mainspring_record::check::machine_model::MachineModel;
use mainspring_record::check::observation::{AuthorityCopy, ContextCopy, Observation, ObservedEvent};
use mainspring_record::check::timers::Timers;
use mainspring_record::check::{Checks, Setting, Wide};
use mainspring_record::watch::Watch;
use mainspring_sched::context::{Context, ContextSpec};
use mainspring_sched::flight::{EventRef, Outcome};
use mainspring_sched::{Config, Cpu, Decision, Entity, IdleTick, Spec, State, Stop, Via};

/// Passes on what it sees, until `lie` changes a observed.
struct Liar<L> {
    checks: Checks<Wide>,
    lie: L,
    lied: bool,
    pending: Option<ObservedEvent>,
}

impl<L: FnMut(&Cpu, &mut Observation) -> bool> Watch for Liar<L> {
    fn before(&mut self, _now: Nanos, _cpu: &Cpu, event: EventRef<'_>) {
        self.pending = Some(ObservedEvent::of(event));
    }

    fn after(&mut self, now: Nanos, cpu: &Cpu, outcome: Outcome) -> Result<(), String> {
        let event = self.pending.take().expect("an event came before");
        let mut observed = Observation { now, cpu: cpu.id().index(), event, outcome };
        self.lied |= !self.lied && (self.lie)(cpu, &mut observed);
        self.checks.judge(cpu, &observed)
    }
}

const STEPS: usize = 150;

/// What the checkers say when `lie` has its way once, in the first run that gives it an occasion.
fn found_out<L: FnMut(&Cpu, &mut Observation) -> bool>(lie: impl Fn() -> L) -> String {
    for seed in 0..500 {
        let checks = Checks::new(setting(seed));
        let mut drive = Drive::new(seed, Liar { checks, lie: lie(), lied: false, pending: None });
        let result = (0..STEPS).try_for_each(|_| drive.step());
        match (drive.watch.lied, result) {
            (true, result) => return result.expect_err("the lie was not noticed"),
            (false, result) => result.unwrap_or_else(|what| panic!("seed {seed}, nobody lied: {what}")),
        }
    }
    panic!("there was never an occasion to lie");
}

fn says(what: &str, wanted: &str) {
    assert!(what.contains(wanted), "not `{wanted}`: {what}");
}

/// Changes the context that a bound thread was given, if there was one and `change` wants to.
fn given(
    mut change: impl FnMut(ThreadRef, &mut ContextCopy) -> bool,
) -> impl FnMut(&Cpu, &mut Observation) -> bool {
    move |_, observed| match (&mut observed.event, observed.outcome) {
        (ObservedEvent::Bind(seat, given), Outcome::Ready(..)) => change(seat.thread(), given),
        _ => false,
    }
}

#[test]
fn a_budget_that_grew_on_the_way_is_noticed() {
    let what = found_out(|| {
        given(|_, given| {
            let worth = given.used == 0;
            given.refills[0].1 += u64::from(worth);
            worth
        })
    });
    says(&what, "do not make up");
}

#[test]
fn a_refill_that_came_nearer_on_the_way_is_noticed() {
    let what = found_out(|| {
        given(|_, given| {
            let worth = given.used > 0;
            given.refills[0].0 -= u64::from(worth);
            worth
        })
    });
    says(&what, "came with");
}

#[test]
fn use_that_was_forgotten_is_noticed() {
    let what = found_out(|| {
        given(|_, given| {
            let worth = given.used > 0;
            given.used -= u64::from(worth);
            worth
        })
    });
    says(&what, "on the way");
}

#[test]
fn a_context_that_its_holder_waits_for_is_noticed() {
    let what = found_out(|| {
        given(|thread, given| {
            let worth = given.used > 0;
            given.donors.extend(worth.then_some(thread));
            worth
        })
    });
    says(&what, "waiting for it");
}

#[test]
fn a_context_in_two_places_is_noticed() {
    // What is bound now is said to be what another thread sits on.
    let what = found_out(|| {
        |cpu: &Cpu, observed: &mut Observation| match (&mut observed.event, observed.outcome) {
            (ObservedEvent::Bind(seat, given), Outcome::Ready(..)) => {
                let others = cpu.threads().into_iter().filter(|view| view.seat != *seat);
                let held = others
                    .filter_map(|view| cpu.entity(view.seat).ok()?.context().map(ContextCopy::of))
                    .next();
                if let Some(held) = held {
                    **given = held;
                    return true;
                }
                false
            }
            _ => false,
        }
    });
    says(&what, "sits elsewhere");
}

#[test]
fn a_thread_that_arrives_without_its_lent_context_is_noticed() {
    let what = found_out(|| {
        |_: &Cpu, observed: &mut Observation| match (&mut observed.event, observed.outcome) {
            (ObservedEvent::Accept(arrival, _), Outcome::Seated(..)) => {
                arrival.authority = AuthorityCopy::Lent(ContextRef::new(1, 0));
                true
            }
            _ => false,
        }
    });
    says(&what, "though it has lent");
}

#[test]
fn somebody_less_urgent_is_noticed() {
    let what = found_out(|| {
        |cpu: &Cpu, observed: &mut Observation| {
            let Outcome::Decided(Decision::Run(run)) = &mut observed.outcome else { return false };
            let Some(view) = cpu.queue().last().cloned().filter(|_| cpu.runs_on_context()) else {
                return false;
            };
            (run.seat, run.thread) = (view.seat, view.thread);
            true
        }
    });
    says(&what, "comes first");
}

#[test]
fn idling_while_a_context_is_ready_is_noticed() {
    let what = found_out(|| {
        |cpu: &Cpu, observed: &mut Observation| {
            let worth =
                matches!(observed.outcome, Outcome::Decided(Decision::Run(_))) && cpu.runs_on_context();
            if worth {
                observed.outcome = Outcome::Decided(Decision::Idle);
            }
            worth
        }
    });
    says(&what, "comes first");
}

#[test]
fn a_nanosecond_beyond_the_budget_is_noticed() {
    let what = found_out(|| {
        |cpu: &Cpu, observed: &mut Observation| match &mut observed.outcome {
            Outcome::Decided(Decision::Run(run)) if cpu.runs_on_context() => {
                run.slice_end += Nanos::new(1);
                true
            }
            _ => false,
        }
    });
    says(&what, "its budget ends at");
}

#[test]
fn running_while_throttled_is_noticed() {
    let what = found_out(|| {
        |cpu: &Cpu, observed: &mut Observation| {
            let Outcome::Decided(Decision::Run(run)) = &mut observed.outcome else { return false };
            let throttled = cpu.threads().into_iter().find(|view| view.state == State::Throttled);
            let Some(view) = throttled.filter(|_| !cpu.runs_on_context()) else { return false };
            (run.seat, run.thread) = (view.seat, view.thread);
            true
        }
    });
    says(&what, "cannot be used");
}

#[test]
fn a_wakeup_that_does_not_hurry_is_noticed() {
    let what = found_out(|| {
        |cpu: &Cpu, observed: &mut Observation| {
            let Some(seat) = observed.event.seat() else { return false };
            let on_context = cpu.entity(seat).is_ok_and(|entity| entity.context().is_some());
            match (&observed.event, &mut observed.outcome) {
                (ObservedEvent::Wake(_), Outcome::Ready(reschedule, _)) if on_context => {
                    *reschedule = !*reschedule;
                    true
                }
                _ => false,
            }
        }
    });
    says(&what, "by the rules");
}

#[test]
fn a_refill_that_nobody_looks_at_is_noticed() {
    let what = found_out(|| {
        |cpu: &Cpu, observed: &mut Observation| {
            let Outcome::Timer(told) = &mut observed.outcome else { return false };
            let first = cpu.queue().first().is_some_and(|view| view.tag.is_none());
            let worth = told.reschedule && cpu.current().is_some() && !cpu.runs_on_context() && first;
            told.reschedule &= !worth;
            worth
        }
    });
    says(&what, "asks for no decision");
}

#[test]
fn a_donor_that_is_woken_by_its_timeout_is_noticed() {
    let what = found_out(|| {
        |cpu: &Cpu, observed: &mut Observation| match &mut observed.outcome {
            Outcome::Expired(Some((seat, _)), reschedule)
                if matches!(cpu.state(*seat), Ok(State::Asleep(_))) =>
            {
                *reschedule = true;
                true
            }
            _ => false,
        }
    });
    says(&what, "context is away");
}

#[test]
fn taking_another_context_is_noticed() {
    for kind in 0..3 {
        let what = found_out(|| {
            move |_: &Cpu, observed: &mut Observation| {
                let fits = match observed.event {
                    ObservedEvent::Unbind(_) => kind == 0,
                    ObservedEvent::Lend(..) => kind == 1,
                    ObservedEvent::WriteOff(_) => kind == 2,
                    _ => false,
                };
                match &mut observed.outcome {
                    Outcome::Took(who) if fits => {
                        *who = ContextRef::new(who.id() + 1, who.generation());
                        true
                    }
                    _ => false,
                }
            }
        });
        says(&what, "has");
    }
}

#[test]
fn lending_in_a_circle_is_noticed() {
    let what = found_out(|| {
        |_: &Cpu, observed: &mut Observation| match (&mut observed.event, observed.outcome) {
            (ObservedEvent::Lend(seat, to), Outcome::Took(_)) => {
                *to = seat.thread();
                true
            }
            _ => false,
        }
    });
    says(&what, "must not lend");
}

#[test]
fn a_refusal_without_a_reason_is_noticed() {
    let what = found_out(|| {
        |_: &Cpu, observed: &mut Observation| {
            let worth =
                matches!((&observed.event, observed.outcome), (ObservedEvent::Unbind(_), Outcome::Took(_)));
            if worth {
                observed.outcome = Outcome::BadSeat;
            }
            worth
        }
    });
    assert!(what.contains("without a reason") || what.contains("by the model"), "{what}");
}

#[test]
fn a_direct_target_on_a_context_is_noticed() {
    let what = found_out(|| {
        |cpu: &Cpu, observed: &mut Observation| {
            let ObservedEvent::HandOff(seat) = observed.event else { return false };
            let holds = cpu.entity(seat).is_ok_and(|entity| entity.context().is_some());
            let worth = holds && matches!(observed.outcome, Outcome::Ready(..));
            if worth {
                observed.outcome = Outcome::Direct(false);
            }
            worth
        }
    });
    says(&what, "is the direct target and has");
}

#[test]
fn sleeping_past_a_refill_is_noticed() {
    let what = found_out(|| {
        |cpu: &Cpu, observed: &mut Observation| match &mut observed.outcome {
            Outcome::Idle(IdleTick::Suppressed { wake_at })
                if cpu.threads().iter().any(|view| view.state == State::Throttled) =>
            {
                *wake_at += Nanos::new(1);
                true
            }
            _ => false,
        }
    });
    says(&what, "the idle tick became");
}

#[test]
fn a_thread_on_a_context_that_blocks_unseen_is_noticed() {
    let what = found_out(|| {
        |_: &Cpu, observed: &mut Observation| {
            let worth = matches!(observed.event, ObservedEvent::BlockCurrent(..));
            if worth {
                observed.event = ObservedEvent::RescheduleReceived;
            }
            worth
        }
    });
    says(&what, "by the model");
}

/// A machine that keeps another floor than it says.
#[test]
fn another_floor_is_noticed() {
    for (really, said, wanted) in [(0, 300_000, "insists"), (300_000, 0, "comes first")] {
        let found = (0..2_000).find_map(|seed| {
            let honest = setting(seed);
            if honest.floor_ppm != really {
                return None;
            }
            let mut drive = Drive::new(seed, Checks::<Wide>::new(Setting { floor_ppm: said, ..honest }));
            (0..STEPS).try_for_each(|_| drive.step()).err().filter(|what| what.contains(wanted))
        });
        assert!(found.is_some(), "a floor of {really} was taken for one of {said}");
    }
}

/// A machine whose timer comes too late for a budget.
#[test]
fn an_overrun_on_a_punctual_machine_is_noticed() {
    let found = (0..500).find_map(|seed| {
        let mut drive = Drive::new(seed, Checks::<Wide>::new(setting(seed)));
        drive.late = true;
        (0..STEPS).try_for_each(|_| drive.step()).err().filter(|what| what.contains("on a context that had"))
    });
    assert!(found.is_some(), "nobody noticed that budgets were overrun");
}

/// A CPU that grants more than the checkers know of, and so arms its timer too late for what they know.
#[test]
fn a_timer_that_is_armed_too_late_is_noticed() {
    let ms = Nanos::from_millis;
    let bench = |budget: u64| {
        let mut cpu = Cpu::new(Config::new(CpuId::BOOT, Policy::Eevdf));
        cpu.reserve(2).expect("two seats fit");
        let spec = ContextSpec::new(ms(budget), ms(8));
        (cpu, Box::new(Context::new(ContextRef::new(1, 0), spec, ms(0))))
    };
    let thread = Spec::new(ThreadRef::new(0, 0));
    let setting = Setting { cpus: 1, policy: Policy::Eevdf, floor_ppm: 50_000, ..setting(0) };
    let (mut book, mut grants) = (MachineModel::new(1), Grants::new(&setting));
    let mut timers = Timers::new(1);
    let ((mut honest, small), (mut other, large)) = (bench(2), bench(3));
    let mut follow = |cpu: &Cpu, other: &Cpu, event: ObservedEvent, outcome: Outcome, now: Nanos| {
        let observed = Observation { now, cpu: 0, event, outcome };
        grants.follow(&book, cpu, &observed).expect("honest");
        book.note(&grants, &observed).expect("honest");
        timers.after(&setting, &book, &grants, cpu, &observed).expect("armed in time");
        timers.after(&setting, &book, &grants, other, &observed)
    };
    let arrival = Entity::new(thread.clone());
    let event = ObservedEvent::of(EventRef::Accept(&arrival, Via::Admit));
    let seat = honest.accept(ms(0), arrival, Via::Admit).expect("room").0;
    let _ = other.accept(ms(0), Entity::new(thread), Via::Admit).expect("room");
    follow(&honest, &other, event, Outcome::Seated(seat.slot(), true), ms(0)).expect("nothing to arm yet");
    let event = ObservedEvent::of(EventRef::Bind(seat, &small));
    honest.bind(ms(0), seat, small).expect("it has none");
    other.bind(ms(0), seat, large).expect("it has none");
    follow(&honest, &other, event, Outcome::Ready(true, false), ms(0)).expect("nothing to arm yet");
    let decision = honest.resched(ms(0), Stop::Nothing);
    let _ = other.resched(ms(0), Stop::Nothing);
    let event = || ObservedEvent::of(EventRef::Resched(&Stop::Nothing));
    let what = follow(&honest, &other, event(), decision.into(), ms(0)).expect_err("armed for 3 ms, not 2");
    says(&what, "after the end of the budget");
    let stop = ObservedEvent::of(EventRef::Resched(&Stop::Preempted));
    let decision = honest.resched(ms(2), Stop::Preempted);
    assert_eq!(decision, Decision::Idle, "its budget is used up");
    let what =
        follow(&honest, &bench(1).0, stop, decision.into(), ms(2)).expect_err("no refill is awaited there");
    says(&what, "after the refill");
}
