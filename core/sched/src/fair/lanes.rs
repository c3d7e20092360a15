//! Lanes: threads whose requests are equally long on the virtual scale, each lane in order.
//!
//! Deadline minus start is a request's *span*. Among threads of one span the order of deadlines is the order of
//! starts, so the first thread of a lane is also the first that may start: nothing behind it need be looked at. The
//! next thread to run is then the best of the lanes' heads. Most systems have few weights and request lengths, so a
//! few lanes hold nearly everybody; who finds no lane goes to the tree, which takes any mixture.
//!
//! The heads stand in order too, in one small array: the first of them whose start has come is the answer, and when
//! a head changes it seldom moves far.
//!
//! A lane is a treap without summaries and with a finger at either end. A thread that has used its request up comes
//! back behind all others of its lane, and one that was interrupted in front of them, so nearly every insertion and
//! removal is at an end: O(1) expected, whatever the number of threads. In the middle it is O(log n) expected.
//! Priorities are drawn by the caller from a generator that no thread can observe.
//!
//! Conserved: all threads of a lane have its span; in-order traversal is sorted; `tail` is its last; a parent's
//! priority is at least its children's; `heads` has the first thread of exactly the lanes that have any, in order.
//! An empty lane keeps its span until another span needs a lane.

use super::row::{Key, LEFT, NIL, Place, RIGHT, Row, Rows};
use crate::virtual_time::VirtualTime;
use alloc::vec::Vec;

/// How many spans can have a lane at a time.
pub(crate) const LANES: usize = 32;

const _: () = assert!(LANES.is_power_of_two() && LANES <= 1 << u8::BITS);

// In this order, what every choice needs comes first.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Lanes {
    /// How many of `heads` there are.
    occupied: usize,
    heads: [Head; LANES],
    lanes: [Lane; LANES],
}

/// The first thread of a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Head {
    deadline: VirtualTime,
    start: VirtualTime,
    seat: u32,
    lane: u8,
}

impl Head {
    const NONE: Self = Self { deadline: VirtualTime::ZERO, start: VirtualTime::ZERO, seat: NIL, lane: 0 };

    #[inline]
    fn of(rows: &Rows, seat: u32) -> Self {
        let Row { deadline, start, lane, .. } = rows[seat];
        Self { deadline, start, seat, lane }
    }

    /// Whether it stands before the head of another lane. Equal tags would be equal spans, hence one lane.
    #[inline]
    fn is_before(&self, other: &Self) -> bool {
        let sooner = self.deadline.since(other.deadline);
        sooner < 0 || (sooner == 0 && other.start.is_before(self.start))
    }
}

impl Lanes {
    pub(crate) const fn new() -> Self {
        Self { lanes: [Lane::EMPTY; LANES], heads: [Head::NONE; LANES], occupied: 0 }
    }

    /// Adds `seat`, which has its tags but is not queued, to the lane of its span; whether there is one.
    #[inline(always)]
    pub(crate) fn insert(&mut self, rows: &mut Rows, seat: u32, priority: u32) -> bool {
        let row = &mut rows[seat];
        let key = row.key();
        let span = key.deadline.since(key.start) as u64;
        if self.lanes[usize::from(row.lane) % LANES].span != span {
            let Some(found) = self.find(span) else { return false };
            row.lane = found;
        }
        row.place = Place::Lane;
        row.priority = priority;
        let lane = &mut self.lanes[usize::from(row.lane) % LANES];
        match rows.get(lane.tail) {
            Some(tail) if tail.is_before_in_lane(&key) => lane.push_back(rows, seat, priority),
            _ => self.insert_before_tail(rows, seat, priority),
        }
        true
    }

    /// Takes `seat` out of its lane, wherever it stands.
    #[inline(never)]
    pub(crate) fn remove(&mut self, rows: &mut Rows, seat: u32) {
        match self.heads().iter().position(|head| head.seat == seat) {
            Some(at) => self.remove_head(rows, at),
            None => self.lanes[usize::from(rows[seat].lane) % LANES].remove_inside(rows, seat),
        }
    }

    /// Takes out the first thread in order whose start is not after `reached`; also when that was.
    #[inline(always)]
    pub(crate) fn take_first_started(
        &mut self,
        rows: &mut Rows,
        reached: VirtualTime,
    ) -> Option<(u32, VirtualTime)> {
        let at = self.heads().iter().position(|head| !reached.is_before(head.start))?;
        let Head { seat, start, .. } = self.heads[at];
        self.remove_head(rows, at);
        Some((seat, start))
    }

    /// Takes out the first thread in order; also when it may start.
    #[inline(always)]
    pub(crate) fn take_first(&mut self, rows: &mut Rows) -> Option<(u32, VirtualTime)> {
        let Head { seat, start, .. } = *self.heads().first()?;
        self.remove_head(rows, 0);
        Some((seat, start))
    }

    #[inline(always)]
    fn remove_head(&mut self, rows: &mut Rows, at: usize) {
        let heads = &mut self.heads[..self.occupied];
        let Head { seat, lane, .. } = heads[at];
        let next = self.lanes[usize::from(lane) % LANES].remove_head(rows, seat);
        match rows.get(next) {
            Some(row) => {
                settle_back(heads, at, Head { deadline: row.deadline, start: row.start, seat: next, lane });
            }
            None => self.close(at),
        }
    }

    /// The first thread in order whose start is not after `reached`.
    #[inline(always)]
    pub(crate) fn first_started(&self, reached: VirtualTime) -> Option<u32> {
        self.heads().iter().find(|head| !reached.is_before(head.start)).map(|head| head.seat)
    }

    /// The first thread in order.
    #[inline]
    pub(crate) fn first(&self) -> Option<u32> {
        self.heads().first().map(|head| head.seat)
    }

    /// The earliest start of all.
    pub(crate) fn earliest_start(&self) -> Option<VirtualTime> {
        self.heads().iter().map(|head| head.start).reduce(VirtualTime::earlier)
    }

    #[inline]
    fn heads(&self) -> &[Head] {
        &self.heads[..self.occupied]
    }

    /// The lane for `span`, or else an empty one, which gets that span.
    #[cold]
    fn find(&mut self, span: u64) -> Option<u8> {
        let found = match self.lanes.iter().position(|lane| lane.span == span) {
            None if self.occupied == LANES => return None,
            None => self.lanes.iter().position(|lane| lane.root == NIL)?,
            Some(known) => known,
        };
        self.lanes[found].span = span;
        Some(found as u8)
    }

    #[inline(never)]
    fn insert_before_tail(&mut self, rows: &mut Rows, seat: u32, priority: u32) {
        let (head, key) = (Head::of(rows, seat), rows[seat].key());
        let lane = &mut self.lanes[usize::from(head.lane) % LANES];
        if lane.root == NIL {
            lane.push_back(rows, seat, priority);
            self.occupied += 1;
            settle_front(&mut self.heads[..self.occupied], head);
            return;
        }
        let Some(at) = self.heads[..self.occupied].iter().position(|other| other.lane == head.lane) else {
            unreachable!("a lane with threads has a head")
        };
        let first = self.heads[at].seat;
        if rows[first].is_before_in_lane(&key) {
            lane.insert_inside(rows, seat, &key);
        } else {
            lane.push_beyond::<LEFT>(rows, first, seat, priority);
            settle_front(&mut self.heads[..=at], head);
        }
    }

    /// The lane whose head is `at` has become empty.
    #[inline(never)]
    fn close(&mut self, at: usize) {
        self.heads.copy_within(at + 1..self.occupied, at);
        self.occupied -= 1;
    }

    /// All seats, lane by lane, for those who look on.
    pub(crate) fn visit(&self, rows: &Rows, visit: &mut impl FnMut(u32)) {
        for lane in &self.lanes {
            rows.in_order(lane.root, visit);
        }
    }

    /// Checks everything the header promises, the slow and obvious way; how many threads there are.
    pub(crate) fn verify(&self, rows: &Rows) -> Result<usize, &'static str> {
        let mut count = 0;
        let mut heads = Vec::new();
        for (index, lane) in self.lanes.iter().enumerate() {
            let seats = rows.verify(lane.root)?;
            let belongs = |row: &Row| {
                row.place == Place::Lane
                    && usize::from(row.lane) == index
                    && row.start.plus(lane.span) == row.deadline
            };
            if !seats.iter().all(|seat| belongs(&rows[*seat])) {
                return Err("thread in a lane that is not its own");
            }
            if lane.tail != seats.last().copied().unwrap_or(NIL) {
                return Err("lane has lost its tail");
            }
            heads.extend(seats.first().map(|seat| Head::of(rows, *seat)));
            count += seats.len();
        }
        heads.sort_by_key(|head| self.heads().iter().position(|known| known == head));
        if heads != self.heads() {
            return Err("lane has lost its head");
        }
        if heads.windows(2).any(|pair| !pair[0].is_before(&pair[1])) {
            return Err("lanes out of order");
        }
        Ok(count)
    }
}

/// Puts `head` where it belongs among those from `at` on, in place of the one there.
#[inline(always)]
fn settle_back(heads: &mut [Head], mut at: usize, head: Head) {
    while at + 1 < heads.len() && heads[at + 1].is_before(&head) {
        heads[at] = heads[at + 1];
        at += 1;
    }
    heads[at] = head;
}

/// Puts `head` where it belongs among `heads`, in place of the last one.
fn settle_front(heads: &mut [Head], head: Head) {
    let mut at = heads.len() - 1;
    while at > 0 && head.is_before(&heads[at - 1]) {
        heads[at] = heads[at - 1];
        at -= 1;
    }
    heads[at] = head;
}

#[derive(Clone, Debug)]
struct Lane {
    /// Deadline minus start. Zero before the first use, which no request has.
    span: u64,
    root: u32,
    tail: u32,
}

impl Lane {
    const EMPTY: Self = Self { span: 0, root: NIL, tail: NIL };

    /// Adds `seat` behind all others.
    #[inline(always)]
    fn push_back(&mut self, rows: &mut Rows, seat: u32, priority: u32) {
        let last = core::mem::replace(&mut self.tail, seat);
        self.push_beyond::<RIGHT>(rows, last, seat, priority);
    }

    /// Adds `seat` beyond `end`, the outermost row on `SIDE`: it goes under the first row from there upwards that
    /// outranks it, and what was there goes under it.
    #[inline(always)]
    fn push_beyond<const SIDE: usize>(&mut self, rows: &mut Rows, end: u32, seat: u32, priority: u32) {
        let (mut below, mut above) = (NIL, end);
        while let Some(row) = rows.get(above)
            && row.priority < priority
        {
            (below, above) = (above, row.parent);
        }
        match rows.get_mut(above) {
            Some(row) => row.child[SIDE] = seat,
            None => self.root = seat,
        }
        if let Some(row) = rows.get_mut(below) {
            row.parent = seat;
        }
        let row = &mut rows[seat];
        row.parent = above;
        row.child[SIDE] = NIL;
        row.child[1 - SIDE] = below;
    }

    /// Adds `seat` as a leaf and turns it up until its parent outranks it.
    fn insert_inside(&mut self, rows: &mut Rows, seat: u32, key: &Key) {
        let (mut parent, mut side, mut at) = (NIL, LEFT, self.root);
        while let Some(row) = rows.get(at) {
            side = if row.is_before_in_lane(key) { RIGHT } else { LEFT };
            (parent, at) = (at, row.child[side]);
        }
        rows[seat].child = [NIL; 2];
        self.attach(rows, parent, side, seat);
        while rows.get(rows[seat].parent).is_some_and(|above| above.priority < rows[seat].priority) {
            self.turn_up(rows, seat);
        }
    }

    /// Takes out `seat`, the first; who is the first then. Nothing is before it, so what is after it takes its place.
    #[inline(always)]
    fn remove_head(&mut self, rows: &mut Rows, seat: u32) -> u32 {
        let row = &mut rows[seat];
        row.place = Place::Out;
        let (parent, after) = (row.parent, row.child[RIGHT]);
        match rows.get_mut(parent) {
            Some(above) => above.child[LEFT] = after,
            None => self.root = after,
        }
        let next = match rows.get_mut(after) {
            Some(row) => {
                row.parent = parent;
                rows.outermost(after, LEFT)
            }
            None => parent,
        };
        if next == NIL {
            self.tail = NIL;
        }
        next
    }

    /// Takes out `seat`, which is not the first: turns it down until it has one child at most.
    #[inline(never)]
    fn remove_inside(&mut self, rows: &mut Rows, seat: u32) {
        if seat == self.tail {
            self.tail = rows.neighbour(seat, LEFT);
        }
        while let [left, right] = rows[seat].child
            && left != NIL
            && right != NIL
        {
            let heir = if rows[left].priority < rows[right].priority { right } else { left };
            self.turn_up(rows, heir);
        }
        let Row { parent, child: [left, right], .. } = rows[seat];
        self.attach(rows, parent, rows.side_of(parent, seat), if left == NIL { right } else { left });
    }

    /// Exchanges `seat` with its parent; the order stays.
    fn turn_up(&mut self, rows: &mut Rows, seat: u32) {
        let parent = rows[seat].parent;
        let side = rows.side_of(parent, seat);
        let above = rows[parent].parent;
        let above_side = rows.side_of(above, parent);
        let inner = rows[seat].child[1 - side];
        rows[parent].child[side] = inner;
        if let Some(row) = rows.get_mut(inner) {
            row.parent = parent;
        }
        rows[seat].child[1 - side] = parent;
        rows[parent].parent = seat;
        self.attach(rows, above, above_side, seat);
    }

    /// Hangs `seat`, which may be none, under `parent`, or makes it the root.
    fn attach(&mut self, rows: &mut Rows, parent: u32, side: usize, seat: u32) {
        match rows.get_mut(parent) {
            Some(above) => above.child[side] = seat,
            None => self.root = seat,
        }
        if let Some(row) = rows.get_mut(seat) {
            row.parent = parent;
        }
    }
}
