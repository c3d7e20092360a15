//! The queue of one CPU: order, tags, weights, places kept and seats reserved.

mod rig;

use mainspring_abi::{LatencyClass, Nanos, Policy};
use mainspring_sched::{AcceptError, Config, Cpu, Entity, SeatError, State, Stop, Via};
use rig::{Rig, cpu_id, entity, ms, only, spec, us, weight};

//= ARCH:queue.order ARCH:inv.queue-order
#[test]
fn the_queue_is_in_ascending_order_of_tags_after_every_insertion() {
    for policy in [Policy::Eevdf, Policy::Wfq] {
        let mut rig = Rig::new(policy);
        for w in [64, 16, 128, 33, 64, 1000, 7] {
            rig.thread(w);
            rig.cpu.verify().expect("the structure holds");
            let deadlines: Vec<_> =
                rig.cpu.queue().iter().map(|view| view.tag.expect("queued").deadline).collect();
            assert!(deadlines.windows(2).all(|pair| !pair[1].is_before(pair[0])));
        }
        rig.start();
        for _ in 0..50 {
            rig.pass(us(900)).preempt();
            rig.cpu.verify().expect("the structure holds");
        }
    }
}

//= ARCH:vfinish.derive ARCH:weight.enqueued
#[test]
fn a_weight_change_counts_from_the_next_enqueue_and_leaves_the_tag_until_then() {
    let mut rig = Rig::new(Policy::Wfq);
    let (a, b) = (rig.thread(64), rig.thread(64));
    rig.start();
    let tag_of = |rig: &Rig| rig.cpu.queue()[0].tag.expect("queued");
    let before = tag_of(&rig);
    rig.cpu.set_weight(b, weight(128)).expect("live");
    assert_eq!(tag_of(&rig), before, "queued: the tag stands");
    rig.cpu.set_weight(a, weight(128)).expect("live");
    rig.pass(ms(3)).preempt();
    let account = |rig: &Rig, seat| rig.cpu.entity(seat).expect("live").account().virtual_runtime();
    assert_eq!(account(&rig, a), ms(3), "the interval was run under the old weight");
    let requeued = rig.cpu.queue()[0].tag.expect("queued");
    let length = requeued.deadline.since(requeued.start);
    assert_eq!(length * 2, before.deadline.since(before.start), "requeued: twice the weight, half the span");
}

//= EVO:S3.slices
#[test]
fn an_interactive_thread_asks_for_less_and_is_due_sooner() {
    let mut rig = Rig::new(Policy::Eevdf);
    rig.thread(64);
    rig.admit(|spec| spec.class = LatencyClass::Interactive);
    rig.admit(|spec| spec.request = Some(us(100)));
    let order: Vec<u32> = rig.cpu.queue().iter().map(|view| view.thread.index()).collect();
    assert_eq!(order, [2, 1, 0]);
}

//= ARCH:retry-later ARCH:queue.scan
#[test]
fn a_held_thread_keeps_its_place_and_hides_nobody() {
    for policy in [Policy::Eevdf, Policy::Wfq] {
        let mut rig = Rig::new(policy);
        let (head, next, last) = (rig.thread(64), rig.thread(64), rig.thread(64));
        let place = rig.cpu.queue()[0].tag;
        rig.cpu.hold(rig.now, head).expect("queued");
        assert_eq!(rig.start(), Some(next), "{policy:?}: the first that may run");
        assert_eq!(rig.cpu.state(head), Ok(State::Held));
        let _ = rig.cpu.release(rig.now, head).expect("held");
        assert_eq!(rig.cpu.queue()[0].thread, head.thread(), "back where it stood");
        assert_eq!(rig.cpu.queue()[0].tag, place);
        assert_eq!(rig.cpu.state(last), Ok(State::Queued));
    }
}

//= EVO:S4.eligible ARCH:retry-later
#[test]
fn a_cpu_with_held_threads_only_is_idle() {
    let mut rig = Rig::new(Policy::Eevdf);
    let seat = rig.thread(64);
    rig.cpu.hold(rig.now, seat).expect("queued");
    assert_eq!(rig.start(), None);
    assert_eq!(rig.cpu.hold(rig.now, seat), Err(SeatError::WrongState(State::Held)));
    assert!(rig.cpu.release(rig.now, seat).expect("held").reschedule, "an idle CPU must look again");
    assert_eq!(rig.start(), Some(seat));
}

//= ARCH:queue.reserve ARCH:inv.queue-once
#[test]
fn a_thread_without_a_reserved_seat_is_given_back_and_cycles_leave_the_count_unchanged() {
    let mut cpu = Cpu::new(Config::new(cpu_id(0), Policy::Eevdf));
    cpu.reserve(2).expect("two seats fit");
    let mut seats = Vec::new();
    for index in 0..2 {
        seats.push(cpu.accept(Nanos::ZERO, entity(index), Via::Admit).expect("reserved").0);
    }
    let refused = cpu.accept(Nanos::ZERO, entity(2), Via::Admit).expect_err("no third seat");
    assert_eq!(refused.why, AcceptError::Full { capacity: 2 });
    assert_eq!(refused.entity, entity(2), "given back unchanged");
    for round in 0..100 {
        let removed = cpu.remove(Nanos::ZERO, seats[round % 2]).expect("live");
        seats[round % 2] = cpu.accept(Nanos::ZERO, removed.entity, Via::Admit).expect("a seat is free").0;
    }
    assert_eq!((cpu.occupied(), cpu.queued()), (2, 2));
}

#[test]
fn what_cannot_run_here_is_refused_before_anything_changes() {
    let mut cpu = Cpu::new(Config::new(cpu_id(3), Policy::Eevdf));
    cpu.reserve(1).expect("one seat fits");
    let mut elsewhere = spec(0);
    elsewhere.affinity = only(&[1, 2]);
    let refused = cpu.accept(Nanos::ZERO, Entity::new(elsewhere), Via::Admit).expect_err("not here");
    assert_eq!(refused.why, AcceptError::NotAllowed(cpu_id(3)));
    for request in [Nanos::ZERO, Nanos::from_secs(11)] {
        let mut greedy = spec(0);
        greedy.request = Some(request);
        let refused = cpu.accept(Nanos::ZERO, Entity::new(greedy), Via::Admit).expect_err("out of range");
        assert_eq!(refused.why, AcceptError::BadRequest(request));
    }
    assert_eq!(cpu.occupied(), 0);
}

//= EVO:S1.single-owner ARCH:inv.threadref ARCH:inv.one-owner
#[test]
fn a_stale_seat_has_no_effect() {
    let mut rig = Rig::new(Policy::Eevdf);
    let (old, other) = (rig.thread(64), rig.thread(64));
    let removed = rig.cpu.remove(rig.now, old).expect("live");
    assert_eq!(removed.entity.thread(), old.thread());
    let mut next = spec(0);
    next.thread = old.thread().successor().expect("generations are left");
    let (reused, _) = rig.cpu.accept(rig.now, Entity::new(next), Via::Admit).expect("the seat is free");
    assert_eq!(reused.slot(), old.slot(), "the seat is used again");
    assert_eq!(rig.cpu.wake(rig.now, old).err(), Some(SeatError::Stale));
    assert_eq!(rig.cpu.hand_off(rig.now, old).err(), Some(SeatError::Stale));
    assert_eq!(rig.cpu.hold(rig.now, old), Err(SeatError::Stale));
    assert_eq!(rig.cpu.set_weight(old, weight(1)), Err(SeatError::Stale));
    assert_eq!(rig.cpu.remove(rig.now, old).err(), Some(SeatError::Stale));
    assert_eq!(rig.cpu.wake(rig.now, other).err(), Some(SeatError::WrongState(State::Queued)));
    assert_eq!(rig.cpu.occupied(), 2);
}

//= ARCH:inv.exit-clean EVO:S1.exit-bounded
#[test]
fn nothing_refers_to_a_thread_that_has_ended() {
    let mut rig = Rig::new(Policy::Eevdf);
    let (a, b, c) = (rig.thread(64), rig.thread(64), rig.thread(64));
    rig.start();
    let _ = rig.sleep(ms(1));
    let _ = rig.cpu.remove(rig.now, a).expect("asleep threads can be removed");
    let _ = rig.cpu.remove(rig.now, c).expect("queued threads can be removed");
    assert_eq!(rig.cpu.remove(rig.now, b).err(), Some(SeatError::WrongState(State::Running)));
    let _ = rig.cpu.exit_current(rig.now).expect("b runs");
    assert_eq!((rig.cpu.occupied(), rig.cpu.queued(), rig.cpu.load()), (0, 0, 0));
    assert_eq!(rig.cpu.next_deadline(), None, "its timed wait went with it");
    assert_eq!(rig.start(), None);
    assert!(rig.cpu.threads().is_empty());
}

//= EVO:S3.eevdf
#[test]
fn sleeping_wipes_out_no_debt_and_saves_no_credit() {
    let mut rig = Rig::new(Policy::Eevdf);
    let (a, b) = (rig.thread(64), rig.thread(64));
    rig.start();
    rig.pass(ms(3));
    assert_eq!(rig.block(), Some(b), "a sleeps with a debt of 1.5 ms");
    let _ = rig.cpu.wake(rig.now, a).expect("asleep");
    let lag = |rig: &Rig, seat| rig.cpu.lag(rig.now, seat).expect("live").as_nanos();
    assert_eq!(lag(&rig, a), -1_500_000, "woken at once, it owes what it owed");
    rig.pass(ms(1)).block();
    assert_eq!(rig.pass(ms(1)).block(), None);
    // b was owed service when it went to sleep: it wakes with nothing to claim.
    rig.pass(ms(50));
    for seat in [a, b] {
        let _ = rig.cpu.wake(rig.now, seat).expect("asleep");
        assert_eq!(lag(&rig, seat), 0);
    }
}

//= EVO:S3.eevdf
#[test]
fn a_thread_that_yields_lets_others_go_first_once() {
    let mut rig = Rig::new(Policy::Eevdf);
    let (a, b) = (rig.thread(64), rig.thread(64));
    assert_eq!(rig.start(), Some(a));
    assert_eq!(rig.resched(Stop::Yielded), Some(b));
    assert_eq!(rig.block(), Some(a));
    assert_eq!(rig.resched(Stop::Yielded), Some(a), "alone, it goes on");
}
