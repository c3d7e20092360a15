//! CPU time is charged when a running interval ends, to the thread that ran, and at no other time.

mod rig;

use mainspring_abi::{Nanos, Policy};
use mainspring_sched::{Stop, WaitKind};
use rig::{Rig, ms, us};

//= EVO:S2.account EVO:gate.accounting ARCH:inv.accounting
#[test]
fn runtime_grows_while_a_thread_runs_and_stands_while_it_is_blocked() {
    let mut rig = Rig::new(Policy::Eevdf);
    let (a, b) = (rig.thread(64), rig.thread(64));
    assert_eq!(rig.start(), Some(a));
    rig.pass(ms(2));
    assert_eq!(rig.runtime(a), Nanos::ZERO, "nothing is charged before the interval ends");
    assert_eq!(rig.block(), Some(b));
    assert_eq!(rig.runtime(a), ms(2));
    rig.pass(ms(5)).preempt();
    assert_eq!(rig.runtime(a), ms(2), "a blocked thread's account stands still");
    assert_eq!(rig.runtime(b), ms(5));
}

//= EVO:S2.coverage
#[test]
fn every_kind_of_stop_charges_and_all_time_is_accounted_for() {
    let mut rig = Rig::new(Policy::Eevdf);
    let (a, b, c) = (rig.thread(64), rig.thread(32), rig.thread(128));
    rig.pass(ms(1)).start();
    let stops = [
        Stop::Preempted,
        Stop::Yielded,
        Stop::Preempted,
        Stop::Blocked(WaitKind::Park, None),
        Stop::Blocked(WaitKind::Call, None),
    ];
    for stop in stops {
        rig.pass(us(700)).resched(stop);
    }
    rig.pass(us(300));
    let gone = rig.cpu.exit_current(rig.now).expect("one thread is left running");
    rig.start();
    rig.pass(ms(9));
    let living = [a, b, c].into_iter().filter(|seat| seat.thread() != gone.thread());
    let charged: Nanos = living.map(|seat| rig.runtime(seat)).fold(gone.account().runtime(), |a, b| a + b);
    assert_eq!(charged, us(700) + us(700) + us(700) + us(700) + us(700) + us(300));
    assert_eq!(rig.cpu.charged_time(), charged);
    assert_eq!(charged + rig.cpu.idle_time(rig.now), rig.now, "charged and idle time are all there is");
}

//= ARCH:acct.core-fields ARCH:acct.thread-inputs
#[test]
fn virtual_runtime_is_runtime_times_reference_over_weight() {
    for (w, runtime, virtual_runtime) in [(64, ms(6), ms(6)), (128, ms(6), ms(3)), (32, ms(6), ms(12))] {
        let mut rig = Rig::new(Policy::Wfq);
        let seat = rig.thread(w);
        rig.start();
        rig.pass(ms(6)).preempt();
        let account = rig.cpu.entity(seat).expect("live").account();
        assert_eq!((account.runtime(), account.virtual_runtime()), (runtime, virtual_runtime));
        assert_eq!(account.last_started(), ms(6));
    }
}

//= ARCH:sat.blocks-preempts
#[test]
fn blocks_and_preemptions_are_told_apart() {
    let mut rig = Rig::new(Policy::Eevdf);
    let (a, b) = (rig.thread(64), rig.thread(64));
    rig.start();
    assert_eq!(rig.pass(ms(3)).preempt(), Some(b), "a's request is over and b is owed");
    assert_eq!(rig.pass(ms(1)).block(), Some(a));
    rig.pass(ms(30)).preempt();
    let counts = |seat| {
        let account = rig.cpu.entity(seat).expect("live").account();
        (account.preemptions(), account.voluntary_blocks(), account.switches())
    };
    assert_eq!(counts(a), (1, 0, 2), "chosen again at its own preemption, a has not been preempted");
    assert_eq!(counts(b), (0, 1, 1));
}

//= ARCH:sat.runnable-ns
#[test]
fn ready_time_counts_once_from_publication_to_selection() {
    let mut rig = Rig::new(Policy::Eevdf);
    let a = rig.thread(64);
    rig.start();
    let ready = |rig: &Rig, seat| rig.cpu.entity(seat).expect("live").account().runnable_accumulated();
    assert_eq!(ready(&rig, a), Nanos::ZERO, "chosen at once, it never waited");
    rig.pass(ms(1));
    let b = rig.thread(64);
    rig.pass(ms(2)).preempt();
    assert_eq!(ready(&rig, b), ms(2));
    assert_eq!(rig.pass(ms(3)).preempt(), Some(a));
    assert_eq!(ready(&rig, a), ms(3));
}
