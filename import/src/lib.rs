//! What a Linux machine really did, as a workload file.
//!
//! A recording of scheduler events (the text of ftrace or `perf script`, or a `perf.data` file) becomes a [`Recording`]: who ran
//! where and when, who was woken and by whom. [`Timelines`] are the same by thread: bursts, waits, wakeups, and how Linux itself
//! served them. [`to_workload`] writes them as a workload, and [`compare`] holds another schedule of it against Linux's own. The
//! JSON of rt-app is a workload already, in other words: [`rt_app::to_workload`].
//!
//! Conserved: the bursts of a thread sum to the CPU time that the recording shows, and each wait is as long as recorded or ends by
//! the wakeup that ended it. Nothing is guessed: what cannot be read is an [`ImportError`] with its place.

mod compare;
mod error;
mod events;
mod perf_data;
pub mod rt_app;
mod text;
mod timeline;
mod workload;

pub use compare::{Ours, compare};
pub use error::{ImportError, Position};
pub use events::{Event, Kind, Recording, Task, Waker};
pub use timeline::{Act, Thread, Timelines};
pub use workload::to_workload;

/// The forms that can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// `perf.data`, as `perf sched record` writes it.
    PerfData,
    /// The text of ftrace or of `perf script`.
    Text,
    /// The JSON of rt-app.
    RtApp,
}

/// What `bytes` look like.
pub fn form(bytes: &[u8]) -> Result<Form, ImportError> {
    if bytes.starts_with(perf_data::MAGIC) {
        return Ok(Form::PerfData);
    }
    if bytes.starts_with(b"\x17\x08\x44tracing") {
        return Err(ImportError::TraceDat);
    }
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    match first {
        None => Err(ImportError::NoEvents),
        Some(b'{') => Ok(Form::RtApp),
        Some(b'/') if bytes.contains(&b'{') => Ok(Form::RtApp),
        Some(_) => Ok(Form::Text),
    }
}

/// Reads a recording of scheduler events.
pub fn read(bytes: &[u8]) -> Result<Recording, ImportError> {
    match form(bytes)? {
        Form::PerfData => perf_data::read(bytes),
        Form::Text => text::read(bytes),
        Form::RtApp => Err(ImportError::NoEvents),
    }
}
