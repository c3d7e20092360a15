//! Mainspring on more than one machine, over NATS.
//!
//! The guide is `docs/cluster.md`. It says what is promised, and what is not.

mod batch;
mod bucket;
mod call;
pub mod connect;
pub mod directory;
pub mod durable;
pub mod error;
pub mod grant;
#[cfg(test)]
mod hostile;
pub mod ledger;
pub mod lines;
pub mod node;
pub mod one_thread;
pub mod session;
pub mod spent;
pub mod status;
pub mod supervise;
pub mod sweep;
pub mod text;
pub mod wire;

pub use call::CallError;
pub use connect::{Config, Connection, connect};
pub use durable::DurableMailbox;
pub use error::Error;
pub use grant::{Identity, Trusted};
pub use node::{Actor, Exported, Message, Node, Remote, Terms};
pub use one_thread::OneThread;
