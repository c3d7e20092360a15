//! Leases over all CPUs of a machine: each rule by itself.

mod machines;

use machines::isolated::{FREE, Isolated, isolated};
use machines::{cpu, entity, thread};
use mainspring_abi::{ContextRef, CpuSet, Nanos, ProcessId};
use mainspring_driver::leases::{
    Attended, GrantRefusal, GrantRequest, LeaseEvent, LeaseNotice, LeasedRing, Leases, RingId, TickDuties,
    recheck_without_leases,
};
use mainspring_driver::placement::{hand_over, migrate, place, start, steal, wake};
use mainspring_driver::{Home, Machine};
use mainspring_sched::context::{Context, ContextSpec};
use mainspring_sched::lease::{
    AccountingTarget, EndReason, Endpoint, LeaseRef, LeaseRequest, Mode, NamedRing, NotLive, Owner,
    RevocationPolicy, ServiceId, SessionId, TargetStanding,
};
use mainspring_sched::nohz::{Contended, Interrupt, Obligation, RingFacts, on_contention};
use mainspring_sched::{Affinity, Decision, NetworkNeed, NohzRecheck, State, Stop, TickMode, Via};
use std::sync::Arc;

const ENDPOINT: Endpoint = Endpoint(7);

fn ms(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

fn owner() -> Owner {
    Owner { process: ProcessId::new(1), session: Some(SessionId(2)), service: Some(ServiceId(3)) }
}

/// A compute lease for `lessee`, with nothing wrong with it.
fn compute(mask: &[u8], lessee: u32) -> GrantRequest<'_> {
    GrantRequest {
        request: LeaseRequest {
            owner: owner(),
            cpus: mask,
            housekeeping_exclusions: &[],
            mode: Mode::Compute,
            ring: NamedRing::None,
            allow_irqs: false,
            target: AccountingTarget::Ledger,
            max_revocation_latency: ms(25),
            revocation: RevocationPolicy::Notify(ENDPOINT),
            lifetime: Nanos::ZERO,
            replaces: None,
        },
        lessee: thread(lessee),
        caller: None,
        ring: None,
        tickless: true,
        allow_busy_spin: false,
    }
}

const CPU_1: &[u8] = &[0b10];

/// Three CPUs and a thread on each: thread 1 has CPU 1 to itself, without a tick.
fn leased() -> (Isolated, Leases, LeaseRef) {
    let (mut machine, mut leases) = running();
    let lease = leases.grant(&mut machine, &compute(CPU_1, 1)).expect("nothing is wrong with it");
    machine.deliver(&mut leases);
    assert!(machine.is_tickless(1));
    (machine, leases, lease)
}

/// Three CPUs, and a thread that runs on each.
fn running() -> (Isolated, Leases) {
    let (mut machine, mut leases) = isolated(3, 5, 4);
    for index in 0..3 {
        start(&mut machine, cpu(index), entity(index as u32, None)).expect("a seat");
    }
    machine.deliver(&mut leases);
    assert_eq!(machine.running(1), Some(thread(1)));
    (machine, leases)
}

fn home(machine: &Isolated, index: u32) -> Home {
    machine.home(thread(index)).expect("it lives")
}

//= ARCH:lease.revoke EVO:gate.lease ARCH:nohz.rollback TICK:L2.dynamic
#[test]
fn every_ending_brings_the_tick_back_before_other_work_and_tells_the_endpoint_why() {
    type End = fn(&mut Leases, &mut Isolated, LeaseRef);
    let endings: [(EndReason, End); 7] = [
        (EndReason::Revoked, |leases, machine, lease| leases.revoke(machine, lease).expect("live")),
        (EndReason::Released, |leases, machine, lease| leases.release(machine, lease).expect("live")),
        (EndReason::ProcessExit, |leases, machine, _| leases.end_leases_of_process(machine, owner().process)),
        (EndReason::Logout, |leases, machine, _| leases.end_leases_of_session(machine, SessionId(2))),
        (EndReason::ServiceReplaced, |leases, machine, _| {
            leases.end_leases_of_service(machine, ServiceId(3));
        }),
        (EndReason::Revoked, |leases, machine, _| leases.thread_exited(machine, thread(1))),
        (EndReason::Superseded, |leases, machine, lease| {
            let mut asked = compute(CPU_1, 1);
            asked.request.replaces = Some(lease);
            asked.tickless = false;
            leases.grant(machine, &asked).expect("its own");
        }),
    ];
    for (reason, end) in endings {
        let (mut machine, mut leases, lease) = leased();
        end(&mut leases, &mut machine, lease);
        assert!(leases.info(machine.now, lease).is_err(), "{reason:?}");
        assert_eq!(machine.core(1).nohz(), None, "its record is cleared from afar: {reason:?}");
        assert!(machine.is_told(1), "{reason:?}");
        let told = LeaseNotice { lease, reason, at: machine.now };
        assert_eq!(machine.notices, [(ENDPOINT, told)]);
        machine.decided.clear();
        machine.deliver(&mut leases);
        assert_eq!(machine.core(1).tick_mode(), TickMode::Periodic, "{reason:?}");
        assert!(machine.decided.iter().all(|(_, _, mode)| *mode == TickMode::Periodic), "{reason:?}");
    }
}

//= ARCH:inv.no-double-run ARCH:inv.migration
#[test]
fn a_cpu_whose_thread_was_moved_by_another_as_it_stopped_chooses_another() {
    let (mut machine, mut leases) = running();
    leases.grant(&mut machine, &compute(CPU_1, 0)).expect("nothing is wrong with it");
    machine.when_stopped = Some(|machine| {
        let only = Affinity::Only(Arc::new([cpu(2)].into_iter().collect()));
        migrate(machine, thread(1), cpu(2), Some((Affinity::Any, only)), Via::Admit).expect("it sleeps");
    });
    assert_eq!(machine.evict(&mut leases, 1), Attended::ChooseNext, "its thread runs elsewhere");
    assert_eq!((machine.running(1), home(&machine, 1).cpu), (None, cpu(2)));
}

//= ARCH:inv.queue-once
#[test]
fn a_thread_that_stopped_to_leave_a_leased_cpu_and_cannot_is_ready() {
    let (mut machine, mut leases) = running();
    leases.grant(&mut machine, &compute(CPU_1, 0)).expect("nothing is wrong with it");
    machine.when_stopped = Some(|machine| {
        let Home { cpu, seat } = home(machine, 1);
        let spec = ContextSpec {
            cpus: Affinity::Only(Arc::new([cpu].into_iter().collect())),
            ..ContextSpec::new(ms(1), ms(10))
        };
        let context = Box::new(Context::new(ContextRef::new(1, 0), spec, machine.now));
        machine.with_cpu(cpu, |cpu| cpu.event().bind(seat, context)).expect("it has none");
    });
    assert_eq!(machine.evict(&mut leases, 1), Attended::ChooseNext, "its thread has stopped");
    let Home { cpu, seat } = home(&machine, 1);
    assert_eq!(machine.core(cpu.index()).state(seat), Ok(State::Queued), "nothing else wakes it");
}

//= ARCH:lease.lifetime
#[test]
fn a_lease_whose_lifetime_is_over_ends_at_the_one_shot_of_its_cpu() {
    let (mut machine, mut leases) = running();
    let mut asked = compute(CPU_1, 1);
    asked.request.lifetime = ms(15);
    let lease = leases.grant(&mut machine, &asked).expect("nothing is wrong with it");
    machine.deliver(&mut leases);
    assert_eq!((leases.next_expiry(), machine.core(1).next_timer()), (ms(15), ms(15)));
    machine.pass(&mut leases, ms(14));
    assert!(machine.is_tickless(1));
    machine.pass(&mut leases, ms(15));
    assert!(!machine.is_tickless(1));
    let restored = machine.events.iter().find_map(|event| match event {
        LeaseEvent::TickRestored { reason, .. } => Some(*reason),
        _ => None,
    });
    assert_eq!(restored, Some("lease-lifetime-expired"));
    assert_eq!(leases.info(machine.now, lease).err(), Some(NotLive::Ended(EndReason::Expired)));
    let told = LeaseNotice { lease, reason: EndReason::Expired, at: ms(15) };
    assert_eq!(machine.notices, [(ENDPOINT, told)]);
}

//= ARCH:nohz.armed-timer ARCH:lease.lifetime
#[test]
fn a_cpu_that_cannot_be_told_finds_out_within_the_revocation_latency() {
    let (mut machine, mut leases, lease) = leased();
    machine.failing = 1;
    leases.revoke(&mut machine, lease).expect("live");
    assert!(!machine.is_told(1));
    machine.pass(&mut leases, ms(24));
    assert!(machine.is_tickless(1), "nobody has told it");
    machine.pass(&mut leases, ms(25));
    assert_eq!(machine.core(1).tick_mode(), TickMode::Periodic);
}

/// Each duty alone, and what it stands in the way of.
fn each_duty() -> Vec<(TickDuties, Obligation, &'static str)> {
    vec![
        (TickDuties { deferred_work: true, ..FREE }, Obligation::DeferredCleanup, "deferred-cleanup"),
        (TickDuties { global_timers: true, ..FREE }, Obligation::Timers, "global-timers"),
        (TickDuties { unbound_worker: true, ..FREE }, Obligation::Workers, "unbound-worker"),
        (TickDuties { watchdog: true, ..FREE }, Obligation::Watchdog, "watchdog"),
        (
            TickDuties { network: NetworkNeed::EveryTick, ..FREE },
            Obligation::NetworkPolling,
            "network-polling",
        ),
        (TickDuties { fixed_interrupt: true, ..FREE }, Obligation::IrqAffinity, "unmigratable-irq"),
        (TickDuties { stable_clock: false, ..FREE }, Obligation::Clock, "tick-clocksource"),
        (TickDuties { boundary_accounting: false, ..FREE }, Obligation::Clock, "tick-accounting"),
        (TickDuties { interruptible: false, ..FREE }, Obligation::Rollback, "not-interruptible"),
        (TickDuties { periodic_timer: false, ..FREE }, Obligation::PeriodicFallback, "no-periodic-fallback"),
        (TickDuties { oneshot_timer: false, ..FREE }, Obligation::OneShot, "no-oneshot"),
        (
            TickDuties { min_delta: ms(26), ..FREE },
            Obligation::RevocationLatency,
            "revocation-latency-out-of-policy",
        ),
    ]
}

//= ARCH:lease.preflight TICK:L2.proof ARCH:nohz.activate
#[test]
fn each_duty_of_the_machine_keeps_the_tick_and_preflight_names_it() {
    for (duties, obligation, label) in each_duty() {
        let (mut machine, mut leases) = running();
        machine.duties[1] = duties;
        let lease = leases.grant(&mut machine, &compute(CPU_1, 1)).expect("exclusive all the same");
        machine.deliver(&mut leases);
        assert!(!machine.is_tickless(1), "{label}");
        assert_eq!(leases.obstacle(lease).map(|why| why.label()), Some(label));
        let preflight = leases.preflight(&mut machine, lease).expect("live");
        for (checked, result) in preflight.obligations.lines() {
            let expected = (checked == obligation).then_some(label);
            assert_eq!(result.err().map(|why| why.label()), expected, "{label}: {checked:?}");
        }
        assert_eq!(preflight.cpus, [cpu(1)].into_iter().collect::<CpuSet>());
        assert_eq!(preflight.housekeepers, [cpu(0), cpu(2)].into_iter().collect::<CpuSet>());
        // What stands in the way for a while is looked at again at each tick.
        machine.duties[1] = FREE;
        machine.pass(&mut leases, ms(10));
        assert!(machine.is_tickless(1), "{label} is over");
    }
}

//= TICK:L2.dynamic ARCH:nohz.recheck ARCH:nohz.rollback
#[test]
fn each_duty_that_arises_brings_the_tick_back_at_the_next_recheck() {
    for (duties, _, label) in each_duty() {
        let (mut machine, mut leases, _) = leased();
        machine.duties[1] = duties;
        machine.pass(&mut leases, ms(25));
        assert_eq!(machine.core(1).tick_mode(), TickMode::Periodic, "{label}");
        let restored = machine
            .events
            .iter()
            .any(|event| matches!(event, LeaseEvent::TickRestored { reason, .. } if *reason == label));
        assert!(restored, "{label}: {:?}", machine.events);
    }
}

//= ARCH:nohz.recheck ARCH:nohz.armed-timer
#[test]
fn a_recheck_without_the_leases_asks_again_soon_and_gives_up_when_its_proof_is_too_old() {
    let (mut machine, _, _) = leased();
    machine.now = ms(24);
    let again = recheck_without_leases(&mut machine, cpu(1));
    assert_eq!(again, NohzRecheck::Kept { wake_at: ms(24) + FREE.min_delta });
    assert_eq!(machine.core(1).next_timer(), ms(24) + FREE.min_delta, "a timer is armed");
    machine.now = ms(25);
    let over = recheck_without_leases(&mut machine, cpu(1));
    assert!(matches!(over, NohzRecheck::RolledBack(_)), "{over:?}");
    assert_eq!(machine.core(1).tick_mode(), TickMode::Periodic);
    // And with the CPU itself in other hands, the timer tells a tickless CPU from one that ticks.
    assert_eq!(on_contention(Interrupt::Timer, true), Contended::ArmShortest);
    assert_eq!(on_contention(Interrupt::Reschedule, true), Contended::StillArmed);
}

//= ARCH:nohz.remote ARCH:nohz.remote-slot ARCH:nohz.single-runnable
#[test]
fn a_request_from_afar_waits_in_the_slot_until_its_cpu_decides() {
    let (mut machine, mut leases) = running();
    let mut asked = compute(CPU_1, 1);
    asked.caller = Some(thread(0));
    let lease = leases.grant(&mut machine, &asked).expect("nothing is wrong with it");
    machine.on(&mut leases, 0, |_| {});
    assert!(!machine.is_tickless(1), "only CPU 1 can program its timer");
    assert!(machine.is_told(1));
    machine.deliver(&mut leases);
    assert!(machine.is_tickless(1));
    let remote =
        machine.events.iter().any(|event| matches!(event, LeaseEvent::TickStopped { remote: true, .. }));
    assert!(remote, "{:?}", machine.events);
    leases.revoke(&mut machine, lease).expect("live");
    machine.deliver(&mut leases);

    // A request that its CPU is not told of is found by its next tick. The one of a lease that was replaced is withdrawn.
    let (mut machine, mut leases) = running();
    machine.failing = u64::MAX;
    leases.grant(&mut machine, &asked).expect("nothing is wrong with it");
    asked.request.replaces = leases.lease_of(thread(1));
    let second = leases.grant(&mut machine, &asked).expect("it replaces its own");
    assert!(!machine.is_told(1) && !machine.is_tickless(1));
    machine.pass(&mut leases, ms(10));
    assert!(machine.is_tickless(1));
    assert!(leases.tickless_since(second).is_some());
}

//= ARCH:nohz.remote-slot
#[test]
fn an_occupied_slot_refuses_another_request() {
    let (mut machine, mut leases) = running();
    // A lessee that sleeps leaves the request in the slot.
    machine.block(&mut leases, 1);
    let mut asked = compute(CPU_1, 1);
    asked.caller = Some(thread(0));
    leases.grant(&mut machine, &asked).expect("nothing is wrong with it");
    machine.deliver(&mut leases);
    let parked = machine.with_slot(1, |slot| slot.peek());
    let parked = parked.expect("it waits for the lessee");
    let refused = machine.with_slot(1, |slot| slot.park(parked.claim));
    assert!(refused.is_err());
    assert!(!machine.is_tickless(1));
    let _woken = wake(&mut machine, thread(1));
    machine.deliver(&mut leases);
    assert!(machine.is_tickless(1), "the lessee runs, and the request is decided");
    assert_eq!(machine.with_slot(1, |slot| slot.peek()), None);
}

//= TICK:L3.housekeeping EVO:gate.lease
#[test]
fn nobody_starts_wakes_is_handed_or_moves_to_a_leased_cpu_and_it_steals_from_nobody() {
    let (mut machine, mut leases, _) = leased();
    let sleeper = thread(3);
    assert_eq!(place(&mut machine, sleeper, &Affinity::Any, 1, Some(cpu(1))), Some(cpu(0)), "start");
    start(&mut machine, cpu(0), entity(3, None)).expect("a seat");
    machine.deliver(&mut leases);
    // It sleeps on CPU 1 if that was leased only after it fell asleep: it wakes elsewhere.
    let (mut late, mut leases) = running();
    start(&mut late, cpu(1), entity(3, None)).expect("a seat");
    late.deliver(&mut leases);
    let there = Home { ..home(&late, 3) };
    assert_eq!(there.cpu, cpu(1));
    while late.running(1) != Some(sleeper) {
        late.pass(&mut leases, late.now + ms(1));
    }
    late.block(&mut leases, 1);
    leases.grant(&mut late, &compute(CPU_1, 1)).expect("nothing is wrong with it");
    late.deliver(&mut leases);
    assert_eq!(home(&late, 3).cpu, cpu(1), "a sleeper keeps its seat until it wakes");
    let _woken = wake(&mut late, sleeper);
    assert_ne!(home(&late, 3).cpu, cpu(1), "wake");
    assert_eq!(late.running(1), Some(thread(1)));

    // Its own thread would hand over to one that is kept away: that one wakes at home.
    late.deliver(&mut leases);
    let elsewhere = home(&late, 3).cpu;
    while late.running(elsewhere.index()) != Some(sleeper) {
        late.pass(&mut leases, late.now + ms(1));
    }
    late.block(&mut leases, elsewhere.index());
    late.on(&mut leases, 1, |machine| hand_over(machine, sleeper));
    assert_eq!(home(&late, 3).cpu, elsewhere, "hand over");

    // Nor does an idle leased CPU steal.
    late.block(&mut leases, 1);
    assert_eq!(late.running(1), None);
    assert_eq!(late.core(1).telemetry().steals, 0, "steal");
    assert_eq!(
        migrate(&mut late, thread(1), cpu(0), None, Via::Admit),
        None,
        "nor does its own thread leave"
    );
}

//= TICK:L2.dynamic TICK:L3.housekeeping
#[test]
fn the_thread_that_runs_on_a_leased_cpu_leaves_at_its_interrupt_and_the_lessee_comes() {
    let (mut machine, mut leases) = running();
    leases.grant(&mut machine, &compute(CPU_1, 0)).expect("nothing is wrong with it");
    assert!(machine.is_told(0) && machine.is_told(1), "one has to let the lessee go, the other its visitor");
    assert_eq!(machine.running(1), Some(thread(1)), "nobody else stops a running thread");
    machine.deliver(&mut leases);
    assert_eq!(machine.running(1), Some(thread(0)));
    assert!(machine.is_tickless(1));
    assert_ne!(home(&machine, 1).cpu, cpu(1));
}

//= ARCH:nohz.rollback TICK:L2.cpu-conditions
#[test]
fn a_thread_that_may_run_nowhere_else_stays_and_keeps_the_tick() {
    let (mut machine, mut leases) = running();
    machine.own[3] = Affinity::Only(Arc::new([cpu(1)].into_iter().collect()));
    start(&mut machine, cpu(1), entity(3, Some(&[1]))).expect("a seat");
    machine.deliver(&mut leases);
    let lease = leases.grant(&mut machine, &compute(CPU_1, 1)).expect("nothing is wrong with it");
    machine.deliver(&mut leases);
    assert!(machine.events.contains(&LeaseEvent::BoundHere { lease, thread: thread(3) }));
    assert!(!machine.is_tickless(1));
    while machine.running(1) != Some(thread(3)) {
        machine.pass(&mut leases, machine.now + ms(1));
    }
    machine.block(&mut leases, 1);
    assert!(machine.is_tickless(1), "it sleeps, and the lessee is alone");
    let _woken = wake(&mut machine, thread(3));
    assert_eq!(machine.core(1).tick_mode(), TickMode::Periodic, "it came back, and the tick with it");
}

//= TICK:L2.cpu-conditions ARCH:nohz.admit-sqpoll ARCH:nohz.rollback-sqpoll
#[test]
fn a_poller_is_tickless_only_while_the_ring_is_its_own() {
    let sqpoll =
        |owner_live, spinning, other_consumer| RingFacts::Sqpoll { owner_live, spinning, other_consumer };
    let cases = [
        (sqpoll(true, false, false), false, None),
        (sqpoll(true, true, false), true, None),
        (sqpoll(true, true, false), false, Some("busy-spin-not-allowed")),
        (sqpoll(false, false, false), false, Some("sqpoll-ring-mode-changed-or-owner-staled")),
        (sqpoll(true, false, true), false, Some("second-sq-consumer")),
        (RingFacts::NotSqpoll, false, Some("sqpoll-ring-mode-changed-or-owner-staled")),
        (RingFacts::Contended, false, Some("ring-contended")),
    ];
    for (facts, allow_busy_spin, obstacle) in cases {
        let (mut machine, mut leases) = running();
        machine.ring = facts;
        let mut asked = compute(CPU_1, 1);
        asked.request.mode = Mode::KernelSqpoll;
        asked.request.ring = NamedRing::CallerThread;
        asked.ring = Some(LeasedRing { ring: RingId(0), owner: thread(0) });
        asked.allow_busy_spin = allow_busy_spin;
        let lease = leases.grant(&mut machine, &asked).expect("nothing is wrong with it");
        machine.deliver(&mut leases);
        assert_eq!(leases.obstacle(lease).map(|why| why.label()), obstacle, "{facts:?}");
        assert_eq!(machine.is_tickless(1), obstacle.is_none(), "{facts:?}");
        if obstacle.is_none() {
            // The stale lease comes first, then the ring.
            machine.ring = RingFacts::NotSqpoll;
            machine.pass(&mut leases, ms(25));
            assert_eq!(machine.core(1).tick_mode(), TickMode::Periodic);
        }
    }
}

//= ARCH:lease.overlap EVO:S5.lease-record
#[test]
fn what_the_lessee_cannot_use_is_refused_and_changes_nothing() {
    let (mut machine, mut leases, lease) = leased();
    let events = machine.events.clone();
    machine.own[2] = Affinity::Only(Arc::new([cpu(2)].into_iter().collect()));
    machine.context_homes[0] = Some(cpu(0));
    let refused = |machine: &mut Isolated, leases: &mut Leases, asked: &GrantRequest<'_>| {
        let refusal = leases.grant(machine, asked).expect_err("it cannot be");
        assert!(!refusal.to_string().is_empty());
        refusal.label()
    };
    assert_eq!(refused(&mut machine, &mut leases, &compute(&[0b1], 2)), "affinity");
    assert_eq!(refused(&mut machine, &mut leases, &compute(&[0b100], 0)), "context-elsewhere");
    assert_eq!(refused(&mut machine, &mut leases, &compute(&[0b1], 1)), "already-leased");
    assert_eq!(refused(&mut machine, &mut leases, &compute(CPU_1, 3)), "overlap");
    assert_eq!(refused(&mut machine, &mut leases, &compute(&[0b101], 3)), "no-housekeeping-cpu");
    assert_eq!(refused(&mut machine, &mut leases, &compute(&[0], 3)), "malformed-mask");
    machine.target = TargetStanding::Fabricated;
    assert_eq!(refused(&mut machine, &mut leases, &compute(&[0b1], 3)), "fabricated-accounting-target");
    assert_eq!(machine.events, events);
    assert_eq!((leases.live_count(), leases.lease_of(thread(1))), (1, Some(lease)));
    let info = leases.info(machine.now, lease).expect("live");
    assert_eq!((info.owner, info.revocation), (owner(), RevocationPolicy::Notify(ENDPOINT)));
    assert!(matches!(
        leases.grant(&mut machine, &compute(&[0b1], 1)),
        Err(GrantRefusal::AlreadyLeased(other)) if other == lease
    ));
}

//= ARCH:inv.no-alloc
#[test]
fn nothing_allocates_but_the_mask_that_binds_the_lessee() {
    let (mut machine, mut leases) = running();
    machine.reserve_notes(10_000);
    machine.verifies = false;
    let counted = allocation_counter::measure(|| {
        for round in 0..100u32 {
            let mut asked = compute(CPU_1, round % 3);
            asked.request.lifetime = ms(2);
            asked.caller = (round % 2 == 0).then(|| thread(4));
            let lease = leases.grant(&mut machine, &asked).expect("the last one has ended");
            machine.deliver(&mut leases);
            let until = machine.now + ms(1);
            machine.pass(&mut leases, until);
            match round % 4 {
                0 => leases.revoke(&mut machine, lease).expect("live"),
                1 => leases.end_leases_of_session(&mut machine, SessionId(2)),
                2 => leases.end_leases_of_process(&mut machine, owner().process),
                _ => machine.pass(&mut leases, until + ms(1)),
            }
            machine.deliver(&mut leases);
            let _forgotten = leases.release(&mut machine, lease);
        }
    });
    assert_eq!(counted.count_total, 100, "one mask for each lease");
}

//= ARCH:nohz.accounting TICK:tax.lease
#[test]
fn time_under_a_lease_is_charged_to_the_nanosecond_without_a_tick() {
    let (mut machine, mut leases, _) = leased();
    let interrupts = machine.core(1).telemetry().timer_interrupts;
    machine.pass(&mut leases, ms(1_000));
    assert_eq!(machine.core(1).telemetry().timer_interrupts - interrupts, 40, "one per revocation latency");
    assert!(machine.is_tickless(1));
    machine.block(&mut leases, 1);
    let entity = machine.core(1).entity(home(&machine, 1).seat).expect("it sits there");
    assert_eq!(entity.account().runtime(), ms(1_000));
}

#[test]
fn a_machine_steals_again_from_a_cpu_whose_lease_is_over() {
    let (mut machine, mut leases, lease) = leased();
    leases.release(&mut machine, lease).expect("live");
    machine.deliver(&mut leases);
    start(&mut machine, cpu(1), entity(3, None)).expect("a seat");
    let stolen = steal(&mut machine, cpu(0), |cpu, _| cpu.event().resched(Stop::Preempted));
    assert!(matches!(stolen, Some(Decision::Run(_))));
    let affinity = machine.core(1).entity(home(&machine, 1).seat).map(|entity| entity.affinity().clone());
    assert_eq!(affinity, Ok(Affinity::Any), "and its thread is bound no longer");
    assert_ne!(machine.core(1).state(home(&machine, 1).seat), Err(mainspring_sched::SeatError::Stale));
    assert!(matches!(machine.core(1).state(home(&machine, 1).seat), Ok(State::Running | State::Queued)));
}
