//! `mainspring cluster status`: what the server holds of nodes, actors, budgets, sweeps and grants.

mod page;
mod table;

pub use table::Table;

use crate::connect::{Config, connect};
use crate::error::Error;
use crate::grant::{Amount, now_ms};
use crate::spent::{self, Record, Value};
use crate::supervise::{self, Lease, Stage, View};
use crate::sweep::{JOBS, RESULTS, WORKERS, job_subject, result_subject};
use async_nats::jetstream::consumer::{Consumer, pull};
use async_nats::jetstream::{Context, stream};
use clap::Args;
use futures_util::StreamExt as _;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

/// At most so many records are looked at.
const MOST: usize = 10_000;

/// Words of `mainspring cluster status`.
#[derive(Args, Clone, Debug)]
pub struct StatusArgs {
    #[command(flatten)]
    config: Config,

    /// Write a page of it, too.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Show it again and again, with so many seconds between, until it is stopped.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: Option<u64>,
}

/// What is known.
#[derive(Clone, Debug)]
pub struct Status {
    server: String,
    sweeps: String,
    tables: Vec<Table>,
}

/// Shows what is known.
pub async fn show(args: &StatusArgs) -> Result<(), Error> {
    let every = args.every.map(Duration::from_secs);
    loop {
        let status = Status::of(&args.config).await?;
        print!("{}", status.text());
        if let Some(path) = &args.html {
            // A browser never sees half a page.
            let beside = path.with_extension("new");
            let written = std::fs::write(&beside, status.html(every));
            written
                .and_then(|()| std::fs::rename(&beside, path))
                .map_err(|cause| Error::Peer { who: "the page", cause })?;
        }
        let Some(every) = every else { return Ok(()) };
        tokio::time::sleep(every).await;
    }
}

impl Status {
    /// What the server holds now.
    pub async fn of(config: &Config) -> Result<Self, Error> {
        let on = connect(config).await?;
        let mut sweeps = String::new();
        self::sweeps(&on.jetstream, &mut sweeps).await?;
        let mut tables = members(&on.jetstream).await?;
        tables.push(grants(&on.jetstream).await?);
        Ok(Self { server: on.client.server_info().version, sweeps, tables })
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!("server: nats-server {}\n{}", self.server, self.sweeps);
        self.tables.iter().for_each(|table| text.push_str(&table.text()));
        text
    }

    fn facts(&self) -> String {
        format!("nats-server {} · {}", self.server, self.sweeps.trim_end().replace('\n', " · "))
    }
}

fn percent(ppm: u128) -> String {
    format!("{}.{} %", ppm / 10_000, ppm / 1_000 % 10)
}

/// The tables of nodes, actors, groups and budgets.
async fn members(context: &Context) -> Result<Vec<Table>, Error> {
    let mut nodes = Table::new(
        "Nodes",
        &["node", "incarnation", "state", "renewed", "lease", "CPUs", "reserved", "of", "actors"],
    );
    let mut actors =
        Table::new("Actors", &["actor", "kind", "state", "node", "generation", "restarts", "asks for"]);
    let mut groups = Table::new("Groups", &["group", "strategy", "restarts", "at most", "gave up"]);
    let mut budgets = Table::new(
        "Budgets, in ops",
        &["node", "root", "sent", "returned", "used", "lost", "in flight", "grants in flight"],
    );
    let (view, renewed_ms) = records(context).await?;
    let now_ms = now_ms();
    for (node, seen) in &view.leases {
        let lease = &seen.value;
        let ago_ms = now_ms.saturating_sub(renewed_ms.get(node).copied().unwrap_or(0));
        let state = if lease.ended {
            "ended"
        } else if ago_ms > lease.patience_ms() {
            "lapsed"
        } else {
            "live"
        };
        let load = view.loads.get(node).map(|seen| &seen.value);
        let load = load.filter(|load| load.incarnation == lease.incarnation);
        let of = load.map_or(0, |load| {
            u128::from(load.capacity.cpus) * u128::from(1_000_000_u32.saturating_sub(load.capacity.floor_ppm))
        });
        let runs =
            |stage: &Stage| matches!(stage, Stage::Running(at) if at.node == *node && !view.is_ended(at));
        let running = view.groups.values().flat_map(|group| &group.value.states);
        nodes.push([
            node.clone(),
            lease.incarnation.to_string(),
            state.to_owned(),
            format!("{ago_ms} ms ago"),
            format!("{} ms", lease.length_ms),
            load.map_or(0, |load| load.capacity.cpus).to_string(),
            percent(load.map_or(0, supervise::Load::reserved_ppm)),
            percent(of),
            running.filter(|state| runs(&state.stage)).count().to_string(),
        ]);
        budgets.push(budget(node, lease));
    }
    for (name, seen) in &view.groups {
        let group = &seen.value;
        groups.push([
            name.clone(),
            format!("{:?}", group.spec.strategy),
            group.restarts.to_string(),
            format!("{} in {} ms", group.spec.most, group.spec.within_ms),
            group.gave_up.clone().unwrap_or_else(|| "no".into()),
        ]);
        for (child, state) in group.spec.children.iter().zip(&group.states) {
            let word = match &state.stage {
                Stage::Wanted => "waits for a node",
                Stage::Placed(_) => "starts",
                Stage::Running(at) if view.is_ended(at) => "lost",
                Stage::Running(_) => "runs",
                Stage::Stopping { .. } => "stops",
                Stage::Done => "done",
            };
            actors.push([
                format!("{name}/{}", child.name),
                child.kind.clone(),
                word.to_owned(),
                state.stage.at().map_or_else(|| "-".to_owned(), |at| at.node.clone()),
                state.generation.to_string(),
                state.generation.saturating_sub(1).to_string(),
                percent(child.demand.ppm()),
            ]);
        }
    }
    Ok(vec![nodes, actors, groups, budgets])
}

fn budget(node: &str, lease: &Lease) -> [String; 8] {
    let balance = &lease.balance;
    let ops = |amount: &Amount| amount.ops.to_string();
    let lost: u64 = balance.lost.values().map(|amount| amount.ops).fold(0, u64::saturating_add);
    [
        node.to_owned(),
        ops(&lease.root),
        ops(&balance.sent),
        ops(&balance.returned),
        ops(&balance.used),
        lost.to_string(),
        ops(&balance.in_flight),
        balance.grants_in_flight.to_string(),
    ]
}

/// All records of nodes and groups, and when each lease was renewed, by the server's clock.
async fn records(context: &Context) -> Result<(View, BTreeMap<String, u64>), Error> {
    let (mut view, mut renewed_ms) = (View::default(), BTreeMap::new());
    // Before the first node has joined there is no bucket.
    let Ok(bucket) = context.get_key_value(supervise::BUCKET).await else { return Ok((view, renewed_ms)) };
    let failed = |error| Error::nats("listing nodes", error);
    let mut keys = bucket.keys().await.map_err(failed)?.take(MOST);
    while let Some(key) = keys.next().await {
        let key = key.map_err(|error| Error::nats("listing nodes", error))?;
        let entry = bucket.entry(&key).await.map_err(|error| Error::nats("reading a node", error))?;
        let Some(entry) = entry else { continue };
        view.saw(&key, entry.revision, &entry.value, 0);
        if let Some(node) = key.strip_prefix("lease.") {
            let ms = entry.created.unix_timestamp_nanos() / 1_000_000;
            renewed_ms.insert(node.to_owned(), u64::try_from(ms).unwrap_or(0));
        }
    }
    Ok((view, renewed_ms))
}

async fn sweeps(context: &Context, text: &mut String) -> Result<(), Error> {
    // Before the first sweep there are no streams.
    let (Ok(jobs), Ok(results)) = (context.get_stream(JOBS).await, context.get_stream(RESULTS).await) else {
        text.push_str("sweeps: none yet\n");
        return Ok(());
    };
    let waiting = by_sweep(&jobs, &job_subject("")).await?;
    let done = by_sweep(&results, &result_subject("")).await?;
    let workers: Result<Consumer<pull::Config>, _> = jobs.get_consumer(WORKERS).await;
    if let Ok(workers) = workers {
        let info = workers.cached_info();
        let _ = writeln!(
            text,
            "workers: {} runs under way, {} places wait for a job",
            info.num_ack_pending, info.num_waiting
        );
    }
    let _ = writeln!(
        text,
        "sweeps: {}",
        waiting.keys().chain(done.keys()).collect::<std::collections::BTreeSet<_>>().len()
    );
    for (sweep, jobs) in &waiting {
        let results = done.get(sweep).copied().unwrap_or(0);
        let _ = writeln!(text, "  {sweep}: {jobs} jobs on the queue, {results} results kept");
    }
    Ok(())
}

async fn by_sweep(stream: &stream::Stream, prefix: &str) -> Result<BTreeMap<String, usize>, Error> {
    let counted = stream.info_with_subjects(format!("{prefix}>")).await;
    let mut counted = counted.map_err(|error| Error::nats("counting jobs", error))?;
    let mut counts = BTreeMap::new();
    while let Some(one) = counted.next().await {
        let (subject, count) = one.map_err(|error| Error::nats("counting jobs", error))?;
        counts.insert(subject.trim_start_matches(prefix).to_owned(), count);
    }
    Ok(counts)
}

async fn grants(context: &Context) -> Result<Table, Error> {
    let mut table = Table::new("Grants of the last day", &["state", "grants", "ops"]);
    let Ok(bucket) = context.get_key_value(spent::BUCKET).await else { return Ok(table) };
    let keys = bucket.keys().await.map_err(|error| Error::nats("listing grants", error))?;
    let mut keys = keys.take(MOST);
    let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let mut counted = HashSet::new();
    while let Some(key) = keys.next().await {
        let key = key.map_err(|error| Error::nats("listing grants", error))?;
        let value = bucket.get(&key).await.map_err(|error| Error::nats("reading a grant", error))?;
        let Some(value) = value.and_then(|value| serde_json::from_slice::<Value>(&value).ok()) else {
            continue;
        };
        for (id, entry) in value.entries(&key) {
            // Both sides may have recorded the same settlement.
            if !counted.insert(id) {
                continue;
            }
            let state = match entry.state {
                Record::Taken { .. } => "taken",
                Record::Settled { .. } => "settled",
                Record::Reclaimed => "taken back",
                Record::Lost { .. } => "lost",
            };
            let sum = sums.entry(state).or_default();
            *sum = (sum.0 + 1, sum.1.saturating_add(entry.amount.ops));
        }
    }
    for (state, (count, ops)) in sums {
        table.push([state.to_owned(), count.to_string(), ops.to_string()]);
    }
    Ok(table)
}
