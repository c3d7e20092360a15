//! One value once, the latest value, and every value for many.

use super::messages::admitted;
use super::scope::{OpenNursery, with_open_nursery};
use crate::ledger::{Kind, Tracked};
use crate::rng::Rng;
use crate::verdict::violation;
use crate::world::Me;
use mainspring::sync::{BroadcastError, BroadcastReceiver, BroadcastSender, WatchReceiver, WatchSender};
use mainspring::{Budget, Component, Cost, Cx, Refusal, SendError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

const VALUES: u64 = 8;

/// What one end needs.
fn share() -> Budget {
    Budget { ops: 120, channel_ops: 3 * VALUES as u16, ..Budget::ZERO }
}

/// What the sending end has done, and whether the ends are gone: said before they go.
#[derive(Default)]
struct Facts {
    /// Sends that were begun, and those that were done.
    begun: AtomicU64,
    done: AtomicU64,
    gone: AtomicBool,
    receivers: AtomicI64,
}

impl Facts {
    /// The last value, by its number, if there will be no other.
    fn check_last(&self, what: &str, number: u64) {
        if !self.gone.load(Ordering::SeqCst) {
            violation(format_args!("{what}: closed, and the sender is there"));
        }
        let (done, begun) = (self.done.load(Ordering::SeqCst), self.begun.load(Ordering::SeqCst));
        if !(done..=begun).contains(&number) {
            violation(format_args!("{what}: the last value is {number}; {done} to {begun} were sent"));
        }
    }
}

struct Numbered {
    value: Tracked,
    number: u64,
}

/// A sending end, and the word that it goes.
struct From<T>(Arc<Facts>, T);

impl<T> Drop for From<T> {
    fn drop(&mut self) {
        self.0.gone.store(true, Ordering::SeqCst);
    }
}

/// A receiving end.
struct To<T>(Arc<Facts>, T);

impl<T> To<T> {
    fn new(facts: &Arc<Facts>, end: T) -> Self {
        facts.receivers.fetch_add(1, Ordering::SeqCst);
        Self(facts.clone(), end)
    }
}

impl<T> Drop for To<T> {
    fn drop(&mut self) {
        self.0.receivers.fetch_sub(1, Ordering::SeqCst);
    }
}

fn linger(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    for _ in 0..rng.below(3) {
        cx.yield_now();
        me.look(cx);
    }
}

fn some_time(rng: &mut Rng) -> Option<Duration> {
    rng.one_in(3).then(|| Duration::from_micros(rng.pick(&[0, 30, 200])))
}

/// A refusal that has nothing to do with the other end.
fn own_refusal(me: &Me<'_>, why: Refusal, is_timed: bool) {
    match why {
        Refusal::Budget(_) if !me.was_granted(Component::ChannelOps) => {}
        Refusal::TimedOut | Refusal::WouldBlock if is_timed => {}
        Refusal::Unwinding if me.cleans_up.get() => {}
        why => violation(format_args!("a value is refused: {why}")),
    }
}

/// What was sent is what comes, and what was not sent does not.
pub fn oneshot(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let made = cx.oneshot::<Numbered>();
    admitted(me, 1, &made);
    let Ok((tx, rx)) = made else { return };
    if !me.affords(cx, Cost::CHANNEL_OP.amounts()) {
        return;
    }
    let facts = Arc::new(Facts::default());
    let from = From(facts.clone(), Some(tx));
    let (sends, mut own, mut closed) = (!rng.one_in(4), rng.fork(), false);
    with_open_nursery(cx, me, rng, |cx, open: &OpenNursery<'_, '_, '_>, rng| {
        let mut to = To::new(&facts, rx);
        open.spawn(cx, share(), move |cx, me| {
            let mut from = from;
            linger(cx, me, &mut own);
            let Some(tx) = from.1.take_if(|_| sends) else { return };
            let value = Numbered { value: Tracked::new(Kind::Message), number: 1 };
            from.0.begun.store(1, Ordering::SeqCst);
            // The sender goes with the value.
            from.0.gone.store(true, Ordering::SeqCst);
            match me.paid(cx, Cost::CHANNEL_OP, || tx.send(cx, value), is_paid_send) {
                Ok(()) => from.0.done.store(1, Ordering::SeqCst),
                Err(SendError { why: Refusal::Closed, value })
                    if from.0.receivers.load(Ordering::SeqCst) == 0 =>
                {
                    value.value.check();
                }
                Err(SendError { why, .. }) => own_refusal(me, why, false),
            }
        });
        linger(cx, open.me, rng);
        if rng.one_in(6) {
            return;
        }
        let (me, time) = (open.me, some_time(rng));
        let received = match time {
            Some(time) => me.paid(cx, Cost::CHANNEL_OP, || to.1.recv_timeout(cx, time), is_paid),
            // With an end in sight: the sender sends or goes.
            None => {
                let long = Duration::from_secs(3600);
                me.paid(cx, Cost::CHANNEL_OP, || to.1.recv_timeout(cx, long), is_paid)
            }
        };
        match received {
            Ok(value) => {
                value.value.check();
                if !sends || value.number != 1 || facts.begun.load(Ordering::SeqCst) != 1 {
                    violation("a value comes that was not sent");
                }
            }
            Err(Refusal::Closed) => {
                facts.check_last("oneshot", 0);
                closed = true;
            }
            Err(why) => own_refusal(me, why, time.is_some()),
        }
    });
    if closed && facts.done.load(Ordering::SeqCst) == 1 {
        violation("a value that was sent does not come");
    }
}

fn is_paid_send<T>(result: &Result<(), SendError<T>>) -> bool {
    !matches!(result, Err(SendError { why: Refusal::Budget(_), .. }))
}

fn is_paid<T>(result: &Result<T, Refusal>) -> bool {
    !matches!(result, Err(Refusal::Budget(_)))
}

/// Values get newer, and the last one is seen.
pub fn watch(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let made = cx.watch(Numbered { value: Tracked::new(Kind::Message), number: 0 });
    admitted(me, 1, &made);
    let Ok((tx, rx)) = made else { return };
    let facts = Arc::new(Facts::default());
    let from = From(facts.clone(), tx);
    with_open_nursery(cx, me, rng, |cx, open: &OpenNursery<'_, '_, '_>, rng| {
        for _ in 0..1 + rng.below(2) {
            let (to, own) = (To::new(&facts, rx.clone()), rng.fork());
            open.spawn(cx, share(), move |cx, me| follow(cx, me, to, own));
        }
        let mut own = rng.fork();
        open.spawn(cx, share(), move |cx, me| {
            let From(facts, tx): &From<WatchSender<Numbered>> = &from;
            for number in 1..=own.below(VALUES) {
                linger(cx, me, &mut own);
                facts.begun.store(number, Ordering::SeqCst);
                let value = Numbered { value: Tracked::new(Kind::Message), number };
                match me.paid(cx, Cost::CHANNEL_OP, || tx.send(cx, value), is_paid) {
                    Ok(()) => facts.done.store(number, Ordering::SeqCst),
                    Err(why) => own_refusal(me, why, false),
                }
            }
        });
    });
}

fn follow(cx: &Cx, me: &Me<'_>, mut to: To<WatchReceiver<Numbered>>, mut rng: Rng) {
    let mut seen = to.1.get().number;
    for _ in 0..2 * VALUES {
        linger(cx, me, &mut rng);
        let time = some_time(&mut rng);
        let changed = me.paid(
            cx,
            Cost::CHANNEL_OP,
            || match time {
                Some(time) => to.1.changed_timeout(cx, time),
                None => to.1.changed(cx),
            },
            is_paid,
        );
        let now = to.1.get();
        now.value.check();
        match changed {
            Ok(()) if now.number > seen => seen = now.number,
            Ok(()) => violation(format_args!("{} comes after {seen}", now.number)),
            Err(Refusal::Closed) => return to.0.check_last("watch", now.number),
            Err(why) => {
                own_refusal(me, why, time.is_some());
                if now.number < seen {
                    violation(format_args!("{} comes after {seen}", now.number));
                }
                seen = now.number;
            }
        }
    }
}

/// Every value comes once and in order, or is missed and counted.
pub fn broadcast(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let room = 1 + rng.below(4) as u32;
    let made = cx.broadcast::<Numbered>(room);
    admitted(me, room, &made);
    let Ok((tx, rx)) = made else { return };
    let facts = Arc::new(Facts::default());
    let (from, first) = (From(facts.clone(), tx), To::new(&facts, rx));
    with_open_nursery(cx, me, rng, |cx, open: &OpenNursery<'_, '_, '_>, rng| {
        if rng.one_in(2) {
            let other = if rng.one_in(2) { first.1.clone() } else { from.1.subscribe() };
            let (to, own) = (To::new(&facts, other), rng.fork());
            open.spawn(cx, share(), move |cx, me| listen(cx, me, to, own));
        }
        let own = rng.fork();
        open.spawn(cx, share(), move |cx, me| listen(cx, me, first, own));
        let mut own = rng.fork();
        open.spawn(cx, share(), move |cx, me| {
            let From(facts, tx): &From<BroadcastSender<Numbered>> = &from;
            for number in 1..=own.below(VALUES) {
                linger(cx, me, &mut own);
                facts.begun.store(number, Ordering::SeqCst);
                let value = Numbered { value: Tracked::new(Kind::Message), number };
                match me.paid(cx, Cost::CHANNEL_OP, || tx.send(cx, value), is_paid_send) {
                    Ok(()) => facts.done.store(number, Ordering::SeqCst),
                    Err(SendError { why: Refusal::Closed, value })
                        if facts.receivers.load(Ordering::SeqCst) == 0 =>
                    {
                        value.value.check();
                        // It does not count as sent.
                        return facts.begun.store(number - 1, Ordering::SeqCst);
                    }
                    Err(SendError { why, .. }) => own_refusal(me, why, false),
                }
            }
        });
    });
}

fn listen(cx: &Cx, me: &Me<'_>, mut to: To<BroadcastReceiver<Numbered>>, mut rng: Rng) {
    let mut next = 1;
    for _ in 0..2 * VALUES {
        linger(cx, me, &mut rng);
        let time = some_time(&mut rng);
        let received = me.paid(
            cx,
            Cost::CHANNEL_OP,
            || match time {
                Some(Duration::ZERO) => to.1.try_recv(cx),
                Some(time) => to.1.recv_timeout(cx, time),
                None => to.1.recv(cx),
            },
            |result| !matches!(result, Err(BroadcastError::Refused(Refusal::Budget(_)))),
        );
        match received {
            Ok(value) => {
                value.value.check();
                if value.number != next {
                    violation(format_args!("{} comes where {next} should", value.number));
                }
                next += 1;
            }
            Err(BroadcastError::Missed(missed)) if missed > 0 => next += missed,
            Err(BroadcastError::Refused(Refusal::Closed)) => return to.0.check_last("broadcast", next - 1),
            Err(BroadcastError::Refused(why)) => own_refusal(me, why, time.is_some()),
            Err(error) => violation(format_args!("a broadcast: {error}")),
        }
    }
}
