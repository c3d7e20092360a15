//! The ledger against a plain sum of the charges that exist.

use mainspring_kernel_core::ledger::{Charge, KINDS, Kind, Ledger, Limits, Pool, Refused};
use proptest::prelude::*;

const LIMITS: Limits = Limits([60, 30, 4, 8, 8, 4, 4]);
const LEDGERS: usize = 4;
const KIND: [Kind; KINDS] = [
    Kind::Frames,
    Kind::Mapped,
    Kind::Threads,
    Kind::Capabilities,
    Kind::EndpointPlaces,
    Kind::Sleeps,
    Kind::Objects,
];

#[derive(Clone, Copy, Debug)]
enum Step {
    Charge(usize, usize, u64),
    Grow(usize, u64),
    Shrink(usize, u64),
    Split(usize, u64),
    Merge(usize, usize),
    Drop(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..LEDGERS, 0..KINDS, 0_u64..40).prop_map(|(ledger, kind, n)| Step::Charge(ledger, kind, n)),
        (any::<usize>(), 0_u64..40).prop_map(|(at, n)| Step::Grow(at, n)),
        (any::<usize>(), 0_u64..40).prop_map(|(at, n)| Step::Shrink(at, n)),
        (any::<usize>(), 0_u64..40).prop_map(|(at, n)| Step::Split(at, n)),
        (any::<usize>(), any::<usize>()).prop_map(|(to, from)| Step::Merge(to, from)),
        any::<usize>().prop_map(Step::Drop),
    ]
}

proptest! {
    //= OWN:kernel.charge-all
    #[test]
    fn a_ledger_is_the_sum_of_its_charges_and_the_pool_is_never_overdrawn(
        frames in 0_u64..200,
        guaranteed in 0_u64..40,
        steps in prop::collection::vec(step(), 0..200),
    ) {
        let pool = Pool::new();
        pool.open(frames, LEDGERS as u64, guaranteed);
        let shared_at_first = pool.shared();
        prop_assert_eq!(shared_at_first + pool.guaranteed() * LEDGERS as u64, frames);
        let ledgers: Vec<_> = (0..LEDGERS).map(|_| Ledger::new(&pool, LIMITS)).collect();
        let mut charges: Vec<(usize, usize, Charge<'_>)> = Vec::new();
        for step in steps {
            let before: Vec<Vec<u64>> =
                ledgers.iter().map(|one| KIND.iter().map(|kind| one.amount(*kind)).collect()).collect();
            let left = pool.shared();
            let mut refused = None;
            match step {
                Step::Charge(at, kind, n) => match ledgers[at].charge(KIND[kind], n) {
                    Ok(charge) => charges.push((at, kind, charge)),
                    Err(why) => refused = Some((at, kind, n, why)),
                },
                Step::Grow(at, n) if !charges.is_empty() => {
                    let at = at % charges.len();
                    let (ledger, kind, charge) = &mut charges[at];
                    if let Err(why) = charge.grow(n) {
                        refused = Some((*ledger, *kind, n, why));
                    }
                }
                Step::Shrink(at, n) if !charges.is_empty() => {
                    let at = at % charges.len();
                    let less = n.min(charges[at].2.amount());
                    charges[at].2.shrink(less);
                }
                Step::Split(at, n) if !charges.is_empty() => {
                    let at = at % charges.len();
                    let (ledger, kind, charge) = &mut charges[at];
                    let part = charge.split(n.min(charge.amount()));
                    let new = (*ledger, *kind, part);
                    charges.push(new);
                }
                Step::Merge(to, from) if charges.len() > 1 => {
                    let (ledger, kind, other) = charges.swap_remove(from % charges.len());
                    let to = to % charges.len();
                    let fits = (charges[to].0, charges[to].1) == (ledger, kind);
                    let back = charges[to].2.merge(other);
                    prop_assert_eq!(back.is_none(), fits);
                    charges.extend(back.map(|other| (ledger, kind, other)));
                }
                Step::Drop(at) if !charges.is_empty() => drop(charges.swap_remove(at % charges.len())),
                _ => {}
            }
            if let Some((ledger, kind, n, why)) = refused {
                let after: Vec<Vec<u64>> =
                    ledgers.iter().map(|one| KIND.iter().map(|kind| one.amount(*kind)).collect()).collect();
                prop_assert_eq!(&after, &before, "a refusal changed something");
                prop_assert_eq!(pool.shared(), left);
                let has = before[ledger][kind];
                match why {
                    Refused::Limit => prop_assert!(has + n > LIMITS.0[kind]),
                    Refused::Exhausted => {
                        prop_assert_eq!(kind, Kind::Frames as usize);
                        // Nobody is refused what is guaranteed.
                        prop_assert!(has + n > pool.guaranteed());
                        prop_assert!(has + n - has.max(pool.guaranteed()) > left);
                    }
                }
            }
            let mut beyond = 0;
            for (at, ledger) in ledgers.iter().enumerate() {
                for (number, kind) in KIND.iter().enumerate() {
                    let sum: u64 =
                        charges.iter().filter(|(on, of, _)| (*on, *of) == (at, number)).map(|(_, _, one)| one.amount()).sum();
                    prop_assert_eq!(ledger.amount(*kind), sum);
                    prop_assert!(sum <= LIMITS.0[number]);
                }
                beyond += ledger.amount(Kind::Frames).saturating_sub(pool.guaranteed());
            }
            prop_assert_eq!(pool.shared() + beyond, shared_at_first);
        }
        drop(charges);
        prop_assert!(ledgers.iter().all(Ledger::is_empty));
        prop_assert_eq!(pool.shared(), shared_at_first);
    }

    //= OWN:kernel.charge-all
    #[test]
    fn whatever_others_have_taken_each_ledger_gets_what_is_guaranteed(
        frames in 1_u64..500,
        guaranteed in 0_u64..40,
        wishes in prop::collection::vec((0..LEDGERS, 1_u64..60), 0..60),
    ) {
        let pool = Pool::new();
        pool.open(frames, LEDGERS as u64 + 1, guaranteed);
        let greedy: Vec<_> = (0..LEDGERS).map(|_| Ledger::new(&pool, LIMITS)).collect();
        let charges: Vec<_> =
            wishes.iter().filter_map(|(at, n)| greedy[*at].charge(Kind::Frames, *n).ok()).collect();
        let late = Ledger::new(&pool, LIMITS);
        prop_assert!(late.charge(Kind::Frames, pool.guaranteed().min(LIMITS.0[0])).is_ok());
        drop(charges);
    }
}

//= OWN:kernel.charge-all
#[test]
fn threads_that_charge_and_refund_at_once_lose_and_make_nothing() {
    let pool = Pool::new();
    pool.open(100, 2, 10);
    let ledgers = [Ledger::new(&pool, LIMITS), Ledger::new(&pool, LIMITS)];
    std::thread::scope(|scope| {
        for number in 0_u64..4 {
            let ledger = &ledgers[number as usize % 2];
            scope.spawn(move || {
                for round in 0..2_000 {
                    let charge = ledger.charge(Kind::Frames, (number * 7 + round) % 50);
                    let second = ledger.charge(Kind::Frames, round % 20);
                    drop((charge, second));
                }
            });
        }
    });
    assert!(ledgers.iter().all(Ledger::is_empty));
    assert_eq!(pool.shared(), 80);
}
