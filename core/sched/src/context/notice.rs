//! What a context tells its watchers: two cells of fixed size, one per kind of event.
//!
//! Conserved: a notice describes what has been enforced already. It grants nothing, wakes no thread by itself and needs
//! no memory: events that come before a cell is drained raise its counters, which saturate.

use core::fmt;
use mainspring_abi::{ContextRef, Nanos, ThreadRef};

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoticeKind {
    /// The budget was used up.
    BudgetDepleted,
    /// A deadline or a call's timeout passed.
    DeadlineOrTimeout,
}

impl NoticeKind {
    /// Both kinds, in the order of their cells.
    pub const ALL: [Self; 2] = [Self::BudgetDepleted, Self::DeadlineOrTimeout];
}

impl fmt::Display for NoticeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BudgetDepleted => "budget-depleted",
            Self::DeadlineOrTimeout => "deadline-or-timeout",
        })
    }
}

/// One cell's content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Notice {
    /// The context that it is of.
    pub context: ContextRef,
    /// How many events of this kind there ever were; saturates.
    pub sequence: u32,
    /// How many of them since the cell was last drained; saturates.
    pub coalesced: u32,
    /// The holder of the context at the last of them.
    pub holder: ThreadRef,
    /// What was left of the budget then.
    pub remaining: Nanos,
    /// When there is something to use again, or when the deadline was.
    pub next: Nanos,
    /// Whether the holder had it on loan.
    pub donated: bool,
}

/// A context's two cells.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Notices {
    cells: [Option<Notice>; 2],
    sequences: [u32; 2],
    waiter: Option<ThreadRef>,
}

impl Notices {
    /// Empty cells.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets `waiter` be woken by the next event.
    pub fn arm(&mut self, waiter: ThreadRef) {
        self.waiter = Some(waiter);
    }

    /// The thread that the next event wakes.
    #[must_use]
    pub fn waiter(&self) -> Option<ThreadRef> {
        self.waiter
    }

    /// Takes out the thread that the next event was to wake.
    pub fn take_waiter(&mut self) -> Option<ThreadRef> {
        self.waiter.take()
    }

    /// Whether there is nothing to tell.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cells.iter().all(Option::is_none)
    }

    /// Records an event; the thread that was waiting for one.
    pub(crate) fn record(&mut self, kind: NoticeKind, event: Notice) -> Option<ThreadRef> {
        let index = kind as usize;
        let sequence = self.sequences[index].saturating_add(1);
        self.sequences[index] = sequence;
        let coalesced = self.cells[index].map_or(0, |cell| cell.coalesced).saturating_add(1);
        self.cells[index] = Some(Notice { sequence, coalesced, ..event });
        self.waiter.take()
    }

    /// What a cell holds.
    #[must_use]
    pub fn peek(&self, kind: NoticeKind) -> Option<Notice> {
        self.cells[kind as usize]
    }

    /// Empties both cells.
    pub fn drain(&mut self) -> [Option<Notice>; 2] {
        core::mem::take(&mut self.cells)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn an_event(remaining: u64) -> Notice {
        Notice {
            context: ContextRef::new(1, 0),
            sequence: 0,
            coalesced: 0,
            holder: ThreadRef::new(3, 0),
            remaining: Nanos::new(remaining),
            next: Nanos::new(9),
            donated: false,
        }
    }

    //= ARCH:notify.slots
    //= ARCH:notify.coalesce
    #[test]
    fn events_before_a_drain_merge_and_counters_saturate() {
        let mut notices = Notices::new();
        for n in 0..3 {
            assert_eq!(notices.record(NoticeKind::BudgetDepleted, an_event(n)), None);
        }
        let [depleted, late] = notices.drain();
        let depleted = depleted.expect("three events");
        assert_eq!((depleted.sequence, depleted.coalesced, depleted.remaining.get()), (3, 3, 2));
        assert_eq!(late, None);
        assert_eq!(notices.drain(), [None, None]);
        notices.sequences[0] = u32::MAX;
        notices.record(NoticeKind::BudgetDepleted, an_event(0));
        let again = notices.peek(NoticeKind::BudgetDepleted).expect("one event");
        assert_eq!((again.sequence, again.coalesced), (u32::MAX, 1));
    }

    //= ARCH:notify.waiter
    #[test]
    fn a_waiter_is_told_once() {
        let mut notices = Notices::new();
        notices.arm(ThreadRef::new(7, 1));
        let told = notices.record(NoticeKind::DeadlineOrTimeout, an_event(0));
        assert_eq!(told, Some(ThreadRef::new(7, 1)));
        assert_eq!(notices.record(NoticeKind::DeadlineOrTimeout, an_event(0)), None);
    }
}
