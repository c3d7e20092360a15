//! A supervisor's record: its children, where each is, and the last restarts.
//!
//! Conserved: a child is at one incarnation of one node at most. Its generation grows by one with each placement and never otherwise. At
//! most as many restarts are decided within any time as the intensity says; one more, and the group gives up.

use super::capacity::Demand;
use super::lease::MOST_TIMES;
use crate::wire;
use mainspring::supervisor::{Decision, Exit, Plan, Restart, Strategy};
use serde::{Deserialize, Serialize};

/// At most so many children.
pub const MOST_CHILDREN: usize = 64;

/// At most so much room in a child's mailbox, which its node makes when the child starts.
pub const MOST_ROOM: u32 = 1 << 16;

#[derive(Serialize, Deserialize)]
#[serde(remote = "Strategy", rename_all = "snake_case")]
enum StrategyText {
    OneForOne,
    OneForAll,
    RestForOne,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Restart", rename_all = "snake_case")]
enum RestartText {
    Permanent,
    Transient,
    Temporary,
}

/// One child of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Child {
    /// Its name within the group: others reach it as `GROUP/NAME`.
    pub name: String,
    /// Which kind of actor: nodes register how to start each kind.
    pub kind: String,
    /// Told to it when it starts.
    pub argument: String,
    /// When it is started again.
    #[serde(with = "RestartText")]
    pub restart: Restart,
    /// What it asks of its node.
    pub demand: Demand,
    /// How many messages its mailbox has room for.
    pub room: u32,
}

/// What a group is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// Which children are restarted when one fails.
    #[serde(with = "StrategyText")]
    pub strategy: Strategy,
    /// At most so many restarts
    pub most: u32,
    /// within any time of so many milliseconds, by the clocks of the nodes that decide.
    pub within_ms: u64,
    /// Started in this order.
    pub children: Vec<Child>,
}

impl Spec {
    /// Whether its names can be part of subjects and keys, and it is within bounds.
    pub fn is_sound(&self) -> bool {
        let names: std::collections::BTreeSet<&str> =
            self.children.iter().map(|child| child.name.as_str()).collect();
        (1..=MOST_CHILDREN).contains(&self.children.len())
            && names.len() == self.children.len()
            && self.most <= 1_000
            && self.children.iter().all(|child| {
                wire::is_name(&child.name)
                    && wire::is_name(&child.kind)
                    && child.argument.len() <= 4_096
                    && child.room <= MOST_ROOM
            })
    }
}

/// An incarnation of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct At {
    /// The node.
    pub node: String,
    /// Its incarnation.
    pub incarnation: u64,
}

/// Where a child is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Nowhere: it is to be placed.
    Wanted,
    /// The node is to start it.
    Placed(At),
    /// The node has started it.
    Running(At),
    /// The node is to stop it.
    Stopping {
        /// Which.
        at: At,
        /// Whether it is started again afterwards.
        again: bool,
    },
    /// It will not be started any more.
    Done,
}

impl Stage {
    /// The incarnation that has it, or may have.
    pub fn at(&self) -> Option<&At> {
        match self {
            Self::Placed(at) | Self::Running(at) | Self::Stopping { at, .. } => Some(at),
            Self::Wanted | Self::Done => None,
        }
    }
}

/// What is known of a child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// How often it was placed.
    pub generation: u64,
    /// Where it is.
    pub stage: Stage,
}

/// The record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// What it is made of.
    pub spec: Spec,
    /// Each child, as in the spec.
    pub states: Vec<State>,
    /// When the last restarts were, in milliseconds since 1970.
    pub recent_restarts: Vec<u64>,
    /// How many restarts were decided in all.
    pub restarts: u64,
    /// The child that failed once more than the intensity allows.
    pub gave_up: Option<String>,
}

impl Group {
    /// A group that is to be started.
    pub fn new(spec: Spec) -> Self {
        let states = spec.children.iter().map(|_| State { generation: 0, stage: Stage::Wanted }).collect();
        Self { spec, states, recent_restarts: Vec::new(), restarts: 0, gave_up: None }
    }

    /// A record as it came: `None` if it makes no sense.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let group: Self = serde_json::from_slice(bytes).ok()?;
        let is_sound = group.spec.is_sound()
            && group.states.len() == group.spec.children.len()
            && group.states.iter().all(|state| state.generation <= MOST_TIMES)
            && group.restarts <= MOST_TIMES;
        is_sound.then_some(group)
    }

    /// Which child has this name.
    pub fn child(&self, name: &str) -> Option<usize> {
        self.spec.children.iter().position(|child| child.name == name)
    }

    fn plan(&self) -> Plan {
        let done = self
            .states
            .iter()
            .map(|state| matches!(state.stage, Stage::Done | Stage::Stopping { again: false, .. }));
        let spec = &self.spec;
        Plan::new(
            spec.strategy,
            spec.most,
            spec.within_ms.saturating_mul(1_000_000),
            spec.children.iter().map(|child| child.restart),
        )
        .resume(done, self.recent_restarts.iter().map(|ms| ms.saturating_mul(1_000_000)))
    }

    /// Children that may be placed now. Those that depend on others wait until these run, and until all that must stop have.
    pub fn placeable(&self) -> Vec<usize> {
        let is = |wanted: bool, n: &usize| (self.states[*n].stage == Stage::Wanted) == wanted;
        let all = 0..self.states.len();
        if self.spec.strategy == Strategy::OneForOne {
            return all.filter(|n| is(true, n)).collect();
        }
        if self.states.iter().any(|state| matches!(state.stage, Stage::Stopping { .. })) {
            return Vec::new();
        }
        let next = all.clone().find(|n| is(true, n));
        let starting = all.clone().any(|n| matches!(self.states[n].stage, Stage::Placed(_)));
        next.filter(|_| !starting).into_iter().collect()
    }

    /// The node that has the child from now on. Its generation grows.
    pub fn place(&mut self, child: usize, at: At) {
        let state = &mut self.states[child];
        if state.stage == Stage::Wanted {
            *state = State { generation: state.generation + 1, stage: Stage::Placed(at) };
        }
    }

    /// The node has started it. False if that is no longer asked for.
    #[must_use]
    pub fn started(&mut self, child: usize, generation: u64) -> bool {
        let state = &mut self.states[child];
        match &state.stage {
            Stage::Placed(at) if state.generation == generation => {
                state.stage = Stage::Running(at.clone());
                true
            }
            _ => false,
        }
    }

    /// A child that was to be stopped has stopped.
    pub fn stopped(&mut self, child: usize, generation: u64) -> bool {
        let state = &mut self.states[child];
        match state.stage {
            Stage::Stopping { again, .. } if state.generation == generation => {
                state.stage = if again { Stage::Wanted } else { Stage::Done };
                true
            }
            _ => false,
        }
    }

    /// A child has ended by itself, or with its node. False if that was known.
    pub fn ended(&mut self, child: usize, generation: u64, exit: Exit, now_ms: u64) -> bool {
        let state = &mut self.states[child];
        if state.generation != generation {
            return false;
        }
        match &state.stage {
            Stage::Stopping { .. } => return self.stopped(child, generation),
            Stage::Placed(_) | Stage::Running(_) => {}
            Stage::Wanted | Stage::Done => return false,
        }
        // A clock that is behind must not make room for more restarts.
        let now_ms = self.recent_restarts.last().map_or(now_ms, |last| now_ms.max(*last));
        let mut plan = self.plan();
        match plan.ended(child, exit, now_ms.saturating_mul(1_000_000)) {
            Decision::Leave => self.states[child].stage = Stage::Done,
            Decision::Restart(range) => {
                self.restarts += 1;
                self.recent_restarts = plan.recent_restarts().map(|ns| ns / 1_000_000).collect();
                for other in range {
                    if other != child {
                        self.stop(other, &mut plan);
                    }
                }
                self.states[child].stage = Stage::Wanted;
            }
            Decision::GiveUp => {
                self.gave_up = Some(self.spec.children[child].name.clone());
                for (other, state) in self.states.iter_mut().enumerate() {
                    state.stage = match state.stage.at().cloned() {
                        Some(at) if other != child => Stage::Stopping { at, again: false },
                        _ => Stage::Done,
                    };
                }
            }
        }
        true
    }

    fn stop(&mut self, child: usize, plan: &mut Plan) {
        let stage = &mut self.states[child].stage;
        if let Stage::Placed(at) | Stage::Running(at) = stage {
            let at = at.clone();
            plan.stopped(child);
            *stage = Stage::Stopping { at, again: plan.is_wanted(child) };
        }
    }

    /// An incarnation has ended: what it had has ended with it. What it had not begun is placed again, and is no restart.
    pub fn node_ended(&mut self, is_ended: impl Fn(&At) -> bool, now_ms: u64) -> bool {
        let mut changed = false;
        for child in 0..self.states.len() {
            let State { generation, stage } = self.states[child].clone();
            if !stage.at().is_some_and(&is_ended) {
                continue;
            }
            if matches!(stage, Stage::Placed(_)) {
                self.states[child].stage = Stage::Wanted;
                changed = true;
            } else {
                changed |= self.ended(child, generation, Exit::Failed, now_ms);
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(strategy: Strategy, restarts: &[Restart]) -> Group {
        let children = restarts.iter().enumerate().map(|(n, restart)| Child {
            name: format!("c{n}"),
            kind: "work".into(),
            argument: String::new(),
            restart: *restart,
            demand: Demand::percent(1),
            room: 4,
        });
        Group::new(Spec { strategy, most: 2, within_ms: 1_000, children: children.collect() })
    }

    fn at(node: &str) -> At {
        At { node: node.into(), incarnation: 1 }
    }

    fn run_all(group: &mut Group, nodes: &[&str]) {
        while let Some(&child) = group.placeable().first() {
            group.place(child, at(nodes[child % nodes.len()]));
            let generation = group.states[child].generation;
            assert!(group.started(child, generation));
        }
    }

    fn generations(group: &Group) -> Vec<u64> {
        group.states.iter().map(|state| state.generation).collect()
    }

    #[test]
    fn a_dead_node_restarts_its_children_elsewhere_and_no_others() {
        let mut group = group(Strategy::OneForOne, &[Restart::Permanent; 3]);
        run_all(&mut group, &["a", "b", "b"]);
        assert!(group.node_ended(|at| at.node == "a", 5_000));
        assert_eq!(group.placeable(), [0]);
        assert!(!group.node_ended(|at| at.node == "a", 5_000), "it is known");
        run_all(&mut group, &["c"]);
        assert_eq!(generations(&group), [2, 1, 1]);
        assert_eq!(group.restarts, 1);
    }

    #[test]
    fn those_that_depend_on_it_stop_before_any_starts_again() {
        let mut group = group(Strategy::RestForOne, &[Restart::Permanent; 3]);
        run_all(&mut group, &["a", "b", "c"]);
        assert!(group.node_ended(|at| at.node == "b", 5_000));
        assert_eq!(group.states[2].stage, Stage::Stopping { at: at("c"), again: true });
        assert_eq!(group.placeable(), [] as [usize; 0], "the third still runs");
        assert!(!group.stopped(2, 7), "another generation");
        assert!(group.stopped(2, 1));
        assert_eq!(group.placeable(), [1], "in order");
        run_all(&mut group, &["a"]);
        assert_eq!(generations(&group), [1, 2, 2]);
        assert_eq!(group.restarts, 1);
    }

    #[test]
    fn one_restart_too_many_stops_all_of_them() {
        let mut group = group(Strategy::OneForOne, &[Restart::Permanent; 2]);
        for now in [0, 500, 999] {
            run_all(&mut group, &["a", "b"]);
            let generation = group.states[0].generation;
            assert!(group.ended(0, generation, Exit::Failed, now));
        }
        assert_eq!(group.gave_up.as_deref(), Some("c0"));
        assert_eq!(group.states[0].stage, Stage::Done);
        assert_eq!(group.states[1].stage, Stage::Stopping { at: at("b"), again: false });
        assert!(group.stopped(1, 1));
        assert_eq!(group.placeable(), [] as [usize; 0]);
    }

    #[test]
    fn restarts_that_are_long_ago_do_not_count_and_a_clock_that_is_behind_gains_nothing() {
        let mut group = group(Strategy::OneForOne, &[Restart::Permanent]);
        for now in [10_000, 11_000, 12_000, 13_000] {
            run_all(&mut group, &["a"]);
            let generation = group.states[0].generation;
            assert!(group.ended(0, generation, Exit::Failed, now));
            assert_eq!(group.gave_up, None);
        }
        run_all(&mut group, &["a"]);
        let _ = group.ended(0, 5, Exit::Failed, 1);
        run_all(&mut group, &["a"]);
        let _ = group.ended(0, 6, Exit::Failed, 1);
        assert_eq!(group.gave_up.as_deref(), Some("c0"));
    }

    #[test]
    fn what_has_done_its_work_is_left_alone() {
        let mut group = group(Strategy::OneForAll, &[Restart::Transient, Restart::Temporary]);
        run_all(&mut group, &["a", "b"]);
        assert!(group.ended(0, 1, Exit::Returned, 0));
        assert_eq!(group.states[0].stage, Stage::Done);
        assert!(group.node_ended(|at| at.node == "b", 0));
        assert_eq!(group.states[1].stage, Stage::Done);
        assert_eq!(group.restarts, 0);
    }

    #[test]
    fn a_placement_that_was_never_begun_is_no_restart() {
        let mut group = group(Strategy::OneForOne, &[Restart::Permanent]);
        group.place(0, at("a"));
        assert!(group.node_ended(|at| at.node == "a", 0));
        group.place(0, at("b"));
        assert_eq!((group.restarts, group.states[0].generation), (0, 2));
        assert!(!group.started(0, 1), "the first is over");
        assert!(group.started(0, 2));
    }

    #[test]
    fn a_record_that_makes_no_sense_is_none() {
        let group = group(Strategy::OneForOne, &[Restart::Permanent]);
        let text = serde_json::to_string(&group).expect("text");
        assert_eq!(Group::read(text.as_bytes()), Some(group));
        for (from, to) in [
            ("\"c0\"", "\"c.0\""),
            ("\"states\":[{", "\"states\":[],\"x\":[{"),
            ("{", "["),
            // One more would be none at all.
            ("\"generation\":0", "\"generation\":18446744073709551615"),
            ("\"restarts\":0", "\"restarts\":18446744073709551615"),
            ("\"room\":4", "\"room\":4294967295"),
        ] {
            assert_eq!(Group::read(text.replacen(from, to, 1).as_bytes()), None, "{from}");
        }
    }
}
