//! Which thread goes first among contexts, and when best effort may insist.

use super::super::ensure;
use super::{Grants, QueueKind};
use mainspring_abi::ThreadRef;
use mainspring_sched::Decision;
use std::cmp::Reverse;

/// The higher band; then the earlier deadline, the higher priority, the earlier release, the lower thread.
type Rank = (Reverse<u8>, u64, Reverse<u16>, u64, u32);

impl Grants {
    fn rank(&self, thread: ThreadRef) -> Option<Rank> {
        let grant = self.held(thread)?;
        let (release, _) = grant.refills.first();
        let spec = &grant.spec;
        Some((Reverse(spec.criticality), grant.due(), Reverse(spec.priority), release, thread.index()))
    }

    /// Whether `a` goes before `b`, both on contexts.
    pub(super) fn more_urgent(&self, a: ThreadRef, b: ThreadRef) -> bool {
        match (self.rank(a), self.rank(b)) {
            (Some(a), Some(b)) => a < b,
            (a, b) => a.is_some() && b.is_none(),
        }
    }

    /// The thread that goes first of all that are ready on contexts on CPU number `at`.
    pub(super) fn most_urgent(&self, at: usize) -> Option<ThreadRef> {
        let ready = self.cpus[at].ready.iter();
        let threads = ready.filter_map(|index| self.holders[*index as usize].as_ref());
        threads.map(|holder| holder.thread).min_by_key(|thread| self.rank(*thread))
    }

    /// Judges `decision`; best effort is `waiting` for the CPU or not.
    pub(super) fn choose(
        &mut self,
        at: usize,
        now: u64,
        waiting: bool,
        decision: Decision,
    ) -> Result<(), String> {
        let first = self.most_urgent(at);
        let cpu_contexts = &mut self.cpus[at];
        (cpu_contexts.on_context, cpu_contexts.cap) = (false, None);
        if cpu_contexts.holders > 0 {
            cpu_contexts.floor.wanted(now, waiting);
        }
        let run = match decision {
            Decision::Run(run) => Some(run),
            Decision::Idle => None,
        };
        let Some(first) = first else {
            let right = run.is_none_or(|run| self.queue(run.thread) == QueueKind::Fair);
            return ensure(right, || format!("{run:?} runs on a context that cannot be used"));
        };
        let due = self.held(first).map_or(u64::MAX, super::Grant::due);
        if waiting && let Some(amount) = self.cpus[at].floor.claims(now, due) {
            self.tally.by_floor += 1;
            self.cpus[at].cap = Some(now + amount);
            return ensure(run.is_some_and(|run| self.queue(run.thread) == QueueKind::Fair), || {
                format!("best effort insists on its floor, and {run:?} runs")
            });
        }
        ensure(run.is_some_and(|run| run.thread == first), || {
            format!("{first:?} is ready on its context and comes first, and {run:?} runs")
        })?;
        let Some((release, amount)) = self.held(first).map(|grant| grant.refills.first()) else {
            return Err(format!("{first:?} runs on no context"));
        };
        ensure(release <= now, || {
            format!("{first:?} runs on a context that cannot be used before {release}")
        })?;
        let end = run.map(|run| run.slice_end.get());
        ensure(end == Some(now + amount), || {
            format!("{first:?} has the CPU until {end:?}, its budget ends at {}", now + amount)
        })?;
        self.tally.on_contexts += 1;
        self.forget(at, first);
        self.cpus[at].on_context = true;
        Ok(())
    }
}
