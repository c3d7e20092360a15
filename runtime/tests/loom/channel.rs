//! Channels and parkers, and what each waiter is told.

use crate::{finds, model};
use loom::sync::Arc;
use loom::thread;
use mainspring::channel::model_pair;
use mainspring::protocol::mutant::Mutant;
use mainspring::protocol::wait_end::{Outcome, WaitEnd};
use mainspring::{Capacity, Parker, Refusal, Select};

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

/// The waiter's runtime, from outside of which it is woken: it goes as soon as the waiter, which looks by itself, was told.
#[test]
fn whoever_waits_stays_until_whoever_tells_it_has_woken_it() {
    model(|| {
        let shared = Arc::new((WaitEnd::new(), loom::cell::UnsafeCell::new(false)));
        let telling = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (end, gone) = &*shared;
                end.begin();
                // SAFETY: a wake reads the memory of the runtime; loom checks that no thread frees it meanwhile.
                gone.with(|gone| assert!(!unsafe { *gone }, "woken after it went"));
                end.complete(Outcome::Closed);
            })
        };
        let (end, gone) = &*shared;
        while !end.is_over() {
            thread::yield_now();
        }
        assert_eq!(end.outcome(), Some(Outcome::Closed));
        // SAFETY: told, so that no thread uses it any more; loom checks that.
        gone.with_mut(|gone| unsafe { *gone = true });
        telling.join().unwrap();
    });
}

/// One sends on the first channel or receives on the second, the other does the reverse: they meet on one of them, once.
#[test]
fn two_selects_that_face_each_other_pass_one_value() {
    model(|| {
        let (to, at) = model_pair::<u32>(Capacity::Rendezvous);
        let (back, home) = model_pair::<u32>(Capacity::Rendezvous);
        let one = thread::spawn(move || {
            let mut value = Some(1);
            let select = Select::new().in_order().send(&to, &mut value, |sent| sent.map(|()| None));
            let taken = select.recv(&home, |received| received.map(Some)).run_blocking();
            (taken.unwrap(), value)
        });
        let mut value = Some(2);
        let select = Select::new().in_order().recv(&at, |received| received.map(Some));
        let taken = select.send(&back, &mut value, |sent| sent.map(|()| None)).run_blocking().unwrap();
        match (one.join().unwrap(), (taken, value)) {
            ((None, None), (Some(1), Some(2))) | ((Some(2), Some(1)), (None, None)) => {}
            other => panic!("{other:?}"),
        }
    });
}

/// Two senders, and one receiver that takes from both, first from whichever comes: both values come, each once.
#[test]
fn a_select_takes_one_of_two_values_and_leaves_the_other() {
    model(|| {
        let [(one, from_one), (two, from_two)] = [(); 2].map(|()| model_pair::<u32>(Capacity::Rendezvous));
        // A channel is closed only when its value has been taken.
        let senders = [(1, one), (2, two)].map(|(value, sender)| {
            thread::spawn(move || sender.send_blocking(value).map_err(|refused| refused.why).unwrap())
        });
        let first = Select::new().in_order().recv(&from_one, |value| value).recv(&from_two, |value| value);
        let first = first.run_blocking().unwrap();
        let second = if first == 1 { from_two.recv_blocking() } else { from_one.recv_blocking() };
        assert_eq!(first + second.unwrap(), 3);
        for sender in senders {
            sender.join().unwrap();
        }
    });
}

/// The other side goes while a select waits on it.
#[test]
fn a_select_whose_channel_goes_is_told_and_keeps_its_value() {
    model(|| {
        let (sender, receiver) = model_pair::<u32>(Capacity::Rendezvous);
        let (_quiet, other) = model_pair::<u32>(Capacity::Rendezvous);
        let going = thread::spawn(move || drop(receiver));
        let mut value = Some(3);
        let select = Select::new().in_order().recv(&other, |_| Ok(()));
        let sent = select.send(&sender, &mut value, |sent| sent).run_blocking();
        assert_eq!((sent, value), (Err(Refusal::Closed), Some(3)));
        going.join().unwrap();
    });
}

#[test]
fn the_model_finds_a_waiter_that_is_told_before_it_is_woken() {
    finds(&[Mutant::ToldTooEarly], "channel::whoever_waits_stays_until_whoever_tells_it_has_woken_it");
}
