//! Running a thread without a tick, on a leased CPU, for as long as it can be proved harmless.
//!
//! [`Eligibility`] is a claim that a thread may go tickless. It suppresses nothing. An [`Activation`] is what suppresses
//! the tick of a CPU. It comes from a [`Proof`] and from nothing else, and a proof comes from checking every
//! [`Obligation`] against what the machine and the CPU's own queue say at that moment. There is no default, flag or
//! attribute of a thread that could start it: the facts must hold a live lease's [`Terms`](crate::lease::Terms), which
//! only the registry of leases makes.
//!
//! Conserved: an activation always has a one-shot armed, no later than its revocation latency after it was last
//! proved. [`Activation::recheck`] consumes it and gives it back with a new one-shot, or does not give it back.
//!
//! No other code can make a proof, nor the terms of a lease:
//!
//! ```compile_fail,E0451
//! # use mainspring_sched::nohz::{Claim, Proof};
//! # fn forge(claim: Claim) -> Proof {
//! # let (cpu, now) = (mainspring_abi::CpuId::BOOT, mainspring_abi::Nanos::ZERO);
//! Proof { cpu, claim, proved_at: now, expires_at: now, next_wakeup: now }
//! # }
//! ```
//!
//! ```compile_fail,E0382
//! # use mainspring_sched::nohz::{Activation, Proof};
//! # fn twice(proof: Proof) {
//! let _ = (Activation::begin(proof), Activation::begin(proof));
//! # }
//! ```
//!
//! The protocol for activation on another CPU, and the argument that every race ends periodic, stand in
//! `README.md` beside this file.

mod activation;
mod eligibility;
mod facts;
mod obligation;
mod remote;

pub use activation::{Activation, Contended, Interrupt, Proof, Recheck, on_contention, preflight, prove};
pub use eligibility::{Claim, Eligibility, Kind, Origin};
pub use facts::{Conditions, Facts, QueueFacts, RingFacts, Runner};
pub use obligation::{Obligation, Obstacle, Preflight};
pub use remote::{Occupied, Parked, RemoteRequest, RemoteSlot};
