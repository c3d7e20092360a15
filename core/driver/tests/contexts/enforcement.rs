//! What a context is worth to the thread that holds it, seen over several CPUs.

use crate::machines::cpu;
use crate::rig::{Rig, at, ms, on};
use mainspring_abi::Nanos;
use mainspring_driver::Machine;
use mainspring_driver::contexts::CallEnd;
use mainspring_sched::context::ContextSpec;

/// A caller with 4 ms of every 10 calls a server, which needs 2 ms, beside 14 hogs on the same CPU: how long it waits.
fn time_of_a_call(lends: bool) -> Nanos {
    let mut rig = Rig::new(1, 16);
    rig.run(1);
    assert!(rig.receive(1));
    let spec = ContextSpec { cpus: on(&[0]), ..ContextSpec::new(ms(4), ms(10)) };
    let who = rig.grant_spec(spec, at(0));
    let caller = rig.name(0);
    rig.contexts.bind(&mut rig.machine, who, caller).expect("free");
    rig.run(0);
    // Every thread has run for a while, so that none is owed more than the others.
    rig.advance(ms(40));
    rig.run(0);
    let called_at = rig.machine.now;
    if lends {
        assert!(rig.call(0, 1).is_ok());
    } else {
        rig.call_without_loan(0, 1);
    }
    let served = |rig: &Rig| {
        let home = rig.machine.home(rig.name(1)).expect("it lives");
        let core = rig.machine.core(home.cpu);
        let running =
            if core.current() == Some(home.seat) { rig.machine.now - core.since() } else { Nanos::ZERO };
        core.entity(home.seat).expect("it sits there").account().runtime() + running
    };
    let before = served(&rig);
    while served(&rig) < before + ms(2) {
        rig.advance(Nanos::from_micros(50));
    }
    rig.end_call(0, CallEnd::Reply);
    rig.machine.now - called_at
}

//= TICK:L6.inversion
#[test]
fn a_loan_keeps_the_deadline_that_the_callers_priority_alone_misses() {
    let (with, without) = (time_of_a_call(true), time_of_a_call(false));
    assert!(with <= ms(3), "the server runs on the caller's time: {with}");
    assert!(
        without > ms(10),
        "it waits for its turn among the hogs, beyond the caller's deadline: {without}"
    );
}

//= ARCH:ctx.granularity
#[test]
fn a_one_shot_is_armed_for_the_end_of_the_budget_and_lateness_is_all_that_overshoots() {
    for late in [Nanos::ZERO, Nanos::from_micros(70)] {
        let mut rig = Rig::new(1, 2);
        let who = rig.bound(0, &[0]);
        rig.run(0);
        let began = rig.machine.now;
        let due = rig.machine.core(cpu(0)).next_timer();
        assert_eq!(due, began + ms(2), "at the end of the budget, not at the next tick");
        rig.machine.now = due + late;
        rig.machine.with_cpu(cpu(0), |cpu| {
            let _outcome = cpu.event().timer();
        });
        rig.decide_all();
        assert_ne!(rig.running(cpu(0)), Some(0), "it is throttled");
        let now = rig.machine.now;
        let info = rig.contexts.info(&mut rig.machine, now, who).expect("it lives");
        assert_eq!((info.usage.overshoot_max, info.usage.used), (late, ms(2) + late));
    }
}
