//! The audit of capabilities: every use of one, and every refusal for want of one, is an event for `tracing` with the target
//! `mainspring::audit` at the debug level. Without a subscriber that wants them, an event costs a load and a branch.

use crate::cx::Cx;
use crate::spans;

/// Notes what a task tried by its `capability`, and whether it could. Returns what came of it.
#[inline]
pub(crate) fn noted<T, E>(
    cx: &Cx,
    capability: &'static str,
    operation: &'static str,
    result: Result<T, E>,
) -> Result<T, E> {
    let (task, granted) = (cx.id().0, result.is_ok());
    spans::event(|| tracing::debug!(target: "mainspring::audit", task, capability, granted, "{operation}"));
    result
}
