//! The side that hands out the jobs of one sweep: asks on standard input, replies on standard output.
//!
//! Conserved: each job that was asked for is waited for until its first result, which is passed on; all others of it are compared with
//! that and dropped. A job that the queue lost is put there again.

use super::{
    Answer, Ask, Came, JOBS, Job, Queued, RECORDS, RESULTS, Reply, WINDOW, WORKERS, WORKLOADS, Workload,
    job_subject, left_subject, make_streams, record_name, result_subject,
};
use crate::connect::{Config, Connection, connect};
use crate::error::Error;
use crate::lines::{Lines, write_line};
use async_nats::jetstream::consumer::{AckPolicy, Consumer, DeliverPolicy, pull};
use async_nats::jetstream::{self, context::PublishErrorKind};
use async_nats::{HeaderMap, Subscriber};
use clap::Args;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::future::{Future, IntoFuture};
use std::hash::{Hash as _, Hasher as _};
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

/// What the dispatcher is told.
#[derive(Args, Clone, Debug)]
pub struct DispatchArgs {
    /// The server.
    #[command(flatten)]
    pub server: Config,

    /// A job whose worker has said nothing for this many seconds goes to another.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub patience: u64,

    /// Give up when the server has not answered, or no worker has taken a job, for this many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub give_up: u64,
}

/// How often the dispatcher looks whether the sweep goes on.
const LOOK: Duration = Duration::from_secs(1);

/// How long one request for results waits at the server.
const PULL: Duration = Duration::from_secs(1);

/// What a worker's silence is said after.
const SILENCE: Duration = Duration::from_secs(10);

/// A job that is waited for.
struct Waiting {
    /// How often it was put on the queue.
    attempt: u32,
    /// Where its flight record goes.
    to: Option<PathBuf>,
}

type Published = Pin<Box<dyn Future<Output = (Job, u32, Result<(), Error>)> + Send>>;

struct Dispatcher {
    on: Connection,
    sweep: String,
    waiting: HashMap<Job, Waiting>,
    /// What came of each job that is done, as a hash: for results that come again.
    done: HashMap<Job, u64>,
    publishing: FuturesUnordered<Published>,
    /// When a worker of another version last left a job to others.
    left: HashMap<Job, Instant>,
    /// When the server last answered, and when a result last came.
    heard: Instant,
    progressed: Instant,
    give_up: Duration,
    patience: Duration,
}

/// Hands out what standard input asks for until its end, and writes what comes of it.
pub async fn dispatch(args: &DispatchArgs) -> Result<(), Error> {
    let on = connect(&args.server).await?;
    let (patience, give_up) = (Duration::from_secs(args.patience), Duration::from_secs(args.give_up));
    make_streams(&on, patience).await?;
    let sweep = on.client.new_inbox().rsplit('.').next().unwrap_or_default().to_owned();
    let results = result_consumer(&on, &sweep).await?;
    let mut dispatcher = Dispatcher {
        on,
        sweep,
        waiting: HashMap::new(),
        done: HashMap::new(),
        publishing: FuturesUnordered::new(),
        left: HashMap::new(),
        heard: Instant::now(),
        progressed: Instant::now(),
        give_up,
        patience,
    };
    // A signal from the terminal ends the sweep, whose pipe then closes: there is time to clean up.
    let ignore_signal = tokio::spawn(async { while tokio::signal::ctrl_c().await.is_ok() {} });
    let left = dispatcher.on.client.subscribe(left_subject(&dispatcher.sweep)).await;
    let left = left.map_err(|error| Error::nats("subscribing to what workers leave", error))?;
    let ended = dispatcher.run(&results, left).await;
    ignore_signal.abort();
    // What is left of this sweep helps nobody. A server that is gone forgets it by age.
    let _ = timeout(Duration::from_secs(5), dispatcher.clean_up()).await;
    ended
}

async fn result_consumer(on: &Connection, sweep: &str) -> Result<Consumer<pull::Config>, Error> {
    let config = pull::Config {
        durable_name: Some(format!("sweep-{sweep}")),
        deliver_policy: DeliverPolicy::All,
        ack_policy: AckPolicy::Explicit,
        ack_wait: Duration::from_secs(5),
        max_ack_pending: WINDOW as i64,
        filter_subject: result_subject(sweep),
        inactive_threshold: Duration::from_secs(3_600),
        ..pull::Config::default()
    };
    let made = on.jetstream.create_consumer_on_stream(config, RESULTS).await;
    made.map_err(|error| Error::nats("making the queue of results", error))
}

impl Dispatcher {
    async fn run(&mut self, results: &Consumer<pull::Config>, mut left: Subscriber) -> Result<(), Error> {
        let mut asks = Lines::new("mainspring sweep", tokio::io::stdin());
        let mut ended = false;
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut said = Instant::now();
        let mut pulled = Box::pin(pull_results(results.clone()));
        while !(ended && self.waiting.is_empty()) {
            tokio::select! {
                ask = asks.next::<Ask>(), if !ended && self.waiting.len() < WINDOW => match ask? {
                    Some(Ask::Workload(workload)) => self.keep_workload(&workload).await?,
                    Some(Ask::Run { job, to }) => self.ask(job, to.map(PathBuf::from)),
                    Some(Ask::End) => ended = true,
                    None => return Err(Error::Peer { who: "mainspring sweep", cause: std::io::ErrorKind::UnexpectedEof.into() }),
                },
                Some((job, attempt, published)) = self.publishing.next() => {
                    self.published(job, attempt, published)?;
                }
                pull = &mut pulled => {
                    self.results(pull).await?;
                    pulled = Box::pin(pull_results(results.clone()));
                }
                Some(message) = left.next() => {
                    let job = serde_json::from_slice::<Job>(&message.payload).ok();
                    if let Some(job) = job.filter(|job| self.waiting.contains_key(job)) {
                        self.left.insert(job, Instant::now());
                    }
                }
                _ = looks.tick() => self.look(results, &mut said).await?,
            }
        }
        Ok(())
    }

    async fn keep_workload(&mut self, workload: &Workload) -> Result<(), Error> {
        let bytes = encode(workload);
        let mut last;
        let began = Instant::now();
        loop {
            let bucket = self.on.jetstream.get_key_value(WORKLOADS).await;
            last = match bucket {
                Ok(bucket) => match bucket.put(&workload.of, bytes.clone().into()).await {
                    Ok(_) => return Ok(()),
                    Err(error) => Error::nats("keeping the workload", error),
                },
                Err(error) => Error::nats("finding the workloads", error),
            };
            if !last.is_passing() || began.elapsed() > self.give_up {
                return Err(last);
            }
            sleep(LOOK).await;
        }
    }

    /// Puts a job on the queue, unless it is waited for or done.
    fn ask(&mut self, job: Job, to: Option<PathBuf>) {
        if self.done.contains_key(&job) {
            return;
        }
        if let Entry::Vacant(place) = self.waiting.entry(job.clone()) {
            place.insert(Waiting { attempt: 0, to });
            self.publish(job, 0, Duration::ZERO);
        }
    }

    fn publish(&self, job: Job, attempt: u32, after: Duration) {
        let context = self.on.jetstream.clone();
        let sweep = self.sweep.clone();
        self.publishing.push(Box::pin(async move {
            sleep(after).await;
            let mut headers = HeaderMap::new();
            // The same job on the same attempt is kept once, however often it is sent.
            let id = format!("{sweep}/{}/{}/{}/{attempt}", job.of, job.seed, job.record);
            headers.insert(async_nats::header::NATS_MESSAGE_ID, id);
            let queued = Queued { sweep: sweep.clone(), job: job.clone() };
            let sent = publish(&context, job_subject(&sweep), headers, encode(&queued)).await;
            (job, attempt, sent)
        }));
    }

    fn published(&mut self, job: Job, attempt: u32, published: Result<(), Error>) -> Result<(), Error> {
        match published {
            Ok(()) => self.heard = Instant::now(),
            Err(error) if error.is_passing() && self.heard.elapsed() < self.give_up => {
                if self.waiting.contains_key(&job) {
                    self.publish(job, attempt, LOOK);
                }
            }
            Err(error) if error.is_passing() => {
                return Err(Error::Lost { doing: "handing out jobs", tried: self.give_up });
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn results(&mut self, pull: Result<Vec<jetstream::Message>, Error>) -> Result<(), Error> {
        let messages = match pull {
            Ok(messages) => messages,
            Err(error) if error.is_passing() && self.heard.elapsed() < self.give_up => {
                sleep(Duration::from_millis(200)).await;
                return Ok(());
            }
            Err(error) if error.is_passing() => {
                return Err(Error::Lost { doing: "waiting for results", tried: self.give_up });
            }
            Err(error) => return Err(error),
        };
        for message in messages {
            self.heard = Instant::now();
            // What is no answer of ours was published by somebody else: it must not stop the sweep.
            if let Ok(answer) = serde_json::from_slice::<Answer>(&message.payload) {
                match self.answer(answer).await {
                    Ok(()) => {}
                    // The server may be starting again: without an acknowledgement it says the same again.
                    Err(error) if error.is_passing() => continue,
                    Err(error) => return Err(error),
                }
            }
            // An acknowledgement that is lost brings the same result again, which is dropped.
            let _ = message.ack().await;
        }
        Ok(())
    }

    async fn answer(&mut self, Answer { job, came }: Answer) -> Result<(), Error> {
        let hash = hash(&came);
        if let Some(before) = self.done.get(&job) {
            return if *before == hash { Ok(()) } else { Err(Error::Differs { seed: job.seed }) };
        }
        let Some(waiting) = self.waiting.get(&job) else { return Ok(()) };
        if let (Some(path), Came::Line(_)) = (&waiting.to, &came) {
            fetch_record(&self.on, &record_name(&self.sweep, &job), path).await?;
        }
        self.waiting.remove(&job);
        self.left.remove(&job);
        self.done.insert(job.clone(), hash);
        self.progressed = Instant::now();
        write_line("mainspring sweep", &Reply::Done { job, came })
    }

    /// Whether the sweep goes on: jobs that the queue has lost are put there again, and silence is said.
    async fn look(&mut self, results: &Consumer<pull::Config>, said: &mut Instant) -> Result<(), Error> {
        if self.waiting.is_empty() {
            self.progressed = Instant::now();
            return Ok(());
        }
        if self.heard.elapsed() > self.give_up {
            return Err(Error::Lost { doing: "waiting for results", tried: self.give_up });
        }
        if self.progressed.elapsed() < SILENCE.min(self.patience) || !self.publishing.is_empty() {
            return Ok(());
        }
        let asked = timeout(PULL, self.queue(results)).await;
        let Ok(Ok(Queue { ours, to_come, under_way, unread })) = asked else { return Ok(()) };
        self.heard = Instant::now();
        // A server that was killed may list jobs that were done, and that it will not deliver again.
        let none_comes = ours == 0 || (to_come == 0 && under_way == 0);
        if none_comes && unread == 0 && self.publishing.is_empty() {
            self.put_again();
        } else if under_way > 0 && !self.are_left() {
            // A long run: its worker says every third of the patience that it goes on.
            self.progressed = self.progressed.max(Instant::now() - SILENCE);
        } else if self.progressed.elapsed() > self.give_up {
            return Err(Error::NoWorkers { waiting: self.waiting.len(), tried: self.give_up });
        } else if said.elapsed() > SILENCE {
            *said = Instant::now();
            eprintln!("{} jobs wait for a worker: mainspring worker --nats URL", self.waiting.len());
        }
        Ok(())
    }

    /// Whether every job that waits was given back, and by now would have been again: none is under way.
    fn are_left(&self) -> bool {
        let is_left = |job| self.left.get(job).is_some_and(|at| at.elapsed() < self.patience * 3);
        self.waiting.keys().all(is_left)
    }

    fn put_again(&mut self) {
        let lost: Vec<(Job, u32)> = self
            .waiting
            .iter_mut()
            .map(|(job, waiting)| {
                waiting.attempt += 1;
                (job.clone(), waiting.attempt)
            })
            .collect();
        for (job, attempt) in lost {
            self.publish(job, attempt, Duration::ZERO);
        }
        self.progressed = Instant::now();
    }

    async fn queue(&self, results: &Consumer<pull::Config>) -> Result<Queue, Error> {
        let lost = |doing| move |error| Error::Nats { doing, cause: error };
        let stream = self.on.jetstream.get_stream(JOBS).await.map_err(|e| Error::nats("finding jobs", e))?;
        let subject = job_subject(&self.sweep);
        let mut counts =
            stream.info_with_subjects(&subject).await.map_err(|e| Error::nats("counting jobs", e))?;
        let mut ours = 0;
        while let Some(counted) = counts.next().await {
            ours += counted.map_err(|e| lost("counting jobs")(Box::new(e)))?.1;
        }
        let workers: Consumer<pull::Config> =
            stream.get_consumer(WORKERS).await.map_err(lost("finding the workers"))?;
        let mut results = results.clone();
        let read = results.info().await.map_err(|e| Error::nats("counting results", e))?;
        Ok(Queue {
            ours,
            to_come: workers.cached_info().num_pending,
            under_way: workers.cached_info().num_ack_pending,
            unread: read.num_pending as usize + read.num_ack_pending,
        })
    }

    async fn clean_up(&self) -> Result<(), Error> {
        let context = &self.on.jetstream;
        for (stream, subject) in [(JOBS, job_subject(&self.sweep)), (RESULTS, result_subject(&self.sweep))] {
            let stream = context.get_stream(stream).await.map_err(|e| Error::nats("cleaning up", e))?;
            stream.purge().filter(subject).into_future().await.map_err(|e| Error::nats("cleaning up", e))?;
            let consumer = format!("sweep-{}", self.sweep);
            // The consumer is of one of the two.
            let _ = stream.delete_consumer(&consumer).await;
        }
        Ok(())
    }
}

/// How the queue stands.
struct Queue {
    /// Jobs of this sweep that no result has taken off.
    ours: usize,
    /// Jobs of any sweep that no worker has had yet.
    to_come: u64,
    /// Jobs of any sweep that a worker has.
    under_way: usize,
    /// Results that have not been read.
    unread: usize,
}

/// Results that are there; or the first that comes, or none if none comes soon.
async fn pull_results(results: Consumer<pull::Config>) -> Result<Vec<jetstream::Message>, Error> {
    let there = results.fetch().max_messages(256).messages().await;
    let messages = collect(there).await?;
    if !messages.is_empty() {
        return Ok(messages);
    }
    collect(results.batch().max_messages(1).expires(PULL).messages().await).await
}

/// The messages of a batch. A server that dies in the middle of one never ends it: what came until then is not lost, and what did not
/// is delivered again.
async fn collect(batch: Result<pull::Batch, pull::BatchError>) -> Result<Vec<jetstream::Message>, Error> {
    let mut batch = batch.map_err(|error| Error::nats("asking for results", error))?;
    let mut messages = Vec::new();
    while let Ok(Some(message)) = timeout(PULL * 3, batch.next()).await {
        messages.push(message.map_err(|cause| Error::Nats { doing: "reading results", cause })?);
    }
    Ok(messages)
}

/// Publishes, and waits until it is kept.
pub(super) async fn publish(
    context: &jetstream::Context,
    subject: String,
    headers: HeaderMap,
    payload: Vec<u8>,
) -> Result<(), Error> {
    let sent = async { context.publish_with_headers(subject, headers, payload.into()).await?.await };
    sent.await.map(|_| ()).map_err(|error| match error.kind() {
        PublishErrorKind::Other => Error::nats("publishing", error),
        _ => Error::Nats { doing: "publishing", cause: Box::new(error) },
    })
}

async fn fetch_record(on: &Connection, name: &str, path: &std::path::Path) -> Result<(), Error> {
    let failed = |cause| Error::Peer { who: "the file of a flight record", cause };
    let store =
        on.jetstream.get_object_store(RECORDS).await.map_err(|e| Error::nats("finding records", e))?;
    let mut object = store.get(name).await.map_err(|error| Error::nats("fetching a record", error))?;
    let mut file = tokio::fs::File::create(path).await.map_err(failed)?;
    tokio::io::copy(&mut object, &mut file).await.map_err(failed)?;
    tokio::io::AsyncWriteExt::flush(&mut file).await.map_err(failed)?;
    // It is there; that the server has it, too, for a day is no harm.
    let _ = store.delete(name).await;
    Ok(())
}

fn hash(came: &Came) -> u64 {
    let mut hasher = DefaultHasher::new();
    encode(came).hash(&mut hasher);
    hasher.finish()
}

pub(super) fn encode(value: &impl serde::Serialize) -> Vec<u8> {
    // Our own types have no keys that JSON lacks.
    serde_json::to_vec(value).unwrap_or_default()
}
