//! A treap of queued threads, ordered by virtual deadline, that finds the first *eligible* one in O(log n).
//!
//! Order is total: earlier deadline, then later start, then lower thread index. Each node also knows the earliest
//! start in its left and in its right part, so the search for the first node whose start has come never backs up.
//! Nodes live in one table per CPU, indexed by seat; a node is in at most one tree. Priorities are drawn at each
//! insertion from a generator that no thread can observe, so nobody can aim for a deep tree.
//!
//! Conserved: in-order traversal is sorted, a parent's priority is at least its children's, and `earliest` and
//! `reach` summarise exactly the part below. [`Tree::verify`] checks all of it, by other means.
//!
//! A missing part is summarised by the node's own start. That is neutral for a minimum, and the search may then
//! enter the left part whenever its summary is eligible: if there is none, the node itself is the answer.

use crate::virtual_time::VirtualTime;
use alloc::collections::TryReserveError;
use alloc::vec::Vec;

/// No node.
pub(crate) const NIL: u32 = u32::MAX;

const LEFT: usize = 0;
const RIGHT: usize = 1;

/// What orders a queued thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    pub deadline: VirtualTime,
    pub start: VirtualTime,
    pub thread_index: u32,
}

impl Key {
    #[inline]
    pub(crate) fn is_before(&self, other: &Self) -> bool {
        let sooner = self.deadline.since(other.deadline);
        if sooner != 0 {
            return sooner < 0;
        }
        let started = self.start.since(other.start);
        if started != 0 { started > 0 } else { self.thread_index < other.thread_index }
    }
}

/// One seat's node. A cache line of its own, so that a step down the tree costs one.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Node {
    key: Key,
    parent: u32,
    child: [u32; 2],
    priority: u32,
    /// Earliest start in each part; this node's own start where the part is missing.
    earliest: [VirtualTime; 2],
}

impl Node {
    #[inline]
    fn earliest_below(&self) -> VirtualTime {
        self.key.start.earlier(self.earliest[LEFT]).earlier(self.earliest[RIGHT])
    }
}

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

/// The nodes of all seats of one CPU; the trees share them.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    nodes: Vec<Node>,
    reach: Vec<Reach>,
}

impl Nodes {
    pub(crate) fn reserve(&mut self, seats: usize) -> Result<(), TryReserveError> {
        self.nodes.try_reserve_exact(seats.saturating_sub(self.nodes.len()))?;
        self.reach.try_reserve_exact(seats.saturating_sub(self.reach.len()))
    }

    /// Adds a detached node for the next seat.
    pub(crate) fn push(&mut self) {
        let at = VirtualTime(0);
        let key = Key { deadline: at, start: at, thread_index: 0 };
        self.nodes.push(Node { key, parent: NIL, child: [NIL; 2], priority: 0, earliest: [at; 2] });
        self.reach.push(Reach::default());
    }

    pub(crate) fn key(&self, seat: u32) -> &Key {
        &self.nodes[seat as usize].key
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

    pub(crate) fn is_empty(&self) -> bool {
        self.root == NIL
    }

    /// Adds the detached node `seat` under `key`.
    #[inline]
    pub(crate) fn insert(&mut self, nodes: &mut Nodes, seat: u32, key: Key, reach: u64, priority: u32) {
        let (mut parent, mut side, mut at) = (NIL, LEFT, self.root);
        while let Some(node) = nodes.nodes.get_mut(at as usize) {
            if node.priority < priority {
                break;
            }
            side = usize::from(!key.is_before(&node.key));
            if key.start.is_before(node.earliest[side]) {
                node.earliest[side] = key.start;
            }
            if MASKED {
                nodes.reach[at as usize].part[side] |= reach;
            }
            parent = at;
            at = node.child[side];
        }
        let node = &mut nodes.nodes[seat as usize];
        *node = Node { key, parent, child: [NIL; 2], priority, earliest: [key.start; 2] };
        if MASKED {
            nodes.reach[seat as usize] = Reach { own: reach, part: [0; 2] };
        }
        match nodes.nodes.get_mut(parent as usize) {
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
        let Node { child: [left, right], parent, .. } = nodes.nodes[seat as usize];
        let side = nodes.side_of(parent, seat);
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
        while let Some(node) = nodes.nodes.get(at as usize) {
            found = Some(at);
            at = node.child[LEFT];
        }
        found
    }

    /// The first node in order whose start is not after `clock`.
    #[inline]
    pub(crate) fn first_started(&self, nodes: &Nodes, clock: VirtualTime) -> Option<u32> {
        let mut at = self.root;
        while let Some(node) = nodes.nodes.get(at as usize) {
            if !clock.is_before(node.earliest[LEFT]) {
                if node.child[LEFT] == NIL {
                    return Some(at);
                }
                at = node.child[LEFT];
            } else if !clock.is_before(node.key.start) {
                return Some(at);
            } else {
                at = node.child[RIGHT];
            }
        }
        None
    }

    /// The earliest start of all.
    pub(crate) fn earliest_start(&self, nodes: &Nodes) -> Option<VirtualTime> {
        nodes.nodes.get(self.root as usize).map(Node::earliest_below)
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

    /// All seats in order, for those who look on.
    pub(crate) fn in_order(&self, nodes: &Nodes, visit: &mut impl FnMut(u32)) {
        let mut at = self.first(nodes);
        while let Some(seat) = at {
            visit(seat);
            at = nodes.successor(seat);
        }
    }

    fn search_reaching(nodes: &Nodes, at: u32, wanted: u64, accept: &impl Fn(u32) -> bool) -> Option<u32> {
        let (node, reach) = (nodes.nodes.get(at as usize)?, &nodes.reach[at as usize]);
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
        match nodes.nodes.get_mut(parent as usize) {
            Some(above) => above.child[side] = seat,
            None => self.root = seat,
        }
        if let Some(node) = nodes.nodes.get_mut(seat as usize) {
            node.parent = parent;
        }
    }

    /// Divides the part rooted at `at` into what comes before and after `seat`, and hangs both under it.
    fn split_under(&mut self, nodes: &mut Nodes, mut at: u32, seat: u32, key: &Key) {
        let mut tail = [seat; 2];
        while let Some(node) = nodes.nodes.get_mut(at as usize) {
            let (hook, inner) = if key.is_before(&node.key) { (RIGHT, LEFT) } else { (LEFT, RIGHT) };
            let above = tail[hook];
            node.parent = above;
            let next = node.child[inner];
            // Directly under the new node a part hangs on its own side, further down on the inner one.
            let place = if above == seat { hook } else { inner };
            nodes.nodes[above as usize].child[place] = at;
            tail[hook] = at;
            at = next;
        }
        for (hook, inner) in [(LEFT, RIGHT), (RIGHT, LEFT)] {
            if tail[hook] != seat {
                nodes.nodes[tail[hook] as usize].child[inner] = NIL;
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
            let parent = nodes.nodes[at as usize].parent;
            side = nodes.side_of(parent, at);
            at = parent;
        }
    }

    fn refresh(&self, nodes: &mut Nodes, at: u32, side: usize) {
        let node = &nodes.nodes[at as usize];
        let part = nodes.nodes.get(node.child[side] as usize);
        let earliest = part.map_or(node.key.start, Node::earliest_below);
        if MASKED {
            let reach = part.map_or(0, |_| nodes.reach[node.child[side] as usize].below());
            nodes.reach[at as usize].part[side] = reach;
        }
        nodes.nodes[at as usize].earliest[side] = earliest;
    }

    /// Merges two parts of which all of `left` precedes all of `right`, and hangs the result at the given place.
    fn join(&mut self, nodes: &mut Nodes, left: u32, right: u32, parent: u32, side: usize) -> u32 {
        let (mut part, mut parent, mut side) = ([left, right], parent, side);
        let mut top = NIL;
        loop {
            let [l, r] = part.map(|seat| nodes.nodes.get(seat as usize).map(|node| node.priority));
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
            let earliest = nodes.nodes[loser as usize].earliest_below();
            if MASKED {
                let reach = nodes.reach[loser as usize].below();
                nodes.reach[part[winner] as usize].part[inner] |= reach;
            }
            let node = &mut nodes.nodes[part[winner] as usize];
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
        let mut earliest = nodes.nodes.get(child as usize).map(Node::earliest_below);
        let mut reach = if MASKED { nodes.reach.get(child as usize).map_or(0, Reach::below) } else { 0 };
        while let Some(node) = nodes.nodes.get_mut(at as usize) {
            let new = earliest.unwrap_or(node.key.start);
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
            earliest = Some(node.earliest_below());
            let above = node.parent;
            side = nodes.side_of(above, at);
            at = above;
        }
    }

    /// Checks everything the header promises, the slow and obvious way; how many nodes there are.
    pub(crate) fn verify(&self, nodes: &Nodes) -> Result<usize, &'static str> {
        let mut seats = Vec::new();
        self.in_order(nodes, &mut |seat| seats.push(seat));
        if seats.windows(2).any(|pair| !nodes.key(pair[0]).is_before(nodes.key(pair[1]))) {
            return Err("queue out of order");
        }
        for &seat in &seats {
            for side in [LEFT, RIGHT] {
                Self::verify_part(nodes, seat, side)?;
            }
        }
        Ok(seats.len())
    }

    fn verify_part(nodes: &Nodes, seat: u32, side: usize) -> Result<(), &'static str> {
        let node = &nodes.nodes[seat as usize];
        let mut below = Vec::new();
        nodes.collect(node.child[side], &mut below);
        if below.iter().any(|s| nodes.nodes[*s as usize].priority > node.priority) {
            return Err("child outranks parent");
        }
        let earliest = below.iter().map(|s| nodes.key(*s).start).reduce(VirtualTime::earlier);
        if node.earliest[side] != earliest.unwrap_or(node.key.start) {
            return Err("earliest start not summarised");
        }
        let reach = below.iter().fold(0, |sum, s| sum | nodes.reach[*s as usize].own);
        if MASKED && nodes.reach[seat as usize].part[side] != reach {
            return Err("reach not summarised");
        }
        Ok(())
    }
}

impl Nodes {
    #[inline]
    fn side_of(&self, parent: u32, seat: u32) -> usize {
        self.nodes.get(parent as usize).map_or(LEFT, |above| usize::from(above.child[RIGHT] == seat))
    }

    fn successor(&self, seat: u32) -> Option<u32> {
        let mut at = self.nodes[seat as usize].child[RIGHT];
        if at != NIL {
            while self.nodes[at as usize].child[LEFT] != NIL {
                at = self.nodes[at as usize].child[LEFT];
            }
            return Some(at);
        }
        let (mut below, mut above) = (seat, self.nodes[seat as usize].parent);
        while above != NIL && self.nodes[above as usize].child[RIGHT] == below {
            (below, above) = (above, self.nodes[above as usize].parent);
        }
        (above != NIL).then_some(above)
    }

    fn collect(&self, at: u32, into: &mut Vec<u32>) {
        if let Some(node) = self.nodes.get(at as usize) {
            into.push(at);
            self.collect(node.child[LEFT], into);
            self.collect(node.child[RIGHT], into);
        }
    }
}
