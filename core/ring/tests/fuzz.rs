//! A hostile peer that writes anything anywhere in the shared memory, between operations and during them.
//!
//! Each step is one input: a burst of scribbling, or an operation of the honest side, which a model checks. On failure
//! the seed is printed with the command that replays it. `RING_FUZZ_SEED` and `RING_FUZZ_INPUTS` change what runs; the
//! memory is a heap block of exactly the ring's size, so that `make fuzz-ring-valgrind` sees any access outside it.
#![allow(unsafe_code)]

use mainspring_abi::ring::{CapCqe, CapSqe, CapSqeV2, HEADER_WORDS, RingAbi, word};
use mainspring_ring::sync::{AtomicU32, AtomicU64, Ordering};
use mainspring_ring::{
    Completer, CqPlace, Geometry, Next, Push, Reap, Reaper, Region, SharedMemory, SqLease, SqOwner,
    SubmissionQueue, Submitter,
};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What all tests here take together, unless `RING_FUZZ_INPUTS` says otherwise.
const INPUTS: u64 = 4_000_000;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Splitmix64: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Says how to run the same inputs again when a test fails.
struct Replay {
    test: &'static str,
    seed: u64,
    inputs: u64,
}

impl Replay {
    /// `share` tenths of all inputs go to this test.
    fn new(test: &'static str, share: u64) -> Self {
        let seed = setting("RING_FUZZ_SEED").unwrap_or(0x6d61_696e);
        let inputs = setting("RING_FUZZ_INPUTS").unwrap_or(INPUTS) * share / 10;
        println!("{test}: seed {seed}, {inputs} inputs");
        Self { test, seed, inputs }
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let inputs = setting("RING_FUZZ_INPUTS").unwrap_or(INPUTS);
            eprintln!(
                "replay: RING_FUZZ_SEED={} RING_FUZZ_INPUTS={inputs} cargo test -p mainspring-ring --test fuzz {}",
                self.seed, self.test
            );
        }
    }
}

/// A heap block of exactly a ring's size.
struct Block {
    memory: SharedMemory,
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the block is reached through `SharedMemory` alone, which may be sent; the rest is plain data.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    fn new(geometry: &Geometry) -> Arc<Self> {
        let layout = Layout::from_size_align(geometry.bytes(), 64).expect("a small block");
        // SAFETY: the size is not zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).expect("memory");
        // SAFETY: the block lives until `drop`, and its address goes nowhere else.
        let memory = unsafe { SharedMemory::new(base, layout.size()) }.expect("aligned, and large enough");
        let block = Arc::new(Self { memory, base, layout });
        geometry.format(&block).expect("it was made for it");
        block
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout; no reference into it is left.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

impl Region for Block {
    fn word(&self, index: usize) -> &AtomicU32 {
        self.memory.word(index)
    }

    fn slots(&self) -> &[AtomicU64] {
        self.memory.slots()
    }
}

/// The words that lead an index astray, more often than all the others.
const INDICES: [usize; 6] =
    [word::SQ_HEAD, word::SQ_TAIL, word::CQ_HEAD, word::CQ_TAIL, word::FLAGS, word::WAITER_FLAGS];

/// Writes a few words: anything, or something near the truth, which is worse.
fn scribble(random: &mut Random, region: &Block) {
    for _ in 0..=random.below(4) {
        let value = random.next();
        match random.below(8) {
            0 => {
                region
                    .word(random.below(HEADER_WORDS as u64) as usize)
                    .store(value as u32, Ordering::Relaxed);
            }
            1 | 2 => {
                let at = random.below(region.slots().len() as u64) as usize;
                region.slots()[at].store(value, Ordering::Relaxed);
            }
            3 => region.word(INDICES[random.below(6) as usize]).store(value as u32, Ordering::Relaxed),
            _ => {
                let word = region.word(INDICES[random.below(6) as usize]);
                let near = (value % 9) as u32;
                word.store(
                    word.load(Ordering::Relaxed).wrapping_add(near).wrapping_sub(4),
                    Ordering::Relaxed,
                );
            }
        }
    }
}

fn shape(random: &mut Random) -> Geometry {
    let abi = if random.below(4) == 0 { RingAbi::V1 } else { RingAbi::V2 };
    Geometry::new(abi, 1 << random.below(4), 1 << random.below(4)).expect("powers of two")
}

/// What stands in a slot of the submission queue, read by other code than the ring's.
fn sqe_at(region: &Block, geometry: &Geometry, index: u32) -> CapSqeV2 {
    let words = usize::from(geometry.abi().sqe_size()) / 8;
    let at = (index % geometry.sq_entries()) as usize * words;
    let read = |n: usize| region.slots()[at + n].load(Ordering::Relaxed);
    match geometry.abi() {
        RingAbi::V1 => CapSqeV2::from_v1(CapSqe::from_words(&std::array::from_fn(read))),
        RingAbi::V2 => CapSqeV2::from_words(&std::array::from_fn(read)),
    }
}

fn cqe_at(region: &Block, geometry: &Geometry, index: u32) -> CapCqe {
    let base = geometry.sq_entries() as usize * usize::from(geometry.abi().sqe_size()) / 8;
    let at = base + (index % geometry.cq_entries()) as usize * 2;
    CapCqe::from_words(&std::array::from_fn(|n| region.slots()[at + n].load(Ordering::Relaxed)))
}

fn random_sqe(random: &mut Random) -> CapSqeV2 {
    CapSqeV2::from_words(&std::array::from_fn(|_| random.next()))
}

/// The honest consumer, and what it must have done.
struct Consumer {
    region: Arc<Block>,
    geometry: Geometry,
    sq: SubmissionQueue<Arc<Block>>,
    cq: Completer<Arc<Block>>,
    lease: Option<SqLease>,
    places: Vec<(u64, CqPlace)>,
    accepted: u32,
    posted: u32,
}

impl Consumer {
    fn new(geometry: Geometry) -> Self {
        let region = Block::new(&geometry);
        Self {
            sq: SubmissionQueue::new(region.clone(), geometry),
            cq: Completer::new(region.clone(), geometry),
            region,
            geometry,
            lease: None,
            places: Vec::new(),
            accepted: 0,
            posted: 0,
        }
    }

    /// `still` when the peer does not write meanwhile, so that the model can read what the ring
    /// reads.
    fn step(&mut self, random: &mut Random, still: bool) {
        match random.below(8) {
            0..4 => self.serve(random, still),
            4 | 5 => self.complete(random, still),
            6 => self.change_owner(random),
            _ => self.look(random),
        }
        assert_eq!(self.sq.head(), self.accepted, "the head moves by what was accepted and nothing else");
        assert_eq!(self.cq.places_out() as usize, self.places.len());
        assert_eq!(self.cq.counters().posted as u32, self.posted);
        assert!(self.places.len() <= self.geometry.cq_entries() as usize);
    }

    fn serve(&mut self, random: &mut Random, still: bool) {
        let Some(lease) = &self.lease else { return };
        let limit = random.below(5) as u32;
        let tail = self.region.word(word::SQ_TAIL).load(Ordering::Relaxed);
        let claimed = tail.wrapping_sub(self.accepted);
        let mut service = self.sq.begin(lease, limit).expect("nobody revokes it meanwhile");
        loop {
            let expected = sqe_at(&self.region, &self.geometry, self.accepted);
            match service.next(&mut self.cq) {
                Next::Accepted(request, place) => {
                    assert!(!still || request == expected, "an entry is what stood in its slot");
                    self.places.push((request.v1.user_data, place));
                    self.accepted = self.accepted.wrapping_add(1);
                }
                Next::Empty | Next::HeldBack | Next::QuotaSpent | Next::Stopping | Next::Fault(_) => break,
            }
        }
        let took = service.accepted();
        assert!(took <= limit);
        drop(service);
        if still && claimed > self.geometry.sq_entries() {
            assert_eq!(took, 0, "an impossible claim is believed in no part");
        } else if still {
            assert!(took <= claimed, "nothing is invented");
        }
        if still && took > 0 {
            assert_eq!(self.region.word(word::SQ_HEAD).load(Ordering::Relaxed), self.accepted);
        }
    }

    fn complete(&mut self, random: &mut Random, still: bool) {
        if self.places.is_empty() {
            return;
        }
        let at = random.below(self.places.len() as u64) as usize;
        let (user_data, place) = self.places.swap_remove(at);
        let cqe = CapCqe { result: random.next() as u32, ..CapCqe::completed(user_data, 0) };
        self.cq.complete(place, &cqe);
        if still {
            assert_eq!(cqe_at(&self.region, &self.geometry, self.posted), cqe, "in the next slot");
        }
        self.posted = self.posted.wrapping_add(1);
        let _ = self.cq.publish();
        if still {
            assert_eq!(self.region.word(word::CQ_TAIL).load(Ordering::Relaxed), self.posted);
        }
    }

    fn change_owner(&mut self, random: &mut Random) {
        match self.lease.take() {
            Some(lease) if random.below(2) == 0 => self.sq.release(lease).expect("live"),
            Some(lease) => {
                let _ = self.sq.revoke();
                assert!(self.sq.begin(&lease, 1).is_err(), "stale");
            }
            None => self.lease = self.sq.acquire(SqOwner::Syscall).ok(),
        }
    }

    fn look(&mut self, random: &mut Random) {
        if let Some(lease) = &self.lease {
            let _ = self.sq.prepare_sleep(lease, &mut self.cq).expect("live");
            self.sq.awake();
        }
        if let Ok(unread) = self.cq.unread() {
            assert!(unread + self.cq.places_out() <= self.geometry.cq_entries(), "nothing is overwritten");
        }
        if random.below(2) == 0
            && let Ok(place) = self.cq.reserve()
        {
            self.cq.give_back(place);
        }
    }
}

#[test]
fn a_hostile_submitter_costs_the_consumer_nothing() {
    let replay = Replay::new("a_hostile_submitter_costs_the_consumer_nothing", 4);
    let mut random = Random(replay.seed);
    let mut done = 0;
    let mut accepted = 0;
    while done < replay.inputs {
        let geometry = shape(&mut random);
        let mut consumer = Consumer::new(geometry);
        for _ in 0..400 {
            done += 1;
            match random.below(4) {
                0 => scribble(&mut random, &consumer.region),
                // Mostly well-behaved, so that there is something to lose.
                1 => {
                    let (head, read) = (consumer.accepted, consumer.posted);
                    let tail = head.wrapping_add(random.below(u64::from(geometry.sq_entries()) + 1) as u32);
                    consumer.region.word(word::SQ_TAIL).store(tail, Ordering::Relaxed);
                    consumer.region.word(word::CQ_HEAD).store(read, Ordering::Relaxed);
                }
                _ => consumer.step(&mut random, true),
            }
        }
        accepted += u64::from(consumer.accepted);
    }
    assert!(accepted > done / 100, "the peer was so hostile that nothing was tested: {accepted} accepted");
}

/// The honest submitter, and what it must have done.
struct Asker {
    region: Arc<Block>,
    geometry: Geometry,
    submitter: Submitter<Arc<Block>>,
    reaper: Reaper<Arc<Block>>,
    pushed: u32,
    reaped: u32,
}

impl Asker {
    fn new(geometry: Geometry) -> Self {
        let region = Block::new(&geometry);
        Self {
            submitter: Submitter::new(region.clone(), geometry),
            reaper: Reaper::new(region.clone(), geometry),
            region,
            geometry,
            pushed: 0,
            reaped: 0,
        }
    }

    fn step(&mut self, random: &mut Random, still: bool) {
        match random.below(6) {
            0 | 1 => self.push(random, still),
            2 => {
                let _ = self.submitter.publish();
            }
            3 | 4 => self.reap(still),
            _ => {
                let _ = self.reaper.prepare_wait();
                self.reaper.awake();
                let _ = self.reaper.publish();
                if let Ok(in_queue) = self.submitter.in_queue() {
                    assert!(in_queue <= self.geometry.sq_entries());
                }
                if let Ok(available) = self.reaper.available() {
                    assert!(available <= self.geometry.cq_entries());
                }
            }
        }
        assert_eq!(self.submitter.tail(), self.pushed);
    }

    fn push(&mut self, random: &mut Random, still: bool) {
        let mut request = random_sqe(random);
        if self.geometry.abi() == RingAbi::V1 {
            request = CapSqeV2::from_v1(request.v1);
        }
        if self.submitter.push(&request) == Push::Queued {
            if still {
                assert_eq!(sqe_at(&self.region, &self.geometry, self.pushed), request, "whole, in its slot");
            }
            self.pushed = self.pushed.wrapping_add(1);
        }
    }

    fn reap(&mut self, still: bool) {
        let expected = cqe_at(&self.region, &self.geometry, self.reaped);
        if let Reap::Completion(cqe) = self.reaper.reap() {
            assert!(!still || cqe == expected, "the next slot, and each once");
            self.reaped = self.reaped.wrapping_add(1);
        }
    }
}

#[test]
fn a_hostile_consumer_costs_the_submitter_nothing() {
    let replay = Replay::new("a_hostile_consumer_costs_the_submitter_nothing", 3);
    let mut random = Random(replay.seed ^ 1);
    let (mut done, mut worked) = (0, 0);
    while done < replay.inputs {
        let geometry = shape(&mut random);
        let mut asker = Asker::new(geometry);
        for _ in 0..400 {
            done += 1;
            match random.below(4) {
                0 => scribble(&mut random, &asker.region),
                1 => {
                    let tail =
                        asker.reaped.wrapping_add(random.below(u64::from(geometry.cq_entries()) + 1) as u32);
                    asker.region.word(word::CQ_TAIL).store(tail, Ordering::Relaxed);
                    let published = asker.region.word(word::SQ_TAIL).load(Ordering::Relaxed);
                    asker.region.word(word::SQ_HEAD).store(published, Ordering::Relaxed);
                }
                _ => asker.step(&mut random, true),
            }
        }
        worked += u64::from(asker.pushed) + u64::from(asker.reaped);
    }
    assert!(worked > done / 100, "the peer was so hostile that nothing was tested: {worked} entries");
}

/// Scribbles until told to stop.
fn scribbler(region: Arc<Block>, seed: u64, stop: Arc<AtomicBool>) -> std::thread::JoinHandle<u64> {
    std::thread::spawn(move || {
        let mut random = Random(seed);
        let mut bursts = 0;
        while !stop.load(Ordering::Relaxed) {
            scribble(&mut random, &region);
            bursts += 1;
        }
        bursts
    })
}

#[test]
fn scribbling_during_operations_costs_neither_side_anything() {
    let replay = Replay::new("scribbling_during_operations_costs_neither_side_anything", 2);
    let mut random = Random(replay.seed ^ 2);
    let rounds = 16;
    for round in 0..rounds {
        let geometry = shape(&mut random);
        let (mut consumer, mut asker) = (Consumer::new(geometry), Asker::new(geometry));
        let stop = Arc::new(AtomicBool::new(false));
        let threads = [consumer.region.clone(), asker.region.clone()]
            .map(|region| scribbler(region, replay.seed.wrapping_add(round), stop.clone()));
        for _ in 0..replay.inputs / rounds / 2 {
            consumer.step(&mut random, false);
            asker.step(&mut random, false);
        }
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            let _bursts = thread.join().expect("the scribbler does not panic");
        }
    }
}

#[test]
fn between_honest_sides_nothing_is_lost_invented_or_reordered() {
    let replay = Replay::new("between_honest_sides_nothing_is_lost_invented_or_reordered", 1);
    let mut random = Random(replay.seed ^ 3);
    let mut done = 0;
    while done < replay.inputs {
        let geometry = shape(&mut random);
        let region = Block::new(&geometry);
        let mut submitter = Submitter::new(region.clone(), geometry);
        let mut reaper = Reaper::new(region.clone(), geometry);
        let sq = SubmissionQueue::new(region.clone(), geometry);
        let mut cq = Completer::new(region.clone(), geometry);
        let lease = sq.acquire(SqOwner::Timer).expect("free");
        let (mut sent, mut received) = (0_u64, 0_u64);
        let mut in_flight = VecDeque::new();
        for _ in 0..1000 {
            done += 1;
            match random.below(6) {
                0 if submitter.push(&CapSqeV2::nop(sent)) == Push::Queued => sent += 1,
                1 => {
                    let _ = submitter.publish();
                }
                2 => {
                    let mut service = sq.begin(&lease, random.below(4) as u32).expect("live");
                    loop {
                        match service.next(&mut cq) {
                            Next::Accepted(request, place) => {
                                in_flight.push_back((request.v1.user_data, place));
                            }
                            Next::Fault(fault) => panic!("{fault}"),
                            _ => break,
                        }
                    }
                }
                3 => {
                    if let Some((id, place)) = in_flight.pop_front() {
                        cq.complete(place, &CapCqe::completed(id, 0));
                    }
                }
                4 => {
                    let _ = cq.publish();
                }
                5 => {
                    match reaper.reap() {
                        Reap::Completion(cqe) => {
                            assert_eq!(cqe.user_data, received);
                            received += 1;
                        }
                        Reap::Empty => {}
                        Reap::Fault(fault) => panic!("{fault}"),
                    }
                    if random.below(2) == 0 {
                        let _ = reaper.publish();
                    }
                }
                _ => {}
            }
        }
        assert!(received <= sent);
    }
}

#[test]
fn a_hostile_header_is_refused_or_fits_its_memory() {
    let replay = Replay::new("a_hostile_header_is_refused_or_fits_its_memory", 1);
    let mut random = Random(replay.seed ^ 4);
    let geometry = Geometry::new(RingAbi::V2, 8, 8).expect("powers of two");
    let region = Block::new(&geometry);
    let mut accepted = 0;
    for _ in 0..replay.inputs {
        geometry.format(&region).expect("it fits");
        let setup = [word::MAGIC, word::ABI_VERSION, word::ENTRY_SIZES, word::SQ_ENTRIES, word::CQ_ENTRIES];
        let value = match random.below(3) {
            0 => random.next() as u32,
            1 => 1 << random.below(32),
            _ => random.below(4) as u32,
        };
        region.word(setup[random.below(5) as usize]).store(value, Ordering::Relaxed);
        if let Ok(found) = Geometry::attach(&region) {
            assert!(found.bytes() <= geometry.bytes(), "{found:?} does not fit");
            accepted += 1;
        }
    }
    assert!(accepted > 0);
}
