//! Stacks for tasks: slots of one large mapping, each with a guard below it.
//!
//! Conserved: a slot belongs to one task, to one worker's free list or to the arena's free list, never to two of them.
//! Memory is committed by touching it, so a slot costs nothing until a task first runs on it.
#![allow(unsafe_code)]

use super::memcheck;
use crate::error::StackError;
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Linux 6.13: a guard that is a mark in the page table instead of a mapping of its own.
const MADV_GUARD_INSTALL: i32 = 102;
pub(crate) const PAGE: usize = 4096;
/// Room for the head of a stack, at its top.
const HEAD: usize = size_of::<StackHead>().next_multiple_of(64);
/// Stacks begin at one of this many cache lines, since the tops of all slots would share one set of the cache.
const COLOURS: usize = 16;
/// Bytes below each stack that fault when touched. More than a page, since C code may step over one: only Rust touches every
/// page of a large frame.
pub(crate) const GUARD: usize = 4 * PAGE;
/// What an unwind needs: from the first raise to the landing pads of the frames above. Measured: 5.3 KiB.
const LEAST_RESERVE: usize = 8 << 10;
/// What a panic needs whose hook prints a backtrace, which is the most that ordinary code does on its last legs. Measured: 22 KiB.
const USUAL_RESERVE: usize = 24 << 10;
/// The least stack: the least reserve, and as much to work with.
pub(crate) const LEAST_STACK: usize = 2 * LEAST_RESERVE;

/// How many stacks a runtime must have room for that was not told how many.
const FEWEST: usize = 1 << 10;

/// What a stack says of itself, at its top.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct StackHead {
    /// The next in a free list.
    pub(crate) next: Option<Stack>,
    /// The lowest usable address; the guard is below.
    limit: usize,
    /// Where a context may begin.
    top: usize,
    /// With less than this left above the limit, the runtime's entry points fail the task by unwinding.
    reserve: usize,
    /// The size of a mapping of its own, or 0 for a slot of the arena.
    own_mapping: usize,
}

/// A stack that has no other owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stack(NonNull<StackHead>);

impl Stack {
    fn head(&self) -> &StackHead {
        // SAFETY: the head was written when the stack was first handed out and stays until it is unmapped; a `Stack` is
        // not used after that.
        unsafe { self.0.as_ref() }
    }

    /// The lowest usable address.
    pub(crate) fn limit(&self) -> usize {
        self.head().limit
    }

    /// Where a context may begin.
    pub(crate) fn top(&self) -> usize {
        self.head().top
    }

    /// How much of the stack, from its limit, is kept for unwinding, panics and destructors.
    pub(crate) fn reserve(&self) -> usize {
        self.head().reserve
    }

    /// Whether touching `address` is an overflow of this stack.
    pub(crate) fn guards(&self, address: usize) -> bool {
        self.limit().wrapping_sub(address).wrapping_sub(1) < GUARD
    }

    pub(crate) fn address(&self) -> usize {
        self.0.as_ptr() as usize
    }

    /// # Safety
    ///
    /// `address` came from [`Stack::address`] of a stack that is still mapped.
    pub(crate) unsafe fn from_address(address: usize) -> Option<Self> {
        NonNull::new(address as *mut StackHead).map(Self)
    }

    pub(crate) fn set_next(&self, next: Option<Self>) {
        // SAFETY: the holder of a free stack is alone with its head.
        unsafe { (*self.0.as_ptr()).next = next };
    }

    pub(crate) fn next(&self) -> Option<Self> {
        self.head().next
    }

    pub(crate) fn is_pooled(&self) -> bool {
        self.head().own_mapping == 0
    }
}

// SAFETY: a stack is memory that its holder owns.
unsafe impl Send for Stack {}

/// How guards are made here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardKind {
    /// MADV_GUARD_INSTALL: a million guards cost no mapping.
    PageTableMark,
    /// mprotect: each guard splits a mapping, so the kernel's limit on mappings bounds the stacks.
    Protection,
}

/// The mapping that stacks come from.
#[derive(Debug)]
pub(crate) struct Arena {
    base: usize,
    slot: usize,
    slots: usize,
    used: AtomicUsize,
    guards: GuardKind,
    free: Mutex<Option<Stack>>,
    free_hint: AtomicBool,
}

impl Arena {
    /// Reserves address space for as many stacks of `size` usable bytes as the system allows, up to `most`.
    pub(crate) fn up_to(size: usize, most: usize) -> Result<Self, StackError> {
        let mut slots = most;
        loop {
            match Self::new(size, slots) {
                Err(StackError::Os(_)) if slots > FEWEST => slots /= 2,
                result => return result,
            }
        }
    }

    /// Reserves address space for `slots` stacks of `size` usable bytes each.
    pub(crate) fn new(size: usize, slots: usize) -> Result<Self, StackError> {
        let slot = size + GUARD;
        let length = slot.checked_mul(slots).ok_or(StackError::TooLarge)?;
        let base = map(length)?;
        // Huge pages would commit 2 MiB where a task needs 4 KiB.
        // SAFETY: the range was just mapped. Failure leaves the default, which only costs memory.
        unsafe { libc::madvise(base as *mut _, length, libc::MADV_NOHUGEPAGE) };
        // SAFETY: the first guard of the mapping, which is not in use.
        let marks = unsafe { libc::madvise(base as *mut _, GUARD, MADV_GUARD_INSTALL) } == 0;
        let guards = if marks { GuardKind::PageTableMark } else { GuardKind::Protection };
        Ok(Self {
            base,
            slot,
            slots,
            used: AtomicUsize::new(0),
            guards,
            free: Mutex::new(None),
            free_hint: AtomicBool::new(false),
        })
    }

    pub(crate) fn guards(&self) -> GuardKind {
        self.guards
    }

    /// A stack that was used before, or a new one.
    pub(crate) fn take(&self) -> Result<Stack, StackError> {
        if self.free_hint.load(Ordering::Relaxed) {
            let mut free = self.free.lock().expect("no panic while it is held");
            if let Some(stack) = *free {
                *free = stack.next();
                if free.is_none() {
                    self.free_hint.store(false, Ordering::Relaxed);
                }
                return Ok(stack);
            }
        }
        let index = self.used.fetch_add(1, Ordering::Relaxed);
        if index >= self.slots {
            self.used.fetch_sub(1, Ordering::Relaxed);
            return Err(StackError::Exhausted { slots: self.slots });
        }
        let bottom = self.base + index * self.slot;
        guard(bottom, self.guards)?;
        Ok(write_head(bottom + GUARD, bottom + self.slot, index % COLOURS, 0))
    }

    /// Takes back the chain that begins at `stack`.
    pub(crate) fn put_chain(&self, first: Stack, last: Stack) {
        let mut free = self.free.lock().expect("no panic while it is held");
        last.set_next(*free);
        *free = Some(first);
        self.free_hint.store(true, Ordering::Relaxed);
    }

    /// Whether no new stack can be made: those that are free have been used before.
    pub(crate) fn is_tight(&self) -> bool {
        self.used.load(Ordering::Relaxed) >= self.slots
    }

    /// How many stacks have ever been handed out.
    pub(crate) fn touched(&self) -> usize {
        self.used.load(Ordering::Relaxed).min(self.slots)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: our mapping; the runtime drops the arena after its last worker and its last task.
        unsafe { libc::munmap(self.base as *mut _, self.slot * self.slots) };
    }
}

/// A stack of an unusual size, in a mapping of its own.
pub(crate) fn dedicated(size: usize) -> Result<Stack, StackError> {
    let usable = size.checked_next_multiple_of(PAGE).ok_or(StackError::TooLarge)?;
    let length = usable.checked_add(GUARD).ok_or(StackError::TooLarge)?;
    let bottom = map(length)?;
    guard(bottom, GuardKind::Protection)?;
    Ok(write_head(bottom + GUARD, bottom + length, 0, length))
}

/// Gives the mapping of a dedicated stack back.
pub(crate) fn unmap(stack: Stack) {
    let head = stack.head();
    let (bottom, length) = (head.limit - GUARD, head.own_mapping);
    debug_assert_ne!(length, 0);
    // SAFETY: a dedicated stack is a mapping of exactly this range, and the caller was its only holder.
    unsafe { libc::munmap(bottom as *mut _, length) };
}

fn map(length: usize) -> Result<usize, StackError> {
    // SAFETY: a new anonymous mapping at an address of the kernel's choice.
    let base = unsafe {
        libc::mmap(
            null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED { Err(StackError::Os(io::Error::last_os_error())) } else { Ok(base as usize) }
}

fn guard(bottom: usize, kind: GuardKind) -> Result<(), StackError> {
    // SAFETY: the pages at `bottom` are the guard of a slot that was never handed out.
    let failed = unsafe {
        match kind {
            GuardKind::PageTableMark => libc::madvise(bottom as *mut _, GUARD, MADV_GUARD_INSTALL),
            GuardKind::Protection => libc::mprotect(bottom as *mut _, GUARD, libc::PROT_NONE),
        }
    } != 0;
    if failed { Err(StackError::Os(io::Error::last_os_error())) } else { Ok(()) }
}

fn write_head(limit: usize, end: usize, colour: usize, own_mapping: usize) -> Stack {
    let head = (end - HEAD) as *mut StackHead;
    let top = end - HEAD - colour * 64;
    let reserve = ((top - limit) / 4).clamp(LEAST_RESERVE, USUAL_RESERVE);
    memcheck::register(limit, end);
    // SAFETY: the top of a slot that is ours alone, aligned to 64 since slots are whole pages.
    unsafe { head.write(StackHead { next: None, limit, top, reserve, own_mapping }) };
    // SAFETY: not null.
    Stack(unsafe { NonNull::new_unchecked(head) })
}
