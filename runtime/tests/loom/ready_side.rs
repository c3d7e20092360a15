//! What the kernel tells of a socket against those that attempt, wait and give up.

use crate::{finds, model};
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use mainspring::protocol::mutant::Mutant;
use mainspring::protocol::ready_side::{ReadySide, Registered, TakenBack, Told};

/// A socket, and two waiters that words 0 and 1 name.
struct Socket {
    side: ReadySide,
    datagrams: AtomicUsize,
    bells: [(Mutex<bool>, Condvar); 2],
}

impl Socket {
    fn new() -> Arc<Self> {
        let bell = || (Mutex::new(false), Condvar::new());
        Arc::new(Self { side: ReadySide::default(), datagrams: AtomicUsize::new(0), bells: [bell(), bell()] })
    }

    /// The kernel has so many more, and tells it once.
    fn arrive(&self, datagrams: usize) {
        self.datagrams.fetch_add(datagrams, Ordering::SeqCst);
        self.wake(self.side.tell(Told::Ready));
    }

    fn wake(&self, word: Option<usize>) {
        let Some(word) = word else { return };
        let (rung, bell) = &self.bells[word];
        *rung.lock().unwrap() = true;
        bell.notify_one();
    }

    fn attempt(&self) -> bool {
        let take = |left: usize| left.checked_sub(1);
        self.datagrams.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok()
    }

    /// As the runtime's loop: attempt, get in line, wait, and attempt again.
    fn receive(&self, word: usize) {
        loop {
            let seen = self.side.seen();
            if self.attempt() {
                return self.wake(self.side.next());
            }
            self.side.used_up(seen);
            let Registered::InLine(ticket) = self.side.register(word) else { continue };
            let (rung, bell) = &self.bells[word];
            let mut rung = rung.lock().unwrap();
            while !*rung {
                rung = bell.wait(rung).unwrap();
            }
            *rung = false;
            drop(rung);
            assert_eq!(self.side.unregister(ticket), TakenBack::Woken);
        }
    }

    /// Gets in line, and is cancelled.
    fn give_up(&self, word: usize) {
        if let Registered::InLine(ticket) = self.side.register(word)
            && self.side.unregister(ticket) == TakenBack::Woken
        {
            self.wake(self.side.next());
        }
    }
}

#[test]
fn what_the_kernel_tells_once_is_not_slept_over() {
    model(|| {
        let socket = Socket::new();
        let theirs = socket.clone();
        let kernel = thread::spawn(move || theirs.arrive(1));
        // A receiver that slept over it would be a deadlock, which loom reports.
        socket.receive(0);
        kernel.join().unwrap();
    });
}

#[test]
fn one_event_for_two_datagrams_reaches_two_receivers() {
    model(|| {
        let socket = Socket::new();
        let theirs = socket.clone();
        let other = thread::spawn(move || theirs.receive(1));
        socket.arrive(2);
        socket.receive(0);
        other.join().unwrap();
    });
}

#[test]
fn a_turn_that_is_given_up_goes_to_the_next() {
    model(|| {
        let socket = Socket::new();
        assert!(socket.side.used_up(socket.side.seen()), "nothing is there");
        let (first, second) = (socket.clone(), socket.clone());
        let gives_up = thread::spawn(move || first.give_up(0));
        let receives = thread::spawn(move || second.receive(1));
        socket.arrive(1);
        gives_up.join().unwrap();
        receives.join().unwrap();
    });
}

#[test]
fn the_models_find_what_is_slept_over() {
    let faults = [Mutant::ClearWithoutCompare, Mutant::RegisterWithoutLook];
    finds(&faults, "ready_side::what_the_kernel_tells_once_is_not_slept_over");
    finds(&[Mutant::TurnLost], "ready_side::a_turn_that_is_given_up_goes_to_the_next");
}
