//! The monitor's sleep against a worker that begins to run tasks.

use crate::{finds, model};
use loom::sync::Arc;
use loom::thread;
use mainspring::protocol::mutant::Mutant;
use mainspring::protocol::watch::Watch;

#[test]
fn the_monitor_does_not_sleep_over_a_worker_that_begins() {
    model(|| {
        let watch = Arc::new(Watch::new(1));
        let worker = {
            let watch = watch.clone();
            thread::spawn(move || watch.begin(0))
        };
        // A monitor that sleeps on would be a deadlock, which loom reports.
        while !watch.is_any_busy() {
            watch.park();
        }
        worker.join().unwrap();
    });
}

#[test]
fn a_shutdown_ends_the_monitors_sleep() {
    model(|| {
        let watch = Arc::new(Watch::new(1));
        let closer = {
            let watch = watch.clone();
            thread::spawn(move || watch.close())
        };
        while !watch.is_closed() {
            watch.park();
        }
        closer.join().unwrap();
    });
}

#[test]
fn the_model_finds_a_monitor_that_sleeps_on() {
    let faults = [Mutant::BeginWithoutFence, Mutant::ParkWithoutFence, Mutant::ParkWithoutLook];
    finds(&faults, "watch::the_monitor_does_not_sleep_over_a_worker_that_begins");
}
