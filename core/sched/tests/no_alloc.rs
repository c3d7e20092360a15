//! Nothing is allocated after admission: every path runs under an allocator that counts.

mod rig;

use mainspring_abi::{CpuSet, Nanos, Policy, Weight};
use mainspring_sched::lease::{LeaseRequest, TargetStanding};
use mainspring_sched::nohz::{Conditions, RemoteSlot};
use mainspring_sched::{IdleConditions, NohzEntry, Stop, Via, WaitKind};
use rig::lease::{compute, grant, local, mask, registry};
use rig::{Rig, cpu_id, ms, only, us};

/// How often the work allocates, on this thread.
fn allocations(work: impl FnOnce()) -> u64 {
    allocation_counter::measure(work).count_total
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1);
}

//= ARCH:inv.no-alloc EVO:hot-path EVO:S1.exit-bounded TICK:L1.waiter-bound ARCH:queue.reserve
#[test]
fn no_path_after_admission_allocates() {
    for policy in [Policy::Eevdf, Policy::Wfq] {
        let (mut home, mut other) = (Rig::on(0, policy), Rig::on(1, policy));
        let seats: Vec<_> = (0..40u64)
            .map(|n| {
                home.admit(|spec| {
                    spec.weight = Weight::new(16 + 7 * n).expect("valid");
                    if n % 5 == 0 {
                        spec.affinity = only(&[0, 1]);
                    }
                })
            })
            .collect();
        let counted = allocations(|| {
            home.start();
            other.start();
            for round in 0..2_000u32 {
                step(&mut home, &mut other, &seats, round);
            }
        });
        assert_eq!(counted, 0, "{policy:?}");
    }
}

//= ARCH:measure.operator
#[test]
fn a_look_at_the_counters_and_queues_allocates_nothing_and_changes_nothing() {
    let (mut home, mut other) = (Rig::on(0, Policy::Eevdf), Rig::on(1, Policy::Eevdf));
    let seats: Vec<_> = (0..20).map(|_| home.admit(|_| {})).collect();
    home.start();
    for round in 0..100 {
        step(&mut home, &mut other, &seats, round);
    }
    let before = format!("{:?}", home.cpu);
    let (mut depths, mut runtime) = ((0, 0), Nanos::ZERO);
    let counted = allocations(|| {
        let cpu = &home.cpu;
        depths = (cpu.queued() as u64, cpu.telemetry().queue_depth_max);
        let mut slot = 0;
        while let Some((seat, _)) = cpu.resident_from(slot) {
            runtime += cpu.entity(seat).map_or(Nanos::ZERO, |entity| entity.account().runtime());
            slot = seat.slot() + 1;
        }
    });
    assert_eq!(counted, 0);
    assert_eq!(format!("{:?}", home.cpu), before);
    assert!(depths.0 <= depths.1 && depths.1 > 10 && !runtime.is_zero(), "{depths:?} {runtime}");
}

//= ARCH:inv.no-alloc
#[test]
fn no_lease_and_no_window_allocates() {
    let mut rig = Rig::on(1, Policy::Eevdf);
    rig.admit(|spec| spec.affinity = only(&[1]));
    let thread = rig.start().expect("ready").thread();
    let mut registry = registry();
    let (one, two) = (mask(&[1]), mask(&[2]));
    let mut slot = RemoteSlot::new();
    let counted = allocations(|| {
        for _ in 0..200 {
            let lease = grant(&mut registry, rig.now, &compute(&one));
            let other = grant(&mut registry, rig.now, &LeaseRequest { lifetime: ms(5), ..compute(&two) });
            let _ = registry.create(rig.now, &compute(&one), TargetStanding::Chargeable, &CpuSet::first(4));
            let claim = local(lease, thread);
            let _ = slot.park(claim);
            let conditions = Conditions { lease: registry.standing(rig.now, lease), ..Conditions::default() };
            let _ = rig.cpu.nohz_preflight(rig.now, &claim, &conditions);
            let entry = rig.cpu.nohz_enter(rig.now, &claim, &conditions);
            assert!(matches!(entry, NohzEntry::Tickless { .. }), "{entry:?}");
            rig.pass(ms(7));
            let _ = rig.cpu.nohz_recheck(rig.now, &conditions);
            let _ = rig.cpu.timer(rig.now);
            let _ = registry.expire(rig.now);
            let _ = registry.revoke(rig.now, lease);
            while let Some(ended) = registry.roll_back() {
                rig.cpu.nohz_forget(ended.lease);
                slot.withdraw(ended.lease);
            }
            let _ = rig.cpu.nohz_recheck(rig.now, &conditions);
            let _ = (registry.release(rig.now, lease), registry.release(rig.now, other));
        }
    });
    assert_eq!(counted, 0);
}

/// One of every kind of event, in an order that keeps the queue busy.
fn step(home: &mut Rig, other: &mut Rig, seats: &[mainspring_sched::Seat], round: u32) {
    home.pass(us(130));
    other.now = home.now;
    let seat = seats[round as usize % seats.len()];
    let _ = home.cpu.timer(home.now);
    while let Some(expired) = home.cpu.expire(home.now) {
        if let Some(permit) = expired.woken.permit {
            home.quota.give_back(permit);
        }
    }
    let running = home.cpu.current().is_some();
    match round % 9 {
        _ if !running => drop(home.start()),
        0 | 1 => drop(home.preempt()),
        2 => drop(home.resched(Stop::Yielded)),
        3 => drop(home.sleep(ms(1))),
        4 => drop(home.resched(Stop::Blocked(WaitKind::Park, None))),
        5 => {
            let _ = home.cpu.hand_off(home.now, seat);
            home.resched(Stop::Blocked(WaitKind::Call, None));
        }
        6 => {
            let _ = home.cpu.hold(home.now, seat);
            let _ = home.cpu.release(home.now, seat);
            let _ = home.cpu.set_weight(seat, Weight::DEFAULT);
        }
        7 => drop(steal_and_return(home, other)),
        _ => {
            // An exit, and the same thread admitted again in the seat it left.
            if let Some(entity) = home.cpu.exit_current(home.now) {
                let _ = home.cpu.accept(home.now, entity, Via::Admit);
            }
            home.start();
        }
    }
    let _ = home.cpu.wake(home.now, seat).map(|woken| {
        if let Some(permit) = woken.permit {
            home.quota.give_back(permit);
        }
    });
    let _ = (home.cpu.offer(), home.cpu.queued(), home.cpu.load(), home.cpu.telemetry());
    if home.cpu.current().is_none() {
        let _ = home.cpu.enter_idle(home.now, &IdleConditions::default());
    }
}

/// A thread is stolen, runs elsewhere, and is stolen back.
fn steal_and_return(home: &mut Rig, other: &mut Rig) -> Option<()> {
    let entity = home.cpu.give(home.now, cpu_id(1))?;
    let (_, _) = other.cpu.accept(other.now, entity, Via::Steal).ok()?;
    other.start();
    other.pass(us(10)).preempt();
    let entity = other.cpu.exit_current(other.now)?;
    other.start();
    home.cpu.accept(home.now, entity, Via::Steal).ok().map(|_| ())
}
