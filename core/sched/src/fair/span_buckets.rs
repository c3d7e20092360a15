//! Span buckets: threads whose requests are equally long on the virtual scale, each bucket in order.
//!
//! Deadline minus start is a request's *span*. Among threads of one span the order of deadlines is the order of
//! starts, so the first thread of a bucket is also the first that may start: nothing behind it need be looked at. The
//! next thread to run is then the best of the buckets' heads. Most systems have few weights and request lengths, so a
//! few buckets hold nearly all threads; a thread that finds no bucket goes to the tree, which takes any mixture.
//!
//! The heads stand in order too, in one small array: the first of them whose start has come is the answer, and when
//! a head changes it seldom moves far.
//!
//! A bucket is a treap without summaries and with a finger at either end. A thread that has used its request up comes
//! back behind all others of its bucket, and one that was interrupted in front of them, so nearly every insertion and
//! removal is at an end: O(1) expected, whatever the number of threads. In the middle it is O(log n) expected.
//! Priorities are drawn by the caller from a generator that no thread can observe.
//!
//! Conserved: all threads of a bucket have its span; in-order traversal is sorted; `tail` is its last; a parent's
//! priority is at least its children's; `heads` has the first thread of exactly the buckets that have any, in order.
//! An empty bucket keeps its span until another span needs a bucket.

use super::entry::{Entries, Entry, Key, LEFT, NIL, QueuedIn, RIGHT};
use crate::virtual_time::VirtualTime;
use alloc::vec::Vec;

/// How many spans can have a bucket at a time.
pub(crate) const SPAN_BUCKETS: usize = 32;

const _: () = assert!(SPAN_BUCKETS.is_power_of_two() && SPAN_BUCKETS <= 1 << u8::BITS);

// In this order, what every choice needs comes first.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct SpanBuckets {
    /// How many of `heads` there are.
    occupied: usize,
    heads: [Head; SPAN_BUCKETS],
    buckets: [SpanBucket; SPAN_BUCKETS],
}

/// The first thread of a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Head {
    deadline: VirtualTime,
    start: VirtualTime,
    seat: u32,
    bucket: u8,
}

impl Head {
    const NONE: Self = Self { deadline: VirtualTime::ZERO, start: VirtualTime::ZERO, seat: NIL, bucket: 0 };

    #[inline]
    fn of(entries: &Entries, seat: u32) -> Self {
        let Entry { deadline, start, bucket, .. } = entries[seat];
        Self { deadline, start, seat, bucket }
    }

    /// Whether it stands before the head of another bucket. Equal tags would be equal spans, hence one bucket.
    #[inline]
    fn is_before(&self, other: &Self) -> bool {
        let sooner = self.deadline.since(other.deadline);
        sooner < 0 || (sooner == 0 && other.start.is_before(self.start))
    }
}

impl SpanBuckets {
    pub(crate) const fn new() -> Self {
        Self { buckets: [SpanBucket::EMPTY; SPAN_BUCKETS], heads: [Head::NONE; SPAN_BUCKETS], occupied: 0 }
    }

    /// Adds `seat`, which has its tags but is not queued, to the bucket of its span; whether there is one.
    #[inline(always)]
    pub(crate) fn insert(&mut self, entries: &mut Entries, seat: u32, priority: u32) -> bool {
        let entry = &mut entries[seat];
        let key = entry.key();
        let span = key.deadline.since(key.start) as u64;
        if self.buckets[usize::from(entry.bucket) % SPAN_BUCKETS].span != span {
            let Some(found) = self.find(span) else { return false };
            entry.bucket = found;
        }
        entry.place = QueuedIn::SpanBucket;
        entry.priority = priority;
        let bucket = &mut self.buckets[usize::from(entry.bucket) % SPAN_BUCKETS];
        match entries.get(bucket.tail) {
            Some(tail) if tail.is_before_in_bucket(&key) => bucket.push_back(entries, seat, priority),
            _ => self.insert_before_tail(entries, seat, priority),
        }
        true
    }

    /// Takes `seat` out of its bucket, wherever it stands.
    #[inline(never)]
    pub(crate) fn remove(&mut self, entries: &mut Entries, seat: u32) {
        match self.heads().iter().position(|head| head.seat == seat) {
            Some(at) => self.remove_head(entries, at),
            None => {
                self.buckets[usize::from(entries[seat].bucket) % SPAN_BUCKETS].remove_inside(entries, seat);
            }
        }
    }

    /// Takes out the first thread in order whose start is not after `reached`; also when that was.
    #[inline(always)]
    pub(crate) fn take_first_started(
        &mut self,
        entries: &mut Entries,
        reached: VirtualTime,
    ) -> Option<(u32, VirtualTime)> {
        let at = self.heads().iter().position(|head| !reached.is_before(head.start))?;
        let Head { seat, start, .. } = self.heads[at];
        self.remove_head(entries, at);
        Some((seat, start))
    }

    /// Takes out the first thread in order; also when it may start.
    #[inline(always)]
    pub(crate) fn take_first(&mut self, entries: &mut Entries) -> Option<(u32, VirtualTime)> {
        let Head { seat, start, .. } = *self.heads().first()?;
        self.remove_head(entries, 0);
        Some((seat, start))
    }

    #[inline(always)]
    fn remove_head(&mut self, entries: &mut Entries, at: usize) {
        let heads = &mut self.heads[..self.occupied];
        let Head { seat, bucket, .. } = heads[at];
        let next = self.buckets[usize::from(bucket) % SPAN_BUCKETS].remove_head(entries, seat);
        match entries.get(next) {
            Some(entry) => {
                sift_back(
                    heads,
                    at,
                    Head { deadline: entry.deadline, start: entry.start, seat: next, bucket },
                );
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

    /// The bucket for `span`, or else an empty one, which gets that span.
    #[cold]
    fn find(&mut self, span: u64) -> Option<u8> {
        let found = match self.buckets.iter().position(|bucket| bucket.span == span) {
            None if self.occupied == SPAN_BUCKETS => return None,
            None => self.buckets.iter().position(|bucket| bucket.root == NIL)?,
            Some(known) => known,
        };
        self.buckets[found].span = span;
        Some(found as u8)
    }

    #[inline(never)]
    fn insert_before_tail(&mut self, entries: &mut Entries, seat: u32, priority: u32) {
        let (head, key) = (Head::of(entries, seat), entries[seat].key());
        let bucket = &mut self.buckets[usize::from(head.bucket) % SPAN_BUCKETS];
        if bucket.root == NIL {
            bucket.push_back(entries, seat, priority);
            self.occupied += 1;
            sift_front(&mut self.heads[..self.occupied], head);
            return;
        }
        let Some(at) = self.heads[..self.occupied].iter().position(|other| other.bucket == head.bucket)
        else {
            unreachable!("a bucket with threads has a head")
        };
        let first = self.heads[at].seat;
        if entries[first].is_before_in_bucket(&key) {
            bucket.insert_inside(entries, seat, &key);
        } else {
            bucket.push_beyond::<LEFT>(entries, first, seat, priority);
            sift_front(&mut self.heads[..=at], head);
        }
    }

    /// The bucket whose head is `at` has become empty.
    #[inline(never)]
    fn close(&mut self, at: usize) {
        self.heads.copy_within(at + 1..self.occupied, at);
        self.occupied -= 1;
    }

    /// All seats, bucket by bucket, for observers.
    pub(crate) fn visit(&self, entries: &Entries, visit: &mut impl FnMut(u32)) {
        for bucket in &self.buckets {
            entries.in_order(bucket.root, visit);
        }
    }

    /// Checks everything the header promises, the slow and obvious way; how many threads there are.
    pub(crate) fn verify(&self, entries: &Entries) -> Result<usize, &'static str> {
        let mut count = 0;
        let mut heads = Vec::new();
        for (index, bucket) in self.buckets.iter().enumerate() {
            let seats = entries.verify(bucket.root)?;
            let belongs = |entry: &Entry| {
                entry.place == QueuedIn::SpanBucket
                    && usize::from(entry.bucket) == index
                    && entry.start.plus(bucket.span) == entry.deadline
            };
            if !seats.iter().all(|seat| belongs(&entries[*seat])) {
                return Err("thread in a bucket that is not its own");
            }
            if bucket.tail != seats.last().copied().unwrap_or(NIL) {
                return Err("bucket has lost its tail");
            }
            heads.extend(seats.first().map(|seat| Head::of(entries, *seat)));
            count += seats.len();
        }
        heads.sort_by_key(|head| self.heads().iter().position(|known| known == head));
        if heads != self.heads() {
            return Err("bucket has lost its head");
        }
        if heads.windows(2).any(|pair| !pair[0].is_before(&pair[1])) {
            return Err("buckets out of order");
        }
        Ok(count)
    }
}

/// Puts `head` where it belongs among those from `at` on, in place of the one there.
#[inline(always)]
fn sift_back(heads: &mut [Head], mut at: usize, head: Head) {
    while at + 1 < heads.len() && heads[at + 1].is_before(&head) {
        heads[at] = heads[at + 1];
        at += 1;
    }
    heads[at] = head;
}

/// Puts `head` where it belongs among `heads`, in place of the last one.
fn sift_front(heads: &mut [Head], head: Head) {
    let mut at = heads.len() - 1;
    while at > 0 && head.is_before(&heads[at - 1]) {
        heads[at] = heads[at - 1];
        at -= 1;
    }
    heads[at] = head;
}

#[derive(Clone, Debug)]
struct SpanBucket {
    /// Deadline minus start. Zero before the first use, which no request has.
    span: u64,
    root: u32,
    tail: u32,
}

impl SpanBucket {
    const EMPTY: Self = Self { span: 0, root: NIL, tail: NIL };

    /// Adds `seat` behind all others.
    #[inline(always)]
    fn push_back(&mut self, entries: &mut Entries, seat: u32, priority: u32) {
        let last = core::mem::replace(&mut self.tail, seat);
        self.push_beyond::<RIGHT>(entries, last, seat, priority);
    }

    /// Adds `seat` beyond `end`, the outermost entry on `SIDE`: it goes under the first entry from there upwards that
    /// outranks it, and what was there goes under it.
    #[inline(always)]
    fn push_beyond<const SIDE: usize>(&mut self, entries: &mut Entries, end: u32, seat: u32, priority: u32) {
        let (mut below, mut above) = (NIL, end);
        while let Some(entry) = entries.get(above)
            && entry.priority < priority
        {
            (below, above) = (above, entry.parent);
        }
        match entries.get_mut(above) {
            Some(entry) => entry.child[SIDE] = seat,
            None => self.root = seat,
        }
        if let Some(entry) = entries.get_mut(below) {
            entry.parent = seat;
        }
        let entry = &mut entries[seat];
        entry.parent = above;
        entry.child[SIDE] = NIL;
        entry.child[1 - SIDE] = below;
    }

    /// Adds `seat` as a leaf and turns it up until its parent outranks it.
    fn insert_inside(&mut self, entries: &mut Entries, seat: u32, key: &Key) {
        let (mut parent, mut side, mut at) = (NIL, LEFT, self.root);
        while let Some(entry) = entries.get(at) {
            side = if entry.is_before_in_bucket(key) { RIGHT } else { LEFT };
            (parent, at) = (at, entry.child[side]);
        }
        entries[seat].child = [NIL; 2];
        self.attach(entries, parent, side, seat);
        while entries.get(entries[seat].parent).is_some_and(|above| above.priority < entries[seat].priority) {
            self.turn_up(entries, seat);
        }
    }

    /// Takes out `seat`, the first; returns the new first. Nothing is before it, so what is after it takes its place.
    #[inline(always)]
    fn remove_head(&mut self, entries: &mut Entries, seat: u32) -> u32 {
        let entry = &mut entries[seat];
        entry.place = QueuedIn::Out;
        let (parent, after) = (entry.parent, entry.child[RIGHT]);
        match entries.get_mut(parent) {
            Some(above) => above.child[LEFT] = after,
            None => self.root = after,
        }
        let next = match entries.get_mut(after) {
            Some(entry) => {
                entry.parent = parent;
                entries.outermost(after, LEFT)
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
    fn remove_inside(&mut self, entries: &mut Entries, seat: u32) {
        if seat == self.tail {
            self.tail = entries.neighbour(seat, LEFT);
        }
        while let [left, right] = entries[seat].child
            && left != NIL
            && right != NIL
        {
            let heir = if entries[left].priority < entries[right].priority { right } else { left };
            self.turn_up(entries, heir);
        }
        let Entry { parent, child: [left, right], .. } = entries[seat];
        self.attach(entries, parent, entries.side_of(parent, seat), if left == NIL { right } else { left });
    }

    /// Exchanges `seat` with its parent; the order stays.
    fn turn_up(&mut self, entries: &mut Entries, seat: u32) {
        let parent = entries[seat].parent;
        let side = entries.side_of(parent, seat);
        let above = entries[parent].parent;
        let above_side = entries.side_of(above, parent);
        let inner = entries[seat].child[1 - side];
        entries[parent].child[side] = inner;
        if let Some(entry) = entries.get_mut(inner) {
            entry.parent = parent;
        }
        entries[seat].child[1 - side] = parent;
        entries[parent].parent = seat;
        self.attach(entries, above, above_side, seat);
    }

    /// Hangs `seat`, which may be none, under `parent`, or makes it the root.
    fn attach(&mut self, entries: &mut Entries, parent: u32, side: usize, seat: u32) {
        match entries.get_mut(parent) {
            Some(above) => above.child[side] = seat,
            None => self.root = seat,
        }
        if let Some(entry) = entries.get_mut(seat) {
            entry.parent = parent;
        }
    }
}
