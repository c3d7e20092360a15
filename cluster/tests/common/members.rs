//! Nodes that carry supervised actors, in processes of their own; and one that asks them.

use super::{HANGS, Process, identity, secret};
use mainspring::supervisor::{Restart, Strategy};
use mainspring::{Pool, Profile, Runtime};
use mainspring_cluster::directory::Following;
use mainspring_cluster::grant::hex;
use mainspring_cluster::supervise::view::group_key;
use mainspring_cluster::supervise::{Child, Demand, Group, Spec, open, supervise};
use mainspring_cluster::{CallError, Config, Connection, Node, Terms, Trusted, connect};
use std::io::BufRead as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// Everybody who may send grants.
const PEERS: [&str; 5] = ["driver", "a", "b", "c", "d"];

/// What each message has.
pub const GRANT: Pool = Pool { ops: 400_000, memory: 1 << 18, spawn_count: 4, channel_ops: 64, syscalls: 64 };

/// The words that start a member: `cluster/examples/member.rs`.
pub fn member_command(name: &str, url: &str, lease_ms: u64, percent: u32) -> Vec<String> {
    let path = std::path::Path::new(env!("CARGO_BIN_EXE_mainspring-cluster"))
        .with_file_name("examples")
        .join("member");
    let mut words = vec![
        path.display().to_string(),
        name.into(),
        hex(&secret(name)),
        url.into(),
        lease_ms.to_string(),
        percent.to_string(),
    ];
    words.extend(PEERS.map(|peer| format!("{peer}={}", hex(&identity(peer).public()))));
    words
}

/// Starts it, and does not wait until it has joined.
pub fn start(words: &[String], journal: Option<&str>) -> Process {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    if let Some(names) = journal {
        command.env("MAINSPRING_JOURNAL", names);
    }
    Process::start(&mut command)
}

/// Waits until it has joined.
pub fn ready(process: &mut Process) {
    let mut line = String::new();
    let out = process.0.stdout.as_mut().expect("its output");
    std::io::BufReader::new(out).read_line(&mut line).expect("it says that it is ready");
    assert_eq!(line, "ready\n");
}

pub fn member(name: &str, url: &str, lease_ms: u64, percent: u32) -> Process {
    let mut process = start(&member_command(name, url, lease_ms, percent), None);
    ready(&mut process);
    process
}

pub fn child(name: &str, kind: &str, argument: &str, percent: u64) -> Child {
    Child {
        name: name.into(),
        kind: kind.into(),
        argument: argument.into(),
        restart: Restart::Permanent,
        demand: Demand::percent(percent),
        room: 8,
    }
}

pub fn spec(strategy: Strategy, children: Vec<Child>) -> Spec {
    Spec { strategy, most: 1_000, within_ms: 60_000, children }
}

pub fn trusting_all() -> Terms {
    let trusted = PEERS.iter().fold(Trusted::new(), |trusted, name| {
        trusted.believe(*name, &identity(name).public(), Pool::AMPLE).expect("a key")
    });
    Terms { trusted, grace: Duration::from_secs(1), ..Terms::default() }
}

/// A node that carries nothing, and asks.
pub struct Driver {
    pub runtime: Arc<Runtime>,
    pub node: Node,
    pub on: Connection,
    _following: Following,
}

impl Driver {
    pub async fn join(url: &str) -> Self {
        let config = mainspring::Config::new(Profile::Cluster).workers(1);
        let runtime = Arc::new(config.build().expect("a runtime"));
        let on = connect(&Config::new(url)).await.expect("the server");
        let node = Node::join(identity("driver"), runtime.clone(), trusting_all(), on.clone()).await;
        let node = node.expect("a node");
        let following = node.follow_groups().await.expect("it follows");
        Self { runtime, node, on, _following: following }
    }

    pub async fn supervise(&self, name: &str, spec: Spec) {
        supervise(&self.on, name, spec).await.expect("a group");
    }

    pub async fn group(&self, name: &str) -> Group {
        let store = open(&self.on).await.expect("the bucket");
        let value = store.get(group_key(name)).await.expect("the server").expect("the group");
        Group::read(&value).expect("a group")
    }

    /// Waits until a group's record is as it should be.
    pub async fn until_group(&self, name: &str, is_so: impl Fn(&Group) -> bool) -> Group {
        let waited = tokio::time::timeout(HANGS, async {
            loop {
                let group = self.group(name).await;
                if is_so(&group) {
                    return group;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        waited.await.expect("the group comes to it")
    }

    /// Asks once.
    pub async fn ask(&self, actor: &str, payload: &str) -> Result<Reply, CallError> {
        let asked = self.node.actor(actor).ask_outside(payload.into(), GRANT, Duration::from_secs(2)).await;
        Ok(Reply::read(&asked?))
    }

    /// Asks until there is a reply: the actor adds each id once.
    pub async fn insist(&self, actor: &str, payload: &str) -> Reply {
        let mut last = None;
        let waited = tokio::time::timeout(HANGS, async {
            loop {
                match self.ask(actor, payload).await {
                    Ok(reply) if !reply.node.is_empty() => return reply,
                    other => last = Some(other),
                }
            }
        });
        let waited = waited.await;
        waited.unwrap_or_else(|_| panic!("{actor} does not reply: {last:?}"))
    }
}

/// What a `sum` replies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    pub node: String,
    pub generation: u64,
    pub last: u64,
    pub sum: u64,
    pub revision: u64,
    /// What it said instead.
    pub error: String,
}

impl Reply {
    /// The reply, or one without a node if the actor could not.
    fn read(bytes: &[u8]) -> Self {
        let text = super::text(bytes);
        let words: Vec<&str> = text.split(' ').collect();
        let number = |word: &str| word.parse().expect("a number");
        match words.as_slice() {
            [node, generation, last, sum, revision] => Self {
                node: (*node).to_owned(),
                generation: number(generation),
                last: number(last),
                sum: number(sum),
                revision: number(revision),
                error: String::new(),
            },
            _ => Self { error: text, ..Self::default() },
        }
    }
}
