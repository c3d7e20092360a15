//! Functions that `#[budgeted]` meters.

use super::alone::ops;
use crate::ledger::{Kind, Tracked};
use crate::rng::Rng;
use crate::verdict::violation;
use crate::world::Me;
use mainspring::{Cost, Cx, budgeted};

/// An op for each iteration.
#[budgeted]
fn sum(cx: &Cx, values: &[u32]) -> u32 {
    let mut sum = 0u32;
    for &value in values {
        sum = sum.wrapping_add(value);
    }
    sum
}

/// An op for each iteration, on whichever way the loop is left.
#[budgeted]
fn place_of(cx: &Cx, values: &[u32], wanted: u32) -> Option<u32> {
    let mut at = 0;
    while (at as usize) < values.len() {
        if values[at as usize] == wanted {
            return Some(at);
        }
        at += 1;
    }
    None
}

/// An op for each call: two for each inner node.
#[budgeted]
fn fib(cx: &Cx, n: u32) -> u32 {
    if n < 2 { n } else { fib(cx, n - 1) + fib(cx, n - 2) }
}

/// Calls of `fib` that `fib(n)` makes.
fn calls(n: u32) -> u32 {
    if n < 2 { 0 } else { 2 + calls(n - 1) + calls(n - 2) }
}

/// A call, and iterations that give way, with a value that lives across all of them.
#[budgeted]
fn turns(cx: &Cx, me: &Me<'_>, times: u32) {
    let value = Tracked::new(Kind::Local);
    for _ in 0..times {
        cx.yield_now();
        me.look(cx);
        value.check();
    }
}

pub fn budgeted(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let n = rng.pick(&[0, 1, 7, 63, 64, 65, 511, 512, 513, 1300]);
    if !me.affords(cx, ops(2 * n + 100)) {
        return;
    }
    let values: Vec<u32> = (0..n).collect();
    match rng.below(4) {
        0 => {
            let total = me.paid(cx, Cost::iterations(n), || sum(cx, &values), |_| true);
            if total != values.iter().sum() {
                violation("a metered loop has another sum");
            }
        }
        1 => {
            let wanted = rng.below(u64::from(n) + 2) as u32;
            let found = (wanted < n).then_some(wanted);
            let price = found.map_or(n, |place| place + 1);
            let place = me.paid(cx, Cost::iterations(price), || place_of(cx, &values, wanted), |_| true);
            if place != found {
                violation(format_args!("{wanted} of {n} is found at {place:?}"));
            }
        }
        2 => {
            let depth = rng.below(8) as u32;
            let value = me.paid(cx, Cost::iterations(calls(depth)), || fib(cx, depth), |_| true);
            if value != [0, 1, 1, 2, 3, 5, 8, 13][depth as usize] {
                violation(format_args!("fib({depth}) is {value}"));
            }
        }
        _ => {
            let times = n.min(10);
            // And the call that makes the value.
            me.paid(cx, Cost::iterations(times + 1), || turns(cx, me, times), |()| true);
        }
    }
}
