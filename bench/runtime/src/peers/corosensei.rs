//! corosensei: switches between stacks, and no scheduler. What the others cannot be below.

use super::{ns_each, processor_timed};
use crate::bench::{Bench, Work, YIELDERS};
use corosensei::Coroutine;

/// Measures one benchmark.
pub fn measure(bench: Bench, work: &Work) -> Option<f64> {
    Some(match bench {
        Bench::Yield => yields(work.yields),
        Bench::PingPong => pingpong(work.trips),
        _ => return None,
    })
}

fn yields(each: u32) -> f64 {
    let mut tasks: Vec<Coroutine<(), (), ()>> = (0..YIELDERS)
        .map(|_| Coroutine::new(move |yielder, ()| (0..each).for_each(|_| yielder.suspend(()))))
        .collect();
    let time = processor_timed(|| {
        for _ in 0..=each {
            for task in &mut tasks {
                task.resume(());
            }
        }
    });
    assert!(tasks.iter().all(Coroutine::done));
    ns_each(time, each * YIELDERS)
}

/// The number goes to one coroutine and comes back.
fn pingpong(trips: u32) -> f64 {
    let mut pong: Coroutine<u32, u32, ()> = Coroutine::new(|yielder, mut i| {
        loop {
            i = yielder.suspend(i);
        }
    });
    let time = processor_timed(|| {
        for i in 0..trips {
            assert_eq!(pong.resume(i).as_yield(), Some(i));
        }
    });
    ns_each(time, trips)
}
