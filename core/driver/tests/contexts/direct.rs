//! A call and its answer in one go: the table is as after the long way, and every end of a call finds the context where it is.

use crate::machines::cpu;
use crate::rig::{Doing, Rig, ms};
use mainspring_abi::ContextRef;
use mainspring_driver::Machine;
use mainspring_driver::contexts::{CallEnd, Grant, HomeCpu, LoanEnd, Location, RevokeReason};
use mainspring_sched::WaitKind;
use mainspring_sched::context::ContextSpec;

const CALLER: usize = 0;
const SERVER: usize = 1;

/// On one CPU: a caller that runs on a context, and a server that waits.
fn before_a_call() -> (Rig, ContextRef) {
    let mut rig = Rig::new(1, 3);
    rig.run(SERVER);
    assert!(rig.receive(SERVER));
    let who = rig.bound(CALLER, &[0]);
    rig.run(CALLER);
    (rig, who)
}

fn call_directly(rig: &mut Rig) -> bool {
    let seat = rig.machine.home(rig.name(SERVER)).expect("it lives").seat;
    let contexts = &mut rig.contexts;
    let called = rig.machine.with_cpu(cpu(0), |cpu| contexts.call_directly(cpu.event(), seat));
    if called {
        let (from, to) = (rig.name(CALLER), rig.name(SERVER));
        rig.threads[CALLER].doing = Doing::Calling(to);
        rig.threads[SERVER].serving.push(from);
        rig.threads[SERVER].doing = Doing::Working;
    }
    called
}

fn reply_directly(rig: &mut Rig) -> bool {
    let seat = rig.machine.home(rig.name(CALLER)).expect("it lives").seat;
    let contexts = &mut rig.contexts;
    let replied = rig.machine.with_cpu(cpu(0), |cpu| contexts.reply_directly(cpu.event(), seat).is_some());
    if replied {
        rig.threads[SERVER].serving.clear();
        rig.threads[SERVER].doing = Doing::Receiving;
        rig.threads[CALLER].doing = Doing::Working;
    }
    replied
}

/// What can be seen of both worlds.
fn seen(rig: &mut Rig, who: ContextRef) -> String {
    rig.verify();
    let place = rig.contexts.place(who.id());
    let threads =
        rig.machine.core(cpu(0)).threads().into_iter().map(|view| (view.thread, view.state, view.context));
    let threads: Vec<_> = threads.collect();
    format!("{place:?} {:?} {threads:?}", rig.running(cpu(0)))
}

//= OWN:donation.exits
#[test]
fn a_call_and_a_reply_in_one_go_leave_everything_as_the_long_way_does() {
    let ((mut direct, who), (mut long, other)) = (before_a_call(), before_a_call());
    assert_eq!(who, other);
    for round in 0..20 {
        for rig in [&mut direct, &mut long] {
            rig.machine.now += mainspring_abi::Nanos::from_micros(10);
        }
        assert!(call_directly(&mut direct), "round {round}");
        assert!(long.call(CALLER, SERVER).is_ok());
        assert_eq!(seen(&mut direct, who), seen(&mut long, who), "round {round}: called");
        for rig in [&mut direct, &mut long] {
            rig.machine.now += mainspring_abi::Nanos::from_micros(10);
        }
        assert!(reply_directly(&mut direct), "round {round}");
        long.block(SERVER, WaitKind::Receive);
        long.threads[SERVER].doing = Doing::Receiving;
        assert_eq!(long.end_call(CALLER, CallEnd::Reply), LoanEnd::Returned(who));
        assert_eq!(seen(&mut direct, who), seen(&mut long, who), "round {round}: answered");
        assert_eq!((direct.holds(CALLER), direct.holds(SERVER)), (Some(who), None));
    }
}

//= OWN:donation.exits ARCH:donation.cancel TICK:L6.return-first
#[test]
fn every_end_of_a_call_finds_a_context_that_was_handed_over_in_one_go() {
    for end in [CallEnd::Reply, CallEnd::Exception, CallEnd::TimedOut] {
        let (mut rig, who) = before_a_call();
        assert!(call_directly(&mut rig));
        assert_eq!(rig.contexts.place(who.id()), Some(Location::Lent(rig.name(SERVER))));
        assert_eq!(rig.end_call(CALLER, end), LoanEnd::Returned(who), "{end:?}");
        assert_eq!((rig.holds(CALLER), rig.holds(SERVER)), (Some(who), None));
        rig.verify();
    }
    let (mut rig, who) = before_a_call();
    assert!(call_directly(&mut rig));
    rig.kill(SERVER);
    assert_eq!(
        (rig.holds(CALLER), rig.contexts.place(who.id())),
        (Some(who), Some(Location::Bound(rig.name(CALLER))))
    );
    let (mut rig, who) = before_a_call();
    assert!(call_directly(&mut rig));
    rig.contexts.revoke(&mut rig.machine, who, RevokeReason::Explicit).expect("it is live");
    assert_eq!((rig.holds(SERVER), rig.contexts.place(who.id())), (None, Some(Location::Gone)));
    assert_eq!(rig.end_call(CALLER, CallEnd::Reply), LoanEnd::NothingLent);
    rig.verify();
}

#[test]
fn a_context_that_is_to_end_when_it_comes_back_is_not_returned_in_one_go() {
    let mut rig = Rig::new(1, 3);
    rig.run(SERVER);
    assert!(rig.receive(SERVER));
    let session = rig.contexts.sessions.open().expect("there is room");
    let grant = Grant { session: Some(session), process: None, ledger: None, home: HomeCpu::Decided(cpu(0)) };
    let who = rig.grant_spec(ContextSpec::new(ms(2), ms(10)), grant);
    let caller = rig.name(CALLER);
    rig.contexts.bind(&mut rig.machine, who, caller).expect("it is free");
    rig.run(CALLER);
    assert!(call_directly(&mut rig));
    let ended = rig.contexts.logout(&mut rig.machine, session).expect("it is open");
    assert_eq!(ended.inflight_skipped, 1);
    assert!(!reply_directly(&mut rig), "the end of the context would be forgotten");
    assert_eq!(rig.end_call(CALLER, CallEnd::Reply), LoanEnd::Ended(who, RevokeReason::Logout));
    rig.verify();
}
