//! A thread's authority over its own weight and class.

mod rig;

use mainspring_abi::{LatencyClass, Policy};
use mainspring_sched::{PolicyCap, PolicyError};
use rig::{Rig, ms, weight};

//= ARCH:policycap.methods
#[test]
fn a_policy_capability_acts_on_the_calling_thread_and_on_no_other() {
    let mut rig = Rig::new(Policy::Eevdf);
    let (a, b) = (rig.thread(64), rig.thread(64));
    let (cap_a, cap_b) = (PolicyCap::of(a.thread()), PolicyCap::of(b.thread()));
    assert_eq!(rig.cpu.call_set_weight(&cap_a, 128), Err(PolicyError::NotTheCaller), "nobody runs yet");
    assert_eq!(rig.start(), Some(a));
    assert_eq!(rig.cpu.call_set_weight(&cap_b, 128), Err(PolicyError::NotTheCaller));
    assert_eq!(rig.cpu.call_set_class(&cap_b, LatencyClass::Batch), Err(PolicyError::NotTheCaller));
    assert_eq!(rig.cpu.call_snapshot(&cap_b).err(), Some(PolicyError::NotTheCaller));
    for bad in [0, 65_536, u64::MAX] {
        assert!(matches!(rig.cpu.call_set_weight(&cap_a, bad), Err(PolicyError::Weight(_))));
    }
    assert_eq!(rig.cpu.call_set_weight(&cap_a, 128), Ok(()));
    assert_eq!(rig.cpu.call_set_class(&cap_a, LatencyClass::Interactive), Ok(()));
    let entity = |seat| rig.cpu.entity(seat).expect("live");
    assert_eq!((entity(a).weight(), entity(a).class()), (weight(128), LatencyClass::Interactive));
    assert_eq!((entity(b).weight(), entity(b).class()), (weight(64), LatencyClass::Normal));
}

//= ARCH:policycap.snapshot
#[test]
fn the_snapshot_has_the_raw_counters_in_every_build() {
    let mut rig = Rig::new(Policy::Eevdf);
    let (a, b) = (rig.thread(128), rig.thread(64));
    assert_eq!(rig.start(), Some(a));
    rig.pass(ms(3)).preempt();
    while rig.cpu.current() != Some(b) {
        rig.pass(ms(3)).preempt();
    }
    let waited = rig.now;
    let snapshot = rig.cpu.call_snapshot(&PolicyCap::of(b.thread())).expect("b calls");
    assert_eq!((snapshot.version, snapshot.runnable_accumulated, snapshot.last_started), (2, waited, waited));
    rig.pass(ms(3)).preempt();
    while rig.cpu.current() != Some(a) {
        rig.pass(ms(3)).preempt();
    }
    let snapshot = rig.cpu.call_snapshot(&PolicyCap::of(a.thread())).expect("a calls");
    assert_eq!(snapshot.weight, weight(128));
    assert_eq!(snapshot.virtual_runtime.get() * 2, snapshot.runtime.get(), "twice the weight, half the age");
    assert_eq!((snapshot.voluntary_blocks, snapshot.preemptions), (0, 1));
}
