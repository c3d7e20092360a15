//! Both queues between honest sides: order, room, ownership, refusal, teardown.

mod rig;

use mainspring_abi::ring::{CapCqe, CapError, CapSqe, CapSqeV2, QosFlags, RingAbi, word};
use mainspring_ring::sync::Ordering;
use mainspring_ring::{
    CapEnter, Endpoint, Finished, Geometry, GeometryError, HeapRegion, Next, NoPlace, Push, Reap, Region,
    Revoked, RingFault, SqOwner, SqRefusal,
};
use rig::{Rig, echo};
use std::sync::Arc;

//= ARCH:capenter
#[test]
fn entering_handles_what_is_pending_before_it_says_whether_to_block() {
    let mut rig = Rig::new(4, 4);
    assert_eq!(rig.endpoint.cap_enter(1, &mut echo), CapEnter::Block { completions: 0 });
    rig.submit(&[1, 2, 3]);
    assert_eq!(rig.endpoint.cap_enter(3, &mut echo), CapEnter::Available { completions: 3 });
    assert_eq!(rig.endpoint.cap_enter(4, &mut echo), CapEnter::Block { completions: 3 });
    assert_eq!(rig.reap_all(), [1, 2, 3]);
}

#[test]
fn requests_come_through_in_order_round_and_round() {
    let mut rig = Rig::new(4, 8);
    let mut expected = Vec::new();
    let mut seen = Vec::new();
    for round in 0..100 {
        let ids: Vec<u64> = (0..=round % 4).map(|n| round * 10 + n).collect();
        rig.submit(&ids);
        expected.extend(ids);
        let CapEnter::Available { .. } = rig.endpoint.cap_enter(1, &mut echo) else {
            panic!("one was pending")
        };
        seen.extend(rig.reap_all());
    }
    assert_eq!(seen, expected);
}

#[test]
fn a_full_submission_queue_refuses_and_keeps_what_it_has() {
    let mut rig = Rig::new(2, 2);
    rig.submit(&[1, 2]);
    assert_eq!(rig.submitter.push(&CapSqeV2::nop(3)), Push::Full);
    let _ = rig.endpoint.cap_enter(2, &mut echo);
    assert_eq!(rig.submitter.push(&CapSqeV2::nop(3)), Push::Queued);
    assert_eq!(rig.reap_all(), [1, 2]);
}

//= ARCH:cq.independent
#[test]
fn a_full_completion_queue_holds_requests_back_and_loses_none() {
    let mut rig = Rig::new(4, 2);
    rig.submit(&[1, 2, 3, 4]);
    assert_eq!(rig.endpoint.cap_enter(4, &mut echo), CapEnter::Available { completions: 2 });
    assert_eq!(rig.endpoint.sq().head(), 2, "no request is consumed without a place for its completion");
    assert_eq!(rig.endpoint.sq().held_back(), 1);
    for _ in 0..3 {
        let _ = rig.endpoint.cap_enter(4, &mut echo);
    }
    assert_eq!(rig.endpoint.sq().held_back(), 1, "counted once, however often it is tried");
    assert_eq!(rig.reap_all(), [1, 2], "what was accepted stays visible");
    let _ = rig.endpoint.cap_enter(2, &mut echo);
    assert_eq!(rig.reap_all(), [3, 4]);
    assert_eq!(rig.region.word(word::HELD_BACK).load(Ordering::Relaxed), 1, "the submitter sees the count");
}

#[test]
fn a_place_that_is_out_counts_as_used() {
    let mut rig = Rig::new(4, 2);
    rig.submit(&[1, 2, 3]);
    let mut kept = Vec::new();
    let mut keep = |request: CapSqeV2, place, _: &mut _| kept.push((request, place));
    assert_eq!(rig.endpoint.cap_enter(1, &mut keep), CapEnter::Block { completions: 0 });
    assert_eq!(kept.len(), 2, "two in flight fill a queue of two");
    assert_eq!(rig.endpoint.cq().reserve().err(), Some(NoPlace::Full));
    for (request, place) in kept.into_iter().rev() {
        let _ = rig.endpoint.complete(place, &CapCqe::completed(request.v1.user_data, 0));
    }
    assert_eq!(rig.reap_all(), [2, 1], "in the order of completion");
}

//= ARCH:sq.metadata ARCH:sq.generation
#[test]
fn one_owner_at_a_time_and_a_duplicate_may_try_again() {
    let rig = Rig::new(2, 2);
    let sq = rig.endpoint.sq();
    let lease = sq.acquire(SqOwner::Syscall).expect("free");
    assert_ne!(lease.generation(), 0);
    assert_eq!(lease.owner(), SqOwner::Syscall);
    for owner in [SqOwner::Syscall, SqOwner::Timer] {
        let refusal = sq.acquire(owner).expect_err("taken");
        assert_eq!((refusal, refusal.code()), (SqRefusal::Busy, CapError::Busy));
    }
    let generation = lease.generation();
    sq.release(lease).expect("live");
    let next = sq.acquire(SqOwner::Timer).expect("free again");
    assert!(next.generation() > generation, "no generation is used twice");
}

//= ARCH:sq.generation
#[test]
fn a_stale_owner_consumes_nothing() {
    let mut rig = Rig::new(2, 2);
    rig.submit(&[1]);
    let (sq, cq, _) = rig.endpoint.parts();
    let stale = sq.acquire(SqOwner::Syscall).expect("free");
    assert_eq!(sq.revoke(), Revoked::Now);
    let refusal = sq.begin(&stale, 1).err().expect("stale");
    assert_eq!((refusal, refusal.code()), (SqRefusal::Stale, CapError::StaleSqConsumer));
    assert_eq!(sq.prepare_sleep(&stale, cq), Err(SqRefusal::Stale));
    assert_eq!(sq.head(), 0, "the head entry is unconsumed");
    let fresh = sq.acquire(SqOwner::Timer).expect("free");
    assert_eq!(sq.release(stale), Err(SqRefusal::Stale), "and ends nobody else's lease");
    assert!(sq.holds(&fresh));
    let mut service = sq.begin(&fresh, 1).expect("live");
    assert!(matches!(service.next(cq), Next::Accepted(request, _) if request.v1.user_data == 1));
}

//= ARCH:sq.metadata
#[test]
fn a_peer_that_overwrites_everything_does_not_reach_the_ownership_record() {
    let mut rig = Rig::new(2, 2);
    let lease = rig.endpoint.sq().acquire(SqOwner::Syscall).expect("free");
    for index in 0..mainspring_abi::ring::HEADER_WORDS {
        rig.region.word(index).store(0xffff_ffff, Ordering::Relaxed);
    }
    for slot in rig.region.slots() {
        slot.store(u64::MAX, Ordering::Relaxed);
    }
    let (sq, cq, _) = rig.endpoint.parts();
    assert!(sq.holds(&lease), "no shared word says who owns");
    assert_eq!(sq.acquire(SqOwner::Timer).err(), Some(SqRefusal::Busy));
    let mut service = sq.begin(&lease, 1).expect("live");
    assert!(matches!(service.next(cq), Next::Fault(RingFault::SqTail { head: 0, tail: u32::MAX })));
}

//= ARCH:sq.generation
#[test]
fn a_service_with_a_lease_of_its_own_keeps_others_out_and_leaves_none_behind() {
    let mut rig = Rig::new(4, 4);
    rig.submit(&[1, 2]);
    let (sq, cq, _) = rig.endpoint.parts();
    let mut service = sq.serve(SqOwner::Syscall, 2).expect("free");
    assert_eq!(sq.owner(), Some(SqOwner::Syscall));
    assert_eq!(sq.serve(SqOwner::Timer, 1).err(), Some(SqRefusal::Busy));
    assert_eq!(sq.acquire(SqOwner::Timer).err(), Some(SqRefusal::Busy));
    assert!(matches!(service.next(cq), Next::Accepted(request, _) if request.v1.user_data == 1));
    assert_eq!(sq.revoke(), Revoked::AfterService);
    assert!(matches!(service.next(cq), Next::Stopping));
    assert_eq!(service.finish(), Finished::LeaseEnded);
    assert_eq!((sq.owner(), sq.head()), (None, 1));
    let mut service = sq.serve(SqOwner::Timer, 1).expect("the stop was for the lease that has ended");
    assert!(matches!(service.next(cq), Next::Accepted(request, _) if request.v1.user_data == 2));
    assert_eq!(sq.close(), Revoked::AfterService);
    drop(service);
    assert_eq!((sq.owner(), sq.head()), (None, 2));
    assert_eq!(sq.serve(SqOwner::Syscall, 1).err(), Some(SqRefusal::Closed));
}

#[test]
fn what_was_read_is_accepted_as_it_was_read_or_not_at_all() {
    let mut rig = Rig::new(4, 4);
    rig.submit(&[1, 2, 3]);
    let (sq, cq, _) = rig.endpoint.parts();
    let mut service = sq.serve(SqOwner::Syscall, 2).expect("free");
    assert_eq!((service.pending(), service.read(0).v1.user_data, service.read(1).v1.user_data), (3, 1, 2));
    drop(service);
    assert_eq!(sq.head(), 0, "looking consumes nothing");
    let mut service = sq.serve(SqOwner::Syscall, 2).expect("free");
    assert_eq!(service.pending(), 3);
    service.accept_read(2);
    assert_eq!((service.accepted(), service.pending()), (2, 0), "the batch is full");
    assert_eq!(service.finish(), Finished::LeaseEnded);
    let mut service = sq.serve(SqOwner::Syscall, 2).expect("free");
    assert!(matches!(service.next(cq), Next::Accepted(request, _) if request.v1.user_data == 3));
    assert_eq!(service.pending(), 0);
}

//= ARCH:sqpoll.stop-accepted
#[test]
fn a_stop_during_service_ends_the_lease_past_what_was_accepted() {
    let mut rig = Rig::new(4, 4);
    rig.submit(&[1, 2]);
    let (sq, cq, _) = rig.endpoint.parts();
    let lease = sq.acquire(SqOwner::Syscall).expect("free");
    let mut service = sq.begin(&lease, 4).expect("live");
    let Next::Accepted(_, place) = service.next(cq) else { panic!("one is pending") };
    assert_eq!(sq.revoke(), Revoked::AfterService);
    assert!(matches!(service.next(cq), Next::Stopping), "nothing more is accepted");
    assert_eq!(sq.acquire(SqOwner::Timer).err(), Some(SqRefusal::Busy), "nobody takes over before the end");
    assert_eq!(service.finish(), Finished::LeaseEnded);
    assert_eq!(rig.region.word(word::SQ_HEAD).load(Ordering::Relaxed), 1, "the accepted one is not replayed");
    cq.complete(place, &CapCqe::completed(1, 0));
    let mut seen = Vec::new();
    let mut note = |request: CapSqeV2, place, cq: &mut mainspring_ring::Completer<_>| {
        seen.push(request.v1.user_data);
        echo(request, place, cq);
    };
    let _ = rig.endpoint.cap_enter(2, &mut note);
    assert_eq!(seen, [2], "the next owner goes on after it");
}

//= ARCH:cq.independent
#[test]
fn accepted_completions_survive_release_and_teardown() {
    let mut rig = Rig::new(4, 4);
    rig.submit(&[1, 2, 3]);
    let (sq, cq, _) = rig.endpoint.parts();
    let lease = sq.acquire(SqOwner::Syscall).expect("free");
    let mut service = sq.begin(&lease, 3).expect("live");
    let mut places = Vec::new();
    while let Next::Accepted(request, place) = service.next(cq) {
        places.push((request.v1.user_data, place));
    }
    assert_eq!(service.finish(), Finished::LeaseKept);
    sq.release(lease).expect("live");
    let (id, place) = places.remove(0);
    cq.complete(place, &CapCqe::completed(id, 0));
    assert_eq!(rig.endpoint.tear_down(), Revoked::NotOwned);
    assert_eq!(rig.endpoint.sq().acquire(SqOwner::Syscall).err(), Some(SqRefusal::Closed));
    for (id, place) in places {
        let _ = rig.endpoint.complete(place, &CapCqe::completed(id, 0));
    }
    assert_eq!(rig.endpoint.cap_enter(1, &mut echo), CapEnter::Refused(CapError::RingClosed));
    assert_eq!(rig.reap_all(), [1, 2, 3], "all of them, after the owner and the ring have gone");
}

//= TICK:L4.reject
#[test]
fn an_unsupported_ring_is_refused_and_nothing_of_it_consumed() {
    let geometry = Geometry::new(RingAbi::V2, 2, 2).expect("powers of two");
    let with = |index: usize, value: u32| {
        let region = Arc::new(HeapRegion::new(&geometry));
        geometry.format(&region).expect("it fits");
        region.word(word::SQ_TAIL).store(1, Ordering::Relaxed);
        region.word(index).store(value, Ordering::Relaxed);
        let error = Endpoint::attach(region.clone()).err().expect("not supported");
        assert_eq!(region.word(word::SQ_HEAD).load(Ordering::Relaxed), 0);
        error
    };
    assert_eq!(with(word::ABI_VERSION, 3).code(), CapError::UnsupportedRingAbi);
    assert_eq!(with(word::ABI_VERSION, 1).code(), CapError::UnsupportedSqeVersion, "sizes are version 2's");
    assert_eq!(with(word::ENTRY_SIZES, 16 << 16 | 48).code(), CapError::UnsupportedSqeVersion);
    assert_eq!(with(word::MAGIC, 0), GeometryError::NotARing { magic: 0 });
    assert_eq!(with(word::SQ_ENTRIES, 3), GeometryError::Entries { entries: 3 });
    assert_eq!(with(word::CQ_ENTRIES, 0), GeometryError::Entries { entries: 0 });
    assert!(
        matches!(with(word::SQ_ENTRIES, 1024), GeometryError::TooSmall { .. }),
        "the peer lies about its size"
    );
}

//= TICK:L4.sqe-v2
#[test]
fn a_version_one_ring_has_no_deadlines_to_misread() {
    let geometry = Geometry::new(RingAbi::V1, 2, 2).expect("powers of two");
    let mut rig = Rig::with(geometry);
    let v1 = CapSqe { cap_id: 7, method_id: 3, params_addr: 0x1000, ..CapSqe::nop(1) };
    let sqe = CapSqeV2 { deadline_ns: 5, qos_flags: QosFlags::DROP_IF_LATE.bits(), ..CapSqeV2::from_v1(v1) };
    assert_eq!(rig.submitter.push(&sqe), Push::Queued);
    rig.submitter.publish_for_caller();
    rig.submit(&[2]);
    let mut seen = Vec::new();
    let mut note = |request: CapSqeV2, place, cq: &mut mainspring_ring::Completer<_>| {
        seen.push(request);
        echo(request, place, cq);
    };
    let _ = rig.endpoint.cap_enter(2, &mut note);
    assert_eq!(seen, [CapSqeV2::from_v1(v1), CapSqeV2::nop(2)], "the neighbour's bytes are not a deadline");
}

#[test]
fn a_lying_peer_is_told_and_can_mend_it() {
    let mut rig = Rig::new(2, 2);
    rig.submit(&[1]);
    rig.region.word(word::SQ_TAIL).store(77, Ordering::Relaxed);
    assert_eq!(rig.endpoint.cap_enter(1, &mut echo), CapEnter::Refused(CapError::RingCorrupt));
    assert_eq!(rig.endpoint.sq().head(), 0);
    rig.region.word(word::SQ_TAIL).store(1, Ordering::Relaxed);
    assert_eq!(rig.endpoint.cap_enter(1, &mut echo), CapEnter::Available { completions: 1 });
    rig.region.word(word::CQ_TAIL).store(9, Ordering::Relaxed);
    assert_eq!(rig.reaper.reap(), Reap::Fault(RingFault::CqTail { head: 0, tail: 9 }));
    rig.region.word(word::CQ_TAIL).store(1, Ordering::Relaxed);
    assert_eq!(rig.reap_all(), [1]);
    rig.region.word(word::CQ_HEAD).store(5, Ordering::Relaxed);
    assert_eq!(rig.endpoint.cap_enter(1, &mut echo), CapEnter::Refused(CapError::RingCorrupt));
}
