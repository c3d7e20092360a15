//! Tasks that only meet on one worker do so without atomics; others find and stop them all the same.

use mainspring::{
    Budget, Capacity, Config, Cx, Exhaustion, NurseryOptions, Profile, Receiver, Runtime, Sender,
};
use std::sync::atomic::{AtomicU32, Ordering};

const ROUNDS: u32 = 60;
/// More than it takes for a worker to have a channel for itself.
const TRIPS: u32 = 300;

fn runtime(workers: usize) -> Runtime {
    Config::new(Profile::Cluster).workers(workers).build().unwrap()
}

fn options() -> NurseryOptions {
    let refill = Budget { ops: 10_000, channel_ops: 1000, ..Budget::ZERO };
    NurseryOptions::new().on_exhausted(Exhaustion::Refill(refill))
}

fn ping(cx: &Cx, to: &Sender<u32>, back: &Receiver<u32>) {
    for i in 0..TRIPS {
        to.send(cx, i).unwrap();
        assert_eq!(back.recv(cx), Ok(i + 1));
    }
}

#[test]
fn a_value_from_elsewhere_reaches_a_task_that_waits_at_home() {
    let runtime = runtime(3);
    let (to, at) = runtime.channel::<u32>(Capacity::Rendezvous);
    let sum = AtomicU32::new(0);
    for round in 0..ROUNDS {
        std::thread::scope(|threads| {
            let (to, at, sum) = (&to, &at, &sum);
            threads.spawn(move || {
                for _ in 0..10 {
                    to.send_blocking(1_000_000).unwrap();
                }
            });
            runtime
                .run(|cx| {
                    let (back, home) = cx.channel(Capacity::Bounded(round % 2)).unwrap();
                    cx.nursery_with(options(), |n| {
                        n.spawn(move |cx| ping(cx, to, &home)).unwrap();
                        n.spawn(move |cx| {
                            let (mut own, mut foreign) = (0, 0);
                            while own < TRIPS || foreign < 10 {
                                match at.recv(cx).unwrap() {
                                    1_000_000 => foreign += 1,
                                    i => {
                                        own += 1;
                                        back.send(cx, i + 1).unwrap();
                                    }
                                }
                            }
                            sum.fetch_add(own + foreign, Ordering::Relaxed);
                        })
                        .unwrap();
                        // Others to steal, so that tasks move away from where they were at home.
                        for _ in 0..4 {
                            n.spawn(|cx| (0..20).for_each(|_| cx.yield_now())).unwrap();
                        }
                    })
                    .unwrap();
                })
                .unwrap();
        });
    }
    assert_eq!(sum.into_inner(), ROUNDS * (TRIPS + 10));
}

#[test]
fn tasks_that_wait_at_home_are_cancelled() {
    let runtime = runtime(2);
    for round in 0..ROUNDS {
        let trips = AtomicU32::new(0);
        let trips = &trips;
        let ended = runtime.run(|cx| {
            cx.nursery_with(options(), |n| {
                for _ in 0..3 {
                    let (to, at) = cx.channel::<u32>(Capacity::Rendezvous).unwrap();
                    let (back, home) = cx.channel::<u32>(Capacity::Rendezvous).unwrap();
                    n.spawn(move |cx| {
                        loop {
                            ping(cx, &to, &home);
                            trips.fetch_add(TRIPS, Ordering::Relaxed);
                        }
                    })
                    .unwrap();
                    n.spawn(move |cx| {
                        while let Ok(i) = at.recv(cx) {
                            back.send(cx, i + 1).unwrap();
                        }
                    })
                    .unwrap();
                }
                while trips.load(Ordering::Relaxed) < TRIPS * (round % 7) {
                    cx.yield_now();
                }
                n.cancel();
            })
        });
        assert!(ended.unwrap().is_err(), "it was cancelled");
    }
}
