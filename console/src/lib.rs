//! Shows the tasks of a Mainspring runtime to `tokio-console`.
//!
//! [`build`] builds a runtime whose tasks are observed and listens on 127.0.0.1:6669, where a stock `tokio-console` looks first:
//!
//! ```no_run
//! use mainspring::{Config, Profile};
//! let (runtime, _console) = mainspring_console::build(Config::new(Profile::Service))?;
//! runtime.run(|cx| cx.sleep(std::time::Duration::from_millis(10)))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The server is a thread of its own, which looks at the runtime once a second while somebody is connected. It stops no worker.
//! The guide is `docs/console.md`.
//!
//! Conserved: no client can make this hold more than a bound or do more than a bound of work a second. Connections, streams, requests and
//! what is kept for a client that does not read are bounded; a client that is slower than that loses its stream, and may ask again.

mod error;
mod histogram;
mod incoming;
mod proto;
mod publisher;
mod service;

pub use error::Error;

use console_api::instrument::instrument_server::InstrumentServer;
use mainspring::observe::{Observer, USUAL_TASKS};
use mainspring::{Config, Runtime};
use publisher::Publisher;
use service::Service;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// Where `tokio-console` looks unless it is told otherwise: 127.0.0.1:6669.
pub const USUAL_ADDRESS: ([u8; 4], u16) = ([127, 0, 0, 1], 6669);

/// Requests that a client may have open: it needs one each for updates, for the state and for the details of a task.
const STREAMS_PER_CONNECTION: u32 = 16;
/// Every request of the protocol is smaller.
const LARGEST_REQUEST: usize = 1024;
const LARGEST_HEADERS: u32 = 8 * 1024;
/// A client that does not answer for so long is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// How the console is set up.
#[derive(Clone, Debug)]
#[must_use = "settings do nothing until they build or serve"]
pub struct Settings {
    address: SocketAddr,
    tasks: usize,
    every: Duration,
    beyond_loopback: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self::new()
    }
}

impl Settings {
    /// The usual address, [`USUAL_TASKS`] tasks, told once a second.
    pub fn new() -> Self {
        Self {
            address: USUAL_ADDRESS.into(),
            tasks: USUAL_TASKS,
            every: Duration::from_secs(1),
            beyond_loopback: false,
        }
    }

    /// Where to listen. With port 0 the system chooses one: [`Console::address`] tells which.
    pub fn address(mut self, address: SocketAddr) -> Self {
        self.address = address;
        self
    }

    /// Allows an address that others than this host can reach. Everyone who can connect sees names, places and times of all tasks,
    /// and nothing is encrypted.
    pub fn beyond_loopback(mut self) -> Self {
        self.beyond_loopback = true;
        self
    }

    /// How many tasks are observed at a time, as in [`Config::observe_tasks`]; for [`Settings::build`].
    pub fn tasks(mut self, tasks: usize) -> Self {
        self.tasks = tasks;
        self
    }

    /// How often clients are told, not more often than every 10 ms.
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every.max(Duration::from_millis(10));
        self
    }

    /// Builds a runtime whose tasks are observed, and shows it.
    ///
    /// # Errors
    /// As [`Settings::serve`], or when the runtime cannot be built.
    pub fn build(&self, config: Config) -> Result<(Runtime, Console), Error> {
        // First: if the address is refused, no thread has been started.
        let listener = self.listen()?;
        let runtime = config.observe_tasks(self.tasks).build().map_err(Error::Config)?;
        let observer = Observer::of(&runtime).ok_or(Error::NotObserved)?;
        let console = self.start(listener, observer)?;
        Ok((runtime, console))
    }

    /// Shows a runtime that was built with [`Config::observe_tasks`]. The console keeps nothing of it but the records of its tasks.
    ///
    /// # Errors
    /// When the runtime does not observe its tasks, when the address is in use or refused, or when there is no thread to be had.
    pub fn serve(&self, runtime: &Runtime) -> Result<Console, Error> {
        let observer = Observer::of(runtime).ok_or(Error::NotObserved)?;
        self.start(self.listen()?, observer)
    }

    fn listen(&self) -> Result<TcpListener, Error> {
        let address = self.address;
        if !address.ip().is_loopback() && !self.beyond_loopback {
            return Err(Error::NotLoopback(address));
        }
        let listener = TcpListener::bind(address).map_err(|error| Error::of_listening(address, error))?;
        listener.set_nonblocking(true).map_err(|error| Error::of_listening(address, error))?;
        Ok(listener)
    }

    fn start(&self, listener: TcpListener, observer: Observer) -> Result<Console, Error> {
        let address = listener.local_addr().map_err(|error| Error::of_listening(self.address, error))?;
        let host =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Thread)?;
        let (stop, stopped) = oneshot::channel();
        let every = self.every;
        let thread = std::thread::Builder::new()
            .name("mainspring-console".to_owned())
            .spawn(move || {
                host.block_on(async {
                    tokio::select! {
                        _ = stopped => {}
                        () = serve(listener, observer, every) => {}
                    }
                });
            })
            .map_err(Error::Thread)?;
        Ok(Console { address, stop: Some(stop), thread: Some(thread) })
    }
}

/// Builds a runtime whose tasks are observed, and shows it at 127.0.0.1:6669: [`Settings::build`] with the usual settings.
///
/// # Errors
/// As [`Settings::build`].
pub fn build(config: Config) -> Result<(Runtime, Console), Error> {
    Settings::new().build(config)
}

/// A runtime that is shown, until this is dropped.
#[derive(Debug)]
pub struct Console {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Console {
    /// Where to connect: `tokio-console http://ADDRESS`.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // An error says that the thread is gone already.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            // A panic of the server ends with the server.
            let _ = thread.join();
        }
    }
}

async fn serve(listener: TcpListener, observer: Observer, every: Duration) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let publisher = Arc::new(Mutex::new(Publisher::new(observer)));
    let ticking = publisher.clone();
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(every);
        // After a pause of the host one update is enough.
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            ticking.lock().expect("no panic while it is held").tick();
        }
    });
    let instrument =
        InstrumentServer::new(Service::new(publisher)).max_decoding_message_size(LARGEST_REQUEST);
    let server = tonic::transport::Server::builder()
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .http2_max_header_list_size(LARGEST_HEADERS)
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE));
    // It ends with its listener, that is never: an error of one connection is that connection's.
    let _ = server.serve_with_incoming(instrument, incoming::connections(listener)).await;
}
