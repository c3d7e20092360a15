//! Random workloads, each with every checker on, recorded, replayed, and run twice.
//!
//! A failure names its seed; `MAINSPRING_SEED=N` runs that one alone and prints its workload. `make sweeps` runs all seeds,
//! ten times as many as a usual run.

mod common;

use common::generate::{Kind, draw, draw_hogs};
use common::rational::Rational;
use common::seeds::{SEED, Sweep, on_all_cores};
use common::{Checked, checked_in};
use mainspring_abi::Policy;
use mainspring_record::check::{Bound, Number, Setting, Wide};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the workloads of `seeds`; panics at the first that fails, with how to run it alone.
fn sweep<N: Number>(test: &str, seeds: Range<u64>, kind: Kind, bound: Bound) {
    let Sweep { seeds, alone } = Sweep::of(seeds);
    let (mut events, mut decisions, mut most) = (0, 0, 0.0f64);
    let mut failures = Vec::new();
    let outcomes = on_all_cores(seeds, |seed| {
        let workload = draw(seed, kind);
        if alone {
            eprintln!("{workload:#?}");
        }
        let setting = Setting::of(&workload).with_bound(bound);
        let quantum = setting.quantum.get() as f64 * f64::from(1 << 20);
        let outcome = catch_unwind(AssertUnwindSafe(|| checked_in::<N>(&workload, seed, setting)));
        let checked = outcome.unwrap_or_else(|_| Err("it panicked".to_owned()));
        let told = checked.map(|Checked { report, checks, .. }| {
            let (owed, ahead) =
                checks.fairness().map_or((0, 0), mainspring_record::check::fairness::Fairness::extremes);
            (checks.events(), report.decisions, owed.max(-ahead) as f64 / quantum)
        });
        (seed, told)
    });
    for (seed, told) in outcomes {
        match told {
            Ok((seen, made, lag)) => {
                events += seen;
                decisions += made;
                most = most.max(lag);
            }
            Err(what) => {
                failures.push(format!(
                    "seed {seed}: {what}\n  alone: {SEED}={seed} cargo test -p mainspring-sim --test random {test}"
                ));
            }
        }
    }
    eprintln!("{test}: {events} events, {decisions} decisions, greatest |lag| {most:.4} quanta");
    assert!(
        failures.is_empty(),
        "{} failures, the first:\n{}",
        failures.len(),
        failures[..failures.len().min(5)].join("\n")
    );
}

//= EVO:S3.eevdf ARCH:inv.one-owner ARCH:inv.queue-once ARCH:inv.queue-order ARCH:inv.migration EVO:S2.coverage
#[test]
fn eevdf_keeps_every_lag_below_one_quantum() {
    let kind = Kind { policy: Policy::Eevdf, faults: false, calls: false, quanta: 30 };
    sweep::<Wide>("eevdf_keeps_every_lag_below_one_quantum", 0..10_000, kind, Bound::Quantum);
}

//= EVO:gate.fairness
#[test]
fn direct_handoffs_add_at_most_the_slice_that_was_handed_over() {
    let kind = Kind { policy: Policy::Eevdf, faults: false, calls: true, quanta: 30 };
    let test = "direct_handoffs_add_at_most_the_slice_that_was_handed_over";
    sweep::<Wide>(test, 200_000..203_000, kind, Bound::Handoffs);
}

//= EVO:S3.eevdf ARCH:queue.order
#[test]
fn wfq_keeps_every_lag_within_its_stated_bound() {
    let kind = Kind { policy: Policy::Wfq, faults: false, calls: false, quanta: 30 };
    sweep::<Wide>("wfq_keeps_every_lag_within_its_stated_bound", 0..3_000, kind, Bound::Wfq);
}

//= ARCH:vfinish.derive ARCH:weight.enqueued ARCH:migr.vruntime ARCH:steal.lowest EVO:S3.weights
#[test]
fn the_core_decides_as_exact_rational_arithmetic_does() {
    for policy in [Policy::Eevdf, Policy::Wfq] {
        let kind = Kind { policy, faults: false, calls: true, quanta: 15 };
        sweep::<Rational>(
            "the_core_decides_as_exact_rational_arithmetic_does",
            50_000..50_200,
            kind,
            Bound::None,
        );
    }
}

//= EVO:S1.single-owner EVO:gate.accounting ARCH:tickless.restore TICK:L1.contention
#[test]
fn faults_break_no_invariant() {
    for policy in [Policy::Eevdf, Policy::Wfq] {
        let kind = Kind { policy, faults: true, calls: true, quanta: 30 };
        sweep::<Wide>("faults_break_no_invariant", 100_000..101_500, kind, Bound::None);
    }
}

//= ARCH:inv.queue-order
#[test]
fn exact_ties_go_to_the_later_start_and_then_to_the_lower_index() {
    for policy in [Policy::Eevdf, Policy::Wfq] {
        for seed in 0..150 {
            let workload = draw_hogs(seed, policy);
            let setting = Setting { strict: true, ..Setting::of(&workload) };
            if let Err(what) = checked_in::<Rational>(&workload, seed, setting) {
                panic!("{policy:?}, seed {seed}: {what}");
            }
        }
    }
}
