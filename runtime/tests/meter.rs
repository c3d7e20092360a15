//! The meter of a `#[budgeted]` function against a plain sum.

use mainspring::meter::{CutPieces as _, Meter, Purse, TakePieces as _};
use proptest::prelude::*;
use std::cell::Cell;

/// Adds up what it is paid.
#[derive(Clone, Copy)]
struct Sum<'a>(&'a Cell<u64>);

impl Purse for Sum<'_> {
    fn pay(self, ops: u32) {
        self.0.set(self.0.get() + u64::from(ops));
    }

    fn pay_rarely(self, ops: u32) {
        self.pay(ops);
    }
}

/// What a function does, as the macro puts it.
#[derive(Clone, Debug)]
enum Step {
    /// A loop of so many rounds, with so many calls in each.
    Loop(u32, u32),
    /// A round of a loop that has others in it.
    Around,
    /// A call without the context.
    Add,
    /// A call with it.
    Call,
    /// A method of the context.
    Method,
    /// A loop over a range.
    Range(u32),
    /// A loop over items that do not know how many they are.
    Items(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..2000u32, 0..3u32).prop_map(|(rounds, calls)| Step::Loop(rounds, calls)),
        Just(Step::Around),
        Just(Step::Add),
        Just(Step::Call),
        Just(Step::Method),
        prop_oneof![0..20u32, 500..530u32, 1000..3000u32].prop_map(Step::Range),
        prop_oneof![0..20u32, 500..530u32, 1000..3000u32].prop_map(Step::Items),
    ]
}

/// Does the step and returns the ops that it costs.
fn run(meter: &Meter<Sum<'_>>, step: &Step) -> u64 {
    match *step {
        Step::Loop(rounds, calls) => {
            for _ in 0..rounds {
                (0..calls).for_each(|_| meter.add());
                meter.count();
            }
            u64::from(rounds) * u64::from(1 + calls)
        }
        Step::Around => {
            meter.count_around();
            1
        }
        Step::Add => {
            meter.add();
            1
        }
        Step::Call => {
            meter.call_with(());
            1
        }
        Step::Method => {
            meter.hand_on(());
            0
        }
        Step::Range(n) => {
            let mut items = 0;
            if meter.takes(&(0..n)) {
                items = n;
            } else {
                let mut pieces = meter.items(0..n);
                while !pieces.is_over() {
                    items += pieces.piece().count() as u32;
                }
            }
            assert_eq!(items, n);
            n.into()
        }
        Step::Items(n) => {
            let unknown = (0..n).filter(|_| true);
            let mut items = 0;
            if n > 0 {
                assert!(!meter.takes(&unknown), "nobody knows how many they are");
            }
            let mut pieces = meter.items(unknown);
            while !pieces.is_over() {
                items += (&mut pieces).piece().fold(0, |count, _| count + 1);
            }
            assert_eq!(items, n);
            n.into()
        }
    }
}

proptest! {
    //= SCHED:3.3.1 SCHED:4.1.2
    #[test]
    fn everything_is_paid_once_and_soon(steps in prop::collection::vec(step(), 0..60)) {
        let paid = Cell::new(0);
        let meter = Meter::new(Sum(&paid));
        let (mut used, mut adds) = (0, 0);
        for step in &steps {
            used += run(&meter, step);
            prop_assert!(paid.get() <= used, "{} paid for {used}", paid.get());
            let unpaid = used - paid.get();
            // Calls without the context wait for whatever comes next.
            adds = if matches!(step, Step::Add) { adds + 1 } else { adds };
            match step {
                Step::Call => prop_assert!(unpaid < 64, "{unpaid} ops are unpaid at a call"),
                Step::Method => prop_assert_eq!(unpaid, 0),
                _ => prop_assert!(unpaid <= 512 + adds, "{unpaid} ops are unpaid"),
            }
        }
        meter.settle();
        prop_assert_eq!(paid.get(), used);
    }
}
