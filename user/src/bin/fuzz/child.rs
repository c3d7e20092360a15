//! One process of the fuzzer: threads that submit requests, spoil rings, raise exceptions, and touch what they mapped.

use crate::generate::{self, Gives, Place};
use crate::methods::{Kind, Method};
use crate::random::Random;
use crate::shared;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use mainspring_abi::kernel::{DIRECT, FOREVER, MAPPINGS, REFUSED, RING_ARENA, RING_STRIDE};
use mainspring_abi::ring::{SLOTS_OFFSET, SQE_AFTER_PREVIOUS, op, word};
use mainspring_user::arch::{self, wild};
use mainspring_user::caps::{self, ThreadOptions};

static SEED: AtomicU64 = AtomicU64::new(0);
static DEPTH: AtomicU64 = AtomicU64::new(0);
/// Threads of this process so far: each has a stream of numbers of its own.
static THREADS: AtomicU64 = AtomicU64::new(0);
/// Whether a thread sees to the process's end, so that the others may wait for ever.
static REAPED: AtomicU32 = AtomicU32::new(0);
static BASE_NS: AtomicU64 = AtomicU64::new(0);
static BASE_STAMP: AtomicU64 = AtomicU64::new(0);

/// Buffers of the threads: two pages each, for parameters and results.
const THREAD_BUFFERS: usize = 16;
const BUFFER_WORDS: usize = 1024;
#[repr(align(4096))]
struct Buffers([AtomicU64; THREAD_BUFFERS * BUFFER_WORDS]);
static BUFFERS: Buffers = Buffers([const { AtomicU64::new(0) }; THREAD_BUFFERS * BUFFER_WORDS]);

/// What a fuzzer may have, and where in [`generate`]'s tables it is.
const NAMES: &[(&str, Kind)] = &[
    ("console", Kind::Console),
    ("timer", Kind::Timer),
    ("threads", Kind::Threads),
    ("control", Kind::Control),
    ("processes", Kind::Processes),
    ("park", Kind::Park),
    ("memory", Kind::Memory),
    ("policy", Kind::Policy),
    ("info", Kind::Info),
    ("call:free", Kind::Call),
    ("call:public", Kind::Call),
    ("serve:free", Kind::Serve),
    ("serve:free", Kind::Endpoint),
    ("context:a", Kind::Context),
    ("context:b", Kind::Context),
    ("session", Kind::Session),
    ("leases", Kind::Leases),
    (ISLANDS, Kind::Islands),
    ("policy-service", Kind::PolicyService),
    (CARD, Kind::Device),
];

/// The authority to have islands admitted, for a twentieth of a CPU in each process.
pub const ISLANDS: &str = "islands:5";
/// The machine's network card.
pub const CARD: &str = "device:1af4.1041";

/// What a process is bent on, besides everything else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bent {
    /// Nothing in particular.
    Nothing,
    /// As many calls at once to the public endpoint as there can be.
    Flood,
    /// Mappings that fail after many pages, touched meanwhile by a sibling.
    Gamble,
    /// All the memory that it can get.
    Hog,
    /// One page of an object mapped again and again, as often as it can be.
    Remap,
    /// As many threads as it can get.
    Storm,
    /// As many waits with a time as it can have.
    Timers,
    /// Handles passed on, given up and used all the same.
    Handles,
    /// Calls on contexts that it binds, makes, uses up and revokes.
    Lender,
}

impl Bent {
    /// What the process with this seed is bent on.
    pub fn of(seed: u64) -> Self {
        match seed % 16 {
            1 | 10 => Self::Flood,
            3 | 11 => Self::Gamble,
            5 => Self::Hog,
            6 => Self::Remap,
            7 => Self::Storm,
            9 => Self::Timers,
            2 | 12 => Self::Handles,
            4 | 13 => Self::Lender,
            _ => Self::Nothing,
        }
    }
}

/// Where [`Bent::Gamble`] maps, and how many pages, some of which are taken already.
const GAMBLE: u64 = MAPPINGS + (1 << 34);
const GAMBLE_PAGES: u64 = 1024;

/// The place of the public endpoint in [`NAMES`].
const PUBLIC: u64 = 10;

/// How long a process lives at most, in time stamps: about a second.
const LIFE: u64 = 2_000_000_000;

/// A fuzzer with this seed, whose copies may make copies `depth` deep.
pub fn run(seed: u64, depth: u64) -> i64 {
    let mut random = Random::new(seed, u64::MAX);
    SEED.store(seed, Ordering::Relaxed);
    DEPTH.store(depth, Ordering::Relaxed);
    if caps::find("timer").is_some() {
        BASE_NS.store(caps::now(), Ordering::Relaxed);
    }
    BASE_STAMP.store(arch::stamp(), Ordering::Relaxed);
    for (place, (name, kind)) in NAMES.iter().enumerate() {
        if let Some(cap) = caps::find(name) {
            generate::learn(*kind, cap, place as u64);
            generate::learn(*kind, cap, 0);
        }
    }
    shared::attach();
    if caps::find("threads").is_some() {
        let end = arch::stamp() + LIFE / 4 + random.below(LIFE);
        let reaper = caps::spawn_raw(ThreadOptions::default(), wild::reaper_entry(), end);
        REAPED.store(u32::from(reaper.is_ok()), Ordering::Relaxed);
        for _ in 0..1 + random.below(4) {
            let argument = random.word();
            let made = caps::spawn_raw(ThreadOptions::default(), worker as *const () as u64, argument);
            if let Ok(thread) = made {
                learn_own(thread.slot(), random.below(8));
            }
        }
    }
    // From here on the library's own view of this thread's ring is stale, and not used again.
    work(RING_ARENA);
    i64::from(random.once_in(2))
}

/// Remembers a thread of this process, and with it the process's own slot.
fn learn_own(slot: u32, place: u64) {
    generate::learn_slot(Kind::Thread, slot, place);
    if caps::find("info").is_some()
        && let Ok(process) = caps::thread_info(slot, |info| info.get_process())
    {
        generate::learn_own_process(process);
    }
}

extern "C" fn worker(argument: u64, ring: u64, _block: u64) -> ! {
    if argument.is_multiple_of(7) {
        arch::exit(0, argument as i64);
    }
    work(ring);
    // Ends the thread, and now and then the process.
    arch::exit(u64::from(argument.is_multiple_of(5)), 5)
}

struct Worker {
    random: Random,
    ring: u64,
    /// Where this thread's buffers are.
    buffer: usize,
    tail: u32,
    now: u64,
}

fn work(ring: u64) {
    let number = THREADS.fetch_add(1, Ordering::Relaxed);
    let mut random = Random::new(SEED.load(Ordering::Relaxed), number);
    let budget = 20 + random.below(1500);
    let tail = arch::ring_word(ring, word::SQ_TAIL).load(Ordering::Relaxed);
    let buffer = (number as usize % THREAD_BUFFERS) * BUFFER_WORDS;
    let mut worker = Worker { random, ring, buffer, tail, now: 0 };
    for _ in 0..budget {
        worker.step();
        if shared::read(shared::STOP) != 0 {
            break;
        }
    }
}

/// Counts calls for the boss.
fn count(calls: u64) {
    shared::count(shared::CALLS, calls);
}

impl Worker {
    fn step(&mut self) {
        let passed = arch::stamp().wrapping_sub(BASE_STAMP.load(Ordering::Relaxed));
        self.now = BASE_NS.load(Ordering::Relaxed) + passed / 2;
        if Bent::of(SEED.load(Ordering::Relaxed)) != Bent::Nothing && self.random.once_in(3) {
            return self.special();
        }
        match self.random.below(1000) {
            0..850 => self.requests(),
            850..900 => self.direct(),
            900..930 => self.odd(),
            930..960 => self.spoil_ring(),
            960..970 => {
                let registers = [self.random.word(), self.random.word(), self.random.word()];
                if registers[0] > 1 {
                    let _ = arch::any_call(registers[0], registers[1], registers[2]);
                    count(1);
                }
            }
            970..974 => {
                let at = generate::mapped(&mut self.random);
                if at != 0 && !self.random.once_in(8) {
                    wild::any_word(at).fetch_xor(0x00ff_00ff_00ff_00ff, Ordering::Relaxed);
                }
            }
            974..985 => self.withdraw(),
            985..999 => arch::spin(self.random.below(20_000)),
            _ if self.random.once_in(3) => {
                let (which, value) = (self.random.below(u64::from(wild::FAULTS)) as u32, self.address());
                wild::fault(which, value);
            }
            _ => {}
        }
    }

    /// Something of what the process is bent on.
    fn special(&mut self) {
        let (kind, method, fields, number) = match Bent::of(SEED.load(Ordering::Relaxed)) {
            Bent::Nothing => return self.requests(),
            _ if self.random.once_in(4) => return self.withdraw(),
            Bent::Flood => (Kind::Call, 0, [self.random.word(), 0, 0], 30),
            Bent::Gamble if self.random.once_in(3) => {
                // Either there is nothing, and the process ends, or it is reached for as long as it is.
                arch::spin(self.random.below(400_000));
                if self.random.once_in(6) {
                    let at = GAMBLE + 4096 * self.random.below(24);
                    for _ in 0..20_000 {
                        wild::any_word(at).fetch_add(1, Ordering::Relaxed);
                        arch::spin(50);
                    }
                }
                return;
            }
            Bent::Gamble => {
                // Two places that are taken, so that it fails early or late.
                let taken = self.random.one_of(&[GAMBLE_PAGES - 1, 40]);
                let last = self.random.once_in(8);
                let at = if last { GAMBLE + taken * 4096 } else { GAMBLE };
                let pages = if last { 1 } else { GAMBLE_PAGES };
                (Kind::Memory, 0, [at, pages | 1 << 32, 0], 1)
            }
            Bent::Hog => {
                let method = if self.random.once_in(2) { 0 } else { 3 };
                (Kind::Memory, method, [0, (2048 + self.random.below(6145)) | 1 << 32, 0], 1)
            }
            Bent::Remap => {
                let object = u64::from(caps::find("pages").unwrap_or(0));
                (Kind::Memory, 4, [object | 1 << 32, 0, 0], 30)
            }
            Bent::Storm => (Kind::Threads, 0, [wild::leaf_entry(), 0, 0], 30),
            Bent::Lender => return self.lend(),
            Bent::Timers => (Kind::Timer, 1, [self.now + self.random.below(100_000), 0, 0], 16),
            Bent::Handles => {
                // Started, granted to another process, given up, and used again.
                self.submit_spawn();
                let method = self.random.one_of(&[0_u16, 1, 1, 1, 1, 2]);
                (Kind::Process, method, [1, 0, 0], 8)
            }
        };
        let words = match (kind, method) {
            (Kind::Call, _) => 4,
            (Kind::Threads, _) | (Kind::Memory, 4) => 2,
            (Kind::Process, _) | (Kind::Timer, _) => 2,
            _ => 3,
        };
        let place = self.buffer + 3 * 132;
        BUFFERS.0[place].store((words - 1) << 32, Ordering::Relaxed);
        for (word, field) in BUFFERS.0[place + 1..].iter().zip(fields) {
            word.store(field, Ordering::Relaxed);
        }
        let params = BUFFERS.0[place].as_ptr() as u64;
        let result = BUFFERS.0[self.buffer + BUFFER_WORDS - 160].as_ptr() as u64;
        let asks = Method::find(kind, method);
        for _ in 0..number {
            asks.into_iter().for_each(shared::asked);
            let cap = if kind == Kind::Call {
                generate::known(kind, PUBLIC)
            } else {
                generate::cap(&mut self.random, kind)
            };
            let target = u64::from(cap) | u64::from(op::CALL) << 32 | u64::from(method) << 48;
            self.push([0, target, 0, params, (8 * words) | (1060 << 32), result, 0, 0]);
        }
        count(number);
        self.enter();
    }

    /// A context is bound, made, revoked or used up; or a call is made that lends it, which ends in whatever way it does.
    fn lend(&mut self) {
        let method = match self.random.below(16) {
            0..3 => 2,
            3..5 => 0,
            5 => self.random.one_of(&[3, 4, 5, 7]),
            6 => return arch::spin(self.random.below(100_000)),
            _ => {
                let cap = match self.random.below(4) {
                    0 => generate::cap(&mut self.random, Kind::Call),
                    _ => generate::known(Kind::Call, PUBLIC),
                };
                let message = BUFFERS.0[self.buffer].as_ptr() as u64;
                let result = BUFFERS.0[self.buffer + BUFFER_WORDS - 160].as_ptr() as u64;
                let room = if self.random.once_in(8) { 2 } else { 1060 };
                let target = u64::from(cap) | u64::from(op::CALL) << 32;
                self.push([0, target, 0, message, 8 | (room << 32), result, 0, 0]);
                count(1);
                // It waits for the answer alone, and not for ever.
                let _ = arch::cap_enter(1, 1 + self.random.below(3_000_000));
                return self.reap();
            }
        };
        let params = generate::context(&mut self.random);
        let place = self.buffer + 2 * 132;
        for (word, value) in BUFFERS.0[place..].iter().zip(params.words()) {
            word.store(*value, Ordering::Relaxed);
        }
        let cap = u64::from(generate::cap(&mut self.random, Kind::Context));
        let target = cap | u64::from(op::CALL) << 32 | u64::from(method) << 48;
        let asks = Method::find(Kind::Context, method);
        asks.into_iter().for_each(shared::asked);
        let tag = generate::tag(asks, 0);
        let result = BUFFERS.0[self.buffer + BUFFER_WORDS - 160].as_ptr() as u64;
        let lengths = (8 * params.words().len() as u64) | (256 << 32);
        self.push([tag, target, 0, BUFFERS.0[place].as_ptr() as u64, lengths, result, 0, 0]);
        count(1);
        self.enter();
    }

    /// A request for another process, which may be granted handles of others.
    fn submit_spawn(&mut self) {
        let depth = DEPTH.load(Ordering::Relaxed);
        if depth == 0 || !self.random.once_in(2) {
            return;
        }
        let short = !self.random.once_in(8);
        let params = generate::process(&mut self.random, depth, short);
        let place = self.buffer + 2 * 132;
        for (word, value) in BUFFERS.0[place..].iter().zip(params.words()) {
            word.store(*value, Ordering::Relaxed);
        }
        let cap = u64::from(generate::cap(&mut self.random, Kind::Processes));
        let target = cap | u64::from(op::CALL) << 32;
        let result = BUFFERS.0[self.buffer + BUFFER_WORDS - 160].as_ptr() as u64;
        let lengths = (8 * params.words().len() as u64) | (64 << 32);
        let asks = Method::find(Kind::Processes, 0);
        asks.into_iter().for_each(shared::asked);
        self.push([
            generate::tag(asks, 0),
            target,
            0,
            BUFFERS.0[place].as_ptr() as u64,
            lengths,
            result,
            0,
            0,
        ]);
        self.enter();
    }

    fn address(&mut self) -> u64 {
        let own = BUFFERS.0[self.buffer].as_ptr() as u64;
        generate::address(&mut self.random, own)
    }

    /// How long to wait: for ever only if another process ends this one.
    fn timeout(&mut self) -> u64 {
        match self.random.below(40) {
            0 if REAPED.load(Ordering::Relaxed) != 0 => FOREVER - self.random.below(3),
            1 => self.random.below(1_000_000),
            2..10 => self.random.below(20_000),
            _ => 0,
        }
    }

    fn enter(&mut self) {
        let min = match self.random.below(16) {
            0 => generate::edge(&mut self.random) & !DIRECT,
            1..5 => 0,
            _ => 1,
        };
        let timeout = self.timeout();
        let answer = arch::cap_enter(min, timeout);
        self.reap();
        if answer & REFUSED != 0 {
            shared::count(shared::BAD_RING, 1);
            self.heal();
        }
    }

    /// A few requests, then one entry.
    fn requests(&mut self) {
        let most = if self.random.once_in(20) { 40 } else { 4 };
        let number = 1 + self.random.below(most);
        for place in 0..number {
            self.submit(place % 4);
        }
        count(number);
        self.enter();
    }

    /// One request into the ring. Its parameters lie in the lower half of the thread's buffer, results in the upper.
    fn submit(&mut self, place: u64) {
        let random = &mut self.random;
        let depth = if random.once_in(8) { DEPTH.load(Ordering::Relaxed) } else { 0 };
        let own = BUFFERS.0[self.buffer].as_ptr() as u64;
        let made_from = Place { now: self.now, own, depth, entry: worker as *const () as u64 };
        let request = generate::request(random, made_from);
        let at = self.buffer + place as usize * 132;
        for (word, value) in BUFFERS.0[at..].iter().zip(request.params.words()) {
            word.store(*value, Ordering::Relaxed);
        }
        let result = self.buffer + BUFFER_WORDS - 160 * (1 + place as usize % 3);
        let mut params_addr = BUFFERS.0[at].as_ptr() as u64;
        let mut result_addr = BUFFERS.0[result].as_ptr() as u64;
        let mut params_len = 8 * request.params.words().len() as u64;
        let mut result_len = 1060;
        match random.below(40) {
            0 => params_addr = generate::address(random, params_addr),
            1 => result_addr = generate::address(random, result_addr),
            2 => params_len = generate::edge(random) & 0xffff_ffff,
            3 => result_len = generate::edge(random) & 0xffff_ffff,
            // One on top of the other.
            4 => result_addr = params_addr + random.below(16),
            5 => params_len = params_len.saturating_sub(random.below(16)),
            _ => {}
        }
        let cap = generate::cap(random, request.kind);
        let flags = match random.below(60) {
            0 => random.word() & 0xffff_ffff,
            1..6 => u64::from(SQE_AFTER_PREVIOUS),
            _ => 0,
        };
        let call_id = u64::from(generate::call_id(random));
        let (deadline, qos, context) = match random.below(30) {
            0 => (generate::time(random, self.now), random.below(64), 0),
            1 => (generate::time(random, self.now), random.word() & 0xffff_ffff, random.below(100)),
            3 => (0, 0, random.below(100)),
            2 => (generate::time(random, self.now), 0, 0),
            _ => (0, 0, 0),
        };
        let (operation, method, user_data) = match random.below(40) {
            // Withdraws one of the last requests.
            0 => (op::CANCEL, 0, 0),
            1 => (op::NOP, 0, 0),
            _ => {
                if let Some(method) = request.asks {
                    shared::asked(method);
                }
                (request.op, request.method, generate::tag(request.asks, place))
            }
        };
        if operation == op::CANCEL {
            let (kind, number) = random.one_of(generate::WAITING);
            params_addr = generate::tag(Method::find(kind, number), random.below(4));
        }
        let words = [
            user_data,
            u64::from(cap) | u64::from(operation) << 32 | u64::from(method) << 48,
            flags | call_id << 32,
            params_addr,
            params_len | result_len << 32,
            result_addr,
            deadline,
            qos | context << 32,
        ];
        self.push(words);
    }

    /// Puts an entry into the ring.
    fn push(&mut self, words: [u64; 8]) {
        let slot = (SLOTS_OFFSET / 4) + (self.tail % 32) as usize * 16;
        for (at, value) in words.iter().enumerate() {
            arch::ring_word(self.ring, slot + 2 * at).store(*value as u32, Ordering::Relaxed);
            arch::ring_word(self.ring, slot + 2 * at + 1).store((*value >> 32) as u32, Ordering::Relaxed);
        }
        self.tail = self.tail.wrapping_add(1);
        arch::ring_word(self.ring, word::SQ_TAIL).store(self.tail, Ordering::Release);
    }

    /// Reads completions, and remembers what they brought.
    fn reap(&mut self) {
        let tail = arch::ring_word(self.ring, word::CQ_TAIL).load(Ordering::Acquire);
        let mut head = arch::ring_word(self.ring, word::CQ_HEAD).load(Ordering::Relaxed);
        if tail.wrapping_sub(head) > 64 {
            head = tail;
        }
        while head != tail {
            let slot = (SLOTS_OFFSET + 32 * 64) / 4 + (head % 64) as usize * 4;
            let read = |at| arch::ring_word(self.ring, slot + at).load(Ordering::Relaxed);
            let (user_data, error) = (u64::from(read(0)), read(3) & 0xffff);
            shared::count(if error == 0 { shared::DONE } else { shared::REFUSED }, 1);
            if error == 0 {
                self.remember(user_data);
            }
            head = head.wrapping_add(1);
        }
        arch::ring_word(self.ring, word::CQ_HEAD).store(head, Ordering::Release);
    }

    fn remember(&mut self, user_data: u64) {
        let (Some(method), place) = generate::tagged(user_data) else { return };
        shared::done(method);
        let result = self.buffer + BUFFER_WORDS - 160 * (1 + place as usize % 3);
        let [first, second, third] = [0, 1, 2].map(|word| BUFFERS.0[result + word].load(Ordering::Relaxed));
        let place = self.random.below(8);
        match Gives::by(method) {
            Gives::Nothing => {}
            Gives::Cap(kind) => generate::learn(kind, second as u32, place),
            Gives::Handle(kind) => {
                generate::learn(kind, second as u32, place);
                generate::learn_slot(kind, (second >> 32) as u32, place);
                if kind == Kind::Process {
                    shared::count(shared::STARTED, 1);
                }
            }
            Gives::Address => generate::learn_address(second, self.random.below(32)),
            Gives::Call => generate::learn_call(first as u32, self.random.below(16)),
            Gives::Epoch => generate::learn_epoch(third),
        }
    }

    /// Withdraws what is in flight: else there is soon no room for anything that waits.
    fn withdraw(&mut self) {
        let first = self.random.below(4);
        for place in [first, first ^ 1] {
            for (kind, number) in generate::WAITING {
                let named = generate::tag(Method::find(*kind, *number), place);
                let target = u64::from(op::CANCEL) << 32;
                self.push([u64::MAX << 32, target, 0, named, 0, 0, 0, 0]);
            }
            count(generate::WAITING.len() as u64);
            let _ = arch::cap_enter(0, 0);
            self.reap();
        }
    }

    /// A request in registers.
    fn direct(&mut self) {
        let random = &mut self.random;
        let (op, kind) = random.one_of(&[
            (op::CALL, Kind::Call),
            (op::RETURN_RECV, Kind::Serve),
            (op::CALL, Kind::Serve),
            (9, Kind::Call),
        ]);
        let len = if random.once_in(8) { random.below(0x8000) } else { random.below(33) };
        let mut request = DIRECT | len << 48 | u64::from(op) << 32 | u64::from(generate::cap(random, kind));
        if random.once_in(16) {
            request = DIRECT | random.word();
        }
        // An answer waits for the next call: for ever, unless another process ends this one.
        if REAPED.load(Ordering::Relaxed) == 0 {
            return;
        }
        let call_id = generate::call_id(random);
        let (answer, head, _) = arch::cap_enter_direct(request, call_id, [random.word(); 4]);
        if answer & REFUSED == 0 && op == op::RETURN_RECV {
            generate::learn_call(head.call_id, random.below(16));
        }
        count(1);
    }

    /// An entry with flags, a stack pointer and control words that no compiled program has.
    fn odd(&mut self) {
        let flags =
            0x202 | self.random.one_of(&[0, 0x400, 0x4000, 0x4_0000, 0x1_0000, 0x20_0000, 0x3000, 0x8_4cd5]);
        let (stack, mxcsr) = (self.address(), self.random.word() as u32);
        let control = self.random.word() as u16;
        for place in 0..self.random.below(3) {
            self.submit(place);
        }
        let timeout = self.timeout();
        let _ = wild::odd_call([0, self.random.below(2), timeout], flags, stack, mxcsr, control);
        count(1);
        self.reap();
    }

    /// Writes over a word of a ring: this thread's, or another's while it may be being read.
    fn spoil_ring(&mut self) {
        let random = &mut self.random;
        let other = RING_ARENA + random.below(6) * RING_STRIDE;
        let mine = random.once_in(2) || THREADS.load(Ordering::Relaxed) < 2;
        // A ring of a place that no thread ever had is not mapped: its first three are, if there are threads.
        let ring = if mine || REAPED.load(Ordering::Relaxed) == 0 {
            self.ring
        } else {
            other.min(RING_ARENA + 2 * RING_STRIDE)
        };
        let header = [
            word::MAGIC,
            word::ABI_VERSION,
            word::ENTRY_SIZES,
            word::SQ_ENTRIES,
            word::CQ_ENTRIES,
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
        let index = if random.once_in(3) { random.below(1024) as usize } else { random.one_of(&header) };
        let at = arch::ring_word(ring, index);
        let before = at.load(Ordering::Relaxed);
        let value = match random.below(4) {
            0 => random.word() as u32,
            1 => before.wrapping_add(random.below(70) as u32),
            2 => before.wrapping_sub(random.below(3) as u32),
            _ => generate::edge(random) as u32,
        };
        at.store(value, Ordering::Relaxed);
        self.enter();
        if mine && index < SLOTS_OFFSET / 4 && index != word::SQ_HEAD && index != word::CQ_TAIL {
            arch::ring_word(self.ring, index).store(before, Ordering::Relaxed);
        }
        count(1);
    }

    /// Makes this thread's ring usable again after a thread wrote over it.
    fn heal(&mut self) {
        let ring = |index| arch::ring_word(self.ring, index);
        ring(word::ABI_VERSION).store(2, Ordering::Relaxed);
        ring(word::ENTRY_SIZES).store(64 | 16 << 16, Ordering::Relaxed);
        ring(word::CQ_HEAD).store(ring(word::CQ_TAIL).load(Ordering::Relaxed), Ordering::Relaxed);
        if self.random.once_in(2) {
            self.tail = ring(word::SQ_HEAD).load(Ordering::Relaxed);
        }
        ring(word::SQ_TAIL).store(self.tail, Ordering::Relaxed);
    }
}
