//! The policy service on a machine: what it sets is carried out within its bounds, and the machine goes on without it.

mod machines;

use machines::isolated::{Isolated, isolated};
use machines::{cpu, entity, thread};
use mainspring_abi::{CpuId, CpuSet, LatencyClass, Nanos, ProcessId, ThreadRef, Weight};
use mainspring_authority::boundary::{
    Change, Epoch, Hint, HintMap, Lost, Manifest, OnLoss, PlacedContext, Quota, Refusal, Service, Treatment,
    Update,
};
use mainspring_driver::Machine;
use mainspring_driver::leases::Leases;
use mainspring_driver::placement::{place, start, wake};
use mainspring_driver::policy::{PolicyMachine, PolicyService, Submitted, treat};
use mainspring_sched::lease::{AccountingTarget, Owner, ServiceId};
use mainspring_sched::nohz::{Eligibility, Kind, Origin};
use mainspring_sched::{Affinity, TickMode};

const RECOVERY: u32 = 3;
const THREADS: u32 = 4;

/// Process `n` has thread `n`; the service is process 2.
impl PolicyMachine for Isolated {
    fn lessee_for(&mut self, holder: ProcessId, cpu: CpuId) -> Option<(ThreadRef, Owner)> {
        let lessee = thread(holder.get());
        let usable = self.home(lessee).is_some() && self.own[holder.get() as usize].allows(cpu);
        let service = (holder.get() == 2).then_some(ServiceId(0));
        usable.then_some((lessee, Owner { process: holder, session: None, service }))
    }

    fn set_quota(&mut self, _: ProcessId, _: Option<Quota>) {}

    fn set_context(&mut self, _: u32, _: Option<&PlacedContext>) {}

    fn hints_changed(&mut self, hints: &HintMap) {
        // Thread 0 says of itself that it is latency-sensitive.
        treat(self, thread(0), hints.treatment(Hint::LatencySensitive));
    }
}

struct Rig {
    machine: Isolated,
    leases: Leases,
    policy: PolicyService,
    epoch: u64,
}

fn rig() -> Rig {
    let (mut machine, mut leases) = isolated(3, THREADS as usize, 4);
    for index in 0..THREADS {
        start(&mut machine, cpu(index as usize % 3), entity(index, None)).expect("a seat");
    }
    machine.deliver(&mut leases);
    let manifest = Manifest::new(CpuSet::first(3), thread(RECOVERY));
    Rig { machine, leases, policy: PolicyService::new(manifest, 64), epoch: 0 }
}

impl Rig {
    fn started(mut self) -> Self {
        self.policy.start(&mut self.machine, &mut self.leases).expect("the first");
        self
    }

    fn submit(&mut self, changes: Vec<Change>) -> Submitted {
        self.epoch += 1;
        let update = Update { epoch: Epoch(self.epoch), changes };
        let submitted = self.policy.submit(&mut self.machine, &mut self.leases, update);
        self.leases.after_event(&mut self.machine);
        self.machine.deliver(&mut self.leases);
        submitted
    }

    fn pass(&mut self, until: Nanos) {
        while self.policy.poll_at() <= until {
            let at = self.policy.poll_at();
            self.machine.pass(&mut self.leases, at);
            self.policy.poll(&mut self.machine, &mut self.leases);
            self.machine.deliver(&mut self.leases);
        }
        self.machine.pass(&mut self.leases, until);
    }

    fn weight(&self, index: u32) -> u16 {
        let home = self.machine.home(thread(index)).expect("it lives");
        self.machine.core(home.cpu.index()).entity(home.seat).expect("it sits there").weight().get()
    }

    fn lessee(&self, index: usize) -> Option<u32> {
        self.machine.isolation.lessee(cpu(index)).map(|lessee| lessee.thread.index())
    }
}

fn weigh(index: u32, weight: u64) -> Change {
    Change::Treat { thread: thread(index), weight, class: LatencyClass::Normal }
}

fn lease(index: usize, holder: u32, lifetime: Nanos, on_loss: OnLoss) -> Change {
    Change::Lease { cpu: cpu(index), holder: ProcessId::new(holder), lifetime, on_loss }
}

fn ms(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

const DONE: Submitted = Submitted::Taken { leases_not_granted: 0 };

#[test]
fn what_the_service_sets_is_carried_out_all_or_nothing() {
    let mut rig = rig().started();
    assert_eq!(rig.submit(vec![weigh(0, 300), lease(1, 1, ms(50), OnLoss::Keep)]), DONE);
    assert_eq!((rig.weight(0), rig.lessee(1)), (300, Some(1)));
    assert!(rig.machine.is_tickless(1), "the lessee is alone there");
    let interactive = Change::Treat { thread: thread(2), weight: 50, class: LatencyClass::Interactive };
    assert_eq!(rig.submit(vec![interactive]), DONE);
    let home = rig.machine.home(thread(2)).expect("it lives");
    let treated = rig.machine.core(home.cpu.index()).entity(home.seat).expect("it sits there");
    assert_eq!((treated.weight().get(), treated.class()), (50, LatencyClass::Interactive));
    // The second change is out of bounds, so the first is not made either.
    let refused = rig.submit(vec![weigh(0, 500), weigh(RECOVERY, 1)]);
    assert_eq!(refused, Submitted::Refused(Refusal::RecoveryUntouchable));
    assert_eq!(rig.weight(0), 300);
    // A lease that the machine cannot grant is not in the settings.
    rig.machine.own[0] = Affinity::Only(std::sync::Arc::new([cpu(0)].into_iter().collect()));
    let partly = rig.submit(vec![weigh(0, 400), lease(2, 0, ms(50), OnLoss::Keep)]);
    assert_eq!(partly, Submitted::Taken { leases_not_granted: 1 });
    assert_eq!((rig.weight(0), rig.lessee(2)), (400, None));
    assert_eq!(rig.policy.boundary().settings().leases().count(), 1);
    assert_eq!(rig.submit(vec![Change::EndLease(cpu(1))]), DONE);
    assert_eq!((rig.lessee(1), rig.machine.core(1).tick_mode()), (None, TickMode::Periodic));
}

//= TICK:L3.eligibility
#[test]
fn a_lease_of_the_service_makes_its_holder_eligible_on_its_terms_alone() {
    let mut rig = rig().started();
    assert_eq!(rig.submit(vec![lease(1, 1, ms(50), OnLoss::Keep)]), DONE);
    let claim = *rig.machine.core(1).nohz().expect("it is alone there").claim();
    assert_eq!((claim.kind, claim.max_revocation_latency), (Kind::AutoCompute, ms(1)));
    assert_eq!((claim.allow_busy_spin, claim.accounting_target), (false, AccountingTarget::Ledger));
    assert_eq!(claim.origin, Origin::Local { caller: thread(1), poller: None });
    // A preference excludes no thread, and chooses only among CPUs that are allowed.
    let eligibility = Eligibility {
        kind: claim.kind,
        max_revocation_latency: claim.max_revocation_latency,
        preferred_cpus: [cpu(2)].into_iter().collect(),
        allow_busy_spin: false,
        accounting_target: claim.accounting_target,
    };
    assert_eq!(eligibility.place(&CpuSet::first(3)), Some(cpu(2)));
    assert_eq!(eligibility.place(&CpuSet::first(1)), Some(cpu(0)));
    assert!(rig.machine.may_enter(thread(0), cpu(2)) && !rig.machine.may_enter(thread(0), cpu(1)));
    // Without the lease nothing of that stops a tick.
    assert_eq!(rig.submit(vec![Change::EndLease(cpu(1))]), DONE);
    assert!(rig.machine.core(1).nohz().is_none());
}

//= EVO:S7.fallback
#[test]
fn a_lost_service_loses_what_it_must_be_there_for_and_nothing_else() {
    for (silent, why) in [(true, Lost::Silent), (false, Lost::Exited)] {
        let mut rig = rig().started();
        let changes = vec![
            weigh(0, 300),
            lease(1, 1, ms(20_000), OnLoss::Keep),
            lease(2, 2, ms(20_000), OnLoss::Revoke),
        ];
        assert_eq!(rig.submit(changes), DONE);
        assert_eq!((rig.lessee(1), rig.lessee(2)), (Some(1), Some(2)));
        if silent {
            rig.pass(ms(5_000));
        } else {
            rig.policy.exited(&mut rig.machine, &mut rig.leases);
            rig.machine.deliver(&mut rig.leases);
        }
        assert!(matches!(rig.policy.boundary().service(), Service::Lost { why: lost, .. } if lost == why));
        assert_eq!((rig.lessee(1), rig.lessee(2)), (Some(1), None), "{why:?}");
        assert_eq!(rig.machine.core(2).tick_mode(), TickMode::Periodic);
        assert_eq!(rig.weight(0), 300, "weights stand");
        assert_eq!(
            rig.submit(vec![weigh(0, 1)]),
            Submitted::Refused(Refusal::NotInCharge),
            "it is not in charge"
        );
        // The leases that it left end in time, without a service to end them.
        rig.pass(ms(20_000));
        assert_eq!((rig.lessee(1), rig.machine.core(1).tick_mode()), (None, TickMode::Periodic));
        assert_eq!(rig.policy.boundary().settings().leases().count(), 0);
    }
}

#[test]
fn a_lease_that_ended_without_the_service_is_free_for_its_next_update() {
    let mut rig = rig().started();
    assert_eq!(rig.submit(vec![lease(1, 1, ms(500), OnLoss::Keep)]), DONE);
    let somebody_elses = rig.submit(vec![lease(1, 0, ms(500), OnLoss::Keep)]);
    assert!(matches!(somebody_elses, Submitted::Refused(_)), "{somebody_elses:?}");
    rig.leases.end_leases_of_process(&mut rig.machine, ProcessId::new(1));
    rig.machine.deliver(&mut rig.leases);
    assert_eq!(rig.lessee(1), None);
    assert_eq!(rig.submit(vec![lease(1, 0, ms(500), OnLoss::Keep)]), DONE);
    assert_eq!(rig.lessee(1), Some(0));
}

//= EVO:S7.fallback EVO:S7.config
#[test]
fn an_instance_that_is_replaced_loses_its_own_leases_and_its_epochs_stay_behind() {
    let mut rig = rig().started();
    assert_eq!(
        rig.submit(vec![lease(1, 1, ms(500), OnLoss::Keep), lease(2, 2, ms(500), OnLoss::Keep)]),
        DONE
    );
    let old = rig.policy.service();
    let second = rig.policy.start(&mut rig.machine, &mut rig.leases).expect("another");
    rig.machine.deliver(&mut rig.leases);
    assert_ne!(rig.policy.service(), old);
    assert_eq!((rig.lessee(1), rig.lessee(2)), (Some(1), None), "process 2 was the service itself");
    assert_eq!(rig.policy.boundary().service().instance(), Some(second));
    rig.epoch -= 1;
    assert!(matches!(rig.submit(vec![weigh(0, 7)]), Submitted::Refused(Refusal::StaleEpoch { .. })));
    assert_eq!(rig.submit(vec![weigh(0, 7)]), DONE);
}

/// Which thread ran on which CPU, decision by decision, while a script of waits and wakeups was played.
fn decisions(with: impl FnOnce(&mut Rig), each: impl Fn(&mut Rig, u64)) -> Vec<(CpuId, Option<ThreadRef>)> {
    let mut rig = rig();
    with(&mut rig);
    rig.machine.decided.clear();
    let mut state = 12_345_u64;
    for round in 0..400 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let pick = (state >> 33) as u32;
        match pick % 3 {
            0 => rig.machine.block(&mut rig.leases, pick as usize / 3 % 3),
            1 => {
                let _wake = wake(&mut rig.machine, thread(pick / 3 % THREADS));
            }
            _ => {}
        }
        rig.machine.deliver(&mut rig.leases);
        each(&mut rig, round);
        let until = rig.machine.now + Nanos::from_micros(u64::from(pick % 5_000));
        rig.machine.pass(&mut rig.leases, until);
    }
    rig.machine.decided.iter().map(|(cpu, running, _)| (*cpu, *running)).collect()
}

//= EVO:nongoal.user-programs EVO:layers
#[test]
fn no_decision_waits_for_the_service_or_depends_on_its_being_there() {
    let without = decisions(|_| {}, |_, _| {});
    assert!(without.len() > 100, "{} decisions", without.len());
    let silent = decisions(
        |rig| {
            rig.policy.start(&mut rig.machine, &mut rig.leases).expect("the first");
        },
        |_, _| {},
    );
    assert_eq!(without, silent, "a service that hangs");
    let talkative = decisions(
        |rig| {
            rig.policy.start(&mut rig.machine, &mut rig.leases).expect("the first");
        },
        |rig, round| {
            // It is heard, says nonsense, dies and comes back; nothing of that is a step of a decision.
            let _heard = rig.policy.heard(rig.machine.now);
            let _refused = rig.submit(vec![weigh(0, u64::MAX)]);
            if round % 50 == 49 {
                rig.policy.exited(&mut rig.machine, &mut rig.leases);
                let _again = rig.policy.start(&mut rig.machine, &mut rig.leases);
            }
        },
    );
    assert_eq!(without, talkative, "one that is hostile, and one that crashes");
}

//= TICK:L3.hint
#[test]
fn a_hint_changes_a_weight_and_keeps_nobody_off_a_cpu() {
    let mut rig = rig().started();
    let changes = vec![Change::MapHint {
        hint: Hint::LatencySensitive,
        weight: 4096,
        class: LatencyClass::Interactive,
    }];
    assert_eq!(rig.submit(changes), DONE);
    assert_eq!(rig.weight(0), 4096);
    assert!(rig.machine.isolation.leased().is_empty());
    let home = rig.machine.home(thread(0)).expect("it lives").cpu;
    for other in 1..THREADS {
        assert!(rig.machine.may_enter(thread(other), home));
        let placed = place(&mut rig.machine, thread(other), &Affinity::Any, 1, Some(home));
        assert_eq!(placed, Some(home), "beside it");
    }
    assert!(!rig.machine.is_tickless(home.index()), "and it ticks");
}

//= EVO:S7.fallback
#[test]
fn a_hostile_service_takes_neither_the_last_cpu_nor_the_recovery_thread() {
    let mut rig = rig().started();
    let treatment = Treatment::default();
    let mut state = 99_u64;
    for round in 0..3_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let pick = (state >> 33) as u32;
        let (index, holder) = ((pick % 3) as usize, pick / 7 % THREADS);
        let on_loss = if pick & 1 == 0 { OnLoss::Keep } else { OnLoss::Revoke };
        let change = match pick / 31 % 5 {
            0 | 1 => lease(index, holder, Nanos::from_micros(u64::from(pick % 90_000)), on_loss),
            2 => weigh(holder, u64::from(pick % 10_000)),
            3 => Change::EndLease(cpu(index)),
            _ => Change::SetFloor { parts_per_million: 0 },
        };
        if matches!(rig.submit(vec![change]), Submitted::CutOff(_)) {
            rig.policy.start(&mut rig.machine, &mut rig.leases).expect("there are numbers left");
        }
        let until = rig.machine.now + Nanos::from_micros(u64::from(pick % 3_000));
        rig.pass(until);
        assert!(!rig.leases.housekeepers().is_empty(), "round {round}");
        assert_eq!(rig.weight(RECOVERY), treatment.weight.get(), "round {round}");
        let settings: Vec<CpuId> = rig.policy.boundary().settings().leases().map(|(cpu, _)| cpu).collect();
        let leased: Vec<CpuId> = rig.machine.isolation.leased().iter().collect();
        assert!(leased.iter().all(|cpu| settings.contains(cpu)), "round {round}: {leased:?} {settings:?}");
    }
    assert_eq!(Weight::DEFAULT, treatment.weight);
}
