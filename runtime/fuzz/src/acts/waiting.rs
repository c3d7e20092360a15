//! Locks with readers, events, meetings, time limits and tokens that all tasks share.

use super::alone::ops;
use super::scope::{OpenNursery, let_go, little, with_open_nursery};
use crate::rng::Rng;
use crate::verdict::violation;
use crate::world::{Me, Meeting};
use mainspring::sync::{AcquireError, CancelToken, Notify, Semaphore, Stopped};
use mainspring::{Budget, Component, Cost, Cx, Refusal, Select};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

fn shortly(rng: &mut Rng) -> Duration {
    Duration::from_micros(rng.pick(&[0, 20, 100]))
}

/// Gives way while something is held.
fn linger(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    for _ in 0..rng.below(3) {
        cx.yield_now();
        me.look(cx);
    }
}

/// Readers find the value whole, and as it was when they came.
pub fn rwlock(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let lock = &me.world.rwlock;
    if rng.one_in(3) {
        let guard = if rng.one_in(2) { lock.try_write() } else { lock.write_timeout(cx, shortly(rng)).ok() };
        let Some(mut guard) = guard else { return };
        guard.0 += 1;
        let made = guard.0;
        // Cut short here, the value is torn for as long as the lock is held: the guard mends it before it goes.
        struct Mended<'a, 'b>(&'a mut mainspring::sync::WriteGuard<'b, crate::world::Twins>);
        impl Drop for Mended<'_, '_> {
            fn drop(&mut self) {
                self.0.1 = self.0.0;
            }
        }
        let mended = Mended(&mut guard);
        linger(cx, me, rng);
        if mended.0.0 != made {
            violation("another task was beside a writer");
        }
        drop(mended);
        if rng.one_in(2) {
            let guard = guard.downgrade();
            linger(cx, me, rng);
            if guard.0 != made {
                violation("a writer came between a writer and its reading");
            }
        }
        return;
    }
    let guard = match rng.below(3) {
        0 => lock.try_read(),
        1 => lock.read_timeout(cx, shortly(rng)).ok(),
        _ => match lock.read(cx) {
            Ok(guard) => Some(guard),
            Err(AcquireError::Unwinding) if me.cleans_up.get() => None,
            Err(error) => violation(format_args!("a lock is refused: {error}")),
        },
    };
    let Some(guard) = guard else { return };
    let before = guard.0;
    linger(cx, me, rng);
    if guard.0 != guard.1 || guard.0 != before {
        violation("a writer was beside a reader");
    }
}

pub fn event(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let notify = &me.world.notify;
    match rng.below(3) {
        0 => notify.notify_one(),
        1 => notify.notify_waiters(),
        _ => match notify.notified_timeout(cx, shortly(rng)) {
            Ok(()) | Err(AcquireError::TimedOut) => {}
            Err(AcquireError::Unwinding) if me.cleans_up.get() => {}
            Err(error) => violation(format_args!("a wait for an event: {error}")),
        },
    }
    me.look(cx);
}

/// A number that goes up by one, at each of which all wait.
pub fn meeting(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let Meeting { number, changed, barrier, inside } = &me.world.meeting;
    if rng.one_in(3) {
        match barrier.wait_timeout(cx, shortly(rng)) {
            Ok(_) | Err(AcquireError::TimedOut) => {}
            Err(AcquireError::Unwinding) if me.cleans_up.get() => {}
            Err(error) => violation(format_args!("a barrier: {error}")),
        }
        return;
    }
    let Ok(mut guard) = number.lock_timeout(cx, shortly(rng)) else { return };
    /// Counted as outside before it is.
    struct Inside<'a>(&'a std::sync::atomic::AtomicI64);
    impl Drop for Inside<'_> {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let enter = || {
        if inside.fetch_add(1, Ordering::SeqCst) != 0 {
            violation("two tasks are in one lock");
        }
        Inside(inside)
    };
    let within = enter();
    *guard += 1;
    if rng.one_in(2) {
        if rng.one_in(2) {
            changed.notify_one();
        } else {
            changed.notify_all();
        }
        drop(within);
        return;
    }
    drop(within);
    match changed.wait_timeout(cx, guard, shortly(rng)) {
        Ok((guard, _)) => {
            let within = enter();
            linger(cx, me, rng);
            drop(within);
            drop(guard);
        }
        Err(AcquireError::Unwinding) if me.cleans_up.get() => {}
        Err(error) => violation(format_args!("a condvar: {error}")),
    }
}

/// A limit that may end any wait inside, and nothing outside.
pub fn timeout(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let (outer, inner, wait) = (shortly(rng), shortly(rng), shortly(rng));
    let seed = rng.draw();
    let result = cx.timeout(outer, |cx| {
        let mut rng = Rng::new(seed);
        let nested = cx.timeout(inner, |cx| {
            cx.sleep(wait);
            rwlock(cx, me, &mut rng);
            1
        });
        event(cx, me, &mut rng);
        nested
    });
    match result {
        Ok(Ok(1)) | Ok(Err(Stopped::TimedOut)) | Err(Stopped::TimedOut) => {}
        // In a cleanup waits end at once.
        _ if me.cleans_up.get() => {}
        other => violation(format_args!("a timeout: {other:?}")),
    }
    me.look(cx);
}

/// A child under a token ends when its owner cancels that, and is not cancelled itself.
pub fn token(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    if !me.affords(cx, ops(200)) {
        return;
    }
    let token = CancelToken::new();
    with_open_nursery(cx, me, rng, |cx, open: &OpenNursery<'_, '_, '_>, rng| {
        let (under, yields) = (if rng.one_in(2) { token.child() } else { token.clone() }, rng.below(3));
        open.spawn(cx, little(), move |cx, me| {
            let ended = cx.until(&under, |cx| {
                loop {
                    cx.sleep(Duration::from_micros(10));
                    me.look(cx);
                }
            });
            let ended: Result<(), Stopped> = ended;
            if ended != Err(Stopped::Cancelled) || !under.is_cancelled() {
                violation(format_args!("under a token: {ended:?}"));
            }
            me.look(cx);
        });
        for _ in 0..yields {
            cx.yield_now();
            open.me.look(cx);
        }
        token.cancel();
    });
    // A nursery that was cancelled may have ended it first.
    token.cancel();
}

/// Of several things that one child may do, a select takes one that has happened, and takes nothing else.
pub fn choose(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let costs = Budget { ops: 200, channel_ops: 2, ..Budget::ZERO };
    if !me.affords(cx, costs) {
        return;
    }
    let (notify, token, semaphore) = (Arc::new(Notify::new()), CancelToken::new(), Semaphore::new(2));
    with_open_nursery(cx, me, rng, |cx, open: &OpenNursery<'_, '_, '_>, rng| {
        let me = open.me;
        let (does, yields) = (rng.below(3), rng.below(3));
        let (rings, stops) = (notify.clone(), token.clone());
        let child = open.spawn_child(cx, little(), move |cx, me| {
            for _ in 0..yields {
                cx.yield_now();
                me.look(cx);
            }
            match does {
                0 => rings.notify_one(),
                1 => _ = stops.cancel(),
                _ => {}
            }
        });
        let held = semaphore.try_acquire(if rng.one_in(6) { 1 } else { 2 });
        let free = semaphore.free();
        let mut select =
            Select::new().notified(&notify, || 0).cancelled(&token, || 1).acquire(&semaphore, 1, |_permit| 3);
        if let Some(child) = &child {
            // Twice: whichever arm it wakes.
            select = select.ended(&child.handle, || 2).ended(&child.handle, || 2);
        }
        let time = shortly(rng);
        let taken = me.paid(
            cx,
            Cost::CHANNEL_OP,
            || select.run_timeout(cx, time, || 4),
            |result| !matches!(result, Err(Refusal::Budget(_))),
        );
        let has_happened = match taken {
            Ok(0) => does == 0 && child.is_some() && notify.notified_timeout(cx, Duration::ZERO).is_err(),
            Ok(1) => does == 1 && child.is_some() && token.is_cancelled(),
            Ok(2) => child.as_ref().is_some_and(|child| child.handle.is_finished()),
            Ok(3) => free == 1,
            Ok(_) => free == 0,
            Err(Refusal::Budget(_)) => !me.was_granted(Component::ChannelOps),
            Err(Refusal::Unwinding) => me.cleans_up.get(),
            Err(_) => false,
        };
        if !has_happened || semaphore.free() != free {
            violation(format_args!("a select takes {taken:?} of what {does} does, with {free} permits"));
        }
        me.look(cx);
        drop(held);
        child.into_iter().for_each(let_go);
    });
}
