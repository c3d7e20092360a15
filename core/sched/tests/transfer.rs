//! Threads move between CPUs by value: removed first, published after, with what they are owed.

mod rig;

use mainspring_abi::Policy;
use mainspring_sched::{SeatError, State, Via};
use rig::{Rig, cpu_id, ms, only, us, weight};

//= ARCH:steal.lowest ARCH:steal.position EVO:S1.steal-bounded
#[test]
fn a_thief_gets_the_first_thread_it_may_run_and_the_others_stay_put() {
    let mut home = Rig::on(0, Policy::Wfq);
    home.thread(64);
    home.start();
    let pinned = home.admit(|spec| (spec.weight, spec.affinity) = (weight(512), only(&[0])));
    let held = home.admit(|spec| spec.weight = weight(400));
    let for_two = home.admit(|spec| (spec.weight, spec.affinity) = (weight(256), only(&[0, 2])));
    let open = home.thread(128);
    home.cpu.hold(home.now, held).expect("queued");
    let queue: Vec<u32> = home.cpu.queue().iter().map(|view| view.thread.index()).collect();
    assert_eq!(queue, [pinned, for_two, open].map(|seat| seat.thread().index()));

    let given = home.cpu.give(home.now, cpu_id(1)).expect("there is an unbound thread");
    assert_eq!(given.thread(), open.thread(), "neither pinned, nor held, nor for CPU 2");
    let given = home.cpu.give(home.now, cpu_id(2)).expect("one may run there");
    assert_eq!(given.thread(), for_two.thread());
    assert_eq!(home.cpu.give(home.now, cpu_id(1)), None);
    assert_eq!(home.cpu.state(pinned), Ok(State::Queued));
    assert_eq!(home.cpu.state(held), Ok(State::Held));
}

//= ARCH:steal.lowest ARCH:inv.queue-order
#[test]
fn the_offer_of_the_more_overdue_queue_is_lower() {
    let (mut slow, mut fast) = (Rig::on(0, Policy::Eevdf), Rig::on(1, Policy::Eevdf));
    for rig in [&mut slow, &mut fast] {
        rig.thread(64);
        rig.start();
        rig.thread(64);
    }
    slow.pass(ms(2));
    let _ = slow.cpu.timer(slow.now);
    slow.thread(32); // Brings the clock up to date: what waits there is more overdue by now.
    assert!(slow.cpu.offer().due_in < fast.cpu.offer().due_in);
}

//= ARCH:migr.vruntime ARCH:inv.migration ARCH:vfinish.derive
#[test]
fn lag_and_virtual_runtime_travel_with_the_thread_and_tags_do_not() {
    let (mut from, mut to) = (Rig::on(0, Policy::Eevdf), Rig::on(1, Policy::Eevdf));
    let (ran, other) = (from.thread(64), from.thread(64));
    from.start();
    assert_eq!(from.pass(ms(3)).preempt(), Some(other));
    let before = from.cpu.lag(from.now, ran).expect("live");
    assert_eq!(before.as_nanos(), -1_500_000);
    to.now = from.now;
    for _ in 0..3 {
        to.thread(64);
    }
    to.start();
    let entity = from.cpu.give(from.now, cpu_id(1)).expect("queued there");
    assert_eq!(entity.thread(), ran.thread());
    let virtual_runtime = entity.account().virtual_runtime();
    let (seat, _) = to.cpu.accept(to.now, entity, Via::Steal).expect("there is room");
    assert_eq!(to.cpu.lag(to.now, seat).expect("live"), before, "its debt came along");
    assert_eq!(to.cpu.entity(seat).expect("live").account().virtual_runtime(), virtual_runtime);
    let tag = to.cpu.queue().into_iter().find(|view| view.seat == seat).and_then(|view| view.tag);
    let start = tag.expect("queued").start.since(to.cpu.virtual_clock());
    assert!(start > 0, "the tag is the destination's: after its clock by the debt");
    assert_eq!(from.cpu.state(ran), Err(SeatError::Stale), "the source knows it no more");
}

//= ARCH:weight.enqueued ARCH:vfinish.derive
#[test]
fn a_weight_set_while_queued_counts_from_the_steal() {
    let (mut from, mut to) = (Rig::on(0, Policy::Wfq), Rig::on(1, Policy::Wfq));
    from.thread(64);
    from.start();
    let seat = from.thread(64);
    from.cpu.set_weight(seat, weight(256)).expect("live");
    let entity = from.cpu.give(from.now, cpu_id(1)).expect("queued");
    let (seat, _) = to.cpu.accept(to.now, entity, Via::Steal).expect("there is room");
    assert_eq!((from.cpu.load(), to.cpu.load()), (64, 256));
    let tag = to.cpu.queue()[0].tag.expect("queued");
    assert_eq!(tag.deadline.since(tag.start), 750_000 << mainspring_sched::FRACTION_BITS);
    assert_eq!(to.cpu.state(seat), Ok(State::Queued));
}

//= ARCH:migr.counter
#[test]
fn a_migration_counts_when_the_thread_is_queued_elsewhere_and_never_at_first() {
    let (mut from, mut to) = (Rig::on(0, Policy::Eevdf), Rig::on(1, Policy::Eevdf));
    let seat = from.thread(64);
    let migrations = |rig: &Rig, seat| rig.cpu.entity(seat).expect("live").account().migrations();
    assert_eq!(migrations(&from, seat), 0);
    from.start();
    from.pass(us(10)).block();
    let removed = from.cpu.remove(from.now, seat).expect("asleep");
    to.now = from.now;
    let (seat, _) = to.cpu.accept(to.now, removed.entity, Via::HandOff).expect("room");
    assert_eq!(migrations(&to, seat), 1);
    to.start();
    to.pass(us(10)).preempt();
    assert_eq!(migrations(&to, seat), 1, "staying is not moving");
}

//= EVO:hot-path EVO:S1.state-split
#[test]
fn a_decision_touches_its_own_cpu_only() {
    // Two CPUs share no state: the same events give the same decisions whatever happens to the other.
    let script = |neighbour_works: bool| {
        let (mut cpu, mut neighbour) = (Rig::on(0, Policy::Eevdf), Rig::on(1, Policy::Eevdf));
        for w in [64, 32, 128] {
            cpu.thread(w);
            neighbour.thread(w);
        }
        cpu.start();
        let mut chosen = Vec::new();
        for round in 0..100 {
            if neighbour_works {
                neighbour.now = cpu.now;
                if round == 0 {
                    neighbour.start()
                } else {
                    neighbour.preempt()
                };
            }
            chosen.push(cpu.pass(us(1300)).preempt());
        }
        chosen
    };
    assert_eq!(script(false), script(true));
}
