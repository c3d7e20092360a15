//! The text form. What [`print()`] writes, [`parse`] reads as the same module.

mod parse;
mod print;
mod token;

pub use parse::{MAX_TEXT_BYTES, ParseError, ParseFault, parse};
pub use print::{print, type_text};

use mainspring::Profile;

/// The profiles and their names.
pub const PROFILES: [(Profile, &str); 4] = [
    (Profile::Core, "core"),
    (Profile::Service, "service"),
    (Profile::Cluster, "cluster"),
    (Profile::Sovereign, "sovereign"),
];
