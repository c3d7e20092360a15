//! What only a program that attacks the kernel does: odd processor states at a system call, exceptions of every kind, raw
//! words of its own memory, and a thread that needs no memory at all. And what an honest neighbour checks its registers with.
//!
//! The functions cannot harm another process: that is what the proofs show. Their own process may
//! be stopped by any of them.

use core::arch::{asm, global_asm};
use core::sync::atomic::AtomicU64;
use mainspring_abi::kernel::{EXIT_PROCESS, call};

/// A word anywhere. Touching it may stop the process.
#[must_use]
pub fn any_word(address: u64) -> &'static AtomicU64 {
    let aligned = (address & !7).max(8);
    // SAFETY: an address where nothing is mapped stops the process, which is what the caller risks. All accesses are atomic.
    unsafe { AtomicU64::from_ptr(aligned as *mut u64) }
}

/// Control words as a program has them at first, and those that [`odd_call`] sets meanwhile.
#[repr(C)]
struct ControlWords {
    odd_mxcsr: u32,
    odd_control: u32,
    usual_mxcsr: u32,
    usual_control: u32,
}

/// A system call with these flags, stack pointer and floating point control words while it runs. The answer.
#[must_use]
pub fn odd_call(registers: [u64; 3], flags: u64, stack: u64, mxcsr: u32, control: u16) -> u64 {
    let [number, first, second] = registers;
    let words = ControlWords {
        odd_mxcsr: mxcsr & 0xffff,
        odd_control: u32::from(control),
        usual_mxcsr: 0x1f80,
        usual_control: 0x037f,
    };
    let answer;
    // SAFETY: the stack pointer and all control words are put back before anything else runs; the program touches no memory
    // while its stack pointer is odd. Single steps are left out: they would stop the process in the middle.
    unsafe {
        asm!(
            "ldmxcsr [r15]",
            "fldcw [r15 + 4]",
            "mov r13, rsp",
            "push r8",
            "popfq",
            "mov rsp, r9",
            "syscall",
            "mov rsp, r13",
            "push 0x202",
            "popfq",
            "fnclex",
            "fldcw [r15 + 12]",
            "ldmxcsr [r15 + 8]",
            in("r15") &raw const words,
            in("r8") flags & !0x100,
            in("r9") stack,
            inlateout("rax") number => answer,
            in("rdi") first,
            in("rsi") second,
            out("r13") _,
            clobber_abi("sysv64"),
        );
    }
    answer
}

global_asm!(
    // Waits in the kernel and looks at the clock, with everything in registers: whatever happens to the memory and the
    // ring of the process, it ends. rdi: the time stamp at which it does.
    ".global wild_reaper",
    "wild_reaper:",
    "mov r12, rdi",
    "2:",
    "mov eax, {enter}",
    "mov edi, 1",
    "mov esi, 500000",
    "syscall",
    "rdtsc",
    "shl rdx, 32",
    "or rax, rdx",
    "cmp rax, r12",
    "jb 2b",
    "3:",
    "mov eax, {exit}",
    "mov edi, {process}",
    "mov esi, 7",
    "syscall",
    "jmp 3b",
    // Ends its thread at once.
    ".global wild_leaf",
    "wild_leaf:",
    "mov eax, {exit}",
    "xor edi, edi",
    "mov esi, 3",
    "syscall",
    "jmp wild_leaf",
    enter = const call::CAP_ENTER,
    exit = const call::EXIT,
    process = const EXIT_PROCESS,
);

unsafe extern "C" {
    fn wild_reaper();
    fn wild_leaf();
}

/// Where a thread begins that ends its process when the time stamp counter has reached its argument.
#[must_use]
pub fn reaper_entry() -> u64 {
    wild_reaper as *const () as u64
}

/// Where a thread begins that ends at once, with code 3.
#[must_use]
pub fn leaf_entry() -> u64 {
    wild_leaf as *const () as u64
}

/// How many [`fault`]s there are.
pub const FAULTS: u32 = 46;

/// Something that ring 3 may not do, or that raises an exception, by number. Some of them are allowed and return.
pub fn fault(number: u32, value: u64) {
    // SAFETY: for the program itself nothing holds any more; it is there to be stopped.
    unsafe {
        match number {
            0 => {
                asm!("xor edx, edx", "xor ecx, ecx", "mov eax, 1", "div ecx", out("eax") _, out("ecx") _, out("edx") _);
            }
            1 => {
                asm!("mov rax, 0x8000000000000000", "cqo", "mov rcx, -1", "idiv rcx", out("rax") _, out("rcx") _, out("rdx") _);
            }
            2 => asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq", "nop", "nop"),
            // A step that ends inside of a system call.
            3 => {
                asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq", "syscall", "nop", inlateout("rax") 9_u64 => _, out("rcx") _, out("r11") _);
            }
            4 => asm!(".byte 0xf1"),
            5 => asm!("int3"),
            6 => asm!("int 0x80"),
            7 => asm!("int 0x30"),
            8 => asm!("int 0x31"),
            9 => asm!("int 0x02"),
            10 => asm!("int 0x08"),
            11 => asm!("int 0x0e"),
            12 => asm!("int 0xff"),
            13 => asm!("ud2"),
            14 => asm!("cli"),
            15 => asm!("sti"),
            16 => asm!("hlt"),
            17 => asm!("in al, 0x60", out("al") _),
            18 => asm!("mov dx, 0xcf8", "out dx, eax", out("dx") _),
            19 => asm!("rdmsr", in("ecx") 0xc000_0101_u32, out("eax") _, out("edx") _),
            20 => asm!("wrmsr", in("ecx") 0xc000_0100_u32, in("eax") 0, in("edx") 0),
            21 => asm!("mov cr0, rax", in("rax") value),
            22 => asm!("mov rax, cr4", out("rax") _),
            23 => asm!("mov dr0, rax", in("rax") value),
            24 => asm!("mov rax, dr7", out("rax") _),
            25 => asm!("swapgs"),
            26 => asm!("sysretq", in("rcx") value, in("r11") value),
            27 => asm!("sysenter", in("rcx") value, in("rdx") value),
            28 => asm!("invlpg [{}]", in(reg) value),
            29 => asm!("wbinvd"),
            30 => asm!("lgdt [{}]", in(reg) value),
            31 => asm!("lidt [{}]", in(reg) value),
            32 => asm!("ltr ax", in("ax") value as u16),
            33 => asm!("lldt ax", in("ax") value as u16),
            34 => asm!("sgdt [rsp - 64]"),
            35 => asm!("mov ds, {0:x}", in(reg) value as u16),
            36 => asm!("mov gs, {0:x}", in(reg) value as u16),
            37 => asm!("mov rsp, {}", "push rax", in(reg) value, options(noreturn)),
            38 => asm!("jmp {}", in(reg) value, options(noreturn)),
            // A return with flags, selectors and addresses of the program's own choice.
            39 => {
                asm!("push {v}", "push {v}", "push {v}", "push {v}", "push {v}", "iretq", v = in(reg) value, options(noreturn))
            }
            40 => {
                let control = 0x0340_u16;
                asm!("fninit", "fldcw [{}]", "fld1", "fldz", "fdivp", "fwait", in(reg) &raw const control);
            }
            41 => {
                let mxcsr = 0_u32;
                asm!("ldmxcsr [{}]", "xorps xmm0, xmm0", "divss xmm0, xmm0", in(reg) &raw const mxcsr, out("xmm0") _);
            }
            42 => asm!("ldmxcsr [{}]", in(reg) &raw const value),
            43 => asm!("mov rax, [{}]", in(reg) value, out("rax") _),
            44 => asm!("mov [{0}], {0}", in(reg) value),
            _ => asm!("pushfq", "or qword ptr [rsp], 0x3000", "popfq", "cli"),
        }
    }
}

/// Fills general, vector and x87 registers from `seed`, computes with `rounds` turns of a loop, and says whether every one
/// of them still has what it had, and FS, the direction flag and the control words too.
#[must_use]
pub fn registers_hold(seed: u64, rounds: u64) -> bool {
    let mut area = [0_u64; 16];
    let mut found = [0_u64; 16];
    for (word, number) in area.iter_mut().zip(1_u64..) {
        *word = seed.wrapping_mul(2 * number + 1) ^ number;
    }
    let integer = (seed >> 12) as i64;
    let (mut back, mut mxcsr, mut control) = (integer, 0_u32, 0_u16);
    let (left, flags, fs_before, fs_after): (u64, u64, u64, u64);
    // SAFETY: every register that changes is declared or put back; the addresses are of locals.
    unsafe {
        asm!("mov {}, fs:[0]", out(reg) fs_before, options(nostack, preserves_flags, readonly));
        asm!(
            "push rbx", "push rbp",
            "fninit",
            "fild qword ptr [r9]",
            "movq xmm0, [rdi]", "movq xmm1, [rdi + 8]", "movq xmm2, [rdi + 16]", "movq xmm7, [rdi + 24]",
            "movq xmm8, [rdi + 32]", "movq xmm13, [rdi + 40]", "movq xmm14, [rdi + 48]", "movq xmm15, [rdi + 56]",
            "mov rax, [rdi + 64]", "mov rbx, [rdi + 72]", "mov rbp, [rdi + 80]", "mov r10, [rdi + 88]",
            "mov r12, [rdi + 96]", "mov r13, [rdi + 104]", "mov r14, [rdi + 112]", "mov r15, [rdi + 120]",
            "2:", "dec rcx", "jnz 2b",
            "movq [rsi], xmm0", "movq [rsi + 8], xmm1", "movq [rsi + 16], xmm2", "movq [rsi + 24], xmm7",
            "movq [rsi + 32], xmm8", "movq [rsi + 40], xmm13", "movq [rsi + 48], xmm14", "movq [rsi + 56], xmm15",
            "mov [rsi + 64], rax", "mov [rsi + 72], rbx", "mov [rsi + 80], rbp", "mov [rsi + 88], r10",
            "mov [rsi + 96], r12", "mov [rsi + 104], r13", "mov [rsi + 112], r14", "mov [rsi + 120], r15",
            "fistp qword ptr [r9]",
            "pop rbp", "pop rbx",
            "pushfq", "pop r11",
            in("rdi") &raw mut area, in("rsi") &raw mut found, inout("rcx") rounds.max(1) => left,
            in("r9") &raw mut back, out("r11") flags,
            out("rax") _, out("r10") _, out("r12") _, out("r13") _, out("r14") _, out("r15") _,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm7") _, out("xmm8") _, out("xmm13") _,
            out("xmm14") _, out("xmm15") _, out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _, out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
        );
        asm!("stmxcsr [{}]", "fnstcw [{}]", in(reg) &raw mut mxcsr, in(reg) &raw mut control);
        asm!("mov {}, fs:[0]", out(reg) fs_after, options(nostack, preserves_flags, readonly));
    }
    area == found
        && left == 0
        && back == integer
        && flags & 0x0004_7400 == 0
        && mxcsr & 0xffc0 == 0x1f80
        && control == 0x037f
        && fs_before == fs_after
}

/// Loads what a thread may into the selectors that no instruction needs. FS is left alone: its base would go with it.
pub fn set_selectors() {
    // SAFETY: null selectors and the one of user data can be loaded, and nothing is addressed through them.
    unsafe {
        asm!("mov ds, {0:e}", "mov es, {1:e}", "mov gs, {0:e}", in(reg) 0x1b_u32, in(reg) 3_u32,
            options(nomem, nostack, preserves_flags));
    }
}

/// What DS, ES, FS and GS are.
#[must_use]
pub fn selectors() -> [u32; 4] {
    let mut all = [0; 4];
    let [ds, es, fs, gs] = &mut all;
    // SAFETY: selectors are only read.
    unsafe {
        asm!(
            "mov {0:e}, ds",
            "mov {1:e}, es",
            "mov {2:e}, fs",
            "mov {3:e}, gs",
            out(reg) * ds,
            out(reg) * es,
            out(reg) * fs,
            out(reg) * gs,
            options(nomem, nostack, preserves_flags)
        );
    }
    all
}

/// Whether no x87 register is in use, which is how every function of the ABI begins and ends.
#[must_use]
pub fn x87_is_empty() -> bool {
    let mut environment = [0_u32; 7];
    // SAFETY: the instruction stores 28 bytes, and masks all exceptions, as they were.
    unsafe { asm!("fnstenv [{}]", in(reg) &raw mut environment) };
    environment[2] as u16 == 0xffff
}

/// Uses an x87 register for `rounds` turns of a loop, and leaves none in use.
pub fn x87_works(rounds: u64) {
    // SAFETY: the registers are declared, and the stack is empty again at the end.
    unsafe {
        asm!("fld1", "fld1", "2:", "dec {}", "jnz 2b", "fstp st(0)", "fstp st(0)", inout(reg) rounds.max(1) => _,
            out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _, out("st(4)") _, out("st(5)") _,
            out("st(6)") _, out("st(7)") _, options(nostack));
    }
}

global_asm!(
    // Writes down the registers that a new thread begins with. rdi: where to.
    ".global wild_look",
    "wild_look:",
    "mov [rdi], rax",
    "mov [rdi + 8], rbx",
    "mov [rdi + 16], rcx",
    "mov [rdi + 24], rbp",
    "mov [rdi + 32], r8",
    "mov [rdi + 40], r9",
    "mov [rdi + 48], r10",
    "mov [rdi + 56], r11",
    "mov [rdi + 64], r12",
    "mov [rdi + 72], r13",
    "mov [rdi + 80], r14",
    "mov [rdi + 88], r15",
    "pushfq",
    "pop [rdi + 96]",
    "por xmm0, xmm1",
    "por xmm0, xmm2",
    "movups [rdi + 128], xmm0",
    "por xmm3, xmm4",
    "por xmm3, xmm5",
    "movups [rdi + 144], xmm3",
    "por xmm6, xmm7",
    "por xmm6, xmm8",
    "movups [rdi + 160], xmm6",
    "por xmm9, xmm10",
    "movups [rdi + 176], xmm9",
    "por xmm11, xmm12",
    "movups [rdi + 192], xmm11",
    "por xmm13, xmm14",
    "movups [rdi + 208], xmm13",
    "movups [rdi + 224], xmm15",
    "movups [rdi + 240], xmm15",
    "sub rsp, 32",
    "fnstenv [rsp]",
    "mov eax, [rsp + 8]",
    "mov [rdi + 256], rax",
    "jmp wild_leaf",
);

unsafe extern "C" {
    fn wild_look();
}

/// Where a thread begins that writes its first registers to 40 words at its argument, and ends with code 3.
#[must_use]
pub fn look_entry() -> u64 {
    wild_look as *const () as u64
}

/// Enters the kernel with these arguments and a pattern in every register that a system call keeps: 0, or the number of one
/// that has changed. Vector registers may be cleared, or keep what they had.
#[must_use]
pub fn call_keeps_registers(pattern: u64, min: u64, timeout: u64) -> u32 {
    let mut found = [0_u64; 20];
    // SAFETY: every register that changes is declared or put back; `found` has room for what is stored.
    unsafe {
        asm!(
            "push rbx", "push rbp",
            "mov rbx, r12", "lea rbp, [r12 + 1]", "lea r8, [r12 + 2]", "lea r9, [r12 + 3]", "lea r10, [r12 + 4]",
            "lea rdx, [r12 + 5]", "lea r13, [r12 + 6]", "lea r14, [r12 + 7]",
            "movq xmm0, r12", "movq xmm7, r12", "movq xmm15, r12",
            "syscall",
            "mov [r15], rbx", "mov [r15 + 8], rbp", "mov [r15 + 16], r8", "mov [r15 + 24], r9", "mov [r15 + 32], r10",
            "mov [r15 + 40], rdx", "mov [r15 + 48], r13", "mov [r15 + 56], r14", "mov [r15 + 64], r12",
            "mov [r15 + 72], rdi", "mov [r15 + 80], rsi",
            "movq [r15 + 88], xmm0", "movq [r15 + 96], xmm7", "movq [r15 + 104], xmm15",
            "pop rbp", "pop rbx",
            in("r15") &raw mut found, in("r12") pattern, inlateout("rax") call::CAP_ENTER => _,
            inlateout("rdi") min => _, inlateout("rsi") timeout => _,
            out("r13") _, out("r14") _, clobber_abi("sysv64"),
        );
    }
    let expected = (0..8).map(|number| pattern.wrapping_add(number)).chain([pattern, min, timeout]);
    for ((number, expected), found) in (1..).zip(expected).zip(found) {
        if expected != found {
            return number;
        }
    }
    (12..)
        .zip(&found[11..14])
        .find(|(_, found)| **found != 0 && **found < 1 << 63 && **found != pattern)
        .map_or(0, |(number, _)| number)
}

/// `int` with this vector, from code that is written to `page` and then made executable.
pub fn interrupt(vector: u8, page: u64) {
    // int N; ret
    any_word(page).store(0xc3_00cd | u64::from(vector) << 8, core::sync::atomic::Ordering::Relaxed);
    if crate::caps::protect(page, 1, mainspring_schema::Access::Execute).is_ok() {
        execute(page);
    }
}

/// Calls what is at `address`. 98 if it comes back.
pub fn execute(address: u64) -> i64 {
    // SAFETY: it may stop the process, which is what the caller wants to know.
    unsafe { asm!("call {}", in(reg) address, clobber_abi("sysv64")) };
    98
}

/// How many [`instruction`]s there are.
pub const INSTRUCTIONS: u32 = 24;

/// An instruction that ring 3 may not use, by number, other than the instructions of [`fault`].
pub fn instruction(number: u32) {
    // SAFETY: it stops the process.
    unsafe {
        match number {
            0 => asm!("clac"),
            1 => asm!("stac"),
            2 => asm!("clts"),
            3 => asm!("lmsw ax", in("ax") 0_u16),
            4 => asm!("invd"),
            5 => asm!("rdpmc", in("ecx") 0, out("eax") _, out("edx") _),
            6 => asm!("xor ecx, ecx", "xgetbv", out("eax") _, out("ecx") _, out("edx") _),
            7 => asm!("xor ecx, ecx", "xsetbv", in("eax") 7, in("edx") 0, out("ecx") _),
            8 => asm!("vzeroupper"),
            9 => asm!(".byte 0xf3, 0x48, 0x0f, 0xae, 0xd0"), // wrfsbase rax
            10 => asm!(".byte 0xf3, 0x48, 0x0f, 0xae, 0xd8"), // wrgsbase rax
            11 => asm!(".byte 0xf3, 0x48, 0x0f, 0xae, 0xc8"), // rdgsbase rax
            12 => asm!("xor ecx, ecx", "rdpkru", out("eax") _, out("ecx") _, out("edx") _),
            13 => asm!("xor ecx, ecx", "xor edx, edx", "wrpkru", in("eax") 0, out("ecx") _, out("edx") _),
            14 => asm!("sldt ax", out("ax") _),
            15 => asm!("str ax", out("ax") _),
            16 => asm!("sidt [rsp - 64]"),
            17 => asm!("smsw ax", out("ax") _),
            18 => asm!("mov ss, {0:x}", in(reg) 0_u16),
            19 => asm!("mov ss, {0:x}", in(reg) 0x10_u16),
            // A far jump to the kernel's code segment: jmp far [rsp]
            20 => asm!("push 0x08", "push 0", ".byte 0x48, 0xff, 0x2c, 0x24", options(noreturn)),
            21 => asm!("mov cr8, rax", in("rax") 0_u64),
            22 => asm!("xor eax, eax", "mov dr6, rax", out("rax") _),
            _ => asm!("vmcall"),
        }
    }
}

/// How many instructions [`allowed`] knows.
pub const ALLOWED: u32 = 8;

/// An instruction that any program may use and that tells something; what it tells.
#[must_use]
pub fn allowed(number: u32) -> u64 {
    let mut value: u64 = 0;
    // SAFETY: the instructions change nothing but the registers that are declared.
    unsafe {
        match number {
            0 => asm!("lar {0:e}, {1:e}", inout(reg) value, in(reg) 0x28_u32),
            1 => asm!("lsl {0:e}, {1:e}", inout(reg) value, in(reg) 0x28_u32),
            2 => asm!("verw {0:x}", "setz {1}", in(reg) 0x10_u16, inout(reg_byte) value as u8 => _),
            3 => asm!("rdtscp", out("eax") _, out("edx") _, inout("rcx") value),
            4 => asm!("mov {0:x}, ds", inout(reg) value),
            5 => asm!("mov {0:x}, gs", inout(reg) value),
            6 => asm!("mov {0:x}, fs", inout(reg) value),
            _ => asm!("mov {0:x}, es", inout(reg) value),
        }
    }
    value
}

/// Loads a selector into all segment registers that a program may load. FS keeps its base: it is read before, and the kernel
/// sets it again at the next switch.
pub fn load_selectors(selector: u16) {
    // SAFETY: in 64-bit mode the bases of DS, ES and GS are not used by any code here; FS is not loaded.
    unsafe {
        asm!("mov ds, {0:x}", "mov es, {0:x}", "mov gs, {0:x}", in(reg) selector, options(nostack, preserves_flags));
    }
}
