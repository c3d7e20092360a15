//! Contexts that are made, used up, adjusted and ended as fast as that goes: their ledgers get no more time than they may hold.

use crate::rig::{Rig, ms, on};
use mainspring_abi::Nanos;
use mainspring_driver::contexts::{Grant, HomeCpu, RevokeReason};
use mainspring_driver::debts::{Debts, Owed};
use mainspring_driver::ledgers::{Amounts, Profile, Resource};
use mainspring_sched::context::ContextSpec;
use proptest::prelude::*;

const CPUS: usize = 2;
const LONGEST_MS: u64 = 40;

/// What a context grants: so many percent of what its family may have, in a period.
#[derive(Clone, Copy, Debug)]
struct Terms {
    percent: u64,
    period: Nanos,
}

impl Terms {
    fn budget(self, limit: u64) -> Nanos {
        Nanos::new(self.period.get() / 1000 * (limit / 1000) / 1000 * self.percent / 100)
    }
}

#[derive(Clone, Copy, Debug)]
struct Turn {
    /// Where the context is.
    cpu: usize,
    terms: Terms,
    /// How many ledgers are opened for it, one below the other. They are closed with it.
    ledgers: usize,
    /// What it is adjusted to halfway.
    then: Option<Terms>,
    /// How long it is used, in percent of its budget.
    used: u64,
}

fn turn() -> impl Strategy<Value = Turn> {
    let terms =
        || (20..=100u64, 1..=LONGEST_MS).prop_map(|(percent, period)| Terms { percent, period: ms(period) });
    let then = prop::option::weighted(0.3, terms());
    (0..CPUS, terms(), 0..3usize, then, 10..=150u64).prop_map(|(cpu, terms, ledgers, then, used)| Turn {
        cpu,
        terms,
        ledgers,
        then,
        used,
    })
}

/// What the contexts of a family used together, and in which time.
fn used_by(limit: u64, turns: &[Turn]) -> (Nanos, Nanos) {
    let mut rig = Rig::new(CPUS, 2 * CPUS);
    let no_more = |share| Profile { limits: Amounts::UNLIMITED.with(Resource::CpuShare, share) };
    let family = rig.contexts.ledgers.open(&no_more(limit), None).expect("room");
    let (began, mut used) = (rig.machine.now, Nanos::ZERO);
    for turn in turns {
        let mut ledgers = vec![family];
        for _ in 0..turn.ledgers {
            let below = rig.contexts.ledgers.open(&no_more(limit), ledgers.last().copied());
            ledgers.push(below.expect("room"));
        }
        let grant =
            Grant { session: None, process: None, ledger: ledgers.last().copied(), home: HomeCpu::Admitted };
        let budget = turn.terms.budget(limit);
        let spec = ContextSpec { cpus: on(&[turn.cpu]), ..ContextSpec::new(budget, turn.terms.period) };
        let half = Nanos::new(budget.get() * turn.used / 200);
        let now = rig.machine.now;
        if let Ok(who) = rig.contexts.grant(now, spec, grant) {
            let thread = rig.name(turn.cpu);
            rig.contexts.bind(&mut rig.machine, who, thread).expect("both are free");
            rig.advance(half);
            if let Some(then) = turn.then {
                let now = rig.machine.now;
                let terms = (then.budget(limit), then.period, then.period);
                let _it_may_be_too_much = rig.contexts.adjust_if_admitted(&mut rig.machine, now, who, terms);
            }
            rig.advance(half);
            let now = rig.machine.now;
            used += rig.contexts.info(&mut rig.machine, now, who).expect("it lives").usage.used;
            rig.contexts.revoke(&mut rig.machine, who, RevokeReason::Explicit).expect("it lives");
        } else {
            rig.advance(half);
        }
        for ledger in ledgers.drain(1..).rev() {
            rig.contexts.ledgers.close(ledger).expect("it holds nothing");
        }
        rig.verify();
    }
    (used, rig.machine.now - began)
}

/// A sum of debts that forgets nothing.
#[derive(Default)]
struct Exact(Vec<Owed>);

impl Exact {
    fn owes(&self, at: Nanos) -> u64 {
        self.0.iter().filter(|owed| owed.until > at).map(|owed| owed.share).sum()
    }

    fn room_from(&self, room: u64, now: Nanos) -> Nanos {
        let ends = self.0.iter().map(|owed| owed.until).filter(|until| *until > now);
        ends.chain([now]).filter(|at| self.owes(*at) <= room).min().expect("some day nothing is owed")
    }
}

proptest! {
    /// What a context has used occupies its share of the ledger for a period. So the sum over any time is within the limit, but for
    /// the periods that had begun before its end.
    //= ARCH:ctx.create-bind
    #[test]
    fn a_family_gets_no_more_than_its_ledger_allows_however_its_contexts_come_and_go(
        limit in 50_000_000..400_000_000u64,
        turns in prop::collection::vec(turn(), 1..60),
    ) {
        let (used, took) = used_by(limit, &turns);
        let most = u128::from(limit) * u128::from((took + ms(LONGEST_MS)).get()) / 1_000_000_000;
        // Each turn may round its share down.
        prop_assert!(u128::from(used.get()) <= most + turns.len() as u128, "{used} of {most} ns in {took}");
    }

    /// An account owes no less than the sum of its debts, and exactly that as long as it can tell them apart.
    #[test]
    fn debts_that_are_put_together_are_over_no_sooner(
        debts in prop::collection::vec((1..50u64, 1..100u64), 1..12),
        room in 0..100u64,
        now in 0..100u64,
    ) {
        let (mut list, mut exact) = (Debts::NONE, Exact::default());
        for (share, until) in &debts {
            let owed = Owed { share: *share, until: Nanos::new(*until) };
            list.add(owed);
            exact.0.push(owed);
        }
        let now = Nanos::new(now);
        let (from, least) = (list.room_from(room, now), exact.room_from(room, now));
        prop_assert!(from >= least, "{from} is before {least}");
        let last = exact.0.iter().map(|owed| owed.until).max().expect("there is one");
        prop_assert!(from <= last.max(now));
        if debts.len() <= 4 {
            prop_assert_eq!(from, least);
        }
    }
}
