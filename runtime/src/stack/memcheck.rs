//! Tells valgrind where stacks are. Without that it takes a switch between two of them for a call or a return, and forgets what
//! is in the frames between.
#![allow(unsafe_code)]

/// The request by which a program names a stack, of `valgrind.h`.
const STACK_REGISTER: usize = 0x1501;

/// Names the stack from `bottom` to `top`. Five instructions that change nothing, unless valgrind reads them.
pub(super) fn register(bottom: usize, top: usize) {
    let request = [STACK_REGISTER, bottom, top, 0, 0, 0];
    // SAFETY: outside of valgrind the rotations add up to 128 bits, which leaves `rdi` as it was, and the exchange is of a
    // register with itself. Valgrind reads `request` and writes its answer to `rdx`.
    unsafe {
        core::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") request.as_ptr(),
            inout("rdx") 0usize => _,
            inout("rdi") 0usize => _,
            options(nostack),
        );
    }
}
