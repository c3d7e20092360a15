//! What became of the calls of this process, by endpoint. It is told at the end: to tell it at once would take the time that is measured.
//!
//! Conserved: a call that was accepted is answered, has failed, or is under way when the run ends.

use crate::plan::plan;
use crate::{QUIET, tell};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use mainspring_abi::plan::{Note, REPLIES};
use mainspring_program::Step;
use mainspring_user::{CapError, caps};
use spin::Mutex;

/// Times that are kept of one endpoint: a few kilobytes of the heap.
const TIMES: usize = 512;

/// How long replies took: of every call, or of every so-manieth of many, and the longest.
struct Times {
    /// When each call was made, and how long it took until its reply.
    kept: Vec<(u64, u64)>,
    longest: (u64, u64),
    /// One of so many is kept.
    one_of: u64,
    seen: u64,
}

impl Default for Times {
    fn default() -> Self {
        Self { kept: Vec::new(), longest: (0, 0), one_of: 1, seen: 0 }
    }
}

impl Times {
    fn add(&mut self, made: u64, took: u64) {
        if took > self.longest.1 {
            self.longest = (made, took);
        }
        if self.kept.len() == TIMES {
            let mut number = 0;
            self.kept.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.one_of *= 2;
        }
        if self.seen.is_multiple_of(self.one_of) {
            self.kept.push((made, took));
        }
        self.seen += 1;
    }

    /// What is told of them: those that were kept, and the longest.
    fn take(&mut self) -> Vec<(u64, u64)> {
        let mut times = core::mem::take(&mut self.kept);
        if !times.contains(&self.longest) && self.seen > 0 {
            times.push(self.longest);
        }
        times
    }
}

/// The calls to one endpoint.
#[derive(Default)]
pub struct Calls {
    accepted: AtomicU64,
    failed: AtomicU64,
    replied: AtomicU64,
    times: Mutex<Times>,
}

/// Room for the calls to each endpoint that these steps name.
pub fn of<'s>(steps: impl Iterator<Item = &'s Step>) -> Vec<Calls> {
    let called =
        steps.filter_map(|step| if let Step::Call(call) = step { Some(call.endpoint) } else { None });
    let count = called.max().map_or(0, |last| last + 1);
    (0..count).map(|_| Calls::default()).collect()
}

/// Whether a call that ended so was accepted: others were refused, and nobody heard of them.
fn is_accepted(outcome: Result<(), CapError>) -> bool {
    use CapError::{Cancelled, DeadlineExpired, Exception, PeerGone, TimedOut};
    outcome.map_or_else(
        |code| [Exception, PeerGone, TimedOut, Cancelled, DeadlineExpired].contains(&code),
        |()| true,
    )
}

/// Makes a call to `endpoint`, and keeps how it ended.
pub fn timed(endpoint: usize, call: impl FnOnce() -> Result<(), CapError>) -> Result<(), CapError> {
    let calls = &plan().calls[endpoint];
    let made = caps::now();
    calls.accepted.fetch_add(1, Ordering::Relaxed);
    let outcome = call();
    match outcome {
        Ok(()) => {
            let took = caps::now() - made;
            calls.replied.fetch_add(1, Ordering::Relaxed);
            let _quiet = QUIET.lock();
            calls.times.lock().add(made, took);
        }
        Err(_) if is_accepted(outcome) => _ = calls.failed.fetch_add(1, Ordering::Relaxed),
        Err(_) => _ = calls.accepted.fetch_sub(1, Ordering::Relaxed),
    }
    outcome
}

/// Tells what became of the calls of this process.
pub fn tell_of_all() {
    for (number, calls) in (0..).zip(&plan().calls) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (accepted, failed, replied) = (read(&calls.accepted), read(&calls.failed), read(&calls.replied));
        if accepted == 0 {
            continue;
        }
        tell(Note::Calls { endpoint: number, accepted, replied, failed });
        let quiet = QUIET.lock();
        let replies = calls.times.lock().take();
        drop(quiet);
        for some in replies.chunks(REPLIES) {
            let mut times = [(0, 0); REPLIES];
            times[..some.len()].copy_from_slice(some);
            tell(Note::Replies { endpoint: number, count: some.len() as u32, times });
        }
    }
}
