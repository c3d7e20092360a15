//! The checkers are checked: a CPU that lies to them is found out.

mod common;

use common::{watched, workload};
use mainspring_abi::{CpuId, Nanos, ThreadRef};
use mainspring_record::check::{Checks, Wide, all};
use mainspring_record::watch::Watch;
use mainspring_sched::flight::{EventRef, Outcome};
use mainspring_sched::{Cpu, Decision, IdleTick};

/// Some of everything, on two CPUs.
const BUSY: &str = r#"
    [machine]
    cpus = 2
    duration = "60ms"
    [[thread]]
    name = "hog"
    count = 2
    program = ["run forever"]
    [[thread]]
    name = "napper"
    latency = "interactive"
    program = ["run 300us", "sleep 1ms"]
    [[thread]]
    name = "client"
    program = ["run 200us", "call port"]
    [[thread]]
    name = "server"
    program = ["recv port", "run 100us", "reply"]
    [[thread]]
    name = "parker"
    program = ["park", "run 50us"]
    [[thread]]
    name = "waker"
    program = ["run 400us", "unpark parker", "sleep 2ms"]
    [[thread]]
    name = "brief"
    count = 3
    start = "3ms..30ms"
    weight = 200
    program = ["run 700us", "yield"]
    times = 3
"#;

/// Passes on what it sees, until `lie` changes an outcome.
struct Liar<L> {
    checks: Checks<Wide>,
    lie: L,
    lied: bool,
}

impl<L: FnMut(&Cpu, &mut Outcome) -> bool> Watch for Liar<L> {
    fn before(&mut self, now: Nanos, cpu: &Cpu, event: EventRef<'_>) {
        self.checks.before(now, cpu, event);
    }

    fn after(&mut self, now: Nanos, cpu: &Cpu, mut outcome: Outcome) -> Result<(), String> {
        self.lied |= !self.lied && (self.lie)(cpu, &mut outcome);
        self.checks.after(now, cpu, outcome)
    }

    fn end(&mut self, now: Nanos, cpus: &[&Cpu]) -> Result<(), (CpuId, String)> {
        self.checks.end(now, cpus)
    }
}

/// What the checkers say when `lie` has its way once.
fn found_out(lie: impl FnMut(&Cpu, &mut Outcome) -> bool) -> String {
    let workload = workload(BUSY);
    let mut liar = Liar { checks: all(&workload), lie, lied: false };
    let result = watched(&workload, 1, &mut liar);
    assert!(liar.lied, "there was an occasion to lie");
    result.expect_err("the lie was not noticed")
}

#[test]
fn an_honest_run_passes() {
    let workload = workload(BUSY);
    watched(&workload, 1, &mut all(&workload)).unwrap_or_else(|what| panic!("{what}"));
}

#[test]
fn running_somebody_else_is_noticed() {
    let what = found_out(|cpu, outcome| {
        let Outcome::Decided(Decision::Run(run)) = outcome else { return false };
        let Some(other) = cpu.queue().last().map(|view| view.seat) else { return false };
        (run.seat, run.thread) = (other, other.thread());
        true
    });
    assert!(what.contains("comes first") || what.contains("has the CPU until"), "{what}");
}

#[test]
fn a_longer_slice_is_noticed() {
    let what = found_out(|_, outcome| {
        let Outcome::Decided(Decision::Run(run)) = outcome else { return false };
        run.slice_end += Nanos::new(1);
        true
    });
    assert!(what.contains("has the CPU until"), "{what}");
}

#[test]
fn idling_with_work_queued_is_noticed() {
    let what = found_out(|cpu, outcome| {
        let worth = matches!(outcome, Outcome::Decided(Decision::Run(_))) && cpu.queued() > 0;
        if worth {
            *outcome = Outcome::Decided(Decision::Idle);
        }
        worth
    });
    assert!(what.contains("idle with work queued"), "{what}");
}

#[test]
fn a_wakeup_that_should_preempt_and_does_not_is_noticed() {
    let what = found_out(|cpu, outcome| match outcome {
        Outcome::Expired(Some(_), reschedule) if *reschedule && cpu.current().is_some() => {
            *reschedule = false;
            true
        }
        _ => false,
    });
    assert!(what.contains("does not preempt"), "{what}");
}

#[test]
fn an_early_timeout_is_noticed() {
    let what = found_out(|_, outcome| match outcome {
        Outcome::Expired(Some((_, deadline)), _) => {
            *deadline = *deadline - Nanos::new(1);
            true
        }
        _ => false,
    });
    assert!(what.contains("the first is"), "{what}");
}

#[test]
fn an_idle_cpu_that_sleeps_too_long_is_noticed() {
    let what = found_out(|_, outcome| match outcome {
        Outcome::Idle(IdleTick::Suppressed { wake_at }) => {
            *wake_at += Nanos::new(1);
            true
        }
        _ => false,
    });
    assert!(what.contains("the idle tick became"), "{what}");
}

#[test]
fn a_thread_in_the_wrong_seat_is_noticed() {
    let what = found_out(|_, outcome| match outcome {
        Outcome::Seated(slot, _) => {
            *slot += 1;
            true
        }
        _ => false,
    });
    assert!(what.contains("by the model"), "{what}");
}

#[test]
fn somebody_else_leaving_is_noticed() {
    let what = found_out(|_, outcome| match outcome {
        Outcome::Left(Some((thread, _))) => {
            *thread = ThreadRef::new(thread.index(), thread.generation() + 1);
            true
        }
        _ => false,
    });
    assert!(!what.is_empty());
}

#[test]
fn a_refusal_without_a_reason_is_noticed() {
    let what = found_out(|_, outcome| match outcome {
        Outcome::Ready(..) => {
            *outcome = Outcome::BadSeat;
            true
        }
        _ => false,
    });
    assert!(what.contains("by the model") || what.contains("refused"), "{what}");
}
