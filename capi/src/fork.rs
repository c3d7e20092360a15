//! A process that forks: its child has the memory of the schedulers, and none of their threads. Locks may be held there for ever, and what a
//! call waits for does not come. So in the child every call is refused before it touches anything.
#![allow(unsafe_code)]

use crate::status::{JANUS_NO_MEMORY, Problem};
use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static IS_CHILD: AtomicBool = AtomicBool::new(false);

type Handler = Option<unsafe extern "C" fn()>;

unsafe extern "C" {
    fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> c_int;
}

unsafe extern "C" fn begin_child() {
    IS_CHILD.store(true, Ordering::Relaxed);
}

/// Whether the process was forked after its first scheduler was made. The child begins with one thread, which has seen the store.
pub(crate) fn is_child() -> bool {
    IS_CHILD.load(Ordering::Relaxed)
}

/// Looks out for forks from here on.
pub(crate) fn watch() -> Result<(), Problem> {
    static WATCHED: OnceLock<c_int> = OnceLock::new();
    // SAFETY: the handler stores a flag, which a child may do before anything else.
    let failed = *WATCHED.get_or_init(|| unsafe { pthread_atfork(None, None, Some(begin_child)) });
    if failed == 0 { Ok(()) } else { Err(JANUS_NO_MEMORY.into()) }
}
