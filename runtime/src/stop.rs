//! What ends a task, as a value: for frames of other languages, which cannot be unwound.
//!
//! Conserved: a task whose stop was caught still ends by it, unless the reason is gone. Whoever has the [`Stop`] resumes it
//! where the frames in between are over.

use crate::error::TaskError;
use crate::task::body::StopUnwind;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// What ends a task: a cancellation, the end of its budget, a panic.
pub struct Stop(Option<Box<dyn Any + Send>>);

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stop").field(&self.error()).finish()
    }
}

impl Stop {
    /// Runs `f`. What would unwind comes back as a value.
    pub fn catch<R>(f: impl FnOnce() -> R) -> Result<R, Self> {
        catch_unwind(AssertUnwindSafe(f)).map_err(Self::of)
    }

    pub(crate) fn of(payload: Box<dyn Any + Send>) -> Self {
        Self(Some(payload))
    }

    pub(crate) fn into_payload(mut self) -> Box<dyn Any + Send> {
        self.0.take().expect("taken once")
    }

    /// Why the task ends, if the runtime ends it. `None` for a panic.
    pub fn error(&self) -> Option<&TaskError> {
        self.0.as_ref()?.downcast_ref::<StopUnwind>()?.error()
    }

    /// Ends the task, by unwinding.
    pub fn resume(self) -> ! {
        resume_unwind(self.into_payload())
    }
}

impl Drop for Stop {
    /// The reason is gone, or another stop has taken its place.
    fn drop(&mut self) {
        if let Some(payload) = self.0.take() {
            StopUnwind::is_over(payload);
        }
    }
}
