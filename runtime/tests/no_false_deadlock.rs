//! A task that is just being handed over by an ordinary thread is not a deadlock.

use mainspring::testing::for_seeds;
use mainspring::{Config, Profile};

#[test]
fn a_task_on_its_way_is_no_deadlock() {
    for _ in 0..3_000 {
        for_seeds(0..1, Config::new(Profile::Service).workers(1), |_| ());
    }
}
