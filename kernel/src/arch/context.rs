//! What a user thread is between two of its instructions.
//!
//! ```text
//! +0    r15 r14 r13 r12 r11 r10 r9 r8 rbp rdi rsi rdx rcx rbx rax      pushed by the entry code
//! +120  vector (0x100 for a system call), error
//! +136  rip cs rflags rsp ss                                           pushed by the processor, or as if
//! +176  FXSAVE area
//! ```
//!
//! The processor's stack pointer for entries from user mode is +176 of the running thread: what it saves lands in place.

use super::cpu;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};
use mainspring_abi::kernel::DIRECT_WORDS;

pub use super::paging::USER_END;

pub(super) const FRAME_SIZE: usize = 176;
pub(super) const SYSCALL: u64 = 0x100;
/// A context that is restored whole but was not interrupted: a new thread.
const FRESH: u64 = 0x101;

const USER_CODE: u64 = 0x23;
const USER_DATA: u64 = 0x1b;
/// Interrupts on, and the bit that is always one.
const USER_FLAGS: u64 = 0x202;

/// The registers of a user thread.
#[repr(C, align(16))]
#[derive(Debug)]
pub struct Context {
    r15_to_r8: [u64; 8],
    rbp: u64,
    rdi: u64,
    rsi: u64,
    rdx: u64,
    rcx: u64,
    rbx: u64,
    rax: u64,
    vector: u64,
    error: u64,
    rip: u64,
    cs: u64,
    rflags: u64,
    rsp: u64,
    ss: u64,
    fpu: [u8; 512],
    fs_base: u64,
}

const _: () = assert!(core::mem::offset_of!(Context, fpu) == FRAME_SIZE);

impl Context {
    const EMPTY: Self = Self {
        r15_to_r8: [0; 8],
        rbp: 0,
        rdi: 0,
        rsi: 0,
        rdx: 0,
        rcx: 0,
        rbx: 0,
        rax: 0,
        vector: FRESH,
        error: 0,
        rip: 0,
        cs: USER_CODE,
        rflags: USER_FLAGS,
        rsp: 0,
        ss: USER_DATA,
        fpu: [0; 512],
        fs_base: 0,
    };

    /// A thread that begins at `entry`.
    pub fn start(&mut self, entry: u64, stack: u64, arguments: [u64; 3], fs_base: u64) {
        *self = Self::EMPTY;
        self.rip = entry;
        self.rsp = stack;
        [self.rdi, self.rsi, self.rdx] = arguments;
        self.fs_base = fs_base;
        // The state after power-on, with all exceptions masked.
        self.fpu[0..2].copy_from_slice(&0x037f_u16.to_le_bytes());
        self.fpu[24..28].copy_from_slice(&0x1f80_u32.to_le_bytes());
    }

    /// The system call's number and arguments.
    #[must_use]
    pub fn call(&self) -> (u64, [u64; 3]) {
        (self.rax, [self.rdi, self.rsi, self.rdx])
    }

    /// The message of a request in registers.
    #[must_use]
    #[inline]
    pub fn words(&self) -> [u64; DIRECT_WORDS] {
        let [_, _, _, _, _, r10, r9, r8] = self.r15_to_r8;
        [self.rdx, r10, r8, r9]
    }

    /// What the system call returns.
    pub fn answer(&mut self, value: u64) {
        self.rax = value;
    }

    /// What comes back for a request in registers.
    #[inline]
    pub fn receive(&mut self, len: u32, call_id: u32, deadline_ns: u64, words: [u64; DIRECT_WORDS]) {
        (self.rax, self.rsi, self.rdi) = (u64::from(len), u64::from(call_id), deadline_ns);
        let [_, _, _, _, _, r10, r9, r8] = &mut self.r15_to_r8;
        [self.rdx, *r10, *r8, *r9] = words;
    }

    /// Where the thread is.
    #[must_use]
    pub fn instruction(&self) -> u64 {
        self.rip
    }

    /// Whether its next instruction has an address in the lower half. The processor refuses to leave to any other, in the
    /// kernel's name. A processor that looks at a jump's target only when it gets there can be interrupted in between.
    #[must_use]
    pub fn is_somewhere(&self) -> bool {
        self.rip < 1 << 47
    }

    /// Whether it says what only a thread in user mode can be: selectors, an instruction in the lower half, interrupts on, no
    /// rights to ports.
    #[must_use]
    pub(super) fn is_of_user_mode(&self) -> bool {
        const PORTS: u64 = 3 << 12;
        (self.cs, self.ss) == (USER_CODE, USER_DATA)
            && self.is_somewhere()
            && self.rflags & (USER_FLAGS | PORTS) == USER_FLAGS
    }

    /// Whether `base` is its FS base, or the one that a thread gives itself by loading a selector: that of every segment there is.
    pub(super) fn has_fs_base(&self, base: u64) -> bool {
        base == self.fs_base || base == 0
    }

    /// What caused the entry.
    #[must_use]
    pub(super) fn cause(&self) -> (u64, u64) {
        (self.vector, self.error)
    }

    /// Sets the FS base, and the register too, since the thread is running.
    pub fn set_fs_base(&mut self, base: u64) {
        self.fs_base = base;
        cpu::set_fs_base(base);
    }
}

impl Context {
    /// Makes this, which the CPU has, the context that it enters from and leaves to.
    #[inline(always)]
    pub fn install(&mut self, switched: bool) {
        if switched {
            if self.vector == SYSCALL {
                // Another thread's registers are loaded: the whole area is restored, not only cleared.
                self.error = 1;
                // A system call saves the control words alone. What the last interrupt saved as the x87 status and tags is
                // not what they were at the call, where the ABI has no x87 register in use.
                self.fpu[2..6].fill(0);
            }
            cpu::set_fs_base(self.fs_base);
        }
        cpu::set_entry(self);
    }
}

/// The context of a thread, which at most one CPU has.
#[derive(Debug)]
pub struct ContextCell {
    context: UnsafeCell<Context>,
    /// The CPU that has it, plus one.
    owner: AtomicU32,
}

// SAFETY: the context is reached only by the CPU that `owner` names, see `bind`.
unsafe impl Sync for ContextCell {}

impl Default for ContextCell {
    fn default() -> Self {
        Self { context: UnsafeCell::new(Context::EMPTY), owner: AtomicU32::new(0) }
    }
}

impl ContextCell {
    /// Takes the context for this CPU.
    ///
    /// # Panics
    ///
    /// If another CPU has it: the same thread would run twice.
    #[expect(clippy::mut_from_ref, reason = "see `mine`")]
    pub fn bind(&self) -> &mut Context {
        let me = cpu::index() as u32 + 1;
        // Acquire: pairs with the release in `unbind`; what the last CPU saved is visible here.
        let before = self.owner.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed);
        assert!(before.is_ok(), "a thread was about to run on two CPUs");
        // SAFETY: this CPU is the owner since just now; for the rest see `mine`.
        unsafe { &mut *self.context.get() }
    }

    /// The context of a thread that this CPU has.
    ///
    /// # Panics
    ///
    /// If it has not.
    #[expect(
        clippy::mut_from_ref,
        reason = "the owner word makes this CPU its only user, and handlers are not nested"
    )]
    #[inline]
    #[track_caller]
    pub fn mine(&self) -> &mut Context {
        assert!(self.is_mine(), "another CPU's context");
        // SAFETY: this CPU is the owner, is not interrupted in the kernel, and makes no second reference while one
        // lives: each is used within one statement of the scheduler's code.
        unsafe { &mut *self.context.get() }
    }

    #[inline(always)]
    fn is_mine(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == cpu::index() as u32 + 1
    }

    /// Lets go of it: the thread may run elsewhere from now on.
    #[inline]
    #[track_caller]
    pub fn unbind(&self) {
        assert!(self.is_mine(), "another CPU's context");
        // Release: pairs with the acquire in `bind`.
        self.owner.store(0, Ordering::Release);
    }
}
