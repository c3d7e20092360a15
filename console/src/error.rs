//! Why there is no console, and what to do about it.

use mainspring::ConfigError;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;

/// Why there is no console.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Another program listens there.
    InUse(SocketAddr),
    /// Others than this host could connect there.
    NotLoopback(SocketAddr),
    /// The system does not let this program listen there.
    Listen(SocketAddr, io::Error),
    /// The runtime keeps no records of its tasks.
    NotObserved,
    /// The runtime cannot be built.
    Config(ConfigError),
    /// The server's thread cannot be started.
    Thread(io::Error),
}

impl Error {
    pub(crate) fn of_listening(address: SocketAddr, error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::AddrInUse => Self::InUse(address),
            _ => Self::Listen(address, error),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse(address) => write!(
                f,
                "{address} is in use, perhaps by the console of another program; stop that, or give this one another address \
                 (Settings::address; with port 0 the system chooses) and start `tokio-console http://ADDRESS`"
            ),
            Self::NotLoopback(address) => write!(
                f,
                "{address} can be reached from other hosts, and a console is neither encrypted nor asks who connects; use a loopback \
                 address and `ssh -L`, or say Settings::beyond_loopback"
            ),
            Self::Listen(address, error) => write!(f, "cannot listen on {address}: {error}; give another address with Settings::address"),
            Self::NotObserved => f.write_str(
                "this runtime keeps no records of its tasks; build it with mainspring_console::build or Config::observe_tasks",
            ),
            Self::Config(error) => error.fmt(f),
            Self::Thread(error) => write!(f, "cannot start the thread of the console: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Listen(_, error) | Self::Thread(error) => Some(error),
            Self::Config(error) => Some(error),
            Self::InUse(_) | Self::NotLoopback(_) | Self::NotObserved => None,
        }
    }
}
