//! Futures: ready at once, woken from elsewhere, woken too often and too late.

use super::alone::ops;
use super::scope::{OpenNursery, Parcel, little, with_open_nursery};
use crate::ledger::{Kind, Tracked};
use crate::model::{Fate, Held, Life, Scope, TaskUse};
use crate::rng::Rng;
use crate::verdict::violation;
use crate::world::{Me, World};
use mainspring::{AwaitError, Cost, Cx};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Something that becomes ready once, and wakes its waiter.
#[derive(Debug, Default)]
struct Signal {
    is_ready: AtomicBool,
    waker: Mutex<Option<Waker>>,
    polls: AtomicU32,
}

impl Signal {
    fn waker(&self) -> std::sync::MutexGuard<'_, Option<Waker>> {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes, perhaps more than once, and leaves a waker behind that wakes no task any more.
    fn set(&self, stale: Option<&Mutex<Vec<Waker>>>, again: bool) {
        self.is_ready.store(true, Ordering::SeqCst);
        let waker = self.waker().take();
        let Some(waker) = waker else { return };
        if again {
            waker.wake_by_ref();
        }
        if let Some(stale) = stale {
            let mut stale = stale.lock().unwrap_or_else(PoisonError::into_inner);
            if stale.len() < 64 {
                stale.push(waker.clone());
            }
        }
        waker.wake();
    }
}

/// Sets the signal on every way out.
struct SetLast(Arc<Signal>);

impl Drop for SetLast {
    fn drop(&mut self) {
        self.0.set(None, false);
    }
}

struct Wait {
    signal: Arc<Signal>,
    value: Tracked,
}

impl Future for Wait {
    type Output = u32;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<u32> {
        self.value.check();
        self.signal.polls.fetch_add(1, Ordering::SeqCst);
        *self.signal.waker() = Some(context.waker().clone());
        if self.signal.is_ready.load(Ordering::SeqCst) {
            Poll::Ready(self.value.slot())
        } else {
            Poll::Pending
        }
    }
}

/// Awaits, and pays for each poll. Tasks without `CapExecutor` are refused, and poll nothing.
fn await_it(cx: &Cx, me: &Me<'_>, signal: &Arc<Signal>) {
    let value = Tracked::new(Kind::Local);
    let slot = value.slot();
    // A poll more may be paid for than is made, if the task is cancelled in between.
    me.may_cost(Cost::iterations(16));
    let result = cx.await_future(Wait { signal: signal.clone(), value });
    me.look(cx);
    let polls = signal.polls.load(Ordering::SeqCst);
    let result = match result {
        Ok(_) if !me.authority.executor => violation("a task awaited a future without CapExecutor"),
        Ok(result) => result,
        Err(AwaitError::NotPermitted) if !me.authority.executor => {
            if polls != 0 {
                violation("a future that was refused has been polled");
            }
            return;
        }
        Err(error) => violation(format_args!("a future was refused: {error}")),
    };
    me.may_cost(Cost::iterations(polls.saturating_sub(16)));
    me.did_cost(Cost::iterations(polls));
    if result != slot {
        violation("a future has another's result");
    }
}

pub fn ready(cx: &Cx, me: &Me<'_>, _: &mut Rng) {
    if !me.affords(cx, ops(4)) {
        return;
    }
    let signal = Arc::new(Signal::default());
    signal.set(None, false);
    await_it(cx, me, &signal);
}

pub fn woken(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    if !me.authority.executor || !me.affords(cx, ops(200)) {
        return;
    }
    let signal = Arc::new(Signal::default());
    let last = SetLast(signal.clone());
    let again = rng.one_in(3);
    if let (Some(host), true) = (me.world.hosts.first(), rng.one_in(2)) {
        let sent = host.send(Box::new(move || {
            let last = last;
            if again {
                std::thread::yield_now();
            }
            last.0.set(None, again);
        }));
        drop(sent);
        return await_it(cx, me, &signal);
    }
    with_open_nursery(cx, me, rng, |cx, open: &OpenNursery<'_, '_, '_>, rng| {
        let seed = rng.draw();
        open.spawn(cx, little(), move |cx, me| {
            let last = last;
            let mut rng = Rng::new(seed);
            for _ in 0..rng.below(3) {
                cx.yield_now();
                me.look(cx);
            }
            if rng.one_in(4) {
                cx.sleep(Duration::from_micros(20));
            }
            last.0.set(rng.one_in(2).then_some(&me.world.stale), again);
        });
        await_it(cx, open.me, &signal);
    });
}

/// Wakes those whose wait may be over.
pub fn stale_waker(me: &Me<'_>, rng: &mut Rng) {
    wake_stale(me.world, rng);
}

pub fn wake_stale(world: &World, rng: &mut Rng) {
    let mut stale = world.stale.lock().unwrap_or_else(PoisonError::into_inner);
    if stale.is_empty() {
        return;
    }
    let place = rng.below(stale.len() as u64) as usize;
    match rng.below(3) {
        0 => stale.swap_remove(place).wake(),
        1 => stale[place].wake_by_ref(),
        _ => {
            let copy = stale[place].clone();
            drop(stale);
            copy.wake();
        }
    }
}

/// A future that is a task: wakes itself a few times, and then returns.
pub struct ChildFuture {
    scope: Arc<Scope>,
    fate: Arc<Fate>,
    used: TaskUse,
    life: Option<Life>,
    turns: u32,
    value: Tracked,
    _held: Held,
}

pub fn child(scope: &Arc<Scope>, fate: &Arc<Fate>, used: TaskUse) -> ChildFuture {
    let value = Tracked::new(Kind::Capture);
    // A poll may be paid for and not made.
    used.may_cost(Cost::CALL);
    ChildFuture {
        scope: scope.clone(),
        fate: fate.clone(),
        used,
        life: None,
        turns: value.slot() % 4,
        value,
        _held: Held::by(scope),
    }
}

impl Future for ChildFuture {
    type Output = Parcel;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Parcel> {
        self.value.check();
        self.used.may_cost(Cost::CALL);
        self.used.did_cost(Cost::CALL);
        if self.life.is_none() {
            let life = Life::begin(&self.scope, &self.fate);
            self.life = Some(life);
        }
        if self.turns > 0 {
            self.turns -= 1;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let parcel = Parcel::new(&self.scope);
        if let Some(life) = &self.life {
            life.returns(parcel.slot());
        }
        Poll::Ready(parcel)
    }
}
