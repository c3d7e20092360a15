//! What cannot be written safely: the system calls, a thread's own block behind FS, and where programs begin.
#![allow(unsafe_code)]

// The kernel needs the same few functions, and neither has a library to take them from.
#[path = "../../../kernel/src/arch/builtins.rs"]
mod builtins;
pub mod virtio;
pub mod wild;

use crate::client::Client;
use core::arch::asm;
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use linked_list_allocator::Heap;
use mainspring_abi::kernel::{DATA, DIRECT_WORDS, ReceivedCall, Startup, THREAD_BLOCK, call};
use mainspring_ring::SharedMemory;
use spin::Mutex;

/// One system call.
fn system_call(number: u64, first: u64, second: u64) -> u64 {
    let answer;
    // SAFETY: the kernel keeps all registers but those that a call may change, and the memory that requests name.
    unsafe {
        asm!("syscall", inlateout("rax") number => answer, in("rdi") first, in("rsi") second, clobber_abi("sysv64"));
    }
    answer
}

/// See [`call::CAP_ENTER`].
#[must_use]
pub fn cap_enter(min_complete: u64, timeout_ns: u64) -> u64 {
    system_call(call::CAP_ENTER, min_complete, timeout_ns)
}

/// See [`mainspring_abi::kernel::DirectRequest`]: the answer, what stands before a received message, and the message.
#[inline(always)]
#[must_use]
pub fn cap_enter_direct(
    request: u64,
    call_id: u32,
    words: [u64; DIRECT_WORDS],
) -> (u64, ReceivedCall, [u64; DIRECT_WORDS]) {
    let [mut first, mut second, mut third, mut fourth] = words;
    let (answer, received, deadline_ns): (u64, u64, u64);
    // SAFETY: as in `system_call`.
    unsafe {
        asm!("syscall", inlateout("rax") call::CAP_ENTER => answer, inlateout("rdi") request => deadline_ns,
            inlateout("rsi") u64::from(call_id) => received, inlateout("rdx") first, inlateout("r10") second,
            inlateout("r8") third, inlateout("r9") fourth, clobber_abi("sysv64"));
    }
    let head = ReceivedCall { call_id: received as u32, len: answer as u32, deadline_ns };
    (answer, head, [first, second, third, fourth])
}

/// See [`call::EXIT`].
pub fn exit(what: u64, code: i64) -> ! {
    system_call(call::EXIT, what, code as u64);
    loop {
        core::hint::spin_loop();
    }
}

/// A system call with any number at all.
#[must_use]
pub fn any_call(number: u64, first: u64, second: u64) -> u64 {
    system_call(number, first, second)
}

/// What a thread has for itself, at the top of its stack.
#[repr(C)]
struct Block {
    this: *mut Block,
    memory: SharedMemory,
    client: UnsafeCell<Client>,
}

const _: () = assert!(size_of::<Block>() <= THREAD_BLOCK as usize);

static STARTUP: AtomicPtr<Startup> = AtomicPtr::new(core::ptr::null_mut());

/// What the process was told.
#[must_use]
pub fn startup() -> &'static Startup {
    // SAFETY: set before `main`, to a page that stays mapped and is never written.
    unsafe { &*STARTUP.load(Ordering::Relaxed) }
}

/// The bytes that the process was given.
#[must_use]
pub fn data() -> &'static [u8] {
    // SAFETY: the kernel mapped that many bytes there, for reading, for the life of the process.
    unsafe { core::slice::from_raw_parts(DATA as *const u8, startup().data_len as usize) }
}

/// The calling thread's own ring, in use until this is dropped.
pub struct OwnClient {
    client: &'static mut Client,
    /// It stays with its thread.
    of_this_thread: PhantomData<*mut Block>,
}

impl Deref for OwnClient {
    type Target = Client;

    #[inline(always)]
    fn deref(&self) -> &Client {
        self.client
    }
}

impl DerefMut for OwnClient {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Client {
        self.client
    }
}

impl Drop for OwnClient {
    #[inline(always)]
    fn drop(&mut self) {
        self.client.leave();
    }
}

/// The calling thread's own ring.
///
/// # Panics
///
/// If the thread uses it already.
#[inline(always)]
#[must_use]
pub fn client() -> OwnClient {
    let block: *mut Block;
    // SAFETY: FS points to this thread's block from before its first safe code on; its first word is its address.
    unsafe { asm!("mov {}, fs:[0]", out(reg) block, options(nostack, preserves_flags, readonly)) };
    // SAFETY: the block is this thread's alone, and the reference stays with the thread, which the block outlives. The thread
    // cannot have a second one: the client says so.
    let client = unsafe { &mut *(*block).client.get() };
    assert!(client.enter(), "a thread used its ring inside of its use of it");
    OwnClient { client, of_this_thread: PhantomData }
}

fn init_block(block: *mut u8, ring: u64) {
    let base = NonNull::new(ring as *mut u8).expect("the kernel maps a ring");
    // SAFETY: the kernel mapped the ring's page for this thread, and it stays while the thread lives.
    let memory = unsafe { SharedMemory::new(base, 4096) }.expect("a ring's page is large enough");
    let block = block.cast::<Block>();
    // SAFETY: the kernel set this memory aside for the block, and no other code uses it. The memory's description stays
    // where it is, unchanged, for as long as the thread can use the client that refers to it.
    unsafe {
        (&raw mut (*block).memory).write(memory);
        (&raw mut (*block).client).write(UnsafeCell::new(Client::new(&(*block).memory)));
        (&raw mut (*block).this).write(block);
    }
}

struct UserHeap(Mutex<Heap>);

#[global_allocator]
static HEAP: UserHeap = UserHeap(Mutex::new(Heap::empty()));

const HEAP_BYTES: usize = 256 << 10;

#[repr(align(16))]
struct HeapMemory(UnsafeCell<[u8; HEAP_BYTES]>);

// SAFETY: only the heap uses it, behind its lock.
unsafe impl Sync for HeapMemory {}

static HEAP_MEMORY: HeapMemory = HeapMemory(UnsafeCell::new([0; HEAP_BYTES]));

// SAFETY: an allocator behind a lock.
unsafe impl core::alloc::GlobalAlloc for UserHeap {
    unsafe fn alloc(&self, layout: core::alloc::Layout) -> *mut u8 {
        self.0.lock().allocate_first_fit(layout).map_or(core::ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: core::alloc::Layout) {
        if let Some(pointer) = NonNull::new(pointer) {
            // SAFETY: the caller got the pointer from `alloc` with this layout.
            unsafe { self.0.lock().deallocate(pointer, layout) };
        }
    }
}

unsafe extern "Rust" {
    fn mainspring_main() -> i64;
}

/// Where the process begins.
#[unsafe(no_mangle)]
extern "C" fn _start(startup: *mut Startup, ring: u64, block: *mut u8) -> ! {
    STARTUP.store(startup, Ordering::Relaxed);
    // SAFETY: the memory is the heap's alone, and this runs once, before any other thread.
    unsafe { HEAP.0.lock().init(HEAP_MEMORY.0.get().cast(), HEAP_BYTES) };
    init_block(block, ring);
    // SAFETY: `program!` defines it with this signature.
    let code = unsafe { mainspring_main() };
    exit(mainspring_abi::kernel::EXIT_PROCESS, code)
}

/// Where further threads begin: `argument` is a boxed closure.
pub(crate) extern "C" fn thread_start(argument: *mut Job, ring: u64, block: *mut u8) -> ! {
    init_block(block, ring);
    // SAFETY: `spawn` made it from a box and gave it to this thread alone.
    let job = unsafe { alloc::boxed::Box::from_raw(argument) };
    exit(mainspring_abi::kernel::EXIT_THREAD, job())
}

/// What a thread does.
pub(crate) type Job = alloc::boxed::Box<dyn FnOnce() -> i64 + Send>;

/// A job as the number that a new thread is given.
pub(crate) fn job_to_argument(job: Job) -> (u64, u64) {
    (thread_start as *const () as u64, alloc::boxed::Box::into_raw(alloc::boxed::Box::new(job)) as u64)
}

/// Takes a job back that no thread was made for.
pub(crate) fn drop_job(argument: u64) {
    // SAFETY: it came from `job_to_argument`, and no thread has it.
    drop(unsafe { alloc::boxed::Box::from_raw(argument as *mut Job) });
}

/// A word of memory that a mapping gave, or any other: for programs that try what they may not.
///
/// # Safety
///
/// None is needed for the program's neighbours: that is what the proofs show. For the program itself, anything can happen.
pub unsafe fn poke(address: u64, value: u64) {
    // SAFETY: as asked of the caller.
    unsafe { (address as *mut u64).write_volatile(value) };
}

/// Reads a word, as [`poke`] writes one.
///
/// # Safety
///
/// As for [`poke`].
#[must_use]
pub unsafe fn peek(address: u64) -> u64 {
    // SAFETY: as asked of the caller.
    unsafe { (address as *const u64).read_volatile() }
}

/// The word at `address`, which is part of a mapping that the program made and keeps.
///
/// # Panics
///
/// If it is not the address of a word in the region for mappings.
#[must_use]
pub fn word(address: u64) -> &'static AtomicU64 {
    use mainspring_abi::kernel::{MAPPINGS, STACKS};
    assert!(address.is_multiple_of(8) && (MAPPINGS..STACKS).contains(&address), "not in a mapping");
    // SAFETY: only the kernel maps anything there, for reading or writing by this program; if nothing is mapped the
    // program is stopped, which is safe. All accesses are atomic.
    unsafe { AtomicU64::from_ptr(address as *mut u64) }
}

/// A word of the ring at `ring`, as a program that breaks the rules can reach it.
///
/// # Panics
///
/// If it is beyond the ring's page.
#[must_use]
pub fn ring_word(ring: u64, index: usize) -> &'static AtomicU32 {
    assert!(index < 1024, "beyond the ring");
    // SAFETY: the first thread's ring is mapped for the life of the process, and all accesses are atomic.
    unsafe { AtomicU32::from_ptr((ring as *mut u32).add(index)) }
}

/// Instructions and accesses that a program may not make, by name. Returns only if the processor allowed it.
pub fn misbehave(how: &str) {
    // SAFETY: for the program itself nothing holds any more; it is there to be stopped.
    unsafe {
        match how {
            "kernel-read" => {
                let _ = peek(0xffff_8000_0010_0000);
            }
            "kernel-write" => poke(0xffff_ffff_8010_1000, 0),
            "null" => {
                let _ = peek(0);
            }
            "unmapped" => poke(0x5555_5555_5000, 1),
            "noncanonical" => {
                let _ = peek(0x8000_0000_0000_0000);
            }
            // The base of GS is the kernel's own while it runs, and nothing here.
            "gs-read" => asm!("mov rax, gs:[0]", out("rax") _),
            "text-write" => poke(_start as *const () as u64, 0),
            "data-execute" => {
                static CODE: [u8; 16] = [0xc3; 16];
                let entry: extern "C" fn() = core::mem::transmute(CODE.as_ptr());
                entry();
            }
            "cli" => asm!("cli"),
            "hlt" => asm!("hlt"),
            "port" => asm!("out 0xf4, al", in("al") 0_u8),
            "cr3" => asm!("mov rax, cr3", out("rax") _),
            "wrmsr" => asm!("wrmsr", in("ecx") 0xc000_0082_u32, in("eax") 0, in("edx") 0),
            "int3" => asm!("int3"),
            "int80" => asm!("int 0x80"),
            "ud2" => asm!("ud2"),
            "divide" => {
                asm!("xor edx, edx", "xor ecx, ecx", "mov eax, 1", "div ecx", out("eax") _, out("ecx") _, out("edx") _);
            }
            "stack-overflow" => {
                overflow(0);
            }
            "bad-stack" => asm!("mov rsp, 0x10", "push rax", options(noreturn)),
            "kernel-stack" => {
                asm!("mov rsp, {}", "push rax", in(reg) 0xffff_c000_0000_8000_u64, options(noreturn))
            }
            "single-step" => asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq", "nop", "nop"),
            // The trap is due behind the system call, not in the kernel.
            "step-into-call" => asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq", "syscall", "nop", "nop",
                in("rax") call::CAP_ENTER, in("rdi") 0, in("rsi") 0, clobber_abi("sysv64")),
            // One divided by zero with nothing masked: the processor says so at the next instruction that waits.
            "x87" => {
                let unmasked = 0x0340_u16;
                asm!("fninit", "fldcw [{}]", "fldz", "fld1", "fdivrp st(1), st", "fwait", in(reg) &raw const unmasked);
            }
            // The base of FS goes with its selector. The thread has no use for one any more, enters and is interrupted without it,
            // and ends well.
            "load-fs" => asm!(
                "mov ebx, 2000",
                "2:", "xor eax, eax", "mov fs, eax", "xor edi, edi", "xor esi, esi", "xor edx, edx", "syscall",
                "mov eax, 0x1b", "mov fs, eax", "mov eax, 5", "syscall", "mov ecx, 3000", "3:", "dec ecx", "jnz 3b",
                "dec ebx", "jnz 2b", "mov eax, {exit}", "mov edi, {process}", "xor esi, esi", "syscall", "ud2",
                exit = const call::EXIT, process = const mainspring_abi::kernel::EXIT_PROCESS, options(noreturn)
            ),
            // Alignment check, direction and nested task, all at a fault.
            "flagged-fault" => asm!("pushfq", "or qword ptr [rsp], 0x44400", "popfq", "ud2"),
            "segment" => asm!("mov ds, {0:x}", in(reg) 0x10_u16),
            "rdpmc" => asm!("rdpmc", in("ecx") 0, out("eax") _, out("edx") _),
            "swapgs" => asm!("swapgs"),
            "wrfsbase" => asm!("wrfsbase {}", in(reg) 0xffff_8000_0000_0000_u64),
            "sgdt" => {
                let mut table = [0_u8; 10];
                asm!("sgdt [{}]", in(reg) table.as_mut_ptr());
            }
            "jump-noncanonical" => asm!("jmp {}", in(reg) 0x8000_0000_0000_u64),
            "jump-last" => asm!("jmp {}", in(reg) 0x7fff_ffff_fffe_u64),
            "return-kernel" => asm!("push {}", "ret", in(reg) 0xffff_ffff_8010_0000_u64),
            _ => {}
        }
    }
}

/// Runs with `flags` set besides the usual ones: `rounds` times around a loop, in which interrupts come, then into the
/// kernel and back. What the kernel answered.
#[must_use]
pub fn enter_with_flags(flags: u64, rounds: u64) -> u64 {
    let answer;
    // SAFETY: the flags are as before at the end, and what a call may change is given up.
    unsafe {
        asm!("pushfq", "pushfq", "or [rsp], r12", "popfq", "2:", "dec r13", "jnz 2b", "syscall", "popfq",
            inlateout("rax") call::CAP_ENTER => answer, in("rdi") 0, in("rsi") 0, in("r12") flags,
            inlateout("r13") rounds.max(1) => _, clobber_abi("sysv64"));
    }
    answer
}

#[expect(unconditional_recursion, reason = "that is the point")]
#[inline(never)]
fn overflow(depth: u64) -> u64 {
    let ballast = core::hint::black_box([depth; 64]);
    overflow(depth + 1) + ballast[(depth % 64) as usize]
}

/// Fills vector registers with a pattern that is the thread's own.
#[inline(always)]
pub fn set_vector(value: u64) -> u64 {
    let out: u64;
    // SAFETY: registers that are declared.
    unsafe {
        asm!("movq xmm15, {v}", "2:", "dec {n}", "jnz 2b", "movq {o}, xmm15",
            v = in(reg) value, n = inout(reg) 20_000_000_u64 => _, o = out(reg) out, out("xmm15") _, options(nostack));
    }
    out
}

/// The time stamp counter.
#[must_use]
#[inline(always)]
pub fn stamp() -> u64 {
    // SAFETY: user programs may read it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The selectors of the code and stack segments.
#[must_use]
#[inline(always)]
pub fn selectors() -> (u16, u16) {
    let (code, stack): (u16, u16);
    // SAFETY: reading a selector changes nothing.
    unsafe {
        asm!("mov {0:x}, cs", "mov {1:x}, ss", out(reg) code, out(reg) stack, options(nostack, preserves_flags));
    }
    (code, stack)
}

/// Runs `rounds` times around a loop that touches nothing.
#[inline(never)]
pub fn spin(rounds: u64) {
    // SAFETY: a register that is declared.
    unsafe { asm!("2:", "dec {}", "jnz 2b", inout(reg) rounds.max(1) => _, options(nostack)) };
}
