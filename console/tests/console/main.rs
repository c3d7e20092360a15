//! The console, as a client of the protocol sees it.

mod client;
mod hostile;
mod told;
