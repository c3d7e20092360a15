//! Requests: right ones, nearly right ones, and ones that are not right at all.

use crate::random::Random;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use mainspring_abi::kernel::{DATA, MAPPINGS, RING_ARENA, RING_STRIDE, STACK_STRIDE, STACKS, STARTUP};
use mainspring_abi::ring::op;
use mainspring_user::arch::wild;

/// What a capability is of, as far as the process knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    Console,
    Timer,
    Threads,
    Control,
    Processes,
    Park,
    Memory,
    Policy,
    Info,
    Call,
    Serve,
    Thread,
    Process,
    Object,
}

const KINDS: usize = Kind::Object as usize + 1;
const EACH: usize = 8;

/// The capabilities that the process has or had, by kind: those that were given up are kept on purpose.
static CAPS: [[AtomicU32; EACH]; KINDS] = [const { [const { AtomicU32::new(0) }; EACH] }; KINDS];
/// Addresses that were mapped.
static MAPPED: [AtomicU64; 32] = [const { AtomicU64::new(0) }; 32];
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

/// Remembers a received call.
pub fn learn_call(call_id: u32, place: u64) {
    RECEIVED[place as usize % RECEIVED.len()].store(call_id, Ordering::Relaxed);
}

/// A mapped address, or one that was.
pub fn mapped(random: &mut Random) -> u64 {
    MAPPED[random.below(MAPPED.len() as u64) as usize].load(Ordering::Relaxed)
}

/// A capability of this kind, or one that was; sometimes one of another kind, of another generation, or a number
/// that names none.
pub fn cap(random: &mut Random, kind: Kind) -> u32 {
    let kind = if random.once_in(60) { random.below(KINDS as u64) as usize } else { kind as usize };
    let known = CAPS[kind][random.below(EACH as u64) as usize].load(Ordering::Relaxed);
    let known = if known == 0 { CAPS[kind][0].load(Ordering::Relaxed) } else { known };
    match random.below(160) {
        0 => known ^ 0x1_0000,
        1 => known.wrapping_add(0xffff_0000),
        2 => known ^ random.below(128) as u32,
        3 => random.word() as u32,
        _ => known,
    }
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
#[repr(u8)]
pub enum Gives {
    Nothing,
    Thread,
    Process,
    Object,
    Address,
    Call,
}

impl Gives {
    /// From the low byte of what came back with a completion.
    pub fn from_word(word: u64) -> Self {
        [Self::Nothing, Self::Thread, Self::Process, Self::Object, Self::Address, Self::Call]
            .get((word & 0xff) as usize)
            .copied()
            .unwrap_or(Self::Nothing)
    }
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
    /// What it gives.
    pub gives: Gives,
}

/// A request; most often for something that the process has. `entry` is where a new thread of the fuzzer begins.
pub fn request(random: &mut Random, now: u64, own: u64, depth: u64, entry: u64) -> Request {
    let mut made = any_request(random, now, own, depth, entry);
    for _ in 0..4 {
        if CAPS[made.kind as usize].iter().any(|cap| cap.load(Ordering::Relaxed) != 0) {
            break;
        }
        made = any_request(random, now, own, depth, entry);
    }
    made
}

/// Any request.
fn any_request(random: &mut Random, now: u64, own: u64, depth: u64, entry: u64) -> Request {
    use Kind::*;
    let with = Params::with;
    let none = Params::none;
    let plain = Gives::Nothing;
    // Kind, method, parameters, what it gives.
    let (kind, method, mut params, gives) = match random.below(100) {
        0 => (Console, 0, none(), plain),
        1 => (Console, 1, none(), plain),
        2 => (Console, 2, with(&[edge(random), edge(random)], 0), plain),
        3..5 => (Timer, 0, none(), plain),
        5..10 => (Timer, 1, with(&[time(random, now)], 0), plain),
        10..18 => (Threads, 0, thread(random, entry), Gives::Thread),
        18 => (Control, 0, with(&[address(random, own)], 0), plain),
        19..21 => (Control, 1, none(), plain),
        21..24 => (Thread, 0, with(&[time(random, now)], 0), plain),
        24..27 => (Thread, 1, none(), plain),
        27..32 => {
            let fields = [address(random, own) & !3, random.below(2), time(random, now)];
            (Park, 0, with(&fields, 0), plain)
        }
        32..35 => (Park, 1, with(&[address(random, own) & !3, edge(random)], 0), plain),
        35..37 if depth > 0 => (Processes, 0, process(random, depth, false), Gives::Process),
        37..39 => (Process, 0, with(&[time(random, now)], 0), plain),
        39 => (Process, 1, none(), plain),
        40..43 => (Process, 2, none(), plain),
        43..52 => {
            let at = if random.once_in(3) { page(random) } else { 0 };
            (Memory, 0, with(&[at, pages(random) | access(random) << 32], 0), Gives::Address)
        }
        52..58 => (Memory, 1, with(&[page(random), pages(random) | access(random) << 32], 0), plain),
        58..63 => (Memory, 2, with(&[page(random), pages(random) | access(random) << 32], 0), plain),
        63..66 => (Memory, 3, with(&[0, pages(random)], 0), Gives::Object),
        66..70 => {
            let object = u64::from(cap(random, Object));
            (Memory, 4, with(&[object | access(random) << 32], 0), Gives::Address)
        }
        70..73 => (Memory, 5, with(&[page(random), 0], 0), plain),
        73 => (Policy, 0, with(&[edge(random)], 0), plain),
        74 => (Policy, 1, with(&[random.below(5)], 0), plain),
        75 => (Policy, 2, none(), plain),
        76..79 => (Info, random.below(3) as u16, none(), plain),
        79..82 => (Info, 3 + random.below(3) as u16, with(&[edge(random) & 0xffff_ffff], 0), plain),
        82 => {
            let mut name = with(&[], 1);
            name.text(1, b"case");
            (Info, 6, name, plain)
        }
        83..93 => return endpoint(random),
        93 => (random.one_of(&[Object, Thread, Process]), random.word() as u16, none(), plain),
        _ => {
            let kinds = [Console, Timer, Control, Processes, Park, Memory, Policy, Info, Call, Serve];
            let fields = [edge(random), edge(random), edge(random), edge(random)];
            let fields = &fields[..random.below(5) as usize];
            (random.one_of(&kinds), random.below(9) as u16, with(fields, random.below(3)), plain)
        }
    };
    // A thread that begins nowhere stops its process: that is tried too, but not all the time.
    if random.once_in(if kind == Threads { 2000 } else { 12 }) {
        params.spoil(random);
    }
    let op = match random.below(200) {
        0 => random.below(8) as u16,
        1 => random.word() as u16,
        _ => op::CALL,
    };
    let method = if random.once_in(200) { random.word() as u16 } else { method };
    Request { kind, op, method, params, gives }
}

/// A message, a receive, or an answer.
fn endpoint(random: &mut Random) -> Request {
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
    let (kind, op, gives) = match random.below(8) {
        0..4 => (Kind::Call, op::CALL, Gives::Nothing),
        4..6 => (Kind::Serve, op::RECV, Gives::Call),
        6 => (Kind::Serve, op::RETURN, Gives::Nothing),
        _ => (Kind::Serve, op::RETURN_RECV, Gives::Call),
    };
    Request { kind, op, method: 0, params, gives }
}

/// Which received call is answered.
pub fn call_id(random: &mut Random) -> u32 {
    let known = RECEIVED[random.below(RECEIVED.len() as u64) as usize].load(Ordering::Relaxed);
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
    let mut chosen = [NAMES[0]; 12];
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
