//! Fork and join.

use super::alone::ops;
use super::live;
use crate::ledger::{Kind, Tracked};
use crate::rng::Rng;
use crate::verdict::violation;
use crate::world::{Me, Origin};
use mainspring::{Cost, Cx};

/// What one half of a join does, wherever it runs: it has its task's authority, no more and no less.
fn half(cx: &Cx, origin: &Origin<'_>, mut rng: Rng, levels: u64, captured: Tracked) -> Tracked {
    let me = Me::half(cx, origin);
    captured.check();
    if levels > 0 && rng.one_in(2) {
        fork(cx, &me, &mut rng, levels - 1);
    }
    let acts = rng.below(4);
    live(cx, &me, &mut rng, acts);
    captured.check();
    captured
}

fn fork(cx: &Cx, me: &Me<'_>, rng: &mut Rng, levels: u64) {
    let price = Cost::iterations(2);
    if me.depth >= 6 || me.cleans_up.get() || !me.affords(cx, ops(200)) {
        return;
    }
    me.world.count_act();
    me.has_joined.set(true);
    let (a, b) = (rng.fork(), rng.fork());
    let (first, second) = (Tracked::new(Kind::Capture), Tracked::new(Kind::Capture));
    let slots = (first.slot(), second.slot());
    let allowance = me.allowance(cx);
    let (one, two) = (me.origin(&allowance), me.origin(&allowance));
    me.may_cost(price);
    let (x, y) =
        cx.join(move |cx| half(cx, &one, a, levels, first), move |cx| half(cx, &two, b, levels, second));
    me.did_cost(price);
    me.look(cx);
    x.check();
    y.check();
    if (x.slot(), y.slot()) != slots {
        violation("the halves of a join are exchanged");
    }
}

pub fn join(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    fork(cx, me, rng, 3);
}
