//! Each rule of placement by itself.

mod machines;

use machines::host::Host;
use machines::script::Driven;
use machines::virtual_machine::VirtualMachine;
use machines::{cpu, entity, thread};
use mainspring_abi::{Nanos, ProcessId, Weight};
use mainspring_driver::Machine;
use mainspring_driver::placement::{
    Wake, exit_current, expire, hand_over, kick, migrate, place, remove, set_weight, share_leftovers, start,
    steal, wake,
};
use mainspring_sched::{Affinity, Decision, State, Stop, Timeout, Via, WaitKind};
use std::sync::Arc;

/// CPU `index` makes a decision: its running thread stops as `stop` says. Returns the thread that runs next.
fn decide(host: &Host, index: usize, stop: Stop) -> Option<u32> {
    let decision = host.seen_from(Some(cpu(index))).with_cpu(cpu(index), |cpu| cpu.event().resched(stop));
    host.set_idle(cpu(index), decision == Decision::Idle);
    match decision {
        Decision::Run(run) => Some(run.thread.index()),
        Decision::Idle => None,
    }
}

const WAITS: Stop = Stop::Blocked(WaitKind::Park, None);

fn only(cpus: &[usize]) -> Affinity {
    Affinity::Only(Arc::new(cpus.iter().map(|index| cpu(*index)).collect()))
}

//= ARCH:place.local OWN:driver.one
#[test]
fn a_thread_starts_beside_its_creator_or_where_least_weight_was_placed() {
    let host = Host::new(3, 1);
    let mut outside = host.seen_from(None);
    assert_eq!(place(&mut outside, thread(0), &Affinity::Any, 5, Some(cpu(2))), Some(cpu(2)));
    assert_eq!(outside.placed_weight(cpu(2)), 0, "its creator's CPU is not a choice");
    let mut placed = |weight, affinity| place(&mut outside, thread(0), &affinity, weight, None);
    assert_eq!(placed(5, Affinity::Any), Some(cpu(0)), "ties go to the lower CPU");
    assert_eq!(placed(2, Affinity::Any), Some(cpu(1)));
    assert_eq!(placed(2, Affinity::Any), Some(cpu(2)));
    assert_eq!(placed(2, Affinity::Any), Some(cpu(1)));
    assert_eq!(placed(9, only(&[0, 1])), Some(cpu(1)), "4 is less than 5");
    assert_eq!(placed(1, only(&[7])), None, "the machine lacks that CPU");
    let elsewhere = place(&mut host.seen_from(None), thread(0), &only(&[1, 2]), 1, Some(cpu(0)));
    assert_eq!(elsewhere, Some(cpu(2)), "not its creator's");
}

//= ARCH:wake.scan ARCH:wake.policy OWN:driver.one
#[test]
fn a_woken_thread_is_ready_at_home_and_its_idle_home_is_told() {
    let host = Host::new(2, 1);
    let home = start(&mut host.seen_from(None), cpu(1), entity(0, None)).expect("a seat");
    assert!(host.take_notification(cpu(1)));
    assert_eq!(decide(&host, 1, Stop::Nothing), Some(0));
    assert_eq!(decide(&host, 1, WAITS), None);
    assert_eq!(wake(&mut host.seen_from(Some(cpu(0))), thread(0)), Wake::Woken);
    assert!(host.is_told(cpu(1)) && !host.is_told(cpu(0)));
    let state = host.seen_from(None).with_cpu(cpu(1), |cpu| cpu.cpu().state(home.seat));
    assert_eq!(state, Ok(State::Queued));
    assert_eq!(wake(&mut host.seen_from(None), thread(0)), Wake::NotAsleep, "it is awake");
}

//= ARCH:wake.scan OWN:driver.one
#[test]
fn a_cpu_that_cannot_be_told_is_passed_over_and_stays_untold() {
    let mut host = Host::new(4, 2);
    start(&mut host.seen_from(Some(cpu(1))), cpu(1), entity(0, None)).expect("a seat");
    assert_eq!(decide(&host, 1, Stop::Nothing), Some(0));
    // The first two messages are lost, the third arrives.
    host.one_arrives_of = 3;
    start(&mut host.seen_from(Some(cpu(1))), cpu(1), entity(1, None)).expect("a seat");
    let told: Vec<bool> = (0..4).map(|index| host.is_told(cpu(index))).collect();
    assert_eq!(told, [true, false, false, false], "after 2 and 3, upwards from home and around");
}

//= ARCH:wake.scan
#[test]
fn an_idle_cpu_that_may_not_run_the_thread_is_not_disturbed() {
    let host = Host::new(4, 2);
    start(&mut host.seen_from(Some(cpu(1))), cpu(1), entity(0, None)).expect("a seat");
    assert_eq!(decide(&host, 1, Stop::Nothing), Some(0));
    start(&mut host.seen_from(Some(cpu(1))), cpu(1), entity(1, Some(&[1, 3]))).expect("a seat");
    assert_eq!((0..4).filter(|index| host.is_told(cpu(*index))).collect::<Vec<_>>(), [3]);
}

//= OWN:driver.one
#[test]
fn waits_that_are_due_end_as_many_at_a_time_as_is_asked_for_and_one_cpu_is_told_of_each() {
    let mut machine = VirtualMachine::new(2, 3);
    for index in 0..3 {
        start(&mut machine, cpu(0), entity(index, None)).expect("a seat");
        let permit = machine.with_quota(|quota| quota.take(ProcessId::new(0))).expect("one for each thread");
        let timeout = Timeout { deadline: Nanos::from_millis(1), user_data: 0, permit };
        machine.with_cpu(cpu(0), |cpu| {
            let _runs = cpu.event().resched(Stop::Nothing);
            let _idles = cpu.event().resched(Stop::Blocked(WaitKind::Sleep, Some(timeout)));
        });
    }
    assert!(machine.take_notification(cpu(0)), "of the starts");
    machine.now = Nanos::from_millis(1) - Nanos::new(1);
    expire(&mut machine, cpu(0), 2);
    assert_eq!(machine.with_quota(|quota| quota.pending()), 3, "not before its time");
    machine.now = Nanos::from_millis(1);
    expire(&mut machine, cpu(0), 2);
    assert_eq!(machine.with_cpu(cpu(0), |cpu| cpu.cpu().queued()), 2);
    assert_eq!(machine.with_quota(|quota| quota.pending()), 1, "the permits of both are back");
    assert!(machine.is_told(cpu(0)) && machine.is_told(cpu(1)), "a CPU for each");
    assert_eq!(machine.with_cpu(cpu(0), |cpu| cpu.cpu().next_timer()), machine.now, "for the third, at once");
    expire(&mut machine, cpu(0), 2);
    assert_eq!(machine.with_cpu(cpu(0), |cpu| cpu.cpu().queued()), 3);
}

//= OWN:driver.one
#[test]
fn a_thread_that_is_handed_over_comes_here_and_goes_first() {
    let host = Host::new(2, 3);
    for (index, home) in [(0, 0), (1, 1), (2, 0)] {
        start(&mut host.seen_from(None), cpu(home), entity(index, None)).expect("a seat");
    }
    assert_eq!(decide(&host, 1, Stop::Nothing), Some(1));
    assert_eq!(decide(&host, 1, WAITS), None);
    assert_eq!(decide(&host, 0, Stop::Nothing), Some(0));
    assert_eq!(hand_over(&mut host.seen_from(Some(cpu(0))), thread(1)), Wake::Woken);
    assert_eq!(host.seen_from(None).home(thread(1)).map(|home| home.cpu), Some(cpu(0)));
    assert_eq!(decide(&host, 0, WAITS), Some(1), "before thread 2, which has waited longer");
}

//= ARCH:steal.lowest ARCH:inv.queue-order
#[test]
fn the_most_overdue_offer_is_taken_and_ties_go_to_the_lower_cpu() {
    let mut machine = VirtualMachine::new(4, 6);
    for index in [0, 1] {
        start(&mut machine, cpu(index as usize), entity(2 * index, None)).expect("a seat");
        machine.with_cpu(cpu(index as usize), |cpu| {
            assert_ne!(cpu.event().resched(Stop::Nothing), Decision::Idle);
        });
        start(&mut machine, cpu(index as usize), entity(2 * index + 1, None)).expect("a seat");
    }
    assert_eq!(machine.choose_victim(cpu(3)), Some(cpu(0)), "both wait for the same");
    machine.now = Nanos::from_millis(2);
    // It brings the clock of CPU 1 up to date: what waits there is more overdue by now.
    start(&mut machine, cpu(1), entity(4, None)).expect("a seat");
    assert_eq!(steal(&mut machine, cpu(3), |_, stolen| stolen.thread.index()), Some(3));
}

//= EVO:S1.steal-bounded ARCH:place.local OWN:driver.one
#[test]
fn a_thief_takes_what_it_may_run_and_chooses_before_anybody_takes_it_on() {
    let host = Host::new(3, 3);
    for (index, cpus) in [(0, None), (1, Some(&[0, 2][..])), (2, None)] {
        start(&mut host.seen_from(None), cpu(0), entity(index, cpus)).expect("a seat");
    }
    assert_eq!(decide(&host, 0, Stop::Nothing), Some(0));
    let stolen = |thief| {
        steal(&mut host.seen_from(Some(cpu(thief))), cpu(thief), |cpu, stolen| {
            (stolen.thread.index(), cpu.event().resched(Stop::Nothing) != Decision::Idle)
        })
    };
    assert_eq!(stolen(1), Some((2, true)), "thread 1 is more overdue, but may not run there");
    assert_eq!(stolen(2), Some((1, true)));
    assert_eq!(stolen(2), None);
    assert_eq!(host.seen_from(None).home(thread(1)).map(|home| home.cpu), Some(cpu(2)));
}

//= OWN:driver.one
#[test]
fn what_is_left_over_is_offered_to_an_idle_cpu_that_may_run_it() {
    let host = Host::new(3, 3);
    for index in 0..3 {
        start(&mut host.seen_from(None), cpu(0), entity(index, Some(&[0, 2]))).expect("a seat");
    }
    for index in 0..3 {
        host.take_notification(cpu(index));
    }
    assert!(decide(&host, 0, Stop::Nothing).is_some());
    share_leftovers(&mut host.seen_from(Some(cpu(0))), cpu(0));
    assert_eq!((0..3).filter(|index| host.is_told(cpu(*index))).collect::<Vec<_>>(), [2]);
}

//= OWN:driver.one
#[test]
fn a_migrated_thread_is_ready_where_it_went_unless_it_may_not_go() {
    let host = Host::new(2, 1);
    start(&mut host.seen_from(None), cpu(0), entity(0, Some(&[0]))).expect("a seat");
    let mut outside = host.seen_from(None);
    assert_eq!(migrate(&mut outside, thread(0), cpu(1), None, Via::Admit), None);
    assert_eq!(outside.home(thread(0)).map(|home| home.cpu), Some(cpu(0)));
    let another = Some((only(&[0, 1]), only(&[1])));
    assert_eq!(migrate(&mut outside, thread(0), cpu(1), another, Via::Admit), None, "it may run elsewhere");
    let moved = migrate(&mut outside, thread(0), cpu(1), Some((only(&[0]), only(&[1]))), Via::Admit);
    assert_eq!(moved, outside.home(thread(0)));
    assert_eq!(decide(&host, 1, Stop::Nothing), Some(0));
    let anywhere = Some((only(&[1]), Affinity::Any));
    assert_eq!(migrate(&mut outside, thread(0), cpu(0), anywhere, Via::Admit), None, "it runs");
}

#[test]
fn a_wake_follows_a_thread_that_has_moved_since_its_home_was_read() {
    let mut machine = VirtualMachine::new(2, 1);
    let before = start(&mut machine, cpu(0), entity(0, None)).expect("a seat");
    let after = migrate(&mut machine, thread(0), cpu(1), None, Via::Admit).expect("it is ready");
    assert_ne!(before, after);
    machine.with_cpu(cpu(1), |cpu| {
        assert_ne!(cpu.event().resched(Stop::Nothing), Decision::Idle);
        assert_eq!(cpu.event().resched(WAITS), Decision::Idle);
    });
    machine.stale_home.set(Some(before));
    assert_eq!(wake(&mut machine, thread(0)), Wake::Woken);
    let state = machine.with_cpu(cpu(1), |cpu| cpu.cpu().state(after.seat));
    assert_eq!(state, Ok(State::Queued));
}

//= OWN:driver.one
#[test]
fn a_thread_that_has_ended_sits_nowhere() {
    let host = Host::new(1, 2);
    for index in 0..2 {
        start(&mut host.seen_from(None), cpu(0), entity(index, None)).expect("a seat");
    }
    assert_eq!(decide(&host, 0, Stop::Nothing), Some(0));
    let mut here = host.seen_from(Some(cpu(0)));
    assert!(remove(&mut here, thread(0)).is_none(), "it runs");
    assert_eq!(remove(&mut here, thread(1)).map(|removed| removed.entity.thread()), Some(thread(1)));
    assert_eq!(exit_current(&mut here, cpu(0)).map(|entity| entity.thread()), Some(thread(0)));
    assert_eq!((here.home(thread(0)), here.home(thread(1))), (None, None));
    assert_eq!(wake(&mut here, thread(1)), Wake::NotAsleep);
}

#[test]
fn nobody_is_told_of_a_thread_that_is_not_queued_any_more() {
    let host = Host::new(3, 1);
    let home = start(&mut host.seen_from(Some(cpu(0))), cpu(0), entity(0, None)).expect("a seat");
    assert_eq!(decide(&host, 0, Stop::Nothing), Some(0));
    kick(&mut host.seen_from(Some(cpu(0))), home, false);
    assert!((0..3).all(|index| !host.is_told(cpu(index))));
}

#[test]
fn a_weight_counts_at_once_for_a_queued_thread_and_later_for_another() {
    let chosen = |heavier: Option<u32>| {
        let host = Host::new(1, 3);
        for index in 0..3 {
            start(&mut host.seen_from(Some(cpu(0))), cpu(0), entity(index, None)).expect("a seat");
        }
        assert_eq!(decide(&host, 0, Stop::Nothing), Some(0));
        let weight = Weight::new(1024).expect("valid");
        if let Some(index) = heavier {
            assert!(set_weight(&mut host.seen_from(Some(cpu(0))), thread(index), weight));
        }
        let next = decide(&host, 0, WAITS);
        let mut here = host.seen_from(Some(cpu(0)));
        assert!(set_weight(&mut here, thread(0), weight), "one that waits");
        let home = here.home(thread(0)).expect("it lives");
        let asleep = here.with_cpu(cpu(0), |cpu| cpu.is_asleep(home.seat));
        assert!(asleep, "it still waits");
        assert!(remove(&mut here, thread(0)).is_some());
        assert!(!set_weight(&mut here, thread(0), weight), "one that has ended");
        next
    };
    assert_eq!((chosen(None), chosen(Some(2))), (Some(1), Some(2)), "its deadline is nearer now");
}

/// The clocks of CPUs are read apart from each other, and may differ.
//= TICK:L1.clocksource
#[test]
fn no_event_of_a_cpu_is_before_its_last_and_no_thread_arrives_before_it_left() {
    let mut machine = VirtualMachine::new(2, 2);
    machine.now = Nanos::from_millis(5);
    for index in 0..2 {
        start(&mut machine, cpu(0), entity(index, None)).expect("a seat");
    }
    machine.with_cpu(cpu(0), |cpu| assert_ne!(cpu.event().resched(Stop::Nothing), Decision::Idle));
    let time_of = |machine: &mut VirtualMachine, index| machine.with_cpu(cpu(index), |cpu| cpu.now());
    machine.now = Nanos::from_millis(3);
    assert_eq!(time_of(&mut machine, 0), Nanos::from_millis(5), "its time stands still");
    assert_eq!(time_of(&mut machine, 1), Nanos::from_millis(3), "and is its own");
    machine.with_cpu(cpu(0), |cpu| assert_ne!(cpu.event().resched(Stop::Yielded), Decision::Idle));
    assert!(steal(&mut machine, cpu(1), |_, _| ()).is_some());
    assert!(time_of(&mut machine, 1) > Nanos::from_millis(5), "the stolen thread left at 5 ms");
    machine.now = Nanos::from_millis(9);
    assert_eq!(time_of(&mut machine, 0), Nanos::from_millis(9), "without a tick in between");
}
