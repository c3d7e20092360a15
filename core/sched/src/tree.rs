//! A treap of queued threads, ordered by virtual deadline, that finds the first *eligible* one in O(log n).
//!
//! It takes any mixture of starts and deadlines. Each node also knows the earliest start in its left and in its right
//! part, so the search for the first node whose start has come never backs up. Nodes are the queue's entries; an entry
//! is in at most one tree. Priorities are drawn at each insertion from a generator that no thread can observe, so no
//! thread can aim for a deep tree.
//!
//! Conserved: in-order traversal is sorted, a parent's priority is at least its children's, and `earliest` and
//! `reach` summarise exactly the part below. [`Tree::verify`] checks all of it, by other means.
//!
//! A missing part is summarised by the node's own start. That is neutral for a minimum, and the search may then
//! enter the left part whenever its summary is eligible: if there is none, the node itself is the answer.

use crate::fair::entry::{Entries, Entry, Key, LEFT, NIL, RIGHT};
use crate::small_sorted::Rank;
use crate::virtual_time::VirtualTime;
use alloc::collections::TryReserveError;
use alloc::vec::Vec;

/// Where a thread may run (CPUs folded onto 64 bits), and the threads of each part below its node.
#[derive(Clone, Copy, Debug, Default)]
struct Reach {
    own: u64,
    part: [u64; 2],
}

impl Reach {
    fn below(&self) -> u64 {
        self.own | self.part[LEFT] | self.part[RIGHT]
    }
}

/// The earliest start in the part at `entry`.
#[inline]
fn earliest_below(entry: &Entry) -> VirtualTime {
    entry.start.earlier(entry.earliest[LEFT]).earlier(entry.earliest[RIGHT])
}

/// The entries of all seats of one CPU, and where their threads may run.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    pub entries: Entries,
    reach: Vec<Reach>,
}

impl Nodes {
    pub(crate) fn reserve(&mut self, seats: usize) -> Result<(), TryReserveError> {
        self.entries.reserve(seats)?;
        self.reach.try_reserve_exact(seats.saturating_sub(self.reach.len()))
    }

    /// Puts `entry` at `seat`, within what was reserved.
    pub(crate) fn put(&mut self, seat: u32, entry: Entry) {
        while self.reach.len() <= seat as usize {
            self.reach.push(Reach::default());
        }
        self.entries.put(seat, entry);
    }
}

/// One ordered set of nodes. `MASKED` trees also summarise where their threads may run.
#[derive(Clone, Debug)]
pub(crate) struct Tree<const MASKED: bool> {
    root: u32,
}

impl<const MASKED: bool> Tree<MASKED> {
    pub(crate) const fn new() -> Self {
        Self { root: NIL }
    }

    /// Adds the detached node `seat` under `key`, which its entry has.
    #[inline]
    pub(crate) fn insert(&mut self, nodes: &mut Nodes, seat: u32, key: Key, reach: u64, priority: u32) {
        let (mut parent, mut side, mut at) = (NIL, LEFT, self.root);
        while let Some(node) = nodes.entries.get_mut(at) {
            if node.priority < priority {
                break;
            }
            side = usize::from(!key.is_before(&node.key()));
            if key.start.is_before(node.earliest[side]) {
                node.earliest[side] = key.start;
            }
            if MASKED {
                nodes.reach[at as usize].part[side] |= reach;
            }
            parent = at;
            at = node.child[side];
        }
        let node = &mut nodes.entries[seat];
        node.priority = priority;
        node.parent = parent;
        node.child = [NIL; 2];
        node.earliest = [key.start; 2];
        if MASKED {
            nodes.reach[seat as usize] = Reach { own: reach, part: [0; 2] };
        }
        match nodes.entries.get_mut(parent) {
            Some(above) => {
                above.child[side] = seat;
                if at == NIL {
                    // The part was missing, and its summary the parent's own start.
                    above.earliest[side] = key.start;
                }
            }
            None => self.root = seat,
        }
        if at != NIL {
            self.split_under(nodes, at, seat, &key);
        }
    }

    /// Takes `seat` out, wherever it stands.
    #[inline]
    pub(crate) fn remove(&mut self, nodes: &mut Nodes, seat: u32) {
        let Entry { child: [left, right], parent, .. } = nodes.entries[seat];
        let side = nodes.entries.side_of(parent, seat);
        let joined = if left == NIL {
            self.attach(nodes, parent, side, right);
            right
        } else {
            self.join(nodes, left, right, parent, side)
        };
        self.refresh_upwards(nodes, joined, parent, side);
    }

    /// The first node in order.
    #[inline]
    pub(crate) fn first(&self, nodes: &Nodes) -> Option<u32> {
        let mut found = None;
        let mut at = self.root;
        while let Some(node) = nodes.entries.get(at) {
            found = Some(at);
            at = node.child[LEFT];
        }
        found
    }

    /// The first node in order whose start is not after `clock`.
    #[inline]
    pub(crate) fn first_started(&self, nodes: &Nodes, clock: VirtualTime) -> Option<u32> {
        let mut at = self.root;
        while let Some(node) = nodes.entries.get(at) {
            if !clock.is_before(node.earliest[LEFT]) {
                if node.child[LEFT] == NIL {
                    return Some(at);
                }
                at = node.child[LEFT];
            } else if !clock.is_before(node.start) {
                return Some(at);
            } else {
                at = node.child[RIGHT];
            }
        }
        None
    }

    /// The earliest start of all.
    pub(crate) fn earliest_start(&self, nodes: &Nodes) -> Option<VirtualTime> {
        nodes.entries.get(self.root).map(earliest_below)
    }

    /// The first node in order that `accept` takes, among those whose reach has one of `wanted`'s bits.
    pub(crate) fn first_reaching(
        &self,
        nodes: &Nodes,
        wanted: u64,
        accept: &impl Fn(u32) -> bool,
    ) -> Option<u32> {
        Self::search_reaching(nodes, self.root, wanted, accept)
    }

    /// CPUs (folded) that some thread of the tree may use.
    pub(crate) fn reach(&self, nodes: &Nodes) -> u64 {
        nodes.reach.get(self.root as usize).map_or(0, Reach::below)
    }

    /// All seats in order, for observers.
    pub(crate) fn in_order(&self, nodes: &Nodes, visit: &mut impl FnMut(u32)) {
        nodes.entries.in_order(self.root, visit);
    }

    fn search_reaching(nodes: &Nodes, at: u32, wanted: u64, accept: &impl Fn(u32) -> bool) -> Option<u32> {
        let (node, reach) = (nodes.entries.get(at)?, &nodes.reach[at as usize]);
        let search = |side: usize| {
            (reach.part[side] & wanted != 0)
                .then(|| Self::search_reaching(nodes, node.child[side], wanted, accept))
                .flatten()
        };
        // Folding is exact up to 64 CPUs; beyond that `accept` refuses what only looked right, and the search goes on.
        search(LEFT)
            .or_else(|| (reach.own & wanted != 0 && accept(at)).then_some(at))
            .or_else(|| search(RIGHT))
    }

    #[inline]
    fn attach(&mut self, nodes: &mut Nodes, parent: u32, side: usize, seat: u32) {
        match nodes.entries.get_mut(parent) {
            Some(above) => above.child[side] = seat,
            None => self.root = seat,
        }
        if let Some(node) = nodes.entries.get_mut(seat) {
            node.parent = parent;
        }
    }

    /// Divides the part rooted at `at` into what comes before and after `seat`, and hangs both under it.
    fn split_under(&mut self, nodes: &mut Nodes, mut at: u32, seat: u32, key: &Key) {
        let mut tail = [seat; 2];
        while let Some(node) = nodes.entries.get_mut(at) {
            let (hook, inner) = if key.is_before(&node.key()) { (RIGHT, LEFT) } else { (LEFT, RIGHT) };
            let above = tail[hook];
            node.parent = above;
            let next = node.child[inner];
            // Directly under the new node a part hangs on its own side, further down on the inner one.
            let place = if above == seat { hook } else { inner };
            nodes.entries[above].child[place] = at;
            tail[hook] = at;
            at = next;
        }
        for (hook, inner) in [(LEFT, RIGHT), (RIGHT, LEFT)] {
            if tail[hook] != seat {
                nodes.entries[tail[hook]].child[inner] = NIL;
                self.refresh_to(nodes, tail[hook], inner, seat);
            }
        }
    }

    /// Recomputes summaries from `bottom`, whose part on `side` has changed, up to and including `top`.
    fn refresh_to(&self, nodes: &mut Nodes, bottom: u32, side: usize, top: u32) {
        let (mut at, mut side) = (bottom, side);
        loop {
            self.refresh(nodes, at, side);
            if at == top {
                return;
            }
            let parent = nodes.entries[at].parent;
            side = nodes.entries.side_of(parent, at);
            at = parent;
        }
    }

    fn refresh(&self, nodes: &mut Nodes, at: u32, side: usize) {
        let node = &nodes.entries[at];
        let part = nodes.entries.get(node.child[side]);
        let earliest = part.map_or(node.start, earliest_below);
        if MASKED {
            let reach = part.map_or(0, |_| nodes.reach[node.child[side] as usize].below());
            nodes.reach[at as usize].part[side] = reach;
        }
        nodes.entries[at].earliest[side] = earliest;
    }

    /// Merges two parts and hangs the result at the given place. All of `left` precedes all of `right`.
    fn join(&mut self, nodes: &mut Nodes, left: u32, right: u32, parent: u32, side: usize) -> u32 {
        let (mut part, mut parent, mut side) = ([left, right], parent, side);
        let mut top = NIL;
        loop {
            let [l, r] = part.map(|seat| nodes.entries.get(seat).map(|node| node.priority));
            let winner = if l >= r { LEFT } else { RIGHT };
            self.attach(nodes, parent, side, part[winner]);
            if top == NIL {
                top = part[winner];
            }
            if l.is_none() || r.is_none() {
                return top;
            }
            // The loser goes somewhere below the winner, on the winner's inner side.
            let (inner, loser) = (1 - winner, part[1 - winner]);
            let earliest = earliest_below(&nodes.entries[loser]);
            if MASKED {
                let reach = nodes.reach[loser as usize].below();
                nodes.reach[part[winner] as usize].part[inner] |= reach;
            }
            let node = &mut nodes.entries[part[winner]];
            let kept = node.child[inner];
            node.earliest[inner] =
                if kept == NIL { earliest } else { node.earliest[inner].earlier(earliest) };
            parent = part[winner];
            side = inner;
            part[winner] = kept;
        }
    }

    /// Carries a changed summary from `child` upwards, as far as it matters.
    #[inline]
    fn refresh_upwards(&self, nodes: &mut Nodes, child: u32, parent: u32, side: usize) {
        let (mut at, mut side) = (parent, side);
        let mut earliest = nodes.entries.get(child).map(earliest_below);
        let mut reach = if MASKED { nodes.reach.get(child as usize).map_or(0, Reach::below) } else { 0 };
        while let Some(node) = nodes.entries.get_mut(at) {
            let new = earliest.unwrap_or(node.start);
            let unchanged = node.earliest[side] == new;
            node.earliest[side] = new;
            if MASKED {
                let summary = &mut nodes.reach[at as usize];
                if unchanged && summary.part[side] == reach {
                    return;
                }
                summary.part[side] = reach;
                reach = summary.below();
            } else if unchanged {
                return;
            }
            earliest = Some(earliest_below(node));
            let above = node.parent;
            side = nodes.entries.side_of(above, at);
            at = above;
        }
    }

    /// Checks everything the header promises, the slow and obvious way; how many nodes there are.
    pub(crate) fn verify(&self, nodes: &Nodes) -> Result<usize, &'static str> {
        let seats = nodes.entries.verify(self.root)?;
        for &seat in &seats {
            for side in [LEFT, RIGHT] {
                Self::verify_part(nodes, seat, side)?;
            }
        }
        Ok(seats.len())
    }

    fn verify_part(nodes: &Nodes, seat: u32, side: usize) -> Result<(), &'static str> {
        let node = &nodes.entries[seat];
        let mut below = Vec::new();
        nodes.entries.in_order(node.child[side], &mut |s| below.push(s));
        let earliest = below.iter().map(|s| nodes.entries[*s].start).reduce(VirtualTime::earlier);
        if node.earliest[side] != earliest.unwrap_or(node.start) {
            return Err("earliest start not summarised");
        }
        let reach = below.iter().fold(0, |sum, s| sum | nodes.reach[*s as usize].own);
        if MASKED && nodes.reach[seat as usize].part[side] != reach {
            return Err("reach not summarised");
        }
        Ok(())
    }
}
