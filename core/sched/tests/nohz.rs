//! A busy CPU without a tick: what it takes, what ends it, and that the time is counted all the same.

mod rig;

use mainspring_abi::{ContextRef, CpuSet, Nanos, Policy, ThreadRef};
use mainspring_sched::context::{Context, ContextSpec};
use mainspring_sched::lease::{
    AccountingTarget, LeaseRef, LeaseRequest, Limits, Mode, ModeSet, NamedRing, Registry, Standing,
    TargetStanding,
};
use mainspring_sched::nohz::{
    Claim, Conditions, Contended, Interrupt, Kind, Obligation, Obstacle, Origin, RingFacts, on_contention,
};
use mainspring_sched::{
    IdleConditions, IdleTick, KeepTicking, NohzEntry, NohzExit, NohzRecheck, Seat, Stop, TickMode,
};
use rig::lease::{compute, cpus, eligibility, grant, local, mask, registry, registry_with, sqpoll};
use rig::{Rig, cpu_id, ms, only, us};

/// CPU 1 of four, leased, with one thread that runs there alone.
struct Leased {
    rig: Rig,
    registry: Registry,
    lease: LeaseRef,
    thread: Seat,
    claim: Claim,
}

impl Leased {
    fn new() -> Self {
        Self::by(registry(), &compute(&mask(&[1])))
    }

    fn by(mut registry: Registry, request: &LeaseRequest<'_>) -> Self {
        let mut rig = Rig::on(1, Policy::Eevdf);
        let lease = grant(&mut registry, Nanos::ZERO, request);
        rig.admit(|spec| spec.affinity = only(&[1]));
        let thread = rig.start().expect("it is ready");
        Self { rig, registry, lease, thread, claim: local(lease, thread.thread()) }
    }

    /// A ring that the kernel polls, for the thread that runs.
    fn polling() -> Self {
        let mut leased = Self::by(registry(), &sqpoll(&mask(&[1])));
        leased.claim.kind = Kind::KernelSqpoll;
        leased
    }

    /// What is true now, if nothing stands in the way.
    fn conditions(&mut self) -> Conditions {
        let lease = self.registry.standing(self.rig.now, self.lease);
        let ring = match lease {
            Standing::Live(terms) if terms.ring() == NamedRing::CallerThread => POLLED,
            _ => RingFacts::NoRing,
        };
        Conditions { lease, ring, ..Conditions::default() }
    }

    fn enter_on(&mut self, conditions: &Conditions) -> NohzEntry {
        self.rig.cpu.nohz_enter(self.rig.now, &self.claim, conditions)
    }

    fn enter(&mut self) -> NohzEntry {
        let conditions = self.conditions();
        self.enter_on(&conditions)
    }

    fn recheck(&mut self) -> NohzRecheck {
        let conditions = self.conditions();
        self.rig.cpu.nohz_recheck(self.rig.now, &conditions)
    }

    fn is_periodic(&self) -> bool {
        self.rig.cpu.tick_mode() == TickMode::Periodic
    }

    fn exits(&self, why: NohzExit) -> u64 {
        self.rig.cpu.telemetry().nohz_exits[why as usize]
    }
}

const POLLED: RingFacts = RingFacts::Sqpoll { owner_live: true, spinning: true, other_consumer: false };

fn tickless(wake_at: Nanos) -> NohzEntry {
    NohzEntry::Tickless { wake_at }
}

//= ARCH:nohz.activate ARCH:nohz.single-runnable ARCH:nohz.admit-compute TICK:telemetry
#[test]
fn a_leased_thread_alone_on_its_cpu_goes_tickless_with_a_one_shot_armed() {
    let mut leased = Leased::new();
    assert_eq!(leased.rig.cpu.next_timer(), ms(10), "it ticks");
    assert_eq!(leased.enter(), tickless(ms(25)));
    assert_eq!(leased.rig.cpu.next_timer(), ms(25), "its own latency is below the lease's 50 ms");
    assert_eq!(leased.rig.cpu.nohz().map(|window| window.lease()), Some(leased.lease));
    assert_eq!(leased.rig.cpu.telemetry().nohz_enter_lease[Kind::AutoCompute as usize], 1);
    assert_eq!(leased.enter(), NohzEntry::Already);
}

//= ARCH:nohz.activate ARCH:lease.lifetime
#[test]
fn the_one_shot_is_armed_for_what_comes_first() {
    let mut leased = Leased::by(registry(), &LeaseRequest { lifetime: ms(18), ..compute(&mask(&[1])) });
    let sleeper = leased.rig.thread(64);
    // The two share the CPU until one goes to sleep for 12 ms.
    leased.rig.now = ms(3);
    assert_eq!(leased.rig.preempt(), Some(sleeper));
    leased.rig.sleep(ms(12));
    assert_eq!(leased.enter(), tickless(ms(15)), "the sleeper");
    leased.rig.now = ms(4);
    let near = Conditions { next_wakeup: ms(7), ..leased.conditions() };
    assert_eq!(leased.rig.cpu.nohz_recheck(ms(4), &near), NohzRecheck::Kept { wake_at: ms(7) });
    let mut short = Leased::by(registry(), &LeaseRequest { lifetime: ms(18), ..compute(&mask(&[1])) });
    assert_eq!(short.enter(), tickless(ms(18)), "the end of the lease");
}

type Spoil = fn(&mut Conditions);

/// Everything that the machine can say against it, with what it is called.
const SPOILED: [(Obstacle, Spoil); 20] = [
    (Obstacle::StaleLease, |c| c.lease = Standing::Stale),
    (Obstacle::LeaseExpired, |c| c.lease = Standing::Expired),
    (Obstacle::LeaseUnreadable, |c| c.lease = Standing::Contended),
    (Obstacle::SiblingWork, |c| c.sibling_work = true),
    (Obstacle::NoHousekeeping, |c| c.housekeeping = false),
    (Obstacle::DeferredCleanup, |c| c.deferred_cleanup = true),
    (Obstacle::GlobalTimers, |c| c.global_timers = true),
    (Obstacle::TimerDue, |c| c.next_wakeup = Nanos::ZERO),
    (Obstacle::UnboundWorker, |c| c.unbound_worker = true),
    (Obstacle::Watchdog, |c| c.watchdog = true),
    (Obstacle::NetworkPolling, |c| c.network_polling = true),
    (Obstacle::FixedIrq, |c| c.fixed_irq = true),
    (Obstacle::WrongPayer, |c| c.payer = AccountingTarget::Context { id: 7, generation: 1 }),
    (Obstacle::TargetNotChargeable, |c| c.target = TargetStanding::Stale),
    (Obstacle::TickClocksource, |c| c.stable_clock = false),
    (Obstacle::TickAccounting, |c| c.boundary_accounting = false),
    (Obstacle::RevocationLatency, |c| c.min_delta = ms(26)),
    (Obstacle::NotInterruptible, |c| c.interruptible = false),
    (Obstacle::NoPeriodic, |c| c.periodic = false),
    (Obstacle::NoOneShot, |c| c.oneshot = false),
];

//= TICK:L2.proof
#[test]
fn each_obstacle_alone_keeps_the_tick_and_is_named() {
    for (obstacle, spoil) in SPOILED {
        let mut leased = Leased::new();
        let mut conditions = leased.conditions();
        spoil(&mut conditions);
        assert_eq!(leased.enter_on(&conditions), NohzEntry::Refused(obstacle));
        assert!(
            leased.is_periodic() && leased.rig.cpu.next_timer() == ms(10),
            "{obstacle} leaves the tick alone"
        );
    }
    assert_eq!(Leased::new().enter(), tickless(ms(25)), "with none of them it stops");
}

//= TICK:L2.dynamic ARCH:nohz.rollback ARCH:nohz.recheck
#[test]
fn each_obstacle_alone_ends_the_window_before_anything_else_runs() {
    for (obstacle, spoil) in SPOILED {
        let mut leased = Leased::new();
        let _ = leased.enter();
        leased.rig.now = ms(24) + us(999) + Nanos::new(500);
        let mut conditions = leased.conditions();
        spoil(&mut conditions);
        let outcome = leased.rig.cpu.nohz_recheck(leased.rig.now, &conditions);
        assert_eq!(outcome, NohzRecheck::RolledBack(obstacle));
        assert!(
            leased.is_periodic() && leased.rig.cpu.next_timer() == ms(30),
            "{obstacle} restores the tick"
        );
        assert_eq!(leased.exits(obstacle.exit()), 1, "{obstacle} is recorded");
        assert_eq!(leased.recheck(), NohzRecheck::NotTickless);
    }
}

//= ARCH:nohz.recheck ARCH:nohz.armed-timer TICK:telemetry
#[test]
fn an_unchanged_window_is_armed_again_at_every_interrupt() {
    let mut leased = Leased::new();
    let _ = leased.enter();
    for step in 1..=8 {
        leased.rig.now = leased.rig.cpu.next_timer();
        assert_eq!(leased.rig.now, ms(25 * step));
        assert_eq!(leased.recheck(), NohzRecheck::Kept { wake_at: ms(25 * (step + 1)) });
        assert!(!leased.rig.cpu.timer(leased.rig.now).ticked);
    }
    let counters = leased.rig.cpu.telemetry();
    assert_eq!((counters.ticks, counters.ticks_suppressed_lease, counters.ticks_suppressed_idle), (0, 20, 0));
    assert_eq!(counters.oneshot_deadline_misses, 0);
    leased.rig.now += ms(26);
    let _ = leased.recheck();
    assert_eq!(leased.rig.cpu.telemetry().oneshot_deadline_misses, 1, "a late one-shot is counted");
}

//= ARCH:nohz.armed-timer
#[test]
fn a_one_shot_that_nobody_rechecks_ends_the_window() {
    let mut leased = Leased::new();
    let _ = leased.enter();
    leased.rig.now = ms(25);
    assert!(!leased.rig.cpu.timer(leased.rig.now).ticked);
    assert!(leased.is_periodic());
    assert_eq!((leased.rig.cpu.next_timer(), leased.exits(NohzExit::NotReproved)), (ms(30), 1));
}

//= TICK:nongoal.generic-nohz TICK:tax.nohz TICK:L3.hint
#[test]
fn no_claim_suppresses_a_tick_without_a_live_lease() {
    for kind in Kind::ALL {
        let mut rig = Rig::on(1, Policy::Eevdf);
        rig.admit(|spec| spec.affinity = only(&[1]));
        let thread = rig.start().expect("ready").thread();
        let eligibility = eligibility(kind);
        let claim =
            eligibility.claim(LeaseRef::from_parts(1, 1), Origin::Local { caller: thread, poller: None });
        assert_eq!(rig.cpu.tick_mode(), TickMode::Periodic, "a claim does nothing by itself");
        let entry = rig.cpu.nohz_enter(rig.now, &claim, &Conditions::default());
        assert_eq!(entry, NohzEntry::Refused(Obstacle::StaleLease), "{kind:?}");
        assert_eq!(rig.cpu.next_timer(), ms(10));
    }
}

//= TICK:nongoal.generic-nohz
#[test]
fn one_lease_does_not_serve_a_claim_under_another() {
    let mut leased = Leased::new();
    let other = grant(&mut leased.registry, Nanos::ZERO, &compute(&mask(&[2])));
    leased.claim.lease = other;
    assert_eq!(leased.enter(), NohzEntry::Refused(Obstacle::StaleLease), "the terms are of the first");
    leased.lease = other;
    assert_eq!(leased.enter(), NohzEntry::Refused(Obstacle::TargetMismatch), "it has another CPU");
}

//= TICK:L3.hint TICK:L3.eligibility
#[test]
fn a_preference_biases_placement_and_excludes_nobody() {
    let mut eligibility = eligibility(Kind::AutoCompute);
    eligibility.preferred_cpus = cpus(&[2, 3]);
    assert_eq!(eligibility.place(&CpuSet::first(4)), Some(cpu_id(2)));
    assert_eq!(eligibility.place(&cpus(&[0, 3])), Some(cpu_id(3)));
    assert_eq!(eligibility.place(&cpus(&[1])), Some(cpu_id(1)), "a preference is not a demand");
    let registry = registry();
    assert_eq!(registry.lease_of(cpu_id(2)), None, "and leases nothing");
}

//= ARCH:nohz.admit-compute TICK:tax.lease
#[test]
fn a_budgeted_thread_goes_tickless_only_under_a_lease_that_charges_its_own_context() {
    let context = AccountingTarget::Context { id: 7, generation: 2 };
    let mut leased = Leased::by(registry(), &LeaseRequest { target: context, ..compute(&mask(&[1])) });
    leased.claim.accounting_target = context;
    for stranger in [
        AccountingTarget::Ledger,
        AccountingTarget::Context { id: 7, generation: 1 },
        AccountingTarget::Context { id: 8, generation: 2 },
    ] {
        let conditions = Conditions { payer: stranger, ..leased.conditions() };
        assert_eq!(leased.enter_on(&conditions), NohzEntry::Refused(Obstacle::WrongPayer), "{stranger:?}");
    }
    let conditions = Conditions { payer: context, ..leased.conditions() };
    let claim = leased.claim;
    leased.claim.accounting_target = AccountingTarget::Ledger;
    assert_eq!(
        leased.enter_on(&conditions),
        NohzEntry::Refused(Obstacle::WrongPayer),
        "it claimed otherwise"
    );
    leased.claim = claim;
    assert_eq!(leased.enter_on(&conditions), tickless(ms(25)));
}

//= TICK:L3.eligibility ARCH:nohz.admit-compute ARCH:nohz.auto
#[test]
fn a_lease_covers_the_kinds_that_its_mode_is_for() {
    let modes = Mode::ALL.into_iter().fold(ModeSet::DEFAULT, ModeSet::with);
    let covered = |kind: Kind| -> Vec<Mode> {
        Mode::ALL.into_iter().filter(|mode| kind.is_covered_by(*mode)).collect()
    };
    assert_eq!(covered(Kind::Idle), []);
    assert_eq!(covered(Kind::KernelSqpoll), [Mode::KernelSqpoll]);
    assert_eq!(covered(Kind::AutoCompute), [Mode::Compute]);
    assert_eq!(covered(Kind::RealtimeIsland), [Mode::Compute]);
    assert_eq!(covered(Kind::AutoUserspacePoller), [Mode::UserspacePoller, Mode::DeviceOwner]);
    let registry = registry_with(Limits { modes, ..Limits::default() });
    let one = mask(&[1]);
    let request = LeaseRequest { mode: Mode::UserspacePoller, ..compute(&one) };
    let mut leased = Leased::by(registry, &request);
    assert_eq!(leased.enter(), NohzEntry::Refused(Obstacle::KindNotCovered));
    leased.claim.kind = Kind::AutoUserspacePoller;
    leased.claim.allow_busy_spin = false;
    assert_eq!(leased.enter(), NohzEntry::Refused(Obstacle::BusySpin));
    leased.claim.allow_busy_spin = true;
    assert_eq!(leased.enter(), tickless(ms(25)));
}

//= ARCH:nohz.refuse
#[test]
fn devices_that_are_served_everywhere_forbid_modes_that_depend_on_them() {
    let modes = Mode::ALL.into_iter().fold(ModeSet::DEFAULT, ModeSet::with);
    let routed = || registry_with(Limits { modes, devices_on_housekeeping: true, ..Limits::default() });
    let one = mask(&[1]);
    let cases = [
        (Mode::DeviceOwner, NamedRing::None, Kind::AutoUserspacePoller, Obstacle::DevicesNotRouted),
        (Mode::Compute, NamedRing::CallerThread, Kind::AutoCompute, Obstacle::RingWithoutSqpoll),
    ];
    for (mode, ring, kind, obstacle) in cases {
        let mut leased = Leased::by(routed(), &LeaseRequest { mode, ring, ..compute(&one) });
        leased.claim.kind = kind;
        let conditions = Conditions { ring: RingFacts::NotSqpoll, ..leased.conditions() };
        assert_eq!(leased.enter_on(&conditions), NohzEntry::Refused(obstacle), "the routing was lost since");
        let conditions = Conditions { devices_on_housekeeping: true, ..conditions };
        assert_eq!(leased.enter_on(&conditions), tickless(ms(25)));
    }
}

//= ARCH:nohz.single-runnable TICK:L2.proof
#[test]
fn the_running_thread_must_be_alone_and_be_the_one_that_asks() {
    let mut leased = Leased::new();
    let second = leased.rig.thread(64);
    assert_eq!(leased.enter(), NohzEntry::Refused(Obstacle::SecondRunnable));
    leased.rig.cpu.hold(leased.rig.now, second).expect("queued");
    assert_eq!(leased.enter(), NohzEntry::Refused(Obstacle::SecondRunnable), "held back is not gone");
    let _ = leased.rig.cpu.remove(leased.rig.now, second).expect("held");
    let caller = leased.thread.thread();
    leased.claim.origin = Origin::Local { caller: ThreadRef::new(77, 0), poller: None };
    assert_eq!(leased.enter(), NohzEntry::Refused(Obstacle::NotTheCaller));
    leased.claim.origin = Origin::Local { caller: ThreadRef::new(caller.index(), 1), poller: None };
    assert_eq!(leased.enter(), NohzEntry::Refused(Obstacle::NotTheCaller), "nor a later one of its number");
    leased.claim.origin = Origin::Local { caller: ThreadRef::new(77, 0), poller: Some(caller) };
    assert_eq!(leased.enter(), tickless(ms(25)), "a dedicated poller will do");
    let mut idle = Leased::new();
    idle.rig.block();
    assert_eq!(idle.enter(), NohzEntry::Refused(Obstacle::NothingRuns));
}

//= ARCH:nohz.single-runnable ARCH:nohz.remote-compute ARCH:nohz.remote
#[test]
fn another_cpu_may_ask_for_the_thread_that_is_pinned_here_and_computes() {
    let asks = Origin::Remote { caller: ThreadRef::new(500, 0) };
    let mut leased = Leased::new();
    leased.claim.origin = Origin::Remote { caller: leased.thread.thread() };
    assert_eq!(leased.enter(), NohzEntry::Refused(Obstacle::NotTheCaller), "the one who asks is elsewhere");
    leased.claim.origin = asks;
    let conditions = leased.conditions();
    let report = leased.rig.cpu.nohz_preflight(leased.rig.now, &leased.claim, &conditions);
    let sole = report.lines().find(|(obligation, _)| *obligation == Obligation::SoleRunnable);
    assert_eq!(sole, Some((Obligation::SoleRunnable, Ok("exactly-one-runnable-remote-target"))));
    assert_eq!(leased.enter(), tickless(ms(25)));

    let mut free = Leased::new();
    let rover = free.rig.thread(64);
    free.rig.block();
    assert_eq!(free.rig.cpu.current(), Some(rover));
    free.claim.origin = asks;
    assert_eq!(free.enter(), NohzEntry::Refused(Obstacle::NotPinned));

    let mut polling = Leased::polling();
    polling.claim.origin = asks;
    assert_eq!(polling.enter(), NohzEntry::Refused(Obstacle::RemoteNotCompute));
}

//= ARCH:nohz.single-runnable
#[test]
fn a_lease_of_several_cpus_makes_none_of_them_tickless() {
    let mut leased = Leased::by(registry(), &compute(&mask(&[1, 2])));
    assert_eq!(leased.enter(), NohzEntry::Refused(Obstacle::SeveralCpus));
}

//= ARCH:nohz.admit-sqpoll
#[test]
fn a_polled_ring_must_be_seen_to_be_polled_by_its_owner_alone() {
    let live = POLLED;
    let cases = [
        (RingFacts::NoRing, Some(Obstacle::RingChanged)),
        (RingFacts::NotSqpoll, Some(Obstacle::RingChanged)),
        (RingFacts::Contended, Some(Obstacle::RingContended)),
        (
            RingFacts::Sqpoll { owner_live: false, spinning: true, other_consumer: false },
            Some(Obstacle::RingChanged),
        ),
        (
            RingFacts::Sqpoll { owner_live: true, spinning: true, other_consumer: true },
            Some(Obstacle::SecondConsumer),
        ),
        (RingFacts::Sqpoll { owner_live: true, spinning: false, other_consumer: false }, None),
        (live, None),
    ];
    for (ring, obstacle) in cases {
        let mut leased = Leased::polling();
        let conditions = Conditions { ring, ..leased.conditions() };
        let report = leased.rig.cpu.nohz_preflight(leased.rig.now, &leased.claim, &conditions);
        assert_eq!(report.obstacle(), obstacle, "{ring:?}");
        let expected = obstacle.map_or(tickless(ms(25)), NohzEntry::Refused);
        assert_eq!(leased.enter_on(&conditions), expected, "{ring:?}");
        if obstacle.is_none() {
            let consumer = report.lines().find(|(obligation, _)| *obligation == Obligation::SqConsumer);
            assert_eq!(consumer, Some((Obligation::SqConsumer, Ok("blocked-sqpoll-owner"))));
        }
    }
    let mut shy = Leased::polling();
    shy.claim.allow_busy_spin = false;
    assert_eq!(shy.enter(), NohzEntry::Refused(Obstacle::BusySpin));
}

//= ARCH:nohz.rollback-sqpoll
#[test]
fn a_ring_that_is_polled_no_longer_ends_the_window_but_a_dead_lease_is_named_first() {
    for ring in [RingFacts::NotSqpoll, RingFacts::Contended] {
        let mut leased = Leased::polling();
        let _ = leased.enter();
        let conditions = Conditions { ring, ..leased.conditions() };
        let NohzRecheck::RolledBack(obstacle) = leased.rig.cpu.nohz_recheck(ms(1), &conditions) else {
            panic!("{ring:?} does not keep a CPU tickless")
        };
        assert_eq!(obstacle.exit().label(), "sqpoll-ring-mode-changed-or-owner-staled");
        assert_eq!(leased.exits(NohzExit::RingChanged), 1);
    }
    let mut leased = Leased::polling();
    let _ = leased.enter();
    let _ = leased.registry.revoke(ms(1), leased.lease).expect("live");
    let conditions = Conditions { ring: RingFacts::NotSqpoll, ..leased.conditions() };
    let outcome = leased.rig.cpu.nohz_recheck(ms(1), &conditions);
    assert_eq!(outcome, NohzRecheck::RolledBack(Obstacle::StaleLease));
}

//= ARCH:lease.revoke ARCH:nohz.rollback
#[test]
fn a_revoked_lease_ends_its_window_and_its_old_name_opens_no_other() {
    let mut leased = Leased::new();
    let _ = leased.enter();
    leased.rig.now = ms(3);
    let _ = leased.registry.revoke(ms(3), leased.lease).expect("live");
    let rolled = leased.registry.roll_back().expect("just revoked");
    assert_eq!(rolled.cpu, Some(cpu_id(1)));
    assert!(leased.rig.cpu.nohz_forget(rolled.lease));
    assert_eq!(leased.rig.cpu.next_timer(), ms(25), "its one-shot is still armed");
    assert_eq!(leased.recheck(), NohzRecheck::RolledBack(Obstacle::RecordCleared));
    assert_eq!(leased.enter(), NohzEntry::Refused(Obstacle::StaleLease));
    assert!(leased.is_periodic());
}

//= ARCH:lease.lifetime
#[test]
fn an_expired_lease_ends_its_window_at_the_moment_of_its_end() {
    let mut leased = Leased::by(registry(), &LeaseRequest { lifetime: ms(18), ..compute(&mask(&[1])) });
    let _ = leased.enter();
    leased.rig.now = leased.rig.cpu.next_timer();
    assert_eq!(leased.rig.now, ms(18));
    assert_eq!(leased.recheck(), NohzRecheck::RolledBack(Obstacle::LeaseExpired));
    assert_eq!(Obstacle::LeaseExpired.label(), "lease-lifetime-expired");
    assert_eq!(leased.exits(NohzExit::LeaseExpired), 1);
    assert_eq!(leased.registry.roll_back().map(|ended| ended.reason.label()), Some("lease-expired"));
}

//= ARCH:nohz.rollback ARCH:nohz.recheck TICK:L2.dynamic
#[test]
fn new_work_restores_the_tick_in_the_same_event() {
    type Arrive = fn(&mut Leased);
    let cases: [(NohzExit, Arrive); 4] = [
        (NohzExit::SecondRunnable, |leased| {
            leased.rig.thread(64);
        }),
        (NohzExit::Reschedule, |leased| leased.rig.cpu.reschedule_received(leased.rig.now)),
        (NohzExit::Dispatch, |leased| {
            leased.rig.resched(Stop::Yielded);
        }),
        (NohzExit::WentIdle, |leased| {
            leased.rig.block();
            let lease = IdleConditions { nohz_lease: true, ..IdleConditions::default() };
            let kept = leased.rig.cpu.enter_idle(leased.rig.now, &lease);
            assert_eq!(kept, IdleTick::Kept(KeepTicking::NohzLease));
        }),
    ];
    for (why, arrive) in cases {
        let mut leased = Leased::new();
        let _ = leased.enter();
        leased.rig.now = ms(14);
        arrive(&mut leased);
        assert!(leased.rig.cpu.nohz().is_none(), "{why:?}");
        assert_eq!(leased.exits(why), 1, "{why:?}");
        assert!(leased.rig.cpu.next_timer() <= ms(20), "{why:?}: the tick is back");
        assert_eq!(leased.rig.cpu.telemetry().ticks_suppressed_lease, 1, "{why:?}: the one at 10 ms");
    }
}

//= ARCH:nohz.rollback
#[test]
fn a_wakeup_or_a_handoff_here_restores_the_tick_in_the_same_event() {
    for direct in [false, true] {
        let mut leased = Leased::new();
        let sleeper = leased.rig.thread(64);
        leased.rig.now = ms(3);
        assert_eq!(leased.rig.preempt(), Some(sleeper));
        leased.rig.block();
        assert_eq!(leased.enter(), tickless(ms(28)));
        leased.rig.now = ms(14);
        let why = if direct {
            let _ = leased.rig.cpu.hand_off(leased.rig.now, sleeper).expect("asleep");
            NohzExit::DirectTarget
        } else {
            let _ = leased.rig.cpu.wake(leased.rig.now, sleeper).expect("asleep");
            NohzExit::SecondRunnable
        };
        assert!(leased.is_periodic());
        assert_eq!(leased.exits(why), 1);
        assert!(leased.rig.cpu.next_timer() <= ms(20));
        let expected = if direct { Obstacle::DirectTarget } else { Obstacle::SecondRunnable };
        assert_eq!(leased.enter(), NohzEntry::Refused(expected));
    }
}

//= ARCH:nohz.rollback
#[test]
fn a_timed_wait_that_ends_here_ends_the_window() {
    let mut leased = Leased::new();
    let sleeper = leased.rig.thread(64);
    leased.rig.now = ms(3);
    assert_eq!(leased.rig.preempt(), Some(sleeper));
    leased.rig.sleep(ms(4));
    assert_eq!(leased.enter(), tickless(ms(7)));
    leased.rig.now = ms(7);
    assert_eq!(leased.recheck(), NohzRecheck::RolledBack(Obstacle::TimerDue));
    let _ = leased.rig.cpu.timer(leased.rig.now);
    assert_eq!(leased.rig.cpu.expire(leased.rig.now).map(|expired| expired.seat), Some(sleeper));
}

//= ARCH:nohz.armed-timer
#[test]
fn a_registry_that_cannot_be_read_is_asked_again_soon_and_not_for_ever() {
    let mut leased = Leased::new();
    let _ = leased.enter();
    leased.rig.now = ms(20);
    let contended = Conditions { lease: Standing::Contended, min_delta: us(900), ..Conditions::default() };
    for _ in 0..5 {
        let again = leased.rig.now + us(900);
        let outcome = leased.rig.cpu.nohz_recheck(leased.rig.now, &contended);
        assert_eq!(outcome, NohzRecheck::Kept { wake_at: again });
        assert_eq!(leased.rig.cpu.next_timer(), again);
        leased.rig.now = again;
    }
    assert_eq!(leased.rig.now, ms(24) + us(500));
    let outcome = leased.rig.cpu.nohz_recheck(leased.rig.now, &contended);
    assert_eq!(outcome, NohzRecheck::RolledBack(Obstacle::LeaseUnreadable), "25 ms after the last proof");
    assert!(leased.is_periodic());
}

//= ARCH:nohz.armed-timer
#[test]
fn a_handler_that_cannot_reach_the_scheduler_arms_a_timer_only_if_it_used_one_up() {
    assert_eq!(on_contention(Interrupt::Timer, true), Contended::ArmShortest);
    assert_eq!(on_contention(Interrupt::Timer, false), Contended::StillArmed, "the tick comes by itself");
    assert_eq!(on_contention(Interrupt::Reschedule, true), Contended::StillArmed);
    assert_eq!(on_contention(Interrupt::Reschedule, false), Contended::StillArmed);
}

//= ARCH:nohz.accounting TICK:tax.lease
#[test]
fn every_nanosecond_without_a_tick_is_charged() {
    let mut leased = Leased::new();
    let _ = leased.enter();
    leased.rig.now = ms(25);
    let _ = leased.recheck();
    leased.rig.now = ms(40) + Nanos::new(7);
    leased.rig.block();
    assert_eq!(leased.rig.runtime(leased.thread), ms(40) + Nanos::new(7));
    let mut ticking = Leased::new();
    for tick in 1..=4 {
        let _ = ticking.rig.cpu.timer(ms(10 * tick));
    }
    ticking.rig.now = ms(40) + Nanos::new(7);
    ticking.rig.block();
    assert_eq!(ticking.rig.runtime(ticking.thread), leased.rig.runtime(leased.thread), "as with ticks");
}

//= ARCH:lease.preflight
#[test]
fn a_preflight_reports_every_obligation_by_a_bounded_label() {
    let mut leased = Leased::new();
    let mut conditions = leased.conditions();
    let report = leased.rig.cpu.nohz_preflight(leased.rig.now, &leased.claim, &conditions);
    assert_eq!((report.lease, report.target, report.runnable), (leased.lease, Some(cpu_id(1)), 1));
    assert_eq!(report.obstacle(), None);
    assert_eq!(
        report.to_string(),
        "lease=#1.1 cpu=1 runnable=1 lease-live=live lease-lifetime=unbounded lease-mode=compute sole-cpu=one \
         target-cpu=this remote-shape=local direct-target=none sole-runnable=exactly-one-runnable-caller \
         sibling-work=none housekeeping=ready deferred-cleanup=none timers=none-due workers=none watchdog=elsewhere \
         network-polling=elsewhere irq-affinity=elsewhere accounting-target=chargeable clock=boundary-driven \
         sq-consumer=no-ring busy-spin=none revocation-latency=bounded rollback=interruptible \
         periodic-fallback=ready oneshot=ready"
    );
    conditions.deferred_cleanup = true;
    conditions.oneshot = false;
    let report = leased.rig.cpu.nohz_preflight(leased.rig.now, &leased.claim, &conditions);
    assert_eq!(report.obstacle(), Some(Obstacle::DeferredCleanup), "the first one decides");
    let blocked: Vec<_> = report.lines().filter_map(|(_, result)| result.err()).collect();
    assert_eq!(blocked, [Obstacle::DeferredCleanup, Obstacle::NoOneShot], "and all are reported");
    assert!(leased.is_periodic(), "looking changes nothing");
}

#[test]
fn no_two_labels_are_the_same() {
    let distinct = |labels: Vec<&str>| {
        let count = labels.len();
        labels.into_iter().collect::<std::collections::HashSet<_>>().len() == count
    };
    assert!(distinct(Obligation::ALL.iter().map(|one| one.label()).collect()));
    assert!(distinct(Obstacle::ALL.iter().map(|one| one.label()).collect()));
    assert!(distinct(NohzExit::ALL.iter().map(|one| one.label()).collect()));
    assert!(distinct(Kind::ALL.iter().map(|one| one.label()).collect()));
    assert!(Obligation::ALL.iter().enumerate().all(|(n, one)| *one as usize == n), "checked in this order");
}

//= ARCH:nohz.rollback TICK:L2.dynamic
#[test]
fn a_throttled_thread_bounds_the_window_and_a_ready_context_ends_it() {
    let mut leased = Leased::new();
    let grant = ContextSpec::new(ms(1), ms(20));
    let context = Box::new(Context::new(ContextRef::new(1, 0), grant, Nanos::ZERO));
    let other = leased.rig.admit(|spec| spec.affinity = only(&[1]));
    leased.rig.cpu.bind(Nanos::ZERO, other, context).expect("it has none");
    assert_eq!(leased.enter(), NohzEntry::Refused(Obstacle::SecondRunnable), "ready on a context is ready");
    assert_eq!(leased.rig.preempt(), Some(other));
    leased.rig.pass(ms(1));
    let _ = leased.rig.cpu.timer(leased.rig.now);
    assert_eq!(leased.rig.preempt(), Some(leased.thread), "the other's budget is used up");

    assert_eq!(leased.enter(), tickless(ms(20)), "until the refill, and no longer");
    leased.rig.now = ms(20);
    assert_eq!(leased.recheck(), NohzRecheck::RolledBack(Obstacle::TimerDue));
    let _ = leased.rig.cpu.timer(leased.rig.now);
    assert_eq!(leased.rig.preempt(), Some(other));
    assert_eq!(leased.rig.block(), Some(leased.thread));

    assert_eq!(leased.enter(), tickless(ms(45)), "a sleeper is no obstacle");
    leased.rig.pass(us(10));
    let _ = leased.rig.cpu.wake(leased.rig.now, other).expect("it slept");
    assert!(leased.is_periodic(), "two could run");
    assert_eq!(leased.exits(NohzExit::SecondRunnable), 1);
}
