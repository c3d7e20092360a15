//! The protocols under the model checker: every interleaving of small programs, on the code that ships.
//! Run by `make loom`, which sets `--cfg loom`.
#![cfg(loom)]
#![allow(unsafe_code)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;
use mainspring::channel::model_pair;
use mainspring::protocol::brood::Brood;
use mainspring::protocol::deque::{Steal, deque};
use mainspring::protocol::join::{Dropped, Finished, JoinCell, Waiting};
use mainspring::protocol::lanes::{LaneSettings, Lanes, Schedule, Stopped, Tell};
use mainspring::protocol::roster::{Member, Roster, interrupt, may_stay_asleep};
use mainspring::protocol::sleep::{Dormitory, Woke};
use mainspring::task::state::{Committed, Event, StateCell, Woken};
use mainspring::{Capacity, Nanos, Parker, Refusal};

/// Every interleaving with at most three preemptions, in which all known bugs of such protocols show.
fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(f);
}

//= SCHED:7.1.1a SCHED:7.1.1b SCHED:7.1.2
#[test]
fn each_word_of_a_deque_is_taken_once() {
    model(|| {
        let (owner, stealer) = deque();
        let taken = Arc::new(AtomicUsize::new(0));
        let thief = {
            let taken = taken.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    if let Steal::Taken(word) = stealer.steal() {
                        assert_eq!(taken.fetch_or(word, Ordering::Relaxed) & word, 0, "taken twice");
                    }
                }
            })
        };
        owner.push(1);
        owner.push(2);
        // Beyond the first capacity under loom: a thief may read from the outgrown buffer.
        owner.push(4);
        let mut pops = 0;
        while let Some(word) = owner.pop() {
            assert_eq!(taken.fetch_or(word, Ordering::Relaxed) & word, 0, "taken twice");
            pops += 1;
        }
        thief.join().unwrap();
        while let Some(word) = owner.pop() {
            assert_eq!(taken.fetch_or(word, Ordering::Relaxed) & word, 0, "taken twice");
        }
        assert!(pops >= 1);
        assert_eq!(taken.load(Ordering::Relaxed), 7, "lost");
    });
}

//= SCHED:6.3.1b
#[test]
fn published_work_is_never_slept_over() {
    model(|| {
        let dormitory = Arc::new(Dormitory::new(1));
        let work = Arc::new(AtomicBool::new(false));
        let worker = {
            let (dormitory, work) = (dormitory.clone(), work.clone());
            thread::spawn(move || {
                let mut searching = dormitory.search();
                loop {
                    if work.load(Ordering::Relaxed) {
                        dormitory.found(searching);
                        return;
                    }
                    searching = match dormitory.sleep(0, searching, None, || work.load(Ordering::Relaxed)) {
                        Woke::ForWork(searching) | Woke::TimedOut(searching) => searching,
                        Woke::Closed => panic!("nobody closed it"),
                    };
                }
            })
        };
        work.store(true, Ordering::Relaxed);
        dormitory.published();
        // A worker that slept over the work would be a deadlock, which loom reports.
        worker.join().unwrap();
    });
}

#[test]
fn two_sleepers_and_one_piece_of_work_end_with_a_shutdown() {
    model(|| {
        let dormitory = Arc::new(Dormitory::new(2));
        let work = Arc::new(AtomicUsize::new(0));
        let workers: Vec<_> = (0..2)
            .map(|index| {
                let (dormitory, work) = (dormitory.clone(), work.clone());
                thread::spawn(move || {
                    let mut searching = dormitory.search();
                    loop {
                        if work.compare_exchange(1, 2, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                            dormitory.found(searching);
                            dormitory.close();
                            return;
                        }
                        searching = match dormitory
                            .sleep(index, searching, None, || work.load(Ordering::Acquire) == 1)
                        {
                            Woke::ForWork(searching) | Woke::TimedOut(searching) => searching,
                            Woke::Closed => return,
                        };
                    }
                })
            })
            .collect();
        work.store(1, Ordering::Release);
        dormitory.published();
        for worker in workers {
            worker.join().unwrap();
        }
        assert_eq!(work.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn a_result_is_seen_and_freed_once() {
    model(|| {
        let cell = Arc::new((JoinCell::new(), loom::cell::UnsafeCell::new(0), AtomicUsize::new(0)));
        let woken = Arc::new(AtomicBool::new(false));
        let task = {
            let (cell, woken) = (cell.clone(), woken.clone());
            thread::spawn(move || {
                // SAFETY: loom checks that the other side does not read it yet.
                cell.1.with_mut(|result| unsafe { *result = 42 });
                match cell.0.finish() {
                    Finished::KeepForHandle => {}
                    Finished::Wake(waiter) => {
                        assert_eq!(waiter, 64);
                        woken.store(true, Ordering::Release);
                    }
                    Finished::Free => {
                        cell.2.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        };
        match cell.0.wait(64) {
            Waiting::Done => {}
            Waiting::Wait => {
                while !woken.load(Ordering::Acquire) {
                    thread::yield_now();
                }
            }
        }
        assert!(cell.0.is_done());
        // SAFETY: loom checks that nobody writes it any more.
        cell.1.with(|result| assert_eq!(unsafe { *result }, 42));
        task.join().unwrap();
        assert_eq!(cell.2.load(Ordering::Relaxed), 0, "the handle frees it");
    });
}

#[test]
fn of_a_dropped_handle_and_an_ending_task_one_frees() {
    model(|| {
        let cell = Arc::new((JoinCell::new(), AtomicUsize::new(0)));
        let task = {
            let cell = cell.clone();
            thread::spawn(move || {
                if cell.0.finish() == Finished::Free {
                    cell.1.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        if cell.0.detach() == Dropped::Free {
            cell.1.fetch_add(1, Ordering::Relaxed);
        }
        task.join().unwrap();
        assert_eq!(cell.1.load(Ordering::Relaxed), 1);
    });
}

/// A task that waits for a flag, on its worker, and is queued by whoever is told to.
fn wait_for(state: &StateCell, queued: &AtomicUsize, flags: &[&AtomicBool]) {
    while !flags.iter().any(|flag| flag.load(Ordering::SeqCst)) {
        if state.commit_wait(Event::Block) == Committed::Queue {
            queued.fetch_add(1, Ordering::SeqCst);
        } else if flags.iter().any(|flag| flag.load(Ordering::SeqCst))
            && state.wake(Event::Interrupt) == Woken::Queue
        {
            // The last look of `Worker::settle`.
            queued.fetch_add(1, Ordering::SeqCst);
        }
        while queued.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        assert_eq!(queued.swap(0, Ordering::SeqCst), 1, "queued twice");
        state.dispatch_for_model();
    }
}

//= NURS:queue-race
#[test]
fn a_wake_and_a_cancellation_of_a_waiting_task_queue_it_once_each_at_most() {
    model(|| {
        let shared = Arc::new((
            StateCell::default(),
            AtomicUsize::new(0),
            AtomicBool::new(false),
            AtomicBool::new(false),
        ));
        shared.0.dispatch_for_model();
        let waker = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.2.store(true, Ordering::SeqCst);
                if shared.0.wake(Event::Wake) == Woken::Queue {
                    shared.1.fetch_add(1, Ordering::SeqCst);
                }
            })
        };
        wait_for(&shared.0, &shared.1, &[&shared.2, &shared.3]);
        waker.join().unwrap();
    });
}

/// What a child does at its end, and its owner's wait, with a thread's flag for the owner's wake.
fn end_of_child(brood: &Brood<usize>, woken: &AtomicBool) {
    if let Some(waiter) = brood.ended(1, |counted| *counted += 1) {
        assert_eq!(waiter, 64);
        assert!(!woken.swap(true, Ordering::SeqCst), "woken twice");
    }
}

//= NURS:notify
#[test]
fn the_last_child_wakes_the_owner_once_and_all_are_counted() {
    model(|| {
        let shared = Arc::new((Brood::new(0), AtomicBool::new(false)));
        shared.0.add();
        shared.0.add();
        let children: Vec<_> = (0..2)
            .map(|_| {
                let shared = shared.clone();
                thread::spawn(move || end_of_child(&shared.0, &shared.1))
            })
            .collect();
        if shared.0.wait(64) {
            while !shared.1.load(Ordering::SeqCst) {
                thread::yield_now();
            }
        } else {
            assert!(!shared.1.load(Ordering::SeqCst), "nobody waited");
        }
        assert!(!shared.0.wait(64), "all have ended");
        assert_eq!(shared.0.with(|counted| *counted), 2, "each came before it counted");
        for child in children {
            child.join().unwrap();
        }
    });
}

#[test]
fn a_value_passes_a_closing_channel_or_comes_back() {
    for capacity in [Capacity::Rendezvous, Capacity::Bounded(1)] {
        model(move || {
            let (sender, receiver) = model_pair::<u32>(capacity);
            let sending = thread::spawn(move || sender.send_blocking(7).map_err(|refused| refused.value));
            let first = receiver.recv_blocking();
            assert_eq!(first, Ok(7), "the sender closes the channel only after its send");
            assert_eq!(receiver.recv_blocking(), Err(Refusal::Closed));
            assert_eq!(sending.join().unwrap(), Ok(()));
        });
    }
}

#[test]
fn a_sender_whose_receiver_goes_gets_its_value_back() {
    model(|| {
        let (sender, receiver) = model_pair::<u32>(Capacity::Rendezvous);
        let receiving = thread::spawn(move || drop(receiver));
        assert_eq!(
            sender.send_blocking(7).map_err(|refused| (refused.why, refused.value)),
            Err((Refusal::Closed, 7))
        );
        receiving.join().unwrap();
    });
}

fn small_lanes(workers: usize, threads: usize) -> Lanes {
    Lanes::new(workers, &LaneSettings { threads, ..LaneSettings::default() }).expect("a few bytes")
}

fn admit(lanes: &Lanes, word: usize, schedule: &Schedule, here: Option<usize>) -> Tell {
    let thread = lanes.claim(schedule).expect("there is one");
    lanes.admit(thread, word, schedule, here, Nanos::ZERO)
}

/// A stack that two workers must not be on at once: loom reports it if they are.
#[derive(Default)]
struct OneStack {
    frames: loom::cell::UnsafeCell<u32>,
}

impl OneStack {
    fn run(&self) -> u32 {
        // SAFETY: loom checks that nobody else is here.
        self.frames.with_mut(|frames| unsafe {
            *frames += 1;
            *frames
        })
    }
}

/// A worker's turn: takes what its lane has, or what another's can give, runs it on its stack, and says that it has
/// stopped once the stack is left. The first turn of each thread ends in a yield, the second one ends it.
fn take_turn(lanes: &Lanes, worker: usize, stacks: &[OneStack], now: u64) -> bool {
    let Some(next) = lanes.next(worker, true, Nanos::new(now)) else { return false };
    let turns = stacks[next.word - 1].run();
    if turns == 1 {
        lanes.stop(worker, Stopped::Yielded, Nanos::new(now + 1));
    } else {
        lanes.end(worker, Nanos::new(now + 1));
    }
    true
}

#[test]
fn a_thread_that_yields_is_never_on_two_workers_and_none_is_lost() {
    model(|| {
        let lanes = Arc::new(small_lanes(2, 2));
        let stacks: Arc<[OneStack; 2]> = Arc::default();
        for word in 1..=2 {
            let _ = admit(&lanes, word, &Schedule::default(), Some(0));
        }
        let thief = {
            let (lanes, stacks) = (lanes.clone(), stacks.clone());
            thread::spawn(move || {
                let mut now = 10;
                while take_turn(&lanes, 1, &stacks[..], now) {
                    now += 10;
                }
            })
        };
        let mut now = 10;
        while take_turn(&lanes, 0, &stacks[..], now) {
            now += 10;
        }
        thief.join().unwrap();
        // Each worker ended its turns when it saw nothing; whatever the other had in hand then is on its lane now.
        for worker in [0, 1] {
            while take_turn(&lanes, worker, &stacks[..], now + 100) {}
        }
        for stack in stacks.iter() {
            assert_eq!(stack.run(), 3, "a yield, an end, and this");
        }
    });
}

#[test]
fn a_thread_that_only_a_sleeping_worker_may_run_is_never_slept_over() {
    model(|| {
        let lanes = Arc::new(small_lanes(2, 1));
        let dormitory = Arc::new(Dormitory::new(2));
        let worker = {
            let (lanes, dormitory) = (lanes.clone(), dormitory.clone());
            thread::spawn(move || {
                let mut searching = dormitory.search();
                loop {
                    if let Some(next) = lanes.next(1, true, Nanos::new(5)) {
                        assert_eq!(next.word, 7);
                        lanes.end(1, Nanos::new(6));
                        dormitory.found(searching);
                        return;
                    }
                    lanes.set_idle(1, true);
                    let woke = dormitory.sleep(1, searching, None, || lanes.has_work_for(1, true));
                    lanes.set_idle(1, false);
                    searching = match woke {
                        Woke::ForWork(searching) | Woke::TimedOut(searching) => searching,
                        Woke::Closed => panic!("nobody closed it"),
                    };
                }
            })
        };
        let only_there = Schedule {
            workers: Some([mainspring::CpuId::new(1).unwrap()].into_iter().collect()),
            ..Schedule::default()
        };
        let Tell(told) = admit(&lanes, 7, &only_there, None);
        if let Some(told) = told {
            dormitory.wake(told);
        }
        // A worker that slept over it would be a deadlock, which loom reports.
        worker.join().unwrap();
    });
}

#[test]
fn a_wake_finds_a_thread_asleep_on_its_lane_however_early_it_comes() {
    model(|| {
        let shared = Arc::new((small_lanes(1, 1), StateCell::default(), AtomicBool::new(false)));
        let _ = admit(&shared.0, 7, &Schedule::default(), None);
        assert!(shared.0.next(0, true, Nanos::new(1)).is_some());
        shared.1.dispatch_for_model();
        let waker = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.2.store(true, Ordering::SeqCst);
                if shared.1.wake(Event::Wake) == Woken::Queue {
                    let _ = shared.0.wake(0, None, Nanos::new(3));
                }
            })
        };
        // What `Worker::settle` does: the lane first, then the commit.
        if !shared.2.load(Ordering::SeqCst) {
            shared.0.stop(0, Stopped::Waits(mainspring_sched::WaitKind::Park), Nanos::new(2));
            if shared.1.commit_wait(Event::Block) == Committed::Queue {
                let _ = shared.0.wake(0, Some(0), Nanos::new(4));
            }
            let mut next = shared.0.next(0, true, Nanos::new(5));
            while next.is_none() {
                thread::yield_now();
                next = shared.0.next(0, true, Nanos::new(5));
            }
            shared.1.dispatch_for_model();
        }
        waker.join().unwrap();
        shared.0.end(0, Nanos::new(9));
        assert!(shared.0.next(0, true, Nanos::new(10)).is_none(), "queued once");
    });
}

/// A member of a nursery, as the model has it.
struct Child {
    cancel: AtomicBool,
    state: StateCell,
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
    fn state(&self) -> &StateCell {
        &self.state
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
    fn queue(&self) {
        assert_eq!(self.queued.fetch_add(1, Ordering::SeqCst), 0, "queued twice");
    }
}

/// What the nursery's lock guards in the model: its list, and whether it is cancelled.
type Nursery = Brood<(Roster<Child>, bool)>;

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
        if child.state.commit_wait(Event::Block) == Committed::Queue {
            child.queue();
        } else if !may_stay_asleep(child) {
            interrupt(child);
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
fn an_unpark_is_never_slept_over() {
    model(|| {
        let parker = Arc::new(Parker::default());
        let unparking = {
            let parker = parker.clone();
            thread::spawn(move || parker.unpark())
        };
        // A thread that slept over it would be a deadlock, which loom reports.
        assert!(parker.park_blocking(None));
        unparking.join().unwrap();
    });
}

#[test]
fn each_of_two_unparks_is_taken_when_the_second_comes_after_the_first_was() {
    model(|| {
        let parkers = Arc::new((Parker::default(), Parker::default()));
        let other = {
            let parkers = parkers.clone();
            thread::spawn(move || {
                assert!(parkers.0.park_blocking(None));
                parkers.1.unpark();
                assert!(parkers.0.park_blocking(None));
            })
        };
        parkers.0.unpark();
        assert!(parkers.1.park_blocking(None));
        parkers.0.unpark();
        other.join().unwrap();
    });
}
