//! Random charges and refunds over a tree of ledgers, against a model that adds everything up anew each time.

use mainspring_driver::ledgers::{Amounts, LedgerError, LedgerRef, Ledgers, Profile, Resource};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Open {
        parent: Option<usize>,
        limits: Vec<u64>,
    },
    Charge {
        ledger: usize,
        resource: usize,
        amount: u64,
    },
    /// Gives back the charge with this number.
    Refund {
        charge: usize,
    },
    Close {
        ledger: usize,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let limits = prop::collection::vec(0..20_u64, Resource::ALL.len());
    let step = prop_oneof![
        2 => (prop::option::of(0..6_usize), limits).prop_map(|(parent, limits)| Step::Open { parent, limits }),
        6 => (0..6_usize, 0..Resource::ALL.len(), 0..12_u64)
            .prop_map(|(ledger, resource, amount)| Step::Charge { ledger, resource, amount }),
        3 => any::<usize>().prop_map(|charge| Step::Refund { charge }),
        1 => (0..6_usize).prop_map(|ledger| Step::Close { ledger }),
    ];
    prop::collection::vec(step, 1..120)
}

/// A ledger that is open, as the model knows it.
struct Open {
    name: LedgerRef,
    parent: Option<LedgerRef>,
    limits: Amounts,
}

#[derive(Default)]
struct Model {
    open: Vec<Open>,
    charges: Vec<(LedgerRef, Resource, u64)>,
}

impl Model {
    fn line(&self, from: LedgerRef) -> Vec<LedgerRef> {
        let mut line = vec![from];
        while let Some(parent) =
            self.open.iter().find(|open| Some(&open.name) == line.last()).and_then(|open| open.parent)
        {
            line.push(parent);
        }
        line
    }

    /// What `ledger` holds: its own charges and the charges of every ledger below it.
    fn held(&self, ledger: LedgerRef, resource: Resource) -> u64 {
        let counts = |(of, what, _): &&(LedgerRef, Resource, u64)| {
            *what == resource && self.line(*of).contains(&ledger)
        };
        self.charges.iter().filter(counts).map(|(_, _, amount)| amount).sum()
    }

    fn fits(&self, ledger: LedgerRef, resource: Resource, amount: u64) -> bool {
        self.line(ledger).into_iter().all(|one| {
            let open = self.open.iter().find(|open| open.name == one).expect("it is open");
            amount == 0 || self.held(one, resource) + amount <= open.limits.get(resource)
        })
    }
}

fn check(script: Vec<Step>) {
    let mut ledgers = Ledgers::new(6).expect("six fit");
    let mut model = Model::default();
    let mut names: Vec<LedgerRef> = Vec::new();
    for step in script {
        match step {
            Step::Open { parent, limits } => {
                let parent = parent.and_then(|parent| names.get(parent).copied());
                let profile = Resource::ALL
                    .into_iter()
                    .zip(limits)
                    .fold(Amounts::NONE, |sum, (what, limit)| sum.with(what, limit));
                let live = parent.is_none_or(|parent| model.open.iter().any(|open| open.name == parent));
                let opened = ledgers.open(&Profile { limits: profile }, parent);
                assert_eq!(opened.is_ok(), live && model.open.len() < 6);
                if let Ok(name) = opened {
                    assert!(!names.contains(&name), "a name is given once");
                    names.push(name);
                    model.open.push(Open { name, parent, limits: profile });
                }
            }
            Step::Charge { ledger, resource, amount } => {
                let Some(name) = names.get(ledger).copied() else { continue };
                let what = Resource::ALL[resource];
                let charged = ledgers.charge(name, &Amounts::NONE.with(what, amount));
                if model.open.iter().any(|open| open.name == name) {
                    assert_eq!(charged.is_ok(), model.fits(name, what, amount));
                } else {
                    assert_eq!(charged, Err(LedgerError::Stale(name)));
                }
                if charged.is_ok() && amount != 0 {
                    model.charges.push((name, what, amount));
                }
            }
            Step::Refund { charge } => {
                if model.charges.is_empty() {
                    continue;
                }
                let (name, what, amount) = model.charges.swap_remove(charge % model.charges.len());
                ledgers.refund(name, &Amounts::NONE.with(what, amount));
            }
            Step::Close { ledger } => {
                let Some(name) = names.get(ledger).copied() else { continue };
                let open = model.open.iter().any(|open| open.name == name);
                let used = model.charges.iter().any(|(of, ..)| *of == name)
                    || model.open.iter().any(|open| open.parent == Some(name));
                assert_eq!(ledgers.close(name).is_ok(), open && !used);
                if open && !used {
                    model.open.retain(|open| open.name != name);
                }
            }
        }
        for open in &model.open {
            let (held, limits) = ledgers.info(open.name).expect("it is open");
            assert_eq!(limits, open.limits);
            for what in Resource::ALL {
                assert_eq!(held.get(what), model.held(open.name, what));
                assert!(held.get(what) <= limits.get(what));
            }
        }
    }
}

proptest! {
    #[test]
    fn a_ledger_holds_the_sum_of_what_is_charged_below_it_and_never_more_than_its_limit(script in steps()) {
        check(script);
    }
}
