use super::*;
use crate::admission::{Candidate, Task};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use mainspring_abi::{CpuId, CpuSet, LatencyClass, Nanos, ProcessId, ThreadRef, Weight};
use mainspring_sched::Floor;
use proptest::prelude::*;

const MS: fn(u64) -> Nanos = Nanos::from_millis;
const RECOVERY: ThreadRef = ThreadRef::new(0, 0);
const CPUS: usize = 3;

fn manifest() -> Manifest {
    let mut manifest = Manifest::new(CpuSet::first(CPUS), RECOVERY);
    manifest.bounds = TableBounds { changes: 4, profiles: 3, threads: 4, quotas: 3, contexts: 5 };
    manifest.refusals_max = 4;
    manifest
}

fn cpu(index: usize) -> CpuId {
    CpuId::new(index).expect("test CPUs exist")
}

fn context(id: u32, cost_ms: u64, period_ms: u64, mask: u8) -> Change {
    let task = Task { cost: MS(cost_ms), deadline: MS(period_ms), period: MS(period_ms) };
    let cpus = CpuSet::from_bytes(&[mask]).unwrap_or(CpuSet::EMPTY);
    let candidate = Candidate { name: "c".to_string(), task, criticality: 0, cpus };
    Change::Admit { id, candidate: Box::new(candidate) }
}

fn lease(cpu: CpuId, lifetime: Nanos, on_loss: OnLoss) -> Change {
    Change::Lease { cpu, holder: ProcessId::new(1), lifetime, on_loss }
}

fn treat(index: u32, weight: u64) -> Change {
    Change::Treat { thread: ThreadRef::new(index, 0), weight, class: LatencyClass::Normal }
}

fn update(epoch: u64, changes: Vec<Change>) -> Update {
    Update { epoch: Epoch(epoch), changes }
}

fn started() -> (Boundary, Instance) {
    let mut boundary = Boundary::new(manifest(), 64);
    let instance = boundary.start(Nanos::ZERO).expect("the first");
    (boundary, instance)
}

#[test]
fn an_update_is_taken_as_a_whole_and_the_operator_can_read_it() {
    let (mut boundary, service) = started();
    let profile = ResourceProfile { name: "guest".to_string(), ..ResourceProfile::default() };
    let quota = Quota::new(MS(20), MS(100)).expect("it makes sense");
    let first = vec![Change::SetProfile(ProfileKey(1), profile.clone()), treat(5, 128), context(1, 5, 10, 7)];
    let second = vec![lease(cpu(1), MS(50), OnLoss::Keep), Change::SetQuota(ProcessId::new(2), Some(quota))];
    let Answer::Taken(directives) = boundary.submit(MS(1), service, update(1, first.clone())) else {
        panic!("nothing is wrong with it")
    };
    let treatment = Treatment { weight: Weight::new(128).expect("in range"), class: LatencyClass::Normal };
    assert_eq!(directives[0], Directive::Treat(ThreadRef::new(5, 0), treatment));
    assert!(matches!(&directives[1], Directive::Context(1, Some(placed)) if placed.home == cpu(0)));
    assert!(matches!(boundary.submit(MS(2), service, update(2, second)), Answer::Taken(_)));
    assert_eq!(boundary.settings().profile(ProfileKey(1)), Some(&profile));
    assert_eq!(boundary.settings().quota(ProcessId::new(2)), Some(quota));
    let records: Vec<_> = boundary.log().iter().collect();
    assert_eq!(records[0].decision, Decision::Started);
    assert_eq!(records[1].decision, Decision::Took(Epoch(1), first));
    assert_eq!((records[1].at, records[1].instance), (MS(1), Some(service)));
}

//= EVO:S7.hints
#[test]
fn a_hint_means_what_the_service_says_and_again_what_the_manifest_says_when_it_is_gone() {
    let (mut boundary, service) = started();
    let meaning = |boundary: &Boundary| boundary.settings().hints().treatment(Hint::Agent);
    assert_eq!(meaning(&boundary), Treatment::default());
    let change = Change::MapHint { hint: Hint::Agent, weight: 200, class: LatencyClass::Interactive };
    let answer = boundary.submit(MS(1), service, update(1, vec![change]));
    assert_eq!(answer, Answer::Taken(vec![Directive::HintsChanged]));
    assert_eq!(meaning(&boundary).class, LatencyClass::Interactive);
    for hint in Hint::ALL.into_iter().filter(|hint| *hint != Hint::Agent) {
        assert_eq!(boundary.settings().hints().treatment(hint), manifest().hints.treatment(hint));
    }
    assert!(boundary.exited(MS(2), service).contains(&Directive::HintsChanged));
    assert_eq!(meaning(&boundary), Treatment::default());
}

//= EVO:S7.fallback
#[test]
fn each_hostile_update_is_refused_with_its_reason_and_counted() {
    let quota = Quota::new(MS(20), MS(100)).expect("it makes sense");
    let long_name = ResourceProfile { name: "x".repeat(NAME_MAX + 1), ..ResourceProfile::default() };
    let denied = |change| {
        let (mut boundary, service) = started();
        let before = boundary.settings().clone();
        // A good change before the bad one must not stay either.
        let Answer::Refused(why) = boundary.submit(MS(1), service, update(1, vec![treat(9, 64), change]))
        else {
            panic!("it must be refused")
        };
        assert_eq!(*boundary.settings(), before);
        assert_eq!(boundary.refused()[why.kind()], 1);
        assert_eq!(boundary.refused().iter().sum::<u64>(), 1);
        assert_eq!(boundary.epoch(), Epoch(0), "the epoch is not used up");
        assert!(!why.to_string().is_empty());
        why
    };
    assert_eq!(denied(treat(0, 64)), Refusal::RecoveryUntouchable);
    assert_eq!(denied(Change::SetFloor { parts_per_million: 0 }), Refusal::FloorUntouchable);
    assert_eq!(denied(treat(5, 0)), Refusal::Weight { weight: 0 });
    assert_eq!(denied(treat(5, 4097)), Refusal::Weight { weight: 4097 });
    assert_eq!(denied(treat(5, u64::MAX)), Refusal::Weight { weight: u64::MAX });
    assert_eq!(denied(Change::DropProfile(ProfileKey(1))), Refusal::Unknown);
    assert_eq!(denied(Change::SetQuota(ProcessId::new(3), None)), Refusal::Unknown);
    assert_eq!(denied(Change::SetProfile(ProfileKey(1), long_name)), Refusal::NameTooLong);
    assert_eq!(denied(lease(cpu(9), MS(1), OnLoss::Keep)), Refusal::NoSuchCpu(cpu(9)));
    assert_eq!(denied(lease(cpu(1), Nanos::ZERO, OnLoss::Keep)), Refusal::LeaseLifetime);
    assert_eq!(denied(lease(cpu(1), Nanos::MAX, OnLoss::Keep)), Refusal::LeaseLifetime);
    assert!(matches!(denied(context(1, 96, 100, 1)), Refusal::Admission { last: Some(_), .. }), "the floor");
    assert!(matches!(denied(context(1, 1, 100, 0)), Refusal::Admission { last: None, .. }));
    assert!(matches!(denied(context(1, 0, 100, 1)), Refusal::Admission { .. }), "malformed");

    let (mut boundary, service) = started();
    let many = vec![Change::SetQuota(ProcessId::new(1), Some(quota)); 5];
    let answer = boundary.submit(MS(1), service, update(1, many));
    assert_eq!(answer, Answer::Refused(Refusal::TooManyChanges));
    let all = (0..CPUS).map(|index| lease(cpu(index), MS(9), OnLoss::Keep)).collect();
    assert_eq!(
        boundary.submit(MS(1), service, update(1, all)),
        Answer::Refused(Refusal::LastHousekeepingCpu)
    );
    let kinds: Vec<usize> = boundary.refused().iter().map(|count| *count as usize).collect();
    assert_eq!(kinds.iter().sum::<usize>(), 2);
}

//= EVO:S7.config
#[test]
fn a_stale_epoch_and_a_stale_instance_have_no_effect() {
    let (mut boundary, old) = started();
    assert!(matches!(boundary.submit(MS(1), old, update(7, vec![treat(5, 100)])), Answer::Taken(_)));
    let stale = Refusal::StaleEpoch { epoch: Epoch(7), taken: Epoch(7) };
    assert_eq!(boundary.submit(MS(1), old, update(7, vec![treat(5, 50)])), Answer::Refused(stale));
    let new = boundary.start(MS(2)).expect("there are numbers left");
    let refused = Answer::Refused(Refusal::NotInCharge);
    assert_eq!(boundary.submit(MS(3), old, update(8, vec![treat(5, 50)])), refused);
    assert_eq!(boundary.heartbeat(MS(3), old), Err(NotServing));
    assert!(boundary.exited(MS(3), old).is_empty(), "the death of a predecessor is nobody's loss");
    assert_eq!(boundary.settings().treatment(ThreadRef::new(5, 0)).map(|t| t.weight.get()), Some(100));
    let stale = Refusal::StaleEpoch { epoch: Epoch(6), taken: Epoch(7) };
    assert_eq!(
        boundary.submit(MS(3), new, update(6, vec![])),
        Answer::Refused(stale),
        "epochs outlive instances"
    );
    assert_eq!(boundary.submit(MS(3), new, update(8, vec![])), Answer::Taken(vec![]));
}

//= EVO:S7.fallback
#[test]
fn no_instance_uses_up_the_epochs_of_its_successors() {
    let (mut boundary, hostile) = started();
    for epoch in [u64::MAX, Epoch::LEAP + 1] {
        let distant = Refusal::DistantEpoch { epoch: Epoch(epoch), taken: Epoch(0) };
        assert_eq!(boundary.submit(MS(1), hostile, update(epoch, vec![])), Answer::Refused(distant));
    }
    assert_eq!(boundary.submit(MS(1), hostile, update(Epoch::LEAP, vec![])), Answer::Taken(vec![]));
    let honest = boundary.start(MS(2)).expect("there are numbers left");
    let next = boundary.epoch().0 + 1;
    assert!(matches!(boundary.submit(MS(3), honest, update(next, vec![treat(5, 50)])), Answer::Taken(_)));
}

//= EVO:S7.fallback
#[test]
fn a_slow_service_keeps_everything_and_a_silent_one_loses_what_needs_it() {
    let (mut boundary, service) = started();
    let changes = vec![
        lease(cpu(1), MS(10_000), OnLoss::Revoke),
        lease(cpu(2), MS(20_000), OnLoss::Keep),
        context(1, 5, 10, 7),
        treat(5, 100),
    ];
    assert!(matches!(boundary.submit(Nanos::ZERO, service, update(1, changes)), Answer::Taken(_)));
    let set = boundary.settings().clone();
    assert_eq!(boundary.poll_at(), MS(500));
    assert!(boundary.poll(MS(500)).is_empty());
    assert_eq!(boundary.service(), Service::Slow { instance: service, heard: Nanos::ZERO });
    assert_eq!(*boundary.settings(), set, "nothing is revoked yet");
    assert_eq!(boundary.heartbeat(MS(600), service), Ok(()), "it may come back");
    assert!(boundary.poll(MS(5_599)).is_empty());
    assert_eq!(boundary.poll_at(), MS(5_600));
    let directives = boundary.poll(MS(5_600));
    let recovery = Directive::Treat(RECOVERY, manifest().recovery_treatment);
    assert_eq!(directives, [Directive::Revoke(cpu(1)), recovery]);
    assert_eq!(boundary.service(), Service::Lost { instance: service, why: Lost::Silent });
    assert_eq!(boundary.settings().contexts(), set.contexts(), "what is admitted is still enforced");
    assert_eq!(boundary.settings().leases().map(|(cpu, _)| cpu).collect::<Vec<_>>(), [cpu(2)]);
    assert_eq!(boundary.heartbeat(MS(5_700), service), Err(NotServing), "the dead stay dead");
    assert_eq!(boundary.poll_at(), MS(20_000));
    assert_eq!(
        boundary.poll(MS(20_000)),
        [Directive::Revoke(cpu(2))],
        "time ends leases without any service"
    );
    let again = boundary.start(MS(20_001)).expect("there are numbers left");
    assert!(matches!(boundary.submit(MS(20_002), again, update(2, vec![treat(5, 64)])), Answer::Taken(_)));
}

//= EVO:S7.fallback
#[test]
fn a_service_that_does_nothing_but_harm_is_cut_off() {
    let (mut boundary, service) = started();
    let harm = || update(1, vec![Change::SetFloor { parts_per_million: 0 }]);
    for _ in 0..3 {
        assert_eq!(boundary.submit(MS(1), service, harm()), Answer::Refused(Refusal::FloorUntouchable));
    }
    assert!(matches!(boundary.submit(MS(1), service, harm()), Answer::CutOff(Refusal::FloorUntouchable, _)));
    assert_eq!(boundary.service(), Service::Lost { instance: service, why: Lost::CutOff });
    assert_eq!(boundary.submit(MS(2), service, update(9, vec![])), Answer::Refused(Refusal::NotInCharge));
}

#[test]
fn an_update_that_is_taken_wipes_the_refusals_before_it_out() {
    let (mut boundary, service) = started();
    for epoch in 1..6 {
        for _ in 0..3 {
            let harm = update(epoch, vec![Change::SetFloor { parts_per_million: 0 }]);
            assert!(matches!(boundary.submit(MS(1), service, harm), Answer::Refused(_)));
        }
        assert_eq!(boundary.submit(MS(1), service, update(epoch, vec![])), Answer::Taken(vec![]));
    }
}

#[test]
fn a_context_that_asks_for_the_same_again_stays_where_it_is() {
    let (mut boundary, service) = started();
    assert!(matches!(
        boundary.submit(MS(1), service, update(1, vec![context(1, 5, 10, 4)])),
        Answer::Taken(_)
    ));
    assert_eq!(boundary.settings().contexts()[&1].home, cpu(2));
    let again = boundary.submit(MS(1), service, update(2, vec![context(1, 5, 10, 4)]));
    assert_eq!(again, Answer::Taken(vec![]));
    assert_eq!(boundary.settings().contexts()[&1].home, cpu(2));
}

#[test]
fn the_ended_leave_nothing_behind() {
    let (mut boundary, service) = started();
    let quota = Quota::new(MS(20), MS(100)).expect("it makes sense");
    let changes = vec![
        treat(5, 64),
        lease(cpu(1), MS(50), OnLoss::Keep),
        Change::SetQuota(ProcessId::new(1), Some(quota)),
    ];
    assert!(matches!(boundary.submit(MS(1), service, update(1, changes)), Answer::Taken(_)));
    boundary.thread_ended(ThreadRef::new(5, 0));
    assert_eq!(boundary.process_ended(MS(2), ProcessId::new(1)), [Directive::Revoke(cpu(1))]);
    let empty = Settings { hints: manifest().hints, ..Settings::default() };
    assert_eq!(*boundary.settings(), empty);
}

/// What a machine holds that does nothing but carry directives out.
#[derive(Default, PartialEq, Debug)]
struct Obedient {
    threads: BTreeMap<ThreadRef, Treatment>,
    quotas: BTreeMap<ProcessId, Quota>,
    contexts: BTreeMap<u32, PlacedContext>,
    leases: BTreeMap<CpuId, Lease>,
}

impl Obedient {
    fn carry_out(&mut self, directives: Vec<Directive>) {
        for directive in directives {
            match directive {
                Directive::Treat(RECOVERY, treatment) => assert_eq!(treatment, manifest().recovery_treatment),
                Directive::Treat(thread, treatment) => drop(self.threads.insert(thread, treatment)),
                Directive::Quota(process, Some(quota)) => drop(self.quotas.insert(process, quota)),
                Directive::Quota(process, None) => drop(self.quotas.remove(&process)),
                Directive::Context(id, Some(placed)) => drop(self.contexts.insert(id, *placed)),
                Directive::Context(id, None) => drop(self.contexts.remove(&id)),
                Directive::Lease(cpu, lease) => drop(self.leases.insert(cpu, lease)),
                Directive::Revoke(cpu) => drop(self.leases.remove(&cpu)),
                Directive::HintsChanged => {}
            }
        }
    }
}

fn a_change() -> impl Strategy<Value = Change> {
    let class =
        prop::sample::select(vec![LatencyClass::Interactive, LatencyClass::Normal, LatencyClass::Batch]);
    let weight = prop_oneof![1u64..5000, Just(0), Just(u64::MAX)];
    prop_oneof![
        (0u32..8, 0u32..2, weight.clone(), class.clone()).prop_map(|(index, generation, weight, class)| {
            Change::Treat { thread: ThreadRef::new(index, generation), weight, class }
        }),
        (0usize..5, weight, class).prop_map(|(hint, weight, class)| Change::MapHint {
            hint: Hint::ALL[hint],
            weight,
            class
        }),
        (0u32..6, 1u64..12, prop::sample::select(vec![4u64, 5, 8, 10, 20]), 0u8..16)
            .prop_map(|(id, cost, period, mask)| context(id, cost, period, mask)),
        (0u32..6).prop_map(|id| Change::Withdraw { id }),
        (0usize..5, 0u32..3, 0u64..90_000, any::<bool>()).prop_map(|(index, holder, ms, keep)| {
            let on_loss = if keep { OnLoss::Keep } else { OnLoss::Revoke };
            Change::Lease { cpu: cpu(index), holder: ProcessId::new(holder), lifetime: MS(ms), on_loss }
        }),
        (0usize..5).prop_map(|index| Change::EndLease(cpu(index))),
        (0u32..5, prop::option::of(1u64..50)).prop_map(|(process, runtime)| {
            let quota = runtime.and_then(|runtime| Quota::new(MS(runtime), MS(100)).ok());
            Change::SetQuota(ProcessId::new(process), quota)
        }),
        (0u32..5).prop_map(|key| Change::SetProfile(ProfileKey(key), ResourceProfile::default())),
        (0u32..5).prop_map(|key| Change::DropProfile(ProfileKey(key))),
        any::<u32>().prop_map(|parts_per_million| Change::SetFloor { parts_per_million }),
    ]
}

/// All that must hold whatever the service does; written without the code that decides.
fn audit(boundary: &Boundary, machine: &Obedient, now: Nanos) {
    let settings = boundary.settings();
    assert_eq!(boundary.manifest(), &manifest());
    assert_eq!(settings.threads, machine.threads);
    assert_eq!(settings.quotas, machine.quotas);
    assert_eq!(settings.contexts, machine.contexts);
    assert_eq!(settings.leases, machine.leases);
    assert!(settings.threads.keys().all(|thread| thread.index() != RECOVERY.index()));
    assert!(settings.threads.values().all(|treatment| (1..=4096).contains(&treatment.weight.get())));
    let bounds = manifest().bounds;
    assert!(settings.threads.len() <= bounds.threads && settings.quotas.len() <= bounds.quotas);
    assert!(settings.contexts.len() <= bounds.contexts && settings.profiles.len() <= bounds.profiles);
    assert!(settings.leases.len() < CPUS);
    assert!(
        settings.leases.iter().all(|(cpu, l)| cpu.index() < CPUS && l.expires <= now + manifest().lease_max)
    );
    // Deadlines are periods and there is one band, so a CPU holds exactly if it is not used more than wholly.
    for home in 0..CPUS {
        let here = settings.contexts.values().filter(|placed| placed.home.index() == home);
        let used: u64 = here
            .map(|placed| {
                assert!(placed.candidate.cpus.contains(placed.home));
                let task = placed.candidate.task;
                1_000_000 / task.period.get().div_ceil(1_000_000) * task.cost.get().div_ceil(1_000_000)
            })
            .sum();
        assert!(used + u64::from(Floor::DEFAULT.ppm()) <= 1_000_000, "CPU {home} is used {used} ppm");
    }
    let log: Vec<_> = boundary.log().iter().map(|record| record.sequence).collect();
    assert!(log.len() <= 16 && log.windows(2).all(|pair| pair[0] + 1 == pair[1]));
    assert_eq!(boundary.log().dropped() + log.len() as u64, boundary.log().written());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    //= EVO:S7.fallback
    #[test]
    fn no_service_can_break_what_the_manifest_promises(
        steps in prop::collection::vec(
            (0u8..12, 0u64..3_000, 0u64..4, prop::collection::vec(a_change(), 0..6)),
            1..80,
        ),
    ) {
        let mut boundary = Boundary::new(manifest(), 16);
        let mut machine = Obedient::default();
        let mut instances: Vec<Instance> = Vec::new();
        let mut now = Nanos::ZERO;
        for (what, pause, epoch_step, changes) in steps {
            now += MS(pause);
            machine.carry_out(boundary.poll(now));
            let before = boundary.settings().clone();
            let (epoch, refused) = (boundary.epoch(), boundary.refused().iter().sum::<u64>());
            match (what, instances.last().copied()) {
                (0, _) | (_, None) => instances.push(boundary.start(now).expect("there are numbers left")),
                (1, Some(instance)) => machine.carry_out(boundary.exited(now, instance)),
                (2, Some(_)) => {
                    let ghost = instances[0];
                    let _ = boundary.heartbeat(now, ghost);
                }
                (_, Some(instance)) => {
                    let next = Epoch((epoch.0 + epoch_step).saturating_sub(1));
                    match boundary.submit(now, instance, Update { epoch: next, changes }) {
                        Answer::Taken(directives) => {
                            prop_assert!(next > epoch && boundary.epoch() == next);
                            machine.carry_out(directives);
                        }
                        Answer::Refused(_) => {
                            prop_assert_eq!(&before, boundary.settings());
                            prop_assert_eq!(boundary.epoch(), epoch);
                            prop_assert_eq!(boundary.refused().iter().sum::<u64>(), refused + 1);
                        }
                        Answer::CutOff(_, directives) => {
                            prop_assert_eq!(boundary.service().in_charge(), None);
                            prop_assert_eq!(&before.contexts, &boundary.settings().contexts);
                            machine.carry_out(directives);
                        }
                    }
                }
            }
            prop_assert!(boundary.poll_at() > now);
            audit(&boundary, &machine, now);
        }
    }
}
