//! Contexts across CPUs: bound, lent along calls, returned by every end of a call, revoked, and never in two places.

#[path = "../machines/mod.rs"]
mod machines;

mod churn;
mod create;
mod direct;
mod enforcement;
mod exits;
mod no_alloc;
mod notices;
mod real_threads;
mod rig;
mod scripts;
