//! Why the cluster did not do what was asked, and what to do about it.

use async_nats::jetstream::{self, ErrorCode};
use std::path::PathBuf;
use std::time::Duration;
use std::{error, fmt, io};

/// A cause from below, kept whole.
pub type Cause = Box<dyn error::Error + Send + Sync>;

/// What can go wrong between this process and the server.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The address of the server is none.
    Address {
        /// As given.
        url: String,
        /// What is wrong with it.
        cause: Cause,
    },
    /// Nobody answers there.
    NoServer {
        /// As given.
        url: String,
        /// What the system said.
        cause: Cause,
    },
    /// The server does not accept these credentials.
    Credentials {
        /// As given.
        url: String,
    },
    /// A file of credentials or certificates cannot be used.
    CredentialsFile(io::Error),
    /// The server and this process do not agree on TLS.
    Tls {
        /// As given.
        url: String,
        /// Why.
        cause: Cause,
    },
    /// The server is older than what is needed.
    ServerVersion {
        /// What it says it is.
        found: String,
    },
    /// The server keeps nothing: JetStream is off, for it or for this account.
    NoJetStream,
    /// The server has no room for what it should keep.
    StorageFull,
    /// The server has not answered for this long.
    Lost {
        /// What was being done.
        doing: &'static str,
        /// For how long it was tried.
        tried: Duration,
    },
    /// Jobs wait, and no worker has taken one for this long.
    NoWorkers {
        /// How many wait.
        waiting: usize,
        /// For how long.
        tried: Duration,
    },
    /// Two runs of one seed came to different results: something is not a function of the seed.
    Differs {
        /// The seed.
        seed: u64,
    },
    /// The process at the other end of a pipe wrote what is no message of ours, or has gone.
    Peer {
        /// Which process.
        who: &'static str,
        /// What happened.
        cause: io::Error,
    },
    /// A part of this process does not start.
    NotStarted {
        /// Which.
        what: &'static str,
        /// Why.
        cause: Cause,
    },
    /// The runtime does not run the task that supervised actors are children of.
    NoHost,
    /// Another process of this name renews its lease.
    NameTaken {
        /// The node's name.
        name: String,
    },
    /// A name that cannot be part of a subject.
    Name {
        /// As given.
        name: String,
    },
    /// The `mainspring` that makes the runs does not start.
    NoRunner {
        /// Where it was looked for.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// Anything else that the client reports.
    Nats {
        /// What was being done.
        doing: &'static str,
        /// The client's error.
        cause: Cause,
    },
}

impl Error {
    /// Whether the same may work a moment later: the server may be starting again.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Nats { .. } | Self::NoJetStream | Self::NoServer { .. })
    }

    /// The error that `cause` is, seen from here.
    pub fn nats(doing: &'static str, cause: impl error::Error + Send + Sync + 'static) -> Self {
        match code_of(&cause) {
            Some(code) if is_full(code) => Self::StorageFull,
            Some(ErrorCode::JETSTREAM_NOT_ENABLED | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT) => {
                Self::NoJetStream
            }
            _ => Self::Nats { doing, cause: Box::new(cause) },
        }
    }
}

fn is_full(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::STORAGE_RESOURCES_EXCEEDED
            | ErrorCode::INSUFFICIENT_RESOURCES
            | ErrorCode::ACCOUNT_RESOURCES_EXCEEDED
            | ErrorCode::STREAM_STORE_FAILED
            | ErrorCode::CONSUMER_STORE_FAILED
            | ErrorCode::TEMP_STORAGE_FAILED
    )
}

/// The server's own code, wherever the client's error has it.
fn code_of(cause: &(dyn error::Error + 'static)) -> Option<ErrorCode> {
    use jetstream::context::{CreateStreamError, CreateStreamErrorKind};
    use jetstream::stream::{ConsumerError, ConsumerErrorKind};
    let mut next = Some(cause);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<jetstream::Error>() {
            return Some(error.error_code());
        }
        if let Some(error) = error.downcast_ref::<CreateStreamError>()
            && let CreateStreamErrorKind::JetStream(error) = error.kind()
        {
            return Some(error.error_code());
        }
        if let Some(error) = error.downcast_ref::<ConsumerError>()
            && let ConsumerErrorKind::JetStream(error) = error.kind()
        {
            return Some(error.error_code());
        }
        next = error.source();
    }
    None
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { url, cause } => {
                write!(f, "{url}: no address of a NATS server: {cause}\nhelp: write nats://HOST:PORT")
            }
            Self::NoServer { url, cause } => write!(
                f,
                "{url}: no NATS server answers: {cause}\nhelp: start one with `nats-server --jetstream --addr 127.0.0.1`, or give \
                 the address of one"
            ),
            Self::Credentials { url } => write!(
                f,
                "{url}: the server does not accept these credentials\nhelp: give --creds FILE, or a user and password in the address"
            ),
            Self::CredentialsFile(cause) => {
                write!(f, "the file of credentials or certificates: {cause}\nhelp: give a file that NATS made, and that you may read")
            }
            Self::Tls { url, cause } => write!(
                f,
                "{url}: no encrypted connection: {cause}\nhelp: give --tls-ca FILE with the authority of the server's certificate"
            ),
            Self::ServerVersion { found } => {
                write!(f, "the NATS server is {found}; {} or later is needed\nhelp: update nats-server", crate::connect::LEAST_SERVER)
            }
            Self::NoJetStream => {
                f.write_str("the NATS server keeps nothing: JetStream is off\nhelp: start it with --jetstream")
            }
            Self::StorageFull => f.write_str(
                "the NATS server has no room left\nhelp: make room where it stores, or raise max_file_store in its configuration",
            ),
            Self::Lost { doing, tried } => write!(
                f,
                "{doing}: the NATS server has not answered for {} s\nhelp: start it again with the same store; nothing that it kept is lost",
                tried.as_secs()
            ),
            Self::NoWorkers { waiting, tried } => write!(
                f,
                "{waiting} jobs wait, and no worker has taken one for {} s\nhelp: start `mainspring worker --nats URL` of this version",
                tried.as_secs()
            ),
            Self::Differs { seed } => write!(
                f,
                "seed {seed}: two runs of it have different results\nhelp: run the same version of mainspring on every host"
            ),
            Self::Peer { who, cause } => write!(f, "{who}: {cause}"),
            Self::NotStarted { what, cause } => write!(
                f,
                "{what} does not start: {cause}\nhelp: check the limits of this process (ulimit -a), and the runtime's configuration"
            ),
            Self::NoHost => f.write_str(
                "the runtime does not run supervised actors\nhelp: give it the cluster profile, and channels to its root task",
            ),
            Self::NameTaken { name } => write!(
                f,
                "another process is the node {name} and renews its lease\nhelp: give each process a name of its own, or end the other one"
            ),
            Self::Name { name } => write!(f, "{name:?} is no name\nhelp: use letters, digits, - and _, at most 64"),
            Self::NoRunner { path, cause } => {
                write!(f, "{}: {cause}\nhelp: give --mainspring PATH, or start this by `mainspring worker`", path.display())
            }
            Self::Nats { doing, cause } => write!(f, "{doing}: {cause}"),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Address { cause, .. }
            | Self::NoServer { cause, .. }
            | Self::Tls { cause, .. }
            | Self::Nats { cause, .. } => Some(&**cause),
            Self::CredentialsFile(cause) | Self::Peer { cause, .. } | Self::NoRunner { cause, .. } => {
                Some(cause)
            }
            _ => None,
        }
    }
}
