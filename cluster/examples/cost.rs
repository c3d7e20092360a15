//! What a call of an actor costs, beside the bare means that it is made of: all in one run, on one host, on loopback.
//!
//! `cost URL`: needs a NATS server with JetStream.

use futures_util::{FutureExt as _, StreamExt as _};
use mainspring::{Capacity, Config as RuntimeConfig, NurseryOptions, Pool, Profile};
use mainspring_cluster::{Config, Identity, Message, Node, Terms, Trusted, connect};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

type Failed = Box<dyn std::error::Error>;

const CALLS: usize = 2_000;
/// Calls of a round in one process: so few that most rounds are not interrupted.
const LOCAL_CALLS: u32 = 500;
const LOCAL_ROUNDS: usize = 101;
const PATIENCE: Duration = Duration::from_secs(10);

/// The median, in microseconds.
fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}

fn main() -> Result<(), Failed> {
    let url = std::env::args().nth(1).ok_or("usage: cost URL")?;
    let grant = Pool { ops: 1_000, spawn_count: 1, ..Pool::ZERO };
    // One worker: two would take messages from each other, and that is what would be measured.
    let runtime = Arc::new(RuntimeConfig::new(Profile::Cluster).workers(1).build()?);
    let (tx, rx) = mpsc::channel();
    let serving = runtime.clone();
    std::thread::spawn(move || {
        serving.run(|cx| {
            let (address, mailbox) = cx.mailbox(64, Pool::ZERO).expect("a mailbox");
            tx.send(address).expect("the main thread waits");
            mailbox.serve(cx, &mut (), |(), _, message: Message| message.payload).expect("it serves");
        })
    });
    let actor = rx.recv()?;
    let tokio = tokio::runtime::Runtime::new()?;
    let (bare, unpaid, paid) = tokio.block_on(async {
        let server = async_nats::connect(&url).await?;
        let mut asked = server.subscribe("mainspring.bare").await?;
        let answering = server.clone();
        tokio::spawn(async move {
            while let Some(message) = asked.next().await {
                if let Some(reply) = message.reply {
                    // The client asks again if it fails: this is no measurement of that.
                    let _ = answering.publish(reply, message.payload).await;
                }
            }
        });
        let (anna, bert) = (Identity::generate("anna")?, Identity::generate("bert")?);
        let trusted = Trusted::new().believe("anna", &anna.public(), Pool::AMPLE)?.believe(
            "bert",
            &bert.public(),
            Pool::AMPLE,
        )?;
        let terms = Terms { trusted, ..Terms::default() };
        let here =
            Node::join(anna, runtime.clone(), terms.clone(), connect(&Config::new(&url)).await?).await?;
        let there = Node::join(bert, runtime.clone(), terms, connect(&Config::new(&url)).await?).await?;
        let exported = there.export("echo", actor.clone(), 64).await?;
        let client = async_nats::connect(&url).await?;
        let remote = here.actor("echo");
        let (mut bare, mut unpaid, mut paid) = (Vec::new(), Vec::new(), Vec::new());
        // In turns: what the host does meanwhile hits all three alike.
        for _ in 0..CALLS {
            let began = Instant::now();
            client.request("mainspring.bare", "x".into()).await?;
            bare.push(began.elapsed());
            let began = Instant::now();
            remote.ask_unpaid(b"x".to_vec(), PATIENCE).await?;
            unpaid.push(began.elapsed());
            let began = Instant::now();
            remote.ask_outside(b"x".to_vec(), grant, PATIENCE).await?;
            paid.push(began.elapsed());
        }
        drop(exported);
        Ok::<_, Failed>((median(bare), median(unpaid), median(paid)))
    })?;
    let local = local(&runtime, actor, grant)?;
    println!("                                          median     ratio");
    println!("bare async-nats request               {bare:9.1} us");
    println!("actor call across nodes, unpaid       {unpaid:9.1} us  {:7.2}", unpaid / bare);
    println!("actor call across nodes, with a grant {paid:9.1} us  {:7.2}", paid / bare);
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

/// What is measured in one process, in turns.
const LOCAL: [&str; 5] = [
    "channel round trip",
    "a task for each message over channels",
    "actor call by address",
    "actor call by name",
    "actor call by name, of another run",
];

/// What a round trip costs in one process: between two tasks over channels, and to actors.
fn local(
    runtime: &Arc<mainspring::Runtime>,
    actor: mainspring_cluster::Actor,
    grant: Pool,
) -> Result<Vec<[Duration; 5]>, Failed> {
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
