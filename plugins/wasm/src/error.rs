//! Why a plugin cannot be used, and how a guest ends other than by returning.

use mainspring::BudgetError;
use std::fmt;

/// Why a module is no plugin. Nothing of it has run.
#[derive(Debug)]
#[non_exhaustive]
pub enum PluginError {
    /// It has more bytes than a module may have.
    TooLarge {
        /// Its bytes.
        bytes: usize,
    },
    /// It is no WebAssembly that is understood, and why.
    Malformed(String),
    /// The engine cannot run here, and why.
    Engine(String),
}

impl fmt::Display for PluginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { bytes } => {
                write!(f, "a module of {bytes} bytes; at most {} are taken", crate::MOST_MODULE_BYTES)
            }
            Self::Malformed(why) => write!(f, "the module is refused: {why}"),
            Self::Engine(why) => write!(f, "WebAssembly cannot be run: {why}"),
        }
    }
}

impl std::error::Error for PluginError {}

/// How a guest ends other than by returning. It is over: its instance runs no more. A task that is cancelled or out of ops is unwound
/// instead, as any task is.
#[derive(Debug)]
#[non_exhaustive]
pub enum GuestError {
    /// It wants an import that it was not granted, or with another type.
    NotGranted(String),
    /// It has no export of this name that is a function of these parameters.
    NoFunction(String),
    /// It trapped, and how.
    Trapped(String),
    /// Its calls nest deeper than its stack.
    StackOverflow,
    /// It asked for more than its task's budget has.
    Budget(BudgetError),
    /// An import refused, and why.
    Import(String),
    /// It ended before, with an error.
    Over,
}

impl fmt::Display for GuestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotGranted(why) => write!(f, "{why}; grant it, or use another module"),
            Self::NoFunction(name) => write!(f, "there is no function `{name}` with these parameters"),
            Self::Trapped(why) => write!(f, "trapped: {why}"),
            Self::StackOverflow => f.write_str("calls nest too deep"),
            Self::Budget(error) => error.fmt(f),
            Self::Import(why) => write!(f, "an import refused: {why}"),
            Self::Over => f.write_str("the guest has ended before"),
        }
    }
}

impl std::error::Error for GuestError {}
