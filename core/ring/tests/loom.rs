//! The shipped code under loom: every interleaving and every value that the memory model allows. Each mutant below breaks one rule of `src/wake/README.md` or `src/owner.rs`, and must be found.
//!
//! `make loom`, or `RUSTFLAGS="--cfg loom" cargo test -p mainspring-ring --release --test loom`.
#![cfg(loom)]

use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use std::sync::Arc;

use mainspring_abi::ring::{CapCqe, CapSqeV2, NEED_WAKEUP, RingAbi, word};
use mainspring_ring::{
    Completer, CqPlace, Finished, Geometry, Next, Push, Reap, Reaper, Region, Revoked, Service, Sleep,
    SqLease, SqOwner, SqRefusal, SubmissionQueue, Submitter, Wakeup,
};

/// Every interleaving.
fn check(model: impl Fn() + Sync + Send + 'static) {
    loom::model::Builder::new().check(model);
}

/// Every interleaving in which the CPU is taken at most `preemptions` times from a thread that could go on, for a
/// model that would not end otherwise.
fn check_bounded(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// What loom says about a model that must fail.
fn failure_of(model: impl Fn() + Sync + Send + 'static) -> String {
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(model)));
    let panic = caught.expect_err("loom must find this mutant's failure");
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
}

/// The words that the protocols use, and slots of one word each.
struct ModelRegion {
    words: [AtomicU32; 9],
    slots: Vec<AtomicU64>,
}

impl ModelRegion {
    fn new(geometry: &Geometry) -> Arc<Self> {
        let words = std::array::from_fn(|_| AtomicU32::new(0));
        let slots = (0..geometry.slot_words()).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self { words, slots })
    }
}

impl Region for ModelRegion {
    fn word(&self, index: usize) -> &AtomicU32 {
        const USED: [usize; 9] = [
            word::SQ_HEAD,
            word::FLAGS,
            word::HELD_BACK,
            word::SQ_WAKES,
            word::SQ_TAIL,
            word::CQ_HEAD,
            word::CQ_TAIL,
            word::WAITER_FLAGS,
            word::CQ_WAKES,
        ];
        let at = USED.iter().position(|used| *used == index).expect("a word of the protocols");
        &self.words[at]
    }

    fn slots(&self) -> &[AtomicU64] {
        &self.slots
    }
}

/// The standard library's `Arc`: it is no part of what is checked, and loom's cannot be dropped after a failure.
type Shared = Arc<ModelRegion>;

/// A futex: sleeps only while the word shows the expected count, compared under the lock that a wake takes.
#[derive(Default)]
struct Futex {
    lock: Mutex<()>,
    sleepers: Condvar,
}

impl Futex {
    fn wait(&self, doorbell: &AtomicU32, expected: u32) {
        let mut guard = self.lock.lock().expect("no thread panics with the lock");
        while doorbell.load(Ordering::Relaxed) == expected {
            guard = self.sleepers.wait(guard).expect("no thread panics with the lock");
        }
    }

    fn wake(&self) {
        drop(self.lock.lock().expect("no thread panics with the lock"));
        self.sleepers.notify_all();
    }
}

struct Ring {
    region: Shared,
    geometry: Geometry,
    sq: Arc<SubmissionQueue<Shared>>,
    futex: Arc<Futex>,
}

impl Ring {
    fn new(sq_entries: u32, cq_entries: u32) -> Self {
        let geometry = Geometry::new(RingAbi::V2, sq_entries, cq_entries).expect("powers of two");
        let region = ModelRegion::new(&geometry);
        let sq = Arc::new(SubmissionQueue::new(region.clone(), geometry));
        Self { region, geometry, sq, futex: Arc::new(Futex::default()) }
    }

    fn submitter(&self) -> Submitter<Shared> {
        Submitter::new(self.region.clone(), self.geometry)
    }

    fn completer(&self) -> Completer<Shared> {
        Completer::new(self.region.clone(), self.geometry)
    }

    /// A ring that already holds requests `1..=n`.
    fn filled(n: u64) -> Self {
        let ring = Self::new(2, 4);
        let mut submitter = ring.submitter();
        for id in 1..=n {
            assert_eq!(submitter.push(&CapSqeV2::nop(id)), Push::Queued);
        }
        submitter.publish_for_caller();
        ring
    }

    fn shared_head(&self) -> u32 {
        self.region.word(word::SQ_HEAD).load(Ordering::Acquire)
    }
}

// ---- No lost wakeup -------------------------------------------------------------------------------------------

/// What the poller decided, with the doorbell count to sleep on.
enum Decision {
    Work,
    Park(u32),
}

/// One poller's step before it sleeps: shipped, or a mutant.
type PrepareSleep = fn(&SubmissionQueue<Shared>, &SqLease, &mut Completer<Shared>) -> Decision;
/// One producer's publication: shipped, or a mutant.
type Publish = fn(&mut Submitter<Shared>) -> Wakeup;

fn shipped_prepare(sq: &SubmissionQueue<Shared>, lease: &SqLease, cq: &mut Completer<Shared>) -> Decision {
    match sq.prepare_sleep(lease, cq).expect("nobody revokes") {
        Sleep::WorkPending => Decision::Work,
        Sleep::Park(ticket) => Decision::Park(ticket.count()),
    }
}

fn shipped_publish(submitter: &mut Submitter<Shared>) -> Wakeup {
    submitter.publish()
}

/// A poller that sleeps when it finds nothing, and a producer of `requests` that wakes it when asked to. If a wakeup
/// is lost the poller sleeps for ever, which loom reports as a deadlock.
fn poller_and_producer(requests: u64, prepare: PrepareSleep, publish: Publish) {
    let ring = Ring::new(2, 4);
    let (sq, futex, region) = (ring.sq.clone(), ring.futex.clone(), ring.region.clone());
    let mut cq = ring.completer();
    let mut submitter = ring.submitter();
    let producer = thread::spawn(move || {
        for id in 1..=requests {
            assert_eq!(submitter.push(&CapSqeV2::nop(id)), Push::Queued);
            if publish(&mut submitter) == Wakeup::Needed {
                submitter.ring_doorbell();
                futex.wake();
            }
        }
    });
    let lease = sq.acquire(SqOwner::Syscall).expect("nobody else wants it");
    let mut seen = 0;
    while seen < requests {
        let mut service = sq.begin(&lease, 2).expect("the lease is live");
        while let Next::Accepted(sqe, place) = service.next(&mut cq) {
            seen += 1;
            assert_eq!(sqe.v1.user_data, seen, "in order, whole, and once");
            cq.give_back(place);
        }
        assert_eq!(service.finish(), Finished::LeaseKept);
        if seen == requests {
            break;
        }
        if let Decision::Park(count) = prepare(&sq, &lease, &mut cq) {
            ring.futex.wait(region.word(word::SQ_WAKES), count);
            sq.awake();
        }
    }
    producer.join().expect("the producer does not panic");
    sq.release(lease).expect("the lease is live");
}

//= TICK:L2.wake-protocol TICK:L2.wake-producer TICK:verify.lost-wakeup
#[test]
fn no_wakeup_is_lost() {
    check(|| poller_and_producer(1, shipped_prepare, shipped_publish));
    // Sleeping again after a wake.
    check_bounded(4, || poller_and_producer(2, shipped_prepare, shipped_publish));
}

fn ticket(sq: &SubmissionQueue<Shared>) -> u32 {
    sq.region().word(word::SQ_WAKES).load(Ordering::Acquire)
}

fn has_entries(sq: &SubmissionQueue<Shared>) -> bool {
    sq.region().word(word::SQ_TAIL).load(Ordering::Acquire) != sq.head()
}

fn withdraw(sq: &SubmissionQueue<Shared>) -> Decision {
    sq.awake();
    Decision::Work
}

fn flag_after_recheck(sq: &SubmissionQueue<Shared>, _: &SqLease, _: &mut Completer<Shared>) -> Decision {
    let count = ticket(sq);
    if has_entries(sq) {
        return withdraw(sq);
    }
    sq.region().word(word::FLAGS).fetch_or(NEED_WAKEUP, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    Decision::Park(count)
}

fn no_barrier(sq: &SubmissionQueue<Shared>, _: &SqLease, _: &mut Completer<Shared>) -> Decision {
    let count = ticket(sq);
    let flags = sq.region().word(word::FLAGS);
    flags.store(NEED_WAKEUP, Ordering::Release);
    if has_entries(sq) { withdraw(sq) } else { Decision::Park(count) }
}

fn release_only_rmw(sq: &SubmissionQueue<Shared>, _: &SqLease, _: &mut Completer<Shared>) -> Decision {
    let count = ticket(sq);
    sq.region().word(word::FLAGS).fetch_or(NEED_WAKEUP, Ordering::Release);
    if has_entries(sq) { withdraw(sq) } else { Decision::Park(count) }
}

/// The announcement as the protocol has it, and no fence after it.
fn rmw_without_fence(sq: &SubmissionQueue<Shared>, _: &SqLease, _: &mut Completer<Shared>) -> Decision {
    let count = ticket(sq);
    sq.region().word(word::FLAGS).fetch_or(NEED_WAKEUP, Ordering::SeqCst);
    if has_entries(sq) { withdraw(sq) } else { Decision::Park(count) }
}

/// Right but for the ticket, which is taken too late to notice a wake during the recheck.
fn late_ticket(sq: &SubmissionQueue<Shared>, _: &SqLease, _: &mut Completer<Shared>) -> Decision {
    sq.region().word(word::FLAGS).fetch_or(NEED_WAKEUP, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    if has_entries(sq) {
        return withdraw(sq);
    }
    Decision::Park(ticket(sq))
}

fn publish_without_barrier(submitter: &mut Submitter<Shared>) -> Wakeup {
    let region = submitter.region().clone();
    submitter.publish_for_caller();
    let flags = region.word(word::FLAGS).load(Ordering::Acquire);
    if flags & NEED_WAKEUP != 0 { Wakeup::Needed } else { Wakeup::NotNeeded }
}

fn publish_after_looking(submitter: &mut Submitter<Shared>) -> Wakeup {
    let region = submitter.region().clone();
    let flags = region.word(word::FLAGS).load(Ordering::Acquire);
    fence(Ordering::SeqCst);
    submitter.publish_for_caller();
    if flags & NEED_WAKEUP != 0 { Wakeup::Needed } else { Wakeup::NotNeeded }
}

//= TICK:L2.barriers TICK:verify.lost-wakeup
#[test]
fn every_weakened_wake_protocol_loses_a_wakeup() {
    let pollers: [(&str, PrepareSleep); 5] = [
        ("flag set after the recheck", flag_after_recheck),
        ("poller without a barrier", no_barrier),
        ("release-only read-modify-write", release_only_rmw),
        ("SeqCst read-modify-write without a fence", rmw_without_fence),
        ("ticket taken after the recheck", late_ticket),
    ];
    let producers: [(&str, Publish); 2] = [
        ("producer without a barrier", publish_without_barrier),
        ("flags read before the tail is published", publish_after_looking),
    ];
    for (name, prepare) in pollers {
        let failure = failure_of(move || poller_and_producer(1, prepare, shipped_publish));
        assert!(failure.contains("deadlock"), "{name}: {failure}");
        println!("found: {name}: {}", failure.lines().next().unwrap_or_default());
    }
    for (name, publish) in producers {
        let failure = failure_of(move || poller_and_producer(1, shipped_prepare, publish));
        assert!(failure.contains("deadlock"), "{name}: {failure}");
        println!("found: {name}: {}", failure.lines().next().unwrap_or_default());
    }
}

#[test]
fn a_reader_that_sleeps_for_a_completion_is_woken() {
    check(|| {
        let ring = Ring::new(2, 2);
        let futex = ring.futex.clone();
        let mut cq = ring.completer();
        let completer = thread::spawn(move || {
            let place = cq.reserve().expect("the queue is empty");
            cq.complete(place, &CapCqe::completed(7, 0));
            if cq.publish() == Wakeup::Needed {
                cq.ring_doorbell();
                futex.wake();
            }
        });
        let mut reaper = Reaper::new(ring.region.clone(), ring.geometry);
        loop {
            match reaper.reap() {
                Reap::Completion(cqe) => break assert_eq!(cqe.user_data, 7),
                Reap::Empty => {}
                Reap::Fault(fault) => panic!("{fault}"),
            }
            if let Sleep::Park(ticket) = reaper.prepare_wait() {
                ring.futex.wait(ring.region.word(word::CQ_WAKES), ticket.count());
                reaper.awake();
            }
        }
        completer.join().expect("the completer does not panic");
    });
}

#[test]
fn a_poller_that_sleeps_for_room_is_woken() {
    check(|| {
        let ring = Ring::new(1, 1);
        let mut cq = ring.completer();
        let mut submitter = ring.submitter();
        assert_eq!(submitter.push(&CapSqeV2::nop(2)), Push::Queued);
        submitter.publish_for_caller();
        let place = cq.reserve().expect("the queue is empty");
        cq.complete(place, &CapCqe::completed(1, 0));
        cq.publish_for_caller();
        // The completion queue is full; the reader makes room at some moment.
        let (futex, region, geometry) = (ring.futex.clone(), ring.region.clone(), ring.geometry);
        let reader = thread::spawn(move || {
            let mut reaper = Reaper::new(region, geometry);
            let Reap::Completion(_) = reaper.reap() else { panic!("one was posted") };
            if reaper.publish() == Wakeup::Needed {
                reaper.ring_doorbell();
                futex.wake();
            }
        });
        let lease = ring.sq.acquire(SqOwner::Syscall).expect("nobody else wants it");
        loop {
            let mut service = ring.sq.begin(&lease, 1).expect("the lease is live");
            let next = service.next(&mut cq);
            let _ = service.finish();
            match next {
                Next::Accepted(sqe, place) => {
                    assert_eq!(sqe.v1.user_data, 2);
                    break cq.give_back(place);
                }
                Next::HeldBack => {}
                other => panic!("{other:?}"),
            }
            match ring.sq.prepare_sleep(&lease, &mut cq).expect("nobody revokes") {
                Sleep::Park(ticket) => {
                    ring.futex.wait(ring.region.word(word::SQ_WAKES), ticket.count());
                    ring.sq.awake();
                }
                Sleep::WorkPending => {}
            }
        }
        reader.join().expect("the reader does not panic");
        assert_eq!(ring.sq.held_back(), u64::from(ring.sq.held_back() > 0), "counted once at most");
    });
}

#[test]
fn a_poller_that_sleeps_is_woken_by_the_end_of_its_lease() {
    check(|| {
        let ring = Ring::new(1, 1);
        let mut cq = ring.completer();
        let lease = ring.sq.acquire(SqOwner::Syscall).expect("nobody else wants it");
        let (sq, futex) = (ring.sq.clone(), ring.futex.clone());
        let stopper = thread::spawn(move || {
            assert_eq!(sq.revoke(), Revoked::Now);
            futex.wake();
        });
        loop {
            match ring.sq.prepare_sleep(&lease, &mut cq) {
                Err(refusal) => break assert_eq!(refusal, SqRefusal::Stale),
                Ok(Sleep::WorkPending) => panic!("there is none"),
                Ok(Sleep::Park(ticket)) => {
                    ring.futex.wait(ring.region.word(word::SQ_WAKES), ticket.count());
                    ring.sq.awake();
                }
            }
        }
        stopper.join().expect("the stopper does not panic");
    });
}

// ---- One consumer at a time -----------------------------------------------------------------------------------

fn accept_all(mut service: Service<'_, Shared>, place: CqPlace) -> (Vec<u64>, Finished) {
    let mut seen = Vec::new();
    let mut place = place;
    loop {
        match service.accept(place) {
            Ok((sqe, same)) => {
                seen.push(sqe.v1.user_data);
                place = same;
            }
            // Dropped: these models post no completions, so the place is only a key.
            Err(_) => return (seen, service.finish()),
        }
    }
}

/// Acquires, consumes everything there is, releases. Empty when another consumer was faster.
fn consume(sq: &SubmissionQueue<Shared>, owner: SqOwner, place: CqPlace) -> Vec<u64> {
    let Ok(lease) = sq.acquire(owner) else { return Vec::new() };
    let service = sq.begin(&lease, 2).expect("nobody revokes");
    let (seen, finished) = accept_all(service, place);
    assert_eq!(finished, Finished::LeaseKept);
    sq.release(lease).expect("nobody revokes");
    seen
}

/// The same in one step each way.
fn serve_once(sq: &SubmissionQueue<Shared>, owner: SqOwner, place: CqPlace) -> Vec<u64> {
    let Ok(service) = sq.serve(owner, 2) else { return Vec::new() };
    let (seen, finished) = accept_all(service, place);
    assert_eq!(finished, Finished::LeaseEnded);
    seen
}

type Consume = fn(&SubmissionQueue<Shared>, SqOwner, CqPlace) -> Vec<u64>;

//= TICK:nongoal.second-consumer
#[test]
fn nothing_is_consumed_twice() {
    let ways: [[Consume; 2]; 3] = [[consume, consume], [serve_once, serve_once], [serve_once, consume]];
    for [one, other] in ways {
        consumed_once(one, other);
    }
}

fn consumed_once(one: Consume, other: Consume) {
    check(move || {
        let ring = Ring::filled(2);
        let mut cq = ring.completer();
        let place = || cq.reserve().expect("room for all");
        let places: Vec<CqPlace> = std::iter::repeat_with(place).take(2).collect();
        let mut places = places.into_iter();
        let (mine, theirs) = (places.next().expect("two"), places.next().expect("two"));
        let sq = ring.sq.clone();
        let timer = thread::spawn(move || other(&sq, SqOwner::Timer, theirs));
        let mut all = one(&ring.sq, SqOwner::Syscall, mine);
        all.extend(timer.join().expect("the timer does not panic"));
        assert_eq!(all, [1, 2], "each once, in order, by the side that came first");
        assert_eq!(ring.shared_head(), 2);
    });
}

/// An owner is revoked at any moment; another owner takes over as soon as it can.
fn revoked_while_consuming(first: fn(&Ring, &SqLease, CqPlace) -> (Vec<u64>, bool)) {
    let ring = Arc::new(Ring::filled(2));
    let mut cq = ring.completer();
    let (mine, theirs) = (cq.reserve().expect("room"), cq.reserve().expect("room"));
    let lease = ring.sq.acquire(SqOwner::Syscall).expect("nobody else wants it");
    let other = ring.clone();
    let successor = thread::spawn(move || {
        let revoked = other.sq.revoke();
        let Ok(lease) = other.sq.acquire(SqOwner::Timer) else {
            assert_eq!(revoked, Revoked::AfterService, "only service keeps a revoked queue busy");
            return (None, Vec::new());
        };
        // The new owner goes on exactly where the head was published.
        assert_eq!(other.sq.head(), other.shared_head());
        let took_over_at = other.sq.head();
        let (seen, _) = accept_all(other.sq.begin(&lease, 2).expect("a fresh lease"), theirs);
        other.sq.release(lease).expect("nobody revokes this one");
        (Some(took_over_at), seen)
    });
    let (mut all, was_stale) = first(&ring, &lease, mine);
    let accepted_first = all.len();
    let (took_over_at, seen) = successor.join().expect("the successor does not panic");
    if was_stale {
        assert_eq!(accepted_first, 0, "a stale owner consumes nothing");
    }
    if let Some(took_over_at) = took_over_at {
        assert_eq!(took_over_at as usize, accepted_first, "the head stands past everything accepted before");
        assert_eq!(ring.sq.begin(&lease, 1).err(), Some(SqRefusal::Stale));
    }
    all.extend(seen);
    let expected: Vec<u64> = (1..=all.len() as u64).collect();
    assert_eq!(all, expected, "nothing lost, nothing twice");
    assert_eq!(ring.shared_head() as usize, all.len());
}

fn shipped_owner(ring: &Ring, lease: &SqLease, place: CqPlace) -> (Vec<u64>, bool) {
    match ring.sq.begin(lease, 2) {
        Ok(service) => (accept_all(service, place).0, false),
        Err(refusal) => {
            assert_eq!(refusal, SqRefusal::Stale);
            (Vec::new(), true)
        }
    }
}

/// Looks at its lease, then consumes: between the two the lease may end.
fn look_then_consume(ring: &Ring, lease: &SqLease, _: CqPlace) -> (Vec<u64>, bool) {
    if !ring.sq.holds(lease) {
        return (Vec::new(), true);
    }
    let head = ring.shared_head();
    let seen = ring.region.slots()[head as usize].load(Ordering::Relaxed);
    ring.region.word(word::SQ_HEAD).store(head + 1, Ordering::Release);
    (vec![seen], false)
}

//= ARCH:sq.generation ARCH:sqpoll.stop-accepted
#[test]
fn a_stop_during_service_keeps_what_was_accepted_and_a_stale_owner_moves_nothing() {
    check(|| revoked_while_consuming(shipped_owner));
}

#[test]
fn an_owner_that_only_looks_at_its_lease_is_found() {
    let failure = failure_of(|| revoked_while_consuming(look_then_consume));
    assert!(!failure.contains("deadlock"), "{failure}");
}

#[test]
fn a_borrower_and_the_poller_do_not_serve_together() {
    check(|| {
        let ring = Ring::filled(2);
        let mut cq = ring.completer();
        let (mine, theirs) = (cq.reserve().expect("room"), cq.reserve().expect("room"));
        let lease = polled(&ring.sq);
        let sq = ring.sq.clone();
        let borrower = thread::spawn(move || match sq.begin_borrowed(1) {
            Ok(service) => accept_all(service, theirs).0,
            Err(refusal) => {
                assert_eq!(refusal, SqRefusal::Busy);
                Vec::new()
            }
        });
        let mut all = match ring.sq.begin(&lease, 2) {
            Ok(service) => accept_all(service, mine).0,
            Err(refusal) => {
                assert_eq!(refusal, SqRefusal::Busy);
                Vec::new()
            }
        };
        all.extend(borrower.join().expect("the borrower does not panic"));
        all.sort_unstable();
        let expected: Vec<u64> = (1..=all.len() as u64).collect();
        assert_eq!(all, expected, "each at most once, none skipped");
        assert!(!all.is_empty(), "one of them served");
        assert_eq!(ring.shared_head() as usize, all.len());
        ring.sq.release(lease).expect("nobody revokes");
    });
}

/// A poller's lease on a ring whose syscall owner has offered it.
fn polled(sq: &SubmissionQueue<Shared>) -> SqLease {
    let caller = sq.acquire(SqOwner::Syscall).expect("nobody else wants it");
    sq.offer_to_poller(&caller).expect("it is the owner");
    sq.release(caller).expect("it is the owner");
    sq.acquire(SqOwner::Sqpoll).expect("it was offered")
}
