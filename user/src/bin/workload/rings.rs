//! The rings of a process: each is the ring that the kernel gave its owner's thread.
//!
//! An entry asks for nothing, and costs what it costs to be carried: by the kernel's poller under the lease that names the ring, and
//! otherwise by its owner's own entry. A ring that threads poll is memory of the process: see [`crate::polled`].
//!
//! Conserved: a ticket is outstanding from its submission until its completion is taken, once.

use crate::plan::{Plan, plan};
use crate::player::Player;
use crate::polled::{Polled, Terms};
use alloc::collections::VecDeque;
use core::sync::atomic::{AtomicU64, Ordering};
use mainspring_abi::Nanos;
use mainspring_abi::kernel::FOREVER;
use mainspring_abi::plan::{NONE, Note, RING_WORDS};
use mainspring_abi::ring::{CapCqe, CompletionStatus};
use mainspring_program::Batch;
use mainspring_user::client::{self, Ticket};
use mainspring_user::{CapError, caps, say};
use spin::Once;

/// Entries that may be outstanding: fewer than the client keeps for a thread that does not take them.
const ROOM: usize = 24;

/// A ring of the plan, and what has become of its entries.
pub struct Ring {
    owner: (u64, u64),
    /// How long its poller spins; 0 if it does not.
    pub spin: u64,
    /// The table in whose place the kernel polls.
    kernel_poller: Option<u64>,
    /// What it is, if threads poll it, and the ring itself in the process of its owner.
    terms: Option<Terms>,
    polled: Once<Polled>,
    submitted: AtomicU64,
    completed: AtomicU64,
    dropped: AtomicU64,
    late: AtomicU64,
    wakeups: AtomicU64,
    /// Until when the kernel polls it; 0 if it does not.
    polled_until: AtomicU64,
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

impl Ring {
    pub fn new(words: [u64; RING_WORDS]) -> Self {
        let [table, instance, spin, kernel_poller, by_threads, sqpoll, entries, cost, window] = words;
        let [submitted, completed, dropped, late, wakeups, polled_until] = [const { AtomicU64::new(0) }; 6];
        let terms = Terms { sqpoll: sqpoll == 1, entries: entries as u32, cost, window, spin };
        Self {
            owner: (table, instance),
            spin,
            kernel_poller: (kernel_poller != NONE).then_some(kernel_poller),
            terms: (by_threads == 1).then_some(terms),
            polled: Once::new(),
            submitted,
            completed,
            dropped,
            late,
            wakeups,
            polled_until,
        }
    }

    /// Whether the kernel polls it in the place of a table.
    pub fn is_polled_for(&self, table: usize) -> bool {
        self.kernel_poller == Some(table as u64)
    }

    /// The ring that threads poll, in the process of its owner.
    pub fn polled(&self) -> Option<&Polled> {
        self.polled.get()
    }

    /// Whether a thread may poll it now, as ring `number`: the lease that names it is live, or there is none.
    pub fn may_be_polled_now(&self, number: usize) -> bool {
        self.is_polled() || plan().leases.iter().all(|lease| lease.ring != Some(number))
    }

    /// It may be polled until then: FOREVER if until that is taken back, 0 if no longer.
    pub fn polled_until(&self, end: u64) {
        self.polled_until.store(end, Ordering::Release);
        match self.polled() {
            Some(polled) if end == 0 => polled.stop_polling(),
            Some(polled) => polled.rouse_poller(),
            None => {}
        }
    }

    fn is_polled(&self) -> bool {
        match self.polled_until.load(Ordering::Acquire) {
            0 => false,
            FOREVER => true,
            end => caps::now() < end,
        }
    }

    /// The instance that owns it.
    pub fn owner(&self) -> usize {
        plan().instance(self.owner.0, self.owner.1)
    }

    /// Tells what became of its entries.
    pub fn tell(&self, number: usize) {
        if let Some(polled) = self.polled() {
            return polled.tell(number as u32);
        }
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let polled = plan().leases.iter().any(|lease| lease.ring == Some(number) && lease.is_live());
        crate::tell(Note::Ring {
            ring: number as u32,
            polled,
            submitted: read(&self.submitted),
            completed: read(&self.completed),
            dropped: read(&self.dropped),
            late: read(&self.late),
            wakeups: read(&self.wakeups),
        });
    }

    fn count(&self, cqe: &CapCqe) {
        add(&self.completed, 1);
        match cqe.status() {
            Ok(CompletionStatus::NotStartedLate) => add(&self.dropped, 1),
            Ok(CompletionStatus::CompletedLate) => add(&self.late, 1),
            _ => {}
        }
    }
}

/// Makes the rings of this process that threads poll, before any of its threads lives.
pub fn begin(plan: &Plan, mine: u64) {
    for ring in &plan.rings {
        if plan.tables[ring.owner.0 as usize].process != mine {
            continue;
        }
        if let Some(terms) = ring.terms {
            match Polled::new(terms) {
                Some(polled) => _ = ring.polled.call_once(|| polled),
                None => say!("workload: a ring that cannot be"),
            }
        }
    }
}

/// Instance `number` has ended: its rings are torn down, and those that it polled go back to their owners. The caller holds
/// [`QUIET`](crate::QUIET).
pub fn ended(number: usize) {
    for ring in &plan().rings {
        if let Some(polled) = ring.polled() {
            polled.ended(number, ring.owner() == number);
        }
    }
}

/// Entries that one instance has submitted and not taken back, in their order.
#[derive(Default)]
pub struct Outstanding(VecDeque<Ticket>);

impl Outstanding {
    /// Of an instance that never has more than there is room for: nothing is allocated later.
    pub fn with_room() -> Self {
        Self(VecDeque::with_capacity(ROOM))
    }
}

impl Player {
    /// Puts entries into the ring, and waits for room while there is none.
    pub fn submit(&mut self, ring: usize, batch: &Batch) -> Result<(), CapError> {
        let ring = &plan().rings[ring];
        if let Some(polled) = ring.polled() {
            return self.submit_polled(polled, batch);
        }
        let (mut wake, now) = (false, if batch.deadline.is_some() { caps::now() } else { 0 });
        for _ in 0..batch.entries {
            if self.outstanding.0.len() == ROOM {
                client::enter_in_time(0, 0)?;
                self.take_first(ring, FOREVER)?;
            }
            let request = batch.entry(0, Nanos::new(now), false);
            let (ticket, asleep) = client::submit_to_poller(request)?;
            self.outstanding.0.push_back(ticket);
            add(&ring.submitted, 1);
            add(&ring.wakeups, asleep.into());
            wake |= asleep;
            if asleep {
                client::enter_in_time(0, 0)?;
            }
        }
        // Nobody but its owner serves a ring that is not polled.
        if !wake && !ring.is_polled() {
            client::enter_in_time(0, 0)?;
        }
        Ok(())
    }

    /// Takes completions, and waits for those that are missing.
    pub fn complete(&mut self, ring: usize, entries: u32, deadline: u64) -> Result<(), CapError> {
        let ring = &plan().rings[ring];
        if let Some(polled) = ring.polled() {
            return self.complete_polled(polled, entries, (deadline != FOREVER).then_some(deadline));
        }
        for _ in 0..entries {
            if self.outstanding.0.is_empty() {
                // Nothing will come.
                caps::sleep_until(deadline.min(plan().began + plan().duration))?;
                return Err(CapError::TimedOut);
            }
            self.take_first(ring, deadline)?;
        }
        Ok(())
    }

    fn take_first(&mut self, ring: &Ring, deadline: u64) -> Result<(), CapError> {
        let Some(ticket) = self.outstanding.0.front().copied() else { return Ok(()) };
        loop {
            if let Some(cqe) = client::poll(ticket)? {
                self.outstanding.0.pop_front();
                ring.count(&cqe);
                return Ok(());
            }
            let left = if deadline == FOREVER { FOREVER } else { deadline.saturating_sub(caps::now()) };
            if left == 0 {
                return Err(CapError::TimedOut);
            }
            client::enter_in_time(1, left)?;
        }
    }
}
