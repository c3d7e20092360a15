//! The last words of a process whose task overflowed its stack, from a signal handler: which task, what to do, and where it was.
//!
//! The first part needs no memory, no lock and no buffer but its own: the addresses of the frames, as offsets that `addr2line`
//! takes. Then the names of the functions are tried, which does need memory and locks, and may never end if the task overflowed
//! while it held one of them: an alarm ends that.
#![allow(unsafe_code)]

use super::arena::Stack;
use libc::{c_int, c_void, ucontext_t};
use std::fmt::{self, Write};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Which task.
pub(super) struct Overflowed {
    pub(super) id: u64,
    pub(super) name: Option<&'static str>,
    pub(super) stack: Stack,
    pub(super) worker: usize,
}

/// The most frames that are printed.
const FRAMES: usize = 24;
/// The most lines that are printed of a trace with names: two to a frame, and the handler's own.
const LINES: usize = 80;
/// How long the names may take, in seconds.
const PATIENCE_S: u32 = 5;

/// Where the object with this code is mapped: the first address, and the first beyond it.
static OBJECT: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];
static REPORTS: AtomicBool = AtomicBool::new(false);

/// Finds out what a handler must not look for.
pub(super) fn prepare() {
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid record, with as many headers as it says.
        let (base, headers) = unsafe {
            let info = &*info;
            (info.dlpi_addr as usize, std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()))
        };
        let end = headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD)
            .map(|header| base + (header.p_vaddr + header.p_memsz) as usize)
            .max()
            .unwrap_or(base);
        let is_ours = (base..end).contains(&(prepare as *const () as usize));
        if is_ours {
            OBJECT[0].store(base, Ordering::Relaxed);
            OBJECT[1].store(end, Ordering::Relaxed);
        }
        c_int::from(is_ours)
    }
    // SAFETY: the function above does as the loader asks.
    unsafe { libc::dl_iterate_phdr(Some(look), null_mut()) };
}

/// Says that a task used up its stack, and ends the process.
pub(super) fn task_overflowed(who: &Overflowed, context: &ucontext_t) -> ! {
    begin();
    let mut out = Stderr;
    let name = who.name.unwrap_or("without a name");
    let bytes = who.stack.top() - who.stack.limit();
    let _ = writeln!(
        out,
        "\nmainspring: task {} ({name}) on worker {} has overflowed its stack of {bytes} bytes. The process is aborted: its frames \
         cannot be given up safely.\n\
         Give it a larger stack (SpawnBuilder::stack_size, Config::stack_size), or make the functions that recurse #[budgeted] or \
         call Cx::check in them: then the task fails alone, with TaskError::StackOverflow.",
        who.id, who.worker,
    );
    trace(context);
    end()
}

/// Says that a destructor used up the stack that is kept for them, and ends the process.
pub(super) fn destructor_overflowed(context: &ucontext_t) -> ! {
    begin();
    let _ = writeln!(
        Stderr,
        "\nmainspring: the destructor of a value that a task left behind has overflowed the stack that is kept for such, of {} \
         bytes. The process is aborted.\nA type whose destructor calls itself for each element needs a Drop that loops instead.",
        super::roomy::SIZE,
    );
    trace(context);
    end()
}

/// One thread speaks.
fn begin() {
    if REPORTS.swap(true, Ordering::Relaxed) {
        loop {
            // SAFETY: waits for the signal that ends the process.
            unsafe { libc::pause() };
        }
    }
}

fn end() -> ! {
    extern "C" fn give_up(_: c_int) {
        // SAFETY: ends the process.
        unsafe { libc::abort() };
    }
    // SAFETY: from here on a fault or the alarm ends the process at once.
    unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = give_up as *const () as usize;
        action.sa_flags = libc::SA_NODEFER | libc::SA_ONSTACK;
        for signal in [libc::SIGALRM, libc::SIGSEGV, libc::SIGBUS] {
            libc::sigaction(signal, &raw const action, null_mut());
        }
        let mut alarm: libc::sigset_t = MaybeUninit::zeroed().assume_init();
        libc::sigemptyset(&raw mut alarm);
        libc::sigaddset(&raw mut alarm, libc::SIGALRM);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const alarm, null_mut());
        libc::alarm(PATIENCE_S);
    }
    let names = std::backtrace::Backtrace::force_capture().to_string();
    let _ = writeln!(Stderr, "With names, the innermost first, after the frames of this report:");
    for line in names.lines().take(LINES) {
        let _ = writeln!(Stderr, "{line}");
    }
    // SAFETY: ends the process.
    unsafe { libc::abort() }
}

unsafe extern "C" {
    fn _Unwind_Backtrace(
        each: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
}

struct Walk {
    /// Where the fault was: the frames before it belong to the handler.
    fault: usize,
    found: bool,
    frames: usize,
}

/// Prints the addresses of the frames, the innermost first.
fn trace(context: &ucontext_t) {
    extern "C" fn each(frame: *mut c_void, walk: *mut c_void) -> c_int {
        // SAFETY: the frame is the unwinder's, and the walk belongs to `trace` below.
        let (address, walk) = unsafe { (_Unwind_GetIP(frame), &mut *walk.cast::<Walk>()) };
        walk.found |= address == walk.fault;
        if walk.found {
            if walk.frames < FRAMES {
                print_frame(walk.frames, address);
            }
            walk.frames += 1;
        }
        0
    }
    let fault = context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize;
    let mut walk = Walk { fault, found: false, frames: 0 };
    let _ = writeln!(Stderr, "The innermost frames (addr2line -fe EXECUTABLE OFFSET names them):");
    // SAFETY: the function above does as the unwinder asks.
    unsafe { _Unwind_Backtrace(each, (&raw mut walk).cast()) };
    if !walk.found {
        print_frame(0, fault);
    }
    if walk.frames > FRAMES {
        let _ = writeln!(Stderr, "  and {} more", walk.frames - FRAMES);
    }
}

fn print_frame(index: usize, address: usize) {
    let [base, end] = [&OBJECT[0], &OBJECT[1]].map(|bound| bound.load(Ordering::Relaxed));
    let _ = if (base..end).contains(&address) {
        writeln!(Stderr, "  {index:2}: +{:#x}", address - base)
    } else {
        writeln!(Stderr, "  {index:2}: {address:#018x}")
    };
}

/// Standard error, without the lock of `std`.
struct Stderr;

impl Write for Stderr {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // SAFETY: the bytes are valid for the call. What cannot be written is lost.
        unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
        Ok(())
    }
}
