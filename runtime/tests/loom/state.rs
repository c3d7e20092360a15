//! Waking a task against its falling asleep, and cancelling against both.

use crate::{finds, model};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;
use mainspring::protocol::asymmetric;
use mainspring::protocol::bias::{Home, SectionFlag};
use mainspring::protocol::mutant::Mutant;
use mainspring::protocol::wait_end::{Outcome, WaitEnd};
use mainspring::task::state::{Committed, Event, StateCell, Woken};

/// A task on its worker, and which thread queues it.
pub(crate) struct Waiter {
    pub(crate) state: StateCell,
    home: Home,
    section_flag: SectionFlag,
    pub(crate) queued: AtomicUsize,
    /// What a wait of a task looks at.
    end: WaitEnd,
    cancelled: AtomicBool,
}

impl Waiter {
    pub(crate) fn running() -> Self {
        let state = StateCell::default();
        state.dispatch_for_model();
        Self {
            state,
            home: Home::new(),
            section_flag: SectionFlag::default(),
            queued: AtomicUsize::new(0),
            end: WaitEnd::new(),
            cancelled: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_to_be_queued(&self, event: Event, here: Option<&SectionFlag>) -> bool {
        // SAFETY: the only section_flag lives as long as the home.
        unsafe { self.state.wake(event, &self.home, here) == Woken::Queue }
    }

    pub(crate) fn commits_to_be_queued(&self) -> bool {
        self.state.commit_wait(Event::Block, &self.home, &self.section_flag) == Committed::Queue
    }

    pub(crate) fn wake(&self, event: Event, here: Option<&SectionFlag>) {
        if self.is_to_be_queued(event, here) {
            self.queued.fetch_add(1, Ordering::Release);
        }
    }

    fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        asymmetric::heavy();
        self.wake(Event::Interrupt, None);
    }

    /// What `Ending::begin` and `Ending::finish` do inside of a runtime.
    pub(crate) fn end_wait(&self, here: Option<&SectionFlag>) {
        self.end.complete(Outcome::Done);
        self.wake(Event::Wake, here);
    }

    pub(crate) fn complete(&self) {
        self.end.complete(Outcome::Done);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.end.is_over() || self.cancelled.load(Ordering::SeqCst)
    }

    /// Waits as a task does. `on_worker` is what its worker does next.
    pub(crate) fn wait(&self, on_worker: impl Fn()) {
        while !self.is_over() {
            if self.commits_to_be_queued() {
                self.queued.fetch_add(1, Ordering::Release);
            } else if self.cancelled.load(Ordering::SeqCst) {
                // The last look of `Worker::settle`.
                self.wake(Event::Interrupt, Some(&self.section_flag));
            }
            on_worker();
            self.run_again();
        }
    }

    /// Takes the task from its queue. The queue orders what its waker wrote before the run, and nothing else.
    fn run_again(&self) {
        self.leave_queue();
        self.state.dispatch_for_model();
    }

    fn leave_queue(&self) {
        while self.queued.load(Ordering::Acquire) == 0 {
            thread::yield_now();
        }
        assert_eq!(self.queued.swap(0, Ordering::Acquire), 1, "queued twice");
    }

    /// Waits as a task does whose worker has another one, which is Ready now. That one runs meanwhile. Then they give each other
    /// turns, until it is this one's.
    fn wait_in_turns(&self, other: &Self) {
        while !self.is_over() {
            if self.commits_to_be_queued() {
                self.queued.fetch_add(1, Ordering::Release);
            }
            other.state.dispatch_for_model();
            self.leave_queue();
            assert!(other.state.give_turn(&self.state));
            assert!(self.state.give_turn(&other.state));
            assert!(other.state.give_turn(&self.state));
        }
    }
}

//= NURS:queue-race
#[test]
fn a_wake_and_a_cancellation_of_a_waiting_task_queue_it_once_each_at_most() {
    model(|| {
        let task = Arc::new(Waiter::running());
        let others = [
            {
                let task = task.clone();
                thread::spawn(move || task.end_wait(None))
            },
            {
                let task = task.clone();
                thread::spawn(move || task.cancel())
            },
        ];
        task.wait(|| ());
        for other in others {
            other.join().unwrap();
        }
    });
}

/// A task that waits at home is woken by its own worker without a read-modify-write, while others take the home away.
#[test]
fn a_wake_at_home_and_one_from_elsewhere_queue_a_task_once() {
    model(|| {
        let task = Arc::new(Waiter::running());
        task.home.move_in(&task.section_flag);
        let canceller = {
            let task = task.clone();
            thread::spawn(move || task.cancel())
        };
        task.wait(|| task.end_wait(Some(&task.section_flag)));
        canceller.join().unwrap();
        task.home.move_out();
        // What came too late to matter has not left the task queued.
        assert_eq!(task.queued.load(Ordering::SeqCst), 0, "queued twice");
    });
}

/// A home is moved into while the task runs; a canceller that saw no home yet is not missed.
#[test]
fn a_cancellation_is_seen_by_a_task_that_falls_asleep_at_home() {
    model(|| {
        let task = Arc::new(Waiter::running());
        let canceller = {
            let task = task.clone();
            thread::spawn(move || task.cancel())
        };
        task.home.move_in(&task.section_flag);
        task.wait(|| ());
        canceller.join().unwrap();
        task.home.move_out();
    });
}

/// A task goes from one wait at home to the next, while spurious wakes and evictions of earlier ones come late.
#[test]
fn late_wakes_of_earlier_waits_at_home_do_no_harm() {
    model(|| {
        let task = Arc::new(Waiter::running());
        let late = {
            let task = task.clone();
            thread::spawn(move || task.wake(Event::Wake, None))
        };
        for _ in 0..2 {
            task.home.move_in(&task.section_flag);
            let outcome = AtomicBool::new(false);
            while !outcome.load(Ordering::Relaxed) {
                if task.commits_to_be_queued() {
                    task.queued.fetch_add(1, Ordering::Release);
                }
                outcome.store(true, Ordering::Relaxed);
                task.wake(Event::Wake, Some(&task.section_flag));
                task.run_again();
            }
        }
        late.join().unwrap();
        task.home.move_out();
        assert_eq!(task.queued.load(Ordering::SeqCst), 0, "queued twice");
    });
}

/// A task leaves its stack inside a section. Its own worker and another thread want to wake it: one of them does, and
/// goes on with the stack only when it has been left.
#[test]
fn a_task_that_leaves_its_stack_inside_is_woken_once_and_after_that() {
    model(|| {
        let shared = Arc::new((Waiter::running(), loom::cell::UnsafeCell::new(0)));
        // SAFETY: loom checks that one at a time is on the stack.
        let run = |stack: &loom::cell::UnsafeCell<u32>| stack.with_mut(|turns| unsafe { *turns += 1 });
        shared.0.home.move_in(&shared.0.section_flag);
        let canceller = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (task, stack) = &*shared;
                task.cancelled.store(true, Ordering::SeqCst);
                asymmetric::heavy();
                let queues = task.is_to_be_queued(Event::Interrupt, None);
                if queues {
                    run(stack);
                }
                queues
            })
        };
        let (task, stack) = &*shared;
        let waits = task.home.enter(&task.section_flag).is_some_and(|section| {
            let is_wanted = || task.cancelled.load(Ordering::SeqCst);
            let waits = task.state.wait_inside(&task.home, &section, is_wanted);
            // The registers are saved on it.
            run(stack);
            if waits {
                section.was_ended();
                task.section_flag.leave();
            }
            waits
        });
        let wakes_inside = || {
            let section = task.home.enter(&task.section_flag);
            section.is_some_and(|section| task.state.wake_inside(&task.home, &section))
        };
        let queues = waits && (wakes_inside() || task.is_to_be_queued(Event::Wake, Some(&task.section_flag)));
        if queues {
            run(stack);
        }
        let cancelled = canceller.join().unwrap();
        assert_eq!(u8::from(queues) + u8::from(cancelled), u8::from(waits), "queued once if it waits");
    });
}

/// The wait of a task, and a spurious wake, such as an earlier timer's: the task runs, finds nothing, and waits again.
/// The waker writes what the task looks at, then looks at the state. In between it is Ready, Running or Blocked.
//= SCHED:6.3.1b
#[test]
fn a_wake_is_not_lost_beside_a_spurious_one() {
    model(|| {
        let task = Arc::new(Waiter::running());
        let others = [false, true].map(|spurious| {
            let task = task.clone();
            thread::spawn(move || if spurious { task.wake(Event::Wake, None) } else { task.end_wait(None) })
        });
        // A task that slept over its wake would go round for ever in here, which loom reports.
        task.wait(|| ());
        for other in others {
            other.join().unwrap();
        }
    });
}

/// The same, of a task that gives turns to another one of its worker and is given some.
#[test]
fn a_wake_is_not_lost_in_the_turns_that_tasks_give_each_other() {
    model(|| {
        let (task, other) = (Arc::new(Waiter::running()), Waiter::running());
        assert!(!other.commits_to_be_queued());
        assert!(other.is_to_be_queued(Event::Wake, None), "it has frames, and is Ready");
        let wakers = [false, true].map(|spurious| {
            let task = task.clone();
            thread::spawn(move || if spurious { task.wake(Event::Wake, None) } else { task.end_wait(None) })
        });
        task.wait_in_turns(&other);
        for waker in wakers {
            waker.join().unwrap();
        }
    });
}

#[test]
fn the_model_finds_turns_that_lose_wakes() {
    finds(&[Mutant::TurnForgets], "state::a_wake_is_not_lost_in_the_turns_that_tasks_give_each_other");
}

#[test]
fn the_model_finds_wakes_that_are_lost() {
    let faults = [
        Mutant::CommitWithoutFence,
        Mutant::WakeWithoutFence,
        Mutant::ReadyNotNoted,
        Mutant::DispatchForgets,
        Mutant::NoteStored,
        Mutant::NoteIgnored,
    ];
    finds(&faults, "state::a_wake_is_not_lost_beside_a_spurious_one");
}

#[test]
fn the_model_finds_a_home_that_is_taken_away_too_early() {
    finds(
        &[Mutant::EvictWithoutWaiting],
        "state::a_task_that_leaves_its_stack_inside_is_woken_once_and_after_that",
    );
}
