//! Tasks as spans of `tracing`: a task's life is a span, below its spawner's span, and what happens to it are events inside.
//!
//! Conserved: a span is entered on the thread that runs its task, left before that thread goes on with anything else, and
//! closed before the end of the task is reported.
//!
//! A runtime keeps spans if a subscriber wants the target `mainspring` at the trace level when it is built. One that does not
//! has only events, and looks at one word for each.

use crate::foreign::tell_subscriber;
use crate::fork::is_job;
use crate::runtime::Inner;
use crate::task::TaskPtr;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard};
use tracing::level_filters::LevelFilter;
use tracing::{Level, Span, trace, trace_span};

/// The spans of the tasks of a runtime, by the tasks' ids: records have no room for what is rarely wanted.
#[derive(Debug, Default)]
pub(crate) struct Spans(Mutex<HashMap<u64, Span>>);

impl Spans {
    /// The spans, if a subscriber wants them.
    pub(crate) fn if_wanted() -> Option<Self> {
        tracing::enabled!(target: "mainspring", Level::TRACE).then(Self::default)
    }

    fn all(&self) -> MutexGuard<'_, HashMap<u64, Span>> {
        self.0.lock().expect("no panic while it is held")
    }

    /// The task's span, or `Span::none` if it has none.
    pub(crate) fn of(&self, task: TaskPtr) -> Span {
        self.all().get(&id(task)).cloned().unwrap_or_else(Span::none)
    }

    fn open(&self, task: TaskPtr, span: Span) {
        self.all().insert(id(task), span);
    }

    /// The task is over.
    pub(crate) fn close(&self, task: TaskPtr) {
        // Dropped outside of the lock: a subscriber may do much then.
        let closed = self.all().remove(&id(task));
        tell_subscriber(|| drop(closed));
    }
}

fn id(task: TaskPtr) -> u64 {
    task.id.load(Ordering::Relaxed)
}

fn span_of(task: TaskPtr, rt: &Inner) -> Span {
    rt.spans.as_ref().map_or_else(Span::none, |spans| spans.of(task))
}

#[inline(always)]
fn somebody_listens() -> bool {
    LevelFilter::current() == LevelFilter::TRACE
}

/// An event at the debug level.
#[inline(always)]
pub(crate) fn event(report: impl FnOnce()) {
    if LevelFilter::current() >= LevelFilter::DEBUG {
        tell_subscriber(report);
    }
}

/// A task was spawned, below what its spawner does now. It is not yet published.
#[inline(always)]
pub(crate) fn spawned(task: TaskPtr) {
    #[cold]
    #[inline(never)]
    fn report(task: TaskPtr) {
        let nursery = task.nursery();
        tell_subscriber(|| {
            let span = match &nursery.rt().spans {
                Some(spans) => {
                    let name = nursery.rt().labels.of(id(task)).name;
                    let span = trace_span!(target: "mainspring", "task", task = id(task), nursery = nursery.id, name);
                    spans.open(task, span.clone());
                    span
                }
                None => Span::none(),
            };
            span.in_scope(|| trace!(target: "mainspring", task = id(task), nursery = nursery.id, "spawn"));
        });
    }
    if somebody_listens() {
        report(task);
    }
}

/// A stolen half of a join becomes a task of its own, below that which forked.
pub(crate) fn adopted(task: TaskPtr, parent: TaskPtr) {
    let nursery = task.nursery();
    if let Some(spans) = &nursery.rt().spans {
        tell_subscriber(|| {
            let below = spans.of(parent);
            let span = trace_span!(target: "mainspring", parent: &below, "task", task = id(task), nursery = nursery.id);
            spans.open(task, span);
        });
    }
}

/// A task that waited is ready, and held by the caller.
#[inline(always)]
pub(crate) fn woken(task: TaskPtr) {
    #[cold]
    #[inline(never)]
    fn report(task: TaskPtr) {
        tell_subscriber(|| {
            let span = span_of(task, task.nursery().rt());
            span.in_scope(|| trace!(target: "mainspring", task = id(task), "wake"));
        });
    }
    if somebody_listens() {
        report(task);
    }
}

/// A worker has taken a task, or a half of a join, from another.
pub(crate) fn stolen(rt: &Inner, thief: usize, victim: usize, word: usize) {
    if somebody_listens() {
        tell_subscriber(|| {
            let span = if is_job(word) { Span::none() } else { span_of(TaskPtr::from_word(word), rt) };
            span.in_scope(|| trace!(target: "mainspring", thief, victim, "steal"));
        });
    }
}
