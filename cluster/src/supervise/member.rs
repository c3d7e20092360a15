//! A node that carries supervised actors, and supervises those of others.
//!
//! It renews its lease, starts and stops what the groups' records say, and does what follows from its view. Conserved: no actor of this node
//! goes on when the lease may be over. They are stopped at three quarters of it, and the process ends if one has not stopped by its end.

use super::capacity::{Capacity, Load};
use super::group::{At, Group, Spec, Stage, State};
use super::host::{Clock, Fence, Host, Kinds, Order, Place, Tenure};
use super::lease::{Held, LENGTHS_MS, Lease};
use super::state::{self, Fenced};
use super::view::{Act, View, group_key, lease_key, load_key};
use crate::connect::Connection;
use crate::error::Error;
use crate::grant::now_ms;
use crate::node::{Exported, Node};
use crate::wire;
use async_nats::jetstream::kv::{Store, UpdateErrorKind, Watch};
use bytes::Bytes;
use futures_util::StreamExt as _;
use mainspring::supervisor::Exit;
use mainspring::sync::CancelToken;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// How long a node that joins tries to reach the server.
const ANSWERS: Duration = Duration::from_secs(30);

/// What a node brings to a cluster.
#[derive(Clone, Debug)]
pub struct MemberConfig {
    /// How long its lease is: an actor of a node that died is started elsewhere after about five quarters of this.
    pub lease: Duration,
    /// What it can carry.
    pub capacity: Capacity,
    /// Which actors it can start.
    pub kinds: Kinds,
}

/// Starts a group, unless there is one of this name. Any node whose kinds and capacity fit gets its children.
pub async fn supervise(on: &Connection, name: &str, spec: Spec) -> Result<(), Error> {
    if !wire::is_name(name) || !spec.is_sound() {
        return Err(Error::Name { name: name.to_owned() });
    }
    let store = super::open(on).await?;
    let act = Act::new(group_key(name), 0, &Group::new(spec));
    match store.create(&act.key, act.value.into()).await {
        Ok(_) => Ok(()),
        Err(error) => match store.entry(&act.key).await {
            Ok(Some(_)) => Ok(()),
            _ => Err(Error::nats("starting a group", error)),
        },
    }
}

struct Inner {
    node: Node,
    config: MemberConfig,
    length_ms: u64,
    store: Store,
    state: Store,
    clock: Clock,
    /// What the actors ask before they act; the watchdog, too.
    tenure: Mutex<Arc<Tenure>>,
    /// How many actors have not ended.
    acting: AtomicUsize,
    view: Mutex<View>,
    leaves: AtomicBool,
}

/// A node that takes part, as long as this lives. Dropping it is leaving, without waiting for that.
#[derive(Debug)]
#[must_use]
pub struct Member {
    inner: Arc<Inner>,
    runs: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Member").field(&self.node).finish()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.inner.tenure().revoke();
        self.inner.leaves.store(true, Ordering::Release);
    }
}

/// An actor of this node.
struct Hosted {
    generation: u64,
    fence: Arc<Fence>,
    stop: CancelToken,
    /// Messages reach it as long as this is there.
    exported: Option<Exported>,
    ended: oneshot::Receiver<()>,
}

impl Hosted {
    /// Stops it, and waits until it has.
    async fn stop(mut self) {
        self.fence.end();
        self.exported = None;
        self.stop.cancel();
        let _ = (&mut self.ended).await;
    }
}

/// An actor has ended by itself.
struct Ended {
    actor: String,
    generation: u64,
    exit: Exit,
}

impl Member {
    /// Joins. It returns when the node has its lease. A process that takes the place of one with the same name waits until that one's
    /// lease has lapsed, and fails if that one goes on to renew it.
    pub async fn join(node: &Node, config: MemberConfig) -> Result<Self, Error> {
        let Some(net) = &node.0.net else { return Err(Error::NoJetStream) };
        if !wire::is_name(node.name()) {
            return Err(Error::Name { name: node.name().to_owned() });
        }
        let length_ms = u64::try_from(config.lease.as_millis()).unwrap_or(u64::MAX);
        let length_ms = length_ms.clamp(*LENGTHS_MS.start(), *LENGTHS_MS.end());
        let (store, state) = (super::open(&net.on).await?, state::open(&net.on).await?);
        let clock = Clock::start();
        let never = Arc::new(Tenure::new(clock, &Held::new(0, 0)));
        let inner = Arc::new(Inner {
            node: node.clone(),
            config,
            length_ms,
            store,
            state,
            clock,
            tenure: Mutex::new(never),
            acting: AtomicUsize::new(0),
            view: Mutex::default(),
            leaves: AtomicBool::new(false),
        });
        let host = Host::start(node.0.runtime.clone()).ok_or(Error::NoHost)?;
        watchdog(&inner)?;
        let (tx, rx) = oneshot::channel();
        let runs = net.tokio.spawn(run(inner.clone(), host, tx));
        // It says so in any case, unless its Tokio has gone.
        rx.await.unwrap_or(Err(Error::NoHost))?;
        Ok(Self { inner, runs: Some(runs) })
    }

    /// What it knows of all nodes and groups.
    pub fn view(&self) -> View {
        self.inner.view().clone()
    }

    /// Stops its actors and ends its lease, so that others can take them at once.
    pub async fn leave(mut self) {
        self.inner.leaves.store(true, Ordering::Release);
        self.inner.tenure().revoke();
        if let Some(runs) = self.runs.take() {
            let _ = runs.await;
        }
    }
}

/// A thread that does nothing but look at the time: it does not depend on workers that may be busy.
fn watchdog(inner: &Arc<Inner>) -> Result<(), Error> {
    let weak = Arc::downgrade(inner);
    let pause = Duration::from_millis((inner.length_ms / 40).max(2));
    let started = std::thread::Builder::new().name("lease".into()).spawn(move || {
        while let Some(inner) = weak.upgrade() {
            if inner.acting.load(Ordering::Acquire) > 0 && inner.tenure().must_have_stopped() {
                eprintln!(
                    "{}: the lease is over and an actor has not stopped: the process ends",
                    inner.node.name()
                );
                std::process::abort();
            }
            drop(inner);
            std::thread::sleep(pause);
        }
    });
    started.map(drop).map_err(|cause| Error::Peer { who: "this host's threads", cause })
}

/// One incarnation after the other. It ends if the first does not get its lease.
async fn run(inner: Arc<Inner>, host: Host, joined: oneshot::Sender<Result<(), Error>>) {
    let mut joined = Some(joined);
    let (mut answered, mut holder) = (Instant::now(), None);
    while !inner.leaves() {
        let (held, revision, lease) = match take_lease(&inner).await {
            Ok(taken) => taken,
            Err(why) => {
                let error = match why {
                    NotTaken::Held(life) if holder.as_ref() == Some(&life) => {
                        Error::NameTaken { name: inner.node.name().to_owned() }
                    }
                    NotTaken::Held(life) => {
                        (answered, holder) = (Instant::now(), Some(life));
                        continue;
                    }
                    NotTaken::Unanswered if answered.elapsed() > ANSWERS => {
                        Error::Lost { doing: "taking the node's lease", tried: ANSWERS }
                    }
                    NotTaken::Unanswered => continue,
                };
                // One that had its lease goes on to try.
                let Some(joined) = joined.take() else { continue };
                let _ = joined.send(Err(error));
                return;
            }
        };
        let tenure = Arc::new(Tenure::new(inner.clock, &held));
        inner.set_tenure(tenure.clone());
        if inner.leaves() {
            tenure.revoke();
        }
        let renewed = Arc::new(Mutex::new((revision, lease.clone())));
        let renews = tokio::spawn(renew(inner.clone(), tenure.clone(), held, renewed.clone()));
        if let Some(joined) = joined.take() {
            let _ = joined.send(Ok(()));
        }
        let mut serving = Serving {
            inner: &inner,
            host: &host,
            at: At { node: inner.node.name().to_owned(), incarnation: lease.incarnation },
            tenure: tenure.clone(),
            hosted: HashMap::new(),
            exits: HashMap::new(),
            ended: mpsc::unbounded_channel(),
        };
        serving.publish_load().await;
        serving.serve().await;
        tenure.revoke();
        renews.abort();
        // All are stopped together: each has the same time.
        let all = serving.hosted.drain().map(|(_, hosted)| hosted.stop());
        futures_util::future::join_all(all).await;
        if inner.leaves() {
            let (revision, lease) = renewed.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let ended = Lease { ended: true, ..lease };
            let act = Act::new(lease_key(inner.node.name()), revision, &ended);
            // If it fails, the lease lapses.
            let _ = timeout(inner.quarter(), inner.apply(&act)).await;
        }
    }
}

impl Inner {
    fn tenure(&self) -> Arc<Tenure> {
        self.tenure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_tenure(&self, tenure: Arc<Tenure>) {
        *self.tenure.lock().unwrap_or_else(PoisonError::into_inner) = tenure;
    }

    fn view(&self) -> std::sync::MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leaves(&self) -> bool {
        self.leaves.load(Ordering::Acquire)
    }

    fn quarter(&self) -> Duration {
        Duration::from_millis(self.length_ms / 4)
    }

    fn saw(&self, key: &str, revision: u64, value: &[u8]) -> bool {
        let mut view = self.view();
        let is_new = view.saw(key, revision, value, self.clock.now_ms());
        if is_new
            && let Some(("group", name)) = key.split_once('.')
            && let Some(group) = view.groups.get(name)
        {
            self.node.0.directory.saw(name, &group.value);
        }
        is_new
    }

    /// Changes a record, if it is as it was seen. What is there afterwards is seen in any case, if the server answers.
    async fn apply(&self, act: &Act) -> bool {
        let value = Bytes::from(act.value.clone());
        if let Ok(Ok(revision)) =
            timeout(self.quarter(), self.store.update(&act.key, value, act.expected)).await
        {
            self.saw(&act.key, revision, &act.value);
            return true;
        }
        if let Ok(Ok(Some(entry))) = timeout(self.quarter(), self.store.entry(&act.key)).await {
            self.saw(&act.key, entry.revision, &entry.value);
            return entry.value == act.value;
        }
        false
    }

    fn lease(&self, incarnation: u64, renewals: u64) -> Lease {
        Lease {
            incarnation,
            life: self.node.0.life.clone(),
            length_ms: self.length_ms,
            renewals,
            ended: false,
            balance: self.node.balance(),
            root: self.node.0.runtime.root_pool().into(),
        }
    }
}

/// Why the node's lease was not taken.
enum NotTaken {
    /// The server did not answer, or somebody has changed the record.
    Unanswered,
    /// This life has renewed it meanwhile.
    Held(String),
}

/// Takes the node's lease in its next incarnation: at once if nobody has it or this process had it, and otherwise when it has lapsed.
async fn take_lease(inner: &Inner) -> Result<(Held, u64, Lease), NotTaken> {
    let key = lease_key(inner.node.name());
    let there = match timeout(inner.quarter(), inner.store.entry(&key)).await {
        Ok(Ok(there)) => there,
        _ => {
            sleep(Duration::from_millis(50)).await;
            return Err(NotTaken::Unanswered);
        }
    };
    let (revision, last) = match there {
        None => (0, Lease::default()),
        // A record that nobody can read is nobody's.
        Some(entry) => (entry.revision, Lease::read(&entry.value).unwrap_or_default()),
    };
    let is_held = !last.ended && !last.life.is_empty() && last.life != inner.node.0.life;
    if is_held {
        sleep(Duration::from_millis(last.patience_ms())).await;
    }
    let lease = inner.lease(last.incarnation + 1, 0);
    let sent_ms = inner.clock.now_ms();
    let value = serde_json::to_vec(&lease).unwrap_or_default();
    let kept = timeout(inner.quarter(), inner.store.update(&key, Bytes::from(value), revision)).await;
    match kept {
        Ok(Ok(revision)) => Ok((Held::new(inner.length_ms, sent_ms), revision, lease)),
        Ok(Err(error)) if is_held && error.kind() == UpdateErrorKind::WrongLastRevision => {
            Err(NotTaken::Held(last.life))
        }
        _ => {
            sleep(Duration::from_millis(50)).await;
            Err(NotTaken::Unanswered)
        }
    }
}

/// Renews the lease until it is lost.
async fn renew(inner: Arc<Inner>, tenure: Arc<Tenure>, mut held: Held, kept: Arc<Mutex<(u64, Lease)>>) {
    let key = lease_key(inner.node.name());
    loop {
        let wait_ms = held.renews_ms().saturating_sub(inner.clock.now_ms()).max(5);
        sleep(Duration::from_millis(wait_ms)).await;
        let (revision, last) = kept.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let lease = inner.lease(last.incarnation, last.renewals + 1);
        let value = Bytes::from(serde_json::to_vec(&lease).unwrap_or_default());
        let sent_ms = inner.clock.now_ms();
        match timeout(inner.quarter(), inner.store.update(&key, value, revision)).await {
            Ok(Ok(revision)) => {
                held.renewed(sent_ms);
                tenure.renewed(&held);
                *kept.lock().unwrap_or_else(PoisonError::into_inner) = (revision, lease);
            }
            // An earlier renewal may have been kept and its answer lost; or another node has ended the lease.
            _ => match timeout(inner.quarter(), inner.store.entry(&key)).await {
                Ok(Ok(Some(entry))) => {
                    let there = Lease::read(&entry.value).unwrap_or_default();
                    if there.ended || there.incarnation != last.incarnation || there.life != last.life {
                        tenure.revoke();
                        return;
                    }
                    *kept.lock().unwrap_or_else(PoisonError::into_inner) = (entry.revision, there);
                }
                _ => sleep(Duration::from_millis(20)).await,
            },
        }
    }
}

/// One incarnation of the node at work.
struct Serving<'a> {
    inner: &'a Arc<Inner>,
    host: &'a Host,
    at: At,
    tenure: Arc<Tenure>,
    hosted: HashMap<String, Hosted>,
    /// How actors have ended whose record does not say so yet.
    exits: HashMap<String, (u64, Exit)>,
    ended: (mpsc::UnboundedSender<Ended>, mpsc::UnboundedReceiver<Ended>),
}

impl Serving<'_> {
    /// Publishes what this incarnation can carry. Until then nothing is placed here.
    async fn publish_load(&self) {
        let load = Load {
            incarnation: self.at.incarnation,
            capacity: self.inner.config.capacity,
            kinds: self.inner.config.kinds.names(),
            reserved: BTreeMap::new(),
        };
        let key = load_key(self.inner.node.name());
        while self.tenure.may_act() {
            if let Ok(Ok(there)) = timeout(self.inner.quarter(), self.inner.store.entry(&key)).await {
                let revision = there.map_or(0, |entry| entry.revision);
                if self.inner.apply(&Act::new(key.clone(), revision, &load)).await {
                    return;
                }
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Until the lease is over.
    async fn serve(&mut self) {
        let tick = Duration::from_millis((self.inner.length_ms / 20).max(5));
        while self.tenure.may_act() {
            let watched = timeout(self.inner.quarter(), self.inner.store.watch_with_history(">")).await;
            let Ok(Ok(mut watch)) = watched else {
                sleep(tick).await;
                continue;
            };
            self.serve_watch(&mut watch, tick).await;
        }
    }

    /// Until the lease is over, or the watch has been silent for as long as a lease: this node's own renewals should have come.
    async fn serve_watch(&mut self, watch: &mut Watch, tick: Duration) {
        let mut heard_ms = self.inner.clock.now_ms();
        while self.tenure.may_act() {
            tokio::select! {
                entry = watch.next() => match entry {
                    Some(Ok(entry)) => {
                        heard_ms = self.inner.clock.now_ms();
                        let is_new = self.inner.saw(&entry.key, entry.revision, &entry.value);
                        // A renewal changes nothing that has to be acted on.
                        if !is_new || entry.key.starts_with("lease.") {
                            continue;
                        }
                    }
                    Some(Err(_)) | None => return,
                },
                Some(ended) = self.ended.1.recv() => {
                    if self.hosted.get(&ended.actor).is_some_and(|hosted| hosted.generation == ended.generation) {
                        self.hosted.remove(&ended.actor);
                        self.exits.insert(ended.actor, (ended.generation, ended.exit));
                    }
                }
                () = sleep(tick) => {}
            }
            if self.inner.clock.now_ms() > heard_ms + self.inner.length_ms {
                return;
            }
            self.carry_out().await;
            let acts = {
                let view = self.inner.view();
                view.decide(self.inner.node.name(), self.inner.clock.now_ms(), now_ms())
            };
            for act in acts {
                if !self.tenure.may_act() {
                    return;
                }
                self.inner.apply(&act).await;
            }
        }
    }

    /// Starts and stops what the records say, and says so in them.
    async fn carry_out(&mut self) {
        let groups: Vec<(String, u64, Group)> = {
            let view = self.inner.view();
            let groups = view.groups.iter();
            groups.map(|(name, seen)| (name.clone(), seen.revision, seen.value.clone())).collect()
        };
        for (name, revision, group) in groups {
            let mut next = group.clone();
            for child in 0..group.states.len() {
                self.carry_out_child(&name, &mut next, child).await;
                if !self.tenure.may_act() {
                    return;
                }
            }
            if next != group {
                let act = Act::new(group_key(&name), revision, &next);
                self.inner.apply(&act).await;
            }
        }
    }

    async fn carry_out_child(&mut self, name: &str, group: &mut Group, child: usize) {
        let actor = format!("{name}/{}", group.spec.children[child].name);
        let State { generation, stage } = group.states[child].clone();
        let is_here = stage.at() == Some(&self.at);
        let hosts = self.hosted.get(&actor).map(|hosted| hosted.generation);
        if hosts.is_some_and(|hosted| !is_here || hosted != generation)
            && let Some(hosted) = self.hosted.remove(&actor)
        {
            hosted.stop().await;
        }
        if !is_here {
            return;
        }
        if let Some((_, exit)) = self.exits.get(&actor).filter(|(ended, _)| *ended == generation) {
            let _ = group.ended(child, generation, *exit, now_ms());
            return;
        }
        match stage {
            Stage::Placed(_) => {
                if hosts == Some(generation) || self.start(&actor, group, child).await {
                    let _ = group.started(child, generation);
                } else {
                    let _ = group.ended(child, generation, Exit::Failed, now_ms());
                }
            }
            Stage::Running(_) if hosts != Some(generation) => {
                // It was started and has gone without a word.
                let _ = group.ended(child, generation, Exit::Failed, now_ms());
            }
            Stage::Stopping { .. } => {
                if let Some(hosted) = self.hosted.remove(&actor) {
                    hosted.stop().await;
                }
                group.stopped(child, generation);
            }
            Stage::Running(_) | Stage::Wanted | Stage::Done => {}
        }
    }

    /// Starts an actor, behind its fence.
    async fn start(&mut self, actor: &str, group: &Group, child: usize) -> bool {
        let (spec, generation) = (&group.spec.children[child], group.states[child].generation);
        let Some(make) = self.inner.config.kinds.get(&spec.kind) else { return false };
        let fence = Arc::new(Fence::new(actor, generation, self.tenure.clone()));
        let (state, saved) = match Fenced::take_over(self.inner.state.clone(), actor, generation).await {
            Ok(taken) => taken,
            Err(_) => return false,
        };
        let place = Place::new(self.inner.node.clone(), fence.clone(), spec.argument.clone(), saved, state);
        let (started, address) = oneshot::channel();
        let (ended, has_ended) = oneshot::channel();
        let stop = CancelToken::new();
        let order = Order { handler: make(place), room: spec.room, stop: stop.clone(), started, ended };
        let room = spec.room.max(1) as usize;
        if !self.tenure.may_act() {
            return false;
        }
        self.inner.acting.fetch_add(1, Ordering::AcqRel);
        let (over, is_over) = oneshot::channel();
        tokio::spawn({
            let (inner, tell) = (self.inner.clone(), self.ended.0.clone());
            let actor = actor.to_owned();
            async move {
                // An order that was refused is dropped, and its channel with it.
                let exit = has_ended.await.unwrap_or(Exit::Failed);
                inner.acting.fetch_sub(1, Ordering::AcqRel);
                let _ = over.send(());
                let _ = tell.send(Ended { actor, generation, exit });
            }
        });
        let hosted = Hosted { generation, fence: fence.clone(), stop, exported: None, ended: is_over };
        if !self.host.order(order) {
            return false;
        }
        let exported = match address.await {
            Ok(address) => self.inner.node.serve(actor, address, room, Some(fence)).await.ok(),
            Err(_) => None,
        };
        match exported {
            Some(exported) => {
                self.hosted.insert(actor.to_owned(), Hosted { exported: Some(exported), ..hosted });
                true
            }
            None => {
                hosted.stop().await;
                false
            }
        }
    }
}
