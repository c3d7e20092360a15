//! Leases: what is granted, what is refused, and that what has ended stays ended.

mod rig;

use mainspring_abi::{CpuSet, MaskError, Nanos, ProcessId};
use mainspring_sched::lease::{
    AccountingTarget, EndReason, Ended, Endpoint, LeaseRef, LeaseRequest, Limits, Mode, ModeSet, NamedRing,
    NotLive, Refusal, Registry, RevocationPolicy, RollBack, ServiceId, SessionId, Standing, TargetStanding,
};
use rig::lease::{compute, cpus, grant, mask, owner, registry, registry_with, sqpoll};
use rig::{cpu_id, ms};

fn refusal(registry: &mut Registry, request: &LeaseRequest<'_>) -> Refusal {
    let before = (registry.live_count(), registry.housekeepers(&CpuSet::first(4)));
    let refused = registry
        .create(Nanos::ZERO, request, TargetStanding::Chargeable, &CpuSet::first(4))
        .expect_err("something is wrong with the request");
    assert_eq!(
        (registry.live_count(), registry.housekeepers(&CpuSet::first(4))),
        before,
        "nothing has changed"
    );
    refused
}

//= ARCH:lease.overlap
#[test]
fn no_cpu_is_leased_twice_and_the_last_housekeeper_never() {
    let mut registry = registry();
    let first = grant(&mut registry, Nanos::ZERO, &compute(&mask(&[1, 2])));
    let overlap = Refusal::Overlap { cpu: cpu_id(2), held_by: first };
    assert_eq!(refusal(&mut registry, &compute(&mask(&[2, 3]))), overlap);
    let duplicate = Refusal::Overlap { cpu: cpu_id(1), held_by: first };
    assert_eq!(refusal(&mut registry, &compute(&mask(&[1, 2]))), duplicate);
    assert_eq!(refusal(&mut registry, &compute(&mask(&[0, 3]))), Refusal::NoHousekeeping);
    let second = grant(&mut registry, Nanos::ZERO, &compute(&mask(&[3])));
    assert_eq!(refusal(&mut registry, &compute(&mask(&[0]))), Refusal::NoHousekeeping);
    assert_eq!(registry.lease_of(cpu_id(3)), Some(second));
    assert_eq!(registry.lease_of(cpu_id(0)), None);
}

//= ARCH:lease.overlap
#[test]
fn a_malformed_mask_is_refused() {
    let mut registry = registry();
    assert_eq!(refusal(&mut registry, &compute(&[])), Refusal::EmptyMask);
    assert_eq!(refusal(&mut registry, &compute(&[2, 0])), Refusal::MalformedMask(MaskError::TrailingZero));
    let long = [1; 513];
    assert_eq!(
        refusal(&mut registry, &compute(&long)),
        Refusal::MalformedMask(MaskError::TooLong { bytes: 513 })
    );
    let exclusions = LeaseRequest { housekeeping_exclusions: &[1, 0], ..compute(&[2]) };
    assert_eq!(refusal(&mut registry, &exclusions), Refusal::MalformedMask(MaskError::TrailingZero));
    assert_eq!(refusal(&mut registry, &compute(&mask(&[1, 9]))), Refusal::Offline(cpu_id(9)));
}

//= ARCH:lease.overlap TICK:tax.lease
#[test]
fn a_lease_names_somebody_who_can_be_charged() {
    let (mut registry, mask) = (registry(), mask(&[1]));
    let mut ask = |target| registry.create(Nanos::ZERO, &compute(&mask), target, &CpuSet::first(4));
    assert_eq!(ask(TargetStanding::Stale), Err(Refusal::StaleTarget));
    assert_eq!(ask(TargetStanding::Fabricated), Err(Refusal::FabricatedTarget));
    assert!(ask(TargetStanding::Chargeable).is_ok());
}

//= ARCH:nohz.refuse ARCH:nohz.auto
#[test]
fn modes_that_need_devices_or_consent_are_refused_until_they_have_it() {
    let one = mask(&[1]);
    let of = |mode, ring| LeaseRequest { mode, ring, ..compute(&one) };
    let mut strict = registry();
    assert_eq!(
        refusal(&mut strict, &of(Mode::UserspacePoller, NamedRing::None)),
        Refusal::ModeNotAllowed(Mode::UserspacePoller)
    );
    assert_eq!(refusal(&mut strict, &of(Mode::Compute, NamedRing::CallerThread)), Refusal::RingWithoutSqpoll);
    assert_eq!(refusal(&mut strict, &of(Mode::KernelSqpoll, NamedRing::None)), Refusal::SqpollWithoutRing);
    let modes = Mode::ALL.into_iter().fold(ModeSet::DEFAULT, ModeSet::with);
    let mut open = registry_with(Limits { modes, ..Limits::default() });
    assert_eq!(refusal(&mut open, &of(Mode::DeviceOwner, NamedRing::None)), Refusal::DevicesNotRouted);
    let mut routed = registry_with(Limits { modes, devices_on_housekeeping: true, ..Limits::default() });
    let lease = grant(&mut routed, Nanos::ZERO, &of(Mode::DeviceOwner, NamedRing::None));
    let _ = routed.revoke(Nanos::ZERO, lease).expect("live");
    grant(&mut routed, Nanos::ZERO, &of(Mode::Compute, NamedRing::CallerThread));
}

#[test]
fn latencies_out_of_policy_and_too_many_leases_are_refused() {
    let mut registry = registry_with(Limits { capacity: 1, ..Limits::default() });
    let one = mask(&[1]);
    for latency in [Nanos::ZERO, ms(101)] {
        let request = LeaseRequest { max_revocation_latency: latency, ..compute(&one) };
        assert_eq!(refusal(&mut registry, &request), Refusal::RevocationLatency { max: ms(100) });
    }
    let lease = grant(&mut registry, Nanos::ZERO, &compute(&one));
    let two = mask(&[2]);
    assert_eq!(refusal(&mut registry, &compute(&two)), Refusal::Full { capacity: 1 });
    let _ = registry.revoke(Nanos::ZERO, lease).expect("live");
    let _ = registry.roll_back().expect("just revoked");
    assert_eq!(refusal(&mut registry, &compute(&two)), Refusal::Full { capacity: 1 }, "not released yet");
    assert_eq!(registry.release(Nanos::ZERO, lease), Ok(Ended(0)));
    grant(&mut registry, Nanos::ZERO, &compute(&two));
}

//= EVO:S5.lease-record
#[test]
fn a_lease_records_what_was_asked_for() {
    let (mut registry, own, sibling) = (registry(), mask(&[2]), mask(&[3]));
    let request = LeaseRequest {
        housekeeping_exclusions: &sibling,
        target: AccountingTarget::Context { id: 7, generation: 2 },
        revocation: RevocationPolicy::Notify(Endpoint(4)),
        lifetime: ms(30),
        ..sqpoll(&own)
    };
    let lease = grant(&mut registry, ms(5), &request);
    let info = registry.info(ms(5), lease).expect("live").clone();
    assert_eq!((info.lease, info.owner, info.terms.target()), (lease, request.owner, request.target));
    assert_eq!((info.cpus, info.housekeeping_exclusions), (cpus(&[2]), cpus(&[3])));
    assert_eq!(info.revocation, request.revocation);
    let terms = info.terms;
    assert_eq!(
        (terms.mode(), terms.ring(), terms.allow_irqs()),
        (Mode::KernelSqpoll, NamedRing::CallerThread, false)
    );
    assert_eq!((terms.lease(), terms.sole_cpu(), terms.expires_at()), (lease, Some(cpu_id(2)), ms(35)));
    assert_eq!(terms.max_revocation_latency(), ms(50));
    assert_eq!(registry.housekeepers_for(lease, &CpuSet::first(4)), Ok(cpus(&[0, 1])));
}

//= TICK:L3.housekeeping
#[test]
fn the_machines_own_work_goes_to_cpus_that_nobody_leased() {
    let mut registry = Registry::new(cpus(&[0, 1, 2]), Limits::default()).expect("memory");
    let online = CpuSet::first(4);
    grant(&mut registry, Nanos::ZERO, &compute(&mask(&[1])));
    assert_eq!(registry.housekeepers(&online), cpus(&[0, 2]));
    let home = |from: usize| registry.home_for_housekeeping(cpu_id(from), &online);
    assert_eq!(home(0), Some(cpu_id(0)), "a housekeeper does its own");
    assert_eq!(home(1), Some(cpu_id(2)), "a leased CPU never");
    assert_eq!(home(3), Some(cpu_id(0)), "nor one that is not in the set");
    assert_eq!(registry.home_for_housekeeping(cpu_id(1), &cpus(&[1, 3])), None, "they are all offline");
}

/// The rollback that is owed, which is the only one.
fn only_roll_back(registry: &mut Registry) -> RollBack {
    let one = registry.roll_back().expect("one lease has ended");
    assert_eq!(registry.roll_back(), None, "and no other; nor the same twice");
    one
}

//= ARCH:lease.revoke
#[test]
fn whatever_ends_a_lease_stales_it_and_names_the_cpu_to_roll_back() {
    type End = fn(&mut Registry, LeaseRef) -> Ended;
    let endings: [(EndReason, End); 5] = [
        (EndReason::Revoked, |registry, lease| registry.revoke(ms(1), lease).expect("live")),
        (EndReason::Released, |registry, lease| registry.release(ms(1), lease).expect("live")),
        (EndReason::ProcessExit, |registry, _| registry.process_exited(ProcessId::new(4))),
        (EndReason::ServiceReplaced, |registry, _| registry.service_replaced(ServiceId(4))),
        (EndReason::Logout, |registry, _| registry.logged_out(SessionId(2))),
    ];
    for (reason, end) in endings {
        let mut registry = registry();
        let (one, two) = (mask(&[1]), mask(&[2]));
        let revocation = RevocationPolicy::Notify(Endpoint(9));
        let lease =
            grant(&mut registry, Nanos::ZERO, &LeaseRequest { owner: owner(4), revocation, ..compute(&one) });
        let other = grant(&mut registry, Nanos::ZERO, &LeaseRequest { owner: owner(9), ..compute(&two) });
        assert_eq!(end(&mut registry, lease), Ended(1), "{reason:?}");
        assert_eq!(registry.standing(ms(1), lease), Standing::Stale, "{reason:?}: at once");
        assert_eq!(registry.info(ms(1), lease), Err(NotLive::Ended(reason)));
        let expected = RollBack { lease, cpu: Some(cpu_id(1)), reason, notify: Some(Endpoint(9)) };
        assert_eq!(only_roll_back(&mut registry), expected);
        assert!(registry.revoke(ms(1), lease).is_err(), "{reason:?}: no second time");
        assert!(matches!(registry.standing(ms(1), other), Standing::Live(_)), "{reason:?}: nobody else's");
        let next = grant(&mut registry, ms(1), &compute(&one));
        assert_ne!(next, lease);
        assert_eq!(registry.standing(ms(1), lease), Standing::Stale, "{reason:?}: nor by a later lease");
    }
}

//= ARCH:lease.revoke ARCH:lease.overlap
#[test]
fn a_replacement_stales_what_it_replaces_and_a_stale_name_replaces_nothing() {
    let (mut registry, one, two) = (registry(), mask(&[1]), mask(&[1, 2]));
    let old = grant(&mut registry, Nanos::ZERO, &compute(&one));
    let replacing = |lease| LeaseRequest { replaces: Some(lease), ..compute(&two) };
    let thief = LeaseRequest { owner: owner(8), ..replacing(old) };
    assert_eq!(refusal(&mut registry, &thief), Refusal::NotOwner);
    let new = grant(&mut registry, Nanos::ZERO, &replacing(old));
    assert_eq!(new.id(), old.id());
    assert_eq!(only_roll_back(&mut registry).reason, EndReason::Superseded);
    assert_eq!(registry.standing(ms(1), old), Standing::Stale);
    assert_eq!(registry.info(ms(1), old), Err(NotLive::StaleGeneration));
    assert_eq!(refusal(&mut registry, &replacing(old)), Refusal::Replaces(NotLive::StaleGeneration));
    let forged = LeaseRef::from_parts(new.id() + 40, 1);
    assert_eq!(refusal(&mut registry, &replacing(forged)), Refusal::Replaces(NotLive::Unknown));
    let _ = registry.revoke(ms(1), new).expect("live");
    assert_eq!(only_roll_back(&mut registry).cpu, None, "a lease of two CPUs makes neither tickless");
}

//= ARCH:lease.lifetime
#[test]
fn a_lifetime_ends_at_the_first_look_past_it() {
    type Look = fn(&mut Registry, LeaseRef);
    let looks: [Look; 4] = [
        |registry, lease| assert_eq!(registry.standing(ms(20), lease), Standing::Expired),
        |registry, lease| assert_eq!(registry.info(ms(20), lease), Err(NotLive::Ended(EndReason::Expired))),
        |registry, _| assert_eq!(registry.expire(ms(20)), Ended(1)),
        |registry, lease| assert_ne!(grant(registry, ms(20), &compute(&mask(&[1]))), lease),
    ];
    for look in looks {
        let (mut registry, one) = (registry(), mask(&[1]));
        let lease = grant(&mut registry, ms(5), &LeaseRequest { lifetime: ms(15), ..compute(&one) });
        assert_eq!(registry.next_expiry(), ms(20));
        assert!(matches!(registry.standing(ms(20) - Nanos::new(1), lease), Standing::Live(_)));
        assert_eq!(registry.roll_back(), None);
        look(&mut registry, lease);
        let ended = only_roll_back(&mut registry);
        assert_eq!((ended.reason, ended.reason.label()), (EndReason::Expired, "lease-expired"));
        assert_eq!(registry.next_expiry(), Nanos::MAX);
    }
}

//= ARCH:lease.lifetime
#[test]
fn a_lifetime_of_zero_never_ends() {
    let (mut registry, one) = (registry(), mask(&[1]));
    let lease = grant(&mut registry, ms(5), &compute(&one));
    assert_eq!(registry.expire(Nanos::new(u64::MAX - 1)), Ended(0));
    assert!(matches!(registry.standing(Nanos::new(u64::MAX - 1), lease), Standing::Live(_)));
}

#[test]
fn an_exit_before_the_rollback_was_handed_out_loses_neither() {
    let (mut registry, one) = (registry(), mask(&[1]));
    let lease = grant(&mut registry, Nanos::ZERO, &compute(&one));
    let _ = registry.revoke(Nanos::ZERO, lease).expect("live");
    assert_eq!(registry.process_exited(ProcessId::new(1)), Ended(0), "it had ended already");
    assert_eq!(only_roll_back(&mut registry).lease, lease);
    assert_eq!(
        registry.info(Nanos::ZERO, lease),
        Err(NotLive::StaleGeneration),
        "nobody is left to release it"
    );
}

#[test]
fn a_housekeeper_that_an_older_lease_depends_on_is_not_leased_away() {
    let (mut registry, one, others) = (registry(), mask(&[1]), mask(&[2, 3]));
    let fussy = LeaseRequest { housekeeping_exclusions: &others, ..compute(&one) };
    grant(&mut registry, Nanos::ZERO, &fussy);
    assert_eq!(refusal(&mut registry, &compute(&mask(&[0]))), Refusal::NoHousekeeping);
    grant(&mut registry, Nanos::ZERO, &compute(&others));
}

#[test]
fn every_refusal_says_what_to_do_and_has_a_label_of_its_own() {
    let lease = LeaseRef::from_parts(1, 1);
    let all = [
        Refusal::MalformedMask(MaskError::TrailingZero),
        Refusal::EmptyMask,
        Refusal::Offline(cpu_id(1)),
        Refusal::Overlap { cpu: cpu_id(1), held_by: lease },
        Refusal::NoHousekeeping,
        Refusal::ModeNotAllowed(Mode::DeviceOwner),
        Refusal::RingWithoutSqpoll,
        Refusal::SqpollWithoutRing,
        Refusal::DevicesNotRouted,
        Refusal::StaleTarget,
        Refusal::FabricatedTarget,
        Refusal::RevocationLatency { max: ms(1) },
        Refusal::Replaces(NotLive::Unknown),
        Refusal::NotOwner,
        Refusal::Full { capacity: 1 },
        Refusal::Exhausted,
    ];
    let labels: std::collections::HashSet<_> = all.iter().map(Refusal::label).collect();
    assert_eq!(labels.len(), all.len());
    assert!(all.iter().all(|one| one.to_string().len() > 20));
}
