//! Quotas: who has which, and that no task gets away from its own.

use super::live;
use super::scope::{OpenNursery, with_open_nursery};
use crate::rng::Rng;
use crate::verdict::violation;
use crate::world::Me;
use mainspring::{Budget, Component, Cx, Quota, QuotaError, Rate, Runtime};
use std::time::Duration;

/// What the host has made. Periods are short, so that no task waits long.
pub fn quotas(runtime: &Runtime, rng: &mut Rng) -> Vec<Quota> {
    (0..2)
        .map(|_| {
            let mut rate = Rate::per(Duration::from_micros(rng.pick(&[200, 1000])));
            for component in Component::ALL {
                if rng.one_in(2) {
                    let burst = if component == Component::Memory { 8192 } else { rng.pick(&[3, 40]) };
                    rate = rate.limit(component, 400).burst(component, burst);
                }
            }
            match runtime.quota(rate) {
                Ok(quota) => quota,
                Err(error) => violation(format_args!("a quota is refused: {error}")),
            }
        })
        .collect()
}

/// Children under a quota, or under a part of the one that the task has.
pub fn quota(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let own = cx.quota();
    if own.is_some() != me.has_quota.get() {
        violation(format_args!("a task has {own:?}; bound: {}", me.has_quota.get()));
    }
    let other = me.world.quotas[rng.below(2) as usize].clone();
    let part = own.as_ref().filter(|_| rng.one_in(2)).map(|own| own.share(a_part(rng)));
    let quota = match (&own, part) {
        (Some(_), Some(Ok(part))) => part,
        (Some(own), Some(Err(QuotaError::Exceeds { .. }))) => own.clone(),
        (Some(_), Some(Err(error))) => violation(format_args!("a part is refused: {error}")),
        _ => other,
    };
    with_open_nursery(cx, me, rng, |cx, open: &OpenNursery<'_, '_, '_>, rng| {
        let bound = open.bind_quota(&quota);
        let several = me.world.setting.runtimes > 1;
        match (&bound, &own) {
            (Ok(()), None) | (Err(QuotaError::NotBelow), Some(_)) => {}
            // A part of its own, or the same by chance.
            (Ok(()), Some(_)) => {}
            (Err(QuotaError::OtherRuntime), _) if several => {}
            (Err(error), _) => violation(format_args!("a quota is not bound: {error}")),
        }
        let has_quota = bound.is_ok() || own.is_some();
        for _ in 0..1 + rng.below(2) {
            let seed = rng.draw();
            let budget = Budget { ops: 300, channel_ops: 20, memory: 5000, syscalls: 6, spawn_count: 0 };
            open.spawn(cx, budget, move |cx, me| {
                if cx.quota().is_some() != has_quota {
                    violation("a child does not have the quota of its nursery");
                }
                me.has_quota.set(has_quota);
                let mut rng = Rng::new(seed);
                let acts = rng.below(5);
                live(cx, me, &mut rng, acts);
            });
        }
        if rng.one_in(6) {
            open.cancel();
        }
    });
    me.look(cx);
}

fn a_part(rng: &mut Rng) -> Rate {
    let mut rate = Rate::per(Duration::from_secs(1));
    for component in Component::ALL {
        rate = rate.limit(component, rng.pick(&[1, 100])).burst(component, rng.pick(&[1, 4, 4000]));
    }
    rate
}
