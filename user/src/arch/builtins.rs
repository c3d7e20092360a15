//! What the compiler calls without being asked: nothing else provides it here.

use core::arch::asm;

/// Unwinding is never reached: panics abort. The precompiled `core` still names this symbol.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// Likewise: code of the precompiled `alloc` names it for cleanups that a panic never reaches.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    panic!("nothing unwinds here")
}

/// # Safety
///
/// As C's `memcpy`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    // SAFETY: the caller vouches for both ranges.
    unsafe {
        asm!(
            "mov rcx, rdx", "shr rcx, 3", "rep movsq", "mov rcx, rdx", "and rcx, 7", "rep movsb",
            inout("rdi") to => _, inout("rsi") from => _, in("rdx") len, out("rcx") _,
            options(nostack, preserves_flags)
        );
    }
    to
}

/// # Safety
///
/// As C's `memmove`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    if (to as usize).wrapping_sub(from as usize) >= len {
        // SAFETY: copying upwards reads every byte before it is overwritten.
        return unsafe { memcpy(to, from, len) };
    }
    // SAFETY: the caller vouches for both ranges; copying downwards reads every byte before it is overwritten.
    unsafe {
        asm!(
            "std", "rep movsb", "cld",
            inout("rdi") to.wrapping_add(len).wrapping_sub(1) => _,
            inout("rsi") from.wrapping_add(len).wrapping_sub(1) => _,
            inout("rcx") len => _,
            options(nostack)
        );
    }
    to
}

/// # Safety
///
/// As C's `memset`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, value: i32, len: usize) -> *mut u8 {
    let pattern = u64::from(value as u8) * 0x0101_0101_0101_0101;
    // SAFETY: the caller vouches for the range.
    unsafe {
        asm!(
            "mov rcx, rdx", "shr rcx, 3", "rep stosq", "mov rcx, rdx", "and rcx, 7", "rep stosb",
            inout("rdi") to => _, in("rax") pattern, in("rdx") len, out("rcx") _,
            options(nostack, preserves_flags)
        );
    }
    to
}

/// # Safety
///
/// As C's `memcmp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, len: usize) -> i32 {
    for at in 0..len {
        // SAFETY: the caller vouches for both ranges.
        let (x, y) = unsafe { (a.add(at).read_volatile(), b.add(at).read_volatile()) };
        if x != y {
            return i32::from(x) - i32::from(y);
        }
    }
    0
}

/// # Safety
///
/// As C's `bcmp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, len: usize) -> i32 {
    // SAFETY: as asked of the caller.
    unsafe { memcmp(a, b, len) }
}

/// # Safety
///
/// As C's `strlen`.
#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(text: *const u8) -> usize {
    let mut len = 0;
    // SAFETY: the caller vouches for a zero byte at the end.
    while unsafe { text.add(len).read_volatile() } != 0 {
        len += 1;
    }
    len
}
