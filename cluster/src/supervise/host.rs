//! Supervised actors of one node: what starts them, what they know, and what stops them.

use super::lease::Held;
use super::state::{Fenced, SaveError};
use crate::node::{Actor, Message, Node, Remote};
use mainspring::supervisor::Exit;
use mainspring::sync::CancelToken;
use mainspring::{Capacity, Cx, NurseryOptions, Pool, Runtime, Sender};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, oneshot};

/// Handles the messages of one actor.
pub type Handler = Box<dyn FnMut(&Cx, Message) -> Vec<u8> + Send>;

type Make = Arc<dyn Fn(Place) -> Handler + Send + Sync>;

/// How a node starts each kind of actor.
#[derive(Clone, Default)]
pub struct Kinds(BTreeMap<String, Make>);

impl std::fmt::Debug for Kinds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Kinds {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Actors of this kind are started by `make`.
    #[must_use]
    pub fn with(
        mut self,
        kind: impl Into<String>,
        make: impl Fn(Place) -> Handler + Send + Sync + 'static,
    ) -> Self {
        self.0.insert(kind.into(), Arc::new(make));
        self
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    pub(super) fn get(&self, kind: &str) -> Option<Make> {
        self.0.get(kind).cloned()
    }
}

/// A clock that only goes forward.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock(Instant);

impl Clock {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Until when one incarnation of a node may act. The member moves the time on, and everything else asks.
#[derive(Debug)]
pub(super) struct Tenure {
    clock: Clock,
    stops_ms: AtomicU64,
    aborts_ms: AtomicU64,
}

impl Tenure {
    pub(super) fn new(clock: Clock, held: &Held) -> Self {
        let tenure = Self { clock, stops_ms: AtomicU64::new(0), aborts_ms: AtomicU64::new(0) };
        tenure.renewed(held);
        tenure
    }

    pub(super) fn renewed(&self, held: &Held) {
        // The largest value says that it is over for good. A late renewal does not change that.
        let later = |at: &AtomicU64, ms| {
            let _ = at
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |there| (there != u64::MAX).then_some(ms));
        };
        later(&self.stops_ms, held.stops_ms());
        later(&self.aborts_ms, held.aborts_ms());
    }

    /// Another node has ended it, or this one gives up.
    pub(super) fn revoke(&self) {
        self.stops_ms.store(u64::MAX, Ordering::Release);
    }

    pub(super) fn may_act(&self) -> bool {
        let stops_ms = self.stops_ms.load(Ordering::Acquire);
        stops_ms != u64::MAX && self.clock.now_ms() < stops_ms
    }

    pub(super) fn must_have_stopped(&self) -> bool {
        self.clock.now_ms() >= self.aborts_ms.load(Ordering::Acquire)
    }
}

/// Whether one generation of an actor may act.
#[derive(Debug)]
pub(crate) struct Fence {
    actor: String,
    generation: u64,
    tenure: Arc<Tenure>,
    over: AtomicBool,
}

impl Fence {
    pub(super) fn new(actor: &str, generation: u64, tenure: Arc<Tenure>) -> Self {
        Self { actor: actor.to_owned(), generation, tenure, over: AtomicBool::new(false) }
    }

    pub(crate) fn actor(&self) -> &str {
        &self.actor
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn may_act(&self) -> bool {
        !self.over.load(Ordering::Acquire) && self.tenure.may_act()
    }

    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Release);
    }
}

/// What an actor knows of itself: its name, its generation, its node, and what it saved.
#[derive(Clone, Debug)]
pub struct Place {
    node: Node,
    fence: Arc<Fence>,
    argument: String,
    saved: Option<Vec<u8>>,
    state: Arc<Mutex<Fenced>>,
}

impl Place {
    pub(super) fn new(
        node: Node,
        fence: Arc<Fence>,
        argument: String,
        saved: Option<Vec<u8>>,
        state: Fenced,
    ) -> Self {
        Self { node, fence, argument, saved, state: Arc::new(Mutex::new(state)) }
    }

    /// `GROUP/CHILD`.
    pub fn name(&self) -> &str {
        self.fence.actor()
    }

    /// Which generation of the actor this is.
    pub fn generation(&self) -> u64 {
        self.fence.generation()
    }

    /// The node that it is on.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// What its group's record tells it.
    pub fn argument(&self) -> &str {
        &self.argument
    }

    /// What the generation before saved last.
    pub fn saved(&self) -> Option<&[u8]> {
        self.saved.as_deref()
    }

    /// Whether this generation may still act. What it does after that, others refuse.
    pub fn may_act(&self) -> bool {
        self.fence.may_act()
    }

    /// Another actor, asked by this one: it refuses what a superseded generation asks.
    pub fn actor(&self, name: impl Into<String>) -> Remote {
        self.node.actor(name).from(self.fence.clone())
    }

    /// Saves what the next generation begins with, from a task. Refused if a later generation has begun. Returns the record's revision.
    pub fn save(&self, cx: &Cx, bytes: Vec<u8>) -> Result<u64, SaveError> {
        let Some(net) = &self.node.0.net else { return Err(SaveError::NotPermitted) };
        if !self.fence.may_act() {
            return Err(SaveError::Superseded);
        }
        let (tx, rx) = oneshot::channel();
        let (state, fence) = (self.state.clone(), self.fence.clone());
        // It goes on when the task is stopped: the record and its revision stay together.
        net.tokio.spawn(async move {
            let saved = state.lock().await.save(&bytes).await;
            if matches!(saved, Err(SaveError::Superseded)) {
                fence.end();
            }
            let _ = tx.send(saved);
        });
        match cx.await_future(rx) {
            Ok(saved) => saved.unwrap_or(Err(SaveError::Unanswered)),
            Err(_) => Err(SaveError::NotPermitted),
        }
    }
}

/// An actor to start.
pub(super) struct Order {
    pub(super) handler: Handler,
    pub(super) room: u32,
    pub(super) stop: CancelToken,
    pub(super) started: oneshot::Sender<Actor>,
    pub(super) ended: oneshot::Sender<Exit>,
}

impl Order {
    fn run(self, cx: &Cx) {
        let Self { mut handler, room, stop, started, ended } = self;
        let served = cx.until(&stop, |cx| {
            let Ok((address, mailbox)) = cx.mailbox(room, Pool::ZERO) else { return Exit::Failed };
            if started.send(address).is_err() {
                return Exit::Failed;
            }
            match mailbox.serve(cx, &mut handler, |handler, cx, message| handler(cx, message)) {
                Ok(()) => Exit::Returned,
                Err(_) => Exit::Failed,
            }
        });
        // The member waits for this before it says that the actor has stopped.
        drop(handler);
        let _ = ended.send(served.unwrap_or(Exit::Failed));
    }
}

/// The task that all supervised actors of a node are children of.
#[derive(Clone, Debug)]
pub(super) struct Host(Sender<Order>);

/// How many actors may wait for their start.
const ORDERS: u32 = 64;

impl Host {
    /// Starts it. It ends with the last of its clones, and when its actors have ended.
    pub(super) fn start(runtime: Arc<Runtime>) -> Option<Self> {
        let (tx, rx) = mpsc::channel();
        std::thread::spawn(move || {
            runtime.run(|cx| {
                let Ok((orders, taken)) = cx.channel::<Order>(Capacity::Bounded(ORDERS)) else { return };
                // What cannot have one mailbox would fail every actor that is placed here, until their groups give up.
                if cx.mailbox::<Message, Vec<u8>>(1, Pool::ZERO).is_err() {
                    return;
                }
                if tx.send(orders).is_err() {
                    return;
                }
                let _ = cx.nursery_with(NurseryOptions::new().isolate(), |n| {
                    while let Ok(order) = taken.recv(cx) {
                        // An order that is dropped says so: its channels close.
                        let _ = n.start(move |cx| order.run(cx));
                    }
                });
            })
        });
        rx.recv_timeout(Duration::from_secs(10)).ok().map(Self)
    }

    pub(super) fn order(&self, order: Order) -> bool {
        self.0.send_blocking_timeout(order, Duration::ZERO).is_ok()
    }
}
