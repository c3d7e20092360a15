//! One CPU's decisions, where the code takes a short cut or a corner.

extern crate std;

use super::*;
use crate::entity::{Affinity, Spec};
use crate::fair::class_request;
use crate::virtual_time::VirtualTime;
use alloc::sync::Arc;
use mainspring_abi::CpuSet;
use proptest::prelude::*;
use std::vec::Vec;

fn a_spec(index: u32) -> Spec {
    Spec::new(ThreadRef::new(index, 0))
}

fn a_cpu(policy: Policy, specs: impl IntoIterator<Item = Spec>) -> (Cpu, Vec<Seat>) {
    let mut cpu = Cpu::new(Config::new(CpuId::BOOT, policy));
    cpu.reserve(64).expect("a few seats fit");
    let seats = specs
        .into_iter()
        .map(|spec| cpu.accept(Nanos::ZERO, Entity::new(spec), Via::Admit).expect("a seat was reserved").0)
        .collect();
    (cpu, seats)
}

fn run(decision: Decision) -> Dispatch {
    match decision {
        Decision::Run(dispatch) => dispatch,
        Decision::Idle => panic!("a thread is ready"),
    }
}

fn number(cpu: usize) -> CpuId {
    CpuId::new(cpu).expect("test CPUs exist")
}

fn on(cpus: impl IntoIterator<Item = usize>) -> Affinity {
    Affinity::Only(Arc::new(cpus.into_iter().map(number).collect::<CpuSet>()))
}

proptest! {
    /// [`Cpu::resched`] takes a short cut for the usual preemption. Whatever the threads are and however long they
    /// run, it does what the general path does.
    #[test]
    fn the_short_cut_decides_and_accounts_like_the_long_way(
        wfq in any::<bool>(),
        threads in prop::collection::vec(
            (1u64..2000, 0u8..3, prop::option::of(1u64..9_000_000), prop::bool::weighted(0.2)),
            1..12,
        ),
        steps in prop::collection::vec((0u64..12_000_000, prop::bool::weighted(0.3)), 1..80),
        reweigh in any::<prop::sample::Index>(),
    ) {
        let specs = || threads.iter().enumerate().map(|(index, (weight, class, request, bound))| Spec {
            weight: Weight::new(*weight).expect("generated in range"),
            class: [LatencyClass::Interactive, LatencyClass::Normal, LatencyClass::Batch][usize::from(*class)],
            request: request.map(Nanos::new),
            affinity: if *bound { on([0, 5]) } else { Affinity::Any },
            ..a_spec(index as u32)
        });
        let policy = if wfq { Policy::Wfq } else { Policy::Eevdf };
        let ((mut short, seats), (mut long, _)) = (a_cpu(policy, specs()), a_cpu(policy, specs()));
        let mut now = Nanos::ZERO;
        prop_assert_eq!(short.resched(now, Stop::Nothing), long.resched(now, Stop::Nothing));
        for (step, (ran, full)) in steps.iter().enumerate() {
            now = if *full { short.slice_end.max(now) } else { now + Nanos::new(*ran) };
            if step == reweigh.index(steps.len()) {
                for cpu in [&mut short, &mut long] {
                    cpu.set_weight(seats[0], Weight::new(7).expect("seven is valid")).expect("it sits there");
                }
            }
            let slot = long.current.expect("somebody runs");
            long.fair.advance(now);
            prop_assert_eq!(short.resched(now, Stop::Preempted), long.stop_running(now, slot, Stop::Preempted));
            prop_assert_eq!(short.threads(), long.threads());
            prop_assert_eq!(short.offer(), long.offer());
            for seat in &seats {
                prop_assert_eq!(short.entity(*seat), long.entity(*seat));
            }
            prop_assert_eq!(short.telemetry(), long.telemetry());
            prop_assert_eq!(short.charged_time(), long.charged_time());
            prop_assert_eq!(short.verify(), Ok(()));
        }
    }
}

/// A thread that is queued, without a charge in between, under a request shorter than what it has used.
#[test]
fn a_shorter_request_puts_no_deadline_into_the_past() {
    let (mut cpu, seats) = a_cpu(Policy::Eevdf, [a_spec(0), a_spec(1)]);
    let first = run(cpu.resched(Nanos::ZERO, Stop::Nothing));
    assert_eq!(first.seat, seats[0]);
    let now = Nanos::from_millis(2);
    cpu.set_class(seats[1], LatencyClass::Interactive).expect("it sits there");
    // Two of its three milliseconds are used when a thread that is due sooner takes over.
    let (urgent, _woken) = cpu
        .accept(now, Entity::new(Spec { class: LatencyClass::Interactive, ..a_spec(2) }), Via::Admit)
        .expect("a seat was reserved");
    assert_eq!(run(cpu.resched(now, Stop::Preempted)).seat, urgent);
    cpu.hold(now, seats[0]).expect("it is queued");
    cpu.set_class(seats[0], LatencyClass::Interactive).expect("it sits there");
    let _woken = cpu.release(now, seats[0]).expect("it was held");

    let quarter = class_request(LatencyClass::Interactive, cpu.quantum);
    let used = cpu.entity(seats[0]).expect("it sits there").used;
    assert_eq!(used, Nanos::new(now.get() % quarter.get()));

    // The same if it comes from a CPU with a longer quantum.
    let moved = cpu.remove(now, seats[0]).expect("it is queued").entity;
    let mut other =
        Cpu::new(Config { quantum: Nanos::new(400_000), ..Config::new(CpuId::BOOT, Policy::Eevdf) });
    other.reserve(1).expect("a seat fits");
    let (_, _woken) = other.accept(now, moved, Via::Steal).expect("a seat was reserved");
    let dispatch = run(other.resched(now, Stop::Nothing));
    assert!(dispatch.slice_end > now, "a thread was given no time");
}

//= ARCH:steal.position
#[test]
fn a_thief_takes_from_behind_those_it_may_not_run() {
    let heavy = Weight::new(1024).expect("valid");
    let pinned = |index| Spec { affinity: on([0]), weight: heavy, ..a_spec(index) };
    // CPU 64 folds onto the same bit as CPU 0: the mask alone would let it have them.
    for thief in [1, 64] {
        let specs = [pinned(0), pinned(1), a_spec(2), a_spec(3)];
        let (mut victim, seats) = a_cpu(Policy::Eevdf, specs);
        let order = |cpu: &Cpu| cpu.queue().iter().map(|view| view.seat).collect::<Vec<_>>();
        assert_eq!(order(&victim), seats);
        let held = victim.queue()[2].clone();
        let now = Nanos::from_millis(1);
        let stolen = victim.give(now, number(thief)).expect("two threads may run anywhere");
        assert_eq!(stolen.thread(), held.thread);
        assert_eq!(order(&victim), [seats[0], seats[1], seats[3]]);
        victim.verify().expect("the structure holds");

        // At its destination it is tagged anew, from that CPU's clock and the lag it brings.
        let mut home = Cpu::new(Config::new(number(thief), Policy::Eevdf));
        home.reserve(1).expect("a seat fits");
        let (seat, _woken) = home.accept(now, stolen, Via::Steal).expect("a seat was reserved");
        let tag = home.queue()[0].tag.expect("it is queued");
        assert_eq!(tag.start, VirtualTime::ZERO, "credit means nothing where nobody owes it");
        assert_ne!(tag.deadline, held.tag.expect("it was queued").start);
        assert_eq!(home.entity(seat).expect("it sits there").account().migrations(), 1);
    }
}
