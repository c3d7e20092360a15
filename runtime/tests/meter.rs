//! The meter of a `#[budgeted]` function against a plain sum.

use mainspring::meter::{CutPieces as _, Meter, PlannedStrides as _, Purse, TakePieces as _};
use proptest::prelude::*;
use std::cell::Cell;

/// Adds up what it is paid.
#[derive(Clone, Copy)]
struct Sum<'a>(&'a Cell<u64>);

impl Purse for Sum<'_> {
    fn pays(self, ops: u32) -> bool {
        self.0.set(self.0.get() + u64::from(ops));
        true
    }

    fn check(self, _: u32) {
        unreachable!("it pays for everything");
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
    /// A round of a loop that is counted by a call with it.
    RoundWithCall,
    /// A method of the context.
    Method,
    /// A loop over a range.
    Range(u32),
    /// A round of a loop that is counted by a loop over a range.
    RoundWithRange(u32),
    /// A counter that goes from a number to another by steps.
    Strides(u32, u32, u32),
    /// A loop over items that do not know how many they are.
    Items(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..2000u32, 0..3u32).prop_map(|(rounds, calls)| Step::Loop(rounds, calls)),
        Just(Step::Around),
        Just(Step::Add),
        Just(Step::Call),
        Just(Step::RoundWithCall),
        Just(Step::Method),
        prop_oneof![0..20u32, 500..530u32, 1000..3000u32].prop_map(Step::Range),
        prop_oneof![0..20u32, 500..530u32, 1000..3000u32].prop_map(Step::RoundWithRange),
        (any::<u32>(), 0..3000u32, prop_oneof![0..5u32, any::<u32>()])
            .prop_map(|(begin, rounds, step)| Step::Strides(begin, rounds, step)),
        prop_oneof![0..20u32, 500..530u32, 1000..3000u32].prop_map(Step::Items),
    ]
}

fn in_pieces(meter: &Meter<Sum<'_>>, n: u32) {
    let (mut pieces, mut items) = (meter.items(0..n), 0);
    while !pieces.is_over() {
        items += pieces.piece().count() as u32;
    }
    assert_eq!(items, n);
}

/// At most so many rounds of a loop that ends where its counter gets to, or would pass the end of its type.
fn strides(meter: &Meter<Sum<'_>>, begin: u32, rounds: u32, step: u32) -> u64 {
    let (mut counter, mut gone) = (begin, 0);
    let end = begin.saturating_add(step.saturating_mul(rounds));
    while let Some(piece) = meter.strides(&counter, &step).piece() {
        let before = gone;
        while counter < piece.bound(end) {
            counter += step;
            gone += 1;
        }
        assert!(gone - before <= 512, "{} rounds in a piece", gone - before);
        if piece.is_over(meter, &counter, &step) {
            assert!(counter >= end);
            assert_eq!(gone, u64::from(end - begin).div_ceil(u64::from(step)));
            return gone;
        }
    }
    let room = u64::from(u32::MAX - counter);
    assert!(step == 0 || room < 512 * u64::from(step), "steps of {step} from {counter} have room");
    gone
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
        Step::RoundWithCall => {
            meter.call_with_in_round(());
            2
        }
        Step::Method => {
            meter.hand_on(());
            0
        }
        Step::Range(n) => {
            if !meter.takes(&(0..n)) {
                in_pieces(meter, n);
            }
            n.into()
        }
        Step::RoundWithRange(n) => {
            if !meter.takes_with_round(&(0..n)) {
                meter.count_around();
                in_pieces(meter, n);
            }
            u64::from(n) + 1
        }
        Step::Strides(begin, rounds, step) => strides(meter, begin, rounds, step),
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
                Step::Call | Step::RoundWithCall => prop_assert!(unpaid < 64, "{unpaid} ops are unpaid at a call"),
                Step::Method => prop_assert_eq!(unpaid, 0),
                _ => prop_assert!(unpaid <= 512 + adds, "{unpaid} ops are unpaid"),
            }
        }
        meter.settle();
        prop_assert_eq!(paid.get(), used);
    }
}
