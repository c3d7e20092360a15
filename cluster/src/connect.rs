//! The way to the server: its address, credentials and TLS, as NATS does them.
//!
//! A connection that is there has been checked: the server is recent enough, and keeps streams.

use crate::error::Error;
use async_nats::jetstream::context::RequestErrorKind;
use async_nats::jetstream::{self, response::Response};
use async_nats::{Client, ConnectErrorKind, ConnectOptions};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use tokio::runtime::Handle;

/// The oldest server that has what is used: consumers with names, and deletes that compare.
pub const LEAST_SERVER: &str = "2.9.0";

/// How long a first connection may take.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// Which server, and who we are to it.
#[derive(Args, Clone, Debug)]
pub struct Config {
    /// The NATS server: nats://HOST:PORT, or several with commas; with user:password@ where it asks for that.
    #[arg(long = "nats", value_name = "URL", default_value = "nats://127.0.0.1:4222")]
    pub url: String,

    /// A file of credentials that NATS made (`nsc generate creds`).
    #[arg(long, value_name = "FILE")]
    pub creds: Option<PathBuf>,

    /// The authority of the server's certificate, if it is not one of the system's. Makes TLS a must.
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,

    /// How many servers of a cluster keep each stream.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=5))]
    pub replicas: u8,
}

impl Config {
    /// A server without credentials, one replica.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), creds: None, tls_ca: None, replicas: 1 }
    }
}

/// A server that was found fit.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The client: requests and replies.
    pub client: Client,
    /// Its streams.
    pub jetstream: jetstream::Context,
    /// How many servers keep each stream.
    pub replicas: usize,
    config: Config,
}

impl Connection {
    /// Another connection to the same server, whose client runs in `tokio`.
    pub(crate) async fn again(&self, tokio: &Handle) -> Result<Self, Error> {
        let config = self.config.clone();
        let connecting = tokio.spawn(async move { connect(&config).await });
        connecting.await.unwrap_or_else(|gone| Err(Error::NotStarted { what: "Tokio", cause: gone.into() }))
    }

    /// Returns when the server has done what this client asked of it before, as to subscribe: it answers in order. A flush of the client
    /// only says that it was sent.
    pub(crate) async fn caught_up(&self, doing: &'static str) -> Result<(), Error> {
        let answered = self.client.request("$JS.API.INFO", "".into()).await;
        answered.map(drop).map_err(|error| Error::nats(doing, error))
    }
}

/// Connects, and checks the server. Fails at once if nobody answers.
pub async fn connect(config: &Config) -> Result<Connection, Error> {
    let mut options = ConnectOptions::new().connection_timeout(CONNECT_PATIENCE).name("mainspring");
    if let Some(path) = &config.creds {
        options = options.credentials_file(path).await.map_err(Error::CredentialsFile)?;
    }
    if let Some(path) = &config.tls_ca {
        // The client reads it late, and calls a file that is not there an error of TLS.
        std::fs::File::open(path).map_err(Error::CredentialsFile)?;
        options = options.add_root_certificates(path.clone()).require_tls(true);
    }
    let url = || config.url.clone();
    let servers: Vec<async_nats::ServerAddr> = config
        .url
        .split(',')
        .map(str::parse)
        .collect::<Result<_, _>>()
        .map_err(|cause: std::io::Error| Error::Address { url: url(), cause: Box::new(cause) })?;
    // The client takes them from options alone.
    if let Some((user, password)) =
        servers.iter().find_map(|server| Some((server.username()?, server.password()?)))
    {
        options = options.user_and_password(user.to_owned(), password.to_owned());
    }
    let client = options.connect(servers).await.map_err(|error| match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            Error::Credentials { url: url() }
        }
        ConnectErrorKind::ServerParse => Error::Address { url: url(), cause: Box::new(error) },
        ConnectErrorKind::Tls => Error::Tls { url: url(), cause: Box::new(error) },
        ConnectErrorKind::Io if is_of_tls(&error) => Error::Tls { url: url(), cause: Box::new(error) },
        _ => Error::NoServer { url: url(), cause: Box::new(error) },
    })?;
    let found = client.server_info().version;
    if !is_recent(&found) {
        return Err(Error::ServerVersion { found });
    }
    let jetstream = jetstream::new(client.clone());
    // The client's own type for this answer has fields that servers before 2.10 do not send.
    let answer: Response<serde_json::Value> =
        jetstream.request("INFO", &serde_json::json!({})).await.map_err(|error| match error.kind() {
            RequestErrorKind::NoResponders => Error::NoJetStream,
            _ => Error::nats("asking for streams", error),
        })?;
    if let Response::Err { error } = answer {
        return Err(Error::nats("asking for streams", error));
    }
    Ok(Connection { client, jetstream, replicas: config.replicas.into(), config: config.clone() })
}

/// Whether a handshake failed: the client reports it as it does a connection that was refused.
fn is_of_tls(error: &(dyn std::error::Error + 'static)) -> bool {
    let io = error.source().and_then(|cause| cause.downcast_ref::<std::io::Error>());
    io.and_then(std::io::Error::get_ref).is_some_and(|cause| cause.is::<async_nats::rustls::Error>())
}

/// Whether a version is [`LEAST_SERVER`] or later. What is no version is not.
fn is_recent(found: &str) -> bool {
    let parts = |text: &str| -> Option<(u32, u32, u32)> {
        let mut parts = text.split('-').next()?.split('.').map(|part| part.parse().ok());
        Some((parts.next()??, parts.next()??, parts.next()??))
    };
    parts(found) >= parts(LEAST_SERVER) && parts(found).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_their_numbers() {
        for good in ["2.9.0", "2.9.10", "2.10.0", "2.11.1-RC.2", "3.0.0"] {
            assert!(is_recent(good), "{good}");
        }
        for bad in ["2.8.9", "1.4.1", "", "new", "2.9"] {
            assert!(!is_recent(bad), "{bad}");
        }
    }
}
