//! The time meter: how compiled code that counts nothing is stopped.
//!
//! Each call into such code has a page, right behind its context. The code loads a byte of it on every way back of a loop, and the limit of
//! the stack where a function begins. While the code runs, a thread protects the page once per [`TICK`]. The next load faults, and the handler
//! of the signal, which knows pages and code by their addresses, lets the code go on in a stub. The stub keeps all registers and lets the task look up, as a
//! check does: there it gives way, waits for the refill of its scheduling context, or ends. A task that ends leaves all frames of
//! generated code at once: they own nothing, and no other frame is between them and the call that entered them.
//!
//! Conserved: a page is protected only while its state is [`STOPPING`], and both change under the lock. So a page that is given back
//! can be read.
#![allow(unsafe_code)]

use crate::context::{Context, EXIT_STACK, Entry, Limited, STACK_LIMIT};
use std::io;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, RwLock};
use std::time::Duration;

/// How often code that runs is made to look up.
pub const TICK: Duration = Duration::from_millis(1);

/// Calls that can be in such code at one time. A call beyond them is refused.
const MOST_CALLS: usize = 1 << 16;
/// The bytes that code may poll: the page that is protected.
pub(crate) const PAGE: usize = 4096;
/// A call has two pages: its context ends the first one, and the second one is protected.
const SLOT: usize = 2 * PAGE;

/// The code of the call is not running: its task is in a function of the host, or waits there.
const IN_HOST: u8 = 0;
/// The code of the call is running.
const RUNNING: u8 = 1;
/// The page of the call is protected, or is about to be.
const STOPPING: u8 = 2;

/// The pages, and who has which.
struct Pages {
    base: usize,
    slots: Box<[Slot]>,
    calls: Mutex<Calls>,
    /// There are calls to be ticked.
    begun: Condvar,
}

/// The state of a call's page.
#[derive(Default)]
struct Slot {
    state: AtomicU8,
    /// Where it stands in the list of those in use. It changes under the lock.
    place: AtomicUsize,
}

#[derive(Default)]
struct Calls {
    active: Vec<u32>,
    free: Vec<u32>,
    fresh: u32,
}

static PAGES: OnceLock<Option<Pages>> = OnceLock::new();
/// Where the pages begin, for the handler. Zero until there are any.
static BASE: AtomicUsize = AtomicUsize::new(0);
/// Where generated code is that polls: its first address and the one after its last.
static CODE: RwLock<Vec<(usize, usize)>> = RwLock::new(Vec::new());
static STOPS: AtomicU64 = AtomicU64::new(0);

/// How often compiled code was stopped to look up, in all.
pub fn stops() -> u64 {
    STOPS.load(Ordering::Relaxed)
}

/// Makes a page readable and writable.
const OPEN: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

fn protect(page: usize, protection: libc::c_int) {
    // SAFETY: a page of ours, that holds the limit alone. Code that loads from it while it is protected is stopped.
    let done = unsafe { libc::mprotect(page as *mut libc::c_void, PAGE, protection) };
    assert_eq!(done, 0, "the protection of a mapped page can be changed: {}", io::Error::last_os_error());
}

impl Pages {
    /// The pages, made when they are first needed. `None` if there is no memory for them.
    fn get() -> Option<&'static Self> {
        PAGES.get_or_init(Self::map).as_ref()
    }

    fn map() -> Option<Self> {
        // SAFETY: a new mapping. What is of it can be used is opened when a call first needs it, so that the rest takes no memory.
        let base = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            libc::mmap(null_mut(), MOST_CALLS * SLOT, libc::PROT_NONE, flags, -1, 0)
        };
        if base == libc::MAP_FAILED {
            return None;
        }
        let base = base as usize;
        install();
        BASE.store(base, Ordering::Release);
        let ticks = std::thread::Builder::new().name("jan-ticks".to_owned());
        ticks.spawn(|| Self::get().into_iter().for_each(Self::tick_for_ever)).ok()?;
        let slots = (0..MOST_CALLS).map(|_| Slot::default()).collect();
        Some(Self { base, slots, calls: Mutex::default(), begun: Condvar::new() })
    }

    /// The page of a call that is protected to stop it.
    fn page(&self, number: u32) -> usize {
        self.base + number as usize * SLOT + PAGE
    }

    /// The context of a call. What it shares with the page begins where the page does.
    fn context(&self, number: u32) -> *mut Context {
        std::ptr::with_exposed_provenance_mut(self.page(number) - STACK_LIMIT as usize)
    }

    /// Lets a call use its pages for the first time. `None` if there is no memory for them.
    fn open(&self, number: u32) -> Option<()> {
        let slot = (self.page(number) - PAGE) as *mut libc::c_void;
        // SAFETY: pages of ours that nobody uses.
        (unsafe { libc::mprotect(slot, SLOT, OPEN) } == 0).then_some(())
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().expect("no panic while it is held")
    }

    fn tick_for_ever(&self) {
        loop {
            std::thread::sleep(TICK);
            let mut calls = self.calls();
            while calls.active.is_empty() {
                calls = self.begun.wait(calls).expect("no panic while it is held");
            }
            self.stop_those_running(&calls);
        }
    }

    /// The lock is held, so that nobody gives a page back in between.
    fn stop_those_running(&self, calls: &Calls) {
        for &number in &calls.active {
            let state = &self.slots[number as usize].state;
            let order = Ordering::Relaxed;
            if state.compare_exchange(RUNNING, STOPPING, order, order).is_ok() {
                protect(self.page(number), libc::PROT_NONE);
            }
        }
    }
}

/// Makes all code look up that runs, at once. For tests: a tick does the same.
#[doc(hidden)]
pub fn stop_all() {
    if let Some(pages) = Pages::get() {
        pages.stop_those_running(&pages.calls());
    }
}

/// The page of one call, until it is dropped.
pub(crate) struct Page {
    pages: &'static Pages,
    number: u32,
}

impl Page {
    /// A page for a call. `None` if there are as many calls as can be.
    pub(crate) fn take() -> Option<Self> {
        let pages = Pages::get()?;
        let mut calls = pages.calls();
        let number = match calls.free.pop() {
            Some(number) => number,
            None if (calls.fresh as usize) < MOST_CALLS => {
                pages.open(calls.fresh)?;
                calls.fresh += 1;
                calls.fresh - 1
            }
            None => return None,
        };
        pages.slots[number as usize].place.store(calls.active.len(), Ordering::Relaxed);
        calls.active.push(number);
        if calls.active.len() == 1 {
            pages.begun.notify_one();
        }
        Some(Self { pages, number })
    }

    /// Puts a context before the page, and its limit on the page. No code of this call runs yet, so that the page is open.
    pub(crate) fn place(&self, limited: Limited) -> *mut Context {
        let context = self.pages.context(self.number);
        // SAFETY: the two pages are this call's alone, can be written, and have room for both parts.
        unsafe { context.cast::<Limited>().write(limited) };
        context
    }

    fn slot(&self) -> &Slot {
        &self.pages.slots[self.number as usize]
    }

    /// Generated code runs from here on. A stop that was asked for stays asked for.
    pub(crate) fn code_runs(&self) {
        let _ = self.slot().state.compare_exchange(IN_HOST, RUNNING, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The host runs from here on.
    pub(crate) fn host_runs(&self) {
        let _ = self.slot().state.compare_exchange(RUNNING, IN_HOST, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The stop that was asked for is about to be obeyed: the page can be read again.
    pub(crate) fn reopen(&self) {
        let _calls = self.pages.calls();
        if self.slot().state.swap(IN_HOST, Ordering::Relaxed) == STOPPING {
            protect(self.pages.page(self.number), OPEN);
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.reopen();
        let mut calls = self.pages.calls();
        let place = self.slot().place.load(Ordering::Relaxed);
        calls.active.swap_remove(place);
        if let Some(moved) = calls.active.get(place) {
            self.pages.slots[*moved as usize].place.store(place, Ordering::Relaxed);
        }
        calls.free.push(self.number);
    }
}

/// Code that polls, as long as it can be called.
#[derive(Debug)]
pub(crate) struct Polling(Vec<(usize, usize)>);

impl Polling {
    pub(crate) fn register(ranges: Vec<(usize, usize)>) -> Self {
        CODE.write().expect("no panic while it is held").extend(&ranges);
        Self(ranges)
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        let mut all = CODE.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        all.retain(|range| !self.0.contains(range));
    }
}

/// The handlers that were there before, for what is not ours.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

fn install() {
    // SAFETY: a zeroed action is a valid one, and the handler does only what a handler may.
    BEFORE.get_or_init(|| unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        libc::sigemptyset(&raw mut action.sa_mask);
        let mut before = MaybeUninit::zeroed();
        libc::sigaction(libc::SIGSEGV, &raw const action, before.as_mut_ptr());
        before.assume_init()
    });
}

/// Whether the instruction is one of generated code that polls. The thread that asks was in such code, and so holds no lock.
fn is_code(at: usize) -> bool {
    CODE.read().is_ok_and(|code| code.iter().any(|(from, to)| (*from..*to).contains(&at)))
}

extern "C" fn handler(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes valid pointers to a handler with SA_SIGINFO.
    let (address, machine) =
        unsafe { ((*info).si_addr() as usize, &mut *context.cast::<libc::ucontext_t>()) };
    let registers = &mut machine.uc_mcontext.gregs;
    let base = BASE.load(Ordering::Acquire);
    let at = registers[libc::REG_RIP as usize] as usize;
    if base != 0 && (base..base + MOST_CALLS * SLOT).contains(&address) && is_code(at) {
        let stack = registers[libc::REG_RSP as usize] as usize - 16;
        // SAFETY: the stack of generated code, which keeps nothing below its stack pointer. A function that polls where it begins may be
        // below its limit by its frame; what is kept free below the limit is for this frame and for the host.
        unsafe {
            *(stack as *mut usize) = address;
            *(stack as *mut usize).add(1) = at;
        }
        registers[libc::REG_RSP as usize] = stack as i64;
        registers[libc::REG_RIP as usize] = mainspring_native_stop as *const () as i64;
        return;
    }
    forward(signal, info, context);
}

fn forward(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(before) = BEFORE.get() else { return };
    // SAFETY: calls the earlier handler as the kernel would have, or puts the default back, which ends the process at the same
    // instruction.
    unsafe {
        match before.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => {
                libc::sigaction(signal, before, null_mut());
            }
            handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
                let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(handler);
                handler(signal, info, context);
            }
            handler => {
                let handler: extern "C" fn(libc::c_int) = std::mem::transmute(handler);
                handler(signal);
            }
        }
    }
}

/// Runs generated code on a page of its own. Its status; 1 if it was ended where it polled.
///
/// # Safety
///
/// As for the entry: the context, the arguments and the place for the result are those of the function.
pub(crate) unsafe fn enter(
    entry: Entry,
    context: *mut Context,
    page: &Page,
    args: *const u64,
    out: *mut u64,
) -> u64 {
    page.code_runs();
    // SAFETY: the caller's promise. The stub that may end the call finds the stack of this frame in the context.
    let status = unsafe { mainspring_native_enter(entry as *const libc::c_void, context.cast(), args, out) };
    page.host_runs();
    status
}

/// Lets the task of the call look up whose page has this address. 0 if it may go on, or else the address of the context: the call has
/// ended.
extern "C" fn stopped(address: usize) -> usize {
    STOPS.fetch_add(1, Ordering::Relaxed);
    let Some(pages) = Pages::get() else { return 0 };
    let context = pages.context(((address - pages.base) / SLOT) as u32);
    // SAFETY: the context of the call that polled, which waits for this and uses it no further until this returns.
    let ends = unsafe { Context::look_up(context) };
    if ends { context.addr() } else { 0 }
}

unsafe extern "C" {
    fn mainspring_native_enter(
        entry: *const libc::c_void,
        context: *mut libc::c_void,
        args: *const u64,
        out: *mut u64,
    ) -> u64;
    fn mainspring_native_stop();
}

// `enter` keeps the registers that a function keeps, notes its stack in the context, and calls the entry. `stop` is where the handler lets
// code go on: above its return address is the address that was polled. It keeps every register and the flags, for code that polls
// keeps nothing itself; of the vectors the low 128 bits, since generated code uses no more. If the task ends, it goes on at the end
// of `enter`, on the stack of that frame, with the status 1.
core::arch::global_asm!(
    ".text",
    ".p2align 4",
    ".globl mainspring_native_enter",
    ".hidden mainspring_native_enter",
    "mainspring_native_enter:",
    "push rbp",
    "push rbx",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "sub rsp, 8",
    "mov [rsi + {exit_stack}], rsp",
    "mov rax, rdi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "mov rdx, rcx",
    "call rax",
    "2:",
    "add rsp, 8",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbx",
    "pop rbp",
    "ret",
    ".p2align 4",
    ".globl mainspring_native_stop",
    ".hidden mainspring_native_stop",
    "mainspring_native_stop:",
    "pushfq",
    "push rax",
    "push rcx",
    "push rdx",
    "push rbx",
    "push rbp",
    "push rsi",
    "push rdi",
    "push r8",
    "push r9",
    "push r10",
    "push r11",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov rbp, rsp",
    "mov rdi, [rsp + 128]",
    "sub rsp, 256",
    "and rsp, -16",
    "movaps [rsp], xmm0",
    "movaps [rsp + 16], xmm1",
    "movaps [rsp + 32], xmm2",
    "movaps [rsp + 48], xmm3",
    "movaps [rsp + 64], xmm4",
    "movaps [rsp + 80], xmm5",
    "movaps [rsp + 96], xmm6",
    "movaps [rsp + 112], xmm7",
    "movaps [rsp + 128], xmm8",
    "movaps [rsp + 144], xmm9",
    "movaps [rsp + 160], xmm10",
    "movaps [rsp + 176], xmm11",
    "movaps [rsp + 192], xmm12",
    "movaps [rsp + 208], xmm13",
    "movaps [rsp + 224], xmm14",
    "movaps [rsp + 240], xmm15",
    "cld",
    "call {stopped}",
    "test rax, rax",
    "jnz 3f",
    "movaps xmm0, [rsp]",
    "movaps xmm1, [rsp + 16]",
    "movaps xmm2, [rsp + 32]",
    "movaps xmm3, [rsp + 48]",
    "movaps xmm4, [rsp + 64]",
    "movaps xmm5, [rsp + 80]",
    "movaps xmm6, [rsp + 96]",
    "movaps xmm7, [rsp + 112]",
    "movaps xmm8, [rsp + 128]",
    "movaps xmm9, [rsp + 144]",
    "movaps xmm10, [rsp + 160]",
    "movaps xmm11, [rsp + 176]",
    "movaps xmm12, [rsp + 192]",
    "movaps xmm13, [rsp + 208]",
    "movaps xmm14, [rsp + 224]",
    "movaps xmm15, [rsp + 240]",
    "mov rsp, rbp",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop r11",
    "pop r10",
    "pop r9",
    "pop r8",
    "pop rdi",
    "pop rsi",
    "pop rbp",
    "pop rbx",
    "pop rdx",
    "pop rcx",
    "pop rax",
    "popfq",
    "lea rsp, [rsp + 8]",
    "ret",
    "3:",
    "mov rsp, [rax + {exit_stack}]",
    "mov eax, 1",
    "jmp 2b",
    stopped = sym stopped,
    exit_stack = const EXIT_STACK,
);
