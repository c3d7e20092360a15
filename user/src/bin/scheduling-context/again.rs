//! Time that was used is not there again sooner because its context ends, is made again, or grants something else.

use super::{MS, SMALL, ended, info, on_its_cpu};
use mainspring_user::caps::{self, Context, Grant};
use mainspring_user::schema::OverrunPolicy;
use mainspring_user::{CapError, arch, say};

/// A twentieth of a CPU, in one go. It comes back so late that no case lasts as long.
const LONG: Grant = Grant {
    budget_ns: 50 * MS,
    period_ns: 1000 * MS,
    deadline_ns: 1000 * MS,
    overrun: OverrunPolicy::Notify,
    ..SMALL
};
/// What the cases leave unused of it.
const LEFT: u64 = 2 * MS;

pub fn cases(first: Context) {
    // What is not needed here is taken, so that what a case gives up is all that there is.
    let of = first.create(LONG).expect("less than its creator has");
    let rest = Grant { budget_ns: 10 * MS, period_ns: 200 * MS, deadline_ns: 0, ..LONG };
    let taken = first.create(rest).expect("less than its creator has");
    assert_eq!(first.create(rest), Err(CapError::QuotaExceeded), "there is more than the cases expect");
    let of = made_again(first, of);
    let of = granted_in_smaller_pieces(first, of);
    for one in [taken, of] {
        one.revoke().expect("it is there");
    }
}

/// Uses `of` up, but for a little; when it comes back at the earliest.
fn use_up(of: Context) -> u64 {
    let (before, began) = (info(of), caps::now());
    let thread = on_its_cpu(of, move || {
        of.bind().expect("it is free");
        while info(of).used_ns - before.used_ns < LONG.budget_ns - LEFT {
            arch::spin(1000);
        }
        of.unbind().expect("it is bound");
        0
    });
    assert_eq!(ended(thread), 0);
    began + LONG.period_ns
}

/// Asserts that nothing can be used of `of` before `back`.
fn rests_until(of: Context, back: u64, what: &str) {
    let left = info(of).remaining_ns;
    assert!(left == 0 || caps::now() >= back, "{left} ns are there again: {what}");
    let whole = || info(of).remaining_ns == info(of).budget_ns;
    assert!(caps::comes_true(MS, whole), "it never comes back: {what}");
}

/// A context that ends takes the time that was used of it along: one that takes its place has none before.
//= TICK:L5.no-mint
fn made_again(from: Context, of: Context) -> Context {
    let back = use_up(of);
    of.revoke().expect("it is there");
    of.release().expect("it is this process's");
    let of = from.create(LONG).expect("there is room again");
    rests_until(of, back, "it was revoked and made again");
    say!("scheduling-context: made_again=ok");
    of
}

/// One that grants as much in smaller pieces does so when what was used is back, and so does one that is given what it gave up.
//= TICK:L5.no-mint
fn granted_in_smaller_pieces(from: Context, of: Context) -> Context {
    let back = use_up(of);
    of.adjust(LEFT, 50 * LEFT, 0).expect("it grants less");
    rests_until(of, back, "it grants as much in smaller pieces");
    of.revoke().expect("it is there");
    of.release().expect("it is this process's");
    let of = from.create(LONG).expect("there is room again");
    assert!(caps::comes_true(MS, || info(of).remaining_ns == LONG.budget_ns), "it is never whole");
    let back = use_up(of);
    of.adjust(LEFT, LONG.period_ns, 0).expect("it grants less");
    let other = from.create(Grant { budget_ns: LONG.budget_ns - 2 * LEFT, ..LONG }).expect("there is room");
    rests_until(other, back, "another was given what it gave up");
    other.revoke().expect("it is there");
    say!("scheduling-context: smaller_pieces=ok");
    of
}
