//! The program that is counted: `threads` threads of mixed weight, each decision charging one quantum.

use mainspring_abi::{CpuId, LatencyClass, Nanos, Policy, ProcessId, ThreadRef, Weight};
use mainspring_sched::{Affinity, Config, Cpu, Decision, Entity, Spec, Stop, Via};

/// How many decisions are counted.
pub const DECISIONS: u32 = 20_000;

/// Decisions before counting begins, so that the queue is in its steady state.
const WARM_UP: u32 = 20_000;

/// The policy of that name.
pub fn policy(name: &str) -> Option<Policy> {
    match name {
        "eevdf" => Some(Policy::Eevdf),
        "wfq" => Some(Policy::Wfq),
        _ => None,
    }
}

/// Sets the load up and runs the counted part.
pub fn measure(policy: Policy, threads: u32) {
    let mut cpu = Cpu::new(Config::new(CpuId::BOOT, policy));
    cpu.reserve(threads as usize).expect("the benchmark fits in memory");
    for index in 0..threads {
        let weight = [16, 32, 64, 64, 64, 128, 1024, 24][(index.wrapping_mul(0x9E37_79B9) >> 29) as usize];
        let spec = Spec {
            thread: ThreadRef::new(index, 0),
            process: ProcessId::new(0),
            weight: Weight::new(weight).expect("listed weights are valid"),
            class: LatencyClass::Normal,
            request: None,
            affinity: Affinity::Any,
        };
        let (_, _woken) = cpu.accept(Nanos::ZERO, Entity::new(spec), Via::Admit).expect("seats are reserved");
    }
    let mut now = Nanos::ZERO;
    let Decision::Run(_) = cpu.resched(now, Stop::Nothing) else { panic!("threads are ready") };
    now = run(&mut cpu, now, WARM_UP.max(threads.min(200_000)));
    counted(&mut cpu, now);
}

/// Valgrind counts from entry to exit of this function.
#[inline(never)]
#[unsafe(no_mangle)]
fn counted(cpu: &mut Cpu, now: Nanos) {
    std::hint::black_box(run(cpu, now, DECISIONS));
}

fn run(cpu: &mut Cpu, mut now: Nanos, decisions: u32) -> Nanos {
    for _ in 0..decisions {
        now += Nanos::from_millis(3);
        match cpu.resched(now, Stop::Preempted) {
            Decision::Run(dispatch) => {
                std::hint::black_box(dispatch);
            }
            Decision::Idle => unreachable!("every thread runs for ever"),
        }
    }
    now
}
