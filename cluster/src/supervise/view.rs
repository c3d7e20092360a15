//! What a node knows of all records, and what follows from it: a function, without clocks or a server.
//!
//! Conserved: each act is a compare-and-set on the record that was seen. What one record says of another is used only if it stays true: an
//! incarnation that has ended, a generation that has passed. So a view that is behind loses a race, and does no harm.

use super::capacity::{Load, Reserved};
use super::group::{At, Group, Stage};
use super::lease::Lease;
use std::collections::BTreeMap;

/// How many nodes act for others at a time: the first by name of those that live.
const SUPERVISORS: usize = 3;

/// A change of one record, if it is still at this revision. Zero: if there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Act {
    /// The record.
    pub key: String,
    /// The revision that was seen.
    pub expected: u64,
    /// Its next value.
    pub value: Vec<u8>,
}

impl Act {
    /// The record of `key` becomes `value`.
    pub fn new(key: String, expected: u64, value: &impl serde::Serialize) -> Self {
        Self { key, expected, value: serde_json::to_vec(value).unwrap_or_default() }
    }
}

/// A record as it was seen.
#[derive(Clone, Debug)]
pub struct Seen<T> {
    /// Its revision.
    pub revision: u64,
    /// When it was seen, by this node's clock.
    pub at_ms: u64,
    /// What it says.
    pub value: T,
}

/// All records that this node has seen.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// By node.
    pub leases: BTreeMap<String, Seen<Lease>>,
    /// By node.
    pub loads: BTreeMap<String, Seen<Load>>,
    /// By group.
    pub groups: BTreeMap<String, Seen<Group>>,
}

/// The key of a node's lease.
pub fn lease_key(node: &str) -> String {
    format!("lease.{node}")
}

/// The key of a node's load.
pub fn load_key(node: &str) -> String {
    format!("load.{node}")
}

/// The key of a group.
pub fn group_key(group: &str) -> String {
    format!("group.{group}")
}

fn put<T>(map: &mut BTreeMap<String, Seen<T>>, name: &str, seen: Seen<T>) -> bool {
    if map.get(name).is_some_and(|there| there.revision >= seen.revision) {
        return false;
    }
    map.insert(name.to_owned(), seen);
    true
}

impl View {
    /// A record was seen. False if it is none of ours, or not newer than what was known.
    pub fn saw(&mut self, key: &str, revision: u64, value: &[u8], at_ms: u64) -> bool {
        match key.split_once('.') {
            Some(("lease", node)) => Lease::read(value)
                .is_some_and(|value| put(&mut self.leases, node, Seen { revision, at_ms, value })),
            Some(("load", node)) => serde_json::from_slice(value)
                .is_ok_and(|value| put(&mut self.loads, node, Seen { revision, at_ms, value })),
            Some(("group", group)) => Group::read(value)
                .is_some_and(|value| put(&mut self.groups, group, Seen { revision, at_ms, value })),
            _ => false,
        }
    }

    /// Whether this incarnation acts no more. Once so, for ever.
    pub fn is_ended(&self, at: &At) -> bool {
        self.leases.get(&at.node).is_some_and(|lease| {
            let lease = &lease.value;
            lease.incarnation > at.incarnation || lease.incarnation == at.incarnation && lease.ended
        })
    }

    /// When the lease of this node has lapsed, by what was seen of it.
    pub fn lapses_ms(&self, node: &str) -> Option<u64> {
        let lease = self.leases.get(node).filter(|lease| !lease.value.ended)?;
        Some(lease.at_ms + lease.value.patience_ms())
    }

    /// Nodes whose lease has not lapsed, by name.
    pub fn live(&self, now_ms: u64) -> impl Iterator<Item = &str> {
        let lives = move |node: &&String| self.lapses_ms(node).is_some_and(|lapses| lapses > now_ms);
        self.leases.keys().filter(lives).map(String::as_str)
    }

    /// What this node does for others now. It is bounded: one change of each record at most.
    pub fn decide(&self, me: &str, now_ms: u64, wall_ms: u64) -> Vec<Act> {
        if !self.live(now_ms).take(SUPERVISORS).any(|node| node == me) {
            return Vec::new();
        }
        let mut acts = self.end_lapsed(now_ms);
        let mut loads: BTreeMap<&str, Load> = BTreeMap::new();
        for (name, group) in &self.groups {
            let mut next = group.value.clone();
            if next.node_ended(|at| self.is_ended(at), wall_ms) {
                acts.push(Act::new(group_key(name), group.revision, &next));
                continue;
            }
            if let Some(placed) = self.place_one(name, &group.value, now_ms, &mut loads) {
                acts.push(Act::new(group_key(name), group.revision, &placed));
            }
        }
        for (node, load) in &self.loads {
            let mut next = loads.remove(node.as_str()).unwrap_or_else(|| load.value.clone());
            next.reserved.retain(|actor, reserved| self.is_wanted(node, &load.value, actor, reserved));
            if next != load.value {
                acts.push(Act::new(load_key(node), load.revision, &next));
            }
        }
        acts
    }

    fn end_lapsed(&self, now_ms: u64) -> Vec<Act> {
        let lapsed = self
            .leases
            .iter()
            .filter(|(node, _)| self.lapses_ms(node).is_some_and(|lapses| lapses <= now_ms));
        let end = |(node, lease): (&String, &Seen<Lease>)| {
            Act::new(lease_key(node), lease.revision, &Lease { ended: true, ..lease.value.clone() })
        };
        lapsed.map(end).collect()
    }

    /// The group with one more child placed; or, if nothing is reserved for a child yet, a reservation in `loads`.
    fn place_one<'a>(
        &'a self,
        name: &str,
        group: &Group,
        now_ms: u64,
        loads: &mut BTreeMap<&'a str, Load>,
    ) -> Option<Group> {
        for child in group.placeable() {
            let (spec, generation) = (&group.spec.children[child], group.states[child].generation + 1);
            let actor = format!("{name}/{}", spec.name);
            let reserved = Reserved { generation, demand: spec.demand };
            let live = self.live(now_ms).filter_map(|node| Some((node, self.loads.get(node)?)));
            let live: Vec<(&str, &Load)> = live
                .map(|(node, load)| (node, &load.value))
                .filter(|(node, load)| {
                    let at = At { node: (*node).to_owned(), incarnation: load.incarnation };
                    !self.is_ended(&at) && load.kinds.contains(&spec.kind)
                })
                .collect();
            let has = live.iter().find(|(_, load)| load.reserved.get(&actor) == Some(&reserved));
            if let Some((node, load)) = has {
                let mut group = group.clone();
                group.place(child, At { node: (*node).to_owned(), incarnation: load.incarnation });
                return Some(group);
            }
            let mut nodes: Vec<(u128, &str, &Load)> = live
                .iter()
                .map(|(node, load)| {
                    let load = loads.get(node).unwrap_or(load);
                    let used = load.reserved_ppm() * 1_000 / u128::from(load.capacity.cpus.max(1));
                    (used, *node, load)
                })
                .collect();
            nodes.sort_unstable_by_key(|(used, node, _)| (*used, *node));
            let chosen = nodes.iter().find(|(_, _, load)| load.admits(&actor, &spec.demand));
            if let Some((_, node, load)) = chosen {
                let mut load = (*load).clone();
                load.reserved.insert(actor, reserved);
                loads.insert(node, load);
            }
        }
        None
    }

    /// Whether a reservation is used, or may still be.
    fn is_wanted(&self, node: &str, load: &Load, actor: &str, reserved: &Reserved) -> bool {
        let Some((group, child)) = actor.split_once('/') else { return false };
        let Some(group) = self.groups.get(group).map(|group| &group.value) else {
            // The group's record may not have been seen yet.
            return true;
        };
        let Some(child) = group.child(child) else { return false };
        let state = &group.states[child];
        match state.stage.at() {
            Some(at) if state.generation == reserved.generation => {
                at.node == node && at.incarnation == load.incarnation
            }
            Some(_) => state.generation < reserved.generation,
            None if state.stage == Stage::Done => false,
            None => state.generation < reserved.generation,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::capacity::{Capacity, Demand};
    use super::super::group::{Child, Spec};
    use super::*;
    use mainspring::supervisor::{Restart, Strategy};

    /// A server's bucket, and one node's view of it.
    #[derive(Default)]
    struct World {
        records: BTreeMap<String, (u64, Vec<u8>)>,
        next: u64,
        view: View,
    }

    impl World {
        fn act(&mut self, act: &Act, now_ms: u64) -> bool {
            let there = self.records.get(&act.key).map_or(0, |(revision, _)| *revision);
            if there != act.expected {
                return false;
            }
            self.next += 1;
            self.records.insert(act.key.clone(), (self.next, act.value.clone()));
            assert!(self.view.saw(&act.key, self.next, &act.value, now_ms));
            true
        }

        fn join(&mut self, node: &str, percent: u32, now_ms: u64) {
            let lease = Lease { incarnation: 1, length_ms: 1_000, ..Lease::default() };
            let load = Load {
                incarnation: 1,
                capacity: Capacity { cpus: 1, floor_ppm: 1_000_000 - percent * 10_000, memory: 0 },
                kinds: vec!["work".into()],
                reserved: BTreeMap::new(),
            };
            assert!(self.act(&Act::new(load_key(node), 0, &load), now_ms));
            assert!(self.act(&Act::new(lease_key(node), 0, &lease), now_ms));
        }

        fn renew(&mut self, node: &str, now_ms: u64) {
            let seen = self.view.leases[node].clone();
            let lease = Lease { renewals: seen.value.renewals + 1, ..seen.value };
            assert!(self.act(&Act::new(lease_key(node), seen.revision, &lease), now_ms));
        }

        fn settle(&mut self, me: &str, now_ms: u64) {
            for _ in 0..100 {
                let acts = self.view.decide(me, now_ms, now_ms);
                if acts.is_empty() {
                    return;
                }
                for act in acts {
                    assert!(self.act(&act, now_ms));
                }
            }
            panic!("it does not come to rest");
        }

        fn nodes(&self) -> Vec<Option<&str>> {
            let group = &self.view.groups["g"].value;
            group.states.iter().map(|state| state.stage.at().map(|at| at.node.as_str())).collect()
        }
    }

    fn group(demands: &[u64]) -> Group {
        let children = demands.iter().enumerate().map(|(n, percent)| Child {
            name: format!("c{n}"),
            kind: "work".into(),
            argument: String::new(),
            restart: Restart::Permanent,
            demand: Demand::percent(*percent),
            room: 1,
        });
        let strategy = Strategy::OneForOne;
        Group::new(Spec { strategy, most: 5, within_ms: 1_000, children: children.collect() })
    }

    #[test]
    fn children_go_where_they_fit_and_nowhere_else() {
        let mut world = World::default();
        world.join("a", 50, 0);
        world.join("b", 90, 0);
        assert!(world.act(&Act::new(group_key("g"), 0, &group(&[60, 50, 30, 20])), 0));
        world.settle("a", 0);
        assert_eq!(world.nodes(), [Some("b"), Some("a"), Some("b"), None], "the last fits nowhere");
        assert!(world.view.loads.values().all(|load| load.value.is_admitted()));
        // With another node it does.
        world.join("c", 50, 0);
        world.settle("a", 0);
        assert_eq!(world.nodes()[3], Some("c"));
    }

    #[test]
    fn a_node_that_does_not_renew_is_ended_and_its_children_move() {
        let mut world = World::default();
        world.join("a", 90, 0);
        world.join("b", 90, 0);
        assert!(world.act(&Act::new(group_key("g"), 0, &group(&[10, 10])), 0));
        world.settle("a", 0);
        let mut nodes = world.nodes();
        nodes.sort_unstable();
        assert_eq!(nodes, [Some("a"), Some("b")]);
        world.renew("a", 1_200);
        world.settle("a", 1_249);
        assert!(!world.view.leases["b"].value.ended, "its time is not over");
        world.settle("a", 1_250);
        assert!(world.view.leases["b"].value.ended);
        assert_eq!(world.nodes(), [Some("a"), Some("a")]);
        let group = &world.view.groups["g"].value;
        assert_eq!(group.states.iter().map(|state| state.generation).sum::<u64>(), 3);
    }

    #[test]
    fn a_renewal_that_was_kept_wins_over_the_end_of_the_lease() {
        let mut world = World::default();
        world.join("a", 90, 0);
        world.join("b", 90, 0);
        world.renew("a", 1_200);
        let late = world.view.decide("a", 1_250, 0);
        assert_eq!(late.len(), 1);
        world.renew("b", 1_250);
        assert!(!world.act(&late[0], 1_250), "it was renewed meanwhile");
        assert!(world.view.decide("a", 1_251, 0).is_empty());
    }

    #[test]
    fn a_node_that_has_lapsed_itself_decides_nothing() {
        let mut world = World::default();
        world.join("a", 90, 0);
        world.join("b", 90, 0);
        world.renew("b", 1_000);
        assert!(world.view.decide("a", 1_300, 0).is_empty());
        assert!(!world.view.decide("b", 1_300, 0).is_empty());
    }

    #[test]
    fn two_reservations_for_one_child_come_to_one_placement() {
        let mut world = World::default();
        world.join("a", 90, 0);
        world.join("b", 90, 0);
        assert!(world.act(&Act::new(group_key("g"), 0, &group(&[10])), 0));
        // Two supervisors that did not see each other.
        for node in ["b", "a"] {
            let seen = world.view.loads[node].clone();
            let mut load = seen.value;
            load.reserved.insert("g/c0".into(), Reserved { generation: 1, demand: Demand::percent(10) });
            assert!(world.act(&Act::new(load_key(node), seen.revision, &load), 0));
        }
        world.settle("a", 0);
        let reserved: usize = world.view.loads.values().map(|load| load.value.reserved.len()).sum();
        assert_eq!(reserved, 1);
        let node = world.nodes()[0].expect("it is placed").to_owned();
        assert_eq!(world.view.loads[&node].value.reserved.len(), 1, "where it is");
    }
}
