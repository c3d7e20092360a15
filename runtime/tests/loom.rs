//! The protocols under the model checker: every interleaving of small programs, on the code that ships.
//! Run by `make loom`, which sets `--cfg loom`.
#![cfg(loom)]
#![allow(unsafe_code)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;
use mainspring::channel::model_pair;
use mainspring::protocol::asymmetric;
use mainspring::protocol::bias::{BiasedLock, Home, Seat};
use mainspring::protocol::brood::Brood;
use mainspring::protocol::deque::{Steal, deques};
use mainspring::protocol::join::{Dropped, Finished, JoinCell, Waiting};
use mainspring::protocol::keep::{Keep, LetGo};
use mainspring::protocol::lanes::{LaneSettings, Lanes, Schedule, Stopped, Tell};
use mainspring::protocol::post::Post;
use mainspring::protocol::roster::{Member, Roster, interrupt, may_stay_asleep};
use mainspring::protocol::sleep::{Dormitory, Woke};
use mainspring::task::state::{Committed, Event, StateCell, Woken};
use mainspring::{Capacity, Nanos, Refusal};

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
        let mut ends = deques(2).into_iter();
        let ((owner, stealer), (thief, _)) = (ends.next().unwrap(), ends.next().unwrap());
        let taken = Arc::new(AtomicUsize::new(0));
        let thief = {
            let taken = taken.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    if let Steal::Taken(word) = stealer.steal(&thief) {
                        assert_eq!(taken.fetch_or(word, Ordering::Relaxed) & word, 0, "taken twice");
                    }
                    // The next attempt must announce itself anew.
                    thief.withdraw();
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

//= SCHED:7.1.2
#[test]
fn words_that_are_taken_together_are_not_stolen() {
    model(|| {
        let mut ends = deques(2).into_iter();
        let ((owner, stealer), (thief, _)) = (ends.next().unwrap(), ends.next().unwrap());
        owner.push(1);
        owner.push(2);
        owner.push(4);
        let thief = thread::spawn(move || {
            let mut stolen = 0;
            for _ in 0..2 {
                if let Steal::Taken(word) = stealer.steal(&thief) {
                    assert_eq!(stolen & word, 0, "taken twice");
                    stolen |= word;
                }
                // The next attempt must announce itself anew.
                thief.withdraw();
            }
            stolen
        });
        let mut taken = owner.pop_some().map_or(0, |[older, newer]: [usize; 2]| {
            assert_eq!((older, newer), (2, 4), "newest last");
            older | newer
        });
        owner.push(8);
        while let Some(word) = owner.pop() {
            assert_eq!(taken & word, 0, "taken twice");
            taken |= word;
        }
        let stolen = thief.join().unwrap();
        assert_eq!(taken & stolen, 0, "taken twice");
        assert_eq!(taken | stolen, 15, "lost");
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

/// A task on its worker, and who queues it.
struct Waiter {
    state: StateCell,
    home: Home,
    seat: Seat,
    queued: AtomicUsize,
    woken: AtomicBool,
    cancelled: AtomicBool,
}

impl Waiter {
    fn running() -> Self {
        let state = StateCell::default();
        state.dispatch_for_model();
        Self {
            state,
            home: Home::new(),
            seat: Seat::default(),
            queued: AtomicUsize::new(0),
            woken: AtomicBool::new(false),
            cancelled: AtomicBool::new(false),
        }
    }

    fn is_to_be_queued(&self, event: Event, here: Option<&Seat>) -> bool {
        // SAFETY: the only seat lives as long as the home.
        unsafe { self.state.wake(event, &self.home, here) == Woken::Queue }
    }

    fn commits_to_be_queued(&self) -> bool {
        self.state.commit_wait(Event::Block, &self.home, &self.seat) == Committed::Queue
    }

    fn wake(&self, event: Event, here: Option<&Seat>) {
        if self.is_to_be_queued(event, here) {
            self.queued.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        asymmetric::heavy();
        self.wake(Event::Interrupt, None);
    }

    fn is_over(&self) -> bool {
        self.woken.load(Ordering::SeqCst) || self.cancelled.load(Ordering::SeqCst)
    }

    /// Waits as a task does. `on_worker` is what its worker does next.
    fn wait(&self, on_worker: impl Fn()) {
        while !self.is_over() {
            if self.commits_to_be_queued() {
                self.queued.fetch_add(1, Ordering::SeqCst);
            } else if self.cancelled.load(Ordering::SeqCst) {
                // The last look of `Worker::settle`.
                self.wake(Event::Interrupt, Some(&self.seat));
            }
            on_worker();
            while self.queued.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            assert_eq!(self.queued.swap(0, Ordering::SeqCst), 1, "queued twice");
            self.state.dispatch_for_model();
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
                thread::spawn(move || {
                    task.woken.store(true, Ordering::SeqCst);
                    task.wake(Event::Wake, None);
                })
            },
            {
                let task = task.clone();
                thread::spawn(move || task.cancel())
            },
        ];
        // A wake that looks at the flag only, as the wait of a task does.
        while !task.woken.load(Ordering::SeqCst) && !task.cancelled.load(Ordering::SeqCst) {
            task.wait(|| ());
        }
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
        task.home.move_in(&task.seat);
        let canceller = {
            let task = task.clone();
            thread::spawn(move || task.cancel())
        };
        task.wait(|| {
            task.woken.store(true, Ordering::SeqCst);
            task.wake(Event::Wake, Some(&task.seat));
        });
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
        task.home.move_in(&task.seat);
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
            task.home.move_in(&task.seat);
            task.woken.store(false, Ordering::SeqCst);
            task.wait(|| {
                task.woken.store(true, Ordering::SeqCst);
                task.wake(Event::Wake, Some(&task.seat));
            });
        }
        late.join().unwrap();
        task.home.move_out();
        assert_eq!(task.queued.load(Ordering::SeqCst), 0, "queued twice");
    });
}

/// Two who take a home away at once, while its worker goes in and out.
#[test]
fn nobody_goes_on_while_a_home_s_worker_is_inside() {
    model(|| {
        let shared = Arc::new((Home::new(), Seat::default(), loom::cell::UnsafeCell::new(0)));
        shared.0.move_in(&shared.1);
        let others = [(); 2].map(|()| {
            let shared = shared.clone();
            thread::spawn(move || {
                // SAFETY: the seat lives as long as the home.
                assert!(!unsafe { shared.0.claim(None, || ()) }, "it is not theirs");
                // SAFETY: nobody is inside any more; loom checks that.
                shared.2.with(|value| assert!(unsafe { *value } <= 1));
            })
        });
        if let Some(_section) = shared.0.enter(&shared.1) {
            // SAFETY: inside alone; loom checks that.
            shared.2.with_mut(|value| unsafe { *value += 1 });
        }
        for other in others {
            other.join().unwrap();
        }
        assert!(shared.0.enter(&shared.1).is_none(), "taken away for good");
    });
}

fn add(lock: &BiasedLock<loom::cell::UnsafeCell<u32>>, seat: Option<&std::sync::Arc<Seat>>) {
    // SAFETY: the lock; loom checks it.
    lock.lock(seat).with_mut(|value| unsafe { *value += 1 });
}

#[test]
fn a_biased_lock_lets_one_in_at_a_time() {
    model(|| {
        let lock = Arc::new(BiasedLock::new(loom::cell::UnsafeCell::new(0)));
        let seat = std::sync::Arc::new(Seat::default());
        add(&lock, Some(&seat));
        let other = {
            let lock = lock.clone();
            thread::spawn(move || {
                add(&lock, None);
                // Another worker, which may get the lock for itself.
                let seat = std::sync::Arc::new(Seat::default());
                add(&lock, Some(&seat));
                add(&lock, Some(&seat));
            })
        };
        add(&lock, Some(&seat));
        add(&lock, Some(&seat));
        other.join().unwrap();
        add(&lock, None);
        // SAFETY: nobody else is left.
        lock.lock(None).with(|value| assert_eq!(unsafe { *value }, 7));
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
    let Some(next) = lanes.next(worker, Nanos::new(now)) else { return false };
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
                    if let Some(next) = lanes.next(1, Nanos::new(5)) {
                        assert_eq!(next.word, 7);
                        lanes.end(1, Nanos::new(6));
                        dormitory.found(searching);
                        return;
                    }
                    lanes.set_idle(1, true);
                    let woke = dormitory.sleep(1, searching, None, || lanes.has_work_for(1));
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
        let shared = Arc::new((small_lanes(1, 1), Waiter::running()));
        let _ = admit(&shared.0, 7, &Schedule::default(), None);
        assert!(shared.0.next(0, Nanos::new(1)).is_some());
        let waker = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.1.woken.store(true, Ordering::SeqCst);
                if shared.1.is_to_be_queued(Event::Wake, None) {
                    let _ = shared.0.wake(0, None, Nanos::new(3));
                }
            })
        };
        // What `Worker::settle` does: the lane first, then the commit.
        if !shared.1.is_over() {
            shared.0.stop(0, Stopped::Waits(mainspring_sched::WaitKind::Park), Nanos::new(2));
            if shared.1.commits_to_be_queued() {
                let _ = shared.0.wake(0, Some(0), Nanos::new(4));
            }
            let mut next = shared.0.next(0, Nanos::new(5));
            while next.is_none() {
                thread::yield_now();
                next = shared.0.next(0, Nanos::new(5));
            }
            shared.1.state.dispatch_for_model();
        }
        waker.join().unwrap();
        shared.0.end(0, Nanos::new(9));
        assert!(shared.0.next(0, Nanos::new(10)).is_none(), "queued once");
    });
}

/// The runtime's memory: freed when the last hold goes.
struct Memory {
    holds: AtomicUsize,
    freed: loom::cell::UnsafeCell<bool>,
    wakers: Keep,
}

impl Memory {
    fn make_waker(&self) {
        self.wakers.keep(|| {
            assert_ne!(self.holds.fetch_add(1, Ordering::Relaxed), 0, "taken hold of after it went");
        });
    }

    fn use_waker(&self) {
        // SAFETY: loom checks that nobody writes it meanwhile.
        self.freed.with(|freed| assert!(!unsafe { *freed }, "used after it went"));
        if self.wakers.let_go() == LetGo::Last {
            self.let_go();
        }
    }

    fn let_go(&self) {
        if self.holds.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: loom checks that nobody reads it any more.
            self.freed
                .with_mut(|freed| assert!(!std::mem::replace(unsafe { &mut *freed }, true), "freed twice"));
        }
    }
}

#[test]
fn wakers_keep_the_memory_of_their_runtime_until_the_last() {
    model(|| {
        let memory = Arc::new(Memory {
            holds: AtomicUsize::new(1),
            freed: loom::cell::UnsafeCell::new(false),
            wakers: Keep::new(),
        });
        memory.make_waker();
        let elsewhere = {
            let memory = memory.clone();
            thread::spawn(move || {
                // A clone of a waker, and both used up.
                memory.make_waker();
                memory.use_waker();
                memory.use_waker();
            })
        };
        // The next poll makes another; then the runtime goes, and then the waker.
        memory.make_waker();
        memory.let_go();
        memory.use_waker();
        elsewhere.join().unwrap();
        // SAFETY: nobody else is left.
        memory.freed.with(|freed| assert!(unsafe { *freed }, "kept for ever"));
    });
}

/// A member of a nursery, as the model has it.
struct Child {
    cancel: AtomicBool,
    state: StateCell,
    home: Home,
    seat: Seat,
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
            seat: Seat::default(),
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
        // SAFETY: the only seat lives as long as the home.
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
        if child.state.commit_wait(Event::Block, &child.home, &child.seat) == Committed::Queue {
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
fn what_is_left_for_a_task_is_found_at_its_end_or_refused() {
    model(|| {
        let shared = Arc::new((
            Post::new(),
            AtomicBool::new(false),
            loom::sync::Mutex::new(()),
            loom::cell::UnsafeCell::new(0),
        ));
        let task = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (post, over, lock, left) = &*shared;
                over.store(true, Ordering::Relaxed);
                let _guard = post.is_announced().then(|| lock.lock().unwrap());
                // SAFETY: under the lock, or alone; loom checks that.
                left.with_mut(|left| std::mem::take(unsafe { &mut *left }))
            })
        };
        let (post, over, lock, left) = &*shared;
        post.announce();
        let accepted = {
            let _guard = lock.lock().unwrap();
            let accepted = !over.load(Ordering::Relaxed);
            if accepted {
                // SAFETY: under the lock; loom checks that.
                left.with_mut(|left| unsafe { *left += 5 });
            }
            accepted
        };
        let found = task.join().unwrap();
        assert_eq!(found, if accepted { 5 } else { 0 }, "lost");
    });
}
