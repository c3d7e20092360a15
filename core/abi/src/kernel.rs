//! What a user program and the kernel agree on: the two system calls, the places in an address space, what a process is
//! told when it starts, and what a server receives with a call.

use crate::ring::RuntimeBootInfo;
use core::mem::size_of;

/// System calls: the number goes into `rax`, arguments into `rdi` and `rsi`, the answer comes back in `rax`.
pub mod call {
    /// `cap_enter(min_complete, timeout_ns)`: hands over what was submitted and waits for that many completions. Answers
    /// with how many can be read, or with [`super::REFUSED`] and an error code. With [`super::DIRECT`] in its first
    /// argument it carries out the one request that is in the registers.
    pub const CAP_ENTER: u64 = 0;
    /// `exit(what, code)`: ends the thread or the process, see [`super::EXIT_THREAD`].
    pub const EXIT: u64 = 1;
}

/// Ends the calling thread; the process ends with its last one.
pub const EXIT_THREAD: u64 = 0;
/// Ends the calling process with all its threads.
pub const EXIT_PROCESS: u64 = 1;

/// A timeout that never ends.
pub const FOREVER: u64 = u64::MAX;

/// Set in the answer of `cap_enter` when it was refused; the rest is a [`crate::ring::CapError`] number.
pub const REFUSED: u64 = 1 << 63;

/// Set in the first argument of `cap_enter`: see [`DirectRequest`].
pub const DIRECT: u64 = 1 << 63;
/// Words of a message in registers.
pub const DIRECT_WORDS: usize = 4;

/// A request in registers: a CALL to a server that waits, or a RETURN_RECV to a caller that waits, for which the CPU is
/// handed over at once. It never goes through the ring, and is refused as not direct if the other side does not wait.
///
/// `rdi` has it as [`DirectRequest::to_word`], `rsi` the number of the call that is answered, and `rdx`, `r10`, `r8` and
/// `r9` the message. What comes back: in `rax` the length of the message, or [`REFUSED`] and an error code; `rsi` the number
/// of the call that was received, `rdi` its deadline, and the message in the same four registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectRequest {
    /// [`crate::ring::op::CALL`] or [`crate::ring::op::RETURN_RECV`].
    pub op: u16,
    /// The endpoint.
    pub cap_id: u32,
    /// Bytes of the message, at most [`DIRECT_WORDS`] words.
    pub len: u32,
}

impl DirectRequest {
    /// As it goes into `rdi`.
    #[inline]
    #[must_use]
    pub const fn to_word(self) -> u64 {
        DIRECT | (self.len as u64) << 48 | (self.op as u64) << 32 | self.cap_id as u64
    }

    /// From `rdi`; `None` if there is anything in it that means nothing.
    #[inline]
    #[must_use]
    pub const fn from_word(word: u64) -> Option<Self> {
        let len = (word >> 48) as u32 & 0x7fff;
        if word & DIRECT == 0 || len as usize > 8 * DIRECT_WORDS {
            return None;
        }
        Some(Self { op: (word >> 32) as u16, cap_id: word as u32, len })
    }
}

/// What a process that did something it may not ends with, less the number of the processor's exception.
pub const KILLED: i64 = -1000;
/// What a process ends with that was killed by a handle.
pub const KILLED_BY_HANDLE: i64 = -3000;

/// Where the ring of the process's first thread is; thread n has the one n strides further.
pub const RING_ARENA: u64 = 0x6000_0000_0000;
/// From one ring to the next; the page between is never mapped.
pub const RING_STRIDE: u64 = 0x2000;
/// Submission slots of a thread's ring.
pub const SQ_ENTRIES: u32 = 32;
/// Completion slots of a thread's ring.
pub const CQ_ENTRIES: u32 = 64;

/// Where a process finds its [`Startup`].
pub const STARTUP: u64 = 0x6100_0000_0000;
/// Where extra data of the boot image is mapped, for programs that were given any.
pub const DATA: u64 = 0x6200_0000_0000;
/// Where `VirtualMemory.map` puts what has no address of its own.
pub const MAPPINGS: u64 = 0x6300_0000_0000;
/// Stacks, one stride each: a page that is never mapped, then the stack.
pub const STACKS: u64 = 0x7000_0000_0000;
/// From one stack to the next.
pub const STACK_STRIDE: u64 = 0x40_0000;
/// Bytes of a stack.
pub const STACK_BYTES: u64 = 0x1_0000;
/// Bytes at the top of each stack that are the thread's own block; the FS base points to it.
pub const THREAD_BLOCK: u64 = 1024;

/// How many waiters one `ParkSpace.wake` wakes at most: interrupts are off meanwhile. A caller that wants more asks
/// again.
pub const MOST_WOKEN: u32 = 32;

/// The longest message of a call or its answer.
pub const MAX_MESSAGE: usize = 1024;

/// What stands before a received message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct ReceivedCall {
    /// Goes into `call_id` of the RETURN.
    pub call_id: u32,
    /// Bytes of the message, which follows.
    pub len: u32,
    /// The caller's deadline if it asked to pass it on, else 0.
    pub deadline_ns: u64,
}

const _: () = assert!(size_of::<ReceivedCall>() == 16);

impl ReceivedCall {
    /// As bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[0..4].copy_from_slice(&self.call_id.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.len.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.deadline_ns.to_le_bytes());
        bytes
    }

    /// From bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; 16]) -> Self {
        let [a, b, c, d, e, f, g, h, rest @ ..] = *bytes;
        Self {
            call_id: u32::from_le_bytes([a, b, c, d]),
            len: u32::from_le_bytes([e, f, g, h]),
            deadline_ns: u64::from_le_bytes(rest),
        }
    }
}

/// How many threads the kernel can have: the seats that each of its CPUs reserves.
pub const MAX_THREADS: usize = 1024;

/// What a release of a context costs, in ns: it counts with the budget.
pub const RELEASE_NS: u64 = 10_000;

/// The most nodes of a realtime island, and of all islands of a program and what it starts.
pub const ISLAND_NODES: usize = 5;

/// The most capabilities that a process can be started with.
pub const STARTUP_CAPS: usize = 24;
/// The longest name of one.
pub const CAP_NAME: usize = 16;
/// The longest argument text.
pub const ARGUMENTS: usize = 512;

/// A capability that a process is started with.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct StartupCap {
    /// What it is called, padded with zeros.
    pub name: [u8; CAP_NAME],
    /// Its number.
    pub cap: u32,
    /// Zero.
    pub reserved: u32,
}

/// What a process is told when it starts, on a page that it can read.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Startup {
    /// The first thread's ring.
    pub ring: RuntimeBootInfo,
    /// How many of `caps` there are.
    pub cap_count: u32,
    /// How many bytes of `arguments` there are.
    pub arguments_len: u32,
    /// How many bytes are at [`DATA`].
    pub data_len: u64,
    /// The capabilities.
    pub caps: [StartupCap; STARTUP_CAPS],
    /// The argument text.
    pub arguments: [u8; ARGUMENTS],
}

const _: () = assert!(size_of::<Startup>() <= 4096);

/// `name` as it stands in a [`StartupCap`], or `None` if it is empty or too long.
#[must_use]
pub fn cap_name(name: &str) -> Option<[u8; CAP_NAME]> {
    let bytes = name.as_bytes();
    let mut padded = [0; CAP_NAME];
    if bytes.is_empty() || bytes.len() > CAP_NAME || bytes.contains(&0) {
        return None;
    }
    padded[..bytes.len()].copy_from_slice(bytes);
    Some(padded)
}
