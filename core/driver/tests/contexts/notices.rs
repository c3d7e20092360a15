//! What contexts tell: two cells, coalesced, drained wherever the context is, and waited for by one thread.

use crate::rig::{Rig, ms};
use mainspring_driver::contexts::{CallEnd, Drained, NoticeWait, RevokeReason, WaitError};
use mainspring_sched::Overran;
use mainspring_sched::context::{ContextSpec, Notice};

fn drain(rig: &mut Rig, who: mainspring_abi::ContextRef) -> [Option<Notice>; 2] {
    match rig.contexts.drain(&mut rig.machine, who) {
        Ok(Drained::Ok(cells)) => cells,
        other => panic!("it lives: {other:?}"),
    }
}

//= ARCH:notify.coalesce ARCH:notify.slots ARCH:notify.drain EVO:gate.context
#[test]
fn depletions_coalesce_and_are_drained_from_a_thread_and_from_rest() {
    let mut rig = Rig::new(1, 2);
    let who = rig.bound(0, &[0]);
    rig.run(0);
    // Twice used up: 2 of every 10.
    rig.advance(ms(14));
    let [Some(depleted), None] = drain(&mut rig, who) else { panic!("it was used up") };
    assert_eq!((depleted.context, depleted.holder, depleted.coalesced), (who, rig.name(0), 2));
    assert!(!depleted.donated);
    assert_eq!(drain(&mut rig, who), [None, None], "the cells are empty");
    rig.advance(ms(10));
    let thread = rig.name(0);
    assert_eq!(rig.contexts.unbind(&mut rig.machine, thread), Some(who));
    let [Some(depleted), None] = drain(&mut rig, who) else { panic!("it was used up again") };
    assert_eq!((depleted.coalesced, depleted.sequence), (1, 3), "the count goes on over drains");
}

/// A server that uses a loan up is not the one whose time it was: what a policy does to a thread is its caller's.
#[test]
fn what_overran_on_loan_is_the_callers() {
    let mut rig = Rig::new(1, 3);
    rig.run(1);
    assert!(rig.receive(1));
    rig.bound(0, &[0]);
    rig.run(0);
    assert!(rig.call(0, 1).is_ok());
    rig.run(1);
    rig.advance(ms(14));
    let (caller, server) = (rig.name(0), rig.name(1));
    let used_up = |overran: &&Overran| overran.depleted;
    let by: Vec<_> =
        rig.machine.overruns.iter().filter(used_up).map(|one| (one.seat.thread(), one.owner)).collect();
    assert!(!by.is_empty() && by.iter().all(|one| *one == (server, caller)), "{by:?}");
    rig.end_call(0, CallEnd::Reply);
    rig.machine.overruns.clear();
    rig.run(0);
    rig.advance(ms(14));
    assert!(rig.machine.overruns.iter().all(|one| (one.seat.thread(), one.owner) == (caller, caller)));
}

//= ARCH:notify.waiter
#[test]
fn one_thread_waits_for_a_notice_and_is_told_once() {
    let mut rig = Rig::new(1, 3);
    let who = rig.bound(0, &[0]);
    let (watcher, other) = (rig.name(1), rig.name(2));
    assert_eq!(rig.contexts.wait_for_notice(&mut rig.machine, who, watcher), Ok(NoticeWait::Armed));
    let busy = rig.contexts.wait_for_notice(&mut rig.machine, who, other);
    assert_eq!(busy, Err(WaitError::Busy(watcher)));
    rig.run(0);
    rig.advance(ms(14));
    let told: Vec<_> = rig.machine.overruns.iter().filter_map(|overran| overran.waiter).collect();
    assert_eq!(told, [watcher], "two depletions, one waiter");
    let pending = rig.contexts.wait_for_notice(&mut rig.machine, who, other);
    assert_eq!(pending, Ok(NoticeWait::Pending), "there is something to drain: nobody sleeps over it");
    drain(&mut rig, who);
    assert_eq!(rig.contexts.wait_for_notice(&mut rig.machine, who, other), Ok(NoticeWait::Armed));
    rig.kill(2);
    let free = rig.contexts.wait_for_notice(&mut rig.machine, who, watcher);
    assert_eq!(free, Ok(NoticeWait::Armed), "a waiter that has ended makes room");
    rig.contexts.stop_waiting(&mut rig.machine, who, watcher);
    rig.advance(ms(10));
    assert!(rig.machine.overruns.iter().skip(2).all(|overran| overran.waiter.is_none()));
}

//= ARCH:notify.waiter
#[test]
fn a_waiter_is_woken_when_the_context_ends() {
    for on_loan in [false, true] {
        let mut rig = Rig::new(1, 3);
        rig.run(1);
        assert!(rig.receive(1));
        let who = rig.bound(0, &[0]);
        let watcher = rig.name(2);
        assert_eq!(rig.contexts.wait_for_notice(&mut rig.machine, who, watcher), Ok(NoticeWait::Armed));
        if on_loan {
            rig.run(0);
            assert!(rig.call(0, 1).is_ok());
        }
        rig.contexts.revoke(&mut rig.machine, who, RevokeReason::OwnerExit).expect("it lives");
        assert_eq!(rig.machine.waiters_woken, [(who, watcher)]);
    }
}

//= ARCH:notify.waiter
#[test]
fn a_timeout_wakes_who_waits_for_a_notice() {
    let mut rig = Rig::new(2, 4);
    rig.run(1);
    assert!(rig.receive(1));
    let who = rig.bound(0, &[0, 1]);
    let watcher = rig.name(3);
    assert_eq!(rig.contexts.wait_for_notice(&mut rig.machine, who, watcher), Ok(NoticeWait::Armed));
    rig.run(0);
    assert!(rig.call(0, 1).is_ok());
    rig.end_call(0, CallEnd::TimedOut);
    assert_eq!(rig.machine.waiters_woken, [(who, watcher)]);
}

//= ARCH:notify.passive
#[test]
fn a_drain_changes_no_budget_no_place_and_no_thread() {
    let mut rig = Rig::new(1, 2);
    let spec = ContextSpec { cpus: crate::rig::on(&[0]), ..ContextSpec::new(ms(2), ms(10)) };
    let who = rig.grant_spec(spec, crate::rig::at(0));
    let thread = rig.name(0);
    rig.contexts.bind(&mut rig.machine, who, thread).expect("free");
    rig.run(0);
    rig.advance(ms(4));
    let look = |rig: &mut Rig| {
        let now = rig.machine.now;
        let info = rig.contexts.info(&mut rig.machine, now, who).expect("it lives");
        let core = rig.machine.core(crate::machines::cpu(0));
        (info, core.threads(), core.reschedule_wanted(), core.next_timer(), rig.machine.told.len())
    };
    let before = look(&mut rig);
    assert!(before.0.remaining.is_zero(), "it is throttled");
    drain(&mut rig, who);
    assert_eq!(look(&mut rig), before);
    let watcher = rig.name(1);
    let _wait = rig.contexts.wait_for_notice(&mut rig.machine, who, watcher).expect("it lives");
    assert_eq!(look(&mut rig), before);
}
