//! Decisions about authority over CPU time that no CPU makes.
//!
//! * [`admission`]: will every deadline hold?
//! * [`island`]: a graph with all that it needs, as a whole or not at all.
//! * [`boundary`]: what may a policy service set, and what stands without it?
//! * [`call_order`]: which call does an endpoint serve next?
//!
//! All are functions and values: events in, answers out, no clock, no I/O. A machine asks them; `core/sched` does not.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod admission;
pub mod boundary;
pub mod call_order;
pub mod island;
