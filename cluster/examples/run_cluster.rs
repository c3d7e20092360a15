//! A supervised pipeline on three nodes, one of which is killed: it goes on, and counts everything once.
//!
//! `run_cluster [PAGE]`: starts `nats-server` and three processes of the `member` example on loopback, and ends all of them. It writes the
//! status page to `PAGE`.

use mainspring::supervisor::{Restart, Strategy};
use mainspring::{Config as RuntimeConfig, Pool, Profile};
use mainspring_cluster::grant::hex;
use mainspring_cluster::status::Status;
use mainspring_cluster::supervise::view::group_key;
use mainspring_cluster::supervise::{Child, Demand, Group, Spec, Stage, open, supervise};
use mainspring_cluster::{Config, Connection, Identity, Node, Terms, Trusted, connect};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

type Failed = Box<dyn std::error::Error>;

const NODES: [&str; 3] = ["anna", "bert", "cleo"];
const LEASE: Duration = Duration::from_secs(2);
/// What each message may use, on both nodes that it comes to.
const GRANT: Pool = Pool { ops: 400_000, memory: 1 << 18, spawn_count: 4, channel_ops: 64, syscalls: 64 };
const NUMBERS: u64 = 200;
/// How long anything may take before this gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that ends with this program.
struct Running(process::Child);

impl Running {
    fn start(command: &mut Command) -> Result<Self, Failed> {
        Ok(Self(command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?))
    }

    /// kill -9.
    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A folder that goes with this program.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn server(store: &Path) -> Result<(Running, String), Failed> {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let mut command = Command::new("nats-server");
    command.args(["--jetstream", "--addr", "127.0.0.1", "--port", &port.to_string()]);
    let server = Running::start(command.arg("--store_dir").arg(store))
        .map_err(|error| format!("nats-server does not start: {error}; install the package nats-server"))?;
    let began = Instant::now();
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        if began.elapsed() > PATIENCE {
            return Err("nats-server does not listen".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok((server, format!("nats://127.0.0.1:{port}")))
}

fn child(name: &str, kind: &str, argument: &str) -> Child {
    Child {
        name: name.into(),
        kind: kind.into(),
        argument: argument.into(),
        restart: Restart::Permanent,
        demand: Demand::percent(60),
        room: 16,
    }
}

/// Which node each child of the pipeline is on, when all run.
async fn places(on: &Connection) -> Result<Vec<(String, u64)>, Failed> {
    let store = open(on).await?;
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let value = store.get(group_key("pipeline")).await?.unwrap_or_default();
        let states = Group::read(&value).map(|group| group.states).unwrap_or_default();
        let running = states.iter().map(|state| match &state.stage {
            Stage::Running(at) => Some((at.node.clone(), state.generation)),
            _ => None,
        });
        match running.collect::<Option<Vec<_>>>() {
            Some(places) if !places.is_empty() => return Ok(places),
            _ => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    Err("the pipeline does not start".into())
}

/// Asks until there is a reply: `NODE GENERATION LAST_ID SUM REVISION`. Each id is added once, however often it is asked for.
async fn feed(node: &Node, number: u64) -> Result<Vec<String>, Failed> {
    let began = Instant::now();
    let pipeline = node.actor("pipeline/double");
    while began.elapsed() < PATIENCE {
        let payload = format!("{number} {number}").into_bytes();
        if let Ok(reply) = pipeline.ask_outside(payload, GRANT, Duration::from_secs(3)).await {
            let words: Vec<String> = String::from_utf8_lossy(&reply).split(' ').map(str::to_owned).collect();
            if words.len() == 5 && words[2].parse::<u64>().is_ok_and(|last| last >= number) {
                return Ok(words);
            }
        }
    }
    Err(format!("{number} has no reply").into())
}

fn main() -> Result<(), Failed> {
    let page = std::env::args().nth(1);
    let member = std::env::current_exe()?.with_file_name("member");
    let folder = Folder(std::env::temp_dir().join(format!("mainspring-cluster-{}", process::id())));
    std::fs::create_dir_all(&folder.0)?;
    let (_server, url) = server(&folder.0)?;
    println!("nats-server listens at {url}");
    let identities: Vec<Identity> = NODES
        .iter()
        .chain(&["driver"])
        .map(|name| secret(name).map(|key| Identity::new(*name, &key)))
        .collect::<Result<_, _>>()?;
    let peers: Vec<String> =
        identities.iter().map(|peer| format!("{}={}", peer.name, hex(&peer.public()))).collect();
    let mut nodes = Vec::new();
    for name in NODES {
        let mut command = Command::new(&member);
        command.args([name, &hex(&secret(name)?), &url, &LEASE.as_millis().to_string(), "90"]).args(&peers);
        nodes.push((name, Running::start(&mut command)?));
        println!("node {name} is process {}", nodes[nodes.len() - 1].1.0.id());
    }
    let tokio = tokio::runtime::Runtime::new()?;
    tokio.block_on(async {
        let on = connect(&Config::new(&url)).await?;
        let mut trusted = Trusted::new();
        for peer in &identities {
            trusted = trusted.believe(&peer.name, &peer.public(), Pool::AMPLE)?;
        }
        let runtime = Arc::new(RuntimeConfig::new(Profile::Cluster).workers(1).build()?);
        let terms = Terms { trusted, grace: Duration::from_secs(1), ..Terms::default() };
        let before = runtime.root_pool().ops;
        let driver =
            Node::join(Identity::new("driver", &secret("driver")?), runtime.clone(), terms, on.clone()).await?;
        let following = driver.follow_groups().await?;
        let spec = Spec {
            strategy: Strategy::OneForOne,
            most: 5,
            within_ms: 60_000,
            children: vec![child("double", "relay", "pipeline/sum"), child("sum", "sum", "")],
        };
        supervise(&on, "pipeline", spec).await?;
        let placed = places(&on).await?;
        println!("pipeline/double runs on {}, pipeline/sum on {}", placed[0].0, placed[1].0);
        for number in 1..=NUMBERS / 2 {
            feed(&driver, number).await?;
        }
        println!("{} numbers went through both", NUMBERS / 2);
        let lost = placed[1].0.clone();
        let (_, process) = nodes.iter_mut().find(|(name, _)| **name == lost).ok_or("it is one of ours")?;
        println!("kill -9 {} ({lost}), which has the sum", process.0.id());
        process.kill();
        let killed = Instant::now();
        let words = feed(&driver, NUMBERS / 2 + 1).await?;
        println!(
            "pipeline/sum goes on on {} in generation {}, {:.1} s after the kill (the lease is {} s)",
            words[0],
            words[1],
            killed.elapsed().as_secs_f64(),
            LEASE.as_secs()
        );
        let mut sum = String::new();
        for number in NUMBERS / 2 + 2..=NUMBERS {
            sum = feed(&driver, number).await?.swap_remove(3);
        }
        let right = NUMBERS * (NUMBERS + 1);
        println!("{NUMBERS} numbers: the sum is {sum}, and should be {right}");
        while driver.balance().grants_in_flight > 0 && killed.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let balance = driver.balance();
        let lost: u64 = balance.lost.values().map(|amount| amount.ops).sum();
        println!(
            "budget of the sender: {} ops sent = {} returned + {} used + {lost} lost + {} in flight; its root pool has {} less",
            balance.sent.ops,
            balance.returned.ops,
            balance.used.ops,
            balance.in_flight.ops,
            before - runtime.root_pool().ops
        );
        let status = Status::of(&Config::new(&url)).await?;
        print!("\n{}", status.text());
        if let Some(page) = page {
            std::fs::write(&page, status.html(None))?;
            println!("\nPage: file://{}", Path::new(&page).canonicalize()?.display());
        }
        drop(following);
        if sum != right.to_string() || !balance.is_conserved() || before - runtime.root_pool().ops != balance.used.ops + lost {
            return Err("something was lost or counted twice".into());
        }
        Ok(())
    })
}

/// Keys for this run alone: anybody can know them.
fn secret(name: &str) -> Result<[u8; 32], Failed> {
    let mut secret = [0; 32];
    secret.get_mut(..name.len()).ok_or("a short name")?.copy_from_slice(name.as_bytes());
    Ok(secret)
}
