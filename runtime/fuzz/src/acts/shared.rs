//! Locks, permits and parkers that all tasks share.

use super::alone::ops;
use super::live;
use super::scope::{OpenNursery, little, with_open_nursery};
use crate::rng::Rng;
use crate::verdict::violation;
use crate::world::{Me, Twins};
use mainspring::sync::{AcquireError, MutexGuard};
use mainspring::{Cx, Parker};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// No other task is in the lock, whether this one yields or not.
fn inside(cx: &Cx, me: &Me<'_>, mut twins: MutexGuard<'_, Twins>, yields: u64) {
    /// Whole again on every way out.
    struct Whole<'a, 'b>(&'a mut MutexGuard<'b, Twins>);
    impl Drop for Whole<'_, '_> {
        fn drop(&mut self) {
            self.0.1 += 1;
        }
    }
    if twins.0 != twins.1 {
        violation("two tasks are in one lock");
    }
    twins.0 += 1;
    let before = twins.0;
    let whole = Whole(&mut twins);
    for _ in 0..yields {
        cx.yield_now();
        me.look(cx);
    }
    if whole.0.0 != before {
        violation("another task was in the lock");
    }
}

pub fn mutex(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let mutexes = &me.world.mutexes;
    let mutex = &mutexes[rng.below(mutexes.len() as u64) as usize];
    let yields = rng.below(3);
    if rng.one_in(3) {
        if let Some(guard) = mutex.try_lock() {
            inside(cx, me, guard, yields);
        }
        return;
    }
    // The holder waits for nothing but its turn.
    match mutex.lock(cx) {
        Ok(guard) => {
            me.look(cx);
            inside(cx, me, guard, yields);
        }
        Err(error) => violation(format_args!("a lock is refused: {error}")),
    }
}

pub fn semaphore(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    const TOTAL: usize = 3;
    let semaphores = &me.world.semaphores;
    let (semaphore, free) = &semaphores[rng.below(semaphores.len() as u64) as usize];
    let wanted = rng.below(5) as usize;
    let permit = match rng.below(3) {
        0 => match semaphore.try_acquire(wanted) {
            Some(permit) => permit,
            None => return,
        },
        1 => match semaphore.acquire(cx, wanted) {
            Ok(permit) if wanted <= TOTAL => permit,
            Err(AcquireError::TooMany { .. }) if wanted > TOTAL => return,
            other => violation(format_args!("{wanted} of {TOTAL} permits: {other:?}")),
        },
        _ => match semaphore.acquire_timeout(cx, wanted, Duration::from_micros(rng.below(100))) {
            Ok(permit) if wanted <= TOTAL => permit,
            Err(AcquireError::TooMany { .. }) if wanted > TOTAL => return,
            Err(AcquireError::TimedOut) => return,
            other => violation(format_args!("{wanted} of {TOTAL} permits: {other:?}")),
        },
    };
    me.look(cx);
    if wanted > TOTAL {
        violation("more permits than there are");
    }
    /// Counted as free before they are.
    struct Counted<'a>(&'a std::sync::atomic::AtomicI64, i64);
    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(self.1, Ordering::SeqCst);
        }
    }
    let left = free.fetch_sub(wanted as i64, Ordering::SeqCst) - wanted as i64;
    let _permit = permit;
    let _counted = Counted(free, wanted as i64);
    if left < 0 {
        violation("more permits are held than there are");
    }
    for _ in 0..rng.below(3) {
        cx.yield_now();
        me.look(cx);
    }
}

pub fn once(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let onces = &me.world.onces;
    let place = rng.below(onces.len() as u64) as usize;
    let (once, makers) = &onces[place];
    let value = once.get_or_make(cx, || {
        if makers.fetch_add(1, Ordering::SeqCst) > 0 {
            violation("a once is made twice");
        }
        place as u64 + 100
    });
    if value.ok() != Some(place as u64 + 100) {
        violation("a once has another value");
    }
}

pub fn park(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let parkers = &me.world.parkers;
    let parker = &parkers[rng.below(parkers.len() as u64) as usize];
    let us = rng.pick(&[0, 20, 200]);
    parker.park(cx, Some(Duration::from_micros(us)));
    me.look(cx);
}

pub fn unpark(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let parkers = &me.world.parkers;
    let parker = &parkers[rng.below(parkers.len() as u64) as usize];
    if rng.one_in(3) {
        parker.hand_over(cx);
    } else {
        parker.unpark();
    }
}

/// Unparks on every way out.
struct UnparkLast(Arc<Parker>);

impl Drop for UnparkLast {
    fn drop(&mut self) {
        self.0.unpark();
    }
}

/// A wait without end for an unpark that comes, however the child that owes it ends.
pub fn handshake(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    if !me.affords(cx, ops(200)) {
        return;
    }
    let parker = Arc::new(Parker::default());
    with_open_nursery(cx, me, rng, |cx, open: &OpenNursery<'_, '_, '_>, rng| {
        let (last, seed) = (UnparkLast(parker.clone()), rng.draw());
        open.spawn(cx, little(), move |cx, me| {
            let _last = last;
            let mut rng = Rng::new(seed);
            for _ in 0..rng.below(3) {
                cx.yield_now();
                me.look(cx);
            }
            if rng.one_in(3) {
                cx.sleep(Duration::from_micros(rng.below(40)));
            }
        });
        if rng.one_in(3) {
            live(cx, open.me, rng, 1);
        }
        if !parker.park(cx, None) {
            violation("a park without a timeout ends without an unpark");
        }
        open.me.look(cx);
    });
}
