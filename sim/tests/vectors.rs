//! Published schedules of fairness and next choice, reproduced.

mod common;

use common::{checked, workload};
use mainspring_abi::{CpuId, Nanos, Policy, ThreadRef, Weight};
use mainspring_record::check::Bound;
use mainspring_sched::{Config, Cpu, Decision, Entity, Seat, Spec, Stop, Via, VirtualTime};

const MS: u64 = 1_000_000;

fn at(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// One CPU with a quantum in milliseconds.
fn cpu(policy: Policy, quantum_ms: u64) -> Cpu {
    let mut cpu = Cpu::new(Config { quantum: at(quantum_ms), ..Config::new(CpuId::BOOT, policy) });
    cpu.reserve(8).expect("eight seats fit");
    cpu
}

fn join(cpu: &mut Cpu, now: Nanos, index: u32, weight: u64, request: Option<Nanos>) -> Seat {
    let spec = Spec {
        weight: Weight::new(weight).expect("a valid weight"),
        request,
        ..Spec::new(ThreadRef::new(index, 0))
    };
    cpu.accept(now, Entity::new(spec), Via::Admit).expect("a seat is free").0
}

fn chosen(decision: Decision) -> u32 {
    match decision {
        Decision::Run(run) => run.thread.index(),
        Decision::Idle => panic!("a thread is ready"),
    }
}

/// Which thread ran in each millisecond, by the report's schedule of CPU 0.
fn slots(text: &str) -> String {
    let run = checked(&workload(text), 0, Bound::None);
    let mut slots = String::new();
    for entry in run.report.schedule.expect("asked for") {
        assert!(entry.start_ns.is_multiple_of(MS) && entry.end_ns.is_multiple_of(MS), "{entry:?}");
        for _ in entry.start_ns / MS..entry.end_ns / MS {
            slots += &entry.thread;
        }
    }
    slots
}

//= EVO:S3.eevdf
#[test]
fn stoica_1995_two_clients_take_turns() {
    let text = r#"
        [machine]
        quantum = "1ms"
        duration = "8ms"
        [[thread]]
        name = "1"
        weight = 2
        request = "2ms"
        program = ["run forever"]
        [[thread]]
        name = "2"
        weight = 2
        request = "1ms"
        start = "1ms"
        program = ["run forever"]
    "#;
    assert_eq!(slots(text), "12121212");
}

//= EVO:S3.eevdf
#[test]
fn stoica_1995_two_clients_have_the_published_virtual_times_tags_and_lags() {
    let mut cpu = cpu(Policy::Eevdf, 1);
    // The paper divides service by weight; here the reference weight 64 stands above it.
    let virtual_ms =
        |time: VirtualTime| time.since(VirtualTime::default()) as f64 / f64::from(1 << 20) / (64.0 * 1e6);
    let one = join(&mut cpu, at(0), 1, 2, Some(at(2)));
    let mut order = vec![chosen(cpu.resched(at(0), Stop::Nothing))];
    let mut clocks = vec![virtual_ms(cpu.virtual_clock())];
    let two = join(&mut cpu, at(1), 2, 2, Some(at(1)));
    let mut tags: [Vec<(f64, f64)>; 2] = Default::default();
    let mut lags = Vec::new();
    for ms in 1..=8 {
        order.push(chosen(cpu.resched(at(ms), Stop::Preempted)));
        clocks.push(virtual_ms(cpu.virtual_clock()));
        lags.push([one, two].map(|seat| cpu.lag(at(ms), seat).expect("seated").as_nanos()));
        for view in cpu.threads() {
            let tag = view.tag.expect("awake");
            let pair = (virtual_ms(tag.start), virtual_ms(tag.deadline));
            let of = &mut tags[view.thread.index() as usize - 1];
            if of.last() != Some(&pair) {
                of.push(pair);
            }
        }
    }
    assert_eq!(order, [1, 2, 1, 2, 1, 2, 1, 2, 1]);
    assert_eq!(clocks[..6], [0.0, 0.5, 0.75, 1.0, 1.25, 1.5]);
    assert_eq!(tags[0][..3], [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0)]);
    assert_eq!(tags[1][..4], [(0.5, 1.0), (1.0, 1.5), (1.5, 2.0), (2.0, 2.5)]);
    let half = MS as i64 / 2;
    assert_eq!(lags[1], [half, -half], "at 2 ms");
    assert_eq!(lags[2], [0, 0], "at 3 ms");
}

/// Six flows at time zero: A has half the weight and six unit jobs, the others a tenth each and one job.
fn six_flows(policy: &str) -> String {
    let mut text = format!("[machine]\npolicy = \"{policy}\"\nquantum = \"1ms\"\nduration = \"11ms\"\n");
    for name in ["A", "B", "C", "D", "E", "F"] {
        let (weight, work) = if name == "A" { (50, 6) } else { (10, 1) };
        text += &format!(
            "[[thread]]\nname = \"{name}\"\nweight = {weight}\nprogram = [\"run {work}ms\"]\ntimes = 1\n"
        );
    }
    slots(&text)
}

//= EVO:S3.eevdf ARCH:queue.order
#[test]
fn wfq_serves_the_heavy_flow_of_six_far_ahead() {
    assert_eq!(six_flows("wfq"), "AAAAABCDEFA");
}

//= EVO:S3.eevdf
#[test]
fn eevdf_serves_the_heavy_flow_of_six_in_turn_with_the_others() {
    assert_eq!(six_flows("eevdf"), "ABACADAEAFA");
}

//= EVO:S3.eevdf
#[test]
fn lags_of_three_equal_threads_sum_to_zero() {
    let mut cpu = cpu(Policy::Eevdf, 30);
    let seats = [0, 1, 2].map(|index| join(&mut cpu, at(0), index, 64, None));
    let lags = |cpu: &Cpu, now| seats.map(|seat| cpu.lag(now, seat).expect("seated").as_nanos() / MS as i64);
    assert_eq!(chosen(cpu.resched(at(0), Stop::Nothing)), 0);
    assert_eq!(chosen(cpu.resched(at(30), Stop::Preempted)), 1);
    assert_eq!(lags(&cpu, at(30)), [-20, 10, 10]);
    assert_eq!(chosen(cpu.resched(at(60), Stop::Preempted)), 2);
    assert_eq!(lags(&cpu, at(60)), [-10, -10, 20]);
}
