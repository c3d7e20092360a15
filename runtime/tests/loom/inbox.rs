//! A wake from another thread, against a worker that falls asleep.

use crate::{finds, model};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicPtr;
use loom::thread;
use mainspring::protocol::inbox::{Inbox, Linked};
use mainspring::protocol::mutant::Mutant;
use mainspring::protocol::sleep::{Depth, IdleWorkers, Woke};

/// A task, as an inbox has it: a link, and what its waker wrote.
struct Node {
    link: AtomicPtr<Node>,
    written: UnsafeCell<u32>,
}

// SAFETY: what is written is read by the thread that took the node out; loom checks that.
unsafe impl Sync for Node {}
// SAFETY: as above.
unsafe impl Send for Node {}

impl Node {
    fn new() -> Self {
        Self { link: AtomicPtr::new(std::ptr::null_mut()), written: UnsafeCell::new(0) }
    }
}

impl Linked for Node {
    fn link(&self) -> &AtomicPtr<Self> {
        &self.link
    }
}

struct Worker {
    inbox: Inbox<Node>,
    idle_workers: IdleWorkers,
    nodes: [Node; 2],
}

impl Worker {
    fn new() -> Self {
        Self { inbox: Inbox::default(), idle_workers: IdleWorkers::new(1), nodes: [Node::new(), Node::new()] }
    }

    /// What `Inner::inject` does with a pinned task.
    fn deliver(&self, number: usize) {
        let node = &self.nodes[number];
        // SAFETY: the node is this thread's until it is pushed; loom checks that.
        node.written.with_mut(|written| unsafe { *written = 7 });
        // SAFETY: in no inbox, and in an `Arc`.
        unsafe { self.inbox.push(node) };
        self.idle_workers.notify(0);
    }

    fn receive(&self) -> usize {
        let mut count = 0;
        self.inbox.take_all(|node| {
            // SAFETY: taken out by this thread, which alone has it now; loom checks that.
            unsafe { &*node }.written.with(|written| assert_eq!(unsafe { *written }, 7));
            count += 1;
        });
        count
    }

    /// The worker's side: takes what comes, and sleeps in between, until it has had `all`.
    fn run(&self, all: usize) {
        let mut had = 0;
        let mut searching = self.idle_workers.search();
        loop {
            had += self.receive();
            assert!(had <= all, "taken twice");
            if had == all {
                return self.idle_workers.found(searching);
            }
            searching = match self
                .idle_workers
                .sleep(0, searching, (Depth::Sleep, None), || !self.inbox.is_empty())
            {
                Woke::ForWork(searching) | Woke::TimedOut(searching) => searching,
                Woke::Outside => unreachable!("it sleeps at its own bell"),
                Woke::Closed => panic!("nobody closed it"),
            };
        }
    }
}

/// A worker that slept over a task would be a deadlock, which loom reports.
//= SCHED:6.3.1b
#[test]
fn a_worker_never_sleeps_while_its_inbox_has_a_task() {
    model(|| {
        let worker = Arc::new(Worker::new());
        let waker = {
            let worker = worker.clone();
            thread::spawn(move || worker.deliver(0))
        };
        worker.run(1);
        waker.join().unwrap();
    });
}

#[test]
fn two_who_push_at_once_lose_nothing() {
    model(|| {
        let worker = Arc::new(Worker::new());
        let wakers = [0, 1].map(|number| {
            let worker = worker.clone();
            thread::spawn(move || worker.deliver(number))
        });
        let mut had = worker.receive();
        for waker in wakers {
            waker.join().unwrap();
        }
        had += worker.receive();
        assert_eq!(had, 2, "lost");
    });
}

#[test]
fn the_models_find_tasks_that_are_slept_over_lost_or_half_seen() {
    let slept_over = [Mutant::NotifyWithoutFence, Mutant::SleepWithoutFence, Mutant::SleepWithoutLook];
    finds(&slept_over, "inbox::a_worker_never_sleeps_while_its_inbox_has_a_task");
    finds(
        &[Mutant::InboxWithoutRelease, Mutant::InboxWithoutCompare],
        "inbox::two_who_push_at_once_lose_nothing",
    );
}
