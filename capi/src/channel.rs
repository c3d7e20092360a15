//! Channels of 64-bit words, between tasks and threads of any scheduler.
//!
//! Conserved: a word that was sent is received once, or its sender is told, or the channel was destroyed. A destroyed channel is
//! closed for those who wait in it.
#![allow(unsafe_code)]

use crate::caller::{Caller, call, status};
use crate::handle::{Kind, Name, Table};
use crate::layout::{JANUS_FOREVER, janus_channel};
use crate::scheduler::current;
use crate::status::{JANUS_INVALID_ARGUMENT, Problem};
use mainspring::{Capacity, Receiver, Refusal, SendError, Sender};
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Channel {
    sender: Sender<u64>,
    receiver: Receiver<u64>,
}

pub(crate) static CHANNELS: Table<Arc<Channel>> = Table::new(Kind::Channel);

/// What a channel costs the task that makes it, beside its buffer.
const CHANNEL_BYTES: usize = 256;
/// The largest buffer.
const MOST_WORDS: u32 = 1 << 20;

/// Makes a channel for `capacity` words; with 0 a send waits for its receiver. Null if that fails. A task needs
/// `JANUS_CAP_CHANNEL`.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_channel_create(capacity: u32) -> janus_channel {
    let made = call(|caller| {
        if capacity > MOST_WORDS {
            return Err(Problem::new(
                JANUS_INVALID_ARGUMENT,
                format_args!("room for {capacity} words; choose at most {MOST_WORDS}"),
            ));
        }
        let room = if capacity == 0 { Capacity::Rendezvous } else { Capacity::Bounded(capacity) };
        let (sender, receiver) = match caller {
            Caller::Task(frame) => {
                let cx = frame.running()?;
                let pair = cx.channel(room)?;
                cx.charge_alloc(CHANNEL_BYTES + capacity as usize * 8)?;
                pair
            }
            Caller::Host(host) => current(host.scheduler)?.enter()?.runtime().channel(room),
        };
        Ok(CHANNELS.insert(Arc::new(Channel { sender, receiver }))?)
    });
    made.map_or(null_mut(), Name::handle)
}

/// How long a call may wait.
#[derive(Clone, Copy)]
enum Patience {
    None,
    For(Duration),
    Forever,
}

impl Patience {
    fn of(timeout_ns: u64) -> Self {
        match timeout_ns {
            0 => Self::None,
            JANUS_FOREVER => Self::Forever,
            ns => Self::For(Duration::from_nanos(ns)),
        }
    }
}

/// Sends a word, waiting at most `timeout_ns`: 0 only tries, `JANUS_FOREVER` waits as long as it takes. A task pays one op and one
/// channel operation.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_channel_send(channel: janus_channel, word: u64, timeout_ns: u64) -> i32 {
    status(|caller| {
        let channel = CHANNELS.get(Name::of(channel))?;
        let (sender, patience) = (&channel.sender, Patience::of(timeout_ns));
        let sent = match (caller.running()?, patience) {
            (Some(cx), Patience::None) => sender.try_send(cx, word),
            (Some(cx), Patience::For(time)) => sender.send_timeout(cx, word, time),
            (Some(cx), Patience::Forever) => sender.send(cx, word),
            (None, Patience::None) => tried(sender.send_blocking_timeout(word, Duration::ZERO)),
            (None, Patience::For(time)) => sender.send_blocking_timeout(word, time),
            (None, Patience::Forever) => sender.send_blocking(word),
        };
        Ok(sent.map_err(|error| error.why)?)
    })
}

/// A thread that only tries waits for no time.
fn tried(sent: Result<(), SendError<u64>>) -> Result<(), SendError<u64>> {
    sent.map_err(|error| SendError { why: at_once(error.why), ..error })
}

fn at_once(why: Refusal) -> Refusal {
    if why == Refusal::TimedOut { Refusal::WouldBlock } else { why }
}

/// Receives a word, waiting as `janus_channel_send` does.
///
/// # Safety
///
/// `word` is null or can be written to.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn janus_channel_recv(channel: janus_channel, word: *mut u64, timeout_ns: u64) -> i32 {
    status(|caller| {
        let channel = CHANNELS.get(Name::of(channel))?;
        if word.is_null() {
            return Err(JANUS_INVALID_ARGUMENT.into());
        }
        let (receiver, patience) = (&channel.receiver, Patience::of(timeout_ns));
        let received = match (caller.running()?, patience) {
            (Some(cx), Patience::None) => receiver.try_recv(cx),
            (Some(cx), Patience::For(time)) => receiver.recv_timeout(cx, time),
            (Some(cx), Patience::Forever) => receiver.recv(cx),
            (None, Patience::None) => receiver.recv_blocking_timeout(Duration::ZERO).map_err(at_once),
            (None, Patience::For(time)) => receiver.recv_blocking_timeout(time),
            (None, Patience::Forever) => receiver.recv_blocking(),
        };
        // SAFETY: not null, and the caller says that it can be written to.
        unsafe { word.write(received?) };
        Ok(())
    })
}

/// Closes the channel: later sends are refused, and receivers get what is left.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_channel_close(channel: janus_channel) -> i32 {
    status(|_| {
        CHANNELS.get(Name::of(channel))?.sender.close();
        Ok(())
    })
}

/// Closes the channel and gives its handle back. Words that are left in it are lost.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_channel_destroy(channel: janus_channel) -> i32 {
    status(|_| {
        CHANNELS.remove(Name::of(channel))?.sender.close();
        Ok(())
    })
}
