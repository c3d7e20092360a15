//! Calls into the host's own code, from wherever the runtime finds that something has happened.
//!
//! Conserved: no unwind leaves such a call. It would end a task that has nothing to do with it, or a worker.

use crate::task::body::discard;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls it. A panic is told to the panic hook, and goes no further.
pub(crate) fn call(told: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(told)) {
        discard(payload);
    }
}
