//! What a call of an actor costs, beside the bare means that it is made of: all in one run, on one host, on loopback.
//!
//! `cost URL [--threads] [--only N]`: needs a NATS server with JetStream. Each node is served by one thread (`OneThread`); with `--threads`
//! it is an ordinary runtime that joins from a Tokio with several threads. A bare request goes between two Tokio runtimes of the same
//! kind as the nodes have: of one thread each, or of several. Another one has both sides in one Tokio, as in a program with
//! `#[tokio::main]`. `--only` makes calls of row N alone, so that `perf stat` or `strace -c` counts them.

use futures_util::{FutureExt as _, StreamExt as _};
use mainspring::{Capacity, Config as RuntimeConfig, NurseryOptions, Pool, Profile, Runtime};
use mainspring_cluster::{
    Actor, Config, Identity, Message, Node, OneThread, Remote, Terms, Trusted, connect,
};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

type Failed = Box<dyn std::error::Error>;

const CALLS: usize = 4_000;
/// Calls of a round in one process: so few that most rounds are not interrupted.
const LOCAL_CALLS: u32 = 500;
const LOCAL_ROUNDS: usize = 101;
const PATIENCE: Duration = Duration::from_secs(10);
/// What each message has.
const GRANT: Pool = Pool { ops: 1_000, spawn_count: 1, ..Pool::ZERO };

/// What so many percent of these are below, in microseconds.
fn quantile(mut times: Vec<Duration>, percent: usize) -> f64 {
    times.sort_unstable();
    times[times.len() * percent / 100].as_secs_f64() * 1e6
}

/// The median, in microseconds.
fn median(times: Vec<Duration>) -> f64 {
    quantile(times, 50)
}

/// A Tokio of one thread, or of several. It goes on as long as the process.
fn start_tokio(threads: bool) -> Result<Handle, Failed> {
    let tokio = match threads {
        true => tokio::runtime::Runtime::new()?,
        false => tokio::runtime::Builder::new_current_thread().enable_all().build()?,
    };
    let handle = tokio.handle().clone();
    // A Tokio of one thread runs while somebody waits in it.
    std::thread::spawn(move || tokio.block_on(std::future::pending::<()>()));
    Ok(handle)
}

/// A runtime, and where its node joins: on the worker's thread, or in a Tokio of several.
struct Place {
    runtime: Arc<Runtime>,
    tokio: Handle,
    _one_thread: Option<OneThread>,
}

impl Place {
    fn new(threads: bool) -> Result<Self, Failed> {
        // One worker: two would take messages from each other, and that is what would be measured.
        let config = RuntimeConfig::new(Profile::Cluster).workers(1);
        if threads {
            let (runtime, tokio) = (Arc::new(config.build()?), start_tokio(true)?);
            return Ok(Self { runtime, tokio, _one_thread: None });
        }
        let one_thread = OneThread::start(config)?;
        let (runtime, tokio) = (one_thread.runtime().clone(), one_thread.tokio().clone());
        Ok(Self { runtime, tokio, _one_thread: Some(one_thread) })
    }

    async fn join(&self, identity: Identity, terms: Terms, url: &str) -> Result<Node, Failed> {
        let (runtime, url) = (self.runtime.clone(), url.to_owned());
        let joining =
            async move { Node::join(identity, runtime, terms, connect(&Config::new(url)).await?).await };
        Ok(self.tokio.spawn(joining).await??)
    }

    /// A task that makes a call each time that it is told to, and says how long that took.
    fn caller(&self, remote: Remote) -> (mainspring::Sender<()>, mpsc::Receiver<Duration>) {
        let (tell, told) = self.runtime.channel(Capacity::Bounded(1));
        let (took, times) = mpsc::channel();
        let runtime = self.runtime.clone();
        std::thread::spawn(move || {
            runtime.run(|cx| {
                while told.recv(cx).is_ok() {
                    let began = Instant::now();
                    remote.ask(cx, b"x".to_vec(), GRANT, PATIENCE).expect("a reply");
                    took.send(began.elapsed()).expect("it is waited for");
                }
            })
        });
        (tell, times)
    }
}

/// Calls across nodes, in turns.
const ACROSS: [&str; 5] = [
    "bare request, of the nodes' kind",
    "bare request, in one Tokio",
    "actor call across nodes, unpaid",
    "actor call across nodes, with a grant",
    "the same, by a task of a node",
];

fn main() -> Result<(), Failed> {
    let args: Vec<String> = std::env::args().collect();
    let url = args.get(1).cloned().ok_or("usage: cost URL [--threads] [--only N]")?;
    let threads = args.contains(&"--threads".to_owned());
    let only = args.iter().position(|arg| arg == "--only").and_then(|at| args.get(at + 1)?.parse().ok());
    let tokio = tokio::runtime::Runtime::new()?;
    let (here, there) = (Place::new(threads)?, Place::new(threads)?);
    let (tx, rx) = mpsc::channel();
    let serving = there.runtime.clone();
    std::thread::spawn(move || {
        serving.run(|cx| {
            let (address, mailbox) = cx.mailbox(64, Pool::ZERO).expect("a mailbox");
            tx.send(address).expect("the main thread waits");
            mailbox.serve(cx, &mut (), |(), _, message: Message| message.payload).expect("it serves");
        })
    });
    let actor = rx.recv()?;
    let (asking, answering) = (start_tokio(threads)?, start_tokio(threads)?);
    let bares = [(asking, answering), (tokio.handle().clone(), tokio.handle().clone())];
    let across = tokio.block_on(across(&url, bares, (&here, &there), actor.clone(), only))?;
    if only.is_some() {
        return Ok(());
    }
    let local = local(&there.runtime, actor, GRANT)?;
    let kind = if threads { "of several threads" } else { "of one thread" };
    println!("Nodes {kind}. Ratios are to the bare request of the nodes' kind, and to that in one Tokio.");
    // A tenth of the calls met nothing else that the host does.
    println!("                                          median     ratios         quickest tenth     ratios");
    let of = |column: usize, percent| quantile(across.iter().map(|call| call[column]).collect(), percent);
    for (column, what) in ACROSS.iter().enumerate() {
        let [half, tenth] = [50, 10].map(|percent| {
            let time = of(column, percent);
            format!("{time:9.1} us  {:6.2} {:6.2}", time / of(0, percent), time / of(1, percent))
        });
        println!("{what:37} {half}    {tenth}");
    }
    println!();
    for (column, what) in LOCAL.iter().enumerate() {
        let of = |f: &dyn Fn(&[Duration; 5]) -> Duration| median(local.iter().map(f).collect());
        let time = of(&|round| round[column]) / f64::from(LOCAL_CALLS);
        // Of each round, since what the host does meanwhile hits its parts alike.
        let ratio = |round: &[Duration; 5]| round[column].as_secs_f64() / round[0].as_secs_f64();
        let ratio = of(&|round| Duration::from_secs_f64(ratio(round) * 1e-6));
        println!("{what:37} {time:9.3} us  {ratio:7.2}");
    }
    Ok(())
}

/// A client that asks, and somebody who answers it, each in its Tokio.
async fn bare(
    url: &str,
    subject: &'static str,
    (asking, answering): (Handle, Handle),
) -> Result<async_nats::Client, Failed> {
    let connect = |url: String| async move { async_nats::connect(url).await };
    let server = answering.spawn(connect(url.to_owned())).await??;
    let mut asked = server.subscribe(subject).await?;
    server.flush().await?;
    answering.spawn(async move {
        while let Some(message) = asked.next().await {
            if let Some(reply) = message.reply {
                // The client asks again if it fails: this is no measurement of that.
                let _ = server.publish(reply, message.payload).await;
            }
        }
    });
    Ok(asking.spawn(connect(url.to_owned())).await??)
}

/// What calls across nodes cost: in turns, so that what the host does meanwhile hits all of them alike.
async fn across(
    url: &str,
    [of_kind, in_one]: [(Handle, Handle); 2],
    (here, there): (&Place, &Place),
    actor: Actor,
    only: Option<usize>,
) -> Result<Vec<[Duration; ACROSS.len()]>, Failed> {
    let of_kind = bare(url, "mainspring.bare.kind", of_kind).await?;
    let in_one = bare(url, "mainspring.bare.one", in_one).await?;
    let (anna, bert) = (Identity::generate("anna")?, Identity::generate("bert")?);
    let trusted = Trusted::new().believe("anna", &anna.public(), Pool::AMPLE)?.believe(
        "bert",
        &bert.public(),
        Pool::AMPLE,
    )?;
    let terms = Terms { trusted, ..Terms::default() };
    let asks = here.join(anna, terms.clone(), url).await?;
    let answers = there.join(bert, terms, url).await?;
    let exported = answers.export("echo", actor, 64).await?;
    let remote = asks.actor("echo");
    let (tell, times) = here.caller(asks.actor("echo"));
    let mut calls = Vec::new();
    for turn in 0..CALLS {
        let mut call = [Duration::ZERO; ACROSS.len()];
        // What was before matters to what comes next: each is the first in its turn.
        for column in (0..ACROSS.len()).map(|n| only.unwrap_or((turn + n) % ACROSS.len())) {
            let began = Instant::now();
            match column {
                0 => drop(of_kind.request("mainspring.bare.kind", "x".into()).await?),
                1 => drop(in_one.request("mainspring.bare.one", "x".into()).await?),
                2 => drop(remote.ask_unpaid(b"x".to_vec(), PATIENCE).await?),
                3 => drop(remote.ask_outside(b"x".to_vec(), GRANT, PATIENCE).await?),
                _ => tell.send_blocking(()).map_err(|_| "the task has gone")?,
            }
            call[column] = if column == 4 { times.recv()? } else { began.elapsed() };
        }
        calls.push(call);
    }
    drop((tell, exported));
    Ok(calls)
}

/// What is measured in one process, in turns.
const LOCAL: [&str; 5] = [
    "channel round trip",
    "a task for each message over channels",
    "actor call by address",
    "actor call by name",
    "actor call by name, of another run",
];

/// What a round trip costs in one process: between two tasks over channels, and to actors.
fn local(runtime: &Arc<Runtime>, actor: Actor, grant: Pool) -> Result<Vec<[Duration; 5]>, Failed> {
    let alone = Node::local(Identity::generate("alone")?, runtime.clone());
    let export = |name, actor| alone.export(name, actor, 64).now_or_never().expect("it waits for no server");
    let _other = export("other", actor)?;
    let each = |f: &dyn Fn()| {
        let began = Instant::now();
        (0..LOCAL_CALLS).for_each(|_| f());
        began.elapsed()
    };
    let times = runtime.run(|cx| {
        cx.nursery(|n| {
            let (to, asks) = cx.channel::<Vec<u8>>(Capacity::Bounded(1)).expect("a channel");
            let (back, replies) = cx.channel::<Vec<u8>>(Capacity::Bounded(1)).expect("a channel");
            n.start(move |cx| {
                asks.iter(cx).map_while(Result::ok).for_each(|ask| back.send(cx, ask).expect("it listens"));
            })
            .expect("it starts");
            let (to_spawner, spawner_asks) = cx.channel::<Vec<u8>>(Capacity::Bounded(1)).expect("a channel");
            let (spawner_back, spawner_replies) =
                cx.channel::<Vec<u8>>(Capacity::Bounded(1)).expect("a channel");
            // The least that an actor does whose messages are tasks of their own.
            let much =
                Pool { ops: 100_000_000, spawn_count: 1_000_000, channel_ops: 1_000_000, ..Pool::ZERO };
            n.builder()
                .pool(much)
                .start(move |cx| {
                    let asks = spawner_asks.iter(cx).map_while(Result::ok);
                    asks.for_each(|ask| {
                        let options = NurseryOptions::new().pool(grant);
                        let handled =
                            cx.nursery_with(options, |n| n.spawn(move |_| ask).expect("it starts").join(cx));
                        let reply = handled.expect("it ends").expect("it ends");
                        spawner_back.send(cx, reply).expect("it listens");
                    });
                })
                .expect("it starts");
            let (address, mailbox) = cx.mailbox(64, Pool::ZERO).expect("a mailbox");
            n.start(move |cx| {
                mailbox.serve(cx, &mut (), |(), _, message: Message| message.payload).expect("it serves");
            })
            .expect("it starts");
            let exported = export("echo", address.clone()).expect("it is exported");
            let (here, other) = (alone.actor("echo"), alone.actor("other"));
            let message = || Message { id: String::new(), payload: b"x".to_vec() };
            let round = || {
                [
                    each(&|| {
                        to.send(cx, b"x".to_vec()).expect("it listens");
                        replies.recv(cx).expect("a reply");
                    }),
                    each(&|| {
                        to_spawner.send(cx, b"x".to_vec()).expect("it listens");
                        spawner_replies.recv(cx).expect("a reply");
                    }),
                    each(&|| {
                        address.ask(cx, message(), grant).expect("a reply");
                    }),
                    each(&|| {
                        here.ask(cx, b"x".to_vec(), grant, PATIENCE).expect("a reply");
                    }),
                    each(&|| {
                        other.ask(cx, b"x".to_vec(), grant, PATIENCE).expect("a reply");
                    }),
                ]
            };
            let times = (0..LOCAL_ROUNDS).map(|_| round()).collect::<Vec<_>>();
            drop(exported);
            drop((to, to_spawner));
            address.close();
            times
        })
    });
    Ok(times??)
}
