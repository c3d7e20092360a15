//! Supervised actors while nodes and the server are killed, stopped for a while, delayed and cut off from each other.
//!
//! The model sees messages only: replies, the journal that nodes publish of when their actors were at work, and the records on the server.
//! It must find that no actor was at work twice at once, that everything was counted once, and that no budget was made or lost unaccounted.

mod common;

use common::members::{Driver, Reply, child, member_command, ready, spec, start};
use common::model::Model;
use common::namespaces::{HUB, Namespaces, of, set_linked};
use common::{HANGS, Process, Server};
use futures_util::StreamExt as _;
use mainspring::supervisor::Strategy;
use mainspring_cluster::CallError;
use mainspring_cluster::supervise::Stage;
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const NODES: [&str; 3] = ["a", "b", "c"];
const ACTORS: [&str; 3] = ["chaos/x", "chaos/y", "chaos/z"];
/// The stream of what nodes publish.
const JOURNAL: &str = "mainspring-journal";
const LEASE_MS: u64 = 1_000;
/// The namespaces that the test runs in, if it does.
const WITHIN: &str = "MAINSPRING_CHAOS_NAMESPACES";

fn rounds() -> u64 {
    std::env::var("MAINSPRING_CHAOS_ROUNDS").map_or(4, |text| text.parse().expect("a number"))
}

fn seed() -> u64 {
    std::env::var("MAINSPRING_SEED").map_or(1, |text| text.parse().expect("a number"))
}

/// What is done in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    KillNode,
    KillServer,
    /// For longer than a lease: it must not go on where it was.
    StopNode,
    /// For less than a lease.
    DelayNode,
    DelayServer,
    /// For longer than a lease.
    CutOff,
    /// For less than a lease.
    CutOffShortly,
}

/// In this order at first, and then by chance.
const DEEDS: [Deed; 7] = [
    Deed::KillNode,
    Deed::CutOff,
    Deed::StopNode,
    Deed::KillServer,
    Deed::DelayServer,
    Deed::DelayNode,
    Deed::CutOffShortly,
];

struct World {
    server: Server,
    /// The prefix of the namespaces.
    spaces: Option<String>,
    nodes: BTreeMap<&'static str, Process>,
}

impl World {
    fn url(&self) -> String {
        match &self.spaces {
            Some(_) => format!("nats://{HUB}:{}", self.server.port),
            None => self.server.url(),
        }
    }

    fn start_node(&mut self, name: &'static str) {
        let mut words = member_command(name, &self.url(), LEASE_MS, 90);
        if let Some(prefix) = &self.spaces {
            let exec = ["ip", "netns", "exec", &of(prefix, name)].map(str::to_owned);
            words.splice(0..0, exec);
        }
        self.nodes.insert(name, start(&words, Some(&ACTORS.join(","))));
    }

    /// A node that found its lease over has ended itself: it is started again, as a service manager would.
    fn restart_ended(&mut self) {
        for name in NODES {
            let ended =
                self.nodes.get_mut(name).is_none_or(|node| node.0.try_wait().expect("its status").is_some());
            if ended {
                self.start_node(name);
            }
        }
    }

    async fn act(&mut self, deed: Deed, name: &'static str) {
        let lease = Duration::from_millis(LEASE_MS);
        let node = &self.nodes[name];
        match deed {
            Deed::KillNode => {
                self.nodes.get_mut(name).expect("a node").kill();
                tokio::time::sleep(lease).await;
            }
            Deed::KillServer => {
                self.server.kill();
                tokio::time::sleep(lease / 4).await;
                self.server.restart();
            }
            Deed::StopNode | Deed::DelayNode => {
                node.signal(Signal::STOP);
                tokio::time::sleep(if deed == Deed::StopNode { lease * 3 } else { lease / 4 }).await;
                node.signal(Signal::CONT);
            }
            Deed::DelayServer => {
                self.server.signal(Signal::STOP);
                tokio::time::sleep(lease / 4).await;
                self.server.signal(Signal::CONT);
            }
            Deed::CutOff | Deed::CutOffShortly => {
                let prefix = self.spaces.as_deref().expect("only within namespaces");
                set_linked(prefix, name, false);
                tokio::time::sleep(if deed == Deed::CutOff { lease * 4 } else { lease / 4 }).await;
                set_linked(prefix, name, true);
            }
        }
    }
}

/// Everything that an actor replied, and what is sure to have been asked of it.
#[derive(Debug, Default)]
struct Asked {
    replies: Vec<Reply>,
    outcomes: BTreeMap<&'static str, u64>,
    last: u64,
}

/// Adds one id after the other to one actor, each until it is sure.
async fn add(
    driver: Arc<Driver>,
    actor: &'static str,
    stop: Arc<AtomicBool>,
    added: Arc<AtomicU64>,
) -> Asked {
    let mut asked = Asked::default();
    while !stop.load(Ordering::Relaxed) {
        let id = asked.last + 1;
        let outcome = match driver.ask(actor, &format!("{id} {}", value(id))).await {
            Ok(reply) if reply.last >= id => {
                asked.last = id;
                added.fetch_add(1, Ordering::Relaxed);
                asked.replies.push(reply);
                "added"
            }
            Ok(_) => "not added",
            Err(CallError::TimedOut) => "timed out",
            Err(CallError::NoActor) => "no actor",
            Err(CallError::Superseded) => "superseded",
            Err(_) => "refused",
        };
        *asked.outcomes.entry(outcome).or_default() += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    asked
}

fn value(id: u64) -> u64 {
    id * 7 + 1
}

/// When a generation was at work, as its node has published.
#[derive(Clone, Debug)]
struct AtWork {
    node: String,
    begin_ns: u64,
    end_ns: u64,
}

type Journal = BTreeMap<(String, u64), Vec<AtWork>>;

fn read_journal(lines: &[String]) -> Journal {
    let mut journal = Journal::new();
    for line in lines {
        let (actor, generation, at) = read_line(line);
        journal.entry((actor, generation)).or_default().push(at);
    }
    journal
}

fn read_line(line: &str) -> (String, u64, AtWork) {
    let words: Vec<&str> = line.split(' ').collect();
    let [actor, generation, node, begin, end] = words.as_slice() else { panic!("{line}") };
    let number = |word: &str| word.parse().expect("a number");
    let at = AtWork { node: (*node).to_owned(), begin_ns: number(begin), end_ns: number(end) };
    ((*actor).to_owned(), number(generation), at)
}

/// No two generations of an actor were at work at once, and each was of one node.
fn check_journal(journal: &Journal) -> usize {
    let mut handovers = 0;
    for actor in ACTORS {
        let mut before: Option<(u64, u64)> = None;
        for ((_, generation), times) in journal.iter().filter(|((name, _), _)| name == actor) {
            assert!(times.iter().all(|at| at.node == times[0].node), "{actor} {generation}: {times:?}");
            let begin = times.iter().map(|at| at.begin_ns).min().expect("some");
            let end = times.iter().map(|at| at.end_ns).max().expect("some");
            if let Some((earlier, until)) = before {
                assert!(
                    until < begin,
                    "{actor}: generation {earlier} was at work until {until}, and {generation} from {begin} on"
                );
                handovers += 1;
            }
            before = Some((*generation, end));
        }
    }
    handovers
}

/// In the order in which the server kept what they wrote, generations only grow, and each id was added once.
fn check_replies(actor: &str, replies: &[Reply]) {
    let mut order: Vec<&Reply> = replies.iter().filter(|reply| reply.revision > 0).collect();
    order.sort_by_key(|reply| (reply.revision, reply.last));
    for pair in order.windows(2) {
        assert!(pair[0].generation <= pair[1].generation, "{actor}: {pair:?}");
        assert!(pair[0].last <= pair[1].last, "{actor}: {pair:?}");
    }
    for reply in replies {
        let right: u64 = (1..=reply.last).map(value).sum();
        assert_eq!(reply.sum, right, "{actor}: {reply:?}");
    }
}

async fn chaos(spaces: Option<String>) {
    let (seed, rounds) = (seed(), rounds());
    println!("seed {seed}, {rounds} rounds: MAINSPRING_SEED and MAINSPRING_CHAOS_ROUNDS set them");
    let server = match &spaces {
        Some(_) => Server::listening(HUB),
        None => Server::start(),
    };
    let mut world = World { server, spaces, nodes: BTreeMap::new() };
    let driver = Arc::new(Driver::join(&world.url()).await);
    let before = driver.runtime.root_pool();
    open_journal(&driver).await;
    for name in NODES {
        world.start_node(name);
    }
    world.nodes.values_mut().for_each(ready);
    let children = ACTORS.map(|actor| child(actor.trim_start_matches("chaos/"), "sum", "", 20));
    driver.supervise("chaos", spec(Strategy::OneForOne, children.into())).await;
    let stop = Arc::new(AtomicBool::new(false));
    let added: BTreeMap<&str, Arc<AtomicU64>> = ACTORS.map(|actor| (actor, Arc::default())).into();
    let senders: Vec<_> = ACTORS
        .map(|actor| (actor, tokio::spawn(add(driver.clone(), actor, stop.clone(), added[actor].clone()))))
        .into();
    let mut chance = seed;
    let mut done: BTreeMap<String, u32> = BTreeMap::new();
    for round in 0..rounds {
        go_on(&mut world, &added).await;
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let possible =
            |deed: &Deed| world.spaces.is_some() || !matches!(deed, Deed::CutOff | Deed::CutOffShortly);
        let deeds: Vec<Deed> = DEEDS.into_iter().filter(possible).collect();
        let deed = match usize::try_from(round) {
            Ok(first) if first < deeds.len() => deeds[first],
            _ => deeds[(chance >> 33) as usize % deeds.len()],
        };
        let name = a_node_at_work(&driver, (chance >> 45) as usize).await;
        println!("round {round}: {deed:?} {name}");
        world.act(deed, name).await;
        heard_of_all(&mut world, &driver).await;
        *done.entry(format!("{deed:?}")).or_default() += 1;
    }
    go_on(&mut world, &added).await;
    stop.store(true, Ordering::Relaxed);
    let mut last = BTreeMap::new();
    for (actor, sender) in senders {
        let asked = sender.await.expect("it ends");
        check_replies(actor, &asked.replies);
        println!("{actor}: {:?}", asked.outcomes);
        last.insert(actor, asked.last);
    }
    for (actor, last) in last {
        // What was asked for and never answered may have been added: it is the next id, or none.
        let now = driver.insist(actor, "0 0").await;
        assert!((last..=last + 1).contains(&now.last), "{actor}: {now:?} after {last}");
        check_replies(actor, &[now]);
    }
    let group = driver.until_group("chaos", |group| {
        group.states.iter().all(|state| matches!(state.stage, Stage::Running(_)))
    });
    let group = group.await;
    heard_of_all(&mut world, &driver).await;
    let lines = read_lines(&driver).await;
    let journal = read_journal(&lines);
    let handovers = check_journal(&journal);
    println!("{} restarts, {handovers} handovers seen in {} lines: {done:?}", group.restarts, lines.len());
    assert!(handovers > 0 || rounds == 0, "nobody has seen one: the model checked nothing");
    check_budgets(&driver, before.ops, &world.url()).await;
}

/// A node that carries an actor, if any does: chance says which.
async fn a_node_at_work(driver: &Driver, chance: usize) -> &'static str {
    let group = driver.group("chaos").await;
    let states = group.states.iter().cycle().skip(chance % ACTORS.len()).take(ACTORS.len());
    let mut at = states.filter_map(|state| state.stage.at());
    let at = at.next().and_then(|at| NODES.into_iter().find(|name| *name == at.node));
    at.unwrap_or(NODES[chance % NODES.len()])
}

/// Makes the stream that keeps what nodes publish.
async fn open_journal(driver: &Driver) {
    let config = async_nats::jetstream::stream::Config {
        name: JOURNAL.into(),
        subjects: vec!["mainspring.journal.*".into()],
        ..Default::default()
    };
    driver.on.jetstream.create_stream(config).await.expect("a stream");
}

/// Waits until every node has published what its actors did up to now, so that nothing is lost when it is killed next.
async fn heard_of_all(world: &mut World, driver: &Driver) {
    let now = clock_gettime(ClockId::Monotonic);
    let now_ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    let waited = tokio::time::timeout(HANGS, async {
        for name in NODES {
            loop {
                world.restart_ended();
                let last = match driver.on.jetstream.get_stream(JOURNAL).await {
                    Ok(stream) => stream
                        .get_last_raw_message_by_subject(&format!("mainspring.journal.{name}"))
                        .await
                        .ok(),
                    Err(_) => None,
                };
                if last.is_some_and(|last| read_line(&common::text(&last.payload)).2.begin_ns > now_ns) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    });
    waited.await.expect("every node publishes");
}

async fn read_lines(driver: &Driver) -> Vec<String> {
    let mut stream = driver.on.jetstream.get_stream(JOURNAL).await.expect("the stream");
    let count = stream.info().await.expect("the server").state.messages;
    let config = async_nats::jetstream::consumer::pull::OrderedConfig::default();
    let consumer = stream.create_consumer(config).await.expect("a consumer");
    let messages =
        consumer.messages().await.expect("its messages").take(usize::try_from(count).expect("a few"));
    let read = messages.map(|message| common::text(&message.expect("a message").payload)).collect();
    tokio::time::timeout(HANGS, read).await.expect("the server has as many as it says")
}

/// Waits until each actor has added some more, with all nodes there.
async fn go_on(world: &mut World, added: &BTreeMap<&str, Arc<AtomicU64>>) {
    let counts = || added.values().map(|count| count.load(Ordering::Relaxed));
    let target: Vec<u64> = counts().map(|count| count + 10).collect();
    let began = std::time::Instant::now();
    while counts().zip(&target).any(|(count, target)| count < *target) {
        assert!(
            began.elapsed() < HANGS,
            "it does not go on: {:?}",
            counts().zip(&target).collect::<Vec<_>>()
        );
        world.restart_ended();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What the sender says of its grants is what the records say, and what its root pool has lost.
async fn check_budgets(driver: &Driver, before: u64, url: &str) {
    let waited = tokio::time::timeout(HANGS, async {
        while driver.node.balance().grants_in_flight > 0 || driver.node.unrecorded() > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    waited.await.expect("what is in flight comes to an end");
    let balance = driver.node.balance();
    assert!(balance.is_conserved(), "{balance:?}");
    let said = Model::said(&balance);
    assert_eq!(driver.runtime.root_pool().ops, before - said.used - said.lost);
    assert_eq!(Model::at_rest(url).await, said);
    println!("{said:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_actor_is_at_work_twice_at_once_and_no_budget_is_lost_unaccounted() {
    if let Ok(prefix) = std::env::var(WITHIN) {
        return chaos(Some(prefix)).await;
    }
    match Namespaces::make(&NODES) {
        Err(why) => {
            println!("no partitions: {why}");
            chaos(None).await;
        }
        Ok(spaces) => {
            // The server and this test belong into the hub: the same test is run there.
            let this = std::env::current_exe().expect("this program");
            let mut command = Command::new("ip");
            command.args(["netns", "exec", &spaces.hub()]).arg(this).args([
                "--exact",
                "no_actor_is_at_work_twice_at_once_and_no_budget_is_lost_unaccounted",
                "--nocapture",
            ]);
            let ran = command.env(WITHIN, spaces.prefix()).status().expect("ip runs");
            assert!(ran.success(), "within namespaces: {ran}");
        }
    }
}
