//! The ledger against a plain sum of the charges that exist.

use mainspring_kernel_core::ledger::{Charge, KINDS, Kind, Ledger, Limits, Pools, Refused};
use proptest::prelude::*;

const LIMITS: Limits = Limits([60, 30, 4, 8, 8, 4, 4, 4]);
const LEDGERS: usize = 4;
/// Kinds of which every ledger is guaranteed some.
const POOLED: [usize; 3] = [Kind::Frames as usize, Kind::Threads as usize, Kind::Processes as usize];
const KIND: [Kind; KINDS] = [
    Kind::Frames,
    Kind::Mapped,
    Kind::Threads,
    Kind::Capabilities,
    Kind::EndpointPlaces,
    Kind::Sleeps,
    Kind::Objects,
    Kind::Processes,
];

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Charged without a value that stands for it.
    Add(usize, usize, u64),
    Charge(usize, usize, u64),
    Grow(usize, u64),
    Shrink(usize, u64),
    Split(usize, u64),
    Merge(usize, usize),
    Drop(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..LEDGERS, 0..KINDS, 0_u64..10).prop_map(|(ledger, kind, n)| Step::Add(ledger, kind, n)),
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
    fn a_ledger_is_the_sum_of_its_charges_and_no_pool_is_ever_overdrawn(
        frames in 0_u64..200,
        threads in 0_u64..12,
        processes in 0_u64..12,
        guaranteed in (0_u64..40, 0_u64..3, 0_u64..3),
        steps in prop::collection::vec(step(), 0..200),
    ) {
        let pools = Pools::new();
        pools.frames.open(frames, LEDGERS as u64, guaranteed.0);
        pools.threads.open(threads, LEDGERS as u64, guaranteed.1);
        pools.processes.open(processes, LEDGERS as u64, guaranteed.2);
        let of = |kind: usize| match kind {
            _ if kind == POOLED[0] => &pools.frames,
            _ if kind == POOLED[1] => &pools.threads,
            _ => &pools.processes,
        };
        let shared_at_first = POOLED.map(|kind| of(kind).shared());
        for (all, kind) in [frames, threads, processes].into_iter().zip(POOLED) {
            prop_assert_eq!(of(kind).shared() + of(kind).guaranteed() * LEDGERS as u64, all);
        }
        let ledgers: Vec<_> = (0..LEDGERS).map(|_| Ledger::new(&pools, LIMITS)).collect();
        let mut charges: Vec<(usize, usize, Charge<'_>)> = Vec::new();
        let mut added: Vec<(usize, usize, u64)> = Vec::new();
        for step in steps {
            let before: Vec<Vec<u64>> =
                ledgers.iter().map(|one| KIND.iter().map(|kind| one.amount(*kind)).collect()).collect();
            let left = POOLED.map(|kind| of(kind).shared());
            let mut refused = None;
            match step {
                Step::Add(at, kind, n) => match ledgers[at].add(KIND[kind], n) {
                    Ok(()) => added.push((at, kind, n)),
                    Err(why) => refused = Some((at, kind, n, why)),
                },
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
                Step::Drop(at) if at % 2 == 0 && !added.is_empty() => {
                    let (ledger, kind, n) = added.swap_remove(at / 2 % added.len());
                    ledgers[ledger].refund(KIND[kind], n);
                }
                Step::Drop(at) if !charges.is_empty() => drop(charges.swap_remove(at % charges.len())),
                _ => {}
            }
            if let Some((ledger, kind, n, why)) = refused {
                let after: Vec<Vec<u64>> =
                    ledgers.iter().map(|one| KIND.iter().map(|kind| one.amount(*kind)).collect()).collect();
                prop_assert_eq!(&after, &before, "a refusal changed something");
                prop_assert_eq!(POOLED.map(|kind| of(kind).shared()), left);
                let has = before[ledger][kind];
                match why {
                    Refused::Limit => prop_assert!(has + n > LIMITS.0[kind]),
                    Refused::Exhausted => {
                        prop_assert!(POOLED.contains(&kind));
                        let (guaranteed, left) = (of(kind).guaranteed(), of(kind).shared());
                        // No ledger is refused what it is guaranteed.
                        prop_assert!(has + n > guaranteed);
                        prop_assert!(has + n - has.max(guaranteed) > left);
                    }
                }
            }
            let mut beyond = [0; 3];
            for (at, ledger) in ledgers.iter().enumerate() {
                for (number, kind) in KIND.iter().enumerate() {
                    let charged = charges.iter().map(|(on, of, one)| (*on, *of, one.amount()));
                    let all = charged.chain(added.iter().copied());
                    let sum: u64 = all.filter(|(on, of, _)| (*on, *of) == (at, number)).map(|(_, _, n)| n).sum();
                    prop_assert_eq!(ledger.amount(*kind), sum);
                    prop_assert!(sum <= LIMITS.0[number]);
                }
                for (beyond, kind) in beyond.iter_mut().zip(POOLED) {
                    *beyond += ledger.amount(KIND[kind]).saturating_sub(of(kind).guaranteed());
                }
            }
            for ((kind, beyond), at_first) in POOLED.into_iter().zip(beyond).zip(shared_at_first) {
                prop_assert_eq!(of(kind).shared() + beyond, at_first);
            }
        }
        drop(charges);
        for (ledger, kind, n) in added {
            ledgers[ledger].refund(KIND[kind], n);
        }
        prop_assert!(ledgers.iter().all(Ledger::is_empty));
        prop_assert_eq!(POOLED.map(|kind| of(kind).shared()), shared_at_first);
    }

    //= OWN:kernel.charge-all
    #[test]
    fn whatever_others_have_taken_each_ledger_gets_what_is_guaranteed(
        frames in 1_u64..500,
        guaranteed in 0_u64..40,
        wishes in prop::collection::vec((0..LEDGERS, 1_u64..60), 0..60),
    ) {
        let pools = Pools::new();
        let pool = &pools.frames;
        pool.open(frames, LEDGERS as u64 + 1, guaranteed);
        let greedy: Vec<_> = (0..LEDGERS).map(|_| Ledger::new(&pools, LIMITS)).collect();
        let charges: Vec<_> =
            wishes.iter().filter_map(|(at, n)| greedy[*at].charge(Kind::Frames, *n).ok()).collect();
        let late = Ledger::new(&pools, LIMITS);
        prop_assert!(late.charge(Kind::Frames, pool.guaranteed().min(LIMITS.0[0])).is_ok());
        drop(charges);
    }
}

//= OWN:kernel.charge-all
#[test]
fn threads_that_charge_and_refund_at_once_lose_and_make_nothing() {
    let pools = Pools::new();
    pools.frames.open(100, 2, 10);
    let ledgers = [Ledger::new(&pools, LIMITS), Ledger::new(&pools, LIMITS)];
    std::thread::scope(|scope| {
        for number in 0_u64..4 {
            let ledger = &ledgers[number as usize % 2];
            scope.spawn(move || {
                for round in 0..2_000 {
                    let charge = ledger.charge(Kind::Frames, (number * 7 + round) % 50);
                    let second = ledger.charge(Kind::Frames, round % 20);
                    let third = ledger.charge(Kind::Mapped, round % 11);
                    drop((charge, second, third));
                }
            });
        }
    });
    assert!(ledgers.iter().all(Ledger::is_empty));
    assert_eq!(pools.frames.shared(), 80);
}
