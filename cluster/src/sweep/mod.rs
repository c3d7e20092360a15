//! Sweeps over many machines: seeds as a work queue on the server.
//!
//! `mainspring sweep --nats` runs the [`dispatch`] side and makes its table as ever; each `mainspring worker` runs the [`worker`] side,
//! which has the runs made by `mainspring` itself. So a result is made, and shown, by the code that does so on one host.
//!
//! Conserved: a job leaves the queue when its result is kept, and not before; so a worker that dies loses nothing. A result is passed
//! on once for each job, however often it was made; so nothing counts twice. Two results of one job that differ are an error.

pub mod dispatch;
pub mod worker;

use crate::bucket;
use crate::connect::Connection;
use crate::error::Error;
use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::object_store;
use async_nats::jetstream::stream::{self, DiscardPolicy, RetentionPolicy, StorageType};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// The stream of jobs, and the consumer that all workers share.
pub(crate) const JOBS: &str = "mainspring-sweep-jobs";
pub(crate) const WORKERS: &str = "workers";
pub(crate) const RESULTS: &str = "mainspring-sweep-results";
const WORKLOADS: &str = "mainspring-sweep-workloads";
const RECORDS: &str = "mainspring-sweep-records";

/// What a sweep leaves behind when its dispatcher is killed goes away by itself.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// How many jobs of one sweep are on the queue at a time.
const WINDOW: usize = 4_096;

/// The most that a stream keeps.
const MOST_JOBS: i64 = 1_000_000;

pub(crate) fn job_subject(sweep: &str) -> String {
    format!("mainspring.sweep.job.{sweep}")
}

pub(crate) fn result_subject(sweep: &str) -> String {
    format!("mainspring.sweep.result.{sweep}")
}

/// Where workers say which jobs they leave to others, because their `mainspring` is of another version.
pub(crate) fn left_subject(sweep: &str) -> String {
    format!("mainspring.sweep.left.{sweep}")
}

/// A workload, with settings made. `of` is the fingerprint of all that a result depends on, beside the seed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Workload {
    /// Its fingerprint.
    pub of: String,
    /// What reports call it.
    pub name: String,
    /// What makes a run fail, beside its expectations.
    pub fail_on: Option<String>,
    /// Its text.
    pub text: String,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Job {
    /// The workload.
    pub of: String,
    /// The seed.
    pub seed: u64,
    /// Whether its flight record is wanted.
    #[serde(default)]
    pub record: bool,
}

/// A job on the queue.
#[derive(Debug, Serialize, Deserialize)]
struct Queued {
    sweep: String,
    job: Job,
}

/// What came of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Came {
    /// The result, as `mainspring` writes it.
    Line(Value),
    /// It did not run to its end.
    Failed(String),
}

/// A job's result on its way back.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    job: Job,
    came: Came,
}

/// What `mainspring sweep` writes to the dispatcher, and the worker to `mainspring`: one in each line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// Jobs will name it.
    Workload(Workload),
    /// Run it. `to` is where its flight record goes, if it is wanted.
    Run {
        /// What to run.
        #[serde(flatten)]
        job: Job,
        /// A path.
        #[serde(default)]
        to: Option<String>,
    },
    /// There are no more.
    End,
}

/// What comes back: one in each line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// A workload was understood.
    Ready(String),
    /// A workload was not: it is of another version, or none.
    Refused(String),
    /// A job is done.
    Done {
        /// Which.
        #[serde(flatten)]
        job: Job,
        /// And what came of it.
        came: Came,
    },
}

/// What the server keeps for sweeps. Made by the dispatcher; a worker waits for it.
async fn make_streams(on: &Connection, patience: Duration) -> Result<(), Error> {
    let common = stream::Config {
        storage: StorageType::File,
        discard: DiscardPolicy::New,
        max_age: KEPT,
        max_messages: MOST_JOBS,
        num_replicas: on.replicas,
        ..stream::Config::default()
    };
    let jobs = stream::Config {
        name: JOBS.into(),
        subjects: vec![job_subject(">")],
        retention: RetentionPolicy::WorkQueue,
        ..common.clone()
    };
    let results = stream::Config { name: RESULTS.into(), subjects: vec![result_subject(">")], ..common };
    for config in [jobs, results] {
        on.jetstream.get_or_create_stream(config).await.map_err(|e| Error::nats("making the streams", e))?;
    }
    let workers = pull::Config {
        durable_name: Some(WORKERS.into()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: patience,
        max_ack_pending: WINDOW as i64,
        ..pull::Config::default()
    };
    on.jetstream
        .create_consumer_on_stream(workers, JOBS)
        .await
        .map_err(|error| Error::nats("making the workers' queue", error))?;
    bucket::open(on, WORKLOADS, 1, KEPT).await?;
    let records = object_store::Config {
        bucket: RECORDS.into(),
        max_age: KEPT,
        num_replicas: on.replicas,
        ..object_store::Config::default()
    };
    on.jetstream.create_object_store(records).await.map_err(|e| Error::nats("making a store", e))?;
    Ok(())
}

/// Where the flight record of a job waits.
fn record_name(sweep: &str, job: &Job) -> String {
    format!("{sweep}-{}-{}", job.of, job.seed)
}
