//! A node that carries supervised actors of two kinds: `relay` doubles a value and asks the actor that its argument names, and `sum` adds
//! values to a sum that outlives it. Each message is `ID VALUE`. `sum` adds each id once, so that a sender may ask again.
//!
//! `member NAME SECRET URL LEASE_MS CPU_PERCENT PEER=PUBLIC...`: keys are 64 hexadecimal digits. It serves until it is killed, or its input
//! closes; then it leaves. With `MAINSPRING_JOURNAL` it also asks its own actors all the time, and publishes when they were at work.

use mainspring::{Config as RuntimeConfig, Cx, Pool, Profile, Runtime};
use mainspring_cluster::grant::unhex;
use mainspring_cluster::supervise::{Capacity, Handler, Kinds, Member, MemberConfig, Place};
use mainspring_cluster::{Config, Connection, Identity, Message, Node, Terms, Trusted, connect};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

type Failed = Box<dyn std::error::Error>;

/// Below this and the node's name, those who watch find when an actor was at work: `ACTOR GENERATION NODE BEGIN END`, in nanoseconds of
/// the host's clock. A line for the actor `-` says that everything up to then was published.
const JOURNAL: &str = "mainspring.journal";

/// What a message that is passed on has.
const PASSED_ON: Pool = Pool { ops: 100_000, memory: 1 << 16, spawn_count: 1, channel_ops: 16, syscalls: 16 };

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Of each actor and generation, from when to when it was at work.
type Times = BTreeMap<(String, u64), (u64, u64)>;

/// When each generation was at work since this was last published.
#[derive(Clone, Debug, Default)]
struct Journal(Arc<Mutex<Times>>);

impl Journal {
    /// Something was done from `begin` on. It counts only if the generation may act after it.
    fn note(&self, place: &Place, begin: u64) {
        let end = now_ns();
        if place.may_act() {
            let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let seen = inner.entry((place.name().to_owned(), place.generation())).or_insert((begin, end));
            *seen = (seen.0.min(begin), seen.1.max(end));
        }
    }

    fn take(&self) -> Times {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn publish(self, node: String, on: Connection) {
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let now = now_ns();
            let at_work = self.take().into_iter();
            let lines = at_work.map(|((actor, generation), (begin, end))| {
                format!("{actor} {generation} {node} {begin} {end}")
            });
            for line in lines.chain([format!("- 0 {node} {now} {now}")]) {
                // A line that comes twice says the same twice.
                while !publish_line(&on, &node, &line).await {}
            }
        }
    }
}

async fn publish_line(on: &Connection, node: &str, line: &str) -> bool {
    let subject = format!("{JOURNAL}.{node}");
    let sent = async { on.jetstream.publish(subject, line.to_owned().into()).await?.await };
    matches!(tokio::time::timeout(Duration::from_secs(1), sent).await, Ok(Ok(_)))
}

fn parse(payload: &[u8]) -> Option<(u64, u64)> {
    let (id, value) = std::str::from_utf8(payload).ok()?.split_once(' ')?;
    Some((id.parse().ok()?, value.parse().ok()?))
}

/// Adds each id once, and saves the sum before it replies: `NODE GENERATION LAST_ID SUM REVISION`.
fn sum(place: Place, journal: Journal) -> Handler {
    let (mut last, mut sum) = place.saved().and_then(parse).unwrap_or((0, 0));
    let mut revision = 0;
    Box::new(move |cx: &Cx, message: Message| {
        let begin = now_ns();
        if let Some((id, value)) = parse(&message.payload)
            && id > last
        {
            let next = sum.wrapping_add(value);
            // An actor whose state may or may not be saved ends: its next life begins with what is.
            revision = place.save(cx, format!("{id} {next}").into_bytes()).expect("the state is saved");
            (last, sum) = (id, next);
        }
        journal.note(&place, begin);
        format!("{} {} {last} {sum} {revision}", place.node().name(), place.generation()).into_bytes()
    })
}

/// Doubles a value, and asks the next actor.
fn relay(place: Place, journal: Journal) -> Handler {
    let next = place.actor(place.argument());
    Box::new(move |cx: &Cx, message: Message| {
        let begin = now_ns();
        let Some((id, value)) = parse(&message.payload) else { return Vec::new() };
        let payload = format!("{id} {}", value.wrapping_mul(2)).into_bytes();
        let reply = next.ask(cx, payload, PASSED_ON, Duration::from_secs(2));
        journal.note(&place, begin);
        reply.unwrap_or_else(|error| format!("error: {error}").into_bytes())
    })
}

/// Asks the actors that are here, over and over: also while no server is reached.
fn keep_busy(runtime: &Runtime, node: &Node, names: &[String]) {
    let ended = runtime.run(|cx| {
        loop {
            for name in names.iter().filter(|name| node.hosts(name)) {
                // It may have gone meanwhile.
                let _ =
                    node.actor(name.as_str()).ask(cx, b"tick".to_vec(), PASSED_ON, Duration::from_secs(1));
            }
            cx.sleep(Duration::from_millis(5));
        }
    });
    eprintln!("the actors are not asked any more: {ended:?}");
}

fn key(text: &str) -> Result<[u8; 32], Failed> {
    let bytes = unhex(text).and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    bytes.ok_or_else(|| "a key is 64 hexadecimal digits".into())
}

fn main() -> Result<(), Failed> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [name, secret, url, lease_ms, percent, peers @ ..] = words.as_slice() else {
        return Err("usage: member NAME SECRET URL LEASE_MS CPU_PERCENT PEER=PUBLIC...".into());
    };
    let mut trusted = Trusted::new();
    for peer in peers {
        let (name, public) = peer.split_once('=').ok_or("a peer is NAME=PUBLIC")?;
        trusted = trusted.believe(name, &key(public)?, Pool::AMPLE)?;
    }
    let percent: u32 = percent.parse()?;
    let capacity = Capacity { cpus: 1, floor_ppm: 1_000_000 - percent.min(100) * 10_000, memory: 64 << 20 };
    let runtime = Arc::new(RuntimeConfig::new(Profile::Cluster).workers(1).build()?);
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    tokio.block_on(async {
        let on = connect(&Config::new(url)).await?;
        let terms = Terms { trusted, grace: Duration::from_secs(1), ..Terms::default() };
        let node = Node::join(Identity::new(name, &key(secret)?), runtime.clone(), terms, on.clone()).await?;
        let journal = Journal::default();
        let kinds = Kinds::new()
            .with("sum", {
                let journal = journal.clone();
                move |place| sum(place, journal.clone())
            })
            .with("relay", {
                let journal = journal.clone();
                move |place| relay(place, journal.clone())
            });
        if let Ok(names) = std::env::var("MAINSPRING_JOURNAL") {
            let names: Vec<String> = names.split(',').map(str::to_owned).collect();
            tokio::spawn(journal.publish(name.clone(), on.clone()));
            let (runtime, node) = (runtime.clone(), node.clone());
            std::thread::spawn(move || keep_busy(&runtime, &node, &names));
        }
        let lease = Duration::from_millis(lease_ms.parse()?);
        let member = Member::join(&node, MemberConfig { lease, capacity, kinds }).await?;
        println!("ready");
        let closed = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
        closed.await??;
        member.leave().await;
        // The threads that ask actors do not end by themselves.
        std::process::exit(0);
    })
}
