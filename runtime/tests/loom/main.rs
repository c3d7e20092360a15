//! The protocols under the model checker: every interleaving of small programs, on the code that ships.
//! Run by `make loom`, which sets `--cfg loom`.
#![cfg(loom)]
#![allow(unsafe_code)]

mod bias;
mod channel;
mod deque;
mod end;
mod keep;
mod lanes;
mod roster;
mod sleep;
mod state;

/// Every interleaving with at most three preemptions, in which all known bugs of such protocols show.
fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(f);
}
