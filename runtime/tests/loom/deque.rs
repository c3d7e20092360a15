//! The owner of a deque against thieves.

use crate::{finds, model};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use mainspring::protocol::deque::{Steal, deques};
use mainspring::protocol::mutant::Mutant;

//= SCHED:7.1.1a SCHED:7.1.1b
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

/// The last word, with nothing between the two: the smallest program that needs both fences.
//= SCHED:7.1.2
#[test]
fn the_last_words_go_to_the_owner_or_to_a_thief() {
    model(|| {
        let mut ends = deques(2).into_iter();
        let ((owner, stealer), (thief, _)) = (ends.next().unwrap(), ends.next().unwrap());
        owner.push(1);
        owner.push(2);
        let thief = thread::spawn(move || {
            let mut stolen = 0;
            for _ in 0..2 {
                if let Steal::Taken(word) = stealer.steal(&thief) {
                    assert_ne!(word, 0, "seen before it was written");
                    stolen += word;
                }
            }
            stolen
        });
        let mut popped = 0;
        while let Some(word) = owner.pop() {
            popped += word;
        }
        assert_eq!(popped + thief.join().unwrap(), 3, "lost, or taken twice");
    });
}

/// The owner takes from both ends while a thief steals.
#[test]
fn the_oldest_word_goes_to_the_owner_or_to_a_thief() {
    model(|| {
        let mut ends = deques(2).into_iter();
        let ((owner, stealer), (thief, _)) = (ends.next().unwrap(), ends.next().unwrap());
        owner.push(1);
        owner.push(2);
        let thief = thread::spawn(move || match stealer.steal(&thief) {
            Steal::Taken(word) => word,
            Steal::Empty | Steal::Lost => 0,
        });
        let mut taken = owner.pop_oldest().unwrap_or(0);
        while let Some(word) = owner.pop() {
            taken += word;
        }
        assert_eq!(taken + thief.join().unwrap(), 3, "lost, or taken twice");
    });
}

/// A word that is pushed while a thief looks.
#[test]
fn a_word_is_seen_whole() {
    model(|| {
        let mut ends = deques(2).into_iter();
        let ((owner, stealer), (thief, _)) = (ends.next().unwrap(), ends.next().unwrap());
        let thief = thread::spawn(move || match stealer.steal(&thief) {
            Steal::Taken(word) => assert_eq!(word, 1, "seen before it was written"),
            Steal::Empty | Steal::Lost => {}
        });
        owner.push(1);
        thief.join().unwrap();
    });
}

#[test]
fn the_models_find_a_word_that_is_taken_twice() {
    finds(
        &[Mutant::PopWithoutFence, Mutant::AnnounceWithoutFence],
        "deque::the_last_words_go_to_the_owner_or_to_a_thief",
    );
    finds(&[Mutant::OldestWithoutCompare], "deque::the_oldest_word_goes_to_the_owner_or_to_a_thief");
    finds(&[Mutant::PushWithoutRelease], "deque::a_word_is_seen_whole");
}
