//! What a thousand nodes cost: leases, placement and restarts, simulated from a seed.
//!
//! The nodes' decisions are those of `supervise`: [`View::decide`], [`Held`] and the records. The server, the network and the clock are simulated:
//! a record is changed by compare-and-set, and whatever is sent takes one to five milliseconds. A tenth of the nodes dies at once.

use mainspring::supervisor::{Restart, Strategy};
use mainspring_cluster::supervise::group::{At, Child, Group, Spec, Stage};
use mainspring_cluster::supervise::lease::{Held, Lease};
use mainspring_cluster::supervise::view::{Act, View, group_key, lease_key, load_key};
use mainspring_cluster::supervise::{Capacity, Demand, Load};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const LEASE_MS: u64 = 3_000;
/// Actors of each group.
const CHILDREN: usize = 10;
/// Only the first nodes by name decide: no other view is needed.
const DECIDERS: usize = 4;

/// A few numbers that a seed gives.
struct Chance(u64);

impl Chance {
    fn up_to(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// What happens at a time.
enum Event {
    /// A node sends its renewal.
    Renew(usize),
    /// A change arrives at the server.
    Arrive { from: Option<usize>, act: Act, sent_ms: u64 },
    /// A decider sees a record.
    See { decider: usize, key: String, revision: u64, value: Vec<u8> },
    /// A decider decides.
    Decide(usize),
    /// A node has started what was placed there.
    Start { group: String, child: usize, generation: u64 },
}

struct Node {
    name: String,
    held: Held,
    lease: Lease,
    revision: u64,
    dead: bool,
}

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counts {
    writes: u64,
    conflicts: u64,
    bytes: u64,
    decisions: u64,
    placed_ms: u64,
    recovered_ms: u64,
    restarts: u64,
    ms: u64,
}

struct World {
    now_ms: u64,
    order: u64,
    events: BTreeMap<(u64, u64), Event>,
    records: BTreeMap<String, (u64, Vec<u8>)>,
    revision: u64,
    nodes: Vec<Node>,
    views: Vec<View>,
    /// When each decider decides next.
    decides: BTreeMap<usize, u64>,
    chance: Chance,
    counts: Counts,
    /// How long the deciders took, on this host.
    deciding: Duration,
    /// When each incarnation stopped: at the latest.
    stopped_ms: BTreeMap<String, u64>,
}

impl World {
    fn new(nodes: usize, seed: u64) -> Self {
        let mut world = Self {
            now_ms: 0,
            order: 0,
            events: BTreeMap::new(),
            records: BTreeMap::new(),
            revision: 0,
            nodes: Vec::new(),
            views: vec![View::default(); DECIDERS.min(nodes)],
            decides: BTreeMap::new(),
            chance: Chance(seed),
            counts: Counts::default(),
            deciding: Duration::ZERO,
            stopped_ms: BTreeMap::new(),
        };
        for n in 0..nodes {
            let name = format!("n{n:04}");
            let load = Load {
                incarnation: 1,
                capacity: Capacity { cpus: 1, floor_ppm: 100_000, memory: 1 << 30 },
                kinds: vec!["work".into()],
                reserved: BTreeMap::new(),
            };
            let lease = Lease { incarnation: 1, life: name.clone(), length_ms: LEASE_MS, ..Lease::default() };
            let act = Act::new(lease_key(&name), 0, &lease);
            world.nodes.push(Node {
                name: name.clone(),
                held: Held::new(LEASE_MS, 0),
                lease,
                revision: 0,
                dead: false,
            });
            world.arrive(Some(n), &act, 0);
            world.arrive(None, &Act::new(load_key(&name), 0, &load), 0);
            let first = world.chance.up_to(LEASE_MS / 4);
            world.after(first, Event::Renew(n));
        }
        for group in 0..nodes / CHILDREN {
            let children = (0..CHILDREN).map(|n| Child {
                name: format!("c{n}"),
                kind: "work".into(),
                argument: String::new(),
                restart: Restart::Permanent,
                demand: Demand::percent(20),
                room: 1,
            });
            let spec = Spec {
                strategy: Strategy::OneForOne,
                most: 1_000,
                within_ms: 60_000,
                children: children.collect(),
            };
            world.arrive(None, &Act::new(group_key(&format!("g{group:04}")), 0, &Group::new(spec)), 0);
        }
        world
    }

    fn after(&mut self, ms: u64, event: Event) {
        self.order += 1;
        self.events.insert((self.now_ms + ms, self.order), event);
    }

    fn travel_ms(&mut self) -> u64 {
        1 + self.chance.up_to(5)
    }

    /// The server changes a record, or does not.
    fn arrive(&mut self, from: Option<usize>, act: &Act, sent_ms: u64) {
        let there = self.records.get(&act.key).map_or(0, |(revision, _)| *revision);
        if there != act.expected {
            self.counts.conflicts += 1;
            return;
        }
        self.counts.writes += 1;
        self.counts.bytes += act.value.len() as u64;
        self.check(act);
        self.revision += 1;
        self.records.insert(act.key.clone(), (self.revision, act.value.clone()));
        if let Some(node) = from {
            let node = &mut self.nodes[node];
            node.revision = self.revision;
            node.held.renewed(sent_ms);
        }
        for decider in 0..self.views.len() {
            let ms = self.travel_ms();
            let (key, value, revision) = (act.key.clone(), act.value.clone(), self.revision);
            self.after(ms, Event::See { decider, key, revision, value });
        }
        if let Some(name) = act.key.strip_prefix("group.")
            && let Some(group) = Group::read(&act.value)
        {
            for (child, state) in group.states.iter().enumerate() {
                if let Stage::Placed(at) = &state.stage
                    && self.nodes.iter().any(|node| node.name == at.node && !node.dead)
                {
                    let ms = self.travel_ms();
                    let generation = state.generation;
                    self.after(ms, Event::Start { group: name.to_owned(), child, generation });
                }
            }
        }
    }

    /// What must never happen: an end before its holder has stopped, an actor in two places, a node that carries more than it can.
    fn check(&mut self, act: &Act) {
        let before = self.records.get(&act.key).map(|(_, value)| value);
        match act.key.split_once('.') {
            Some(("lease", name)) => {
                let lease: Lease = serde_json::from_slice(&act.value).expect("a lease");
                if lease.ended {
                    let node = self.nodes.iter().find(|node| node.name == name).expect("a node");
                    assert!(self.now_ms > node.held.aborts_ms(), "{name} was ended while it acts");
                    self.stopped_ms.insert(name.to_owned(), node.held.aborts_ms());
                }
            }
            Some(("load", name)) => {
                let load: Load = serde_json::from_slice(&act.value).expect("a load");
                assert!(load.is_admitted(), "{name} carries too much: {load:?}");
            }
            _ => {
                let group = Group::read(&act.value).expect("a group");
                let Some(before) = before.and_then(|before| Group::read(before)) else { return };
                for (was, is) in before.states.iter().zip(&group.states) {
                    assert!((was.generation..=was.generation + 1).contains(&is.generation));
                    // It leaves a node only when that has ended: nothing here fails by itself.
                    if let (Some(At { node, .. }), None) = (was.stage.at(), is.stage.at()) {
                        let stopped = self.stopped_ms.get(node).copied();
                        assert!(
                            stopped.is_some_and(|stopped| stopped < self.now_ms),
                            "{node} has not stopped"
                        );
                    }
                    assert!(
                        is.generation == was.generation || was.stage.at().is_none(),
                        "it was placed while it was somewhere"
                    );
                }
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Renew(n) => {
                let node = &mut self.nodes[n];
                if node.dead {
                    return;
                }
                node.lease.renewals += 1;
                let act = Act::new(lease_key(&node.name), node.revision, &node.lease);
                let (sent_ms, ms) = (self.now_ms, self.travel_ms());
                self.after(ms, Event::Arrive { from: Some(n), act, sent_ms });
                self.after(LEASE_MS / 4, Event::Renew(n));
            }
            Event::Arrive { from, act, sent_ms } => self.arrive(from, &act, sent_ms),
            Event::See { decider, key, revision, value } => {
                let is_new = self.views[decider].saw(&key, revision, &value, self.now_ms);
                if is_new && !key.starts_with("lease.") {
                    self.decide_soon(decider, 1);
                }
            }
            Event::Decide(decider) => {
                // An earlier one may have taken its place.
                if self.decides.get(&decider) != Some(&self.now_ms) || self.nodes[decider].dead {
                    return;
                }
                self.decides.remove(&decider);
                let name = self.nodes[decider].name.clone();
                let began = Instant::now();
                let acts = self.views[decider].decide(&name, self.now_ms, self.now_ms);
                self.deciding += began.elapsed();
                self.counts.decisions += 1;
                for act in acts {
                    let (sent_ms, ms) = (self.now_ms, self.travel_ms());
                    self.after(ms, Event::Arrive { from: None, act, sent_ms });
                }
                self.decide_soon(decider, LEASE_MS / 20);
            }
            Event::Start { group, child, generation } => {
                let (revision, value) = &self.records[&group_key(&group)];
                let mut next = Group::read(value).expect("a group");
                if next.started(child, generation) {
                    let act = Act::new(group_key(&group), *revision, &next);
                    self.arrive(None, &act, 0);
                }
            }
        }
    }

    fn decide_soon(&mut self, decider: usize, ms: u64) {
        let at_ms = self.now_ms + ms;
        if self.decides.get(&decider).is_none_or(|next_ms| at_ms < *next_ms) {
            self.decides.insert(decider, at_ms);
            self.after(ms, Event::Decide(decider));
        }
    }

    /// Goes on until it is so.
    fn run_until(&mut self, is_so: impl Fn(&Self) -> bool, most_ms: u64) {
        let end_ms = self.now_ms + most_ms;
        let mut looked_ms = self.now_ms;
        while let Some(((at_ms, _), event)) = self.events.pop_first() {
            self.now_ms = at_ms;
            self.happen(event);
            if self.now_ms >= looked_ms + 10 {
                looked_ms = self.now_ms;
                if is_so(self) {
                    break;
                }
            }
            assert!(self.now_ms < end_ms, "it does not come to rest within {most_ms} ms");
        }
        self.counts.ms = self.now_ms;
    }

    fn all_run(&self) -> bool {
        let dead: BTreeSet<&str> =
            self.nodes.iter().filter(|node| node.dead).map(|node| node.name.as_str()).collect();
        self.records.range("group.".to_owned().."group/".to_owned()).all(|(_, (_, value))| {
            Group::read(value)
                .expect("a group")
                .states
                .iter()
                .all(|state| matches!(&state.stage, Stage::Running(at) if !dead.contains(at.node.as_str())))
        })
    }
}

/// Starts all actors, kills a tenth of the nodes, and waits until all actors run again.
fn simulate(nodes: usize, seed: u64) -> (Counts, Counts, Duration) {
    let mut world = World::new(nodes, seed);
    for decider in 0..world.views.len() {
        world.decide_soon(decider, 1);
    }
    world.run_until(World::all_run, 600_000);
    world.counts.placed_ms = world.now_ms;
    // At rest: what renewals alone cost.
    let before = world.counts.clone();
    let until_ms = world.now_ms + 3 * LEASE_MS;
    world.run_until(|world| world.now_ms >= until_ms, 10 * LEASE_MS);
    let rest = Counts {
        writes: world.counts.writes - before.writes,
        bytes: world.counts.bytes - before.bytes,
        ms: 3 * LEASE_MS,
        ..Counts::default()
    };
    // The first node by name is among the dead: so is one of those that decide.
    for n in (0..nodes).step_by(10) {
        world.nodes[n].dead = true;
    }
    let killed_ms = world.now_ms;
    world.run_until(World::all_run, 600_000);
    world.counts.recovered_ms = world.now_ms - killed_ms;
    let groups = world.records.range("group.".to_owned().."group/".to_owned());
    world.counts.restarts = groups.map(|(_, (_, value))| Group::read(value).expect("a group").restarts).sum();
    (world.counts, rest, world.deciding)
}

fn main() {
    println!(
        " nodes  actors  placed ms  again ms  restarts  writes  conflicts  decisions  ms each   at rest: writes/s  sees/s  MB/s"
    );
    for nodes in [10, 30, 100, 300, 1_000] {
        let (counts, rest, deciding) = simulate(nodes, 1);
        let writes = rest.writes * 1_000 / rest.ms;
        let sees = writes * nodes as u64;
        let bytes = rest.bytes / rest.writes.max(1) * sees;
        println!(
            "{nodes:6}  {:6}  {:9}  {:8}  {:8}  {:6}  {:9}  {:9}  {:7.2}  {writes:18}  {sees:6}  {:4.1}",
            nodes / CHILDREN * CHILDREN,
            counts.placed_ms,
            counts.recovered_ms,
            counts.restarts,
            counts.writes,
            counts.conflicts,
            counts.decisions,
            deciding.as_secs_f64() * 1e3 / counts.decisions as f64,
            bytes as f64 / 1e6,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_the_nodes_dies_and_every_actor_runs_again_in_one_place() {
        for seed in 1..=4 {
            let (counts, _, _) = simulate(60, seed);
            assert!(counts.restarts > 0, "nobody was lost: {counts:?}");
            assert!(counts.recovered_ms > LEASE_MS, "{counts:?}");
        }
    }

    #[test]
    fn a_seed_gives_the_same_run() {
        assert_eq!(simulate(30, 7).0, simulate(30, 7).0);
    }
}
