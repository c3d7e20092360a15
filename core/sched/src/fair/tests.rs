//! The queue against a list that is searched from end to end.

extern crate std;

use super::*;
use crate::virtual_time::Lag;
use mainspring_abi::{CpuId, CpuSet};
use proptest::prelude::*;
use std::vec;

const SEATS: u32 = 80;

/// Close enough to the end of the scale for a run to go past it.
const NEAR_THE_WRAP: VirtualTime = VirtualTime(u64::MAX - (1 << 34));

#[derive(Clone, Debug)]
enum Op {
    Join {
        weight: u16,
        request: Nanos,
        used: Nanos,
        lag: i64,
        cpus: Option<Vec<usize>>,
    },
    /// Time passes, the next thread is taken, runs for a while and comes back.
    Run {
        wait: Nanos,
        ran: Nanos,
    },
    Leave(prop::sample::Index),
    Steal {
        thief: usize,
    },
}

/// What the list knows of a queued thread.
#[derive(Clone, Debug)]
struct Listed {
    seat: u32,
    tag: Tag,
    thread_index: u32,
    cpus: Option<CpuSet>,
}

impl Listed {
    fn is_before(&self, other: &Self) -> bool {
        let by_deadline = self.tag.deadline.since(other.tag.deadline);
        let by_start = other.tag.start.since(self.tag.start);
        (by_deadline, by_start, self.thread_index) < (0, 0, other.thread_index)
    }

    fn may_run_on(&self, cpu: CpuId) -> bool {
        self.cpus.as_ref().is_none_or(|cpus| cpus.contains(cpu))
    }
}

/// The queue under test and the list, side by side.
struct Pair {
    queue: FairQueue,
    list: Vec<Listed>,
    /// Request and allowed CPUs of each thread, queued or not.
    wishes: Vec<Option<(Nanos, Option<CpuSet>)>>,
    now: Nanos,
}

impl Pair {
    fn new(policy: Policy) -> Self {
        let mut queue = FairQueue::new(policy, 7);
        queue.reserve(SEATS as usize).expect("a few seats fit");
        queue.start_clock_at(NEAR_THE_WRAP);
        Self { queue, list: Vec::new(), wishes: vec![None; SEATS as usize], now: Nanos::ZERO }
    }

    /// Not in the order of seats, so that a tie broken by seat would show.
    fn thread_index(seat: u32) -> u32 {
        seat * 37 % SEATS
    }

    fn ask(&self, seat: u32, used: Nanos) -> Ask {
        let (request, cpus) = self.wishes[seat as usize].as_ref().expect("the thread is here");
        let reach = cpus.as_ref().map(CpuSet::folded);
        Ask { request: *request, used, thread_index: Self::thread_index(seat), reach }
    }

    fn note(&mut self, seat: u32) {
        let cpus = self.wishes[seat as usize].as_ref().and_then(|(_, cpus)| *cpus);
        let tag = self.queue.queued_tag(seat);
        self.list.push(Listed { seat, tag, thread_index: Self::thread_index(seat), cpus });
    }

    fn first_listed(&self, may: impl Fn(&Listed) -> bool) -> Option<u32> {
        let better = |best: &'_ Listed, other: &'_ Listed| other.is_before(best);
        let mut first: Option<&Listed> = None;
        for listed in self.list.iter().filter(|listed| may(listed)) {
            if first.is_none_or(|best| better(best, listed)) {
                first = Some(listed);
            }
        }
        first.map(|listed| listed.seat)
    }

    fn strike(&mut self, seat: u32) {
        self.list.retain(|listed| listed.seat != seat);
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Join { weight, request, used, lag, cpus } => {
                let Some(seat) = self.wishes.iter().position(Option::is_none) else { return };
                let cpus = cpus.as_ref().map(|cpus| {
                    cpus.iter().map(|cpu| CpuId::new(*cpu).expect("generated in range")).collect::<CpuSet>()
                });
                self.wishes[seat] = Some((*request, cpus));
                let seat = seat as u32;
                let weight = Weight::new(u64::from(*weight)).expect("generated in range");
                self.queue.join(seat, Lag::from_units(*lag), weight);
                let ask = self.ask(seat, Nanos::new(used.get() % request.get()));
                self.queue.enqueue(seat, &ask);
                self.note(seat);
            }
            Op::Run { wait, ran } => self.run(*wait, *ran),
            Op::Leave(which) => {
                if self.list.is_empty() {
                    return;
                }
                let seat = self.list[which.index(self.list.len())].seat;
                self.queue.dequeue(seat);
                self.leave(seat);
            }
            Op::Steal { thief } => self.steal(CpuId::new(*thief).expect("generated in range")),
        }
    }

    fn leave(&mut self, seat: u32) {
        let _ = self.queue.leave(seat, false);
        self.wishes[seat as usize] = None;
        self.strike(seat);
    }

    fn run(&mut self, wait: Nanos, ran: Nanos) {
        self.now += wait;
        self.queue.advance(self.now);
        let expected = self.next_listed();
        let taken = self.queue.take_next();
        assert_eq!((taken, self.queue.clock()), expected);
        let Some(seat) = taken else { return };
        self.strike(seat);
        self.now += ran;
        self.queue.advance(self.now);
        let moved = self.queue.charge(seat, ran);
        let request = self.ask(seat, Nanos::ZERO).request;
        let ask = self.ask(seat, Nanos::new(ran.get() % request.get()));
        if ask.reach.is_none() {
            self.exchange(seat, &ask, ran, moved);
        } else {
            self.queue.enqueue(seat, &ask);
            self.note(seat);
        }
    }

    /// `seat` is queued and the next is taken out, in one go; that one begins another request.
    fn exchange(&mut self, seat: u32, ask: &Ask, ran: Nanos, moved: u64) {
        let tag = self.queue.tag(seat, ask.request, ask.used, Nanos::ZERO);
        self.list.push(Listed { seat, tag, thread_index: Self::thread_index(seat), cpus: None });
        let (queued, expected) = (self.list.len() as u32, self.next_listed());
        let (counted, next) = self.queue.exchange(seat, ask, ran, moved);
        assert_eq!((counted, (next, self.queue.clock())), (queued, expected));
        assert_eq!(self.queue.queued_tag(seat), tag);
        let next = next.expect("somebody was queued");
        self.strike(next);
        self.queue.enqueue(next, &self.ask(next, Nanos::ZERO));
        self.note(next);
    }

    /// The thread that runs next, and what the clock shows then.
    fn next_listed(&self) -> (Option<u32>, VirtualTime) {
        let mut clock = self.queue.clock();
        let earliest = self.list.iter().map(|listed| listed.tag.start).reduce(VirtualTime::earlier);
        if let Some(earliest) = earliest.filter(|earliest| clock.plus(GRACE_UNITS).is_before(*earliest)) {
            clock = earliest;
        }
        let any = self.queue.policy == Policy::Wfq;
        let reached = clock.plus(GRACE_UNITS);
        (self.first_listed(|listed| any || !reached.is_before(listed.tag.start)), clock)
    }

    fn steal(&mut self, thief: CpuId) {
        let bit = 1 << (thief.index() % 64);
        let allows = |seat: u32| {
            self.wishes[seat as usize]
                .as_ref()
                .and_then(|(_, cpus)| cpus.as_ref())
                .is_some_and(|cpus| cpus.contains(thief))
        };
        let open = self.queue.first_open();
        let bound = self.queue.first_bound(bit, &allows);
        assert_eq!(open, self.first_listed(|listed| listed.cpus.is_none()));
        assert_eq!(bound, self.first_listed(|listed| listed.cpus.is_some() && listed.may_run_on(thief)));
        let reach = self
            .list
            .iter()
            .filter_map(|listed| listed.cpus.as_ref())
            .fold(0, |sum, cpus| sum | cpus.folded());
        assert_eq!(self.queue.bound_reach(), reach);
        if let Some(seat) = self.queue.sooner(open, bound) {
            assert_eq!(Some(seat), self.first_listed(|listed| listed.may_run_on(thief)));
            self.queue.dequeue(seat);
            self.leave(seat);
        }
    }

    fn compare(&self) {
        self.queue.verify().expect("the structure holds");
        let mut left = self.list.clone();
        for seat in self.queue.in_order() {
            let at =
                left.iter().position(|listed| listed.seat == seat).expect("only listed threads are queued");
            let listed = left.swap_remove(at);
            assert!(!left.iter().any(|other| other.is_before(&listed)), "seat {seat} is out of order");
        }
        assert!(left.is_empty(), "a listed thread is not queued");
    }
}

fn a_request() -> impl Strategy<Value = Nanos> {
    prop_oneof![
        Just(Nanos::from_millis(3)),
        Just(Nanos::new(750_000)),
        (1u64..12_000_000).prop_map(Nanos::new)
    ]
}

fn a_while() -> impl Strategy<Value = Nanos> {
    prop_oneof![
        Just(Nanos::ZERO),
        Just(Nanos::new(750_000)),
        Just(Nanos::from_millis(3)),
        (0u64..9_000_000).prop_map(Nanos::new)
    ]
}

/// Few weights make ties and long buckets; many fill the buckets and the tree.
fn a_weight() -> impl Strategy<Value = u16> {
    prop_oneof![4 => Just(64u16), 4 => prop::sample::select(vec![16u16, 128, 1024]), 3 => 1u16..=u16::MAX]
}

fn an_op() -> impl Strategy<Value = Op> {
    // Up to CPU 199, so that CPUs 64 apart fold onto one bit.
    let cpus = prop::option::weighted(0.2, prop::collection::vec(0usize..200, 1..4));
    let lag = prop_oneof![Just(0i64), -(3_000_000i64 << 20)..3_000_000 << 20];
    prop_oneof![
        4 => (a_weight(), a_request(), a_while(), lag, cpus)
            .prop_map(|(weight, request, used, lag, cpus)| Op::Join { weight, request, used, lag, cpus }),
        6 => (a_while(), a_while()).prop_map(|(wait, ran)| Op::Run { wait, ran }),
        1 => any::<prop::sample::Index>().prop_map(Op::Leave),
        1 => (0usize..200).prop_map(|thief| Op::Steal { thief }),
    ]
}

fn agree(policy: Policy, ops: &[Op]) {
    let mut pair = Pair::new(policy);
    for (step, op) in ops.iter().enumerate() {
        pair.apply(op);
        if step % 4 == 0 {
            pair.compare();
        }
    }
    // Many become few again, whatever they were.
    while let Some(Listed { seat, .. }) = pair.list.first() {
        let seat = *seat;
        pair.compare();
        pair.queue.dequeue(seat);
        pair.leave(seat);
    }
    pair.compare();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    //= EVO:S3.eevdf ARCH:inv.queue-order
    #[test]
    fn eevdf_takes_the_first_deadline_among_those_that_may_start(ops in prop::collection::vec(an_op(), 1..400)) {
        agree(Policy::Eevdf, &ops);
    }

    //= ARCH:queue.order ARCH:inv.queue-order
    #[test]
    fn wfq_takes_the_first_deadline_of_all(ops in prop::collection::vec(an_op(), 1..400)) {
        agree(Policy::Wfq, &ops);
    }
}

fn queue_of(weights: &[u64]) -> FairQueue {
    let mut queue = FairQueue::new(Policy::Eevdf, 1);
    queue.reserve(weights.len()).expect("a few seats fit");
    queue.start_clock_at(NEAR_THE_WRAP);
    for (seat, weight) in weights.iter().enumerate() {
        queue.join(seat as u32, Lag::ZERO, Weight::new(*weight).expect("test weights are valid"));
    }
    queue
}

fn ask(thread_index: u32, request: Nanos) -> Ask {
    Ask { request, used: Nanos::ZERO, thread_index, reach: None }
}

//= ARCH:vfinish.derive
#[test]
fn tags_come_from_what_the_thread_is_at_each_enqueue() {
    let mut queue = queue_of(&[64, 64]);
    let (quantum, quarter) = (Nanos::from_millis(3), Nanos::new(750_000));
    let position = queue.clock();
    let weight = |w| Weight::new(w).expect("test weights are valid");
    queue.enqueue(0, &ask(0, quantum));
    let first = queue.queued_tag(0);
    assert_eq!((first.start, first.deadline), (position, position.plus(span(quantum, weight(64)))));

    // It runs, its weight doubles, and it asks for less at a time: nothing of the old tags is left.
    queue.dequeue(0);
    let position = position.plus(queue.charge(0, quantum));
    queue.advance(quantum);
    queue.reweigh(0, weight(128));
    queue.enqueue(0, &ask(0, quarter));
    let second = queue.queued_tag(0);
    assert_eq!(second.deadline, second.start.plus(span(quarter, weight(128))));
    // Half a quantum ahead at weight 64, as one of two; the same debt at 128 is half the distance.
    let debt = position.since(queue.clock());
    assert!((second.start.since(queue.clock()) - debt / 2).abs() <= 2);
}

#[test]
fn a_request_in_progress_keeps_its_start() {
    let mut queue = queue_of(&[64]);
    let quantum = Nanos::from_millis(3);
    let position = queue.clock();
    for used in [0, 1, 1_000_000, 2_999_999].map(Nanos::new) {
        queue.start_clock_at(position);
        queue.join(0, Lag::ZERO, Weight::DEFAULT);
        queue.charge(0, used);
        queue.enqueue(0, &Ask { used, ..ask(0, quantum) });
        let tag = queue.queued_tag(0);
        assert_eq!((tag.start, tag.deadline), (position, position.plus(span(quantum, Weight::DEFAULT))));
        queue.dequeue(0);
        let _ = queue.leave(0, false);
    }
}

#[test]
fn spans_without_a_bucket_keep_their_place_in_the_order() {
    let weights: Vec<u64> = (1..=2 * span_buckets::SPAN_BUCKETS as u64).collect();
    let mut queue = queue_of(&weights);
    for seat in 0..weights.len() as u32 {
        queue.enqueue(seat, &ask(seat, Nanos::from_millis(3)));
    }
    assert_eq!(queue.queued_in_trees as usize, span_buckets::SPAN_BUCKETS);
    queue.verify().expect("the structure holds");
    // All started at once, so the heaviest is due first.
    for seat in (0..weights.len() as u32).rev() {
        assert_eq!(queue.take_next(), Some(seat));
    }
    assert_eq!(queue.take_next(), None);
    assert_eq!((queue.queued(), queue.queued_in_trees), (0, 0));
}

#[test]
fn a_span_gets_a_bucket_that_another_has_left() {
    let weights: Vec<u64> = (1..=2 * span_buckets::SPAN_BUCKETS as u64).collect();
    let mut queue = queue_of(&weights);
    for seat in 0..weights.len() as u32 {
        queue.enqueue(seat, &ask(seat, Nanos::from_millis(3)));
        queue.dequeue(seat);
        assert_eq!(queue.queued_in_trees, 0);
    }
    queue.verify().expect("the structure holds");
}

#[test]
fn equal_tags_go_by_thread_index_in_a_bucket_and_between_bucket_and_tree() {
    let mut queue = queue_of(&[64; 4]);
    for (seat, thread_index) in [(0, 9), (1, 3), (2, 7), (3, 5)] {
        let reach = (seat % 2 == 0).then_some(1);
        queue.enqueue(seat, &Ask { reach, ..ask(thread_index, Nanos::from_millis(3)) });
    }
    assert_eq!(queue.in_order(), [1, 3, 2, 0]);
    let taken: Vec<_> = core::iter::from_fn(|| queue.take_next()).collect();
    assert_eq!(taken, [1, 3, 2, 0]);
}

#[test]
fn equal_deadlines_go_to_the_later_start_across_buckets() {
    let (long, short) = (Nanos::from_millis(3), Nanos::new(750_000));
    for order in [[0, 1], [1, 0]] {
        let mut queue = queue_of(&[64, 64]);
        // Ahead by just what it asks for less.
        queue.charge(1, long - short);
        for seat in order {
            queue.enqueue(seat, &ask(seat, if seat == 0 { long } else { short }));
        }
        assert_eq!(queue.queued_tag(0).deadline, queue.queued_tag(1).deadline);
        assert_eq!(queue.in_order(), [1, 0]);
        queue.verify().expect("the structure holds");
        assert_eq!(queue.first_open(), Some(1));
    }
}

/// The short way that full requests take in [`FairQueue::exchange`] gives the tags of the long one.
#[test]
fn a_full_request_is_tagged_like_any_other() {
    for weight in [1, 7, 64, 1000, 65_535] {
        let quantum = Nanos::from_millis(3);
        let mut tags = Vec::new();
        for short in [true, false] {
            let mut queue = queue_of(&[weight, 64]);
            let moved = queue.charge(0, quantum);
            if short {
                let _ = queue.exchange(0, &ask(0, quantum), quantum, moved);
            } else {
                queue.enqueue(0, &ask(0, quantum));
            }
            tags.push(queue.queued_tag(0));
        }
        assert_eq!(tags[0], tags[1]);
    }
}
