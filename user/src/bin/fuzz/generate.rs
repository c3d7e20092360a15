//! Requests: right ones, nearly right ones, and ones that are not right at all.

mod devices;
mod islands;
mod leases;
mod policy;

use crate::methods::{KINDS, Kind, Method};
use crate::random::Random;
use capnp::Word;
use capnp::message::{Builder, SingleSegmentAllocator};
use capnp::traits::Owned;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use mainspring_abi::kernel::{DATA, MAPPINGS, RING_ARENA, RING_STRIDE, STACK_STRIDE, STACKS, STARTUP};
use mainspring_abi::ring::op;
use mainspring_user::arch::wild;
use mainspring_user::schema;

pub use policy::{learn_epoch, learn_own_process};

const EACH: usize = 8;

/// The capabilities that the process has or had, by kind: those that were given up are kept on purpose.
static CAPS: [[AtomicU32; EACH]; KINDS] = [const { [const { AtomicU32::new(0) }; EACH] }; KINDS];
/// Addresses that were mapped.
static MAPPED: [AtomicU64; 32] = [const { AtomicU64::new(0) }; 32];
/// Slots of threads and processes that this process has made.
static THREAD_SLOTS: [AtomicU32; EACH] = [const { AtomicU32::new(u32::MAX) }; EACH];
static PROCESS_SLOTS: [AtomicU32; EACH] = [const { AtomicU32::new(u32::MAX) }; EACH];
/// Calls that were received.
static RECEIVED: [AtomicU32; 16] = [const { AtomicU32::new(0) }; 16];

/// Remembers a capability.
pub fn learn(kind: Kind, cap: u32, place: u64) {
    CAPS[kind as usize][place as usize % EACH].store(cap, Ordering::Relaxed);
}

/// Remembers an address.
pub fn learn_address(address: u64, place: u64) {
    MAPPED[place as usize % MAPPED.len()].store(address, Ordering::Relaxed);
}

/// Remembers the slot of a thread or process that was made.
pub fn learn_slot(kind: Kind, slot: u32, place: u64) {
    let slots = if kind == Kind::Thread { &THREAD_SLOTS } else { &PROCESS_SLOTS };
    slots[place as usize % EACH].store(slot, Ordering::Relaxed);
}

/// Remembers a received call.
pub fn learn_call(call_id: u32, place: u64) {
    RECEIVED[place as usize % RECEIVED.len()].store(call_id, Ordering::Relaxed);
}

/// A mapped address, or one that was.
pub fn mapped(random: &mut Random) -> u64 {
    let start = random.below(MAPPED.len() as u64) as usize;
    let (later, sooner) = (&MAPPED[start..], &MAPPED[..start]);
    let all = later.iter().chain(sooner).map(|one| one.load(Ordering::Relaxed));
    all.into_iter().find(|one| *one != 0).unwrap_or(0)
}

/// A capability of this kind, or one that was; sometimes one of another kind, of another generation, or a number
/// that names none.
pub fn cap(random: &mut Random, kind: Kind) -> u32 {
    let kind = if random.once_in(60) { random.below(KINDS as u64) as usize } else { kind as usize };
    let known = one_of(random, &CAPS[kind]);
    match random.below(160) {
        0 => known ^ 0x1_0000,
        1 => known.wrapping_add(0xffff_0000),
        2 => known ^ random.below(128) as u32,
        3 => random.word() as u32,
        _ => known,
    }
}

/// One of what was remembered, if there is anything.
fn one_of(random: &mut Random, known: &[AtomicU32]) -> u32 {
    let start = random.below(known.len() as u64) as usize;
    let (later, sooner) = (&known[start..], &known[..start]);
    let all = later.iter().chain(sooner).map(|one| one.load(Ordering::Relaxed));
    all.into_iter().find(|one| *one != 0).unwrap_or(0)
}

/// The capability that was remembered in this place.
pub fn known(kind: Kind, place: u64) -> u32 {
    CAPS[kind as usize][place as usize % EACH].load(Ordering::Relaxed)
}

/// A number at the edge of something.
pub fn edge(random: &mut Random) -> u64 {
    let base = match random.below(12) {
        0 => 0,
        1 => u64::MAX,
        2 => 1 << 63,
        3 => 1 << 32,
        4 => 1 << 31,
        5 => 0x1_0000,
        6 => 1 << random.below(64),
        7 => 4096,
        8 => 16_384,
        9 => 8192,
        10 => 1024,
        _ => return random.word(),
    };
    base.wrapping_add(random.below(5)).wrapping_sub(2)
}

/// An address: of this process's memory, near the end of it, or of other memory.
pub fn address(random: &mut Random, own: u64) -> u64 {
    let place = random.below(12);
    match random.below(20) {
        0..8 => own,
        8 => own + random.below(4096),
        // Across the end of the buffer's last page.
        9 => (own | 0xfff) - random.below(40),
        10 | 11 => mapped(random) + random.below(3) * 2048,
        12 => 0x40_0000 + random.below(0x8000),
        13 => RING_ARENA + place * RING_STRIDE + random.below(2) * 4096 + random.below(4096),
        // The stack of another thread, its guard page, and what is above its top.
        14 => STACKS + place * STACK_STRIDE + random.below(0x1_2000),
        15 => random.one_of(&[STARTUP, DATA, MAPPINGS, STACKS]) + random.below(8192),
        16 => random
            .one_of(&[0_u64, 0x7fff_ffff_0000, 0x7fff_ffff_f000, 0x8000_0000_0000])
            .wrapping_sub(random.below(64)),
        17 => {
            random.one_of(&[0xffff_8000_0000_0000, 0xffff_c000_0000_0000, 0xffff_ffff_8010_0000])
                + random.below(1 << 21)
        }
        18 => u64::MAX - random.below(64),
        _ => edge(random),
    }
}

/// A time: long ago, now, soon, never, and what is said to be none.
pub fn time(random: &mut Random, now: u64) -> u64 {
    match random.below(10) {
        0 => 0,
        1 => 1,
        2 => u64::MAX - random.below(4),
        3 => now,
        4 => edge(random),
        _ => now + random.below(2_000_000),
    }
}

/// A page of this process to be named in `VirtualMemory`'s requests.
fn page(random: &mut Random) -> u64 {
    match random.below(8) {
        0 => 0,
        // Not the first page: that is shared with the boss.
        1 => MAPPINGS + (1 + random.below(64)) * 4096,
        2 => STACKS - random.below(4) * 4096,
        3 => address(random, MAPPINGS),
        4..6 => mapped(random),
        _ => mapped(random) + random.below(4) * 4096,
    }
}

fn pages(random: &mut Random) -> u64 {
    match random.below(16) {
        0 => edge(random) & 0xffff_ffff,
        1 => random.below(8193),
        2 => 16_384 - random.below(3),
        3 => random.below(600),
        _ => 1 + random.below(8),
    }
}

fn access(random: &mut Random) -> u64 {
    match random.below(16) {
        0 => random.word() & 0xffff,
        1..9 => 1,
        _ => random.below(3),
    }
}

/// Words of a request.
pub struct Params {
    words: [u64; WORDS],
    len: usize,
}

/// As many as the kernel accepts, and a few more.
pub const WORDS: usize = 132;

impl Params {
    fn with(data: &[u64], pointers: u64) -> Self {
        let mut words = [0; WORDS];
        words[0] = (data.len() as u64) << 32 | pointers << 48;
        words[1..=data.len()].copy_from_slice(data);
        Self { words, len: data.len() + 1 }
    }

    /// Those of kind `P`; none if they are too long.
    fn of<P: Owned>(fill: impl FnOnce(P::Builder<'_>)) -> Self {
        let mut words = [const { capnp::word(0, 0, 0, 0, 0, 0, 0, 0) }; WORDS];
        let mut message = Builder::new(SingleSegmentAllocator::new(Word::words_to_bytes_mut(&mut words)));
        fill(message.init_root::<P::Builder<'_>>());
        let segments = message.get_segments_for_output();
        let mut params = Self::none();
        if let [bytes] = segments[..] {
            for (word, bytes) in params.words.iter_mut().zip(bytes.as_chunks::<8>().0) {
                *word = u64::from_le_bytes(*bytes);
                params.len += 1;
            }
        }
        params
    }

    /// None at all.
    fn none() -> Self {
        Self { words: [0; WORDS], len: 0 }
    }

    /// A text after what is there, and a pointer to it in word `from`.
    fn text(&mut self, from: usize, text: &[u8]) {
        let count = text.len() as u64 + 1;
        self.words[from] = 1 | ((self.len - from - 1) as u64) << 2 | 2 << 32 | count << 35;
        for (at, byte) in text.iter().enumerate() {
            self.words[self.len + at / 8] |= u64::from(*byte) << (8 * (at % 8));
        }
        self.len += (text.len() + 1).div_ceil(8);
    }

    /// The words.
    pub fn words(&self) -> &[u64] {
        &self.words[..self.len.min(WORDS)]
    }

    /// Makes it nearly right, or worse.
    fn spoil(&mut self, random: &mut Random) {
        let any = random.below(self.len.max(1) as u64 + 1) as usize;
        match random.below(8) {
            // A pointer to itself, to another segment, backwards, far beyond the end.
            0 => self.words[any] = 0xffff_fffc | random.word() << 32,
            1 => self.words[any] = random.word() & !3 | 2,
            2 => self.words[0] = random.word(),
            3 => self.words[any] = edge(random),
            // More data and pointers than there are.
            4 => self.words[0] |= 0xffff << (32 + 16 * random.below(2)),
            // A list of lists, each of which is the first one again.
            5 => {
                for at in 0..WORDS {
                    self.words[at] = 1 | 0x3fff_ffff << 2 | 6 << 32 | 1 << 35;
                }
                self.len = 8 + random.below(124) as usize;
            }
            6 => self.words[any] ^= 1 << random.below(64),
            _ => self.len = random.below(WORDS as u64 + 1) as usize,
        }
        self.len = self.len.clamp(0, WORDS);
    }
}

/// What a successful request gives back, for the process to remember.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gives {
    Nothing,
    /// A capability of this kind, which stands first in the result.
    Cap(Kind),
    /// The same, and then a slot.
    Handle(Kind),
    Address,
    Call,
    Epoch,
}

impl Gives {
    /// What a method gives.
    pub fn by(method: Method) -> Self {
        match (method.kind(), method.number()) {
            (Kind::Threads, 0) => Self::Handle(Kind::Thread),
            (Kind::Processes, 0) => Self::Handle(Kind::Process),
            (Kind::Memory, 0 | 4) => Self::Address,
            (Kind::Memory, 3) => Self::Cap(Kind::Object),
            (Kind::Context, 0) => Self::Cap(Kind::Context),
            (Kind::Leases, 0) => Self::Cap(Kind::Lease),
            (Kind::Islands, 0) => Self::Cap(Kind::Island),
            (Kind::Device, 2) => Self::Cap(Kind::DeviceMemory),
            (Kind::Device, 3) => Self::Cap(Kind::Dma),
            (Kind::Device, 4) => Self::Cap(Kind::Interrupt),
            (Kind::PolicyService, 0 | 2 | 3) => Self::Epoch,
            (Kind::Serve, 0 | 2) => Self::Call,
            _ => Self::Nothing,
        }
    }
}

/// The methods that wait for something.
pub const WAITING: &[(Kind, u16)] = &[
    (Kind::Timer, 1),
    (Kind::Thread, 0),
    (Kind::Park, 0),
    (Kind::Process, 0),
    (Kind::Context, 6),
    (Kind::Interrupt, 0),
    (Kind::Call, 0),
    (Kind::Serve, 0),
    (Kind::Serve, 2),
];

/// What stands in a request's `user_data`, so that its completion says which it was: the method, or 0 for one that nobody
/// asks about, and where its result is.
pub fn tag(method: Option<Method>, place: u64) -> u64 {
    method.map_or(0, |method| method.index() as u64 + 1) | place << 8
}

/// What a [`tag`] says.
pub fn tagged(user_data: u64) -> (Option<Method>, u64) {
    let index = (user_data & 0xff) as usize;
    (index.checked_sub(1).and_then(|index| Method::all().nth(index)), user_data >> 8 & 0xff)
}

/// A request before it gets its addresses.
pub struct Request {
    /// On what.
    pub kind: Kind,
    /// One of [`op`].
    pub op: u16,
    /// Which method.
    pub method: u16,
    /// Its parameters.
    pub params: Params,
    /// What it is in the table, unless it is in none.
    pub asks: Option<Method>,
}

/// What requests are made from.
#[derive(Clone, Copy)]
pub struct Place {
    /// The time.
    pub now: u64,
    /// Memory of the thread's own.
    pub own: u64,
    /// How deep copies may make copies.
    pub depth: u64,
    /// Where a new thread of the fuzzer begins.
    pub entry: u64,
}

/// A request; most often for something that the process has.
pub fn request(random: &mut Random, place: Place) -> Request {
    let mut made = any_request(random, place);
    for _ in 0..4 {
        if CAPS[made.kind as usize].iter().any(|cap| cap.load(Ordering::Relaxed) != 0) {
            break;
        }
        made = any_request(random, place);
    }
    made
}

/// Kinds of what is asked for anything.
const ASKED_ANYTHING: &[Kind] = &[
    Kind::Console,
    Kind::Timer,
    Kind::Control,
    Kind::Processes,
    Kind::Park,
    Kind::Memory,
    Kind::Policy,
    Kind::Info,
    Kind::Call,
    Kind::Serve,
    Kind::Context,
    Kind::Session,
    Kind::Leases,
    Kind::Lease,
    Kind::Islands,
    Kind::Island,
    Kind::PolicyService,
    Kind::Device,
    Kind::DeviceMemory,
    Kind::Dma,
    Kind::Interrupt,
    Kind::Endpoint,
];

/// Any request.
fn any_request(random: &mut Random, place: Place) -> Request {
    let (kind, method, mut params, asks) = match random.below(40) {
        0 => {
            let fields = [edge(random), edge(random), edge(random), edge(random)];
            let params = Params::with(&fields[..random.below(5) as usize], random.below(3));
            (random.one_of(ASKED_ANYTHING), random.below(10) as u16, params, None)
        }
        1 => {
            let kind = random.one_of(&[Kind::Object, Kind::Thread, Kind::Process]);
            (kind, random.word() as u16, Params::none(), None)
        }
        _ => {
            let mut method = Method::drawn(random.word());
            // Copies are made only so deep, and a session ends once: so its end is rare.
            let rare = match (method.kind(), method.number()) {
                (Kind::Processes, _) => place.depth == 0,
                (Kind::Session, 1) => !random.once_in(8),
                _ => false,
            };
            if rare {
                method = Method::find(Kind::Timer, 0).unwrap_or(method);
            }
            if matches!(method.kind(), Kind::Call | Kind::Serve) {
                return endpoint(random, method);
            }
            (method.kind(), method.number(), parameters(random, method, place), Some(method))
        }
    };
    // A thread that begins nowhere stops its process: that is tried too, but not all the time.
    if random.once_in(if kind == Kind::Threads { 2000 } else { 12 }) {
        params.spoil(random);
    }
    let op = match random.below(200) {
        0 => random.below(8) as u16,
        1 => random.word() as u16,
        _ => op::CALL,
    };
    let method = if random.once_in(200) { random.word() as u16 } else { method };
    Request { kind, op, method, params, asks }
}

/// The parameters of a method. Each interface's methods are all of the schema's: one that is new does not compile until it has
/// parameters here.
fn parameters(random: &mut Random, method: Method, place: Place) -> Params {
    let Place { now, own, depth, entry } = place;
    let (with, none) = (Params::with, Params::none);
    let made = match method.kind() {
        Kind::Console => method.in_schema().map(|method| match method {
            schema::ConsoleMethod::Write | schema::ConsoleMethod::Read => none(),
            schema::ConsoleMethod::Note => with(&[edge(random), edge(random)], 0),
        }),
        Kind::Timer => method.in_schema().map(|method| match method {
            schema::TimerMethod::Now => none(),
            schema::TimerMethod::Sleep => with(&[time(random, now)], 0),
        }),
        Kind::Threads => method.in_schema().map(|method| match method {
            schema::ThreadSpawnerMethod::Create => thread(random, entry),
        }),
        Kind::Control => method.in_schema().map(|method| match method {
            schema::ThreadControlMethod::SetFsBase => with(&[address(random, own)], 0),
            schema::ThreadControlMethod::Yield => none(),
        }),
        Kind::Thread => method.in_schema().map(|method| match method {
            schema::ThreadHandleMethod::Join => with(&[time(random, now)], 0),
            schema::ThreadHandleMethod::Detach | schema::ThreadHandleMethod::Kill => none(),
        }),
        Kind::Park => method.in_schema().map(|method| match method {
            schema::ParkSpaceMethod::Wait => {
                with(&[address(random, own) & !3, random.below(2), time(random, now)], 0)
            }
            schema::ParkSpaceMethod::Wake => with(&[address(random, own) & !3, edge(random)], 0),
        }),
        Kind::Processes => method.in_schema().map(|method| match method {
            schema::ProcessSpawnerMethod::Spawn => process(random, depth, false),
        }),
        Kind::Process => method.in_schema().map(|method| match method {
            schema::ProcessHandleMethod::Wait => with(&[time(random, now)], 0),
            schema::ProcessHandleMethod::Kill | schema::ProcessHandleMethod::Detach => none(),
        }),
        Kind::Memory => method.in_schema().map(|method| memory(random, method)),
        Kind::Policy => method.in_schema().map(|method| match method {
            schema::SchedulingPolicyMethod::SetWeight => with(&[edge(random)], 0),
            schema::SchedulingPolicyMethod::SetLatencyClass => with(&[random.below(5)], 0),
            schema::SchedulingPolicyMethod::Snapshot => none(),
            schema::SchedulingPolicyMethod::SetWeightOf => {
                with(&[u64::from(cap(random, Kind::Thread)), small_or_edge(random, 4096)], 0)
            }
        }),
        Kind::Info => method.in_schema().map(|method| info(random, method)),
        Kind::Context => method.in_schema().map(|method| context_method(random, method, now)),
        Kind::Session => method.in_schema().map(|method| match method {
            schema::UserSessionMethod::Info
            | schema::UserSessionMethod::Logout
            | schema::UserSessionMethod::Enter => none(),
        }),
        Kind::Leases => method.in_schema().map(|method| match method {
            schema::CpuIsolationMethod::Grant => leases::grant(random),
        }),
        Kind::Lease => method.in_schema().map(|method| match method {
            schema::CpuIsolationLeaseMethod::Info
            | schema::CpuIsolationLeaseMethod::Preflight
            | schema::CpuIsolationLeaseMethod::Revoke
            | schema::CpuIsolationLeaseMethod::Release
            | schema::CpuIsolationLeaseMethod::Activate => none(),
        }),
        Kind::Islands => method.in_schema().map(|method| match method {
            schema::RealtimeIslandsMethod::Admit => islands::spec(random),
        }),
        Kind::Island => method.in_schema().map(|method| islands::parameters(random, method)),
        Kind::PolicyService => method.in_schema().map(|method| policy::parameters(random, method)),
        Kind::Device => method.in_schema().map(|method| devices::parameters(random, method)),
        Kind::Dma => method.in_schema().map(|method| match method {
            schema::DmaMemoryMethod::Address => devices::page_number(random),
        }),
        Kind::Interrupt => method.in_schema().map(|method| match method {
            schema::InterruptMethod::Wait => with(&[time(random, now)], 0),
        }),
        Kind::Endpoint => method.in_schema().map(|method| match method {
            schema::EndpointMethod::Close | schema::EndpointMethod::Open => none(),
        }),
        // Endpoints have operations, and objects have no methods.
        Kind::Call | Kind::Serve | Kind::Object | Kind::DeviceMemory => None,
    };
    made.unwrap_or_else(none)
}

impl Method {
    /// As the schema has it.
    fn in_schema<M: TryFrom<u16>>(self) -> Option<M> {
        M::try_from(self.number()).ok()
    }
}

fn memory(random: &mut Random, method: schema::VirtualMemoryMethod) -> Params {
    use schema::VirtualMemoryMethod as Of;
    let with = Params::with;
    match method {
        Of::Map => {
            let at = if random.once_in(3) { page(random) } else { 0 };
            with(&[at, pages(random) | access(random) << 32], 0)
        }
        Of::Unmap | Of::Protect => with(&[page(random), pages(random) | access(random) << 32], 0),
        Of::CreateObject => with(&[0, pages(random)], 0),
        Of::MapObject => {
            let object = u64::from(cap(random, Kind::Object));
            with(&[object | access(random) << 32], 0)
        }
        Of::UnmapObject => with(&[page(random), 0], 0),
    }
}

fn info(random: &mut Random, method: schema::SystemInfoMethod) -> Params {
    use schema::SystemInfoMethod as Of;
    match method {
        Of::RingVersions | Of::Memory | Of::Objects => Params::none(),
        Of::Cpu | Of::Telemetry => Params::with(&[small_or_edge(random, 8)], 0),
        Of::Thread | Of::Process => Params::with(&[small_or_edge(random, 32)], 0),
        Of::BeginCase => {
            let mut name = Params::with(&[], 1);
            name.text(1, b"case");
            name
        }
    }
}

/// Mostly a number below `end`.
fn small_or_edge(random: &mut Random, end: u64) -> u64 {
    if random.once_in(4) { edge(random) & 0xffff_ffff } else { random.below(end) }
}

fn context_method(random: &mut Random, method: schema::SchedulingContextMethod, now: u64) -> Params {
    use schema::SchedulingContextMethod as Of;
    match method {
        Of::Create => context(random),
        Of::Wait => Params::with(&[time(random, now)], 0),
        Of::Adjust => {
            let (budget, period, deadline) = terms(random);
            Params::with(&[budget, period, deadline], 0)
        }
        Of::Info | Of::BindCallerThread | Of::Unbind | Of::Revoke | Of::DrainNotifications | Of::Release => {
            Params::none()
        }
    }
}

/// What a context is to grant: most often a little, sometimes nothing, everything, or what takes long to decide about.
pub fn context(random: &mut Random) -> Params {
    let (budget, period, deadline) = terms(random);
    let mut small = |most: u64| if random.once_in(12) { random.word() & 0xff } else { random.below(most) };
    let (priority, criticality, depth) = (small(2), small(2), small(4));
    let overrun = if random.once_in(12) { random.below(9) } else { random.below(2) };
    let cpus = if random.once_in(3) { edge(random) } else { 0 };
    let packed = priority | criticality << 16 | depth << 24 | overrun << 32;
    Params::with(&[budget, period, deadline, packed, cpus], 0)
}

/// A budget, a period and a deadline.
fn terms(random: &mut Random) -> (u64, u64, u64) {
    let (period, budget) = match random.below(8) {
        0 => (edge(random), edge(random)),
        // Short periods, and a utilization near one by what each release costs.
        1 => (10_000 + random.below(1_100_000), 1 + random.below(20)),
        // It is used up at once, and comes back after a minute.
        2 => (60_000_000_000, 1 + random.below(2_000)),
        // What can be made from a context that grants little itself.
        3 | 4 => (20_000_000 + random.below(40_000_000), 1_000 + random.below(9_000)),
        _ => (1_000_000 + random.below(40_000_000), 1_000 + random.below(400_000)),
    };
    let deadline = match random.below(8) {
        0 => edge(random),
        1 => budget.saturating_mul(1 + random.below(20)).min(period),
        _ => 0,
    };
    (budget, period, deadline)
}

/// A message, a receive, an answer or an exception.
fn endpoint(random: &mut Random, method: Method) -> Request {
    let len = match random.below(8) {
        0 => 128 + random.below(4),
        1 => random.below(132),
        _ => random.below(6),
    };
    let mut params = Params::none();
    params.len = len as usize;
    for at in 0..params.len.min(WORDS) {
        params.words[at] = random.word();
    }
    let operations: &[u16] = match method.kind() {
        Kind::Call => &[op::CALL],
        _ => &[op::RECV, op::RETURN, op::RETURN_RECV, op::THROW],
    };
    let op = operations[usize::from(method.number())];
    Request { kind: method.kind(), op, method: 0, params, asks: Some(method) }
}

/// Which received call is answered.
pub fn call_id(random: &mut Random) -> u32 {
    let known = one_of(random, &RECEIVED);
    match random.below(12) {
        0 => random.word() as u32,
        1 => known ^ 0x1_0000,
        2 => 0x1_0000 | random.below(70) as u32,
        _ => known,
    }
}

fn thread(random: &mut Random, entry: u64) -> Params {
    let entry = match random.below(1000) {
        0 => address(random, entry),
        1 => edge(random),
        2..300 => entry,
        _ => wild::leaf_entry(),
    };
    let weight = if random.once_in(6) { edge(random) & 0xffff_ffff } else { 64 };
    let class = if random.once_in(16) { random.word() & 0xffff } else { random.below(3) };
    let request_ns = match random.below(6) {
        0 => edge(random),
        1 => random.below(20_000_000),
        _ => 0,
    };
    let cpus = if random.once_in(3) { edge(random) } else { 0 };
    // The numbers that stand in a message are what differs from the defaults.
    let packed = (weight ^ 64) | (class ^ 1) << 32;
    Params::with(&[entry, random.word(), packed, request_ns, cpus], 0)
}

/// Another copy of the fuzzer, with some of what this process has; one that ends at once if it is to be `short`.
pub fn process(random: &mut Random, depth: u64, short: bool) -> Params {
    const NAMES: &[(&[u8], Kind)] = &[
        (b"threads", Kind::Threads),
        (b"timer", Kind::Timer),
        (b"control", Kind::Control),
        (b"park", Kind::Park),
        (b"memory", Kind::Memory),
        (b"info", Kind::Info),
        (b"call:free", Kind::Call),
        (b"serve:free", Kind::Serve),
        (b"processes", Kind::Processes),
        (b"handle", Kind::Process),
        (b"thread", Kind::Thread),
        (b"pages", Kind::Object),
        (b"context:a", Kind::Context),
        (b"session", Kind::Session),
    ];
    let mut params = Params::with(&[], 3);
    params.len = 4;
    params.text(1, random.one_of(&[b"fuzz" as &[u8], b"fuzz", b"fuzz", b"fuzz-neighbour", b"manifest", b""]));
    let mut arguments = *b"child 00000000000000000000 0";
    let mut digits = random.word();
    for place in &mut arguments[6..26] {
        *place = b'0' + (digits % 10) as u8;
        digits /= 10;
    }
    // Below the greatest number there is.
    arguments[6] = b'0';
    arguments[27] = b'0' + (depth - 1).min(9) as u8;
    params.text(2, if short { b"" } else { &arguments });
    // A copy without threads cannot see to its own end: all get those.
    let mut chosen = [NAMES[0]; 14];
    let mut count = 1;
    for name in &NAMES[1..] {
        // A grant of a handle is refused: that is tried now and then.
        let rare = matches!(name.1, Kind::Process | Kind::Thread);
        // One that the process has nothing of is left out: it would be refused for that alone.
        if CAPS[name.1 as usize].iter().all(|cap| cap.load(Ordering::Relaxed) == 0) {
            continue;
        }
        if if rare { random.once_in(if short { 3 } else { 12 }) } else { !random.once_in(3) } {
            chosen[count] = *name;
            count += 1;
        }
    }
    let list = params.len;
    params.words[3] = 1 | ((list - 4) as u64) << 2 | 7 << 32 | (2 * count as u64) << 35;
    params.words[list] = (count as u64) << 2 | 1 << 32 | 1 << 48;
    params.len += 1 + 2 * count;
    for (number, (name, kind)) in chosen[..count].iter().enumerate() {
        params.words[list + 1 + 2 * number] = u64::from(cap(random, *kind));
        params.text(list + 2 + 2 * number, name);
    }
    params
}
