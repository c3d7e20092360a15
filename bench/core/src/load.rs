//! The program that is counted: threads that run for ever, each decision charging one quantum.

use mainspring_abi::{CpuId, LatencyClass, Nanos, Policy, ProcessId, ThreadRef, Weight};
use mainspring_sched::{Affinity, Config, Cpu, Decision, Entity, Spec, Stop, Via};
use std::fmt;

/// How many decisions are counted.
pub const DECISIONS: u32 = 20_000;

/// Decisions before counting begins, so that the queue is in its steady state.
const WARM_UP: u32 = 20_000;

/// How weights are spread over the threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weights {
    /// Six weights, from 16 to 1024.
    Mixed,
    /// All alike.
    Equal,
    /// As many as there can be: more than the queue has span buckets for. Shows the general path; no limit is set for it.
    Distinct,
}

impl Weights {
    fn of(self, index: u32) -> Weight {
        let scattered = index.wrapping_mul(0x9E37_79B9);
        let weight = match self {
            Self::Mixed => [16, 32, 64, 64, 64, 128, 1024, 24][(scattered >> 29) as usize],
            Self::Equal => 64,
            Self::Distinct => u64::from(scattered >> 16).max(16),
        };
        Weight::new(weight).expect("these weights are valid")
    }

    fn name(self) -> &'static str {
        match self {
            Self::Mixed => "mixed",
            Self::Equal => "equal",
            Self::Distinct => "distinct",
        }
    }
}

/// One column of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Case {
    /// How the CPU orders its threads.
    pub policy: Policy,
    /// Their weights.
    pub weights: Weights,
}

impl Case {
    /// Every column.
    pub const ALL: [Self; 6] = [
        Self { policy: Policy::Eevdf, weights: Weights::Mixed },
        Self { policy: Policy::Wfq, weights: Weights::Mixed },
        Self { policy: Policy::Eevdf, weights: Weights::Equal },
        Self { policy: Policy::Wfq, weights: Weights::Equal },
        Self { policy: Policy::Eevdf, weights: Weights::Distinct },
        Self { policy: Policy::Wfq, weights: Weights::Distinct },
    ];

    /// The case that the command line names so.
    pub fn named(policy: &str, weights: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|case| case.names() == [policy, weights])
    }

    /// Policy and weights, as the command line names them.
    pub fn names(self) -> [&'static str; 2] {
        let policy = match self.policy {
            Policy::Eevdf => "eevdf",
            Policy::Wfq => "wfq",
        };
        [policy, self.weights.name()]
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [policy, weights] = self.names();
        write!(f, "{policy} {weights}")
    }
}

/// Sets the load up and runs the counted part.
pub fn measure(case: Case, threads: u32) {
    let mut cpu = Cpu::new(Config::new(CpuId::BOOT, case.policy));
    cpu.reserve(threads as usize).expect("the benchmark fits in memory");
    for index in 0..threads {
        let spec = Spec {
            thread: ThreadRef::new(index, 0),
            process: ProcessId::new(0),
            weight: case.weights.of(index),
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
    assert!(cpu.current().is_some(), "every thread runs for ever");
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
        // Looked at where it lies: a copy would be counted as if it were the scheduler's work.
        std::hint::black_box(&cpu.resched(now, Stop::Preempted));
    }
    now
}
