//! The poller of a ring on a leased CPU: an entity of the scheduler, paid by its lease's context.

mod machines;

use machines::isolated::{Isolated, isolated};
use machines::{cpu, entity, thread};
use mainspring_abi::ring::{CapCqe, CapSqeV2, NEED_WAKEUP, RingAbi, word};
use mainspring_abi::{ContextRef, CpuSet, Nanos, ProcessId};
use mainspring_driver::leases::{GrantRequest, LeaseEvent, LeasedRing, Leases, RingId};
use mainspring_driver::placement::{start, wake};
use mainspring_driver::sqpoll::{NotStarted, Poller, PollerStep, Stopped};
use mainspring_driver::{Home, Machine};
use mainspring_ring::sync::Ordering;
use mainspring_ring::{
    AccountingTarget, CqPlace, Endpoint, Geometry, HeapRegion, Push, Reap, Reaper, Region, RingMode,
    RingScope, SQES_PER_PASS, SqpollGrant, StopReason, Submitter, Wakeup,
};
use mainspring_sched::context::{Context, ContextSpec};
use mainspring_sched::lease::{self, LeaseRef, LeaseRequest, Mode, NamedRing, Owner, RevocationPolicy};
use mainspring_sched::{Affinity, Stop, WaitKind};
use std::sync::Arc;

const POLLER: u32 = 4;
const OWNER: u32 = 0;
const SPIN: Nanos = Nanos::from_micros(50);

/// What the poller has accepted and not completed.
type InHand = Vec<(CapSqeV2, CqPlace)>;

struct Rig {
    machine: Isolated,
    leases: Leases,
    lease: LeaseRef,
    endpoint: Endpoint<Arc<HeapRegion>>,
    submitter: Submitter<Arc<HeapRegion>>,
    reaper: Reaper<Arc<HeapRegion>>,
    region: Arc<HeapRegion>,
    poller: Poller,
    in_hand: InHand,
}

/// A ring of thread 0, and its poller on CPU 1, which has that CPU and a context to itself.
fn rig() -> Rig {
    let (mut machine, mut leases) = isolated(2, 5, 2);
    start(&mut machine, cpu(0), entity(OWNER, None)).expect("a seat");
    let poller = Poller::new(thread(POLLER));
    let on_1 = Affinity::Only(Arc::new([cpu(1)].into_iter().collect::<CpuSet>()));
    machine.own[POLLER as usize] = on_1.clone();
    let home = start(&mut machine, cpu(1), poller.entity(ProcessId::new(9), on_1)).expect("a seat");
    let context = bind(&mut machine, home);
    machine.deliver(&mut leases);
    assert_eq!(machine.running(1), Some(thread(POLLER)));
    let mask: Vec<u8> = [cpu(1)].into_iter().collect::<CpuSet>().bytes().collect();
    let asked = GrantRequest {
        request: LeaseRequest {
            owner: Owner { process: ProcessId::new(0), session: None, service: None },
            cpus: &mask,
            housekeeping_exclusions: &[],
            mode: Mode::KernelSqpoll,
            ring: NamedRing::CallerThread,
            allow_irqs: false,
            target: context,
            max_revocation_latency: Nanos::from_millis(5),
            revocation: RevocationPolicy::Silent,
            lifetime: Nanos::ZERO,
            replaces: None,
        },
        lessee: poller.thread(),
        caller: Some(thread(OWNER)),
        ring: Some(LeasedRing { ring: RingId(0), owner: thread(OWNER) }),
        tickless: true,
        allow_busy_spin: true,
    };
    let lease = leases.grant(&mut machine, &asked).expect("nothing is wrong with it");
    machine.deliver(&mut leases);
    let geometry = Geometry::new(RingAbi::V2, 8, 16).expect("powers of two");
    let region = Arc::new(HeapRegion::new(&geometry));
    geometry.format(&region).expect("it was made for it");
    Rig {
        machine,
        leases,
        lease,
        endpoint: Endpoint::attach_as(region.clone(), RingScope::Thread).expect("just formatted"),
        submitter: Submitter::new(region.clone(), geometry),
        reaper: Reaper::new(region.clone(), geometry),
        region,
        poller,
        in_hand: Vec::new(),
    }
}

/// The poller's own context: half of the CPU.
fn bind(machine: &mut Isolated, home: Home) -> lease::AccountingTarget {
    let spec = ContextSpec::new(Nanos::from_millis(5), Nanos::from_millis(10));
    let who = ContextRef::new(1, 0);
    let value = Box::new(Context::new(who, spec, machine.now));
    let bound = machine.with_cpu(home.cpu, |cpu| cpu.event().bind(home.seat, value).is_ok());
    assert!(bound);
    lease::AccountingTarget::Context { id: u64::from(who.id()), generation: u64::from(who.generation()) }
}

impl Rig {
    fn started(mut self) -> Self {
        let terms = self.leases.info(self.machine.now, self.lease).expect("live").terms;
        let accounting = Poller::payer(&terms).expect("a lease for a poller");
        assert!(matches!(accounting, AccountingTarget::SchedulingContext(_)), "whom the lease names");
        self.poller.start(&mut self.endpoint, SqpollGrant { accounting, spin: SPIN }).expect("nobody has it");
        self
    }

    fn submit(&mut self, ids: std::ops::Range<u64>) -> Wakeup {
        for id in ids {
            assert_eq!(self.submitter.push(&CapSqeV2::nop(id)), Push::Queued);
        }
        self.submitter.publish()
    }

    fn step(&mut self) -> PollerStep {
        let Self { poller, endpoint, in_hand, machine, .. } = self;
        let stepped = poller.step(endpoint, machine.now, SQES_PER_PASS, |entry, place| {
            in_hand.push((entry, place));
        });
        stepped.next
    }

    /// Completes what is in hand, and takes what was completed.
    fn finish(&mut self) -> Vec<u64> {
        for (entry, place) in self.in_hand.drain(..) {
            let _asked = self.endpoint.complete(place, &CapCqe::completed(entry.v1.user_data, 0));
        }
        let mut ids = Vec::new();
        while let Reap::Completion(entry) = self.reaper.reap() {
            ids.push(entry.user_data);
        }
        let _asked = self.reaper.publish();
        ids
    }

    fn asks_for_wakeup(&self) -> bool {
        self.region.word(word::FLAGS).load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }

    fn facts(&mut self) {
        self.machine.ring = self.poller.facts(&self.endpoint, false);
    }
}

//= ARCH:sqpoll.batch ARCH:sqpoll.start
#[test]
fn a_poller_takes_two_entries_at_a_time() {
    let mut rig = rig().started();
    let _asked = rig.submit(0..5);
    for (accepted, done) in [(2, vec![0, 1]), (2, vec![2, 3]), (1, vec![4])] {
        assert_eq!(rig.step(), PollerStep::Serve { requests: accepted });
        assert_eq!(rig.finish(), done);
    }
    assert_eq!(rig.step(), PollerStep::Spin { until: rig.machine.now + SPIN });
}

//= ARCH:sqpoll.cycle TICK:L2.cpu-conditions ARCH:nohz.admit-sqpoll
#[test]
fn it_spins_without_a_tick_announces_its_sleep_and_wakes_on_its_leased_cpu() {
    let mut rig = rig().started();
    rig.facts();
    rig.machine.pass(&mut rig.leases, Nanos::from_millis(10));
    assert!(rig.machine.is_tickless(1), "{:?}", rig.leases.obstacle(rig.lease));
    assert!(matches!(rig.step(), PollerStep::Spin { .. }));
    assert!(!rig.asks_for_wakeup());
    let until = rig.machine.now + SPIN;
    rig.facts();
    rig.machine.pass(&mut rig.leases, until);
    assert_eq!(rig.step(), PollerStep::Sleep);
    assert!(rig.asks_for_wakeup(), "said before it sleeps");
    rig.machine.on(&mut rig.leases, 1, |machine| machine.stop(1, Stop::Blocked(WaitKind::Ring, None)));
    assert_eq!(rig.machine.running(1), None);
    assert!(!rig.machine.is_tickless(1), "a CPU that idles has no window of a lease");

    assert_eq!(rig.submit(0..1), Wakeup::Needed);
    let woken = rig.poller.wake(&mut rig.endpoint).expect("it slept");
    let _woken = wake(&mut rig.machine, woken);
    rig.machine.deliver(&mut rig.leases);
    assert_eq!(rig.machine.running(1), Some(thread(POLLER)), "where its lease is");
    assert!(!rig.asks_for_wakeup());
    assert!(rig.machine.is_tickless(1), "and it asks for its CPU without a tick again");
    assert_eq!(rig.step(), PollerStep::Serve { requests: 1 });
    assert_eq!(rig.poller.wake(&mut rig.endpoint), None, "it is awake");
}

//= TICK:tax.context TICK:tax.lease ARCH:nohz.accounting
#[test]
fn its_time_is_its_contexts_and_a_lease_adds_none() {
    let mut rig = rig().started();
    rig.facts();
    rig.machine.pass(&mut rig.leases, Nanos::from_millis(100));
    let home = rig.machine.home(thread(POLLER)).expect("it lives");
    let core = rig.machine.core(1);
    let context = core.entity(home.seat).expect("it sits there").context().expect("it holds one");
    let used = context.usage().used;
    assert!(used <= Nanos::from_millis(50), "half of the CPU, leased or not: {used}");
    assert!(used >= Nanos::from_millis(45), "and it has had that: {used}");
    assert_eq!(core.telemetry().steals, 0);
}

//= ARCH:sqpoll.stop-accepted ARCH:sqpoll.start
#[test]
fn a_stop_after_accept_loses_and_replays_nothing() {
    let mut rig = rig().started();
    let _asked = rig.submit(0..5);
    assert_eq!(rig.step(), PollerStep::Serve { requests: 2 });
    rig.leases.revoke(&mut rig.machine, rig.lease).expect("live");
    assert_eq!(rig.poller.stop(&mut rig.endpoint, StopReason::LeaseRevoked), Stopped::Syscall);
    assert_eq!(rig.endpoint.sqpoll().mode(), RingMode::Syscall);
    assert_eq!(rig.step(), PollerStep::NotPolling, "a stale generation takes nothing");
    assert_eq!(rig.finish(), [0, 1], "what was accepted is completed");
    let mut drained = Vec::new();
    let entered =
        rig.endpoint.cap_enter(0, &mut |entry: CapSqeV2, place, cq: &mut mainspring_ring::Completer<_>| {
            drained.push(entry.v1.user_data);
            cq.complete(place, &CapCqe::completed(entry.v1.user_data, 0));
        });
    assert!(matches!(entered, mainspring_ring::CapEnter::Available { .. }));
    assert_eq!(drained, [2, 3, 4], "the rest is its owner's, once");
    rig.facts();
    assert_eq!(rig.poller.stop(&mut rig.endpoint, StopReason::Teardown), Stopped::NotPolling);
}

//= ARCH:nohz.rollback-sqpoll
#[test]
fn a_ring_that_leaves_polling_brings_the_tick_back() {
    let mut rig = rig().started();
    rig.facts();
    rig.machine.pass(&mut rig.leases, Nanos::from_millis(10));
    assert!(rig.machine.is_tickless(1));
    assert_eq!(rig.poller.stop(&mut rig.endpoint, StopReason::CapReleased), Stopped::Syscall);
    rig.facts();
    let soon = rig.machine.now + Nanos::from_millis(5);
    rig.machine.pass(&mut rig.leases, soon);
    assert!(!rig.machine.is_tickless(1));
    let restored = rig.machine.events.iter().rev().find_map(|event| match event {
        LeaseEvent::TickRestored { reason, .. } => Some(*reason),
        _ => None,
    });
    assert_eq!(restored, Some("sqpoll-ring-mode-changed-or-owner-staled"));
}

//= TICK:nongoal.process-ring ARCH:sqpoll.start
#[test]
fn only_a_threads_own_ring_is_polled_and_only_under_a_lease_for_that() {
    let mut rig = rig();
    let grant = SqpollGrant { accounting: AccountingTarget::SchedulerLedger, spin: SPIN };
    let mut shared = Endpoint::attach_as(rig.region.clone(), RingScope::Process).expect("just formatted");
    assert_eq!(rig.poller.start(&mut shared, grant), Err(NotStarted::SharedRing));
    rig.poller.start(&mut rig.endpoint, grant).expect("its owner's own");
    assert_eq!(rig.poller.start(&mut rig.endpoint, grant), Err(NotStarted::Busy), "it has a consumer");
    // A lease for computing starts no poller.
    let (mut machine, mut leases) = isolated(2, 5, 2);
    start(&mut machine, cpu(1), entity(1, None)).expect("a seat");
    let asked = GrantRequest {
        request: LeaseRequest {
            owner: Owner { process: ProcessId::new(0), session: None, service: None },
            cpus: &[0b10],
            housekeeping_exclusions: &[],
            mode: Mode::Compute,
            ring: NamedRing::None,
            allow_irqs: false,
            target: lease::AccountingTarget::Ledger,
            max_revocation_latency: Nanos::from_millis(5),
            revocation: RevocationPolicy::Silent,
            lifetime: Nanos::ZERO,
            replaces: None,
        },
        lessee: thread(1),
        caller: None,
        ring: None,
        tickless: false,
        allow_busy_spin: false,
    };
    let compute = leases.grant(&mut machine, &asked).expect("nothing is wrong with it");
    let terms = leases.info(machine.now, compute).expect("live").terms;
    assert_eq!(Poller::payer(&terms), Err(NotStarted::Lease));
}
