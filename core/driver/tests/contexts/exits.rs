//! Every way in which a call can end, one test each: the caller has its context back, or it is gone, before the caller runs.

use crate::rig::{Rig, ms};
use mainspring_abi::{ContextRef, ProcessId};
use mainspring_driver::contexts::{
    CallEnd, ContextError, Delivery, Drained, Grant, Lent, LoanEnd, Location, NoLoan, OnBorrowedTime,
    RevokeReason,
};
use mainspring_driver::{Machine, placement};
use mainspring_sched::context::{ContextSpec, LoanError, NoticeKind};
use mainspring_sched::lease::{AccountingTarget, TargetStanding};
use mainspring_sched::{State, WaitKind};

/// On two CPUs: a caller with a context on CPU 0, a server without that waits, and a context that may be spent on both. The caller
/// has called.
fn in_a_call(server: usize) -> (Rig, ContextRef) {
    let mut rig = Rig::new(2, 4);
    rig.run(server);
    assert!(rig.receive(server));
    let who = rig.bound(0, &[0, 1]);
    rig.run(0);
    assert!(rig.call(0, server).is_ok());
    assert_eq!((rig.lent(0), rig.holds(server)), (Some(who), Some(who)));
    assert_eq!(rig.contexts.place(who.id()), Some(Location::Lent(rig.name(server))));
    (rig, who)
}

/// The caller cannot be woken while its context is away, and has it back once its call has ended by `end`.
fn returns_by(end: CallEnd, server: usize) {
    let (mut rig, who) = in_a_call(server);
    let caller = rig.name(0);
    assert_eq!(placement::wake(&mut rig.machine, caller), placement::Wake::NotAsleep, "its context is away");
    assert_eq!(rig.end_call(0, end), LoanEnd::Returned(who), "{end:?}");
    assert_eq!((rig.holds(0), rig.holds(server)), (Some(who), None));
    assert_eq!(rig.contexts.place(who.id()), Some(Location::Bound(caller)));
    rig.run(0);
}

//= OWN:donation.exits ARCH:donation.cancel TICK:L6.return-first EVO:gate.context
#[test]
fn a_reply_returns_the_loan() {
    returns_by(CallEnd::Reply, 2);
    returns_by(CallEnd::Reply, 1);
}

//= OWN:donation.exits ARCH:donation.cancel TICK:L6.return-first
#[test]
fn an_exception_returns_the_loan() {
    returns_by(CallEnd::Exception, 2);
    returns_by(CallEnd::Exception, 1);
}

//= OWN:donation.exits ARCH:donation.cancel TICK:L6.return-first
#[test]
fn an_invalid_result_returns_the_loan() {
    returns_by(CallEnd::InvalidResult, 1);
}

//= OWN:donation.exits ARCH:donation.cancel
#[test]
fn a_failed_delivery_returns_the_loan() {
    returns_by(CallEnd::DeliveryFailed, 1);
}

//= OWN:donation.exits ARCH:donation.cancel EVO:gate.context
#[test]
fn a_timeout_returns_the_loan_and_posts_a_notice() {
    returns_by(CallEnd::TimedOut, 2);
    let (mut rig, who) = in_a_call(1);
    rig.end_call(0, CallEnd::TimedOut);
    let Ok(Drained::Ok([None, Some(notice)])) = rig.contexts.drain(&mut rig.machine, who) else {
        panic!("a timeout is told")
    };
    assert_eq!((notice.context, notice.holder, notice.coalesced), (who, rig.name(0), 1));
    assert_eq!(NoticeKind::ALL[1], NoticeKind::DeadlineOrTimeout);
}

//= OWN:donation.exits ARCH:donation.cancel TICK:L6.return-first
#[test]
fn a_cancel_returns_the_loan() {
    returns_by(CallEnd::Cancelled, 1);
}

//= OWN:donation.exits ARCH:donation.cancel
#[test]
fn a_closed_endpoint_returns_the_loan() {
    returns_by(CallEnd::EndpointClosed, 1);
}

//= OWN:donation.exits ARCH:donation.cancel
#[test]
fn a_server_that_is_about_to_wait_for_its_next_request_returns_the_loan() {
    let (mut rig, who) = in_a_call(1);
    let server = rig.name(1);
    let sleeps = rig.contexts.about_to_wait(&mut rig.machine, server, WaitKind::Sleep);
    assert_eq!(sleeps, Err(OnBorrowedTime { context: who, kind: WaitKind::Sleep }));
    assert_eq!(rig.contexts.about_to_wait(&mut rig.machine, server, WaitKind::Call), Ok(()));
    assert_eq!(
        rig.holds(1),
        Some(who),
        "a call takes the loan along, and a wait that is refused changes nothing"
    );
    assert_eq!(rig.contexts.about_to_wait(&mut rig.machine, server, WaitKind::Receive), Ok(()));
    assert_eq!((rig.holds(0), rig.holds(1)), (Some(who), None));
    let home = rig.machine.home(rig.name(0)).expect("it lives");
    assert_eq!(rig.machine.core(home.cpu).state(home.seat), Ok(State::Asleep(WaitKind::Call)), "it waits on");
    rig.verify();
}

//= OWN:donation.exits ARCH:donation.cancel
#[test]
fn a_thread_that_is_to_end_lets_go_of_a_loan_or_of_its_own_context() {
    let (mut rig, who) = in_a_call(1);
    let (caller, server) = (rig.name(0), rig.name(1));
    rig.contexts.let_go(&mut rig.machine, server);
    assert_eq!((rig.holds(0), rig.holds(1)), (Some(who), None), "a loan goes back to the caller");
    rig.contexts.let_go(&mut rig.machine, caller);
    assert_eq!(rig.contexts.place(who.id()), Some(Location::Rest));
    rig.contexts.let_go(&mut rig.machine, caller);
    rig.verify();
}

//= OWN:donation.exits ARCH:donation.cancel
#[test]
fn the_exit_of_a_server_returns_the_loan() {
    for server in [1, 2] {
        let (mut rig, who) = in_a_call(server);
        rig.run(server);
        rig.kill(server);
        assert_eq!((rig.holds(0), rig.lent(0)), (Some(who), None));
        rig.run(0);
    }
}

//= OWN:donation.exits ARCH:donation.cancel
#[test]
fn the_kill_of_a_caller_takes_the_loan_back_to_rest() {
    for server in [1, 2] {
        let (mut rig, who) = in_a_call(server);
        rig.kill(0);
        assert_eq!(rig.holds(server), None, "it goes on as best effort");
        assert_eq!(rig.contexts.place(who.id()), Some(Location::Rest));
        let next = rig.name(3);
        rig.contexts.bind(&mut rig.machine, who, next).expect("it is free again");
    }
}

//= OWN:donation.exits TICK:L6.nested
#[test]
fn the_kill_of_one_in_the_middle_returns_the_loan_to_the_one_before() {
    let (mut rig, who) = in_a_call(2);
    rig.run(1);
    assert!(rig.receive(1));
    rig.run(2);
    assert_eq!(rig.call(2, 1), Ok(Lent::Asleep(who)), "across CPUs, with the same context");
    assert_eq!((rig.lent(0), rig.lent(2), rig.holds(1)), (Some(who), Some(who), Some(who)));
    rig.kill(2);
    assert_eq!((rig.holds(0), rig.holds(1)), (Some(who), None));
    rig.run(0);
}

//= OWN:donation.exits TICK:L6.nested
#[test]
fn a_timeout_of_the_first_leaves_those_further_down_as_best_effort() {
    let (mut rig, who) = in_a_call(2);
    rig.run(1);
    assert!(rig.receive(1));
    rig.run(2);
    assert!(rig.call(2, 1).is_ok());
    assert_eq!(rig.end_call(0, CallEnd::TimedOut), LoanEnd::Returned(who));
    assert_eq!((rig.holds(0), rig.lent(2), rig.holds(1)), (Some(who), None, None));
    assert_eq!(rig.end_call(2, CallEnd::Reply), LoanEnd::NothingLent);
}

//= OWN:donation.exits ARCH:notify.drain ARCH:ctx.generation EVO:gate.context
#[test]
fn a_revoke_takes_a_loan_from_the_server_and_the_caller_goes_on() {
    let (mut rig, who) = in_a_call(1);
    let revoked = rig.contexts.revoke(&mut rig.machine, who, RevokeReason::Explicit).expect("it lives");
    assert_eq!(revoked.from, Some(rig.name(1)));
    assert_eq!((rig.holds(1), rig.lent(0)), (None, None));
    assert_eq!(rig.end_call(0, CallEnd::Reply), LoanEnd::NothingLent);
    let drained = rig.contexts.drain(&mut rig.machine, revoked.who);
    assert_eq!(drained, Ok(Drained::Revoked { generation: 1, reason: RevokeReason::Explicit }));
    let stale = rig.contexts.drain(&mut rig.machine, who);
    assert_eq!(stale, Ok(Drained::StaleGeneration { current: 1 }));
    assert_eq!(revoked.who, ContextRef::new(who.id(), 1));
}

//= OWN:donation.exits ARCH:logout.donation-skip ARCH:logout.revoke
#[test]
fn a_logout_skips_a_loan_and_the_return_ends_it() {
    let (mut rig, who) = in_a_call(1);
    let session = rig.contexts.sessions.open().expect("room");
    rig.machine.sessions[0] = Some(session);
    let idle = rig.bound(2, &[0]);
    rig.machine.sessions[2] = Some(session);
    let logout = rig.contexts.logout(&mut rig.machine, session).expect("it is live");
    assert_eq!((logout.revoked, logout.inflight_skipped), (1, 1));
    assert_eq!(rig.contexts.inflight_skipped(), 1);
    assert_eq!(rig.contexts.place(idle.id()), Some(Location::Gone));
    // The server goes on with it, the donor stays blocked, and no name of it can be used.
    assert_eq!((rig.lent(0), rig.holds(1)), (Some(who), Some(who)));
    let now = rig.machine.now;
    let stale = ContextError::StaleGeneration { current: 1 };
    assert_eq!(rig.contexts.info(&mut rig.machine, now, who), Err(stale));
    let another = rig.name(3);
    assert!(rig.contexts.bind(&mut rig.machine, who, another).is_err());
    assert!(rig.contexts.create(now, who, ContextSpec::new(ms(1), ms(10))).is_err());
    assert_eq!(rig.contexts.revoke(&mut rig.machine, who, RevokeReason::Explicit), Err(stale));
    assert_eq!(rig.contexts.drain(&mut rig.machine, who), Ok(Drained::StaleGeneration { current: 1 }));
    assert_eq!(rig.end_call(0, CallEnd::Reply), LoanEnd::Ended(who, RevokeReason::Logout));
    assert_eq!((rig.holds(0), rig.holds(1)), (None, None));
    assert_eq!(rig.contexts.place(who.id()), Some(Location::Gone));
}

/// A context whose session has ended is still on loan when its owner ends: it does not outlive the owner.
//= OWN:donation.exits
#[test]
fn the_exit_of_the_owner_ends_a_loan_that_a_logout_has_skipped() {
    let mut rig = Rig::new(1, 2);
    rig.run(1);
    assert!(rig.receive(1));
    let session = rig.contexts.sessions.open().expect("room");
    let owner = ProcessId::new(7);
    let grant = Grant { session: Some(session), process: Some(owner), ..crate::rig::at(0) };
    let who = rig.grant_spec(ContextSpec::new(ms(2), ms(10)), grant);
    let caller = rig.name(0);
    rig.contexts.bind(&mut rig.machine, who, caller).expect("free");
    rig.run(0);
    assert!(rig.call(0, 1).is_ok());
    let logout = rig.contexts.logout(&mut rig.machine, session).expect("it is live");
    assert_eq!(logout.inflight_skipped, 1);
    assert_eq!(rig.contexts.owner_exited(&mut rig.machine, owner), 1);
    assert_eq!(rig.contexts.place(who.id()), Some(Location::Gone));
    assert_eq!((rig.lent(0), rig.holds(1)), (None, None), "the donor waits no longer for it");
}

//= ARCH:logout.donation-skip
#[test]
fn a_logout_of_the_servers_session_leaves_the_loan_alone_for_good() {
    let (mut rig, who) = in_a_call(1);
    let session = rig.contexts.sessions.open().expect("room");
    rig.machine.sessions[1] = Some(session);
    let logout = rig.contexts.logout(&mut rig.machine, session).expect("it is live");
    assert_eq!((logout.revoked, logout.inflight_skipped), (0, 1));
    assert_eq!(rig.end_call(0, CallEnd::Reply), LoanEnd::Returned(who), "it was never the session's");
}

//= TICK:L6.depth TICK:L6.nested
#[test]
fn a_loan_beyond_the_depth_is_refused_before_anything_changes() {
    let mut rig = Rig::new(1, 3);
    for server in [1, 2] {
        rig.run(server);
        assert!(rig.receive(server));
    }
    let spec = ContextSpec { depth: 1, cpus: crate::rig::on(&[0]), ..ContextSpec::new(ms(2), ms(10)) };
    let who = rig.grant_spec(spec, crate::rig::at(0));
    let (first, second) = (rig.name(0), rig.name(1));
    rig.contexts.bind(&mut rig.machine, who, first).expect("free");
    rig.run(0);
    assert_eq!(rig.call(0, 1), Ok(Lent::Asleep(who)));
    rig.run(1);
    let refused = rig.call(1, 2);
    assert_eq!(refused, Err(NoLoan::Loan(LoanError::TooDeep { limit: 1 })));
    assert_eq!(rig.contexts.place(who.id()), Some(Location::Lent(second)));
}

//= TICK:L6.cycles
#[test]
fn a_call_back_to_a_donor_or_to_oneself_is_a_cycle() {
    let (mut rig, who) = in_a_call(1);
    let (caller, server) = (rig.name(0), rig.name(1));
    let cycle = rig.contexts.may_lend(&mut rig.machine, server, caller);
    assert_eq!(cycle, Err(NoLoan::Loan(LoanError::Cycle(caller))));
    let cycle = rig.contexts.may_lend(&mut rig.machine, server, server);
    assert_eq!(cycle, Err(NoLoan::Loan(LoanError::Cycle(server))));
    assert!(NoLoan::Loan(LoanError::Cycle(caller)).refuses_call());
    assert_eq!(rig.contexts.place(who.id()), Some(Location::Lent(server)), "nothing has changed");
}

//= ARCH:donation.admit
#[test]
fn a_server_with_a_context_keeps_it_and_a_caller_without_lends_nothing() {
    let mut rig = Rig::new(1, 3);
    let own = rig.bound(1, &[0]);
    rig.run(1);
    assert!(rig.receive(1));
    let who = rig.bound(0, &[0]);
    rig.run(0);
    assert_eq!(rig.call(0, 1), Err(NoLoan::HasOwn(own)));
    assert_eq!((rig.holds(0), rig.holds(1)), (Some(who), Some(own)), "the call goes on without");
    assert_eq!(rig.end_call(0, CallEnd::Reply), LoanEnd::NothingLent);
    rig.run(1);
    assert!(rig.receive(1));
    rig.run(2);
    assert_eq!(rig.call(2, 1), Err(NoLoan::NothingToLend));
}

//= TICK:L6.async
#[test]
fn nothing_is_lent_by_a_caller_that_does_not_wait_for_an_answer() {
    let mut rig = Rig::new(2, 4);
    rig.run(1);
    assert!(rig.receive(1));
    let who = rig.bound(0, &[0]);
    rig.run(0);
    let (caller, server) = (rig.name(0), rig.name(1));
    let asleep = |rig: &Rig| {
        let home = rig.machine.home(server).expect("it lives");
        (home.cpu, rig.machine.core(home.cpu).state(home.seat))
    };
    let before = asleep(&rig);
    assert_eq!(rig.contexts.lend(&mut rig.machine, caller, server), Err(NoLoan::NotCalling), "it runs");
    assert!(rig.receive(0));
    assert_eq!(rig.contexts.lend(&mut rig.machine, caller, server), Err(NoLoan::NotCalling), "it receives");
    assert_eq!((rig.holds(0), rig.holds(1), asleep(&rig)), (Some(who), None, before), "nothing has changed");
}

/// A server that moves between two CPUs when it is called.
fn in_flight() -> (Rig, ContextRef) {
    let mut rig = Rig::new(2, 4);
    rig.run(3);
    assert!(rig.receive(3));
    let server = rig.name(3);
    // Something else woke it, and a thief has it.
    placement::wake(&mut rig.machine, server);
    let (there, here) = (crate::machines::cpu(1), crate::machines::cpu(0));
    assert_eq!(rig.machine.depart(there, here), Some(server));
    let who = rig.bound(0, &[0, 1]);
    rig.run(0);
    assert_eq!(rig.call(0, 3), Ok(Lent::InFlight(who)));
    assert_eq!(rig.contexts.place(who.id()), Some(Location::InFlight(server)));
    assert_eq!((rig.lent(0), rig.contexts.in_flight()), (Some(who), 1));
    (rig, who)
}

//= OWN:context.one-place
#[test]
fn a_context_in_flight_is_delivered_when_its_server_arrives() {
    let (mut rig, who) = in_flight();
    let server = rig.name(3);
    assert_eq!(rig.contexts.deliver(&mut rig.machine, server), Delivery::StillInFlight(who));
    rig.machine.arrive();
    assert_eq!(rig.contexts.deliver(&mut rig.machine, server), Delivery::Delivered(who));
    assert_eq!((rig.holds(3), rig.contexts.in_flight()), (Some(who), 0));
    assert_eq!(rig.contexts.deliver(&mut rig.machine, server), Delivery::Nothing);
    assert_eq!(rig.end_call(0, CallEnd::Reply), LoanEnd::Returned(who));
}

//= OWN:context.one-place
#[test]
fn a_timeout_finds_a_context_in_flight() {
    let (mut rig, who) = in_flight();
    assert_eq!(rig.end_call(0, CallEnd::TimedOut), LoanEnd::Returned(who));
    assert_eq!((rig.holds(0), rig.contexts.in_flight()), (Some(who), 0));
    rig.machine.arrive();
    let server = rig.name(3);
    assert_eq!(rig.contexts.deliver(&mut rig.machine, server), Delivery::Nothing);
}

//= OWN:context.one-place
#[test]
fn a_revoke_finds_a_context_in_flight() {
    let (mut rig, who) = in_flight();
    rig.contexts.revoke(&mut rig.machine, who, RevokeReason::Explicit).expect("it lives");
    assert_eq!((rig.contexts.place(who.id()), rig.contexts.in_flight()), (Some(Location::Gone), 0));
    assert_eq!(rig.end_call(0, CallEnd::Cancelled), LoanEnd::NothingLent);
}

//= OWN:context.one-place
#[test]
fn the_kill_of_a_caller_or_of_a_server_finds_a_context_in_flight() {
    let (mut rig, who) = in_flight();
    rig.kill(0);
    assert_eq!((rig.contexts.place(who.id()), rig.contexts.in_flight()), (Some(Location::Rest), 0));
    let (mut rig, who) = in_flight();
    rig.kill(3);
    assert_eq!((rig.holds(0), rig.contexts.in_flight()), (Some(who), 0));
}

//= OWN:context.one-place ARCH:logout.donation-skip
#[test]
fn a_logout_leaves_a_context_in_flight_and_it_ends_on_return() {
    let (mut rig, who) = in_flight();
    let session = rig.contexts.sessions.open().expect("room");
    rig.machine.sessions[0] = Some(session);
    let logout = rig.contexts.logout(&mut rig.machine, session).expect("it is live");
    assert_eq!((logout.revoked, logout.inflight_skipped), (0, 1));
    assert_eq!(rig.end_call(0, CallEnd::TimedOut), LoanEnd::Ended(who, RevokeReason::Logout));
}

//= TICK:L6.partial-failure ARCH:donation.charge
#[test]
fn what_a_server_spent_stays_spent_whatever_the_end() {
    for end in CallEnd::ALL {
        let (mut rig, who) = in_a_call(2);
        rig.run(2);
        rig.advance(ms(1));
        rig.end_call(0, end);
        let now = rig.machine.now;
        let info = rig.contexts.info(&mut rig.machine, now, who).expect("it lives");
        assert!(info.usage.donated >= ms(1), "{end:?}: {:?}", info.usage);
        assert_eq!(info.remaining + info.usage.used, ms(2), "{end:?}: nothing comes back before its period");
        assert!(info.budget_enforced);
    }
}

//= TICK:L6.blocking
#[test]
fn on_borrowed_time_a_server_waits_for_nothing_but_a_call() {
    let (mut rig, _) = in_a_call(2);
    rig.run(2);
    assert!(!rig.receive(2), "it has to answer first");
    rig.end_call(0, CallEnd::Reply);
    rig.run(2);
    assert!(rig.receive(2));
    let home = rig.machine.home(rig.name(2)).expect("it lives");
    assert!(matches!(rig.machine.core(home.cpu).state(home.seat), Ok(State::Asleep(_))));
}

#[test]
fn only_a_context_with_a_usable_name_can_be_charged() {
    let (mut rig, who) = in_a_call(1);
    let named = |id, generation| AccountingTarget::from(ContextRef::new(id, generation));
    let expect =
        |rig: &Rig, target, standing| assert_eq!(rig.contexts.standing(target), standing, "{target:?}");
    expect(&rig, AccountingTarget::Ledger, TargetStanding::Chargeable);
    expect(&rig, who.into(), TargetStanding::Chargeable);
    expect(&rig, named(who.id(), who.generation() + 1), TargetStanding::Stale);
    expect(&rig, named(who.id() + 1, 0), TargetStanding::Fabricated);
    expect(&rig, AccountingTarget::Context { id: u64::MAX, generation: 0 }, TargetStanding::Fabricated);
    let revoked = rig.contexts.revoke(&mut rig.machine, who, RevokeReason::Explicit).expect("live");
    expect(&rig, revoked.who.into(), TargetStanding::Stale);
    expect(&rig, who.into(), TargetStanding::Stale);
}
