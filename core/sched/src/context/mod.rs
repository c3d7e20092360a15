//! CPU time as authority: scheduling contexts.
//!
//! A [`Context`] is the only thing that grants guaranteed CPU time: a budget in each period, by a deadline. It is a value
//! that moves. The thread that holds it may spend it; no other thread can. On a CPU its place is the
//! [`Entity`](crate::Entity) of one thread, to which it is bound or donated; elsewhere it is with the machine, which knows
//! which contexts there are (`mainspring-driver`). So no context ever has two holders, by construction and not by a check.
//!
//! [`Refills`] says when how much of the budget may be used; [`Donors`] says which threads it goes back to;
//! [`Notices`] tells what became of it; `FloorBudget` is what best effort keeps, by its [`Floor`](crate::Floor).

mod donors;
pub(crate) mod floor;
mod ledger;
mod notice;
mod refill;
mod spec;

pub use donors::{Donors, LoanError, MAX_DEPTH};
pub use ledger::{CallBound, Context, Urgency, Usage};
pub use notice::{Notice, NoticeKind, Notices};
pub use refill::{MAX_REFILLS, MIN_REFILLS, Refill, Refills};
pub use spec::{ContextSpec, MAX_PERIOD, Overrun, SpecError};
