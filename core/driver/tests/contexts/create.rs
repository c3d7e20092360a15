//! Which caller may create a context, what it may grant, and which deadlines have to hold.

use crate::machines::cpu;
use crate::rig::{Rig, at, ms, on, rules};
use mainspring_abi::{ContextRef, Nanos, ProcessId};
use mainspring_authority::admission::{CpuDenial, Denial, Effort, Part};
use mainspring_driver::contexts::{
    AdmissionRules, BindError, ContextError, CreateError, Excess, Grant, HomeCpu, Location, RevokeReason,
};
use mainspring_driver::ledgers::{Amounts, LedgerError, Profile, Resource};
use mainspring_driver::sessions::SessionError;
use mainspring_sched::context::{ContextSpec, SpecError};
use proptest::prelude::*;

const ADMITTED: Grant = Grant { session: None, process: None, ledger: None, home: HomeCpu::Admitted };

fn spec(budget: u64, period: u64) -> ContextSpec {
    ContextSpec::new(ms(budget), ms(period))
}

fn create(rig: &mut Rig, creator: ContextRef, spec: ContextSpec) -> Result<ContextRef, CreateError> {
    let now = rig.machine.now;
    rig.contexts.create(now, creator, spec)
}

fn grant(rig: &mut Rig, spec: ContextSpec, grant: Grant) -> Result<ContextRef, CreateError> {
    let now = rig.machine.now;
    rig.contexts.grant(now, spec, grant)
}

//= OWN:create.authority
#[test]
fn nothing_is_created_that_grants_more_than_its_creator_holds() {
    let mut rig = Rig::new(2, 1);
    let held = ContextSpec { criticality: 1, priority: 3, depth: 2, cpus: on(&[0]), ..spec(4, 10) };
    let creator = rig.grant_spec(held, at(0));
    let within = ContextSpec { criticality: 1, priority: 3, depth: 2, cpus: on(&[0]), ..spec(4, 10) };
    let refused = |excess| Err(CreateError::Exceeds(excess));
    let more = ContextSpec { budget: ms(5), ..within.clone() };
    let share = Excess::Share { asked: 500_000_000, held: 400_000_000 };
    assert_eq!(create(&mut rig, creator, more), refused(share));
    let higher = ContextSpec { criticality: 2, ..within.clone() };
    assert_eq!(create(&mut rig, creator, higher), refused(Excess::Criticality { asked: 2, held: 1 }));
    let higher = ContextSpec { priority: 4, ..within.clone() };
    assert_eq!(create(&mut rig, creator, higher), refused(Excess::Priority { asked: 4, held: 3 }));
    let deeper = ContextSpec { depth: 3, ..within.clone() };
    assert_eq!(create(&mut rig, creator, deeper), refused(Excess::Depth { asked: 3, held: 2 }));
    let wider = ContextSpec { cpus: on(&[0, 1]), ..within.clone() };
    assert_eq!(create(&mut rig, creator, wider), refused(Excess::Cpu(cpu(1))));
    let senseless = ContextSpec { budget: ms(0), ..within.clone() };
    assert_eq!(create(&mut rig, creator, senseless), Err(CreateError::Spec(SpecError::ZeroBudget)));
    assert_eq!(rig.contexts.names().count(), 1, "no refusal has changed anything");
    let created = create(&mut rig, creator, within).expect("as much as its creator holds");
    assert_ne!(created.id(), creator.id());
}

//= OWN:create.authority TICK:L5.no-mint
#[test]
fn nothing_is_adjusted_to_more_than_its_creator_held() {
    let mut rig = Rig::new(1, 1);
    let creator = rig.grant_spec(ContextSpec { cpus: on(&[0]), ..spec(4, 10) }, at(0));
    let made =
        create(&mut rig, creator, ContextSpec { cpus: on(&[0]), ..spec(1, 10) }).expect("less than held");
    let mut adjust = |who, (budget, period)| {
        let now = rig.machine.now;
        let terms = (ms(budget), ms(period), ms(period));
        rig.contexts.adjust_if_admitted(&mut rig.machine, now, who, terms)
    };
    let share = Excess::Share { asked: 500_000_000, held: 400_000_000 };
    assert_eq!(adjust(made, (5, 10)), Err(CreateError::Exceeds(share)));
    assert_eq!(adjust(made, (2, 5)), Ok(()), "as much as its creator held");
    assert_eq!(adjust(creator, (5, 10)), Ok(()), "the machine granted it: its ledger is the limit");
    assert_eq!(adjust(made, (5, 10)), Err(CreateError::Exceeds(share)), "what it held when it created it");
}

//= OWN:create.authority
#[test]
fn where_deadlines_do_not_hold_nothing_is_adjusted_to_take_more() {
    let mut rig = Rig::new(1, 1);
    let decided = |rig: &mut Rig| {
        let home = Grant { home: HomeCpu::Decided(cpu(0)), ..ADMITTED };
        grant(rig, spec(7, 10), home).expect("the machine itself decides")
    };
    let (one, _other) = (decided(&mut rig), decided(&mut rig));
    let mut adjust = |(budget, period, deadline)| {
        let now = rig.machine.now;
        rig.contexts.adjust_if_admitted(&mut rig.machine, now, one, (ms(budget), ms(period), ms(deadline)))
    };
    let denied = |adjusted| matches!(adjusted, Err(CreateError::NotAdmitted { .. }));
    for more in [(8, 10, 10), (7, 9, 9), (6, 8, 8), (7, 10, 8), (7, 20, 9)] {
        assert!(denied(adjust(more)), "{more:?} takes more in some window");
    }
    assert_eq!(adjust((6, 10, 10)), Ok(()), "14 of 10 were promised: 13 are no worse");
    assert_eq!(adjust((6, 20, 10)), Ok(()));
    assert_eq!(adjust((3, 10, 10)), Ok(()), "all deadlines hold");
}

//= OWN:create.authority ARCH:ctx.generation ARCH:ctx.create-bind ARCH:ctx.ids TICK:L5.no-mint
#[test]
fn a_stale_or_revoked_name_creates_binds_and_revokes_nothing() {
    let mut rig = Rig::new(1, 1);
    let who = rig.grant(1, 10, &[0]);
    let gone = rig.contexts.revoke(&mut rig.machine, who, RevokeReason::Explicit).expect("it lives").who;
    let stale = ContextError::StaleGeneration { current: 1 };
    let revoked = ContextError::Revoked { generation: 1, reason: RevokeReason::Explicit };
    let thread = rig.name(0);
    for (name, error) in [(who, stale), (gone, revoked)] {
        assert_eq!(create(&mut rig, name, spec(1, 10)), Err(CreateError::Creator(error)));
        assert_eq!(rig.contexts.bind(&mut rig.machine, name, thread), Err(BindError::Context(error)));
        assert_eq!(rig.contexts.revoke(&mut rig.machine, name, RevokeReason::Explicit), Err(error));
    }
    let nobody = ContextRef::new(77, 0);
    let unknown = BindError::Context(ContextError::Unknown(nobody));
    assert_eq!(rig.contexts.bind(&mut rig.machine, nobody, thread), Err(unknown));
    assert_eq!(rig.contexts.place(who.id()), Some(Location::Gone), "nothing has changed");
    let next = rig.grant(1, 10, &[0]);
    assert_ne!(next.id(), who.id(), "a number is given once");
}

//= EVO:gate.context
#[test]
fn a_context_gets_the_first_cpu_where_all_deadlines_hold_or_none() {
    let mut rig = Rig::new(2, 1);
    let first = grant(&mut rig, spec(6, 10), ADMITTED).expect("an empty CPU");
    let second = grant(&mut rig, spec(6, 10), ADMITTED).expect("the other CPU");
    assert_eq!((rig.contexts.home(first.id()), rig.contexts.home(second.id())), (Some(cpu(0)), Some(cpu(1))));
    let CreateError::NotAdmitted { cpu: tried, denial } =
        grant(&mut rig, spec(5, 10), ADMITTED).expect_err("11 of 10 on either")
    else {
        panic!("it does not fit")
    };
    assert_eq!((tried, denial), (cpu(1), CpuDenial { part: Part::Band(0), denial: Denial::Overload }));
    // Long-run use alone would let it pass: the deadline does not.
    let tight = ContextSpec { deadline: ms(5), ..spec(5, 100) };
    let refused = grant(&mut rig, tight.clone(), ADMITTED);
    let due = |error| {
        matches!(
            error,
            CreateError::NotAdmitted { denial: CpuDenial { denial: Denial::Demand { .. }, .. }, .. }
        )
    };
    assert!(refused.is_err_and(due), "6 and 5 are due within 10: {refused:?}");
    rig.contexts.revoke(&mut rig.machine, first, RevokeReason::Explicit).expect("it lives");
    let third = grant(&mut rig, tight, ADMITTED).expect("what was promised there is over");
    assert_eq!(rig.contexts.home(third.id()), Some(cpu(0)));
    let nowhere = ContextSpec { cpus: on(&[7]), ..spec(1, 10) };
    assert_eq!(grant(&mut rig, nowhere, ADMITTED), Err(CreateError::NoCpu));
}

//= OWN:create.authority
#[test]
fn every_create_is_charged_to_the_ledger_and_refunded_at_the_end() {
    let mut rig = Rig::new(1, 1);
    let limits = Amounts::NONE.with(Resource::Contexts, 2).with(Resource::CpuShare, 500_000_000);
    let ledger = rig.contexts.ledgers.open(&Profile { limits }, None).expect("room");
    let mine = Grant { ledger: Some(ledger), process: Some(ProcessId::new(3)), ..ADMITTED };
    let first = grant(&mut rig, spec(3, 10), mine).expect("within the limits");
    let refused = create(&mut rig, first, spec(3, 10));
    let over = LedgerError::Limit {
        ledger,
        resource: Resource::CpuShare,
        held: 300_000_000,
        asked: 300_000_000,
        limit: 500_000_000,
    };
    assert_eq!(refused, Err(CreateError::Ledger(over)), "what does not fit is named");
    create(&mut rig, first, spec(2, 10)).expect("the rest of the CPU time");
    let refused = create(&mut rig, first, ContextSpec::new(ms(1), ms(1000)));
    assert!(matches!(
        refused,
        Err(CreateError::Ledger(LedgerError::Limit { resource: Resource::Contexts, .. }))
    ));
    let held = |rig: &Rig| rig.contexts.ledgers.info(ledger).expect("it is open").0;
    let all = Amounts::NONE.with(Resource::Contexts, 2).with(Resource::CpuShare, 500_000_000);
    assert_eq!(held(&rig), all);
    assert_eq!(rig.contexts.owner_exited(&mut rig.machine, ProcessId::new(4)), 0, "another process");
    assert_eq!(rig.contexts.owner_exited(&mut rig.machine, ProcessId::new(3)), 2);
    assert_eq!(held(&rig), Amounts::NONE, "what has ended is paid back");
    let stale = ContextError::StaleGeneration { current: 1 };
    assert_eq!(create(&mut rig, first, spec(1, 10)), Err(CreateError::Creator(stale)));
}

proptest! {
    /// A tenant whose grants are as urgent as it likes uses its own ledger up, and nothing of its neighbour's.
    //= OWN:create.authority
    #[test]
    fn what_fits_into_a_ledger_is_admitted_beside_any_grants_of_others(
        others in proptest::collection::vec((1..50_000_u64, 1_000..100_000_u64, 0..=100_u64), 0..12),
        own in proptest::collection::vec((1..20_000_u64, 1_000..100_000_u64, 0..=100_u64), 1..6),
    ) {
        let mut rig = Rig::new(1, 1);
        let mut tenant = |share| {
            let limits = Amounts::UNLIMITED.with(Resource::CpuShare, share);
            let ledger = rig.contexts.ledgers.open(&Profile { limits }, None).expect("room");
            Grant { ledger: Some(ledger), ..ADMITTED }
        };
        // Together what best effort leaves of the CPU.
        let (theirs, mine) = (tenant(600_000_000), tenant(350_000_000));
        let spec = |(budget, period, urgency): (u64, u64, u64)| {
            let us = Nanos::from_micros;
            let (budget, period) = (us(budget.min(period)), us(period));
            let deadline = Nanos::new(period.get() - (period - budget).get() * urgency / 100);
            ContextSpec { deadline, ..ContextSpec::new(budget, period) }
        };
        for (grants, tenant) in [(others, theirs), (own, mine)] {
            for wish in grants {
                let granted = grant(&mut rig, spec(wish), tenant);
                let by_ledger = matches!(granted, Err(CreateError::Ledger(_)));
                prop_assert!(granted.is_ok() || by_ledger, "{wish:?}: {granted:?}");
            }
        }
    }
}

/// What a process makes from a context that it was given is charged to the giver, and ends with either of the two.
//= OWN:create.authority
#[test]
fn what_a_process_makes_from_anothers_context_ends_with_the_maker_and_with_the_ledger() {
    let mut rig = Rig::new(1, 1);
    let limits = Amounts::UNLIMITED.with(Resource::Contexts, 3);
    let ledger = rig.contexts.ledgers.open(&Profile { limits }, None).expect("room");
    let (giver, maker) = (ProcessId::new(3), ProcessId::new(4));
    let mine = Grant { ledger: Some(ledger), process: Some(giver), ..ADMITTED };
    let given = grant(&mut rig, spec(2, 10), mine).expect("it fits");
    let held = |rig: &Rig| rig.contexts.ledgers.info(ledger).expect("it is open").0.get(Resource::Contexts);
    let now = rig.machine.now;
    let make = |rig: &mut Rig| rig.contexts.create_for(now, given, spec(1, 10), Some(maker));
    for _ in 0..2 {
        make(&mut rig).expect("it fits");
    }
    assert!(make(&mut rig).is_err(), "the giver's limit counts");
    assert_eq!(rig.contexts.owner_exited(&mut rig.machine, maker), 2);
    assert_eq!(held(&rig), 1, "the giver has its room back");
    let left = make(&mut rig).expect("there is room again");
    assert_eq!(rig.contexts.owner_exited(&mut rig.machine, giver), 1);
    assert_eq!(rig.contexts.ledgers.close(ledger), Err(LedgerError::InUse(ledger)));
    assert_eq!(rig.contexts.ledger_closes(&mut rig.machine, ledger), 1);
    assert_eq!(rig.contexts.place(left.id()), Some(Location::Gone));
    assert_eq!(rig.contexts.ledgers.close(ledger), Ok(()));
}

/// A machine that decides with interrupts off takes a bounded number of steps, whatever it is asked for.
#[test]
fn a_grant_that_takes_too_long_to_decide_is_refused() {
    let mut rig = Rig::new(1, 1);
    // Together they use nearly all of the CPU, so that it is busy for thousands of periods.
    let hard = |budget: u64, period: u64| {
        let budget = Nanos::new(budget);
        ContextSpec { deadline: budget, ..ContextSpec::new(budget, Nanos::new(period)) }
    };
    for (looks, decided) in [(1 << 24, true), (8, false)] {
        rig.contexts = mainspring_driver::Contexts::new(
            4,
            AdmissionRules { effort: Effort::new(looks), ..rules(1) },
            mainspring_driver::sessions::Sessions::new(1).expect("one fits"),
            mainspring_driver::ledgers::Ledgers::new(1).expect("one fits"),
        )
        .expect("four fit");
        grant(&mut rig, hard(5_000, 10_001), ADMITTED).expect("the quick test is enough for one");
        let refused = grant(&mut rig, hard(4_999, 9_998), ADMITTED);
        let undecided = |why: &CpuDenial| why.denial == Denial::Undecided;
        let is_undecided =
            matches!(&refused, Err(CreateError::NotAdmitted { denial, .. }) if undecided(denial));
        assert_eq!(is_undecided, !decided, "{refused:?}");
    }
}

//= ARCH:logout.revoke
#[test]
fn after_a_logout_nothing_of_the_session_can_be_used_or_created() {
    let mut rig = Rig::new(1, 2);
    let session = rig.contexts.sessions.open().expect("room");
    let mine = Grant { session: Some(session), ..ADMITTED };
    let (resting, bound) = (grant(&mut rig, spec(1, 10), mine), grant(&mut rig, spec(1, 10), mine));
    let (resting, bound) = (resting.expect("it fits"), bound.expect("it fits"));
    let other = rig.grant(1, 10, &[0]);
    let thread = rig.name(0);
    rig.contexts.bind(&mut rig.machine, bound, thread).expect("free");
    let logout = rig.contexts.logout(&mut rig.machine, session).expect("it is live");
    assert_eq!((logout.revoked, logout.inflight_skipped), (2, 0));
    assert_eq!(rig.holds(0), None);
    let now = rig.machine.now;
    for who in [resting, bound] {
        let stale = ContextError::StaleGeneration { current: 1 };
        assert_eq!(rig.contexts.info(&mut rig.machine, now, who), Err(stale));
        assert_eq!(create(&mut rig, who, spec(1, 10)), Err(CreateError::Creator(stale)));
    }
    let ended = SessionError::Ended(session);
    assert_eq!(grant(&mut rig, spec(1, 10), mine), Err(CreateError::Session(ended)));
    assert_eq!(rig.contexts.logout(&mut rig.machine, session), Err(ended), "once");
    assert!(rig.contexts.info(&mut rig.machine, now, other).is_ok(), "nobody else is touched");
}

//= ARCH:ctx.release ARCH:ctx.create-bind
#[test]
fn a_release_clears_only_the_binding_that_it_names() {
    let mut rig = Rig::new(1, 2);
    let (one, two) = (rig.bound(0, &[0]), rig.grant(1, 10, &[0]));
    let thread = rig.name(0);
    assert_eq!(rig.contexts.bind(&mut rig.machine, two, thread), Err(BindError::HasOne(one)));
    let another = rig.name(1);
    assert_eq!(rig.contexts.bind(&mut rig.machine, one, another), Err(BindError::Busy(thread)));
    assert_eq!(rig.contexts.release(&mut rig.machine, two, thread), Ok(false));
    assert_eq!(rig.holds(0), Some(one));
    assert_eq!(rig.contexts.release(&mut rig.machine, one, thread), Ok(true));
    rig.contexts.bind(&mut rig.machine, two, thread).expect("it has none any more");
    rig.contexts.bind(&mut rig.machine, one, another).expect("it is free again");
}

#[test]
fn a_thread_that_waits_comes_over_to_its_context_and_one_that_runs_is_told_where_to_go() {
    let mut rig = Rig::new(2, 3);
    let who = rig.grant(1, 10, &[1]);
    rig.run(0);
    let runs = rig.name(0);
    let elsewhere = BindError::Elsewhere(cpu(1));
    assert_eq!(rig.contexts.bind(&mut rig.machine, who, runs), Err(elsewhere));
    assert!(rig.receive(0));
    rig.contexts.bind(&mut rig.machine, who, runs).expect("it waits, and comes over");
    let now = rig.machine.now;
    let info = rig.contexts.info(&mut rig.machine, now, who).expect("it lives");
    assert_eq!((info.place, info.home, info.budget_enforced), (Location::Bound(runs), cpu(1), true));
    let away = rig.grant(1, 10, &[0]);
    let info = rig.contexts.info(&mut rig.machine, now, away).expect("it lives");
    assert_eq!((info.place, info.budget_enforced), (Location::Rest, false), "nobody's time is charged to it");
}

//= ARCH:ctx.ids
#[test]
fn a_full_table_forgets_what_has_ended_and_never_a_number() {
    let mut rig = Rig::new(1, 1);
    rig.contexts = mainspring_driver::Contexts::new(
        2,
        rules(1),
        mainspring_driver::sessions::Sessions::new(1).expect("one fits"),
        mainspring_driver::ledgers::Ledgers::new(1).expect("one fits"),
    )
    .expect("two fit");
    let (first, second) = (rig.grant(1, 10, &[0]), rig.grant(1, 10, &[0]));
    let capacity = match grant(&mut rig, spec(1, 10), at(0)) {
        Err(CreateError::Full { capacity }) => capacity,
        other => panic!("both live: {other:?}"),
    };
    assert!(capacity >= 2);
    rig.contexts.revoke(&mut rig.machine, first, RevokeReason::Explicit).expect("it lives");
    let third = rig.grant(1, 10, &[0]);
    assert_eq!((first.id(), second.id(), third.id()), (1, 2, 3));
    let now = rig.machine.now;
    assert_eq!(rig.contexts.info(&mut rig.machine, now, first), Err(ContextError::Forgotten(first)));
    assert!(rig.contexts.is_gone(first.id()), "who keeps its number finds out that it is gone");
    assert!(!rig.contexts.is_gone(second.id()) && !rig.contexts.is_gone(third.id() + 1));
    assert!(rig.contexts.info(&mut rig.machine, now, second).is_ok());
    assert!(rig.contexts.info(&mut rig.machine, now, third).is_ok());
}
