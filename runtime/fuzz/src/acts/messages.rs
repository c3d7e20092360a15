//! Channels and selects.

use super::live;
use super::scope::{OpenNursery, with_open_nursery};
use crate::line::{self, Line, Message, Patience, Rx, Tx};
use crate::rng::Rng;
use crate::verdict::violation;
use crate::world::Me;
use mainspring::{Budget, Capacity, ChannelError, Component, Cost, Cx, Refusal, Select};
use std::time::Duration;

fn capacity(rng: &mut Rng) -> Capacity {
    match rng.below(5) {
        0 => Capacity::Rendezvous,
        1 => Capacity::Bounded(0),
        2 => Capacity::Bounded(1),
        3 => Capacity::Bounded(7),
        _ => Capacity::Unbounded,
    }
}

pub fn patience(rng: &mut Rng) -> Patience {
    match rng.below(4) {
        0 => Patience::Until(Duration::ZERO),
        1 => Patience::Until(Duration::from_micros(rng.below(300))),
        _ => Patience::None,
    }
}

/// Makes a channel, which the task's authority decides.
fn make(cx: &Cx, me: &Me<'_>, capacity: Capacity) -> Option<Line> {
    let asked = match capacity {
        Capacity::Rendezvous => 0,
        Capacity::Bounded(n) => n,
        Capacity::Unbounded => u32::MAX,
    };
    let made = cx.channel(capacity);
    admitted(me, asked, &made);
    made.ok().map(|ends| line::line(capacity, ends))
}

/// Whether a channel with such a buffer could be made is what the task's authority says.
pub fn admitted<T>(me: &Me<'_>, asked: u32, made: &Result<T, ChannelError>) {
    match (me.authority.channel, made) {
        (None, Err(ChannelError::NotPermitted)) => {}
        (None, Ok(_)) => violation("a task without CapChannel makes a channel"),
        (Some((_, most)), Err(ChannelError::BufferTooLarge { .. })) if asked > most => {}
        (Some((_, most)), Ok(_)) if asked > most => violation("a buffer beyond CapChannel"),
        (Some((most, _)), Err(ChannelError::TooMany(_))) if me.channels_made.get() >= most || me.is_half => {}
        (Some((most, _)), Ok(_)) if me.channels_made.get() >= most && !me.is_half => {
            violation(format_args!("a task makes more than {most} channels"));
        }
        (Some(_), Ok(_)) => {
            me.channels_made.set(me.channels_made.get() + 1);
        }
        // The halves of a join have their task's count, and the model does not see both.
        (Some(_), Err(ChannelError::TooMany(_))) if me.has_joined.get() => {}
        (authority, Err(error)) => violation(format_args!("a channel with {authority:?}: {error}")),
    }
}

pub fn channel(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let capacity = capacity(rng);
    let Some(Line { tx, rx }) = make(cx, me, capacity) else { return };
    // Some messages in it, and then either end goes first.
    for _ in 0..rng.below(4) {
        if me.affords(cx, Cost::CHANNEL_OP.amounts()) {
            tx.send(cx, me, Patience::None);
        }
    }
    rx.len();
    match rng.below(4) {
        0 => {
            drop(rx);
            if me.affords(cx, Cost::CHANNEL_OP.amounts())
                && tx.send(cx, me, Patience::None)
                && me.was_granted(Component::ChannelOps)
            {
                violation("a send to nobody is taken");
            }
        }
        1 => {
            drop(tx);
            while me.affords(cx, Cost::CHANNEL_OP.amounts()) && rx.recv(cx, me, Patience::Forever) {
                if !me.was_granted(Component::ChannelOps) {
                    break;
                }
            }
        }
        2 => {
            tx.close();
            if me.affords(cx, Cost::CHANNEL_OP.amounts()) {
                rx.recv(cx, me, Patience::None);
            }
        }
        _ => {}
    }
}

pub fn send(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let lines = &me.world.lines;
    let tx = &lines[rng.below(lines.len() as u64) as usize].tx;
    if me.affords(cx, Cost::CHANNEL_OP.amounts()) {
        tx.send(cx, me, patience(rng));
    }
}

pub fn receive(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let lines = &me.world.lines;
    let rx = &lines[rng.below(lines.len() as u64) as usize].rx;
    if me.affords(cx, Cost::CHANNEL_OP.amounts()) {
        rx.recv(cx, me, patience(rng));
    }
}

pub fn len(me: &Me<'_>, rng: &mut Rng) {
    let lines = &me.world.lines;
    lines[rng.below(lines.len() as u64) as usize].rx.len();
}

/// A select over the shared channels, with a timeout.
pub fn select(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    if !me.affords(cx, Cost::CHANNEL_OP.amounts()) {
        return;
    }
    let lines = &me.world.lines;
    let one = &lines[rng.below(lines.len() as u64) as usize];
    let other = &lines[rng.below(lines.len() as u64) as usize];
    let third = &lines[rng.below(lines.len() as u64) as usize];
    let mut value = (!rng.one_in(8)).then(|| Message::new(me, &other.tx));
    let offered = value.is_some();
    if offered {
        other.tx.offer();
    }
    enum Came {
        In(usize, Result<Message, Refusal>),
        Out(Result<(), Refusal>),
        Late,
    }
    let mut select = Select::new()
        .recv(one.rx.end(), |result| Came::In(0, result))
        .send(other.tx.end(), &mut value, Came::Out)
        .recv(third.rx.end(), |result| Came::In(1, result));
    if rng.one_in(3) {
        select = select.in_order();
    }
    let time = Duration::from_micros(rng.pick(&[0, 0, 30, 200]));
    let result = me.paid(
        cx,
        Cost::CHANNEL_OP,
        || select.run_timeout(cx, time, || Came::Late),
        |result| !matches!(result, Err(Refusal::Budget(_))),
    );
    let sent = matches!(result, Ok(Came::Out(Ok(()))));
    if offered && sent == value.is_some() {
        violation("a select keeps what it sent, or loses what it did not send");
    }
    if let (false, Some(value)) = (sent, &value) {
        other.tx.sent(Err((Refusal::TimedOut, value)), false);
    }
    match result {
        Ok(Came::In(arm, result)) => [one, third][arm].rx.received(&result, Some(me)),
        Ok(Came::Out(Ok(()))) if !offered => violation("an arm without a value is taken"),
        Ok(Came::Out(Err(why))) => {
            if let Some(value) = &value {
                other.tx.offer();
                other.tx.sent(Err((why, value)), false);
            }
        }
        Ok(Came::Out(Ok(())) | Came::Late) => {}
        Err(Refusal::Budget(_)) if !me.was_granted(Component::ChannelOps) => {}
        Err(Refusal::Unwinding) if me.cleans_up.get() => {}
        Err(why) => violation(format_args!("a select is refused: {why}")),
    }
}

const MESSAGES: u64 = 24;

/// What a task of a pipeline needs.
fn share() -> Budget {
    Budget { ops: 400, channel_ops: 2 * MESSAGES as u16 + 20, ..Budget::ZERO }
}

fn produce(cx: &Cx, me: &Me<'_>, tx: &Tx, rng: &mut Rng, count: u64) {
    for _ in 0..count {
        if rng.one_in(6) {
            cx.yield_now();
            me.look(cx);
        }
        if !tx.send(cx, me, Patience::Forever) {
            return;
        }
    }
}

fn consume(cx: &Cx, me: &Me<'_>, rx: &Rx, rng: &mut Rng) {
    while rx.recv(cx, me, Patience::Forever) {
        if rng.one_in(6) {
            cx.yield_now();
            me.look(cx);
        }
    }
}

/// Producers and consumers, which wait for as long as it takes: the last producer that ends closes the channel.
pub fn pipeline(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let capacity = capacity(rng);
    let Some(Line { tx, rx }) = make(cx, me, capacity) else { return };
    let (producers, consumers) = (1 + rng.below(3), 1 + rng.below(2));
    let count = 1 + rng.below(MESSAGES / producers / 2 + 1);
    with_open_nursery(cx, me, rng, |cx, open: &OpenNursery<'_, '_, '_>, rng| {
        for _ in 0..consumers {
            let (rx, mut own) = (rx.clone(), rng.fork());
            open.spawn(cx, share(), move |cx, me| consume(cx, me, &rx, &mut own));
        }
        for _ in 0..producers {
            let (tx, mut own) = (tx.clone(), rng.fork());
            open.spawn(cx, share(), move |cx, me| produce(cx, me, &tx, &mut own, count));
        }
        drop((tx, rx));
        live(cx, open.me, rng, 1);
    });
}

/// Two tasks that wait for each other in turn.
pub fn ping_pong(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let (there, back) = (capacity(rng), capacity(rng));
    let Some(there) = make(cx, me, there) else { return };
    let Some(back) = make(cx, me, back) else { return };
    let rounds = 1 + rng.below(MESSAGES);
    with_open_nursery(cx, me, rng, |cx, open: &OpenNursery<'_, '_, '_>, _| {
        let Line { tx, rx: at } = there;
        let Line { tx: answer, rx } = back;
        open.spawn(cx, share(), move |cx, me| {
            for _ in 0..rounds {
                if !tx.send(cx, me, Patience::Forever) || !rx.recv(cx, me, Patience::Forever) {
                    break;
                }
            }
        });
        open.spawn(cx, share(), move |cx, me| {
            for _ in 0..rounds {
                if !at.recv(cx, me, Patience::Forever) || !answer.send(cx, me, Patience::Forever) {
                    break;
                }
            }
        });
    });
}
