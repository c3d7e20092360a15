//! The third driver of `core/sched`: real CPUs, real timers, user threads.
//!
//! Each CPU has a [`lane::Lane`]: its core under its own lock, and words that others may look at without it. A decision
//! takes that lock and no other. Cross-CPU work is a wake (one other lane's lock), a steal (the victim's lock, then the
//! thief's, never both), or a handoff (likewise).
//!
//! Conserved: a thread's context is bound to a CPU exactly while that CPU's core says it runs; before a core publishes
//! a thread to others, its context has been saved and let go.

pub mod check;
pub mod dispatch;
pub mod flush;
pub mod idle;
pub mod lane;
pub mod record;
pub mod stretch;
pub mod visible;
pub mod wakeup;

pub use lane::{lane, lanes, mine};
