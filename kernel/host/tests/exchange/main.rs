//! The kernel's short cut for calls and answers, `method/exchange.rs`, against the long way that every request can take:
//! the kernel's own files, on a machine of ordinary memory. Two worlds get the same random requests, one with the short cut
//! and one without, and everything that a program can see of them must be the same after each.
#![allow(dead_code, missing_docs, reason = "most of the kernel's objects is there for others")]

extern crate alloc;

mod arch;
mod method;

#[path = "../../../src/object/mod.rs"]
mod object;

/// Nothing is measured.
mod measure {
    pub enum Segment {
        Ring,
        Method,
    }

    pub struct Within;

    pub fn within(_: Segment) -> Within {
        Within
    }

    impl Drop for Within {
        fn drop(&mut self) {}
    }
}

/// What the objects and methods need of scheduling: to be told.
mod sched {
    pub mod wakeup {
        use crate::object::thread::Thread;
        use std::cell::RefCell;

        thread_local! {
            /// The threads that were woken, by slot.
            pub static WOKEN: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
        }

        pub fn wake(thread: &Thread) {
            WOKEN.with_borrow_mut(|woken| woken.push(thread.name().index()));
        }
    }

    /// There is nothing to compare: no check reads the digest.
    pub mod visible {
        use crate::object::thread::Thread;
        use mainspring_abi::ring::CapError;

        pub struct Digest;

        impl Digest {
            pub fn add(&mut self, _: u64) {}
        }

        pub struct Seen;

        pub fn look(_: &Thread) -> Seen {
            Seen
        }

        impl Seen {
            pub fn refused(self, _: &Thread, _: CapError, _: impl core::fmt::Debug) {}
        }
    }

    /// There are none.
    pub mod contexts {
        use mainspring_abi::ring::CapError;
        use mainspring_abi::{ContextRef, ThreadRef};
        use mainspring_driver::contexts::CallEnd;

        pub const SESSIONS_EACH: usize = 1;

        pub fn is_free(_: ContextRef) -> bool {
            false
        }

        pub fn serve_on(_: ContextRef, _: ThreadRef) -> bool {
            false
        }

        pub fn end_service(_: ContextRef, _: ThreadRef) {}

        pub fn may_call(_: ThreadRef, _: ThreadRef) -> Result<(), CapError> {
            Ok(())
        }

        pub fn call_received(_: ThreadRef, _: ThreadRef) {}

        pub fn return_loan(_: ThreadRef, _: CallEnd) {}
    }

    /// No ring is polled.
    pub mod sqpoll {
        use crate::object::thread::{Queue, Thread};
        use core::sync::atomic::AtomicU64;

        pub struct Polling;

        #[expect(dead_code, reason = "no ring is polled")]
        pub enum Entry {
            Drain,
            Borrow,
            Busy,
        }

        pub static KICKED: AtomicU64 = AtomicU64::new(0);

        pub fn enter(_: &Thread, _: &Queue) -> Entry {
            Entry::Drain
        }
    }

    pub mod dispatch {
        pub fn runs_on_context() -> bool {
            false
        }

        pub fn count_expired_request() {}

        /// Nothing goes on in pieces here.
        pub fn runs_here(_: &Thread) -> bool {
            false
        }

        pub fn lends_to(_: &Thread, _: mainspring_abi::ThreadRef) -> Option<bool> {
            Some(false)
        }

        pub fn own_context() -> (u32, mainspring_ring::deadline::Budget) {
            (0, mainspring_ring::deadline::Budget::Available)
        }

        use crate::object::endpoint::endpoint;
        use crate::object::inbox::{Awaits, Waiter};
        use crate::object::thread::Thread;

        pub fn forget(thread: &Thread, awaits: Awaits, waiter: Waiter) {
            if let Awaits::Answer(index) | Awaits::Call(index) = awaits {
                endpoint(index).lock().withdraw(waiter, thread.process().index());
            }
        }
    }
}

use alloc::sync::Arc;
use arch::{AddressSpace, BASE, BYTES, RingMemory};
use mainspring_abi::Nanos;
use mainspring_abi::kernel::{CQ_ENTRIES, ReceivedCall, SQ_ENTRIES};
use mainspring_abi::ring::{CapCqe, CapSqe, CapSqeV2, QosFlags, RingAbi, op};
use mainspring_ring::{Completer, Geometry, Push, Reap, Reaper, SqOwner, SubmissionQueue, Submitter};
use object::caps::Object;
use object::endpoint::{Endpoint, endpoint};
use object::inbox::{Wait, Waiting};
use object::process::{self, Process};
use object::thread::{self, Thread};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use sched::wakeup::WOKEN;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

/// Threads of a world: two of a process that calls, two of one that serves.
const THREADS: usize = 4;

struct Player {
    thread: &'static Thread,
    submitter: Submitter<Arc<RingMemory>>,
    reaper: Reaper<Arc<RingMemory>>,
    submitted: u64,
    /// The calls that it has received and not answered, as its completions say.
    received: Vec<u32>,
}

struct World {
    short_cut: bool,
    index: u32,
    processes: [&'static Process; 2],
    call: u32,
    serve: u32,
    players: Vec<Player>,
}

/// What a thread asks for.
#[derive(Clone, Debug)]
struct Ask {
    /// What such a thread mostly asks for: a call, or the answer to one and the next, with no deadline and no flags.
    usual: bool,
    op: u16,
    /// With the other end's capability, or with a number that is no capability.
    cap: Cap,
    params: (u64, u32),
    result: (u64, u32),
    /// Which of the calls that it has received it answers; one that it has not, if there are too few.
    call: usize,
    /// Which of its own requests a CANCEL is about, counted from the last.
    victim: u64,
    flags: u32,
    deadline_ns: u64,
    qos: u32,
}

#[derive(Clone, Copy, Debug)]
enum Cap {
    Right,
    Wrong,
    Nobodys,
}

#[derive(Clone, Debug)]
enum Step {
    /// A thread reads its completions or not, submits, enters the kernel, and waits if nothing has completed.
    Enter { player: usize, reads: bool, asks: Vec<Ask>, waits: bool },
    /// A thread reads its completions.
    Read { player: usize },
}

fn asks() -> impl Strategy<Value = Ask> {
    let address =
        prop_oneof![8 => BASE..BASE + BYTES * 3 / 4 - 100, 1 => BASE..BASE + BYTES, 1 => any::<u64>()];
    let len = prop_oneof![6 => 0..70_u32, 1 => 0..1100_u32, 1 => any::<u32>()];
    let room = prop_oneof![6 => 80..200_u32, 2 => 0..80_u32];
    let op = prop_oneof![
        6 => Just(op::CALL), 3 => Just(op::RECV), 6 => Just(op::RETURN_RECV), 2 => Just(op::RETURN),
        2 => Just(op::CANCEL), 1 => Just(op::NOP), 1 => 0..9_u16
    ];
    let cap = prop_oneof![12 => Just(Cap::Right), 1 => Just(Cap::Wrong), 1 => Just(Cap::Nobodys)];
    let late = (prop_oneof![9 => Just(0), 1 => any::<u32>()], prop_oneof![9 => Just(0), 1 => 1..3000_u64]);
    let qos = prop_oneof![9 => Just(0), 1 => (0..8_u32).prop_map(|bit| 1 << bit)];
    let what = (prop::bool::weighted(0.6), op, cap, 0..3_usize, 0..6_u64);
    (what, (address.clone(), len), (address, room), late, qos).prop_map(
        |((usual, op, cap, call, victim), params, result, (flags, deadline_ns), qos)| {
            let flags = flags & mainspring_abi::ring::SQE_AFTER_PREVIOUS;
            Ask { usual, op, cap, params, result, call, victim, flags, deadline_ns, qos }
        },
    )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let several =
        prop_oneof![6 => prop::collection::vec(asks(), 1), 2 => prop::collection::vec(asks(), 0..5)];
    let enter = (0..THREADS, prop::bool::weighted(0.7), several, prop::bool::weighted(0.7));
    let enter = enter.prop_map(|(player, reads, asks, waits)| Step::Enter { player, reads, asks, waits });
    let read = (0..THREADS).prop_map(|player| Step::Read { player });
    prop::collection::vec(prop_oneof![3 => enter, 1 => read], 1..60)
}

impl World {
    fn new(index: u32, short_cut: bool) -> Self {
        let geometry = Geometry::new(RingAbi::V2, SQ_ENTRIES, CQ_ENTRIES).expect("a ring's sizes");
        *endpoint(index).lock() = Endpoint::new();
        // The same numbers in both processes, so that a capability of the wrong kind is one number away.
        let mut ends = (0, 0);
        let processes = ["callers", "servers"].map(|name| {
            let process = process::allocate(0).expect("there is room");
            let name = name.try_into().expect("a short name");
            let ledger = &process.slot().ledger;
            let space = AddressSpace::new(ledger).expect("it costs nothing here");
            process.prepare(name);
            let grant = |object| process.state.lock().caps.insert(object, ledger).expect("there is room");
            ends = (grant(Object::EndpointCall(index)), grant(Object::EndpointServe(index)));
            *process.space.lock() = Some(space);
            process.begin(false);
            process.slot()
        });
        let players = (0..THREADS).map(|number| {
            let ring = Arc::new(RingMemory::new(&geometry));
            geometry.format(&ring).expect("it was made for it");
            let held = thread::allocate(&processes[number / 2].ledger).expect("there is room");
            held.begin();
            let thread = held.slot();
            thread.belongs_to.set(processes[number / 2]);
            *thread.queue.lock() = Some(SubmissionQueue::new(ring.clone(), geometry));
            thread.inbox.lock().open(thread.name().generation(), Completer::new(ring.clone(), geometry));
            Player {
                thread,
                submitter: Submitter::new(ring.clone(), geometry),
                reaper: Reaper::new(ring, geometry),
                submitted: 0,
                received: Vec::new(),
            }
        });
        Self { short_cut, index, processes, call: ends.0, serve: ends.1, players: players.collect() }
    }

    /// A slot as the number of a thread of this world.
    fn number(&self, slot: u32) -> usize {
        let is = |player: &Player| player.thread.name().index() == slot;
        self.players.iter().position(is).expect("one of this world's")
    }

    fn request(&self, player: usize, ask: &Ask) -> CapSqeV2 {
        let Player { submitted, received, .. } = &self.players[player];
        let mut ask = ask.clone();
        if ask.usual {
            (ask.call, ask.cap, ask.flags, ask.deadline_ns, ask.qos) = (0, Cap::Right, 0, 0, 0);
            ask.op = match (player < THREADS / 2, received.is_empty()) {
                (true, _) => op::CALL,
                (false, true) => op::RECV,
                (false, false) => op::RETURN_RECV,
            };
        }
        let ends = [self.call, self.serve];
        let right = usize::from(ask.op != op::CALL);
        let cap_id = match ask.cap {
            Cap::Right => ends[right],
            Cap::Wrong => ends[1 - right],
            Cap::Nobodys => ends[right] ^ 1 << 16,
        };
        let victim = submitted.saturating_sub(ask.victim);
        let v1 = CapSqe {
            user_data: submitted + 1,
            cap_id,
            op: ask.op,
            flags: ask.flags,
            call_id: received.get(ask.call).copied().unwrap_or(0x7_0000 + ask.call as u32),
            params_addr: if ask.op == op::CANCEL { victim } else { ask.params.0 },
            params_len: ask.params.1,
            result_addr: ask.result.0,
            result_len: ask.result.1,
            ..CapSqe::default()
        };
        CapSqeV2 { deadline_ns: ask.deadline_ns, qos_flags: ask.qos, ..CapSqeV2::from_v1(v1) }
    }

    /// Takes a step; what can be seen of it.
    fn take(&mut self, step: &Step) -> String {
        method::allow_short_cut(self.short_cut);
        WOKEN.with_borrow_mut(Vec::clear);
        let told = match step {
            Step::Enter { player, reads, asks, waits } => {
                let read = if *reads { self.read(*player) } else { Vec::new() };
                format!("{read:?} {}", self.enter(*player, asks, *waits))
            }
            Step::Read { player } => format!("{:?}", self.read(*player)),
        };
        let woken =
            WOKEN.with_borrow(|woken| woken.iter().map(|slot| self.number(*slot)).collect::<Vec<_>>());
        format!("{told} woken {woken:?}\n{}", self.look())
    }

    fn enter(&mut self, player: usize, asks: &[Ask], waits: bool) -> String {
        let thread = self.players[player].thread;
        // A thread that waits has its answer, or gives up, as by a timeout of its own.
        thread.inbox.lock().waiting = Waiting::Not;
        for ask in asks {
            let request = self.request(player, ask);
            let myself = &mut self.players[player];
            if myself.submitter.push(&request) == Push::Queued {
                myself.submitted += 1;
            }
        }
        self.players[player].submitter.publish_for_caller();
        let mut turn = method::Turn::default();
        let drained = method::drain(thread, SqOwner::Syscall, SQ_ENTRIES, &mut turn);
        let mut inbox = thread.inbox.lock();
        let unread = inbox.unread();
        if waits && unread.as_ref().is_ok_and(|unread| *unread == 0) {
            inbox.waiting = Waiting::For(Wait { min: 1, deadline: Nanos::MAX });
        }
        drop(inbox);
        let target = turn.target.map(|target| self.number(target.name().index()));
        format!("{drained:?} unread {unread:?} target {target:?}")
    }

    fn read(&mut self, player: usize) -> Vec<CapCqe> {
        let process = self.players[player].thread.process();
        let myself = &mut self.players[player];
        let mut read = Vec::new();
        while let Reap::Completion(cqe) = myself.reaper.reap() {
            read.push(cqe);
        }
        myself.reaper.publish_for_caller();
        // The numbers of received calls are in memory, wherever their heads were written: every word may be one.
        let space = process.space.lock();
        let bytes = &space.as_ref().expect("it lives").bytes;
        let ends = endpoint(self.index).lock();
        let heads = bytes.windows(size_of::<ReceivedCall>()).filter_map(|window| {
            let call_id = ReceivedCall::from_bytes(window.try_into().ok()?).call_id;
            ends.caller_of(call_id, process.index()).map(|_| call_id)
        });
        myself.received = heads.collect();
        myself.received.sort_unstable();
        myself.received.dedup();
        read
    }

    /// Everything that stays.
    fn look(&self) -> String {
        let mut ends = endpoint(self.index).lock();
        let server = ends.first_server().map(|(server, call)| (self.number(server.thread.index()), call));
        let caller = ends.next_caller().map(|caller| self.number(caller.thread.index()));
        let may_call = self.processes.map(|process| ends.may_call(process.index()));
        let mut seen =
            format!("server {server:?} caller {caller:?} next {:?} {may_call:?}", ends.next_call());
        for player in &self.players {
            let inbox = player.thread.inbox.lock();
            seen += &format!(" | {:?} {} {:?}", inbox.waiting, inbox.in_flight(), inbox.kind());
        }
        for process in self.processes {
            let space = process.space.lock();
            let bytes = &space.as_ref().expect("it lives").bytes;
            seen += &format!(" | memory {:016x}", fingerprint(bytes));
        }
        seen
    }
}

/// The threads end, and what they waited for forgets them.
impl Drop for World {
    fn drop(&mut self) {
        self.end();
    }
}

impl World {
    /// Ends all threads; whether callers or servers are left at the endpoint then.
    fn end(&mut self) -> (bool, bool) {
        for player in &self.players {
            let ended = player.thread.inbox.lock().close(player.thread.name());
            for (awaits, waiter) in ended {
                sched::dispatch::forget(player.thread, awaits, waiter);
            }
            *player.thread.queue.lock() = None;
            assert!(player.thread.end(0).is_empty(), "nobody joins here");
        }
        if !self.players.is_empty() {
            self.players.clear();
            for process in self.processes {
                assert!(process.thread_ended(0, 0).is_some(), "as if it had one thread");
                endpoint(self.index).lock().forget(process.index(), &process.ledger);
                *process.space.lock() = None;
                while process.state.lock().caps.pop().is_some() {}
                assert!(process.ledger.is_empty(), "everything that was charged is refunded");
                process.bury();
            }
        }
        let ends = endpoint(self.index).lock();
        (ends.first_server().is_some(), ends.has_caller())
    }
}

fn fingerprint(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// Two worlds side by side, in tables that all tests of this file share.
static TABLES: Mutex<()> = Mutex::new(());

#[test]
fn the_short_cut_does_what_the_long_way_does() {
    let _alone = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    process::init();
    process::open_pools(0, 1);
    thread::init();
    let before = method::short_cuts_taken();
    let seed = std::env::var("MAINSPRING_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(0));
    let config = Config {
        cases: 1500,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed),
        ..Config::default()
    };
    let mut runner = TestRunner::new(config);
    let outcome = runner.run(&steps(), |steps| {
        let (mut long, mut short) = (World::new(0, false), World::new(1, true));
        for (number, step) in steps.iter().enumerate() {
            prop_assert_eq!(long.take(step), short.take(step), "after step {}: {:?}", number, step);
        }
        for player in 0..THREADS {
            prop_assert_eq!(long.read(player), short.read(player), "what thread {} is left to read", player);
        }
        prop_assert_eq!(long.end(), (false, false), "nobody of the dead waits");
        prop_assert_eq!(short.end(), (false, false), "nobody of the dead waits");
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}\nagain: MAINSPRING_SEED={seed} cargo test -p mainspring-machine --test exchange");
    }
    let taken = method::short_cuts_taken() - before;
    assert!(taken > 500, "the short cut was taken {taken} times only");
}

/// The usual exchange takes the short cut both ways: it is what the figures of `make bench-kernel` are about. A client's
/// first call goes the long way, because it charges the client's ledger for its share of the endpoint.
#[test]
fn a_call_and_its_answer_take_the_short_cut() {
    let _alone = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    process::init();
    process::open_pools(0, 1);
    thread::init();
    let mut world = World::new(2, true);
    let ask = |op, call| Ask {
        usual: false,
        op,
        cap: Cap::Right,
        params: (BASE, 4),
        result: (BASE + 0x100, 64),
        call,
        victim: 0,
        flags: 0,
        deadline_ns: 0,
        qos: QosFlags::default().bits(),
    };
    let enter = |player, ask| Step::Enter { player, reads: true, asks: vec![ask], waits: true };
    world.take(&enter(2, ask(op::RECV, 0)));
    for taken in [1, 2] {
        let before = method::short_cuts_taken();
        world.take(&enter(0, ask(op::CALL, 0)));
        world.take(&enter(2, ask(op::RETURN_RECV, 0)));
        assert_eq!(method::short_cuts_taken() - before, taken);
        let answered = world.read(0);
        assert_eq!((answered.len(), answered[0].result), (1, 4));
    }
}
