//! Channels with numbered messages: received at most once, in the order of each sender, and only closed if a task closed
//! them.

use crate::ledger::{Kind, Tracked};
use crate::options::Mutant;
use crate::verdict::violation;
use crate::world::Me;
use mainspring::{BudgetError, Capacity, Component, Cost, Cx, Receiver, Refusal, Select, SendError, Sender};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

#[derive(Debug)]
pub struct Message {
    value: Tracked,
    line: usize,
    from: u64,
    number: u64,
}

impl Message {
    pub fn new(me: &Me<'_>, tx: &Tx) -> Self {
        let number = me.number();
        let backwards = me.world.options.mutant == Some(Mutant::Order);
        tx.message(me.uid, if backwards { u64::MAX - number } else { number })
    }
}

#[derive(Debug)]
struct Facts {
    id: usize,
    capacity: Capacity,
    /// Ends that are left: taken off before the end goes.
    senders: AtomicI64,
    receivers: AtomicI64,
    closing: AtomicBool,
    sent: AtomicU64,
    received: AtomicU64,
}

pub struct Tx {
    end: Sender<Message>,
    facts: Arc<Facts>,
}

pub struct Rx {
    end: Receiver<Message>,
    facts: Arc<Facts>,
}

/// Both ends of a channel that all tasks use.
pub struct Line {
    pub tx: Tx,
    pub rx: Rx,
}

pub fn line(capacity: Capacity, (tx, rx): (Sender<Message>, Receiver<Message>)) -> Line {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let facts = Arc::new(Facts {
        id: NEXT.fetch_add(1, Ordering::Relaxed),
        capacity,
        senders: AtomicI64::new(1),
        receivers: AtomicI64::new(1),
        closing: AtomicBool::new(false),
        sent: AtomicU64::new(0),
        received: AtomicU64::new(0),
    });
    Line { tx: Tx { end: tx, facts: facts.clone() }, rx: Rx { end: rx, facts } }
}

/// How long a send or a receive waits.
#[derive(Clone, Copy, Debug)]
pub enum Patience {
    None,
    Until(Duration),
    Forever,
}

impl Tx {
    pub fn message(&self, from: u64, number: u64) -> Message {
        Message { value: Tracked::new(Kind::Message), line: self.facts.id, from, number }
    }

    pub fn end(&self) -> &Sender<Message> {
        &self.end
    }

    pub fn close(&self) {
        self.facts.closing.store(true, Ordering::SeqCst);
        self.end.close();
    }

    /// Sends by a task. False if the channel takes no more.
    pub fn send(&self, cx: &Cx, me: &Me<'_>, patience: Patience) -> bool {
        let message = Message::new(me, self);
        // Counted before it can be received.
        self.facts.sent.fetch_add(1, Ordering::SeqCst);
        let result = me.paid(
            cx,
            Cost::CHANNEL_OP,
            || match patience {
                Patience::None => self.end.try_send(cx, message),
                Patience::Until(time) => self.end.send_timeout(cx, message, time),
                Patience::Forever => self.end.send(cx, message),
            },
            |result| !matches!(result, Err(SendError { why: Refusal::Budget(_), .. })),
        );
        self.sent(
            result.as_ref().map_err(|error| (error.why, &error.value)).copied(),
            me.has_none(Component::ChannelOps),
        );
        match result {
            Ok(()) => true,
            Err(error) => {
                check_refusal(error.why, me, patience);
                error.why != Refusal::Closed && error.why != Refusal::Unwinding
            }
        }
    }

    /// Sends by an ordinary thread. False if the channel takes no more.
    pub fn send_blocking(&self, from: u64, number: u64) -> bool {
        self.facts.sent.fetch_add(1, Ordering::SeqCst);
        let result = self.end.send_blocking(self.message(from, number));
        self.sent(result.as_ref().map_err(|error| (error.why, &error.value)).copied(), false);
        result.is_ok()
    }

    /// What came of a send, however it was made.
    pub fn sent(&self, result: Result<(), (Refusal, &Message)>, must_refuse: bool) {
        match result {
            Ok(()) if must_refuse => violation("a task that was granted no channel operations sends"),
            Ok(()) => {}
            Err((why, message)) => {
                message.value.check();
                self.facts.sent.fetch_sub(1, Ordering::SeqCst);
                self.facts.check(why, &self.facts.receivers);
                if why == Refusal::WouldBlock && self.facts.capacity == Capacity::Unbounded {
                    violation("a channel without bound is full");
                }
            }
        }
    }

    /// Before a send by a select.
    pub fn offer(&self) {
        self.facts.sent.fetch_add(1, Ordering::SeqCst);
    }
}

impl Facts {
    fn check(&self, why: Refusal, other_side: &AtomicI64) {
        let may_close = self.closing.load(Ordering::SeqCst) || other_side.load(Ordering::SeqCst) == 0;
        if why == Refusal::Closed && !may_close {
            violation("a channel is closed that nobody closed");
        }
    }
}

fn check_refusal(why: Refusal, me: &Me<'_>, patience: Patience) {
    match why {
        Refusal::Closed => {}
        Refusal::WouldBlock if matches!(patience, Patience::None) => {}
        Refusal::TimedOut if matches!(patience, Patience::Until(_)) => {}
        Refusal::Budget(BudgetError::NeverGranted(Component::ChannelOps))
            if !me.was_granted(Component::ChannelOps) => {}
        // A cancelled task whose cleanup runs: its waits are cut short.
        Refusal::Unwinding if me.cleans_up.get() => {}
        other => violation(format_args!("a channel operation with {patience:?} is refused: {other:?}")),
    }
}

impl Rx {
    pub fn end(&self) -> &Receiver<Message> {
        &self.end
    }

    pub fn len(&self) -> usize {
        let len = self.end.len();
        let most = match self.facts.capacity {
            Capacity::Rendezvous => 0,
            Capacity::Bounded(n) => n as usize,
            Capacity::Unbounded => usize::MAX,
        };
        if len > most {
            violation(format_args!("a channel of {most} holds {len}"));
        }
        len
    }

    /// Receives by a task. False if nothing more will come.
    pub fn recv(&self, cx: &Cx, me: &Me<'_>, patience: Patience) -> bool {
        let result = me.paid(
            cx,
            Cost::CHANNEL_OP,
            || match patience {
                Patience::None => self.end.try_recv(cx),
                Patience::Until(time) => self.end.recv_timeout(cx, time),
                Patience::Forever => self.end.recv(cx),
            },
            |result| !matches!(result, Err(Refusal::Budget(_))),
        );
        self.received(&result, Some(me));
        match result {
            Ok(_) => true,
            Err(why) => {
                check_refusal(why, me, patience);
                why != Refusal::Closed && why != Refusal::Unwinding
            }
        }
    }

    /// Receives on an ordinary thread, until the channel is closed.
    pub fn drain_blocking(&self) {
        loop {
            let result = self.end.recv_blocking();
            self.received(&result, None);
            if result.is_err() {
                return;
            }
        }
    }

    /// As [`Rx::drain_blocking`], by selects beside a channel on which nothing ever comes.
    pub fn select_blocking(&self, never: &Receiver<()>) {
        loop {
            let result = Select::new()
                .recv(never, |_| violation("something comes on a channel that nobody sends on"))
                .recv(&self.end, |result| result)
                .run_blocking();
            self.received(&result, None);
            if result.is_err() {
                return;
            }
        }
    }

    /// What came of a receive, however it was made.
    pub fn received(&self, result: &Result<Message, Refusal>, me: Option<&Me<'_>>) {
        match result {
            Ok(message) => {
                message.value.check();
                if message.line != self.facts.id {
                    violation("a message comes out of another channel");
                }
                let received = self.facts.received.fetch_add(1, Ordering::SeqCst) + 1;
                if received > self.facts.sent.load(Ordering::SeqCst) {
                    violation("a channel gives more than it was given");
                }
                let Some(me) = me else { return };
                if me.has_none(Component::ChannelOps) {
                    violation("a task that was granted no channel operations receives");
                }
                let mut seen = me.seen.borrow_mut();
                let known =
                    seen.iter_mut().find(|(line, from, _)| (*line, *from) == (message.line, message.from));
                match known {
                    Some((_, _, last)) if *last >= message.number => {
                        violation(format_args!("message {} comes after message {last}", message.number))
                    }
                    Some((_, _, last)) => *last = message.number,
                    None => seen.push((message.line, message.from, message.number)),
                }
            }
            Err(why) => self.facts.check(*why, &self.facts.senders),
        }
    }
}

impl Clone for Tx {
    fn clone(&self) -> Self {
        self.facts.senders.fetch_add(1, Ordering::SeqCst);
        Self { end: self.end.clone(), facts: self.facts.clone() }
    }
}

impl Clone for Rx {
    fn clone(&self) -> Self {
        self.facts.receivers.fetch_add(1, Ordering::SeqCst);
        Self { end: self.end.clone(), facts: self.facts.clone() }
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        self.facts.senders.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Rx {
    fn drop(&mut self) {
        self.facts.receivers.fetch_sub(1, Ordering::SeqCst);
    }
}
