//! What a task was granted, asked by a thief while the task lends its budget.

use crate::{finds, model};
use loom::sync::Arc;
use loom::thread;
use mainspring::protocol::granted::Granted;
use mainspring::protocol::mutant::Mutant;

#[test]
fn what_was_granted_stays_granted_while_the_budget_is_lent() {
    model(|| {
        let granted = Arc::new(Granted::new());
        granted.reset(0b1001);
        let thief = {
            let granted = granted.clone();
            thread::spawn(move || granted.bits())
        };
        // All is lent, and some of it comes back.
        granted.add(0);
        granted.add(0b0001);
        assert_eq!(thief.join().unwrap(), 0b1001);
    });
}

#[test]
fn the_model_finds_a_moment_without_what_was_granted() {
    finds(&[Mutant::GrantRewritten], "granted::what_was_granted_stays_granted_while_the_budget_is_lent");
}
