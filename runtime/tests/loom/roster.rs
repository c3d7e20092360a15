//! A cancellation against a child that falls asleep.

use crate::{finds, model};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;
use mainspring::protocol::bias::{Home, SectionFlag};
use mainspring::protocol::mutant::Mutant;
use mainspring::protocol::roster::{Member, Roster, interrupt, may_stay_asleep};
use mainspring::protocol::wait_group::WaitGroup;
use mainspring::task::state::{Committed, Event, StateCell, Woken};

/// A member of a nursery, as the model has it.
struct Child {
    cancel: AtomicBool,
    state: StateCell,
    home: Home,
    section_flag: SectionFlag,
    listed: AtomicBool,
    prev: std::cell::Cell<*const Child>,
    next: std::cell::Cell<*const Child>,
    queued: AtomicUsize,
}

// SAFETY: the links are touched under the nursery's lock, the rest is atomic.
unsafe impl Sync for Child {}
// SAFETY: as above.
unsafe impl Send for Child {}

impl Child {
    fn running() -> Self {
        let child = Self {
            cancel: AtomicBool::new(false),
            state: StateCell::default(),
            home: Home::new(),
            section_flag: SectionFlag::default(),
            listed: AtomicBool::new(false),
            prev: std::cell::Cell::new(std::ptr::null()),
            next: std::cell::Cell::new(std::ptr::null()),
            queued: AtomicUsize::new(0),
        };
        child.state.dispatch_for_model();
        child
    }
}

impl Member for Child {
    fn cancel_flag(&self) -> &AtomicBool {
        &self.cancel
    }
    fn listed(&self) -> &AtomicBool {
        &self.listed
    }
    fn prev(&self) -> &std::cell::Cell<*const Self> {
        &self.prev
    }
    fn next(&self) -> &std::cell::Cell<*const Self> {
        &self.next
    }
    fn interrupt_wait(&self) {
        // SAFETY: the only section_flag lives as long as the home.
        if unsafe { self.state.wake(Event::Interrupt, &self.home, None) } == Woken::Queue {
            self.queue();
        }
    }
}

impl Child {
    fn queue(&self) {
        assert_eq!(self.queued.fetch_add(1, Ordering::SeqCst), 0, "queued twice");
    }
}

/// What the nursery's lock guards in the model: its list, and whether it is cancelled.
type Nursery = WaitGroup<(Roster<Child>, bool)>;

fn cancel(nursery: &Nursery) {
    nursery.with(|(roster, cancelled)| {
        *cancelled = true;
        // SAFETY: under the lock.
        unsafe { roster.interrupt_all() };
    });
}

/// A child that waits for what never comes: it enlists, commits, and looks once more, as `Worker::block` and
/// `Worker::settle` do. Returns when it has been cancelled, and leaves the list as a task that ends does.
fn wait_for_ever(nursery: &Nursery, child: &Child) {
    // SAFETY: under the lock; the child outlives its place in the list.
    nursery.with(|(roster, cancelled)| unsafe { roster.enlist(child, *cancelled) });
    while !child.cancel.load(Ordering::SeqCst) {
        if child.state.commit_wait(Event::Block, &child.home, &child.section_flag) == Committed::Queue {
            child.queue();
        } else if !may_stay_asleep(child) {
            child.interrupt_wait();
        }
        // A child that slept over its cancellation would go round here for ever, which loom reports.
        while child.queued.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        assert_eq!(child.queued.swap(0, Ordering::SeqCst), 1);
        child.state.dispatch_for_model();
    }
    // SAFETY: under the lock.
    nursery.with(|(roster, _)| unsafe { roster.delist(child) });
}

#[test]
fn a_cancellation_reaches_a_child_that_enlists_waits_or_ends_meanwhile() {
    model(|| {
        let nursery = Arc::new(Nursery::new((Roster::default(), false)));
        let child = Arc::new(Child::running());
        let waiting = {
            let (nursery, child) = (nursery.clone(), child.clone());
            thread::spawn(move || wait_for_ever(&nursery, &child))
        };
        cancel(&nursery);
        waiting.join().unwrap();
        assert!(!child.listed.load(Ordering::Relaxed));
    });
}

#[test]
fn a_cancellation_of_one_child_and_of_all_reach_two_children() {
    model(|| {
        let nursery = Arc::new(Nursery::new((Roster::default(), false)));
        let children = Arc::new([Child::running(), Child::running()]);
        let waiting = {
            let (nursery, children) = (nursery.clone(), children.clone());
            thread::spawn(move || wait_for_ever(&nursery, &children[0]))
        };
        // One is cancelled by its handle while the other is a neighbour in the list.
        // SAFETY: under the lock; the child outlives its place in the list.
        nursery.with(|(roster, cancelled)| unsafe { roster.enlist(&children[1], *cancelled) });
        interrupt(&children[0]);
        waiting.join().unwrap();
        cancel(&nursery);
        assert!(children[1].cancel.load(Ordering::SeqCst), "it is still in the list");
    });
}

#[test]
fn the_model_finds_a_cancellation_that_is_slept_over() {
    let faults = [Mutant::WakeBeforeFlag, Mutant::EnlistBlindly];
    finds(&faults, "roster::a_cancellation_reaches_a_child_that_enlists_waits_or_ends_meanwhile");
}
