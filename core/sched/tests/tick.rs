//! Ticks: periodic while anything runs, suppressed in idle when nothing stands in the way.

mod rig;

use mainspring_abi::{Nanos, Policy};
use mainspring_sched::{
    HOUSEKEEPING_FLOOR, IdleConditions, IdleTick, KeepTicking, NetworkNeed, NohzExit, TickMode,
};
use rig::{Rig, ms};

fn idle() -> IdleConditions {
    IdleConditions::default()
}

//= TICK:L1.enter ARCH:tickless.conditions
#[test]
fn each_condition_alone_keeps_the_tick_and_is_named() {
    let cases: [(KeepTicking, IdleConditions); 8] = [
        (KeepTicking::DeferredCompletions, IdleConditions { deferred_completions: true, ..idle() }),
        (KeepTicking::RingService, IdleConditions { ring_service: true, ..idle() }),
        (KeepTicking::NoOneShot, IdleConditions { oneshot: false, ..idle() }),
        (KeepTicking::NoIdleContext, IdleConditions { idle_context: false, ..idle() }),
        (KeepTicking::NetworkPolling, IdleConditions { network: NetworkNeed::EveryTick, ..idle() }),
        (KeepTicking::NohzLease, IdleConditions { nohz_lease: true, ..idle() }),
        (KeepTicking::TickClocksource, IdleConditions { stable_clock: false, ..idle() }),
        (KeepTicking::PolledWaiter, IdleConditions { polled_waiter: true, ..idle() }),
    ];
    for (reason, conditions) in cases {
        let mut rig = Rig::new(Policy::Eevdf);
        assert_eq!(rig.cpu.enter_idle(rig.now, &conditions), IdleTick::Kept(reason));
        assert_eq!(rig.cpu.tick_mode(), TickMode::ForcedPeriodic(reason));
        assert_eq!(rig.cpu.next_timer(), ms(10), "the tick goes on");
    }
    let mut rig = Rig::new(Policy::Eevdf);
    let expected = IdleTick::Suppressed { wake_at: HOUSEKEEPING_FLOOR };
    assert_eq!(rig.cpu.enter_idle(rig.now, &idle()), expected, "with none of them it stops");
}

//= TICK:L1.enter TICK:L1.contention ARCH:tickless.conditions
#[test]
fn work_of_its_own_keeps_the_tick() {
    let mut rig = Rig::new(Policy::Eevdf);
    let seat = rig.thread(64);
    assert_eq!(rig.cpu.enter_idle(rig.now, &idle()), IdleTick::Kept(KeepTicking::RunnableWork));
    rig.cpu.hold(rig.now, seat).expect("queued");
    assert_eq!(rig.cpu.enter_idle(rig.now, &idle()), IdleTick::Kept(KeepTicking::RetryWindow));
    let _ = rig.cpu.release(rig.now, seat).expect("held");
    rig.start();
    assert_eq!(rig.cpu.tick_mode(), TickMode::Periodic, "a single runnable thread keeps the tick");
    rig.block();
    let _ = rig.cpu.hand_off(rig.now, seat).expect("asleep");
    assert_eq!(rig.cpu.enter_idle(rig.now, &idle()), IdleTick::Kept(KeepTicking::DirectTarget));
}

//= TICK:L1.idle-entry ARCH:tickless.bound TICK:L1.netpoll
#[test]
fn the_one_shot_is_armed_for_what_comes_first() {
    let mut rig = Rig::new(Policy::Eevdf);
    rig.thread(64);
    rig.start();
    rig.pass(ms(5)).sleep(ms(40));
    let poll = |at: Nanos| IdleConditions { network: NetworkNeed::PollAt(at), ..idle() };
    assert_eq!(rig.cpu.enter_idle(rig.now, &idle()), IdleTick::Suppressed { wake_at: ms(45) });
    assert_eq!(rig.cpu.enter_idle(rig.now, &poll(ms(12))), IdleTick::Suppressed { wake_at: ms(12) });
    assert_eq!(rig.cpu.enter_idle(rig.now, &poll(ms(90))), IdleTick::Suppressed { wake_at: ms(45) });
    rig.now = ms(45);
    let _ = rig.cpu.expire(rig.now).expect("due");
    rig.start();
    rig.sleep(Nanos::from_secs(5));
    let expected = IdleTick::Suppressed { wake_at: ms(145) };
    assert_eq!(rig.cpu.enter_idle(rig.now, &idle()), expected, "never further than the floor");
    assert_eq!(rig.cpu.next_timer(), ms(145));
}

//= TICK:L1.states ARCH:tickless.restore TICK:telemetry
#[test]
fn the_tick_is_back_before_anything_runs_and_what_was_spared_is_counted() {
    let mut rig = Rig::new(Policy::Eevdf);
    let _ = rig.cpu.enter_idle(rig.now, &idle());
    rig.now = ms(47);
    rig.thread(64);
    assert!(matches!(rig.cpu.tick_mode(), TickMode::TicklessIdle { .. }));
    rig.start();
    assert_eq!(rig.cpu.tick_mode(), TickMode::Periodic);
    assert_eq!(rig.cpu.next_timer(), ms(50), "ticks are at multiples of the period again");
    let counters = rig.cpu.telemetry();
    assert_eq!((counters.ticks, counters.ticks_suppressed_idle, counters.nohz_enter_idle), (0, 4, 1));
    assert_eq!(counters.nohz_exits[NohzExit::Dispatch as usize], 1);
    rig.now = ms(50);
    assert!(rig.cpu.timer(rig.now).ticked);
    assert_eq!(rig.cpu.telemetry().ticks, 1);
}

//= ARCH:tickless.restore
#[test]
fn a_reschedule_or_a_lost_condition_restores_the_tick() {
    let mut rig = Rig::new(Policy::Eevdf);
    let _ = rig.cpu.enter_idle(rig.now, &idle());
    rig.now = ms(3);
    rig.cpu.reschedule_received(rig.now);
    assert_eq!(rig.cpu.tick_mode(), TickMode::Periodic);
    let _ = rig.cpu.enter_idle(rig.now, &idle());
    let _ = rig.cpu.enter_idle(rig.now, &IdleConditions { ring_service: true, ..idle() });
    assert_eq!(rig.cpu.tick_mode(), TickMode::ForcedPeriodic(KeepTicking::RingService));
    let exits = rig.cpu.telemetry().nohz_exits;
    assert_eq!(exits[NohzExit::Reschedule as usize], 1);
    assert_eq!(exits[NohzExit::Rollback as usize], 1);
}

//= TICK:telemetry
#[test]
fn a_late_interrupt_is_counted() {
    let mut rig = Rig::new(Policy::Eevdf);
    rig.thread(64);
    rig.start();
    rig.now = ms(11);
    let _ = rig.cpu.timer(rig.now);
    assert_eq!(rig.cpu.telemetry().oneshot_deadline_misses, 1);
    rig.now = ms(20);
    let _ = rig.cpu.timer(rig.now);
    assert_eq!(rig.cpu.telemetry().oneshot_deadline_misses, 1, "on time is not late");
}
