//! Rings that the kernel polls: a poller is an entity of the core on its lease's CPU, and takes the submissions of one thread.
//!
//! A poller has a slot of the table of threads, without a ring, a stack or a user mode. When its CPU chooses it, it takes at most
//! two entries, carries them out, takes interrupts, and looks again, until there is nothing left; then it announces that it sleeps
//! and blocks. Its time is charged like any thread's: to the context that its lease names, or to its own account.
//!
//! A ring's mode and its poller are with the thread whose ring it is, under a lock of their own, which comes after the ring's
//! and before the inbox. A poller blocks with that lock held, and who wakes it has taken it before: so no wake is lost. The thread
//! of a ring does not end before its poller has: what the poller has accepted is carried out for a thread that lives.
//!
//! Conserved: the head of a submission queue has one consumer, see [`mainspring_driver::sqpoll`]. A ring that no lease couples to
//! a CPU is in syscall mode, at the latest when its poller has carried out what it had accepted.

use super::dispatch::{arm, kill};
use super::leases;
use super::machine::Kernel;
use super::per_cpu::PerCpu;
use super::stretch;
use super::wakeup;
use crate::arch;
use crate::method::{Turn, has_known_version, serve_polled};
use crate::object::inbox::{Posted, Waiting};
use crate::object::thread::{self, Thread};
use core::sync::atomic::{AtomicUsize, Ordering};
use heapless::Vec;
use mainspring_abi::ring::{CapError, CapSqeV2};
use mainspring_abi::{Nanos, ThreadRef};
use mainspring_driver::leases::RingId;
use mainspring_driver::sqpoll::{NotStarted, Poller, PollerStep, Stopped};
use mainspring_ring::{
    CqPlace, PollerState, RingMode, RingParts, SQES_PER_PASS, Sqpoll, SqpollGrant, StopReason,
};
use mainspring_sched::lease::LeaseRef;
use mainspring_sched::nohz::RingFacts;
use mainspring_sched::{Decision, Stop, WaitKind};
use spin::Mutex;

/// Rings that can be polled at a time: as many as there can be leases.
pub const POLLED: usize = 32;

/// The poller of a thread's ring.
pub struct Polling {
    sqpoll: Sqpoll,
    poller: Poller,
    grant: SqpollGrant,
    started: bool,
    /// An entry that was accepted, and left for the next stretch because the one before it filled a whole one.
    left: Option<(CapSqeV2, CqPlace)>,
}

/// Entries that were accepted and have not been carried out. They are on the poller's stack, so that none is moved once it was read.
#[derive(Default)]
struct Batch {
    requests: [CapSqeV2; SQES_PER_PASS as usize],
    places: [Option<CqPlace>; SQES_PER_PASS as usize],
    /// The first deadline of what their thread had in flight before.
    deadline: Nanos,
}

const _: () = assert!(SQES_PER_PASS == 2, "one entry is left at the most");

/// A ring that is polled.
#[derive(Clone, Copy, Debug)]
struct Polled {
    lease: LeaseRef,
    owner: ThreadRef,
    poller: ThreadRef,
}

static RINGS: Mutex<Vec<Polled, POLLED>> = Mutex::new(Vec::new());
/// Which ring the next pass looks at.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// What a look at the ring came to.
enum Look {
    /// Entries are to be carried out.
    Entries,
    /// Look again.
    Again,
    /// It sleeps, and this was decided.
    Asleep(Decision),
    /// It polls no longer.
    Over,
}

/// `poller`, which was granted the CPU of `lease` and has not started yet, is to poll the ring of `owner`. Refused while pollers whose
/// leases are over, and which have not come to their ends, are as many as there can be.
pub fn attach(
    owner: &Thread,
    poller: ThreadRef,
    lease: LeaseRef,
    grant: SqpollGrant,
) -> Result<(), CapError> {
    let polled = Polled { lease, owner: owner.name(), poller };
    RINGS.lock().push(polled).map_err(|_| CapError::QuotaExceeded)?;
    *owner.polling.lock() = Some(Polling {
        sqpoll: Sqpoll::default(),
        poller: Poller::new(poller),
        grant,
        started: false,
        left: None,
    });
    owner.set_polled(true);
    Ok(())
}

/// Whether the ring of `owner` is polled, or is about to be.
#[must_use]
pub fn is_polled(owner: &Thread) -> bool {
    owner.polling.lock().is_some()
}

fn ring_of(poller: ThreadRef) -> Option<&'static Thread> {
    let owner = RINGS.lock().iter().find(|one| one.poller == poller)?.owner;
    thread::find(owner)
}

/// `poller`, which this CPU has chosen, polls until it stops; what was decided then. `None` if it is to end.
#[cold]
pub fn run(here: &'static PerCpu, poller: &'static Thread) -> Option<Decision> {
    arm(here);
    let mut since = arch::now();
    // The same for as long as this runs: a thread does not end before its poller has.
    let owner = ring_of(poller.name());
    let mut batch = Batch::default();
    loop {
        let look = owner.map_or(Look::Over, |owner| look(here, poller, owner, since, &mut batch));
        match look {
            Look::Entries => owner.into_iter().for_each(|owner| carry_out(owner, &mut batch)),
            Look::Again => {}
            Look::Asleep(decision) => {
                here.count_polled(&mut since);
                here.count_poller_sleep();
                return Some(decision);
            }
            Look::Over => {
                here.count_polled(&mut since);
                // It ends where a killed thread would go on in user mode.
                poller.kill(poller.name());
                poller.inbox.lock().waiting = Waiting::Not;
                return None;
            }
        }
        let moved = leases::while_polling(here);
        here.count_polled(&mut since);
        if moved.is_some() {
            return moved;
        }
        arm(here);
        if let Some(decision) = stretch::between(here, poller) {
            return Some(decision);
        }
    }
}

/// One look at the ring of `owner`, at `now`.
fn look(here: &PerCpu, poller: &Thread, owner: &'static Thread, now: Nanos, batch: &mut Batch) -> Look {
    // The owner may be at its ring at the moment.
    let Some(queue) = owner.queue.try_lock() else { return Look::Again };
    let Some(queue) = &*queue else { return Look::Over };
    let mut polling = owner.polling.lock();
    let Some(polling) = polling.as_mut() else { return Look::Over };
    let mut inbox = owner.inbox.lock();
    batch.deadline = inbox.next_deadline();
    if let Some((request, place)) = polling.left.take() {
        (batch.requests[0], batch.places[0]) = (request, Some(place));
        return Look::Entries;
    }
    if poller.is_killed() {
        return Look::Over;
    }
    let Some(cq) = inbox.completer() else { return Look::Over };
    let mut ring = RingParts { sq: queue, cq, sqpoll: &mut polling.sqpoll };
    if !polling.started {
        return match polling.poller.start(&mut ring, polling.grant) {
            Ok(()) => {
                polling.started = true;
                Look::Again
            }
            // Its owner is still at the request for this.
            Err(NotStarted::Busy) => Look::Again,
            Err(_) => Look::Over,
        };
    }
    if !has_known_version(queue) {
        // A submitter that does not say what its entries are has none read. It finds out at its next entry.
        let _stopped = polling.poller.stop(&mut ring, StopReason::Teardown);
        return Look::Over;
    }
    let mut free = batch.requests.iter_mut().zip(&mut batch.places);
    let stepped = polling.poller.step(&mut ring, now, SQES_PER_PASS, |entry, place| {
        // The batch is as large as a pass.
        if let Some((request, its_place)) = free.next() {
            (*request, *its_place) = (entry, Some(place));
        }
    });
    drop(inbox);
    match stepped.next {
        PollerStep::Serve { .. } => Look::Entries,
        PollerStep::Spin { .. } => Look::Again,
        PollerStep::Sleep => {
            let mut core = here.lock();
            if poller.is_killed() {
                return Look::Over;
            }
            poller.context.unbind();
            Look::Asleep(core.resched(here, Stop::Blocked(WaitKind::Ring, None)))
        }
        // Its owner carries some of the entries out.
        PollerStep::NotPolling if polling.poller.is_owner(queue) => Look::Again,
        PollerStep::NotPolling => Look::Over,
    }
}

/// Carries accepted entries of `owner`, which lives, out: as many as fit one stretch.
fn carry_out(owner: &'static Thread, batch: &mut Batch) {
    for (request, place) in batch.requests.iter().zip(&mut batch.places) {
        let Some(place) = place.take() else { break };
        let mut turn = Turn::default();
        serve_polled(owner, request, place, &mut turn);
        if let Some(target) = turn.target {
            wakeup::wake(target);
        }
        if turn.is_heavy() {
            break;
        }
    }
    if let Some(place) = batch.places[1].take()
        && let Some(polling) = &mut *owner.polling.lock()
    {
        polling.left = Some((batch.requests[1], place));
    }
    let mut inbox = owner.inbox.lock();
    let over = inbox.look() == Posted::Wake;
    // It may sleep without a timer, or with a later one: it looks, and sleeps on until the time that came with an entry.
    let sooner = inbox.is_waiting() && inbox.next_deadline() < batch.deadline;
    drop(inbox);
    if over || sooner {
        wakeup::wake(owner);
    }
}

/// What the thread of a polled ring, which runs here, may do with its entries.
pub enum Entry {
    /// The ring is in syscall mode.
    Drain,
    /// A few, on the poller's lease.
    Borrow,
    /// None: the mode is about to change.
    Busy,
}

/// `owner`, which runs here and has its queue locked, enters: its poller is woken if it sleeps.
pub fn enter(owner: &Thread, queue: &thread::Queue) -> Entry {
    let mut guard = owner.polling.lock();
    let Some(polling) = guard.as_mut() else { return Entry::Drain };
    let mut inbox = owner.inbox.lock();
    let Some(cq) = inbox.completer() else { return Entry::Drain };
    let mut ring = RingParts { sq: queue, cq, sqpoll: &mut polling.sqpoll };
    match ring.sqpoll.mode() {
        RingMode::Syscall => Entry::Drain,
        RingMode::SqpollStarting => Entry::Busy,
        RingMode::SqpollStopping => {
            let _finished = polling.poller.finish_stop(&mut ring);
            Entry::Busy
        }
        RingMode::Sqpoll => {
            let asleep = polling.poller.wake(&mut ring);
            drop(inbox);
            drop(guard);
            if let Some(poller) = asleep.and_then(thread::find) {
                wakeup::wake(poller);
            }
            Entry::Borrow
        }
    }
}

/// Part of the periodic service: a sleeping poller whose ring has something to take is woken, also if its producer does not ask
/// for that. One ring is looked at.
pub fn service() {
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let ring = {
        let rings = RINGS.lock();
        if rings.is_empty() {
            return;
        }
        rings[next % rings.len()]
    };
    let Some(owner) = thread::find(ring.owner) else { return };
    let Some(queue) = owner.queue.try_lock() else { return };
    if let Some(queue) = &*queue
        && !queue.shows_nothing()
    {
        let _what_its_owner_could_do_it_does_at_its_own_entry = enter(owner, queue);
    }
}

/// What can be seen of the ring of the thread in this slot.
#[must_use]
pub fn facts(ring: RingId) -> RingFacts {
    let owner = thread::slot(ring.0);
    let Some(polling) = owner.polling.try_lock() else { return RingFacts::Contended };
    let Some(polling) = &*polling else { return RingFacts::NotSqpoll };
    match owner.queue.try_lock().as_deref() {
        Some(Some(queue)) => polling.poller.facts_of(queue, &polling.sqpoll, false),
        Some(None) => RingFacts::NotSqpoll,
        // Its owner asks, or is at its ring. The poller's right to it ends under the lock that this has.
        None if polling.sqpoll.mode() == RingMode::Sqpoll => RingFacts::Sqpoll {
            owner_live: true,
            spinning: polling.sqpoll.poller() == PollerState::IdleSpinning,
            other_consumer: false,
        },
        None => RingFacts::NotSqpoll,
    }
}

/// `lease` has ended: if it coupled a ring to its CPU, its poller ends, and the ring is in syscall mode then. The ring of the thread
/// that asks may be locked.
pub fn lease_ended(lease: LeaseRef) {
    let ring = RINGS.lock().iter().find(|one| one.lease == lease).copied();
    if let Some(ring) = ring
        && let Some(poller) = thread::find(ring.poller)
    {
        kill(poller, ring.poller);
    }
}

fn stop(owner: &Thread, reason: StopReason) {
    let queue = owner.queue.lock();
    let mut polling = owner.polling.lock();
    let mut inbox = owner.inbox.lock();
    if let (Some(queue), Some(polling), Some(cq)) = (&*queue, polling.as_mut(), inbox.completer()) {
        let mut ring = RingParts { sq: queue, cq, sqpoll: &mut polling.sqpoll };
        match polling.poller.stop(&mut ring, reason) {
            // The owner finishes it when it has done what it is at.
            Stopped::AfterService | Stopped::Syscall | Stopped::NotPolling => {}
        }
    }
}

/// `poller`, which was one, has ended: its ring is in syscall mode, and has none.
pub fn poller_ended(poller: ThreadRef) {
    let ring = RINGS.lock().iter().find(|one| one.poller == poller).copied();
    let Some(ring) = ring else { return };
    if let Some(owner) = thread::find(ring.owner) {
        stop(owner, StopReason::LeaseRevoked);
        owner.set_polled(false);
        *owner.polling.lock() = None;
    }
    RINGS.lock().retain(|one| one.poller != poller);
}

/// `owner`, which runs, is to end: whether its ring has no poller any more. Its lease ends, and its poller with that.
pub fn let_go(owner: &Thread) -> bool {
    if !owner.is_polled() {
        return true;
    }
    let name = owner.name();
    let ring = RINGS.lock().iter().find(|one| one.owner == name).copied();
    let Some(ring) = ring else { return true };
    let _it_may_have_ended_before =
        leases::with_leases(|leases, machine: &mut Kernel| leases.revoke(machine, ring.lease));
    if let Some(poller) = thread::find(ring.poller) {
        kill(poller, ring.poller);
    }
    false
}

/// How long a poller that may spin looks for more before it sleeps.
pub const SPIN: Nanos = Nanos::from_millis(2);
