//! The side that runs jobs, by `mainspring` processes of its own.
//!
//! Conserved: a job is acknowledged after its result is kept by the server. A worker that is killed in between has its job done again,
//! with the same result.

use super::dispatch::{encode, publish};
use super::{
    Answer, Ask, Came, JOBS, Job, Queued, RECORDS, Reply, WORKERS, WORKLOADS, Workload, left_subject,
    record_name, result_subject,
};
use crate::connect::{Config, Connection, connect};
use crate::error::Error;
use crate::lines::Lines;
use crate::wire::is_name;
use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{Consumer, pull};
use async_nats::jetstream::stream::{ConsumerError, ConsumerErrorKind};
use async_nats::jetstream::{self, AckKind, ErrorCode};
use clap::Args;
use futures_util::StreamExt as _;
use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};

/// What a worker is told.
#[derive(Args, Clone, Debug)]
pub struct WorkerArgs {
    /// The server.
    #[command(flatten)]
    pub server: Config,

    /// How many runs at once; as many as there are cores if left out.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,

    /// End when there has been nothing to do for this many seconds. Without it, a worker stays.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub until_idle: Option<u64>,

    /// Give up when the server has not answered for this many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub give_up: u64,

    /// The `mainspring` that makes the runs.
    #[arg(long, value_name = "PATH", default_value = "mainspring")]
    pub mainspring: PathBuf,
}

/// How long one request for jobs waits at the server.
const PULL: Duration = Duration::from_secs(1);

/// A process that has seen this many workloads makes room for one that has not.
const MOST_WORKLOADS: usize = 64;

/// A job that so many processes died of is not tried again.
const MOST_DEATHS: i64 = 4;

/// How an attempt at a job ended.
enum Ran {
    Came(Came),
    /// The `mainspring` of this host is of another version.
    NotHere,
    /// The process that made the run has died.
    Died(String),
}

/// What all places of one worker share.
struct Shared {
    on: Connection,
    mainspring: PathBuf,
    give_up: Duration,
    until_idle: Option<Duration>,
    /// When any place last had work, and when the server last answered.
    times: Mutex<Times>,
    said_version: AtomicBool,
}

struct Times {
    busy: Instant,
    heard: Instant,
}

/// Runs jobs until it is told to stop.
pub async fn work(args: &WorkerArgs) -> Result<(), Error> {
    let on = connect(&args.server).await?;
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let now = Instant::now();
    let shared = Arc::new(Shared {
        on,
        mainspring: args.mainspring.clone(),
        give_up: Duration::from_secs(args.give_up),
        until_idle: args.until_idle.map(Duration::from_secs),
        times: Mutex::new(Times { busy: now, heard: now }),
        said_version: AtomicBool::new(false),
    });
    let mut places = tokio::task::JoinSet::new();
    for _ in 0..args.jobs.map_or(cores, usize::from) {
        let shared = Arc::clone(&shared);
        places.spawn(async move { JobLoop { shared, runner: None }.work().await });
    }
    while let Some(ended) = places.join_next().await {
        ended.map_err(|error| Error::Peer { who: "a worker's place", cause: error.into() })??;
    }
    Ok(())
}

/// Runs one job at a time.
struct JobLoop {
    shared: Arc<Shared>,
    runner: Option<Runner>,
}

impl JobLoop {
    async fn work(&mut self) -> Result<(), Error> {
        loop {
            match self.take_and_run().await {
                Ok(true) => {
                    let mut times = self.shared.times.lock().await;
                    times.busy = Instant::now();
                    times.heard = times.busy;
                }
                Ok(false) => {
                    let mut times = self.shared.times.lock().await;
                    times.heard = Instant::now();
                    if self.shared.until_idle.is_some_and(|idle| times.busy.elapsed() > idle) {
                        return Ok(());
                    }
                }
                Err(error) if error.is_passing() => {
                    if self.shared.times.lock().await.heard.elapsed() > self.shared.give_up {
                        return Err(Error::Lost { doing: "waiting for jobs", tried: self.shared.give_up });
                    }
                    sleep(Duration::from_millis(500)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether there was a job.
    async fn take_and_run(&mut self) -> Result<bool, Error> {
        let context = &self.shared.on.jetstream;
        let queue = context.get_consumer_from_stream::<pull::Config, _, _>(WORKERS, JOBS).await;
        let queue = match queue {
            Ok(queue) => queue,
            // Before the first sweep there is no queue.
            Err(error) if is_absent(&error) => {
                sleep(PULL).await;
                return Ok(false);
            }
            Err(error) => return Err(Error::nats("finding the queue", error)),
        };
        let patience = queue.cached_info().config.ack_wait;
        loop {
            let Some(message) = next(&queue).await? else { return Ok(false) };
            self.run(&message, patience).await?;
            let mut times = self.shared.times.lock().await;
            times.busy = Instant::now();
            times.heard = times.busy;
        }
    }

    async fn run(&mut self, message: &jetstream::Message, patience: Duration) -> Result<(), Error> {
        let queued = serde_json::from_slice::<Queued>(&message.payload).ok();
        // Both become parts of subjects, keys and paths.
        let queued = queued.filter(|queued| is_name(&queued.sweep) && is_name(&queued.job.of));
        let Some(Queued { sweep, job }) = queued else {
            // No job of ours: nobody can run it.
            return term(message).await;
        };
        let came = {
            let running = self.came(&sweep, &job);
            tokio::pin!(running);
            loop {
                tokio::select! {
                    came = &mut running => break came?,
                    () = sleep(patience / 3) => {
                        // The server hears that the job goes on; if it does not, another worker does the same.
                        let _ = message.ack_with(AckKind::Progress).await;
                    }
                }
            }
        };
        let give_back = async |after| {
            let given = message.ack_with(AckKind::Nak(Some(after))).await;
            given.map_err(|cause| Error::Nats { doing: "giving a job back", cause })
        };
        let came = match came {
            Ran::Came(came) => came,
            Ran::NotHere => {
                // The sweep would take it for a run that goes on. If it does not hear this, it hears of the next time.
                let left = encode(&job).into();
                let _ = self.shared.on.client.publish(left_subject(&sweep), left).await;
                return give_back(patience).await;
            }
            // If it dies of this job wherever it runs, it is for the sweep to find out why.
            Ran::Died(_) if message.info().is_ok_and(|info| info.delivered < MOST_DEATHS) => {
                return give_back(Duration::from_millis(100)).await;
            }
            Ran::Died(why) => Came::Failed(why),
        };
        let mut headers = HeaderMap::new();
        headers.insert(
            async_nats::header::NATS_MESSAGE_ID,
            format!("{sweep}/{}/{}/{}", job.of, job.seed, job.record),
        );
        let answer = encode(&Answer { job, came });
        publish(&self.shared.on.jetstream, result_subject(&sweep), headers, answer).await?;
        message.double_ack().await.map_err(|cause| Error::Nats { doing: "acknowledging a job", cause })
    }

    /// Runs it.
    async fn came(&mut self, sweep: &str, job: &Job) -> Result<Ran, Error> {
        let to = job.record.then(|| {
            std::env::temp_dir().join(format!(
                "mainspring-{}-{}",
                std::process::id(),
                record_name(sweep, job)
            ))
        });
        let came = self.ask(job, to.as_ref()).await;
        let came = match came {
            // The process that makes the runs has died: of this job, or killed by somebody.
            Err(error @ Error::Peer { .. }) => {
                self.runner = None;
                Ok(Ran::Died(error.to_string()))
            }
            other => other,
        };
        if let Some(path) = &to {
            let kept = match &came {
                Ok(Ran::Came(Came::Line(_))) => self.keep_record(&record_name(sweep, job), path).await,
                _ => Ok(()),
            };
            // It may never have been written.
            let _ = tokio::fs::remove_file(path).await;
            kept?;
        }
        came
    }

    async fn ask(&mut self, job: &Job, to: Option<&PathBuf>) -> Result<Ran, Error> {
        if self.runner.as_ref().is_some_and(|runner| runner.knows.len() >= MOST_WORKLOADS) {
            self.runner = None;
        }
        let mut runner = match self.runner.take() {
            Some(runner) => runner,
            None => Runner::start(&self.shared.mainspring)?,
        };
        if !runner.knows.contains(&job.of) {
            let Some(workload) = self.workload(&job.of).await? else {
                self.runner = Some(runner);
                return Ok(Ran::Came(Came::Failed("its workload is not on the server any more".to_owned())));
            };
            if let Some(why) = runner.learn(workload).await? {
                if !self.shared.said_version.swap(true, Ordering::Relaxed) {
                    eprintln!("a job is left to others: {why}");
                }
                self.runner = Some(runner);
                return Ok(Ran::NotHere);
            }
        }
        let came = runner.run(job, to).await?;
        self.runner = Some(runner);
        Ok(Ran::Came(came))
    }

    async fn workload(&self, of: &str) -> Result<Option<Workload>, Error> {
        let bucket = self.shared.on.jetstream.get_key_value(WORKLOADS).await;
        let bucket = bucket.map_err(|error| Error::nats("finding the workloads", error))?;
        let found = bucket.get(of).await.map_err(|error| Error::nats("fetching a workload", error))?;
        Ok(found.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    async fn keep_record(&self, name: &str, path: &PathBuf) -> Result<(), Error> {
        let store = self.shared.on.jetstream.get_object_store(RECORDS).await;
        let store = store.map_err(|error| Error::nats("finding the records", error))?;
        let file = tokio::fs::File::open(path).await;
        let mut file = file.map_err(|cause| Error::Peer { who: "a flight record", cause })?;
        store.put(name, &mut file).await.map_err(|error| Error::nats("keeping a record", error))?;
        Ok(())
    }
}

fn is_absent(error: &ConsumerError) -> bool {
    let ConsumerErrorKind::JetStream(error) = error.kind() else { return false };
    matches!(error.error_code(), ErrorCode::CONSUMER_NOT_FOUND | ErrorCode::STREAM_NOT_FOUND)
}

async fn term(message: &jetstream::Message) -> Result<(), Error> {
    message
        .ack_with(AckKind::Term)
        .await
        .map_err(|cause| Error::Nats { doing: "dropping what is no job", cause })
}

async fn next(queue: &Consumer<pull::Config>) -> Result<Option<jetstream::Message>, Error> {
    let batch = queue.batch().max_messages(1).expires(PULL).messages().await;
    let mut batch = batch.map_err(|error| Error::nats("asking for a job", error))?;
    // A server that dies meanwhile never ends the batch.
    let next = timeout(PULL * 3, batch.next()).await.unwrap_or(None);
    next.transpose().map_err(|cause| Error::Nats { doing: "taking a job", cause })
}

/// A `mainspring` process that makes runs. It ends when this is dropped, and when this process ends: its input closes.
struct Runner {
    _process: Child,
    asks: ChildStdin,
    replies: Lines<ChildStdout>,
    knows: HashSet<String>,
}

const RUNNER: &str = "mainspring, which makes the runs";

impl Runner {
    fn start(mainspring: &PathBuf) -> Result<Self, Error> {
        let mut command = Command::new(mainspring);
        command.arg("sweep-runner").stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process =
            command.spawn().map_err(|cause| Error::NoRunner { path: mainspring.clone(), cause })?;
        let (Some(asks), Some(replies)) = (process.stdin.take(), process.stdout.take()) else {
            let cause = std::io::ErrorKind::BrokenPipe.into();
            return Err(Error::NoRunner { path: mainspring.clone(), cause });
        };
        Ok(Self { _process: process, asks, replies: Lines::new(RUNNER, replies), knows: HashSet::new() })
    }

    async fn send(&mut self, ask: &Ask) -> Result<(), Error> {
        let mut line = encode(ask);
        line.push(b'\n');
        self.asks.write_all(&line).await.map_err(|cause| Error::Peer { who: RUNNER, cause })
    }

    async fn reply(&mut self) -> Result<Reply, Error> {
        let gone = || Error::Peer { who: RUNNER, cause: std::io::ErrorKind::UnexpectedEof.into() };
        self.replies.next().await?.ok_or_else(gone)
    }

    /// Why it cannot run this workload, if it cannot.
    async fn learn(&mut self, workload: Workload) -> Result<Option<String>, Error> {
        let of = workload.of.clone();
        self.send(&Ask::Workload(workload)).await?;
        match self.reply().await? {
            Reply::Ready(ready) if ready == of => {
                self.knows.insert(of);
                Ok(None)
            }
            Reply::Refused(why) => Ok(Some(why)),
            _ => Err(out_of_turn()),
        }
    }

    async fn run(&mut self, job: &Job, to: Option<&PathBuf>) -> Result<Came, Error> {
        let to = to.map(|path| path.display().to_string());
        self.send(&Ask::Run { job: job.clone(), to }).await?;
        match self.reply().await? {
            Reply::Done { job: done, came } if done == *job => Ok(came),
            _ => Err(out_of_turn()),
        }
    }
}

fn out_of_turn() -> Error {
    Error::Peer { who: RUNNER, cause: std::io::ErrorKind::InvalidData.into() }
}
