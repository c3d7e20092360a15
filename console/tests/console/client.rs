//! A client of the protocol, as `tokio-console` is one.

use console_api::field::{Name, Value};
use console_api::instrument::instrument_client::InstrumentClient;
use console_api::instrument::{InstrumentRequest, Update};
use console_api::tasks::{Stats, Task};
use console_api::{PollStats, instrument};
use mainspring::{Config, Profile, Runtime};
use mainspring_console::{Console, Settings};
use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

/// How long a client waits for what must come: a test that fails ends.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Any free port of this host.
pub fn settings() -> Settings {
    Settings::new().address(([127, 0, 0, 1], 0).into()).every(Duration::from_millis(25))
}

/// A runtime with one worker, and its console.
pub fn observed() -> (Runtime, Console) {
    settings().build(Config::new(Profile::Service).workers(1)).expect("a runtime and its console")
}

/// Runs a client on a thread of the test.
pub fn client<T>(work: impl Future<Output = T>) -> T {
    let host =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a host for the client");
    host.block_on(async { tokio::time::timeout(PATIENCE, work).await.expect("what must come, comes") })
}

pub async fn connect(address: SocketAddr) -> InstrumentClient<Channel> {
    // Small windows: what the client does not read stays with the server.
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    let endpoint = endpoint.initial_stream_window_size(65_535).initial_connection_window_size(65_535);
    InstrumentClient::new(endpoint.connect().await.expect("the console listens"))
}

/// What a client knows.
pub struct Watch {
    client: InstrumentClient<Channel>,
    updates: Streaming<Update>,
    pub tasks: HashMap<u64, (Task, Stats)>,
    pub dropped_events: u64,
}

impl Watch {
    pub async fn begin(client: &mut InstrumentClient<Channel>) -> Self {
        let updates = client.watch_updates(InstrumentRequest {}).await.expect("it may watch").into_inner();
        Self { client: client.clone(), updates, tasks: HashMap::new(), dropped_events: 0 }
    }

    /// Takes one update.
    pub async fn next(&mut self) -> Result<(), tonic::Status> {
        let update =
            self.updates.message().await?.ok_or_else(|| tonic::Status::aborted("the stream has ended"))?;
        let mut tasks = update.task_update.expect("every update tells of tasks");
        self.dropped_events += tasks.dropped_events;
        for task in tasks.new_tasks {
            let id = task.id.expect("a task has an id").id;
            let stats = tasks.stats_update.remove(&id).expect("a new task comes with its stats");
            self.tasks.insert(id, (task, stats));
        }
        for (id, stats) in tasks.stats_update {
            self.tasks.get_mut(&id).expect("a task that was told of before").1 = stats;
        }
        Ok(())
    }

    /// Takes updates until a task of that name is as it should be.
    pub async fn until(&mut self, name: &str, is_right: impl Fn(&Stats) -> bool) -> (Task, Stats) {
        loop {
            let named =
                self.tasks.values().find(|(task, _)| text(task, "task.name").as_deref() == Some(name));
            if let Some((task, stats)) = named.filter(|(_, stats)| is_right(stats)) {
                return (task.clone(), *stats);
            }
            if self.next().await.is_err() {
                // On a host that is busy it may have been too slow: it begins again, as `tokio-console` does.
                *self = Self::begin(&mut self.client.clone()).await;
            }
        }
    }
}

/// A field of a task.
pub fn value(task: &Task, name: &str) -> Option<Value> {
    let named = |field: &&console_api::Field| field.name == Some(Name::StrName(name.to_owned()));
    task.fields.iter().find(named).and_then(|field| field.value.clone())
}

pub fn text(task: &Task, name: &str) -> Option<String> {
    match value(task, name) {
        Some(Value::StrVal(text)) => Some(text),
        _ => None,
    }
}

pub fn polls(stats: &Stats) -> PollStats {
    stats.poll_stats.expect("every task has them")
}

/// As `tokio-console` decides it.
pub fn is_running(stats: &Stats) -> bool {
    let polls = polls(stats);
    stats.dropped_at.is_none() && time(&polls.last_poll_started) > time(&polls.last_poll_ended)
}

/// As `tokio-console` decides it.
pub fn is_scheduled(stats: &Stats) -> bool {
    !is_running(stats) && time(&stats.last_wake) > time(&polls(stats).last_poll_started)
}

pub fn is_idle(stats: &Stats) -> bool {
    stats.dropped_at.is_none() && !is_running(stats) && !is_scheduled(stats)
}

fn time(at: &Option<prost_types::Timestamp>) -> Option<(i64, i32)> {
    at.as_ref().map(|at| (at.seconds, at.nanos))
}

/// The temporality that the next state tells.
pub async fn temporality(states: &mut Streaming<instrument::State>) -> instrument::Temporality {
    states.message().await.expect("a state").expect("the stream goes on").temporality()
}
